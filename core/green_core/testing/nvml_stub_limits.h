/* Clocks and power limits, which processes read and set. Part of nvml_stub.c. */
/* --- clocks ----------------------------------------------------------------------------- */

static unsigned int highest_clock_mhz(int index)
{
    return (unsigned int)of_device("max_clock_mhz", index, 1980);
}

static unsigned int memory_clock_mhz(int index)
{
    return (unsigned int)of_device("memory_clock_mhz", index, 2619);
}

static unsigned int within_lock(const char *key, int index, unsigned int mhz)
{
    char text[64];
    unsigned int low, high;
    if (!state(key, index, text, sizeof text) || sscanf(text, "%u %u", &low, &high) != 2)
        return mhz;
    return mhz < low ? low : mhz > high ? high : mhz;
}

int nvmlDeviceGetClockInfo(void *device, int type, unsigned int *mhz)
{
    int index = device_index(device);
    int error = check_board("nvmlDeviceGetClockInfo", device);
    if (type == CLOCK_GRAPHICS || type == CLOCK_SM)
        *mhz = within_lock("locked_gpu_mhz", index,
                           (unsigned int)of_device("clock_mhz", index, highest_clock_mhz(index)));
    else if (type == CLOCK_MEMORY)
        *mhz = within_lock("locked_memory_mhz", index, memory_clock_mhz(index));
    else
        return error ? error : NOT_SUPPORTED;
    return error;
}

int nvmlDeviceGetMaxClockInfo(void *device, int type, unsigned int *mhz)
{
    int index = device_index(device);
    int error = check_board("nvmlDeviceGetMaxClockInfo", device);
    *mhz = type == CLOCK_MEMORY ? memory_clock_mhz(index) : highest_clock_mhz(index);
    return error;
}

int nvmlDeviceGetSupportedMemoryClocks(void *device, unsigned int *count, unsigned int *mhz)
{
    int error = check_board("nvmlDeviceGetSupportedMemoryClocks", device);
    unsigned int room = *count;
    if (error)
        return error;
    *count = 1;
    if (!mhz || room < 1)
        return INSUFFICIENT_SIZE;
    mhz[0] = memory_clock_mhz(device_index(device));
    return SUCCESS;
}

int nvmlDeviceGetSupportedGraphicsClocks(void *device, unsigned int memory_mhz,
                                         unsigned int *count, unsigned int *mhz)
{
    int index = device_index(device);
    int error = check_board("nvmlDeviceGetSupportedGraphicsClocks", device);
    unsigned int room = *count, highest = highest_clock_mhz(index);
    if (error)
        return error;
    if (memory_mhz != memory_clock_mhz(index))
        return NOT_FOUND;
    *count = (highest - LOWEST_CLOCK_MHZ) / CLOCK_STEP_MHZ + 1;
    if (!mhz || room < *count)
        return INSUFFICIENT_SIZE;
    for (unsigned int i = 0; i < *count; i++)
        mhz[i] = highest - i * CLOCK_STEP_MHZ;
    return SUCCESS;
}

static int lock(const char *function, void *device, const char *key, unsigned int low,
                unsigned int high)
{
    char text[64];
    int error = check_board(function, device);
    if (error)
        return error;
    if (low > high)
        return INVALID_ARGUMENT;
    snprintf(text, sizeof text, "%u %u", low, high);
    return remember(key, device_index(device), text);
}

int nvmlDeviceSetGpuLockedClocks(void *device, unsigned int low, unsigned int high)
{
    return lock("nvmlDeviceSetGpuLockedClocks", device, "locked_gpu_mhz", low, high);
}

int nvmlDeviceSetMemoryLockedClocks(void *device, unsigned int low, unsigned int high)
{
    return lock("nvmlDeviceSetMemoryLockedClocks", device, "locked_memory_mhz", low, high);
}

int nvmlDeviceResetGpuLockedClocks(void *device)
{
    int error = check_board("nvmlDeviceResetGpuLockedClocks", device);
    return error ? error : remember("locked_gpu_mhz", device_index(device), "");
}

int nvmlDeviceResetMemoryLockedClocks(void *device)
{
    int error = check_board("nvmlDeviceResetMemoryLockedClocks", device);
    return error ? error : remember("locked_memory_mhz", device_index(device), "");
}

/* --- power limits ----------------------------------------------------------------------- */

static unsigned int default_limit_mw(int index)
{
    return (unsigned int)of_device("power_default_mw", index, 700e3);
}

static unsigned int limit_mw(int index)
{
    char text[64];
    if (state("power_limit_mw", index, text, sizeof text))
        return (unsigned int)atof(text);
    return (unsigned int)of_device("power_limit_mw", index, default_limit_mw(index));
}

static unsigned int lowest_limit_mw(int index)
{
    return (unsigned int)of_device("power_min_mw", index, 200e3);
}

static unsigned int highest_limit_mw(int index)
{
    return (unsigned int)of_device("power_max_mw", index, 700e3);
}

int nvmlDeviceGetPowerManagementLimit(void *device, unsigned int *milliwatts)
{
    *milliwatts = limit_mw(device_index(device));
    return check_board("nvmlDeviceGetPowerManagementLimit", device);
}

int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned int *milliwatts)
{
    *milliwatts = limit_mw(device_index(device));
    return check_board("nvmlDeviceGetEnforcedPowerLimit", device);
}

int nvmlDeviceGetPowerManagementDefaultLimit(void *device, unsigned int *milliwatts)
{
    *milliwatts = default_limit_mw(device_index(device));
    return check_board("nvmlDeviceGetPowerManagementDefaultLimit", device);
}

int nvmlDeviceGetPowerManagementLimitConstraints(void *device, unsigned int *low,
                                                 unsigned int *high)
{
    *low = lowest_limit_mw(device_index(device));
    *high = highest_limit_mw(device_index(device));
    return check_board("nvmlDeviceGetPowerManagementLimitConstraints", device);
}

int nvmlDeviceSetPowerManagementLimit(void *device, unsigned int milliwatts)
{
    char text[32];
    int index = device_index(device);
    int error = check_board("nvmlDeviceSetPowerManagementLimit", device);
    if (error)
        return error;
    if (milliwatts < lowest_limit_mw(index) || milliwatts > highest_limit_mw(index))
        return INVALID_ARGUMENT;
    snprintf(text, sizeof text, "%u", milliwatts);
    return remember("power_limit_mw", index, text);
}
