/* SPDX-License-Identifier: Apache-2.0
 *
 * A reader: where it is, what an error says, and what a descriptor says of keys.
 */
#include <stdio.h>
#include <string.h>

#include "proto/load_read.h"

/* ---- errors and places ---- */

int stg_read_fail(struct stg_reader *r, int line, int column, const char *fmt, ...)
{
    char text[640];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return stg_err(r->err, -STAGER_INVALID_ARGUMENT, "%s:%d:%d: %s%s%s", r->file, line,
                   column, r->path, r->path_bytes > 0 ? ": " : "", text);
}

int stg_read_fail_memory(struct stg_reader *r)
{
    return stg_err(r->err, -STAGER_RESOURCE_EXHAUSTED,
                   "%s: out of memory while reading the text", r->file);
}

int stg_read_fail_found(struct stg_reader *r, const struct stg_text_node *node,
                        const char *fmt, ...)
{
    char found[80], expected[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(expected, sizeof(expected), fmt, args);
    va_end(args);
    return stg_read_fail(r, node->line, node->column, "found %s; expected %s",
                         stg_text_found(node, found, sizeof(found)), expected);
}

size_t stg_read_push(struct stg_reader *r, const char *fmt, ...)
{
    size_t mark = r->path_bytes;
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(r->path + mark, sizeof(r->path) - mark, fmt, args);
    va_end(args);
    r->path_bytes += n > 0 ? (size_t)n : 0;
    if (r->path_bytes >= sizeof(r->path))
        r->path_bytes = sizeof(r->path) - 1;
    return mark;
}

void stg_read_pop(struct stg_reader *r, size_t mark)
{
    r->path_bytes = mark;
    r->path[mark] = '\0';
}

/* ---- what the descriptor says ---- */

static bool is_position(const ProtobufCFieldDescriptor *field)
{
    return field->type == PROTOBUF_C_TYPE_UINT32 &&
           (strcmp(field->name, "line") == 0 || strcmp(field->name, "column") == 0);
}

bool stg_read_is_key(const ProtobufCFieldDescriptor *field)
{
    return !is_position(field) && (field->descriptor != &stager__attribute__descriptor ||
                                   field->label != PROTOBUF_C_LABEL_REPEATED);
}

const ProtobufCFieldDescriptor *stg_read_field(const ProtobufCMessageDescriptor *type,
                                               const char *name)
{
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field_by_name(type, name);
    return field != NULL && stg_read_is_key(field) ? field : NULL;
}

ProtobufCMessage *stg_read_new(struct stg_reader *r,
                               const ProtobufCMessageDescriptor *type)
{
    ProtobufCMessage *ret = stg_bump_alloc(r->bump, type->sizeof_message);
    if (ret != NULL)
        protobuf_c_message_init(type, ret);
    return ret;
}

void stg_read_position(const struct stg_reader *r, const struct stg_text_node *node,
                       ProtobufCMessage *message)
{
    for (unsigned i = 0; i < message->descriptor->n_fields && !r->canonical; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        if (!is_position(field))
            continue;
        int at = field->name[0] == 'l' ? node->line : node->column;
        *(uint32_t *)((char *)message + field->offset) = (uint32_t)at;
        *(protobuf_c_boolean *)((char *)message + field->quantifier_offset) = 1;
    }
}
