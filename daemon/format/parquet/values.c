/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/format/parquet/values.h"

#include <string.h>

#include "daemon/format/parquet/page_header.h"

#define AT_ONCE 1024 /* levels or indices in hand */
#define LEVEL_LENGTH_BYTES 4
#define DELTA_BYTES sizeof(int64_t)
#define NS_PER_DAY (UINT64_C(86400) * 1000000000)
#define JULIAN_EPOCH UINT64_C(2440588) /* 1970-01-01 */

/* A page while it is decoded. */
struct decoding {
    const struct stg_parquet_page *page;
    struct stg_parquet_values *to;
    struct stg_parquet_bytes bytes; /* that are left */
    uint64_t n_present;             /* values that are not null */
    bool is_string;
    unsigned width, file_width; /* bytes of a value here and in the file */
    char *fixed;
    uint32_t *codes;
    uint8_t *valid; /* NULL: all values are there */
};

static int damaged(struct stg_err *err, const char *what)
{
    return stg_err(err, -STAGER_DATA_LOSS, "its data is damaged: %s", what);
}

void stg_parquet_values_finish(struct stg_parquet_values *values)
{
    stg_chunk_unref(values->data);
    stg_chunk_unref(values->values);
    *values = (struct stg_parquet_values){0};
}

/* ---- memory ---- */

int stg_parquet_room(struct stg_quota *quota, uint64_t bytes, struct stg_chunk **chunk,
                     struct stg_err *err)
{
    return stg_chunk_renew(quota, bytes, "a page", chunk, err);
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

static uint64_t slot_bytes(const struct decoding *d)
{
    uint64_t bytes = d->width > d->file_width ? d->width : d->file_width;
    bool is_delta = d->page->encoding == STG_PARQUET_DELTA_BINARY_PACKED;
    return is_delta && bytes < DELTA_BYTES ? DELTA_BYTES : bytes;
}

static int take_codes(struct decoding *d, bool has_nulls, struct stg_err *err)
{
    uint64_t n = d->page->n, codes = room_of(n * sizeof(*d->codes));
    int rc = stg_parquet_room(d->page->quota, codes + (has_nulls ? n : 0), &d->to->values,
                              err);
    if (rc < 0)
        return rc;
    d->codes = (uint32_t *)d->to->values->data;
    d->to->codes = (int32_t *)d->codes;
    d->valid = has_nulls ? (uint8_t *)d->to->values->data + codes : NULL;
    return 0;
}

/* Memory for the values and, where some are null, for which; of strings, for one more.
 * *ret_suffix: for strings with prefixes. */
static int take_values(struct decoding *d, bool has_nulls, int64_t **ret_suffix,
                       struct stg_err *err)
{
    if (d->page->coded != NULL)
        return take_codes(d, has_nulls, err);
    bool has_prefixes = d->page->encoding == STG_PARQUET_DELTA_BYTE_ARRAY;
    bool has_strings = d->is_string || has_prefixes;
    uint64_t n = d->page->n, array = room_of((n + 1) * sizeof(int64_t));
    uint64_t fixed = d->is_string ? 0 : room_of(n * slot_bytes(d));
    uint64_t bytes = fixed + (has_strings ? 2 * array : 0) + (has_prefixes ? array : 0) +
                     (has_nulls ? n : 0);
    int rc = stg_parquet_room(d->page->quota, bytes, &d->to->values, err);
    if (rc < 0)
        return rc;
    char *at = d->to->values->data;
    if (!d->is_string)
        d->to->fixed = d->fixed = carve(&at, fixed);
    if (has_strings) {
        d->to->begin = (int64_t *)carve(&at, array);
        d->to->end = (int64_t *)carve(&at, array);
    }
    if (has_prefixes)
        *ret_suffix = (int64_t *)carve(&at, array);
    d->valid = has_nulls ? (uint8_t *)at : NULL;
    return 0;
}

/* ---- levels ---- */

static unsigned bits_of(unsigned max_level)
{
    unsigned bits = 0;
    while (max_level >> bits != 0)
        bits++;
    return bits;
}

uint64_t stg_parquet_level_bytes(uint64_t n, unsigned max_level)
{
    uint64_t bytes = LEVEL_LENGTH_BYTES + (bits_of(max_level) + 7) / 8;
    for (uint64_t head = n << 1; head > 0; head >>= 7)
        bytes++;
    return max_level > 0 ? bytes : 0;
}

/* Returns whether runs say at once that all values are there, and takes them if so. */
static bool are_all_there(struct stg_parquet_runs *runs, uint64_t n, unsigned max_level)
{
    struct stg_parquet_runs rest = *runs;
    uint32_t level;
    while (n > 0) {
        uint64_t now = stg_parquet_runs_take(&rest, n, &level);
        if (now == 0 || level != max_level)
            return false;
        n -= now;
    }
    *runs = rest;
    return true;
}

int stg_parquet_begin_levels(struct stg_parquet_runs *levels,
                             struct stg_parquet_bytes bytes, unsigned max_level,
                             struct stg_err *err)
{
    return stg_parquet_runs_init(levels, bytes, bits_of(max_level))
               ? 0
               : damaged(err, "its levels have more than 32 bits");
}

/* Sets n_present, and valid unless that is NULL. */
static int read_levels(struct decoding *d, struct stg_err *err)
{
    uint32_t levels[AT_ONCE];
    unsigned max_level = d->page->leaf->max_level;
    uint64_t n_present = 0;
    if (max_level == 1 && d->valid != NULL)
        return stg_parquet_runs_read_bits(d->page->levels, d->valid, d->page->n,
                                          &d->n_present)
                   ? 0
                   : damaged(err, "its levels end early");
    for (uint64_t done = 0; done < d->page->n;) {
        uint64_t left = d->page->n - done, now = left < AT_ONCE ? left : AT_ONCE;
        if (!stg_parquet_runs_read(d->page->levels, levels, now))
            return damaged(err, "its levels end early");
        uint32_t most = 0;
        for (uint64_t i = 0; i < now; i++) {
            most = levels[i] > most ? levels[i] : most;
            n_present += levels[i] == max_level;
        }
        for (uint64_t i = 0; d->valid != NULL && i < now; i++)
            d->valid[done + i] = levels[i] == max_level;
        if (most > max_level)
            return damaged(err, "a level is out of range");
        done += now;
    }
    d->n_present = n_present;
    return 0;
}

static int copy_valid(struct decoding *d)
{
    memcpy(d->valid, d->page->valid, d->page->n);
    d->n_present = d->page->n_valid;
    return 0;
}

/* ---- numbers ---- */

static void read_indices(struct decoding *d, const uint32_t *index, uint64_t n,
                         uint64_t first)
{
    const char *from = d->page->dictionary->fixed;
    switch (d->width) {
    case 8:
        for (uint64_t i = 0; i < n; i++)
            ((uint64_t *)d->fixed)[first + i] = ((const uint64_t *)from)[index[i]];
        break;
    case 4:
        for (uint64_t i = 0; i < n; i++)
            ((uint32_t *)d->fixed)[first + i] = ((const uint32_t *)from)[index[i]];
        break;
    default:
        for (uint64_t i = 0; i < n; i++)
            memcpy(d->fixed + (first + i) * d->width, from + index[i] * d->width,
                   d->width);
    }
}

static void read_string_indices(struct decoding *d, const uint32_t *index, uint64_t n,
                                uint64_t first)
{
    const struct stg_parquet_values *from = d->page->dictionary;
    for (uint64_t i = 0; i < n; i++) {
        d->to->begin[first + i] = from->begin[index[i]];
        d->to->end[first + i] = from->end[index[i]];
    }
}

#define CHECKED_AT_ONCE 64

/* A dictionary has fewer than 2^31 entries: an index below has no top bit, and
 * its difference to their number has one. Blocks of a fixed size become vector
 * code. */
static bool are_below(const uint32_t *index, uint64_t n, uint64_t n_entries)
{
    uint32_t end = n_entries < INT32_MAX ? (uint32_t)n_entries : INT32_MAX;
    uint32_t all = UINT32_MAX;
    uint64_t i = 0;
    for (; i + CHECKED_AT_ONCE <= n; i += CHECKED_AT_ONCE) {
        for (unsigned k = 0; k < CHECKED_AT_ONCE; k++)
            all &= (index[i + k] - end) & ~index[i + k];
    }
    for (; i < n; i++)
        all &= (index[i] - end) & ~index[i];
    return all >> 31 != 0;
}

/* The next n indices, each of which the dictionary has. */
static int next_indices(const struct stg_parquet_page *page, uint64_t n, uint32_t *to,
                        struct stg_err *err)
{
    if (!stg_parquet_runs_read(page->indices, to, n))
        return damaged(err, "its indices end early");
    return are_below(to, n, page->dictionary->n)
               ? 0
               : damaged(err, "an index is out of the range of its dictionary");
}

static int read_dictionary(struct decoding *d, struct stg_err *err)
{
    uint32_t index[AT_ONCE];
    if (d->codes != NULL)
        return next_indices(d->page, d->n_present, d->codes, err);
    for (uint64_t done = 0; done < d->n_present;) {
        uint64_t left = d->n_present - done, now = left < AT_ONCE ? left : AT_ONCE;
        int rc = next_indices(d->page, now, index, err);
        if (rc < 0)
            return rc;
        if (d->is_string)
            read_string_indices(d, index, now, done);
        else
            read_indices(d, index, now, done);
        done += now;
    }
    return 0;
}

int stg_parquet_begin_indices(struct stg_parquet_runs *indices,
                              struct stg_parquet_bytes bytes, struct stg_err *err)
{
    unsigned width = bytes.at < bytes.end ? *bytes.at++ : 0;
    return stg_parquet_runs_init(indices, bytes, width)
               ? 0
               : damaged(err, "its indices have more than 32 bits");
}

int stg_parquet_pass(const struct stg_parquet_page *page, struct stg_err *err)
{
    struct decoding d = {.page = page, .n_present = page->n};
    uint32_t index[AT_ONCE];
    int rc = page->levels != NULL ? read_levels(&d, err) : 0;
    while (rc == 0 && d.n_present > 0) {
        uint64_t now = d.n_present < AT_ONCE ? d.n_present : AT_ONCE;
        rc = next_indices(page, now, index, err);
        d.n_present -= now;
    }
    return rc;
}

static bool read_plain(struct decoding *d)
{
    uint64_t bytes = d->n_present * d->file_width;
    if (d->page->leaf->type == STG_PARQUET_BOOLEAN)
        return stg_parquet_bits(&d->bytes, (uint8_t *)d->fixed, d->n_present);
    if (bytes > stg_parquet_left(&d->bytes))
        return false;
    if (bytes > 0)
        memcpy(d->fixed, d->bytes.at, bytes);
    return true;
}

/* Booleans: runs of one bit, behind their length. */
static bool read_runs(struct decoding *d)
{
    struct stg_parquet_runs runs;
    uint32_t values[AT_ONCE], length;
    if (d->n_present == 0)
        return true;
    if (stg_parquet_left(&d->bytes) < sizeof(length))
        return false;
    memcpy(&length, d->bytes.at, sizeof(length));
    d->bytes.at += sizeof(length);
    if (length > stg_parquet_left(&d->bytes))
        return false;
    stg_parquet_runs_init(
        &runs, (struct stg_parquet_bytes){d->bytes.at, d->bytes.at + length}, 1);
    for (uint64_t done = 0; done < d->n_present;) {
        uint64_t left = d->n_present - done, now = left < AT_ONCE ? left : AT_ONCE;
        if (!stg_parquet_runs_read(&runs, values, now))
            return false;
        for (uint64_t i = 0; i < now; i++)
            d->fixed[done + i] = (char)values[i];
        done += now;
    }
    return true;
}

static bool read_delta(struct decoding *d)
{
    int64_t *values = (int64_t *)d->fixed;
    if (d->n_present == 0)
        return true;
    if (!stg_parquet_delta(&d->bytes, values, d->n_present))
        return false;
    for (uint64_t i = 0; d->file_width == sizeof(int32_t) && i < d->n_present; i++) {
        int32_t value = (int32_t)values[i];
        memcpy(d->fixed + i * sizeof(value), &value, sizeof(value));
    }
    return true;
}

/* ---- other widths ---- */

static void narrow(struct decoding *d)
{
    for (uint64_t i = 0; i < d->n_present; i++)
        memmove(d->fixed + i * d->width, d->fixed + i * d->file_width, d->width);
}

static void widen_floats(struct decoding *d)
{
    for (uint64_t i = d->n_present; i-- > 0;) {
        float from;
        memcpy(&from, d->fixed + i * sizeof(from), sizeof(from));
        double value = from;
        memcpy(d->fixed + i * sizeof(value), &value, sizeof(value));
    }
}

static void widen_integers(struct decoding *d)
{
    bool is_unsigned = d->page->leaf->is_unsigned;
    for (uint64_t i = d->n_present; i-- > 0;) {
        int32_t from;
        memcpy(&from, d->fixed + i * sizeof(from), sizeof(from));
        int64_t value = is_unsigned ? (int64_t)(uint32_t)from : from;
        memcpy(d->fixed + i * sizeof(value), &value, sizeof(value));
    }
}

/* INT96: nanoseconds of a day, then the number of the day. */
static void make_times(struct decoding *d)
{
    for (uint64_t i = 0; i < d->n_present; i++) {
        uint64_t ns;
        uint32_t day;
        memcpy(&ns, d->fixed + i * d->file_width, sizeof(ns));
        memcpy(&day, d->fixed + i * d->file_width + sizeof(ns), sizeof(day));
        ns += (day - JULIAN_EPOCH) * NS_PER_DAY;
        memcpy(d->fixed + i * sizeof(ns), &ns, sizeof(ns));
    }
}

static void convert(struct decoding *d)
{
    int type = d->page->leaf->type;
    if (type == STG_PARQUET_INT96)
        make_times(d);
    else if (d->width < d->file_width)
        narrow(d);
    else if (d->width > d->file_width && type == STG_PARQUET_FLOAT)
        widen_floats(d);
    else if (d->width > d->file_width)
        widen_integers(d);
}

/* ---- strings ---- */

static bool read_fixed_strings(struct decoding *d)
{
    uint64_t bytes = d->file_width;
    if (d->n_present > stg_parquet_left(&d->bytes) / bytes)
        return false;
    int64_t first = (const char *)d->bytes.at - d->to->base;
    for (uint64_t i = 0; i < d->n_present; i++) {
        d->to->begin[i] = first + (int64_t)(i * bytes);
        d->to->end[i] = d->to->begin[i] + (int64_t)bytes;
    }
    return true;
}

/* Strings lie in the first bytes of d->to->data, and the default behind them. */
static void set_base(struct decoding *d, uint64_t bytes)
{
    char *base = d->to->data->data;
    d->to->base = base;
    d->to->base_bytes = bytes;
    if (d->page->column->text_bytes > 0)
        memcpy(base + bytes, d->page->column->text, d->page->column->text_bytes);
}

/* The values lie in other memory than the page from now on. */
static int move_data(struct decoding *d, uint64_t bytes, char **ret, struct stg_err *err)
{
    struct stg_chunk *chunk = NULL;
    uint64_t spare = d->page->column->text_bytes;
    if (bytes > UINT64_MAX / 2)
        return damaged(err, "its strings are too long");
    int rc = stg_parquet_room(d->page->quota, bytes + spare, &chunk, err);
    if (rc < 0)
        return rc;
    stg_chunk_unref(d->to->data);
    d->to->data = chunk;
    *ret = chunk->data;
    set_base(d, bytes);
    return 0;
}

static int read_split_strings(struct decoding *d, struct stg_err *err)
{
    uint64_t bytes = d->n_present * d->file_width;
    struct stg_chunk *page = stg_chunk_ref(d->to->data);
    char *to;
    int rc = bytes <= stg_parquet_left(&d->bytes) ? move_data(d, bytes, &to, err)
                                                  : damaged(err, "it ends early");
    if (rc == 0) {
        stg_parquet_split(&d->bytes, (uint8_t *)to, d->n_present, d->file_width);
        d->bytes = (struct stg_parquet_bytes){(uint8_t *)to, (uint8_t *)to + bytes};
        read_fixed_strings(d);
    }
    stg_chunk_unref(page);
    return rc;
}

static int check_lengths(const struct decoding *d, struct stg_err *err)
{
    for (uint64_t i = 0; d->file_width > 0 && i < d->n_present; i++) {
        if (d->to->end[i] - d->to->begin[i] != (int64_t)d->file_width)
            return damaged(err, "a value has another length than its column");
    }
    return 0;
}

static int read_prefixed(struct decoding *d, int64_t *suffix, struct stg_err *err)
{
    struct stg_parquet_values *to = d->to;
    const char *base = to->base;
    uint64_t bytes = 0;
    char *joined;
    if (d->n_present > 0 && !stg_parquet_prefixed(&d->bytes, base, to->begin, to->end,
                                                  suffix, d->n_present, &bytes))
        return damaged(err, "its strings end early");
    struct stg_chunk *page = stg_chunk_ref(to->data);
    int rc = move_data(d, bytes, &joined, err);
    if (rc == 0) {
        stg_parquet_join(base, to->begin, to->end, suffix, d->n_present, joined);
        rc = check_lengths(d, err);
    }
    stg_chunk_unref(page);
    return rc;
}

/* ---- nulls ---- */

static void spread_strings(struct decoding *d)
{
    struct stg_parquet_values *to = d->to;
    int64_t first = (int64_t)to->base_bytes;
    int64_t behind = first + (int64_t)d->page->column->text_bytes;
    uint64_t k = d->n_present;
    for (uint64_t i = d->page->n; i-- > 0;) {
        bool is_there = d->valid[i] != 0;
        k -= is_there;
        to->begin[i] = is_there ? to->begin[k] : first;
        to->end[i] = is_there ? to->end[k] : behind;
    }
}

/* Without branches, which nulls at random places make slow. */
#define SPREAD(type, to, null)                                                           \
    do {                                                                                 \
        for (uint64_t i = d->page->n, k = d->n_present; i-- > 0;) {                      \
            type is_there = (type)(0 - (type)d->valid[i]);                               \
            k -= d->valid[i];                                                            \
            (to)[i] = ((to)[k] & is_there) | ((null) & ~is_there);                       \
        }                                                                                \
    } while (0)

static void spread_numbers(struct decoding *d)
{
    const void *value = &d->page->column->value;
    uint64_t wide = d->page->column->value;
    uint32_t narrow;
    memcpy(&narrow, value, sizeof(narrow));
    if (d->width == sizeof(uint32_t)) {
        SPREAD(uint32_t, (uint32_t *)d->fixed, narrow);
        return;
    }
    if (d->width == sizeof(uint64_t)) {
        SPREAD(uint64_t, (uint64_t *)d->fixed, wide);
        return;
    }
    uint64_t k = d->n_present;
    for (uint64_t i = d->page->n; i-- > 0;) {
        bool is_there = d->valid[i] != 0;
        k -= is_there;
        memmove(d->fixed + i * d->width, is_there ? d->fixed + k * d->width : value,
                d->width);
    }
}

/* The default is the last entry. */
static void spread_codes(struct decoding *d)
{
    uint32_t behind = (uint32_t)d->page->coded->n - 1;
    SPREAD(uint32_t, d->codes, behind);
}

/* A value for each row: a null gets the default. */
static void spread(struct decoding *d)
{
    if (d->valid == NULL)
        return;
    if (d->codes != NULL)
        spread_codes(d);
    else if (d->is_string)
        spread_strings(d);
    else
        spread_numbers(d);
    if (!d->page->column->want.may_lack)
        d->to->valid = d->valid;
}

/* ---- pages ---- */

static int is_unknown(const struct decoding *d, struct stg_err *err)
{
    return stg_err(err, -STAGER_UNIMPLEMENTED,
                   "its encoding is %d, which is not supported for values of this type",
                   d->page->encoding);
}

static int checked(bool ok, struct stg_err *err)
{
    return ok ? 0 : damaged(err, "it ends early");
}

static int decode_numbers(struct decoding *d, struct stg_err *err)
{
    int type = d->page->leaf->type;
    bool is_integer = type == STG_PARQUET_INT32 || type == STG_PARQUET_INT64;
    switch (d->page->encoding) {
    case STG_PARQUET_PLAIN: return checked(read_plain(d), err);
    case STG_PARQUET_RLE:
        return type == STG_PARQUET_BOOLEAN ? checked(read_runs(d), err)
                                           : is_unknown(d, err);
    case STG_PARQUET_DELTA_BINARY_PACKED:
        return is_integer ? checked(read_delta(d), err) : is_unknown(d, err);
    case STG_PARQUET_BYTE_STREAM_SPLIT:
        if (type == STG_PARQUET_BOOLEAN || type == STG_PARQUET_INT96)
            return is_unknown(d, err);
        return checked(stg_parquet_split(&d->bytes, (uint8_t *)d->fixed, d->n_present,
                                         d->file_width),
                       err);
    default: return is_unknown(d, err);
    }
}

static int decode_strings(struct decoding *d, int64_t *suffix, struct stg_err *err)
{
    struct stg_parquet_values *to = d->to;
    bool is_fixed = d->page->leaf->type == STG_PARQUET_FIXED_LEN_BYTE_ARRAY;
    switch (d->page->encoding) {
    case STG_PARQUET_PLAIN:
        return checked(is_fixed ? read_fixed_strings(d)
                                : stg_parquet_strings(&d->bytes, to->base, to->begin,
                                                      to->end, d->n_present),
                       err);
    case STG_PARQUET_DELTA_LENGTH_BYTE_ARRAY:
        return is_fixed
                   ? is_unknown(d, err)
                   : checked(d->n_present == 0 ||
                                 stg_parquet_delta_strings(&d->bytes, to->base, to->begin,
                                                           to->end, d->n_present),
                             err);
    case STG_PARQUET_DELTA_BYTE_ARRAY: return read_prefixed(d, suffix, err);
    case STG_PARQUET_BYTE_STREAM_SPLIT:
        return is_fixed ? read_split_strings(d, err) : is_unknown(d, err);
    default: return is_unknown(d, err);
    }
}

/* The values are in the page as they are wanted. */
static bool is_view(const struct decoding *d)
{
    const struct stg_parquet_page *page = d->page;
    return page->encoding == STG_PARQUET_PLAIN && !d->is_string && d->valid == NULL &&
           d->width == d->file_width && page->leaf->type != STG_PARQUET_BOOLEAN &&
           (uintptr_t)d->bytes.at % d->width == 0;
}

static int decode_view(struct decoding *d, struct stg_err *err)
{
    if (d->page->n > stg_parquet_left(&d->bytes) / d->width)
        return damaged(err, "it ends early");
    d->to->fixed = (const char *)d->bytes.at;
    stg_chunk_unref(d->to->values);
    d->to->values = NULL;
    return 0;
}

/* A page of strings that are numbers here: the values of FLOAT16, with prefixes. */
static int decode_joined(struct decoding *d, int64_t *suffix, struct stg_err *err)
{
    int rc = read_prefixed(d, suffix, err);
    for (uint64_t i = 0; rc == 0 && i < d->n_present; i++)
        memcpy(d->fixed + i * d->width, d->to->base + d->to->begin[i], d->width);
    return rc;
}

static unsigned file_width(const struct stg_parquet_leaf *leaf)
{
    switch (leaf->type) {
    case STG_PARQUET_BOOLEAN: return 1;
    case STG_PARQUET_INT32:
    case STG_PARQUET_FLOAT: return 4;
    case STG_PARQUET_INT64:
    case STG_PARQUET_DOUBLE: return 8;
    default: return leaf->value_bytes; /* 0: it varies */
    }
}

static void begin(struct decoding *d, const struct stg_parquet_page *page,
                  struct stg_parquet_values *values)
{
    *d = (struct decoding){.page = page, .to = values, .bytes = page->bytes};
    d->n_present = values->n = page->n;
    d->is_string = page->column->want.dtype == STAGER_STRING;
    d->width = d->is_string ? 0 : stg_dtype_bytes(page->column->want.dtype);
    d->file_width = file_width(page->leaf);
    values->valid = NULL;
    values->fixed = NULL;
    values->begin = values->end = NULL;
    values->codes = NULL;
    if (page->indices == NULL) {
        set_base(d, (uint64_t)((const char *)page->bytes.end - values->data->data));
        return;
    }
    values->base = page->dictionary->base;
    values->base_bytes = page->dictionary->base_bytes;
}

static int decode(struct decoding *d, int64_t *suffix, struct stg_err *err)
{
    const struct stg_parquet_page *page = d->page;
    int rc;
    if (page->indices != NULL) {
        rc = read_dictionary(d, err);
    } else if (d->is_string) {
        rc = decode_strings(d, suffix, err);
    } else if (page->encoding == STG_PARQUET_DELTA_BYTE_ARRAY && page->leaf->is_float16) {
        rc = decode_joined(d, suffix, err);
    } else {
        rc = decode_numbers(d, err);
        if (rc == 0)
            convert(d);
    }
    if (rc == 0)
        spread(d);
    return rc;
}

int stg_parquet_decode(const struct stg_parquet_page *page,
                       struct stg_parquet_values *values, struct stg_err *err)
{
    struct decoding d;
    int64_t *suffix = NULL;
    begin(&d, page, values);
    bool has_nulls = page->valid != NULL
                         ? page->n_valid < page->n
                         : page->levels != NULL && !are_all_there(page->levels, page->n,
                                                                  page->leaf->max_level);
    if (!has_nulls && is_view(&d))
        return decode_view(&d, err);
    int rc = take_values(&d, has_nulls, &suffix, err);
    if (rc == 0 && has_nulls)
        rc = page->valid != NULL ? copy_valid(&d) : read_levels(&d, err);
    return rc == 0 ? decode(&d, suffix, err) : rc;
}

int stg_parquet_fill(const struct stg_parquet_column *column, uint64_t n,
                     struct stg_quota *quota, struct stg_parquet_values *values,
                     struct stg_err *err)
{
    static const struct stg_parquet_leaf leaf = {.type = STG_PARQUET_BYTE_ARRAY};
    struct stg_parquet_page page = {
        .column = column, .leaf = &leaf, .n = n, .quota = quota};
    int64_t *suffix;
    struct decoding d;
    int rc = stg_parquet_room(quota, column->text_bytes, &values->data, err);
    if (rc < 0)
        return rc;
    page.bytes.at = page.bytes.end = (const uint8_t *)values->data->data;
    begin(&d, &page, values);
    rc = take_values(&d, true, &suffix, err);
    if (rc < 0)
        return rc;
    memset(d.valid, 0, n);
    d.n_present = 0;
    spread(&d);
    return 0;
}
