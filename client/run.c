/* SPDX-License-Identifier: Apache-2.0
 *
 * stager_run: libstager-compute.so is loaded by the first call; executors are kept for
 * each list of fetches.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/compute.h"
#include "client/stream.h"

/* Lists of fetches that a training loop alternates between; more cost a new executor. */
#define MAX_EXECUTORS 8

struct executor {
    char **fetches;
    size_t n_fetches;
    struct stg_compute_executor *executor;
    struct stg_tensor *outputs;
    uint64_t used; /* when, in calls */
};

struct stg_computer {
    void *library;
    const struct stg_compute *table;
    struct stg_compute_graph *graph;
    struct stg_tensor *feeds; /* one a boundary tensor */
    struct executor executors[MAX_EXECUTORS];
    uint64_t n_calls;
};

/* ---- loading ---- */

/* Beside libstager.so, else where the linker looks. */
static void *load_library(struct stg_err *err)
{
    Dl_info info;
    char path[4096];
    path[0] = '\0';
    if (dladdr((void *)(uintptr_t)stager_version, &info) != 0 && info.dli_fname != NULL) {
        const char *slash = strrchr(info.dli_fname, '/');
        if (slash != NULL)
            snprintf(path, sizeof(path), "%.*s/" STG_COMPUTE_LIBRARY,
                     (int)(slash - info.dli_fname), info.dli_fname);
    }
    void *library = path[0] != '\0' ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library == NULL)
        library = dlopen(STG_COMPUTE_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *why = dlerror();
        stg_err(err, -STAGER_UNAVAILABLE,
                "stager_run needs " STG_COMPUTE_LIBRARY
                ", which is neither %s nor where the linker looks: %s",
                path[0] != '\0' ? path : "beside libstager", why != NULL ? why : "");
    }
    return library;
}

static int check_table(const struct stg_compute *table, struct stg_err *err)
{
    if (table == NULL)
        return stg_err(err, -STAGER_UNAVAILABLE,
                       STG_COMPUTE_LIBRARY " has no " STG_COMPUTE_SYMBOL);
    if (table->abi != STG_COMPUTE_ABI || table->struct_bytes != sizeof(*table) ||
        strcmp(table->release, STAGER_RELEASE) != 0)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       STG_COMPUTE_LIBRARY
                       " is of another build (abi %u) than libstager %s "
                       "(abi %u): install both from one",
                       table->abi, STAGER_RELEASE, STG_COMPUTE_ABI);
    return 0;
}

static void executor_clear(const struct stg_computer *computer, struct executor *e)
{
    if (e->executor != NULL)
        computer->table->discard(e->executor);
    for (size_t i = 0; e->fetches != NULL && i < e->n_fetches; i++)
        free(e->fetches[i]);
    free(e->fetches);
    free(e->outputs);
    *e = (struct executor){0};
}

/* The library stays loaded: threads of its own pools may still be on their way out. */
void stg_computer_destroy(struct stg_computer *computer)
{
    if (computer == NULL)
        return;
    for (size_t i = 0; i < MAX_EXECUTORS; i++)
        executor_clear(computer, &computer->executors[i]);
    if (computer->graph != NULL)
        computer->table->destroy(computer->graph);
    free(computer->feeds);
    free(computer);
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
    int rc = 0;
    computer->library = load_library(err);
    computer->feeds = calloc(stream->boundary.n + 1, sizeof(*computer->feeds));
    if (computer->library == NULL)
        rc = -STAGER_UNAVAILABLE;
    else if (computer->feeds == NULL)
        rc = stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    if (rc == 0) {
        computer->table = dlsym(computer->library, STG_COMPUTE_SYMBOL);
        rc = check_table(computer->table, err);
    }
    if (rc == 0)
        rc = computer->table->create(stream->spec, &stream->boundary, &computer->graph,
                                     err);
    if (rc < 0) {
        stg_computer_destroy(computer);
        return rc;
    }
    *ret = computer;
    return 0;
}

/* ---- executors ---- */

static bool is_for(const struct executor *e, const char *const *fetches, size_t n)
{
    if (e->executor == NULL || e->n_fetches != n)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(e->fetches[i], fetches[i]) != 0)
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

static int executor_init(struct stg_computer *computer, struct executor *e,
                         const char *const *fetches, size_t n, struct stg_err *err)
{
    e->fetches = calloc(n + 1, sizeof(*e->fetches));
    e->outputs = calloc(n + 1, sizeof(*e->outputs));
    bool ok = e->fetches != NULL && e->outputs != NULL;
    for (size_t i = 0; ok && i < n; i++, e->n_fetches++)
        ok = (e->fetches[i] = strdup(fetches[i])) != NULL;
    int rc =
        ok ? computer->table->prepare(computer->graph, (const char *const *)e->fetches, n,
                                      &e->executor, err)
           : stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    if (rc < 0)
        executor_clear(computer, e);
    return rc;
}

static int find_executor(struct stg_computer *computer, const char *const *fetches,
                         size_t n, struct executor **ret, struct stg_err *err)
{
    struct executor *e = NULL;
    for (size_t i = 0; i < MAX_EXECUTORS && e == NULL; i++) {
        if (is_for(&computer->executors[i], fetches, n))
            e = &computer->executors[i];
    }
    if (e == NULL) {
        e = oldest(computer);
        executor_clear(computer, e);
        int rc = executor_init(computer, e, fetches, n, err);
        if (rc < 0)
            return rc;
    }
    e->used = ++computer->n_calls;
    *ret = e;
    return 0;
}

/* ---- running ---- */

/* The tensors of the boundary by name: a batch may hold more than this client knows. */
static int find_feeds(struct stager_stream *stream, const struct stager_batch *batch,
                      struct stg_err *err)
{
    for (size_t i = 0; i < stream->boundary.n; i++) {
        const char *name = stream->boundary.components[i].name;
        int at = stg_batch_find(batch->lent->base, name);
        if (at < 0)
            return stg_err(err, -STAGER_INTERNAL,
                           "batch %llu lacks the boundary tensor %s",
                           (unsigned long long)batch->lent->number, name);
        stg_batch_view(batch, (uint32_t)at, &stream->computer->feeds[i], NULL);
    }
    return 0;
}

static int check_run(struct stager_stream *stream, const struct stager_batch *batch,
                     const char *const *fetches, size_t n_fetches)
{
    int rc = stg_stream_enter(stream);
    if (rc < 0)
        return rc;
    if (batch == NULL || batch->stream != stream || !batch->in_hand)
        return stg_err(&stream->err, -STAGER_INVALID_ARGUMENT,
                       "stager_run needs a batch of this stream that is in hand");
    for (size_t i = 0; i < n_fetches; i++) {
        if (fetches[i] == NULL)
            return stg_err(&stream->err, -STAGER_INVALID_ARGUMENT, "fetch %zu is NULL",
                           i);
    }
    return stg_lent_open(batch->lent, &stream->err);
}

int stager_run(struct stager_stream *stream, struct stager_batch *batch,
               const char *const *fetches, size_t n_fetches, struct stager_tensor *ret)
{
    int rc = check_run(stream, batch, fetches, n_fetches);
    if (rc < 0)
        return rc;
    struct stg_err *err = &stream->err;
    if (stream->computer == NULL)
        rc = computer_create(stream, &stream->computer, err);
    struct executor *e = NULL;
    if (rc == 0)
        rc = find_executor(stream->computer, fetches, n_fetches, &e, err);
    if (rc == 0)
        rc = find_feeds(stream, batch, err);
    if (rc < 0)
        return rc;

    const struct stg_batch_header *header = batch->lent->base;
    bool is_slice = stream->batch_size != 0;
    struct stg_compute_key key = {
        .seed = header->random_key[0],
        .pass = header->pass,
        .epoch = header->epoch,
        .index = is_slice ? header->index * batch->lent->n_slices + batch->slice
                          : header->index, /* slices draw other random numbers */
    };
    rc = stream->computer->table->run(e->executor, stream->computer->feeds, &key,
                                      e->outputs, err);
    if (rc < 0)
        return stg_err_prefix(err, rc, "batch %llu",
                              (unsigned long long)batch->lent->number);
    for (size_t i = 0; i < n_fetches; i++)
        stg_tensor_show(e->fetches[i], &e->outputs[i], &ret[i]);
    return 0;
}
