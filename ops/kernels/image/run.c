/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "ops/base/random.h"
#include "ops/kernels/image/image.h"
#include "ops/kernels/image/reader.h"

struct work {
    struct stg_op_run *ctx;
    const struct stg_image_plan *plan;
    struct stg_image_memory memory;
    int64_t n_images;
    bool is_batch;
    struct stg_tensor output; /* once the first image is known */
    uint64_t image_bytes;     /* of the output */
};

static bool has(const struct work *work, unsigned stages)
{
    return (work->plan->stages & stages) != 0;
}

/* Makes room for all images, which become as large as this. */
static int make_output(struct work *work, int64_t height, int64_t width, int64_t channels,
                       struct stg_err *err)
{
    const struct stg_image_plan *plan = work->plan;
    int64_t shape[4] = {work->n_images};
    if (work->output.dtype != STAGER_DT_INVALID)
        return 0;
    int64_t hwc[3] = {height, width, channels}, chw[3] = {channels, height, width};
    memcpy(shape + 1, has(work, STG_IMAGE_NORMALIZE) ? chw : hwc, sizeof(hwc));
    work->image_bytes =
        (uint64_t)(height * width * channels) * stg_dtype_bytes(plan->dtype);
    return work->ctx->alloc(work->ctx, 0, plan->dtype, work->is_batch ? 4 : 3,
                            work->is_batch ? shape : shape + 1, 0, &work->output, err);
}

static char *output_of(const struct work *work, int64_t row)
{
    return (char *)work->output.data + (uint64_t)row * work->image_bytes;
}

static int check_channels(const struct work *work, int64_t channels, struct stg_err *err)
{
    const struct stg_image_plan *plan = work->plan;
    if (has(work, STG_IMAGE_NORMALIZE) && plan->normalize.channels > 0 &&
        channels != plan->normalize.channels)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "the image has %" PRId64 " channels, but mean and std have %d",
                       channels, plan->normalize.channels);
    return 0;
}

/* What becomes of the window of an image: how large it is resized, which part of that is
 * wanted. All of the window is there. */
static int make_view(const struct work *work, int64_t row,
                     const struct stg_image_window *window, struct stg_image_view *ret,
                     struct stg_err *err)
{
    const struct stg_image_plan *plan = work->plan;
    int64_t height = window->height, width = window->width;
    struct stg_image_window part;
    int rc = 0;
    if (has(work, STG_IMAGE_RESIZE))
        rc = stg_image_resized(&plan->resize, height, width, &height, &width, err);
    part = (struct stg_image_window){.height = height, .width = width};
    if (rc == 0 && has(work, STG_IMAGE_PART))
        rc = stg_image_window(&plan->part, work->ctx, (uint64_t)row, height, width, &part,
                              err);
    if (rc < 0)
        return rc;
    *ret = (struct stg_image_view){
        .y = {window->height, height, part.y, part.height, 0, window->height},
        .x = {window->width, width, part.x, part.width, 0, window->width}};
    return 0;
}

static void toss(const struct work *work, int64_t row, struct stg_image_view *view)
{
    const struct stg_image_flip *flip = &work->plan->flip;
    struct stg_op_random random;
    if (!has(work, STG_IMAGE_FLIP))
        return;
    stg_op_random_init(&random, &work->ctx->key, flip->seed, (uint64_t)row);
    uint64_t side = stg_op_random_next(&random) >> 62;
    view->flip_x = flip->left_right && (side & 1) != 0;
    view->flip_y = flip->up_down && (side & 2) != 0;
}

static int draw(struct work *work, int64_t row, const struct stg_image *image,
                struct stg_image_view *view, struct stg_err *err)
{
    int rc = check_channels(work, image->channels, err);
    if (rc == 0)
        rc = make_output(work, view->y.n, view->x.n, image->channels, err);
    if (rc < 0)
        return rc;
    toss(work, row, view);
    return stg_image_draw(work->plan, image, view, &work->memory, output_of(work, row),
                          err);
}

/* Leaves out of the window what no pixel that is wanted is made of. */
static void narrow(const struct work *work, struct stg_image_window *window,
                   struct stg_image_view *view)
{
    const struct stg_image_plan *plan = work->plan;
    if (!has(work, STG_IMAGE_PART) || plan->whole)
        return;
    stg_image_narrow(&plan->resize, &view->y);
    stg_image_narrow(&plan->resize, &view->x);
    window->y += view->y.base;
    window->x += view->x.base;
    window->height = view->y.have;
    window->width = view->x.have;
}

/* ---- pixels ---- */

static int run_pixels(struct work *work, int64_t row, struct stg_err *err)
{
    const struct stg_tensor *input = &work->ctx->inputs[0];
    const int64_t *shape = input->shape + work->is_batch;
    int64_t pixel = shape[2] * stg_dtype_bytes(input->dtype), bytes;
    struct stg_image_window window = {.height = shape[0], .width = shape[1]};
    struct stg_image image = {
        .dtype = input->dtype, .channels = shape[2], .row_bytes = shape[1] * pixel};
    struct stg_image_view view;
    int rc = 0;
    if (has(work, STG_IMAGE_CROP))
        rc = stg_image_window(&work->plan->crop, work->ctx, (uint64_t)row, shape[0],
                              shape[1], &window, err);
    if (rc == 0)
        rc = make_view(work, row, &window, &view, err);
    if (rc < 0)
        return rc;
    narrow(work, &window, &view);
    bytes = window.y * image.row_bytes + window.x * pixel;
    image.height = window.height;
    image.width = window.width;
    image.pixels = (const char *)input->data + row * shape[0] * image.row_bytes + bytes;
    image.end_bytes = shape[0] * image.row_bytes - bytes;
    return draw(work, row, &image, &view, err);
}

/* ---- encoded images ---- */

/* How many times smaller the decoder may make it. */
static int ratio_of(const struct stg_image_plan *plan,
                    const struct stg_image_window *window)
{
    int ratio = 8;
    while (ratio > 1 && (window->height < ratio * plan->resize.height ||
                         window->width < ratio * plan->resize.width))
        ratio /= 2;
    return ratio;
}

static void shrink(struct stg_image_reader *reader, int ratio,
                   struct stg_image_window *window)
{
    int64_t bottom = (window->y + window->height + ratio - 1) / ratio;
    int64_t right = (window->x + window->width + ratio - 1) / ratio;
    int64_t height = reader->height;
    if (ratio == 1)
        return;
    stg_image_reader_scale(reader, ratio);
    if (reader->height == height)
        return;
    window->y /= ratio;
    window->x /= ratio;
    window->height = bottom - window->y;
    window->width = right - window->x;
}

static int find_window(struct work *work, struct stg_image_reader *reader, int64_t row,
                       struct stg_image_window *ret, struct stg_err *err)
{
    const struct stg_image_plan *plan = work->plan;
    *ret = (struct stg_image_window){0};
    stg_image_turned_size(reader, &ret->height, &ret->width);
    if (!has(work, STG_IMAGE_CROP))
        return 0;
    int rc = stg_image_window(&plan->crop, work->ctx, (uint64_t)row, ret->height,
                              ret->width, ret, err);
    if (rc == 0 && plan->dct_scaling)
        shrink(reader, ratio_of(plan, ret), ret);
    return rc;
}

static int read_and_draw(struct work *work, struct stg_image_reader *reader, int64_t row,
                         const struct stg_image_window *window,
                         struct stg_image_view *view, struct stg_err *err)
{
    struct stg_image image = {.dtype = reader->options->dtype,
                              .height = window->height,
                              .width = window->width,
                              .channels = reader->channels,
                              .reader = reader};
    int rc;
    if (reader->orientation != 1) {
        rc = stg_image_turned_read(reader, window, &image, err);
        return rc < 0 ? rc : draw(work, row, &image, view, err);
    }
    rc = stg_image_reader_start(reader, window, err);
    if (rc == 0)
        rc = draw(work, row, &image, view, err);
    return rc < 0 ? rc : stg_image_reader_end(reader, err);
}

static int run_encoded(struct work *work, int64_t row, struct stg_err *err)
{
    const struct stg_tensor *input = &work->ctx->inputs[0];
    struct stg_image_reader reader;
    struct stg_image_window window;
    struct stg_image_view view;
    int rc =
        stg_image_reader_open(&reader, (const uint8_t *)input->data + input->begin[row],
                              (size_t)(input->end[row] - input->begin[row]),
                              work->plan->options, &work->memory, err);
    if (rc == 0)
        rc = find_window(work, &reader, row, &window, err);
    if (rc == 0)
        rc = make_view(work, row, &window, &view, err);
    if (rc == 0) {
        narrow(work, &window, &view);
        rc = read_and_draw(work, &reader, row, &window, &view, err);
    }
    stg_image_reader_close(&reader);
    return rc;
}

/* ---- the op ---- */

/* There is no image that could say how large it is. */
static int run_empty(struct work *work, struct stg_err *err)
{
    const struct stg_image_plan *plan = work->plan;
    const int64_t *shape = work->ctx->inputs[0].shape + 1;
    bool encoded = plan->options != NULL, resizes = has(work, STG_IMAGE_RESIZE);
    struct stg_image_window window = {.height = plan->crop.height,
                                      .width = plan->crop.width};
    int rc = 0;
    if (!encoded && window.height == 0) {
        window.height = shape[0];
        window.width = shape[1];
        if (has(work, STG_IMAGE_CROP) && !resizes)
            rc = stg_image_window(&plan->crop, work->ctx, 0, shape[0], shape[1], &window,
                                  err);
    }
    if (rc == 0 && resizes && plan->resize.shorter_side == 0) {
        window.height = plan->resize.height;
        window.width = plan->resize.width;
    } else if (rc == 0 && resizes) {
        rc = stg_image_resized(&plan->resize, window.height, window.width, &window.height,
                               &window.width, err);
    }
    if (rc == 0 && has(work, STG_IMAGE_PART))
        rc = stg_image_window(&plan->part, work->ctx, 0, window.height, window.width,
                              &window, err);
    return rc < 0 ? rc
                  : make_output(work, window.height, window.width,
                                encoded ? plan->options->channels : shape[2], err);
}

int stg_image_run(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct stg_tensor *input = &ctx->inputs[0];
    bool encoded = input->dtype == STAGER_STRING;
    struct work work = {.ctx = ctx, .plan = ctx->plan, .memory = {.bump = ctx->scratch}};
    work.is_batch = input->ndim == (encoded ? 1 : 4);
    work.n_images = work.is_batch ? input->shape[0] : 1;
    if (work.n_images == 0)
        return run_empty(&work, err);
    for (int64_t row = 0; row < work.n_images; row++) {
        int rc = encoded ? run_encoded(&work, row, err) : run_pixels(&work, row, err);
        if (rc < 0 && err != NULL)
            err->row = work.is_batch ? row : -1;
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- absorbed nodes ---- */

/* A crop of what this plan resizes. */
static bool is_part(const struct stg_image_plan *plan,
                    const struct stg_image_plan *reader)
{
    unsigned first = reader->stages & -reader->stages;
    return first == STG_IMAGE_CROP && (reader->stages & STG_IMAGE_RESIZE) == 0 &&
           plan->stages >= STG_IMAGE_RESIZE && plan->stages < STG_IMAGE_PART;
}

static void take(struct stg_image_plan *plan, const struct stg_image_plan *reader)
{
    unsigned stages = reader->stages;
    if (is_part(plan, reader)) {
        stages ^= STG_IMAGE_CROP | STG_IMAGE_PART;
        plan->part = reader->crop;
    }
    if ((reader->stages & STG_IMAGE_RESIZE) != 0)
        plan->resize = reader->resize;
    if ((reader->stages & STG_IMAGE_PART) != 0)
        plan->part = reader->part;
    if ((reader->stages & STG_IMAGE_FLIP) != 0)
        plan->flip = reader->flip;
    if ((reader->stages & STG_IMAGE_NORMALIZE) != 0)
        plan->normalize = reader->normalize;
    plan->stages |= stages;
    plan->dtype = reader->dtype;
}

const void *stg_image_absorb(const void *plan, struct stg_absorb *readers, size_t n,
                             struct stg_bump *bump)
{
    struct stg_image_plan *ret = stg_bump_alloc(bump, sizeof(*ret));
    if (ret == NULL)
        return NULL;
    *ret = *(const struct stg_image_plan *)plan;
    for (size_t i = 0; i < n; i++) {
        if (readers[i].op->absorb != stg_image_absorb)
            continue;
        const struct stg_image_plan *reader = readers[i].plan;
        unsigned first = reader->stages & -reader->stages;
        /* A whole image that is damaged behind the window is an error. */
        bool later = first > ret->stages && first != STG_IMAGE_CROP;
        if (!later && !is_part(ret, reader))
            continue;
        take(ret, reader);
        readers[i].taken = true;
    }
    return ret;
}
