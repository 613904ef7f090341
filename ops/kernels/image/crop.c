/* SPDX-License-Identifier: Apache-2.0
 *
 * center_crop, random_crop and random_resized_crop: a part of an image, or of an encoded
 * one, of which then no more than that is decoded.
 */
#include <math.h>

#include "ops/base/random.h"
#include "ops/kernels/image/image.h"
#include "ops/kernels/image/reader.h"

#define SEED                                                                             \
    {                                                                                    \
        .name = "seed", .type = STG_PARAM_INT,                                           \
        .help = "of what is drawn; none: one made of the node's name"                    \
    }

static const struct stg_param center_params[] = {
    {.name = "size",
     .type = STG_PARAM_SHAPE,
     .help = "[height, width] of what stays, as torchvision's CenterCrop; or "
             "central_fraction"},
    {.name = "central_fraction",
     .type = STG_PARAM_FLOAT,
     .help = "of each side, above 0, up to 1"},
    STG_IMAGE_PARAMS_ENCODED,
};

static const struct stg_param random_params[] = {
    {.name = "size",
     .type = STG_PARAM_SHAPE,
     .required = true,
     .help = "[height, width] of what stays"},
    SEED,
    STG_IMAGE_PARAMS_ENCODED,
};

static const struct stg_param resized_params[] = {
    {.name = "size",
     .type = STG_PARAM_SHAPE,
     .required = true,
     .help = "[height, width] of the result"},
    {.name = "scale",
     .type = STG_PARAM_VALUES,
     .preset = "[0.08, 1.0]",
     .help = "the least and the most of the image's area"},
    {.name = "ratio",
     .type = STG_PARAM_VALUES,
     .preset = "[0.75, 1.3333333]",
     .help = "the least and the most of width over height, before the resize"},
    {.name = "dct_scaling",
     .type = STG_PARAM_BOOL,
     .preset = "false",
     .help = "of an encoded image: a JPEG is decoded 2, 4 or 8 times smaller where the "
             "crop is at least so many times the result; faster, other pixels"},
    {.name = "antialias",
     .type = STG_PARAM_BOOL,
     .preset = "false",
     .help = "a smaller result averages all pixels, as torchvision's does; false: four"},
    SEED,
    STG_IMAGE_PARAMS_ENCODED,
};

/* A plan of that kind, and its output's dimensions. */
static int infer(struct stg_op_infer *ctx, enum stg_image_crop_kind kind,
                 struct stg_image_plan **ret, struct stg_component **ret_output,
                 struct stg_err *err)
{
    struct stg_image_options options;
    int rc =
        stg_image_read_options(ctx, STG_IMAGE_JPEG | STG_IMAGE_PNG, 3, &options, err);
    if (rc == 0)
        rc = stg_image_infer(ctx, &options, ret, ret_output, err);
    if (rc < 0)
        return rc;
    (*ret)->stages |= STG_IMAGE_CROP;
    (*ret)->crop.kind = kind;
    (*ret)->crop.seed = stg_op_random_seed(ctx->node);
    return 0;
}

static void set_sides(struct stg_component *output, int64_t height, int64_t width)
{
    output->shape[output->ndim - 3] = height;
    output->shape[output->ndim - 2] = width;
}

static int infer_fraction(struct stg_op_infer *ctx, struct stg_image_plan *plan,
                          struct stg_component *output, struct stg_err *err)
{
    double fraction =
        stg_attr_float(ctx->node->attrs, ctx->node->n_attrs, "central_fraction", 0);
    if (!(fraction > 0 && fraction <= 1))
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "central_fraction is %g; it must be above 0 and at most 1",
                       fraction);
    if (plan->options != NULL && ctx->inputs[0].ndim == 1)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "parts of encoded images may differ in size: crop each in a map "
                       "step, or to a size");
    plan->crop.fraction = fraction;
    set_sides(output, -1, -1);
    return 0;
}

static int infer_center(struct stg_op_infer *ctx, struct stg_err *err)
{
    const struct stg_node *node = ctx->node;
    struct stg_image_plan *plan;
    struct stg_component *output;
    int rc = infer(ctx, STG_IMAGE_CROP_CENTER, &plan, &output, err);
    if (rc < 0)
        return rc;
    bool by_size = stg_attr_find(node->attrs, node->n_attrs, "size") != NULL;
    if (by_size ==
        (stg_attr_find(node->attrs, node->n_attrs, "central_fraction") != NULL))
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "give either size or central_fraction");
    if (!by_size)
        return infer_fraction(ctx, plan, output, err);
    rc = stg_image_size(node, "size", &plan->crop.height, &plan->crop.width, err);
    if (rc == 0)
        set_sides(output, plan->crop.height, plan->crop.width);
    return rc;
}

static int infer_random(struct stg_op_infer *ctx, struct stg_err *err)
{
    struct stg_image_plan *plan;
    struct stg_component *output;
    int rc = infer(ctx, STG_IMAGE_CROP_RANDOM, &plan, &output, err);
    if (rc == 0)
        rc =
            stg_image_size(ctx->node, "size", &plan->crop.height, &plan->crop.width, err);
    if (rc == 0)
        set_sides(output, plan->crop.height, plan->crop.width);
    return rc;
}

static int read_range(const struct stg_node *node, const char *name, double least,
                      double most, double *ret, struct stg_err *err)
{
    const double preset[2] = {least, most};
    int rc = stg_image_numbers(node, name, 2, preset, ret, err);
    if (rc < 0)
        return rc;
    if (ret[0] > 0 && ret[0] <= ret[1] && isfinite(ret[1]))
        return 0;
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "%s is [%g, %g]; write [least, most] with a least above 0", name,
                   ret[0], ret[1]);
}

static int infer_resized(struct stg_op_infer *ctx, struct stg_err *err)
{
    const struct stg_node *node = ctx->node;
    struct stg_image_plan *plan;
    struct stg_component *output;
    int rc = infer(ctx, STG_IMAGE_CROP_RANDOM_RESIZED, &plan, &output, err);
    if (rc == 0)
        rc = read_range(node, "scale", 0.08, 1.0, plan->crop.scale, err);
    if (rc == 0)
        rc = read_range(node, "ratio", 3.0 / 4.0, 4.0 / 3.0, plan->crop.ratio, err);
    if (rc < 0)
        return rc;
    plan->dct_scaling = stg_attr_bool(node->attrs, node->n_attrs, "dct_scaling", false);
    plan->resize.antialias =
        stg_attr_bool(node->attrs, node->n_attrs, "antialias", false);
    if (plan->dct_scaling && plan->options == NULL)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "dct_scaling is done by the decoder; give the op the bytes of "
                       "images, not pixels");
    return stg_image_infer_resize(ctx, plan, output, err);
}

const struct stg_op stg_op_center_crop = {
    .name = "center_crop",
    .summary = "The middle of an image; of a given size as torchvision's CenterCrop, or "
               "as tf.image.central_crop.",
    STG_PARAMS(center_params),
    .min_inputs = 1,
    .max_inputs = 1,
    .infer = infer_center,
    .run = stg_image_run,
    .absorb = stg_image_absorb,
};

const struct stg_op stg_op_random_crop = {
    .name = "random_crop",
    .summary = "A part of an image, anywhere in it; as tf.image.random_crop.",
    STG_PARAMS(random_params),
    .min_inputs = 1,
    .max_inputs = 1,
    .flags = STG_OP_EACH_BATCH,
    .infer = infer_random,
    .run = stg_image_run,
    .absorb = stg_image_absorb,
};

const struct stg_op stg_op_random_resized_crop = {
    .name = "random_resized_crop",
    .summary = "A part of an image of random area and shape, resized; as torchvision's "
               "RandomResizedCrop chooses it.",
    STG_PARAMS(resized_params),
    .min_inputs = 1,
    .max_inputs = 1,
    .flags = STG_OP_EACH_BATCH,
    .infer = infer_resized,
    .run = stg_image_run,
    .absorb = stg_image_absorb,
};
