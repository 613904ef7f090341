/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/base/element.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define QUOTE_MAX 40u

const char *stg_quote(const char *s, size_t n, char buf[STG_QUOTE_BYTES])
{
    size_t at = 0;
    buf[at++] = '"';
    for (size_t i = 0; i < n && i < QUOTE_MAX; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c >= 0x20 && c < 0x7f && c != '"' && c != '\\')
            buf[at++] = (char)c;
        else
            at += (size_t)snprintf(buf + at, 5, "\\x%02x", c);
    }
    snprintf(buf + at, STG_QUOTE_BYTES - at, "\"%s", n > QUOTE_MAX ? "…" : "");
    return buf;
}

/* ---- half widths ---- */

uint16_t stg_f16_from_f64(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    uint16_t sign = (uint16_t)(bits >> 48 & 0x8000);
    int exponent = (int)(bits >> 52 & 0x7ff);
    uint64_t fraction = bits & ((1ull << 52) - 1);
    if (exponent == 0x7ff)
        return (uint16_t)(sign | 0x7c00 | (fraction != 0 ? 0x200 : 0));
    int e = exponent - 1023 + 15;
    if (e >= 31)
        return (uint16_t)(sign | 0x7c00);
    if (e < -11)
        return sign;
    /* With its hidden bit the significand has 53 bits; keep 11, fewer when subnormal. */
    uint64_t significand = fraction | 1ull << 52;
    int drop = e >= 1 ? 42 : 43 - e;
    uint64_t retained = significand >> drop;
    uint64_t rest = significand & ((1ull << drop) - 1), half = 1ull << (drop - 1);
    if (rest > half || (rest == half && (retained & 1) != 0))
        retained++;
    /* A carry out of the significand counts the exponent up, as it should. */
    if (e >= 1)
        retained += (uint64_t)(e - 1) << 10;
    return (uint16_t)(sign | retained);
}

uint16_t stg_bf16_from_f32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((bits >> 16 & 0x8000) | 0x7fc0);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float stg_f32_from_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t exponent = half >> 10 & 31, fraction = half & 0x3ff;
    float ret;
    if (exponent == 0) {
        ret = (float)fraction * 0x1p-24f;
        return sign != 0 ? -ret : ret;
    }
    uint32_t bits =
        sign | (exponent == 31 ? 0xffu : exponent + 112) << 23 | fraction << 13;
    memcpy(&ret, &bits, sizeof(ret));
    return ret;
}

float stg_f32_from_bf16(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float ret;
    memcpy(&ret, &bits, sizeof(ret));
    return ret;
}

/* ---- literals ---- */

int stg_literal_dtype(const struct stg_value *values, size_t n)
{
    int dtype = STAGER_DT_INVALID;
    for (size_t i = 0; i < n; i++) {
        int one = STAGER_DT_INVALID;
        switch (values[i].kind) {
        case STG_VALUE_INT:
            one = values[i].i == (int32_t)values[i].i ? STAGER_INT32 : STAGER_INT64;
            break;
        case STG_VALUE_FLOAT: one = STAGER_FLOAT32; break;
        case STG_VALUE_BOOL: one = STAGER_BOOL; break;
        case STG_VALUE_STRING: one = STAGER_STRING; break;
        case STG_VALUE_NULL: return STAGER_DT_INVALID;
        }
        bool number = one == STAGER_INT32 || one == STAGER_INT64 || one == STAGER_FLOAT32;
        bool numbers =
            dtype == STAGER_INT32 || dtype == STAGER_INT64 || dtype == STAGER_FLOAT32;
        if (i == 0 || dtype == one)
            dtype = one;
        else if (!number || !numbers)
            return STAGER_DT_INVALID;
        else if (dtype != STAGER_FLOAT32 &&
                 (dtype == STAGER_INT32 || one != STAGER_INT32))
            dtype = one;
    }
    return n == 0 ? STAGER_FLOAT32 : dtype;
}

static const struct {
    int dtype;
    int64_t min, max;
} ranges[] = {
    {STAGER_INT8, INT8_MIN, INT8_MAX},    {STAGER_INT16, INT16_MIN, INT16_MAX},
    {STAGER_INT32, INT32_MIN, INT32_MAX}, {STAGER_INT64, INT64_MIN, INT64_MAX},
    {STAGER_UINT8, 0, UINT8_MAX},         {STAGER_UINT16, 0, UINT16_MAX},
    {STAGER_UINT32, 0, UINT32_MAX},       {STAGER_UINT64, 0, INT64_MAX},
};

static int store_int(const struct stg_value *value, int dtype, void *data, size_t i,
                     struct stg_err *err)
{
    if (value->kind != STG_VALUE_INT)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "this literal is not a valid %s",
                       stg_dtype_name(dtype));
    for (size_t k = 0; k < sizeof(ranges) / sizeof(ranges[0]); k++) {
        if (ranges[k].dtype != dtype)
            continue;
        if (value->i < ranges[k].min || value->i > ranges[k].max)
            return stg_err(err, -STAGER_INVALID_ARGUMENT, "%" PRId64 " does not fit %s",
                           value->i, stg_dtype_name(dtype));
        unsigned bytes = stg_dtype_bytes(dtype);
        memcpy((char *)data + i * bytes, &value->i, bytes); /* little-endian */
        return 0;
    }
    return stg_err(err, -STAGER_INVALID_ARGUMENT, "a literal cannot be a %s",
                   stg_dtype_name(dtype));
}

int stg_literal_store(const struct stg_value *value, int dtype, void *data, size_t i,
                      struct stg_err *err)
{
    if (dtype == STAGER_BOOL) {
        if (value->kind != STG_VALUE_BOOL)
            return stg_err(err, -STAGER_INVALID_ARGUMENT, "this literal is not a bool");
        ((uint8_t *)data)[i] = value->i != 0;
        return 0;
    }
    if (dtype != STAGER_FLOAT32 && dtype != STAGER_FLOAT64 && dtype != STAGER_FLOAT16 &&
        dtype != STAGER_BFLOAT16)
        return store_int(value, dtype, data, i, err);
    if (value->kind != STG_VALUE_INT && value->kind != STG_VALUE_FLOAT)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "this literal is not a valid %s",
                       stg_dtype_name(dtype));
    double f = value->kind == STG_VALUE_INT ? (double)value->i : value->f;
    switch (dtype) {
    case STAGER_FLOAT32: ((float *)data)[i] = (float)f; break;
    case STAGER_FLOAT64: ((double *)data)[i] = f; break;
    case STAGER_FLOAT16: ((uint16_t *)data)[i] = stg_f16_from_f64(f); break;
    default: ((uint16_t *)data)[i] = stg_bf16_from_f32((float)f); break;
    }
    return 0;
}

static int no_room(const struct stg_bump *bump, uint64_t bytes, struct stg_err *err)
{
    if (bump->limit == 0 || bytes <= bump->limit - bump->total)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    return stg_err(
        err, -STAGER_RESOURCE_EXHAUSTED,
        "a literal of %.1f MiB does not fit: those of a graph may take %.0f MiB together",
        (double)bytes / 1048576.0, (double)bump->limit / 1048576.0);
}

static int string_tensor(const struct stg_value *values, size_t n, size_t n_elements,
                         struct stg_bump *bump, struct stg_tensor *tensor,
                         struct stg_err *err)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n_elements; i++) {
        const struct stg_value *value = &values[n == 1 ? 0 : i];
        if (value->kind != STG_VALUE_STRING)
            return stg_err(err, -STAGER_INVALID_ARGUMENT, "this literal is not a string");
        bytes += value->s_bytes;
    }
    int64_t *offsets = stg_bump_alloc(bump, (n_elements + 1) * sizeof(*offsets));
    char *data = stg_bump_alloc(bump, bytes);
    if (offsets == NULL || data == NULL)
        return no_room(bump, (n_elements + 1) * sizeof(*offsets) + bytes, err);
    for (size_t i = 0; i < n_elements; i++) {
        const struct stg_value *value = &values[n == 1 ? 0 : i];
        memcpy(data + offsets[i], value->s, value->s_bytes);
        offsets[i + 1] = offsets[i] + (int64_t)value->s_bytes;
    }
    tensor->data = data;
    tensor->data_bytes = bytes;
    tensor->begin = offsets;
    tensor->end = offsets + 1;
    return 0;
}

int stg_literal_tensor(const struct stg_value *values, size_t n, int dtype, int ndim,
                       const int64_t *shape, struct stg_bump *bump,
                       struct stg_tensor *ret, struct stg_err *err)
{
    struct stg_tensor tensor = {.dtype = dtype, .ndim = ndim};
    size_t n_elements = 1;
    bool fits = true;
    for (int d = 0; d < ndim; d++) {
        tensor.shape[d] = shape[d];
        fits = fits && !__builtin_mul_overflow(n_elements, (size_t)shape[d], &n_elements);
    }
    if (!fits || n_elements > UINT32_MAX)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "too many elements for a literal");
    if (n != 1 && n != n_elements)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "%zu value%s cannot fill the %zu elements of the shape", n,
                       n == 1 ? "" : "s", n_elements);
    if (dtype == STAGER_STRING) {
        int rc = string_tensor(values, n, n_elements, bump, &tensor, err);
        if (rc == 0)
            *ret = tensor;
        return rc;
    }
    tensor.data_bytes = n_elements * stg_dtype_bytes(dtype);
    tensor.data = stg_bump_alloc(bump, tensor.data_bytes);
    if (tensor.data == NULL)
        return no_room(bump, tensor.data_bytes, err);
    for (size_t i = 0; i < n_elements; i++) {
        int rc = stg_literal_store(&values[n == 1 ? 0 : i], dtype, tensor.data, i, err);
        if (rc < 0)
            return rc;
    }
    *ret = tensor;
    return 0;
}

int stg_dtype_widened(int dtype)
{
    switch (dtype) {
    case STAGER_INT8: return STAGER_INT16;
    case STAGER_INT16: return STAGER_INT32;
    case STAGER_INT32: return STAGER_INT64;
    case STAGER_UINT8: return STAGER_UINT16;
    case STAGER_UINT16: return STAGER_UINT32;
    case STAGER_UINT32: return STAGER_UINT64;
    case STAGER_BFLOAT16:
    case STAGER_FLOAT16: return STAGER_FLOAT32;
    case STAGER_FLOAT32: return STAGER_FLOAT64;
    default: return STAGER_DT_INVALID;
    }
}

int64_t stg_tensor_row(const struct stg_tensor *tensor, int64_t i)
{
    if (tensor->ndim == 0)
        return -1;
    return i / (stg_tensor_n(tensor) / tensor->shape[0]);
}
