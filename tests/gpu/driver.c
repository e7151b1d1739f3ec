/* A libcuda.so.1 without a GPU. Every call writes its name, the process and the Python stack to the file calls beside
   this library, once in a process, and answers CUDA_ERROR_NO_DEVICE. The version of the driver is that of the file gpus
   beside it (management.c). functions.h has the functions that the stack's libraries link, one a line: FUNCTION(cuInit).
   All others are handed out by cuGetProcAddress. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, NOT_INITIALIZED = 3, NO_DEVICE = 100, MOST = 4096 };

static struct { const char *name; pid_t pid; } noted[MOST];

/* The path of a file beside this library. */
static const char *beside(const char *name)
{
    static char path[4096];
    Dl_info own;
    dladdr((void *)noted, &own);
    snprintf(path, sizeof path, "%.*s/%s", (int)(strrchr(own.dli_fname, '/') - own.dli_fname), own.dli_fname, name);
    return path;
}

static int note(const char *name)
{
    int place = 0;
    while (place < MOST && noted[place].name && strcmp(noted[place].name, name))
        place++;
    if (place < MOST && noted[place].name && noted[place].pid == getpid())
        return NO_DEVICE;
    if (place < MOST) {
        noted[place].name = name;
        noted[place].pid = getpid();
    }
    int file = open(beside("calls"), O_WRONLY | O_CREAT | O_APPEND, 0666);
    dprintf(file, "call %s %d\n", name, getpid());
    void *(*thread)(void) = dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState");
    const char *(*dump)(int, void *) = dlsym(RTLD_DEFAULT, "_Py_DumpTraceback");
    void *state = thread ? thread() : NULL;
    if (dump && state)
        dump(file, state);
    close(file);
    return NO_DEVICE;
}

static pid_t started;

/* A real driver keeps this device open from then on. */
int cuInit(unsigned flags)
{
    (void)flags;
    started = getpid();
    open("/dev/nvidia-uvm", O_RDWR | O_CLOEXEC);
    return note("cuInit");
}

/* Before cuInit, and in a fork of a process that has called it, a real driver gives this answer and does nothing. */
int cuDeviceGetCount(int *count)
{
    *count = 0;
    return started == getpid() ? note("cuDeviceGetCount") : NOT_INITIALIZED;
}

#define FUNCTION(name) int name(void) { return note(#name); }
#include "functions.h"

static int other(void) { return note("another function"); }

/* What every driver answers, with a GPU or without one. */
int cuDriverGetVersion(int *version)
{
    FILE *file = fopen(beside("gpus"), "r");
    *version = 0;
    if (file) {
        if (fscanf(file, "%*[^|]|%d", version) != 1)
            *version = 0;
        fclose(file);
    }
    return SUCCESS;
}

int cuGetErrorString(int error, const char **text)
{
    (void)error;
    *text = "no CUDA-capable device is detected (fake driver)";
    return SUCCESS;
}

int cuGetErrorName(int error, const char **text)
{
    (void)error;
    *text = "CUDA_ERROR_NO_DEVICE";
    return SUCCESS;
}

int cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags, int *status)
{
    (void)version;
    (void)flags;
    Dl_info own;
    dladdr((void *)cuGetErrorName, &own);
    void *library = dlopen(own.dli_fname, RTLD_NOLOAD | RTLD_LAZY);
    char second[256];
    snprintf(second, sizeof second, "%s_v2", name);
    *function = dlsym(library, second);
    if (!*function)
        *function = dlsym(library, name);
    if (!*function)
        *function = (void *)other;
    if (status)
        *status = 0;
    return SUCCESS;
}

int cuGetProcAddress(const char *name, void **function, int version, unsigned long long flags)
{
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
