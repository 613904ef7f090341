/* SPDX-License-Identifier: Apache-2.0
 *
 * Which pixels of an image a pixel of the resized one is made of, along one axis: two
 * neighbours, or with antialias all below a triangle. Pure functions; any thread.
 */
#ifndef STG_OPS_KERNELS_IMAGE_TAPS_H
#define STG_OPS_KERNELS_IMAGE_TAPS_H

#include "ops/kernels/image/image.h"
#include "ops/kernels/image/kernels.h"

/* Makes room for nothing: low, high and lerp have taps->n elements. `low` and `high`
 * count from axis->base. The first is last with `flip`. */
void stg_image_fill_taps(const struct stg_image_resize *resize,
                         const struct stg_image_axis *axis, bool flip,
                         struct stg_image_taps *taps);

/* The most pixels that one is made of, with antialias. */
int64_t stg_image_most_weights(const struct stg_image_axis *axis);

/* Likewise: low has weights->n elements, weights n * n_taps. All of them lie inside of
 * what there is; those that are not needed are 0. */
void stg_image_fill_weights(const struct stg_image_axis *axis, bool flip,
                            struct stg_image_weights *weights);

#endif
