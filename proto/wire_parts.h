/* SPDX-License-Identifier: Apache-2.0
 *
 * What wire*.c share. Only they include it.
 */
#ifndef STG_PROTO_WIRE_PARTS_H
#define STG_PROTO_WIRE_PARTS_H

#include "proto/convert.h"
#include "proto/wire.h"

/* Packs into buf: bytes, or RESOURCE_EXHAUSTED when it does not fit. */
long stg_wire_pack(const ProtobufCMessage *message, void *buf, size_t capacity);

/* Checks (wire_scan.h) and unpacks under STG_UNPACK_MAX_BYTES; memory is the bump's and
 * is not to be freed. */
int stg_wire_unpack(const ProtobufCMessageDescriptor *type, const void *buf, size_t bytes,
                    struct stg_bump *bump, ProtobufCMessage **ret, struct stg_err *err);

/* A NUL-terminated copy of bytes; INVALID_ARGUMENT for a NUL inside. `what` is for the
 * message. */
int stg_wire_text(const ProtobufCBinaryData *bytes, const char *what,
                  struct stg_bump *bump, const char **ret, struct stg_err *err);

/* ---- wire_client.c: one client of a status ---- */

void stg_wire_client_fill(const struct stg_client_status *from, Stager__ClientStatus *to);
void stg_wire_client_take(const Stager__ClientStatus *from,
                          struct stg_client_status *ret);

/* ---- wire_explain.c ---- */

int stg_wire_explain_fill(const struct stg_explain *from, struct stg_bump *bump,
                          Stager__ExplainReply **ret);
int stg_wire_explain_take(const Stager__ExplainReply *from, struct stg_bump *bump,
                          struct stg_explain *ret, struct stg_err *err);

/* An optional number: sent when it is not zero. */
#define STG_PUT(to, name, value)                                                         \
    ((to)->name = (value), (to)->has_##name = (to)->name != 0)

/* NULL unless there is something to send; what is required is sent as "". */
char *stg_wire_optional(const char *s);
char *stg_wire_required(const char *s);

/* What was not sent is "". */
const char *stg_wire_taken(const char *s);

/* An array of n pointers to n zeroed messages of that size. NULL: out of memory. */
void *stg_wire_messages(struct stg_bump *bump, size_t n, size_t size);

int stg_wire_fail_memory(struct stg_err *err);

/* ---- wire_counters.c ---- */

void stg_wire_counters_fill(const struct stg_pipeline_status *from,
                            Stager__StatusReply *to);
void stg_wire_counters_take(const Stager__StatusReply *from,
                            struct stg_pipeline_status *ret);

/* ---- wire_gpu.c ---- */

void stg_wire_gpu_open_fill(const struct stg_reply *from, Stager__OpenReply *to);
int stg_wire_gpu_open_take(const Stager__OpenReply *from, struct stg_reply *ret,
                           struct stg_err *err);
void stg_wire_gpu_status_fill(const struct stg_pipeline_status *from,
                              Stager__StatusReply *to);
void stg_wire_gpu_status_take(const Stager__StatusReply *from,
                              struct stg_pipeline_status *ret);

/* ---- wire_quarantined.c; RESOURCE_EXHAUSTED: out of memory ---- */

int stg_wire_quarantined_fill(const struct stg_quarantined *from, size_t n,
                              struct stg_bump *bump, size_t *ret_n,
                              Stager__Quarantined ***ret);
int stg_wire_quarantined_take(Stager__Quarantined *const *from, size_t n,
                              struct stg_bump *bump, size_t *ret_n,
                              struct stg_quarantined **ret);

/* ---- wire_tuned.c; RESOURCE_EXHAUSTED: out of memory ---- */

int stg_wire_tuned_fill(const struct stg_pipeline_status *from, struct stg_bump *bump,
                        Stager__StatusReply *to);
int stg_wire_tuned_take(const Stager__StatusReply *from, struct stg_bump *bump,
                        struct stg_pipeline_status *ret);

#endif
