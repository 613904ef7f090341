/* SPDX-License-Identifier: Apache-2.0
 *
 * The hosts of jobs, and their commits, in etcd. A run is a job on a pipeline. The host
 * comes to the next generation of a run when a client opens, is in it when the generation
 * closes, and leaves when it has had no client for a while. membership.h decides; this
 * file reads and writes the keys:
 *
 *   PREFIXruns/JOB/PIPELINE/generation
 *   PREFIXruns/JOB/PIPELINE/hosts/ID        with the lease of this stagerd
 *   PREFIXcommits/JOB/PIPELINE              the table of daemon/journal/commits.h
 *
 * One thread makes all calls of etcd, each with a deadline. The functions belong to the
 * loop and wait for nothing: where one returns 1, call it again after `wake`.
 */
#ifndef STG_DAEMON_CLUSTER_ROSTER_H
#define STG_DAEMON_CLUSTER_ROSTER_H

#include "core/division/deal.h"
#include "core/spec.h"
#include "daemon/journal/commits.h"

struct stg_roster;

struct stg_roster_config {
    const struct stg_etcd_spec *etcd; /* outlives the roster */
    uint64_t instance;                /* of the daemon: two hosts may have one name */
    void (*wake)(void *owner);        /* any thread: something has changed */
    void *owner;
};

/* Starts the thread. INVALID_ARGUMENT, FAILED_PRECONDITION: the settings;
 * RESOURCE_EXHAUSTED. */
int stg_roster_create(const struct stg_roster_config *config, struct stg_roster **ret,
                      struct stg_err *err);

/* The host leaves: the thread revokes the lease, and ends. Does not wait. */
void stg_roster_leave(struct stg_roster *roster);

/* Waits for the thread, for at most three deadlines of a call. Commits that wait fail.
 * NULL is allowed. */
void stg_roster_destroy(struct stg_roster *roster);

/* Names a run; the job may be "". Borrowed. */
struct stg_roster_key {
    const char *job, *pipeline;
};

/* Reads the commits of the run as they are now, or later. *look is its number,
 * and 0 at first. Returns 1 until they are there; *err has what it waits for. The
 * commits stay until the loop turns. RESOURCE_EXHAUSTED. */
int stg_roster_look(struct stg_roster *roster, const struct stg_roster_key *key,
                    uint64_t *look, const struct stg_commits **ret, struct stg_err *err);

/* Where the clients of this host begin. */
struct stg_roster_begin {
    uint64_t digest;   /* of the state */
    uint64_t pipeline; /* as of struct stg_member */
    const char *place; /* in words */
};

/* The host in a generation. */
struct stg_roster_entry {
    uint64_t entry; /* unique in this stagerd; 0: none */
    uint64_t number;
    struct stg_deal deal;
};

/* Returns the generation that the host is in, and begins in at that state. */
bool stg_roster_is_in(struct stg_roster *roster, const struct stg_roster_key *key,
                      uint64_t digest, struct stg_roster_entry *ret);

/* Comes to the next generation, for a client whose look has that number. Returns 1: it
 * waits until stg_roster_is_in; *err has what for. ABORTED: a commit was made since the
 * look: open again at the last commit. FAILED_PRECONDITION: hosts, or the clients of this
 * host, differ. */
int stg_roster_enter(struct stg_roster *roster, const struct stg_roster_key *key,
                     uint64_t look, const struct stg_roster_begin *begin,
                     struct stg_err *err);

/* The host has clients in that entry. ABORTED: its generation is over; the text has the
 * reason. */
int stg_roster_hold(struct stg_roster *roster, const struct stg_roster_key *key,
                    uint64_t entry, struct stg_err *err);

/* A commit of a client. Copied. */
struct stg_roster_commit {
    struct stg_roster_key key;
    uint64_t entry;
    const char *lane, *tag, *client;
    const struct stg_state *state;
    void (*done)(void *arg, const struct stg_err *err); /* code 0: etcd has it */
    void *arg;
};

/* Commits, if the generation of the entry is still the one in etcd: one transaction
 * compares and writes. `done` is called once, later, by stg_roster_sweep or
 * stg_roster_destroy. RESOURCE_EXHAUSTED: `done` is not called.
 * Errors of `done`: ABORTED (a later generation has begun), ALREADY_EXISTS (the tag has
 * another state), UNAVAILABLE (etcd does not answer; the commit may be there: repeat
 * it), those of daemon/cluster/etcd.h. */
int stg_roster_commit(struct stg_roster *roster, const struct stg_roster_commit *commit,
                      struct stg_err *err);

/* Calls `done` of the commits that have ended, and frees runs that the host has left.
 * Returns whether there are runs. */
bool stg_roster_sweep(struct stg_roster *roster);

/* Writes what does not work with etcd for the run, or "". */
void stg_roster_problem(struct stg_roster *roster, const struct stg_roster_key *key,
                        char *buf, size_t bytes);

#endif
