/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "daemon/dataset/block.h"
#include "daemon/dataset/step.h"
#include "daemon/dataset/unbatch.h"

struct batch {
    struct stg_iter iter;
    const struct stg_attr *sizes; /* of batches in turn; one, but for rebatch */
    size_t now;                   /* the size of the one that is made */
    bool drop_remainder;
    /* What is collected for the next batch; kept when an error goes by. */
    struct stg_block **pieces;
    size_t n_pieces, pieces_size;
    int64_t n_records;
};

static int check_size(const struct stg_step *step, const struct stg_value *value,
                      struct stg_err *err)
{
    if (value->kind == STG_VALUE_INT && value->i >= 1)
        return 0;
    return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                        "batch_size is %lld; it must be 1 or more", (long long)value->i);
}

/* The size that all batches have, or -1. */
static int64_t fixed_size(const struct stg_step *step, const struct stg_attr *sizes)
{
    bool fixed = stg_step_bool(step, "drop_remainder", false);
    for (size_t i = 1; i < sizes->n_values; i++)
        fixed &= sizes->values[i].i == sizes->values[0].i;
    return fixed ? sizes->values[0].i : -1;
}

static int add_dimension(const struct stg_step *step, const struct stg_schema *in,
                         int64_t size, struct stg_bump *bump, struct stg_schema *ret,
                         struct stg_err *err)
{
    int rc = stg_schema_create(bump, in->n, ret, err);
    for (size_t c = 0; rc == 0 && c < in->n; c++) {
        struct stg_component *to = &ret->components[c];
        *to = in->components[c];
        /* A block has a dimension of its own before the batch's. */
        if (to->ndim >= STG_MAX_DIMS - 1)
            return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                                "component %s would have more than %d dimensions",
                                to->name, STG_MAX_DIMS - 1);
        memmove(to->shape + 1, to->shape, (size_t)to->ndim * sizeof(to->shape[0]));
        to->shape[0] = size;
        to->ndim++;
    }
    return rc;
}

static int batch_infer(const struct stg_step *step, const struct stg_schema *in,
                       struct stg_bump *bump, struct stg_schema *ret, struct stg_err *err)
{
    int rc = stg_step_needs_input(step, in, err);
    if (rc < 0)
        return rc;
    const struct stg_attr *sizes =
        stg_attr_find(step->attrs, step->n_attrs, "batch_size");
    if (sizes == NULL || sizes->n_values == 0)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err, "batch_size is missing");
    for (size_t i = 0; i < sizes->n_values; i++) {
        rc = check_size(step, &sizes->values[i], err);
        if (rc < 0)
            return rc;
    }
    return add_dimension(step, in, fixed_size(step, sizes), bump, ret, err);
}

static void forget_pieces(struct batch *batch)
{
    for (size_t i = 0; i < batch->n_pieces; i++)
        stg_block_unref(batch->pieces[i]);
    batch->n_pieces = 0;
    batch->n_records = 0;
}

static int keep_piece(struct batch *batch, struct stg_block *block, struct stg_err *err)
{
    if (batch->n_pieces == batch->pieces_size) {
        size_t size = batch->pieces_size > 0 ? 2 * batch->pieces_size : 8;
        struct stg_block **pieces =
            realloc(batch->pieces, size * sizeof(struct stg_block *));
        if (pieces == NULL) {
            stg_block_unref(block);
            return stg_step_err(batch->iter.step, -STAGER_RESOURCE_EXHAUSTED, err,
                                "out of memory");
        }
        batch->pieces = pieces;
        batch->pieces_size = size;
    }
    batch->pieces[batch->n_pieces++] = block;
    batch->n_records += block->n_records;
    return 0;
}

static bool same_shape(const struct stg_tensor *a, const struct stg_tensor *b)
{
    return a->ndim == b->ndim && memcmp(a->shape + 1, b->shape + 1,
                                        (size_t)(a->ndim - 1) * sizeof(a->shape[0])) == 0;
}

/* Elements of one batch must have equal shapes. Fills *ret when they have not. */
static bool shapes_differ(const struct batch *batch, struct stg_err *ret)
{
    int64_t element = 0;
    for (size_t i = 0; i < batch->n_pieces; i++) {
        const struct stg_block *piece = batch->pieces[i], *first = batch->pieces[0];
        for (uint32_t c = 0; c < piece->n_components; c++) {
            const struct stg_tensor *a = &first->tensors[c], *b = &piece->tensors[c];
            if (same_shape(a, b))
                continue;
            char text_a[128], text_b[128];
            stg_step_err(
                batch->iter.step, -STAGER_INVALID_ARGUMENT, ret,
                "elements of different shapes in component %s: the first has shape %s, "
                "element %lld has shape %s",
                batch->iter.schema->components[c].name,
                stg_shape_text(a->shape + 1, a->ndim - 1, text_a, sizeof(text_a)),
                (long long)element,
                stg_shape_text(b->shape + 1, b->ndim - 1, text_b, sizeof(text_b)));
            return true;
        }
        element += piece->n_records;
    }
    return false;
}

/* The collected pieces as one record. One piece is passed on as it is: no copy. Then it
 * is the turn of the next size. */
static int make_batch(struct batch *batch, struct stg_block **ret, struct stg_err *err)
{
    struct stg_quota *quota = batch->iter.dataset->quota;
    struct stg_block *block;
    struct stg_err differ;
    batch->now = (batch->now + 1) % batch->sizes->n_values;
    if (batch->n_pieces == 1) {
        block = batch->pieces[0];
        batch->n_pieces = 0;
        batch->n_records = 0;
    } else if (shapes_differ(batch, &differ)) {
        uint64_t epoch = batch->pieces[0]->epoch;
        forget_pieces(batch);
        return stg_block_create_error(quota, &differ, epoch, ret, err);
    } else {
        int rc = stg_block_gather(quota, batch->pieces, batch->n_pieces, "a batch",
                                  &block, err);
        if (rc < 0)
            return stg_step_prefix(batch->iter.step, rc, err);
        forget_pieces(batch);
    }
    stg_block_pack(block);
    *ret = block;
    return 0;
}

static int batch_next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                      struct stg_err *err)
{
    struct batch *batch = (struct batch *)iter;
    int64_t size = batch->sizes->values[batch->now].i;
    while (batch->n_records < size) {
        struct stg_block *block;
        int rc =
            iter->input->impl->next(iter->input, size - batch->n_records, &block, err);
        if (rc < 0)
            return rc;
        if (rc == 1) {
            if (batch->drop_remainder)
                forget_pieces(batch);
            return batch->n_records > 0 ? make_batch(batch, ret, err) : 1;
        }
        if (block->error.code != 0) {
            *ret = block;
            return 0;
        }
        rc = keep_piece(batch, block, err);
        if (rc < 0)
            return rc;
    }
    return make_batch(batch, ret, err);
}

static int batch_rewind(struct stg_iter *iter, struct stg_err *err)
{
    forget_pieces((struct batch *)iter);
    ((struct batch *)iter)->now = 0;
    return iter->input->impl->rewind(iter->input, err);
}

static void batch_destroy(struct stg_iter *iter)
{
    struct batch *batch = (struct batch *)iter;
    forget_pieces(batch);
    free(batch->pieces);
    free(batch);
}

static const struct stg_iter_impl batch_impl = {batch_next, batch_rewind, batch_destroy};

static int batch_create(struct stg_dataset *dataset, const struct stg_step *step,
                        const struct stg_schema *schema, struct stg_iter *input,
                        struct stg_iter **ret, struct stg_err *err)
{
    struct batch *batch =
        stg_iter_create(sizeof(*batch), &batch_impl, dataset, step, schema, input, err);
    if (batch == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    batch->sizes = stg_attr_find(step->attrs, step->n_attrs, "batch_size");
    batch->drop_remainder = stg_step_bool(step, "drop_remainder", false);
    *ret = &batch->iter;
    return 0;
}

const struct stg_transformation stg_batch = {"batch", batch_infer, batch_create};

/* ---- rebatch: elements of batches, in batches of other sizes ---- */

static int rebatch_infer(const struct stg_step *step, const struct stg_schema *in,
                         struct stg_bump *bump, struct stg_schema *ret,
                         struct stg_err *err)
{
    struct stg_schema elements;
    int rc = stg_unbatch_infer(step, in, bump, &elements, err);
    return rc == 0 ? batch_infer(step, &elements, bump, ret, err) : rc;
}

static int rebatch_create(struct stg_dataset *dataset, const struct stg_step *step,
                          const struct stg_schema *schema, struct stg_iter *input,
                          struct stg_iter **ret, struct stg_err *err)
{
    struct stg_iter *elements;
    int rc = stg_unbatch_create(dataset, step, schema, input, &elements, err);
    if (rc < 0)
        return rc;
    rc = batch_create(dataset, step, schema, elements, ret, err);
    if (rc < 0)
        elements->impl->destroy(elements);
    return rc;
}

const struct stg_transformation stg_rebatch = {"rebatch", rebatch_infer, rebatch_create};
