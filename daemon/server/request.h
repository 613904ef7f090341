/* SPDX-License-Identifier: Apache-2.0
 *
 * The requests that the daemon serves. Each sends exactly one reply. Belongs to the loop.
 */
#ifndef STG_DAEMON_SERVER_REQUEST_H
#define STG_DAEMON_SERVER_REQUEST_H

#include "daemon/server/session.h"

struct stg_warming_config;

typedef void stg_request_handler(struct stg_session *session,
                                 const struct stg_request *request);

/* request_admin.c: what the requests of an administrator share. */

/* Fills in what the definition's batches hold and the memory that they take, with advice.
 * RESOURCE_EXHAUSTED: more than memory_budget. */
int stg_request_describe(struct stg_session *session,
                         const struct stg_definition *definition, const char *name,
                         struct stg_bump *bump, struct stg_reply *reply,
                         struct stg_err *err);

/* Checks that a pipeline is at the generation that the request names, if it names one.
 * ABORTED. */
int stg_request_check_generation(struct stg_session *session,
                                 const struct stg_request *request, const char *name,
                                 struct stg_err *err);

/* Makes the definition the next generation; the reply follows later, a warm change fills
 * a buffer first. config: as for stg_warming_begin. Errors: as stg_catalog_apply,
 * stg_catalog_replace. */
int stg_request_change(struct stg_session *session,
                       const struct stg_warming_config *config, struct stg_err *err);

/* Returns whether a reply fits in one message. */
bool stg_request_fits(const struct stg_reply *reply);

/* As stg_session_finish, with a reply that is shortened to one message. */
void stg_request_finish(struct stg_session *session, struct stg_reply *reply,
                        void (*shorten)(struct stg_reply *reply), int rc,
                        const struct stg_err *err);

/* request_admin.c */
stg_request_handler stg_serve_hello, stg_serve_check, stg_serve_apply, stg_serve_list,
    stg_serve_status, stg_serve_explain, stg_serve_delete, stg_serve_new_token,
    stg_serve_trace, stg_serve_index, stg_serve_metrics, stg_serve_schema, stg_serve_tap,
    stg_serve_drain;

/* request_version.c */
stg_request_handler stg_serve_versions, stg_serve_rollback;

/* request_stream.c */
stg_request_handler stg_serve_join, stg_serve_feed, stg_serve_report, stg_serve_why,
    stg_serve_work;

/* request_commit.c */
stg_request_handler stg_serve_commit, stg_serve_commits, stg_serve_audit;

/* request_commit.c: where an open begins, as far as commits decide. Returns 0, and the
 * text of the state that resume names in buf (STG_STATE_TEXT_BYTES), or "".
 * Returns 1 if a commit waits for the disk: the open has to wait. FAILED_PRECONDITION:
 * the pipeline has commits, and the open names none; NOT_FOUND: no commit has
 * that tag. */
int stg_commit_resolve(struct stg_pipeline *pipeline, const struct stg_request *request,
                       char *buf, struct stg_err *err);

/* request_commit.c: the same with commits that etcd has. Without a name and without
 * commits the open begins at the start. */
int stg_commit_resolve_in(const struct stg_definition *definition,
                          const struct stg_request *request,
                          const struct stg_commits *commits, char *buf,
                          struct stg_err *err);

/* request_commit.c: the session is attached: from here on it may commit, and streams of
 * older attempts may not. before: the attempt that it goes on with; 0: none. */
void stg_commit_attached(struct stg_session *session, const struct stg_request *request,
                         struct stg_instance *instance, const char *client_id,
                         uint64_t before);

/* request_commit.c: FAILED_PRECONDITION: a later attempt than that has begun for the
 * client that reconnects. */
int stg_commit_check_attempt(const struct stg_pipeline *pipeline,
                             const struct stg_request *request, uint64_t attempt,
                             struct stg_err *err);

/* request_stream.c: attaches to a pipeline. The open may wait for memory, or for the end
 * of another instance; then its message is decoded again. */
void stg_request_open(struct stg_session *session, const struct stg_request *request,
                      const void *bytes, size_t n);

/* request_stream.c: tries the opens that wait; brief: those that wait for a process to
 * release, or to end. */
void stg_request_retry_opens(struct stg_server *server, bool brief);

/* request.c: any other request, by the table. */
void stg_request_serve(struct stg_session *session, const struct stg_request *request);

/* gate_request.c: a message that came through the gate. */
void stg_request_serve_gate(struct stg_server *server, uint64_t tag, const void *payload,
                            size_t bytes);

#endif
