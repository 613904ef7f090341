/* SPDX-License-Identifier: Apache-2.0
 *
 * Runners: draw an element, run the stage subgraph on it straight into an extent, publish
 * it in the order of drawing. A runner reserves memory before it draws: whoever holds an
 * element can finish it, so that no runner waits for memory that a later one sits on.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/log.h"
#include "daemon/delivery.h"

/* An element with its place in the stage's output. */
struct drawn {
    struct stg_block *block;
    uint64_t sequence, pass, epoch, index;
};

uint64_t stg_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- waiting ---- */

void stg_wake_runners(struct stg_stage *stage, unsigned what)
{
    pthread_cond_broadcast(&stage->changed);
}

static bool wait_for_pass(struct stg_stage *stage)
{
    pthread_mutex_lock(&stage->lock);
    while (!stage->stopping && stage->pass_state != STG_PASS_RUNNING)
        pthread_cond_wait(&stage->changed, &stage->lock);
    bool go_on = !stage->stopping;
    pthread_mutex_unlock(&stage->lock);
    return go_on;
}

/* The loop sweeps while a runner waits, so that releases nobody rang for are seen. */
static void announce_wait(struct stg_stage *stage)
{
    if (stage->n_waiting_runners++ == 0)
        stage->config.wake(stage->config.owner);
}

static bool reserve(struct stg_stage *stage, uint32_t *ret)
{
    bool ok = false;
    pthread_mutex_lock(&stage->lock);
    uint64_t began = 0;
    while (!stage->stopping) {
        ok = stg_extent_reserve(stage->leases, stage->plan.max_batch_bytes, ret) == 0;
        if (ok)
            break;
        if (began == 0) {
            began = stg_now_ns();
            announce_wait(stage);
        }
        pthread_cond_wait(&stage->changed, &stage->lock);
    }
    if (began != 0) {
        stage->n_waiting_runners--;
        stage->wait_ns += stg_now_ns() - began;
    }
    pthread_mutex_unlock(&stage->lock);
    return ok;
}

static void unreserve(struct stg_stage *stage, uint32_t extent)
{
    pthread_mutex_lock(&stage->lock);
    stg_extent_drop(stage->leases, extent);
    stg_wake_runners(stage, STG_WAKE_ALL);
    pthread_mutex_unlock(&stage->lock);
}

/* ---- drawing ---- */

/* The dataset has no more, or failed: no runner draws again in this pass. */
static void end_drawing(struct stg_stage *stage, int rc, const struct stg_err *err)
{
    pthread_mutex_lock(&stage->lock);
    stage->pass_state = STG_PASS_DRAWN;
    stage->end_sequence = stage->draw_sequence;
    if (rc < 0 && !stage->stopping) {
        stage->failure = *err;
        stg_log(STG_LOG_ERROR, "pipeline %s: pass %" PRIu64 ": %s: %s",
                stage->config.name, stage->passes_ended, stg_status_name(rc), err->text);
        snprintf(stage->last_error, sizeof(stage->last_error), "%s: %.400s",
                 stg_status_name(rc), err->text);
    }
    stg_delivery_run(stage);
    stg_wake_runners(stage, STG_WAKE_ALL);
    pthread_mutex_unlock(&stage->lock);
}

static int open_dataset(struct stg_stage *stage, uint64_t pass, struct stg_err *err)
{
    if (stage->drawn_pass == pass)
        return 0;
    stg_dataset_destroy(stage->dataset);
    stage->dataset = NULL;
    stage->drawn_pass = pass;
    stage->draw_epoch = 0;
    stage->draw_index = 0;
    struct stg_dataset_env env = {
        .uid = stage->config.uid,
        .gid = stage->config.gid,
        .groups = stage->config.groups,
        .n_groups = stage->config.n_groups,
        .pass = pass,
        .buffer_bytes = stage->plan.buffer_bytes,
        .stopped = &stage->stopped,
    };
    return stg_dataset_create(stage->config.spec, &env, &stage->dataset, err);
}

/* True and an element, or false: the pass is over (or another runner found that out). */
static bool draw(struct stg_stage *stage, struct drawn *ret)
{
    struct stg_err err = {0};
    bool ok = false;
    pthread_mutex_lock(&stage->draw_lock);

    pthread_mutex_lock(&stage->lock);
    bool running = stage->pass_state == STG_PASS_RUNNING && !stage->stopping;
    uint64_t pass = stage->passes_ended;
    pthread_mutex_unlock(&stage->lock);
    if (!running)
        goto out;

    int rc = open_dataset(stage, pass, &err);
    struct stg_block *block = NULL;
    if (rc == 0)
        rc = stg_dataset_next(stage->dataset, &block, &err);
    if (rc != 0) {
        end_drawing(stage, rc, &err);
        goto out;
    }
    if (block->epoch != stage->draw_epoch) {
        stage->draw_epoch = block->epoch;
        stage->draw_index = 0;
    }
    *ret = (struct drawn){
        .block = block,
        .sequence = stage->draw_sequence++,
        .pass = pass,
        .epoch = stage->draw_epoch,
        .index = stage->draw_index++,
    };
    ok = true;

out:
    pthread_mutex_unlock(&stage->draw_lock);
    return ok;
}

/* ---- computing ---- */

static int sink_alloc(void *owner, size_t i, int dtype, int ndim, const int64_t *shape,
                      uint64_t string_bytes, struct stg_tensor *ret, struct stg_err *err)
{
    return stg_batch_writer_alloc(owner, (uint32_t)i, dtype, ndim, shape, string_bytes,
                                  ret, err);
}

static int sink_copy(void *owner, size_t i, const struct stg_tensor *tensor,
                     struct stg_err *err)
{
    return stg_batch_writer_copy(owner, (uint32_t)i, tensor, err);
}

/* "node columns (decode_csv): …" gets the file and line of the row to blame. */
static void add_place(struct stg_stage *stage, const struct drawn *drawn,
                      struct stg_err *err)
{
    const struct stg_block *block = drawn->block;
    if (err->row >= 0 && block->rows != NULL && err->row < block->n_rows) {
        char place[512];
        stg_provenance_text(stage->dataset, &block->rows[err->row], place, sizeof(place));
        stg_err_prefix(err, err->code, "%s", place);
    }
}

static uint64_t write_item(struct stg_stage *stage, struct stg_run *run,
                           const struct drawn *drawn, char *base, struct stg_err *err)
{
    const struct stg_block *block = drawn->block;
    uint64_t capacity = stage->plan.max_batch_bytes;
    if (block->error.code != 0) {
        *err = block->error;
        return stg_batch_write_error(base, capacity, -err->code, err->text);
    }

    struct stg_batch_writer writer;
    struct stg_sink sink = {.owner = &writer, .alloc = sink_alloc, .copy = sink_copy};
    struct stg_key key = {
        .pass = drawn->pass, .epoch = drawn->epoch, .index = drawn->index};
    int rc = stg_batch_writer_begin(&writer, base, capacity,
                                    stg_graph_boundary(stage->config.graph), err);
    if (rc == 0)
        rc = stg_run_exec(run, block->tensors, &key, &sink, NULL, err);
    if (rc == 0)
        return stg_batch_writer_seal(&writer);
    add_place(stage, drawn, err);
    return stg_batch_write_error(base, capacity, -rc, err->text);
}

static void write_coordinates(struct stg_stage *stage, const struct drawn *drawn,
                              struct stg_batch_header *header)
{
    header->generation = stage->config.generation;
    header->number = stage->config.first_number + drawn->sequence;
    header->pass = drawn->pass;
    header->epoch = drawn->epoch;
    header->index = drawn->index;
    header->n_rows = (uint64_t)drawn->block->n_rows;
}

/* ---- publishing ---- */

/* Waits for turn and room. False: the item has to go (stopping, or timed out: counted).
 */
static bool wait_for_room(struct stg_stage *stage, uint64_t sequence)
{
    while (!stage->stopping && stage->publish_next != sequence)
        pthread_cond_wait(&stage->changed, &stage->lock);
    if (stage->stopping)
        return false;
    if (stg_stage_has_room(stage))
        return true;

    uint64_t began = stg_now_ns();
    uint64_t deadline = began + stage->staged->timeout_millis * 1000000u;
    struct timespec until = {.tv_sec = (time_t)(deadline / 1000000000u),
                             .tv_nsec = (long)(deadline % 1000000000u)};
    announce_wait(stage);
    int rc = 0;
    while (!stage->stopping && !stg_stage_has_room(stage) && rc != ETIMEDOUT)
        rc = pthread_cond_timedwait(&stage->changed, &stage->lock, &until);
    stage->n_waiting_runners--;
    stage->wait_ns += stg_now_ns() - began;
    if (stage->stopping)
        return false;
    if (stg_stage_has_room(stage))
        return true;
    stage->n_dropped++;
    stage->n_skipped++;
    stage->n_timeouts++;
    stg_log(STG_LOG_WARNING,
            "pipeline %s: item %" PRIu64 " found no room for %" PRIu64
            " ms (timeout_millis) and was dropped",
            stage->config.name, stage->config.first_number + sequence,
            stage->staged->timeout_millis);
    return false;
}

/* A data set that is bad throughout must not flood the log: the first ones, then ever
 * fewer. */
static bool worth_a_line(uint64_t n)
{
    return n <= 8 || (n & (n - 1)) == 0;
}

static void note_error(struct stg_stage *stage, uint64_t number,
                       const struct stg_err *err)
{
    stage->n_errors++;
    snprintf(stage->last_error, sizeof(stage->last_error), "%s: item %" PRIu64 ": %.400s",
             stg_status_name(err->code), number, err->text);
    if (worth_a_line(stage->n_errors))
        stg_log(STG_LOG_WARNING, "pipeline %s: %s (%" PRIu64 " error items so far)",
                stage->config.name, stage->last_error, stage->n_errors);
}

/* Takes the reference on the element. */
static void publish(struct stg_stage *stage, const struct drawn *drawn, uint32_t extent,
                    uint64_t bytes, const struct stg_err *err)
{
    struct stg_batch_header *header =
        (void *)((char *)stage->arena.base + stg_extent_offset(stage->leases, extent));
    stg_block_unref(drawn->block); /* it is read: its memory need not wait for room */
    pthread_mutex_lock(&stage->lock);
    if (wait_for_room(stage, drawn->sequence)) {
        header->n_dropped = stage->n_dropped;
        stg_extent_seal(stage->leases, extent, bytes);
        if (err->code != 0)
            note_error(stage, header->number, err);
        stage->epoch = drawn->epoch;
        stg_item_publish(stage, extent,
                         &(struct stg_item){
                             .number = header->number,
                             .bytes = bytes,
                             .rows = header->n_rows,
                             .is_error = err->code != 0,
                         });
    } else {
        stg_extent_drop(stage->leases, extent);
    }
    if (stage->publish_next == drawn->sequence)
        stage->publish_next++;
    stg_delivery_run(stage);
    stg_wake_runners(stage, STG_WAKE_ALL);
    pthread_mutex_unlock(&stage->lock);
}

static void produce(struct stg_stage *stage, struct stg_run *run,
                    const struct drawn *drawn, uint32_t extent)
{
    uint64_t began = stg_now_ns();
    char *base = (char *)stage->arena.base + stg_extent_offset(stage->leases, extent);
    struct stg_err err = {0};
    uint64_t bytes = write_item(stage, run, drawn, base, &err);
    write_coordinates(stage, drawn, (struct stg_batch_header *)base);
    uint64_t busy = stg_now_ns() - began;

    pthread_mutex_lock(&stage->lock);
    stage->busy_ns += busy;
    pthread_mutex_unlock(&stage->lock);
    publish(stage, drawn, extent, bytes, &err);
}

static void leave(struct stg_stage *stage)
{
    pthread_mutex_lock(&stage->lock);
    stage->n_runners--;
    stage->config.wake(stage->config.owner);
    pthread_mutex_unlock(&stage->lock);
}

void *stg_runner_main(void *arg)
{
    struct stg_stage *stage = arg;
    struct stg_run *run = NULL;
    struct stg_err err = {0};
    int rc = stg_run_create_stage(stage->config.graph, &run, &err);
    if (rc < 0) {
        pthread_mutex_lock(&stage->draw_lock);
        end_drawing(stage, rc, &err);
        pthread_mutex_unlock(&stage->draw_lock);
    }
    while (rc == 0 && wait_for_pass(stage)) {
        uint32_t extent;
        struct drawn drawn;
        if (!reserve(stage, &extent))
            break;
        if (draw(stage, &drawn))
            produce(stage, run, &drawn, extent);
        else
            unreserve(stage, extent);
    }
    stg_run_destroy(run);
    leave(stage);
    return NULL;
}
