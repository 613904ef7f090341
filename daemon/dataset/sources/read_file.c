/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/sources/reader.h"

static int read_file_infer(const struct stg_step *step, const struct stg_schema *in,
                           struct stg_bump *bump, struct stg_schema *ret,
                           struct stg_err *err)
{
    int rc = stg_reader_check(step, in, err);
    if (rc == 0)
        rc = stg_schema_create(bump, 2, ret, err);
    if (rc < 0)
        return rc;
    ret->components[0] = (struct stg_component){.name = "bytes", .dtype = STAGER_STRING};
    ret->components[1] = (struct stg_component){.name = "path", .dtype = STAGER_STRING};
    return 0;
}

static int read_file_create(struct stg_dataset *dataset, const struct stg_step *step,
                            const struct stg_schema *schema, struct stg_iter *input,
                            struct stg_iter **ret, struct stg_err *err)
{
    struct stg_reader_config config =
        stg_reader_options(dataset, step, &stg_format_read_file, "none");
    config.derived = STG_DERIVED_PATH;
    return stg_reader_create(dataset, step, schema, input, &config, ret, err);
}

const struct stg_transformation stg_read_file = {.name = "read_file",
                                                 .infer = read_file_infer,
                                                 .create = read_file_create,
                                                 .is_indexable = true};
