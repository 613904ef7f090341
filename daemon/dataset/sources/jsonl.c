/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/sources/reader.h"

static int jsonl_create(struct stg_dataset *dataset, const struct stg_step *step,
                        const struct stg_schema *schema, struct stg_iter *input,
                        struct stg_iter **ret, struct stg_err *err)
{
    struct stg_reader_config config =
        stg_reader_options(dataset, step, &stg_format_text_line, "auto");
    config.config.skip_blank_lines = true;
    int rc = stg_reader_want_ahead(dataset, step, &config.config, err);
    if (rc < 0)
        return rc;
    dataset->has_lines = true;
    return stg_reader_create(dataset, step, schema, input, &config, ret, err);
}

const struct stg_transformation stg_jsonl = {.name = "jsonl",
                                             .infer = stg_reader_infer_record,
                                             .create = jsonl_create,
                                             .is_indexable = true};
