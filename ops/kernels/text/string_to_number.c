/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "ops/base/element.h"
#include "ops/base/number.h"
#include "ops/kernels/text/text.h"

static const struct stg_param params[] = {
    {.name = "out_type",
     .type = STG_PARAM_DTYPE,
     .preset = "float32",
     .help = "float32, float64, int32, int64, uint32 or uint64"},
};

/* All strings of the input; gives the number of the first that is none, or -1. */
typedef int64_t (*parse_all)(const struct stg_tensor *input, int64_t n, void *out);

#define PARSE(name, type)                                                                \
    static int64_t parse_##name(const struct stg_tensor *input, int64_t n, void *out)    \
    {                                                                                    \
        const char *data = input->data;                                                  \
        for (int64_t i = 0; i < n; i++) {                                                \
            size_t bytes = (size_t)(input->end[i] - input->begin[i]);                    \
            if (!stg_parse_##name(data + input->begin[i], bytes, (type *)out + i))       \
                return i;                                                                \
        }                                                                                \
        return -1;                                                                       \
    }

PARSE(float32, float)
PARSE(float64, double)
PARSE(int32, int32_t)
PARSE(int64, int64_t)
PARSE(uint32, uint32_t)
PARSE(uint64, uint64_t)

struct plan {
    int dtype;
    parse_all parse;
};

static parse_all parser_of(int dtype)
{
    switch (dtype) {
    case STAGER_FLOAT32: return parse_float32;
    case STAGER_FLOAT64: return parse_float64;
    case STAGER_INT32: return parse_int32;
    case STAGER_INT64: return parse_int64;
    case STAGER_UINT32: return parse_uint32;
    case STAGER_UINT64: return parse_uint64;
    default: return NULL;
    }
}

static int infer(struct stg_op_infer *ctx, struct stg_err *err)
{
    int rc = stg_text_check(ctx, err);
    if (rc < 0)
        return rc;
    struct plan *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (plan == NULL || output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    plan->dtype = stg_dtype_from_name(
        stg_attr_string(ctx->node->attrs, ctx->node->n_attrs, "out_type", "float32"));
    plan->parse = parser_of(plan->dtype);
    if (plan->parse == NULL)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "out_type is %s; it must be float32, float64, int32, int64, "
                       "uint32 or uint64",
                       stg_dtype_name(plan->dtype));
    *output = ctx->inputs[0];
    output->dtype = plan->dtype;
    ctx->plan = plan;
    return 0;
}

static int run(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct plan *plan = ctx->plan;
    const struct stg_tensor *input = &ctx->inputs[0];
    struct stg_tensor output;
    int rc = ctx->alloc(ctx, 0, plan->dtype, input->ndim, input->shape, 0, &output, err);
    if (rc < 0)
        return rc;
    int64_t bad = plan->parse(input, stg_tensor_n(input), output.data);
    if (bad < 0)
        return 0;
    char text[STG_QUOTE_BYTES];
    return stg_err_row(err, -STAGER_INVALID_ARGUMENT, stg_tensor_row(input, bad),
                       "element %" PRId64 ", %s, is not a valid %s", bad,
                       stg_quote((const char *)input->data + input->begin[bad],
                                 (size_t)(input->end[bad] - input->begin[bad]), text),
                       stg_dtype_name(plan->dtype));
}

const struct stg_op stg_op_string_to_number = {
    .name = "string_to_number",
    .summary = "Text to numbers; as tf.strings.to_number.",
    STG_PARAMS(params),
    .min_inputs = 1,
    .max_inputs = 1,
    .flags = STG_OP_ROW_WISE | STG_OP_BY_STRING,
    .infer = infer,
    .run = run,
    .rows = stg_rows_first,
};
