/* SPDX-License-Identifier: Apache-2.0 */

#include <stdlib.h>

#include "daemon/dataset/branches/mix.h"
#include "daemon/dataset/step.h"

struct concatenate {
    struct stg_iter iter;
    struct stg_iter *at; /* the input that is emitted; NULL: all are */
    uint64_t *counts;    /* of each input's records; NULL: not counted */
    bool is_sought;      /* an input may stand anywhere when its turn comes */
    size_t index;        /* after a seek: of the input `at` */
};

/* Moves to the next input; after a seek, to the next one that has a record 0. */
static int advance(struct concatenate *concatenate, struct stg_err *err)
{
    do {
        concatenate->at = concatenate->at->sibling;
        concatenate->index++;
    } while (concatenate->at != NULL && concatenate->is_sought &&
             concatenate->counts[concatenate->index] == 0);
    if (concatenate->at == NULL || !concatenate->is_sought)
        return 0;
    return stg_iter_seek(concatenate->at, 0, err);
}

static int concatenate_next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                            struct stg_err *err)
{
    struct concatenate *concatenate = (struct concatenate *)iter;
    while (concatenate->at != NULL) {
        int rc = stg_iter_next(concatenate->at, want, ret, err);
        if (rc != 1)
            return rc;
        rc = advance(concatenate, err);
        if (rc < 0)
            return rc;
    }
    return 1;
}

static int concatenate_rewind(struct stg_iter *iter, bool afresh, struct stg_err *err)
{
    struct concatenate *concatenate = (struct concatenate *)iter;
    concatenate->at = iter->input;
    concatenate->is_sought = false;
    return stg_iter_rewind_inputs(iter, afresh, err);
}

static int concatenate_skip(struct stg_iter *iter, uint64_t n, uint64_t *ret,
                            struct stg_err *err)
{
    struct concatenate *concatenate = (struct concatenate *)iter;
    *ret = 0;
    while (concatenate->at != NULL) {
        uint64_t got, want = n - *ret;
        int rc = stg_iter_skip(concatenate->at, want, &got, err);
        if (rc < 0)
            return rc;
        *ret += got;
        if (got == want)
            break;
        concatenate->at = concatenate->at->sibling;
    }
    return 0;
}

static bool concatenate_left(struct stg_iter *iter, uint64_t most, uint64_t *ret)
{
    struct stg_iter *input = ((struct concatenate *)iter)->at;
    *ret = 0;
    for (; input != NULL && *ret < most; input = input->sibling) {
        uint64_t n;
        if (!stg_iter_left(input, most - *ret, &n))
            return false;
        *ret = stg_count_add(*ret, n);
    }
    return true;
}

static size_t count_inputs(const struct stg_iter *iter)
{
    size_t n = 0;
    for (const struct stg_iter *input = iter->input; input != NULL;
         input = input->sibling)
        n++;
    return n;
}

static int concatenate_count(struct stg_iter *iter, struct stg_extent *ret,
                             struct stg_err *err)
{
    struct concatenate *concatenate = (struct concatenate *)iter;
    struct stg_iter *input = iter->input;
    if (concatenate->counts == NULL)
        concatenate->counts = calloc(count_inputs(iter), sizeof(uint64_t));
    if (concatenate->counts == NULL)
        return stg_step_err(iter->step, -STAGER_RESOURCE_EXHAUSTED, err, "out of memory");
    *ret = (struct stg_extent){0};
    for (size_t i = 0; input != NULL; i++, input = input->sibling) {
        struct stg_extent extent;
        int rc = stg_iter_count(input, &extent, err);
        if (rc < 0)
            return rc;
        concatenate->counts[i] = extent.n;
        ret->n = stg_count_add(ret->n, extent.n);
        ret->bytes = stg_count_add(ret->bytes, extent.bytes);
    }
    return 0;
}

static int concatenate_seek(struct stg_iter *iter, uint64_t n, struct stg_err *err)
{
    struct concatenate *concatenate = (struct concatenate *)iter;
    struct stg_iter *input = iter->input;
    size_t i = 0;
    for (; input->sibling != NULL && n >= concatenate->counts[i]; i++) {
        n -= concatenate->counts[i];
        input = input->sibling;
    }
    concatenate->at = input;
    concatenate->index = i;
    concatenate->is_sought = true;
    return stg_iter_seek(input, n, err);
}

static void concatenate_destroy(struct stg_iter *iter)
{
    free(((struct concatenate *)iter)->counts);
    free(iter);
}

static const struct stg_iter_impl concatenate_impl = {
    .next = concatenate_next,
    .rewind = concatenate_rewind,
    .destroy = concatenate_destroy,
    .skip = concatenate_skip,
    .left = concatenate_left,
    .left_has_errors = true,
    .count = concatenate_count,
    .seek = concatenate_seek,
};

static int concatenate_create(struct stg_dataset *dataset, const struct stg_step *step,
                              const struct stg_schema *schema, struct stg_iter *input,
                              struct stg_iter **ret, struct stg_err *err)
{
    struct concatenate *concatenate = stg_iter_create(
        sizeof(*concatenate), &concatenate_impl, dataset, step, schema, input, err);
    if (concatenate == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    concatenate->at = input;
    *ret = &concatenate->iter;
    return 0;
}

const struct stg_transformation stg_concatenate = {.name = "concatenate",
                                                   .create = concatenate_create,
                                                   .infer_many = stg_mix_infer,
                                                   .is_indexable = true};
