/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiled once for every set of instructions, with STG_IMAGE_SET (its name) given, and
 * without contraction: a fused multiply-add would give another value.
 */
#include <stdbool.h>
#include <string.h>

#include "ops/kernels/image/kernels.h"

#ifndef STG_IMAGE_SET /* this file alone */
#define STG_IMAGE_SET any
#endif
#define JOIN_(name, set) name##_##set
#define JOIN(name, set) JOIN_(name, set)
#define STRING_(set) #set
#define STRING(set) STRING_(set)

#define BLOCK 64
#define RGB_BYTES 3

/* A pixel as 0xBBGGRR. Four bytes are one load, where there are four. */
static inline uint32_t load_rgb(const uint8_t *row, int64_t bytes, int64_t pixel)
{
    const uint8_t *p = row + pixel * RGB_BYTES;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    uint32_t value;
    if (pixel * RGB_BYTES + (int64_t)sizeof(value) <= bytes) {
        memcpy(&value, p, sizeof(value));
        return value;
    }
#endif
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16;
}

static void mix_block(const uint32_t *low, const uint32_t *high, const float *lerp,
                      int64_t n, int shift, float *out)
{
    for (int64_t i = 0; i < n; i++) {
        float a = (float)(int32_t)(low[i] >> shift & 255);
        float b = (float)(int32_t)(high[i] >> shift & 255);
        out[i] = a + (b - a) * lerp[i];
    }
}

static void take_rgb(const uint8_t *row, int64_t bytes, const struct stg_image_taps *taps,
                     float *planes, int64_t stride)
{
    uint32_t low[BLOCK], high[BLOCK];
    for (int64_t first = 0; first < taps->n; first += BLOCK) {
        int64_t n = taps->n - first < BLOCK ? taps->n - first : BLOCK;
        for (int64_t i = 0; i < n; i++)
            low[i] = load_rgb(row, bytes, taps->low[first + i]);
        for (int64_t i = 0; taps->lerp != NULL && i < n; i++)
            high[i] = load_rgb(row, bytes, taps->high[first + i]);
        for (int c = 0; c < RGB_BYTES; c++) {
            float *out = planes + c * stride + first;
            if (taps->lerp != NULL) {
                mix_block(low, high, taps->lerp + first, n, 8 * c, out);
                continue;
            }
            for (int64_t i = 0; i < n; i++)
                out[i] = (float)(int32_t)(low[i] >> 8 * c & 255);
        }
    }
}

/* ---- sums with weights ---- */

#define SUM_BLOCK 1024 /* floats that stay in the nearest cache */
#define SUM_ROWS 4

/* One after the other, so that weights of 0 at either end change nothing. `n_rows` is a
 * constant wherever it is called. */
static inline void sum_some(const uint8_t *const *rows, const float *weights, int n_rows,
                            bool more, int64_t first, int64_t n, float *restrict out)
{
    for (int64_t i = first; i < first + n; i++) {
        float sum = more ? out[i] : 0;
        for (int k = 0; k < n_rows; k++)
            sum += (float)(int32_t)rows[k][i] * weights[k];
        out[i] = sum;
    }
}

static void sum_rows(const uint8_t *const *rows, const float *weights, int64_t n_rows,
                     bool more, int64_t first, int64_t n, float *out)
{
    switch (n_rows) {
    case 1: sum_some(rows, weights, 1, more, first, n, out); break;
    case 2: sum_some(rows, weights, 2, more, first, n, out); break;
    case 3: sum_some(rows, weights, 3, more, first, n, out); break;
    default: sum_some(rows, weights, SUM_ROWS, more, first, n, out); break;
    }
}

static void blend(const uint8_t *const *rows, const float *weights, int64_t n_rows,
                  int64_t n, float *out)
{
    for (int64_t first = 0; first < n; first += SUM_BLOCK) {
        int64_t some = n - first < SUM_BLOCK ? n - first : SUM_BLOCK;
        for (int64_t k = 0; k < n_rows; k += SUM_ROWS)
            sum_rows(rows + k, weights + k, n_rows - k, k > 0, first, some, out);
    }
}

/* Three channels and what stands behind them. */
typedef float lanes __attribute__((vector_size(16)));

static inline lanes load_lanes(const float *from)
{
    lanes ret;
    memcpy(&ret, from, sizeof(ret));
    return ret;
}

static inline void store_lanes(float *to, lanes value)
{
    memcpy(to, &value, sizeof(value));
}

static inline lanes weighted(const float *row, const struct stg_image_weights *weights,
                             int64_t i, int64_t k)
{
    float weight = weights->weights[i * weights->n_taps + k];
    return load_lanes(row + (weights->low[i] + k) * RGB_BYTES) *
           (lanes){weight, weight, weight, weight};
}

/* Four pixels at a time. */
static int64_t gather_fours(const float *row, const struct stg_image_weights *weights,
                            float *planes, int64_t stride)
{
    int64_t i;
    for (i = 0; i + 4 <= weights->n; i += 4) {
        lanes a = {0}, b = {0}, c = {0}, d = {0};
        for (int64_t k = 0; k < weights->n_taps; k++) {
            a += weighted(row, weights, i, k);
            b += weighted(row, weights, i + 1, k);
            c += weighted(row, weights, i + 2, k);
            d += weighted(row, weights, i + 3, k);
        }
        lanes ab = __builtin_shufflevector(a, b, 0, 4, 1, 5);
        lanes cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
        store_lanes(planes + i, __builtin_shufflevector(ab, cd, 0, 1, 4, 5));
        store_lanes(planes + stride + i, __builtin_shufflevector(ab, cd, 2, 3, 6, 7));
        ab = __builtin_shufflevector(a, b, 2, 6, 3, 7);
        cd = __builtin_shufflevector(c, d, 2, 6, 3, 7);
        store_lanes(planes + 2 * stride + i, __builtin_shufflevector(ab, cd, 0, 1, 4, 5));
    }
    return i;
}

static void gather_rgb(const float *row, const struct stg_image_weights *weights,
                       float *planes, int64_t stride)
{
    for (int64_t i = gather_fours(row, weights, planes, stride); i < weights->n; i++) {
        lanes sum = {0};
        for (int64_t k = 0; k < weights->n_taps; k++)
            sum += weighted(row, weights, i, k);
        for (int c = 0; c < RGB_BYTES; c++)
            planes[c * stride + i] = sum[c];
    }
}

/* Row-wise; bottom NULL: top alone. The compiler makes two loops of it. */
static inline float mixed(const float *top, const float *bottom, float lerp, int64_t i)
{
    return bottom == NULL ? top[i] : top[i] + (bottom[i] - top[i]) * lerp;
}

static void mix(const float *top, const float *bottom, float lerp, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = mixed(top, bottom, lerp, i);
}

static void mix_normalize(const float *top, const float *bottom, float lerp, int64_t n,
                          float mean, float std, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = (mixed(top, bottom, lerp, i) - mean) / std;
}

/* binary16 of a float, to nearest, ties to even: without a branch, for vectors. A number
 * that is subnormal there is rounded by adding what has the right last bit. */
static inline uint16_t half(float value)
{
    uint32_t bits, small;
    memcpy(&bits, &value, sizeof(bits));
    uint32_t sign = bits & 0x80000000u, size = bits ^ sign;
    float magic = 0.5f, sum;
    memcpy(&sum, &size, sizeof(sum));
    sum += magic;
    memcpy(&small, &sum, sizeof(small));
    small -= 0x3f000000u;
    uint32_t normal = (size + 0xc8000fffu + (size >> 13 & 1)) >> 13;
    uint32_t huge = size > 0x7f800000u ? 0x7e00u : 0x7c00u;
    uint32_t ret = size < 0x38800000u ? small : normal;
    ret = size >= 0x47800000u ? huge : ret;
    return (uint16_t)(ret | sign >> 16);
}

static void mix_normalize_half(const float *top, const float *bottom, float lerp,
                               int64_t n, float mean, float std, uint16_t *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = half((mixed(top, bottom, lerp, i) - mean) / std);
}

extern const struct stg_image_kernels JOIN(stg_image_kernels, STG_IMAGE_SET);

const struct stg_image_kernels JOIN(stg_image_kernels, STG_IMAGE_SET) = {
    .name = STRING(STG_IMAGE_SET),
    .take_rgb = take_rgb,
    .blend = blend,
    .gather_rgb = gather_rgb,
    .mix = mix,
    .mix_normalize = mix_normalize,
    .mix_normalize_half = mix_normalize_half,
};
