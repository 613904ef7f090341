/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "ops/exec/priv.h"

/* ---- exec ---- */

/* A fetch that no op wrote in place: a feed, a constant, a variable, a view, a duplicate.
 */
static int copy_fetches(struct stg_run *run, struct stg_err *err)
{
    for (size_t i = 0; i < run->n_fetches; i++) {
        const struct stg_run_fetch *fetch = &run->fetches[i];
        if (fetch->is_primary && !run->slots[fetch->slot].is_view)
            continue;
        if (fetch->first != i && run->sink->share != NULL) {
            run->sink->share(run->sink->owner, i, fetch->first);
            continue;
        }
        int rc = run->sink->copy(run->sink->owner, i, &run->tensors[fetch->slot], err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int check_feed(const struct stg_component *c, const struct stg_tensor *feed,
                      struct stg_err *err)
{
    bool same = feed->dtype == c->dtype && feed->ndim == c->ndim;
    for (int d = 0; same && d < c->ndim; d++)
        same = c->shape[d] < 0 || c->shape[d] == feed->shape[d];
    if (same)
        return 0;
    char got[128], want[128];
    return stg_err(err, -STAGER_INVALID_ARGUMENT, "feed \"%s\" is %s %s, not %s %s",
                   c->name, stg_dtype_name(feed->dtype),
                   stg_shape_text(feed->shape, feed->ndim, got, sizeof(got)),
                   stg_dtype_name(c->dtype),
                   stg_shape_text(c->shape, c->ndim, want, sizeof(want)));
}

void stg_run_feed(struct stg_run *run, const struct stg_tensor *const *values)
{
    for (size_t i = 0; i < run->graph->n_feeds; i++) {
        const struct stg_tensor *value;
        stg_graph_feed(run->graph, i, &value);
        if (values != NULL && values[i] != NULL)
            value = values[i];
        if (value != NULL)
            run->tensors[run->first_feed + i] = *value;
    }
}

int stg_run_take_feeds(struct stg_run *run, const struct stg_tensor *feeds,
                       struct stg_err *err)
{
    static const char nothing; /* an empty feed has an address too */
    const struct stg_graph *graph = run->graph;
    const struct stg_schema *schema =
        graph->has_element ? &graph->element : &graph->boundary;
    for (size_t i = 0; i < run->n_feeds; i++) {
        if (!run->slots[i].is_needed)
            continue;
        int rc = check_feed(&schema->components[i], &feeds[i], err);
        if (rc < 0)
            return rc;
        run->tensors[i] = feeds[i];
        if (feeds[i].data == NULL)
            run->tensors[i].data = (void *)(uintptr_t)&nothing;
        if (feeds[i].dictionary != NULL && feeds[i].begin == NULL)
            rc = stg_run_spread_feed(run, i, err);
        if (rc < 0)
            return rc;
    }
    for (size_t i = 0; !graph->has_element && i < graph->n_feeds; i++) {
        int rc = check_feed(&graph->feeds[i].component,
                            &run->tensors[run->first_feed + i], err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int run_steps(struct stg_run *run, const struct stg_key *key, struct stg_err *err)
{
    /* A sink is one thread's, and a watcher needs each node's own time. */
    if (run->ready != NULL && run->sink == NULL && run->watched_ns == 0)
        return stg_run_ready_exec(run, key, err);
    for (size_t i = 0; i < run->n_steps; i++) {
        int rc = stg_run_step(&run->own, &run->steps[i], key, err);
        if (rc < 0)
            return rc;
    }
    return run->sink != NULL ? copy_fetches(run, err) : 0;
}

int stg_run_exec(struct stg_run *run, const struct stg_tensor *feeds,
                 const struct stg_key *key, const struct stg_sink *sink,
                 struct stg_tensor *outputs, struct stg_err *err)
{
    static const struct stg_key no_key;
    if (key == NULL)
        key = &no_key;
    int rc = stg_run_take_feeds(run, feeds, err);
    if (rc < 0)
        return rc;
    run->sink = sink;
    if (run->watchers != NULL)
        stg_run_watch_begin(run, key);
    rc = run_steps(run, key, err);
    if (run->watched_ns != 0)
        stg_run_watch_end(run, rc);
    if (rc < 0)
        return rc;
    for (size_t i = 0; outputs != NULL && i < run->n_fetches; i++)
        outputs[i] = run->tensors[run->fetches[i].slot];
    return 0;
}

/* ---- a sink ---- */

static int batch_alloc(void *owner, size_t i, int dtype, int ndim, const int64_t *shape,
                       uint64_t string_bytes, struct stg_tensor *ret, struct stg_err *err)
{
    return stg_batch_writer_alloc(owner, (uint32_t)i, dtype, ndim, shape, string_bytes,
                                  ret, err);
}

static int batch_copy(void *owner, size_t i, const struct stg_tensor *tensor,
                      struct stg_err *err)
{
    return stg_batch_writer_copy(owner, (uint32_t)i, tensor, err);
}

static void batch_share(void *owner, size_t i, size_t k)
{
    stg_batch_writer_share(owner, (uint32_t)i, (uint32_t)k);
}

struct stg_sink stg_sink_of_batch(struct stg_batch_writer *writer)
{
    return (struct stg_sink){
        .owner = writer, .alloc = batch_alloc, .copy = batch_copy, .share = batch_share};
}

int stg_run_write(struct stg_run *run, const struct stg_schema *schema,
                  const struct stg_tensor *element, const struct stg_key *key, char *base,
                  uint64_t capacity, const struct stg_batch_room *room, uint64_t *ret,
                  struct stg_err *err)
{
    struct stg_batch_writer batch;
    struct stg_sink sink = stg_sink_of_batch(&batch);
    int rc = stg_batch_writer_begin_growing(&batch, base, capacity, room, schema, err);
    if (rc == 0)
        rc = stg_run_exec(run, element, key, &sink, NULL, err);
    uint64_t bytes = rc == 0 ? stg_batch_writer_seal(&batch) : 0;
    if (rc == 0)
        rc = stg_batch_check_parts(base, true, err);
    if (rc == 0)
        *ret = bytes;
    return rc;
}

/* ---- questions and settings ---- */

bool stg_run_computes(const struct stg_run *run)
{
    return run->n_steps > 0;
}

bool stg_run_needs(const struct stg_run *run, size_t i)
{
    return i < run->n_feeds && run->slots[i].is_needed;
}

void stg_run_limit(struct stg_run *run, uint64_t bytes)
{
    run->limit_bytes = bytes;
}

int stg_run_parallel(struct stg_run *run, const struct stg_parallel *parallel,
                     struct stg_err *err)
{
    struct stg_split *split = stg_split_create(parallel);
    if (split == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    stg_split_destroy(run->own.split);
    run->own.split = split;
    run->rows = parallel;
    return 0;
}

void stg_run_destroy(struct stg_run *run)
{
    if (run == NULL)
        return;
    stg_run_ready_destroy(run->ready);
    stg_split_destroy(run->own.split);
    for (size_t i = 0; i < run->n_buffers; i++)
        free(run->buffers[i].data);
    for (size_t i = 0; run->spread != NULL && i < run->n_feeds; i++)
        free(run->spread[i].data);
    free(run->spread);
    stg_bump_finish(&run->plan);
    stg_bump_finish(&run->own.scratch);
    free(run);
}
