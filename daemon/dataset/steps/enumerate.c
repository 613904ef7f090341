/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "daemon/dataset/block.h"
#include "daemon/dataset/step.h"

struct enumerate {
    struct stg_iter iter;
    int64_t start;
    uint64_t at; /* of the next element; no overflow without a sign */
};

static int enumerate_infer(const struct stg_step *step, const struct stg_schema *in,
                           struct stg_bump *bump, struct stg_schema *ret,
                           struct stg_err *err)
{
    int rc = stg_step_needs_input(step, in, err);
    if (rc < 0)
        return rc;
    const char *name = stg_attr_string(step->attrs, step->n_attrs, "name", "index");
    for (size_t c = 0; c < in->n; c++) {
        if (strcmp(in->components[c].name, name) == 0)
            return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                                "component %s already exists; choose another `name`",
                                name);
    }
    rc = stg_schema_create(bump, in->n + 1, ret, err);
    if (rc < 0)
        return rc;
    ret->components[0] = (struct stg_component){.name = name, .dtype = STAGER_INT64};
    memcpy(ret->components + 1, in->components, in->n * sizeof(in->components[0]));
    return 0;
}

/* The block with one component more, in front. */
static int add_numbers(struct enumerate *enumerate, struct stg_block *block,
                       struct stg_block **ret, struct stg_err *err)
{
    uint64_t n = (uint64_t)block->n_records, bytes = n * sizeof(int64_t);
    struct stg_block *to;
    int rc =
        stg_block_derive(enumerate->iter.dataset->quota, block, block->n_components + 1,
                         stg_block_room(bytes), "the numbers of a block", &to, err);
    if (rc < 0)
        return stg_step_prefix(enumerate->iter.step, rc, err);
    int64_t *numbers = stg_block_carve(to, bytes);
    uint64_t first = (uint64_t)enumerate->start + enumerate->at;
    for (uint64_t i = 0; i < n; i++)
        numbers[i] = (int64_t)(first + i);
    to->tensors[0] = (struct stg_tensor){.dtype = STAGER_INT64,
                                         .ndim = 1,
                                         .shape = {(int64_t)n},
                                         .data = numbers,
                                         .data_bytes = bytes};
    memcpy(to->tensors + 1, block->tensors,
           block->n_components * sizeof(block->tensors[0]));
    enumerate->at += n;
    *ret = to;
    return 0;
}

/* An error takes a number too: so it does in tf.data, and what follows keeps its own. */
static int enumerate_next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                          struct stg_err *err)
{
    struct enumerate *enumerate = (struct enumerate *)iter;
    struct stg_block *block;
    int rc = stg_iter_next(iter->input, want, &block, err);
    if (rc != 0)
        return rc;
    if (block->error.code != 0) {
        enumerate->at++;
        *ret = block;
        return 0;
    }
    rc = add_numbers(enumerate, block, ret, err);
    stg_block_unref(block);
    return rc;
}

static int enumerate_rewind(struct stg_iter *iter, bool afresh, struct stg_err *err)
{
    ((struct enumerate *)iter)->at = 0;
    return iter->input->impl->rewind(iter->input, afresh, err);
}

static int enumerate_skip(struct stg_iter *iter, uint64_t n, uint64_t *ret,
                          struct stg_err *err)
{
    int rc = stg_iter_skip(iter->input, n, ret, err);
    if (rc == 0)
        ((struct enumerate *)iter)->at += *ret;
    return rc;
}

static bool enumerate_left(struct stg_iter *iter, uint64_t most, uint64_t *ret)
{
    return stg_iter_left(iter->input, most, ret);
}

static int enumerate_count(struct stg_iter *iter, struct stg_extent *ret,
                           struct stg_err *err)
{
    return stg_iter_count(iter->input, ret, err);
}

static int enumerate_seek(struct stg_iter *iter, uint64_t n, struct stg_err *err)
{
    ((struct enumerate *)iter)->at = n;
    return stg_iter_seek(iter->input, n, err);
}

static const struct stg_iter_impl enumerate_impl = {
    .next = enumerate_next,
    .rewind = enumerate_rewind,
    .destroy = stg_iter_free,
    .skip = enumerate_skip,
    .left = enumerate_left,
    .left_has_errors = true,
    .count = enumerate_count,
    .seek = enumerate_seek,
    .is_one_to_one = true,
};

static int enumerate_create(struct stg_dataset *dataset, const struct stg_step *step,
                            const struct stg_schema *schema, struct stg_iter *input,
                            struct stg_iter **ret, struct stg_err *err)
{
    struct enumerate *enumerate = stg_iter_create(sizeof(*enumerate), &enumerate_impl,
                                                  dataset, step, schema, input, err);
    if (enumerate == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    enumerate->start = stg_step_int(step, "start", 0);
    *ret = &enumerate->iter;
    return 0;
}

const struct stg_transformation stg_enumerate = {.name = "enumerate",
                                                 .infer = enumerate_infer,
                                                 .create = enumerate_create,
                                                 .passes_codes = true,
                                                 .is_indexable = true};
