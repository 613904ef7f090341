/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/format/parquet/statistics.h"

#include <math.h>
#include <string.h>

static struct stg_row_text read_bytes(struct stg_thrift *thrift,
                                      const struct stg_thrift_field *field)
{
    struct stg_row_text ret;
    ret.bytes = stg_thrift_binary(thrift, field, &ret.data);
    return ret;
}

void stg_parquet_statistics_read(struct stg_thrift *thrift,
                                 struct stg_parquet_statistics *ret)
{
    struct stg_thrift_field field = {0};
    *ret = (struct stg_parquet_statistics){.n_nulls = -1};
    while (stg_thrift_next(thrift, &field)) {
        switch (field.id) {
        case 1: ret->older_max = read_bytes(thrift, &field); break;
        case 2: ret->older_min = read_bytes(thrift, &field); break;
        case 3: ret->n_nulls = stg_thrift_int(thrift, &field); break;
        case 5: ret->max = read_bytes(thrift, &field); break;
        case 6: ret->min = read_bytes(thrift, &field); break;
        default: stg_thrift_skip(thrift, &field);
        }
    }
}

/* ---- numbers ---- */

static bool load(const struct stg_row_text *bytes, void *to, size_t n)
{
    if (bytes->data == NULL || bytes->bytes != n)
        return false;
    memcpy(to, bytes->data, n);
    return true;
}

static bool load_integer(const struct stg_parquet_leaf *leaf,
                         const struct stg_row_text *bytes, union stg_row_number *ret)
{
    uint32_t narrow = 0;
    if (leaf->type == STG_PARQUET_INT64)
        return load(bytes, &ret->u, sizeof(ret->u));
    if (!load(bytes, &narrow, sizeof(narrow)))
        return false;
    if (leaf->is_unsigned)
        ret->u = narrow;
    else
        ret->i = (int32_t)narrow;
    return true;
}

/* A dtype of 64 bits or less holds what it is for both, as a number of either domain. */
static bool load_number(const struct stg_parquet_leaf *leaf,
                        const struct stg_row_text *bytes, union stg_row_number *ret)
{
    float single = 0;
    uint8_t flag = 0;
    switch (leaf->type) {
    case STG_PARQUET_BOOLEAN:
        if (!load(bytes, &flag, 1) || flag > 1)
            return false;
        ret->i = flag;
        return true;
    case STG_PARQUET_INT32:
    case STG_PARQUET_INT64: return load_integer(leaf, bytes, ret);
    case STG_PARQUET_FLOAT:
        if (!load(bytes, &single, sizeof(single)))
            return false;
        ret->f = (double)single;
        return !isnan(single);
    case STG_PARQUET_DOUBLE:
        return load(bytes, &ret->f, sizeof(ret->f)) && !isnan(ret->f);
    default: return false;
    }
}

static bool are_in_order(const struct stg_row_bounds *bounds)
{
    switch (bounds->domain) {
    case STG_ROW_INT: return bounds->least.i <= bounds->most.i;
    case STG_ROW_UINT: return bounds->least.u <= bounds->most.u;
    default: return bounds->least.f <= bounds->most.f;
    }
}

static void set_numbers(const struct stg_parquet_leaf *leaf,
                        const struct stg_row_text *min, const struct stg_row_text *max,
                        struct stg_row_bounds *bounds)
{
    bounds->has_numbers = load_number(leaf, min, &bounds->least) &&
                          load_number(leaf, max, &bounds->most) && are_in_order(bounds);
}

/* ---- bounds ---- */

static bool is_signed_number(const struct stg_parquet_leaf *leaf)
{
    switch (leaf->type) {
    case STG_PARQUET_INT32:
    case STG_PARQUET_INT64: return !leaf->is_unsigned;
    case STG_PARQUET_BOOLEAN:
    case STG_PARQUET_FLOAT:
    case STG_PARQUET_DOUBLE: return true;
    default: return false;
    }
}

struct stg_row_bounds stg_parquet_bounds(const struct stg_parquet_leaf *leaf, int dtype,
                                         const struct stg_parquet_statistics *statistics,
                                         bool is_ordered, uint64_t n)
{
    struct stg_row_bounds bounds = {.domain = stg_row_domain_of(dtype)};
    int64_t n_nulls = leaf->max_level == 0 ? 0 : statistics->n_nulls;
    bounds.may_be_null = n_nulls != 0;
    bounds.may_be_there = n_nulls < 0 || (uint64_t)n_nulls < n;
    bool is_new = is_ordered && statistics->min.data != NULL;
    const struct stg_row_text *min = is_new ? &statistics->min : &statistics->older_min;
    const struct stg_row_text *max = is_new ? &statistics->max : &statistics->older_max;
    if (bounds.domain != STG_ROW_STRING) {
        if (is_new || is_signed_number(leaf))
            set_numbers(leaf, min, max, &bounds);
    } else if (is_ordered && leaf->is_bytewise) {
        bounds.least_text = statistics->min;
        bounds.most_text = statistics->max;
    }
    return bounds;
}
