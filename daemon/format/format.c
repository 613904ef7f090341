/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/format/format.h"

static const struct stg_format *const formats[] = {
    &stg_format_text_line, &stg_format_tfrecord,  &stg_format_fixed_length,
    &stg_format_csv,       &stg_format_read_file, &stg_format_npy,
    &stg_format_tar,
};

const struct stg_format *const *stg_formats(size_t *ret_n)
{
    *ret_n = sizeof(formats) / sizeof(formats[0]);
    return formats;
}
