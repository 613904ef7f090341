/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/kernels/image/image.h"

static const struct stg_param params[] = {
    {.name = "size",
     .type = STG_PARAM_SHAPE,
     .required = true,
     .help = "[height, width] of the result"},
    {.name = "half_pixel_centers",
     .type = STG_PARAM_BOOL,
     .preset = "true",
     .help = "as tf.image.resize; false: as tf.compat.v1.image.resize_bilinear"},
    {.name = "align_corners",
     .type = STG_PARAM_BOOL,
     .preset = "false",
     .help = "the corners stay where they are; with half_pixel_centers false"},
};

static int infer(struct stg_op_infer *ctx, struct stg_err *err)
{
    const struct stg_node *node = ctx->node;
    struct stg_image_plan *plan;
    struct stg_component *output;
    int rc = stg_image_infer(ctx, NULL, &plan, &output, err);
    if (rc == 0)
        rc = stg_image_infer_resize(ctx, plan, output, err);
    if (rc < 0)
        return rc;
    plan->resize.half_pixel_centers =
        stg_attr_bool(node->attrs, node->n_attrs, "half_pixel_centers", true);
    plan->resize.align_corners =
        stg_attr_bool(node->attrs, node->n_attrs, "align_corners", false);
    if (plan->resize.half_pixel_centers && plan->resize.align_corners)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "align_corners needs half_pixel_centers: false");
    return 0;
}

const struct stg_op stg_op_resize_bilinear = {
    .name = "resize_bilinear",
    .summary = "An image in another size, interpolated between pixels; as "
               "tf.image.resize, without antialias.",
    STG_PARAMS(params),
    .min_inputs = 1,
    .max_inputs = 1,
    .infer = infer,
    .run = stg_image_run,
    .absorb = stg_image_absorb,
};
