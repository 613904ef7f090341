/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/stage/feed.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/stage/priv.h"

struct stg_feed_value {
    unsigned refs;
    struct stg_tensor tensor; /* its memory follows the struct */
    _Alignas(64) char bytes[];
};

/* ---- values ---- */

static int check_shape(const struct stg_component *wanted,
                       const struct stg_request *request, struct stg_err *err)
{
    struct stg_component is = {.dtype = request->dtype, .ndim = request->ndim};
    bool negative = false;
    for (int d = 0; d < is.ndim; d++) {
        is.shape[d] = request->shape[d];
        negative = negative || is.shape[d] < 0;
    }
    if (!negative && stg_component_fits(&is, wanted))
        return 0;
    char got[128], want[128];
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "feed \"%s\" is %s %s, but the tensor is %s %s", request->name,
                   stg_dtype_name(is.dtype),
                   stg_shape_text(is.shape, is.ndim, got, sizeof(got)),
                   stg_dtype_name(wanted->dtype),
                   stg_shape_text(wanted->shape, wanted->ndim, want, sizeof(want)));
}

static int check_strings(const struct stg_request *request, uint64_t n,
                         struct stg_err *err)
{
    const int64_t *offsets = request->offsets;
    bool good = request->n_offsets == n + 1 && offsets[0] == 0;
    for (uint64_t i = 0; good && i < n; i++)
        good = offsets[i] <= offsets[i + 1];
    if (good && (uint64_t)offsets[n] == request->data_bytes)
        return 0;
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "feed \"%s\": string offsets must be one more than the strings, start "
                   "at 0, never decrease, and end with the number of bytes",
                   request->name);
}

static int check_bytes(const struct stg_request *request, uint64_t *ret_n,
                       struct stg_err *err)
{
    uint64_t n = 1;
    for (int d = 0; d < request->ndim; d++) {
        if (__builtin_mul_overflow(n, (uint64_t)request->shape[d], &n))
            n = UINT64_MAX;
    }
    uint64_t total = request->data_bytes + request->n_offsets * sizeof(int64_t);
    if (total > STG_FEED_MAX_BYTES || n > STG_FEED_MAX_BYTES)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "feed \"%s\" is larger than the limit of %u bytes", request->name,
                       STG_FEED_MAX_BYTES);
    *ret_n = n;
    if (request->dtype == STAGER_STRING)
        return check_strings(request, n, err);
    uint64_t bytes = n * stg_dtype_bytes(request->dtype);
    if (request->data_bytes == bytes && request->n_offsets == 0)
        return 0;
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "feed \"%s\" has %zu bytes, but its dtype and shape need %llu",
                   request->name, request->data_bytes, (unsigned long long)bytes);
}

static struct stg_feed_value *copy_value(const struct stg_request *request, uint64_t n)
{
    size_t text_at = (request->n_offsets * sizeof(int64_t) + 63) & ~(size_t)63;
    struct stg_feed_value *value = aligned_alloc(
        64, (sizeof(*value) + text_at + request->data_bytes + 64) & ~(size_t)63);
    if (value == NULL)
        return NULL;
    char *data = value->bytes + text_at;
    value->refs = 1;
    value->tensor = (struct stg_tensor){.dtype = request->dtype,
                                        .ndim = request->ndim,
                                        .data = data,
                                        .data_bytes = request->data_bytes};
    memcpy(value->tensor.shape, request->shape, sizeof(value->tensor.shape));
    if (request->data_bytes > 0)
        memcpy(data, request->data, request->data_bytes);
    if (request->n_offsets > 0) {
        memcpy(value->bytes, request->offsets, (n + 1) * sizeof(int64_t));
        value->tensor.begin = (const int64_t *)(const void *)value->bytes;
        value->tensor.end = value->tensor.begin + 1;
    }
    return value;
}

int stg_feed_value_create(const struct stg_graph *graph,
                          const struct stg_request *request, size_t *ret_feed,
                          struct stg_feed_value **ret, struct stg_err *err)
{
    size_t feed = 0;
    uint64_t n = 0;
    const struct stg_tensor *preset;
    int rc = stg_graph_find_feed(graph, request->name, &feed, err);
    if (rc == 0)
        rc = check_shape(stg_graph_feed(graph, feed, &preset), request, err);
    if (rc == 0)
        rc = check_bytes(request, &n, err);
    if (rc < 0)
        return rc;
    struct stg_feed_value *value = copy_value(request, n);
    if (value == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    *ret_feed = feed;
    *ret = value;
    return 0;
}

static void value_unref(struct stg_feed_value *value)
{
    if (value != NULL && --value->refs == 0)
        free(value);
}

/* ---- sets ---- */

int stg_feed_set_create(const struct stg_feed_set *old, size_t n_feeds, size_t feed,
                        struct stg_feed_value *value, struct stg_feed_set **ret,
                        struct stg_err *err)
{
    struct stg_feed_set *set = calloc(1, sizeof(*set));
    if (set != NULL) {
        set->refs = 1;
        set->values = calloc(n_feeds, sizeof(struct stg_feed_value *));
        set->tensors = calloc(n_feeds, sizeof(struct stg_tensor *));
    }
    if (set == NULL || set->values == NULL || set->tensors == NULL) {
        stg_feed_set_unref(set);
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    }
    set->n = n_feeds;
    set->version = old != NULL ? old->version + 1 : 1;
    for (size_t i = 0; i < n_feeds; i++) {
        struct stg_feed_value *retained = old != NULL ? old->values[i] : NULL;
        if (i != feed && retained != NULL)
            retained->refs++;
        set->values[i] = i == feed ? value : retained;
        if (set->values[i] != NULL)
            set->tensors[i] = &set->values[i]->tensor;
    }
    *ret = set;
    return 0;
}

struct stg_feed_set *stg_feed_set_ref(struct stg_feed_set *set)
{
    if (set != NULL)
        set->refs++;
    return set;
}

void stg_feed_set_unref(struct stg_feed_set *set)
{
    if (set == NULL || --set->refs > 0)
        return;
    for (size_t i = 0; i < set->n; i++)
        value_unref(set->values[i]);
    free(set->values);
    free(set->tensors);
    free(set);
}

int stg_stage_feed(struct stg_stage *stage, const struct stg_request *request,
                   uint64_t *ret_version, struct stg_err *err)
{
    size_t feed;
    struct stg_feed_value *value;
    struct stg_feed_set *set = NULL;
    const struct stg_graph *graph = stage->config.graph;
    int rc = stg_feed_value_create(graph, request, &feed, &value, err);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&stage->lock);
    rc = stage->stop.is_on
             ? stg_err(err, -STAGER_ABORTED,
                       "this run of pipeline %s has ended and accepts no more feeds: "
                       "open the stream again",
                       stage->config.name)
             : stg_feed_set_create(stage->boundary.feeds, stg_graph_n_feeds(graph), feed,
                                   value, &set, err);
    if (rc == 0) {
        stg_feed_set_unref(stage->boundary.feeds);
        stage->boundary.feeds = set;
        *ret_version = set->version;
    } else {
        value_unref(value);
    }
    pthread_mutex_unlock(&stage->lock);
    return rc;
}
