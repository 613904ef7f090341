/* SPDX-License-Identifier: Apache-2.0
 *
 * The loops over one row of an image, once for each set of instructions; the same values
 * from all of them. Rows that are worked on are planes of float, one a channel, `stride`
 * floats apart. Pure functions; any thread.
 */
#ifndef STG_OPS_KERNELS_IMAGE_KERNELS_H
#define STG_OPS_KERNELS_IMAGE_KERNELS_H

#include <stddef.h>
#include <stdint.h>

/* Where a pixel of a resized row comes from: the pixel at `low`, and `lerp` of the way to
 * the one at `high`. */
struct stg_image_taps {
    int32_t *low, *high; /* numbers of pixels */
    float *lerp;         /* NULL: `low` alone */
    int64_t n;
};

/* Likewise with antialias: n_taps pixels from `low` on, each with its weight. */
struct stg_image_weights {
    int32_t *low;
    float *weights; /* n_taps for each pixel of the result */
    int64_t n_taps, n;
};

struct stg_image_kernels {
    const char *name;
    /* Three channels of bytes; `bytes` may be read from `row` on. */
    void (*take_rgb)(const uint8_t *row, int64_t bytes, const struct stg_image_taps *taps,
                     float *planes, int64_t stride);
    /* out[i] = the sum of rows[k][i] * weights[k]. */
    void (*blend)(const uint8_t *const *rows, const float *weights, int64_t n_rows,
                  int64_t n, float *out);
    /* Three channels, one after the other in each pixel of `row`, behind which one more
     * float may be read. */
    void (*gather_rgb)(const float *row, const struct stg_image_weights *weights,
                       float *planes, int64_t stride);
    /* out[i] = top[i] + (bottom[i] - top[i]) * lerp; bottom NULL: top[i]. */
    void (*mix)(const float *top, const float *bottom, float lerp, int64_t n, float *out);
    /* (that - mean) / std, as float or as float16. */
    void (*mix_normalize)(const float *top, const float *bottom, float lerp, int64_t n,
                          float mean, float std, float *out);
    void (*mix_normalize_half)(const float *top, const float *bottom, float lerp,
                               int64_t n, float mean, float std, uint16_t *out);
};

/* The fastest of this CPU. */
const struct stg_image_kernels *stg_image_kernels(void);

/* All that this CPU can run, the reference first; for tests. */
const struct stg_image_kernels *const *stg_image_kernels_all(size_t *ret_n);

/* The tables that rows.c is compiled into; named by draw.c alone. */
extern const struct stg_image_kernels stg_image_kernels_plain, stg_image_kernels_avx2;

#endif
