/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that several processes have, by virtual memory management, which is the driver's
 * alone.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <unistd.h>

#include "core/status.h"
#include "cuda/driver.h"
#include "cuda/error.h"
#include "cuda/scope.h"

struct driver {
    CUresult (*attribute)(int *, CUdevice_attribute, CUdevice);
    CUresult (*granularity)(size_t *, const CUmemAllocationProp *,
                            CUmemAllocationGranularity_flags);
    CUresult (*create)(CUmemGenericAllocationHandle *, size_t,
                       const CUmemAllocationProp *, unsigned long long);
    CUresult (*release)(CUmemGenericAllocationHandle);
    CUresult (*export_fd)(void *, CUmemGenericAllocationHandle, CUmemAllocationHandleType,
                          unsigned long long);
    CUresult (*import_fd)(CUmemGenericAllocationHandle *, void *,
                          CUmemAllocationHandleType);
    CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
    CUresult (*unreserve)(CUdeviceptr, size_t);
    CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle,
                    unsigned long long);
    CUresult (*unmap)(CUdeviceptr, size_t);
    CUresult (*set_access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
};

static int find_driver(struct driver *ret, struct stg_err *err)
{
    const struct stg_cuda_call calls[] = {
        {"cuDeviceGetAttribute", &ret->attribute},
        {"cuMemGetAllocationGranularity", &ret->granularity},
        {"cuMemCreate", &ret->create},
        {"cuMemRelease", &ret->release},
        {"cuMemExportToShareableHandle", &ret->export_fd},
        {"cuMemImportFromShareableHandle", &ret->import_fd},
        {"cuMemAddressReserve", &ret->reserve},
        {"cuMemAddressFree", &ret->unreserve},
        {"cuMemMap", &ret->map},
        {"cuMemUnmap", &ret->unmap},
        {"cuMemSetAccess", &ret->set_access},
    };
    return stg_cuda_find_calls(calls, sizeof(calls) / sizeof(calls[0]), err);
}

static int check(CUresult result, const char *what, struct stg_err *err)
{
    return stg_cuda_check((int)result, what, err);
}

static CUmemAllocationProp properties(int device)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };
}

static int check_passes(const struct driver *driver, int device, struct stg_err *err)
{
    int value = 0;
    int rc =
        check(driver->attribute(
                  &value, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                  device),
              "what the device can do", err);
    if (rc == 0 && value == 0)
        rc = stg_err(err, -STAGER_UNIMPLEMENTED,
                     "cuda: device %d cannot export memory as a descriptor", device);
    return rc;
}

bool stg_cuda_passes_memory(int device)
{
    struct driver driver;
    return find_driver(&driver, NULL) == 0 && check_passes(&driver, device, NULL) == 0;
}

/* The device's context is there once this has succeeded; a leave follows. */
static int enter(int device, struct driver *driver, struct stg_cuda_scope *scope,
                 struct stg_err *err)
{
    int rc = stg_cuda_enter(device, scope, err);
    if (rc < 0)
        return rc;
    cudaError_t error = cudaFree(NULL);
    rc = error == cudaSuccess ? find_driver(driver, err)
                              : stg_cuda_error(error, "the device's context", err);
    return rc < 0 ? stg_cuda_leave(scope, rc) : 0;
}

/* ---- addresses ---- */

static CUresult allow(const struct driver *driver, const struct stg_device_shared *shared,
                      CUmemAccess_flags flags)
{
    CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = shared->device},
        .flags = flags,
    };
    return driver->set_access((CUdeviceptr)shared->memory, shared->bytes, &access, 1);
}

/* Not every device can keep its own kernels from writing. */
static CUresult allow_reading(const struct driver *driver,
                              const struct stg_device_shared *shared)
{
    CUresult result = allow(driver, shared, CU_MEM_ACCESS_FLAGS_PROT_READ);
    return result == CUDA_SUCCESS
               ? result
               : allow(driver, shared, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

/* Its handle is known: gives it an address. The handle stays the caller's when that
 * fails. */
static int map(const struct driver *driver, bool read_only,
               struct stg_device_shared *shared, struct stg_err *err)
{
    CUdeviceptr at = 0;
    int rc =
        check(driver->reserve(&at, shared->bytes, 0, 0, 0), "addresses to share", err);
    if (rc < 0)
        return rc;
    rc = check(driver->map(at, shared->bytes, 0, shared->handle, 0),
               "mapping shared memory", err);
    if (rc < 0)
        goto fail_map;
    shared->memory = (void *)at;
    rc = check(read_only ? allow_reading(driver, shared)
                         : allow(driver, shared, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
               "access to shared memory", err);
    if (rc == 0)
        return 0;
    driver->unmap(at, shared->bytes);
fail_map:
    driver->unreserve(at, shared->bytes);
    return rc;
}

/* ---- members of the table ---- */

static int make(const struct driver *driver, int device, size_t bytes,
                struct stg_device_shared *ret, int *ret_fd, struct stg_err *err)
{
    struct stg_device_shared shared = {.device = device};
    CUmemAllocationProp what = properties(device);
    CUmemGenericAllocationHandle handle = 0;
    size_t unit = 0;
    int fd = -1;
    int rc = check_passes(driver, device, err);
    if (rc == 0)
        rc =
            check(driver->granularity(&unit, &what, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                  "the unit of memory", err);
    if (rc < 0)
        return rc;
    shared.bytes = (bytes + unit - 1) / unit * unit;
    rc = check(driver->create(&handle, shared.bytes, &what, 0), "shared memory", err);
    if (rc < 0)
        return rc;
    shared.handle = handle;
    rc =
        check(driver->export_fd(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
              "a descriptor of memory", err);
    if (rc == 0)
        rc = map(driver, false, &shared, err);
    if (rc < 0) {
        if (fd >= 0)
            close(fd);
        driver->release(handle);
        return rc;
    }
    *ret = shared;
    *ret_fd = fd;
    return 0;
}

int stg_cuda_shared_make(int device, size_t bytes, struct stg_device_shared *ret,
                         int *ret_fd, struct stg_err *err)
{
    struct driver driver;
    struct stg_cuda_scope scope;
    if (bytes == 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "cuda: cannot share 0 bytes");
    int rc = enter(device, &driver, &scope, err);
    if (rc < 0)
        return rc;
    rc = make(&driver, device, bytes, ret, ret_fd, err);
    return stg_cuda_leave(&scope, rc);
}

static int import_from(const struct driver *driver, int fd, bool read_only,
                       struct stg_device_shared *shared, struct stg_err *err)
{
    CUmemGenericAllocationHandle handle = 0;
    int rc = check(driver->import_fd(&handle, (void *)(intptr_t)fd,
                                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                   "import of shared memory", err);
    if (rc < 0)
        return rc;
    shared->handle = handle;
    rc = map(driver, read_only, shared, err);
    if (rc < 0)
        driver->release(handle);
    return rc;
}

int stg_cuda_shared_import(int device, int fd, size_t bytes, bool read_only,
                           struct stg_device_shared *ret, struct stg_err *err)
{
    struct driver driver;
    struct stg_cuda_scope scope;
    struct stg_device_shared shared = {.device = device, .bytes = bytes};
    if (bytes == 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "cuda: cannot share 0 bytes");
    int rc = enter(device, &driver, &scope, err);
    if (rc < 0)
        return rc;
    rc = import_from(&driver, fd, read_only, &shared, err);
    if (rc == 0)
        *ret = shared;
    return stg_cuda_leave(&scope, rc);
}

void stg_cuda_shared_release(struct stg_device_shared *shared)
{
    struct driver driver;
    struct stg_cuda_scope scope;
    if (shared->memory == NULL || enter(shared->device, &driver, &scope, NULL) < 0)
        return;
    driver.unmap((CUdeviceptr)shared->memory, shared->bytes);
    driver.unreserve((CUdeviceptr)shared->memory, shared->bytes);
    driver.release(shared->handle);
    *shared = (struct stg_device_shared){0};
    stg_cuda_leave(&scope, 0);
}
