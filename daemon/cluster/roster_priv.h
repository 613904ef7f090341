/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the roster: what the loop (roster.c) and the thread (roster_keys.c) share.
 */
#ifndef STG_DAEMON_CLUSTER_ROSTER_PRIV_H
#define STG_DAEMON_CLUSTER_ROSTER_PRIV_H

#include <pthread.h>

#include "daemon/cluster/etcd.h"
#include "daemon/cluster/membership.h"
#include "daemon/cluster/roster.h"

#define STG_ROSTER_KEY_BYTES 1024

/* A commit that waits for the thread, or for the loop. */
struct stg_roster_job {
    struct stg_roster_job *next;
    uint64_t entry;
    char lane[STG_LANE_MAX_BYTES + 1];
    struct stg_commit *commit;
    void (*done)(void *arg, const struct stg_err *err);
    void *arg;
    struct stg_err err;
};

struct stg_roster_run {
    struct stg_roster_run *next;
    char job[64], pipeline[65];       /* immutable */
    char dir[STG_ROSTER_KEY_BYTES];   /* immutable: of its keys, with the last "/" */
    char table[STG_ROSTER_KEY_BYTES]; /* immutable: the key of its commits */
    struct stg_commits commits;       /* loop */

    /* Under the lock of the roster. */
    uint64_t used_ns;         /* when a client was there last */
    uint64_t due_ns;          /* of the next turn */
    bool is_over;             /* the thread is done with it */
    uint64_t asked, answered; /* looks at the commits */
    char *text;               /* of the commits that answered; NULL: none, or taken */
    size_t text_bytes;
    int64_t text_revision;
    struct stg_member own; /* as the key is to be; ready 0: there is none */
    bool comes;            /* clients wait for the next generation */
    bool is_checked;       /* no commit was made since they looked */
    int64_t looked_revision;
    uint64_t refused; /* looks up to this one fail with: */
    struct stg_err refusal;
    struct stg_roster_entry in;
    uint64_t in_begin;
    struct stg_err waits, over, problem;
    struct stg_roster_job *first, *last;

    /* Thread. */
    struct stg_generation generation;
    int64_t generation_revision;
    struct stg_member put; /* as the key is */
    int64_t put_revision;  /* 0: there is no key */
    struct stg_membership_seen membership;
    uint64_t logged_ns; /* of the problem */
};

struct stg_roster {
    struct stg_roster_config config;
    char id[STG_MEMBER_ID_BYTES];
    pthread_t thread;
    bool has_thread;
    struct stg_etcd *etcd; /* thread */
    int64_t lease;         /* thread; 0: none */
    uint64_t renew_ns;     /* thread: when the lease has to be renewed */

    pthread_mutex_t lock; /* guards all that is below, and parts of runs */
    pthread_cond_t cond;
    bool is_leaving;
    struct stg_roster_run *runs;
    size_t n_runs;
    uint64_t n_entries;
    struct stg_roster_job *ended;
};

/* roster_keys.c: the thread. */
void *stg_roster_main(void *roster);

/* roster_commit.c: makes the commit of a job, or fills in its error. Thread. Returns 1 if
 * the keys have to be read again: then it was not made. */
int stg_roster_write(struct stg_roster *roster, struct stg_roster_run *run,
                     struct stg_roster_job *job);

#endif
