/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/format/arrow/values.h"

#include "core/batch.h"

#define AT_ONCE ((uint64_t)64 << 10) /* bytes of a column */
#define MAX_ROWS 65536u
#define MAX_STRINGS 16384u

__extension__ typedef __int128 wide_int;

/* Rows while they are decoded. */
struct decoding {
    const struct stg_arrow_request *request;
    const struct stg_arrow_field *field;
    struct stg_arrow_values *to;
    uint64_t first, n;
    unsigned width; /* of a value here; 0: a string */
    uint8_t *state; /* of each value */
    bool has_state; /* not all are good */
};

void stg_arrow_values_finish(struct stg_arrow_values *values)
{
    stg_chunk_unref(values->data);
    stg_chunk_unref(values->values);
    *values = (struct stg_arrow_values){0};
}

void stg_arrow_inputs_init(struct stg_arrow_inputs *inputs,
                           const struct stg_arrow_part *part)
{
    inputs->part = *part;
    for (uint32_t i = 0; i < part->n_validities; i++)
        stg_arrow_input_init(&inputs->validities[i], &part->validities[i], part->codec);
    for (uint32_t i = 0; i < STG_MAX_LISTS; i++)
        stg_arrow_input_init(&inputs->lists[i], &part->lists[i].offsets, part->codec);
    stg_arrow_input_init(&inputs->offsets, &part->offsets, part->codec);
    stg_arrow_input_init(&inputs->data, &part->data, part->codec);
}

void stg_arrow_inputs_finish(struct stg_arrow_inputs *inputs)
{
    for (uint32_t i = 0; i < STG_ARROW_MAX_VALIDITIES; i++)
        stg_arrow_input_finish(&inputs->validities[i]);
    for (uint32_t i = 0; i < STG_MAX_LISTS; i++)
        stg_arrow_input_finish(&inputs->lists[i]);
    stg_arrow_input_finish(&inputs->offsets);
    stg_arrow_input_finish(&inputs->data);
}

/* ---- memory ---- */

static bool is_string(const struct stg_arrow_column *column)
{
    return column->want.dtype == STAGER_STRING;
}

uint64_t stg_arrow_values_at_once(const struct stg_arrow_column *column,
                                  const struct stg_arrow_leaf *leaf)
{
    uint64_t here = is_string(column) ? 16 : stg_dtype_bytes(column->want.dtype);
    uint64_t there = stg_arrow_value_bits(&leaf->field) / 8;
    uint64_t bytes = here > there ? here : there;
    uint64_t n = bytes < AT_ONCE ? AT_ONCE / bytes : 1;
    uint64_t most = is_string(column) ? MAX_STRINGS : MAX_ROWS;
    return n < most ? n : most;
}

static uint64_t room_of(uint64_t bytes)
{
    return (bytes + 63) & ~(uint64_t)63;
}

/* Cuts bytes, a multiple of 64, from a piece of memory. */
static char *carve(char **at, uint64_t bytes)
{
    char *ret = *at;
    *at += bytes;
    return ret;
}

/* Memory for numbers, unless they are shown where they are read, or for places of
 * strings; and for states. */
static int take_values(struct decoding *d, bool is_shown, bool has_state,
                       struct stg_err *err)
{
    struct stg_arrow_values *to = d->to;
    uint64_t fixed = is_shown ? 0 : room_of(d->n * d->width);
    uint64_t places = d->width == 0 ? room_of(d->n * sizeof(int64_t)) : 0;
    uint64_t bytes = fixed + 2 * places + (has_state ? room_of(d->n) : 0);
    to->begin = to->end = NULL;
    to->fixed = NULL;
    to->state = d->state = NULL;
    if (bytes == 0) {
        stg_chunk_unref(to->values);
        to->values = NULL;
        return 0;
    }
    int rc = stg_arrow_room(d->request->reading->quota, bytes, &to->values, err);
    if (rc < 0)
        return rc;
    char *at = to->values->data;
    if (fixed > 0)
        to->fixed = carve(&at, fixed);
    if (places > 0) {
        to->begin = (int64_t *)carve(&at, places);
        to->end = (int64_t *)carve(&at, places);
    }
    if (has_state) {
        d->state = (uint8_t *)at;
        memset(d->state, STG_ARROW_GOOD, d->n);
    }
    return 0;
}

static void drop_data(struct stg_arrow_values *to)
{
    stg_chunk_unref(to->data);
    to->data = NULL;
}

/* ---- validity ---- */

static bool bit_at(const char *bits, uint64_t i)
{
    return ((unsigned char)bits[i / 8] >> i % 8 & 1) != 0;
}

/* Marks what bits, from bit `skip` on, say is null. Returns whether there are some. */
static bool mark_nulls(const char *bits, uint64_t skip, uint64_t n, uint8_t *state)
{
    bool has_nulls = false;
    for (uint64_t i = 0; i < n; i++) {
        if (bit_at(bits, skip + i))
            continue;
        state[i] = STG_ARROW_IS_NULL;
        has_nulls = true;
    }
    return has_nulls;
}

int stg_arrow_read_nulls(struct stg_arrow_reading *reading,
                         struct stg_arrow_inputs *inputs, unsigned depth, uint64_t first,
                         uint64_t n, uint8_t *state, struct stg_err *err)
{
    uint64_t from = first / 8, to = (first + n + 7) / 8;
    int has_nulls = 0;
    for (uint32_t k = 0; k < inputs->part.n_validities; k++) {
        char *bits;
        if (inputs->part.depths[k] != depth)
            continue;
        int rc = stg_arrow_input_read(reading, &inputs->validities[k], from, to - from, 0,
                                      &reading->bits, &bits, err);
        if (rc < 0)
            return rc;
        has_nulls |= mark_nulls(bits, first % 8, n, state);
    }
    return has_nulls;
}

static int read_validities(struct decoding *d, struct stg_err *err)
{
    const struct stg_arrow_request *request = d->request;
    int rc = stg_arrow_read_nulls(request->reading, request->inputs,
                                  request->leaf->n_lists, d->first, d->n, d->state, err);
    d->has_state |= rc > 0;
    return rc < 0 ? rc : 0;
}

/* ---- nulls ---- */

static void fill_null(struct decoding *d, uint64_t i)
{
    const struct stg_arrow_column *column = d->request->column;
    struct stg_arrow_values *to = d->to;
    if (d->width > 0) {
        memcpy(to->fixed + i * d->width, &column->value, d->width);
        return;
    }
    to->begin[i] = (int64_t)to->base_bytes;
    to->end[i] = (int64_t)(to->base_bytes + column->text_bytes);
}

/* A null gets the default, or is empty. */
static void fill_nulls(struct decoding *d)
{
    bool may_lack = d->request->column->want.may_lack;
    bool has_state = false;
    for (uint64_t i = 0; d->has_state && i < d->n; i++) {
        if (d->state[i] == STG_ARROW_GOOD)
            continue;
        fill_null(d, i);
        if (d->state[i] == STG_ARROW_IS_NULL && may_lack)
            d->state[i] = STG_ARROW_GOOD;
        has_state |= d->state[i] != STG_ARROW_GOOD;
    }
    d->has_state = has_state;
}

/* ---- numbers ---- */

/* The values lie in the file as they are wanted. */
static bool is_direct(const struct decoding *d)
{
    uint64_t bits = stg_arrow_value_bits(d->field);
    return d->request->dictionary == NULL && d->width > 0 && bits == 8 * d->width &&
           !(d->field->type == STG_ARROW_DECIMAL &&
             d->request->column->want.dtype == STAGER_FLOAT64);
}

#define WIDEN(from_type, to_type)                                                        \
    do {                                                                                 \
        const from_type *from = (const from_type *)raw;                                  \
        to_type *to = (to_type *)d->to->fixed;                                           \
        for (uint64_t i = 0; i < d->n; i++)                                              \
            to[i] = (to_type)from[i];                                                    \
    } while (0)

static void widen_unsigned(struct decoding *d, const char *raw, unsigned bytes)
{
    if (bytes == 1 && d->width == 2)
        WIDEN(uint8_t, uint16_t);
    else if (bytes == 1 && d->width == 4)
        WIDEN(uint8_t, uint32_t);
    else if (bytes == 1)
        WIDEN(uint8_t, uint64_t);
    else if (bytes == 2 && d->width == 4)
        WIDEN(uint16_t, uint32_t);
    else if (bytes == 2)
        WIDEN(uint16_t, uint64_t);
    else
        WIDEN(uint32_t, uint64_t);
}

static void widen_signed(struct decoding *d, const char *raw, unsigned bytes)
{
    if (bytes == 1 && d->width == 2)
        WIDEN(int8_t, int16_t);
    else if (bytes == 1 && d->width == 4)
        WIDEN(int8_t, int32_t);
    else if (bytes == 1)
        WIDEN(int8_t, int64_t);
    else if (bytes == 2 && d->width == 4)
        WIDEN(int16_t, int32_t);
    else if (bytes == 2)
        WIDEN(int16_t, int64_t);
    else
        WIDEN(int32_t, int64_t);
}

static void unpack_bits(struct decoding *d, const char *raw)
{
    for (uint64_t i = 0; i < d->n; i++)
        d->to->fixed[i] = bit_at(raw, d->first % 8 + i);
}

/* A number of a decimal, which has 32, 64 or 128 bits. */
static wide_int decimal_at(const char *raw, uint64_t i, unsigned bytes)
{
    wide_int wide;
    int64_t middle;
    int32_t narrow;
    switch (bytes) {
    case 16: memcpy(&wide, raw + 16 * i, sizeof(wide)); return wide;
    case 8: memcpy(&middle, raw + 8 * i, sizeof(middle)); return middle;
    default: memcpy(&narrow, raw + 4 * i, sizeof(narrow)); return narrow;
    }
}

/* Returns 10 to the power of n, as near as a double can be. */
static double power_of_ten(int n)
{
    double ret = 1;
    for (int i = 0; i < n && i < 400; i++)
        ret *= 10;
    return ret;
}

static void scale_decimals(struct decoding *d, const char *raw, unsigned bytes)
{
    int scale = d->field->scale;
    double power = power_of_ten(scale < 0 ? -scale : scale);
    double *to = (double *)d->to->fixed;
    for (uint64_t i = 0; i < d->n; i++) {
        double value = (double)decimal_at(raw, i, bytes);
        to[i] = scale < 0 ? value * power : value / power;
    }
}

static void take_decimals(struct decoding *d, const char *raw, unsigned bytes)
{
    int64_t *to = (int64_t *)d->to->fixed;
    if (d->request->column->want.dtype == STAGER_FLOAT64) {
        scale_decimals(d, raw, bytes);
        return;
    }
    for (uint64_t i = 0; i < d->n; i++) {
        wide_int value = decimal_at(raw, i, bytes);
        to[i] = (int64_t)value;
        if (to[i] != value && d->state[i] == STG_ARROW_GOOD) {
            d->state[i] = STG_ARROW_TOO_LARGE;
            d->has_state = true;
        }
    }
}

static void convert(struct decoding *d, const char *raw)
{
    unsigned bytes = (unsigned)(stg_arrow_value_bits(d->field) / 8);
    switch (d->field->type) {
    case STG_ARROW_BOOL: unpack_bits(d, raw); break;
    case STG_ARROW_FLOAT: WIDEN(float, double); break;
    case STG_ARROW_DECIMAL: take_decimals(d, raw, bytes); break;
    case STG_ARROW_INT:
        if (!d->field->is_signed) {
            widen_unsigned(d, raw, bytes);
            break;
        }
        widen_signed(d, raw, bytes);
        break;
    default: widen_signed(d, raw, bytes);
    }
}

static bool needs_state(const struct decoding *d)
{
    return d->request->inputs->part.n_validities > 0 || d->request->dictionary != NULL ||
           d->field->type == STG_ARROW_DECIMAL;
}

static int decode_direct(struct decoding *d, struct stg_err *err)
{
    const struct stg_arrow_request *request = d->request;
    struct stg_arrow_input *data = &request->inputs->data;
    int rc = take_values(d, true, needs_state(d), err);
    if (rc == 0)
        rc = read_validities(d, err);
    if (rc == 0)
        rc = stg_arrow_input_read(request->reading, data, d->first * d->width,
                                  d->n * d->width, 0, &d->to->data, &d->to->fixed, err);
    if (rc == 0 && data->is_decompressed) {
        drop_data(d->to);
        d->to->data = stg_chunk_ref(data->plain);
    }
    return rc;
}

static int decode_converted(struct decoding *d, struct stg_err *err)
{
    const struct stg_arrow_request *request = d->request;
    uint64_t bits = stg_arrow_value_bits(d->field), first = d->first * bits / 8;
    uint64_t end = ((d->first + d->n) * bits + 7) / 8;
    char *raw;
    drop_data(d->to);
    int rc = take_values(d, false, needs_state(d), err);
    if (rc == 0)
        rc = read_validities(d, err);
    if (rc == 0)
        rc = stg_arrow_input_read(request->reading, &request->inputs->data, first,
                                  end - first, 0, &request->reading->raw, &raw, err);
    if (rc == 0)
        convert(d, raw);
    return rc;
}

/* ---- strings ---- */

static int64_t offset_at(const char *raw, uint64_t i, unsigned bytes)
{
    int64_t wide;
    int32_t narrow;
    if (bytes == 8) {
        memcpy(&wide, raw + 8 * i, sizeof(wide));
        return wide;
    }
    memcpy(&narrow, raw + 4 * i, sizeof(narrow));
    return narrow;
}

/* Sets the places of strings, up to the first one whose offsets are not valid, or to as
 * many bytes as are read at once. Returns how many. */
static uint64_t take_offsets(struct decoding *d, const char *raw, uint64_t data_bytes)
{
    unsigned bytes = stg_arrow_offset_bytes(d->field);
    int64_t first = offset_at(raw, 0, bytes), begin = first;
    uint64_t i = 0;
    if (first < 0)
        return 0;
    for (; i < d->n; i++) {
        int64_t end = offset_at(raw, i + 1, bytes);
        if (end < begin || (uint64_t)end > data_bytes)
            break;
        if (i > 0 && !d->request->is_whole && (uint64_t)(end - first) > AT_ONCE)
            break;
        d->to->begin[i] = begin;
        d->to->end[i] = begin = end;
    }
    return i;
}

/* Reads the bytes of the strings, and puts the default behind them. */
static int read_strings(struct decoding *d, struct stg_err *err)
{
    const struct stg_arrow_request *request = d->request;
    const struct stg_arrow_column *column = request->column;
    struct stg_arrow_input *data = &request->inputs->data;
    struct stg_arrow_values *to = d->to;
    int64_t first = to->begin[0];
    uint64_t bytes = (uint64_t)(to->end[d->n - 1] - first);
    bool is_old = data->is_decompressed;
    int rc = stg_arrow_input_read(request->reading, data, (uint64_t)first, bytes,
                                  column->text_bytes, &to->data, &to->base, err);
    if (rc < 0)
        return rc;
    to->base_bytes = bytes;
    if (data->is_decompressed) {
        drop_data(to);
        to->data = stg_chunk_ref(data->plain);
        to->base = data->plain->data;
        to->base_bytes = data->bytes;
        first = 0;
    }
    for (uint64_t i = 0; first != 0 && i < d->n; i++) {
        to->begin[i] -= first;
        to->end[i] -= first;
    }
    if (column->text_bytes > 0 && !is_old)
        memcpy(to->base + to->base_bytes, column->text, column->text_bytes);
    return 0;
}

/* A row whose offsets are not valid: no string. */
static int make_bad(struct decoding *d, struct stg_err *err)
{
    d->n = 1;
    d->to->begin[0] = d->to->end[0] = 0;
    d->state[0] = STG_ARROW_BAD_OFFSET;
    d->has_state = true;
    return read_strings(d, err);
}

static int decode_strings(struct decoding *d, struct stg_err *err)
{
    const struct stg_arrow_request *request = d->request;
    struct stg_arrow_reading *reading = request->reading;
    struct stg_arrow_inputs *inputs = request->inputs;
    uint64_t width = stg_arrow_offset_bytes(d->field);
    char *raw;
    int rc = take_values(d, false, true, err);
    if (rc == 0)
        rc = stg_arrow_input_begin(reading, &inputs->data, err);
    if (rc == 0)
        rc = stg_arrow_input_read(reading, &inputs->offsets, d->first * width,
                                  (d->n + 1) * width, 0, &reading->raw, &raw, err);
    if (rc < 0)
        return rc;
    uint64_t n = take_offsets(d, raw, inputs->data.bytes);
    d->n = n == d->n || !request->is_whole ? n : 0;
    if (request->is_whole && d->n == 0)
        return 0;
    if (n == 0)
        return make_bad(d, err);
    rc = read_validities(d, err);
    return rc == 0 ? read_strings(d, err) : rc;
}

static int decode_fixed_strings(struct decoding *d, struct stg_err *err)
{
    int64_t size = d->field->size;
    int rc = take_values(d, false, true, err);
    if (rc == 0)
        rc = read_validities(d, err);
    for (uint64_t i = 0; rc == 0 && i < d->n; i++) {
        d->to->begin[i] = (int64_t)(d->first + i) * size;
        d->to->end[i] = d->to->begin[i] + size;
    }
    return rc == 0 ? read_strings(d, err) : rc;
}

/* ---- dictionaries ---- */

static uint64_t index_at(const struct decoding *d, const char *raw, uint64_t i)
{
    uint64_t wide = 0;
    switch (d->field->index_bits) {
    case 8: return (uint8_t)raw[i];
    case 16: return ((const uint16_t *)raw)[i];
    case 32: return ((const uint32_t *)raw)[i];
    default: memcpy(&wide, raw + 8 * i, sizeof(wide)); return wide;
    }
}

/* Value i is value `index` of the dictionary. A negative index is a large one here. */
static void take_index(struct decoding *d, uint64_t i, uint64_t index)
{
    const struct stg_arrow_values *from = d->request->dictionary;
    struct stg_arrow_values *to = d->to;
    if (d->state[i] != STG_ARROW_GOOD)
        return;
    if (index >= from->n)
        d->state[i] = STG_ARROW_BAD_INDEX;
    else if (from->state != NULL)
        d->state[i] = from->state[index];
    if (d->state[i] != STG_ARROW_GOOD) {
        d->has_state = true;
    } else if (d->width == 8) {
        ((uint64_t *)to->fixed)[i] = ((const uint64_t *)from->fixed)[index];
    } else if (d->width == 4) {
        ((uint32_t *)to->fixed)[i] = ((const uint32_t *)from->fixed)[index];
    } else if (d->width > 0) {
        memcpy(to->fixed + i * d->width, from->fixed + index * d->width, d->width);
    } else {
        to->begin[i] = from->begin[index];
        to->end[i] = from->end[index];
    }
}

static int decode_indices(struct decoding *d, struct stg_err *err)
{
    const struct stg_arrow_request *request = d->request;
    const struct stg_arrow_values *dictionary = request->dictionary;
    uint64_t bytes = (uint64_t)d->field->index_bits / 8;
    char *raw;
    drop_data(d->to);
    int rc = take_values(d, false, true, err);
    if (rc == 0)
        rc = read_validities(d, err);
    if (rc == 0)
        rc = stg_arrow_input_read(request->reading, &request->inputs->data,
                                  d->first * bytes, d->n * bytes, 0,
                                  &request->reading->raw, &raw, err);
    if (rc < 0)
        return rc;
    d->to->base = dictionary->base;
    d->to->base_bytes = dictionary->base_bytes;
    if (d->width == 0 && dictionary->data != NULL)
        d->to->data = stg_chunk_ref(dictionary->data);
    for (uint64_t i = 0; i < d->n; i++)
        take_index(d, i, index_at(d, raw, i));
    return 0;
}

/* ---- all of them null ---- */

static int decode_nulls(struct decoding *d, struct stg_err *err)
{
    const struct stg_arrow_column *column = d->request->column;
    struct stg_arrow_values *to = d->to;
    int rc = take_values(d, false, true, err);
    if (rc == 0)
        rc = stg_arrow_room(d->request->reading->quota, column->text_bytes, &to->data,
                            err);
    if (rc < 0)
        return rc;
    to->base = to->data->data;
    to->base_bytes = 0;
    if (column->text_bytes > 0)
        memcpy(to->base, column->text, column->text_bytes);
    memset(d->state, STG_ARROW_IS_NULL, d->n);
    d->has_state = true;
    return 0;
}

/* ---- rows ---- */

static int decode(struct decoding *d, struct stg_err *err)
{
    if (d->field->has_dictionary)
        return decode_indices(d, err);
    if (d->field->type == STG_ARROW_NULL)
        return decode_nulls(d, err);
    if (d->field->type == STG_ARROW_FIXED_BINARY)
        return decode_fixed_strings(d, err);
    if (d->width == 0)
        return decode_strings(d, err);
    return is_direct(d) ? decode_direct(d, err) : decode_converted(d, err);
}

static struct decoding begin(const struct stg_arrow_request *request,
                             struct stg_arrow_values *values)
{
    values->base = NULL;
    values->base_bytes = 0;
    return (struct decoding){.request = request,
                             .field = &request->leaf->field,
                             .to = values,
                             .first = request->first,
                             .n = request->n,
                             .width = is_string(request->column)
                                          ? 0
                                          : stg_dtype_bytes(request->column->want.dtype)};
}

int stg_arrow_decode(const struct stg_arrow_request *request,
                     struct stg_arrow_values *values, struct stg_err *err)
{
    struct decoding d = begin(request, values);
    int rc = decode(&d, err);
    if (rc < 0)
        return rc;
    fill_nulls(&d);
    values->n = d.n;
    values->state = d.has_state ? d.state : NULL;
    return 0;
}

int stg_arrow_fill(struct stg_arrow_reading *reading,
                   const struct stg_arrow_column *column, uint64_t n,
                   struct stg_arrow_values *values, struct stg_err *err)
{
    static const struct stg_arrow_leaf leaf = {.field = {.type = STG_ARROW_NULL}};
    struct stg_arrow_request request = {
        .reading = reading, .column = column, .leaf = &leaf, .n = n};
    return stg_arrow_decode(&request, values, err);
}

/* ---- values in another order ---- */

static void pick_one(struct decoding *d, uint64_t i, const struct stg_arrow_values *from,
                     int64_t index)
{
    struct stg_arrow_values *to = d->to;
    if (index < 0) {
        fill_null(d, i);
        return;
    }
    if (d->width > 0) {
        memcpy(to->fixed + i * d->width, from->fixed + (uint64_t)index * d->width,
               d->width);
    } else {
        to->begin[i] = from->begin[index];
        to->end[i] = from->end[index];
    }
    d->state[i] = from->state != NULL ? from->state[index] : STG_ARROW_GOOD;
}

int stg_arrow_values_pick(struct stg_arrow_reading *reading,
                          const struct stg_arrow_column *column,
                          struct stg_arrow_values *values, const int64_t *index,
                          uint64_t n, struct stg_err *err)
{
    static const struct stg_arrow_leaf leaf;
    struct stg_arrow_request request = {
        .reading = reading, .column = column, .leaf = &leaf, .n = n};
    struct stg_arrow_values picked = {.n = n};
    struct decoding d = begin(&request, &picked);
    int rc = take_values(&d, false, true, err);
    if (rc < 0) {
        stg_arrow_values_finish(&picked);
        return rc;
    }
    picked.state = d.state;
    picked.base = values->base;
    picked.base_bytes = values->base_bytes;
    for (uint64_t i = 0; i < n; i++)
        pick_one(&d, i, values, index[i]);
    if (d.width == 0 && values->data != NULL)
        picked.data = stg_chunk_ref(values->data);
    stg_arrow_values_finish(values);
    *values = picked;
    return 0;
}

/* ---- dictionaries that grow ---- */

/* With the default behind them, which nulls show. */
static void append_strings(struct stg_arrow_values *both, uint64_t at,
                           const struct stg_arrow_values *from, uint64_t text_bytes)
{
    int64_t shift = (int64_t)both->base_bytes;
    memcpy(both->base + shift, from->base, from->base_bytes + text_bytes);
    for (uint64_t i = 0; i < from->n; i++) {
        both->begin[at + i] = from->begin[i] + shift;
        both->end[at + i] = from->end[i] + shift;
    }
    both->base_bytes += from->base_bytes + text_bytes;
}

static void append(struct stg_arrow_values *both, uint64_t at,
                   const struct stg_arrow_values *from, unsigned width,
                   uint64_t text_bytes)
{
    if (from->n == 0)
        return;
    if (width > 0)
        memcpy(both->fixed + at * width, from->fixed, from->n * width);
    else
        append_strings(both, at, from, text_bytes);
    if (from->state != NULL)
        memcpy(both->state + at, from->state, from->n);
}

int stg_arrow_values_append(struct stg_arrow_reading *reading,
                            const struct stg_arrow_column *column,
                            struct stg_arrow_values *to,
                            const struct stg_arrow_values *more, struct stg_err *err)
{
    static const struct stg_arrow_leaf leaf;
    struct stg_arrow_request request = {
        .reading = reading, .column = column, .leaf = &leaf, .n = to->n + more->n};
    struct stg_arrow_values both = {0};
    struct decoding d = begin(&request, &both);
    int rc = take_values(&d, false, true, err);
    if (rc == 0 && d.width == 0)
        rc = stg_arrow_room(reading->quota,
                            to->base_bytes + more->base_bytes + 3 * column->text_bytes,
                            &both.data, err);
    if (rc < 0) {
        stg_arrow_values_finish(&both);
        return rc;
    }
    both.state = d.state;
    if (both.data != NULL)
        both.base = both.data->data;
    append(&both, 0, to, d.width, column->text_bytes);
    append(&both, to->n, more, d.width, column->text_bytes);
    if (column->text_bytes > 0 && both.data != NULL)
        memcpy(both.base + both.base_bytes, column->text, column->text_bytes);
    both.n = to->n + more->n;
    stg_arrow_values_finish(to);
    *to = both;
    return 0;
}
