/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/graph/composite.h"

#include <inttypes.h>
#include <string.h>

#include "core/layout.h"

/* Bytes of "ids" in "ids/values", part 0; 0: not of that form. */
static size_t prefix_bytes(const struct stg_component *c)
{
    static const char end[] = "/values";
    size_t bytes = strlen(c->name), n = sizeof(end) - 1;
    return c->part == STG_PART_VALUES && bytes > n &&
                   strcmp(c->name + bytes - n, end) == 0
               ? bytes - n
               : 0;
}

/* How many components from `first` on are parts of one; 1: it is by itself. */
static size_t count_parts(const struct stg_schema *schema, size_t first)
{
    const struct stg_component *c = &schema->components[first];
    size_t bytes = prefix_bytes(c), n = 1;
    while (bytes > 0 && first + n < schema->n && c[n].part != STG_PART_VALUES &&
           strncmp(c[n].name, c->name, bytes + 1) == 0)
        n++;
    return n;
}

const struct stg_component *stg_composite_find(const struct stg_schema *schema,
                                               const char *name, size_t *ret_n)
{
    size_t bytes = strlen(name);
    for (size_t i = 0; i < schema->n; i++) {
        const struct stg_component *c = &schema->components[i];
        size_t n = count_parts(schema, i);
        if (n > 1 && prefix_bytes(c) == bytes && strncmp(c->name, name, bytes) == 0) {
            *ret_n = n;
            return c;
        }
    }
    return NULL;
}

static bool is_named(const struct stg_schema *schema, const struct stg_node *nodes,
                     size_t n_nodes, const char *name)
{
    for (size_t i = 0; i < n_nodes; i++) {
        if (strcmp(nodes[i].name, name) == 0)
            return true;
    }
    for (size_t i = 0; i < schema->n; i++) {
        if (strcmp(schema->components[i].name, name) == 0)
            return true;
    }
    return false;
}

int stg_composite_features(const struct stg_schema *schema, const struct stg_node *nodes,
                           size_t n_nodes, struct stg_bump *bump,
                           const struct stg_feature **features, size_t *n)
{
    size_t most = *n + schema->n * *n, to = 0, n_parts;
    bool found = false;
    for (size_t i = 0; i < *n; i++)
        found |= stg_composite_find(schema, (*features)[i].tensor, &n_parts) != NULL;
    struct stg_feature *all = found ? stg_bump_alloc(bump, most * sizeof(*all)) : NULL;
    if (all == NULL)
        return found ? -STAGER_RESOURCE_EXHAUSTED : 0;
    for (size_t i = 0; i < *n; i++) {
        const struct stg_feature *from = &(*features)[i];
        const struct stg_component *parts =
            stg_composite_find(schema, from->tensor, &n_parts);
        if (parts == NULL || from->part != STG_PART_VALUES ||
            is_named(schema, nodes, n_nodes, from->tensor)) {
            all[to++] = *from;
            continue;
        }
        for (size_t k = 0; k < n_parts; k++) {
            struct stg_feature *part = &all[to++];
            *part = *from;
            part->tensor = parts[k].name;
            part->part = parts[k].part;
            part->path = stg_bump_printf(bump, "%s%s", from->path,
                                         parts[k].name + strlen(from->tensor));
            if (part->path == NULL)
                return -STAGER_RESOURCE_EXHAUSTED;
        }
    }
    *features = all;
    *n = to;
    return 0;
}

/* ---- the structure, JSON ---- */

/* `s` as a string of JSON; names hold no control characters. */
static const char *quote(struct stg_bump *bump, const char *s)
{
    char *ret = stg_bump_alloc(bump, 2 * strlen(s) + 3), *to = ret;
    if (ret == NULL)
        return NULL;
    *to++ = '"';
    for (; *s != '\0'; *to++ = *s++) {
        if (*s == '"' || *s == '\\')
            *to++ = '\\';
    }
    strcpy(to, "\"");
    return ret;
}

/* What stands for n features of parts, from `parts` on. */
static const char *skeleton(struct stg_bump *bump, const struct stg_feature *parts,
                            size_t n)
{
    const char *names[3] = {"", "", ""};
    for (size_t i = 0; i < n && i < 3; i++) {
        names[i] = quote(bump, parts[i].path);
        if (names[i] == NULL)
            return NULL;
    }
    return n == 2
               ? stg_bump_printf(bump, "{\"ragged\":{\"values\":%s,\"row_splits\":%s}}",
                                 names[0], names[1])
               : stg_bump_printf(
                     bump,
                     "{\"sparse\":{\"values\":%s,\"indices\":%s,\"dense_shape\":%s}}",
                     names[0], names[1], names[2]);
}

/* Puts `in` in the place of the leaf, which is no key. */
static const char *replace_leaf(struct stg_bump *bump, const char *structure,
                                const char *leaf, const char *in)
{
    size_t bytes = strlen(leaf);
    const char *at = strstr(structure, leaf);
    while (at != NULL && at[bytes] == ':')
        at = strstr(at + 1, leaf);
    return at == NULL ? structure
                      : stg_bump_printf(bump, "%.*s%s%s", (int)(at - structure),
                                        structure, in, at + bytes);
}

/* Features before and after stg_composite_features. */
static int restructure(struct stg_bump *bump, const struct stg_feature *before,
                       size_t n_before, const struct stg_feature *after, size_t n_after,
                       const char **structure)
{
    for (size_t i = 0, k = 0; i < n_before; i++, k++) {
        size_t n = 1;
        while (before[i].part == STG_PART_VALUES && k + n < n_after &&
               after[k + n].part != STG_PART_VALUES &&
               (i + 1 == n_before || before[i + 1].part == STG_PART_VALUES))
            n++;
        if (n == 1)
            continue;
        const char *leaf = quote(bump, before[i].path);
        const char *in = skeleton(bump, &after[k], n);
        if (leaf == NULL || in == NULL)
            return -STAGER_RESOURCE_EXHAUSTED;
        *structure = replace_leaf(bump, *structure, leaf, in);
        if (*structure == NULL)
            return -STAGER_RESOURCE_EXHAUSTED;
        k += n - 1;
    }
    return 0;
}

static bool any_composite(const struct stg_schema *schema)
{
    bool found = false;
    for (size_t i = 0; i < schema->n; i++)
        found |= count_parts(schema, i) > 1;
    return found;
}

/* Of what a dataset yields: a mapping by the names of components. */
static int structure_of(const struct stg_schema *schema, struct stg_bump *bump,
                        const char **ret)
{
    size_t bytes = 3;
    for (size_t i = 0; i < schema->n; i++)
        bytes += 6 * strlen(schema->components[i].name) + 80;
    char *text = stg_bump_alloc(bump, bytes), *to = text;
    if (text == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    for (size_t i = 0, n; i < schema->n; i += n) {
        const struct stg_component *c = &schema->components[i];
        n = count_parts(schema, i);
        struct stg_feature parts[3];
        for (size_t k = 0; k < n && k < 3; k++)
            parts[k] = (struct stg_feature){.path = c[k].name};
        size_t name_bytes = n > 1 ? prefix_bytes(c) : strlen(c->name);
        char *name = stg_bump_strndup(bump, c->name, name_bytes);
        const char *key = name != NULL ? quote(bump, name) : NULL;
        const char *value = n > 1 ? skeleton(bump, parts, n) : key;
        if (key == NULL || value == NULL)
            return -STAGER_RESOURCE_EXHAUSTED;
        *to++ = i == 0 ? '{' : ',';
        to = stpcpy(to, key);
        *to++ = ':';
        to = stpcpy(to, value);
    }
    strcpy(to, "}");
    *ret = text;
    return 0;
}

int stg_composite_staged(const struct stg_schema *schema, const struct stg_node *nodes,
                         size_t n_nodes, struct stg_bump *bump, struct stg_staged *staged)
{
    const struct stg_feature *before = staged->features;
    size_t n_before = staged->n_features;
    if (n_before == 0)
        return any_composite(schema) ? structure_of(schema, bump, &staged->structure) : 0;
    int rc = stg_composite_features(schema, nodes, n_nodes, bump, &staged->features,
                                    &staged->n_features);
    if (rc < 0 || staged->features == before)
        return rc;
    return restructure(bump, before, n_before, staged->features, staged->n_features,
                       &staged->structure);
}

/* ---- a feature said to be one ---- */

/* dims: "[n, rank]", for the message. */
static int check_index(const struct stg_component *part, int ndim, const char *what,
                       const char *dims, struct stg_err *err)
{
    char shape[256];
    if (part->dtype == STAGER_INT64 && part->ndim == ndim)
        return 0;
    return stg_err(err, -STAGER_INVALID_ARGUMENT, "%s must be int64 %s, found %s %s",
                   what, dims, stg_dtype_name(part->dtype),
                   stg_shape_text(part->shape, part->ndim, shape, sizeof(shape)));
}

/* Both are known, and differ. */
static bool differ(int64_t a, int64_t b)
{
    return a >= 0 && b >= 0 && a != b;
}

static int check_splits(const struct stg_component *values,
                        const struct stg_component *splits, struct stg_err *err)
{
    int rc = check_index(splits, 1, "row_splits", "[rows + 1]", err);
    if (rc < 0)
        return rc;
    if (splits->shape[0] == 0)
        return stg_err(
            err, -STAGER_INVALID_ARGUMENT,
            "row_splits must have one entry more than there are rows, found none");
    if (values->ndim < 1)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "the values of a ragged feature must have rank 1 or more, but "
                       "\"%s\" is a scalar",
                       values->name);
    return 0;
}

static int check_indices(const struct stg_component *values,
                         const struct stg_component *indices, struct stg_err *err)
{
    int rc = check_index(indices, 2, "indices", "[values, rank]", err);
    if (rc < 0)
        return rc;
    if (values->ndim != 1)
        return stg_err(
            err, -STAGER_INVALID_ARGUMENT,
            "the values of a sparse feature must have rank 1, but \"%s\" has rank %d",
            values->name, values->ndim);
    if (differ(values->shape[0], indices->shape[0]))
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "%" PRId64 " indices for %" PRId64 " values", indices->shape[0],
                       values->shape[0]);
    return 0;
}

static int check_shape(const struct stg_component *indices,
                       const struct stg_component *shape, struct stg_err *err)
{
    int rc = check_index(shape, 1, "dense_shape", "[rank]", err);
    if (rc < 0)
        return rc;
    if (shape->shape[0] == 0 || indices->shape[1] == 0 ||
        differ(indices->shape[1], shape->shape[0]))
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "a dense_shape of rank %" PRId64 " for indices of rank %" PRId64,
                       shape->shape[0], indices->shape[1]);
    return 0;
}

int stg_composite_check_part(const struct stg_schema *boundary, size_t i,
                             struct stg_err *err)
{
    const struct stg_component *part = &boundary->components[i];
    if (part->part != STG_PART_VALUES && i == 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "a part without the values of its feature before it");
    switch (part->part) {
    case STG_PART_ROW_SPLITS: return check_splits(part - 1, part, err);
    case STG_PART_INDICES: return check_indices(part - 1, part, err);
    case STG_PART_DENSE_SHAPE: return check_shape(part - 1, part, err);
    default: return 0;
    }
}
