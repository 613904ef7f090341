/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/sources/reader.h"

/* A block and a batch each put a dimension before a row's. */
#define MAX_ROW_DIMS (STG_MAX_DIMS - 2)

static int row_of(const struct stg_step *step, struct stg_component *ret,
                  struct stg_err *err)
{
    const char *dtype = stg_attr_string(step->attrs, step->n_attrs, "dtype", "");
    const struct stg_attr *shape = stg_attr_find(step->attrs, step->n_attrs, "shape");
    struct stg_component row = {.name = "value", .dtype = stg_dtype_from_name(dtype)};
    if (stg_dtype_bytes(row.dtype) == 0)
        return stg_step_err(
            step, -STAGER_INVALID_ARGUMENT, err,
            "dtype is \"%.32s\"; it must be the dtype of the arrays, such as float32",
            dtype);
    size_t n = shape != NULL ? shape->n_values : 0;
    if (n > MAX_ROW_DIMS)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "shape has %zu dimensions; the maximum of a row is %d", n,
                            MAX_ROW_DIMS);
    for (size_t i = 0; i < n; i++) {
        row.shape[i] = shape->values[i].i;
        if (row.shape[i] < -1)
            return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                                "shape has a dimension of %lld; it must be 0 or more, or "
                                "-1 for any",
                                (long long)row.shape[i]);
    }
    row.ndim = (int)n;
    *ret = row;
    return 0;
}

static int npy_infer(const struct stg_step *step, const struct stg_schema *in,
                     struct stg_bump *bump, struct stg_schema *ret, struct stg_err *err)
{
    struct stg_component row;
    int rc = stg_reader_check(step, in, err);
    if (rc == 0)
        rc = row_of(step, &row, err);
    if (rc == 0)
        rc = stg_schema_create(bump, 1, ret, err);
    if (rc == 0)
        ret->components[0] = row;
    return rc;
}

static int npy_create(struct stg_dataset *dataset, const struct stg_step *step,
                      const struct stg_schema *schema, struct stg_iter *input,
                      struct stg_iter **ret, struct stg_err *err)
{
    struct stg_npy_options options = {.row = schema->components[0]};
    struct stg_reader_config config =
        stg_reader_options(dataset, step, &stg_format_npy, "auto");
    int rc =
        stg_reader_set_options(dataset, step, &config, &options, sizeof(options), err);
    if (rc < 0)
        return rc;
    dataset->has_records = true;
    return stg_reader_create(dataset, step, schema, input, &config, ret, err);
}

const struct stg_transformation stg_npy = {
    .name = "npy", .infer = npy_infer, .create = npy_create, .is_indexable = true};
