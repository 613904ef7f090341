/* SPDX-License-Identifier: Apache-2.0
 *
 * ragged_batch: elements of which the first dimension is not known lie one after the
 * other, and row_splits say where each begins. So do the lists of elements that are
 * values and row_splits themselves.
 */
#include <stdio.h>
#include <string.h>

#include "daemon/dataset/steps/collect.h"

static bool is_ragged(const struct stg_component *c)
{
    return c->ndim > 0 && c->shape[0] < 0;
}

/* Component c and the next one are values and row_splits. */
static bool is_pair(const struct stg_schema *in, size_t c)
{
    return is_ragged(&in->components[c]) && c + 1 < in->n &&
           in->components[c + 1].part == STG_PART_ROW_SPLITS &&
           in->components[c + 1].ndim == 1;
}

static size_t n_taken(const struct stg_schema *in, size_t c)
{
    return is_pair(in, c) ? 2 : 1;
}

static int check_component(const struct stg_step *step, const struct stg_component *c,
                           struct stg_err *err)
{
    for (int d = 1; d < c->ndim; d++) {
        char shape[128];
        if (c->shape[d] < 0)
            return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                                "component %s has shape %s; only its first dimension may "
                                "be ragged: use padded_batch, or reshape it in a map",
                                c->name,
                                stg_shape_text(c->shape, c->ndim, shape, sizeof(shape)));
    }
    return 0;
}

static const char *part_name(struct stg_bump *bump, const char *name, const char *part)
{
    size_t bytes = strlen(name) + strlen(part) + 1;
    char *ret = stg_bump_alloc(bump, bytes);
    if (ret != NULL)
        snprintf(ret, bytes, "%s%s", name, part);
    return ret;
}

static struct stg_component splits_of(const char *name, int64_t size, uint32_t part)
{
    return (struct stg_component){
        .name = name, .dtype = STAGER_INT64, .ndim = 1, .shape = {size}, .part = part};
}

/* values and row_splits of component c; *to moves on. */
static int infer_ragged(const struct stg_step *step, const struct stg_component *c,
                        struct stg_bump *bump, struct stg_component **to,
                        struct stg_err *err)
{
    int64_t size = stg_collector_dimension(step);
    struct stg_component *values = (*to)++, *splits = (*to)++;
    *values = *c;
    values->name = part_name(bump, c->name, "/values");
    *splits = splits_of(part_name(bump, c->name, "/row_splits"), size < 0 ? -1 : size + 1,
                        STG_PART_ROW_SPLITS);
    if (values->name == NULL || splits->name == NULL)
        return stg_step_err(step, -STAGER_RESOURCE_EXHAUSTED, err, "out of memory");
    return 0;
}

/* The values of a pair become ragged: their lists come one after the other. row_splits
 * say where the lists of each element begin. */
static int infer_pair(const struct stg_step *step, const struct stg_component *c,
                      struct stg_bump *bump, struct stg_component **to,
                      struct stg_err *err)
{
    int64_t size = stg_collector_dimension(step);
    int rc = infer_ragged(step, c, bump, to, err);
    (*to)[-1].shape[0] = -1;
    *(*to)++ = splits_of(c[1].name, size < 0 ? -1 : size + 1, STG_PART_VALUES);
    return rc;
}

static int ragged_infer(const struct stg_step *step, const struct stg_schema *in,
                        struct stg_bump *bump, struct stg_schema *ret,
                        struct stg_err *err)
{
    int rc = stg_collector_infer(step, in, err);
    size_t n = 0;
    for (size_t c = 0; rc == 0 && c < in->n; c++)
        rc = check_component(step, &in->components[c], err);
    for (size_t c = 0; rc == 0 && c < in->n; c += n_taken(in, c))
        n += is_ragged(&in->components[c]) ? n_taken(in, c) + 1 : 1;
    if (rc == 0)
        rc = stg_schema_create(bump, n, ret, err);
    struct stg_component *to = rc == 0 ? ret->components : NULL;
    for (size_t c = 0; rc == 0 && c < in->n; c += n_taken(in, c)) {
        const struct stg_component *from = &in->components[c];
        if (is_pair(in, c))
            rc = infer_pair(step, from, bump, &to, err);
        else if (is_ragged(from))
            rc = infer_ragged(step, from, bump, &to, err);
        else
            stg_component_prepend(to++, from, stg_collector_dimension(step));
    }
    return rc;
}

/* ---- a batch ---- */

static void set_splits(struct stg_tensor *tensor, int64_t *splits, int64_t n)
{
    *tensor = (struct stg_tensor){.dtype = STAGER_INT64,
                                  .ndim = 1,
                                  .shape = {n},
                                  .data = splits,
                                  .data_bytes = (uint64_t)n * sizeof(int64_t)};
}

/* How many rows of component c each record has; of row_splits, less the first one. */
static void make_splits(const struct stg_pieces *pieces, uint32_t c, bool is_pair,
                        struct stg_block *block, struct stg_tensor *ret)
{
    int64_t n = pieces->n_records + 1, at = 0, rows = 0;
    int64_t *splits = stg_block_carve(block, (uint64_t)n * sizeof(int64_t));
    for (size_t i = 0; i < pieces->n; i++) {
        const struct stg_tensor *tensor = &pieces->blocks[i]->tensors[c];
        int64_t n_records = pieces->blocks[i]->n_records;
        for (int64_t k = 0; k < n_records; k++)
            splits[at++] = rows + stg_tensor_lengths(tensor, k) - k * is_pair;
        rows += stg_tensor_lengths(tensor, n_records) - n_records * is_pair;
    }
    splits[at] = rows;
    set_splits(ret, splits, n);
}

static int64_t n_lists(const struct stg_pieces *pieces, uint32_t c)
{
    int64_t n = 0;
    for (size_t i = 0; i < pieces->n; i++)
        n += stg_tensor_n(&pieces->blocks[i]->tensors[c]) - pieces->blocks[i]->n_records;
    return n;
}

/* The row_splits of all records, component c, as those of one. */
static void join_splits(const struct stg_pieces *pieces, uint32_t c,
                        struct stg_block *block, struct stg_tensor *ret)
{
    int64_t n = n_lists(pieces, c) + 1, at = 0, before = 0;
    int64_t *splits = stg_block_carve(block, (uint64_t)n * sizeof(int64_t));
    for (size_t i = 0; i < pieces->n; i++) {
        const struct stg_tensor *tensor = &pieces->blocks[i]->tensors[c];
        const int64_t *from = tensor->data;
        for (int64_t k = 0; k < pieces->blocks[i]->n_records; k++) {
            const int64_t *last =
                (const int64_t *)tensor->data + stg_tensor_lengths(tensor, k + 1) - 1;
            while (from < last)
                splits[at++] = before + *from++;
            before += *from++;
        }
    }
    splits[at] = before;
    set_splits(ret, splits, n);
}

static uint64_t splits_room(int64_t n)
{
    return stg_block_room((uint64_t)(n + 1) * sizeof(int64_t));
}

static uint64_t n_bytes(const struct stg_schema *in, const struct stg_pieces *pieces)
{
    uint64_t bytes = stg_block_rows_room(pieces->blocks, pieces->n);
    for (uint32_t c = 0; c < in->n; c += (uint32_t)n_taken(in, c)) {
        bytes += stg_block_join_room(pieces->blocks, pieces->n, c);
        if (is_ragged(&in->components[c]))
            bytes += splits_room(pieces->n_records);
        if (is_pair(in, c))
            bytes += splits_room(n_lists(pieces, c + 1));
    }
    return bytes;
}

static void fill(const struct stg_schema *in, const struct stg_pieces *pieces,
                 struct stg_block *block)
{
    for (uint32_t c = 0, at = 0; c < in->n; c += (uint32_t)n_taken(in, c)) {
        bool flat = is_ragged(&in->components[c]), pair = is_pair(in, c);
        stg_block_join(block, at++, pieces->blocks, pieces->n, c, flat);
        if (pair)
            join_splits(pieces, c + 1, block, &block->tensors[at++]);
        if (flat)
            make_splits(pieces, c + pair, pair, block, &block->tensors[at++]);
    }
}

static int ragged_make(struct stg_collector *collector, struct stg_block **ret,
                       struct stg_err *err)
{
    const struct stg_schema *in = collector->iter.input->schema;
    struct stg_pieces *pieces = &collector->pieces;
    struct stg_block *block;
    struct stg_quota *quota = collector->iter.dataset->quota;
    uint64_t n_refused = stg_quota_n_refused(quota);
    int rc = stg_block_create(quota, (uint32_t)collector->iter.schema->n,
                              n_bytes(in, pieces), NULL, "a ragged batch", &block, err);
    if (rc < 0) {
        stg_step_prefix(collector->iter.step, rc, err);
        return stg_collector_too_large(&collector->iter, pieces, n_refused, rc, ret, err);
    }
    fill(in, pieces, block);
    stg_block_join_rows(block, pieces->blocks, pieces->n);
    stg_pieces_clear(pieces);
    stg_block_pack(block);
    *ret = block;
    return 0;
}

/* ---- life ---- */

static const struct stg_collector_impl ragged_collector = {.make = ragged_make};

static int ragged_create(struct stg_dataset *dataset, const struct stg_step *step,
                         const struct stg_schema *schema, struct stg_iter *input,
                         struct stg_iter **ret, struct stg_err *err)
{
    struct stg_collector *ragged = stg_iter_create(sizeof(*ragged), &stg_collector_iter,
                                                   dataset, step, schema, input, err);
    if (ragged == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    stg_collector_init(ragged, &ragged_collector);
    stg_iter_allow_uneven(input);
    *ret = &ragged->iter;
    return 0;
}

const struct stg_transformation stg_ragged_batch = {.name = "ragged_batch",
                                                    .infer = ragged_infer,
                                                    .create = ragged_create,
                                                    .is_indexable = true};
