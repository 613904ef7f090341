/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of a stage: its parts, and what the files of this folder offer each other. The
 * lock guards all fields unless they say otherwise.
 */
#ifndef STG_DAEMON_STAGE_PRIV_H
#define STG_DAEMON_STAGE_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/clock.h"
#include "core/ring.h"
#include "daemon/autotune/measure.h"
#include "daemon/autotune/tune.h"
#include "daemon/dataset/activity.h"
#include "daemon/dataset/dataset.h"
#include "daemon/dataset/tuning.h"
#include "daemon/gpu/twin.h"
#include "daemon/host/pool.h"
#include "daemon/placement/partitioner.h"
#include "daemon/stage/buffer.h"
#include "daemon/stage/commit.h"
#include "daemon/stage/cut.h"
#include "daemon/stage/effects.h"
#include "daemon/stage/feed.h"
#include "daemon/stage/policy.h"
#include "daemon/stage/stage.h"
#include "ops/exec/run.h"

#define STG_HOLDER_BYTES 224
/* One item in so many is looked at closely: a prime, so that what comes back every few
 * items is met in all its places. */
#define STG_SAMPLE_EVERY 13u

/* Where the pass ends before the data set does, or with more than an end. */
struct stg_pass_end {
    bool is_set;
    uint64_t sequence;  /* no item with this sequence or a later one is published */
    struct stg_err err; /* code 0: as an end of data */
};

/* Where a runner waits for its turn, and then for room. */
struct stg_turn {
    pthread_cond_t cond;
    bool is_waiting;
};

/* What belongs to the runners: produce.c, publish.c. Each has at most one item in hand.
 * The keys of items in hand (their sequence; without `deterministic`, their place among
 * those that are finished) are contiguous from publish_next on, so that slot key % n of
 * `turns` is one runner's. */
struct stg_runners {
    struct stg_runner *all;
    uint32_t n_started;
    uint32_t n_alive;
    uint32_t n_active;         /* the first so many work, the others rest */
    struct stg_pool_user pool; /* its pool NULL: runners work on their own threads */
    struct stg_turn *turns;    /* one a runner */
    uint32_t n_turns;
    pthread_cond_t memory; /* an extent may be free */
    pthread_cond_t pass;   /* pass_state is RUNNING */
    pthread_cond_t draw;   /* nobody draws */
    uint32_t n_waiting_memory, n_waiting_pass, n_waiting_draw;
    uint32_t n_waiting;      /* for room or memory: the loop sweeps meanwhile */
    uint64_t waits_began_ns; /* the sum of when they began to */
    bool clock_runs;         /* the one whose turn it is counts its time */
    uint64_t mean_busy_ns;   /* of the last few items */
    uint32_t n_calling;      /* a worker's function */
    uint64_t calls_began_ns; /* the sum of when they began to */

    /* Of whoever set is_drawing, without the lock. */
    bool is_drawing;
    struct stg_dataset *dataset;
    uint64_t draw_epoch, draw_index;
    uint64_t drawn_pass;     /* the pass that `dataset` is of; UINT64_MAX: none */
    uint64_t n_ignored_seen; /* elements that `dataset` left out, and that are counted */
    uint64_t n_draws;
    _Atomic uint64_t draw_began_ns; /* any thread may look; 0: nobody draws */

    uint64_t draw_sequence; /* of the next item drawn */
    uint64_t finish_next;   /* items finished, when not deterministic */
    uint64_t begun_pass;    /* what follows is of this pass */
    struct stg_pass_end end;
    uint64_t n_ignored_in_pass;
    uint32_t n_ignored_in_row;
    uint64_t pause_until_ns; /* too many were ignored in a row: nobody draws */
};

struct stg_timeouts {
    uint64_t first_attach_ns;
    uint64_t asked_ns; /* since when some ask for a pass and some do not; or 0 */
};

struct stg_stop {
    bool is_on;  /* runners leave, then `words` */
    bool drains; /* first, what is published is still delivered */
    struct stg_err words;
    _Atomic int flag; /* for the dataset: no lock */
};

/* What is made of the next item drawn. */
struct stg_boundary {
    struct stg_feed_set *feeds; /* NULL: as the file says */
    struct stg_stage_cut *cut;  /* NULL: the pipeline's own */
    uint64_t n_cuts;            /* ever */
    bool *chosen; /* smart_stage auto: nodes that are to move, where they may; or NULL */
    uint64_t n_own_cuts; /* items made by the pipeline's own cut, because theirs failed */
};

/* Of the batches. */
struct stg_stage_memory {
    struct stg_segment arena;
    struct stg_twin *twin; /* of it, on a GPU; NULL: there shall be none. No lock */
    char holder[STG_HOLDER_BYTES]; /* on the budget */
    uint64_t budget_bytes;
    uint64_t *backed; /* of a sparse arena: memory of each slot. A runner that has the
                         slot's extent reads it without the lock */
};

/* They see events and propose numbers and partitions: observe.c. */
struct stg_observers {
    struct stg_activity activity; /* of the dataset: a lock of its own */
    struct stg_tune tune;
    struct stg_measure *measure; /* NULL once it was taken (stg_stage_take_measure) */
    struct stg_partitioner *partitioner; /* the loop's; NULL: not smart_stage auto */
};

struct stg_counts {
    /* made = published + dropped + ignored + in_hand + discarded, whenever the lock is
     * free. */
    uint64_t n_made, n_dropped, n_ignored, n_in_hand, n_discarded;
    uint64_t n_incomplete;
    uint64_t n_assigned, n_released, n_redelivered, n_evicted, n_errors, n_timeouts;
    uint64_t published_ns;       /* when the last item was; 0: none */
    uint64_t n_dropped_rows;     /* in the items that n_dropped counts */
    uint64_t n_ignored_elements; /* by the steps ignore_errors, in all passes */
    uint64_t wait_ns, busy_ns, draw_ns;
    uint64_t sampled_draw_ns,
        sampled_cpu_ns;                /* of the draws whose CPU time is measured */
    uint64_t call_ns;                  /* of busy_ns; those that go on are not in it */
    struct stg_trace_label call_label; /* of the step py_function */
    char last_error[512];
};

struct stg_stage {
    struct stg_stage_config config;
    struct stg_stage_plan plan;
    const struct stg_staged *staged;
    const struct stg_policy *policy;

    pthread_mutex_t lock; /* of all that follows */
    struct stg_stage_memory memory;
    struct stg_buffer buffer;
    struct stg_membership members;
    struct stg_pass pass;
    struct stg_stop stop;
    struct stg_runners runners;
    struct stg_boundary boundary;
    struct stg_timeouts timeouts;
    struct stg_observers observers;
    struct stg_counts counts;
    struct stg_effects effects;
    struct stg_assignments step; /* that the policy emitted last */
};

/* What the policy decides from. Lock held. */
static inline struct stg_delivery_view stg_view_of(const struct stg_stage *stage)
{
    return (struct stg_delivery_view){.buffer = &stage->buffer,
                                      .members = &stage->members,
                                      .pass = &stage->pass,
                                      .cuts = stage->config.cuts,
                                      .num_clients = stage->config.num_clients};
}

static inline bool stg_stage_has_more(const struct stg_stage *stage,
                                      const struct stg_client *client)
{
    struct stg_delivery_view view = stg_view_of(stage);
    return stage->policy->has_more(&view, client);
}

static inline bool stg_stage_holds_up(const struct stg_stage *stage,
                                      const struct stg_client *client)
{
    struct stg_delivery_view view = stg_view_of(stage);
    return stage->policy->holds_up(&view, client);
}

/* Something waits for a client: makes the loop look at all of them regularly. Lock held.
 */
static inline void stg_stage_sweep_on(struct stg_stage *stage)
{
    stage->effects.asks_loop |= !stage->effects.is_swept;
    stage->effects.is_swept = true;
}

static inline struct stg_turn *stg_turn_of(struct stg_runners *runners, uint64_t key)
{
    return &runners->turns[key % runners->n_turns];
}

/* ---- produce.c ---- */

/* A batch in a runner's hand, from drawing to publishing. */
struct stg_work {
    struct stg_runner *runner;

    /* The element, and its place in the stage's output. */
    bool is_drawn;
    struct stg_block *block; /* one reference, until it is made */
    uint64_t sequence, pass, epoch, index;
    struct stg_feed_set *feeds;      /* one reference */
    struct stg_stage_cut *drawn_cut; /* in force when it was drawn; one reference, until
                                        it is made */
    uint64_t draw_ns, draw_cpu_ns;   /* cpu 0: not measured */

    /* What was made of it. */
    uint32_t extent;
    uint32_t device; /* as of an item */
    uint64_t bytes;
    struct stg_err err;            /* code != 0: what is in the extent is this error */
    struct stg_stage_cut *cut;     /* that it was made by; one reference */
    bool cut_failed;               /* it was made by the pipeline's own */
    uint64_t busy_ns;              /* without drawing */
    uint64_t cpu_ns;               /* of all of it; for the tuners alone, else 0 */
    struct stg_profiler *profiler; /* of the runner */
};

/* Makes what runners wait on, then starts them. On failure some may run: stop and join.
 */
int stg_runners_init(struct stg_stage *stage, struct stg_err *err);
int stg_runners_start(struct stg_stage *stage, struct stg_err *err);

/* Joins those that were started, frees everything. Only after a stop. */
void stg_runners_finish(struct stg_stage *stage);

/* What the data set and the writers have goes. All runners have ended. */
void stg_runners_shed(struct stg_stage *stage);

/* ---- memory.c ---- */

void stg_stage_name_holder(const struct stg_stage_config *config,
                           char ret[STG_HOLDER_BYTES]);

/* for_device: not sealed yet. Errors as stg_segment_create. */
int stg_stage_make_arena(struct stg_stage *stage, bool for_device, struct stg_err *err);

/* Bytes of the arena that have memory. Lock held. */
uint64_t stg_stage_arena_bytes(const struct stg_stage *stage);

/* Where the dataset's buffers come from as they grow; NULL: all of them are reserved. */
const struct stg_fund *stg_stage_fund(struct stg_stage *stage, struct stg_fund *ret);

/* Which memory_budget gives the dataset more, and the daemon's where it is less. */
struct stg_adviser stg_stage_adviser(struct stg_stage *stage);

/* Appends what to raise, and to what, for a batch of so many bytes. */
void stg_stage_advise_batch(const struct stg_stage *stage, uint64_t bytes,
                            struct stg_err *err);

/* A place in the arena for one batch. */
struct stg_extent_room {
    struct stg_stage *stage;
    uint64_t offset;
};

/* What is there for a batch at base, and how it grows. *room must outlive *ret. */
uint64_t stg_stage_extent_room(struct stg_stage *stage, const char *base,
                               struct stg_extent_room *room, struct stg_batch_room *ret);

/* ---- observe.c ---- */

/* After a failure, too, call finish. */
int stg_observers_init(struct stg_stage *stage, struct stg_err *err);
void stg_observers_finish(struct stg_observers *observers);

/* Brings observers.measure->load up to this moment. Lock held. */
void stg_stage_measure(struct stg_stage *stage);

/* Passes the recorded events to the observers, and applies the numbers that they propose.
 * Of commit alone. Lock held. */
void stg_observe(struct stg_stage *stage);

/* ---- trace.c ---- */

/* Without the lock: an item was made, since then; and a run's nodes are spans from now
 * on, for as long as both live. */
void stg_trace_make(const struct stg_stage *stage, uint64_t began_ns, int64_t n_rows);
void stg_trace_run(struct stg_stage *stage, struct stg_run *run,
                   struct stg_run_watcher *watcher);

/* The rest with the lock held. */

/* Begins and ends asking the client for spans, and takes in those that it left. */
void stg_client_trace(struct stg_stage *stage, struct stg_client *client);

/* An item was given to the client, or came back. */
void stg_trace_client_item(const struct stg_stage *stage, const struct stg_client *client,
                           enum stg_span_kind kind, uint64_t number);

/* ---- write.c: an element becomes a batch at rest ---- */

/* What runs the stage subgraph of one cut. */
struct stg_executor {
    struct stg_stage_cut *cut; /* one reference; NULL: the pipeline's own */
    struct stg_run *run;
    struct stg_profiler profiler;   /* of `run` */
    struct stg_run_watcher watcher; /* likewise */
    uint64_t feed_version;          /* that `run` was given */
};

/* Of one runner. */
struct stg_writer {
    struct stg_stage *stage;
    struct stg_executor own;
    struct stg_executor other; /* of the last cut that was not; run NULL: there is none */
    struct stg_tensor *given;  /* by a step py_function; NULL: there is none */
};

/* Zero-initialise; finish is allowed on zero. RESOURCE_EXHAUSTED. */
int stg_writer_init(struct stg_stage *stage, struct stg_writer *writer,
                    struct stg_err *err);
void stg_writer_finish(struct stg_writer *writer);

/* Fills the extent at base with the batch or with its error; returns its bytes. Of *work
 * err, profiler, cut and cut_failed are set; the last two begin as none. */
uint64_t stg_writer_write(struct stg_writer *writer, struct stg_work *work, char *base);

/* The code that a client sees of an item's or a source's error: OUT_OF_RANGE, which would
 * look like an end, becomes FAILED_PRECONDITION, and the text says so. */
void stg_error_disguise(struct stg_err *err);

/* ---- publish.c ---- */

/* An item is finished: waits for its turn and for room, then it is published, dropped,
 * ignored, or ends the pass. Takes the extent. Takes the lock itself. */
void stg_publish(struct stg_stage *stage, const struct stg_work *work);

/* The source has no more (rc 1) or failed (rc negative, err). Lock held. */
void stg_publish_end(struct stg_stage *stage, int rc, const struct stg_err *err);

/* Waits until nobody else draws, nor has to pause, nor has an item in hand that is not
 * worth another runner's waking, and takes the data set for this thread. False: the pass
 * is over, or stopping. Takes the lock itself. */
bool stg_draw_take(struct stg_stage *stage, uint64_t *ret_pass);

/* This runner has given the data set back, or is about to wait: another one may draw.
 * leaves: it must, because this one has nothing in hand and may not come back soon. Lock
 * held. */
void stg_draw_pass_on(struct stg_stage *stage, bool leaves);

/* A runner waits for room or memory since then; it waits no longer. The loop sweeps
 * meanwhile, so that releases nobody rang for are seen. Lock held. */
void stg_runner_waits(struct stg_stage *stage, uint64_t began_ns);
void stg_runner_waited(struct stg_stage *stage, uint64_t began_ns);

#endif
