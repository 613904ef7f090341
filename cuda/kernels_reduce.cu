/* SPDX-License-Identifier: Apache-2.0
 *
 * Over a dimension: reduce, softmax; and slices by their numbers: gather.
 */
#include "cuda/kernels.h"
#include "cuda/number.cuh"

/* ---- reduce ---- */

/* Sums are wider than the dtype, as in ops/kernels/math/reduce.c. */
static __device__ inline double widen(float x)
{
    return x;
}

static __device__ inline double widen(double x)
{
    return x;
}

static __device__ inline int64_t widen(int8_t x)
{
    return x;
}

static __device__ inline int64_t widen(int16_t x)
{
    return x;
}

static __device__ inline int64_t widen(int32_t x)
{
    return x;
}

static __device__ inline int64_t widen(int64_t x)
{
    return x;
}

static __device__ inline uint64_t widen(uint8_t x)
{
    return x;
}

static __device__ inline uint64_t widen(uint16_t x)
{
    return x;
}

static __device__ inline uint64_t widen(uint32_t x)
{
    return x;
}

static __device__ inline uint64_t widen(uint64_t x)
{
    return x;
}

/* What is less than, or as little as, everything. */
template <typename type> static __device__ inline double least(double)
{
    return -INFINITY;
}

template <typename type> static __device__ inline int64_t least(int64_t)
{
    return -((int64_t)1 << (8 * sizeof(type) - 1));
}

template <> __device__ inline int64_t least<int64_t>(int64_t)
{
    return INT64_MIN;
}

template <typename type> static __device__ inline uint64_t least(uint64_t)
{
    return 0;
}

/* The mean of nothing is 0/0, of integers 0. */
static __device__ inline double mean_of(double sum, int64_t n)
{
    return __ddiv_rn(sum, (double)n);
}

static __device__ inline int64_t mean_of(int64_t sum, int64_t n)
{
    return n > 0 ? sum / n : 0;
}

static __device__ inline uint64_t mean_of(uint64_t sum, int64_t n)
{
    return n > 0 ? sum / (uint64_t)n : 0;
}

/* Kept and reduced dimensions apart, each with its steps in x. */
struct axes {
    int n_kept, n_reduced;
    int64_t n_sums, n_each;
    int64_t kept[STG_KERNEL_LOOPS], kept_step[STG_KERNEL_LOOPS];
    int64_t reduced[STG_KERNEL_LOOPS], reduced_step[STG_KERNEL_LOOPS];
};

static axes axes_of(const struct stg_kernel_reduce *how)
{
    axes ret = axes();
    int64_t step = 1;
    ret.n_sums = ret.n_each = 1;
    for (int d = how->n_dims - 1; d >= 0; d--) {
        if (how->is_reduced[d]) {
            ret.reduced[ret.n_reduced] = how->size[d];
            ret.reduced_step[ret.n_reduced++] = step;
            ret.n_each *= how->size[d];
        } else {
            ret.kept[ret.n_kept] = how->size[d];
            ret.kept_step[ret.n_kept++] = step;
            ret.n_sums *= how->size[d];
        }
        step *= how->size[d];
    }
    return ret;
}

/* The first size is the innermost. */
static __device__ inline int64_t place_of(int n, const int64_t *size, const int64_t *step,
                                          int64_t i)
{
    int64_t at = 0;
    for (int d = 0; d < n; d++) {
        int64_t rest = d + 1 < n ? i / size[d] : 0;
        at += (i - rest * size[d]) * step[d];
        i = rest;
    }
    return at;
}

template <typename type, typename sum_type>
static __device__ inline void finish(const struct stg_kernel_reduce *how, const axes *all,
                                     sum_type sum, int64_t i)
{
    if (how->op == STG_KERNEL_REDUCE_MEAN)
        sum = mean_of(sum, all->n_each);
    if (how->op == STG_KERNEL_L2_NORMALIZE)
        ((double *)how->scratch)[i] = __ddiv_rn(
            1.0, __dsqrt_rn((double)sum < how->epsilon ? how->epsilon : (double)sum));
    else
        put((type *)how->y + i, (typename value_of<type>::is)sum);
}

/* A thread is a part of a sum: elements part, part + n_parts … Scratch: n_sums factors of
 * l2_normalize, then the parts of each sum. */
template <typename type>
static __global__ void accumulate(struct stg_kernel_reduce how, axes all, int64_t n_parts)
{
    typedef decltype(widen(get(type()))) sum_type;
    const type *x = (const type *)how.x;
    sum_type *parts = (sum_type *)how.scratch + all.n_sums;
    size_t n = (size_t)(all.n_sums * n_parts);
    for (size_t i = FIRST; i < n; i += STRIDE) {
        int64_t which = (int64_t)i / n_parts;
        int64_t first = place_of(all.n_kept, all.kept, all.kept_step, which);
        sum_type sum = how.op == STG_KERNEL_REDUCE_MAX ? least<type>(sum_type()) : 0;
        for (int64_t k = (int64_t)i - which * n_parts; k < all.n_each; k += n_parts) {
            sum_type at = widen(get(
                x[first + place_of(all.n_reduced, all.reduced, all.reduced_step, k)]));
            if (how.op == STG_KERNEL_REDUCE_MAX)
                sum = larger(sum, at);
            else
                sum = plus(sum, how.op == STG_KERNEL_L2_NORMALIZE ? times(at, at) : at);
        }
        if (n_parts == 1)
            finish<type>(&how, &all, sum, which);
        else
            parts[i] = sum;
    }
}

template <typename type>
static __global__ void combine(struct stg_kernel_reduce how, axes all, int64_t n_parts)
{
    typedef decltype(widen(get(type()))) sum_type;
    const sum_type *parts = (const sum_type *)how.scratch + all.n_sums;
    for (size_t i = FIRST; i < (size_t)all.n_sums; i += STRIDE) {
        sum_type sum = parts[i * (size_t)n_parts];
        for (int64_t k = 1; k < n_parts; k++) {
            sum_type at = parts[i * (size_t)n_parts + (size_t)k];
            sum = how.op == STG_KERNEL_REDUCE_MAX ? larger(sum, at) : plus(sum, at);
        }
        finish<type>(&how, &all, sum, (int64_t)i);
    }
}

/* An element's sum: the kept dimensions of its place. */
template <typename type>
static __global__ void scale(struct stg_kernel_reduce how, size_t n)
{
    const type *x = (const type *)how.x;
    const double *factors = (const double *)how.scratch;
    for (size_t i = FIRST; i < n; i += STRIDE) {
        int64_t rest = (int64_t)i, at = 0, step = 1;
        for (int d = how.n_dims - 1; d >= 0; d--) {
            int64_t next = rest / how.size[d], k = rest - next * how.size[d];
            if (!how.is_reduced[d]) {
                at += k * step;
                step *= how.size[d];
            }
            rest = next;
        }
        put((type *)how.y + i,
            (typename value_of<type>::is)((double)get(x[i]) * factors[at]));
    }
}

template <typename type>
static void launch_reduce(const struct stg_kernel_reduce *how, const axes *all,
                          struct CUstream_st *stream)
{
    int64_t n_parts = stg_kernel_reduce_parts(all->n_sums, all->n_each);
    LAUNCH(blocks((size_t)(all->n_sums * n_parts)), stream, accumulate<type>)
    (*how, *all, n_parts);
    if (n_parts > 1)
        LAUNCH(blocks((size_t)all->n_sums), stream, combine<type>)(*how, *all, n_parts);
}

template <typename type>
static void launch_scale(const struct stg_kernel_reduce *how, const axes *all,
                         struct CUstream_st *stream)
{
    size_t n = (size_t)(all->n_sums * all->n_each);
    if (n > 0)
        LAUNCH(blocks(n), stream, scale<type>)(*how, n);
}

int stg_cuda_reduce(const struct stg_kernel_reduce *how, struct CUstream_st *stream)
{
    axes all = axes_of(how);
#define RUN(type) launch_reduce<type>(how, &all, stream)
    switch (how->dtype) {
        EACH_NUMBER(RUN)
    default: break;
    }
#undef RUN
#define RUN(type) launch_scale<type>(how, &all, stream)
    if (how->op == STG_KERNEL_L2_NORMALIZE) {
        switch (how->dtype) {
            EACH_FLOAT(RUN)
        default: break;
        }
    }
#undef RUN
    return cudaGetLastError();
}

/* ---- softmax ---- */

/* A thread is a row. The mask leaves out what is 0 in it. */
template <typename type> static __global__ void softmax(struct stg_kernel_softmax how)
{
    typedef typename value_of<type>::is value;
    size_t n = (size_t)(how.n_outer * how.n_inner);
    for (size_t r = FIRST; r < n; r += STRIDE) {
        int64_t outer = (int64_t)r / how.n_inner;
        int64_t first = outer * how.n * how.n_inner + ((int64_t)r - outer * how.n_inner);
        const type *x = (const type *)how.x + first;
        const uint8_t *mask = how.mask != NULL ? how.mask + first : NULL;
        type *y = (type *)how.y + first;
        value most = -(value)INFINITY, sum = 0;
        bool is_empty = mask != NULL;
        for (int64_t i = 0; i < how.n; i++) {
            if (mask != NULL && mask[i * how.n_inner] == 0)
                continue;
            is_empty = false;
            most = larger(most, get(x[i * how.n_inner]));
        }
        for (int64_t i = 0; i < how.n; i++) {
            bool is_in = mask == NULL || mask[i * how.n_inner] != 0;
            sum += exp_of((is_in ? get(x[i * how.n_inner]) : -(value)INFINITY) - most);
        }
        for (int64_t i = 0; i < how.n; i++) {
            bool is_in = mask == NULL || mask[i * how.n_inner] != 0;
            value at = is_in ? get(x[i * how.n_inner]) : -(value)INFINITY;
            put(&y[i * how.n_inner], is_empty ? (value)0 : exp_of(at - most) / sum);
        }
    }
}

int stg_cuda_softmax(const struct stg_kernel_softmax *how, struct CUstream_st *stream)
{
    unsigned grid = blocks((size_t)(how->n_outer * how->n_inner));
#define RUN(type) LAUNCH(grid, stream, softmax<type>)(*how)
    switch (how->dtype) {
        EACH_FLOAT(RUN)
    default: break;
    }
#undef RUN
    return cudaGetLastError();
}

/* ---- gather ---- */

/* A thread is an element of y. */
template <typename type, typename index_type>
static __global__ void gather(struct stg_kernel_gather how, size_t n)
{
    const type *x = (const type *)how.x;
    const index_type *indices = (const index_type *)how.indices;
    size_t n_inner = (size_t)how.inner, n_slices = (size_t)how.n;
    for (size_t i = FIRST; i < n; i += STRIDE) {
        size_t slice = i / n_inner, k = i - slice * n_inner;
        size_t block = slice / n_slices, which = slice - block * n_slices;
        size_t batch = block / (size_t)how.outer, at = batch * n_slices + which;
        int64_t index = (int64_t)indices[at];
        bool is_in = index >= 0 && index < how.dim;
        ((type *)how.y)[i] =
            is_in ? x[(block * (size_t)how.dim + (size_t)index) * n_inner + k] : (type)0;
        if (!is_in && k == 0 && how.bad != NULL)
            atomicMin((long long *)how.bad, (long long)at);
    }
}

template <typename index_type>
static void launch_gather(const struct stg_kernel_gather *how, struct CUstream_st *stream)
{
    size_t n = (size_t)(how->batch * how->outer * how->n * how->inner);
    unsigned grid = blocks(n);
    switch (how->unit) {
    case 8: LAUNCH(grid, stream, gather<uint64_t, index_type>)(*how, n); break;
    case 4: LAUNCH(grid, stream, gather<uint32_t, index_type>)(*how, n); break;
    case 2: LAUNCH(grid, stream, gather<uint16_t, index_type>)(*how, n); break;
    default: LAUNCH(grid, stream, gather<uint8_t, index_type>)(*how, n); break;
    }
}

int stg_cuda_gather(const struct stg_kernel_gather *how, struct CUstream_st *stream)
{
    if (how->indices_dtype == STAGER_INT32)
        launch_gather<int32_t>(how, stream);
    else
        launch_gather<int64_t>(how, stream);
    return cudaGetLastError();
}
