/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/pipeline_test/compare.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/text/json.h"

#define TEXT_BYTES 160

/* What an element of a tensor is, as a literal. */
static struct stg_value element(const struct stg_tensor *t, int64_t i)
{
    struct stg_value ret = {.kind = STG_VALUE_INT};
    const void *data = t->data;
    switch (t->dtype) {
    case STAGER_BOOL:
        return (struct stg_value){.kind = STG_VALUE_BOOL,
                                  .i = ((const uint8_t *)data)[i] != 0};
    case STAGER_INT8: ret.i = ((const int8_t *)data)[i]; break;
    case STAGER_UINT8: ret.i = ((const uint8_t *)data)[i]; break;
    case STAGER_INT16: ret.i = ((const int16_t *)data)[i]; break;
    case STAGER_UINT16: ret.i = ((const uint16_t *)data)[i]; break;
    case STAGER_INT32: ret.i = ((const int32_t *)data)[i]; break;
    case STAGER_UINT32: ret.i = ((const uint32_t *)data)[i]; break;
    case STAGER_INT64: ret.i = ((const int64_t *)data)[i]; break;
    case STAGER_UINT64: ret.i = (int64_t)((const uint64_t *)data)[i]; break;
    case STAGER_FLOAT32: ret.f = (double)((const float *)data)[i]; break;
    case STAGER_FLOAT64: ret.f = ((const double *)data)[i]; break;
    case STAGER_FLOAT16:
        ret.f = stg_number_from_float16(((const uint16_t *)data)[i]);
        break;
    case STAGER_BFLOAT16:
        ret.f = stg_number_from_bfloat16(((const uint16_t *)data)[i]);
        break;
    default:
        ret.kind = STG_VALUE_STRING;
        uint64_t bytes;
        ret.s = stg_tensor_string(t, i, &bytes);
        ret.s_bytes = bytes;
    }
    return ret;
}

static bool is_float(int dtype)
{
    return dtype == STAGER_FLOAT16 || dtype == STAGER_BFLOAT16 ||
           dtype == STAGER_FLOAT32 || dtype == STAGER_FLOAT64;
}

static bool has_kind(const struct stg_value *value, int dtype)
{
    if (is_float(dtype))
        return value->kind == STG_VALUE_INT || value->kind == STG_VALUE_FLOAT;
    return value->kind == (dtype == STAGER_BOOL     ? STG_VALUE_BOOL
                           : dtype == STAGER_STRING ? STG_VALUE_STRING
                                                    : STG_VALUE_INT);
}

static bool are_equal(const struct stg_value *expected, const struct stg_value *got,
                      int dtype, double tolerance)
{
    if (dtype == STAGER_STRING)
        return expected->s_bytes == got->s_bytes &&
               memcmp(expected->s, got->s, got->s_bytes) == 0;
    if (!is_float(dtype))
        return expected->i == got->i;
    if (isnan(expected->f) || isnan(got->f))
        return isnan(expected->f) && isnan(got->f);
    return expected->f == got->f ||
           fabs(expected->f - got->f) <= tolerance * fmax(1, fabs(expected->f));
}

/* ---- texts ---- */

/* In quotes; bytes that are not printable ASCII as \xNN. */
static void quote(const struct stg_value *value, char *buf, size_t bytes)
{
    size_t n = 0;
    buf[n++] = '"';
    for (size_t i = 0; i < value->s_bytes; i++) {
        unsigned char c = (unsigned char)value->s[i];
        bool plain = c < 0x80 && isprint(c) && c != '"' && c != '\\';
        if (n + 8 > bytes) {
            snprintf(buf + n, bytes - n, "...");
            return;
        }
        n += (size_t)snprintf(buf + n, bytes - n, plain ? "%c" : "\\x%02x", c);
    }
    snprintf(buf + n, bytes - n, "\"");
}

/* dtype: of the tensor, for floats; STAGER_DT_INVALID: as in the file. */
static const char *text_of(const struct stg_value *value, int dtype, char *buf)
{
    switch (value->kind) {
    case STG_VALUE_BOOL: return value->i != 0 ? "true" : "false";
    case STG_VALUE_STRING: quote(value, buf, TEXT_BYTES); return buf;
    case STG_VALUE_NULL: return "null";
    default: break;
    }
    if (is_float(dtype) || value->kind == STG_VALUE_FLOAT)
        return stg_number_text(value->f, is_float(dtype) ? dtype : STAGER_FLOAT64, buf);
    snprintf(buf, TEXT_BYTES, dtype == STAGER_UINT64 ? "%" PRIu64 : "%" PRId64, value->i);
    return buf;
}

static const char *index_of(const struct stg_tensor *t, int64_t i, char *buf,
                            size_t bytes)
{
    int64_t at[STG_MAX_DIMS];
    for (int d = t->ndim; d-- > 0;) {
        at[d] = i % t->shape[d];
        i /= t->shape[d];
    }
    size_t n = 0;
    buf[0] = '\0';
    for (int d = 0; d < t->ndim && n < bytes; d++)
        n += (size_t)snprintf(buf + n, bytes - n, "[%" PRId64 "]", at[d]);
    return buf;
}

static void add(struct stg_differences *to, struct stg_difference *d)
{
    d->feature = stg_bump_strdup(&to->bump, d->feature);
    d->index = stg_bump_strdup(&to->bump, d->index);
    d->expected = stg_bump_strdup(&to->bump, d->expected);
    d->got = stg_bump_strdup(&to->bump, d->got);
    bool has_room = to->n < sizeof(to->all) / sizeof(to->all[0]);
    if (!has_room || d->feature == NULL || d->index == NULL || d->expected == NULL ||
        d->got == NULL)
        to->n_more++;
    else
        to->all[to->n++] = *d;
}

/* ---- a feature ---- */

static bool same_shape(const struct stg_attr *expected, const struct stg_tensor *got)
{
    bool same = expected->ndim == got->ndim;
    for (int d = 0; same && d < got->ndim; d++)
        same = expected->shape[d] == got->shape[d];
    return same || (expected->n_values == 0 && stg_tensor_n(got) == 0);
}

void stg_differences_add(struct stg_differences *to, size_t batch,
                         const struct stg_attr *expected, const struct stg_tensor *got,
                         double tolerance)
{
    char want[TEXT_BYTES], have[TEXT_BYTES], index[128];
    struct stg_difference d = {.batch = batch, .feature = expected->name, .index = ""};
    if (!same_shape(expected, got)) {
        d.what = "shape";
        d.expected = stg_shape_text(expected->shape, expected->ndim, want, sizeof(want));
        d.got = stg_shape_text(got->shape, got->ndim, have, sizeof(have));
        add(to, &d);
        return;
    }
    size_t n = 0;
    for (size_t i = 0; i < expected->n_values; i++) {
        const struct stg_value *value = &expected->values[i];
        struct stg_value is = element(got, (int64_t)i);
        bool fits = has_kind(value, got->dtype);
        if (fits && are_equal(value, &is, got->dtype, tolerance))
            continue;
        if (n++ >= STG_DIFFERENCES_OF_FEATURE) {
            to->n_more++;
            continue;
        }
        d.what = fits ? "value" : "dtype";
        d.index = index_of(got, (int64_t)i, index, sizeof(index));
        d.expected = text_of(value, fits ? got->dtype : STAGER_DT_INVALID, want);
        d.got = fits ? text_of(&is, got->dtype, have) : stg_dtype_name(got->dtype);
        add(to, &d);
        d.feature = expected->name;
    }
}
