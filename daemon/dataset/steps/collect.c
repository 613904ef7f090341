/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/steps/collect.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int stg_collector_check_ranks(const struct stg_step *step, const struct stg_schema *in,
                              struct stg_err *err)
{
    for (size_t c = 0; c < in->n; c++) {
        /* A block has a dimension of its own before the batch's. */
        if (in->components[c].ndim >= STG_MAX_DIMS - 1)
            return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                                "component %s would have more than %d dimensions",
                                in->components[c].name, STG_MAX_DIMS - 1);
    }
    return 0;
}

int stg_collector_infer(const struct stg_step *step, const struct stg_schema *in,
                        struct stg_err *err)
{
    int rc = stg_step_needs_input(step, in, err);
    if (rc < 0)
        return rc;
    const struct stg_attr *sizes =
        stg_attr_find(step->attrs, step->n_attrs, "batch_size");
    if (sizes == NULL || sizes->n_values == 0)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err, "batch_size is missing");
    for (size_t i = 0; i < sizes->n_values; i++) {
        const struct stg_value *size = &sizes->values[i];
        if (size->kind != STG_VALUE_INT || size->i < 1)
            return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                                "batch_size is %lld; it must be 1 or more",
                                (long long)size->i);
    }
    return stg_collector_check_ranks(step, in, err);
}

int64_t stg_collector_dimension(const struct stg_step *step)
{
    const struct stg_attr *sizes =
        stg_attr_find(step->attrs, step->n_attrs, "batch_size");
    return stg_batch_dimension(step, sizes);
}

int64_t stg_batch_dimension(const struct stg_step *step, const struct stg_attr *sizes)
{
    bool fixed = stg_step_bool(step, "drop_remainder", false);
    int64_t most = sizes->values[0].i;
    for (size_t i = 1; i < sizes->n_values; i++) {
        fixed &= sizes->values[i].i == most;
        most = sizes->values[i].i > most ? sizes->values[i].i : most;
    }
    return fixed || step->is_full ? most : -1;
}

void stg_collector_init(struct stg_collector *collector,
                        const struct stg_collector_impl *impl)
{
    const struct stg_step *step = collector->iter.step;
    collector->impl = impl;
    collector->sizes = stg_attr_find(step->attrs, step->n_attrs, "batch_size");
    collector->drop_remainder = stg_step_bool(step, "drop_remainder", false);
}

static bool same_shape(const struct stg_tensor *a, const struct stg_tensor *b)
{
    return a->ndim == b->ndim && memcmp(a->shape + 1, b->shape + 1,
                                        (size_t)(a->ndim - 1) * sizeof(a->shape[0])) == 0;
}

/* Elements of one batch must have equal shapes. Fills *ret when they have not. */
static bool shapes_differ(const struct stg_iter *iter, const struct stg_pieces *pieces,
                          struct stg_err *ret)
{
    int64_t element = 0;
    for (size_t i = 0; i < pieces->n; i++) {
        const struct stg_block *piece = pieces->blocks[i], *first = pieces->blocks[0];
        for (uint32_t c = 0; c < piece->n_components; c++) {
            const struct stg_tensor *a = &first->tensors[c], *b = &piece->tensors[c];
            if (same_shape(a, b))
                continue;
            char text_a[128], text_b[128];
            stg_step_err(
                iter->step, -STAGER_INVALID_ARGUMENT, ret,
                "elements of different shapes in component %s: the first has shape %s, "
                "element %lld has shape %s",
                iter->schema->components[c].name,
                stg_shape_text(a->shape + 1, a->ndim - 1, text_a, sizeof(text_a)),
                (long long)element,
                stg_shape_text(b->shape + 1, b->ndim - 1, text_b, sizeof(text_b)));
            return true;
        }
        element += piece->n_records;
    }
    return false;
}

int stg_collector_stack(struct stg_iter *iter, struct stg_pieces *pieces,
                        struct stg_block **ret, struct stg_err *err)
{
    struct stg_quota *quota = iter->dataset->quota;
    struct stg_block *block;
    struct stg_err differ;
    if (pieces->n > 1 && shapes_differ(iter, pieces, &differ)) {
        uint64_t epoch = pieces->blocks[0]->epoch;
        stg_pieces_clear(pieces);
        return stg_block_create_error(quota, &differ, epoch, ret, err);
    }
    if (pieces->n == 1) {
        block = stg_block_ref(pieces->blocks[0]);
    } else {
        int rc =
            stg_block_gather(quota, pieces->blocks, pieces->n, "a batch", &block, err);
        if (rc < 0)
            return stg_step_prefix(iter->step, rc, err);
    }
    stg_pieces_clear(pieces);
    stg_block_pack(block);
    *ret = block;
    return 0;
}

int stg_collector_too_large(struct stg_iter *iter, struct stg_pieces *pieces,
                            uint64_t n_refused, int rc, struct stg_block **ret,
                            struct stg_err *err)
{
    if (rc != -STAGER_RESOURCE_EXHAUSTED || err == NULL || pieces->n == 0 ||
        stg_quota_n_refused(iter->dataset->quota) == n_refused)
        return rc;
    const struct stg_block *first = pieces->blocks[0];
    struct stg_err error = *err;
    if (first->rows != NULL && first->n_rows > 0) {
        char place[512];
        stg_provenance_text(iter->dataset, &first->rows[0], place, sizeof(place));
        stg_err_prefix(&error, rc, "%s, the first of %" PRId64 " elements", place,
                       pieces->n_records);
    }
    uint64_t epoch = first->epoch;
    stg_pieces_clear(pieces);
    return stg_block_create_error(iter->dataset->quota, &error, epoch, ret, err);
}

int stg_collector_refuse(struct stg_iter *iter, const struct stg_block *block,
                         int64_t record, const struct stg_err *error,
                         struct stg_block **ret, struct stg_err *err)
{
    struct stg_err placed = *error;
    if (block->rows != NULL && block->n_rows == block->n_records) {
        char place[512];
        stg_provenance_text(iter->dataset, &block->rows[record], place, sizeof(place));
        stg_err_prefix(&placed, placed.code, "%s", place);
    }
    return stg_block_create_error(iter->dataset->quota, &placed, block->epoch, ret, err);
}

static int next_refused(struct stg_collector *collector, struct stg_block **ret,
                        struct stg_err *err)
{
    struct stg_block *block = collector->refused;
    int rc = stg_collector_refuse(&collector->iter, block, collector->refused_at,
                                  &collector->refusal, ret, err);
    if (rc < 0)
        return stg_step_prefix(collector->iter.step, rc, err);
    if (++collector->refused_at == block->n_records) {
        stg_block_unref(block);
        collector->refused = NULL;
    }
    return 0;
}

static int pull(struct stg_collector *collector, int64_t want, struct stg_block **ret,
                struct stg_err *err)
{
    struct stg_iter *iter = &collector->iter;
    if (collector->tells)
        return stg_iter_next(iter->input, want, ret, err);
    if (collector->pieces.n_records > 0)
        return stg_marks_take(iter, &collector->marks, want, ret, err);
    collector->begun = collector->marks;
    return stg_marks_pass(iter, &collector->marks, want, ret, err);
}

/* An error, or a block that is refused, was pulled: a pass may go on at the start of the
 * batch. */
static void note_error(struct stg_collector *collector, const struct stg_block *block)
{
    const struct stg_pieces *pieces = &collector->pieces;
    if (collector->tells)
        return;
    stg_marks_note_place(&collector->iter, &collector->begun,
                         pieces->n_records > 0 ? pieces->blocks[0] : block,
                         &collector->marks);
    if (block->error.code == 0)
        collector->marks.n_records -= (uint64_t)block->n_records;
}

/* One more block of the input. An error, and the end, are the caller's. */
static int collect(struct stg_collector *collector, int64_t want, struct stg_block **ret,
                   struct stg_err *err)
{
    struct stg_pieces *pieces = &collector->pieces;
    struct stg_block *block;
    *ret = NULL;
    int rc = pull(collector, want, &block, err);
    if (rc != 0)
        return rc;
    uint64_t at = collector->n_taken;
    collector->n_taken += block->error.code != 0 ? 1 : (uint64_t)block->n_records;
    if (block->error.code != 0) {
        note_error(collector, block);
        *ret = block;
        return 0;
    }
    if (collector->impl->check != NULL &&
        collector->impl->check(collector, block, &collector->refusal) < 0) {
        note_error(collector, block);
        collector->refused = block;
        collector->refused_at = 0;
        return next_refused(collector, ret, err);
    }
    if (pieces->n_records == 0) {
        collector->held_at = at;
        collector->passed = 0;
    }
    rc = stg_pieces_add(pieces, block, err);
    return rc < 0 ? stg_step_prefix(collector->iter.step, rc, err) : 0;
}

/* An error comes before the batch that is collected. Returns whether it is emitted: not
 * if it was before the position of a seek. */
static bool passes(struct stg_collector *collector, struct stg_block *error)
{
    collector->passed++;
    if (collector->n_known == 0)
        return true;
    collector->n_known--;
    stg_block_unref(error);
    return false;
}

/* Replaces the error of an element that finds no room, if the elements before it hold
 * much of the memory, by the need of a whole batch. Returns rc. */
static int too_many(const struct stg_collector *collector, int64_t size, int rc,
                    struct stg_err *err)
{
    const struct stg_pieces *pieces = &collector->pieces;
    const struct stg_quota *quota = collector->iter.dataset->quota;
    uint64_t limit = stg_quota_limit(quota), held = 0, all;
    for (size_t i = 0; i < pieces->n; i++)
        held += pieces->blocks[i]->bytes;
    if (rc != -STAGER_RESOURCE_EXHAUSTED || err == NULL || held < limit / 4)
        return rc;
    /* They keep the chunks that they lie in. */
    uint64_t each = stg_quota_used(quota) / (uint64_t)pieces->n_records + 1;
    if (__builtin_mul_overflow(each, (uint64_t)size, &all) || all > UINT64_MAX / 16)
        all = UINT64_MAX / 16;
    stg_step_err(collector->iter.step, rc, err,
                 "batch_size %" PRId64 " x %" PRIu64
                 " bytes an element (the mean of %" PRId64 " so far) = %" PRIu64
                 " bytes, and as many for the batch; the dataset's buffers may take "
                 "%" PRIu64 " bytes: lower batch_size, or ",
                 size, each, pieces->n_records, all, limit);
    stg_quota_advise(quota, 2 * all + all / 2, all, err);
    return rc;
}

/* Until there is a batch: 0, and *ret is NULL; or an error that comes before it. */
static int collect_all(struct stg_collector *collector, int64_t size,
                       struct stg_block **ret, struct stg_err *err)
{
    struct stg_pieces *pieces = &collector->pieces;
    *ret = NULL;
    while (collector->refused != NULL || pieces->n_records < size) {
        int rc = collector->refused != NULL
                     ? next_refused(collector, ret, err)
                     : collect(collector, size - pieces->n_records, ret, err);
        if (rc < 0)
            return too_many(collector, size, rc, err);
        if (*ret != NULL && passes(collector, *ret))
            return 0;
        *ret = NULL;
        if (rc == 0)
            continue;
        if (collector->drop_remainder)
            stg_pieces_clear(pieces);
        return pieces->n_records == 0;
    }
    return 0;
}

/* After the record that is emitted next. */
static int tell(struct stg_collector *collector, struct stg_err *err)
{
    bool holds = collector->pieces.n_records > 0;
    const struct stg_block *refused = collector->refused;
    int64_t n_refused = refused != NULL ? refused->n_records - collector->refused_at : 0;
    return stg_position_push(&collector->iter.dataset->positions, 1,
                             holds ? collector->held_at
                                   : collector->n_taken - (uint64_t)n_refused,
                             holds ? collector->passed : 0, err);
}

/* ---- batches with numbers ---- */

/* Takes over `error`, which is dropped if there was one before it. */
static void keep_first(struct stg_block **first, struct stg_block *error)
{
    if (*first == NULL)
        *first = error;
    else
        stg_block_unref(error);
}

/* Adds a block of the input to the batch, unless *error is set or the block causes it. */
static int add_numbered(struct stg_collector *collector, struct stg_block *block,
                        struct stg_block **error, struct stg_err *err)
{
    const struct stg_collector_impl *impl = collector->impl;
    struct stg_block *refused;
    int rc = 0;
    if (block->error.code != 0) {
        keep_first(error, block);
        return 0;
    }
    if (*error == NULL &&
        (impl->check == NULL || impl->check(collector, block, &collector->refusal) == 0))
        return stg_pieces_add(&collector->pieces, block, err);
    if (*error == NULL)
        rc = stg_collector_refuse(&collector->iter, block, 0, &collector->refusal,
                                  &refused, err);
    if (*error == NULL && rc == 0)
        *error = refused;
    stg_block_unref(block);
    return rc;
}

/* After a seek: collects as many elements as a batch has, errors included. Each batch has
 * one number, so an error among its elements replaces it: *ret is that error, or NULL. */
static int collect_numbered(struct stg_collector *collector, int64_t size,
                            struct stg_block **ret, struct stg_err *err)
{
    struct stg_pieces *pieces = &collector->pieces;
    struct stg_block *error = NULL;
    int64_t n = 0;
    int rc = 0;
    while (rc == 0 && n < size) {
        struct stg_block *block;
        rc = stg_iter_next(collector->iter.input, size - n, &block, err);
        if (rc != 0)
            break;
        n += block->error.code != 0 ? 1 : block->n_records;
        rc = add_numbered(collector, block, &error, err);
        if (rc < 0)
            stg_step_prefix(collector->iter.step, rc, err);
    }
    if (rc < 0)
        too_many(collector, size, rc, err);
    if (rc == 1 && n > 0 && !collector->drop_remainder)
        rc = 0;
    if (rc != 0 || error != NULL)
        stg_pieces_clear(pieces);
    if (rc != 0)
        stg_block_unref(error);
    else
        *ret = error;
    return rc;
}

static int collector_next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                          struct stg_err *err)
{
    struct stg_collector *collector = (struct stg_collector *)iter;
    int64_t size = collector->sizes->values[collector->now].i;
    int rc = collector->is_sought ? collect_numbered(collector, size, ret, err)
                                  : collect_all(collector, size, ret, err);
    if (rc == 0 && (*ret == NULL || collector->is_sought))
        collector->now = (collector->now + 1) % collector->sizes->n_values;
    if (rc == 0 && *ret == NULL)
        rc = collector->impl->make(collector, ret, err);
    if (rc == 0 && !collector->tells)
        stg_marks_yield(&collector->marks, *ret);
    if (rc != 0 || !collector->tells)
        return rc;
    rc = tell(collector, err);
    if (rc < 0)
        stg_block_unref(*ret);
    return rc;
}

/* ---- moving forward ---- */

static bool collector_tell(struct stg_iter *iter)
{
    struct stg_collector *collector = (struct stg_collector *)iter;
    collector->tells = collector->sizes->n_values == 1;
    return collector->tells;
}

/* To the goal of the dataset. The records come after it that a batch held then. */
static int seek(struct stg_collector *collector, uint64_t n, uint64_t *ret,
                struct stg_err *err)
{
    struct stg_dataset *dataset = collector->iter.dataset;
    const struct stg_position *goal = dataset->goal;
    uint64_t reached;
    int rc = stg_iter_skip(collector->iter.input, goal->elements, &reached, err);
    if (rc < 0)
        return rc;
    dataset->n_reached = collector->n_taken = reached;
    collector->n_known = goal->passed;
    *ret = n;
    return 0;
}

/* Returns how many elements the next n batches have. */
static uint64_t count_elements(const struct stg_collector *collector, uint64_t n)
{
    const struct stg_attr *sizes = collector->sizes;
    uint64_t all = 0, rest = 0;
    for (size_t i = 0; i < sizes->n_values; i++)
        all = stg_count_add(all, (uint64_t)sizes->values[i].i);
    for (size_t i = 0; i < n % sizes->n_values; i++)
        rest = stg_count_add(
            rest, (uint64_t)sizes->values[(collector->now + i) % sizes->n_values].i);
    return stg_count_add(stg_count_mul(all, n / sizes->n_values), rest);
}

/* Returns how many batches n elements make, when no more follow. */
static uint64_t count_batches(const struct stg_collector *collector, uint64_t n)
{
    const struct stg_attr *sizes = collector->sizes;
    uint64_t all = count_elements(collector, sizes->n_values);
    uint64_t batches = n / all * sizes->n_values;
    size_t at = collector->now;
    for (n %= all; n > 0; at = (at + 1) % sizes->n_values) {
        uint64_t size = (uint64_t)sizes->values[at].i;
        batches += n >= size || !collector->drop_remainder;
        n -= n < size ? n : size;
    }
    return batches;
}

static bool holds_any(const struct stg_collector *collector)
{
    return collector->pieces.n_records > 0 || collector->refused != NULL;
}

static void forget(struct stg_collector *collector)
{
    stg_pieces_clear(&collector->pieces);
    stg_block_unref(collector->refused);
    collector->refused = NULL;
    collector->now = 0;
}

/* At a mark: the next record begins a batch. */
static int begin_batch(struct stg_iter *iter, const uint64_t *held, uint32_t n_held,
                       struct stg_err *err)
{
    struct stg_collector *collector = (struct stg_collector *)iter;
    const struct stg_attr *sizes = collector->sizes;
    (void)held;
    (void)n_held;
    (void)err;
    forget(collector);
    uint64_t n = collector->marks.n_records % count_elements(collector, sizes->n_values);
    for (; n >= (uint64_t)sizes->values[collector->now].i; collector->now++)
        n -= (uint64_t)sizes->values[collector->now].i;
    return 0;
}

static int collector_skip(struct stg_iter *iter, uint64_t n, uint64_t *ret,
                          struct stg_err *err)
{
    struct stg_collector *collector = (struct stg_collector *)iter;
    if (iter->dataset->goal != NULL && collector->tells)
        return seek(collector, n, ret, err);
    if (!stg_iter_is_clean(iter) && !collector->tells)
        return stg_marks_skip_passed(iter, &collector->marks, n, begin_batch, ret, err);
    if (!stg_iter_is_clean(iter) || holds_any(collector))
        return stg_iter_replay(iter, n, ret, err);
    uint64_t want = count_elements(collector, n), got;
    int rc = stg_iter_skip(iter->input, want, &got, err);
    if (rc < 0)
        return rc;
    *ret = got == want ? n : count_batches(collector, got);
    uint64_t in_batches = count_elements(collector, *ret);
    in_batches = in_batches < got ? in_batches : got;
    if (collector->tells && *ret > 0)
        rc = stg_position_push(&iter->dataset->positions, *ret,
                               collector->n_taken + in_batches, 0, err);
    if (rc < 0)
        return rc;
    collector->n_taken += got;
    stg_marks_count(&collector->marks, got, *ret);
    collector->now = (collector->now + *ret) % collector->sizes->n_values;
    return 0;
}

static bool collector_left(struct stg_iter *iter, uint64_t most, uint64_t *ret)
{
    const struct stg_collector *collector = (struct stg_collector *)iter;
    uint64_t n, all = count_elements(collector, most);
    if (collector->refused != NULL || !stg_iter_left(iter->input, all, &n))
        return false;
    n = stg_count_add(n, (uint64_t)collector->pieces.n_records);
    *ret = n < all ? count_batches(collector, n) : most;
    return true;
}

static int collector_count(struct stg_iter *iter, struct stg_extent *ret,
                           struct stg_err *err)
{
    struct stg_collector *collector = (struct stg_collector *)iter;
    forget(collector);
    int rc = stg_iter_count(iter->input, ret, err);
    if (rc == 0) {
        ret->n = count_batches(collector, ret->n);
        ret->ends = NULL;
    }
    return rc;
}

static int collector_seek(struct stg_iter *iter, uint64_t n, struct stg_err *err)
{
    struct stg_collector *collector = (struct stg_collector *)iter;
    forget(collector);
    uint64_t first = count_elements(collector, n);
    collector->now = n % collector->sizes->n_values;
    collector->is_sought = true;
    stg_marks_stop(&collector->marks);
    return stg_iter_seek(iter->input, first, err);
}

static int collector_rewind(struct stg_iter *iter, bool afresh, struct stg_err *err)
{
    struct stg_collector *collector = (struct stg_collector *)iter;
    forget(collector);
    stg_marks_rewind(&collector->marks, afresh);
    collector->n_taken = collector->passed = collector->n_known = 0;
    if (collector->tells)
        stg_position_clear(&iter->dataset->positions);
    return iter->input->impl->rewind(iter->input, afresh, err);
}

static void collector_destroy(struct stg_iter *iter)
{
    struct stg_collector *collector = (struct stg_collector *)iter;
    stg_pieces_finish(&collector->pieces);
    stg_block_unref(collector->refused);
    stg_marks_finish(&collector->marks);
    free(collector);
}

const struct stg_iter_impl stg_collector_iter = {
    .next = collector_next,
    .rewind = collector_rewind,
    .destroy = collector_destroy,
    .skip = collector_skip,
    .left = collector_left,
    .tell_positions = collector_tell,
    .count = collector_count,
    .seek = collector_seek,
};
