/* SPDX-License-Identifier: Apache-2.0
 *
 * Tree of load_text.h -> message. Three messages are written in a way of their own and
 * hold others: a node (its other keys are attributes), a step (one key: the
 * transformation), a branch (a name and its steps).
 */

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/param.h"
#include "proto/load_read.h"

/* What to do with the key of an entry that is no field. */
typedef int read_unknown(struct stg_reader *r, const struct stg_text_node *entry,
                         ProtobufCMessage *message);

#define MAX_FIELDS 64 /* a message's fields fit the bits of a word */

static size_t push_key(struct stg_reader *r, const char *key)
{
    char shown[64];
    stg_text_printable(key, strlen(key), shown, sizeof(shown));
    return stg_read_push(r, "%s%s", r->path_bytes > 0 ? "." : "", shown);
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

/* ---- scalars ---- */

/* A field about to be filled: its place in the message, and the node. */
struct target {
    const ProtobufCMessageDescriptor *type;
    const ProtobufCFieldDescriptor *field;
    const struct stg_text_node *node;
    void *value;
};

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
    int64_t stands_for;
    const char *or_auto =
        stg_read_auto_of(t->field, t->type, &stands_for) ? ", or auto" : "";
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
    return stg_read_fail_found(r, t->node, "%s%s", expected, integer_hint(t));
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
        return stg_read_fail_found(r, t->node, "a number");
    if (t->field->type == PROTOBUF_C_TYPE_FLOAT)
        *(float *)t->value = (float)value.f;
    else
        *(double *)t->value = value.f;
    return 0;
}

/* JSON has no `on` but the string. */
static bool is_switch(const struct stg_text_node *node, bool *ret)
{
    struct stg_value value = {0};
    return node->kind == STG_TEXT_SCALAR && stg_text_value(node, &value) &&
           stg_value_switch(&value, ret);
}

static int bool_read(struct stg_reader *r, const struct target *t)
{
    bool is_on;
    if (!is_switch(t->node, &is_on))
        return stg_read_fail_found(r, t->node, "true or false");
    *(protobuf_c_boolean *)t->value = is_on;
    return 0;
}

/* A word of the type; `true` and `false` stand for `on` and `off`. */
static const ProtobufCEnumValue *enum_value(const ProtobufCEnumDescriptor *type,
                                            const struct stg_text_node *node)
{
    bool is_on;
    if (node->kind != STG_TEXT_SCALAR || strlen(node->s) != node->s_bytes)
        return NULL;
    const ProtobufCEnumValue *value =
        protobuf_c_enum_descriptor_get_value_by_name(type, node->s);
    if (value == NULL && is_switch(node, &is_on))
        value = protobuf_c_enum_descriptor_get_value_by_name(type, is_on ? "on" : "off");
    return value;
}

static int enum_read(struct stg_reader *r, const struct target *t)
{
    const ProtobufCEnumDescriptor *type = t->field->descriptor;
    const struct stg_text_node *node = t->node;
    const ProtobufCEnumValue *value = enum_value(type, node);
    if (value != NULL) {
        *(int *)t->value = value->value;
        return 0;
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
    return stg_read_fail_found(r, t->node, "%s%s", choices, hint);
}

static int string_read(struct stg_reader *r, const struct target *t)
{
    const struct stg_text_node *node = t->node;
    if (node->kind != STG_TEXT_SCALAR || stg_text_is_null(node))
        return stg_read_fail_found(r, t->node, "a string");
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
        return stg_read_fail_found(r, t->node, "a string");
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
        rc = stg_read_fail_found(
            r, t->node, "%s; begin each entry with \"- \"",
            entries_have_names(t->field) ? "a mapping by name, or a list" : "a list");
    else
        rc = value_read(r, &list);
    if (rc < 0)
        return rc;
    *(size_t *)member(message, t->field->quantifier_offset) = n;
    *(void **)t->value = list.value;
    return 0;
}

/* ---- fields ---- */

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

/* Names the nearest key, or all of them. */
static int fail_key(struct stg_reader *r, const struct stg_text_node *entry,
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

/* Reads the entries of a mapping into an initialised message, then checks that required
 * fields are there. `unknown` NULL: a key that is no field is an error. */
static int fields_read(struct stg_reader *r, const struct stg_text_node *mapping,
                       ProtobufCMessage *message, read_unknown *unknown)
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
            rc = fail_key(r, e, type);
        if (rc < 0)
            return rc;
    }
    return required_check(r, mapping, type, seen);
}

/* ---- nodes ---- */

static bool is_identifier(const char *s)
{
    if (!isalpha((unsigned char)*s) && *s != '_')
        return false;
    size_t n = 0;
    while (isalnum((unsigned char)s[n]) || s[n] == '_')
        n++;
    return s[n] == '\0' && n <= 64;
}

/* "inputs" would be an attribute, and the node would have no input. */
static bool is_slip(const char *key, const ProtobufCMessageDescriptor *type)
{
    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &type->fields[i];
        size_t n = strlen(field->name);
        if (field->label == PROTOBUF_C_LABEL_REPEATED && stg_read_is_key(field) &&
            strncmp(key, field->name, n) == 0 && strcmp(key + n, "s") == 0)
            return true;
    }
    return false;
}

static int attribute_append(struct stg_reader *r, const struct stg_text_node *entry,
                            char *name, Stager__Node *node)
{
    int rc = stg_read_attribute(r, entry, name, &node->attr[node->n_attr]);
    if (rc == 0)
        node->n_attr++;
    return rc;
}

/* "features/label/dtype" */
static char *join_keys(struct stg_reader *r, const char *attr, const char *entry,
                       const char *field)
{
    size_t bytes = strlen(attr) + strlen(entry) + strlen(field) + 3;
    char *ret = stg_bump_alloc(r->bump, bytes);
    if (ret != NULL)
        snprintf(ret, bytes, "%s/%s/%s", attr, entry, field);
    return ret;
}

static int fields_add(struct stg_reader *r, const char *attr,
                      const struct stg_text_node *entry, Stager__Node *node)
{
    size_t mark = stg_read_push(r, ".%s", entry->key);
    if (entry->kind != STG_TEXT_MAPPING || entry->n == 0)
        return stg_read_fail_found(r, entry, "a mapping with at least one key");
    for (const struct stg_text_node *e = entry->first; e != NULL; e = e->next) {
        if (!is_identifier(e->key))
            return stg_read_fail(r, e->key_line, e->key_column,
                                 "a key here is a word of letters, digits and '_'");
        int rc = attribute_append(r, e, join_keys(r, attr, entry->key, e->key), node);
        if (rc < 0)
            return rc;
    }
    stg_read_pop(r, mark);
    return 0;
}

/* A mapping of mappings: each field of each entry is an attribute. Entries come in the
 * order of their names, however they are written: outputs are numbered by it. */
static int mapping_add(struct stg_reader *r, const struct stg_text_node *entry,
                       Stager__Node *node)
{
    size_t mark = stg_read_push(r, ".%s", entry->key);
    struct stg_text_node **entries = stg_text_sorted(entry, r->bump);
    if (entries == NULL)
        return stg_read_fail_memory(r);
    if (entry->n == 0)
        return stg_read_fail_found(r, entry, "a mapping with at least one entry");
    for (size_t i = 0; i < entry->n; i++) {
        int rc = fields_add(r, entry->key, entries[i], node);
        if (rc < 0)
            return rc;
    }
    stg_read_pop(r, mark);
    return 0;
}

static int attribute_add(struct stg_reader *r, const struct stg_text_node *entry,
                         ProtobufCMessage *message)
{
    Stager__Node *node = (Stager__Node *)message;
    if (!is_identifier(entry->key) || is_slip(entry->key, message->descriptor))
        return fail_key(r, entry, message->descriptor);
    if (entry->kind == STG_TEXT_MAPPING)
        return mapping_add(r, entry, node);
    return attribute_append(r, entry, stg_bump_strdup(r->bump, entry->key), node);
}

/* How many attributes the keys of a node may become. */
static size_t attribute_count(const struct stg_text_node *mapping)
{
    size_t n = mapping->n;
    for (const struct stg_text_node *e = mapping->first; e != NULL; e = e->next) {
        for (const struct stg_text_node *k = e->first;
             e->kind == STG_TEXT_MAPPING && k != NULL; k = k->next)
            n += k->n;
    }
    return n;
}

/* An input as written: "columns:1..13" is prefix "columns:", first 1, last 13. */
struct range {
    size_t prefix;
    unsigned long first, last;
    bool is_range; /* otherwise one input, first == last */
};

static struct range range_parse(const char *input)
{
    const char *colon = strrchr(input, ':');
    const char *dots = colon != NULL ? strstr(colon, "..") : NULL;
    if (dots == NULL)
        return (struct range){0};
    size_t first = strspn(colon + 1, "0123456789"), last = strspn(dots + 2, "0123456789");
    bool ok = first > 0 && first < 8 && colon + 1 + first == dots && last > 0 &&
              last < 8 && dots[2 + last] == '\0';
    return (struct range){.prefix = (size_t)(colon + 1 - input),
                          .first = ok ? strtoul(colon + 1, NULL, 10) : 1,
                          .last = ok ? strtoul(dots + 2, NULL, 10) : 0,
                          .is_range = true};
}

static int input_count(struct stg_reader *r, const struct stg_text_node *at,
                       const char *input, size_t *n)
{
    struct range range = range_parse(input);
    if (range.first > range.last)
        return stg_read_fail(
            r, at->line, at->column,
            "\"%s\" is not a range; write it as \"node:0..25\", with the "
            "smaller number first",
            input);
    *n += range.last - range.first + 1;
    if (r->n_inputs + *n > STG_LOAD_MAX_INPUTS)
        return stg_read_fail(r, at->line, at->column,
                             "more than %u inputs in the graph, with all ranges written "
                             "out",
                             STG_LOAD_MAX_INPUTS);
    return 0;
}

static int input_expand(struct stg_reader *r, char *input, Stager__Node *node)
{
    struct range range = range_parse(input);
    for (unsigned long i = range.first; i <= range.last; i++) {
        char number[24];
        int digits = snprintf(number, sizeof(number), "%lu", i);
        char *s = input;
        if (range.is_range)
            s = stg_bump_alloc(r->bump, range.prefix + (size_t)digits + 1);
        if (s == NULL)
            return stg_read_fail_memory(r);
        if (range.is_range) {
            memcpy(s, input, range.prefix);
            memcpy(s + range.prefix, number, (size_t)digits);
        }
        node->input[node->n_input++] = s;
    }
    return 0;
}

static int inputs_expand(struct stg_reader *r, const struct stg_text_node *mapping,
                         Stager__Node *node)
{
    const struct stg_text_node *e = mapping->first;
    while (e != NULL && strcmp(e->key, "input") != 0)
        e = e->next;
    if (e == NULL || node->n_input == 0)
        return 0;
    const struct stg_text_node *at = e->kind == STG_TEXT_LIST ? e->first : e;
    char **written = node->input;
    size_t n_written = node->n_input, n = 0;
    for (size_t i = 0; i < n_written; i++, at = at->next) {
        size_t mark = stg_read_push(r, ".input[%zu]", i);
        int rc = input_count(r, at, written[i], &n);
        if (rc < 0)
            return rc;
        stg_read_pop(r, mark);
    }
    r->n_inputs += n;
    node->n_input = 0;
    node->input = stg_bump_alloc(r->bump, n * sizeof(char *));
    if (node->input == NULL)
        return stg_read_fail_memory(r);
    for (size_t i = 0; i < n_written; i++) {
        int rc = input_expand(r, written[i], node);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int node_read(struct stg_reader *r, const struct stg_text_node *mapping,
                     ProtobufCMessage *message)
{
    Stager__Node *node = (Stager__Node *)message;
    if (mapping->kind != STG_TEXT_MAPPING)
        return stg_read_fail_found(r, mapping,
                                   "a mapping: {name: ..., op: ..., input: [...]}");
    node->attr =
        stg_bump_alloc(r->bump, attribute_count(mapping) * sizeof(Stager__Attribute *));
    if (node->attr == NULL)
        return stg_read_fail_memory(r);
    int rc = fields_read(r, mapping, message, attribute_add);
    if (rc < 0)
        return rc;
    return inputs_expand(r, mapping, node);
}

/* ---- steps ---- */

static const ProtobufCFieldDescriptor *step_field(struct stg_reader *r,
                                                  const struct stg_text_node *entry,
                                                  const ProtobufCMessage *message)
{
    const ProtobufCFieldDescriptor *field =
        stg_read_field(message->descriptor, entry->key);
    if (field == NULL)
        fail_key(r, entry, message->descriptor);
    return field;
}

/* `- shard: auto` is `- shard: {num_shards: auto}`. */
static bool is_shard_auto(const struct stg_text_node *entry,
                          const ProtobufCMessageDescriptor *type,
                          struct stg_text_node *arguments, struct stg_text_node *word)
{
    if (type != &stager__shard__descriptor || entry->kind != STG_TEXT_SCALAR ||
        stg_text_is_null(entry) || strcmp(entry->s, "auto") != 0)
        return false;
    *word = *entry;
    word->key = "num_shards";
    word->next = NULL;
    *arguments = (struct stg_text_node){
        .kind = STG_TEXT_MAPPING, .line = entry->line, .column = entry->column, .n = 1};
    return true;
}

static int step_fill(struct stg_reader *r, const struct stg_text_node *entry,
                     ProtobufCMessage *message)
{
    const ProtobufCFieldDescriptor *field = step_field(r, entry, message);
    if (field == NULL)
        return -STAGER_INVALID_ARGUMENT;
    struct stg_text_node arguments = *entry;
    if (stg_text_is_null(entry)) {
        arguments.kind = STG_TEXT_MAPPING;
        arguments.line = entry->key_line;
        arguments.column = entry->key_column;
    }
    size_t mark = stg_read_push(r, ".%s", field->name);
    const ProtobufCMessageDescriptor *type = field->descriptor;
    struct stg_text_node word;
    if (is_shard_auto(entry, type, &arguments, &word))
        arguments.first = &word;
    if (arguments.kind != STG_TEXT_MAPPING) {
        return stg_read_fail_found(r, entry, "its arguments: {%s: ...}",
                                   type->n_fields > 0 ? type->fields[0].name : "");
    }
    ProtobufCMessage **slot = (ProtobufCMessage **)((char *)message + field->offset);
    int rc = stg_read_message(r, &arguments, type, slot);
    if (rc < 0)
        return rc;
    stg_read_pop(r, mark);
    return 0;
}

/* `- shuffle: {…}`, or `- repeat:` or `- repeat` when there are no arguments. */
static int step_read(struct stg_reader *r, const struct stg_text_node *node,
                     ProtobufCMessage *message)
{
    if (node->kind == STG_TEXT_MAPPING && node->n == 1)
        return step_fill(r, node->first, message);
    if (node->kind == STG_TEXT_MAPPING && node->n > 1) {
        const struct stg_text_node *second = node->first->next;
        char key[64];
        stg_text_printable(second->key, strlen(second->key), key, sizeof(key));
        return stg_read_fail(r, second->key_line, second->key_column,
                             "a step has one key; begin \"%s\" with \"- \" if it is a "
                             "step, indent it more if it is an argument",
                             key);
    }
    if (node->kind != STG_TEXT_SCALAR || stg_text_is_null(node) ||
        strlen(node->s) != node->s_bytes)
        return stg_read_fail_found(r, node,
                                   message->descriptor == &stager__reader__descriptor
                                       ? "a reader: {text_line: {}}"
                                       : "a step: \"- shuffle: {buffer_size: 1000}\"");
    struct stg_text_node word = {.kind = STG_TEXT_SCALAR,
                                 .plain = true,
                                 .s = "",
                                 .key = node->s,
                                 .line = node->line,
                                 .column = node->column,
                                 .key_line = node->line,
                                 .key_column = node->column};
    return step_fill(r, &word, message);
}

/* `a: [steps]`, or as an entry of a list {name: a, dataset: [steps]}. */
static int branch_read(struct stg_reader *r, const struct stg_text_node *node,
                       ProtobufCMessage *message)
{
    if (node->kind == STG_TEXT_MAPPING)
        return fields_read(r, node, message, NULL);
    if (node->kind != STG_TEXT_LIST || node->key == NULL)
        return stg_read_fail_found(r, node,
                                   "the steps of the branch: [{range: {stop: 5}}, ...]");
    struct stg_text_node steps = *node, name = {.kind = STG_TEXT_SCALAR,
                                                .line = node->key_line,
                                                .column = node->key_column,
                                                .s = node->key,
                                                .s_bytes = strlen(node->key),
                                                .key = "name",
                                                .key_line = node->key_line,
                                                .key_column = node->key_column,
                                                .next = &steps};
    steps.key = "dataset";
    steps.next = NULL;
    struct stg_text_node branch = {.kind = STG_TEXT_MAPPING,
                                   .line = node->line,
                                   .column = node->column,
                                   .first = &name,
                                   .n = 2};
    return fields_read(r, &branch, message, NULL);
}

/* ---- messages ---- */

/* The message types with a shape of their own: NULL for all others. */
static stg_read_shape *shape_of(const ProtobufCMessageDescriptor *type)
{
    static const struct {
        const ProtobufCMessageDescriptor *type;
        stg_read_shape *read;
    } shapes[] = {
        {&stager__node__descriptor, node_read},
        {&stager__step__descriptor, step_read},
        {&stager__reader__descriptor, step_read},
        {&stager__branch__descriptor, branch_read},
        {&stager__attribute__descriptor, stg_read_unnamed},
        {&stager__values__descriptor, stg_read_values},
        {&stager__conditions__descriptor, stg_read_conditions},
        {&stager__codes__descriptor, stg_read_codes},
        {&stager__features__descriptor, stg_read_features},
    };
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        if (shapes[i].type == type)
            return shapes[i].read;
    }
    return NULL;
}

int stg_read_message(struct stg_reader *r, const struct stg_text_node *node,
                     const ProtobufCMessageDescriptor *type, ProtobufCMessage **ret)
{
    ProtobufCMessage *message = stg_read_new(r, type);
    if (message == NULL)
        return stg_read_fail_memory(r);
    stg_read_position(r, node, message);
    stg_read_shape *shape = shape_of(type);
    int rc;
    if (shape != NULL) {
        rc = shape(r, node, message);
    } else if (node->kind != STG_TEXT_MAPPING) {
        rc = stg_read_fail_found(r, node, "a mapping (\"key: value\")");
    } else {
        rc = fields_read(r, node, message, NULL);
    }
    if (rc < 0)
        return rc;
    *ret = message;
    return 0;
}
