/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "ops/kernels/image/image.h"
#include "ops/kernels/image/reader.h"

/* Images of 8192 x 8192. */
#define MAX_PIXELS (INT64_C(1) << 26)

static bool is_image(const struct stg_component *input)
{
    return (input->ndim == 3 || input->ndim == 4) && input->dtype != STAGER_STRING &&
           input->dtype != STAGER_BOOL;
}

static int check_input(const struct stg_component *input, bool encoded,
                       struct stg_err *err)
{
    char shape[128];
    if (encoded && input->dtype == STAGER_STRING && input->ndim <= 1)
        return 0;
    if (is_image(input))
        return 0;
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "input \"%s\" is %s %s, not an image: numbers of [height, width, "
                   "channels], or a batch of them%s",
                   input->name, stg_dtype_name(input->dtype),
                   stg_shape_text(input->shape, input->ndim, shape, sizeof(shape)),
                   encoded ? ", or its bytes, one string a file" : "");
}

int stg_image_infer(struct stg_op_infer *ctx, const struct stg_image_options *options,
                    struct stg_image_plan **ret, struct stg_component **ret_output,
                    struct stg_err *err)
{
    const struct stg_component *input = &ctx->inputs[0];
    int rc = check_input(input, options != NULL, err);
    if (rc < 0)
        return rc;
    struct stg_image_plan *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (plan == NULL || output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    *output = *input;
    if (input->dtype == STAGER_STRING) {
        struct stg_image_options *own = stg_bump_alloc(ctx->bump, sizeof(*own));
        if (own == NULL)
            return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
        *own = *options;
        plan->options = own;
        plan->stages = STG_IMAGE_DECODE;
        output->dtype = options->dtype;
        output->shape[output->ndim++] = -1;
        output->shape[output->ndim++] = -1;
        output->shape[output->ndim++] = options->channels > 0 ? options->channels : -1;
    }
    plan->dtype = output->dtype;
    ctx->plan = plan;
    *ret = plan;
    *ret_output = output;
    return 0;
}

int stg_image_size(const struct stg_node *node, const char *name, int64_t *ret_height,
                   int64_t *ret_width, struct stg_err *err)
{
    const struct stg_attr *attr = stg_attr_find(node->attrs, node->n_attrs, name);
    if (attr->n_values != 2)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "%s has %zu numbers, not 2: height and width", name,
                       attr->n_values);
    *ret_height = attr->values[0].i;
    *ret_width = attr->values[1].i;
    if (*ret_height >= 1 && *ret_width >= 1 && *ret_height <= STG_IMAGE_MAX_SIDE &&
        *ret_width <= STG_IMAGE_MAX_SIDE)
        return 0;
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "%s is [%" PRId64 ", %" PRId64 "]; both must be from 1 to %d", name,
                   *ret_height, *ret_width, STG_IMAGE_MAX_SIDE);
}

int stg_image_check_float(const struct stg_component *input, struct stg_err *err)
{
    if (input->dtype == STAGER_STRING || input->dtype == STAGER_UINT8 ||
        input->dtype == STAGER_UINT16 || input->dtype == STAGER_FLOAT32)
        return 0;
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "input \"%s\" is %s; cast it to float32", input->name,
                   stg_dtype_name(input->dtype));
}

int stg_image_infer_resize(struct stg_op_infer *ctx, struct stg_image_plan *plan,
                           struct stg_component *output, struct stg_err *err)
{
    int64_t *sides = &output->shape[output->ndim - 3];
    int rc = stg_image_check_float(&ctx->inputs[0], err);
    if (rc == 0)
        rc = stg_image_size(ctx->node, "size", &plan->resize.height, &plan->resize.width,
                            err);
    if (rc < 0)
        return rc;
    plan->stages |= STG_IMAGE_RESIZE;
    plan->resize.half_pixel_centers = true;
    plan->dtype = output->dtype = STAGER_FLOAT32;
    sides[0] = plan->resize.height;
    sides[1] = plan->resize.width;
    return 0;
}

int stg_image_numbers(const struct stg_node *node, const char *name, size_t n,
                      const double *otherwise, double *ret, struct stg_err *err)
{
    const struct stg_attr *attr = stg_attr_find(node->attrs, node->n_attrs, name);
    if (attr == NULL) {
        memcpy(ret, otherwise, n * sizeof(*ret));
        return 0;
    }
    bool good = attr->n_values == n;
    for (size_t i = 0; good && i < n; i++) {
        good = attr->values[i].kind == STG_VALUE_INT ||
               attr->values[i].kind == STG_VALUE_FLOAT;
        ret[i] = attr->values[i].f;
    }
    return good ? 0
                : stg_err(err, -STAGER_INVALID_ARGUMENT,
                          "%s is not a list of %zu numbers", name, n);
}

static int read_dct_method(const struct stg_node *node, bool *ret, struct stg_err *err)
{
    const char *method = stg_attr_string(node->attrs, node->n_attrs, "dct_method", "");
    *ret = strcmp(method, "INTEGER_FAST") == 0;
    if (*ret || *method == '\0' || strcmp(method, "INTEGER_ACCURATE") == 0)
        return 0;
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "dct_method is \"%s\", not INTEGER_ACCURATE or INTEGER_FAST", method);
}

int stg_image_read_options(struct stg_op_infer *ctx, unsigned formats, int channels,
                           struct stg_image_options *ret, struct stg_err *err)
{
    const struct stg_attr *attrs = ctx->node->attrs;
    size_t n = ctx->node->n_attrs;
    *ret = (struct stg_image_options){
        .formats = formats,
        .channels = (int)stg_attr_int(attrs, n, "channels", channels),
        .dtype = stg_dtype_from_name(stg_attr_string(attrs, n, "dtype", "uint8")),
        .ratio = (int)stg_attr_int(attrs, n, "ratio", 1),
        .fancy_upscaling = stg_attr_bool(attrs, n, "fancy_upscaling", true),
        .try_recover_truncated = stg_attr_bool(attrs, n, "try_recover_truncated", false),
        .apply_exif_orientation =
            stg_attr_bool(attrs, n, "apply_exif_orientation", false),
        .max_pixels = stg_attr_int(attrs, n, "max_pixels", MAX_PIXELS)};
    if (formats != STG_IMAGE_PNG && ret->channels == 4)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "channels is 4; a JPEG is decoded to 1 or 3");
    if (ret->channels == 2)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "channels is 2, not 0, 1, 3 or 4");
    if (ret->dtype != STAGER_UINT8 && ret->dtype != STAGER_UINT16)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "dtype is %s, not uint8 or uint16",
                       stg_dtype_name(ret->dtype));
    if ((ret->ratio & (ret->ratio - 1)) != 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "ratio is %d, not 1, 2, 4 or 8",
                       ret->ratio);
    return read_dct_method(ctx->node, &ret->fast_dct, err);
}
