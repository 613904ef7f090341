/* SPDX-License-Identifier: Apache-2.0
 *
 * The current device and the devices with a context, on a machine with four devices. This
 * file defines the calls of the runtime and the driver by CUDA's rules: the runtime works
 * in the current context, and makes one if it needs one and none is current.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <string.h>

#include "core/status.h"
#include "cuda/scope.h"
#include "tests/check.h"

#define DEVICES 4
#define DEPTH 8

static struct stg_err err;

/* ---- the machine ---- */

static struct {
    int own;            /* the thread's device if no context is current */
    cudaError_t broken; /* the runtime's result of every call */
    CUresult push;      /* the result of push */
    const char *lacks;  /* the driver does not have this call */
    bool is_active[DEVICES];
    int stack[DEPTH], depth; /* pushed contexts, by device */
    int n_retained;
} machine;

static CUcontext context_of(int device)
{
    return (CUcontext)(machine.is_active + device);
}

static CUresult retain(CUcontext *ret, CUdevice device)
{
    machine.n_retained++;
    if (device < 0 || device >= DEVICES)
        return CUDA_ERROR_INVALID_DEVICE;
    machine.is_active[device] = true;
    *ret = context_of(device);
    return CUDA_SUCCESS;
}

static CUresult state(CUdevice device, unsigned *ret_flags, int *ret_active)
{
    *ret_flags = 0;
    *ret_active = machine.is_active[device];
    return CUDA_SUCCESS;
}

static CUresult push(CUcontext context)
{
    if (machine.push == CUDA_SUCCESS)
        machine.stack[machine.depth++] = (int)((bool *)context - machine.is_active);
    return machine.push;
}

static CUresult pop(CUcontext *ret)
{
    CHECK(machine.depth > 0);
    *ret = context_of(machine.stack[--machine.depth]);
    return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **at,
                                             unsigned version, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *ret)
{
    static const struct {
        const char *name;
        void (*function)(void);
    } calls[] = {{"cuDevicePrimaryCtxRetain", (void (*)(void))retain},
                 {"cuDevicePrimaryCtxGetState", (void (*)(void))state},
                 {"cuCtxPushCurrent", (void (*)(void))push},
                 {"cuCtxPopCurrent", (void (*)(void))pop}};
    *ret = cudaDriverEntryPointSymbolNotFound;
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        if (strcmp(symbol, calls[i].name) != 0 ||
            (machine.lacks != NULL && strcmp(symbol, machine.lacks) == 0))
            continue;
        memcpy(at, &calls[i].function, sizeof(calls[i].function));
        *ret = cudaDriverEntryPointSuccess;
    }
    return machine.broken;
}

cudaError_t cudaGetDevice(int *ret)
{
    *ret = machine.depth > 0 ? machine.stack[machine.depth - 1] : machine.own;
    return machine.broken;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return "as the runtime says it";
}

cudaError_t cudaDriverGetVersion(int *ret)
{
    *ret = 13000;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *ret)
{
    return cudaDriverGetVersion(ret);
}

static int current(void)
{
    int device = -1;
    cudaGetDevice(&device);
    return device;
}

/* ---- one device ---- */

static void the_device_that_is_current_is_left_as_it_is(void)
{
    struct stg_cuda_scope scope;
    machine.own = 1;
    CHECK_OK(stg_cuda_enter(1, &scope, &err), err);
    CHECK_INT(machine.depth, 0);
    CHECK_INT(stg_cuda_leave(&scope, -7), -7);
    CHECK_INT(machine.n_retained, 0);
}

static void an_entered_device_is_current_until_left_and_no_other_gets_a_context(void)
{
    struct stg_cuda_scope scope, inner;
    for (int i = 0; i < 3; i++) {
        CHECK_OK(stg_cuda_enter(2, &scope, &err), err);
        CHECK_INT(current(), 2);
        CHECK_OK(stg_cuda_enter(3, &inner, &err), err);
        CHECK_INT(current(), 3);
        stg_cuda_leave(&inner, 0);
        CHECK_INT(current(), 2);
        stg_cuda_leave(&scope, 0);
        CHECK_INT(machine.depth, 0);
        CHECK_INT(current(), 0);
    }
    CHECK(!machine.is_active[0] && !machine.is_active[1]);
    CHECK_INT(machine.n_retained, 2);
}

static void an_invalid_device_is_reported_by_its_number(void)
{
    static const struct {
        int number;
        const char *text;
    } wrong[] = {{4, "device 4"}, {-1, "device -1"}, {1000, "device 1000"}};
    for (int i = 0; i < 3; i++) {
        struct stg_cuda_scope scope;
        CHECK_INT(stg_cuda_enter(wrong[i].number, &scope, &err),
                  -STAGER_INVALID_ARGUMENT);
        CHECK_CONTAINS(err.text, wrong[i].text);
        CHECK_INT(machine.depth, 0);
    }
    CHECK_INT(machine.n_retained, 1);
}

static void errors_are_those_of_the_driver(void)
{
    struct stg_cuda_scope scope;
    machine.lacks = "cuCtxPushCurrent";
    CHECK_INT(stg_cuda_enter(1, &scope, &err), -STAGER_UNIMPLEMENTED);
    CHECK_CONTAINS(err.text, "cuCtxPushCurrent");
    CHECK_OK(stg_cuda_enter_any(&scope, &err), err);
    machine.lacks = NULL;
    machine.push = CUDA_ERROR_ILLEGAL_ADDRESS;
    CHECK_INT(stg_cuda_enter(1, &scope, &err), -STAGER_INTERNAL);
    machine.broken = cudaErrorNoDevice;
    CHECK_INT(stg_cuda_enter(0, &scope, &err), -STAGER_UNAVAILABLE);
    CHECK_INT(stg_cuda_enter_any(&scope, &err), -STAGER_UNAVAILABLE);
    CHECK_INT(machine.depth, 0);
}

/* ---- no device in particular ---- */

static void page_locked_memory_is_made_where_there_is_a_context(void)
{
    struct stg_cuda_scope scope;
    CHECK_OK(stg_cuda_enter_any(&scope, &err), err); /* none exists yet */
    CHECK_INT(machine.depth, 0);
    CHECK_OK(stg_cuda_enter(2, &scope, &err), err);
    stg_cuda_leave(&scope, 0);
    CHECK_OK(stg_cuda_enter_any(&scope, &err), err);
    CHECK_INT(current(), 2);
    stg_cuda_leave(&scope, 0);
    CHECK_INT(current(), 0);
    machine.is_active[0] = true;
    CHECK_OK(stg_cuda_enter_any(&scope, &err), err);
    CHECK_INT(current(), 0);
    CHECK_INT(stg_cuda_leave(&scope, 0), 0);
    CHECK_INT(machine.depth, 0);
}

static const struct stg_test tests[] = {
    TEST(the_device_that_is_current_is_left_as_it_is),
    TEST(an_entered_device_is_current_until_left_and_no_other_gets_a_context),
    TEST(an_invalid_device_is_reported_by_its_number),
    TEST(errors_are_those_of_the_driver),
    TEST(page_locked_memory_is_made_where_there_is_a_context),
};

TEST_MAIN(tests)
