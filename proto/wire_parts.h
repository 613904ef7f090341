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

/* Checks (stg_wire_scan) and unpacks under STG_UNPACK_MAX_BYTES; memory is the bump's and
 * is not to be freed. */
int stg_wire_unpack(const ProtobufCMessageDescriptor *type, const void *buf, size_t bytes,
                    struct stg_bump *bump, ProtobufCMessage **ret, struct stg_err *err);

/* A NUL-terminated copy of bytes; INVALID_ARGUMENT for a NUL inside. `what` is for the
 * message. */
int stg_wire_text(const ProtobufCBinaryData *bytes, const char *what,
                  struct stg_bump *bump, const char **ret, struct stg_err *err);

/* An optional number: sent when it is not zero. */
#define STG_PUT(to, name, value)                                                         \
    ((to)->name = (value), (to)->has_##name = (to)->name != 0)

/* For lists of fields, which name each field once for both ways: `from`, `to` and `ret`.
 */
#define STG_PUT_NUMBER(name) STG_PUT(to, name, from->name)
#define STG_PUT_TEXT(name) to->name = stg_wire_optional(from->name)
#define STG_TAKE_NUMBER(name) ret->name = from->name
#define STG_TAKE_TEXT(name) ret->name = stg_wire_taken(from->name)

/* NULL unless there is something to send; what is required is sent as "". */
char *stg_wire_optional(const char *s);
char *stg_wire_required(const char *s);

/* What was not sent is "". */
const char *stg_wire_taken(const char *s);

/* An array of n pointers to n zeroed messages of that size. NULL: out of memory. */
void *stg_wire_messages(struct stg_bump *bump, size_t n, size_t size);

int stg_wire_fail_memory(struct stg_err *err);

/* A result of replay_batches, as reports and the reply `explain` have it. */
void stg_wire_replay_fill(const struct stg_replay_result *from, Stager__Replay *to);
struct stg_replay_result stg_wire_replay_take(const Stager__Replay *from);

/* ---- wire_explain.c ---- */

int stg_wire_explain_fill(const struct stg_explain *from, struct stg_bump *bump,
                          Stager__ExplainReply **ret);
int stg_wire_explain_take(const Stager__ExplainReply *from, struct stg_bump *bump,
                          struct stg_explain *ret, struct stg_err *err);

/* ---- wire_schema.c ---- */

int stg_wire_schema_fill(const struct stg_file_schema *from, struct stg_bump *bump,
                         Stager__SchemaReply **ret);
int stg_wire_schema_take(const Stager__SchemaReply *from, struct stg_bump *bump,
                         struct stg_file_schema *ret, struct stg_err *err);

/* ---- wire_tap.c ---- */

int stg_wire_tap_fill(const struct stg_tap_batch *from, struct stg_bump *bump,
                      Stager__TapReply **ret);
int stg_wire_tap_take(const Stager__TapReply *from, struct stg_bump *bump,
                      struct stg_tap_batch *ret, struct stg_err *err);

/* ---- wire_scan.c ---- */

/* Fields of a newer peer's schema in one message. */
#define STG_WIRE_MAX_UNKNOWN 64u

/* INVALID_ARGUMENT names the field: "open.name: a NUL inside a string". The schema must
 * not be recursive (a test walks it). */
int stg_wire_scan(const ProtobufCMessageDescriptor *type, const void *buf, size_t bytes,
                  struct stg_err *err);

/* ---- wire_status.c; RESOURCE_EXHAUSTED: out of memory ---- */

/* All but the boundary. */
int stg_wire_status_fill(const struct stg_pipeline_status *from, struct stg_bump *bump,
                         Stager__StatusReply *to);
int stg_wire_status_take(const Stager__StatusReply *from, struct stg_bump *bump,
                         struct stg_pipeline_status *ret);

int stg_wire_quarantined_fill(const struct stg_quarantined *all, size_t n,
                              struct stg_bump *bump, size_t *ret_n,
                              Stager__Quarantined ***ret);
int stg_wire_quarantined_take(Stager__Quarantined *const *messages, size_t n,
                              struct stg_bump *bump, size_t *ret_n,
                              struct stg_quarantined **ret_all);

#endif
