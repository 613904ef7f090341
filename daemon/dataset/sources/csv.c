/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "daemon/dataset/sources/csv_columns.h"

static const char *delim_of(const struct stg_step *step)
{
    return stg_attr_string(step->attrs, step->n_attrs, "field_delim", ",");
}

static int csv_infer(const struct stg_step *step, const struct stg_schema *in,
                     struct stg_bump *bump, struct stg_schema *ret, struct stg_err *err)
{
    int rc = stg_csv_has_columns(step)
                 ? stg_csv_columns_infer(step, in, bump, ret, err)
                 : stg_reader_infer_record(step, in, bump, ret, err);
    if (rc < 0)
        return rc;
    const char *delim = delim_of(step);
    if (strlen(delim) != 1 || strchr("\"\r\n", delim[0]) != NULL)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "field_delim is \"%.16s\"; it must be one character other "
                            "than a quote or a line end",
                            delim);
    return 0;
}

static int csv_create(struct stg_dataset *dataset, const struct stg_step *step,
                      const struct stg_schema *schema, struct stg_iter *input,
                      struct stg_iter **ret, struct stg_err *err)
{
    struct stg_csv_reader_options options = {
        .delim = delim_of(step)[0],
        .quotes = stg_step_bool(step, "use_quote_delim", true),
        .header = stg_step_bool(step, "header", false)};
    struct stg_reader_config config =
        stg_reader_options(dataset, step, &stg_format_csv, "auto");
    dataset->has_records = true;
    if (stg_csv_has_columns(step))
        return stg_csv_columns_create(dataset, step, schema, input, &config, &options,
                                      ret, err);
    int rc =
        stg_reader_set_options(dataset, step, &config, &options, sizeof(options), err);
    if (rc < 0)
        return rc;
    return stg_reader_create(dataset, step, schema, input, &config, ret, err);
}

const struct stg_transformation stg_csv = {
    .name = "csv", .infer = csv_infer, .create = csv_create, .is_indexable = true};
