/* SPDX-License-Identifier: Apache-2.0 */
#include "core/npy_header.h"

#include <string.h>

#define MAGIC "\x93NUMPY"
#define MAGIC_BYTES 6

static uint64_t little(const char *at, int n)
{
    uint64_t v = 0;
    while (n-- > 0)
        v = v << 8 | (uint8_t)at[n];
    return v;
}

/* Bytes before the text: magic, version, length of the text. */
static uint64_t prefix_bytes(const char *at)
{
    return at[MAGIC_BYTES] == 1 ? MAGIC_BYTES + 4 : MAGIC_BYTES + 6;
}

uint64_t stg_npy_header_bytes(const char *at, uint64_t n)
{
    if (memcmp(at, MAGIC, n < MAGIC_BYTES ? n : MAGIC_BYTES) != 0)
        return 0;
    if (n < MAGIC_BYTES + 2)
        return MAGIC_BYTES + 2;
    if (at[MAGIC_BYTES] < 1 || at[MAGIC_BYTES] > 3 || at[MAGIC_BYTES + 1] != 0)
        return 0;
    uint64_t prefix = prefix_bytes(at);
    if (n < prefix)
        return prefix;
    return prefix + little(at + MAGIC_BYTES + 2, (int)prefix - MAGIC_BYTES - 2);
}

/* ---- the text: a Python dictionary of three entries ---- */

struct text {
    const char *at, *end;
};

static void skip_spaces(struct text *text)
{
    while (text->at < text->end &&
           (*text->at == ' ' || *text->at == '\n' || *text->at == '\t'))
        text->at++;
}

static bool take(struct text *text, char c)
{
    skip_spaces(text);
    if (text->at == text->end || *text->at != c)
        return false;
    text->at++;
    return true;
}

static bool take_word(struct text *text, const char *word)
{
    size_t n = strlen(word);
    skip_spaces(text);
    if ((size_t)(text->end - text->at) < n || memcmp(text->at, word, n) != 0)
        return false;
    text->at += n;
    return true;
}

/* What stands between quotes, up to n - 1 bytes of it. */
static bool take_string(struct text *text, char *ret, size_t n)
{
    skip_spaces(text);
    if (text->at == text->end || (*text->at != '\'' && *text->at != '"'))
        return false;
    const char *begin = text->at + 1;
    const char *end = memchr(begin, *text->at, (size_t)(text->end - begin));
    if (end == NULL || (size_t)(end - begin) >= n)
        return false;
    memcpy(ret, begin, (size_t)(end - begin));
    ret[end - begin] = '\0';
    text->at = end + 1;
    return true;
}

static bool take_number(struct text *text, int64_t *ret)
{
    int64_t value = 0;
    skip_spaces(text);
    const char *begin = text->at;
    for (; text->at < text->end && *text->at >= '0' && *text->at <= '9'; text->at++) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *text->at - '0', &value))
            return false;
    }
    take(text, 'L'); /* Python 2 */
    *ret = value;
    return text->at > begin;
}

/* ---- entries ---- */

static int damaged(struct stg_err *err)
{
    return stg_err(err, -STAGER_DATA_LOSS, "it is damaged");
}

static const struct {
    const char *name;
    int dtype;
} dtypes[] = {{"f2", STAGER_FLOAT16}, {"f4", STAGER_FLOAT32}, {"f8", STAGER_FLOAT64},
              {"i1", STAGER_INT8},    {"i2", STAGER_INT16},   {"i4", STAGER_INT32},
              {"i8", STAGER_INT64},   {"u1", STAGER_UINT8},   {"u2", STAGER_UINT16},
              {"u4", STAGER_UINT32},  {"u8", STAGER_UINT64},  {"b1", STAGER_BOOL}};

static int take_descr(struct text *text, struct stg_npy_header *header,
                      struct stg_err *err)
{
    char descr[32];
    skip_spaces(text);
    if (text->at < text->end && *text->at == '[')
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "its elements have several fields, which is not supported");
    const char *begin = text->at;
    if (!take_string(text, descr, sizeof(descr)))
        return damaged(err);
    const char *name = descr + (strchr("<>|=", descr[0]) != NULL && descr[0] != '\0');
    header->swapped = descr[0] == (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? '>' : '<');
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
        if (strcmp(dtypes[i].name, name) == 0) {
            header->dtype = dtypes[i].dtype;
            return 0;
        }
    }
    text->at = begin;
    return stg_err(
        err, -STAGER_INVALID_ARGUMENT,
        "its elements are \"%s\"%s; supported are numbers of 1 to 8 bytes and booleans",
        descr, name[0] == 'O' ? ", Python objects, which cannot be checked" : "");
}

static int take_order(struct text *text, bool *ret, struct stg_err *err)
{
    *ret = take_word(text, "True");
    return *ret || take_word(text, "False") ? 0 : damaged(err);
}

static int take_shape(struct text *text, struct stg_npy_header *header,
                      struct stg_err *err)
{
    if (!take(text, '('))
        return damaged(err);
    header->ndim = 0;
    while (!take(text, ')')) {
        int64_t size;
        if (header->ndim == STG_MAX_DIMS)
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "it has more than %d dimensions", STG_MAX_DIMS);
        if (!take_number(text, &size))
            return damaged(err);
        header->shape[header->ndim++] = size;
        take(text, ',');
    }
    return 0;
}

static int take_entry(struct text *text, struct stg_npy_header *header,
                      bool *fortran_order, unsigned *seen, struct stg_err *err)
{
    char key[32];
    if (!take_string(text, key, sizeof(key)) || !take(text, ':'))
        return damaged(err);
    if (strcmp(key, "descr") == 0) {
        *seen |= 1;
        return take_descr(text, header, err);
    }
    if (strcmp(key, "fortran_order") == 0) {
        *seen |= 2;
        return take_order(text, fortran_order, err);
    }
    if (strcmp(key, "shape") == 0) {
        *seen |= 4;
        return take_shape(text, header, err);
    }
    return damaged(err);
}

static int parse_text(struct text *text, struct stg_npy_header *ret, struct stg_err *err)
{
    struct stg_npy_header header = *ret;
    bool fortran_order = false;
    unsigned seen = 0;
    if (!take(text, '{'))
        return damaged(err);
    while (!take(text, '}')) {
        int rc = take_entry(text, &header, &fortran_order, &seen, err);
        if (rc < 0)
            return rc;
        take(text, ',');
    }
    if (seen != 7)
        return damaged(err);
    if (header.ndim == 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "it is a single value and has no rows");
    if (fortran_order && header.ndim > 1)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "its rows are not contiguous (Fortran order): write it with "
                       "numpy.ascontiguousarray");
    *ret = header;
    return 0;
}

int stg_npy_header_parse(const char *at, uint64_t n, struct stg_npy_header *ret,
                         struct stg_err *err)
{
    struct text text = {at + prefix_bytes(at), at + n};
    struct stg_npy_header header = {.bytes = n};
    int rc = parse_text(&text, &header, err);
    if (rc < 0)
        return stg_err_prefix(err, rc, "header (offset %td)", text.at - at);
    *ret = header;
    return 0;
}
