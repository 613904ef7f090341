/* SPDX-License-Identifier: Apache-2.0
 *
 * Dense layers: matmul where cuBLAS is not used, gru.
 */
#include "cuda/kernels.h"
#include "cuda/number.cuh"

/* ---- matmul ---- */

/* A thread is an element of y, and its neighbours the elements beside it. Four products
 * at a time, in the order of ops/kernels/math/matmul.c. */
template <typename type>
static __global__ void matmul(struct stg_kernel_matmul how, size_t n)
{
    typedef typename value_of<type>::is value;
    int64_t a_step = how.transpose[0] ? how.m : 1, b_step = how.transpose[1] ? 1 : how.n;
    for (size_t at = FIRST; at < n; at += STRIDE) {
        int64_t row = (int64_t)at / how.n, j = (int64_t)at - row * how.n;
        int64_t number = row / how.m, i = row - number * how.m, p = 0;
        places matrix = find(&how.loops, number);
        const type *a = (const type *)how.x[0] + matrix.at[0] * how.m * how.k +
                        i * (how.transpose[0] ? 1 : how.k);
        const type *b = (const type *)how.x[1] + matrix.at[1] * how.k * how.n +
                        j * (how.transpose[1] ? how.k : 1);
        value sum = 0;
        for (; p + 4 <= how.k; p += 4) {
            value four = 0;
            for (int q = 0; q < 4; q++) {
                value one = times((value)get(a[(p + q) * a_step]),
                                  (value)get(b[(p + q) * b_step]));
                four = q == 0 ? one : plus(four, one);
            }
            sum = plus(sum, four);
        }
        for (; p < how.k; p++)
            sum = plus(sum, times((value)get(a[p * a_step]), (value)get(b[p * b_step])));
        put((type *)how.y + at, sum);
    }
}

int stg_cuda_matmul(const struct stg_kernel_matmul *how, struct CUstream_st *stream)
{
    size_t n = (size_t)(size_of(&how->loops) * how->m * how->n);
    unsigned grid = blocks(n);
#define RUN(type) LAUNCH(grid, stream, matmul<type>)(*how, n)
    switch (how->dtype) {
        EACH_FLOAT(RUN)
    case STAGER_INT32: RUN(int32_t); break;
    case STAGER_INT64: RUN(int64_t); break;
    default: break;
    }
#undef RUN
    return cudaGetLastError();
}

/* ---- gru ---- */

static __device__ inline int64_t length_of(const struct stg_kernel_gru *how, int64_t row)
{
    if (how->lengths == NULL)
        return how->n_steps;
    return how->lengths_dtype == STAGER_INT32 ? ((const int32_t *)how->lengths)[row]
                                              : ((const int64_t *)how->lengths)[row];
}

/* Unit k of the state before step t. */
template <typename type>
static __device__ inline type before(const struct stg_kernel_gru *how, int64_t row,
                                     int64_t t, int64_t k)
{
    return t > 0 ? ((const type *)how->out)[(row * how->n_steps + t - 1) * how->n + k]
                 : (type)0;
}

/* What the input of step t adds to column `column` of the gates, with its bias. */
template <typename type>
static __device__ inline type from_input(const struct stg_kernel_gru *how, int64_t row,
                                         int64_t t, int64_t column)
{
    const type *x = (const type *)how->x + (row * how->n_steps + t) * how->n_in;
    const type *kernel = (const type *)how->kernel + column;
    type sum = ((const type *)how->bias)[column];
    for (int64_t i = 0; i < how->n_in; i++)
        sum += x[i] * kernel[i * 3 * how->n];
    return sum;
}

/* What the state before step t adds. */
template <typename type>
static __device__ inline type from_state(const struct stg_kernel_gru *how, int64_t row,
                                         int64_t t, int64_t column)
{
    const type *back = (const type *)how->back + column;
    type sum =
        how->reset_after ? ((const type *)how->bias)[3 * how->n + column] : (type)0;
    for (int64_t j = 0; j < how->n; j++)
        sum += before<type>(how, row, t, j) * back[j * 3 * how->n];
    return sum;
}

template <typename type>
static __device__ inline type gate(const struct stg_kernel_gru *how, int64_t row,
                                   int64_t t, int64_t column)
{
    type x =
        from_input<type>(how, row, t, column) + from_state<type>(how, row, t, column);
    return 1 / (1 + exp_of(-x));
}

/* How much of the state stays: less, the more the score counts. */
template <typename type>
static __device__ inline type keeps(const struct stg_kernel_gru *how, int64_t row,
                                    int64_t t, int64_t k)
{
    const type *scores = (const type *)how->scores;
    type score = scores != NULL ? scores[row * how->n_steps + t] : (type)0;
    type x = from_input<type>(how, row, t, k) + from_state<type>(how, row, t, k);
    return (1 - score) / (1 + exp_of(-x));
}

template <typename type>
static __device__ inline void put_state(const struct stg_kernel_gru *how, int64_t row,
                                        int64_t t, int64_t k, type state)
{
    ((type *)how->out)[(row * how->n_steps + t) * how->n + k] = state;
    if (t == how->n_steps - 1)
        ((type *)how->state)[row * how->n + k] = state;
}

/* Step t of all sequences; a thread is a unit of one. */
template <typename type>
static __global__ void step_after(struct stg_kernel_gru how, int64_t t, size_t n)
{
    for (size_t i = FIRST; i < n; i += STRIDE) {
        int64_t row = (int64_t)i / how.n, k = (int64_t)i - row * how.n;
        type state = before<type>(&how, row, t, k);
        if (t < length_of(&how, row)) {
            type reset = gate<type>(&how, row, t, how.n + k);
            type keep = keeps<type>(&how, row, t, k);
            type back = from_state<type>(&how, row, t, 2 * how.n + k) * reset;
            type to = tanh_of(from_input<type>(&how, row, t, 2 * how.n + k) + back);
            state = keep * state + (1 - keep) * to;
        }
        put_state(&how, row, t, k, state);
    }
}

/* Without reset_after, first: the reset state, and what stays, into the scratch. */
template <typename type>
static __global__ void step_gates(struct stg_kernel_gru how, int64_t t, size_t n)
{
    type *reset = (type *)how.scratch, *keep = reset + n;
    for (size_t i = FIRST; i < n; i += STRIDE) {
        int64_t row = (int64_t)i / how.n, k = (int64_t)i - row * how.n;
        if (t >= length_of(&how, row))
            continue;
        reset[i] = gate<type>(&how, row, t, how.n + k) * before<type>(&how, row, t, k);
        keep[i] = keeps<type>(&how, row, t, k);
    }
}

template <typename type>
static __global__ void step_before(struct stg_kernel_gru how, int64_t t, size_t n)
{
    const type *all_reset = (const type *)how.scratch, *keep = all_reset + n;
    for (size_t i = FIRST; i < n; i += STRIDE) {
        int64_t row = (int64_t)i / how.n, k = (int64_t)i - row * how.n;
        type state = before<type>(&how, row, t, k);
        if (t < length_of(&how, row)) {
            const type *reset = all_reset + row * how.n;
            const type *weights = (const type *)how.back + 2 * how.n + k;
            type back = 0;
            for (int64_t j = 0; j < how.n; j++)
                back += reset[j] * weights[j * 3 * how.n];
            type to = tanh_of(from_input<type>(&how, row, t, 2 * how.n + k) + back);
            state = keep[i] * state + (1 - keep[i]) * to;
        }
        put_state(&how, row, t, k, state);
    }
}

template <typename type>
static void launch_gru(const struct stg_kernel_gru *how, struct CUstream_st *stream)
{
    size_t n = (size_t)(how->n_rows * how->n);
    unsigned grid = blocks(n);
    for (int64_t t = 0; t < how->n_steps; t++) {
        if (how->reset_after) {
            LAUNCH(grid, stream, step_after<type>)(*how, t, n);
            continue;
        }
        LAUNCH(grid, stream, step_gates<type>)(*how, t, n);
        LAUNCH(grid, stream, step_before<type>)(*how, t, n);
    }
}

int stg_cuda_gru(const struct stg_kernel_gru *how, struct CUstream_st *stream)
{
    if (how->dtype == STAGER_FLOAT32)
        launch_gru<float>(how, stream);
    else
        launch_gru<double>(how, stream);
    return cudaGetLastError();
}
