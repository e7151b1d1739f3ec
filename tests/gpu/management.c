/* A libnvidia-ml.so.1 that reports what the file gpus beside it says. First line: the driver's version and the newest
   CUDA that it runs, 580.95.05|13000. Then a line for each GPU: name|major|minor|MiB. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, MOST = 16 };

typedef struct { char name[96]; int major, minor; unsigned long long mib; } Gpu;
typedef struct { unsigned long long total, free, used; } Memory;

static Gpu gpus[MOST];
static unsigned count;

static char driver[80];
static int cuda;

static void read_gpus(void)
{
    Dl_info own;
    char path[4096], line[256];
    dladdr((void *)gpus, &own);
    snprintf(path, sizeof path, "%.*s/gpus", (int)(strrchr(own.dli_fname, '/') - own.dli_fname), own.dli_fname);
    count = 0;
    FILE *file = fopen(path, "r");
    if (!file)
        return;
    if (!fgets(line, sizeof line, file) || sscanf(line, "%79[^|]|%d", driver, &cuda) != 2)
        driver[0] = 0;
    while (count < MOST && fgets(line, sizeof line, file)) {
        Gpu *gpu = &gpus[count];
        if (sscanf(line, "%95[^|]|%d|%d|%llu", gpu->name, &gpu->major, &gpu->minor, &gpu->mib) == 4)
            count++;
    }
    fclose(file);
}

static unsigned number(void *gpu) { return (unsigned)((Gpu *)gpu - gpus); }

/* A real one has CUDA's device open from the first of these to the last (seen on an H100, driver 580.159.04). */
static int device = -1, users;

int nvmlInit_v2(void)
{
    read_gpus();
    if (users++ == 0)
        device = open("/dev/nvidia-uvm", O_RDWR | O_CLOEXEC);
    return SUCCESS;
}

int nvmlInit(void) { return nvmlInit_v2(); }
int nvmlInitWithFlags(unsigned flags) { (void)flags; return nvmlInit_v2(); }
int nvmlShutdown(void)
{
    if (users > 0 && --users == 0)
        close(device);
    return SUCCESS;
}


const char *nvmlErrorString(int error) { return error ? "an error of the fake driver" : "Success"; }

int nvmlDeviceGetCount_v2(unsigned *answer) { *answer = count; return SUCCESS; }
int nvmlDeviceGetCount(unsigned *answer) { return nvmlDeviceGetCount_v2(answer); }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **gpu)
{
    if (index >= count)
        return INVALID_ARGUMENT;
    *gpu = &gpus[index];
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex(unsigned index, void **gpu) { return nvmlDeviceGetHandleByIndex_v2(index, gpu); }

int nvmlDeviceGetName(void *gpu, char *text, unsigned size)
{
    snprintf(text, size, "%s", ((Gpu *)gpu)->name);
    return SUCCESS;
}

int nvmlDeviceGetUUID(void *gpu, char *text, unsigned size)
{
    snprintf(text, size, "GPU-0000000%u-0000-0000-0000-000000000000", number(gpu));
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(void *gpu, int *major, int *minor)
{
    *major = ((Gpu *)gpu)->major;
    *minor = ((Gpu *)gpu)->minor;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *gpu, Memory *memory)
{
    memory->total = ((Gpu *)gpu)->mib << 20;
    memory->used = 500ull << 20;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *text, unsigned size)
{
    snprintf(text, size, "%s", driver);
    return SUCCESS;
}

int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    *version = cuda;
    return SUCCESS;
}

int nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }
int nvmlDeviceGetComputeMode(void *gpu, int *mode) { (void)gpu; *mode = 0; return SUCCESS; }
int nvmlDeviceGetMigMode(void *gpu, unsigned *now, unsigned *next) { (void)gpu; *now = *next = 0; return SUCCESS; }
int nvmlDeviceGetIndex(void *gpu, unsigned *index) { *index = number(gpu); return SUCCESS; }
int nvmlDeviceGetMinorNumber(void *gpu, unsigned *minor) { *minor = number(gpu); return SUCCESS; }
int nvmlDeviceGetNumaNodeId(void *gpu, unsigned *node) { (void)gpu; *node = 0; return SUCCESS; }
int nvmlDeviceGetP2PStatus(void *one, void *other, int kind, int *status)
{
    (void)one; (void)other; (void)kind;
    *status = 0;
    return SUCCESS;
}
