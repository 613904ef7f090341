/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/format/parquet/thrift.h"

#include <stddef.h>

#define MAX_DEPTH 32 /* of values in values that are passed over */
#define VARINT_BITS 64

static void fail(struct stg_thrift *thrift)
{
    thrift->is_bad = true;
    thrift->at = thrift->end;
}

static uint8_t byte(struct stg_thrift *thrift)
{
    if (thrift->at < thrift->end)
        return *thrift->at++;
    fail(thrift);
    return 0;
}

static uint64_t varint(struct stg_thrift *thrift)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < VARINT_BITS; shift += 7) {
        uint8_t next = byte(thrift);
        value |= (uint64_t)(next & 0x7f) << shift;
        if ((next & 0x80) == 0)
            return value;
    }
    fail(thrift);
    return 0;
}

static int64_t zigzag(struct stg_thrift *thrift)
{
    uint64_t value = varint(thrift);
    return (int64_t)(value >> 1 ^ (0 - (value & 1)));
}

bool stg_thrift_next(struct stg_thrift *thrift, struct stg_thrift_field *field)
{
    uint8_t head = byte(thrift);
    int64_t id = head >> 4 != 0 ? field->id + (head >> 4) : 0;
    field->type = (enum stg_thrift_type)(head & 15);
    if (field->type == STG_THRIFT_STOP)
        return false;
    if (head >> 4 == 0)
        id = zigzag(thrift);
    if (field->type > STG_THRIFT_STRUCT || id < 0 || id > INT16_MAX)
        fail(thrift);
    field->id = (int)(thrift->is_bad ? 0 : id);
    return !thrift->is_bad;
}

int64_t stg_thrift_int(struct stg_thrift *thrift, const struct stg_thrift_field *field)
{
    switch (field->type) {
    case STG_THRIFT_BYTE: return (int8_t)byte(thrift);
    case STG_THRIFT_I16:
    case STG_THRIFT_I32:
    case STG_THRIFT_I64: return zigzag(thrift);
    default: fail(thrift); return 0;
    }
}

bool stg_thrift_bool(struct stg_thrift *thrift, const struct stg_thrift_field *field)
{
    if (field->type != STG_THRIFT_TRUE && field->type != STG_THRIFT_FALSE)
        fail(thrift);
    return field->type == STG_THRIFT_TRUE;
}

uint64_t stg_thrift_binary(struct stg_thrift *thrift,
                           const struct stg_thrift_field *field, const char **ret)
{
    uint64_t bytes = field->type == STG_THRIFT_BINARY ? varint(thrift) : UINT64_MAX;
    if (bytes > (uint64_t)(thrift->end - thrift->at)) {
        fail(thrift);
        bytes = 0;
    }
    *ret = (const char *)thrift->at;
    thrift->at += bytes;
    return bytes;
}

/* The head of a list or set. */
static uint64_t list(struct stg_thrift *thrift, enum stg_thrift_type *ret)
{
    uint8_t head = byte(thrift);
    uint64_t n = head >> 4 == 15 ? varint(thrift) : head >> 4;
    *ret = (enum stg_thrift_type)(head & 15);
    if (n > (uint64_t)(thrift->end - thrift->at)) {
        fail(thrift);
        return 0;
    }
    return n;
}

uint64_t stg_thrift_list(struct stg_thrift *thrift, const struct stg_thrift_field *field,
                         enum stg_thrift_type type)
{
    enum stg_thrift_type found = STG_THRIFT_STOP;
    uint64_t n = field->type == STG_THRIFT_LIST ? list(thrift, &found) : 0;
    if (field->type == STG_THRIFT_LIST && (n == 0 || found == type))
        return n;
    fail(thrift);
    return 0;
}

bool stg_thrift_struct(struct stg_thrift *thrift, const struct stg_thrift_field *field)
{
    if (field->type != STG_THRIFT_STRUCT)
        fail(thrift);
    return !thrift->is_bad;
}

static void skip(struct stg_thrift *thrift, enum stg_thrift_type type, bool is_element,
                 unsigned depth);

static void skip_elements(struct stg_thrift *thrift, unsigned depth)
{
    enum stg_thrift_type type;
    for (uint64_t n = list(thrift, &type); n > 0 && !thrift->is_bad; n--)
        skip(thrift, type, true, depth);
}

static void skip_map(struct stg_thrift *thrift, unsigned depth)
{
    uint64_t n = varint(thrift);
    uint8_t types = n > 0 ? byte(thrift) : 0;
    for (; n > 0 && !thrift->is_bad; n--) {
        skip(thrift, (enum stg_thrift_type)(types >> 4), true, depth);
        skip(thrift, (enum stg_thrift_type)(types & 15), true, depth);
    }
}

static void skip_bytes(struct stg_thrift *thrift, uint64_t n)
{
    if (n > (uint64_t)(thrift->end - thrift->at))
        fail(thrift);
    else
        thrift->at += n;
}

/* A boolean is part of the head of a field, and a byte in a list or map. */
static void skip(struct stg_thrift *thrift, enum stg_thrift_type type, bool is_element,
                 unsigned depth)
{
    struct stg_thrift_field field = {0};
    if (depth == MAX_DEPTH) {
        fail(thrift);
        return;
    }
    switch (type) {
    case STG_THRIFT_TRUE:
    case STG_THRIFT_FALSE: skip_bytes(thrift, is_element); break;
    case STG_THRIFT_BYTE: skip_bytes(thrift, 1); break;
    case STG_THRIFT_I16:
    case STG_THRIFT_I32:
    case STG_THRIFT_I64: varint(thrift); break;
    case STG_THRIFT_DOUBLE: skip_bytes(thrift, sizeof(double)); break;
    case STG_THRIFT_BINARY: skip_bytes(thrift, varint(thrift)); break;
    case STG_THRIFT_LIST:
    case STG_THRIFT_SET: skip_elements(thrift, depth + 1); break;
    case STG_THRIFT_MAP: skip_map(thrift, depth + 1); break;
    case STG_THRIFT_STRUCT:
        while (stg_thrift_next(thrift, &field))
            skip(thrift, field.type, false, depth + 1);
        break;
    default: fail(thrift);
    }
}

void stg_thrift_skip(struct stg_thrift *thrift, const struct stg_thrift_field *field)
{
    skip(thrift, field->type, false, 0);
}
