/* SPDX-License-Identifier: Apache-2.0
 *
 * Internal to daemon/stage: the parts of a stage, and the functions that the files of
 * this folder share. The lock guards all fields unless a comment excepts them.
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
#include "daemon/dataset/files/digest.h"
#include "daemon/dataset/tuning.h"
#include "daemon/gpu/mirror.h"
#include "daemon/host/pool.h"
#include "daemon/placement/partitioner.h"
#include "daemon/remote_stage/remote.h"
#include "daemon/stage/buffer.h"
#include "daemon/stage/effects.h"
#include "daemon/stage/feed.h"
#include "daemon/stage/partition.h"
#include "daemon/stage/policy.h"
#include "daemon/stage/stage.h"
#include "daemon/stage/totals.h"
#include "ops/exec/run.h"

#define STG_HOLDER_BYTES 224
/* The stage measures one item in this many in detail. A prime, so that the samples meet
 * every phase of a pattern that repeats every few items. */
#define STG_SAMPLE_EVERY 13u

/* The end of a pass that ends before the dataset does, or with an error. */
struct stg_pass_end {
    bool is_set;
    uint64_t sequence;  /* no item with this sequence or a later one is published */
    struct stg_err err; /* code 0: as an end of data */
};

/* Where a runner waits for its turn, and then for room. */
struct stg_turn {
    pthread_cond_t cond;
    bool is_waiting;
    struct stg_pass_place before; /* the item in hand */
};

/* Items are drawn again from a place on, once those that were drawn there are discarded.
 */
struct stg_redo {
    bool is_on;
    uint64_t sequence; /* no item with this sequence or a later one is published */
    struct stg_pass_place place;
};

/* What runners ask stage workers for: remote.c. */
struct stg_remote_part {
    struct stg_remote *workers; /* NULL: there are none; it has a lock */
    pthread_cond_t may_ask;
    _Atomic bool is_alone;   /* no worker is asked in this pass any more */
    uint64_t alone_until;    /* nor before the item with this sequence */
    uint32_t penalty;        /* items to be made here after the next failure */
    uint32_t n_asking;       /* runners that ask, or are about to */
    uint32_t n_waiting_pull; /* runners that ask workers, and wait to pull */
    uint32_t n_in_hand;
    uint64_t n_published, n_redone, stall_ns;
    uint64_t n_local, local_cpu_ns;      /* items made here */
    uint64_t mean_item_ns, mean_pull_ns; /* of local runners, for an item */

    /* Of the runner that set is_pulling, without the lock. */
    struct stg_dataset *scout; /* finds the places of items, and reads none; or NULL */
    uint64_t pass;             /* that it is of */
    bool is_stale;             /* it is beyond the place */
    char digest[STG_DIGEST_BYTES]; /* of the pass */
    uint64_t deal_first;           /* likewise: the record at which hosts divide it */
};

/* The state of the runners: runner.c, publish.c. Each has at most one item in hand.
 * The keys of items in hand (their sequence; without `deterministic`, their place among
 * those that are finished) are contiguous from publish_next on, so that slot key % n of
 * `turns` is one runner's. */
struct stg_runners {
    struct stg_runner *all;
    uint32_t n_started;
    uint32_t n_alive;
    uint32_t n_active;         /* the first n_active work, the others rest */
    struct stg_pool_user pool; /* its pool NULL: runners work on their own threads */
    struct stg_turn *turns;    /* one a runner */
    uint32_t n_turns;
    pthread_cond_t memory; /* an extent may be free */
    pthread_cond_t pass;   /* pass_state is RUNNING */
    pthread_cond_t pull;   /* no runner pulls */
    uint32_t n_waiting_memory, n_waiting_pass, n_waiting_pull;
    uint32_t n_waiting;      /* for room or memory: the loop sweeps meanwhile */
    uint64_t waits_began_ns; /* the sum of when they began to */
    bool clock_runs;         /* the one whose turn it is counts its time */
    uint64_t mean_busy_ns;   /* of the last few items */
    uint32_t n_calling;      /* a worker's function */
    uint64_t calls_began_ns; /* the sum of when they began to */

    /* Of the runner that set is_pulling, without the lock. */
    bool is_pulling;
    struct stg_dataset *dataset;
    uint64_t pull_epoch, pull_index;
    struct stg_pass_place pull_place;  /* after the last element */
    struct stg_data_identity data;     /* of `dataset` */
    struct stg_function_caller caller; /* of `dataset`, if it calls the function */
    uint64_t pulled_pass;    /* the pass that `dataset` is of; UINT64_MAX: none */
    uint64_t n_ignored_seen; /* elements that `dataset` left out, and that are counted */
    uint64_t n_remainder_seen; /* likewise */
    uint64_t n_pulls;
    _Atomic uint64_t pull_began_ns; /* any thread may look; 0: no runner pulls */

    struct stg_redo redo;
    struct stg_remote_part remote;
    uint64_t pull_sequence; /* of the next item pulled */
    uint64_t finish_next;   /* items finished, when not deterministic */
    uint64_t begun_pass;    /* what follows is of this pass */
    struct stg_pass_end end;
    uint64_t n_ignored_in_pass;
    uint32_t n_ignored_in_row;
    uint64_t pause_until_ns; /* too many were ignored in a row: no runner pulls */
    uint32_t n_in_round;     /* round_robin: published items of an unfinished round */
    struct stg_pass_place round_base; /* before the first of them */
    uint64_t n_errors_delivered;      /* error items that a state counts as delivered */
    struct stg_taken taken;           /* items of this pass that a state has */
    struct stg_taken_walk taken_walk; /* of those, the range that is next */
    bool has_taken;                   /* there is one */
};

/* The run begins at a state: the first runner moves the dataset there before any client
 * attaches. */
struct stg_start {
    enum { STG_START_NONE, STG_START_PENDING, STG_START_READY, STG_START_FAILED } state;
    struct stg_err err; /* FAILED: the reason */
};

struct stg_timeouts {
    uint64_t first_attach_ns; /* when the first of the clients attached now came */
    uint64_t asked_ns;        /* since when some ask for a pass and some do not; or 0 */
};

struct stg_stop {
    bool is_on;  /* runners leave, then `words` */
    bool drains; /* first, what is published is still delivered */
    struct stg_err words;
    _Atomic int flag; /* for the dataset: no lock */
};

/* How the runners process the next item that they pull. */
struct stg_boundary {
    struct stg_feed_set *feeds;            /* NULL: as the file says */
    struct stg_stage_partition *partition; /* NULL: the pipeline's own */
    uint64_t n_partitions;                 /* ever */
    bool *chosen; /* smart_stage auto: nodes that are to move, where they may; or NULL */
    bool has_trial; /* smart_stage auto compares … */
    struct stg_stage_partition
        *trial;                /* … this with `partition`; NULL: the pipeline's own */
    uint64_t n_own_partitions; /* items made by the pipeline's own partition, because
                                  theirs failed */
};

/* The memory of the batches. */
struct stg_stage_memory {
    struct stg_segment arena;
    struct stg_mirror *mirror; /* of it, on a GPU; NULL: there shall be none. No lock */
    char holder[STG_HOLDER_BYTES]; /* on the budget */
    uint64_t budget_bytes;
    uint64_t *backed; /* of a sparse arena: memory of each slot. A runner that has the
                         slot's extent reads it without the lock */
};

/* They see events and propose numbers and partitions: observe.c. */
struct stg_observers {
    struct stg_activity activity; /* of the dataset: it has a lock */
    struct stg_tune tune;
    struct stg_measure *measure; /* NULL once it was taken (stg_stage_take_measure) */
    struct stg_partitioner *partitioner; /* the loop's; NULL: not smart_stage auto */
};

/* What is collected for the audit: audit.c. */
struct stg_stage_audit {
    struct stg_audit_news news;
    uint64_t since_ns; /* when the first of them came */
    bool is_due;       /* the loop was asked to take them */
};

struct stg_counts {
    /* made = published + dropped + ignored + in_hand + discarded, whenever the lock is
     * free. */
    uint64_t n_made, n_dropped, n_ignored, n_in_hand, n_discarded;
    uint64_t n_incomplete;
    uint64_t n_assigned, n_released, n_redelivered, n_evicted, n_errors, n_timeouts;
    uint64_t n_assigned_rows, n_assigned_bytes; /* of the items that n_assigned counts */
    uint64_t published_ns;                      /* when the last item was; 0: none */
    uint64_t n_dropped_rows;                    /* in the items that n_dropped counts */
    uint64_t errors[STG_N_CODES];               /* of n_errors */
    uint64_t n_ignored_elements;   /* by the steps ignore_errors, in all passes */
    uint64_t n_remainder_elements; /* by `shard: auto`, likewise */
    uint64_t wait_ns, busy_ns, pull_ns;
    uint64_t sampled_pull_ns,
        sampled_cpu_ns;                /* of the pulls whose CPU time is measured */
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
    struct stg_pass_place last_place; /* after the last item published */
    struct stg_stop stop;
    struct stg_start start;
    struct stg_runners runners;
    struct stg_boundary boundary;
    struct stg_timeouts timeouts;
    struct stg_observers observers;
    struct stg_counts counts;
    struct stg_stage_audit audit;
    struct stg_effects effects;
    struct stg_assignments step; /* that the policy emitted last */
};

/* Returns the state that the policy decides from. Lock held. */
static inline struct stg_delivery_view stg_view_of(const struct stg_stage *stage)
{
    return (struct stg_delivery_view){.buffer = &stage->buffer,
                                      .members = &stage->members,
                                      .pass = &stage->pass,
                                      .partitions = stage->config.partitions,
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

/* Returns the counts of the client's rank. Clients of a split that are away have ranks
 * beyond num_clients: the last one stands for these. Lock held. */
static inline struct stg_rank_counts *stg_rank_of(struct stg_stage *stage,
                                                  const struct stg_client *client)
{
    uint32_t last = stage->config.num_clients - 1;
    return &stage->members.ranks[client->rank < last ? client->rank : last];
}

/* Something waits for a client: makes the loop look at all of them regularly. Lock held.
 */
static inline void stg_stage_sweep_on(struct stg_stage *stage)
{
    stage->effects.asks_loop |= !stage->effects.is_swept;
    stage->effects.is_swept = true;
}

/* Returns whether it is a warm stage that no client has joined yet. Lock held. */
static inline bool stg_stage_is_warm(const struct stg_stage *stage)
{
    return stage->config.warm && stage->members.n_joined == 0;
}

/* The bytes of an extent, a struct stg_batch_header first. */
static inline void *stg_stage_extent(const struct stg_stage *stage, uint32_t extent)
{
    return (char *)stage->memory.arena.base +
           stg_extent_offset(stage->buffer.leases, extent);
}

/* Stops the runners; `stop.words` is set. Lock held. */
static inline void stg_stage_begin_stop(struct stg_stage *stage)
{
    stage->stop.is_on = true;
    atomic_store(&stage->stop.flag, 1);
}

static inline struct stg_turn *stg_turn_of(struct stg_runners *runners, uint64_t key)
{
    return &runners->turns[key % runners->n_turns];
}

/* ---- runner.c ---- */

/* A batch in a runner's hand, from pulling to publishing. */
struct stg_work {
    struct stg_runner *runner;

    /* The element, and its place in the stage's output. */
    bool is_pulled;
    bool is_remote;                /* a worker makes it; block is NULL */
    char digest[STG_DIGEST_BYTES]; /* then: of its pass */
    uint64_t deal_first;           /* likewise */
    struct stg_block *block;       /* one reference, until it is made */
    uint64_t sequence, pass, epoch, index;
    struct stg_pass_place before, after;
    struct stg_data_identity data;
    struct stg_feed_set *feeds;                   /* one reference */
    struct stg_stage_partition *pulled_partition; /* in force when it was pulled; one
                                        reference, until it is made */
    uint32_t tag;                                 /* of a block of a trial; 0: none */
    uint64_t pull_ns, pull_cpu_ns;                /* cpu 0: not measured */

    /* What was made of it. */
    uint32_t extent;
    uint32_t device; /* as of an item */
    uint64_t bytes, rows;
    uint64_t hash;      /* for the audit; 0 without */
    struct stg_err err; /* code != 0: what is in the extent is this error */
    struct stg_stage_partition *partition; /* that it was made by; one reference */
    bool partition_failed;                 /* it was made by the pipeline's own */
    uint64_t busy_ns;                      /* without pulling */
    uint64_t cpu_ns;               /* of all of it; for the tuners alone, else 0 */
    struct stg_profiler *profiler; /* of the runner */
};

/* Compares what the hosts of the job divide, before the first batch of the run: blocks
 * until all are there (stg_hosts_compare). The data set is open, and taken. */
int stg_stage_compare_hosts(struct stg_stage *stage, uint64_t pass, struct stg_err *err);

/* Create what the runners wait on, and start them. On failure some may run: stop and join
 * them. */
int stg_runners_init(struct stg_stage *stage, struct stg_err *err);
int stg_runners_start(struct stg_stage *stage, struct stg_err *err);

/* Joins those that were started, frees everything. Only after a stop. */
void stg_runners_finish(struct stg_stage *stage);

/* Frees the dataset and the writers. All runners must have ended. */
void stg_runners_shed(struct stg_stage *stage);

/* ---- call.c ---- */

struct stg_work_call;
struct stg_worker;

/* As stg_work_call; fills in what the stage has. Any thread, without the lock. */
int stg_stage_call(struct stg_stage *stage, struct stg_work_call *call,
                   struct stg_tensor *tensors, struct stg_worker **ret,
                   struct stg_err *err);

/* For the dataset; NULL: no step follows the function, or there is none. */
const struct stg_function_caller *stg_stage_caller(struct stg_stage *stage);

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

/* Returns the bytes available for a batch at base, and in *ret how to get more. *room
 * must outlive *ret. */
uint64_t stg_stage_extent_room(struct stg_stage *stage, const char *base,
                               struct stg_extent_room *room, struct stg_batch_room *ret);

/* ---- observe.c ---- */

/* After a failure, too, call finish. */
int stg_observers_init(struct stg_stage *stage, struct stg_err *err);
void stg_observers_finish(struct stg_observers *observers);

/* Brings observers.measure->load up to this moment. Lock held. */
void stg_stage_measure(struct stg_stage *stage);

/* Fills the rates of the window. Lock held. */
void stg_stage_show_pace(struct stg_stage *stage, struct stg_pipeline_status *ret);

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

/* Begins and ends asking the client for spans, and drains those that it left. */
void stg_client_trace(struct stg_stage *stage, struct stg_client *client);

/* An item was given to the client, or came back. */
void stg_trace_client_item(const struct stg_stage *stage, const struct stg_client *client,
                           enum stg_span_kind kind, uint64_t number);

/* ---- audit.c: nothing without config.audit_run ---- */

/* The clock shows this time: the loop may be due. */
void stg_audit_tick(struct stg_stage *stage, uint64_t now_ns);

/* A client has left: the loop is due. */
void stg_audit_hurry(struct stg_stage *stage);

/* The item was published; the one with that number in the pass will not be delivered. */
void stg_audit_published(struct stg_stage *stage, const struct stg_item *item);
void stg_audit_skipped(struct stg_stage *stage, uint64_t pass, uint64_t place);

/* The client got the item; acknowledged it. */
void stg_audit_delivered(struct stg_stage *stage, struct stg_client *client,
                         const struct stg_item *item, bool is_redelivered);
void stg_audit_acknowledged(struct stg_stage *stage, struct stg_client *client,
                            const struct stg_item *item);

/* ---- publish.c ---- */

/* An item is finished: waits for its turn and for room, then it is published, dropped,
 * ignored, or ends the pass. Takes the extent. Takes the lock itself. */
void stg_publish(struct stg_stage *stage, const struct stg_work *work);

/* The source has no more (rc 1) or failed (rc negative, err). Lock held. */
void stg_publish_end(struct stg_stage *stage, int rc, const struct stg_err *err);

/* A worker did not give the item: it and those behind it are drawn again, and made here
 * at first. Takes the extent, and the lock itself. */
void stg_publish_failed(struct stg_stage *stage, const struct stg_work *work);

/* Items from that sequence on are drawn again; place: where to, if none was drawn there.
 * Lock held. */
void stg_publish_redo(struct stg_stage *stage, uint64_t sequence,
                      const struct stg_pass_place *place);

/* Returns whether the item of that sequence is drawn again. Lock held. */
static inline bool stg_is_redone(const struct stg_stage *stage, uint64_t sequence)
{
    const struct stg_redo *redo = &stage->runners.redo;
    return redo->is_on && sequence >= redo->sequence;
}

/* Waits until no other runner pulls, has to pause, or has an item in hand that is not
 * worth another runner's waking, and takes the data set for this thread. False: the pass
 * is over, or stopping. Takes the lock itself. */
bool stg_pull_take(struct stg_stage *stage, bool is_remote, uint64_t *ret_pass);

/* This runner has given the data set back, or is about to wait: another one may pull.
 * leaves: it must, because this one has nothing in hand and may not come back soon. Lock
 * held. */
void stg_pull_pass_on(struct stg_stage *stage, bool leaves);

/* A runner waits for room or memory since then; it waits no longer. The loop sweeps
 * meanwhile, so that releases without a doorbell are seen. Lock held. */
void stg_runner_waits(struct stg_stage *stage, uint64_t began_ns);
void stg_runner_waited(struct stg_stage *stage, uint64_t began_ns);

/* ---- remote.c: stage workers; nothing without config.remote ---- */

/* After a failure, too, call finish. */
int stg_remote_part_init(struct stg_stage *stage, struct stg_err *err);
void stg_remote_part_finish(struct stg_stage *stage);

/* Waits until a worker shall be asked, or the pass is over. False: the stage stops.
 * Takes the lock itself. The runner counts as asking until stg_remote_make or
 * stg_remote_leave. */
bool stg_remote_wait(struct stg_stage *stage);
void stg_remote_leave(struct stg_stage *stage);

/* Asks for the item of `work`, into its extent. False: no worker gave it. */
bool stg_remote_make(struct stg_stage *stage, struct stg_remote_lane *lane,
                     struct stg_work *work);

/* Lock held. */
void stg_remote_add_totals(const struct stg_stage *stage, struct stg_totals *ret);
void stg_remote_report(const struct stg_stage *stage, struct stg_bump *bump,
                       struct stg_pipeline_status *ret);

/* ---- assign.c ---- */

/* Reads the client's control page. INVALID_ARGUMENT: the page is broken. */
int stg_client_drain(struct stg_stage *stage, struct stg_client *client,
                     struct stg_err *err);

/* Gives the client the items that wait for it since it came back. Returns whether
 * anything changed. */
bool stg_client_redeliver(struct stg_stage *stage, struct stg_client *client);

/* Applies one step of the policy. Returns whether anything changed. */
bool stg_stage_assign(struct stg_stage *stage);

/* Ends the pass for the clients that had everything; *changed: for any. Returns whether
 * it is over for all. */
bool stg_stage_assign_ends(struct stg_stage *stage, bool *changed);

/* Gives the client the end of its pass. */
void stg_client_end(struct stg_stage *stage, struct stg_client *client);

/* Discards what is in the buffer: no client will take it. */
void stg_stage_discard(struct stg_stage *stage);

/* ---- delivery.c ---- */

/* Takes in releases and acknowledgements of every client, gives out what can be given,
 * ends the pass, begins the next one, frees clients that have left and hold nothing.
 * Records which doorbells are to ring and which runners are to wake. */
void stg_delivery_run(struct stg_stage *stage);

/* Does what clients do change anything before the next item is published? While it does
 * not, no client is asked to ring: that item's runner looks at what they did. */
bool stg_awaits_clients(const struct stg_stage *stage);

/* ---- client.c ---- */

/* Makes a client and its pages, without the lock. It is in no list: stg_client_free. */
int stg_client_create(const struct stg_attach *attach, uint64_t instance,
                      struct stg_client **ret, struct stg_err *err);

/* Checks whether it may attach, and keeps a place for it: it is joining. Nothing else
 * changes. */
int stg_client_open(struct stg_stage *stage, const struct stg_attach *attach,
                    struct stg_client *client, struct stg_err *err);

/* May a client that is joining attach, as things are now? Else the stage is stopping, or
 * a client that joined meanwhile cannot be attached together with it. */
int stg_client_may_join(const struct stg_stage *stage, const struct stg_client *client,
                        struct stg_err *err);

/* Attaches the client, after the reply was sent. It takes over the place of the client
 * that is away under its name. If the stage stops meanwhile, its terminal status follows.
 */
void stg_client_join(struct stg_stage *stage, struct stg_client *client);

/* Returns whether the run has begun once a client that is joining has joined; and the
 * rank that it has then, and whether it has the place of a client that is away. */
bool stg_client_foresee(const struct stg_stage *stage, const struct stg_client *client,
                        uint32_t *ret_rank, bool *ret_takes_over);

/* The run begins if all clients are there that it waits for. */
void stg_stage_begin_together(struct stg_stage *stage);

/* Frees a client that is joining, as if it had never come. */
void stg_client_cancel(struct stg_stage *stage, struct stg_client *client);

/* Its socket is closed: it is away when it may come back, else gone. */
void stg_client_leave(struct stg_stage *stage, struct stg_client *client);

/* How a client that is away or gone ended: "left" or "died". */
const char *stg_client_how(const struct stg_client *client);

/* Disconnects the client: its terminal status is the code (positive) and the text. A
 * client that is away is waited for no longer. */
void stg_client_disconnect(struct stg_stage *stage, struct stg_client *client, int code,
                           const char *text);

/* Disconnects a client whose control page is broken; `why` names what is wrong. */
void stg_client_disconnect_violator(struct stg_stage *stage, struct stg_client *client,
                                    const char *why);

/* Ends the leases of a client whose process is dead, or that holds nothing. */
void stg_client_reap(struct stg_stage *stage, struct stg_client *client);

/* Frees clients that are gone and that no session has. */
void stg_clients_reap(struct stg_stage *stage);

/* Stops the stage: no client can go on, and all get ABORTED. */
void stg_stage_abort(struct stg_stage *stage, const char *text);

/* Gives up the place of a client that is away; `why` completes a sentence. */
void stg_client_forget(struct stg_stage *stage, struct stg_client *client,
                       const char *why);

/* Stops the stage when no client is left or may come back (unless keep_warm). */
void stg_stage_stop_when_left(struct stg_stage *stage);

/* ---- resume.c ---- */

/* Checks that a client of a broadcast that begins at the place misses no item. back: the
 * same client, which is away, or NULL. RESOURCE_EXHAUSTED names the other clients. */
int stg_stage_check_place(const struct stg_stage *stage, const struct stg_client *back,
                          uint64_t pass, const struct stg_pass_place *place,
                          struct stg_err *err);

/* ---- consumers.c ---- */

/* Returns whether several clients share the items of a pass: a state of each has what it
 * took. */
bool stg_stage_is_shared(const struct stg_stage *stage);

/* Number the consumers of a split, and set what their states contain: when a client
 * joins, when a pass begins, and when a client leaves. The number of a client that took
 * nothing is given to the next one that joins. */
void stg_consumer_join(struct stg_stage *stage, struct stg_client *client);
void stg_consumers_begin(struct stg_stage *stage);
void stg_consumer_leave(struct stg_stage *stage, const struct stg_client *client);

/* For the record of the run: the items of the pass that clients acknowledged, and of
 * them those of clients that left. */
void stg_consumer_acknowledged(struct stg_stage *stage, struct stg_client *client,
                               const struct stg_item *item);
void stg_consumer_part(struct stg_stage *stage, struct stg_client *client);

/* At the creation: the numbers and items that config.resumed has. RESOURCE_EXHAUSTED. */
int stg_consumers_resume(struct stg_stage *stage, struct stg_err *err);

/* ---- timeouts.c ---- */

/* on_timeout: evict. Detaches the client that holds up the others most, with
 * DEADLINE_EXCEEDED and `why` as its terminal status: there may be room now. False when
 * there is none to evict: under split no client holds up another. */
bool stg_stage_evict_slowest(struct stg_stage *stage, const char *why);

/* Detaches clients whose timeout is over. now_ns is not before the last assignment.
 * Returns whether any was detached. */
bool stg_expire_clients(struct stg_stage *stage, uint64_t now_ns);

/* When the next client that is away loses its place, or UINT64_MAX. */
uint64_t stg_expire_next_ns(const struct stg_stage *stage);

#endif
