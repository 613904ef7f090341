/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops that work element by element: the walk over shapes, memory and errors are here, an
 * op brings one kernel a dtype. Kernels are pure; any thread.
 */
#ifndef STG_OPS_KERNELS_MATH_ELEMENTWISE_H
#define STG_OPS_KERNELS_MATH_ELEMENTWISE_H

#include "ops/base/broadcast.h"
#include "ops/base/element.h"
#include "ops/base/op.h"

#define STG_N_DTYPES 24

/* Applies X to every number: (op, dtype, type in memory, type to compare and divide in,
 * type to add in, from memory, to memory). Integers are added without sign: they wrap. */
#define STG_EACH_FLOAT(X, op)                                                            \
    X(op, float32, float, float, float, , )                                              \
    X(op, float64, double, double, double, , )                                           \
    X(op, float16, uint16_t, float, float, stg_f32_from_f16, stg_f16_from_f64)           \
    X(op, bfloat16, uint16_t, float, float, stg_f32_from_bf16, stg_bf16_from_f32)
#define STG_EACH_SIGNED(X, op)                                                           \
    X(op, int8, int8_t, int8_t, uint32_t, , )                                            \
    X(op, int16, int16_t, int16_t, uint32_t, , )                                         \
    X(op, int32, int32_t, int32_t, uint32_t, , )                                         \
    X(op, int64, int64_t, int64_t, uint64_t, , )
#define STG_EACH_UNSIGNED(X, op)                                                         \
    X(op, uint8, uint8_t, uint8_t, uint32_t, , )                                         \
    X(op, uint16, uint16_t, uint16_t, uint32_t, , )                                      \
    X(op, uint32, uint32_t, uint32_t, uint32_t, , )                                      \
    X(op, uint64, uint64_t, uint64_t, uint64_t, , )
#define STG_EACH_INT(X, op) STG_EACH_SIGNED(X, op) STG_EACH_UNSIGNED(X, op)
#define STG_EACH_NUMBER(X, op) STG_EACH_FLOAT(X, op) STG_EACH_INT(X, op)

/* Rows of a table of kernels named op_dtype. */
#define STG_FLOAT_KERNELS(op)                                                            \
    [STAGER_FLOAT32] = op##_float32, [STAGER_FLOAT64] = op##_float64,                    \
    [STAGER_FLOAT16] = op##_float16, [STAGER_BFLOAT16] = op##_bfloat16
#define STG_SIGNED_KERNELS(op)                                                           \
    [STAGER_INT8] = op##_int8, [STAGER_INT16] = op##_int16, [STAGER_INT32] = op##_int32, \
    [STAGER_INT64] = op##_int64
#define STG_UNSIGNED_KERNELS(op)                                                         \
    [STAGER_UINT8] = op##_uint8, [STAGER_UINT16] = op##_uint16,                          \
    [STAGER_UINT32] = op##_uint32, [STAGER_UINT64] = op##_uint64
#define STG_NUMBER_KERNELS(op)                                                           \
    STG_FLOAT_KERNELS(op), STG_SIGNED_KERNELS(op), STG_UNSIGNED_KERNELS(op)

/* Before a loop that writes element i and reads elements i: what it writes is what it
 * reads, or lies apart, so that many elements may be done at once. */
#if defined(__clang__)
/* Where it cannot be, one after the other is what is wanted. */
#pragma clang diagnostic ignored "-Wpass-failed"
#define STG_SAME_OR_APART _Pragma("clang loop vectorize(assume_safety)")
#else
#define STG_SAME_OR_APART _Pragma("GCC ivdep")
#endif

/* ---- two or three inputs, shapes broadcast ---- */

/* One innermost loop of n elements. A step of 0 repeats the element, else it is 1. */
struct stg_strip {
    const void *in[STG_BROADCAST_MAX]; /* first elements; NULL for strings */
    int64_t step[STG_BROADCAST_MAX];
    void *out;
    int64_t n;
    const struct stg_tensor *inputs; /* strings: element first[k] + i * step[k] */
    const int64_t *first;
};

/* -1, or the number of the element that cannot be: an integer divided by zero, or to a
 * negative power. */
typedef int64_t (*stg_strip_kernel)(const struct stg_strip *strip);

/* The loops of a kernel of two inputs: `value` is of x and y. Both walk, or one is
 * repeated; two repeated ones are a single element. */
#define STG_STRIP_LOOPS(type, out_type, wide, load, value)                               \
    const type *a = s->in[0], *b = s->in[1];                                             \
    out_type *out = s->out;                                                              \
    if (s->step[0] == s->step[1]) {                                                      \
        STG_SAME_OR_APART                                                                \
        for (int64_t i = 0; i < s->n; i++) {                                             \
            wide x = (wide)load(a[i]), y = (wide)load(b[i]);                             \
            out[i] = (out_type)(value);                                                  \
        }                                                                                \
    } else if (s->step[1] == 0) {                                                        \
        wide y = (wide)load(b[0]);                                                       \
        STG_SAME_OR_APART                                                                \
        for (int64_t i = 0; i < s->n; i++) {                                             \
            wide x = (wide)load(a[i]);                                                   \
            out[i] = (out_type)(value);                                                  \
        }                                                                                \
    } else {                                                                             \
        wide x = (wide)load(a[0]);                                                       \
        STG_SAME_OR_APART                                                                \
        for (int64_t i = 0; i < s->n; i++) {                                             \
            wide y = (wide)load(b[i]);                                                   \
            out[i] = (out_type)(value);                                                  \
        }                                                                                \
    }                                                                                    \
    return -1

/* Both inputs have one dtype, of which there is a kernel; else INVALID_ARGUMENT says that
 * such a dtype `what` ("has no order"). out_dtypes: the result's for each dtype; NULL:
 * the same. Sets output and plan. */
int stg_binary_infer(struct stg_op_infer *ctx, const stg_strip_kernel *kernels,
                     const int *out_dtypes, const char *what, struct stg_err *err);

/* The run of an op whose plan stg_binary_infer made. */
int stg_binary_run(struct stg_op_run *ctx, struct stg_err *err);

/* Implements `launches` of such an op: it has a kernel for that dtype. */
bool stg_binary_launches(const void *plan, const struct stg_component *inputs,
                         size_t n_inputs, uint64_t on_host);

/* The loops of a kernel of a device over the first two inputs. */
struct stg_kernel_loops stg_broadcast_loops(const struct stg_broadcast *broadcast);

/* The rows of an op that broadcasts: inputs that have the dimension, and repeat nothing
 * in it. */
uint64_t stg_broadcast_rows(const struct stg_op_run *ctx);

/* Walks `kernel` over the inputs. Gives -1, or the number of the output's element where
 * it stopped. out: NULL where the kernel writes elsewhere. */
int64_t stg_strips_run(const struct stg_broadcast *broadcast,
                       const struct stg_tensor *inputs, stg_strip_kernel kernel,
                       const struct stg_tensor *output);

/* ---- one input ---- */

typedef void (*stg_each_kernel)(const void *in, void *out, int64_t n);

/* A kernel of one input: `value` is of x. */
#define STG_EACH_LOOP(type, wide, load, value)                                           \
    const type *a = in;                                                                  \
    type *to = out;                                                                      \
    STG_SAME_OR_APART                                                                    \
    for (int64_t i = 0; i < n; i++) {                                                    \
        wide x = (wide)load(a[i]);                                                       \
        to[i] = (type)(value);                                                           \
    }

int stg_unary_infer(struct stg_op_infer *ctx, const stg_each_kernel *kernels,
                    struct stg_err *err);
int stg_unary_run(struct stg_op_run *ctx, struct stg_err *err);
bool stg_unary_launches(const void *plan, const struct stg_component *inputs,
                        size_t n_inputs, uint64_t on_host);

#endif
