/* SPDX-License-Identifier: Apache-2.0
 *
 * What becomes of a finished item, in the order of pulling (or of finishing): it is
 * published, dropped for want of room, ignored, or it ends the pass. And what a waiting
 * runner waits for.
 *
 * An end has a place in the order, as an item has: what was pulled before it comes before
 * it, what was pulled after it is discarded, and of two the earlier one counts, whichever
 * was found first. So the number of runners changes nothing.
 */
#include <inttypes.h>
#include <stdio.h>

#include "daemon/stage/priv.h"
#include "daemon/stage/tap.h"

#define NS_PER_MS UINT64_C(1000000)
#define MAX_WAIT_NS (UINT64_MAX / 4)
/* So many ignored items in a row are a bad part of a file; more are a bad source, which
 * must not take a core. */
#define FREE_IN_ROW 16u
#define MAX_PAUSE_MS 10u
/* An item that takes less is not worth another thread's waking. */
#define WORTH_WAKING_NS 30000u
/* After failures of workers, so many items at most are made here before they are asked
 * again. */
#define MAX_PENALTY 63u
/* One that took long because others had the CPU does not lift the mean that far. */
#define MOST_BUSY_NS 200000u

/* ---- waiting ---- */

void stg_runner_waits(struct stg_stage *stage, uint64_t began_ns)
{
    stage->runners.n_waiting++;
    stage->runners.waits_began_ns += began_ns;
    stg_stage_sweep_on(stage);
}

void stg_runner_waited(struct stg_stage *stage, uint64_t began_ns)
{
    stage->runners.n_waiting--;
    stage->runners.waits_began_ns -= began_ns;
    stage->counts.wait_ns += stg_now_ns() - began_ns;
}

/* ---- where a pass ends ---- */

/* A data set that is bad throughout must not flood the log: the first ones, then ever
 * fewer. */
static bool worth_a_line(uint64_t n)
{
    return n <= 8 || (n & (n - 1)) == 0;
}

/* Nothing with this sequence or a later one is published in this pass. err NULL: as an
 * end of data. */
static void propose_end(struct stg_stage *stage, uint64_t sequence,
                        const struct stg_err *err)
{
    struct stg_runners *runners = &stage->runners;
    if (runners->end.is_set && runners->end.sequence <= sequence)
        return;
    runners->end = (struct stg_pass_end){.is_set = true, .sequence = sequence};
    if (err != NULL)
        runners->end.err = *err;
    if (stage->pass.state != STG_PASS_RUNNING)
        return;
    stage->pass.state = STG_PASS_EXHAUSTED;
    stage->pass.end_sequence = runners->pull_sequence;
    stage->effects.wake |= STG_WAKE_PULL_ALL;
}

/* Once nothing of the pass is in hand, its end is what it is. */
static void record_failure(struct stg_stage *stage)
{
    const struct stg_err *err = &stage->runners.end.err;
    if (stage->pass.state != STG_PASS_EXHAUSTED ||
        stage->pass.publish_next != stage->pass.end_sequence || err->code == 0 ||
        stage->pass.failure.code != 0 || stage->stop.is_on)
        return;
    stage->pass.failure = *err;
    stg_stage_log(stage, STG_LOG_ERROR, "pipeline %s: pass %" PRIu64 ": %s: %s",
                  stage->config.name, stage->pass.n_ended, stg_status_name(err->code),
                  err->text);
    snprintf(stage->counts.last_error, sizeof(stage->counts.last_error), "%s: %.400s",
             stg_status_name(err->code), err->text);
}

static bool is_past_end(const struct stg_stage *stage, uint64_t sequence)
{
    const struct stg_pass_end *end = &stage->runners.end;
    return (end->is_set && sequence >= end->sequence) || stg_is_redone(stage, sequence);
}

/* ---- items that are drawn again ---- */

void stg_publish_redo(struct stg_stage *stage, uint64_t sequence,
                      const struct stg_pass_place *place)
{
    struct stg_runners *runners = &stage->runners;
    if (stg_is_redone(stage, sequence))
        return;
    runners->redo = (struct stg_redo){
        .is_on = true,
        .sequence = sequence,
        .place = sequence < runners->pull_sequence
                     ? stg_turn_of(runners, sequence)->before
                     : *place,
    };
    if (runners->end.is_set && runners->end.sequence >= sequence) {
        runners->end = (struct stg_pass_end){0};
        if (stage->pass.state == STG_PASS_EXHAUSTED)
            stage->pass.state = STG_PASS_RUNNING;
    }
    stage->effects.wake |= STG_WAKE_LOOK;
}

/* What was drawn there is out of the runners' hands. No runner pulls. */
static void finish_redo(struct stg_stage *stage)
{
    struct stg_runners *runners = &stage->runners;
    const struct stg_redo *redo = &runners->redo;
    if (!redo->is_on || runners->is_pulling ||
        stage->counts.n_in_hand != redo->sequence - stage->pass.publish_next)
        return;
    runners->pull_sequence = redo->sequence;
    runners->pull_place = redo->place;
    runners->pull_epoch = redo->place.epoch;
    runners->pull_index = redo->place.index;
    runners->has_taken = runners->taken.n > 0;
    runners->taken_walk = (struct stg_taken_walk){.set = &runners->taken};
    runners->remote.is_stale = true;
    runners->redo.is_on = false;
    stage->effects.wake |= STG_WAKE_PULL_ALL;
}

/* ---- classes of errors: CANCELLED, closed, ignored, unexpected ---- */

enum verdict { FINE, CANCELLED, CLOSED, IGNORED, UNEXPECTED };

static enum verdict classify(const struct stg_stage *stage, int code)
{
    const struct stg_staged *staged = stage->staged;
    if (code == 0)
        return FINE;
    if (code == -STAGER_CANCELLED)
        return CANCELLED;
    if ((staged->closed_codes & STG_CODE_BIT(-code)) != 0)
        return CLOSED;
    return (staged->ignored_codes & STG_CODE_BIT(-code)) != 0 ? IGNORED : UNEXPECTED;
}

void stg_error_disguise(struct stg_err *err)
{
    if (err->code != -STAGER_OUT_OF_RANGE)
        return;
    err->code = -STAGER_FAILED_PRECONDITION;
    stg_err_prefix(err, err->code, "OUT_OF_RANGE, not in closed_exception_types");
}

/* A source cannot go on after its end or its failure: to ignore that is no way on. */
static void source_failed(const struct stg_stage *stage, int rc, struct stg_err *err)
{
    bool ignored = classify(stage, err->code) == IGNORED;
    if (rc == 1)
        stg_err(err, -STAGER_FAILED_PRECONDITION,
                "end of data, not in closed_exception_types");
    else
        stg_error_disguise(err);
    if (ignored)
        stg_err_append(err, err->code,
                       " (it is in ignored_exception_types, but nothing follows the end "
                       "of the source)");
}

void stg_publish_end(struct stg_stage *stage, int rc, const struct stg_err *why)
{
    struct stg_err err = {.code = -STAGER_OUT_OF_RANGE};
    if (rc < 0)
        err = *why;
    bool closed = classify(stage, err.code) == CLOSED;
    if (closed && rc < 0)
        stg_stage_log(
            stage, STG_LOG_INFO, "pipeline %s: pass %" PRIu64 " ends with %s: %s",
            stage->config.name, stage->pass.n_ended, stg_status_name(rc), err.text);
    if (!closed)
        source_failed(stage, rc, &err);
    propose_end(stage, stage->runners.pull_sequence, closed ? NULL : &err);
    record_failure(stage);
    stg_delivery_run(stage);
}

/* ---- pulling, one at a time ---- */

static void begin_pass(struct stg_stage *stage)
{
    struct stg_runners *runners = &stage->runners;
    if (runners->begun_pass == stage->pass.n_ended)
        return;
    runners->begun_pass = stage->pass.n_ended;
    runners->end = (struct stg_pass_end){0};
    runners->n_ignored_in_pass = 0;
    runners->n_ignored_in_row = 0;
    runners->pause_until_ns = 0;
    runners->n_in_round = 0;
    runners->redo = (struct stg_redo){0};
    runners->remote.is_alone = false;
    runners->remote.alone_until = 0;
    runners->remote.penalty = 0;
}

/* Of items that take less time than a thread takes to wake, one runner makes one after
 * the other: no runner pulls while another has one in hand, and once that is published
 * its runner pulls again. */
static bool is_worth_waking(const struct stg_runners *runners)
{
    return runners->mean_busy_ns >= WORTH_WAKING_NS;
}

/* What workers make keeps no runner from pulling. A runner that asks workers goes first:
 * it only finds a place, and its worker has nothing to do meanwhile. */
static bool may_pull(const struct stg_stage *stage, bool is_remote)
{
    const struct stg_runners *runners = &stage->runners;
    if (runners->is_pulling || runners->redo.is_on)
        return false;
    return is_remote || (runners->remote.n_waiting_pull == 0 &&
                         (stage->counts.n_in_hand == runners->remote.n_in_hand ||
                          is_worth_waking(runners)));
}

bool stg_pull_take(struct stg_stage *stage, bool is_remote, uint64_t *ret_pass)
{
    struct stg_runners *runners = &stage->runners;
    bool ok = false;
    pthread_mutex_lock(&stage->lock);
    while (!stage->stop.is_on && stage->pass.state == STG_PASS_RUNNING) {
        begin_pass(stage);
        finish_redo(stage);
        uint64_t until = runners->pause_until_ns;
        bool pause = until != 0 && stg_now_ns() < until;
        ok = may_pull(stage, is_remote) && !pause;
        if (ok)
            break;
        runners->n_waiting_pull++;
        runners->remote.n_waiting_pull += is_remote;
        stg_stage_wait(stage, &runners->pull, pause ? until : 0, STG_SPAN_WAIT_PULL);
        runners->remote.n_waiting_pull -= is_remote;
        runners->n_waiting_pull--;
    }
    if (ok) {
        runners->is_pulling = true;
        *ret_pass = stage->pass.n_ended;
    }
    stg_stage_commit(stage);
    return ok;
}

void stg_pull_pass_on(struct stg_stage *stage, bool leaves)
{
    struct stg_runners *runners = &stage->runners;
    if (runners->n_waiting_pull == 0 || runners->is_pulling)
        return;
    if (runners->remote.n_waiting_pull > 0) /* the caller may not pull before them */
        stage->effects.wake |= STG_WAKE_PULL_ALL;
    else if (leaves || is_worth_waking(runners))
        stage->effects.wake |= STG_WAKE_PULL;
}

/* ---- ignored items ---- */

static void pause_pulling(struct stg_runners *runners)
{
    uint32_t more = runners->n_ignored_in_row - FREE_IN_ROW;
    uint64_t millis = more > 4 ? MAX_PAUSE_MS : UINT64_C(1) << (more - 1);
    runners->pause_until_ns =
        stg_now_ns() + (millis < MAX_PAUSE_MS ? millis : MAX_PAUSE_MS) * NS_PER_MS;
}

/* The item is left out and counted; one more than max_ignored is where the pass ends.
 * Returns whether it was left out. */
static bool ignore(struct stg_stage *stage, const struct stg_work *work)
{
    struct stg_runners *runners = &stage->runners;
    if (runners->n_ignored_in_pass >= stage->staged->max_ignored) {
        struct stg_err err = work->err;
        stg_error_disguise(&err);
        stg_err_prefix(&err, err.code,
                       "more than max_ignored %" PRIu64
                       " items of this pass had errors of ignored_exception_types; the "
                       "last one",
                       stage->staged->max_ignored);
        propose_end(stage, work->sequence, &err);
        return false;
    }
    runners->n_ignored_in_pass++;
    if (++runners->n_ignored_in_row > FREE_IN_ROW)
        pause_pulling(runners);
    stage->counts.n_ignored++;
    stage->buffer.n_skipped++;
    snprintf(stage->counts.last_error, sizeof(stage->counts.last_error),
             "%s: item %" PRIu64 " was ignored: %.400s", stg_status_name(work->err.code),
             stage->pass.next_number, work->err.text);
    if (worth_a_line(stage->counts.n_ignored))
        stg_stage_log(stage, STG_LOG_WARNING,
                      "pipeline %s: %s (%" PRIu64 " ignored so far)", stage->config.name,
                      stage->counts.last_error, stage->counts.n_ignored);
    stage->pass.next_number++;
    return true;
}

static void end_row_of_ignored(struct stg_stage *stage)
{
    struct stg_runners *runners = &stage->runners;
    runners->n_ignored_in_row = 0;
    if (runners->pause_until_ns != 0 && runners->n_waiting_pull > 0)
        stage->effects.wake |= STG_WAKE_PULL_ALL;
    runners->pause_until_ns = 0;
}

/* ---- turn and room ---- */

static bool wait_for_turn(struct stg_stage *stage, uint64_t key, uint64_t sequence)
{
    struct stg_turn *turn = stg_turn_of(&stage->runners, key);
    while (!stage->stop.is_on && stage->pass.publish_next != key &&
           !stg_is_redone(stage, sequence)) {
        stg_pull_pass_on(stage, false);
        turn->is_waiting = true;
        stg_stage_wait(stage, &turn->cond, 0, STG_SPAN_WAIT_TURN);
        turn->is_waiting = false;
    }
    return !stage->stop.is_on && !stg_is_redone(stage, sequence);
}

/* timeout_millis is over. Returns whether the item has to go. */
static bool time_is_over(struct stg_stage *stage)
{
    const struct stg_staged *staged = stage->staged;
    enum stg_on_timeout policy = staged->on_timeout;
    if (stage->config.replays)
        return false;
    if (policy == STG_ON_TIMEOUT_EVICT && stage->config.delivery == STG_DELIVERY_SPLIT)
        policy = STG_ON_TIMEOUT_WAIT; /* a private run of a pipeline that is not split */
    stage->counts.n_timeouts++;
    char text[256];
    snprintf(
        text, sizeof(text),
        "item %" PRIu64 " found no room for timeout_millis %" PRIu64 " and %s",
        stage->pass.next_number, staged->timeout_millis,
        policy == STG_ON_TIMEOUT_DROP
            ? "was dropped; `status` counts all that are; on_timeout: wait drops none"
        : policy == STG_ON_TIMEOUT_WAIT ? "waits on"
                                        : "this client, the slowest, is detached");
    if (policy == STG_ON_TIMEOUT_EVICT)
        stg_stage_evict_slowest(stage, text);
    else if (policy == STG_ON_TIMEOUT_DROP && stage->counts.n_dropped == 0)
        stg_stage_log(stage, STG_LOG_WARNING, "pipeline %s: %s", stage->config.name,
                      text);
    else if (policy == STG_ON_TIMEOUT_WAIT && worth_a_line(stage->counts.n_timeouts))
        stg_stage_log(stage, STG_LOG_WARNING,
                      "pipeline %s: %s (%" PRIu64 " timeouts so far)", stage->config.name,
                      text, stage->counts.n_timeouts);
    return policy == STG_ON_TIMEOUT_DROP;
}

enum room { ROOM, NO_ROOM, NO_NEED };

/* The time that counts is that with a client attached: a pause without one is none of the
 * item's doing. */
static enum room wait_for_room(struct stg_stage *stage, uint64_t key, uint64_t sequence)
{
    struct stg_runners *runners = &stage->runners;
    struct stg_turn *turn = stg_turn_of(&stage->runners, key);
    uint64_t millis = stage->staged->timeout_millis;
    uint64_t limit = millis < MAX_WAIT_NS / NS_PER_MS ? millis * NS_PER_MS : MAX_WAIT_NS;
    uint64_t left = limit;
    for (;;) {
        if (stage->stop.is_on || is_past_end(stage, sequence))
            return NO_NEED;
        if (stg_buffer_has_room(&stage->buffer))
            return ROOM;
        if (left == 0 && time_is_over(stage))
            return NO_ROOM;
        if (left == 0) {
            left = limit;
            continue;
        }
        stg_pull_pass_on(stage, false);
        uint64_t since = stg_now_ns();
        runners->clock_runs = stage->members.n_attached > 0;
        bool runs = runners->clock_runs;
        turn->is_waiting = true;
        stg_stage_wait(stage, &turn->cond, runs ? since + left : 0, STG_SPAN_WAIT_ROOM);
        turn->is_waiting = false;
        uint64_t spent = runs ? stg_now_ns() - since : 0;
        left = spent < left ? left - spent : 0;
    }
}

static enum room find_room(struct stg_stage *stage, uint64_t key, uint64_t sequence)
{
    if (stg_buffer_has_room(&stage->buffer))
        return ROOM;
    uint64_t began = stg_now_ns();
    stg_runner_waits(stage, began);
    enum room room = wait_for_room(stage, key, sequence);
    stg_runner_waited(stage, began);
    return room;
}

/* ---- publishing ---- */

static void note_error(struct stg_stage *stage, uint64_t number,
                       const struct stg_err *err)
{
    stage->counts.n_errors++;
    stage->counts.errors[-err->code % STG_N_CODES]++;
    snprintf(stage->counts.last_error, sizeof(stage->counts.last_error),
             "%s: item %" PRIu64 ": %.400s", stg_status_name(err->code), number,
             err->text);
    if (worth_a_line(stage->counts.n_errors))
        stg_stage_log(
            stage, STG_LOG_WARNING, "pipeline %s: %s (%" PRIu64 " error items so far)",
            stage->config.name, stage->counts.last_error, stage->counts.n_errors);
}

static void trace_publish(const struct stg_stage *stage, uint64_t began_ns,
                          uint64_t number, uint64_t bytes)
{
    uint64_t kib = (bytes + 1023) / 1024;
    stg_trace_add(
        stage->config.trace,
        &(struct stg_trace_span){.begin_ns = began_ns,
                                 .end_ns = stg_now_ns(),
                                 .number = number,
                                 .value = kib < UINT32_MAX ? (uint32_t)kib : UINT32_MAX,
                                 .kind = STG_SPAN_PUBLISH});
}

/* Returns the place before an item; under round_robin before its round. Of several
 * clients of a split, the one that takes an item also takes those before it that were
 * dropped or ignored. */
static struct stg_pass_place place_before(struct stg_stage *stage,
                                          const struct stg_work *work)
{
    struct stg_runners *runners = &stage->runners;
    if (stg_stage_is_shared(stage) && stage->staged->deterministic)
        return stage->last_place;
    if (stage->buffer.round_items == 1)
        return work->before;
    if (runners->n_in_round == 0)
        runners->round_base = work->before;
    if (work->err.code == 0)
        runners->n_in_round = (runners->n_in_round + 1) % stage->buffer.round_items;
    return runners->round_base;
}

/* Returns its number in the pass. */
static uint64_t place_of(const struct stg_work *work)
{
    return work->after.items - 1;
}

static void put(struct stg_stage *stage, const struct stg_work *work)
{
    struct stg_batch_header *header = stg_stage_extent(stage, work->extent);
    bool is_error = work->err.code != 0;
    uint64_t began = stg_trace_begin(stage->config.trace);
    header->number = stage->pass.next_number++;
    stage->counts.published_ns = stg_now_ns();
    header->n_dropped = stage->buffer.n_skipped;
    bool is_carried = is_error && stage->runners.n_in_round > 0;
    header->before = place_before(stage, work);
    stg_extent_seal(stage->buffer.leases, work->extent, work->bytes);
    if (is_error)
        note_error(stage, header->number, &work->err);
    stage->pass.epoch = work->epoch;
    stage->last_place = work->after;
    stg_item_publish(&stage->buffer, work->extent,
                     &(struct stg_item){
                         .number = header->number,
                         .place = place_of(work),
                         .hash = work->hash,
                         .bytes = work->bytes,
                         .rows = header->n_rows,
                         .pass = header->pass,
                         .data = header->data,
                         .is_error = is_error,
                         .is_carried = is_carried,
                         .before = header->before,
                         .after = work->after,
                         .partition = work->partition,
                         .device = work->device,
                         .tag = work->tag,
                         .skipped = stage->buffer.n_skipped,
                     });
    stg_audit_published(stage, &stage->buffer.items[work->extent]);
    if (!is_error)
        stg_tap_show(stage->config.tap, header);
    stg_audit_tick(stage, stage->counts.published_ns);
    if (began != 0)
        trace_publish(stage, began, header->number, work->bytes);
}

/* Counts the item for every attached client: under split it is not known which client
 * would have got it. */
static void count_dropped(struct stg_stage *stage, const struct stg_work *work)
{
    const struct stg_batch_header *header = stg_stage_extent(stage, work->extent);
    stage->counts.n_dropped++;
    stage->counts.n_dropped_rows += header->n_rows;
    stage->buffer.n_skipped++;
    stage->pass.next_number++;
    for (struct stg_client *c = stage->members.clients; c != NULL; c = c->next) {
        if (c->state == STG_CLIENT_ATTACHED)
            stg_client_drop(c, header->n_rows);
    }
}

static void discard(struct stg_stage *stage, const struct stg_work *work)
{
    stg_extent_drop(stage->buffer.leases, work->extent);
    stage->effects.wake |= STG_WAKE_MEMORY;
}

/* A state counts it as delivered: its client had it before. */
static bool was_delivered(struct stg_stage *stage, const struct stg_work *work)
{
    bool is = work->err.code != 0 && stage->runners.n_errors_delivered > 0;
    stage->runners.n_errors_delivered -= is;
    return is;
}

/* Its turn has come. */
static void resolve(struct stg_stage *stage, const struct stg_work *work, uint64_t key,
                    enum verdict verdict)
{
    enum room room = NO_NEED;
    bool is_skipped = false;
    if (is_past_end(stage, work->sequence)) {
        stage->counts.n_discarded++;
    } else if (verdict == IGNORED) {
        is_skipped = ignore(stage, work);
        stage->counts.n_discarded += !is_skipped;
    } else if (was_delivered(stage, work)) {
        is_skipped = true;
        stage->counts.n_discarded++;
    } else {
        end_row_of_ignored(stage);
        room = find_room(stage, key, work->sequence);
        stage->counts.n_discarded += room == NO_NEED;
    }
    if (room == ROOM) {
        put(stage, work);
        return;
    }
    if (room == NO_ROOM)
        count_dropped(stage, work);
    if (is_skipped || room == NO_ROOM)
        stg_audit_skipped(stage, work->pass, place_of(work));
    discard(stage, work);
}

static void note_busy(struct stg_runners *runners, uint64_t busy_ns)
{
    busy_ns = busy_ns < MOST_BUSY_NS ? busy_ns : MOST_BUSY_NS;
    runners->mean_busy_ns += busy_ns / 8 - runners->mean_busy_ns / 8;
}

static void note_remote(struct stg_remote_part *remote)
{
    remote->penalty /= 2;
    remote->n_published++;
}

static void note_mean(uint64_t *mean_ns, uint64_t ns)
{
    *mean_ns = *mean_ns == 0 ? ns : *mean_ns - *mean_ns / 8 + ns / 8;
}

static void note_local(struct stg_remote_part *remote, const struct stg_work *work)
{
    if (remote->workers == NULL)
        return;
    remote->n_local++;
    remote->local_cpu_ns += work->cpu_ns;
    note_mean(&remote->mean_item_ns, work->busy_ns + work->pull_ns);
    note_mean(&remote->mean_pull_ns, work->pull_ns);
}

/* The work is out of the runner's hands. */
static void leave_hand(struct stg_stage *stage, const struct stg_work *work)
{
    stage->counts.n_in_hand--;
    stage->runners.remote.n_in_hand -= work->is_remote;
    if (work->is_remote || stage->runners.redo.is_on)
        stage->effects.wake |= STG_WAKE_PULL_ALL;
}

void stg_publish_failed(struct stg_stage *stage, const struct stg_work *work)
{
    struct stg_remote_part *remote = &stage->runners.remote;
    pthread_mutex_lock(&stage->lock);
    if (!stage->stop.is_on && !stg_is_redone(stage, work->sequence)) {
        remote->penalty =
            remote->penalty < MAX_PENALTY ? 2 * remote->penalty + 1 : remote->penalty;
        remote->alone_until = work->sequence + remote->penalty;
        remote->n_redone++;
        stg_publish_redo(stage, work->sequence, &work->before);
    }
    stage->counts.n_discarded++;
    discard(stage, work);
    stg_feed_set_unref(work->feeds);
    stg_stage_partition_unref(work->pulled_partition);
    leave_hand(stage, work);
    stg_delivery_run(stage);
    stg_stage_commit(stage);
}

void stg_publish(struct stg_stage *stage, const struct stg_work *work)
{
    enum verdict verdict = classify(stage, work->err.code);
    pthread_mutex_lock(&stage->lock);
    struct stg_runners *runners = &stage->runners;
    stage->counts.busy_ns += work->busy_ns;
    if (work->is_remote) {
        note_remote(&runners->remote);
    } else {
        note_busy(runners, work->busy_ns);
        note_local(&runners->remote, work);
    }
    stage->counts.pull_ns += work->pull_ns;
    if (work->pull_cpu_ns != 0) {
        stage->counts.sampled_pull_ns += work->pull_ns;
        stage->counts.sampled_cpu_ns += work->pull_cpu_ns;
    }
    uint64_t key = work->sequence;
    if (!stage->staged->deterministic)
        key = runners->finish_next++;
    bool is_redone = stg_is_redone(stage, work->sequence);
    if (verdict == CLOSED && !is_past_end(stage, work->sequence))
        stg_stage_log(stage, STG_LOG_INFO,
                      "pipeline %s: pass %" PRIu64 " ends with %s: %s",
                      stage->config.name, stage->pass.n_ended,
                      stg_status_name(work->err.code), work->err.text);
    if ((verdict == CLOSED || verdict == CANCELLED) && !is_redone)
        propose_end(stage, work->sequence, verdict == CLOSED ? NULL : &work->err);
    if (wait_for_turn(stage, key, work->sequence)) {
        resolve(stage, work, key, verdict);
    } else {
        stage->counts.n_discarded++;
        discard(stage, work);
    }
    stg_feed_set_unref(work->feeds);
    stg_stage_partition_unref(work->partition);
    stage->boundary.n_own_partitions += work->partition_failed;
    leave_hand(stage, work);
    if (stage->pass.publish_next == key && !stg_is_redone(stage, work->sequence))
        stage->pass.publish_next++;
    if (work->is_remote)
        stage->effects.events.has_changed = true;
    else
        stage->effects.events.published = work;
    record_failure(stage);
    stg_delivery_run(stage);
    stage->effects.wake |= STG_WAKE_TURN;
    stg_stage_commit(stage);
}
