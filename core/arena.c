/* SPDX-License-Identifier: Apache-2.0 */
#include "core/arena.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "core/layout.h"
#include "core/status.h"

#define WORD_BITS 64u

struct extent {
    uint32_t start;
    uint32_t n; /* granules; 0: not alive */
};

/* words: a bit a granule, 1 taken; bits beyond n_granules are 1 for ever.
 * full: a bit a word, 1 when all its granules are taken, so that a search in a full arena
 * passes 4096 granules at a step; bits beyond n_words are 1 for ever.
 * alive: a bit an extent, 1 while it is alive; bits beyond max_extents are 1 for ever. An
 * extent gets the least free id: what is free does not depend on the order of frees. */
struct stg_arena {
    uint32_t n_granules;
    uint32_t n_free;
    uint32_t slot; /* granules; 0: no slots */
    uint32_t n_words;
    uint32_t max_extents;
    uint64_t *words;
    uint64_t *full;
    struct extent *extents;
    uint64_t *alive;
};

/* The bits [from, to) of one word. */
static uint64_t mask(uint32_t from, uint32_t to)
{
    return (UINT64_MAX >> (WORD_BITS - (to - from))) << from;
}

static void mark_full(struct stg_arena *arena, uint32_t w)
{
    uint64_t bit = 1ull << w % WORD_BITS;
    if (arena->words[w] == UINT64_MAX)
        arena->full[w / WORD_BITS] |= bit;
    else
        arena->full[w / WORD_BITS] &= ~bit;
}

static void set_bits(struct stg_arena *arena, uint32_t start, uint32_t n, bool taken)
{
    while (n > 0) {
        uint32_t bit = start % WORD_BITS;
        uint32_t here = WORD_BITS - bit < n ? WORD_BITS - bit : n;
        uint64_t bits = mask(bit, bit + here);
        uint64_t *word = &arena->words[start / WORD_BITS];
        assert((*word & bits) == (taken ? 0 : bits)); /* no granule has two owners */
        *word ^= bits;
        mark_full(arena, start / WORD_BITS);
        start += here;
        n -= here;
    }
}

/* The first bit from `pos` on that is 0, or n_bits. */
static uint32_t next_zero(const uint64_t *words, uint32_t pos, uint32_t n_bits)
{
    if (pos >= n_bits)
        return n_bits;
    uint32_t w = pos / WORD_BITS, n_words = (n_bits + WORD_BITS - 1) / WORD_BITS;
    uint64_t zeros = ~words[w] & (UINT64_MAX << pos % WORD_BITS);
    while (zeros == 0) {
        if (++w == n_words)
            return n_bits;
        zeros = ~words[w];
    }
    return w * WORD_BITS + (uint32_t)__builtin_ctzll(zeros);
}

/* The first granule from `pos` on that is free, or n_granules. */
static uint32_t next_free(const struct stg_arena *arena, uint32_t pos)
{
    if (pos >= arena->n_granules)
        return arena->n_granules;
    uint32_t w = pos / WORD_BITS;
    uint64_t zeros = ~arena->words[w] & (UINT64_MAX << pos % WORD_BITS);
    if (zeros == 0) {
        w = next_zero(arena->full, w + 1, arena->n_words);
        if (w == arena->n_words)
            return arena->n_granules;
        zeros = ~arena->words[w];
    }
    return w * WORD_BITS + (uint32_t)__builtin_ctzll(zeros);
}

/* The first granule in [pos, end) that is taken, or end. end is at most n_granules. */
static uint32_t next_taken(const struct stg_arena *arena, uint32_t pos, uint32_t end)
{
    uint32_t w = pos / WORD_BITS;
    uint64_t taken = arena->words[w] & (UINT64_MAX << pos % WORD_BITS);
    while (taken == 0) {
        if (++w * WORD_BITS >= end)
            return end;
        taken = arena->words[w];
    }
    uint32_t found = w * WORD_BITS + (uint32_t)__builtin_ctzll(taken);
    return found < end ? found : end;
}

/* The lowest place for n granules, or n_granules. */
static uint32_t find(const struct stg_arena *arena, uint32_t n)
{
    uint32_t pos = 0;
    for (;;) {
        pos = next_free(arena, pos);
        if (n > arena->n_granules - pos)
            return arena->n_granules;
        uint32_t over = arena->slot > 0 ? pos % arena->slot : 0;
        if (over + n > arena->slot && arena->slot > 0) {
            pos += arena->slot - over;
            if (pos >= arena->n_granules)
                return arena->n_granules;
            continue;
        }
        uint32_t taken = next_taken(arena, pos, pos + n);
        if (taken == pos + n)
            return pos;
        pos = taken;
    }
}

int stg_arena_create(uint64_t bytes, uint32_t max_extents, struct stg_arena **ret,
                     struct stg_err *err)
{
    uint64_t n = bytes / STG_GRANULE_BYTES;
    if (n == 0 || n > UINT32_MAX / 2 || max_extents == 0)
        return stg_err(
            err, -STAGER_INVALID_ARGUMENT,
            "an arena of %" PRIu64 " bytes and %" PRIu32
            " extents: the size must be 64 KiB to 128 TiB, with at least one extent",
            bytes, max_extents);
    struct stg_arena *arena = calloc(1, sizeof(*arena));
    if (arena == NULL)
        goto fail;
    arena->n_granules = arena->n_free = (uint32_t)n;
    arena->n_words = (uint32_t)((n + WORD_BITS - 1) / WORD_BITS);
    arena->max_extents = max_extents;
    uint32_t n_full = (arena->n_words + WORD_BITS - 1) / WORD_BITS;
    uint32_t n_alive = (max_extents + WORD_BITS - 1) / WORD_BITS;
    arena->words = calloc(arena->n_words, sizeof(*arena->words));
    arena->full = calloc(n_full, sizeof(*arena->full));
    arena->extents = calloc(max_extents, sizeof(*arena->extents));
    arena->alive = calloc(n_alive, sizeof(*arena->alive));
    if (arena->words == NULL || arena->full == NULL || arena->extents == NULL ||
        arena->alive == NULL)
        goto fail;
    if (n % WORD_BITS != 0)
        arena->words[arena->n_words - 1] = mask((uint32_t)(n % WORD_BITS), WORD_BITS);
    if (arena->n_words % WORD_BITS != 0)
        arena->full[n_full - 1] = mask(arena->n_words % WORD_BITS, WORD_BITS);
    if (max_extents % WORD_BITS != 0)
        arena->alive[n_alive - 1] = mask(max_extents % WORD_BITS, WORD_BITS);
    *ret = arena;
    return 0;

fail:
    stg_arena_destroy(arena);
    return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                   "out of memory: the tables of an arena of %" PRIu64 " bytes", bytes);
}

void stg_arena_destroy(struct stg_arena *arena)
{
    if (arena == NULL)
        return;
    free(arena->words);
    free(arena->full);
    free(arena->extents);
    free(arena->alive);
    free(arena);
}

static uint64_t granules(uint64_t bytes)
{
    uint64_t n = bytes / STG_GRANULE_BYTES + (bytes % STG_GRANULE_BYTES != 0);
    return n > 0 ? n : 1;
}

void stg_arena_set_slot(struct stg_arena *arena, uint64_t slot_bytes)
{
    assert(arena->n_free == arena->n_granules);
    uint64_t n = slot_bytes > 0 ? granules(slot_bytes) : 0;
    arena->slot = n < arena->n_granules ? (uint32_t)n : 0;
}

int stg_arena_reserve(struct stg_arena *arena, uint64_t bytes, uint32_t *ret)
{
    uint64_t n = granules(bytes);
    if (n > (arena->slot > 0 ? arena->slot : arena->n_granules))
        return -STAGER_INVALID_ARGUMENT;
    uint32_t id = next_zero(arena->alive, 0, arena->max_extents);
    if (id == arena->max_extents || n > arena->n_free)
        return -STAGER_RESOURCE_EXHAUSTED;
    uint32_t start = find(arena, (uint32_t)n);
    if (start == arena->n_granules)
        return -STAGER_RESOURCE_EXHAUSTED;

    set_bits(arena, start, (uint32_t)n, true);
    arena->n_free -= (uint32_t)n;
    arena->alive[id / WORD_BITS] |= 1ull << id % WORD_BITS;
    arena->extents[id] = (struct extent){.start = start, .n = (uint32_t)n};
    *ret = id;
    return 0;
}

static struct extent *alive(const struct stg_arena *arena, uint32_t id)
{
    assert(id < arena->max_extents && arena->extents[id].n > 0);
    return &arena->extents[id];
}

static void give_back(struct stg_arena *arena, uint32_t start, uint32_t n)
{
    set_bits(arena, start, n, false);
    arena->n_free += n;
}

void stg_arena_trim(struct stg_arena *arena, uint32_t id, uint64_t bytes)
{
    struct extent *extent = alive(arena, id);
    uint64_t n = granules(bytes);
    assert(n <= extent->n);
    if (n == extent->n)
        return;
    give_back(arena, extent->start + (uint32_t)n, extent->n - (uint32_t)n);
    extent->n = (uint32_t)n;
}

void stg_arena_free(struct stg_arena *arena, uint32_t id)
{
    struct extent *extent = alive(arena, id);
    give_back(arena, extent->start, extent->n);
    extent->n = 0;
    arena->alive[id / WORD_BITS] &= ~(1ull << id % WORD_BITS);
}

uint64_t stg_arena_offset(const struct stg_arena *arena, uint32_t id)
{
    return (uint64_t)alive(arena, id)->start * STG_GRANULE_BYTES;
}

uint64_t stg_arena_bytes(const struct stg_arena *arena, uint32_t id)
{
    assert(id < arena->max_extents);
    return (uint64_t)arena->extents[id].n * STG_GRANULE_BYTES;
}

uint64_t stg_arena_free_bytes(const struct stg_arena *arena)
{
    return (uint64_t)arena->n_free * STG_GRANULE_BYTES;
}

uint64_t stg_arena_total_bytes(const struct stg_arena *arena)
{
    return (uint64_t)arena->n_granules * STG_GRANULE_BYTES;
}

static uint32_t count_free(const struct stg_arena *arena)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < arena->n_words; i++)
        n += (uint32_t)__builtin_popcountll(~arena->words[i]);
    return n;
}

/* Extents do not overlap: all their bits are set, and they are as many as the set bits.
 */
int stg_arena_verify(const struct stg_arena *arena, struct stg_err *err)
{
    uint64_t in_extents = 0;
    for (uint32_t i = 0; i < arena->max_extents; i++) {
        const struct extent *extent = &arena->extents[i];
        bool is_alive = arena->alive[i / WORD_BITS] >> i % WORD_BITS & 1;
        if (is_alive != (extent->n > 0))
            return stg_err(err, -STAGER_INTERNAL, "arena: extent %" PRIu32 " is %salive",
                           i, is_alive ? "" : "not ");
        if (!is_alive)
            continue;
        uint32_t end = extent->start + extent->n;
        in_extents += extent->n;
        if (end > arena->n_granules || next_free(arena, extent->start) < end)
            return stg_err(err, -STAGER_INTERNAL,
                           "arena: extent %" PRIu32 " has a free granule", i);
        if (arena->slot > 0 && extent->start / arena->slot != (end - 1) / arena->slot)
            return stg_err(err, -STAGER_INTERNAL,
                           "arena: extent %" PRIu32 " crosses a slot", i);
    }
    uint32_t n_free = count_free(arena);
    if (n_free != arena->n_free || in_extents + n_free != arena->n_granules)
        return stg_err(err, -STAGER_INTERNAL,
                       "arena: %" PRIu32 " free of %" PRIu32 ", %" PRIu64
                       " in extents, of %" PRIu32,
                       n_free, arena->n_free, in_extents, arena->n_granules);
    for (uint32_t w = 0; w < arena->n_words; w++) {
        bool is_full = arena->full[w / WORD_BITS] >> w % WORD_BITS & 1;
        if (is_full != (arena->words[w] == UINT64_MAX))
            return stg_err(err, -STAGER_INTERNAL, "arena: word %" PRIu32 " is %sfull", w,
                           is_full ? "not " : "");
    }
    return 0;
}
