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

/* Makes room for all images, which are of this size once they are cropped. */
static int make_output(struct work *work, int64_t height, int64_t width, int64_t channels,
                       struct stg_err *err)
{
    const struct stg_image_plan *plan = work->plan;
    int64_t shape[4] = {work->n_images};
    if (work->output.dtype != STAGER_DT_INVALID)
        return 0;
    if (has(work, STG_IMAGE_RESIZE)) {
        height = plan->resize.height;
        width = plan->resize.width;
    }
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
                       "the image has %" PRId64 " channels, and mean and std have %d",
                       channels, plan->normalize.channels);
    return 0;
}

static int draw(struct work *work, int64_t row, const struct stg_image *image,
                struct stg_err *err)
{
    const struct stg_image_flip *flip = &work->plan->flip;
    struct stg_op_random random;
    uint64_t toss = 0;
    int rc = check_channels(work, image->channels, err);
    if (rc == 0 && has(work, STG_IMAGE_RESIZE) && (image->height < 1 || image->width < 1))
        rc = stg_err(err, -STAGER_INVALID_ARGUMENT, "the image has no pixels");
    if (rc == 0)
        rc = make_output(work, image->height, image->width, image->channels, err);
    if (rc < 0)
        return rc;
    if (has(work, STG_IMAGE_FLIP)) {
        stg_op_random_init(&random, &work->ctx->key, flip->seed, (uint64_t)row);
        toss = stg_op_random_next(&random) >> 62;
    }
    return stg_image_draw(work->plan, image, flip->left_right && (toss & 1) != 0,
                          flip->up_down && (toss & 2) != 0, &work->memory,
                          output_of(work, row), err);
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
    if (has(work, STG_IMAGE_CROP)) {
        int rc = stg_image_window(&work->plan->crop, work->ctx, (uint64_t)row, shape[0],
                                  shape[1], &window, err);
        if (rc < 0)
            return rc;
    }
    bytes = window.y * image.row_bytes + window.x * pixel;
    image.height = window.height;
    image.width = window.width;
    image.pixels = (const char *)input->data + row * shape[0] * image.row_bytes + bytes;
    image.end_bytes = shape[0] * image.row_bytes - bytes;
    return draw(work, row, &image, err);
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
    *ret = (struct stg_image_window){.height = reader->height, .width = reader->width};
    if (!has(work, STG_IMAGE_CROP))
        return 0;
    int rc = stg_image_window(&plan->crop, work->ctx, (uint64_t)row, reader->height,
                              reader->width, ret, err);
    if (rc == 0 && plan->dct_scaling)
        shrink(reader, ratio_of(plan, ret), ret);
    return rc;
}

static int read_and_draw(struct work *work, struct stg_image_reader *reader, int64_t row,
                         const struct stg_image_window *window, struct stg_err *err)
{
    struct stg_image image = {.dtype = reader->options->dtype,
                              .height = window->height,
                              .width = window->width,
                              .channels = reader->channels,
                              .reader = reader};
    int rc = stg_image_reader_start(reader, window, err);
    if (rc == 0)
        rc = draw(work, row, &image, err);
    return rc < 0 ? rc : stg_image_reader_end(reader, err);
}

static int run_encoded(struct work *work, int64_t row, struct stg_err *err)
{
    const struct stg_tensor *input = &work->ctx->inputs[0];
    struct stg_image_reader reader;
    struct stg_image_window window;
    int rc =
        stg_image_reader_open(&reader, (const uint8_t *)input->data + input->begin[row],
                              (size_t)(input->end[row] - input->begin[row]),
                              work->plan->options, &work->memory, err);
    if (rc == 0)
        rc = find_window(work, &reader, row, &window, err);
    if (rc == 0)
        rc = read_and_draw(work, &reader, row, &window, err);
    stg_image_reader_close(&reader);
    return rc;
}

/* ---- the op ---- */

/* There is no image that could say how large it is. */
static int run_empty(struct work *work, struct stg_err *err)
{
    const struct stg_image_plan *plan = work->plan;
    const int64_t *shape = work->ctx->inputs[0].shape + 1;
    bool encoded = plan->options != NULL;
    struct stg_image_window window = {.height = plan->crop.height,
                                      .width = plan->crop.width};
    if (!encoded && window.height == 0) {
        window.height = shape[0];
        window.width = shape[1];
        if (has(work, STG_IMAGE_CROP) && !has(work, STG_IMAGE_RESIZE)) {
            int rc = stg_image_window(&plan->crop, work->ctx, 0, shape[0], shape[1],
                                      &window, err);
            if (rc < 0)
                return rc;
        }
    }
    return make_output(work, window.height, window.width,
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

static void take(struct stg_image_plan *plan, const struct stg_image_plan *reader)
{
    if ((reader->stages & STG_IMAGE_RESIZE) != 0)
        plan->resize = reader->resize;
    if ((reader->stages & STG_IMAGE_FLIP) != 0)
        plan->flip = reader->flip;
    if ((reader->stages & STG_IMAGE_NORMALIZE) != 0)
        plan->normalize = reader->normalize;
    plan->stages |= reader->stages;
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
        const struct stg_image_plan *reader = readers[i].plan;
        if (readers[i].op->absorb != stg_image_absorb)
            continue;
        unsigned first = reader->stages & -reader->stages;
        /* A whole image that is damaged behind the window is an error. */
        if (first <= ret->stages || first == STG_IMAGE_CROP)
            continue;
        take(ret, reader);
        readers[i].taken = true;
    }
    return ret;
}
