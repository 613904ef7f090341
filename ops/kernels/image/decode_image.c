/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/kernels/image/image.h"
#include "ops/kernels/image/reader.h"

#define CHANNELS                                                                         \
    {                                                                                    \
        .name = "channels", .type = STG_PARAM_INT, .max = 4, .preset = "0",              \
        .help = "of the result; 0: as many as the image has"                             \
    }
#define MAX_PIXELS                                                                       \
    {                                                                                    \
        .name = "max_pixels", .type = STG_PARAM_INT, .min = 1, .max = INT64_C(1) << 31,  \
        .preset = "67108864", .help = "a larger image is an error, and is not decoded"   \
    }
#define TRY_RECOVER                                                                      \
    {                                                                                    \
        .name = "try_recover_truncated", .type = STG_PARAM_BOOL, .preset = "false",      \
        .help = "true: what is missing of a truncated JPEG is gray"                      \
    }

static const struct stg_param jpeg_params[] = {
    CHANNELS,
    {.name = "ratio",
     .type = STG_PARAM_INT,
     .min = 1,
     .max = 8,
     .preset = "1",
     .help = "1, 2, 4 or 8: so many times smaller, by a smaller DCT"},
    {.name = "fancy_upscaling",
     .type = STG_PARAM_BOOL,
     .preset = "true",
     .help = "chroma is interpolated; false: repeated, which is faster"},
    TRY_RECOVER,
    {.name = "dct_method",
     .type = STG_PARAM_STRING,
     .preset = "INTEGER_ACCURATE",
     .help = "or INTEGER_FAST, which is less exact"},
    STG_IMAGE_PARAM_ORIENTATION,
    MAX_PIXELS,
};

static const struct stg_param png_params[] = {
    CHANNELS,
    {.name = "dtype",
     .type = STG_PARAM_DTYPE,
     .preset = "uint8",
     .help = "uint8, or uint16: samples of 16 bits as they are"},
    STG_IMAGE_PARAM_ORIENTATION,
    MAX_PIXELS,
};

static const struct stg_param image_params[] = {CHANNELS, TRY_RECOVER,
                                                STG_IMAGE_PARAM_ORIENTATION, MAX_PIXELS};

static int check_window(const struct stg_component *window, struct stg_err *err)
{
    bool good = (window->dtype == STAGER_INT32 || window->dtype == STAGER_INT64) &&
                window->ndim == 1 && (window->shape[0] < 0 || window->shape[0] == 4);
    return good ? 0
                : stg_err(err, -STAGER_INVALID_ARGUMENT,
                          "input \"%s\" is not a window: int32 or int64 [4] with y, x, "
                          "height and width",
                          window->name);
}

static int infer(struct stg_op_infer *ctx, unsigned formats, struct stg_err *err)
{
    const struct stg_component *input = &ctx->inputs[0];
    struct stg_image_options options;
    struct stg_image_plan *plan;
    struct stg_component *output;
    if (input->dtype != STAGER_STRING || input->ndim != 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "input \"%s\" is not one string; images differ in size: decode "
                       "each in a map step, or give the strings to resize or "
                       "random_resized_crop",
                       input->name);
    int rc = stg_image_read_options(ctx, formats, 0, &options, err);
    if (rc == 0)
        rc = stg_image_infer(ctx, &options, &plan, &output, err);
    if (rc < 0)
        return rc;
    plan->whole = ctx->n_inputs == 1;
    if (plan->whole)
        return 0;
    plan->stages |= STG_IMAGE_CROP;
    plan->crop.kind = STG_IMAGE_CROP_GIVEN;
    return check_window(&ctx->inputs[1], err);
}

static int infer_jpeg(struct stg_op_infer *ctx, struct stg_err *err)
{
    return infer(ctx, STG_IMAGE_JPEG, err);
}

static int infer_png(struct stg_op_infer *ctx, struct stg_err *err)
{
    return infer(ctx, STG_IMAGE_PNG, err);
}

static int infer_image(struct stg_op_infer *ctx, struct stg_err *err)
{
    return infer(ctx, STG_IMAGE_JPEG | STG_IMAGE_PNG, err);
}

const struct stg_op stg_op_decode_jpeg = {
    .name = "decode_jpeg",
    .summary = "The pixels of a JPEG file, or of a window of it; as tf.io.decode_jpeg "
               "and tf.io.decode_and_crop_jpeg.",
    STG_PARAMS(jpeg_params),
    .min_inputs = 1,
    .max_inputs = 2,
    .infer = infer_jpeg,
    .run = stg_image_run,
    .absorb = stg_image_absorb,
};

const struct stg_op stg_op_decode_png = {
    .name = "decode_png",
    .summary = "The pixels of a PNG file; as tf.io.decode_png.",
    STG_PARAMS(png_params),
    .min_inputs = 1,
    .max_inputs = 1,
    .infer = infer_png,
    .run = stg_image_run,
    .absorb = stg_image_absorb,
};

const struct stg_op stg_op_decode_image = {
    .name = "decode_image",
    .summary = "The pixels of a JPEG or PNG file, whichever it is; as "
               "tf.io.decode_image.",
    STG_PARAMS(image_params),
    .min_inputs = 1,
    .max_inputs = 1,
    .infer = infer_image,
    .run = stg_image_run,
    .absorb = stg_image_absorb,
};
