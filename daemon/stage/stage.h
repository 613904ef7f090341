/* SPDX-License-Identifier: Apache-2.0
 *
 * The stage of one pipeline: a dataset, runners, a bounded buffer of batches in shared
 * memory, and the clients that take from it (docs/delivery.md). One lock guards all
 * parts; runners and the loop both enter. An entry point takes the lock, changes parts,
 * records effects and commits them (effects.h). A runner that publishes also assigns, so
 * that a batch reaches a sleeping client without passing through the loop.
 *
 *   runner:  pass -> extent -> pull (number, element) -> run the graph -> publish
 *   loop:    attach, detach, death, doorbell, sweep -> releases -> assign -> end
 *
 * A stage lives from the first client that opens the pipeline to the last one that leaves
 * it; it is destroyed when its runners have ended and no process holds a lease on its
 * memory.
 */
#ifndef STG_DAEMON_STAGE_STAGE_H
#define STG_DAEMON_STAGE_STAGE_H

#include <stdbool.h>
#include <sys/types.h>

#include "core/spec.h"
#include "core/trace.h"
#include "daemon/admission/plan.h"
#include "daemon/gpu/mirror.h"
#include "daemon/host/memory.h"
#include "ops/graph/graph.h"
#include "ops/partition/partition.h"
#include "proto/wire.h"

struct stg_stage;
struct stg_pool;
struct stg_client;
struct stg_workers;

/* What a stage is made of. Borrowed pointers must outlive the stage. */
struct stg_stage_config {
    const struct stg_pipeline_spec *spec;
    const struct stg_graph *graph;
    const struct stg_partitions *partitions; /* of it; NULL: it has no other partition */
    char name[65];                           /* for messages */
    uint64_t generation;
    uint64_t run_id;
    uint64_t first_number; /* items of earlier stages of this generation */
    uint64_t first_pass;
    uint64_t instance; /* of the daemon */
    uid_t uid;         /* of the applier: whose files may be read */
    gid_t gid;
    const gid_t *groups;
    size_t n_groups;
    struct stg_container *container; /* of the dataset; NULL: none */
    enum stg_delivery delivery;
    bool private_run; /* ends with its client, whatever keep_warm and
                         reconnect_grace_millis say */
    uint32_t num_clients;
    struct stg_budget *budget;
    struct stg_pool *pool; /* where to pull and compute; NULL: on the stage's threads */
    struct stg_workers *workers;  /* of a step py_function; NULL: there is none */
    struct stg_tuning *tuning;    /* what `auto` found; NULL: forgotten at the end */
    struct stg_trace *trace;      /* where spans go while it is on; NULL: nowhere */
    const _Atomic int *cancelled; /* not 0: no client waits for it any more */
    /* Runs on any thread: ask the loop to call stg_stage_sweep. */
    void (*wake)(void *owner);
    void *owner;
};

/* Takes the budget, reserves and seals the arena, starts the runners (idle). Slow when
 * the arena is large: call it on a worker thread. */
int stg_stage_create(const struct stg_stage_config *config,
                     const struct stg_stage_plan *plan, struct stg_stage **ret,
                     struct stg_err *err);

/* ---- the loop's side ---- */

struct stg_attach {
    const char *client_id;
    const char *program;
    uint32_t max_in_flight;
    bool manual_ack;
    bool named;        /* client_id was chosen by the user: it may come back under it */
    bool wants_device; /* the memory on a GPU, where there is some */
    uint32_t batch_size;
    struct stg_partition_needs
        *needs; /* of its batches; NULL only without partitions. The client's
             from stg_stage_attach on, when that succeeds */
    pid_t pid;
    uid_t uid;
    int socket; /* doorbells go here; stays the caller's, valid until stg_stage_detach */
};

/* Sends the reply to a join without blocking. Called without a lock. Returns false if the
 * reply could not be sent. */
struct stg_join {
    bool (*tell)(void *owner);
    void *owner;
};

/* A client that left keeps the memory of its batches. Returns how many batches, and the
 * bytes of the budget that they hold up: of a stage whose runners ended, a share of all
 * that it has. */
uint32_t stg_stage_retained(struct stg_stage *stage, const struct stg_client *client,
                            uint64_t *ret_bytes);

/* The runners have ended: gives back what is not memory of batches, and names on the
 * budget the first process that keeps some. Any thread, once; no other call of the loop
 * may destroy the stage meanwhile. */
void stg_stage_shrink(struct stg_stage *stage);

/* Descriptors for the client, in the order of the protocol. Owned by the stage. */
struct stg_attached {
    struct stg_client *client;
    int fds[3];
    uint64_t segment_bytes;
    struct stg_mirror_memory device; /* its descriptor is the caller's */
};

/* Keeps a place for a client and makes its pages. It takes part from stg_stage_join on;
 * stg_stage_detach before that leaves no trace of it. Errors: RESOURCE_EXHAUSTED
 * (num_clients are there, or a place is kept: for which client, how long; memory: the
 * arithmetic), ALREADY_EXISTS (one of that name is attached: its pid),
 * FAILED_PRECONDITION (it comes back and needs more than it did). */
int stg_stage_attach(struct stg_stage *stage, const struct stg_attach *attach,
                     struct stg_attached *ret, struct stg_err *err);

/* The client has mapped its pages: the open takes effect. A named client that is away
 * goes on where it was. Nothing happens on failure: UNAVAILABLE (join->tell failed), the
 * code of a stage that stops, FAILED_PRECONDITION (needs). */
int stg_stage_join(struct stg_stage *stage, struct stg_client *client,
                   const struct stg_join *join, struct stg_err *err);

/* The socket is gone: no new batches; unacknowledged ones go to others, or wait for it to
 * come back; its memory stays until it is released or the process dies. True: it held
 * nothing, or had not joined; forget it. False: call stg_stage_dead when the process
 * dies. */
bool stg_stage_detach(struct stg_stage *stage, struct stg_client *client);

/* The process is dead: its memory comes back. Detaches first if need be; forget the
 * client. */
void stg_stage_dead(struct stg_stage *stage, struct stg_client *client);

/* How many leases that client holds; for detached ones the loop asks now and then. */
uint32_t stg_stage_client_held(struct stg_stage *stage, struct stg_client *client);

/* A doorbell of that client. */
void stg_stage_doorbell(struct stg_stage *stage, struct stg_client *client);

/* Fills why->text with what that client waits for: which client, file, worker or process
 * is missing or slow, and since when. */
void stg_stage_why(struct stg_stage *stage, const struct stg_client *client,
                   struct stg_err *why);

/* Looks at every client's control page, expires what has a clock. Returns how long until
 * it wants to be called again in milliseconds, or -1: not before the next event. */
int stg_stage_sweep(struct stg_stage *stage);

/* While its trace is on, now and then, and once after: asks clients for their spans, or
 * no more, and drains what they left. last: clients and runners that wait report that;
 * some need a moment for it. */
void stg_stage_trace(struct stg_stage *stage, bool last);

/* smart_stage: auto: looks how the partitions that are tried do, and changes the
 * partition. Returns milliseconds as stg_stage_sweep does. */
int stg_stage_choose_partition(struct stg_stage *stage);

/* Ends the stage: every client gets what was assigned to it (drain: and what is
 * published), then the code (positive) and text. Returns at once. */
void stg_stage_stop(struct stg_stage *stage, int code, const char *text, bool drain);

/* waiting, running, ended, stopping or failed. */
const char *stg_stage_state(struct stg_stage *stage);

/* Clients attached now. */
uint32_t stg_stage_n_clients(struct stg_stage *stage);

/* Is any client attached, or joining? */
bool stg_stage_is_used(struct stg_stage *stage);

/* Appends the names of those clients to an error. */
void stg_stage_name_clients(struct stg_stage *stage, struct stg_err *err);

/* Was it stopped, or left by its last client? */
bool stg_stage_stopping(struct stg_stage *stage);

/* Stopped, runners ended, no lease left: may be destroyed. */
bool stg_stage_finished(struct stg_stage *stage);

/* Stopped and runners ended: what is left is memory that processes hold. */
bool stg_stage_quiet(struct stg_stage *stage);

/* Numbers to go on with in the next stage of this generation. Only when quiet. */
void stg_stage_position(struct stg_stage *stage, uint64_t *ret_number,
                        uint64_t *ret_pass);

/* Joins the runners; frees everything. NULL is allowed. Blocks unless stg_stage_finished.
 */
void stg_stage_destroy(struct stg_stage *stage);

/* What is remembered of clients that are gone: the last few. Zero-initialise. */
#define STG_MAX_GONE 8
struct stg_gone_list {
    struct stg_gone {
        char client_id[128], program[64], last_error[256];
        struct stg_client_status status; /* its strings are the ones above */
    } entries[STG_MAX_GONE];             /* a ring */
    uint64_t n;                          /* ever */
};
void stg_gone_add(struct stg_gone_list *list, const struct stg_client_status *status);

/* Appends those that are gone to status->clients, the last one first, at most
 * STG_MAX_GONE in all. */
void stg_gone_show(const struct stg_gone_list *list, struct stg_bump *bump,
                   struct stg_pipeline_status *status);

struct stg_measure;

/* What is measured of it, as of now, for this thread alone until it calls unlook; keep it
 * short: runners wait meanwhile. */
const struct stg_measure *stg_stage_look(struct stg_stage *stage);
void stg_stage_unlook(struct stg_stage *stage);

/* While it is looked at: what crosses in the next batch; NULL: the pipeline's boundary.
 */
const struct stg_schema *stg_stage_crossing(const struct stg_stage *stage);

/* What was measured is the caller's from now on. Only when quiet, and once. */
struct stg_measure *stg_stage_take_measure(struct stg_stage *stage);

/* What a client measured: what makes no sense is left out. */
void stg_stage_report(struct stg_stage *stage, const struct stg_report *report);

/* Counters, and every client: attached, away, detached, gone. Strings live in bump. */
void stg_stage_status(struct stg_stage *stage, struct stg_bump *bump,
                      struct stg_pipeline_status *ret);

#endif
