/* SPDX-License-Identifier: Apache-2.0
 *
 * Looks over the bytes of a message before protobuf-c sees them, by the schema's
 * descriptors: protobuf-c would truncate a string at a NUL, take any number for an enum,
 * keep any number of unknown fields, merge what is given twice, and say nothing of what
 * is wrong. Allocates nothing. https://protobuf.dev/programming-guides/encoding/
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "proto/wire_parts.h"

#define MAX_FIELDS 128
#define WORD_BITS 64 /* a bit for each field of a message */
#define MAX_TAG_BYTES 5
#define MAX_VARINT_BYTES 10

enum wire_type { VARINT = 0, BITS64 = 1, BYTES = 2, BITS32 = 5 };

struct scan {
    const uint8_t *at, *end;
    struct stg_err *err;
    unsigned n_unknown;
    size_t path_bytes;
    char path[160];
};

/* One field as it lies in the message. */
struct item {
    uint32_t number;
    uint32_t wire_type;
    uint64_t value;       /* VARINT */
    const uint8_t *bytes; /* BYTES */
    size_t n;
};

static int fail(struct scan *s, const char *what)
{
    return stg_err(s->err, -STAGER_INVALID_ARGUMENT, "malformed message: %s%s%s", s->path,
                   s->path_bytes > 0 ? ": " : "", what);
}

static size_t push(struct scan *s, const char *name)
{
    size_t mark = s->path_bytes;
    int n = snprintf(s->path + mark, sizeof(s->path) - mark, "%s%s", mark > 0 ? "." : "",
                     name);
    s->path_bytes += (size_t)n;
    assert(s->path_bytes < sizeof(s->path));
    return mark;
}

static void pop(struct scan *s, size_t mark)
{
    s->path_bytes = mark;
    s->path[mark] = '\0';
}

static bool varint_take(struct scan *s, int max_bytes, uint64_t *ret)
{
    uint64_t value = 0;
    for (int i = 0; i < max_bytes && s->at < s->end; i++) {
        uint8_t byte = *s->at++;
        value |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (byte < 0x80) {
            *ret = value;
            return i < MAX_VARINT_BYTES - 1 || byte <= 1;
        }
    }
    return false;
}

static bool skip(struct scan *s, size_t n)
{
    if ((size_t)(s->end - s->at) < n)
        return false;
    s->at += n;
    return true;
}

static int item_take(struct scan *s, struct item *ret)
{
    uint64_t tag, n;
    if (!varint_take(s, MAX_TAG_BYTES, &tag) || tag > UINT32_MAX || tag >> 3 == 0)
        return fail(s, "not a field");
    *ret = (struct item){.number = (uint32_t)tag >> 3, .wire_type = tag & 7};
    switch (ret->wire_type) {
    case VARINT:
        if (!varint_take(s, MAX_VARINT_BYTES, &ret->value))
            return fail(s, "a number is truncated or too long");
        return 0;
    case BYTES:
        if (!varint_take(s, MAX_VARINT_BYTES, &n) || n > SIZE_MAX)
            return fail(s, "a length is truncated or too long");
        ret->bytes = s->at;
        ret->n = (size_t)n;
        return skip(s, ret->n) ? 0 : fail(s, "a length runs over the end");
    case BITS64: return skip(s, 8) ? 0 : fail(s, "a number is truncated");
    case BITS32: return skip(s, 4) ? 0 : fail(s, "a number is truncated");
    default: return fail(s, "a group, or no wire type");
    }
}

static enum wire_type wire_type_of(const ProtobufCFieldDescriptor *field)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_FLOAT: return BITS32;
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE: return BITS64;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE: return BYTES;
    default: return VARINT;
    }
}

static int message_scan(struct scan *s, const ProtobufCMessageDescriptor *type);

static int inner_scan(struct scan *s, const ProtobufCFieldDescriptor *field,
                      const struct item *item)
{
    const uint8_t *at = s->at, *end = s->end;
    s->at = item->bytes;
    s->end = item->bytes + item->n;
    int rc = message_scan(s, field->descriptor);
    s->at = at;
    s->end = end;
    return rc;
}

static int value_scan(struct scan *s, const ProtobufCFieldDescriptor *field,
                      const struct item *item)
{
    if (item->wire_type != wire_type_of(field))
        return fail(s, "not of the type that the schema says");
    switch (field->type) {
    case PROTOBUF_C_TYPE_MESSAGE: return inner_scan(s, field, item);
    case PROTOBUF_C_TYPE_STRING:
        return item->n > 0 && memchr(item->bytes, '\0', item->n) != NULL
                   ? fail(s, "a NUL inside a string")
                   : 0;
    case PROTOBUF_C_TYPE_ENUM:
        return item->value > INT32_MAX || protobuf_c_enum_descriptor_get_value(
                                              field->descriptor, (int)item->value) == NULL
                   ? fail(s, "a value that this release does not know")
                   : 0;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_SINT32:
        return item->value > UINT32_MAX ? fail(s, "a number over 32 bits") : 0;
    case PROTOBUF_C_TYPE_BOOL:
        return item->value > 1 ? fail(s, "neither true nor false") : 0;
    default: return 0;
    }
}

static bool is_set(const uint64_t *bits, size_t i)
{
    return (bits[i / WORD_BITS] >> i % WORD_BITS & 1) != 0;
}

static int field_scan(struct scan *s, const ProtobufCMessageDescriptor *type,
                      const struct item *item, uint64_t *seen)
{
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field(type, item->number);
    if (field == NULL)
        return ++s->n_unknown > STG_WIRE_MAX_UNKNOWN ? fail(s, "too many unknown fields")
                                                     : 0;
    size_t mark = push(s, field->name);
    size_t i = (size_t)(field - type->fields);
    if (field->label != PROTOBUF_C_LABEL_REPEATED && is_set(seen, i))
        return fail(s, "given twice");
    seen[i / WORD_BITS] |= 1ull << i % WORD_BITS;
    int rc = value_scan(s, field, item);
    if (rc < 0)
        return rc;
    pop(s, mark);
    return 0;
}

static int message_scan(struct scan *s, const ProtobufCMessageDescriptor *type)
{
    assert(type->n_fields <= MAX_FIELDS);
    uint64_t seen[MAX_FIELDS / WORD_BITS] = {0};
    while (s->at < s->end) {
        struct item item = {0};
        int rc = item_take(s, &item);
        if (rc == 0)
            rc = field_scan(s, type, &item, seen);
        if (rc < 0)
            return rc;
    }
    for (unsigned i = 0; i < type->n_fields; i++) {
        if (type->fields[i].label != PROTOBUF_C_LABEL_REQUIRED || is_set(seen, i))
            continue;
        push(s, type->fields[i].name);
        return fail(s, "missing");
    }
    return 0;
}

int stg_wire_scan(const ProtobufCMessageDescriptor *type, const void *buf, size_t bytes,
                  struct stg_err *err)
{
    struct scan s = {.at = buf, .end = (const uint8_t *)buf + bytes, .err = err};
    return message_scan(&s, type);
}
