/* SPDX-License-Identifier: Apache-2.0
 *
 * stager_run: the graph is made by the first call; executors are kept for each list of
 * fetches and of what is fed.
 */
#include "client/run/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/compute/compute.h"
#include "client/device/copier.h"
#include "client/run/load.h"
#include "client/run/report.h"
#include "client/stream/stream.h"
#include "client/stream/value.h"
#include "client/stream/view.h"

/* Lists of fetches and feeds that a training loop alternates between; more cost a new
 * executor. */
#define MAX_EXECUTORS 8

struct executor {
    char **fetches;
    size_t n_fetches;
    struct stg_schema fed;    /* what it was made for; names are its own */
    struct stg_tensor *feeds; /* of one run */
    bool *has;                /* of the stream's slots: the batch carried it */
    struct stg_compute_executor *executor;
    struct stg_tensor *outputs;
    bool *is_there; /* one a fetch: its output is on the device */
    uint64_t used;  /* when, in calls */
};

struct stg_computer {
    const struct stg_compute *table;
    struct stg_compute_graph *graph;
    struct stg_tensor *boundary; /* one a tensor of it, of one run */
    struct stg_schema carried;   /* of one run: of the stream's slots, those that the
                                    batch carries … */
    struct stg_tensor *values;   /* … and what they are */
    bool *has;                   /* one a slot of the stream */
    struct stg_compute_device where;
    bool has_device;             /* nodes may run on it */
    const char *why_host;        /* NULL: the last run could use it */
    const struct executor *last; /* that ran; NULL: none that is still kept */
    char where_text[STG_ERR_TEXT_BYTES + 64];
    void **boundary_there; /* of one run: where those tensors … */
    void **carried_there;  /* … lie on the device */
    struct executor executors[MAX_EXECUTORS];
    uint64_t n_calls;
    struct stg_reporter reporter;
};

/* ---- life ---- */

static void executor_clear(const struct stg_computer *computer, struct executor *e)
{
    if (e->executor != NULL)
        computer->table->discard(e->executor);
    for (size_t i = 0; e->fetches != NULL && i < e->n_fetches; i++)
        free(e->fetches[i]);
    for (size_t i = 0; e->fed.components != NULL && i < e->fed.n; i++)
        free((char *)(uintptr_t)e->fed.components[i].name);
    free(e->fed.components);
    free(e->feeds);
    free(e->has);
    free(e->fetches);
    free(e->outputs);
    free(e->is_there);
    *e = (struct executor){0};
}

void stg_computer_destroy(struct stg_computer *computer, bool ours)
{
    if (computer == NULL)
        return;
    if (!ours && computer->graph != NULL)
        computer->table->lose_device(computer->graph);
    for (size_t i = 0; i < MAX_EXECUTORS; i++)
        executor_clear(computer, &computer->executors[i]);
    if (computer->graph != NULL)
        computer->table->destroy(computer->graph);
    free(computer->boundary);
    free(computer->carried.components);
    free(computer->values);
    free(computer->has);
    free(computer->boundary_there);
    free(computer->carried_there);
    free(computer);
}

static int make_room(struct stg_computer *computer, const struct stager_stream *stream,
                     struct stg_err *err)
{
    size_t n = stream->slots.n;
    computer->boundary = calloc(stream->boundary.n + 1, sizeof(*computer->boundary));
    computer->carried.components = calloc(n + 1, sizeof(*computer->carried.components));
    computer->values = calloc(n + 1, sizeof(*computer->values));
    computer->has = calloc(n + 1, sizeof(*computer->has));
    computer->boundary_there = calloc(stream->boundary.n + 1, sizeof(void *));
    computer->carried_there = calloc(n + 1, sizeof(void *));
    return computer->boundary != NULL && computer->carried.components != NULL &&
                   computer->values != NULL && computer->has != NULL &&
                   computer->boundary_there != NULL && computer->carried_there != NULL
               ? 0
               : stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
}

/* A device that only copies, or that was not asked to do more, is none here. */
static int use_device(const struct stager_stream *stream, struct stg_computer *computer,
                      struct stg_err *err)
{
    enum stg_smart_stage how = stream->spec->staged.compute_device;
    if (stream->copier == NULL)
        computer->why_host = "the stream was opened without a device";
    else if (how == STG_SMART_STAGE_OFF && !stream->spec->smart_stage_gpu)
        computer->why_host = "compute_device is off";
    else if (!stg_copier_where(stream->copier, &computer->where))
        computer->why_host = "only copies would run on the device";
    if (computer->why_host != NULL)
        return 0;
    computer->has_device = true;
    computer->where.is_auto = how == STG_SMART_STAGE_AUTO;
    computer->where.forwards = how == STG_SMART_STAGE_OFF;
    return computer->table->use_device(computer->graph, &computer->where, err);
}

static int computer_create(struct stager_stream *stream, struct stg_computer **ret,
                           struct stg_err *err)
{
    if (stream->spec == NULL)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "stagerd sent no graph for pipeline %s", stream->name);
    struct stg_computer *computer = calloc(1, sizeof(*computer));
    if (computer == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    int rc = make_room(computer, stream, err);
    if (rc == 0)
        rc = stg_compute_load(&computer->table, err);
    if (rc == 0)
        rc = computer->table->create(stream->spec, &stream->boundary,
                                     stream->inter_op_threads_num,
                                     stream->intra_op_threads_num, &computer->graph, err);
    if (rc == 0)
        rc = use_device(stream, computer, err);
    if (rc < 0) {
        stg_computer_destroy(computer, true);
        return rc;
    }
    *ret = computer;
    return 0;
}

/* ---- spans of a trace ---- */

static bool is_traced(void *owner)
{
    const struct stager_stream *stream = owner;
    return stg_ring_is_traced(&stream->ring);
}

static void add_node(void *owner, uint32_t node, uint64_t begin_ns, uint64_t end_ns)
{
    struct stager_stream *stream = owner;
    stg_control_note(&stream->control, &(struct stg_trace_span){
                                           .begin_ns = begin_ns,
                                           .end_ns = end_ns,
                                           .number = STG_NO_NUMBER,
                                           .kind = STG_SPAN_OP,
                                           .name = (uint16_t)(node + 1),
                                       });
}

/* ---- executors ---- */

/* What a caller asks for, and what the batch has of it already. */
struct wish {
    const struct stager_tensor *feeds;
    size_t n_feeds;
    const char *const *fetches;
    size_t n_fetches;
    const bool *has; /* one a slot of the stream */
    size_t n_slots;
};

static bool is_for(const struct executor *e, const struct wish *wish)
{
    if (e->executor == NULL || e->n_fetches != wish->n_fetches ||
        e->fed.n != wish->n_feeds ||
        memcmp(e->has, wish->has, wish->n_slots * sizeof(*wish->has)) != 0)
        return false;
    for (size_t i = 0; i < wish->n_fetches; i++) {
        if (strcmp(e->fetches[i], wish->fetches[i]) != 0)
            return false;
    }
    for (size_t i = 0; i < wish->n_feeds; i++) {
        const struct stg_component *fed = &e->fed.components[i];
        const struct stager_tensor *feed = &wish->feeds[i];
        if (fed->dtype != feed->dtype || fed->ndim != feed->ndim ||
            strcmp(fed->name, feed->name) != 0)
            return false;
    }
    return true;
}

/* The one that was not used for longest makes room. */
static struct executor *oldest(struct stg_computer *computer)
{
    struct executor *e = &computer->executors[0];
    for (size_t i = 1; i < MAX_EXECUTORS; i++) {
        if (computer->executors[i].used < e->used)
            e = &computer->executors[i];
    }
    return e;
}

/* Names are copied: callers' need not live. */
static bool keep_wish(struct executor *e, const struct wish *wish)
{
    e->fetches = calloc(wish->n_fetches + 1, sizeof(*e->fetches));
    e->outputs = calloc(wish->n_fetches + 1, sizeof(*e->outputs));
    e->is_there = calloc(wish->n_fetches + 1, sizeof(*e->is_there));
    e->fed.components = calloc(wish->n_feeds + 1, sizeof(*e->fed.components));
    e->feeds = calloc(wish->n_feeds + 1, sizeof(*e->feeds));
    e->has = calloc(wish->n_slots + 1, sizeof(*e->has));
    bool ok = e->fetches != NULL && e->outputs != NULL && e->is_there != NULL &&
              e->fed.components != NULL && e->feeds != NULL && e->has != NULL;
    if (ok)
        memcpy(e->has, wish->has, wish->n_slots * sizeof(*wish->has));
    for (size_t i = 0; ok && i < wish->n_fetches; i++, e->n_fetches++)
        ok = (e->fetches[i] = strdup(wish->fetches[i])) != NULL;
    for (size_t i = 0; ok && i < wish->n_feeds; i++, e->fed.n++) {
        const struct stager_tensor *feed = &wish->feeds[i];
        struct stg_component *fed = &e->fed.components[i];
        fed->dtype = feed->dtype;
        fed->ndim = feed->ndim;
        memcpy(fed->shape, feed->shape, sizeof(fed->shape));
        ok = (fed->name = strdup(feed->name)) != NULL;
    }
    return ok;
}

static int executor_init(struct stager_stream *stream, struct executor *e,
                         const struct wish *wish, struct stg_err *err)
{
    struct stg_computer *computer = stream->computer;
    struct stg_compute_watcher watcher = {
        .owner = stream, .is_on = is_traced, .node = add_node};
    int rc = keep_wish(e, wish)
                 ? computer->table->prepare(computer->graph, &e->fed, &computer->carried,
                                            (const char *const *)e->fetches, e->n_fetches,
                                            &e->executor, err)
                 : stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    if (rc < 0)
        executor_clear(computer, e);
    else
        computer->table->watch(e->executor, &watcher);
    return rc;
}

static int find_executor(struct stager_stream *stream, const struct wish *wish,
                         struct executor **ret, struct stg_err *err)
{
    struct stg_computer *computer = stream->computer;
    struct executor *e = NULL;
    for (size_t i = 0; i < MAX_EXECUTORS && e == NULL; i++) {
        if (is_for(&computer->executors[i], wish))
            e = &computer->executors[i];
    }
    if (e == NULL) {
        e = oldest(computer);
        executor_clear(computer, e);
        if (computer->last == e)
            computer->last = NULL;
        int rc = executor_init(stream, e, wish, err);
        if (rc < 0)
            return rc;
    }
    e->used = ++computer->n_calls;
    *ret = e;
    return 0;
}

/* ---- running ---- */

/* What stagerd computed ahead. */
static void find_carried(struct stager_stream *stream, const struct stager_batch *batch)
{
    struct stg_computer *computer = stream->computer;
    const uint32_t *places =
        batch != NULL ? stg_leased_places(stream, batch->leased) : NULL;
    computer->carried.n = 0;
    for (size_t i = 0; i < stream->slots.n; i++) {
        size_t n = computer->carried.n;
        computer->has[i] =
            places != NULL && places[stream->boundary.n + i] != STG_NO_PLACE;
        if (!computer->has[i])
            continue;
        computer->carried.components[n] = stream->slots.components[i];
        stg_batch_view(batch, places[stream->boundary.n + i], &computer->values[n], NULL);
        if (computer->has_device)
            computer->carried_there[n] = stg_copier_at(batch, &computer->values[n]);
        computer->carried.n++;
    }
}

static int missing(const struct stager_stream *stream, const struct stager_batch *batch,
                   const char *name, struct stg_err *err)
{
    if (!batch->leased->is_placed)
        return stg_err(err, -STAGER_INTERNAL, "batch %llu has no boundary tensor %s",
                       (unsigned long long)batch->leased->number, name);
    return stg_err(
        err, -STAGER_FAILED_PRECONDITION,
        "\"staged:%s\" is needed but is not in batch %llu of pipeline %s: open the "
        "stream with it in `fields`, or with the tensor that needs it in `fetches`",
        name, (unsigned long long)batch->leased->number, stream->name);
}

/* The tensors of the boundary: a batch may hold others besides. */
static int find_boundary(struct stager_stream *stream, const struct stager_batch *batch,
                         const struct executor *e, struct stg_err *err)
{
    struct stg_computer *computer = stream->computer;
    const uint32_t *places =
        batch != NULL ? stg_leased_places(stream, batch->leased) : NULL;
    for (size_t i = 0; i < stream->boundary.n; i++) {
        const char *name = stream->boundary.components[i].name;
        computer->boundary[i] = (struct stg_tensor){0};
        if (!computer->table->needs(e->executor, i))
            continue;
        if (batch == NULL)
            return stg_err(err, -STAGER_FAILED_PRECONDITION,
                           "\"staged:%s\" is needed: give a batch, or feed it", name);
        int at = places == NULL              ? stg_batch_find(batch->leased->base, name)
                 : places[i] != STG_NO_PLACE ? (int)places[i]
                                             : -1;
        if (at < 0)
            return missing(stream, batch, name, err);
        stg_batch_view(batch, (uint32_t)at, &computer->boundary[i], NULL);
        if (computer->has_device)
            computer->boundary_there[i] = stg_copier_at(batch, &computer->boundary[i]);
    }
    return 0;
}

static void take_feeds(const struct wish *wish, struct stg_tensor *ret)
{
    static const char nothing; /* an empty feed has an address too */
    for (size_t i = 0; i < wish->n_feeds; i++) {
        const struct stager_tensor *feed = &wish->feeds[i];
        const void *data = feed->data != NULL ? feed->data : &nothing;
        bool is_string = feed->dtype == STAGER_STRING;
        ret[i] = (struct stg_tensor){.dtype = feed->dtype,
                                     .ndim = feed->ndim,
                                     .data = (void *)(uintptr_t)data,
                                     .data_bytes = feed->data_bytes,
                                     .begin = is_string ? feed->offsets : NULL,
                                     .end = is_string ? feed->offsets + 1 : NULL};
        memcpy(ret[i].shape, feed->shape, sizeof(ret[i].shape));
    }
}

static int check_wish(const struct wish *wish, struct stg_err *err)
{
    for (size_t i = 0; i < wish->n_fetches; i++) {
        if (wish->fetches[i] == NULL)
            return stg_err(err, -STAGER_INVALID_ARGUMENT, "fetch %zu is NULL", i);
    }
    for (size_t i = 0; i < wish->n_feeds; i++) {
        int64_t n;
        if (wish->feeds[i].name == NULL)
            return stg_err(err, -STAGER_INVALID_ARGUMENT, "feed %zu has no name", i);
        int rc = stg_value_check(&wish->feeds[i], UINT64_MAX, &n, err);
        if (rc < 0)
            return stg_err_prefix(err, rc, "feed \"%s\"", wish->feeds[i].name);
    }
    return 0;
}

static struct stg_compute_key batch_key(const struct stager_stream *stream,
                                        const struct stager_batch *batch)
{
    if (batch == NULL)
        return (struct stg_compute_key){0};
    const struct stg_batch_header *header = batch->leased->base;
    bool is_slice = stream->batch_size != 0;
    return (struct stg_compute_key){
        .seed = header->random_key[0],
        .pass = header->pass,
        .epoch = header->epoch,
        .index = is_slice ? header->index * batch->leased->n_slices + batch->slice
                          : header->index, /* slices draw other random numbers */
    };
}

static void report(struct stager_stream *stream)
{
    struct stg_computer *computer = stream->computer;
    for (size_t i = 0; i < MAX_EXECUTORS; i++) {
        struct stg_compute_measured measured;
        struct stg_compute_executor *executor = computer->executors[i].executor;
        if (executor != NULL && computer->table->measured(executor, &measured))
            stg_report_send(&computer->reporter, stream, &measured);
    }
}

static int find_all(struct stager_stream *stream, const struct stager_batch *batch,
                    struct wish *wish, struct executor **ret, struct stg_err *err)
{
    int rc = check_wish(wish, err);
    if (rc == 0 && batch != NULL)
        rc = stg_leased_open(stream, batch->leased, err);
    if (rc == 0 && stream->computer == NULL)
        rc = computer_create(stream, &stream->computer, err);
    if (rc < 0)
        return rc;
    find_carried(stream, batch);
    wish->has = stream->computer->has;
    wish->n_slots = stream->slots.n;
    return find_executor(stream, wish, ret, err);
}

static int run_executor(struct stager_stream *stream, const struct stager_batch *batch,
                        struct executor *e, struct stg_err *err)
{
    struct stg_computer *computer = stream->computer;
    struct stg_compute_key key = batch_key(stream, batch);
    struct stg_compute_there there = {.boundary = computer->boundary_there,
                                      .carried = computer->carried_there,
                                      .number = batch != NULL ? batch->leased->number : 0,
                                      .outputs = e->is_there};
    bool has_device = computer->has_device && batch != NULL;
    if (computer->has_device)
        computer->why_host = batch == NULL ? "no batch was given" : NULL;
    computer->last = e;
    memset(e->is_there, 0, e->n_fetches * sizeof(*e->is_there));
    return computer->table->run(e->executor, computer->boundary, e->feeds,
                                computer->values, has_device ? &there : NULL, &key,
                                e->outputs, err);
}

static int run_wish(struct stager_stream *stream, const struct stager_batch *batch,
                    struct wish *wish, struct stager_tensor *ret)
{
    struct stg_err *err = stg_stream_err(stream);
    struct executor *e = NULL;
    int rc = find_all(stream, batch, wish, &e, err);
    if (rc == 0)
        rc = find_boundary(stream, batch, e, err);
    if (rc < 0)
        return rc;

    take_feeds(wish, e->feeds);
    rc = run_executor(stream, batch, e, err);
    if (stg_report_is_due(&stream->computer->reporter, stream))
        report(stream);
    if (rc < 0 && batch != NULL)
        stg_err_prefix(err, rc, "batch %llu", (unsigned long long)batch->leased->number);
    for (size_t i = 0; rc == 0 && i < wish->n_fetches; i++) {
        stg_tensor_show(e->fetches[i], &e->outputs[i], &ret[i]);
        if (e->is_there[i])
            ret[i].device = (uint32_t)stream->computer->where.number + 1;
    }
    return rc;
}

static int run_traced(struct stager_stream *stream, const struct stager_batch *batch,
                      struct wish *wish, struct stager_tensor *ret)
{
    uint64_t began = stg_stream_span_begin(stream);
    int rc = run_wish(stream, batch, wish, ret);
    if (began != 0)
        stg_stream_span_end(stream, STG_SPAN_RUN, began, batch);
    return rc;
}

static bool is_of(const struct stager_stream *stream, const struct stager_batch *batch)
{
    return batch->stream == stream || batch->stream->owner == stream;
}

static int check_batch(struct stager_stream *stream, const struct stager_batch *batch)
{
    if (is_of(stream, batch) && batch->in_hand)
        return 0;
    return stg_err(&stream->err, -STAGER_INVALID_ARGUMENT,
                   "stager_run needs an unreleased batch of this stream");
}

/* ---- where the last one ran ---- */

void stg_results_forget(struct stager_stream *stream)
{
    if (stream->results != NULL)
        stream->results->views--;
    stream->results = NULL;
}

void stg_results_keep(struct stager_stream *stream, struct stager_stream *retired)
{
    retired->views++;
    stream->results = retired;
}

/* A batch from before a reconnect is run where it is. */
static struct stager_stream *choose(struct stager_stream *stream,
                                    const struct stager_batch *batch)
{
    struct stager_stream *at = batch != NULL ? batch->stream : stream;
    if (at == stream) {
        stg_results_forget(stream);
    } else if (at != stream->results) {
        stg_results_forget(stream);
        stg_results_keep(stream, at);
    }
    return at;
}

static struct stager_stream *last_of(struct stager_stream *stream)
{
    return stream->results != NULL ? stream->results : stream;
}

/* ---- the calls ---- */

int stager_run_fed(struct stager_stream *stream, struct stager_batch *batch,
                   const struct stager_tensor *feeds, size_t n_feeds,
                   const char *const *fetches, size_t n_fetches,
                   struct stager_tensor *ret)
{
    struct wish wish = {
        .feeds = feeds, .n_feeds = n_feeds, .fetches = fetches, .n_fetches = n_fetches};
    int rc = stg_stream_enter(stream);
    if (rc == 0 && batch != NULL)
        rc = check_batch(stream, batch);
    return rc < 0 ? rc : run_traced(choose(stream, batch), batch, &wish, ret);
}

int stager_run(struct stager_stream *stream, struct stager_batch *batch,
               const char *const *fetches, size_t n_fetches, struct stager_tensor *ret)
{
    struct wish wish = {.fetches = fetches, .n_fetches = n_fetches};
    int rc = stg_stream_enter(stream);
    if (rc < 0)
        return rc;
    if (batch == NULL)
        return stg_err(&stream->err, -STAGER_INVALID_ARGUMENT,
                       "stager_run needs a batch; use stager_run_fed to run without one");
    rc = check_batch(stream, batch);
    return rc < 0 ? rc : run_traced(choose(stream, batch), batch, &wish, ret);
}

int stg_computer_synchronize(struct stager_stream *stream)
{
    const struct stg_computer *computer = last_of(stream)->computer;
    return computer != NULL ? computer->table->synchronize(computer->graph, &stream->err)
                            : 0;
}

/* ---- where ---- */

const char *stager_run_where(struct stager_stream *stream)
{
    struct stg_computer *computer = last_of(stream)->computer;
    if (computer == NULL || computer->last == NULL)
        return "";
    if (computer->why_host != NULL)
        snprintf(computer->where_text, sizeof(computer->where_text), "host: %s",
                 computer->why_host);
    else
        computer->table->tell(computer->last->executor, computer->where_text,
                              sizeof(computer->where_text));
    return computer->where_text;
}

/* ---- results on a device ---- */

static int find_last(struct stager_stream *stream, struct stg_result **ret)
{
    const struct stg_computer *computer = last_of(stream)->computer;
    int rc = stg_stream_enter(stream);
    if (rc < 0)
        return rc;
    struct stg_result *last =
        computer != NULL ? computer->table->last(computer->graph) : NULL;
    if (last == NULL)
        return stg_err(&stream->err, -STAGER_FAILED_PRECONDITION,
                       "the last stager_run left no result on a device");
    *ret = last;
    return 0;
}

int stager_run_event(struct stager_stream *stream, void **ret)
{
    struct stg_result *last;
    int rc = find_last(stream, &last);
    if (rc < 0)
        return rc;
    const struct stg_computer *computer = last_of(stream)->computer;
    *ret = computer->where.device->event_native(computer->table->event(last));
    return 0;
}

int stg_result_wait(struct stager_stream *stream, const struct stg_result *result,
                    void *native)
{
    return stg_copier_order(stream->copier, native,
                            stream->computer->table->event(result),
                            stg_stream_err(stream));
}

int stager_run_wait(struct stager_stream *stream, void *device_stream)
{
    struct stg_result *last;
    int rc = find_last(stream, &last);
    return rc < 0 ? rc : stg_result_wait(last_of(stream), last, device_stream);
}

struct stg_result *stg_run_keep(struct stager_stream *stream,
                                struct stager_batch **ret_home)
{
    struct stg_result *last;
    if (find_last(stream, &last) < 0)
        return NULL;
    struct stager_stream *of = last_of(stream);
    of->computer->table->keep(last);
    of->views++;
    *ret_home = &of->chunks->batches[0];
    return last;
}

void stg_computer_drop(struct stager_stream *stream, struct stg_result *result,
                       bool has_native, void *native)
{
    const struct stg_computer *computer = stream->computer;
    struct stg_stream *after = NULL;
    if (has_native &&
        stg_copier_wrap(stream->copier, native, &after, stg_stream_err(stream)) < 0)
        after = NULL;
    computer->table->drop(result, after);
    if (after != NULL)
        computer->where.device->stream_destroy(after);
}
