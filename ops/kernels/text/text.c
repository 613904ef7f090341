/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ops/base/op.h"
#include "ops/kernels/text/text.h"

int stg_text_check(const struct stg_op_infer *ctx, struct stg_err *err)
{
    if (ctx->inputs[0].dtype == STAGER_STRING)
        return 0;
    return stg_err(err, -STAGER_INVALID_ARGUMENT, "input \"%s\" is %s; %s takes strings",
                   ctx->inputs[0].name, stg_dtype_name(ctx->inputs[0].dtype),
                   ctx->node->op);
}

uint64_t stg_text_bytes(const struct stg_tensor *input)
{
    int64_t n = stg_tensor_n(input);
    if (n > 0 && input->end == input->begin + 1)
        return (uint64_t)(input->end[n - 1] - input->begin[0]);
    uint64_t bytes = 0;
    for (int64_t i = 0; i < n; i++)
        bytes += (uint64_t)(input->end[i] - input->begin[i]);
    return bytes;
}

/* ---- string -> string ---- */

static int infer_same(struct stg_op_infer *ctx, struct stg_err *err)
{
    int rc = stg_text_check(ctx, err);
    if (rc < 0)
        return rc;
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    *output = ctx->inputs[0];
    return 0;
}

static int alloc_same(struct stg_op_run *ctx, struct stg_tensor *ret, struct stg_err *err)
{
    const struct stg_tensor *input = &ctx->inputs[0];
    return ctx->alloc(ctx, 0, STAGER_STRING, input->ndim, input->shape,
                      stg_text_bytes(input), ret, err);
}

static int run_strip(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct stg_tensor *input = &ctx->inputs[0];
    struct stg_tensor output;
    int rc = alloc_same(ctx, &output, err);
    if (rc < 0)
        return rc;
    int64_t n = stg_tensor_n(input), *end = (int64_t *)(uintptr_t)output.end;
    char *to = output.data;
    for (int64_t i = 0; i < n; i++) {
        const char *s = (const char *)input->data + input->begin[i];
        const char *stop = (const char *)input->data + input->end[i];
        while (s < stop && stg_text_is_space(*s))
            s++;
        while (s < stop && stg_text_is_space(stop[-1]))
            stop--;
        memcpy(to, s, (size_t)(stop - s));
        to += stop - s;
        end[i] = to - (char *)output.data;
    }
    return 0;
}

/* A letter in [first, first + 26) changes case; all other bytes stay, above 127 too. */
static int run_case(struct stg_op_run *ctx, char first, struct stg_err *err)
{
    const struct stg_tensor *input = &ctx->inputs[0];
    struct stg_tensor output;
    int rc = alloc_same(ctx, &output, err);
    if (rc < 0)
        return rc;
    int64_t n = stg_tensor_n(input), *end = (int64_t *)(uintptr_t)output.end, at = 0;
    uint8_t *to = output.data;
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *s = (const uint8_t *)input->data + input->begin[i];
        int64_t bytes = input->end[i] - input->begin[i];
        for (int64_t k = 0; k < bytes; k++)
            to[at + k] =
                (uint8_t)(s[k] ^ ((uint8_t)(s[k] - (uint8_t)first) < 26 ? 0x20 : 0));
        end[i] = at += bytes;
    }
    return 0;
}

static int run_lower(struct stg_op_run *ctx, struct stg_err *err)
{
    return run_case(ctx, 'A', err);
}

static int run_upper(struct stg_op_run *ctx, struct stg_err *err)
{
    return run_case(ctx, 'a', err);
}

const struct stg_op stg_op_string_strip = {
    .name = "string_strip",
    .summary = "Strings without white space at both ends; as tf.strings.strip.",
    .min_inputs = 1,
    .max_inputs = 1,
    .flags = STG_OP_ROW_WISE,
    .infer = infer_same,
    .run = run_strip,
    .rows = stg_rows_first,
};

const struct stg_op stg_op_string_lower = {
    .name = "string_lower",
    .summary = "ASCII letters in lower case; as tf.strings.lower without encoding.",
    .min_inputs = 1,
    .max_inputs = 1,
    .flags = STG_OP_ROW_WISE,
    .infer = infer_same,
    .run = run_lower,
    .rows = stg_rows_first,
};

const struct stg_op stg_op_string_upper = {
    .name = "string_upper",
    .summary = "ASCII letters in upper case; as tf.strings.upper without encoding.",
    .min_inputs = 1,
    .max_inputs = 1,
    .flags = STG_OP_ROW_WISE,
    .infer = infer_same,
    .run = run_upper,
    .rows = stg_rows_first,
};

/* ---- length ---- */

static const struct stg_param length_params[] = {
    {.name = "unit",
     .type = STG_PARAM_STRING,
     .preset = "BYTE",
     .help = "BYTE, or UTF8_CHAR: bytes that begin a character"},
};

struct length {
    bool characters;
};

static int infer_length(struct stg_op_infer *ctx, struct stg_err *err)
{
    int rc = stg_text_check(ctx, err);
    if (rc < 0)
        return rc;
    const char *unit =
        stg_attr_string(ctx->node->attrs, ctx->node->n_attrs, "unit", "BYTE");
    bool characters = strcmp(unit, "UTF8_CHAR") == 0;
    if (!characters && strcmp(unit, "BYTE") != 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "unit must be BYTE or UTF8_CHAR, not \"%.64s\"", unit);
    struct length *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (plan == NULL || output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    plan->characters = characters;
    *output = ctx->inputs[0];
    output->dtype = STAGER_INT32;
    ctx->plan = plan;
    return 0;
}

static int run_length(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct length *plan = ctx->plan;
    const struct stg_tensor *input = &ctx->inputs[0];
    struct stg_tensor output;
    int rc = ctx->alloc(ctx, 0, STAGER_INT32, input->ndim, input->shape, 0, &output, err);
    if (rc < 0)
        return rc;
    int64_t n = stg_tensor_n(input);
    int32_t *restrict out = output.data;
    for (int64_t i = 0; i < n; i++)
        out[i] = (int32_t)(input->end[i] - input->begin[i]);
    for (int64_t i = 0; plan->characters && i < n; i++) {
        const uint8_t *s = (const uint8_t *)input->data + input->begin[i];
        int32_t inside = 0;
        for (int32_t k = 0; k < out[i]; k++)
            inside += (s[k] & 0xc0) == 0x80;
        out[i] -= inside;
    }
    return 0;
}

const struct stg_op stg_op_string_length = {
    .name = "string_length",
    .summary = "Bytes or characters of each string, as int32; as tf.strings.length.",
    STG_PARAMS(length_params),
    .min_inputs = 1,
    .max_inputs = 1,
    .flags = STG_OP_ROW_WISE,
    .infer = infer_length,
    .run = run_length,
    .rows = stg_rows_first,
};
