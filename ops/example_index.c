/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of keys in the last record is guessed for this one, and verified by the bytes
 * themselves: an entry whose lengths are all of one byte is then taken with a few
 * compares. What is not as guessed is looked up; what is not as short goes field by
 * field. */
#include "ops/example_wire.h"

/* Behind the begin of an entry, so that it can be looked at without more checks: two
 * bytes, a key of at most KEY_MAX with tag and length, and the first bytes of the value.
 */
#define SLACK 192
#define KEY_MAX 127

void stg_example_begin(struct stg_example_input *input)
{
    uint32_t n = input->plan->n_keys;
    for (uint32_t k = 0; k < n; k++)
        input->next[k] = k + 1 < n ? k + 1 : 0;
    input->next[n] = 0;
}

static inline uint64_t load64(const uint8_t *p)
{
    uint64_t ret;
    memcpy(&ret, p, sizeof(ret));
    return ret;
}

/* Is that the key of the entry at p? */
static inline bool is_key(const struct stg_example_key *key, const uint8_t *p)
{
    uint64_t first = (load64(p + 2) ^ key->head[0]) & key->mask[0];
    uint64_t second = (load64(p + 10) ^ key->head[1]) & key->mask[1];
    return (first | second) == 0 &&
           (key->rest_bytes == 0 || memcmp(p + 18, key->rest, key->rest_bytes) == 0);
}

/* The key of that name, or n_keys. */
static uint32_t find_key(const struct stg_example_plan *plan, const uint8_t *s, size_t n)
{
    uint32_t at = (uint32_t)stg_fingerprint64((const char *)s, n);
    for (;; at++) {
        uint32_t k = plan->table[at & plan->table_mask];
        if (k == 0)
            return plan->n_keys;
        const struct stg_example_key *key = &plan->keys[k - 1];
        if (key->bytes == n && memcmp(key->name, s, n) == 0)
            return k - 1;
    }
}

/* The key of the entry at p, guessed from the one before it, else looked up; n_keys when
 * nobody asks for it. */
static inline uint32_t guess_key(struct stg_example_input *input, uint32_t before,
                                 const uint8_t *p)
{
    const struct stg_example_plan *plan = input->plan;
    uint32_t guess = input->next[before];
    if (is_key(&plan->keys[guess], p))
        return guess;
    /* One that is missing now and then is worth no new guess. */
    guess = input->next[guess];
    if (is_key(&plan->keys[guess], p))
        return guess;
    if (p[3] > KEY_MAX)
        return plan->n_keys;
    guess = find_key(plan, p + 4, p[3]);
    if (guess < plan->n_keys)
        input->next[before] = guess;
    return guess;
}

/* The entry at p, if all its lengths have one byte and it holds key, value and one list:
 * its end; NULL: it has to be read field by field. */
static inline const uint8_t *take_short_entry(struct stg_example_input *input,
                                              const uint8_t *p, const uint8_t *end,
                                              uint32_t *before,
                                              struct stg_example_span *const *spans,
                                              size_t i)
{
    if (p[0] != STG_WIRE_TAG(1, STG_WIRE_BYTES) || p[2] != p[0])
        return NULL;
    uint32_t k = guess_key(input, *before, p), key_bytes = p[3];
    if (key_bytes > KEY_MAX)
        return NULL;
    const uint8_t *value = p + 4 + key_bytes;
    uint32_t bytes = p[1], value_bytes = value[1], list_bytes = value[3];
    const uint8_t *ret = p + 2 + bytes;
    if (value[0] != STG_WIRE_TAG(2, STG_WIRE_BYTES) || bytes > 0x7f ||
        bytes != key_bytes + 4 + value_bytes || ret > end)
        return NULL;
    if (k == input->plan->n_keys)
        return ret;
    uint32_t kind = value[2] >> 3;
    if (value_bytes != list_bytes + 2 || (value[2] & 7) != STG_WIRE_BYTES ||
        kind - 1 > STG_EXAMPLE_INTS - 1)
        return NULL;
    spans[k][i] =
        (struct stg_example_span){.s = value + 4, .bytes = list_bytes, .kind = kind};
    *before = k;
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
static bool read_entry(struct stg_example_input *input, struct stg_wire *at,
                       uint32_t *before, struct stg_example_span *const *spans, size_t i)
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
    uint32_t k = find_key(input->plan, name, name_bytes);
    if (k == input->plan->n_keys)
        return true;
    struct stg_example_span span;
    struct stg_wire inside = {.p = value, .end = value + value_bytes, .fault = at->fault};
    at->fault->key = &input->plan->keys[k];
    if (!read_feature(&inside, &span))
        return false;
    at->fault->key = NULL;
    if (span.kind != STG_EXAMPLE_NONE || !input->plan->keys[k].is_dense)
        spans[k][i] = span;
    input->next[*before] = k;
    *before = k;
    return true;
}

static bool read_features(struct stg_example_input *input, struct stg_wire *at,
                          struct stg_example_span *const *spans, size_t i)
{
    uint32_t before = input->plan->n_keys;
    const uint8_t *p = at->p, *end = at->end;
    while (p < end) {
        const uint8_t *next = input->limit - p >= SLACK
                                  ? take_short_entry(input, p, end, &before, spans, i)
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
            if (!read_entry(input, &entry, &before, spans, i))
                return false;
        }
        p = at->p;
    }
    return true;
}

bool stg_example_index(struct stg_example_input *input, const uint8_t *s, size_t bytes,
                       struct stg_example_span *const *spans, size_t i,
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
