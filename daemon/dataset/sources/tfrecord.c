/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/sources/reader.h"

static int tfrecord_create(struct stg_dataset *dataset, const struct stg_step *step,
                           const struct stg_schema *schema, struct stg_iter *input,
                           struct stg_iter **ret, struct stg_err *err)
{
    struct stg_reader_config config =
        stg_reader_options(dataset, step, &stg_format_tfrecord, "auto");
    dataset->has_records = true;
    return stg_reader_create(dataset, step, schema, input, &config, ret, err);
}

const struct stg_transformation stg_tfrecord = {.name = "tfrecord",
                                                .infer = stg_reader_infer_record,
                                                .create = tfrecord_create,
                                                .is_indexable = true};
