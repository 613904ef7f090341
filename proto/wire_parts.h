/* SPDX-License-Identifier: Apache-2.0
 *
 * What wire.c and wire_reply.c share. Only they include it.
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

#endif
