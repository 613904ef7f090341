/* SPDX-License-Identifier: Apache-2.0
 *
 * The stage workers of one stage. A batch is a function of its place in the pass, so any
 * of them can make it, and the stage itself too: no failure of a worker is an error.
 */
#ifndef STG_DAEMON_REMOTE_STAGE_REMOTE_H
#define STG_DAEMON_REMOTE_STAGE_REMOTE_H

#include <sys/types.h>

#include "core/batch.h"
#include "core/division/deal.h"
#include "core/spec.h"
#include "daemon/remote_stage/decide.h"

struct stg_remote;
struct stg_remote_lane;

/* Borrowed pointers must outlive the stage. */
struct stg_remote_config {
    const struct stg_remote_workers *workers;
    const char *pipeline;            /* its name, for the log */
    const struct stg_schema *schema; /* of a batch */
    uid_t uid;                       /* the files are read on behalf of this user */
    gid_t gid;
    const gid_t *groups;
    size_t n_groups;
    struct stg_share *share;    /* of that user; NULL: no quota counts */
    const _Atomic int *stopped; /* not 0: give up */
};

struct stg_remote_counts {
    uint64_t n_asked, n_batches, n_bytes;
    uint64_t answer_ns;       /* of the n_batches good answers, from the request on */
    uint64_t n_timed, cpu_ns; /* of those that name it: CPU time of the worker */
    uint64_t n_hedged;        /* a second worker was asked */
    uint64_t n_failed;        /* attempts without a good answer */
    uint64_t n_garbage;       /* of them, answers that were not what was asked for */
};

/* Checks URLs, and where pipelines may read. INVALID_ARGUMENT, PERMISSION_DENIED. */
int stg_remote_check(const struct stg_remote_workers *workers, struct stg_err *err);

/* Reads no file and asks no worker. RESOURCE_EXHAUSTED, FAILED_PRECONDITION. */
int stg_remote_create(const struct stg_remote_config *config, struct stg_remote **ret,
                      struct stg_err *err);
void stg_remote_destroy(struct stg_remote *remote); /* NULL is allowed */

/* Returns whether to look for workers now, which one caller does then. */
bool stg_remote_look_begin(struct stg_remote *remote);

/* Reads workers_file and looks names up, and takes over what it finds. Blocks, for as
 * long as the resolver of the C library does: hold no batch that others wait for. */
void stg_remote_look(struct stg_remote *remote);

/* Returns whether a worker may be asked now, besides n_asking requests: one has room, and
 * answers in time for the runners, and max_bytes_per_s and the quota of the user allow
 * it. */
bool stg_remote_ready(struct stg_remote *remote, uint32_t n_asking,
                      const struct stg_auto_runners *runners);

void stg_remote_counts(struct stg_remote *remote, struct stg_remote_counts *ret);

/* Writes how many workers there are, and those that are left out now: "; 1 of 2 workers
 * may be asked; away: URL: reason". Returns buf. */
const char *stg_remote_show(struct stg_remote *remote, char *buf, size_t bytes);

/* The connections of one runner, which alone uses it. RESOURCE_EXHAUSTED. */
int stg_lane_create(struct stg_remote *remote, struct stg_remote_lane **ret,
                    struct stg_err *err);
void stg_lane_destroy(struct stg_remote_lane *lane); /* NULL is allowed */

/* A batch, and the place for it. */
struct stg_remote_wanted {
    const char *digest;    /* of the pass: stg_digest_write */
    uint64_t pass, item;   /* number of the item in the pass */
    uint64_t epoch, index; /* of its header */
    struct stg_deal deal;  /* n_hosts 0: the pipeline divides nothing */
    uint64_t deal_first;   /* the record at which the hosts began to divide the pass */
    uint64_t rows;         /* of it; 0: not known */
    const struct stg_data_identity *data;
    char *base;
    uint64_t capacity;
    const struct stg_batch_room *room;
    bool (*is_void)(void *owner); /* the batch is not needed any more */
    void *owner;
};

/* Asks workers for the batch until one gives it, or none is left. Returns its bytes, of a
 * checked batch whose header has kind, sizes and n_rows alone; 0: no worker gave it.
 * Blocks, but not for long after the stage stops. */
uint64_t stg_remote_ask(struct stg_remote_lane *lane,
                        const struct stg_remote_wanted *wanted);

#endif
