/* SPDX-License-Identifier: Apache-2.0
 *
 * The applied pipelines by name, and their running instances: at most one shared
 * instance, and private runs, for each. Stored in state_dir, one file for each pipeline,
 * so that a restart finds them. Files of pipeline_dir are read at start, with lower
 * precedence. Belongs to the loop.
 */
#ifndef STG_DAEMON_PIPELINE_CATALOG_H
#define STG_DAEMON_PIPELINE_CATALOG_H

#include <uv.h>

#include "daemon/journal/journal.h"
#include "daemon/pipeline/definition.h"

struct stg_catalog;
struct stg_pipeline;
struct stg_gathering;

enum stg_instance_state {
    STG_INSTANCE_CREATING, /* memory is being reserved on a worker */
    STG_INSTANCE_LIVE,
    STG_INSTANCE_FAILED, /* could not be created: see error */
    STG_INSTANCE_ENDING, /* its memory is being given back on a worker */
};

/* One run of a pipeline: a stage and what it was made from. */
struct stg_instance {
    struct stg_instance *next;
    struct stg_catalog *catalog;
    struct stg_pipeline *pipeline; /* NULL once the pipeline was deleted or replaced */
    struct stg_definition *definition;
    uint64_t generation;
    bool private_run;
    bool is_candidate;  /* of a pipeline that is not in the catalog yet: warm_up.h */
    bool is_apart;      /* a private run of a client of a broadcast, which has commits */
    char apart_id[128]; /* the client_id that its user chose; "": none, or not apart */
    _Atomic int
        abandoned; /* its result is not needed any more; the creating thread reads this */
    enum stg_instance_state state;
    struct stg_stage_config config;
    struct stg_stage_plan plan;
    struct stg_prior *prior; /* that config borrows; NULL: none */
    struct stg_stage *stage;
    struct stg_stage *at_work; /* CREATING, ENDING: the stage; only for the worker */
    bool is_claimed;    /* private: an open that waits attaches to it, and it stays */
    uint32_t n_runners; /* that count on the quota of the applier */
    bool quiet;         /* its runners have ended, and waiting opens were answered */
    bool shrinks;       /* on a worker: quiet, and clients that left keep its batches */
    struct stg_state start;     /* config.start, if it has one */
    struct stg_resumed resumed; /* config.resumed, if it has one */
    uint64_t run_version;       /* of its stage, when its record was written last */
    enum { STG_START_OVER, STG_START_AWAITED, STG_START_FRESH } start_news;
    uint64_t n_gone;             /* of the catalog when it was made */
    uint64_t attempt;            /* of its clients, for commits; 0: none has attached */
    struct stg_journal *journal; /* with the audit; NULL: it has none */
    uint64_t audit_seq;          /* lines of its run in the audit */
    bool audit_ended;
    struct stg_err error;
    uv_work_t work;
    /* The last event of a shared one. */
    uint64_t pipeline_id;
    const char *shown_state;
    uint32_t shown_clients;
};

/* Results of stager_options.replay_batches. */
#define STG_MAX_REPLAYS 64

struct stg_replay_entry {
    struct stg_replay_result result; /* its client_id: */
    char client_id[128];
    uint64_t generation, at_ns;
};

struct stg_replays {
    uint64_t n;                       /* ever; entry i is entries[i % STG_MAX_REPLAYS] */
    struct stg_replay_entry *entries; /* NULL before the first one */
};

struct stg_pipeline {
    struct stg_pipeline *next;
    char name[65];
    uint64_t id; /* in events: random, not 0 */
    struct stg_definition *definition;
    uint64_t generation;
    uint64_t run_id; /* of its batches, except private runs; since the start or apply */
    uint64_t next_number,
        next_pass; /* at which the next instance of this generation continues */
    struct stg_pipeline_status past; /* counters of this generation's earlier instances */
    struct stg_totals totals;        /* of instances of all generations that have ended */
    char last_error[512];            /* of them */
    struct stg_gone_list gone;       /* their clients */
    struct stg_measure *measure;     /* of the last of them; or NULL */
    struct stg_replays replays;
    struct stg_instance *instance;  /* shared, newest; NULL: idle */
    struct stg_pipeline *candidate; /* that fills its buffer, to replace it; or NULL */
    uint32_t max_in_flight;         /* of the client that began the last instance; or 0 */
    uint64_t hosts_entry;           /* of the last instance that had one */
    struct stg_workers *workers;    /* of a py_function step; NULL: none */
    struct stg_journal *journal;    /* its commits */
    struct stg_gathering *gathering; /* of a run before the restart; or NULL */
    uint64_t disk_bytes;             /* of its definitions, as counted there */
    struct stg_share *counted;       /* on whose quota the pipeline counts; or NULL */
    bool from_dir;                   /* of pipeline_dir: not in state_dir */
};

/* Callbacks into the server; on the loop. */
struct stg_catalog_hooks {
    struct stg_pools *pools;      /* for stages that name one */
    void (*changed)(void *owner); /* an instance became live, failed, quiet, or went */
    void (*wake)(void *owner);    /* any thread: sweep soon */
    void (*event)(void *owner, enum stg_event_kind kind, uint64_t pipeline);
    void *owner;
};

int stg_catalog_create(uv_loop_t *loop, const struct stg_settings *settings,
                       struct stg_budget *budget, uint64_t instance_id,
                       const struct stg_catalog_hooks *hooks, struct stg_catalog **ret,
                       struct stg_err *err);

/* Of its pipelines. */
struct stg_containers *stg_catalog_containers(struct stg_catalog *catalog);

/* Reads state_dir, then pipeline_dir. Logs and skips an invalid file. */
void stg_catalog_load(struct stg_catalog *catalog);

/* Call it after stop, when idle. NULL is allowed. */
void stg_catalog_destroy(struct stg_catalog *catalog);

struct stg_pipeline *stg_catalog_find(struct stg_catalog *catalog, const char *name);
struct stg_pipeline *stg_catalog_first(struct stg_catalog *catalog);

/* Returns whether this identity may see, open and delete the pipeline: its applier, root,
 * the group access_group. */
bool stg_catalog_allowed(const struct stg_catalog *catalog,
                         const struct stg_pipeline *pipeline,
                         const struct stg_identity *identity);

/* The same of a definition that this user applied. */
bool stg_catalog_allowed_of(const struct stg_catalog *catalog, uid_t applier,
                            const struct stg_identity *identity);

enum stg_replace {
    STG_REPLACE_OWN, /* an idle pipeline that an earlier run of the same script applied */
    STG_REPLACE_IDLE, /* a pipeline without attached clients: the request names its
                         generation */
    STG_REPLACE_ALL,
};

/* How a change has ended. */
struct stg_changed {
    struct stg_pipeline *pipeline; /* NULL: it was deleted, or the change failed */
    bool unchanged;                /* it had the content before */
    struct stg_err err;            /* code 0: the change is on disk, and made */
};

/* What the end of a change calls: once, now or later, on the loop. */
struct stg_change_done {
    void (*call)(void *arg, const struct stg_changed *changed);
    void *arg;
};

/* Returns whether a change of the pipeline waits for the disk; NULL: of any. An open
 * waits until that is over, and so does another change: there is one at a time. */
bool stg_catalog_changes(const struct stg_catalog *catalog,
                         const struct stg_pipeline *pipeline);

/* Applies a definition (takes its reference on success) under spec->name, `name`, or a
 * made-up "prefetch", "prefetch_1". A worker writes it to state_dir; then the catalog has
 * it, and `done` is called. Other content that `replace` does not allow:
 * FAILED_PRECONDITION with the difference and the attached clients. An error that is
 * returned does not call `done`. */
int stg_catalog_apply(struct stg_catalog *catalog, struct stg_definition *definition,
                      const char *name, enum stg_replace replace,
                      const struct stg_change_done *done, struct stg_err *err);

/* Makes the definition the next generation of a pipeline, as stg_catalog_apply does for a
 * name that exists. */
int stg_catalog_replace(struct stg_catalog *catalog, struct stg_pipeline *pipeline,
                        struct stg_definition *definition, enum stg_replace replace,
                        const struct stg_change_done *done, struct stg_err *err);

/* Returns the counters of this generation, of earlier instances and the current one.
 * Strings live in bump or as long as the pipeline. */
void stg_catalog_status(struct stg_pipeline *pipeline, struct stg_bump *bump,
                        struct stg_pipeline_status *ret);

/* Returns the numbers of a status: no clients, no measurements, no texts but constants.
 */
void stg_catalog_numbers(struct stg_pipeline *pipeline, struct stg_pipeline_status *ret);

/* Appends the clients that have runs of their own. */
void stg_catalog_show_apart(const struct stg_catalog *catalog,
                            const struct stg_pipeline *pipeline, struct stg_bump *bump,
                            struct stg_pipeline_status *ret);

/* Adds what the pipeline counts over all of its instances and generations, except private
 * runs of `cat`. No number of a pipeline gets smaller while it is applied. */
void stg_catalog_add_totals(const struct stg_catalog *catalog,
                            const struct stg_pipeline *pipeline, struct stg_totals *ret);

/* Deletes a pipeline, once a worker has removed its files. Clients get the published
 * items, then ABORTED. RESOURCE_EXHAUSTED: `done` is not called. */
int stg_catalog_delete(struct stg_catalog *catalog, struct stg_pipeline *pipeline,
                       const struct stg_change_done *done, struct stg_err *err);

/* The wishes of a client that opens. */
struct stg_wanted {
    bool private_run;
    bool replays; /* it takes batches of a private run again and again */
    bool warm;    /* there is no client yet: the run fills its buffer for the first one */
    uint32_t max_in_flight;
    uint32_t world_size;           /* as stager_options.world_size */
    struct stg_deal deal;          /* of the records; n_hosts 0: all */
    uint64_t hosts_entry;          /* as of struct stg_stage_config */
    uint64_t hosts_generation;     /* likewise */
    const char *job;               /* that the client names; or NULL */
    const struct stg_state *state; /* the run begins at; NULL: at none */
    const char *client_id;
    const char *name; /* the client_id if the user chose it; or NULL */
    bool is_apart;    /* see struct stg_instance */
    bool resumes;     /* the client goes on in a run before the restart (recovery.h) */
    bool is_new;      /* it opens the pipeline: no stream that goes on, or follows */
};

/* Returns the instance to attach to: the shared one (created if needed), or a new private
 * one. It may still be CREATING (check again on `changed`). A state may need a new shared
 * one: the clients of the last one, which have taken nothing, then get ABORTED. A client
 * of a broadcast whose state is before the buffer gets a private one. ALREADY_EXISTS: one
 * of that name has such a run. Records that hosts divide: without a state a run begins
 * the first pass, as on the other hosts, whatever stagerd counts.
 * UNAVAILABLE: the runners of the last instance have not ended, or clients of before a
 * restart of stagerd have not come back, or this generation of the hosts had a run; call
 * again on `changed`.
 * Errors of a state: as stg_stage_admit. */
int stg_catalog_instance(struct stg_catalog *catalog, struct stg_pipeline *pipeline,
                         const struct stg_wanted *wanted, struct stg_instance **ret,
                         struct stg_err *err);

/* Returns whether an instance is ending and its memory comes back soon. An instance that
 * only batches of closed streams keep does not count. */
bool stg_catalog_stopping(const struct stg_catalog *catalog);

/* Returns whether only batches of closed streams keep an instance. */
bool stg_catalog_has_retained(const struct stg_catalog *catalog);

/* Returns the number of instances that have returned their memory. */
uint64_t stg_catalog_n_gone(const struct stg_catalog *catalog);

/* Discards a failed instance: the next request creates a new one. */
void stg_catalog_discard(struct stg_instance *instance);

/* Abandons a private instance after its open gave up waiting. */
void stg_catalog_abandon(struct stg_instance *instance);

/* Sends events for the changes of a shared instance since the last call. Every sweep
 * calls it, and so does code after which two changes could cancel out. */
void stg_catalog_note(struct stg_instance *instance);

/* Notes in the audit that an attempt of the instance begins; run, time and delivery are
 * filled in. */
void stg_catalog_begin_audit(struct stg_instance *instance,
                             struct stg_audit_begin *begin);

/* Notes all that the stages of a pipeline have collected for the audit, and what their
 * clients have done until now. */
void stg_catalog_note_audit(struct stg_catalog *catalog,
                            const struct stg_journal *journal);

/* Sweeps all stages, and frees finished ones. Returns the milliseconds until the next
 * call is due, or -1. */
int stg_catalog_sweep(struct stg_catalog *catalog);

/* Returns whether a pipeline, or a shared instance of an earlier one, is of the
 * definition. */
bool stg_catalog_has(const struct stg_catalog *catalog,
                     const struct stg_definition *definition);

/* Passes stg_stage_trace on to the stages of the definition's shared instances. */
void stg_catalog_trace(const struct stg_catalog *catalog,
                       const struct stg_definition *definition, bool last);

/* Ends every client with that code and text. Does not wait. */
void stg_catalog_stop(struct stg_catalog *catalog, int code, const char *text);

/* Is another thread making or ending an instance, or writing a change? The catalog must
 * not be destroyed then. */
bool stg_catalog_working(const struct stg_catalog *catalog);

/* Has every runner ended, and no thread work to do? */
bool stg_catalog_quiet(const struct stg_catalog *catalog);

#endif
