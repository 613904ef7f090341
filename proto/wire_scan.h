/* SPDX-License-Identifier: Apache-2.0
 *
 * Looks over the bytes of a message before protobuf-c sees them, by the schema's
 * descriptors: protobuf-c would cut a string at a NUL, take any number for an enum, keep
 * any number of unknown fields, merge what is given twice, and say nothing of what is
 * wrong. Allocates nothing. Any thread.
 */
#ifndef STG_PROTO_WIRE_SCAN_H
#define STG_PROTO_WIRE_SCAN_H

#include <protobuf-c/protobuf-c.h>

#include "core/err.h"

/* Fields of a newer peer's schema in one message. */
#define STG_WIRE_MAX_UNKNOWN 64u

/* INVALID_ARGUMENT names the field: "open.name: a NUL inside a string". The schema must
 * not be recursive (a test walks it). */
int stg_wire_scan(const ProtobufCMessageDescriptor *type, const void *buf, size_t bytes,
                  struct stg_err *err);

#endif
