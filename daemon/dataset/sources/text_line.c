/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/sources/reader.h"

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

static int text_line_create(struct stg_dataset *dataset, const struct stg_step *step,
                            const struct stg_schema *schema, struct stg_iter *input,
                            struct stg_iter **ret, struct stg_err *err)
{
    struct stg_reader_config config =
        stg_reader_options(dataset, step, &stg_format_text_line, "auto");
    config.config.skip_header_lines =
        (uint64_t)stg_step_int(step, "skip_header_lines", 0);
    if (stg_step_bool(step, "with_key", false))
        config.derived = STG_DERIVED_KEY;
    int rc = stg_reader_want_ahead(dataset, step, &config.config, err);
    if (rc < 0)
        return rc;
    dataset->has_lines = true;
    return stg_reader_create(dataset, step, schema, input, &config, ret, err);
}

const struct stg_transformation stg_text_line = {.name = "text_line",
                                                 .infer = text_line_infer,
                                                 .create = text_line_create,
                                                 .is_indexable = true};
