/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>

#include "ops/base/element.h"
#include "ops/base/op.h"

#define MAX_WIDTH 4096

static const struct stg_param params[] = {
    {.name = "precision",
     .type = STG_PARAM_INT,
     .min = INT32_MIN,
     .max = MAX_WIDTH,
     .preset = "-1",
     .help = "digits after the point; negative: 6, or as many as shortest needs"},
    {.name = "scientific",
     .type = STG_PARAM_BOOL,
     .preset = "false",
     .help = "floats as 1.5e+00"},
    {.name = "shortest",
     .type = STG_PARAM_BOOL,
     .preset = "false",
     .help = "floats as printf's %g"},
    {.name = "width",
     .type = STG_PARAM_INT,
     .min = INT32_MIN,
     .max = MAX_WIDTH,
     .preset = "-1",
     .help = "shorter results are padded to it"},
    {.name = "fill",
     .type = STG_PARAM_STRING,
     .preset = "",
     .help = "printf's flag for padding: one of ' ', '+', '-', '0', '#'"},
};

struct plan {
    char format[48]; /* of printf; not for bool and string */
    int64_t width, precision;
    bool left; /* padding goes to the right */
};

static bool is_float(int dtype)
{
    return dtype == STAGER_FLOAT32 || dtype == STAGER_FLOAT64 ||
           dtype == STAGER_FLOAT16 || dtype == STAGER_BFLOAT16;
}

static bool is_unsigned(int dtype)
{
    return dtype == STAGER_UINT8 || dtype == STAGER_UINT16 || dtype == STAGER_UINT32 ||
           dtype == STAGER_UINT64;
}

static int check_attrs(int dtype, const char *fill, int64_t precision, bool scientific,
                       bool shortest, struct stg_err *err)
{
    if (!is_float(dtype) && dtype != STAGER_STRING) {
        if (scientific || shortest)
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "scientific and shortest are for floats, the input is %s",
                           stg_dtype_name(dtype));
        if (precision >= 0)
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "precision is for floats, the input is %s",
                           stg_dtype_name(dtype));
    }
    if (strlen(fill) > 1 || (fill[0] != '\0' && strchr(" +-0#", fill[0]) == NULL))
        return stg_err(
            err, -STAGER_INVALID_ARGUMENT,
            "fill must be one of \" \", \"+\", \"-\", \"0\", \"#\", not \"%.16s\"", fill);
    if (scientific && shortest)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "scientific and shortest cannot both be set");
    return 0;
}

static int infer(struct stg_op_infer *ctx, struct stg_err *err)
{
    const struct stg_attr *attrs = ctx->node->attrs;
    size_t n = ctx->node->n_attrs;
    int dtype = ctx->inputs[0].dtype;
    int64_t precision = stg_attr_int(attrs, n, "precision", -1);
    int64_t width = stg_attr_int(attrs, n, "width", -1);
    bool scientific = stg_attr_bool(attrs, n, "scientific", false);
    bool shortest = stg_attr_bool(attrs, n, "shortest", false);
    const char *fill = stg_attr_string(attrs, n, "fill", "");
    int rc = check_attrs(dtype, fill, precision, scientific, shortest, err);
    if (rc < 0)
        return rc;
    struct plan *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (plan == NULL || output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    char digits[16] = "", places[16] = "";
    if (width >= 0)
        snprintf(digits, sizeof(digits), "%d", (int)width);
    if (precision >= 0)
        snprintf(places, sizeof(places), ".%d", (int)precision);
    const char *conversion = shortest ? "g" : scientific ? "e" : "f";
    if (!is_float(dtype))
        conversion = is_unsigned(dtype) ? PRIu64 : PRId64;
    snprintf(plan->format, sizeof(plan->format), "%%%s%s%s%s", fill, digits, places,
             conversion);
    plan->width = width;
    plan->precision = precision;
    plan->left = fill[0] == '-';
    *output = ctx->inputs[0];
    output->dtype = STAGER_STRING;
    ctx->plan = plan;
    return 0;
}

/* ---- one element ---- */

static double float_at(const struct stg_tensor *input, int64_t i)
{
    switch (input->dtype) {
    case STAGER_FLOAT32: return (double)((const float *)input->data)[i];
    case STAGER_FLOAT64: return ((const double *)input->data)[i];
    case STAGER_FLOAT16:
        return (double)stg_f32_from_f16(((const uint16_t *)input->data)[i]);
    default: return (double)stg_f32_from_bf16(((const uint16_t *)input->data)[i]);
    }
}

static int64_t int_at(const struct stg_tensor *input, int64_t i)
{
    switch (input->dtype) {
    case STAGER_INT8: return ((const int8_t *)input->data)[i];
    case STAGER_INT16: return ((const int16_t *)input->data)[i];
    case STAGER_INT32: return ((const int32_t *)input->data)[i];
    case STAGER_UINT8: return ((const uint8_t *)input->data)[i];
    case STAGER_UINT16: return ((const uint16_t *)input->data)[i];
    case STAGER_UINT32: return ((const uint32_t *)input->data)[i];
    default: return ((const int64_t *)input->data)[i];
    }
}

/* TensorFlow's rule: precision truncates only where there is a width. */
static size_t pad_string(const struct plan *plan, const char *s, size_t n, char *to,
                         size_t capacity)
{
    size_t width = plan->width > 0 ? (size_t)plan->width : 0;
    if (width > 0 && plan->precision >= 0 && n > (size_t)plan->precision)
        n = (size_t)plan->precision;
    size_t pad = n < width ? width - n : 0;
    if (to != NULL && n + pad <= capacity) {
        memset(to + (plan->left ? n : 0), ' ', pad);
        memcpy(to + (plan->left ? 0 : pad), s, n);
    }
    return n + pad;
}

/* Writes element i where it fits in capacity; returns its bytes in any case. snprintf
 * needs one byte more, for its NUL. */
static size_t write_element(const struct plan *plan, const struct stg_tensor *input,
                            int64_t i, char *to, size_t capacity)
{
    static const char *const bools[] = {"false", "true"};
    char element[64];
    int n;
    if (input->dtype == STAGER_STRING)
        return pad_string(plan, (const char *)input->data + input->begin[i],
                          (size_t)(input->end[i] - input->begin[i]), to, capacity);
    if (input->dtype == STAGER_BOOL) {
        const char *s = bools[((const uint8_t *)input->data)[i] != 0];
        if (to != NULL && strlen(s) <= capacity)
            memcpy(to, s, strlen(s));
        return strlen(s);
    }
    if (is_float(input->dtype))
        n = snprintf(element, sizeof(element), plan->format, float_at(input, i));
    else
        n = snprintf(element, sizeof(element), plan->format, int_at(input, i));
    if ((size_t)n < sizeof(element)) {
        if (to != NULL && (size_t)n <= capacity)
            memcpy(to, element, (size_t)n);
    } else if ((size_t)n < capacity) {
        if (is_float(input->dtype))
            snprintf(to, capacity, plan->format, float_at(input, i));
        else
            snprintf(to, capacity, plan->format, int_at(input, i));
    }
    return (size_t)n;
}

/* Twice over the input: how many bytes, then the bytes. */
static int write_all(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct plan *plan = ctx->plan;
    const struct stg_tensor *input = &ctx->inputs[0];
    int64_t n = stg_tensor_n(input);
    uint64_t bytes = 0;
    for (int64_t i = 0; i < n; i++)
        bytes += write_element(plan, input, i, NULL, 0);
    struct stg_tensor output;
    int rc = ctx->alloc(ctx, 0, STAGER_STRING, input->ndim, input->shape, bytes + 1,
                        &output, err);
    if (rc < 0)
        return rc;
    int64_t *offsets = (int64_t *)(uintptr_t)output.begin;
    for (int64_t i = 0; i < n; i++) {
        size_t left = (size_t)bytes + 1 - (size_t)offsets[i];
        char *to = (char *)output.data + offsets[i];
        offsets[i + 1] = offsets[i] + (int64_t)write_element(plan, input, i, to, left);
    }
    return 0;
}

/* printf's decimal point is the locale's; a trainer may have set one. */
static int run(struct stg_op_run *ctx, struct stg_err *err)
{
    locale_t before = uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
    int rc = write_all(ctx, err);
    uselocale(before);
    return rc;
}

const struct stg_op stg_op_as_string = {
    .name = "as_string",
    .summary = "Elements as text; as tf.strings.as_string.",
    STG_PARAMS(params),
    .min_inputs = 1,
    .max_inputs = 1,
    .flags = STG_OP_ROW_WISE,
    .infer = infer,
    .run = run,
    .rows = stg_rows_first,
};
