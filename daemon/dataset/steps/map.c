/* SPDX-License-Identifier: Apache-2.0
 *
 * map: a graph over each element. The input is pulled by the thread that pulls from the
 * map, in groups of records; a group is divided into jobs for the threads of the map (or
 * is one job, done at once). Groups leave in the order in which they were pulled, so that
 * nothing depends on threads or time.
 */
#include "daemon/dataset/steps/map.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/dataset/func.h"
#include "daemon/dataset/parallelism.h"
#include "daemon/dataset/pieces.h"
#include "daemon/dataset/task_pool.h"
#include "daemon/host/cpus.h"

#define MAX_CALLS 256
/* Where no batch says how many records to work on at once. */
#define GROUP_BYTES (4u << 20)
#define GROUP_RECORDS 1024   /* when the size of results is not known */
#define RECORDS_OF_THREAD 32 /* likewise, when records go one by one */

struct group;

/* A part of a group. Its thread's until task.is_done. */
struct job {
    struct stg_task task;
    struct group *group;
    int64_t first, n;
    struct stg_func_parts parts;
    struct stg_thread_time spent; /* num_parallel_calls: auto alone */
    int failed;
    struct stg_err failure;
};

/* Records that were pulled together, or an error that came between them. */
struct group {
    struct map *map;
    struct group *next;
    struct stg_func_call call;
    unsigned n_jobs;
    struct job jobs[];
};

struct map {
    struct stg_iter iter;
    struct stg_func *func;
    struct stg_func_run **runs;         /* one a thread; at least 1 */
    unsigned n_runs, n_active;          /* the first so many of them work */
    struct stg_parallelism parallelism; /* auto */
    struct stg_task_pool *pool;         /* NULL: the thread that pulls does the jobs */
    bool deterministic, is_sought;
    int64_t batch_size;        /* of the batch that follows; 0: none does */
    int64_t want;              /* the most that was asked for */
    struct stg_block *waiting; /* pulled, and there was no room for its results */
    struct group *first, **last;
    unsigned n_jobs; /* of all groups */
    struct stg_pieces made;
    uint64_t iteration, index; /* of the record that is pulled next */
    int ended;                 /* 1, or what the input failed with */
    struct stg_err failure;
};

/* ---- infer ---- */

/* The default of map_and_batch: all elements of num_parallel_batches batches at once, on
 * as many threads as can run. */
static unsigned calls_of_batches(const struct stg_step *step)
{
    int64_t batch_size = stg_step_int(step, "batch_size", 0);
    int64_t n = batch_size * stg_step_int(step, "num_parallel_batches", 1);
    unsigned cpus = stg_cpus_whole();
    return n < cpus ? (unsigned)n : cpus;
}

/* Threads; 0: none of its own. */
struct threads {
    unsigned first, most; /* auto: to begin with, and at most; else the same */
};

/* Those that sleep or read leave their CPU to others. */
static struct threads automatic_threads(void)
{
    unsigned cpus = stg_cpus_whole();
    return (struct threads){cpus < MAX_CALLS ? cpus : MAX_CALLS,
                            2 * cpus < MAX_CALLS ? 2 * cpus : MAX_CALLS};
}

static int parallel_calls(const struct stg_step *step, struct threads *ret,
                          struct stg_err *err)
{
    const struct stg_attr *attr =
        stg_attr_find(step->attrs, step->n_attrs, "num_parallel_calls");
    const struct stg_value *value = attr != NULL ? &attr->values[0] : NULL;
    ret->first = ret->most = calls_of_batches(step);
    if (attr == NULL)
        return 0;
    int64_t n = value->kind == STG_VALUE_INT && attr->ndim == 0 ? value->i : 0;
    bool is_word = value->kind == STG_VALUE_STRING && attr->ndim == 0;
    if (n == -1 || (is_word && strcmp(value->s, "auto") == 0)) {
        *ret = automatic_threads();
        return 0;
    }
    if (n >= 1 && n <= MAX_CALLS) {
        ret->first = ret->most = (unsigned)n;
        return 0;
    }
    return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                        "num_parallel_calls must be 1 to %d, or auto", MAX_CALLS);
}

static int map_infer(const struct stg_step *step, const struct stg_schema *in,
                     struct stg_bump *bump, struct stg_schema *ret, struct stg_err *err)
{
    struct threads n_calls;
    struct stg_func *func;
    int rc = stg_step_needs_input(step, in, err);
    if (rc == 0)
        rc = parallel_calls(step, &n_calls, err);
    if (rc == 0)
        rc = stg_func_create(step, step->outputs, step->n_outputs, in, &func, err);
    if (rc < 0)
        return rc;
    const struct stg_schema *schema = stg_func_schema(func);
    rc = stg_schema_create(bump, schema->n, ret, err);
    for (size_t i = 0; rc == 0 && i < schema->n; i++) { /* names may be the func's */
        const char *name = schema->components[i].name;
        ret->components[i] = schema->components[i];
        ret->components[i].name = stg_bump_strdup(bump, name);
        if (ret->components[i].name == NULL)
            rc = stg_step_err(step, -STAGER_RESOURCE_EXHAUSTED, err, "out of memory");
    }
    stg_func_destroy(func);
    return rc;
}

/* ---- groups ---- */

static void job_run(struct stg_task *task, unsigned worker)
{
    struct job *job = (struct job *)task;
    struct map *map = job->group->map;
    struct stg_thread_time began = {0};
    if (map->parallelism.is_on)
        stg_thread_time_now(&began);
    job->failed = stg_func_apply(map->runs[worker], &job->group->call, job->first, job->n,
                                 &job->parts, &job->failure);
    if (map->parallelism.is_on)
        stg_thread_time_since(&began, &job->spent);
}

static void group_destroy(struct group *group)
{
    for (unsigned i = 0; i < group->n_jobs; i++)
        stg_func_parts_finish(&group->jobs[i].parts);
    stg_block_unref(group->call.input);
    stg_block_unref(group->call.output);
    free(group);
}

static bool group_is_done(struct group *group)
{
    for (unsigned i = 0; i < group->n_jobs; i++) {
        if (!atomic_load_explicit(&group->jobs[i].task.is_done, memory_order_acquire))
            return false;
    }
    return true;
}

/* How many records to pull at once. Without threads as many as are asked for now: what is
 * made is then emitted whole. */
static int64_t group_records(const struct map *map, int64_t asked)
{
    const struct stg_func *func = map->func;
    int64_t most =
        func->many != NULL ? GROUP_RECORDS : (int64_t)RECORDS_OF_THREAD * map->n_active;
    if (map->batch_size > 0)
        most = map->batch_size;
    else if (func->is_placed && func->record_bytes > 0)
        most = (int64_t)(GROUP_BYTES / func->record_bytes);
    if (most > STG_BLOCK_MAX_RECORDS)
        most = STG_BLOCK_MAX_RECORDS;
    int64_t want = map->pool == NULL             ? asked
                   : map->batch_size > map->want ? map->batch_size
                                                 : map->want;
    return want < most ? want : most > 1 ? most : 1;
}

/* Divides the group into as many jobs as there are threads, and hands them out. */
static void start_jobs(struct map *map, struct group *group)
{
    int64_t n = group->call.input->n_records, at = 0;
    for (unsigned i = 0; i < group->n_jobs; i++) {
        struct job *job = &group->jobs[i];
        job->group = group;
        job->task.run = job_run;
        job->first = at;
        job->n = (n - at) / (group->n_jobs - i);
        at += job->n;
        if (map->pool != NULL)
            stg_task_pool_submit(map->pool, &job->task);
    }
    if (map->pool != NULL || group->n_jobs == 0)
        return;
    job_run(&group->jobs[0].task, 0);
    atomic_store_explicit(&group->jobs[0].task.is_done, true, memory_order_relaxed);
}

static unsigned jobs_of(const struct map *map, const struct stg_block *block)
{
    if (block->error.code != 0)
        return 0;
    return block->n_records < map->n_active ? (unsigned)block->n_records : map->n_active;
}

/* Would the pipeline's memory not hold the results of n records now? */
static bool is_full(const struct map *map, int64_t n)
{
    const struct stg_quota *quota = map->iter.dataset->quota;
    uint64_t left = stg_quota_limit(quota) - stg_quota_used(quota);
    return map->func->is_placed && (uint64_t)n > left / (map->func->record_bytes + 1);
}

/* Takes map->waiting. Without room for the results it stays (1), as long as there are
 * others to give theirs back. */
static int start_group(struct map *map, struct stg_err *err)
{
    struct stg_block *block = map->waiting;
    unsigned n_jobs = jobs_of(map, block);
    bool others = map->first != NULL || stg_pieces_any(&map->made);
    if (n_jobs > 0 && others && is_full(map, block->n_records))
        return 1;
    struct group *group = calloc(1, sizeof(*group) + n_jobs * sizeof(group->jobs[0]));
    if (group == NULL)
        return stg_step_err(map->iter.step, -STAGER_RESOURCE_EXHAUSTED, err,
                            "out of memory");
    group->map = map;
    group->n_jobs = n_jobs;
    group->call = (struct stg_func_call){
        .input = block, .epoch = map->iteration, .index = map->index};
    int rc = 0;
    if (n_jobs > 0)
        rc = stg_func_place(map->func, map->iter.dataset, &group->call, err);
    if (rc < 0) {
        free(group);
        return rc;
    }
    map->waiting = NULL;
    map->index += n_jobs > 0 ? (uint64_t)block->n_records : 1;
    map->n_jobs += n_jobs;
    *map->last = group;
    map->last = &group->next;
    start_jobs(map, group);
    return 0;
}

static uint64_t records_of(const struct stg_block *block)
{
    return block->error.code != 0 ? 1 : (uint64_t)block->n_records;
}

/* Returns how many records and errors are pulled and not emitted. */
static uint64_t count_held(const struct map *map)
{
    uint64_t n = stg_pieces_count(&map->made);
    for (const struct group *group = map->first; group != NULL; group = group->next)
        n += records_of(group->call.input);
    return n + (map->waiting != NULL ? records_of(map->waiting) : 0);
}

/* Returns how many records to pull now. What follows in the input is of no use after a
 * seek. */
static int64_t pull_records(const struct map *map, int64_t asked)
{
    int64_t n = group_records(map, asked), held;
    if (!map->is_sought)
        return n;
    held = (int64_t)count_held(map);
    return n < asked - held ? n : asked > held ? asked - held : 0;
}

/* Pulls until there is enough to do. The end, and a failure, wait behind what is made. */
static int fill(struct map *map, int64_t asked, struct stg_err *err)
{
    struct stg_iter *input = map->iter.input;
    unsigned enough = map->pool != NULL ? 2 * map->n_active : 1;
    while (map->ended == 0 && map->n_jobs < enough) {
        int64_t n = pull_records(map, asked);
        if (map->waiting == NULL && n == 0)
            return 0;
        int rc = stg_iter_stopped(&map->iter, err);
        if (rc < 0)
            return rc;
        if (map->waiting == NULL)
            rc = stg_iter_next(input, n, &map->waiting, &map->failure);
        if (rc != 0) {
            map->ended = rc;
            return 0;
        }
        rc = start_group(map, err);
        if (rc != 0)
            return rc < 0 ? rc : 0;
        if (map->pool == NULL)
            return 0;
    }
    return 0;
}

/* A part of a group's output as a block. */
static int emit(struct map *map, const struct group *group, struct stg_func_part *part,
                struct stg_err *err)
{
    const struct stg_func_call *call = &group->call;
    struct stg_block *block = part->block;
    part->block = NULL;
    if (block == NULL && part->n == call->output->n_records)
        block = stg_block_ref(call->output);
    else if (block == NULL) {
        int rc = stg_block_slice(map->iter.dataset->quota, call->output, part->first,
                                 part->n, &block, err);
        if (rc < 0)
            return stg_step_prefix(map->iter.step, rc, err);
    }
    return stg_pieces_add(&map->made, block, err);
}

/* What the jobs of a group made, in order. */
static int emit_all(struct map *map, struct group *group, struct stg_err *err)
{
    if (group->n_jobs == 0)
        return stg_pieces_add(&map->made, stg_block_ref(group->call.input), err);
    struct stg_func_parts *all = &group->jobs[0].parts;
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < group->n_jobs; i++) {
        struct job *job = &group->jobs[i];
        rc = job->failed;
        if (rc < 0 && err != NULL)
            *err = job->failure;
        for (size_t k = 0; i > 0 && rc == 0 && k < job->parts.n; k++) {
            rc = stg_func_parts_add(all, job->parts.parts[k], err);
            job->parts.parts[k].block = NULL;
        }
    }
    for (size_t k = 0; rc == 0 && k < all->n; k++)
        rc = emit(map, group, &all->parts[k], err);
    return rc;
}

static struct group **find_done(struct map *map)
{
    for (struct group **at = &map->first; *at != NULL; at = &(*at)->next) {
        if (group_is_done(*at))
            return at;
        if (map->deterministic)
            return NULL;
    }
    return NULL;
}

/* What the threads did for a group, and whether more or fewer of them are to work. */
static void tune(struct map *map, const struct group *group)
{
    if (!map->parallelism.is_on || group->n_jobs == 0)
        return;
    for (unsigned i = 0; i < group->n_jobs; i++)
        stg_parallelism_worked(&map->parallelism, &group->jobs[i].spent);
    if (!stg_parallelism_took(&map->parallelism, group->call.input->n_records))
        return;
    map->n_active = map->parallelism.tuner.value;
    stg_task_pool_set_active(map->pool, map->n_active);
}

static void wait_for_more(struct map *map, uint64_t seen)
{
    struct stg_thread_time began, waited;
    stg_thread_time_now(&began);
    stg_task_pool_wait(map->pool, seen);
    stg_thread_time_since(&began, &waited);
    stg_parallelism_waited(&map->parallelism, waited.wall_ns);
}

/* Waits for a group, and moves what it made to `made`. */
static int collect(struct map *map, struct stg_err *err)
{
    struct group **at;
    for (;;) {
        uint64_t seen = map->pool != NULL ? stg_task_pool_n_done(map->pool) : 0;
        at = find_done(map);
        if (at != NULL)
            break;
        wait_for_more(map, seen);
    }
    struct group *group = *at;
    *at = group->next;
    if (map->last == &group->next)
        map->last = at;
    map->n_jobs -= group->n_jobs;
    tune(map, group);
    int rc = emit_all(map, group, err);
    group_destroy(group);
    return rc;
}

static int map_next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                    struct stg_err *err)
{
    struct map *map = (struct map *)iter;
    map->want = want > map->want ? want : map->want;
    for (;;) {
        /* Without threads nothing is made ahead, which a skip would throw away. */
        bool waits = map->pool == NULL && stg_pieces_any(&map->made);
        int rc = waits ? 0 : fill(map, want, err);
        if (rc < 0)
            return rc;
        if (stg_pieces_any(&map->made))
            return stg_pieces_take(&map->made, iter->dataset->quota, want, ret, err);
        if (map->first == NULL)
            break;
        rc = collect(map, err);
        if (rc < 0)
            return rc;
    }
    if (map->ended < 0 && err != NULL)
        *err = map->failure;
    return map->ended;
}

/* ---- life ---- */

/* Everything that is pulled is forgotten. */
static void clear(struct map *map)
{
    if (map->pool != NULL)
        stg_task_pool_clear(map->pool);
    while (map->first != NULL) {
        struct group *group = map->first;
        map->first = group->next;
        group_destroy(group);
    }
    map->last = &map->first;
    map->n_jobs = 0;
    stg_pieces_clear(&map->made);
    stg_block_unref(map->waiting);
    map->waiting = NULL;
}

static int map_rewind(struct stg_iter *iter, bool afresh, struct stg_err *err)
{
    struct map *map = (struct map *)iter;
    clear(map);
    map->iteration = afresh ? 0 : map->iteration + 1;
    map->index = 0;
    map->ended = 0;
    return iter->input->impl->rewind(iter->input, afresh, err);
}

static void map_destroy(struct stg_iter *iter)
{
    struct map *map = (struct map *)iter;
    clear(map);
    stg_parallelism_finish(&map->parallelism);
    stg_task_pool_destroy(map->pool);
    stg_pieces_finish(&map->made);
    for (unsigned i = 0; map->runs != NULL && i < map->n_runs; i++)
        stg_func_run_destroy(map->runs[i]);
    free(map->runs);
    stg_func_destroy(map->func);
    free(map);
}

/* ---- moving forward ---- */

/* The first record that is pulled and not emitted; there is one. */
static const struct stg_block *first_held(const struct map *map)
{
    if (stg_pieces_any(&map->made))
        return map->made.blocks[map->made.first];
    return map->first != NULL ? map->first->call.input : map->waiting;
}

/* The function is not called for what is skipped. */
static int map_skip(struct stg_iter *iter, uint64_t n, uint64_t *ret, struct stg_err *err)
{
    struct map *map = (struct map *)iter;
    uint64_t n_held = count_held(map), n_more = 0;
    uint64_t epoch = n_held > 0 ? first_held(map)->epoch : 0;
    int rc = 0;
    if (n < n_held || map->ended < 0) {
        rc = stg_iter_replay(iter, n, ret, err);
    } else {
        map->index += map->waiting != NULL ? records_of(map->waiting) : 0;
        clear(map);
        if (map->ended == 0)
            rc = stg_iter_skip(iter->input, n - n_held, &n_more, err);
        map->index += n_more;
        *ret = n_held + n_more;
    }
    if (n_held > 0)
        iter->dataset->jumped_epoch = epoch;
    return rc;
}

static bool map_left(struct stg_iter *iter, uint64_t most, uint64_t *ret)
{
    struct map *map = (struct map *)iter;
    *ret = 0;
    if (map->ended == 0 && !stg_iter_left(iter->input, most, ret))
        return false;
    *ret = stg_count_add(*ret, count_held(map));
    return map->ended >= 0;
}

static int map_count(struct stg_iter *iter, struct stg_extent *ret, struct stg_err *err)
{
    return stg_iter_count(iter->input, ret, err);
}

/* Results have the order of the input from then on, as records have numbers. */
static int map_seek(struct stg_iter *iter, uint64_t n, struct stg_err *err)
{
    struct map *map = (struct map *)iter;
    if (map->ended < 0) {
        if (err != NULL)
            *err = map->failure;
        return map->ended;
    }
    clear(map);
    map->deterministic = map->is_sought = true;
    map->index = n;
    map->ended = 0;
    return stg_iter_seek(iter->input, n, err);
}

static const struct stg_iter_impl map_impl = {
    .next = map_next,
    .rewind = map_rewind,
    .destroy = map_destroy,
    .skip = map_skip,
    .left = map_left,
    .left_has_errors = true,
    .count = map_count,
    .seek = map_seek,
    .is_one_to_one = true,
};

void stg_map_fuse(struct stg_iter *iter, int64_t batch_size)
{
    if (iter->impl == &map_impl)
        ((struct map *)iter)->batch_size = batch_size;
}

static int start(struct map *map, const struct threads *n_calls, struct stg_err *err)
{
    const struct stg_iter *iter = &map->iter;
    const struct stg_step *step = iter->step;
    map->last = &map->first;
    map->deterministic = stg_step_bool(step, "deterministic", true);
    int rc = stg_func_create(step, step->outputs, step->n_outputs, iter->input->schema,
                             &map->func, err);
    if (rc == 0)
        rc = stg_func_load(map->func, iter->dataset, err);
    if (rc < 0)
        return rc;
    map->n_runs = n_calls->most > 0 ? n_calls->most : 1;
    map->n_active = n_calls->first > 0 ? n_calls->first : 1;
    map->runs = calloc(map->n_runs, sizeof(struct stg_func_run *));
    if (map->runs == NULL)
        return stg_step_err(step, -STAGER_RESOURCE_EXHAUSTED, err, "out of memory");
    for (unsigned i = 0; rc == 0 && i < map->n_runs; i++)
        rc = stg_func_run_create(map->func, iter->dataset, &map->runs[i], err);
    if (rc == 0 && n_calls->most > 0) {
        rc = stg_task_pool_create(n_calls->most, step->name, &map->pool, err);
        if (rc < 0)
            stg_step_prefix(step, rc, err);
    }
    if (rc == 0 && n_calls->first < n_calls->most) {
        stg_parallelism_init(&map->parallelism, iter->dataset, step, n_calls->first, 1,
                             n_calls->most);
        map->n_active = map->parallelism.tuner.value;
        stg_task_pool_set_active(map->pool, map->n_active);
    }
    return rc;
}

static int map_create(struct stg_dataset *dataset, const struct stg_step *step,
                      const struct stg_schema *schema, struct stg_iter *input,
                      struct stg_iter **ret, struct stg_err *err)
{
    struct threads n_calls;
    int rc = parallel_calls(step, &n_calls, err);
    if (rc < 0)
        return rc;
    struct map *map =
        stg_iter_create(sizeof(*map), &map_impl, dataset, step, schema, input, err);
    if (map == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    rc = start(map, &n_calls, err);
    if (rc < 0) {
        map_destroy(&map->iter);
        return rc;
    }
    *ret = &map->iter;
    return 0;
}

const struct stg_transformation stg_map = {.name = "map",
                                           .infer = map_infer,
                                           .create = map_create,
                                           .passes_codes = true,
                                           .is_indexable = true};
