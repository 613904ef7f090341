/* SPDX-License-Identifier: Apache-2.0
 *
 * The transformations there are: one line each.
 */
#include <string.h>

#include "daemon/dataset/step.h"

// clang-format off
const struct stg_transformation *const stg_transformations[] = {
    &stg_files,
    &stg_text_line,
    &stg_tfrecord,
    &stg_range,
    &stg_shuffle,
    &stg_repeat,
    &stg_batch,
    &stg_map,
    &stg_filter,
    &stg_map_and_batch,
    &stg_padded_batch,
    &stg_ragged_batch,
    &stg_bucket_by_sequence_length,
    &stg_take,
    &stg_skip,
    &stg_shard,
    &stg_enumerate,
    &stg_unbatch,
    &stg_rebatch,
    &stg_shuffle_and_repeat,
    &stg_ignore_errors,
    &stg_prefetch,
    &stg_cache,
    &stg_fixed_length_record,
    &stg_csv,
    &stg_jsonl,
    &stg_read_file,
    &stg_npy,
    &stg_tar,
    &stg_parquet,
    &stg_arrow,
    &stg_interleave,
    &stg_parallel_interleave,
    &stg_zip,
    &stg_concatenate,
    &stg_sample_from_datasets,
    &stg_choose_from_datasets,
    &stg_py_function,
};
// clang-format on

const size_t stg_n_transformations =
    sizeof(stg_transformations) / sizeof(stg_transformations[0]);

const struct stg_transformation *stg_transformation_find(const char *name)
{
    for (size_t i = 0; i < stg_n_transformations; i++) {
        if (strcmp(stg_transformations[i]->name, name) == 0)
            return stg_transformations[i];
    }
    return NULL;
}
