/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/steps/unbatch.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/dataset/block.h"
#include "daemon/dataset/marks/marks.h"

struct unbatch {
    struct stg_iter iter;
    bool alike;              /* the first dimensions of the components cannot differ */
    struct stg_block *block; /* handed out from record `at` on; NULL: none */
    int64_t at;
    bool one_by_one; /* a record of it has several rows */
    struct stg_marks marks;
};

int stg_unbatch_infer(const struct stg_step *step, const struct stg_schema *in,
                      struct stg_bump *bump, struct stg_schema *ret, struct stg_err *err)
{
    int rc = stg_step_needs_input(step, in, err);
    if (rc == 0)
        rc = stg_schema_create(bump, in->n, ret, err);
    const struct stg_component *known = NULL;
    for (size_t c = 0; rc == 0 && c < in->n; c++) {
        const struct stg_component *from = &in->components[c];
        if (from->ndim == 0)
            return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                                "component %s is a scalar and cannot be split into "
                                "elements; put this step after `batch`",
                                from->name);
        if (known != NULL && from->shape[0] >= 0 && from->shape[0] != known->shape[0])
            return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                                "the first dimension of component %s is %lld, that of "
                                "%s %lld; all must be equal",
                                known->name, (long long)known->shape[0], from->name,
                                (long long)from->shape[0]);
        if (from->shape[0] >= 0)
            known = from;
        struct stg_component *to = &ret->components[c];
        *to = *from;
        to->ndim--;
        memmove(to->shape, to->shape + 1, (size_t)to->ndim * sizeof(to->shape[0]));
    }
    return rc;
}

/* With one component, or when all sizes are known. */
static bool are_alike(const struct stg_schema *in)
{
    bool known = true;
    for (size_t c = 0; c < in->n; c++)
        known &= in->components[c].shape[0] >= 0;
    return known || in->n == 1;
}

/* NULL, or the component whose first dimension is another than the first one's. */
static const struct stg_tensor *odd_one(const struct stg_block *block)
{
    for (uint32_t c = 1; c < block->n_components; c++) {
        if (block->tensors[c].shape[1] != block->tensors[0].shape[1])
            return &block->tensors[c];
    }
    return NULL;
}

static int refuse(struct unbatch *unbatch, const struct stg_block *block,
                  const struct stg_tensor *odd, struct stg_block **ret,
                  struct stg_err *err)
{
    const struct stg_component *components = unbatch->iter.schema->components;
    struct stg_err bad;
    stg_step_err(unbatch->iter.step, -STAGER_INVALID_ARGUMENT, &bad,
                 "the first dimension of component %s is %lld, that of %s %lld; all must "
                 "be equal",
                 components[0].name, (long long)block->tensors[0].shape[1],
                 components[odd - block->tensors].name, (long long)odd->shape[1]);
    return stg_block_create_error(unbatch->iter.dataset->quota, &bad, block->epoch, ret,
                                  err);
}

/* Rows of n records: as many, a multiple of it, or a part of it. What is none of these
 * came from a step that made rows its own: nothing is known. */
static void share_rows(struct unbatch *unbatch, struct stg_block *to,
                       const struct stg_block *from)
{
    int64_t n = to->n_records, n_rows = from->n_rows;
    unbatch->one_by_one = n_rows > n && n_rows % n == 0;
    if (n_rows == n || unbatch->one_by_one)
        return;
    to->rows = NULL;
    to->n_rows = n;
    if (from->rows == NULL || n_rows == 0 || n % n_rows != 0)
        return;
    struct stg_provenance *rows = stg_block_carve(to, (uint64_t)n * sizeof(*rows));
    for (int64_t i = 0; i < n; i++)
        rows[i] = from->rows[i / (n / n_rows)];
    to->rows = rows;
}

/* The records of a block become n each. */
static int split(struct unbatch *unbatch, struct stg_block *from, int64_t n,
                 struct stg_err *err)
{
    uint64_t records = (uint64_t)(n * from->n_records);
    uint64_t bytes = from->rows != NULL && from->n_rows < (int64_t)records
                         ? records * sizeof(struct stg_provenance)
                         : 0;
    struct stg_block *to;
    int rc = stg_block_derive(unbatch->iter.dataset->quota, from, from->n_components,
                              stg_block_room(bytes), "the records of a batch", &to, err);
    if (rc < 0)
        return stg_step_prefix(unbatch->iter.step, rc, err);
    to->n_records = (int64_t)records;
    for (uint32_t c = 0; c < to->n_components; c++) {
        struct stg_tensor *tensor = &to->tensors[c];
        *tensor = from->tensors[c];
        tensor->ndim--;
        memmove(tensor->shape, tensor->shape + 1,
                (size_t)tensor->ndim * sizeof(tensor->shape[0]));
        tensor->shape[0] = to->n_records;
    }
    share_rows(unbatch, to, from);
    unbatch->block = to;
    unbatch->at = 0;
    return 0;
}

/* Returns how many records a record of the input has; 0: it is not known. */
static uint64_t rows_of_record(const struct stg_iter *iter)
{
    const struct stg_schema *in = iter->input->schema;
    int64_t n = in->components[0].shape[0];
    return ((struct unbatch *)iter)->alike && n > 0 ? (uint64_t)n : 0;
}

/* Takes the next batches apart, into `block`; or 0 and an error block. Marks are of use
 * where it cannot count. */
static int pull(struct unbatch *unbatch, int64_t want, struct stg_block **ret,
                struct stg_err *err)
{
    struct stg_iter *iter = &unbatch->iter;
    struct stg_block *from;
    bool counts = rows_of_record(iter) > 0 && !stg_iter_has_errors(iter);
    int rc = stg_marks_pull(iter, &unbatch->marks, unbatch->alike ? want : 1, NULL,
                            counts ? UINT32_MAX : 0, &from, err);
    if (rc == 1 && !counts)
        stg_marks_end(iter, &unbatch->marks);
    if (rc != 0)
        return rc;
    if (from->error.code != 0) {
        *ret = from;
        return 0;
    }
    const struct stg_tensor *odd = odd_one(from);
    int64_t n = from->tensors[0].shape[1];
    if (odd != NULL)
        rc = refuse(unbatch, from, odd, ret, err);
    else if (n > 0)
        rc = split(unbatch, from, n, err);
    stg_block_unref(from);
    return rc;
}

static int unbatch_next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                        struct stg_err *err)
{
    struct unbatch *unbatch = (struct unbatch *)iter;
    struct stg_block *error = NULL;
    if (want > STG_BLOCK_MAX_RECORDS)
        want = STG_BLOCK_MAX_RECORDS;
    while (unbatch->block == NULL) {
        int rc = pull(unbatch, want, &error, err);
        if (rc != 0)
            return rc;
        if (error != NULL) {
            *ret = error;
            stg_marks_yield(&unbatch->marks, error);
            return 0;
        }
    }
    int rc = stg_block_divide(iter->dataset->quota, &unbatch->block, &unbatch->at,
                              unbatch->one_by_one ? 1 : want, ret, err);
    if (rc == 0)
        stg_marks_yield(&unbatch->marks, *ret);
    return rc < 0 ? stg_step_prefix(iter->step, rc, err) : 0;
}

static void forget(struct unbatch *unbatch)
{
    stg_block_unref(unbatch->block);
    unbatch->block = NULL;
    unbatch->at = 0;
}

static int unbatch_rewind(struct stg_iter *iter, bool afresh, struct stg_err *err)
{
    forget((struct unbatch *)iter);
    stg_marks_rewind(&((struct unbatch *)iter)->marks, afresh);
    return iter->input->impl->rewind(iter->input, afresh, err);
}

static void unbatch_destroy(struct stg_iter *iter)
{
    forget((struct unbatch *)iter);
    stg_marks_finish(&((struct unbatch *)iter)->marks);
    free(iter);
}

/* ---- moving forward ---- */

/* It holds nothing at a mark. */
static int restore(struct stg_iter *iter, const uint64_t *held, uint32_t n_held,
                   struct stg_err *err)
{
    (void)held;
    (void)n_held;
    (void)err;
    forget((struct unbatch *)iter);
    return 0;
}

static int unbatch_skip(struct stg_iter *iter, uint64_t n, uint64_t *ret,
                        struct stg_err *err)
{
    struct unbatch *unbatch = (struct unbatch *)iter;
    struct stg_marks *marks = &unbatch->marks;
    uint64_t each = rows_of_record(iter), rest = 0;
    if (!stg_iter_is_clean(iter) || each == 0 || unbatch->block != NULL)
        return stg_marks_skip(iter, marks, n, restore, ret, err);
    int rc = stg_iter_skip(iter->input, n / each, ret, err);
    if (rc < 0)
        return rc;
    bool is_over = *ret < n / each;
    marks->n_in += *ret;
    *ret *= each;
    marks->n_out += *ret;
    marks->check = 0;
    if (!is_over)
        rc = stg_iter_replay(iter, n - *ret, &rest, err);
    *ret += rest;
    return rc;
}

static bool unbatch_left(struct stg_iter *iter, uint64_t most, uint64_t *ret)
{
    const struct unbatch *unbatch = (struct unbatch *)iter;
    uint64_t each = rows_of_record(iter);
    if (each == 0)
        return stg_marks_left(iter, &((struct unbatch *)iter)->marks, most, ret);
    if (!stg_iter_left(iter->input, most / each + 1, ret))
        return false;
    *ret = stg_count_mul(*ret, each);
    if (unbatch->block != NULL)
        *ret = stg_count_add(*ret, (uint64_t)(unbatch->block->n_records - unbatch->at));
    return true;
}

static const struct stg_iter_impl unbatch_impl = {
    .next = unbatch_next,
    .rewind = unbatch_rewind,
    .destroy = unbatch_destroy,
    .skip = unbatch_skip,
    .left = unbatch_left,
};

int stg_unbatch_create(struct stg_dataset *dataset, const struct stg_step *step,
                       const struct stg_schema *schema, struct stg_iter *input,
                       struct stg_iter **ret, struct stg_err *err)
{
    struct unbatch *unbatch = stg_iter_create(sizeof(*unbatch), &unbatch_impl, dataset,
                                              step, schema, input, err);
    if (unbatch == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    unbatch->alike = are_alike(input->schema);
    unbatch->iter.varies |= rows_of_record(&unbatch->iter) == 0;
    *ret = &unbatch->iter;
    return 0;
}

const struct stg_transformation stg_unbatch = {.name = "unbatch",
                                               .infer = stg_unbatch_infer,
                                               .create = stg_unbatch_create,
                                               .passes_codes = true};
