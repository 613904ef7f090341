/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "daemon/dataset/step.h"
#include "daemon/dataset/steps/shuffle.h"

struct repeat {
    struct stg_iter iter;
    uint64_t count; /* UINT64_MAX: without end */
    uint64_t epoch; /* the iteration that runs */
    bool any;       /* it has yielded something */
    bool ended;
};

/* An iteration without anything ends it: the next ones would be as empty, for ever. */
static int begin_next(struct repeat *repeat, struct stg_err *err)
{
    struct stg_iter *input = repeat->iter.input;
    repeat->epoch++;
    repeat->ended = !repeat->any || repeat->epoch >= repeat->count;
    repeat->any = false;
    return repeat->ended ? 0 : input->impl->rewind(input, false, err);
}

static int repeat_next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                       struct stg_err *err)
{
    struct repeat *repeat = (struct repeat *)iter;
    while (!repeat->ended) {
        int rc = stg_iter_next(iter->input, want, ret, err);
        if (rc < 0)
            return rc;
        if (rc == 0) {
            repeat->any = true;
            (*ret)->epoch = repeat->epoch;
            return 0;
        }
        rc = begin_next(repeat, err);
        if (rc < 0)
            return rc;
    }
    return 1;
}

static int repeat_rewind(struct stg_iter *iter, bool afresh, struct stg_err *err)
{
    struct repeat *repeat = (struct repeat *)iter;
    repeat->epoch = 0;
    repeat->any = false;
    repeat->ended = repeat->count == 0;
    return iter->input->impl->rewind(iter->input, afresh, err);
}

/* ---- moving forward ---- */

static int check_far(const struct repeat *repeat, uint64_t begun, struct stg_err *err)
{
    uint64_t most = repeat->iter.dataset->env.max_epochs;
    int rc = stg_iter_stopped(&repeat->iter, err);
    if (rc == 0 && most > 0 && repeat->epoch - begun > most)
        rc = stg_step_err(repeat->iter.step, -STAGER_OUT_OF_RANGE, err,
                          "the place is more than %" PRIu64 " epochs ahead", most);
    return rc;
}

/* Passes over whole iterations, each as long as the one before: n_each. Without reading
 * where they end; an input that nests would count its own iterations wrong. */
static int skip_whole(struct repeat *repeat, uint64_t n, uint64_t n_each, uint64_t begun,
                      uint64_t *ret, struct stg_err *err)
{
    int rc = 0;
    while (rc == 0 && n_each > 0 && n - *ret > n_each && !repeat->ended) {
        *ret += n_each;
        repeat->any = true;
        rc = begin_next(repeat, err);
        if (rc == 0)
            rc = check_far(repeat, begun, err);
    }
    return rc;
}

static int repeat_skip(struct stg_iter *iter, uint64_t n, uint64_t *ret,
                       struct stg_err *err)
{
    struct repeat *repeat = (struct repeat *)iter;
    uint64_t first = repeat->epoch, begun = repeat->epoch;
    *ret = 0;
    while (!repeat->ended) {
        bool is_whole = !repeat->any && !iter->varies && !iter->input->nests &&
                        stg_iter_is_clean(iter);
        uint64_t got, want = n - *ret;
        int rc = check_far(repeat, begun, err);
        if (rc == 0)
            rc = stg_iter_skip(iter->input, want, &got, err);
        if (rc < 0)
            return rc;
        repeat->any |= got > 0;
        first = *ret == 0 ? repeat->epoch : first;
        *ret += got;
        if (got == want)
            break;
        rc = begin_next(repeat, err);
        if (rc == 0 && is_whole)
            rc = skip_whole(repeat, n, got, begun, ret, err);
        if (rc < 0)
            return rc;
    }
    iter->dataset->jumped_epoch = first;
    return 0;
}

/* Where every iteration is as long as this one, or this one is long enough. */
static bool repeat_left(struct stg_iter *iter, uint64_t most, uint64_t *ret)
{
    const struct repeat *repeat = (struct repeat *)iter;
    *ret = 0;
    if (repeat->ended)
        return true;
    bool is_known = stg_iter_left(iter->input, most, ret);
    if (!is_known || *ret >= most || *ret == 0)
        return is_known && (*ret > 0 || !repeat->any);
    uint64_t n = repeat->count - repeat->epoch;
    *ret = stg_count_mul(*ret, n);
    return n == 1 || (!repeat->any && !iter->varies);
}

static const struct stg_iter_impl repeat_impl = {
    .next = repeat_next,
    .rewind = repeat_rewind,
    .destroy = stg_iter_free,
    .skip = repeat_skip,
    .left = repeat_left,
    .left_has_errors = true,
    .allow_uneven = stg_iter_pass_uneven,
};

static int repeat_create(struct stg_dataset *dataset, const struct stg_step *step,
                         const struct stg_schema *schema, struct stg_iter *input,
                         struct stg_iter **ret, struct stg_err *err)
{
    int64_t count = stg_step_int(step, "count", -1);
    uint64_t times = count < 0 ? UINT64_MAX : (uint64_t)count;
    if (stg_shuffle_fuse(input, times)) {
        *ret = input;
        return 0;
    }
    struct repeat *repeat =
        stg_iter_create(sizeof(*repeat), &repeat_impl, dataset, step, schema, input, err);
    if (repeat == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    repeat->count = times;
    repeat->ended = times == 0;
    repeat->iter.nests = true;
    *ret = &repeat->iter;
    return 0;
}

const struct stg_transformation stg_repeat = {.name = "repeat",
                                              .infer = stg_step_infer_count,
                                              .create = repeat_create,
                                              .passes_codes = true};
