/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kernels/host.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/base/element.h"
#include "tests/check.h"
#include "tests/ops/cases.h"

static struct stg_err err;

/* ---- the device ---- */

#ifdef STG_EMULATED
extern const struct stg_device_kernels stg_cuda_kernels;
#endif

struct bench bench_emulated(void)
{
#ifdef STG_EMULATED
    return (struct bench){.device = stg_device_cpu(), .kernels = &stg_cuda_kernels};
#else
    SKIP("built without CUDA");
#endif
}

struct bench bench_gpu(void)
{
    const char *dir = getenv("STG_CUDA_DIR");
    const struct stg_device *device = NULL;
    int n;
    if (dir == NULL || dir[0] == '\0')
        SKIP("built without CUDA");
    CHECK_OK(stg_device_cuda(dir, &device, &err), err);
    if (device->count(&n, &err) < 0)
        SKIP("%s", err.text);
    stg_test_keeps_descriptors();
    return (struct bench){.device = device, .kernels = device->kernels};
}

void *bench_room(const struct bench *bench, size_t bytes)
{
    void *at = NULL;
    CHECK_OK(bench->device->alloc(0, bytes, &at, &err), err);
    return at;
}

/* Waits for the default stream through an event. */
static void synchronize(const struct bench *bench)
{
    struct stg_device_event *event;
    CHECK_OK(bench->device->event_create(0, &event, &err), err);
    CHECK_OK(bench->device->event_record(event, NULL, &err), err);
    CHECK_OK(bench->device->event_wait(event, &err), err);
    bench->device->event_destroy(event);
}

void *bench_up(const struct bench *bench, const void *data, size_t bytes)
{
    void *at = bench_room(bench, bytes);
    CHECK_OK(bench->device->copy_in(NULL, at, data, bytes, &err), err);
    synchronize(bench);
    return at;
}

void *bench_down(const struct bench *bench, const void *at, size_t bytes)
{
    void *data = malloc(bytes + 1);
    CHECK(data != NULL);
    CHECK_OK(bench->device->copy_out(NULL, data, at, bytes, &err), err);
    synchronize(bench);
    return data;
}

void bench_free(const struct bench *bench, void *at)
{
    bench->device->free(0, at);
}

/* ---- the op ---- */

void *host_run(const char *op, const char *attrs, const struct stg_tensor *inputs,
               size_t n, size_t *ret_bytes)
{
    struct op_case c = {.op = op, .attrs = attrs};
    struct stg_tensor outputs[OP_CASE_TENSORS];
    struct fixture fx;
    struct stg_graph *graph = NULL;
    struct stg_run *run = NULL;
    CHECK_OK(op_case_graph(&c, inputs, n, 1, &fx, &graph, &err), err);
    CHECK_OK(stg_run_create_stage(graph, &run, &err), err);
    CHECK_OK(stg_run_exec(run, inputs, NULL, NULL, outputs, &err), err);
    void *ret = malloc(outputs[0].data_bytes + 1);
    CHECK(ret != NULL);
    if (outputs[0].data_bytes > 0)
        memcpy(ret, outputs[0].data, outputs[0].data_bytes);
    *ret_bytes = outputs[0].data_bytes;
    stg_run_destroy(run);
    stg_graph_destroy(graph);
    fixture_finish(&fx);
    return ret;
}

/* ---- equality ---- */

/* A float as a double, and its rank among all floats of its dtype. */
static double value_of(int dtype, const void *data, size_t i, int64_t *ret_place)
{
    int64_t bits, sign;
    double value;
    if (dtype == STAGER_FLOAT64) {
        memcpy(&bits, (const char *)data + i * 8, 8);
        memcpy(&value, &bits, 8);
        sign = INT64_MIN;
    } else if (dtype == STAGER_FLOAT32) {
        float single;
        int32_t half;
        memcpy(&half, (const char *)data + i * 4, 4);
        memcpy(&single, &half, 4);
        bits = half;
        value = (double)single;
        sign = INT32_MIN;
    } else {
        uint16_t half = ((const uint16_t *)data)[i];
        value = (double)(dtype == STAGER_FLOAT16 ? stg_f32_from_f16(half)
                                                 : stg_f32_from_bf16(half));
        bits = (int16_t)half;
        sign = INT16_MIN;
    }
    *ret_place = bits < 0 ? sign - bits : bits;
    return value;
}

void host_near(const char *what, int dtype, const void *got, const void *want, size_t n,
               int64_t ulps)
{
    for (size_t i = 0; i < n; i++) {
        int64_t at, wanted;
        double x = value_of(dtype, got, i, &at), y = value_of(dtype, want, i, &wanted);
        if (isnan(y) ? !isnan(x) : (at > wanted ? at - wanted : wanted - at) > ulps)
            FAIL("%s: element %zu of %zu %s is %.17g, not %.17g", what, i, n,
                 stg_dtype_name(dtype), x, y);
    }
}

void host_same(const char *what, int dtype, const void *got, const void *want, size_t n)
{
    unsigned bytes = stg_dtype_bytes(dtype);
    bool is_float = dtype == STAGER_FLOAT32 || dtype == STAGER_FLOAT64 ||
                    dtype == STAGER_FLOAT16 || dtype == STAGER_BFLOAT16;
    for (size_t i = 0; i < n; i++) {
        int64_t at, wanted;
        if (memcmp((const char *)got + i * bytes, (const char *)want + i * bytes,
                   bytes) == 0)
            continue;
        if (!is_float)
            FAIL("%s: element %zu of %zu %s differs", what, i, n, stg_dtype_name(dtype));
        double x = value_of(dtype, got, i, &at), y = value_of(dtype, want, i, &wanted);
        if (!isnan(x) || !isnan(y))
            FAIL("%s: element %zu of %zu %s is %.17g, not %.17g", what, i, n,
                 stg_dtype_name(dtype), x, y);
    }
}

void host_random(uint64_t seed, void *data, size_t bytes)
{
    unsigned char *to = data;
    uint64_t x = seed * 0x9e3779b97f4a7c15u + 1;
    for (size_t i = 0; i < bytes; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        to[i] = (unsigned char)(x >> 32);
    }
}

struct stg_tensor host_tensor(int dtype, int ndim, const int64_t *shape, void *data)
{
    struct stg_tensor ret = {.dtype = dtype, .ndim = ndim, .data = data};
    memcpy(ret.shape, shape, (size_t)ndim * sizeof(*shape));
    ret.data_bytes = (uint64_t)stg_tensor_n(&ret) * stg_dtype_bytes(dtype);
    return ret;
}
