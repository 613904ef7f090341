/* SPDX-License-Identifier: Apache-2.0
 *
 * A libcuda.so.1 without a GPU, as the CUDA runtime sees it. STG_FAKE_DRIVER is "none"
 * (cuInit reports no device), "stub" (the toolkit's stub), "mps" (a control daemon that
 * refuses all clients) or "old" (a driver of CUDA 12.2). The names and numbers are those
 * of cuda.h.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define CUDA_SUCCESS 0
#define CUDA_ERROR_STUB_LIBRARY 34
#define CUDA_ERROR_NO_DEVICE 100
#define CUDA_ERROR_MPS_CONNECTION_FAILED 805

EXPORT int cuInit(unsigned flags);
EXPORT int cuDriverGetVersion(int *ret);
EXPORT int cuGetProcAddress_v2(const char *name, void **ret, int version,
                               unsigned long long flags, int *found);
EXPORT int cuGetProcAddress(const char *name, void **ret, int version,
                            unsigned long long flags);
EXPORT int cuGetExportTable(const void **ret, const void *id);

static bool is(const char *name)
{
    const char *mode = getenv("STG_FAKE_DRIVER");
    return mode != NULL && strcmp(mode, name) == 0;
}

static int refuse(void)
{
    return is("stub")  ? CUDA_ERROR_STUB_LIBRARY
           : is("mps") ? CUDA_ERROR_MPS_CONNECTION_FAILED
                       : CUDA_ERROR_NO_DEVICE;
}

int cuInit(unsigned flags)
{
    return refuse();
}

int cuDriverGetVersion(int *ret)
{
    *ret = is("old") ? 12020 : 99000;
    return CUDA_SUCCESS;
}

int cuGetProcAddress_v2(const char *name, void **ret, int version,
                        unsigned long long flags, int *found)
{
    int (*function)(void) = refuse;
    memcpy(ret, &function, sizeof(*ret));
    if (strcmp(name, "cuDriverGetVersion") == 0) {
        int (*get)(int *) = cuDriverGetVersion;
        memcpy(ret, &get, sizeof(*ret));
    } else if (strncmp(name, "cuGetProcAddress", 16) == 0) {
        int (*get)(const char *, void **, int, unsigned long long, int *) =
            cuGetProcAddress_v2;
        memcpy(ret, &get, sizeof(*ret));
    }
    if (found != NULL)
        *found = 0;
    return CUDA_SUCCESS;
}

int cuGetProcAddress(const char *name, void **ret, int version, unsigned long long flags)
{
    return cuGetProcAddress_v2(name, ret, version, flags, NULL);
}

int cuGetExportTable(const void **ret, const void *id)
{
    *ret = NULL;
    return refuse();
}
