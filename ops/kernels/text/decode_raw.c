/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "ops/base/element.h"
#include "ops/kernels/text/text.h"

static const struct stg_param params[] = {
    {.name = "out_type",
     .type = STG_PARAM_DTYPE,
     .required = true,
     .help = "any but string, uint32 and uint64"},
    {.name = "little_endian",
     .type = STG_PARAM_BOOL,
     .preset = "true",
     .help = "the order of the bytes in the strings"},
    {.name = "fixed_length",
     .type = STG_PARAM_INT,
     .min = 1,
     .max = INT32_MAX,
     .help = "longer strings are truncated to so many bytes, shorter ones filled up with "
             "zeros"},
};

struct plan {
    int dtype;
    bool swap;
    int64_t fixed_bytes; /* 0: all strings are equally long */
};

static int infer(struct stg_op_infer *ctx, struct stg_err *err)
{
    const struct stg_component *input = &ctx->inputs[0];
    const struct stg_node *node = ctx->node;
    int rc = stg_text_check(ctx, err);
    if (rc < 0)
        return rc;
    struct plan *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (plan == NULL || output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    plan->dtype =
        stg_dtype_from_name(stg_attr_string(node->attrs, node->n_attrs, "out_type", ""));
    plan->swap = !stg_attr_bool(node->attrs, node->n_attrs, "little_endian", true);
    plan->fixed_bytes = stg_attr_int(node->attrs, node->n_attrs, "fixed_length", 0);
    if (plan->dtype == STAGER_STRING || plan->dtype == STAGER_UINT32 ||
        plan->dtype == STAGER_UINT64)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "out_type cannot be %s",
                       stg_dtype_name(plan->dtype));
    int64_t bytes = stg_dtype_bytes(plan->dtype);
    if (plan->fixed_bytes % bytes != 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "fixed_length %" PRId64 " is not a multiple of the %" PRId64
                       " bytes of %s",
                       plan->fixed_bytes, bytes, stg_dtype_name(plan->dtype));
    if (input->ndim == STG_MAX_DIMS)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "the input already has the maximum of %d dimensions",
                       STG_MAX_DIMS);
    *output = *input;
    output->dtype = plan->dtype;
    output->shape[output->ndim++] =
        plan->fixed_bytes > 0 ? plan->fixed_bytes / bytes : -1;
    ctx->plan = plan;
    return 0;
}

/* How many bytes each string has; the first says it. */
static int row_bytes(const struct plan *plan, const struct stg_tensor *input,
                     int64_t *ret, struct stg_err *err)
{
    int64_t n = stg_tensor_n(input), size = stg_dtype_bytes(plan->dtype);
    *ret = plan->fixed_bytes;
    if (plan->fixed_bytes > 0 || n == 0)
        return 0;
    *ret = input->end[0] - input->begin[0];
    for (int64_t i = 0; i < n; i++) {
        int64_t bytes = input->end[i] - input->begin[i];
        if (bytes != *ret)
            return stg_err_row(err, -STAGER_INVALID_ARGUMENT, stg_tensor_row(input, i),
                               "element %" PRId64 " has %" PRId64
                               " bytes, the first has %" PRId64,
                               i, bytes, *ret);
        if (bytes % size != 0)
            return stg_err_row(err, -STAGER_INVALID_ARGUMENT, stg_tensor_row(input, i),
                               "element %" PRId64 " has %" PRId64
                               " bytes, which is not a multiple of the %" PRId64 " of %s",
                               i, bytes, size, stg_dtype_name(plan->dtype));
    }
    return 0;
}

static void swap(int64_t size, char *data, int64_t bytes)
{
    for (char *p = data; p < data + bytes; p += size) {
        for (int64_t i = 0; i < size / 2; i++) {
            char c = p[i];
            p[i] = p[size - 1 - i];
            p[size - 1 - i] = c;
        }
    }
}

static int run(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct plan *plan = ctx->plan;
    const struct stg_tensor *input = &ctx->inputs[0];
    int64_t bytes, n = stg_tensor_n(input), size = stg_dtype_bytes(plan->dtype);
    int64_t shape[STG_MAX_DIMS];
    struct stg_tensor output;
    int rc = row_bytes(plan, input, &bytes, err);
    if (rc < 0)
        return rc;
    memcpy(shape, input->shape, sizeof(shape));
    shape[input->ndim] = bytes / size;
    rc = ctx->alloc(ctx, 0, plan->dtype, input->ndim + 1, shape, 0, &output, err);
    if (rc < 0)
        return rc;
    char *to = output.data;
    for (int64_t i = 0; i < n; i++, to += bytes) {
        int64_t here = input->end[i] - input->begin[i];
        here = here < bytes ? here : bytes;
        memcpy(to, (const char *)input->data + input->begin[i], (size_t)here);
        memset(to + here, 0, (size_t)(bytes - here));
    }
    if (plan->swap && size > 1)
        swap(size, output.data, n * bytes);
    for (int64_t i = 0; plan->dtype == STAGER_BOOL && i < n * bytes; i++)
        ((uint8_t *)output.data)[i] = ((uint8_t *)output.data)[i] != 0;
    return 0;
}

const struct stg_op stg_op_decode_raw = {
    .name = "decode_raw",
    .summary = "The bytes of strings as numbers; as tf.io.decode_raw.",
    STG_PARAMS(params),
    .min_inputs = 1,
    .max_inputs = 1,
    .infer = infer,
    .run = run,
    .rows = stg_rows_first,
};
