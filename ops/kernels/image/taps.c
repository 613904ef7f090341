/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/kernels/image/taps.h"

#include <math.h>

/* ---- two neighbours, as TensorFlow: in float32 ---- */

static float scale_of(const struct stg_image_axis *axis, bool align_corners)
{
    return align_corners && axis->out > 1 ? (float)(axis->in - 1) / (float)(axis->out - 1)
                                          : (float)axis->in / (float)axis->out;
}

struct neighbours {
    int64_t low, high;
    float lerp;
};

static struct neighbours neighbours_of(const struct stg_image_resize *resize,
                                       const struct stg_image_axis *axis, int64_t i)
{
    float scale = scale_of(axis, resize->align_corners);
    float at =
        resize->half_pixel_centers ? ((float)i + 0.5f) * scale - 0.5f : (float)i * scale;
    float floor = floorf(at);
    int64_t low = (int64_t)floor, high = (int64_t)ceilf(at), last = axis->in - 1;
    low = low < 0 ? 0 : low < last ? low : last;
    return (struct neighbours){low, high < last ? high : last, at - floor};
}

void stg_image_fill_taps(const struct stg_image_resize *resize,
                         const struct stg_image_axis *axis, bool flip,
                         struct stg_image_taps *taps)
{
    for (int64_t i = 0; i < taps->n; i++) {
        struct neighbours from = neighbours_of(resize, axis, axis->first + i);
        int64_t to = flip ? taps->n - 1 - i : i;
        taps->low[to] = (int32_t)(from.low - axis->base);
        taps->high[to] = (int32_t)(from.high - axis->base);
        taps->lerp[to] = from.lerp;
    }
}

/* ---- a triangle as wide as two pixels of the result, or of the image ---- */

struct triangle {
    double center, radius;
    int64_t low, end; /* pixels with a weight above 0 */
};

static double weight_of(const struct triangle *triangle, int64_t pixel)
{
    return 1 - fabs((double)pixel + 0.5 - triangle->center) / triangle->radius;
}

static struct triangle triangle_of(const struct stg_image_axis *axis, int64_t i)
{
    double scale = (double)axis->in / (double)axis->out;
    struct triangle ret = {((double)i + 0.5) * scale, scale > 1 ? scale : 1, 0, axis->in};
    int64_t low = (int64_t)(ret.center - ret.radius + 0.5);
    int64_t end = (int64_t)(ret.center + ret.radius + 0.5);
    ret.low = low > 0 ? low : 0;
    ret.end = end < axis->in ? end : axis->in;
    while (ret.end - ret.low > 1 && weight_of(&ret, ret.end - 1) <= 0)
        ret.end--;
    while (ret.end - ret.low > 1 && weight_of(&ret, ret.low) <= 0)
        ret.low++;
    return ret;
}

int64_t stg_image_most_weights(const struct stg_image_axis *axis)
{
    int64_t most = 1;
    for (int64_t i = 0; i < axis->n; i++) {
        struct triangle triangle = triangle_of(axis, axis->first + i);
        int64_t n = triangle.end - triangle.low;
        most = n > most ? n : most;
    }
    return most;
}

static void fill_one(const struct triangle *triangle, int64_t low, int64_t n, float *ret)
{
    double sum = 0;
    for (int64_t pixel = triangle->low; pixel < triangle->end; pixel++)
        sum += weight_of(triangle, pixel);
    for (int64_t k = 0; k < n; k++) {
        bool inside = low + k >= triangle->low && low + k < triangle->end;
        ret[k] = inside ? (float)(weight_of(triangle, low + k) / sum) : 0;
    }
}

void stg_image_fill_weights(const struct stg_image_axis *axis, bool flip,
                            struct stg_image_weights *weights)
{
    int64_t last = axis->base + axis->have - weights->n_taps;
    for (int64_t i = 0; i < weights->n; i++) {
        struct triangle triangle = triangle_of(axis, axis->first + i);
        int64_t low = triangle.low < last ? triangle.low : last;
        int64_t to = flip ? weights->n - 1 - i : i;
        weights->low[to] = (int32_t)(low - axis->base);
        fill_one(&triangle, low, weights->n_taps,
                 weights->weights + to * weights->n_taps);
    }
}

/* ---- what there has to be ---- */

void stg_image_narrow(const struct stg_image_resize *resize, struct stg_image_axis *axis)
{
    int64_t last = axis->first + axis->n - 1, end;
    if (resize->antialias) {
        axis->base = triangle_of(axis, axis->first).low;
        end = triangle_of(axis, last).end;
    } else {
        axis->base = neighbours_of(resize, axis, axis->first).low;
        end = neighbours_of(resize, axis, last).high + 1;
    }
    axis->have = end - axis->base;
}
