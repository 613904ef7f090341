/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdlib.h>

#include "core/log.h"
#include "daemon/dataset/marks/marks.h"
#include "daemon/dataset/step.h"

#define EACH_OF 16 /* so many are logged each, then the 32nd, the 64th … */

struct ignore_errors {
    struct stg_iter iter;
    uint64_t max_ignored;
    bool log_warning;
    struct stg_marks marks; /* n_in - n_records: the errors of this iteration */
};

static int ignore_errors_infer(const struct stg_step *step, const struct stg_schema *in,
                               struct stg_bump *bump, struct stg_schema *ret,
                               struct stg_err *err)
{
    int rc = stg_step_needs_input(step, in, err);
    if (rc < 0)
        return rc;
    int64_t max = stg_step_int(step, "max_ignored", 1000);
    if (max < 0)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "max_ignored is %lld; it must be 0 or more", (long long)max);
    *ret = *in;
    return 0;
}

static bool worth_a_line(uint64_t n)
{
    return n <= EACH_OF || (n & (n - 1)) == 0;
}

/* Counts the error; one more than max_ignored is where the pass ends, with its code. */
static int ignore(struct ignore_errors *ignore, const struct stg_err *bad,
                  struct stg_err *err)
{
    const struct stg_step *step = ignore->iter.step;
    uint64_t n = ignore->marks.n_in - ignore->marks.n_records;
    if (n > ignore->max_ignored) {
        stg_step_err(step, bad->code, err,
                     "more than max_ignored %" PRIu64
                     " errors in this epoch; correct the data, or raise max_ignored. The "
                     "last error: %s",
                     ignore->max_ignored, bad->text);
        return bad->code;
    }
    atomic_fetch_add_explicit(&ignore->iter.dataset->n_ignored, 1, memory_order_relaxed);
    if (ignore->log_warning && worth_a_line(n))
        stg_log(STG_LOG_WARNING,
                "step ignore_errors (line %d): %s: %s (%" PRIu64
                " ignored in this epoch)",
                step->line, stg_status_name(bad->code), bad->text, n);
    return 0;
}

static int ignore_errors_next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                              struct stg_err *err)
{
    struct stg_marks *marks = &((struct ignore_errors *)iter)->marks;
    for (;;) {
        struct stg_block *block;
        int rc = stg_marks_pass(iter, marks, want, &block, err);
        if (rc != 0)
            return rc;
        if (block->error.code == 0) {
            stg_marks_yield(marks, block);
            *ret = block;
            return 0;
        }
        rc = ignore((struct ignore_errors *)iter, &block->error, err);
        stg_block_unref(block);
        if (rc < 0)
            return rc;
    }
}

static int ignore_errors_rewind(struct stg_iter *iter, bool afresh, struct stg_err *err)
{
    stg_marks_rewind(&((struct ignore_errors *)iter)->marks, afresh);
    return iter->input->impl->rewind(iter->input, afresh, err);
}

static int ignore_errors_skip(struct stg_iter *iter, uint64_t n, uint64_t *ret,
                              struct stg_err *err)
{
    struct stg_marks *marks = &((struct ignore_errors *)iter)->marks;
    if (!stg_iter_is_clean(iter))
        return stg_marks_skip_passed(iter, marks, n, NULL, ret, err);
    int rc = stg_iter_skip(iter->input, n, ret, err);
    if (rc == 0)
        stg_marks_count(marks, *ret, *ret);
    return rc;
}

static bool ignore_errors_left(struct stg_iter *iter, uint64_t most, uint64_t *ret)
{
    return stg_iter_left(iter->input, most, ret);
}

static void ignore_errors_destroy(struct stg_iter *iter)
{
    stg_marks_finish(&((struct ignore_errors *)iter)->marks);
    free(iter);
}

static const struct stg_iter_impl ignore_errors_impl = {
    .next = ignore_errors_next,
    .rewind = ignore_errors_rewind,
    .destroy = ignore_errors_destroy,
    .skip = ignore_errors_skip,
    .left = ignore_errors_left,
    .allow_uneven = stg_iter_pass_uneven,
};

static int ignore_errors_create(struct stg_dataset *dataset, const struct stg_step *step,
                                const struct stg_schema *schema, struct stg_iter *input,
                                struct stg_iter **ret, struct stg_err *err)
{
    struct ignore_errors *ignore = stg_iter_create(sizeof(*ignore), &ignore_errors_impl,
                                                   dataset, step, schema, input, err);
    if (ignore == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    ignore->max_ignored = (uint64_t)stg_step_int(step, "max_ignored", 1000);
    ignore->log_warning = stg_step_bool(step, "log_warning", false);
    *ret = &ignore->iter;
    return 0;
}

const struct stg_transformation stg_ignore_errors = {.name = "ignore_errors",
                                                     .infer = ignore_errors_infer,
                                                     .create = ignore_errors_create,
                                                     .passes_codes = true};
