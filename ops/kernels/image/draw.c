/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "ops/kernels/image/image.h"
#include "ops/kernels/image/kernels.h"
#include "ops/kernels/image/reader.h"

/* ---- the loops of this CPU ---- */

static const struct stg_image_kernels *const tables[] = {
    &stg_image_kernels_plain,
#if defined(__x86_64__)
    &stg_image_kernels_avx2,
#endif
};

const struct stg_image_kernels *const *stg_image_kernels_all(size_t *ret_n)
{
    *ret_n = 1;
#if defined(__x86_64__)
    __builtin_cpu_init();
    *ret_n += __builtin_cpu_supports("avx2") != 0;
#endif
    return tables;
}

const struct stg_image_kernels *stg_image_kernels(void)
{
    size_t n;
    const struct stg_image_kernels *const *all = stg_image_kernels_all(&n);
    return all[n - 1];
}

/* The bilinear kernel of TensorFlow: along x first, then along y, in float32. */

struct draw {
    const struct stg_image_plan *plan;
    const struct stg_image *image;
    const struct stg_image_kernels *kernels;
    int64_t height, width; /* of the output */
    struct stg_image_taps x, y;
    int64_t stride;
    float *rows[2]; /* planes of two rows of the image, resized along x */
    int64_t held[2];
    int64_t n_read; /* rows that the reader has given */
    bool flip_y;
    void *out;
};

static float scale_of(int64_t in, int64_t out, bool align_corners)
{
    return align_corners && out > 1 ? (float)(in - 1) / (float)(out - 1)
                                    : (float)in / (float)out;
}

/* Where n pixels come from, of `in`; the first is last when they are flipped. */
static void fill_taps(const struct stg_image_resize *resize, int64_t in, bool flip,
                      struct stg_image_taps *taps)
{
    float scale = scale_of(in, taps->n, resize->align_corners);
    for (int64_t i = 0; i < taps->n; i++) {
        float at = resize->half_pixel_centers ? ((float)i + 0.5f) * scale - 0.5f
                                              : (float)i * scale;
        float floor = floorf(at);
        int64_t low = (int64_t)floor, high = (int64_t)ceilf(at);
        int64_t to = flip ? taps->n - 1 - i : i;
        low = low < 0 ? 0 : low < in ? low : in - 1;
        taps->low[to] = (int32_t)low;
        taps->high[to] = (int32_t)(high < in ? high : in - 1);
        taps->lerp[to] = at - floor;
    }
}

static void same_taps(bool flip, struct stg_image_taps *taps)
{
    for (int64_t i = 0; i < taps->n; i++)
        taps->low[i] = taps->high[i] = (int32_t)(flip ? taps->n - 1 - i : i);
    taps->lerp = NULL;
}

static int make_taps(struct draw *draw, bool flip_x, struct stg_image_memory *memory,
                     struct stg_err *err)
{
    const struct stg_image_plan *plan = draw->plan;
    int64_t n = draw->width + draw->height;
    int32_t *ints = stg_image_room(memory, STG_IMAGE_ROOM_TAPS, (uint64_t)n * 12);
    if (ints == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    float *floats = (float *)(void *)(ints + 2 * n);
    draw->x = (struct stg_image_taps){ints, ints + n, floats, draw->width};
    draw->y = (struct stg_image_taps){ints + draw->width, ints + n + draw->width,
                                      floats + draw->width, draw->height};
    if ((plan->stages & STG_IMAGE_RESIZE) == 0) {
        same_taps(flip_x, &draw->x);
        same_taps(draw->flip_y, &draw->y);
    } else {
        fill_taps(&plan->resize, draw->image->width, flip_x, &draw->x);
        fill_taps(&plan->resize, draw->image->height, draw->flip_y, &draw->y);
    }
    return 0;
}

#define TAKE(name, type)                                                                 \
    static void name(const void *row, int64_t channels,                                  \
                     const struct stg_image_taps *taps, float *planes, int64_t stride)   \
    {                                                                                    \
        for (int64_t c = 0; c < channels; c++, planes += stride) {                       \
            const type *from = (const type *)row + c;                                    \
            for (int64_t i = 0; i < taps->n; i++) {                                      \
                float a = (float)from[taps->low[i] * channels];                          \
                float b = (float)from[taps->high[i] * channels];                         \
                planes[i] = taps->lerp == NULL ? a : a + (b - a) * taps->lerp[i];        \
            }                                                                            \
        }                                                                                \
    }

TAKE(take_uint8, uint8_t)
TAKE(take_uint16, uint16_t)
TAKE(take_float, float)

/* Row `number` of the image, and how much may be read of it. A reader gives each once, so
 * numbers rise. */
static int find_row(struct draw *draw, int64_t number, const char **ret,
                    int64_t *ret_bytes, struct stg_err *err)
{
    const struct stg_image *image = draw->image;
    const void *row = (const char *)image->pixels + number * image->row_bytes;
    int rc = 0;
    *ret_bytes = image->end_bytes - number * image->row_bytes;
    if (image->reader != NULL)
        *ret_bytes = image->width * image->channels * stg_dtype_bytes(image->dtype) +
                     STG_IMAGE_SLACK_BYTES;
    for (; image->reader != NULL && rc == 0 && draw->n_read <= number; draw->n_read++)
        rc = stg_image_reader_row(image->reader, &row, err);
    *ret = row;
    return rc;
}

/* Row `number` along x, in rows[slot]. */
static int take_row(struct draw *draw, int64_t number, int slot, struct stg_err *err)
{
    const struct stg_image *image = draw->image;
    float *to = draw->rows[slot];
    const char *row;
    int64_t bytes;
    int rc = find_row(draw, number, &row, &bytes, err);
    if (rc < 0)
        return rc;
    draw->held[slot] = number;
    if (image->dtype == STAGER_FLOAT32)
        take_float(row, image->channels, &draw->x, to, draw->stride);
    else if (image->dtype == STAGER_UINT16)
        take_uint16(row, image->channels, &draw->x, to, draw->stride);
    else if (image->channels == 3)
        draw->kernels->take_rgb((const uint8_t *)row, bytes, &draw->x, to, draw->stride);
    else
        take_uint8(row, image->channels, &draw->x, to, draw->stride);
    return 0;
}

/* The planes of the row, where those of `other` stay, in *ret. */
static int hold(struct draw *draw, int64_t number, int64_t other, float **ret,
                struct stg_err *err)
{
    int slot = draw->held[0] == number ? 0 : 1, rc = 0;
    if (draw->held[slot] != number) {
        slot = draw->held[0] == other ? 1 : 0;
        rc = take_row(draw, number, slot, err);
    }
    *ret = draw->rows[slot];
    return rc;
}

/* Planes of the output, normalized. */
static void put_planes(const struct draw *draw, int64_t y, const float *top,
                       const float *bottom, float lerp)
{
    const struct stg_image_normalize *norm = &draw->plan->normalize;
    for (int64_t c = 0; c < draw->image->channels; c++) {
        int64_t at = (c * draw->height + y) * draw->width, plane = c * draw->stride;
        int64_t k = norm->channels > 0 ? c : 0;
        const float *under = bottom != NULL ? bottom + plane : NULL;
        if (draw->plan->dtype == STAGER_FLOAT16)
            draw->kernels->mix_normalize_half(top + plane, under, lerp, draw->width,
                                              norm->mean[k], norm->std[k],
                                              (uint16_t *)draw->out + at);
        else
            draw->kernels->mix_normalize(top + plane, under, lerp, draw->width,
                                         norm->mean[k], norm->std[k],
                                         (float *)draw->out + at);
    }
}

static void put_pixels(struct draw *draw, int64_t y, const float *top,
                       const float *bottom, float lerp)
{
    int64_t channels = draw->image->channels;
    float *mixed = draw->rows[1] + channels * draw->stride;
    for (int64_t c = 0; c < channels; c++) {
        float *to = (float *)draw->out + y * draw->width * channels + c;
        draw->kernels->mix(top + c * draw->stride, bottom + c * draw->stride, lerp,
                           draw->width, mixed);
        for (int64_t i = 0; i < draw->width; i++)
            to[i * channels] = mixed[i];
    }
}

static int draw_rows(struct draw *draw, struct stg_err *err)
{
    bool resizes = draw->y.lerp != NULL;
    /* From the first row to the last of the image, also when flipped. */
    for (int64_t i = 0; i < draw->height; i++) {
        int64_t y = draw->flip_y ? draw->height - 1 - i : i;
        float lerp = resizes ? draw->y.lerp[y] : 0, *top, *bottom = NULL;
        int rc = hold(draw, draw->y.low[y], draw->y.high[y], &top, err);
        if (rc == 0 && resizes)
            rc = hold(draw, draw->y.high[y], draw->y.low[y], &bottom, err);
        if (rc < 0)
            return rc;
        if ((draw->plan->stages & STG_IMAGE_NORMALIZE) != 0)
            put_planes(draw, y, top, bottom, lerp);
        else
            put_pixels(draw, y, top, bottom, lerp);
    }
    return 0;
}

/* The bytes of pixels as they are. */
static int copy_rows(struct draw *draw, bool flip_x, struct stg_err *err)
{
    const struct stg_image *image = draw->image;
    size_t pixel = (size_t)image->channels * stg_dtype_bytes(image->dtype);
    size_t row = (size_t)image->width * pixel;
    for (int64_t y = 0; y < image->height; y++) {
        int64_t to_y = draw->flip_y ? image->height - 1 - y : y, bytes;
        char *to = (char *)draw->out + (size_t)to_y * row;
        const char *from;
        int rc = find_row(draw, y, &from, &bytes, err);
        if (rc < 0)
            return rc;
        if (!flip_x)
            memcpy(to, from, row);
        for (size_t at = 0; flip_x && at < row; at += pixel)
            memcpy(to + row - pixel - at, from + at, pixel);
    }
    return 0;
}

/* Room for taps, and for planes of two rows and one. */
static int make_rows(struct draw *draw, bool flip_x, struct stg_image_memory *memory,
                     struct stg_err *err)
{
    int rc = make_taps(draw, flip_x, memory, err);
    if (rc < 0)
        return rc;
    draw->stride = (draw->width + 15) / 16 * 16;
    uint64_t planes = (uint64_t)(draw->stride * draw->image->channels);
    uint64_t bytes = (2 * planes + (uint64_t)draw->stride) * sizeof(float);
    draw->rows[0] = stg_image_room(memory, STG_IMAGE_ROOM_FLOATS, bytes);
    if (draw->rows[0] == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    draw->rows[1] = draw->rows[0] + planes;
    return 0;
}

int stg_image_draw(const struct stg_image_plan *plan, const struct stg_image *image,
                   bool flip_x, bool flip_y, struct stg_image_memory *memory, void *out,
                   struct stg_err *err)
{
    bool resizes = (plan->stages & STG_IMAGE_RESIZE) != 0;
    struct draw draw = {.plan = plan,
                        .image = image,
                        .kernels = stg_image_kernels(),
                        .height = resizes ? plan->resize.height : image->height,
                        .width = resizes ? plan->resize.width : image->width,
                        .held = {-1, -1},
                        .flip_y = flip_y,
                        .out = out};
    if (!resizes && (plan->stages & STG_IMAGE_NORMALIZE) == 0)
        return copy_rows(&draw, flip_x, err);
    int rc = make_rows(&draw, flip_x, memory, err);
    return rc < 0 ? rc : draw_rows(&draw, err);
}
