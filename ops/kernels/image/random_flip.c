/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/base/random.h"
#include "ops/kernels/image/image.h"

static const struct stg_param params[] = {
    {.name = "left_right",
     .type = STG_PARAM_BOOL,
     .preset = "true",
     .help = "every other image is mirrored"},
    {.name = "up_down",
     .type = STG_PARAM_BOOL,
     .preset = "false",
     .help = "every other image is put upside down"},
    {.name = "seed",
     .type = STG_PARAM_INT,
     .help = "of what is drawn; none: one made of the node's name"},
};

static int infer(struct stg_op_infer *ctx, struct stg_err *err)
{
    const struct stg_node *node = ctx->node;
    struct stg_image_plan *plan;
    struct stg_component *output;
    int rc = stg_image_infer(ctx, NULL, &plan, &output, err);
    if (rc < 0)
        return rc;
    plan->stages |= STG_IMAGE_FLIP;
    plan->flip = (struct stg_image_flip){
        .left_right = stg_attr_bool(node->attrs, node->n_attrs, "left_right", true),
        .up_down = stg_attr_bool(node->attrs, node->n_attrs, "up_down", false),
        .seed = stg_op_random_seed(node)};
    return 0;
}

const struct stg_op stg_op_random_flip = {
    .name = "random_flip",
    .summary = "Every other image mirrored; as tf.image.random_flip_left_right and "
               "random_flip_up_down.",
    STG_PARAMS(params),
    .min_inputs = 1,
    .max_inputs = 1,
    .flags = STG_OP_EACH_BATCH,
    .infer = infer,
    .run = stg_image_run,
    .absorb = stg_image_absorb,
};
