/* A stand-in for libnvidia-ml.so.1, scripted by the file named in NVML_STUB_CONTROL.
 *
 * The file holds "key=value" lines and is read again on every call, so that a test can change it
 * while a process runs. green_core/testing/nvml.py writes it. A key with ".N" holds for device N
 * and wins over the key without:
 *   count                   number of devices
 *   name, uuid              what a device is called
 *   period_ms               how often the energy counter moves
 *   base_mj, at_ms, watts   counter value at a wall-clock time, and its slope from there on
 *   instant_watts           the instant power field, where it differs from watts
 *   gpu_percent, memory_percent, clock_mhz, max_clock_mhz, memory_clock_mhz
 *   power_limit_mw, power_default_mw, power_min_mw, power_max_mw
 *   mig.N                   0 or 1: MIG mode; absent where the device has none
 *   mig_max                 how many slices a device with MIG mode on can have
 *   mig.N.K                 UUID of slice K; further mig.N.K.{gi,ci,gi_slices,ci_slices}
 *   generation              a change makes every call fail until NVML is initialised again,
 *                           as after a reload of the driver
 *   error.FUNCTION          NVML return code that FUNCTION answers (".N" for one device)
 *   error.field.ID          the same for one field of nvmlDeviceGetFieldValues
 *
 * What setters set is appended to the file CONTROL.state, where the last line wins over the
 * control file: power_limit_mw.N, locked_gpu_mhz.N and locked_memory_mhz.N ("min max", or empty).
 */
#include "nvml_stub_script.h"

int nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    int error = (int)number("error.nvmlInitWithFlags", SUCCESS);
    if (error)
        return error;
    users = initialised_pid == (long)getpid() ? users + 1 : 1;
    initialised_pid = (long)getpid();
    initialised_generation = number("generation", 0);
    return SUCCESS;
}

int nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

int nvmlShutdown(void)
{
    int error = check_any("nvmlShutdown");
    if (initialised_pid == (long)getpid() && --users <= 0)
        initialised_pid = 0;
    return error;
}

const char *nvmlErrorString(int result)
{
    static char text[32];
    snprintf(text, sizeof text, "stub error %d", result);
    return text;
}

int nvmlDeviceGetCount_v2(unsigned int *count)
{
    *count = (unsigned int)number("count", 1);
    return check_any("nvmlDeviceGetCount_v2");
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device)
{
    *device = (void *)(intptr_t)(index + 1);
    int error = check("nvmlDeviceGetHandleByIndex_v2", *device);
    if (!error && index >= (unsigned int)number("count", 1))
        return INVALID_ARGUMENT;
    return error;
}

static void uuid_key(char *key, size_t size, int board, int slice)
{
    if (slice < 0)
        snprintf(key, size, "uuid.%d", board);
    else
        snprintf(key, size, "mig.%d.%d", board, slice);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    int error = check_any("nvmlDeviceGetHandleByUUID");
    int count = (int)number("count", 1);
    for (int board = 0; !error && board < count; board++) {
        for (int slice = -1; slice < MOST_SLICES; slice++) {
            char key[48], known[128];
            uuid_key(key, sizeof key, board, slice);
            if (lookup(key, known, sizeof known) && strcmp(known, uuid) == 0) {
                *device = (void *)(intptr_t)(board + 1 + SLICES_PER_BOARD * (slice + 1));
                return check("nvmlDeviceGetHandleByUUID", *device);
            }
        }
    }
    return error ? error : NOT_FOUND;
}

static int text_answer(const char *key, char *text, unsigned int size)
{
    char value[256] = "";
    lookup(key, value, sizeof value);
    if (strlen(value) >= size)
        return INSUFFICIENT_SIZE;
    strcpy(text, value);
    return SUCCESS;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned int size)
{
    char key[48];
    int error = check("nvmlDeviceGetUUID", device);
    uuid_key(key, sizeof key, device_index(device), slice_index(device));
    return error ? error : text_answer(key, uuid, size);
}

int nvmlDeviceGetName(void *device, char *name, unsigned int size)
{
    char key[48], value[256];
    int error = check("nvmlDeviceGetName", device);
    snprintf(key, sizeof key, "name.%d", device_index(device));
    return error ? error : text_answer(lookup(key, value, sizeof value) ? key : "name", name, size);
}

/* --- energy, power, load ---------------------------------------------------------------- */

static unsigned long long counter_mj(int index)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    double since_ms =
        now.tv_sec * 1e3 + now.tv_nsec / 1e6 - of_device("at_ms", index, 0);
    double period_ms = of_device("period_ms", index, 100);
    if (period_ms > 0)
        since_ms = (double)(long long)(since_ms / period_ms) * period_ms;
    if (since_ms < 0)
        since_ms = 0;
    /* watts times milliseconds are millijoules */
    return (unsigned long long)(of_device("base_mj", index, 0) +
                                of_device("watts", index, 0) * since_ms);
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules)
{
    int error = check_board("nvmlDeviceGetTotalEnergyConsumption", device);
    if (!error)
        *millijoules = counter_mj(device_index(device));
    return error;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned int *milliwatts)
{
    *milliwatts = (unsigned int)(of_device("watts", device_index(device), 0) * 1e3);
    return check_board("nvmlDeviceGetPowerUsage", device);
}

int nvmlDeviceGetFieldValues(void *device, int count, field_value *values)
{
    int index = device_index(device);
    int error = check_board("nvmlDeviceGetFieldValues", device);
    for (int i = 0; !error && i < count; i++) {
        char key[48];
        double watts = of_device("watts", index, 0);
        if (values[i].field == FIELD_POWER_INSTANT)
            watts = of_device("instant_watts", index, watts);
        else if (values[i].field != FIELD_POWER_AVERAGE && values[i].field != FIELD_ENERGY) {
            values[i].result = NOT_SUPPORTED;
            continue;
        }
        snprintf(key, sizeof key, "error.field.%u", values[i].field);
        values[i].result = (int)of_device(key, index, SUCCESS);
        if (values[i].field == FIELD_ENERGY) {
            values[i].type = TYPE_UNSIGNED_LONG_LONG;
            values[i].value.large = counter_mj(index);
        } else {
            values[i].type = TYPE_UNSIGNED_INT;
            values[i].value.small = (unsigned int)(watts * 1e3);
        }
    }
    return error;
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned int *gpu_and_memory)
{
    gpu_and_memory[0] = (unsigned int)of_device("gpu_percent", device_index(device), 0);
    gpu_and_memory[1] = (unsigned int)of_device("memory_percent", device_index(device), 0);
    return check_board("nvmlDeviceGetUtilizationRates", device);
}

/* --- MIG -------------------------------------------------------------------------------- */

static int mig_mode(int index)
{
    char key[32];
    snprintf(key, sizeof key, "mig.%d", index);
    return (int)number(key, -1);
}

static double of_slice(void *device, const char *what, double fallback)
{
    char key[64];
    snprintf(key, sizeof key, "mig.%d.%d.%s", device_index(device), slice_index(device), what);
    return number(key, fallback);
}

int nvmlDeviceGetMigMode(void *device, unsigned int *current, unsigned int *pending)
{
    int error = check_board("nvmlDeviceGetMigMode", device);
    int mode = mig_mode(device_index(device));
    if (!error && mode < 0)
        return NOT_SUPPORTED;
    *current = *pending = (unsigned int)(mode > 0);
    return error;
}

int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned int *count)
{
    int index = device_index(device);
    int error = check_board("nvmlDeviceGetMaxMigDeviceCount", device);
    *count = mig_mode(index) > 0 ? (unsigned int)of_device("mig_max", index, 7) : 0;
    return error;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned int slice, void **found)
{
    char key[48], uuid[128];
    int error = check_board("nvmlDeviceGetMigDeviceHandleByIndex", device);
    if (error)
        return error;
    uuid_key(key, sizeof key, device_index(device), (int)slice);
    if (mig_mode(device_index(device)) <= 0 || !lookup(key, uuid, sizeof uuid))
        return NOT_FOUND;
    *found = (void *)((intptr_t)device + SLICES_PER_BOARD * (intptr_t)(slice + 1));
    return SUCCESS;
}

int nvmlDeviceIsMigDeviceHandle(void *device, unsigned int *answer)
{
    *answer = slice_index(device) >= 0;
    return check("nvmlDeviceIsMigDeviceHandle", device);
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *slice, void **device)
{
    *device = (void *)(intptr_t)(device_index(slice) + 1);
    return check_slice("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", slice);
}

int nvmlDeviceGetGpuInstanceId(void *device, unsigned int *id)
{
    *id = (unsigned int)of_slice(device, "gi", slice_index(device));
    return check_slice("nvmlDeviceGetGpuInstanceId", device);
}

int nvmlDeviceGetComputeInstanceId(void *device, unsigned int *id)
{
    *id = (unsigned int)of_slice(device, "ci", 0);
    return check_slice("nvmlDeviceGetComputeInstanceId", device);
}

int nvmlDeviceGetAttributes_v2(void *device, attributes *found)
{
    int error = check_slice("nvmlDeviceGetAttributes_v2", device);
    memset(found, 0, sizeof *found);
    found->gpu_instance_slices = (unsigned int)of_slice(device, "gi_slices", 1);
    found->compute_instance_slices = (unsigned int)of_slice(device, "ci_slices", 1);
    return error;
}

#include "nvml_stub_limits.h"
