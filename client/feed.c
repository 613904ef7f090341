/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors that come from the trainer: is one what it says of itself? And stager_feed: one
 * in one message. The daemon knows what it has to be; here only what would not make a
 * message is refused.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/stream.h"

#define FEED_MAX_BYTES 61440u

static int check_shape(const struct stager_tensor *value, int64_t *ret_n,
                       struct stg_err *err)
{
    if (stg_dtype_bytes(value->dtype) == 0 && value->dtype != STAGER_STRING)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "dtype %d is none that is known",
                       value->dtype);
    if (value->ndim < 0 || value->ndim > STG_MAX_DIMS)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "%d dimensions; at most %d",
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
                   "the tensor takes %" PRIu64
                   " bytes of a message; a feed may take %u (60 KiB): put "
                   "what is larger into a file of the dataset",
                   bytes, FEED_MAX_BYTES);
}

/* A string costs its bytes and one offset. */
static int check_strings(const struct stager_tensor *value, int64_t n, uint64_t max_bytes,
                         struct stg_err *err)
{
    if (value->offsets == NULL)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "strings without offsets");
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
                       "data_bytes is %" PRIu64 ", the shape takes %" PRIu64,
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

/* Of a slice the first offset is not 0; in a message it is. */
static int64_t *rebase(const struct stager_tensor *value, int64_t n)
{
    int64_t *offsets = calloc((size_t)n + 1, sizeof(*offsets));
    for (int64_t i = 0; offsets != NULL && i <= n; i++)
        offsets[i] = value->offsets[i] - value->offsets[0];
    return offsets;
}

static int send_feed(struct stager_stream *stream, const char *name,
                     const struct stager_tensor *value, int64_t n, uint64_t *ret)
{
    struct stg_err *err = &stream->err;
    struct stg_request request = {.kind = STG_REQUEST_FEED,
                                  .name = name,
                                  .dtype = value->dtype,
                                  .ndim = value->ndim,
                                  .data = value->data,
                                  .data_bytes = value->data_bytes};
    memcpy(request.shape, value->shape, (size_t)value->ndim * sizeof(request.shape[0]));
    int64_t *offsets = NULL;
    if (value->dtype == STAGER_STRING) {
        offsets = rebase(value, n);
        if (offsets == NULL)
            return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
        request.offsets = offsets;
        request.n_offsets = (size_t)n + 1;
        request.data =
            value->data != NULL ? (const char *)value->data + value->offsets[0] : "";
        request.data_bytes = (size_t)offsets[n];
    }
    struct stg_reply reply;
    int rc = stg_client_call(stream->client, &request, STG_REQUEST_NS, &reply, NULL, 0,
                             NULL, err);
    free(offsets);
    if (rc == 0 && ret != NULL)
        *ret = reply.feed_version;
    return stg_stream_why(stream, rc);
}

int stager_feed(struct stager_stream *stream, const char *name,
                const struct stager_tensor *value, uint64_t *ret_feed_version)
{
    int rc = stg_stream_enter(stream);
    if (rc < 0)
        return rc;
    if (stream->finished != 0)
        return stg_err(&stream->err, stream->finished, "%s", stream->final_text);
    if (name == NULL || name[0] == '\0' || value == NULL)
        return stg_err(&stream->err, -STAGER_INVALID_ARGUMENT,
                       "a feed has a name and a value");
    int64_t n = 0;
    rc = stg_value_check(value, FEED_MAX_BYTES, &n, &stream->err);
    if (rc < 0)
        return stg_err_prefix(&stream->err, rc, "feed %s", name);
    return send_feed(stream, name, value, n, ret_feed_version);
}
