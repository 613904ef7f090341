/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ops/kernels/image/image.h"

static const struct stg_param params[] = {
    {.name = "mean",
     .type = STG_PARAM_VALUES,
     .required = true,
     .help = "a number, or one for each of up to 4 channels, in the image's own units"},
    {.name = "std",
     .type = STG_PARAM_VALUES,
     .required = true,
     .help = "likewise, not 0"},
    {.name = "dtype",
     .type = STG_PARAM_DTYPE,
     .preset = "float32",
     .help = "of the result: float32 or float16"},
};

/* One number, or one a channel. */
static int read_numbers(const struct stg_node *node, const char *name, int *ret_n,
                        float *ret, struct stg_err *err)
{
    const struct stg_attr *attr = stg_attr_find(node->attrs, node->n_attrs, name);
    double numbers[STG_IMAGE_MAX_CHANNELS];
    if (attr->n_values < 1 || attr->n_values > STG_IMAGE_MAX_CHANNELS)
        return stg_err(
            err, -STAGER_INVALID_ARGUMENT,
            "%s has %zu numbers; write one, or one for each of up to %d channels", name,
            attr->n_values, STG_IMAGE_MAX_CHANNELS);
    int rc = stg_image_numbers(node, name, attr->n_values, NULL, numbers, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < attr->n_values; i++)
        ret[i] = (float)numbers[i];
    for (size_t i = attr->n_values; i < STG_IMAGE_MAX_CHANNELS; i++)
        ret[i] = ret[0];
    *ret_n = (int)attr->n_values;
    return 0;
}

static int read_moments(const struct stg_node *node, struct stg_image_normalize *ret,
                        struct stg_err *err)
{
    int n_mean = 0, n_std = 0;
    int rc = read_numbers(node, "mean", &n_mean, ret->mean, err);
    if (rc == 0)
        rc = read_numbers(node, "std", &n_std, ret->std, err);
    if (rc < 0)
        return rc;
    if (n_mean > 1 && n_std > 1 && n_mean != n_std)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "mean has %d numbers, std %d",
                       n_mean, n_std);
    for (int i = 0; i < n_std; i++) {
        if (ret->std[i] == 0)
            return stg_err(err, -STAGER_INVALID_ARGUMENT, "std contains a 0");
    }
    ret->channels = n_mean > n_std ? n_mean : n_std;
    ret->channels = ret->channels > 1 ? ret->channels : 0;
    return 0;
}

static int infer(struct stg_op_infer *ctx, struct stg_err *err)
{
    const struct stg_node *node = ctx->node;
    struct stg_image_plan *plan;
    struct stg_component *output;
    int rc = stg_image_infer(ctx, NULL, &plan, &output, err);
    if (rc == 0)
        rc = stg_image_check_float(&ctx->inputs[0], err);
    if (rc == 0)
        rc = read_moments(node, &plan->normalize, err);
    if (rc < 0)
        return rc;
    int64_t *side = &output->shape[output->ndim - 3];
    int64_t channels = side[2], known = plan->normalize.channels;
    if (known > 0 && channels >= 0 && channels != known)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "the image has %lld channels, but mean and std have %lld",
                       (long long)channels, (long long)known);
    side[2] = side[1];
    side[1] = side[0];
    side[0] = known > 0 ? known : channels;
    plan->stages |= STG_IMAGE_NORMALIZE;
    plan->dtype = stg_dtype_from_name(
        stg_attr_string(node->attrs, node->n_attrs, "dtype", "float32"));
    output->dtype = plan->dtype;
    if (plan->dtype != STAGER_FLOAT32 && plan->dtype != STAGER_FLOAT16)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "dtype is %s, not float32 or float16",
                       stg_dtype_name(plan->dtype));
    return 0;
}

/* ---- on a device ---- */

/* Not what it took over. */
static bool launches(const void *plan, const struct stg_component *inputs,
                     size_t n_inputs, uint64_t on_host)
{
    const struct stg_image_plan *image = plan;
    return image->stages == STG_IMAGE_NORMALIZE &&
           (inputs[0].dtype == STAGER_UINT8 || inputs[0].dtype == STAGER_FLOAT32);
}

static int launch(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct stg_image_plan *plan = ctx->plan;
    const struct stg_tensor *input = &ctx->inputs[0];
    int64_t shape[STG_MAX_DIMS];
    memcpy(shape, input->shape, sizeof(shape));
    int64_t *side = &shape[input->ndim - 3], channels = side[2];
    struct stg_kernel_normalize how = {
        .n = input->ndim == 4 ? (size_t)shape[0] : 1,
        .height = (size_t)side[0],
        .width = (size_t)side[1],
        .channels = (size_t)channels,
        .x_dtype = input->dtype,
        .y_dtype = plan->dtype,
    };
    memcpy(how.mean, plan->normalize.mean, sizeof(how.mean));
    memcpy(how.std, plan->normalize.std, sizeof(how.std));
    if (plan->normalize.channels > 0 && plan->normalize.channels != channels)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "the image has %lld channels, but mean and std have %d",
                       (long long)channels, plan->normalize.channels);
    side[2] = side[1];
    side[1] = side[0];
    side[0] = channels;
    struct stg_tensor output;
    int rc = ctx->alloc(ctx, 0, plan->dtype, input->ndim, shape, 0, &output, err);
    return rc < 0 ? rc
                  : ctx->device->kernels->normalize_image(ctx->device->stream, &how,
                                                          output.data, input->data, err);
}

static int run(struct stg_op_run *ctx, struct stg_err *err)
{
    return ctx->device != NULL ? launch(ctx, err) : stg_image_run(ctx, err);
}

const struct stg_op stg_op_normalize_image = {
    .name = "normalize_image",
    .summary = "(x - mean) / std in each channel, and the channels first; as "
               "torchvision's Normalize.",
    STG_PARAMS(params),
    .min_inputs = 1,
    .max_inputs = 1,
    .infer = infer,
    .run = run,
    .absorb = stg_image_absorb,
    .launches = launches,
};
