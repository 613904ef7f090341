/* SPDX-License-Identifier: Apache-2.0
 *
 * `features`: one tensor, a list or a mapping, nested -> leaves with paths, and the
 * skeleton that a client gives the structure back from. {sparse: {…}} and {ragged: {…}}
 * are features of several tensors, null is a place that stays empty.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/layout.h"
#include "proto/load_read.h"

#define MAX_PATH_BYTES 255u

/* Text that grows in a bump. */
struct builder {
    struct stg_bump *bump;
    char *s;
    size_t n, capacity;
};

/* The leaves found so far; nodes[i] is where leaf i is written. */
struct walk {
    struct stg_reader *r;
    Stager__Features *ret;
    const struct stg_text_node **nodes;
    struct builder structure;
};

static int builder_add(struct builder *b, const char *s, size_t n)
{
    if (b->n + n + 1 > b->capacity) {
        size_t capacity = 2 * (b->n + n + 1);
        char *grown = stg_bump_alloc(b->bump, capacity);
        if (grown == NULL)
            return -STAGER_RESOURCE_EXHAUSTED;
        if (b->n > 0)
            memcpy(grown, b->s, b->n);
        b->s = grown;
        b->capacity = capacity;
    }
    memcpy(b->s + b->n, s, n);
    b->n += n;
    b->s[b->n] = '\0';
    return 0;
}

/* A string of JSON. Paths hold no control characters. */
static int builder_quote(struct builder *b, const char *s)
{
    int rc = builder_add(b, "\"", 1);
    for (; *s != '\0' && rc == 0; s++) {
        if (*s == '"' || *s == '\\')
            rc = builder_add(b, "\\", 1);
        if (rc == 0)
            rc = builder_add(b, s, 1);
    }
    return rc < 0 ? rc : builder_add(b, "\"", 1);
}

static size_t count_leaves(const struct stg_text_node *node)
{
    size_t n = node->kind == STG_TEXT_SCALAR;
    for (const struct stg_text_node *e = node->first; e != NULL; e = e->next)
        n += count_leaves(e);
    return n;
}

static int path_check(struct stg_reader *r, const struct stg_text_node *node,
                      const char *path)
{
    size_t n = strlen(path);
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)path[i] < 0x20 || path[i] == 0x7f)
            return stg_read_fail(r, node->line, node->column,
                                 "a control character in the name of a feature");
    }
    if (n > MAX_PATH_BYTES)
        return stg_read_fail(r, node->line, node->column,
                             "the name of a feature has %zu bytes; at most %u", n,
                             MAX_PATH_BYTES);
    return 0;
}

static int leaf_add(struct walk *w, const struct stg_text_node *node, const char *path,
                    uint32_t part)
{
    struct stg_reader *r = w->r;
    if (stg_text_is_null(node) || node->s_bytes == 0 || strlen(node->s) != node->s_bytes)
        return stg_read_fail_found(r, node,
                                   "the name of a tensor: \"ids\" or \"columns:0\"");
    int rc = path_check(r, node, path != NULL ? path : node->s);
    if (rc < 0)
        return rc;
    Stager__Feature *leaf =
        (Stager__Feature *)stg_read_new(r, &stager__feature__descriptor);
    if (leaf == NULL)
        return stg_read_fail_memory(r);
    stg_read_position(r, node, &leaf->base);
    leaf->part = part;
    leaf->has_part = part != STG_PART_VALUES;
    leaf->tensor = stg_bump_strndup(r->bump, node->s, node->s_bytes);
    if (leaf->tensor == NULL)
        return stg_read_fail_memory(r);
    leaf->path = leaf->tensor;
    if (path != NULL)
        leaf->path = stg_bump_strdup(r->bump, path);
    if (leaf->path == NULL || builder_quote(&w->structure, leaf->path) < 0)
        return stg_read_fail_memory(r);
    w->nodes[w->ret->n_leaf] = node;
    w->ret->leaf[w->ret->n_leaf++] = leaf;
    return 0;
}

/* ---- features of several tensors ---- */

static const struct composite {
    const char *key;
    struct {
        const char *key;
        uint32_t part;
    } parts[3]; /* in the order in which they are staged */
    const char *keys;
} composites[] = {
    {"sparse",
     {{"values", STG_PART_VALUES},
      {"indices", STG_PART_INDICES},
      {"dense_shape", STG_PART_DENSE_SHAPE}},
     "values, indices, dense_shape"},
    {"ragged",
     {{"values", STG_PART_VALUES}, {"row_splits", STG_PART_ROW_SPLITS}},
     "values, row_splits"},
};

/* {sparse: {…}} or {ragged: {…}} and nothing beside it; else NULL: a mapping may well
 * have a key of that name. */
static const struct composite *composite_find(const struct stg_text_node *node)
{
    if (node->kind != STG_TEXT_MAPPING || node->n != 1 ||
        node->first->kind != STG_TEXT_MAPPING)
        return NULL;
    for (size_t i = 0; i < sizeof(composites) / sizeof(composites[0]); i++) {
        if (strcmp(node->first->key, composites[i].key) == 0)
            return &composites[i];
    }
    return NULL;
}

static const struct stg_text_node *entry_find(const struct stg_text_node *map,
                                              const char *key)
{
    const struct stg_text_node *e = map->first;
    while (e != NULL && strcmp(e->key, key) != 0)
        e = e->next;
    return e;
}

static int part_walk(struct walk *w, const struct stg_text_node *entry, const char *key,
                     uint32_t part, const char *parent)
{
    char path[MAX_PATH_BYTES + 64];
    if (parent != NULL && strlen(parent) + 1 + strlen(key) > MAX_PATH_BYTES)
        return stg_read_fail(w->r, entry->line, entry->column,
                             "the name of a feature has %zu bytes; at most %u",
                             strlen(parent) + 1 + strlen(key), MAX_PATH_BYTES);
    snprintf(path, sizeof(path), "%s%s%s", parent != NULL ? parent : "",
             parent != NULL ? "/" : "", key);
    if (builder_quote(&w->structure, key) < 0 || builder_add(&w->structure, ":", 1) < 0)
        return stg_read_fail_memory(w->r);
    size_t mark = stg_read_push(w->r, ".%s", key);
    int rc = leaf_add(w, entry, path, part);
    if (rc == 0)
        stg_read_pop(w->r, mark);
    return rc;
}

static int composite_walk(struct walk *w, const struct stg_text_node *node,
                          const struct composite *c, const char *path)
{
    const struct stg_text_node *map = node->first;
    size_t mark = stg_read_push(w->r, ".%s", c->key), n = 0;
    if (builder_add(&w->structure, "{", 1) < 0 ||
        builder_quote(&w->structure, c->key) < 0)
        return stg_read_fail_memory(w->r);
    for (size_t i = 0; i < 3 && c->parts[i].key != NULL; i++, n++) {
        const struct stg_text_node *entry = entry_find(map, c->parts[i].key);
        if (entry == NULL)
            return stg_read_fail(w->r, map->line, map->column,
                                 "a %s feature needs the keys %s; %s is missing", c->key,
                                 c->keys, c->parts[i].key);
        if (builder_add(&w->structure, i == 0 ? ":{" : ",", i == 0 ? 2 : 1) < 0)
            return stg_read_fail_memory(w->r);
        int rc = part_walk(w, entry, c->parts[i].key, c->parts[i].part, path);
        if (rc < 0)
            return rc;
    }
    if (map->n != n)
        return stg_read_fail(w->r, map->line, map->column,
                             "a %s feature has only the keys %s", c->key, c->keys);
    if (builder_add(&w->structure, "}}", 2) < 0)
        return stg_read_fail_memory(w->r);
    stg_read_pop(w->r, mark);
    return 0;
}

/* ---- the tree ---- */

static int tree_walk(struct walk *w, const struct stg_text_node *node, const char *path);

/* Entry i of a list or mapping whose own path is `parent` (NULL: the root). */
static int entry_walk(struct walk *w, const struct stg_text_node *entry, size_t i,
                      const char *parent)
{
    char number[24], path[MAX_PATH_BYTES + 64];
    snprintf(number, sizeof(number), "%zu", i);
    const char *key = entry->key != NULL ? entry->key : number;
    size_t n = strlen(key) + (parent != NULL ? strlen(parent) + 1 : 0);
    if (n > MAX_PATH_BYTES)
        return stg_read_fail(w->r, entry->line, entry->column,
                             "the name of a feature has %zu bytes; at most %u", n,
                             MAX_PATH_BYTES);
    snprintf(path, sizeof(path), "%s%s%s", parent != NULL ? parent : "",
             parent != NULL ? "/" : "", key);

    struct builder *b = &w->structure;
    int rc = i > 0 ? builder_add(b, ",", 1) : 0;
    if (rc == 0 && entry->key != NULL) {
        rc = path_check(w->r, entry, key);
        if (rc < 0)
            return rc;
        rc = builder_quote(b, key);
        if (rc == 0)
            rc = builder_add(b, ":", 1);
    }
    if (rc < 0)
        return stg_read_fail_memory(w->r);
    size_t mark = stg_read_push(w->r, entry->key != NULL ? ".%s" : "[%s]", key);
    rc = tree_walk(w, entry, path);
    if (rc < 0)
        return rc;
    stg_read_pop(w->r, mark);
    return 0;
}

static int tree_walk(struct walk *w, const struct stg_text_node *node, const char *path)
{
    const struct composite *composite = composite_find(node);
    if (composite != NULL)
        return composite_walk(w, node, composite, path);
    if (node->kind == STG_TEXT_SCALAR && stg_text_is_null(node))
        return builder_add(&w->structure, "null", 4) < 0 ? stg_read_fail_memory(w->r) : 0;
    if (node->kind == STG_TEXT_SCALAR)
        return leaf_add(w, node, path, STG_PART_VALUES);
    bool is_list = node->kind == STG_TEXT_LIST;
    if (node->n == 0)
        return stg_read_fail(w->r, node->line, node->column,
                             "an empty %s; name at least one tensor, or leave it out",
                             is_list ? "list" : "mapping");
    if (builder_add(&w->structure, is_list ? "[" : "{", 1) < 0)
        return stg_read_fail_memory(w->r);
    size_t i = 0;
    for (const struct stg_text_node *e = node->first; e != NULL; e = e->next, i++) {
        int rc = entry_walk(w, e, i, path);
        if (rc < 0)
            return rc;
    }
    if (builder_add(&w->structure, is_list ? "]" : "}", 1) < 0)
        return stg_read_fail_memory(w->r);
    return 0;
}

/* One of two features, with the place to complain at. */
struct named {
    const char *path;
    const struct stg_text_node *node;
};

static int by_path(const void *a, const void *b)
{
    const struct named *x = a, *y = b;
    int order = strcmp(x->path, y->path);
    if (order != 0)
        return order;
    if (x->node->line != y->node->line)
        return x->node->line < y->node->line ? -1 : 1;
    return x->node->column < y->node->column ? -1 : x->node->column > y->node->column;
}

/* {"a/b": x, a: {b: y}} has two features "a/b". */
static int duplicates_check(struct walk *w)
{
    size_t n = w->ret->n_leaf;
    struct named *all = stg_bump_alloc(w->r->bump, n * sizeof(*all));
    if (all == NULL)
        return stg_read_fail_memory(w->r);
    for (size_t i = 0; i < n; i++)
        all[i] = (struct named){w->ret->leaf[i]->path, w->nodes[i]};
    qsort(all, n, sizeof(*all), by_path);
    for (size_t i = 1; i < n; i++) {
        if (strcmp(all[i - 1].path, all[i].path) == 0)
            return stg_read_fail(
                w->r, all[i].node->line, all[i].node->column,
                "two features have the name \"%s\" (the other at line %d); rename one",
                all[i].path, all[i - 1].node->line);
    }
    return 0;
}

int stg_read_features(struct stg_reader *r, const struct stg_text_node *node,
                      ProtobufCMessage *message)
{
    struct walk w = {.r = r, .ret = (Stager__Features *)message};
    size_t n = count_leaves(node);
    w.structure.bump = r->bump;
    w.ret->leaf = stg_bump_alloc(r->bump, n * sizeof(Stager__Feature *));
    w.nodes = stg_bump_alloc(r->bump, n * sizeof(struct stg_text_node *));
    if (w.ret->leaf == NULL || w.nodes == NULL)
        return stg_read_fail_memory(r);
    int rc = tree_walk(&w, node, NULL);
    if (rc < 0)
        return rc;
    if (w.ret->n_leaf == 0)
        return stg_read_fail(r, node->line, node->column,
                             "nothing but nulls; name at least one tensor");
    w.ret->structure = w.structure.s;
    return duplicates_check(&w);
}
