/* SPDX-License-Identifier: Apache-2.0
 *
 * The messages that look different in a text: a node (its other keys are attributes), a
 * step (one key: the transformation), an attribute (a value, a list), values (one
 * attribute, or a mapping from names to attributes), codes (a list of names), features (a
 * tensor, a list, a mapping, nested: load_features.c).
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/param.h"
#include "proto/load_read.h"
#include "proto/pipeline.pb-c.h"

static int fail_kind(struct stg_reader *r, const struct stg_text_node *node,
                     const char *expected)
{
    char found[80];
    return stg_read_fail(r, node->line, node->column, "found %s; expected %s",
                         stg_text_found(node, found, sizeof(found)), expected);
}

/* ---- attributes ---- */

/* Checks that what lies under node is a box of dim[level..ndim). */
static int box_check(struct stg_reader *r, const struct stg_text_node *node,
                     const uint64_t *dim, int ndim, int level)
{
    if (node->kind == STG_TEXT_MAPPING)
        return fail_kind(r, node, "a value or a list");
    bool is_list = node->kind == STG_TEXT_LIST;
    if (is_list != (level < ndim))
        return stg_read_fail(r, node->line, node->column,
                             "lists and values side by side; nested lists must be "
                             "rectangular (use null for a required column)");
    if (is_list && node->n != dim[level])
        return stg_read_fail(
            r, node->line, node->column,
            "this list has %zu entries, the first one %zu; nested lists must "
            "be rectangular (use null for a required column)",
            node->n, (size_t)dim[level]);
    for (const struct stg_text_node *e = node->first; e != NULL; e = e->next) {
        int rc = box_check(r, e, dim, ndim, level + 1);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int scalar_fill(struct stg_reader *r, const struct stg_text_node *node,
                       Stager__Scalar *ret)
{
    struct stg_value value;
    if (!stg_text_value(node, &value))
        return fail_kind(r, node, "an integer of 64 bits; quote it to make it a string");
    stager__scalar__init(ret);
    switch (value.kind) {
    case STG_VALUE_NULL: break;
    case STG_VALUE_INT:
        ret->has_i = 1;
        ret->i = value.i;
        break;
    case STG_VALUE_FLOAT:
        ret->has_f = 1;
        ret->f = value.f;
        break;
    case STG_VALUE_BOOL:
        ret->has_b = 1;
        ret->b = value.i != 0;
        break;
    case STG_VALUE_STRING:
        ret->has_s = 1;
        ret->s.len = value.s_bytes;
        ret->s.data = (uint8_t *)stg_bump_strndup(r->bump, value.s, value.s_bytes);
        return ret->s.data != NULL ? 0 : stg_read_fail_memory(r);
    }
    return 0;
}

/* Leaves in the order in which they are written; *at moves on. */
static int leaves_fill(struct stg_reader *r, const struct stg_text_node *node,
                       Stager__Scalar **at)
{
    if (node->kind == STG_TEXT_SCALAR)
        return scalar_fill(r, node, (*at)++);
    for (const struct stg_text_node *e = node->first; e != NULL; e = e->next) {
        int rc = leaves_fill(r, e, at);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int attribute_fill(struct stg_reader *r, const struct stg_text_node *node,
                          Stager__Attribute *a)
{
    uint64_t dim[STG_TEXT_MAX_DEPTH] = {0}, n = 1;
    int ndim = 0;
    for (const struct stg_text_node *e = node; e != NULL && e->kind == STG_TEXT_LIST;
         e = e->first)
        dim[ndim++] = e->n;
    if (ndim > STG_ATTR_MAX_DIMS)
        return stg_read_fail(r, node->line, node->column,
                             "lists nested %d deep; at most %d", ndim, STG_ATTR_MAX_DIMS);
    int rc = box_check(r, node, dim, ndim, 0);
    if (rc < 0)
        return rc;
    for (int i = 0; i < ndim; i++)
        n *= dim[i];

    a->n_dim = (size_t)ndim;
    a->n_value = n;
    a->dim = stg_bump_alloc(r->bump, sizeof(dim));
    a->value = stg_bump_alloc(r->bump, n * sizeof(Stager__Scalar *));
    Stager__Scalar *scalars = stg_bump_alloc(r->bump, n * sizeof(Stager__Scalar));
    if (a->dim == NULL || a->value == NULL || scalars == NULL)
        return stg_read_fail_memory(r);
    memcpy(a->dim, dim, (size_t)ndim * sizeof(dim[0]));
    for (size_t i = 0; i < n; i++)
        a->value[i] = &scalars[i];
    return leaves_fill(r, node, &scalars);
}

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

/* An attribute of that name; place and value are the entry's. */
static int attribute_make(struct stg_reader *r, const struct stg_text_node *entry,
                          char *name, Stager__Attribute **ret)
{
    Stager__Attribute *a =
        (Stager__Attribute *)stg_read_new(r, &stager__attribute__descriptor);
    if (a == NULL || name == NULL)
        return stg_read_fail_memory(r);
    a->name = name;
    stg_read_position(r, entry, &a->base);
    size_t mark = stg_read_push(r, ".%s", entry->key);
    int rc = attribute_fill(r, entry, a);
    if (rc < 0)
        return rc;
    stg_read_pop(r, mark);
    *ret = a;
    return 0;
}

static int attribute_append(struct stg_reader *r, const struct stg_text_node *entry,
                            char *name, Stager__Node *node)
{
    int rc = attribute_make(r, entry, name, &node->attr[node->n_attr]);
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
        return fail_kind(r, entry, "a mapping with at least one key");
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
        return fail_kind(r, entry, "a mapping with at least one entry");
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
        return stg_read_fail_key(r, entry, message->descriptor);
    if (entry->kind == STG_TEXT_MAPPING)
        return mapping_add(r, entry, node);
    return attribute_append(
        r, entry, stg_bump_strndup(r->bump, entry->key, strlen(entry->key)), node);
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

/* ---- nodes ---- */

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
        return fail_kind(r, mapping, "a mapping: {name: ..., op: ..., input: [...]}");
    node->attr =
        stg_bump_alloc(r->bump, attribute_count(mapping) * sizeof(Stager__Attribute *));
    if (node->attr == NULL)
        return stg_read_fail_memory(r);
    int rc = stg_read_fields(r, mapping, message, attribute_add);
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
        stg_read_fail_key(r, entry, message->descriptor);
    return field;
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
    if (arguments.kind != STG_TEXT_MAPPING) {
        char expected[160];
        snprintf(expected, sizeof(expected), "its arguments: {%s: ...}",
                 type->n_fields > 0 ? type->fields[0].name : "");
        return fail_kind(r, entry, expected);
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
        return fail_kind(r, node,
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
        return stg_read_fields(r, node, message, NULL);
    if (node->kind != STG_TEXT_LIST || node->key == NULL)
        return fail_kind(r, node, "the steps of the branch: [{range: {stop: 5}}, ...]");
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
    return stg_read_fields(r, &branch, message, NULL);
}

/* ---- attributes and codes by themselves ---- */

static int attribute_read(struct stg_reader *r, const struct stg_text_node *node,
                          ProtobufCMessage *message)
{
    ((Stager__Attribute *)message)->name = (char *)(uintptr_t) "value";
    return attribute_fill(r, node, (Stager__Attribute *)message);
}

static int values_read(struct stg_reader *r, const struct stg_text_node *node,
                       ProtobufCMessage *message)
{
    Stager__Values *values = (Stager__Values *)message;
    size_t n = node->kind == STG_TEXT_MAPPING ? node->n : 1;
    values->value = stg_bump_alloc(r->bump, (n + 1) * sizeof(Stager__Attribute *));
    if (values->value == NULL)
        return stg_read_fail_memory(r);
    if (node->kind != STG_TEXT_MAPPING) {
        ProtobufCMessage *all;
        int rc = stg_read_message(r, node, &stager__attribute__descriptor, &all);
        if (rc < 0)
            return rc;
        ((Stager__Attribute *)all)->name = (char *)(uintptr_t) "";
        values->value[values->n_value++] = (Stager__Attribute *)all;
        return 0;
    }
    for (const struct stg_text_node *e = node->first; e != NULL; e = e->next) {
        char *name = stg_bump_strndup(r->bump, e->key, strlen(e->key));
        int rc = attribute_make(r, e, name, &values->value[values->n_value]);
        if (rc < 0)
            return rc;
        values->n_value++;
    }
    return 0;
}

static int code_read(struct stg_reader *r, const struct stg_text_node *node,
                     uint32_t *ret)
{
    struct stg_value value = {0};
    bool ok = node->kind == STG_TEXT_SCALAR && stg_text_value(node, &value);
    if (ok && value.kind == STG_VALUE_INT && value.i >= 1 &&
        value.i <= STAGER_UNAUTHENTICATED) {
        *ret = (uint32_t)value.i;
        return 0;
    }
    const char *names[STAGER_UNAUTHENTICATED + 1];
    for (uint32_t i = 1; i <= STAGER_UNAUTHENTICATED; i++) {
        names[i - 1] = stg_status_name((int)i);
        if (ok && value.kind == STG_VALUE_STRING && strcmp(value.s, names[i - 1]) == 0) {
            *ret = i;
            return 0;
        }
    }
    char found[80];
    const char *near = ok && value.kind == STG_VALUE_STRING
                           ? stg_nearest(value.s, names, STAGER_UNAUTHENTICATED)
                           : NULL;
    return stg_read_fail(r, node->line, node->column,
                         "found %s; expected the name of a status code, as OUT_OF_RANGE, "
                         "or its number from 1 to %d%s%s%s",
                         stg_text_found(node, found, sizeof(found)),
                         STAGER_UNAUTHENTICATED, near != NULL ? "; did you mean " : "",
                         near != NULL ? near : "", near != NULL ? "?" : "");
}

static int codes_read(struct stg_reader *r, const struct stg_text_node *node,
                      ProtobufCMessage *message)
{
    Stager__Codes *codes = (Stager__Codes *)message;
    if (node->kind != STG_TEXT_LIST)
        return fail_kind(r, node, "a list of status codes: [OUT_OF_RANGE]");
    codes->code = stg_bump_alloc(r->bump, (node->n + 1) * sizeof(uint32_t));
    if (codes->code == NULL)
        return stg_read_fail_memory(r);
    for (const struct stg_text_node *e = node->first; e != NULL; e = e->next) {
        size_t mark = stg_read_push(r, "[%zu]", codes->n_code);
        int rc = code_read(r, e, &codes->code[codes->n_code]);
        if (rc < 0)
            return rc;
        codes->n_code++;
        stg_read_pop(r, mark);
    }
    return 0;
}

stg_read_shape *stg_read_shape_of(const ProtobufCMessageDescriptor *type)
{
    static const struct {
        const ProtobufCMessageDescriptor *type;
        stg_read_shape *read;
    } shapes[] = {
        {&stager__node__descriptor, node_read},
        {&stager__step__descriptor, step_read},
        {&stager__reader__descriptor, step_read},
        {&stager__branch__descriptor, branch_read},
        {&stager__attribute__descriptor, attribute_read},
        {&stager__values__descriptor, values_read},
        {&stager__codes__descriptor, codes_read},
        {&stager__features__descriptor, stg_read_features},
    };
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        if (shapes[i].type == type)
            return shapes[i].read;
    }
    return NULL;
}
