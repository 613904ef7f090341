/* SPDX-License-Identifier: Apache-2.0
 *
 * ragged_batch: elements of which the first dimension is not known lie one after the
 * other, and row_splits say where each begins.
 */
#include <stdio.h>
#include <string.h>

#include "daemon/dataset/steps/collect.h"

static bool is_ragged(const struct stg_component *c)
{
    return c->ndim > 0 && c->shape[0] < 0;
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

/* values and row_splits of component c; *to moves on. */
static int infer_ragged(const struct stg_step *step, const struct stg_component *c,
                        struct stg_bump *bump, struct stg_component **to,
                        struct stg_err *err)
{
    int64_t size = stg_collector_dimension(step);
    struct stg_component *values = (*to)++, *splits = (*to)++;
    *values = *c;
    values->name = part_name(bump, c->name, "/values");
    *splits = (struct stg_component){.name = part_name(bump, c->name, "/row_splits"),
                                     .dtype = STAGER_INT64,
                                     .ndim = 1,
                                     .shape = {size < 0 ? -1 : size + 1},
                                     .part = STG_PART_ROW_SPLITS};
    if (values->name == NULL || splits->name == NULL)
        return stg_step_err(step, -STAGER_RESOURCE_EXHAUSTED, err, "out of memory");
    return 0;
}

static int ragged_infer(const struct stg_step *step, const struct stg_schema *in,
                        struct stg_bump *bump, struct stg_schema *ret,
                        struct stg_err *err)
{
    int rc = stg_collector_infer(step, in, err);
    size_t n = 0;
    for (size_t c = 0; rc == 0 && c < in->n; c++) {
        rc = check_component(step, &in->components[c], err);
        n += is_ragged(&in->components[c]) ? 2 : 1;
    }
    if (rc == 0)
        rc = stg_schema_create(bump, n, ret, err);
    struct stg_component *to = rc == 0 ? ret->components : NULL;
    for (size_t c = 0; rc == 0 && c < in->n; c++) {
        const struct stg_component *from = &in->components[c];
        if (is_ragged(from))
            rc = infer_ragged(step, from, bump, &to, err);
        else
            stg_component_prepend(to++, from, stg_collector_dimension(step));
    }
    return rc;
}

/* ---- a batch ---- */

static void make_splits(const struct stg_pieces *pieces, uint32_t c,
                        struct stg_block *block, struct stg_tensor *ret)
{
    int64_t n = pieces->n_records + 1, at = 0, rows = 0;
    int64_t *splits = stg_block_carve(block, (uint64_t)n * sizeof(int64_t));
    for (size_t i = 0; i < pieces->n; i++) {
        for (int64_t k = 0; k < pieces->blocks[i]->n_records; k++) {
            splits[at++] = rows;
            rows += pieces->blocks[i]->tensors[c].shape[1];
        }
    }
    splits[at] = rows;
    *ret = (struct stg_tensor){.dtype = STAGER_INT64,
                               .ndim = 1,
                               .shape = {n},
                               .data = splits,
                               .data_bytes = (uint64_t)n * sizeof(int64_t)};
}

static int ragged_make(struct stg_collector *collector, struct stg_block **ret,
                       struct stg_err *err)
{
    const struct stg_schema *in = collector->iter.input->schema;
    struct stg_pieces *pieces = &collector->pieces;
    uint64_t splits = stg_block_room((uint64_t)(pieces->n_records + 1) * sizeof(int64_t));
    uint64_t bytes = stg_block_rows_room(pieces->blocks, pieces->n);
    for (uint32_t c = 0; c < in->n; c++)
        bytes += stg_block_join_room(pieces->blocks, pieces->n, c) +
                 (is_ragged(&in->components[c]) ? splits : 0);
    struct stg_block *block;
    struct stg_quota *quota = collector->iter.dataset->quota;
    uint64_t n_refused = stg_quota_n_refused(quota);
    int rc = stg_block_create(quota, (uint32_t)collector->iter.schema->n, bytes, NULL,
                              "a ragged batch", &block, err);
    if (rc < 0) {
        stg_step_prefix(collector->iter.step, rc, err);
        return stg_collector_too_large(&collector->iter, pieces, n_refused, rc, ret, err);
    }
    for (uint32_t c = 0, at = 0; c < in->n; c++) {
        bool flat = is_ragged(&in->components[c]);
        stg_block_join(block, at++, pieces->blocks, pieces->n, c, flat);
        if (flat)
            make_splits(pieces, c, block, &block->tensors[at++]);
    }
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
    *ret = &ragged->iter;
    return 0;
}

const struct stg_transformation stg_ragged_batch = {.name = "ragged_batch",
                                                    .infer = ragged_infer,
                                                    .create = ragged_create,
                                                    .is_indexable = true};
