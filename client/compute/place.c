/* SPDX-License-Identifier: Apache-2.0 */
#include "client/compute/place.h"

#include <stdlib.h>
#include <string.h>

#include "core/status.h"

#define ALIGN 256u
#define MEMORY_ROUND ((size_t)1 << 16)
#define MIN_RESULTS 2

/* More memory than was there; with the next use of the result it is one piece. */
struct block {
    void *memory;
    struct block *next;
};

struct stg_result {
    struct stg_place *place;
    struct stg_result *next;
    char *memory;
    size_t bytes, used;
    struct block *more;
    size_t wanted; /* by the last run, in all */
    void *bounce;  /* page-locked, for copies to the device */
    size_t bounce_bytes;
    struct stg_device_event *done, *read; /* complete; no longer read */
    uint64_t turn;                        /* when it was last used, in runs */
    bool is_retained;                     /* by the trainer */

    const struct stg_run *of; /* that enqueued something since it was last looked at */
    uint64_t number;          /* of its batch */
    int64_t *bad, *bad_host;  /* one a node; the second is page-locked */
    size_t n_bad, max_bad;
};

/* On the device, of memory of the host. */
struct copy {
    const void *data;
    size_t bytes;
    void *at;
    const struct stg_run *of; /* NULL: a variable */
    bool is_stale;
    struct copy *next;
};

struct stg_place {
    struct stg_compute_device where;
    const struct stg_device *device;
    struct stg_device_event *copied;
    struct copy *copies;
    struct stg_result *results, *last; /* last: what the last run gave; may be NULL */
    uint64_t n_runs;
};

/* ---- life ---- */

int stg_place_create(const struct stg_compute_device *where, struct stg_place **ret,
                     struct stg_err *err)
{
    struct stg_place *place = calloc(1, sizeof(*place));
    if (place == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    place->where = *where;
    place->device = where->device;
    int rc = place->device->event_create(where->number, &place->copied, err);
    if (rc < 0) {
        free(place);
        return rc;
    }
    *ret = place;
    return 0;
}

static void free_more(struct stg_result *result)
{
    const struct stg_place *place = result->place;
    while (result->more != NULL) {
        struct block *block = result->more;
        result->more = block->next;
        place->device->free(place->where.number, block->memory);
        free(block);
    }
}

/* Nothing of the trainer's and nothing of ours is under way on it any more. */
static void free_result(struct stg_result *result)
{
    const struct stg_place *place = result->place;
    const struct stg_device *device = place->device;
    if (result->done != NULL)
        device->event_wait(result->done, NULL);
    if (result->read != NULL &&
        device->event_record(result->read, place->where.trainer, NULL) == 0)
        device->event_wait(result->read, NULL);
    free_more(result);
    device->free(place->where.number, result->memory);
    device->host_free(result->bounce);
    device->host_free(result->bad_host);
    device->event_destroy(result->done);
    device->event_destroy(result->read);
    free(result);
}

static void free_copy(const struct stg_place *place, struct copy *copy)
{
    place->device->free(place->where.number, copy->at);
    free(copy);
}

void stg_place_destroy(struct stg_place *place)
{
    if (place == NULL)
        return;
    while (place->results != NULL) {
        struct stg_result *result = place->results;
        place->results = result->next;
        free_result(result);
    }
    while (place->copies != NULL) {
        struct copy *copy = place->copies;
        place->copies = copy->next;
        free_copy(place, copy);
    }
    place->device->event_destroy(place->copied);
    free(place);
}

void stg_place_abandon(struct stg_place *place)
{
    for (struct stg_result *result = place->results, *next; result != NULL;
         result = next) {
        next = result->next;
        while (result->more != NULL) {
            struct block *block = result->more;
            result->more = block->next;
            free(block);
        }
        free(result);
    }
    for (struct copy *copy = place->copies, *next; copy != NULL; copy = next) {
        next = copy->next;
        free(copy);
    }
    free(place);
}

const struct stg_compute_device *stg_place_where(const struct stg_place *place)
{
    return &place->where;
}

/* ---- copies of what does not come with a batch ---- */

static struct copy *find_copy(const struct stg_place *place, const struct stg_run *of,
                              const void *data, size_t bytes)
{
    for (struct copy *copy = place->copies; copy != NULL; copy = copy->next) {
        if (copy->data == data && copy->of == of && copy->bytes == bytes)
            return copy;
    }
    return NULL;
}

static int add_copy(struct stg_place *place, const struct stg_run *of, const void *data,
                    size_t bytes, struct copy **ret, struct stg_err *err)
{
    struct copy *copy = calloc(1, sizeof(*copy));
    if (copy == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    *copy = (struct copy){.data = data, .bytes = bytes, .of = of, .is_stale = true};
    int rc = place->device->alloc(place->where.number, bytes, &copy->at, err);
    if (rc < 0) {
        free(copy);
        return rc;
    }
    copy->next = place->copies;
    place->copies = copy;
    *ret = copy;
    return 0;
}

int stg_place_keep(struct stg_place *place, const struct stg_run *of, const void *data,
                   size_t bytes, bool is_variable, const void **ret, struct stg_err *err)
{
    const struct stg_device *device = place->device;
    struct stg_stream *stream = place->where.stream;
    of = is_variable ? NULL : of;
    struct copy *copy = find_copy(place, of, data, bytes);
    int rc = copy == NULL ? add_copy(place, of, data, bytes, &copy, err) : 0;
    if (rc == 0 && copy->is_stale) {
        rc = device->copy_in(stream, copy->at, data, bytes, err);
        if (rc == 0)
            rc = device->event_record(place->copied, stream, err);
        if (rc == 0)
            rc = device->event_wait(place->copied, err);
        copy->is_stale = rc < 0;
    }
    if (rc == 0)
        *ret = copy->at;
    return rc;
}

void stg_place_spoil(struct stg_place *place, const void *data)
{
    for (struct copy *copy = place->copies; copy != NULL; copy = copy->next)
        copy->is_stale |= copy->of == NULL && copy->data == data;
}

void stg_place_forget(struct stg_place *place, const struct stg_run *of)
{
    if (place == NULL || of == NULL)
        return;
    for (struct stg_result *result = place->results; result != NULL;
         result = result->next) {
        if (result->of != of)
            continue;
        place->device->event_wait(result->done, NULL);
        result->of = NULL;
    }
    for (struct copy **at = &place->copies; *at != NULL;) {
        struct copy *copy = *at;
        if (copy->of != of) {
            at = &copy->next;
            continue;
        }
        *at = copy->next;
        free_copy(place, copy);
    }
}

/* ---- what earlier runs say ---- */

/* The one that was not used for longest; NULL: there are not enough. */
static struct stg_result *next_result(const struct stg_place *place)
{
    struct stg_result *oldest = NULL;
    size_t n_free = 0;
    for (struct stg_result *result = place->results; result != NULL;
         result = result->next) {
        if (result->is_retained)
            continue;
        n_free++;
        if (oldest == NULL || result->turn < oldest->turn)
            oldest = result;
    }
    return n_free < MIN_RESULTS ? NULL : oldest;
}

/* Its run is over. */
static int read_bad(struct stg_result *result, struct stg_err *err)
{
    const struct stg_run *of = result->of;
    char node[256];
    result->of = NULL;
    for (size_t i = 0; i < result->n_bad; i++) {
        if (result->bad_host[i] == INT64_MAX)
            continue;
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "batch %llu, which already ran: node %s: element %lld of input 1 "
                       "is out of range; its result was zeros",
                       (unsigned long long)result->number,
                       stg_run_node_text(of, i, node, sizeof(node)),
                       (long long)result->bad_host[i]);
    }
    return 0;
}

int stg_place_check(struct stg_place *place, bool all, struct stg_err *err)
{
    const struct stg_device *device = place->device;
    struct stg_result *next = next_result(place);
    int rc = 0;
    for (struct stg_result *result = place->results; result != NULL && rc == 0;
         result = result->next) {
        bool is_over = all || result == next;
        if (is_over)
            device->event_wait(result->done, NULL);
        if (result->of != NULL && result->n_bad > 0 &&
            (is_over || device->event_query(result->done, NULL) == 1))
            rc = read_bad(result, err);
    }
    return rc;
}

/* ---- results ---- */

static int add_result(struct stg_place *place, struct stg_result **ret,
                      struct stg_err *err)
{
    struct stg_result *result = calloc(1, sizeof(*result));
    if (result == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    result->place = place;
    int rc = place->device->event_create(place->where.number, &result->done, err);
    if (rc == 0)
        rc = place->device->event_create(place->where.number, &result->read, err);
    if (rc < 0) {
        free_result(result);
        return rc;
    }
    result->next = place->results;
    place->results = result;
    *ret = result;
    return 0;
}

/* One piece for all that the last run wanted. */
static int grow(struct stg_result *result, struct stg_err *err)
{
    const struct stg_place *place = result->place;
    const struct stg_device *device = place->device;
    size_t bytes = (result->wanted + result->wanted / 8 + MEMORY_ROUND - 1) /
                   MEMORY_ROUND * MEMORY_ROUND;
    if (result->more == NULL)
        return 0;
    int rc = device->event_wait(result->read, err);
    if (rc < 0)
        return rc;
    free_more(result);
    device->free(place->where.number, result->memory);
    result->memory = NULL;
    result->bytes = 0;
    void *memory = NULL;
    rc = device->alloc(place->where.number, bytes, &memory, err);
    if (rc == 0) {
        result->memory = memory;
        result->bytes = bytes;
    }
    return rc;
}

/* The trainer is done with what the last run gave, once it has come to here. */
static int end_last(struct stg_place *place, struct stg_err *err)
{
    struct stg_result *last = place->last;
    place->last = NULL;
    if (last == NULL || last->is_retained)
        return 0;
    return place->device->event_record(last->read, place->where.trainer, err);
}

void stg_place_pass(struct stg_place *place)
{
    end_last(place, NULL);
}

int stg_place_begin(struct stg_place *place, const struct stg_run *of, uint64_t number,
                    struct stg_result **ret, struct stg_err *err)
{
    struct stg_result *result = next_result(place);
    int rc = end_last(place, err);
    if (rc == 0 && result == NULL)
        rc = add_result(place, &result, err);
    if (rc == 0)
        rc = grow(result, err);
    if (rc == 0)
        rc = place->device->stream_wait(place->where.stream, result->read, err);
    if (rc < 0)
        return rc;
    result->used = result->wanted = result->n_bad = 0;
    result->of = of;
    result->number = number;
    result->turn = ++place->n_runs;
    *ret = result;
    return 0;
}

static int add_block(struct stg_result *result, size_t bytes, void **ret,
                     struct stg_err *err)
{
    const struct stg_place *place = result->place;
    struct block *block = calloc(1, sizeof(*block));
    if (block == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    int rc = place->device->alloc(place->where.number, bytes, &block->memory, err);
    if (rc < 0) {
        free(block);
        return rc;
    }
    block->next = result->more;
    result->more = block;
    *ret = block->memory;
    return 0;
}

int stg_result_alloc(struct stg_result *result, size_t bytes, void **ret,
                     struct stg_err *err)
{
    if (bytes > SIZE_MAX / 4)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "no memory for %zu bytes", bytes);
    size_t whole = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    result->wanted += whole;
    if (whole > result->bytes - result->used)
        return add_block(result, bytes, ret, err);
    *ret = result->memory + result->used;
    result->used += whole;
    return 0;
}

int stg_result_bad(struct stg_result *result, int64_t **ret, struct stg_err *err)
{
    const struct stg_place *place = result->place;
    const struct stg_device *device = place->device;
    size_t n = stg_run_n_nodes(result->of);
    void *bad = NULL;
    int rc = 0;
    if (n > result->max_bad) {
        void *host = NULL;
        device->host_free(result->bad_host);
        result->bad_host = NULL;
        result->max_bad = 0;
        rc = device->host_alloc(n * sizeof(*result->bad_host), &host, err);
        result->bad_host = host;
        result->max_bad = rc == 0 ? n : 0;
    }
    if (rc == 0)
        rc = stg_result_alloc(result, n * sizeof(*result->bad), &bad, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < n; i++)
        result->bad_host[i] = INT64_MAX;
    result->bad = bad;
    result->n_bad = n;
    *ret = bad;
    return device->copy_in(place->where.stream, bad, result->bad_host,
                           n * sizeof(*result->bad), err);
}

static int grow_bounce(struct stg_result *result, size_t bytes, struct stg_err *err)
{
    const struct stg_device *device = result->place->device;
    if (bytes <= result->bounce_bytes)
        return 0;
    device->host_free(result->bounce);
    result->bounce = NULL;
    result->bounce_bytes = 0;
    int rc = device->host_alloc(bytes + bytes / 8, &result->bounce, err);
    if (rc == 0)
        result->bounce_bytes = bytes + bytes / 8;
    return rc;
}

int stg_result_copy_in(struct stg_result *result, struct stg_tensor *tensors, size_t n,
                       struct stg_err *err)
{
    const struct stg_place *place = result->place;
    size_t bytes = 0, at = 0;
    void *to = NULL;
    for (size_t i = 0; i < n; i++)
        bytes += (size_t)(tensors[i].data_bytes + ALIGN - 1) / ALIGN * ALIGN;
    int rc = grow_bounce(result, bytes, err);
    if (rc == 0)
        rc = stg_result_alloc(result, bytes, &to, err);
    for (size_t i = 0; i < n && rc == 0; i++) {
        if (tensors[i].data_bytes > 0)
            memcpy((char *)result->bounce + at, tensors[i].data,
                   (size_t)tensors[i].data_bytes);
        at += (size_t)(tensors[i].data_bytes + ALIGN - 1) / ALIGN * ALIGN;
    }
    if (rc == 0)
        rc = place->device->copy_in(place->where.stream, to, result->bounce, bytes, err);
    for (size_t i = 0; i < n && rc == 0; i++) {
        tensors[i].data = to;
        to = (char *)to + (tensors[i].data_bytes + ALIGN - 1) / ALIGN * ALIGN;
    }
    return rc;
}

int stg_result_end(struct stg_result *result, bool is_launched, struct stg_err *err)
{
    struct stg_place *place = result->place;
    const struct stg_device *device = place->device;
    struct stg_stream *stream = place->where.stream;
    int rc = 0;
    if (!is_launched)
        result->n_bad = 0;
    if (result->n_bad > 0)
        rc = device->copy_out(stream, result->bad_host, result->bad,
                              result->n_bad * sizeof(*result->bad), err);
    if (rc == 0)
        rc = device->event_record(result->done, stream, err);
    if (rc == 0 && stream != place->where.trainer)
        rc = device->stream_wait(place->where.trainer, result->done, err);
    place->last = rc == 0 ? result : NULL;
    return rc;
}

/* ---- for the trainer ---- */

struct stg_result *stg_place_last(const struct stg_place *place)
{
    return place->last;
}

void stg_result_keep(struct stg_result *result)
{
    result->is_retained = true;
}

void stg_result_drop(struct stg_result *result, struct stg_stream *after)
{
    const struct stg_place *place = result->place;
    place->device->event_record(result->read,
                                after != NULL ? after : place->where.trainer, NULL);
    result->is_retained = false;
}

struct stg_device_event *stg_result_event(const struct stg_result *result)
{
    return result->done;
}
