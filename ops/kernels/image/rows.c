/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiled once for every set of instructions, with STG_IMAGE_SET (its name) given, and
 * without contraction: a fused multiply-add would give another value.
 */
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
    .mix = mix,
    .mix_normalize = mix_normalize,
    .mix_normalize_half = mix_normalize_half,
};
