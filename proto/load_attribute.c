/* SPDX-License-Identifier: Apache-2.0
 *
 * What a text writes as a value or a list: an attribute, values (one attribute, or a
 * mapping from names to attributes), conditions and codes (a list of names).
 */
#include <stdio.h>
#include <string.h>

#include "core/param.h"
#include "proto/load_read.h"

/* Checks that what lies under node is a box of dim[level..ndim). */
static int box_check(struct stg_reader *r, const struct stg_text_node *node,
                     const uint64_t *dim, int ndim, int level)
{
    if (node->kind == STG_TEXT_MAPPING)
        return stg_read_fail_found(r, node, "a value or a list");
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
        return stg_read_fail_found(r, node,
                                   "an integer of 64 bits; quote it to make it a string");
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

/* An attribute of that name; place and value are the node's. */
static int attribute_new(struct stg_reader *r, const struct stg_text_node *node,
                         char *name, Stager__Attribute **ret)
{
    Stager__Attribute *a =
        (Stager__Attribute *)stg_read_new(r, &stager__attribute__descriptor);
    if (a == NULL || name == NULL)
        return stg_read_fail_memory(r);
    a->name = name;
    stg_read_position(r, node, &a->base);
    *ret = a;
    return attribute_fill(r, node, a);
}

int stg_read_attribute(struct stg_reader *r, const struct stg_text_node *entry,
                       char *name, Stager__Attribute **ret)
{
    size_t mark = stg_read_push(r, ".%s", entry->key);
    int rc = attribute_new(r, entry, name, ret);
    if (rc == 0)
        stg_read_pop(r, mark);
    return rc;
}

int stg_read_unnamed(struct stg_reader *r, const struct stg_text_node *node,
                     ProtobufCMessage *message)
{
    ((Stager__Attribute *)message)->name = (char *)(uintptr_t) "value";
    return attribute_fill(r, node, (Stager__Attribute *)message);
}

int stg_read_values(struct stg_reader *r, const struct stg_text_node *node,
                    ProtobufCMessage *message)
{
    Stager__Values *values = (Stager__Values *)message;
    size_t n = node->kind == STG_TEXT_MAPPING ? node->n : 1;
    values->value = stg_bump_alloc(r->bump, (n + 1) * sizeof(Stager__Attribute *));
    if (values->value == NULL)
        return stg_read_fail_memory(r);
    if (node->kind != STG_TEXT_MAPPING) {
        values->n_value = 1;
        return attribute_new(r, node, (char *)(uintptr_t) "", &values->value[0]);
    }
    for (const struct stg_text_node *e = node->first; e != NULL; e = e->next) {
        char *name = stg_bump_strdup(r->bump, e->key);
        int rc = stg_read_attribute(r, e, name, &values->value[values->n_value]);
        if (rc < 0)
            return rc;
        values->n_value++;
    }
    return 0;
}

/* ---- conditions ---- */

static int bad_condition(struct stg_reader *r, const struct stg_text_node *node)
{
    return stg_read_fail_found(r, node,
                               "a list of a column, an op and a value or a list of "
                               "values: [price, \">\", 3.5], [site, in, [a, b]]");
}

static size_t n_scalars(const struct stg_text_node *node)
{
    size_t n = 0;
    for (const struct stg_text_node *e = node->first; e != NULL; e = e->next)
        n += e->kind == STG_TEXT_LIST ? e->n : 1;
    return n;
}

/* The attribute has column, op and all values in one list. */
static int condition_fill(struct stg_reader *r, const struct stg_text_node *node,
                          Stager__Attribute *a)
{
    size_t n = n_scalars(node);
    a->n_dim = 1;
    a->n_value = n;
    a->dim = stg_bump_alloc(r->bump, sizeof(*a->dim));
    a->value = stg_bump_alloc(r->bump, (n + 1) * sizeof(Stager__Scalar *));
    Stager__Scalar *scalars = stg_bump_alloc(r->bump, (n + 1) * sizeof(Stager__Scalar));
    if (a->dim == NULL || a->value == NULL || scalars == NULL)
        return stg_read_fail_memory(r);
    a->dim[0] = n;
    for (size_t i = 0; i < n; i++)
        a->value[i] = &scalars[i];
    return leaves_fill(r, node, &scalars);
}

static int condition_read(struct stg_reader *r, const struct stg_text_node *node,
                          size_t list, size_t number, Stager__Values *values)
{
    char name[64];
    if (node->kind != STG_TEXT_LIST || node->n < 2 || node->n > 3)
        return bad_condition(r, node);
    for (const struct stg_text_node *e = node->first; e != NULL; e = e->next) {
        bool is_last = e->next == NULL && node->n == 3;
        if (e->kind == STG_TEXT_MAPPING || (e->kind == STG_TEXT_LIST && !is_last))
            return bad_condition(r, e);
        for (const struct stg_text_node *k = e->first; k != NULL; k = k->next) {
            if (k->kind != STG_TEXT_SCALAR)
                return bad_condition(r, k);
        }
    }
    snprintf(name, sizeof(name), "%zu/%zu", list, number);
    Stager__Attribute *a =
        (Stager__Attribute *)stg_read_new(r, &stager__attribute__descriptor);
    if (a == NULL || (a->name = stg_bump_strdup(r->bump, name)) == NULL)
        return stg_read_fail_memory(r);
    stg_read_position(r, node, &a->base);
    values->value[values->n_value++] = a;
    return condition_fill(r, node, a);
}

/* A list whose entries are lists of lists, or of values. */
int stg_read_conditions(struct stg_reader *r, const struct stg_text_node *node,
                        ProtobufCMessage *message)
{
    Stager__Values *values = (Stager__Values *)message;
    const struct stg_text_node *first = node->kind == STG_TEXT_LIST ? node->first : NULL;
    if (first == NULL || first->kind != STG_TEXT_LIST || first->n == 0)
        return bad_condition(r, node);
    bool is_deep = first->first->kind == STG_TEXT_LIST;
    size_t n = node->n, list = 0, number = 0;
    for (const struct stg_text_node *e = first; e != NULL && is_deep; e = e->next)
        n += e->n;
    values->value = stg_bump_alloc(r->bump, (n + 1) * sizeof(Stager__Attribute *));
    if (values->value == NULL)
        return stg_read_fail_memory(r);
    int rc = 0;
    for (const struct stg_text_node *e = first; rc == 0 && e != NULL; e = e->next) {
        if (!is_deep) {
            rc = condition_read(r, e, 0, number++, values);
            continue;
        }
        if (e->kind != STG_TEXT_LIST || e->n == 0)
            return bad_condition(r, e);
        number = 0;
        for (const struct stg_text_node *k = e->first; rc == 0 && k != NULL; k = k->next)
            rc = condition_read(r, k, list, number++, values);
        list++;
    }
    return rc;
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
    const char *near = ok && value.kind == STG_VALUE_STRING
                           ? stg_nearest(value.s, names, STAGER_UNAUTHENTICATED)
                           : NULL;
    return stg_read_fail_found(r, node,
                               "the name of a status code, such as OUT_OF_RANGE, or its "
                               "number from 1 to %d%s%s%s",
                               STAGER_UNAUTHENTICATED,
                               near != NULL ? "; did you mean " : "",
                               near != NULL ? near : "", near != NULL ? "?" : "");
}

int stg_read_codes(struct stg_reader *r, const struct stg_text_node *node,
                   ProtobufCMessage *message)
{
    Stager__Codes *codes = (Stager__Codes *)message;
    if (node->kind != STG_TEXT_LIST)
        return stg_read_fail_found(r, node, "a list of status codes: [OUT_OF_RANGE]");
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
