/* SPDX-License-Identifier: Apache-2.0
 *
 * Entries whose lengths are all of one byte, which is nearly all of them, are taken with
 * a few compares; the others go field by field. A key is looked up by its first and last
 * eight bytes, the same way wherever it stands: features that are missing now and then,
 * or come in another order, cost nothing more. */
#include "ops/kernels/example/wire.h"

/* Behind the begin of an entry, so that it can be looked at without more checks: two
 * bytes, a key of at most KEY_MAX with tag and length, and the first bytes of the value.
 */
#define SLACK 192
#define KEY_MAX 127
/* So far ahead of what is read bytes are asked for: about a record or two. */
#define AHEAD 1024

/* Two tags of a field of bytes, the first in the message, each before a length of one
 * byte below 128, of which these bits are clear. */
#define ENTRY_HEAD 0x000a000au

/* Is that the key of the entry at p? */
static inline bool is_key(const struct stg_example_key *key, const uint8_t *p)
{
    uint64_t first = (stg_wire_load64(p + 2) ^ key->head[0]) & key->mask[0];
    uint64_t second = (stg_wire_load64(p + 10) ^ key->head[1]) & key->mask[1];
    return (first | second) == 0 &&
           (key->rest_bytes == 0 || memcmp(p + 18, key->rest, key->rest_bytes) == 0);
}

/* The first n bytes of a word; of 8 and more, all. */
static inline uint64_t first_bytes(uint64_t word, uint32_t n)
{
    return n < 8 ? word & ~(UINT64_MAX << (8 * n)) : word;
}

/* The key of the entry at p, whose name has n bytes, at most KEY_MAX; n_keys when it is
 * not requested. */
static inline uint32_t find_short(const struct stg_example_plan *plan, const uint8_t *p,
                                  uint32_t n)
{
    uint64_t first = first_bytes(stg_wire_load64(p + 4), n);
    uint64_t last = first_bytes(stg_wire_load64(p + 4 + (n > 8 ? n - 8 : 0)), n);
    uint32_t at = stg_example_place(plan, first, last, n);
    for (;; at++) {
        uint32_t k = plan->table[at & plan->table_mask];
        if (k == plan->n_keys || is_key(&plan->keys[k], p))
            return k;
    }
}

uint32_t stg_example_find(const struct stg_example_plan *plan, const uint8_t *s, size_t n)
{
    uint32_t at = stg_example_place_of(plan, (const char *)s, n);
    for (;; at++) {
        uint32_t k = plan->table[at & plan->table_mask];
        if (k == plan->n_keys ||
            (plan->keys[k].bytes == n && memcmp(plan->keys[k].name, s, n) == 0))
            return k;
    }
}

/* The entry at p, if all its lengths have one byte and it holds key, value and one list:
 * its end; NULL: it has to be read field by field. */
static inline const uint8_t *take_short_entry(const struct stg_example_plan *plan,
                                              const uint8_t *p, const uint8_t *end,
                                              struct stg_example_span *const *spans,
                                              size_t i)
{
    uint32_t head = stg_wire_load32(p), bytes = head >> 8 & 0xff, key_bytes = head >> 24;
    if ((head & 0x80ff80ff) != ENTRY_HEAD)
        return NULL;
    const uint8_t *ret = p + 2 + bytes;
    uint32_t value = stg_wire_load32(p + 4 + key_bytes), value_bytes = value >> 8 & 0xff;
    if ((value & 0xff) != STG_WIRE_TAG(2, STG_WIRE_BYTES) ||
        bytes != key_bytes + 4 + value_bytes || ret > end)
        return NULL;
    uint32_t k = find_short(plan, p, key_bytes);
    if (k == plan->n_keys)
        return ret;
    uint32_t kind = value >> 19 & 31, list_bytes = value >> 24;
    if (value_bytes != list_bytes + 2 || (value >> 16 & 7) != STG_WIRE_BYTES ||
        kind - 1 > STG_EXAMPLE_INTS - 1)
        return NULL;
    spans[k][i] = (struct stg_example_span){
        .s = p + 8 + key_bytes, .bytes = list_bytes, .kind = kind};
    return ret;
}

/* Message Feature: its first list. */
static bool read_feature(struct stg_wire *at, struct stg_example_span *ret)
{
    *ret = (struct stg_example_span){.s = at->end};
    while (at->p < at->end) {
        uint64_t tag, bytes;
        if (!stg_wire_varint(at, &tag))
            return false;
        uint64_t kind = tag >> 3;
        if ((tag & 7) != STG_WIRE_BYTES || kind - 1 > STG_EXAMPLE_INTS - 1) {
            if (!stg_wire_skip(at, tag))
                return false;
            continue;
        }
        if (!stg_wire_bytes(at, &ret->s, &bytes))
            return false;
        ret->bytes = (uint32_t)bytes;
        ret->kind = (uint32_t)kind;
        return true;
    }
    return true;
}

/* Key and value in any order; of several the last. */
static bool read_entry(const struct stg_example_plan *plan, struct stg_wire *at,
                       struct stg_example_span *const *spans, size_t i)
{
    static const uint8_t empty[1];
    const uint8_t *name = empty, *value = empty;
    uint64_t name_bytes = 0, value_bytes = 0;
    while (at->p < at->end) {
        uint64_t tag;
        if (!stg_wire_varint(at, &tag))
            return false;
        bool good = tag == STG_WIRE_TAG(1, STG_WIRE_BYTES)
                        ? stg_wire_bytes(at, &name, &name_bytes)
                    : tag == STG_WIRE_TAG(2, STG_WIRE_BYTES)
                        ? stg_wire_bytes(at, &value, &value_bytes)
                        : stg_wire_skip(at, tag);
        if (!good)
            return false;
    }
    uint32_t k = stg_example_find(plan, name, name_bytes);
    if (k == plan->n_keys)
        return true;
    struct stg_example_span span;
    struct stg_wire inside = {.p = value, .end = value + value_bytes, .fault = at->fault};
    at->fault->key = &plan->keys[k];
    if (!read_feature(&inside, &span))
        return false;
    at->fault->key = NULL;
    if (span.kind != STG_EXAMPLE_NONE || !plan->keys[k].is_dense)
        spans[k][i] = span;
    return true;
}

static bool read_features(const struct stg_example_input *input, struct stg_wire *at,
                          struct stg_example_span *const *spans, size_t i)
{
    const uint8_t *p = at->p, *end = at->end;
    while (p < end) {
        __builtin_prefetch((const void *)((uintptr_t)p + AHEAD));
        const uint8_t *next = input->limit - p >= SLACK
                                  ? take_short_entry(input->plan, p, end, spans, i)
                                  : NULL;
        if (next != NULL) {
            p = next;
            continue;
        }
        uint64_t tag, bytes;
        const uint8_t *s;
        at->p = p;
        if (!stg_wire_varint(at, &tag))
            return false;
        if (tag != STG_WIRE_TAG(1, STG_WIRE_BYTES)) {
            if (!stg_wire_skip(at, tag))
                return false;
        } else {
            if (!stg_wire_bytes(at, &s, &bytes))
                return false;
            struct stg_wire entry = {.p = s, .end = s + bytes, .fault = at->fault};
            if (!read_entry(input->plan, &entry, spans, i))
                return false;
        }
        p = at->p;
    }
    return true;
}

bool stg_example_index(const struct stg_example_input *input, const uint8_t *s,
                       size_t bytes, struct stg_example_span *const *spans, size_t i,
                       struct stg_example_fault *fault)
{
    struct stg_wire at = {.p = s, .end = s + bytes, .fault = fault};
    fault->key = NULL;
    if (bytes > INT32_MAX)
        return stg_wire_fail(&at, "the record has more than 2 GiB");
    while (at.p < at.end) {
        uint64_t tag, n;
        if (!stg_wire_varint(&at, &tag))
            return false;
        if (tag != STG_WIRE_TAG(1, STG_WIRE_BYTES)) {
            if (!stg_wire_skip(&at, tag))
                return false;
            continue;
        }
        const uint8_t *features;
        if (!stg_wire_bytes(&at, &features, &n))
            return false;
        struct stg_wire inside = {.p = features, .end = features + n, .fault = fault};
        if (!read_features(input, &inside, spans, i))
            return false;
    }
    return true;
}
