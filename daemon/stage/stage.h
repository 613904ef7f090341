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
 * it (a warm one from its creation); it is destroyed when its runners have ended and no
 * process holds a lease on its memory.
 */
#ifndef STG_DAEMON_STAGE_STAGE_H
#define STG_DAEMON_STAGE_STAGE_H

#include <stdbool.h>
#include <sys/types.h>

#include "core/division/deal.h"
#include "core/record/audit.h"
#include "core/spec.h"
#include "core/state.h"
#include "core/trace.h"
#include "daemon/admission/plan.h"
#include "daemon/cluster/compare.h"
#include "daemon/gpu/mirror.h"
#include "daemon/host/memory.h"
#include "daemon/recover/record.h"
#include "daemon/remote_stage/remote.h"
#include "daemon/stage/totals.h"
#include "ops/graph/graph.h"
#include "ops/partition/partition.h"
#include "proto/wire.h"

struct stg_stage;
struct stg_tap;
struct stg_pool;
struct stg_client;
struct stg_prior;
struct stg_projection;
struct stg_workers;

/* A run that goes on after a restart of stagerd (daemon/recover). Its dataset goes to
 * config.start; what its clients took before is in their own states. */
struct stg_resumed {
    uint64_t run;                   /* run_id of the states of a split */
    const struct stg_state *origin; /* that clients of a split loaded when the run began;
                                       NULL: none */
    bool has_begun;                 /* all clients were there once */
    uint32_t n_begin;               /* so many clients begin it; 0: num_clients */
    uint32_t consumers;             /* split: numbers of its pass so far */
    const uint32_t *vacant;         /* of them, those that are free, the highest first */
    size_t n_vacant;
};

/* The configuration of a stage. Borrowed pointers must outlive the stage. */
struct stg_stage_config {
    const struct stg_pipeline_spec *spec;
    const struct stg_projection *projection; /* of spec; NULL: all columns are read */
    const struct stg_graph *graph;
    const struct stg_partitions
        *partitions; /* of the graph; NULL: it has no other partition */
    char name[65];   /* for messages */
    uint64_t generation;
    uint64_t run_id;
    uint64_t first_number; /* items of earlier stages of this generation */
    uint64_t first_pass;
    const struct stg_state *start; /* the first pass begins there; NULL: at its start */
    const struct stg_resumed *resumed; /* NULL: the run begins now */
    struct stg_deal deal; /* of this host, by `shard: auto`; n_hosts 0: all records */
    struct stg_comparing comparing; /* with the other hosts, before the first batch */
    uint64_t
        hosts_entry; /* of this host in a generation of hosts; 0: none. Of the daemon */
    uint64_t hosts_generation; /* its number in the job */
    bool keeps_record;         /* its clients may reconnect after a restart of stagerd */
    uint64_t instance;         /* of the daemon */
    uid_t uid;                 /* of the applier: the stage reads files on its behalf */
    gid_t gid;
    const gid_t *groups;
    size_t n_groups;
    struct stg_container *container; /* of the dataset; NULL: none */
    enum stg_delivery delivery;
    uint64_t batch_size;  /* that a state counts items with; 0: none */
    bool is_reproducible; /* a run gives the same items from a position on */
    uint64_t audit_run;   /* of this stage, in the audit; 0: it collects nothing for it */
    bool audits_contents; /* hashes tensors for the audit */
    bool private_run;     /* ends with its client, regardless of keep_warm and
                             reconnect_grace_millis */
    bool replays; /* its client takes no more batches at some time, and stays attached:
                     none times out */
    bool warm; /* the first pass begins without a client, and waits for the first one */
    uint32_t num_clients;
    struct stg_share
        *share; /* of the applier: runners work for it; NULL: without a weight */
    struct stg_budget *budget;
    struct stg_pool *pool; /* pulls and computes there; NULL: on the stage's threads */
    uint64_t content;      /* of the definition: what its items depend on */
    struct stg_remote_config remote; /* its `workers` NULL: there are none */
    struct stg_workers *workers;     /* of a py_function step; NULL: none */
    struct stg_tuning *tuning;       /* results of `auto`; NULL: discarded at the end */
    const struct stg_prior *prior;   /* for smart_stage: auto; NULL: none */
    struct stg_trace *trace;         /* records spans while it is on; may be NULL */
    struct stg_tap *tap;             /* is shown what is published; may be NULL */
    const _Atomic int *cancelled;    /* not 0: no client waits for the stage any more */
    /* Asks the loop to call stg_stage_sweep. Runs on any thread. */
    void (*wake)(void *owner);
    void *owner;
};

/* Returns the run whose states the clients of the stage hold: that of its record after a
 * restart of stagerd. */
static inline uint64_t stg_stage_run_id(const struct stg_stage_config *config)
{
    return config->resumed != NULL ? config->resumed->run : config->run_id;
}

/* Creates a stage: takes the budget, reserves and seals the arena, starts the runners
 * (idle). Slow if the arena is large: call it on a worker thread. */
int stg_stage_create(const struct stg_stage_config *config,
                     const struct stg_stage_plan *plan, struct stg_stage **ret,
                     struct stg_err *err);

/* ---- for the loop ---- */

struct stg_attach {
    const char *client_id;
    const char *program;
    uint32_t max_in_flight;
    bool manual_ack;
    bool named;        /* the user chose client_id: the client may come back with it */
    bool wants_device; /* the memory on a GPU, if any */
    uint32_t batch_size;
    const struct stg_state *state; /* that it loads; NULL: none */
    uint32_t rank, world_size;     /* round_robin: its own; world_size 0: it names none */
    uint64_t member, process;      /* of the record of the run; 0: it is in none */
    bool follows;                  /* it goes on with later versions of the pipeline */
    bool reconnects;   /* it was in the run before stagerd was started again */
    uint64_t pass;     /* then, of a split: its pass */
    uint32_t consumer; /* and its number; 0: it has none yet */
    struct stg_partition_needs
        *needs; /* of its batches; NULL only without partitions. The client's
             from stg_stage_attach on, when that succeeds */
    pid_t pid;
    uid_t uid;
    uint32_t job; /* its number, for metrics */
    int socket; /* doorbells go here; stays the caller's, valid until stg_stage_detach */
};

/* Sends the reply to a join without blocking. Called without a lock. Returns false if the
 * reply could not be sent. */
struct stg_join {
    bool (*tell)(void *owner);
    void *owner;
};

/* Returns the number of batches that a client that left still holds, and the bytes of the
 * budget that they block. For a stage whose runners ended, these are a share of its whole
 * memory. */
uint32_t stg_stage_retained(struct stg_stage *stage, const struct stg_client *client,
                            uint64_t *ret_bytes);

/* Frees, after the runners have ended, everything except the memory of batches. Records
 * in the budget the first process that keeps such memory. Any thread, once; no other call
 * of the loop may destroy the stage meanwhile. */
void stg_stage_shrink(struct stg_stage *stage);

/* Returns whether a client that shares in a split begins with the items that config.start
 * has: the run began there, in this pass. Any thread. */
bool stg_stage_inherits(struct stg_stage *stage);

/* Returns the state that the clients of the run have loaded; NULL: none. Any thread. */
const struct stg_state *stg_stage_origin(const struct stg_stage *stage);

/* Returns 1 if the dataset is at config.start, and clients may attach; 0 if a runner
 * still moves it there. Negative: it cannot be moved there; the error names the
 * difference (FAILED_PRECONDITION), the end of the pass (OUT_OF_RANGE), or is that of the
 * source. */
int stg_stage_sought(struct stg_stage *stage, struct stg_err *err);

/* Returns 0 if a client that loads the state may attach to this run; 1 if a new run has
 * to begin at it, and this one may end; 2 if the client of a broadcast needs a run apart,
 * since others would be rewound. name: its client_id if the user chose it, or NULL.
 * Refuses where other clients would notice: RESOURCE_EXHAUSTED,
 * FAILED_PRECONDITION, which names them. */
int stg_stage_admit(struct stg_stage *stage, const char *name,
                    const struct stg_state *state, struct stg_err *err);

/* For a warm stage before its first client. Returns 1 if its buffer holds what it can:
 * all of its capacity, of its memory or of its data; 0 if runners still fill it. *ret_n:
 * the items that are ready. FAILED_PRECONDITION: all of them are errors, with the last
 * one; or the code of a source that fails. */
int stg_stage_warmth(struct stg_stage *stage, uint64_t *ret_n, struct stg_err *err);

/* Returns whether a warm stage has had no client yet, not even one that is joining. */
bool stg_stage_is_untouched(struct stg_stage *stage);

/* Gives up the place of a client that is away under that name, if there is one. `why`
 * completes a sentence. */
void stg_stage_forget(struct stg_stage *stage, const char *name, const char *why);

/* Appends its clients, as those of a run apart. */
void stg_stage_show_apart(struct stg_stage *stage, struct stg_bump *bump,
                          struct stg_pipeline_status *ret);

/* Fills in the run and its members, of a zeroed record, which the caller finishes in any
 * case: the clients that may reconnect, and `joining`. RESOURCE_EXHAUSTED. */
int stg_stage_note_run(struct stg_stage *stage, const struct stg_client *joining,
                       struct stg_run_record *ret);

/* Returns a number that grows with each change of what stg_stage_note_run returns. */
uint64_t stg_stage_run_version(struct stg_stage *stage);

/* So many clients begin the run, which has not begun: others do not come. */
void stg_stage_expect(struct stg_stage *stage, uint32_t n_clients);

/* Returns the pass at whose start a client that attaches now begins, plus 1; 0 if only
 * its first batch has its place. */
uint64_t stg_stage_begins_pass(struct stg_stage *stage, const struct stg_client *client);

/* Descriptors for the client, in the order of the protocol. Owned by the stage. */
struct stg_attached {
    struct stg_client *client;
    int fds[3];
    uint64_t segment_bytes;
    struct stg_mirror_memory device; /* its descriptor is the caller's */
};

/* Reserves a place for a client and creates its pages. The client takes part after
 * stg_stage_join; stg_stage_detach before that undoes the attach. Errors:
 * RESOURCE_EXHAUSTED (num_clients are attached; or a place is reserved, with the client
 * and the time; or memory is short, with the sum), ALREADY_EXISTS (a client of that name
 * is attached, with its pid), FAILED_PRECONDITION (it comes back and needs more than
 * before). */
int stg_stage_attach(struct stg_stage *stage, const struct stg_attach *attach,
                     struct stg_attached *ret, struct stg_err *err);

/* Completes the open of a client that has mapped its pages. A named client that is away
 * continues where it was. Nothing changes on failure: UNAVAILABLE (join->tell failed),
 * the code of a stage that stops, FAILED_PRECONDITION (needs). */
int stg_stage_join(struct stg_stage *stage, struct stg_client *client,
                   const struct stg_join *join, struct stg_err *err);

/* Detaches a client whose socket is gone. It gets no new batches. Its unacknowledged
 * batches go to other clients, or wait for it to come back. Its memory stays until it is
 * released or the process dies. Returns true if the client held nothing or had not
 * joined: the caller drops it. False: the caller calls stg_stage_dead when the process
 * dies. */
bool stg_stage_detach(struct stg_stage *stage, struct stg_client *client);

/* Frees the memory of a client whose process is dead. Detaches it first if necessary. The
 * caller drops the client. */
void stg_stage_dead(struct stg_stage *stage, struct stg_client *client);

/* Returns how many leases a client holds. The loop polls this for detached clients. */
uint32_t stg_stage_client_held(struct stg_stage *stage, struct stg_client *client);

/* Handles a doorbell of that client. */
void stg_stage_doorbell(struct stg_stage *stage, struct stg_client *client);

/* Fills why->text with the reason why that client waits: the client, file, worker or
 * process that is missing or slow, and since when. */
void stg_stage_why(struct stg_stage *stage, const struct stg_client *client,
                   struct stg_err *why);

/* Checks every client's control page and all timeouts. Returns the milliseconds until the
 * next call is due, or -1: not before the next event. */
int stg_stage_sweep(struct stg_stage *stage);

/* Starts or stops the spans of clients, and drains the spans that they wrote. Call it
 * periodically while the trace is on, and once afterwards. last: clients and runners that
 * wait report it; some of them need a moment. */
void stg_stage_trace(struct stg_stage *stage, bool last);

/* For smart_stage: auto. Evaluates the partitions on trial, and changes the partition.
 * Returns milliseconds as stg_stage_sweep does. */
int stg_stage_choose_partition(struct stg_stage *stage);

/* After stg_stage_choose_partition: returns whether trials have ended since the last
 * call. Fills *ret, of which `moved` is the caller's to free, with the partition that
 * they took; moved NULL: the pipeline's own. */
bool stg_stage_take_prior(struct stg_stage *stage, struct stg_prior *ret);

/* Ends the stage. Every client gets the batches assigned to it (drain: also the published
 * ones), then the code (positive) and text. Does not wait. */
void stg_stage_stop(struct stg_stage *stage, int code, const char *text, bool drain);

/* Returns "waiting", "running", "ended", "stopping" or "failed". */
const char *stg_stage_state(struct stg_stage *stage);

/* Returns the number of attached clients. */
uint32_t stg_stage_n_clients(struct stg_stage *stage);

/* Returns whether the client has said that it closes its stream. */
bool stg_stage_is_parting(struct stg_stage *stage, const struct stg_client *client);

/* Returns whether any client is attached or joining. */
bool stg_stage_is_used(struct stg_stage *stage);

/* Returns whether all clients of the run have left, also those that may come back. Or all
 * have joined and got the end of a pass, and none of them asks for the next one, or is
 * away under that name (NULL: it has none). */
bool stg_stage_is_over(struct stg_stage *stage, const char *name);

/* Appends the names of those clients to an error. */
void stg_stage_name_clients(struct stg_stage *stage, struct stg_err *err);

/* Returns whether the stage was stopped, or its last client has left. */
bool stg_stage_stopping(struct stg_stage *stage);

/* Returns whether the stage may be destroyed: stopped, runners ended, no leases. */
bool stg_stage_finished(struct stg_stage *stage);

/* Returns whether the stage is stopped and its runners have ended: only processes that
 * hold memory are left. */
bool stg_stage_quiet(struct stg_stage *stage);

/* Returns the first number and pass of the next stage of this generation. Only if quiet.
 */
void stg_stage_position(struct stg_stage *stage, uint64_t *ret_number,
                        uint64_t *ret_pass);

/* Joins the runners and frees everything. Blocks unless stg_stage_finished. NULL is
 * allowed.
 */
void stg_stage_destroy(struct stg_stage *stage);

/* The last few clients that are gone. Zero-initialise. */
#define STG_MAX_GONE 8
struct stg_gone_list {
    struct stg_gone {
        char client_id[128], program[64], last_error[256];
        struct stg_client_status status; /* its strings are the ones above */
    } entries[STG_MAX_GONE];             /* a ring */
    uint64_t n;                          /* added so far */
};
void stg_gone_add(struct stg_gone_list *list, const struct stg_client_status *status);

/* Appends the clients that are gone to status->clients, the last one first, at most
 * STG_MAX_GONE in total. */
void stg_gone_show(const struct stg_gone_list *list, struct stg_bump *bump,
                   struct stg_pipeline_status *status);

/* Clients that attach get the attempt of their commits: it is in the audit. */
void stg_stage_name_attempt(struct stg_stage *stage, struct stg_client *client,
                            uint64_t attempt);

/* What a stage has collected for the audit, the last one first. Zero: nothing. */
struct stg_audit_news {
    struct stg_audit_trail *trails;
    struct stg_audit_share *shares;
    bool has_lost; /* memory ran out: something is missing */
};
void stg_audit_news_finish(struct stg_audit_news *news);

/* Moves what was collected to *ret if there is some, and it is time, or `all`. Returns
 * whether it did. */
bool stg_stage_take_news(struct stg_stage *stage, bool all, struct stg_audit_news *ret);

/* The code that a client sees of an item's or a source's error: OUT_OF_RANGE, which would
 * look like an end, becomes FAILED_PRECONDITION, and the text says so. */
void stg_error_disguise(struct stg_err *err);

struct stg_measure;

/* Locks and returns the measurements up to the last status, until the same thread calls
 * unlook. Keep it short: runners wait meanwhile. */
const struct stg_measure *stg_stage_look(struct stg_stage *stage);
void stg_stage_unlook(struct stg_stage *stage);

/* Between look and unlook: returns the boundary of the next batch; NULL: the pipeline's
 * own.
 */
const struct stg_schema *stg_stage_crossing(const struct stg_stage *stage);

/* Transfers the measurements to the caller. Only if quiet, and once. */
struct stg_measure *stg_stage_take_measure(struct stg_stage *stage);

/* Adds the measurements of a client, except implausible ones. */
void stg_stage_report(struct stg_stage *stage, const struct stg_report *report);

/* Returns the counters, and every client: attached, away, detached, gone. Strings live in
 * bump. */
void stg_stage_status(struct stg_stage *stage, struct stg_bump *bump,
                      struct stg_pipeline_status *ret);

/* Returns the numbers of a status: no texts, clients or measurements. */
void stg_stage_numbers(struct stg_stage *stage, struct stg_pipeline_status *ret);

/* Adds the totals to *ret: those of ranks only of a run that all clients share. */
void stg_stage_add_totals(struct stg_stage *stage, struct stg_totals *ret);

#endif
