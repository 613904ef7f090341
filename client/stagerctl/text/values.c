/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stagerctl/text/values.h"

#include <inttypes.h>

#include "core/param.h"

/* ---- one element ---- */

enum kind { KIND_SIGNED, KIND_UNSIGNED, KIND_FLOAT, KIND_BOOL, KIND_BYTES, KIND_NONE };

struct element {
    enum kind kind;
    int64_t i;
    uint64_t u;
    double f;
    const char *bytes;
    size_t n;
};

static struct element of_signed(int64_t value)
{
    return (struct element){.kind = KIND_SIGNED, .i = value};
}

static struct element of_unsigned(uint64_t value)
{
    return (struct element){.kind = KIND_UNSIGNED, .u = value};
}

static struct element of_float(double value)
{
    return (struct element){.kind = KIND_FLOAT, .f = value};
}

/* Offsets are the daemon's: looked at before they are followed. */
static struct element read_string(const struct stager_tensor *tensor, int64_t i)
{
    int64_t begin = tensor->offsets[i], end = tensor->offsets[i + 1];
    if (begin < 0 || end < begin || (uint64_t)end > tensor->data_bytes)
        return (struct element){.kind = KIND_NONE};
    return (struct element){.kind = KIND_BYTES,
                            .bytes = (const char *)tensor->data + begin,
                            .n = (size_t)(end - begin)};
}

static struct element read_element(const struct stager_tensor *tensor, int64_t i)
{
    const void *data = tensor->data;
    switch (tensor->dtype) {
    case STAGER_FLOAT32: return of_float((double)((const float *)data)[i]);
    case STAGER_FLOAT64: return of_float(((const double *)data)[i]);
    case STAGER_FLOAT16:
        return of_float(stg_number_from_float16(((const uint16_t *)data)[i]));
    case STAGER_BFLOAT16:
        return of_float(stg_number_from_bfloat16(((const uint16_t *)data)[i]));
    case STAGER_INT8: return of_signed(((const int8_t *)data)[i]);
    case STAGER_INT16: return of_signed(((const int16_t *)data)[i]);
    case STAGER_INT32: return of_signed(((const int32_t *)data)[i]);
    case STAGER_INT64: return of_signed(((const int64_t *)data)[i]);
    case STAGER_UINT8: return of_unsigned(((const uint8_t *)data)[i]);
    case STAGER_UINT16: return of_unsigned(((const uint16_t *)data)[i]);
    case STAGER_UINT32: return of_unsigned(((const uint32_t *)data)[i]);
    case STAGER_UINT64: return of_unsigned(((const uint64_t *)data)[i]);
    case STAGER_BOOL:
        return (struct element){.kind = KIND_BOOL, .u = ((const uint8_t *)data)[i] != 0};
    case STAGER_STRING: return read_string(tensor, i);
    }
    return (struct element){.kind = KIND_NONE};
}

static void element_json(struct stg_json_writer *json, const struct element *e, int dtype)
{
    switch (e->kind) {
    case KIND_SIGNED: stg_json_int(json, e->i); break;
    case KIND_UNSIGNED: stg_json_uint(json, e->u); break;
    case KIND_FLOAT: stg_json_float(json, e->f, dtype); break;
    case KIND_BOOL: stg_json_bool(json, e->u != 0); break;
    case KIND_BYTES: stg_json_bytes(json, e->bytes, e->n); break;
    case KIND_NONE: stg_json_null(json); break;
    }
}

/* Returns the length of a character that a terminal prints, or 0: of a control character
 * (C0, DEL, and C1, which a terminal obeys in UTF-8 too), or of no UTF-8. */
static size_t printable(const char *bytes, size_t n)
{
    unsigned char c = (unsigned char)bytes[0];
    if (c < 0x80)
        return c >= 0x20 && c != 0x7f;
    bool is_c1 = c == 0xc2 && n > 1 && (unsigned char)bytes[1] < 0xa0;
    return is_c1 ? 0 : stg_utf8_bytes(bytes, n);
}

/* For eyes and terminals: the rest is escaped. */
static void quote(FILE *out, const char *bytes, size_t n)
{
    fputc('"', out);
    for (size_t i = 0, more; i < n; i += more) {
        size_t whole = printable(bytes + i, n - i);
        more = whole > 0 ? whole : 1;
        if (bytes[i] == '"' || bytes[i] == '\\')
            fputc('\\', out);
        if (whole > 0)
            fwrite(bytes + i, 1, whole, out);
        else
            fprintf(out, "\\x%02x", (unsigned char)bytes[i]);
    }
    fputc('"', out);
}

static void element_text(FILE *out, const struct element *e, int dtype)
{
    char text[STG_NUMBER_BYTES];
    switch (e->kind) {
    case KIND_SIGNED: fprintf(out, "%" PRId64, e->i); break;
    case KIND_UNSIGNED: fprintf(out, "%" PRIu64, e->u); break;
    case KIND_FLOAT: fputs(stg_number_text(e->f, dtype, text), out); break;
    case KIND_BOOL: fputs(e->u != 0 ? "true" : "false", out); break;
    case KIND_BYTES: quote(out, e->bytes, e->n); break;
    case KIND_NONE: fputc('?', out); break;
    }
}

/* ---- many ---- */

static int64_t n_below(const struct stager_tensor *tensor, int dim)
{
    int64_t n = 1;
    for (int i = dim; i < tensor->ndim; i++)
        n *= tensor->shape[i];
    return n;
}

/* Values from element `at` on, nested by the dimensions from `dim` on. At most 8 deep. */
static void nested_json(struct stg_json_writer *json, const struct stager_tensor *tensor,
                        int dim, int64_t at)
{
    if (dim == tensor->ndim) {
        struct element e = read_element(tensor, at);
        element_json(json, &e, tensor->dtype);
        return;
    }
    int64_t step = n_below(tensor, dim + 1);
    stg_json_array_begin(json);
    for (int64_t i = 0; i < tensor->shape[dim]; i++)
        nested_json(json, tensor, dim + 1, at + i * step);
    stg_json_array_end(json);
}

static void nested_text(FILE *out, const struct stager_tensor *tensor, int dim,
                        int64_t at)
{
    if (dim == tensor->ndim) {
        struct element e = read_element(tensor, at);
        element_text(out, &e, tensor->dtype);
        return;
    }
    int64_t step = n_below(tensor, dim + 1);
    fputc('[', out);
    for (int64_t i = 0; i < tensor->shape[dim]; i++) {
        fputs(i > 0 ? ", " : "", out);
        nested_text(out, tensor, dim + 1, at + i * step);
    }
    fputc(']', out);
}

void stg_values_json_array(struct stg_json_writer *json,
                           const struct stager_tensor *tensor)
{
    nested_json(json, tensor, 0, 0);
}

void stg_values_json(struct stg_json_writer *json, const struct stager_tensor *tensor)
{
    stg_json_object_begin(json);
    stg_json_put_string(json, "dtype", stager_dtype_name(tensor->dtype));
    static const char *const parts[] = {"", "row_splits", "indices", "dense_shape"};
    if (tensor->part != STAGER_PART_VALUES && tensor->part < 4) {
        stg_json_put_string(json, "part", parts[tensor->part]);
    }
    stg_json_key(json, "shape");
    stg_json_array_begin(json);
    for (int i = 0; i < tensor->ndim; i++)
        stg_json_int(json, tensor->shape[i]);
    stg_json_array_end(json);
    stg_json_key(json, "values");
    stg_values_json_array(json, tensor);
    stg_json_object_end(json);
}

void stg_values_shape(FILE *out, const struct stager_tensor *tensor)
{
    fputc('[', out);
    for (int i = 0; i < tensor->ndim; i++)
        fprintf(out, "%s%" PRId64, i > 0 ? ", " : "", tensor->shape[i]);
    fputc(']', out);
}

void stg_values_preview(FILE *out, const struct stager_tensor *tensor, int64_t most)
{
    int64_t n = n_below(tensor, 0);
    for (int64_t i = 0; i < n && i < most; i++) {
        fputs(i > 0 ? ", " : "", out);
        struct element e = read_element(tensor, i);
        element_text(out, &e, tensor->dtype);
    }
    if (n > most)
        fputs(", …", out);
}

int stg_values_row(FILE *out, const struct stager_tensor *tensor, int64_t row)
{
    if (tensor->ndim == 0 || row >= tensor->shape[0])
        return 0;
    nested_text(out, tensor, 1, row * n_below(tensor, 1));
    return 1;
}
