/* SPDX-License-Identifier: Apache-2.0
 *
 * resize and resize_shorter_side, as torchvision's Resize; of an encoded image too.
 */
#include "ops/kernels/image/image.h"
#include "ops/kernels/image/reader.h"

#define ANTIALIAS                                                                        \
    {                                                                                    \
        .name = "antialias", .type = STG_PARAM_BOOL, .preset = "true",                   \
        .help = "a smaller result averages all pixels; false: four, as resize_bilinear"  \
    }

static const struct stg_param resize_params[] = {
    {.name = "size",
     .type = STG_PARAM_SHAPE,
     .required = true,
     .help = "[height, width] of the result"},
    ANTIALIAS,
    STG_IMAGE_PARAMS_ENCODED,
};

static const struct stg_param shorter_params[] = {
    {.name = "size",
     .type = STG_PARAM_INT,
     .required = true,
     .min = 1,
     .max = STG_IMAGE_MAX_SIDE,
     .help = "pixels of the shorter side of the result; the other side follows"},
    ANTIALIAS,
    STG_IMAGE_PARAMS_ENCODED,
};

static int infer(struct stg_op_infer *ctx, struct stg_image_plan **ret,
                 struct stg_component **ret_output, struct stg_err *err)
{
    const struct stg_node *node = ctx->node;
    struct stg_image_options options;
    int rc =
        stg_image_read_options(ctx, STG_IMAGE_JPEG | STG_IMAGE_PNG, 3, &options, err);
    if (rc == 0)
        rc = stg_image_infer(ctx, &options, ret, ret_output, err);
    if (rc == 0)
        (*ret)->resize.antialias =
            stg_attr_bool(node->attrs, node->n_attrs, "antialias", true);
    return rc;
}

static int infer_resize(struct stg_op_infer *ctx, struct stg_err *err)
{
    struct stg_image_plan *plan;
    struct stg_component *output;
    int rc = infer(ctx, &plan, &output, err);
    return rc < 0 ? rc : stg_image_infer_resize(ctx, plan, output, err);
}

static int infer_shorter(struct stg_op_infer *ctx, struct stg_err *err)
{
    struct stg_image_plan *plan;
    struct stg_component *output;
    int rc = infer(ctx, &plan, &output, err);
    if (rc == 0)
        rc = stg_image_check_float(&ctx->inputs[0], err);
    if (rc < 0)
        return rc;
    if (plan->options != NULL && ctx->inputs[0].ndim == 1)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "encoded images may differ in size, and so do the results: "
                       "resize each in a map step, or to a size");
    plan->stages |= STG_IMAGE_RESIZE;
    plan->resize.half_pixel_centers = true;
    plan->resize.shorter_side =
        stg_attr_int(ctx->node->attrs, ctx->node->n_attrs, "size", 0);
    plan->dtype = output->dtype = STAGER_FLOAT32;
    int64_t *sides = &output->shape[output->ndim - 3];
    if (sides[0] < 0 || sides[1] < 0) {
        sides[0] = sides[1] = -1;
        return 0;
    }
    return stg_image_resized(&plan->resize, sides[0], sides[1], &sides[0], &sides[1],
                             err);
}

const struct stg_op stg_op_resize = {
    .name = "resize",
    .summary = "An image in another size, with antialias; as torchvision's Resize and "
               "tf.image.resize.",
    STG_PARAMS(resize_params),
    .min_inputs = 1,
    .max_inputs = 1,
    .infer = infer_resize,
    .run = stg_image_run,
    .absorb = stg_image_absorb,
};

const struct stg_op stg_op_resize_shorter_side = {
    .name = "resize_shorter_side",
    .summary = "An image with a shorter side of that many pixels, its proportions kept; "
               "as torchvision's Resize of one number.",
    STG_PARAMS(shorter_params),
    .min_inputs = 1,
    .max_inputs = 1,
    .infer = infer_shorter,
    .run = stg_image_run,
    .absorb = stg_image_absorb,
};
