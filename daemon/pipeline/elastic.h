/* SPDX-License-Identifier: Apache-2.0
 *
 * Pipelines with `shard: auto` whose hosts come and go by etcd (cluster.etcd): where
 * their clients begin, runs that end with the generation of the hosts, commits and their
 * list. Belongs to the loop.
 */
#ifndef STG_DAEMON_PIPELINE_ELASTIC_H
#define STG_DAEMON_PIPELINE_ELASTIC_H

#include "daemon/cluster/roster.h"
#include "daemon/pipeline/catalog.h"

struct stg_elastic;

struct stg_elastic_config {
    uv_loop_t *loop;
    const struct stg_etcd_spec *etcd; /* outlives it */
    struct stg_catalog *catalog;
    uint64_t instance;            /* of the daemon */
    void (*changed)(void *owner); /* opens that wait may go on */
    void *owner;
};

/* Starts, if the settings name an etcd; else *ret is NULL. Errors: as stg_roster_create.
 */
int stg_elastic_create(const struct stg_elastic_config *config, struct stg_elastic **ret,
                       struct stg_err *err);

/* This host leaves the jobs. Does not wait. NULL is allowed. */
void stg_elastic_leave(struct stg_elastic *elastic);

/* Waits for the thread, and answers what waits. NULL is allowed. */
void stg_elastic_finish(struct stg_elastic *elastic);

/* Frees it, once the loop is closed. NULL is allowed. */
void stg_elastic_destroy(struct stg_elastic *elastic);

/* Returns whether etcd has the hosts of the pipeline. elastic may be NULL. */
bool stg_elastic_has(const struct stg_elastic *elastic,
                     const struct stg_definition *definition);

/* The same, of an open: it names no data-parallel rank. */
bool stg_elastic_serves(const struct stg_elastic *elastic,
                        const struct stg_request *request,
                        const struct stg_definition *definition);

/* Reads the commits of the job of an open. *look is 0 at first. Returns 1: the open
 * waits; *err has what for. Errors: as stg_roster_look. */
int stg_elastic_look(struct stg_elastic *elastic, const struct stg_request *request,
                     uint64_t *look, const struct stg_commits **ret, struct stg_err *err);

/* Finds the generation in which a client begins that has looked, at the state of that
 * text. Returns 1: the open waits; *err has what for. Errors: as stg_roster_enter;
 * INVALID_ARGUMENT: it is no state. */
int stg_elastic_admit(struct stg_elastic *elastic, const struct stg_request *request,
                      const struct stg_pipeline *pipeline, uint64_t look,
                      const char *state, struct stg_roster_entry *ret,
                      struct stg_err *err);

/* Commits for a stream of the instance; entry and key of *commit are filled in. Errors:
 * as stg_roster_commit. */
int stg_elastic_commit(struct stg_elastic *elastic, const struct stg_instance *instance,
                       struct stg_roster_commit *commit, struct stg_err *err);

/* Calls `done`, now or later, with the commits of a job. RESOURCE_EXHAUSTED,
 * INVALID_ARGUMENT (the name of the job): `done` is not called. */
int stg_elastic_list(struct stg_elastic *elastic, const char *job, const char *pipeline,
                     void (*done)(void *arg, const struct stg_commits *commits,
                                  const struct stg_err *err),
                     void *arg, struct stg_err *err);

/* Writes what does not work with etcd, for a run of the pipeline, or "". elastic may be
 * NULL. */
void stg_elastic_problem(const struct stg_elastic *elastic,
                         const struct stg_pipeline *pipeline, char *buf, size_t bytes);

#endif
