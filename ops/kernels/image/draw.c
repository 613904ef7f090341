/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ops/kernels/image/image.h"
#include "ops/kernels/image/kernels.h"
#include "ops/kernels/image/reader.h"
#include "ops/kernels/image/taps.h"

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

/* Without antialias it is the bilinear kernel of TensorFlow: along x first, then along y,
 * in float32. With it as many rows as a row of the result is made of are summed up first,
 * then along x. */

struct draw {
    const struct stg_image_plan *plan;
    const struct stg_image *image;
    const struct stg_image_view *view;
    const struct stg_image_kernels *kernels;
    int64_t height, width; /* of the output */
    struct stg_image_taps x, y;
    int64_t stride;
    float *rows[2]; /* planes of two rows of the image, resized along x */
    int64_t held[2];
    int64_t n_read; /* rows that the reader has given */
    void *out;

    /* with antialias */
    struct stg_image_weights wx, wy;
    const uint8_t **from; /* the rows of the image that are summed up */
    uint8_t *ring; /* the last rows of a reader, row `number` at number modulo n_taps */
    int64_t ring_bytes; /* of one */
    float *sums;        /* of all channels of those rows */
};

static void same_taps(bool flip, struct stg_image_taps *taps)
{
    for (int64_t i = 0; i < taps->n; i++)
        taps->low[i] = taps->high[i] = (int32_t)(flip ? taps->n - 1 - i : i);
    taps->lerp = NULL;
}

static int make_taps(struct draw *draw, struct stg_image_memory *memory,
                     struct stg_err *err)
{
    const struct stg_image_plan *plan = draw->plan;
    const struct stg_image_view *view = draw->view;
    int64_t n = draw->width + draw->height;
    int32_t *ints = stg_image_room(memory, STG_IMAGE_ROOM_TAPS, (uint64_t)n * 12);
    if (ints == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    float *floats = (float *)(void *)(ints + 2 * n);
    draw->x = (struct stg_image_taps){ints, ints + n, floats, draw->width};
    draw->y = (struct stg_image_taps){ints + draw->width, ints + n + draw->width,
                                      floats + draw->width, draw->height};
    if ((plan->stages & STG_IMAGE_RESIZE) == 0) {
        same_taps(view->flip_x, &draw->x);
        same_taps(view->flip_y, &draw->y);
    } else {
        stg_image_fill_taps(&plan->resize, &view->x, view->flip_x, &draw->x);
        stg_image_fill_taps(&plan->resize, &view->y, view->flip_y, &draw->y);
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
        const float *under = bottom != NULL ? bottom + c * draw->stride : NULL;
        draw->kernels->mix(top + c * draw->stride, under, lerp, draw->width, mixed);
        for (int64_t i = 0; i < draw->width; i++)
            to[i * channels] = mixed[i];
    }
}

static void put_row(struct draw *draw, int64_t y, const float *top, const float *bottom,
                    float lerp)
{
    if ((draw->plan->stages & STG_IMAGE_NORMALIZE) != 0)
        put_planes(draw, y, top, bottom, lerp);
    else
        put_pixels(draw, y, top, bottom, lerp);
}

/* The row of the output that is made of the i-th ones of the image: from the first row to
 * the last of it, also when flipped. */
static int64_t place_of(const struct draw *draw, int64_t i)
{
    return draw->view->flip_y ? draw->height - 1 - i : i;
}

static int draw_rows(struct draw *draw, struct stg_err *err)
{
    bool resizes = draw->y.lerp != NULL;
    for (int64_t i = 0; i < draw->height; i++) {
        int64_t y = place_of(draw, i);
        float lerp = resizes ? draw->y.lerp[y] : 0, *top, *bottom = NULL;
        int rc = hold(draw, draw->y.low[y], draw->y.high[y], &top, err);
        if (rc == 0 && resizes)
            rc = hold(draw, draw->y.high[y], draw->y.low[y], &bottom, err);
        if (rc < 0)
            return rc;
        put_row(draw, y, top, bottom, lerp);
    }
    return 0;
}

/* ---- antialias ---- */

/* Weights of 0 are left out: pixels of float32 may be infinite. */
#define SUM(name, type)                                                                  \
    static void name(const uint8_t *const *rows, const float *weights, int64_t n_rows,   \
                     int64_t n, float *out)                                              \
    {                                                                                    \
        memset(out, 0, (size_t)n * sizeof(*out));                                        \
        for (int64_t k = 0; k < n_rows; k++) {                                           \
            const type *row = (const void *)rows[k];                                     \
            for (int64_t i = 0; weights[k] != 0 && i < n; i++)                           \
                out[i] += (float)row[i] * weights[k];                                    \
        }                                                                                \
    }

SUM(sum_uint16, uint16_t)
SUM(sum_float, float)

static void gather(const float *row, int64_t channels,
                   const struct stg_image_weights *weights, float *planes, int64_t stride)
{
    int64_t n_taps = weights->n_taps;
    for (int64_t i = 0; i < weights->n; i++) {
        const float *from = row + weights->low[i] * channels;
        const float *weight = weights->weights + i * n_taps;
        for (int64_t c = 0; c < channels; c++) {
            float sum = 0;
            for (int64_t k = 0; k < n_taps; k++)
                sum += weight[k] != 0 ? from[k * channels + c] * weight[k] : 0;
            planes[c * stride + i] = sum;
        }
    }
}

/* The rows from `first` on that a row of the result is made of, in draw->from. */
static int find_rows(struct draw *draw, int64_t first, struct stg_err *err)
{
    const struct stg_image *image = draw->image;
    int64_t n = draw->wy.n_taps, bytes;
    const char *row;
    while (image->reader != NULL && draw->n_read < first + n) {
        int64_t number = draw->n_read;
        int rc = find_row(draw, number, &row, &bytes, err);
        if (rc < 0)
            return rc;
        memcpy(draw->ring + number % n * draw->ring_bytes, row, (size_t)draw->ring_bytes);
    }
    for (int64_t k = 0; k < n; k++) {
        draw->from[k] = (const uint8_t *)image->pixels + (first + k) * image->row_bytes;
        if (image->reader != NULL)
            draw->from[k] = draw->ring + (first + k) % n * draw->ring_bytes;
    }
    return 0;
}

static int draw_averages(struct draw *draw, struct stg_err *err)
{
    const struct stg_image *image = draw->image;
    int64_t n = image->width * image->channels, n_rows = draw->wy.n_taps;
    for (int64_t i = 0; i < draw->height; i++) {
        int64_t y = place_of(draw, i);
        const float *weights = draw->wy.weights + y * n_rows;
        int rc = find_rows(draw, draw->wy.low[y], err);
        if (rc < 0)
            return rc;
        if (image->dtype == STAGER_FLOAT32)
            sum_float(draw->from, weights, n_rows, n, draw->sums);
        else if (image->dtype == STAGER_UINT16)
            sum_uint16(draw->from, weights, n_rows, n, draw->sums);
        else
            draw->kernels->blend(draw->from, weights, n_rows, n, draw->sums);
        if (image->channels == 3 && image->dtype != STAGER_FLOAT32)
            draw->kernels->gather_rgb(draw->sums, &draw->wx, draw->rows[0], draw->stride);
        else
            gather(draw->sums, image->channels, &draw->wx, draw->rows[0], draw->stride);
        put_row(draw, y, draw->rows[0], NULL, 0);
    }
    return 0;
}

static int make_weights(struct draw *draw, struct stg_image_memory *memory,
                        struct stg_err *err)
{
    const struct stg_image_view *view = draw->view;
    struct stg_image_weights *x = &draw->wx, *y = &draw->wy;
    *x = (struct stg_image_weights){.n = draw->width};
    *y = (struct stg_image_weights){.n = draw->height};
    x->n_taps = stg_image_most_weights(&view->x);
    y->n_taps = stg_image_most_weights(&view->y);
    int64_t n = x->n + y->n, n_weights = x->n * x->n_taps + y->n * y->n_taps;
    x->low = stg_image_room(memory, STG_IMAGE_ROOM_TAPS, (uint64_t)(n + n_weights) * 4);
    if (x->low == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    y->low = x->low + x->n;
    x->weights = (float *)(void *)(x->low + n);
    y->weights = x->weights + x->n * x->n_taps;
    stg_image_fill_weights(&view->x, view->flip_x, x);
    stg_image_fill_weights(&view->y, view->flip_y, y);
    return 0;
}

/* Room for the rows that are summed up, and where they lie. */
static int make_ring(struct draw *draw, struct stg_image_memory *memory,
                     struct stg_err *err)
{
    const struct stg_image *image = draw->image;
    int64_t n_rows = draw->wy.n_taps;
    uint64_t pointers = (uint64_t)n_rows * sizeof(*draw->from);
    draw->ring_bytes = image->width * image->channels * stg_dtype_bytes(image->dtype);
    uint64_t ring = image->reader != NULL ? (uint64_t)(n_rows * draw->ring_bytes) : 0;
    draw->from = stg_image_room(memory, STG_IMAGE_ROOM_ROWS, pointers + ring);
    if (draw->from == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    draw->ring = (uint8_t *)(draw->from + n_rows);
    return 0;
}

/* ---- pixels as they are ---- */

static int copy_rows(struct draw *draw, struct stg_err *err)
{
    const struct stg_image *image = draw->image;
    size_t pixel = (size_t)image->channels * stg_dtype_bytes(image->dtype);
    size_t row = (size_t)image->width * pixel;
    for (int64_t y = 0; y < image->height; y++) {
        int64_t to_y = place_of(draw, y), bytes;
        char *to = (char *)draw->out + (size_t)to_y * row;
        const char *from;
        int rc = find_row(draw, y, &from, &bytes, err);
        if (rc < 0)
            return rc;
        if (!draw->view->flip_x)
            memcpy(to, from, row);
        for (size_t at = 0; draw->view->flip_x && at < row; at += pixel)
            memcpy(to + row - pixel - at, from + at, pixel);
    }
    return 0;
}

/* ---- all of them ---- */

/* Room for taps or weights, for planes of two rows and one, and for a row of sums. */
static int make_rows(struct draw *draw, struct stg_image_memory *memory,
                     struct stg_err *err)
{
    const struct stg_image *image = draw->image;
    bool averages = draw->plan->resize.antialias;
    int rc = averages ? make_weights(draw, memory, err) : make_taps(draw, memory, err);
    if (rc == 0 && averages)
        rc = make_ring(draw, memory, err);
    if (rc < 0)
        return rc;
    draw->stride = (draw->width + 15) / 16 * 16;
    uint64_t planes = (uint64_t)(draw->stride * image->channels);
    uint64_t sums = averages ? (uint64_t)(image->width * image->channels) + 1 : 0;
    uint64_t n = 2 * planes + (uint64_t)draw->stride + sums;
    draw->rows[0] = stg_image_room(memory, STG_IMAGE_ROOM_FLOATS, n * sizeof(float));
    if (draw->rows[0] == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    draw->rows[1] = draw->rows[0] + planes;
    draw->sums = draw->rows[0] + (n - sums);
    if (averages)
        draw->sums[sums - 1] = 0;
    return 0;
}

int stg_image_draw(const struct stg_image_plan *plan, const struct stg_image *image,
                   const struct stg_image_view *view, struct stg_image_memory *memory,
                   void *out, struct stg_err *err)
{
    struct draw draw = {.plan = plan,
                        .image = image,
                        .view = view,
                        .kernels = stg_image_kernels(),
                        .height = view->y.n,
                        .width = view->x.n,
                        .held = {-1, -1},
                        .out = out};
    if ((plan->stages & (STG_IMAGE_RESIZE | STG_IMAGE_NORMALIZE)) == 0)
        return copy_rows(&draw, err);
    int rc = make_rows(&draw, memory, err);
    if (rc < 0)
        return rc;
    return plan->resize.antialias ? draw_averages(&draw, err) : draw_rows(&draw, err);
}
