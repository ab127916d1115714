/* A driver's library with one made-up card, so that the real binding can be tested without a GPU.
 *
 * Each look at the energy counter adds 50 J. Environment variables choose what goes wrong:
 *   STUB_CARDS=0          no card
 *   STUB_COUNTER=none     no energy counter
 *   STUB_COUNTER=resets   the counter begins again at its sixth look
 *   STUB_COUNTER=still    the counter never moves
 *   STUB_INSTANT=1        power at once is told through a field value
 *   STUB_MIG=1            the card is divided, and MIG-stub is a slice of it
 *   STUB_LOST_AFTER=n     after n looks at the power the card is lost
 *
 * There is no nvmlDeviceGetCurrentClocksEventReasons, nvmlDeviceGetTemperatureV, nor
 * nvmlDeviceGetCurrPcieLinkGeneration: an older driver lacks functions that the binding knows.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15 };

typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned int gpu, memory; } utilization_t;
typedef struct { unsigned int pid; unsigned long long used; unsigned int gpu_instance, compute_instance; } process_t;
typedef struct {
    uint32_t field, scope;
    int64_t timestamp, latency_us;
    uint32_t value_type, result;
    union { double d; unsigned int ui; unsigned long long ull; } value;
} field_t;

static int card;
static int slice;
static int users;
static int energy_looks;
static int power_looks;

static int is(const char *name, const char *value) {
    const char *found = getenv(name);
    return found != NULL && strcmp(found, value) == 0;
}

static int lost(void) {
    const char *after = getenv("STUB_LOST_AFTER");
    return after != NULL && power_looks > atoi(after) ? GPU_IS_LOST : SUCCESS;
}

static int give(unsigned int *place, unsigned int value) {
    *place = value;
    return lost();
}

int nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    if (is("STUB_CARDS", "driver")) return DRIVER_NOT_LOADED;
    users++;
    return SUCCESS;
}
int nvmlShutdown(void) { return --users < 0 ? 1 : SUCCESS; }
int stub_users(void) { return users; }

int nvmlDeviceGetCount_v2(unsigned int *count) {
    *count = is("STUB_CARDS", "0") ? 0 : 1;
    return SUCCESS;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **handle) {
    (void)index;
    *handle = &card;
    return SUCCESS;
}
int nvmlSystemGetDriverVersion(char *text, unsigned int size) {
    strncpy(text, "470.82.01", size);
    return SUCCESS;
}
int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    *version = 11040;
    return SUCCESS;
}
int nvmlDeviceGetName(void *handle, char *text, unsigned int size) {
    (void)handle;
    strncpy(text, "Stub Card", size);
    return SUCCESS;
}
int nvmlDeviceGetUUID(void *handle, char *text, unsigned int size) {
    strncpy(text, handle == &slice ? "MIG-stub" : "GPU-stub", size);
    return SUCCESS;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    int is_slice = strcmp(uuid, "MIG-stub") == 0 && is("STUB_MIG", "1");
    if (!is_slice && strcmp(uuid, "GPU-stub") != 0) return NOT_FOUND;
    *handle = is_slice ? &slice : &card;
    return SUCCESS;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *handle, void **whole) {
    if (handle != &slice) return NOT_FOUND;
    *whole = &card;
    return SUCCESS;
}
int nvmlDeviceGetTotalEnergyConsumption(void *handle, unsigned long long *millijoules) {
    (void)handle;
    if (is("STUB_COUNTER", "none")) return NOT_SUPPORTED;
    energy_looks++;
    int steps = is("STUB_COUNTER", "still") ? 0 : energy_looks;
    if (is("STUB_COUNTER", "resets") && energy_looks >= 6) steps = 0;
    *millijoules = 1000000ULL + 50000ULL * steps;
    return lost();
}
int nvmlDeviceGetPowerUsage(void *handle, unsigned int *milliwatts) {
    (void)handle;
    power_looks++;
    return give(milliwatts, 150500);
}
int nvmlDeviceGetFieldValues(void *handle, int count, field_t *values) {
    (void)handle;
    for (int i = 0; i < count; i++) {
        values[i].result = is("STUB_INSTANT", "1") && values[i].field == 186 ? SUCCESS : NOT_SUPPORTED;
        values[i].value_type = 1;
        values[i].value.ui = 222250;
    }
    return SUCCESS;
}
int nvmlDeviceGetEnforcedPowerLimit(void *handle, unsigned int *milliwatts) { (void)handle; return give(milliwatts, 250000); }
int nvmlDeviceGetPowerManagementDefaultLimit(void *handle, unsigned int *milliwatts) { (void)handle; return give(milliwatts, 300000); }
int nvmlDeviceGetClockInfo(void *handle, int kind, unsigned int *mhz) { (void)handle; return give(mhz, kind == 1 ? 1410 : 1593); }
int nvmlDeviceGetMaxClockInfo(void *handle, int kind, unsigned int *mhz) { (void)handle; return give(mhz, kind == 1 ? 1980 : 2619); }
int nvmlDeviceGetApplicationsClock(void *handle, int kind, unsigned int *mhz) {
    (void)handle; (void)kind; (void)mhz;
    return NOT_SUPPORTED;
}
int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned int *celsius) { (void)handle; (void)sensor; return give(celsius, 71); }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *handle, unsigned long long *bits) {
    (void)handle;
    *bits = 0x1 | 0x2 | 0x4 | 0x40;
    return lost();
}
int nvmlDeviceGetMemoryInfo(void *handle, memory_t *memory) {
    memory->total = handle == &slice ? 8ULL << 30 : 16ULL << 30;
    memory->used = 3ULL << 30;
    memory->free = memory->total - memory->used;
    return lost();
}
int nvmlDeviceGetUtilizationRates(void *handle, utilization_t *rates) {
    (void)handle;
    rates->gpu = 87;
    return lost();
}
/* Process 1 is always there and never the one that tests. */
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned int *count, process_t *processes) {
    (void)handle;
    if (*count < 1) {
        *count = 1;
        return INSUFFICIENT_SIZE;
    }
    memset(processes, 0, sizeof *processes);
    processes[0].pid = 1;
    *count = 1;
    return lost();
}
int nvmlDeviceGetMigMode(void *handle, unsigned int *current, unsigned int *pending) {
    (void)handle;
    if (!is("STUB_MIG", "1")) return NOT_SUPPORTED;
    *current = *pending = 1;
    return SUCCESS;
}
int nvmlDeviceGetEccMode(void *handle, unsigned int *current, unsigned int *pending) {
    (void)handle;
    *current = 1;
    *pending = 0;
    return SUCCESS;
}
int nvmlDeviceGetCurrPcieLinkWidth(void *handle, unsigned int *width) { (void)handle; return give(width, 16); }
int nvmlDeviceGetPersistenceMode(void *handle, unsigned int *mode) { (void)handle; return give(mode, 0); }
int nvmlDeviceGetComputeMode(void *handle, unsigned int *mode) { (void)handle; return give(mode, 3); }
