/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/steps/global_shuffle.h"

static int infer(const struct stg_step *step, const struct stg_schema *in,
                 struct stg_bump *bump, struct stg_schema *ret, struct stg_err *err)
{
    int rc = stg_shuffle.infer(step, in, bump, ret, err);
    int64_t count = stg_step_int(step, "count", -1);
    if (rc == 0 && (count < -1 || count == 0))
        return stg_step_err(
            step, -STAGER_INVALID_ARGUMENT, err,
            "count is %lld; it must be 1 or more, or -1 to repeat forever",
            (long long)count);
    return rc;
}

/* The two steps; with a window they fuse. */
static int create(struct stg_dataset *dataset, const struct stg_step *step,
                  const struct stg_schema *schema, struct stg_iter *input,
                  struct stg_iter **ret, struct stg_err *err)
{
    struct stg_iter *shuffle;
    int rc = stg_shuffle.create(dataset, step, schema, input, &shuffle, err);
    if (rc < 0)
        return rc;
    rc = stg_repeat.create(dataset, step, schema, shuffle, ret, err);
    if (rc < 0)
        shuffle->impl->destroy(shuffle);
    return rc;
}

const struct stg_transformation stg_shuffle_and_repeat = {.name = "shuffle_and_repeat",
                                                          .infer = infer,
                                                          .create = create,
                                                          .passes_codes = true,
                                                          .needs_index =
                                                              stg_global_shuffle_is};
