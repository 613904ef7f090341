/* SPDX-License-Identifier: Apache-2.0 */

#include "daemon/dataset/branches/mix.h"
#include "daemon/dataset/step.h"

struct concatenate {
    struct stg_iter iter;
    struct stg_iter *at; /* the input that is emitted; NULL: all are */
};

static int concatenate_next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                            struct stg_err *err)
{
    struct concatenate *concatenate = (struct concatenate *)iter;
    while (concatenate->at != NULL) {
        int rc = stg_iter_next(concatenate->at, want, ret, err);
        if (rc != 1)
            return rc;
        concatenate->at = concatenate->at->sibling;
    }
    return 1;
}

static int concatenate_rewind(struct stg_iter *iter, struct stg_err *err)
{
    ((struct concatenate *)iter)->at = iter->input;
    return stg_iter_rewind_inputs(iter, err);
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

static const struct stg_iter_impl concatenate_impl = {
    .next = concatenate_next,
    .rewind = concatenate_rewind,
    .destroy = stg_iter_free,
    .skip = concatenate_skip,
    .left = concatenate_left,
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

const struct stg_transformation stg_concatenate = {
    .name = "concatenate", .create = concatenate_create, .infer_many = stg_mix_infer};
