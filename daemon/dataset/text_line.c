/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/reader.h"

/* A chunk takes no more than this share of the budget where one is filled ahead. */
#define AHEAD_SHARE 16
#define AHEAD_MIN_READ 65536

static int text_line_infer(const struct stg_step *step, const struct stg_schema *in,
                           struct stg_bump *bump, struct stg_schema *ret,
                           struct stg_err *err)
{
    int rc = stg_reader_check(step, in, err);
    if (rc < 0)
        return rc;
    int64_t skip = stg_step_int(step, "skip_header_lines", 0);
    if (skip < 0)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "skip_header_lines is %lld; it must be 0 or more",
                            (long long)skip);
    bool with_key = stg_step_bool(step, "with_key", false);
    rc = stg_schema_create(bump, with_key ? 2 : 1, ret, err);
    if (rc < 0)
        return rc;
    ret->components[0] = (struct stg_component){.name = "record", .dtype = STAGER_STRING};
    if (with_key)
        ret->components[1] =
            (struct stg_component){.name = "key", .dtype = STAGER_STRING};
    return 0;
}

/* Only one reader of a dataset reads ahead, and only where what it takes for that is
 * little: what fits into the budget does not depend on it. */
static int want_ahead(struct stg_dataset *dataset, const struct stg_step *step,
                      struct stg_format_config *config, struct stg_err *err)
{
    if (dataset->ahead != NULL || config->read_bytes < AHEAD_MIN_READ ||
        stg_quota_limit(dataset->quota) / AHEAD_SHARE < config->chunk_bytes)
        return 0;
    int rc = stg_ahead_create(&dataset->ahead);
    if (rc < 0)
        return stg_step_err(step, rc, err, "out of memory");
    config->ahead = dataset->ahead;
    return 0;
}

static int text_line_create(struct stg_dataset *dataset, const struct stg_step *step,
                            const struct stg_schema *schema, struct stg_iter *input,
                            struct stg_iter **ret, struct stg_err *err)
{
    struct stg_reader_config config =
        stg_reader_options(dataset, step, &stg_format_text_line);
    config.config.skip_header_lines =
        (uint64_t)stg_step_int(step, "skip_header_lines", 0);
    config.with_key = stg_step_bool(step, "with_key", false);
    int rc = want_ahead(dataset, step, &config.config, err);
    if (rc < 0)
        return rc;
    dataset->has_lines = true;
    return stg_reader_create(dataset, step, schema, input, &config, ret, err);
}

const struct stg_transformation stg_text_line = {"text_line", text_line_infer,
                                                 text_line_create};
