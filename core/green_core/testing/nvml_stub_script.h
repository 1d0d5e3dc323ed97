/* How the stub is scripted: its two files (described in nvml_stub.c), handles and errors. */
#include <fcntl.h>
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
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    UNKNOWN = 999
};
enum { CLOCK_GRAPHICS = 0, CLOCK_SM = 1, CLOCK_MEMORY = 2 };
enum { FIELD_ENERGY = 83, FIELD_POWER_AVERAGE = 185, FIELD_POWER_INSTANT = 186 };
enum { TYPE_UNSIGNED_INT = 1, TYPE_UNSIGNED_LONG_LONG = 3 };
enum { SLICES_PER_BOARD = 100, MOST_SLICES = 16, CLOCK_STEP_MHZ = 15, LOWEST_CLOCK_MHZ = 345 };

typedef struct {
    uint32_t field, scope;
    int64_t timestamp, latency_us;
    int type, result;
    union {
        double real;
        unsigned int small;
        unsigned long long large;
    } value;
} field_value;

typedef struct {
    unsigned int multiprocessors, copy_engines, decoders, encoders, jpegs, ofas;
    unsigned int gpu_instance_slices, compute_instance_slices;
    unsigned long long memory_mb;
} attributes;

static long initialised_pid = 0;
static int users = 0; /* NVML counts its initialisations; the last shutdown ends it */
static double initialised_generation = 0;

/* --- the two files ---------------------------------------------------------------------- */

static int search(const char *path, const char *key, char *value, size_t size)
{
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[512];
    size_t length = strlen(key);
    int found = 0;
    if (!file)
        return 0;
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, key, length) == 0 && line[length] == '=') {
            line[strcspn(line, "\n")] = 0;
            snprintf(value, size, "%s", line + length + 1);
            found = 1;
        }
    }
    fclose(file);
    return found;
}

static int lookup(const char *key, char *value, size_t size)
{
    return search(getenv("NVML_STUB_CONTROL"), key, value, size);
}

static void state_path(char *path, size_t size)
{
    const char *control = getenv("NVML_STUB_CONTROL");
    snprintf(path, size, "%s.state", control ? control : "");
}

static int state(const char *key, int index, char *value, size_t size)
{
    char path[4096], name[96];
    state_path(path, sizeof path);
    snprintf(name, sizeof name, "%s.%d", key, index);
    return search(path, name, value, size);
}

/* One write of a whole line: processes that set at the same time do not mix theirs. */
static int remember(const char *key, int index, const char *value)
{
    char path[4096], line[160];
    state_path(path, sizeof path);
    int length = snprintf(line, sizeof line, "%s.%d=%s\n", key, index, value);
    int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0)
        return UNKNOWN;
    int written = write(file, line, (size_t)length) == length;
    close(file);
    return written ? SUCCESS : UNKNOWN;
}

static double number(const char *key, double fallback)
{
    char text[128];
    return lookup(key, text, sizeof text) ? atof(text) : fallback;
}

static double of_device(const char *key, int index, double fallback)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%d", key, index);
    return number(name, number(key, fallback));
}

/* --- errors and handles ----------------------------------------------------------------- */

/* What every call but initialisation checks first. A forked child is not initialised. */
static int check_any(const char *function)
{
    char key[160];
    if (initialised_pid != (long)getpid() ||
        initialised_generation != number("generation", 0))
        return UNINITIALIZED;
    snprintf(key, sizeof key, "error.%s", function);
    return (int)number(key, SUCCESS);
}

/* A handle is index + 1; of slice K, K + 1 times a hundred more. */
static int device_index(void *device)
{
    return (int)((intptr_t)device % SLICES_PER_BOARD) - 1;
}

static int slice_index(void *device)
{
    return (int)((intptr_t)device / SLICES_PER_BOARD) - 1;
}

static int check(const char *function, void *device)
{
    char key[160];
    int error = check_any(function);
    if (error)
        return error;
    snprintf(key, sizeof key, "error.%s", function);
    return (int)of_device(key, device_index(device), SUCCESS);
}

/* For what only a whole board can answer. */
static int check_board(const char *function, void *device)
{
    int error = check(function, device);
    return error ? error : slice_index(device) >= 0 ? NOT_SUPPORTED : SUCCESS;
}

static int check_slice(const char *function, void *device)
{
    int error = check(function, device);
    return error ? error : slice_index(device) < 0 ? INVALID_ARGUMENT : SUCCESS;
}
