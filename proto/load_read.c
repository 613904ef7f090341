/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/load_read.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/param.h"
#include "proto/pipeline.pb-c.h"

#define MAX_FIELDS 64 /* a message's fields fit the bits of a word */

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

static size_t push_key(struct stg_reader *r, const char *key)
{
    char shown[64];
    stg_text_printable(key, strlen(key), shown, sizeof(shown));
    return stg_read_push(r, "%s%s", r->path_bytes > 0 ? "." : "", shown);
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

static void *member(ProtobufCMessage *message, unsigned offset)
{
    return (char *)message + offset;
}

static bool has_bit(const ProtobufCFieldDescriptor *field)
{
    return field->label == PROTOBUF_C_LABEL_OPTIONAL &&
           field->type != PROTOBUF_C_TYPE_STRING &&
           field->type != PROTOBUF_C_TYPE_MESSAGE;
}

static size_t value_bytes(const ProtobufCFieldDescriptor *field)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE: return 8;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE: return sizeof(void *);
    case PROTOBUF_C_TYPE_BYTES: return sizeof(ProtobufCBinaryData);
    default: return 4;
    }
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
        *(uint32_t *)member(message, field->offset) = (uint32_t)at;
        *(protobuf_c_boolean *)member(message, field->quantifier_offset) = 1;
    }
}

/* ---- scalars ---- */

/* A field about to be filled: its place in the message, and the node. */
struct target {
    const ProtobufCMessageDescriptor *type;
    const ProtobufCFieldDescriptor *field;
    const struct stg_text_node *node;
    void *value;
};

static int fail_found(struct stg_reader *r, const struct target *t, const char *expected,
                      const char *hint)
{
    char found[80];
    return stg_read_fail(r, t->node->line, t->node->column, "found %s; expected %s%s",
                         stg_text_found(t->node, found, sizeof(found)), expected, hint);
}

/* "64KiB", "64 KiB"; quoted too, because JSON has no other way. */
static bool parse_units(const char *s, int64_t *ret)
{
    static const struct {
        const char *name;
        int64_t bytes;
    } units[] = {{"KiB", 1ll << 10},   {"MiB", 1ll << 20},     {"GiB", 1ll << 30},
                 {"TiB", 1ll << 40},   {"KB", 1000},           {"MB", 1000 * 1000},
                 {"GB", 1000000000ll}, {"TB", 1000000000000ll}};
    size_t digits = strspn(s, "0123456789");
    if (digits == 0 || digits > 18)
        return false;
    int64_t n = 0;
    for (size_t i = 0; i < digits; i++)
        n = n * 10 + (s[i] - '0');
    s += digits;
    s += *s == ' ';
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (strcmp(s, units[i].name) == 0)
            return !__builtin_mul_overflow(n, units[i].bytes, ret);
    }
    return false;
}

static bool is_unsigned(const ProtobufCFieldDescriptor *field)
{
    return field->type == PROTOBUF_C_TYPE_UINT32 ||
           field->type == PROTOBUF_C_TYPE_FIXED32 ||
           field->type == PROTOBUF_C_TYPE_UINT64 ||
           field->type == PROTOBUF_C_TYPE_FIXED64;
}

static const char *integer_hint(const struct target *t)
{
    const struct stg_text_node *node = t->node;
    if (node->kind != STG_TEXT_SCALAR || stg_text_is_null(node))
        return "";
    struct stg_text_node unquoted = *node;
    unquoted.plain = true;
    struct stg_value value;
    if (!node->plain && stg_text_value(&unquoted, &value) && value.kind == STG_VALUE_INT)
        return "; leave out the quotes";
    if (strchr(node->s, '_') != NULL)
        return "; write it without '_'";
    const char *unit = node->s + strspn(node->s, "0123456789. ");
    if (is_unsigned(t->field) && unit != node->s && *unit != '\0')
        return "; units are KiB MiB GiB TiB KB MB GB TB";
    return "";
}

static int fail_integer(struct stg_reader *r, const struct target *t)
{
    struct stg_read_range range = stg_read_range_of(t->field, t->type);
    int64_t kept_as;
    const char *or_auto =
        stg_read_auto_of(t->field, t->type, &kept_as) ? ", or auto" : "";
    char expected[96];
    if (range.min == INT64_MIN)
        snprintf(expected, sizeof(expected), "an integer");
    else if (range.max == INT64_MAX)
        snprintf(expected, sizeof(expected), "an integer of at least %" PRId64 "%s",
                 range.min, or_auto);
    else
        snprintf(expected, sizeof(expected),
                 "an integer from %" PRId64 " to %" PRId64 "%s", range.min, range.max,
                 or_auto);
    return fail_found(r, t, expected, integer_hint(t));
}

static void integer_set(const struct target *t, int64_t number)
{
    if (value_bytes(t->field) == 8)
        *(int64_t *)t->value = number;
    else
        *(uint32_t *)t->value = (uint32_t)number;
}

/* tf.data's AUTOTUNE is -1; JSON has no `auto` but the string. */
static bool is_auto(const struct target *t, int64_t *ret)
{
    const char *s = t->node->s;
    return (strcmp(s, "auto") == 0 || (t->node->plain && strcmp(s, "-1") == 0)) &&
           stg_read_auto_of(t->field, t->type, ret);
}

static int integer_read(struct stg_reader *r, const struct target *t)
{
    struct stg_value value = {0};
    int64_t number = 0;
    if (t->node->kind != STG_TEXT_SCALAR)
        return fail_integer(r, t);
    if (is_auto(t, &number)) {
        integer_set(t, number);
        return 0;
    }
    if (is_unsigned(t->field) && parse_units(t->node->s, &number))
        value.kind = STG_VALUE_INT;
    else if (stg_text_value(t->node, &value))
        number = value.i;
    if (value.kind != STG_VALUE_INT)
        return fail_integer(r, t);
    struct stg_read_range range = stg_read_range_of(t->field, t->type);
    if (number < range.min || number > range.max)
        return fail_integer(r, t);
    integer_set(t, number);
    return 0;
}

static int number_read(struct stg_reader *r, const struct target *t)
{
    struct stg_value value = {0};
    if (t->node->kind == STG_TEXT_SCALAR && !stg_text_value(t->node, &value))
        value = (struct stg_value){0};
    if (value.kind != STG_VALUE_INT && value.kind != STG_VALUE_FLOAT)
        return fail_found(r, t, "a number", "");
    if (t->field->type == PROTOBUF_C_TYPE_FLOAT)
        *(float *)t->value = (float)value.f;
    else
        *(double *)t->value = value.f;
    return 0;
}

static int bool_read(struct stg_reader *r, const struct target *t)
{
    struct stg_value value = {0};
    if (t->node->kind != STG_TEXT_SCALAR || !stg_text_value(t->node, &value) ||
        value.kind != STG_VALUE_BOOL)
        return fail_found(r, t, "true or false", "");
    *(protobuf_c_boolean *)t->value = value.i != 0;
    return 0;
}

static int enum_read(struct stg_reader *r, const struct target *t)
{
    const ProtobufCEnumDescriptor *type = t->field->descriptor;
    const struct stg_text_node *node = t->node;
    if (node->kind == STG_TEXT_SCALAR) {
        const ProtobufCEnumValue *value =
            protobuf_c_enum_descriptor_get_value_by_name(type, node->s);
        if (value != NULL && strlen(node->s) == node->s_bytes) {
            *(int *)t->value = value->value;
            return 0;
        }
    }
    char choices[256] = "";
    const char *names[MAX_FIELDS];
    unsigned n = type->n_values < MAX_FIELDS ? type->n_values : MAX_FIELDS;
    for (unsigned i = 0; i < n; i++) {
        names[i] = type->values[i].name;
        size_t used = strlen(choices);
        snprintf(choices + used, sizeof(choices) - used, "%s%s",
                 i == 0       ? ""
                 : i + 1 == n ? " or "
                              : ", ",
                 names[i]);
    }
    const char *near =
        node->kind == STG_TEXT_SCALAR ? stg_nearest(node->s, names, n) : NULL;
    char hint[80] = "";
    if (near != NULL)
        snprintf(hint, sizeof(hint), "; did you mean %s?", near);
    return fail_found(r, t, choices, hint);
}

static int string_read(struct stg_reader *r, const struct target *t)
{
    const struct stg_text_node *node = t->node;
    if (node->kind != STG_TEXT_SCALAR || stg_text_is_null(node))
        return fail_found(r, t, "a string", "");
    const char *why = strlen(node->s) != node->s_bytes
                          ? "a NUL inside a string"
                          : stg_read_string_rule(t->field, t->type, node->s);
    if (why != NULL) {
        char shown[80];
        stg_text_printable(node->s, node->s_bytes, shown, sizeof(shown));
        return stg_read_fail(r, node->line, node->column, "\"%s\": %s", shown, why);
    }
    char *copy = stg_bump_strndup(r->bump, node->s, node->s_bytes);
    if (copy == NULL)
        return stg_read_fail_memory(r);
    *(char **)t->value = copy;
    return 0;
}

static int bytes_read(struct stg_reader *r, const struct target *t)
{
    const struct stg_text_node *node = t->node;
    if (node->kind != STG_TEXT_SCALAR || stg_text_is_null(node))
        return fail_found(r, t, "a string", "");
    char *copy = stg_bump_strndup(r->bump, node->s, node->s_bytes);
    if (copy == NULL)
        return stg_read_fail_memory(r);
    *(ProtobufCBinaryData *)t->value =
        (ProtobufCBinaryData){.len = node->s_bytes, .data = (uint8_t *)copy};
    return 0;
}

static int value_read(struct stg_reader *r, const struct target *t)
{
    switch (t->field->type) {
    case PROTOBUF_C_TYPE_BOOL: return bool_read(r, t);
    case PROTOBUF_C_TYPE_ENUM: return enum_read(r, t);
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_DOUBLE: return number_read(r, t);
    case PROTOBUF_C_TYPE_STRING: return string_read(r, t);
    case PROTOBUF_C_TYPE_BYTES: return bytes_read(r, t);
    case PROTOBUF_C_TYPE_MESSAGE:
        return stg_read_message(r, t->node, t->field->descriptor, t->value);
    default: return integer_read(r, t);
    }
}

/* ---- lists ---- */

static bool is_message(const ProtobufCFieldDescriptor *field)
{
    return field->type == PROTOBUF_C_TYPE_MESSAGE;
}

static int entries_read(struct stg_reader *r, const struct target *list, size_t *ret_n)
{
    size_t size = value_bytes(list->field);
    struct target t = *list;
    size_t i = 0;
    for (t.node = list->node->first; t.node != NULL; t.node = t.node->next, i++) {
        t.value = (char *)list->value + i * size;
        size_t mark = stg_read_push(r, "[%zu]", i);
        int rc = value_read(r, &t);
        if (rc < 0)
            return rc;
        stg_read_pop(r, mark);
    }
    *ret_n = i;
    return 0;
}

/* `ids: {op: …}` is `{name: ids, op: …}`. */
static int named_read(struct stg_reader *r, const struct target *list, size_t *ret_n)
{
    struct target t = *list;
    size_t i = 0;
    for (const struct stg_text_node *e = list->node->first; e != NULL; e = e->next, i++) {
        struct stg_text_node name = {.kind = STG_TEXT_SCALAR,
                                     .line = e->key_line,
                                     .column = e->key_column,
                                     .s = e->key,
                                     .s_bytes = strlen(e->key),
                                     .key = "name",
                                     .key_line = e->key_line,
                                     .key_column = e->key_column,
                                     .next = e->first};
        struct stg_text_node entry = *e;
        entry.first = &name;
        entry.n++;
        t.node = e->kind == STG_TEXT_MAPPING ? &entry : e;
        t.value = (char *)list->value + i * sizeof(void *);
        size_t mark = push_key(r, e->key);
        int rc = value_read(r, &t);
        if (rc < 0)
            return rc;
        stg_read_pop(r, mark);
    }
    *ret_n = i;
    return 0;
}

static bool entries_have_names(const ProtobufCFieldDescriptor *field)
{
    return is_message(field) && stg_read_field(field->descriptor, "name") != NULL;
}

static int list_read(struct stg_reader *r, const struct target *t,
                     ProtobufCMessage *message)
{
    const struct stg_text_node *node = t->node;
    struct target list = *t;
    size_t n = node->kind == STG_TEXT_SCALAR ? 1 : node->n;
    list.value = stg_bump_alloc(r->bump, (n > 0 ? n : 1) * value_bytes(t->field));
    if (list.value == NULL)
        return stg_read_fail_memory(r);

    int rc;
    if (node->kind == STG_TEXT_LIST)
        rc = entries_read(r, &list, &n);
    else if (node->kind == STG_TEXT_MAPPING && entries_have_names(t->field))
        rc = named_read(r, &list, &n);
    else if (is_message(t->field) || node->kind == STG_TEXT_MAPPING)
        rc = fail_found(r, t,
                        entries_have_names(t->field) ? "a mapping by name, or a list"
                                                     : "a list",
                        "; begin each entry with \"- \"");
    else
        rc = value_read(r, &list);
    if (rc < 0)
        return rc;
    *(size_t *)member(message, t->field->quantifier_offset) = n;
    *(void **)t->value = list.value;
    return 0;
}

/* ---- messages ---- */

/* A null is as if the key were not there. */
static int field_read(struct stg_reader *r, const struct stg_text_node *entry,
                      const ProtobufCFieldDescriptor *field, ProtobufCMessage *message,
                      uint64_t *seen)
{
    uint64_t bit = 1ull << (field - message->descriptor->fields);
    if (*seen & bit)
        return stg_read_fail(r, entry->key_line, entry->key_column,
                             "\"%s\" is given twice: the key of the entry is its name",
                             field->name);
    if (stg_text_is_null(entry))
        return 0;
    *seen |= bit;

    struct target t = {.type = message->descriptor,
                       .field = field,
                       .node = entry,
                       .value = member(message, field->offset)};
    size_t mark = push_key(r, field->name);
    int rc = field->label == PROTOBUF_C_LABEL_REPEATED ? list_read(r, &t, message)
                                                       : value_read(r, &t);
    if (rc < 0)
        return rc;
    if (has_bit(field))
        *(protobuf_c_boolean *)member(message, field->quantifier_offset) = 1;
    stg_read_pop(r, mark);
    return 0;
}

int stg_read_fail_key(struct stg_reader *r, const struct stg_text_node *entry,
                      const ProtobufCMessageDescriptor *type)
{
    const char *names[MAX_FIELDS];
    char all[700] = "", shown[64];
    size_t n = 0;
    for (unsigned i = 0; i < type->n_fields; i++) {
        if (!stg_read_is_key(&type->fields[i]))
            continue;
        size_t used = strlen(all);
        snprintf(all + used, sizeof(all) - used, "%s%s", n > 0 ? ", " : "",
                 type->fields[i].name);
        names[n++] = type->fields[i].name;
    }
    stg_text_printable(entry->key, strlen(entry->key), shown, sizeof(shown));
    if (stg_read_is_planned(type, entry->key))
        return stg_read_fail(r, entry->key_line, entry->key_column,
                             "\"%s\" is not supported by this release; leave it out "
                             "(known here: %s)",
                             shown, all);
    char place[160];
    if (stg_read_elsewhere(type, entry->key, place, sizeof(place)))
        return stg_read_fail(r, entry->key_line, entry->key_column, "%s", place);
    const char *near = stg_nearest(shown, names, n);
    if (near != NULL)
        return stg_read_fail(r, entry->key_line, entry->key_column,
                             "unknown key \"%s\"; did you mean \"%s\"?", shown, near);
    return stg_read_fail(r, entry->key_line, entry->key_column,
                         "unknown key \"%s\"; known here: %s", shown,
                         n > 0 ? all : "none");
}

static int required_check(struct stg_reader *r, const struct stg_text_node *node,
                          const ProtobufCMessageDescriptor *type, uint64_t seen)
{
    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &type->fields[i];
        if (field->label != PROTOBUF_C_LABEL_REQUIRED || (seen & (1ull << i)))
            continue;
        push_key(r, field->name);
        return stg_read_fail(r, node->line, node->column, "missing; add \"%s: ...\" here",
                             field->name);
    }
    return 0;
}

int stg_read_fields(struct stg_reader *r, const struct stg_text_node *mapping,
                    ProtobufCMessage *message, stg_read_unknown *unknown)
{
    const ProtobufCMessageDescriptor *type = message->descriptor;
    assert(type->n_fields <= MAX_FIELDS);
    uint64_t seen = 0;
    for (const struct stg_text_node *e = mapping->first; e != NULL; e = e->next) {
        const ProtobufCFieldDescriptor *field = stg_read_field(type, e->key);
        int rc;
        if (field != NULL)
            rc = field_read(r, e, field, message, &seen);
        else if (unknown != NULL)
            rc = unknown(r, e, message);
        else
            rc = stg_read_fail_key(r, e, type);
        if (rc < 0)
            return rc;
    }
    return required_check(r, mapping, type, seen);
}

int stg_read_message(struct stg_reader *r, const struct stg_text_node *node,
                     const ProtobufCMessageDescriptor *type, ProtobufCMessage **ret)
{
    ProtobufCMessage *message = stg_read_new(r, type);
    if (message == NULL)
        return stg_read_fail_memory(r);
    stg_read_position(r, node, message);
    stg_read_shape *shape = stg_read_shape_of(type);
    int rc;
    if (shape != NULL) {
        rc = shape(r, node, message);
    } else if (node->kind != STG_TEXT_MAPPING) {
        struct target t = {.node = node};
        rc = fail_found(r, &t, "a mapping (\"key: value\")", "");
    } else {
        rc = stg_read_fields(r, node, message, NULL);
    }
    if (rc < 0)
        return rc;
    *ret = message;
    return 0;
}
