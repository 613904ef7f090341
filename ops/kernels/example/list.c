/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/kernels/example/wire.h"

/* Values of one list, packed or not; each is written when `out` is not NULL. */

static int64_t floats(struct stg_wire *at, float *out)
{
    int64_t n = 0;
    while (at->p < at->end) {
        uint64_t tag, bytes = 0;
        const uint8_t *s = at->p;
        if (!stg_wire_varint(at, &tag))
            return -1;
        if (tag == STG_WIRE_TAG(1, STG_WIRE_BYTES)) {
            if (!stg_wire_bytes(at, &s, &bytes))
                return -1;
        } else if (!stg_wire_skip(at, tag)) {
            return -1;
        } else if (tag == STG_WIRE_TAG(1, STG_WIRE_FIXED32)) {
            bytes = sizeof(float);
            s = at->p - bytes;
        } else if (tag >> 3 == 1) {
            stg_wire_fail(at, "a value in a list of floats is not a float");
            return -1;
        }
        if (bytes % sizeof(float) != 0) {
            stg_wire_fail(at, "a packed list of floats ends inside a value");
            return -1;
        }
        if (out != NULL)
            memcpy(out + n, s, bytes);
        n += (int64_t)(bytes / sizeof(float));
    }
    return n;
}

static int64_t packed_ints(struct stg_wire *at, int64_t *out)
{
    int64_t n = 0;
    for (; at->p < at->end; n++) {
        uint64_t value;
        if (!stg_wire_varint(at, &value))
            return -1;
        if (out != NULL)
            out[n] = (int64_t)value;
    }
    return n;
}

static int64_t ints(struct stg_wire *at, int64_t *out)
{
    int64_t n = 0;
    while (at->p < at->end) {
        uint64_t tag, bytes, value;
        const uint8_t *s;
        if (!stg_wire_varint(at, &tag))
            return -1;
        if (tag == STG_WIRE_TAG(1, STG_WIRE_BYTES)) {
            if (!stg_wire_bytes(at, &s, &bytes))
                return -1;
            struct stg_wire packed = {.p = s, .end = s + bytes, .fault = at->fault};
            int64_t more = packed_ints(&packed, out != NULL ? out + n : NULL);
            if (more < 0)
                return -1;
            n += more;
        } else if (tag == STG_WIRE_TAG(1, STG_WIRE_VARINT)) {
            if (!stg_wire_varint(at, &value))
                return -1;
            if (out != NULL)
                out[n] = (int64_t)value;
            n++;
        } else if (!stg_wire_skip(at, tag)) {
            return -1;
        } else if (tag >> 3 == 1) {
            stg_wire_fail(at, "a value in a list of integers is not an integer");
            return -1;
        }
    }
    return n;
}

static int64_t texts(struct stg_wire *at, struct stg_example_text *out, uint64_t *total)
{
    int64_t n = 0;
    while (at->p < at->end) {
        uint64_t tag, bytes;
        const uint8_t *s;
        if (!stg_wire_varint(at, &tag))
            return -1;
        if (tag == STG_WIRE_TAG(1, STG_WIRE_BYTES)) {
            if (!stg_wire_bytes(at, &s, &bytes))
                return -1;
            if (out != NULL)
                out[n] = (struct stg_example_text){(const char *)s, bytes};
            *total += bytes;
            n++;
        } else if (!stg_wire_skip(at, tag)) {
            return -1;
        } else if (tag >> 3 == 1) {
            stg_wire_fail(at, "a value in a list of strings is not a string");
            return -1;
        }
    }
    return n;
}

static int64_t walk(const struct stg_example_span *span, void *out, uint64_t *bytes,
                    struct stg_example_fault *fault)
{
    struct stg_wire at = {.p = span->s, .end = span->s + span->bytes, .fault = fault};
    switch (span->kind) {
    case STG_EXAMPLE_BYTES: return texts(&at, out, bytes);
    case STG_EXAMPLE_FLOATS: return floats(&at, out);
    case STG_EXAMPLE_INTS: return ints(&at, out);
    default: return 0;
    }
}

int64_t stg_example_count(const struct stg_example_span *span, uint64_t *bytes,
                          struct stg_example_fault *fault)
{
    return walk(span, NULL, bytes, fault);
}

void stg_example_read(const struct stg_example_span *span, void *out)
{
    struct stg_example_fault fault;
    uint64_t bytes = 0;
    walk(span, out, &bytes, &fault);
}
