/* A stand-in for libnvidia-ml.so.1, scripted by the file named in NVML_STUB_CONTROL.
 *
 * The file holds "key=value" lines and is read again on every call, so that a test can change it
 * while a process runs. Keys (see green_core/testing/nvml.py, which writes them):
 *   count                 number of devices
 *   name, uuid.N          what device N is called
 *   period_ms             how often the energy counter moves
 *   base_mj, at_ms, watts counter value at a wall-clock time, and its slope from there on
 *   generation            a change makes every call fail until NVML is initialised again,
 *                         as after a reload of the driver
 *   error.FUNCTION        NVML return code that FUNCTION answers
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9
};

static long initialised_pid = 0;
static double initialised_generation = 0;

static int lookup(const char *key, char *value, size_t size)
{
    const char *path = getenv("NVML_STUB_CONTROL");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[512];
    size_t length = strlen(key);
    int found = 0;
    if (!file)
        return 0;
    while (!found && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, length) == 0 && line[length] == '=') {
            line[strcspn(line, "\n")] = 0;
            snprintf(value, size, "%s", line + length + 1);
            found = 1;
        }
    }
    fclose(file);
    return found;
}

static double number(const char *key, double fallback)
{
    char text[128];
    return lookup(key, text, sizeof text) ? atof(text) : fallback;
}

static int scripted_error(const char *function)
{
    char key[160];
    snprintf(key, sizeof key, "error.%s", function);
    return (int)number(key, SUCCESS);
}

/* What every call but initialisation checks first. A forked child is not initialised. */
static int check(const char *function)
{
    if (initialised_pid != (long)getpid() ||
        initialised_generation != number("generation", 0))
        return UNINITIALIZED;
    return scripted_error(function);
}

static int device_index(void *device)
{
    return (int)(intptr_t)device - 1;
}

int nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    int error = scripted_error("nvmlInitWithFlags");
    if (error)
        return error;
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
    int error = check("nvmlShutdown");
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
    int error = check("nvmlDeviceGetCount_v2");
    *count = (unsigned int)number("count", 1);
    return error;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device)
{
    int error = check("nvmlDeviceGetHandleByIndex_v2");
    if (!error && index >= (unsigned int)number("count", 1))
        return INVALID_ARGUMENT;
    *device = (void *)(intptr_t)(index + 1);
    return error;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    int error = check("nvmlDeviceGetHandleByUUID");
    int count = (int)number("count", 1);
    if (error)
        return error;
    for (int i = 0; i < count; i++) {
        char key[32], known[128];
        snprintf(key, sizeof key, "uuid.%d", i);
        if (lookup(key, known, sizeof known) && strcmp(known, uuid) == 0) {
            *device = (void *)(intptr_t)(i + 1);
            return SUCCESS;
        }
    }
    return NOT_FOUND;
}

static int text_answer(const char *function, const char *key, char *text, unsigned int size)
{
    char value[256] = "";
    int error = check(function);
    if (error)
        return error;
    lookup(key, value, sizeof value);
    if (strlen(value) >= size)
        return INSUFFICIENT_SIZE;
    strcpy(text, value);
    return SUCCESS;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned int size)
{
    char key[32];
    snprintf(key, sizeof key, "uuid.%d", device_index(device));
    return text_answer("nvmlDeviceGetUUID", key, uuid, size);
}

int nvmlDeviceGetName(void *device, char *name, unsigned int size)
{
    (void)device;
    return text_answer("nvmlDeviceGetName", "name", name, size);
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules)
{
    struct timespec now;
    int error = check("nvmlDeviceGetTotalEnergyConsumption");
    (void)device;
    if (error)
        return error;
    clock_gettime(CLOCK_REALTIME, &now);
    double since_ms = now.tv_sec * 1e3 + now.tv_nsec / 1e6 - number("at_ms", 0);
    double period_ms = number("period_ms", 100);
    if (period_ms > 0)
        since_ms = (double)(long long)(since_ms / period_ms) * period_ms;
    if (since_ms < 0)
        since_ms = 0;
    /* watts times milliseconds are millijoules */
    *millijoules = (unsigned long long)(number("base_mj", 0) + number("watts", 0) * since_ms);
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned int *milliwatts)
{
    int error = check("nvmlDeviceGetPowerUsage");
    (void)device;
    *milliwatts = (unsigned int)(number("watts", 0) * 1e3);
    return error;
}
