/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stream/value.h"

#include <inttypes.h>
#include <stdbool.h>

#include "core/batch.h"

static int check_shape(const struct stager_tensor *value, int64_t *ret_n,
                       struct stg_err *err)
{
    if (stg_dtype_bytes(value->dtype) == 0 && value->dtype != STAGER_STRING)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "unknown dtype %d", value->dtype);
    if (value->ndim < 0 || value->ndim > STG_MAX_DIMS)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "%d dimensions; the maximum is %d",
                       value->ndim, STG_MAX_DIMS);
    int64_t n = 1;
    for (int i = 0; i < value->ndim; i++) {
        if (value->shape[i] < 0)
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "dimension %d is %" PRId64 ", which is negative", i,
                           value->shape[i]);
        if (__builtin_mul_overflow(n, value->shape[i], &n))
            n = INT64_MAX;
    }
    *ret_n = n;
    return 0;
}

static int too_large(uint64_t bytes, struct stg_err *err)
{
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "the feed takes %" PRIu64
                   " bytes of a message; the maximum is %u (60 KiB): put larger data "
                   "into a file of the dataset",
                   bytes, STG_FEED_MAX_BYTES);
}

/* A string costs its bytes and one offset. */
static int check_strings(const struct stager_tensor *value, int64_t n, uint64_t max_bytes,
                         struct stg_err *err)
{
    if (value->offsets == NULL)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "strings need offsets");
    if ((uint64_t)n > max_bytes)
        return too_large((uint64_t)n, err);
    for (int64_t i = 0; i < n; i++) {
        int64_t from = value->offsets[i], to = value->offsets[i + 1];
        if (from < 0 || to < from || (uint64_t)to > value->data_bytes)
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "string %" PRId64 " lies at %" PRId64 " to %" PRId64
                           " of %" PRIu64 " bytes",
                           i, from, to, value->data_bytes);
    }
    uint64_t bytes = (uint64_t)(value->offsets[n] - value->offsets[0]) +
                     ((uint64_t)n + 1) * sizeof(uint32_t);
    return bytes > max_bytes ? too_large(bytes, err) : 0;
}

static int check_numbers(const struct stager_tensor *value, int64_t n, uint64_t max_bytes,
                         struct stg_err *err)
{
    uint64_t bytes;
    if (__builtin_mul_overflow((uint64_t)n, stg_dtype_bytes(value->dtype), &bytes))
        bytes = UINT64_MAX;
    if (bytes > max_bytes)
        return too_large(bytes, err);
    if (bytes != value->data_bytes)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "data_bytes is %" PRIu64 "; the shape needs %" PRIu64,
                       value->data_bytes, bytes);
    if ((uintptr_t)value->data % stg_dtype_bytes(value->dtype) != 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "data is not aligned to its elements of %u bytes",
                       stg_dtype_bytes(value->dtype));
    return 0;
}

int stg_value_check(const struct stager_tensor *value, uint64_t max_bytes, int64_t *ret_n,
                    struct stg_err *err)
{
    int rc = check_shape(value, ret_n, err);
    if (rc == 0 && value->dtype == STAGER_STRING)
        rc = check_strings(value, *ret_n, max_bytes, err);
    else if (rc == 0)
        rc = check_numbers(value, *ret_n, max_bytes, err);
    if (rc == 0 && value->data == NULL && value->data_bytes > 0)
        rc = stg_err(err, -STAGER_INVALID_ARGUMENT, "data is NULL");
    return rc;
}
