/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of an open, of stager_open and of a reconnect: a stream without a connection,
 * the request, what the reply brings, and the join.
 */
#ifndef STG_CLIENT_API_ATTACH_H
#define STG_CLIENT_API_ATTACH_H

#include "client/stream/stream.h"

/* The last one where there is memory on a device. */
enum {
    STG_OPEN_SEGMENT,
    STG_OPEN_RING,
    STG_OPEN_CONTROL,
    STG_OPEN_N,
    STG_OPEN_DEVICE = STG_OPEN_N,
    STG_OPEN_MAX
};

/* A pipeline may be replaced while it is looked at. */
#define STG_MAX_ASKED 8

/* Creates a stream of those options that has no connection; stager_close ends it. */
int stg_attach_create(const struct stager_options *options, struct stager_stream **ret,
                      struct stg_err *err);

/* In hand or ready; and ahead on a device. */
uint32_t stg_attach_max_in_flight(const struct stager_options *options);

/* Fills the request of an open. It refers to the options and to client_id. */
void stg_attach_request(const struct stager_stream *stream, const char *name,
                        const struct stager_options *options, const char *client_id,
                        struct stg_request *ret);

/* What was looked at of a pipeline; the request refers to it until it is sent. */
struct stg_asked {
    struct stg_pipeline_spec *spec;
    const char **names;
};

/* Answers in the request what of the graph this build cannot compute. The caller calls
 * stg_asked_finish. */
int stg_attach_look(struct stager *client, const struct stg_reply *reply,
                    struct stg_asked *asked, struct stg_request *request,
                    struct stg_err *err);
void stg_asked_finish(struct stg_asked *asked);

/* Takes what came with the reply, and closes the descriptors. */
int stg_attach_take(struct stager_stream *stream, const struct stg_reply *reply,
                    const int *fds, size_t n_fds, const struct stager_options *options,
                    const char *client_id, struct stg_err *err);

/* Fills the request to join. Nothing can fail on this side any more: the open takes
 * effect, or fails there. */
void stg_attach_join(struct stager_stream *stream, struct stg_request *ret);

#endif
