/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs that go on after a restart of stagerd, or in the next version of their pipeline
 * (daemon/recover): their records in runtime_dir, the processes of their members, and the
 * instances that go on with them.
 * Belongs to the loop.
 */
#ifndef STG_DAEMON_PIPELINE_RECOVERY_H
#define STG_DAEMON_PIPELINE_RECOVERY_H

#include "daemon/pipeline/catalog.h"
#include "daemon/recover/gathering.h"

/* Reads the records, once the pipelines are there. Logs and removes those that are of no
 * use. */
void stg_recovery_load(struct stg_catalog *catalog);

/* At the end: removes the folder of the records if there are none. */
void stg_recovery_close(const struct stg_catalog *catalog);

/* Writes the record of the run of an instance. joining: a client that is about to join,
 * or NULL. A failure is logged. */
void stg_recovery_write(struct stg_instance *instance, const struct stg_client *joining);

/* The same, if its members have changed since the last call. */
void stg_recovery_note(struct stg_instance *instance);

/* Another run of the pipeline begins, or none can: removes the record. */
void stg_recovery_end(struct stg_catalog *catalog, struct stg_pipeline *pipeline);

/* The pipeline, which has its next generation, is about to get that definition: returns
 * whether the clients that follow go on where they are. Then they are gathered. */
bool stg_recovery_hand_over(struct stg_catalog *catalog, struct stg_pipeline *pipeline,
                            struct stg_definition *definition);

/* Looks at processes and clocks. Returns whether opens that wait may go on. */
bool stg_recovery_sweep(struct stg_catalog *catalog, int *next_millis);

/* Returns whether opens of other clients wait. err, if not NULL: names the clients that
 * they wait for. */
bool stg_recovery_blocks(struct stg_pipeline *pipeline, struct stg_err *err);

/* A process opens the pipeline anew under that name: a member of that process and name is
 * not awaited any more, since its stream was closed while stagerd was away. */
void stg_recovery_replace(struct stg_pipeline *pipeline, pid_t pid,
                          const char *client_id);

/* A client that reconnects. */
struct stg_returning {
    const struct stg_rejoin *rejoin;
    uid_t uid;
    const struct stg_state *state; /* NULL: it took nothing, and has no place */
    uint32_t max_in_flight;
};

/* Finds the client of a run that was before the restart. ABORTED: it is not there any
 * more. */
int stg_recovery_find(const struct stg_pipeline *pipeline,
                      const struct stg_rejoin *rejoin, uid_t uid,
                      const struct stg_run_member **ret, struct stg_err *err);

/* Returns whether a stream that follows goes on where it is: this generation awaits it,
 * or did. */
bool stg_recovery_follows(const struct stg_pipeline *pipeline,
                          const struct stg_rejoin *rejoin, uid_t uid);

/* After that: returns 0 if the client may attach; *ret_resumes: to the run that goes on
 * (stg_wanted.resumes), else as any other client with its state. 1: it waits for
 * the clients that the error names. ABORTED: it cannot go on. */
int stg_recovery_arrive(struct stg_pipeline *pipeline,
                        const struct stg_returning *returning,
                        const struct stg_run_member **ret, bool *ret_resumes,
                        struct stg_err *err);

/* Fills in what such a client attaches with, and the state at which it begins if it has
 * none; NULL: the start of a pass. */
void stg_recovery_attach(const struct stg_pipeline *pipeline,
                         const struct stg_run_member *member,
                         const struct stg_state *state, struct stg_attach *attach);

/* Returns a number for a new client; 0: there is none. */
uint64_t stg_recovery_make_member(void);

/* The client has joined; or it got an error or closed its stream, and is not waited for.
 */
void stg_recovery_joined(struct stg_pipeline *pipeline, uint64_t member);
void stg_recovery_gone(struct stg_pipeline *pipeline, uint64_t member);

/* A client closed its stream of an instance: the next version does not wait for it. */
void stg_recovery_left(struct stg_pipeline *pipeline, const struct stg_instance *instance,
                       uint64_t member);

/* Makes a new instance go on with the run of its pipeline; and frees what that takes.
 * RESOURCE_EXHAUSTED. */
int stg_recovery_resume(struct stg_instance *instance, struct stg_err *err);
void stg_recovery_finish(struct stg_instance *instance);

/* Shows the members that are awaited. */
void stg_recovery_show(const struct stg_pipeline *pipeline, struct stg_bump *bump,
                       struct stg_pipeline_status *ret);

#endif
