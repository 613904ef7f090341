/* SPDX-License-Identifier: Apache-2.0
 *
 * Runners: pull an element, run the stage subgraph on it straight into an extent, publish
 * it. A runner reserves memory before it pulls: a runner with an element can finish it,
 * so that no runner waits for memory that a later one sits on.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/dataset/files/identity.h"
#include "daemon/dataset/sources/projection.h"
#include "daemon/dataset/steps/jump.h"
#include "daemon/dataset/steps/py_function.h"
#include "daemon/host/fair.h"
#include "daemon/pyworker/work.h"
#include "daemon/stage/priv.h"
#include "daemon/storage/chunk.h"

/* Until items were made, each is thought to take long. */
#define FIRST_BUSY_NS 1000000u

/* Two partitions take turns in a trial. */
#define N_OTHERS 2

/* What runs the stage subgraph of one partition. */
struct executor {
    struct stg_stage_partition *partition; /* one reference; NULL: the pipeline's own */
    struct stg_run *run;
    struct stg_profiler profiler;   /* of `run` */
    struct stg_run_watcher watcher; /* likewise */
    uint64_t feed_version;          /* that `run` was given */
};

/* Of one runner. */
struct writer {
    struct stg_stage *stage;
    struct executor own;
    struct executor others[N_OTHERS]; /* of the last partitions that were not; run NULL:
                                         there is none */
    uint64_t used[N_OTHERS];          /* n_used when each was used last */
    uint64_t n_used;
    struct stg_tensor *given; /* by a last step py_function; NULL: there is none */
    struct stg_tensor
        *spread; /* the element, of which the dataset yields less; or NULL */
};

struct stg_runner {
    struct stg_stage *stage;
    uint32_t index;
    struct stg_remote_lane *lane; /* to stage workers; NULL: it makes items itself */
    struct writer writer;
    pthread_t thread;
    struct stg_pool_job job;
};

/* ---- a batch at rest: the function of the last step, then the item's partition ---- */

static void executor_finish(struct executor *executor)
{
    stg_run_destroy(executor->run);
    stg_profiler_finish(&executor->profiler);
    stg_stage_partition_unref(executor->partition);
    *executor = (struct executor){0};
}

/* Takes a reference on the partition. */
static int executor_init(struct stg_stage *stage, struct stg_stage_partition *partition,
                         struct executor *executor, struct stg_err *err)
{
    const struct stg_parallel *parallel =
        stage->config.pool != NULL ? stg_pool_parallel(stage->config.pool) : NULL;
    executor->partition = stg_stage_partition_ref(partition);
    int rc = partition != NULL
                 ? stg_run_create_partition(partition->partition, &executor->run, err)
                 : stg_run_create_stage(stage->config.graph, &executor->run, err);
    if (rc == 0)
        stg_run_limit(executor->run, stg_budget_total(stage->config.budget));
    if (rc == 0 && parallel != NULL)
        rc = stg_run_parallel(executor->run, parallel, err);
    if (rc == 0)
        rc = stg_profiler_init(&executor->profiler, stage->config.graph, executor->run,
                               STG_SAMPLE_EVERY, err);
    if (rc < 0)
        executor_finish(executor);
    else
        stg_trace_run(stage, executor->run, &executor->watcher);
    return rc;
}

/* What no row is to blame for ("mod:f: ValueError: …", an element that is behind a split)
 * gets the file and line of the first row, and how many rows follow. */
static void add_first_place(struct stg_stage *stage, const struct stg_work *work,
                            struct stg_err *err)
{
    if (!stg_block_add_place(stage->runners.dataset, work->block, err))
        stg_err_prefix(err, err->code, "batch %" PRIu64 " of epoch %" PRIu64, work->index,
                       work->epoch);
}

/* "node columns (decode_csv): …" gets the file and line of the row to blame. */
static void add_place(struct stg_stage *stage, const struct stg_work *work,
                      struct stg_err *err)
{
    const struct stg_block *block = work->block;
    if (err->row >= 0 && block->rows != NULL && err->row < block->n_rows) {
        char place[512];
        stg_provenance_text(stage->runners.dataset, &block->rows[err->row], place,
                            sizeof(place));
        stg_err_prefix(err, err->code, "%s", place);
    } else {
        add_first_place(stage, work, err);
    }
}

static uint64_t write_error(char *base, uint64_t capacity, const struct stg_err *err)
{
    struct stg_err seen = *err;
    stg_error_disguise(&seen);
    return stg_batch_write_error(base, capacity, -seen.code, seen.text);
}

static void feed(struct executor *executor, const struct stg_feed_set *feeds)
{
    if (feeds == NULL || feeds->version == executor->feed_version)
        return;
    stg_run_feed(executor->run, feeds->tensors);
    executor->feed_version = feeds->version;
}

static uint64_t align(uint64_t bytes)
{
    return (bytes + STG_TENSOR_ALIGN - 1) / STG_TENSOR_ALIGN * STG_TENSOR_ALIGN;
}

static uint64_t tensor_bytes(const struct stg_tensor *tensor)
{
    int64_t n = stg_tensor_n(tensor);
    if (tensor->dtype != STAGER_STRING)
        return align((uint64_t)n * stg_dtype_bytes(tensor->dtype));
    return align((uint64_t)(n + 1) * sizeof(int64_t)) +
           align(stg_tensor_text_bytes(tensor));
}

/* A batch that does not fit is computed once more outside of the arena, for its size:
 * which tensor came first says little of it. Ops count strings before they know their
 * bytes: an eighth to spare. */
static void tell_size(struct stg_stage *stage, struct executor *executor,
                      const struct stg_schema *schema, const struct stg_tensor *element,
                      const struct stg_key *key, struct stg_err *err)
{
    struct stg_err none = {0};
    uint64_t bytes = stg_graph_schema_least_bytes(&(struct stg_schema){0}) +
                     schema->n * (sizeof(struct stg_tensor_entry) + STG_TENSOR_ALIGN);
    struct stg_tensor *tensors = calloc(schema->n + 1, sizeof(*tensors));
    if (tensors == NULL ||
        stg_run_exec(executor->run, element, key, NULL, tensors, &none) < 0) {
        free(tensors);
        return;
    }
    for (size_t i = 0; i < schema->n; i++)
        bytes += tensor_bytes(&tensors[i]) + strlen(schema->components[i].name);
    free(tensors);
    bytes += bytes / 8;
    if (bytes <= stage->plan.max_batch_bytes)
        return;
    stg_err_append(err, err->code, "; for all of this batch, ");
    stg_stage_advise_batch(stage, bytes, err);
}

/* Returns its bytes, or 0 and the error. */
static uint64_t write_by(struct writer *writer, struct executor *executor,
                         const struct stg_work *work, const struct stg_tensor *element,
                         char *base, struct stg_err *err)
{
    struct stg_stage *stage = writer->stage;
    const struct stg_schema *schema =
        executor->partition != NULL ? stg_partition_schema(executor->partition->partition)
                                    : stg_graph_boundary(stage->config.graph);
    struct stg_extent_room place;
    struct stg_batch_room room;
    struct stg_key key = {.pass = work->pass, .epoch = work->epoch, .index = work->index};
    feed(executor, work->feeds);
    uint64_t capacity = stg_stage_extent_room(stage, base, &place, &room);
    uint64_t bytes = 0;
    int rc = stg_run_write(executor->run, schema, element, &key, base, capacity, &room,
                           &bytes, err);
    if (rc == -STAGER_RESOURCE_EXHAUSTED)
        tell_size(stage, executor, schema, element, &key, err);
    if (rc < 0)
        err->code = rc;
    return bytes;
}

/* The one that was not used for longest makes room. */
static int find_other(struct writer *writer, struct stg_stage_partition *partition,
                      struct executor **ret, struct stg_err *err)
{
    size_t at = 0;
    for (size_t i = 0; i < N_OTHERS; i++) {
        bool is_it = writer->others[i].partition == partition;
        at = is_it || (writer->others[at].partition != partition &&
                       writer->used[i] < writer->used[at])
                 ? i
                 : at;
    }
    struct executor *other = &writer->others[at];
    int rc = 0;
    if (other->partition != partition) {
        executor_finish(other);
        rc = executor_init(writer->stage, partition, other, err);
    }
    writer->used[at] = ++writer->n_used;
    *ret = other;
    return rc;
}

/* 0: that partition does not work for this item, or there is no memory for it, and the
 * error.
 */
static uint64_t write_other(struct writer *writer, struct stg_stage_partition *partition,
                            struct stg_work *work, const struct stg_tensor *element,
                            char *base, struct stg_err *err)
{
    struct executor *other;
    int rc = find_other(writer, partition, &other, err);
    if (rc < 0) {
        err->code = rc;
        return 0;
    }
    work->profiler = &other->profiler;
    return write_by(writer, other, work, element, base, err);
}

/* What it gave is in writer->given until the worker is released. */
static int call_function(struct writer *writer, const struct stg_work *work,
                         struct stg_worker **ret, struct stg_err *err)
{
    struct stg_stage *stage = writer->stage;
    struct stg_work_call call = {
        .block = work->block,
        .pass = work->pass,
        .epoch = work->epoch,
        .index = work->index,
        .is_computed =
            work->pulled_partition != NULL || stg_run_computes(writer->own.run),
    };
    int rc = stg_stage_call(stage, &call, writer->given, ret, err);
    if (rc < 0)
        add_first_place(stage, work, err);
    return rc;
}

static void clear(struct stg_err *err)
{
    err->code = 0;
    err->text[0] = '\0';
}

/* By the item's partition, and when that fails by the one that is there instead: the
 * pipeline's own, or the least one. 0: an error. */
static uint64_t write_tensors(struct writer *writer, struct stg_work *work,
                              const struct stg_tensor *element, char *base)
{
    uint64_t bytes = 0;
    struct stg_stage_partition *partition = work->pulled_partition, *last = partition;
    for (; bytes == 0 && partition != NULL; partition = partition->least) {
        clear(&work->err);
        work->partition_failed = partition != work->pulled_partition;
        bytes = write_other(writer, partition, work, element, base, &work->err);
        last = partition;
    }
    if (bytes != 0) {
        work->partition = stg_stage_partition_ref(last);
        return bytes;
    }
    if (last == NULL || !last->is_least) {
        work->partition_failed = last != NULL;
        clear(&work->err);
        work->profiler = &writer->own.profiler;
        bytes = write_by(writer, &writer->own, work, element, base, &work->err);
    }
    if (bytes == 0)
        add_place(writer->stage, work, &work->err);
    return bytes;
}

static uint64_t write_batch(struct writer *writer, struct stg_work *work, char *base)
{
    struct stg_worker *worker = NULL;
    const struct stg_tensor *element = work->block->tensors;
    work->profiler = &writer->own.profiler;
    if (work->block->error.code != 0)
        work->err = work->block->error;
    if (work->err.code == 0 && writer->given != NULL) {
        call_function(writer, work, &worker, &work->err);
        element = writer->given;
    }
    if (work->err.code == 0 && writer->spread != NULL) {
        stg_projection_spread(writer->stage->config.projection, element, writer->spread);
        element = writer->spread;
    }
    uint64_t bytes = work->err.code == 0 ? write_tensors(writer, work, element, base) : 0;
    stg_work_release(worker);
    return bytes != 0 ? bytes : write_error(base, STG_GRANULE_BYTES, &work->err);
}

static int create_given(struct writer *writer, struct stg_err *err)
{
    struct stg_workers *workers = writer->stage->config.workers;
    if (workers == NULL || !stg_py_function_is_last(writer->stage->config.spec))
        return 0;
    writer->given = calloc(stg_workers_output(workers)->n + 1, sizeof(*writer->given));
    return writer->given != NULL
               ? 0
               : stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
}

static int create_spread(struct writer *writer, struct stg_err *err)
{
    const struct stg_projection *projection = writer->stage->config.projection;
    if (projection == NULL || projection->places == NULL)
        return 0;
    writer->spread = calloc(projection->n_element, sizeof(*writer->spread));
    return writer->spread != NULL
               ? 0
               : stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
}

static void writer_finish(struct writer *writer)
{
    executor_finish(&writer->own);
    for (size_t i = 0; i < N_OTHERS; i++)
        executor_finish(&writer->others[i]);
    free(writer->given);
    free(writer->spread);
    *writer = (struct writer){0};
}

static int writer_init(struct stg_stage *stage, struct writer *writer,
                       struct stg_err *err)
{
    writer->stage = stage;
    int rc = create_given(writer, err);
    if (rc == 0)
        rc = create_spread(writer, err);
    if (rc == 0)
        rc = executor_init(stage, NULL, &writer->own, err);
    if (rc < 0)
        writer_finish(writer);
    return rc;
}

/* ---- waiting ---- */

/* One that is to rest leaves the pulling to those that wait for it. */
static bool wait_for_pass(struct stg_runner *runner)
{
    struct stg_stage *stage = runner->stage;
    struct stg_runners *runners = &stage->runners;
    pthread_mutex_lock(&stage->lock);
    runners->n_waiting_pass++;
    while (!stage->stop.is_on &&
           (stage->pass.state != STG_PASS_RUNNING ||
            (runner->index >= runners->n_active && runner->lane == NULL))) {
        bool is_parked = runner->index >= runners->n_active && runner->lane == NULL;
        if (is_parked)
            stg_pull_pass_on(stage, true);
        stg_stage_wait(stage, &runners->pass, 0,
                       is_parked ? STG_SPAN_WAIT_PARKED : STG_SPAN_WAIT_PASS);
    }
    runners->n_waiting_pass--;
    bool go_on = !stage->stop.is_on;
    stg_stage_commit(stage);
    return go_on;
}

/* One signal stands for any number of extents: a runner that got one passes it on. */
static bool reserve(struct stg_stage *stage, uint32_t *ret)
{
    struct stg_runners *runners = &stage->runners;
    bool ok = false;
    pthread_mutex_lock(&stage->lock);
    uint64_t began = 0;
    while (!stage->stop.is_on) {
        ok = stg_extent_reserve(stage->buffer.leases, stage->plan.max_batch_bytes, ret) ==
             0;
        if (ok)
            break;
        if (began == 0) {
            began = stg_now_ns();
            stg_runner_waits(stage, began);
            stg_delivery_run(stage); /* no client was asked to ring for this */
            continue;
        }
        stg_pull_pass_on(stage, true);
        runners->n_waiting_memory++;
        stg_stage_wait(stage, &runners->memory, 0, STG_SPAN_WAIT_MEMORY);
        runners->n_waiting_memory--;
    }
    if (began != 0) {
        stg_runner_waited(stage, began);
        stage->effects.wake |= STG_WAKE_MEMORY;
    }
    stg_stage_commit(stage);
    return ok;
}

static void unreserve(struct stg_stage *stage, uint32_t extent)
{
    pthread_mutex_lock(&stage->lock);
    stg_extent_drop(stage->buffer.leases, extent);
    stage->effects.wake |= STG_WAKE_MEMORY;
    stg_stage_commit(stage);
}

/* ---- pulling ---- */

/* The files of the pass are those of the state, if it says which those were. */
static int seek(struct stg_stage *stage, const struct stg_state *start,
                struct stg_err *err)
{
    struct stg_runners *runners = &stage->runners;
    int rc = 0;
    if (start->data.n_files > 0)
        rc = stg_dataset_compare(runners->dataset, stage->config.spec, &start->data,
                                 &runners->data, err);
    struct stg_position position = {.items = start->place.items,
                                    .elements = start->place.elements,
                                    .passed = start->place.passed,
                                    .errors = start->place.errors_from};
    if (rc == 0 && (position.items > 0 || start->base > 0))
        rc = stg_dataset_seek(runners->dataset, &position, err);
    runners->pull_place = start->place;
    runners->pull_epoch = start->place.epoch;
    runners->pull_index = start->place.index;
    runners->n_errors_delivered = start->n_delivered;
    if (rc == 0 && start->consumers > 0)
        rc = stg_taken_read(start->taken, &runners->taken, err);
    runners->has_taken = rc == 0 && runners->taken.n > 0;
    runners->taken_walk = (struct stg_taken_walk){.set = &runners->taken};
    return rc;
}

/* Returns whether a state has that item. Items come in their order. */
static bool is_taken(struct stg_runners *runners, uint64_t item)
{
    struct stg_taken_walk *walk = &runners->taken_walk;
    runners->has_taken = runners->has_taken && stg_taken_seek(walk, item);
    return runners->has_taken && walk->begin <= item;
}

/* The pass is over before the last item that a state has. */
static int refuse_short(const struct stg_runners *runners, struct stg_err *err)
{
    return stg_err(err, -STAGER_FAILED_PRECONDITION,
                   "the state has item %" PRIu64 " of the pass, which has %" PRIu64
                   ": the data or the steps are not those that the state was taken of",
                   runners->taken.end, runners->pull_place.items);
}

static int find_place(struct stg_stage *stage, uint64_t pass, struct stg_err *err)
{
    struct stg_runners *runners = &stage->runners;
    const struct stg_state *start = stage->config.start;
    runners->pull_place = (struct stg_pass_place){0};
    runners->n_errors_delivered = 0;
    runners->has_taken = false;
    stg_taken_clear(&runners->taken);
    int rc =
        stg_dataset_identify(runners->dataset, stage->config.spec, &runners->data, err);
    if (rc == 0)
        rc = stg_stage_compare_hosts(stage, pass, err);
    return rc == 0 && start != NULL && start->pass == pass ? seek(stage, start, err) : rc;
}

/* Of the state at which the pass begins; NULL: it begins at its start. */
static const struct stg_data_identity *data_of_state(const struct stg_stage *stage,
                                                     uint64_t pass)
{
    const struct stg_state *start = stage->config.start;
    bool has_files = start != NULL && start->pass == pass && start->data.n_files > 0;
    return has_files ? &start->data : NULL;
}

/* The record of the pass at which the hosts began to divide it. */
static uint64_t base_of_state(const struct stg_stage *stage, uint64_t pass)
{
    const struct stg_state *start = stage->config.start;
    return start != NULL && start->pass == pass && start->hosts != 0 ? start->base : 0;
}

/* A scout reads nothing, and shows nothing of what it does. */
static int create_dataset(struct stg_stage *stage, uint64_t pass, bool is_scout,
                          struct stg_dataset **ret, struct stg_err *err)
{
    struct stg_fund fund;
    struct stg_adviser adviser = stg_stage_adviser(stage);
    struct stg_dataset_env env = {
        .uid = stage->config.uid,
        .gid = stage->config.gid,
        .groups = stage->config.groups,
        .n_groups = stage->config.n_groups,
        .pass = pass,
        .deal = stage->config.deal,
        .deal_first = base_of_state(stage, pass),
        .buffer_bytes = stage->plan.buffer_bytes,
        .tensor_bytes = stg_budget_total(stage->config.budget),
        .state_data = data_of_state(stage, pass),
        .notes_marks = stage->config.is_reproducible,
        .fund = is_scout ? NULL : stg_stage_fund(stage, &fund),
        .adviser = &adviser,
        .trace = is_scout ? NULL : stage->config.trace,
        .takes_codes = true,
        .ignored_codes = stage->staged->ignored_codes,
        .stopped = &stage->stop.flag,
        .container = stage->config.container,
        .tuning = is_scout ? NULL : stage->observers.tune.log,
        .activity = is_scout ? NULL : &stage->observers.activity,
        .caller = stg_stage_caller(stage),
    };
    const struct stg_projection *projection = stage->config.projection;
    return stg_dataset_create(projection != NULL ? &projection->spec : stage->config.spec,
                              &env, ret, err);
}

static int open_dataset(struct stg_stage *stage, uint64_t pass, struct stg_err *err)
{
    struct stg_runners *runners = &stage->runners;
    if (runners->pulled_pass == pass)
        return 0;
    stg_dataset_destroy(runners->dataset);
    runners->dataset = NULL;
    runners->pulled_pass = pass;
    runners->pull_epoch = 0;
    runners->pull_index = 0;
    runners->n_ignored_seen = runners->n_remainder_seen = 0;
    int rc = create_dataset(stage, pass, false, &runners->dataset, err);
    return rc == 0 ? find_place(stage, pass, err) : rc;
}

static struct stg_pass_place place_of(const struct stg_work *work)
{
    const struct stg_position *position = &work->block->position;
    uint64_t passed = position->passed;
    return (struct stg_pass_place){.items = position->items,
                                   .elements = position->elements,
                                   .epoch = work->epoch,
                                   .index = work->index + 1,
                                   .passed = passed < UINT32_MAX ? (uint32_t)passed
                                                                 : UINT32_MAX,
                                   .errors_from = position->errors};
}

static int next_element(struct stg_runners *runners, struct stg_work *work,
                        struct stg_err *err)
{
    struct stg_block *block = NULL;
    int rc = stg_dataset_next(runners->dataset, &block, err);
    if (rc != 0)
        return rc;
    if (block->epoch != runners->pull_epoch) {
        runners->pull_epoch = block->epoch;
        runners->pull_index = 0;
    }
    work->block = block;
    work->epoch = runners->pull_epoch;
    work->index = runners->pull_index++;
    work->data = runners->data;
    work->before = runners->pull_place;
    work->after = runners->pull_place = place_of(work);
    return 0;
}

/* ---- places for stage workers ---- */

/* Results of a pull besides those of stg_dataset_next. */
enum { NO_PLACE = 2, REDO = 3 };

static void drop_scout(struct stg_runners *runners)
{
    stg_dataset_destroy(runners->remote.scout);
    runners->remote.scout = NULL;
    runners->remote.is_stale = false;
}

static int create_at(struct stg_stage *stage, uint64_t pass, bool is_scout,
                     const struct stg_pass_place *place, struct stg_dataset **ret,
                     struct stg_err *err)
{
    struct stg_position position = {.items = place->items, .elements = place->elements};
    int rc = create_dataset(stage, pass, is_scout, ret, err);
    if (rc == 0 && (place->items > 0 || base_of_state(stage, pass) > 0))
        rc = stg_dataset_seek(*ret, &position, err);
    return rc;
}

/* A worker finds a place by its number alone. */
static bool has_number(const struct stg_stage *stage, const struct stg_pass_place *place)
{
    uint64_t size = stage->config.batch_size != 0 ? stage->config.batch_size : 1;
    return place->passed == 0 && place->errors_from == 0 &&
           (place->elements == place->items * size || place->elements == place->items);
}

/* Opens what finds places, if workers may be asked in this pass. */
static bool open_scout(struct stg_stage *stage, uint64_t pass)
{
    struct stg_runners *runners = &stage->runners;
    struct stg_remote_part *remote = &runners->remote;
    struct stg_err err = {0};
    if (remote->is_stale || (remote->scout != NULL && remote->pass != pass))
        drop_scout(runners);
    if (remote->workers == NULL || atomic_load(&remote->is_alone))
        return false;
    remote->pass = pass;
    remote->deal_first = base_of_state(stage, pass);
    if (remote->scout != NULL)
        return true;
    bool ok =
        has_number(stage, &runners->pull_place) &&
        create_at(stage, pass, true, &runners->pull_place, &remote->scout, &err) == 0 &&
        stg_digest_write(remote->scout, stage->config.spec, stage->config.content,
                         remote->digest, &err) == 0;
    if (!ok)
        drop_scout(runners);
    atomic_store(&remote->is_alone, !ok);
    return ok;
}

static void set_place(struct stg_runners *runners, struct stg_work *work,
                      const struct stg_position *position, uint64_t epoch)
{
    if (epoch != runners->pull_epoch) {
        runners->pull_epoch = epoch;
        runners->pull_index = 0;
    }
    work->block = NULL;
    if (work->is_remote) {
        memcpy(work->digest, runners->remote.digest, sizeof(work->digest));
        work->deal_first = runners->remote.deal_first;
    }
    work->epoch = epoch;
    work->index = runners->pull_index++;
    work->data = runners->data;
    work->before = runners->pull_place;
    work->after = runners->pull_place =
        (struct stg_pass_place){.items = position->items,
                                .elements = position->elements,
                                .epoch = work->epoch,
                                .index = work->index + 1};
}

/* The place of the next item that no state has. */
static int next_place(struct stg_runners *runners, struct stg_work *work,
                      struct stg_err *err)
{
    struct stg_position position;
    uint64_t n, epoch;
    int rc;
    do {
        rc = stg_dataset_jump(runners->remote.scout, 1, &n, &position, &epoch, err);
        if (rc < 0)
            return REDO;
        if (n == 0)
            return 1;
        set_place(runners, work, &position, epoch);
    } while (is_taken(runners, work->after.items - 1));
    return 0;
}

/* Moves the data set to a place, without reading what workers make. */
static int catch_up(struct stg_stage *stage, uint64_t pass,
                    const struct stg_pass_place *place, struct stg_err *err)
{
    struct stg_runners *runners = &stage->runners;
    struct stg_position position;
    uint64_t n = 0, epoch, at = stg_dataset_n_passed(runners->dataset);
    if (at > place->items) {
        stg_dataset_destroy(runners->dataset);
        runners->dataset = NULL;
        return create_at(stage, pass, false, place, &runners->dataset, err);
    }
    if (at == place->items)
        return 0;
    int rc =
        stg_dataset_jump(runners->dataset, place->items - at, &n, &position, &epoch, err);
    return rc == 0 && n < place->items - at ? REDO : rc;
}

/* The item of a place that was drawn. An error there, or before it, shifts the numbers of
 * all items behind it: no worker knows them then. */
static int read_place(struct stg_stage *stage, struct stg_work *work, struct stg_err *err)
{
    struct stg_runners *runners = &stage->runners;
    struct stg_block *block = NULL;
    int rc = catch_up(stage, work->pass, &work->before, err);
    if (rc == 0)
        rc = stg_dataset_next(runners->dataset, &block, err);
    bool is_error = rc == 0 && block->error.code != 0;
    bool is_it = rc == 0 && block->position.items == work->after.items &&
                 block->position.elements == work->after.elements &&
                 block->epoch == work->epoch && block->position.errors == 0;
    if (!is_error && !is_it) {
        stg_block_unref(block);
        return REDO;
    }
    work->block = block;
    if (is_error) {
        atomic_store(&runners->remote.is_alone, true);
        drop_scout(runners);
        work->after = runners->pull_place = place_of(work);
    }
    return 0;
}

static int pull_by_scout(struct stg_stage *stage, struct stg_work *work,
                         struct stg_err *err)
{
    struct stg_runners *runners = &stage->runners;
    int rc = next_place(runners, work, err);
    if (rc == 0 && !work->is_remote)
        rc = read_place(stage, work, err);
    if (rc != REDO)
        return rc;
    atomic_store(&runners->remote.is_alone, true);
    drop_scout(runners);
    return REDO;
}

/* The next element that no state has. */
static int pull_element(struct stg_stage *stage, struct stg_work *work,
                        struct stg_err *err)
{
    struct stg_runners *runners = &stage->runners;
    int rc = runners->remote.workers != NULL
                 ? catch_up(stage, work->pass, &runners->pull_place, err)
                 : 0;
    if (rc != 0)
        return REDO;
    rc = next_element(runners, work, err);
    while (rc == 0 && is_taken(runners, runners->pull_place.items - 1)) {
        stg_block_unref(work->block);
        rc = next_element(runners, work, err);
    }
    return rc;
}

static int read_element(struct stg_stage *stage, struct stg_work *work,
                        struct stg_err *err)
{
    struct stg_runners *runners = &stage->runners;
    int rc = open_dataset(stage, work->pass, err);
    if (rc == 0 && open_scout(stage, work->pass))
        rc = pull_by_scout(stage, work, err);
    else if (rc == 0)
        rc = work->is_remote ? NO_PLACE : pull_element(stage, work, err);
    if (rc == 1 && runners->has_taken && runners->taken.end > runners->pull_place.items)
        rc = refuse_short(runners, err);
    return rc;
}

/* The clock of a thread is a system call: one pull in a few is looked at. */
static int read_timed(struct stg_stage *stage, struct stg_work *work, struct stg_err *err)
{
    struct stg_runners *runners = &stage->runners;
    bool is_sampled = runners->n_pulls++ % STG_SAMPLE_EVERY == 0;
    uint64_t began = stg_now_ns();
    atomic_store_explicit(&runners->pull_began_ns, began, memory_order_relaxed);
    uint64_t cpu = is_sampled ? stg_thread_cpu_ns() : 0;
    int rc = read_element(stage, work, err);
    work->pull_cpu_ns =
        is_sampled && rc == 0 && !work->is_remote ? stg_thread_cpu_ns() - cpu + 1 : 0;
    work->pull_ns = work->is_remote ? 0 : stg_now_ns() - began;
    return rc;
}

/* The lock is held, and the data set taken. */
static void count_ignored(struct stg_stage *stage)
{
    struct stg_runners *runners = &stage->runners;
    const struct stg_dataset *scout = runners->remote.scout;
    const struct stg_dataset *dataset = scout != NULL ? scout : runners->dataset;
    if (dataset == NULL)
        return;
    uint64_t n = stg_dataset_n_ignored(dataset);
    if (runners->remote.workers == NULL) {
        stage->counts.n_ignored_elements += n - runners->n_ignored_seen;
        runners->n_ignored_seen = n;
    }
    n = stg_dataset_n_remainder(dataset);
    if (n > runners->n_remainder_seen) {
        stage->counts.n_remainder_elements += n - runners->n_remainder_seen;
        runners->n_remainder_seen = n;
    }
}

/* With the data set taken (stg_pull_take); gives it back. True and an element, or false:
 * the pass is over. */
static bool pull(struct stg_stage *stage, struct stg_work *work)
{
    struct stg_runners *runners = &stage->runners;
    struct stg_err err = {0};
    int rc = read_timed(stage, work, &err);

    pthread_mutex_lock(&stage->lock);
    atomic_store_explicit(&runners->pull_began_ns, 0, memory_order_relaxed);
    count_ignored(stage);
    runners->is_pulling = false;
    stg_pull_pass_on(stage, work->is_remote);
    /* Another item may have ended the pass meanwhile, and the next one begun. */
    bool running = !stage->stop.is_on && stage->pass.state == STG_PASS_RUNNING &&
                   stage->pass.n_ended == work->pass;
    bool ok = running && rc == 0;
    if (ok) {
        work->sequence = runners->pull_sequence++;
        stg_turn_of(runners, work->sequence)->before = work->before;
        runners->remote.n_in_hand += work->is_remote;
        work->feeds = stg_feed_set_ref(stage->boundary.feeds);
        work->pulled_partition = stg_stage_pull_partition(stage, &work->tag);
        stage->counts.n_made++;
        stage->counts.n_in_hand++;
    } else if (running && stg_is_redone(stage, runners->pull_sequence)) {
        stage->effects.wake |= STG_WAKE_PULL_ALL;
    } else if (running && rc == REDO) {
        stg_publish_redo(stage, stage->pass.publish_next, &work->before);
    } else if (running && rc != NO_PLACE) {
        stg_publish_end(stage, rc, &err);
    }
    stg_stage_commit(stage);
    if (rc == 0 && !ok)
        stg_block_unref(work->block);
    return ok;
}

/* ---- computing ---- */

/* All but the number, which is given when the item is published. */
static void write_coordinates(struct stg_stage *stage, const struct stg_work *work,
                              struct stg_batch_header *header)
{
    header->partition = work->partition != NULL ? work->partition->number : 0;
    header->generation = stage->config.generation;
    header->run_id = stage->config.run_id;
    header->pass = work->pass;
    header->epoch = work->epoch;
    header->index = work->index;
    header->n_rows = work->rows;
    header->feed_version = work->feeds != NULL ? work->feeds->version : 0;
    header->data = work->data;
}

static uint64_t hash_bytes(uint64_t hash, const void *bytes, uint64_t n)
{
    return stg_fingerprint64_of(hash, stg_farm_hash(bytes, n), 16);
}

/* Not the bytes of the batch: those between two tensors are what was there before. */
static uint64_t hash_tensor(uint64_t hash, const char *base, uint32_t i)
{
    struct stg_tensor tensor;
    const char *name;
    stg_batch_tensor_at(base, i, &tensor, &name);
    uint64_t n = (uint64_t)stg_tensor_n(&tensor);
    hash = hash_bytes(hash, name, strlen(name));
    hash = stg_fingerprint64_of(hash, (uint64_t)tensor.dtype, 16);
    hash = hash_bytes(hash, tensor.shape, (size_t)tensor.ndim * sizeof(tensor.shape[0]));
    hash = hash_bytes(hash, tensor.data, tensor.data_bytes);
    return tensor.begin != NULL
               ? hash_bytes(hash, tensor.begin, (n + 1) * sizeof(tensor.begin[0]))
               : hash;
}

/* Returns the hash of all tensors; of an error its code. */
static uint64_t hash_content(const struct stg_work *work, const char *base)
{
    uint64_t hash = STG_FARM_K0 + (uint64_t)(unsigned)-work->err.code;
    const struct stg_batch_header *header = (const void *)base;
    for (uint32_t i = 0; work->err.code == 0 && i < header->n_tensors; i++)
        hash = hash_tensor(hash, base, i);
    return hash != 0 ? hash : 1;
}

static uint64_t hash_item(const struct stg_stage *stage, const struct stg_work *work,
                          const char *base)
{
    if (stage->config.audit_run == 0)
        return 0;
    return stg_audit_hash(work->after.items - 1, work->before.elements,
                          work->after.elements, work->rows,
                          stage->config.audits_contents ? hash_content(work, base) : 0);
}

/* Takes the reference on the element: once it is read, its memory need not wait. */
static void compute(struct stg_runner *runner, struct stg_work *work)
{
    struct stg_stage *stage = runner->stage;
    uint64_t began = stg_now_ns();
    char *base = stg_stage_extent(stage, work->extent);
    work->err.code = 0;
    work->err.text[0] = '\0';
    work->partition = NULL;
    work->partition_failed = false;
    work->bytes = write_batch(&runner->writer, work, base);
    work->rows = (uint64_t)work->block->n_rows;
    write_coordinates(stage, work, (struct stg_batch_header *)base);
    work->hash = hash_item(stage, work, base);
    stg_stage_partition_unref(work->pulled_partition);
    if (stg_trace_is_on(stage->config.trace))
        stg_trace_make(stage, began, work->block->n_rows);
    stg_block_unref(work->block);
    work->busy_ns = stg_now_ns() - began;
}

/* Before the batch is published. No thread of a pool waits for a GPU. */
static void copy_to_mirror(const struct stg_runner *runner, struct stg_work *work)
{
    struct stg_stage *stage = runner->stage;
    work->device = 0;
    if (stage->memory.mirror == NULL || work->err.code != 0)
        return;
    uint64_t began = stg_now_ns(), first, bytes;
    uint64_t offset = stg_extent_offset(stage->buffer.leases, work->extent);
    stg_batch_device_span((const char *)stage->memory.arena.base + offset, &first,
                          &bytes);
    work->device =
        stg_mirror_copy(stage->memory.mirror, runner->index, offset + first, bytes);
    work->busy_ns += stg_now_ns() - began;
}

/* Of a thread of a pool, for a runner. */
static void pull_and_compute(void *arg)
{
    struct stg_work *work = arg;
    struct stg_runner *runner = work->runner;
    const struct stg_stage *stage = runner->stage;
    bool is_timed = stage->observers.tune.is_on || stage->runners.remote.workers != NULL;
    /* What others do of an op for this thread (intra_op_threads_num) is not in it. */
    uint64_t cpu = is_timed ? stg_thread_cpu_ns() : 0;
    work->is_pulled = pull(runner->stage, work);
    if (!work->is_pulled)
        return;
    stg_block_read_ahead(work->block);
    compute(runner, work);
    work->cpu_ns = is_timed ? stg_thread_cpu_ns() - cpu : 0;
}

static void give_pull_back(struct stg_stage *stage)
{
    pthread_mutex_lock(&stage->lock);
    stage->runners.is_pulling = false;
    stg_pull_pass_on(stage, true);
    stg_stage_commit(stage);
}

static void make_one(struct stg_runner *runner, uint32_t extent)
{
    struct stg_stage *stage = runner->stage;
    struct stg_pool_user *pool = &stage->runners.pool;
    struct stg_work work;
    work.runner = runner;
    work.extent = extent;
    work.is_pulled = work.is_remote = false;
    if (stg_pull_take(stage, false, &work.pass)) {
        if (pool->pool == NULL)
            pull_and_compute(&work);
        else if (!stg_pool_run(pool, &runner->job, pull_and_compute, &work))
            give_pull_back(stage);
    }
    if (work.is_pulled) {
        copy_to_mirror(runner, &work);
        stg_publish(stage, &work);
    } else {
        unreserve(stage, extent);
    }
}

/* ---- items of stage workers ---- */

static void make_remote(struct stg_runner *runner, uint32_t extent)
{
    struct stg_stage *stage = runner->stage;
    struct stg_work work = {.runner = runner, .extent = extent, .is_remote = true};
    if (!stg_pull_take(stage, true, &work.pass) || !pull(stage, &work)) {
        stg_remote_leave(stage);
        unreserve(stage, extent);
        return;
    }
    if (!stg_remote_make(stage, runner->lane, &work)) {
        stg_publish_failed(stage, &work);
        return;
    }
    char *base = stg_stage_extent(stage, extent);
    write_coordinates(stage, &work, (struct stg_batch_header *)base);
    work.hash = hash_item(stage, &work, base);
    stg_stage_partition_unref(work.pulled_partition);
    copy_to_mirror(runner, &work);
    stg_publish(stage, &work);
}

/* ---- life ---- */

/* Before any other runner pulls: no pass begins without clients, and none attaches
 * before this has ended. */
static void go_to_start(struct stg_stage *stage)
{
    struct stg_err err = {0};
    int rc = open_dataset(stage, stage->config.start->pass, &err);
    pthread_mutex_lock(&stage->lock);
    stage->start.state = rc == 0 ? STG_START_READY : STG_START_FAILED;
    stage->start.err = err;
    stage->start.err.code = rc;
    stage->effects.asks_loop = true;
    stg_stage_commit(stage);
}

static void *runner_main(void *arg)
{
    struct stg_runner *runner = arg;
    struct stg_stage *stage = runner->stage;
    if (stage->runners.pool.pool != NULL)
        stg_pool_stay_with(stage->runners.pool.pool);
    uint32_t extent;
    if (runner->index == 0 && stage->config.start != NULL)
        go_to_start(stage);
    while (runner->lane == NULL && wait_for_pass(runner) && reserve(stage, &extent))
        make_one(runner, extent);
    while (runner->lane != NULL && wait_for_pass(runner) && stg_remote_wait(stage) &&
           reserve(stage, &extent))
        make_remote(runner, extent);
    pthread_mutex_lock(&stage->lock);
    stage->runners.n_alive--;
    stage->effects.asks_loop = true;
    stg_stage_commit(stage);
    return NULL;
}

int stg_runners_init(struct stg_stage *stage, struct stg_err *err)
{
    struct stg_runners *runners = &stage->runners;
    uint32_t n = stage->plan.num_threads + stage->plan.num_remote;
    runners->pulled_pass = UINT64_MAX;
    runners->begun_pass = UINT64_MAX;
    runners->mean_busy_ns = FIRST_BUSY_NS;
    runners->pool.pool = stage->config.pool;
    stg_clock_cond_init(&runners->memory); /* I10 */
    stg_clock_cond_init(&runners->pass);
    stg_clock_cond_init(&runners->pull);
    runners->all = calloc(n, sizeof(runners->all[0]));
    runners->turns = calloc(n, sizeof(runners->turns[0]));
    int rc = 0;
    if (runners->all == NULL || runners->turns == NULL)
        rc = stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        stg_clock_cond_init(&runners->turns[i].cond);
        pthread_cond_init(&runners->all[i].job.done, NULL);
        runners->n_turns++;
    }
    return rc;
}

static void finish_one(struct stg_runner *runner)
{
    writer_finish(&runner->writer);
    stg_lane_destroy(runner->lane);
    runner->lane = NULL;
}

static int start_one(struct stg_stage *stage, uint32_t i, struct stg_err *err)
{
    struct stg_runner *runner = &stage->runners.all[i];
    runner->stage = stage;
    runner->index = i;
    bool asks = i >= stage->plan.num_threads;
    int rc = asks ? stg_lane_create(stage->runners.remote.workers, &runner->lane, err)
                  : writer_init(stage, &runner->writer, err);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&stage->lock);
    stage->runners.n_alive++;
    pthread_mutex_unlock(&stage->lock);
    /* A thread pool has a nice value for its runners. */
    struct stg_share *share = stage->config.pool == NULL ? stage->config.share : NULL;
    rc = stg_fair_start(&runner->thread, share, runner_main, runner);
    if (rc != 0) {
        pthread_mutex_lock(&stage->lock);
        stage->runners.n_alive--;
        pthread_mutex_unlock(&stage->lock);
        finish_one(runner);
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                       "cannot start runner %u of %u: %s", i + 1, stage->runners.n_turns,
                       strerror(rc));
    }
    stage->runners.n_started++;
    char name[32], index[16];
    int n_index = snprintf(index, sizeof(index), "/%u", i);
    snprintf(name, sizeof(name), "%.*s%s", 15 - n_index, stage->config.name, index);
    pthread_setname_np(runner->thread, name);
    return 0;
}

int stg_runners_start(struct stg_stage *stage, struct stg_err *err)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < stage->runners.n_turns; i++)
        rc = start_one(stage, i, err);
    return rc;
}

void stg_runners_shed(struct stg_stage *stage)
{
    struct stg_runners *runners = &stage->runners;
    for (uint32_t i = 0; i < runners->n_started; i++)
        finish_one(&runners->all[i]);
    drop_scout(runners);
    stg_dataset_destroy(runners->dataset);
    runners->dataset = NULL;
    stg_taken_finish(&runners->taken);
    runners->has_taken = false;
}

void stg_runners_finish(struct stg_stage *stage)
{
    struct stg_runners *runners = &stage->runners;
    for (uint32_t i = 0; i < runners->n_started; i++)
        pthread_join(runners->all[i].thread, NULL);
    stg_runners_shed(stage);
    for (uint32_t i = 0; i < runners->n_turns; i++) {
        pthread_cond_destroy(&runners->turns[i].cond);
        pthread_cond_destroy(&runners->all[i].job.done);
    }
    pthread_cond_destroy(&runners->memory);
    pthread_cond_destroy(&runners->pass);
    pthread_cond_destroy(&runners->pull);
    free(runners->turns);
    free(runners->all);
}
