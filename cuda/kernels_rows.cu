/* SPDX-License-Identifier: Apache-2.0
 *
 * Row by row: normalize_image, embedding_lookup, concat.
 */
#include "cuda/element.cuh"
#include "cuda/kernels.h"

/* ---- normalize_image ---- */

/* By value: the launch reads it when it comes to run. */
struct moments {
    float mean[STG_KERNEL_CHANNELS], std[STG_KERNEL_CHANNELS];
};

static __device__ float pixel(uint8_t x)
{
    return (float)x;
}

static __device__ float pixel(float x)
{
    return x;
}

/* A thread is a pixel: it reads its channels side by side, and writes each to its plane
 * beside those of its neighbours. */
template <typename from, typename to>
static __global__ void normalize(to *y, const from *x, size_t n_images, size_t n_pixels,
                                 unsigned n_channels, moments by)
{
    size_t n = n_images * n_pixels;
    for (size_t i = FIRST; i < n; i += STRIDE) {
        size_t image = i / n_pixels, at = i - image * n_pixels;
        to *plane = y + image * n_channels * n_pixels + at;
        for (unsigned c = 0; c < n_channels; c++)
            store(plane + c * n_pixels,
                  __fdiv_rn(__fsub_rn(pixel(x[i * n_channels + c]), by.mean[c]),
                            by.std[c]));
    }
}

template <typename from>
static void launch_normalize(const struct stg_kernel_normalize *how, void *y,
                             const from *x, struct CUstream_st *stream)
{
    moments by;
    for (int c = 0; c < STG_KERNEL_CHANNELS; c++) {
        by.mean[c] = how->mean[c];
        by.std[c] = how->std[c];
    }
    size_t n_pixels = how->height * how->width;
    unsigned n_channels = (unsigned)how->channels, grid = blocks(how->n * n_pixels);
    if (how->y_dtype == STAGER_FLOAT32)
        LAUNCH(grid, stream, normalize<from, float>)
        ((float *)y, x, how->n, n_pixels, n_channels, by);
    else
        LAUNCH(grid, stream, normalize<from, half16>)
        ((half16 *)y, x, how->n, n_pixels, n_channels, by);
}

int stg_cuda_normalize_image(const struct stg_kernel_normalize *how, void *y,
                             const void *x, struct CUstream_st *stream)
{
    if (how->x_dtype == STAGER_UINT8)
        launch_normalize(how, y, (const uint8_t *)x, stream);
    else
        launch_normalize(how, y, (const float *)x, stream);
    return cudaGetLastError();
}

/* ---- embedding_lookup ---- */

static __device__ float root(float x)
{
    return __fsqrt_rn(x);
}

static __device__ double root(double x)
{
    return __dsqrt_rn(x);
}

/* A thread is an element of y. Its neighbours read the same ids, which the cache has, and
 * the elements of the table beside its own. */
template <typename type, typename sum_type, typename id_type>
static __global__ void lookup(struct stg_kernel_lookup how)
{
    const type *table = (const type *)how.table, *weights = (const type *)how.weights;
    const id_type *ids = (const id_type *)how.ids;
    type *y = (type *)how.y;
    size_t n = (size_t)(how.n * how.width);
    for (size_t i = FIRST; i < n; i += STRIDE) {
        int64_t row = (int64_t)(i / (size_t)how.width), k = (int64_t)i - row * how.width;
        bool pools = how.combiner != STG_KERNEL_NONE;
        int64_t begin = pools ? how.splits[row] : row;
        int64_t end = pools ? how.splits[row + 1] : row + 1;
        sum_type sum = 0, total = 0, squares = 0;
        for (int64_t j = begin; j < end; j++) {
            int64_t id = (int64_t)ids[j];
            sum_type weight = weights != NULL ? (sum_type)load(weights[j]) : (sum_type)1;
            if (id >= 0 && id < how.n_table)
                sum += weight * (sum_type)load(table[id * how.width + k]);
            else if (k == 0 && how.bad != NULL)
                atomicMin((long long *)how.bad, (long long)j);
            total += weight;
            squares += weight * weight;
        }
        sum_type by = how.combiner == STG_KERNEL_MEAN    ? total
                      : how.combiner == STG_KERNEL_SQRTN ? root(squares)
                                                         : (sum_type)1;
        store(&y[i], by == 0 ? (sum_type)0 : sum / by);
    }
}

/* Without a combiner an element is copied as it is, whatever its dtype means. */
template <typename type, typename id_type>
static __global__ void take(struct stg_kernel_lookup how)
{
    const type *table = (const type *)how.table;
    const id_type *ids = (const id_type *)how.ids;
    size_t n = (size_t)(how.n * how.width);
    for (size_t i = FIRST; i < n; i += STRIDE) {
        int64_t row = (int64_t)(i / (size_t)how.width), k = (int64_t)i - row * how.width;
        int64_t id = (int64_t)ids[row];
        bool is_in = id >= 0 && id < how.n_table;
        ((type *)how.y)[i] = is_in ? table[id * how.width + k] : (type)0;
        if (!is_in && k == 0 && how.bad != NULL)
            atomicMin((long long *)how.bad, (long long)row);
    }
}

template <typename id_type>
static void launch_lookup(const struct stg_kernel_lookup *how, struct CUstream_st *stream)
{
    unsigned grid = blocks((size_t)(how->n * how->width));
    bool pools = how->combiner != STG_KERNEL_NONE;
    switch (how->dtype) {
    case STAGER_FLOAT32:
        if (pools)
            LAUNCH(grid, stream, lookup<float, float, id_type>)(*how);
        else
            LAUNCH(grid, stream, take<uint32_t, id_type>)(*how);
        break;
    case STAGER_FLOAT64:
        if (pools)
            LAUNCH(grid, stream, lookup<double, double, id_type>)(*how);
        else
            LAUNCH(grid, stream, take<uint64_t, id_type>)(*how);
        break;
    case STAGER_FLOAT16:
        if (pools)
            LAUNCH(grid, stream, lookup<half16, float, id_type>)(*how);
        else
            LAUNCH(grid, stream, take<uint16_t, id_type>)(*how);
        break;
    default:
        if (pools)
            LAUNCH(grid, stream, lookup<brain16, float, id_type>)(*how);
        else
            LAUNCH(grid, stream, take<uint16_t, id_type>)(*how);
        break;
    }
}

int stg_cuda_embedding_lookup(const struct stg_kernel_lookup *how,
                              struct CUstream_st *stream)
{
    if (how->ids_dtype == STAGER_INT32)
        launch_lookup<int32_t>(how, stream);
    else
        launch_lookup<int64_t>(how, stream);
    return cudaGetLastError();
}

/* ---- concat ---- */

/* A thread is a unit of y; which input it is from, a search among where they begin. */
template <typename unit>
static __global__ void concat(struct stg_cuda_concat how, unit *y)
{
    size_t width = how.at[how.n_x], n = how.n_rows * width;
    for (size_t i = FIRST; i < n; i += STRIDE) {
        size_t row = i / width, k = i - row * width;
        unsigned low = 0, high = how.n_x - 1;
        while (low < high) {
            unsigned middle = (low + high + 1) / 2;
            if (how.at[middle] <= k)
                low = middle;
            else
                high = middle - 1;
        }
        y[row * how.y_units + how.first + k] =
            ((const unit *)how.x[low])[row * how.row_units[low] + k - how.at[low]];
    }
}

int stg_cuda_concat(const struct stg_cuda_concat *how, void *y,
                    struct CUstream_st *stream)
{
    unsigned grid = blocks(how->n_rows * how->at[how->n_x]);
    switch (how->unit) {
    case 16: LAUNCH(grid, stream, concat<uint4>)(*how, (uint4 *)y); break;
    case 8: LAUNCH(grid, stream, concat<uint64_t>)(*how, (uint64_t *)y); break;
    case 4: LAUNCH(grid, stream, concat<uint32_t>)(*how, (uint32_t *)y); break;
    case 2: LAUNCH(grid, stream, concat<uint16_t>)(*how, (uint16_t *)y); break;
    default: LAUNCH(grid, stream, concat<uint8_t>)(*how, (uint8_t *)y); break;
    }
    return cudaGetLastError();
}
