/* SPDX-License-Identifier: Apache-2.0
 *
 * The wire format of protocol buffers, read field by field, for example_*.c,
 * parse_example.c and daemon/describe alone. Every step is checked against the end of
 * what is read; a varint has at most ten bytes. Groups are refused, as TensorFlow does.
 */
#ifndef STG_OPS_KERNELS_EXAMPLE_WIRE_H
#define STG_OPS_KERNELS_EXAMPLE_WIRE_H

#include <string.h>

#include "ops/kernels/example/example.h"

enum {
    STG_WIRE_VARINT = 0,
    STG_WIRE_FIXED64 = 1,
    STG_WIRE_BYTES = 2,
    STG_WIRE_FIXED32 = 5
};

#define STG_WIRE_TAG(field, type) ((uint64_t)(field) << 3 | (type))

/* Bytes as they lie, and a number of four, the lowest first. They must be there. */
static inline uint64_t stg_wire_load64(const uint8_t *p)
{
    uint64_t ret;
    memcpy(&ret, p, sizeof(ret));
    return ret;
}

static inline uint32_t stg_wire_load32(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

struct stg_wire {
    const uint8_t *p, *end;
    struct stg_example_fault *fault;
};

static inline bool stg_wire_fail(struct stg_wire *at, const char *text)
{
    at->fault->text = text;
    at->fault->at = at->p;
    return false;
}

static inline bool stg_wire_varint(struct stg_wire *at, uint64_t *ret)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
        if (at->p == at->end)
            return stg_wire_fail(at, "a number is truncated");
        uint8_t byte = *at->p++;
        value |= shift < 64 ? (uint64_t)(byte & 0x7f) << shift : 0;
        if (byte < 0x80) {
            *ret = value;
            return true;
        }
    }
    return stg_wire_fail(at, "a number has more than ten bytes");
}

/* What a length announces. */
static inline bool stg_wire_bytes(struct stg_wire *at, const uint8_t **ret,
                                  uint64_t *ret_bytes)
{
    if (!stg_wire_varint(at, ret_bytes))
        return false;
    if (*ret_bytes > (uint64_t)(at->end - at->p))
        return stg_wire_fail(at, "a length exceeds the field that contains it");
    *ret = at->p;
    at->p += *ret_bytes;
    return true;
}

static inline bool stg_wire_skip(struct stg_wire *at, uint64_t tag)
{
    const uint8_t *s;
    uint64_t n;
    switch (tag & 7) {
    case STG_WIRE_VARINT: return stg_wire_varint(at, &n);
    case STG_WIRE_BYTES: return stg_wire_bytes(at, &s, &n);
    case STG_WIRE_FIXED64: n = 8; break;
    case STG_WIRE_FIXED32: n = 4; break;
    default: return stg_wire_fail(at, "a field has a type that no Example has");
    }
    if ((uint64_t)(at->end - at->p) < n)
        return stg_wire_fail(at, "a field is truncated");
    at->p += n;
    return true;
}

#endif
