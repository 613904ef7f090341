/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/slab.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SLAB_BYTES ((uint64_t)STG_SLAB_LINES * STG_SLAB_LINE)
#define MAX_PIECE 16384u
#define NO_CLASS STG_SLAB_CLASSES /* a piece with memory of its own */
#define MAX_SLABS (UINT32_MAX / STG_SLAB_LINES)

#define HUGE_BYTES ((uint64_t)2 << 20)
#define MAX_REGION ((uint64_t)64 << 20)
#define SMALL_REGIONS ((uint64_t)1 << 20) /* up to here a region is one slab */
#define REGION_SHARE 8                    /* of what is taken already */
#define QUOTA_SHARE 16                    /* of the limit: others need some of it, too */

#define WORD_LINES 64u
#define FREE_WORDS (STG_SLAB_LINES / WORD_LINES)

struct stg_slab {
    uint32_t prev, next; /* among partial, empty or unused */
    uint32_t class_index;
    uint32_t n_used, n_pieces; /* pieces out, of how many */
    uint32_t first_free;       /* no word of `free` before it has a bit */
    uint64_t region_bytes;     /* of the memory that begins here; 0: it begins before */
    uint64_t free[FREE_WORDS]; /* a bit for the first line of each free piece */
};

/* Four classes a doubling: 1, 2, 3, 4, 5, 6, 7, 8, 10, 12 … 256 lines. */
static uint32_t class_of(uint64_t bytes)
{
    uint32_t last = bytes > 0 ? (uint32_t)((bytes - 1) / STG_SLAB_LINE) : 0;
    if (last < 4)
        return last;
    uint32_t log = 31u - (uint32_t)__builtin_clz(last);
    return (log - 1) * 4 + ((last >> (log - 2)) & 3);
}

static uint32_t class_lines(uint32_t class_index)
{
    if (class_index < 4)
        return class_index + 1;
    return (5 + class_index % 4) << (class_index / 4 - 1);
}

static void link_slab(struct stg_slabs *slabs, uint32_t *list, uint32_t at)
{
    slabs->table[at].prev = 0;
    slabs->table[at].next = *list;
    slabs->table[*list].prev = at;
    *list = at;
}

static void unlink_slab(struct stg_slabs *slabs, uint32_t *list, uint32_t at)
{
    const struct stg_slab *slab = &slabs->table[at];
    if (slab->prev != 0)
        slabs->table[slab->prev].next = slab->next;
    else
        *list = slab->next;
    slabs->table[slab->next].prev = slab->prev;
}

/* ---- memory ---- */

static bool is_huge(uint64_t bytes)
{
    return bytes >= HUGE_BYTES && bytes % HUGE_BYTES == 0;
}

/* Not from malloc, which would keep it when it is given back. */
static char *map_huge(uint64_t bytes)
{
    char *base = mmap(NULL, bytes + HUGE_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return NULL;
    uint64_t before = -(uintptr_t)base % HUGE_BYTES;
    if (before > 0)
        munmap(base, before);
    munmap(base + before + bytes, HUGE_BYTES - before);
    madvise(base + before, bytes, MADV_HUGEPAGE);
    return base + before;
}

static bool count(struct stg_slabs *slabs, uint64_t bytes)
{
    if (stg_quota_take(slabs->quota, bytes, "", NULL) < 0)
        return false;
    slabs->taken += bytes;
    return true;
}

static void uncount(struct stg_slabs *slabs, uint64_t bytes)
{
    stg_quota_give(slabs->quota, bytes);
    slabs->taken -= bytes;
}

static char *take(struct stg_slabs *slabs, uint64_t bytes)
{
    if (!count(slabs, bytes))
        return NULL;
    char *ret = is_huge(bytes) ? map_huge(bytes) : aligned_alloc(STG_SLAB_LINE, bytes);
    if (ret == NULL)
        uncount(slabs, bytes);
    return ret;
}

static void give(struct stg_slabs *slabs, char *memory, uint64_t bytes)
{
    if (is_huge(bytes))
        munmap(memory, bytes);
    else
        free(memory);
    uncount(slabs, bytes);
}

static uint64_t table_bytes(uint32_t size)
{
    return size * (sizeof(char *) + sizeof(struct stg_slab));
}

/* Indices for n more slabs. */
static bool grow_tables(struct stg_slabs *slabs, uint32_t n)
{
    if (slabs->n + n < slabs->size)
        return true;
    uint32_t size = 2 * slabs->size + n + 16;
    if (size > MAX_SLABS || !count(slabs, table_bytes(size) - table_bytes(slabs->size)))
        return false;
    char **memory = realloc(slabs->memory, size * sizeof(*memory));
    if (memory != NULL)
        slabs->memory = memory;
    struct stg_slab *table = realloc(slabs->table, size * sizeof(*table));
    if (table != NULL)
        slabs->table = table;
    if (memory == NULL || table == NULL) {
        uncount(slabs, table_bytes(size) - table_bytes(slabs->size));
        return false;
    }
    if (slabs->size == 0) {
        slabs->memory[0] = NULL;
        slabs->table[0] = (struct stg_slab){0};
        slabs->n = 1;
    }
    slabs->size = size;
    return true;
}

void stg_slabs_finish(struct stg_slabs *slabs)
{
    for (uint32_t i = 1; i < slabs->n; i++) {
        assert(slabs->table[i].n_used == 0);
        if (slabs->table[i].region_bytes > 0)
            give(slabs, slabs->memory[i], slabs->table[i].region_bytes);
    }
    uncount(slabs, table_bytes(slabs->size));
    free(slabs->memory);
    free(slabs->table);
    assert(slabs->taken == 0);
    *slabs = (struct stg_slabs){.quota = slabs->quota};
}

/* ---- slabs ---- */

/* The more there is, the larger is what comes; never much of the quota at once. */
static uint64_t region_bytes(const struct stg_slabs *slabs)
{
    uint64_t most = stg_quota_limit(slabs->quota) / QUOTA_SHARE;
    uint64_t want = slabs->taken / REGION_SHARE;
    want = want < most ? want : most;
    want = want < MAX_REGION ? want : MAX_REGION;
    if (slabs->taken < SMALL_REGIONS || most < HUGE_BYTES)
        return SLAB_BYTES;
    return want < HUGE_BYTES ? HUGE_BYTES : want & ~(HUGE_BYTES - 1);
}

static bool add_region(struct stg_slabs *slabs, uint64_t bytes)
{
    uint32_t n = (uint32_t)(bytes / SLAB_BYTES);
    if (!grow_tables(slabs, n))
        return false;
    char *memory = take(slabs, bytes);
    if (memory == NULL)
        return false;
    for (uint32_t i = n; i-- > 0;) {
        uint32_t at = slabs->n + i;
        slabs->memory[at] = memory + i * SLAB_BYTES;
        slabs->table[at] = (struct stg_slab){.region_bytes = i == 0 ? bytes : 0};
        link_slab(slabs, &slabs->empty, at);
    }
    slabs->n += n;
    return true;
}

/* Where there is no memory for a large region, there may be for a slab. */
static bool add_some(struct stg_slabs *slabs)
{
    uint64_t bytes = region_bytes(slabs);
    return add_region(slabs, bytes) ||
           (bytes > SLAB_BYTES && add_region(slabs, SLAB_BYTES));
}

/* Divides the slab into free pieces. */
static void divide(struct stg_slab *slab, uint32_t class_index)
{
    uint32_t lines = class_lines(class_index);
    slab->class_index = class_index;
    slab->n_used = 0;
    slab->n_pieces = STG_SLAB_LINES / lines;
    slab->first_free = 0;
    memset(slab->free, 0, sizeof(slab->free));
    for (uint32_t i = 0; i < slab->n_pieces; i++)
        slab->free[i * lines / WORD_LINES] |= (uint64_t)1 << i * lines % WORD_LINES;
}

static uint32_t new_slab(struct stg_slabs *slabs, uint32_t class_index)
{
    if (slabs->empty == 0 && !add_some(slabs))
        return 0;
    uint32_t at = slabs->empty;
    unlink_slab(slabs, &slabs->empty, at);
    divide(&slabs->table[at], class_index);
    link_slab(slabs, &slabs->partial[class_index], at);
    return at;
}

/* ---- pieces ---- */

static uint32_t alloc_alone(struct stg_slabs *slabs, uint64_t bytes)
{
    if (bytes > UINT64_MAX / 2 || (slabs->unused == 0 && !grow_tables(slabs, 1)))
        return 0;
    bytes = (bytes + STG_SLAB_LINE - 1) & ~(uint64_t)(STG_SLAB_LINE - 1);
    char *memory = take(slabs, bytes);
    if (memory == NULL)
        return 0;
    uint32_t at = slabs->unused;
    if (at != 0)
        unlink_slab(slabs, &slabs->unused, at);
    else
        at = slabs->n++;
    slabs->memory[at] = memory;
    slabs->table[at] =
        (struct stg_slab){.n_used = 1, .class_index = NO_CLASS, .region_bytes = bytes};
    return at * STG_SLAB_LINES;
}

static void free_alone(struct stg_slabs *slabs, uint32_t at)
{
    give(slabs, slabs->memory[at], slabs->table[at].region_bytes);
    slabs->table[at] = (struct stg_slab){0};
    link_slab(slabs, &slabs->unused, at);
}

/* The first line of a piece that was free. There must be one. */
static uint32_t take_piece(struct stg_slab *slab)
{
    uint32_t i = slab->first_free;
    while (slab->free[i] == 0)
        i++;
    uint32_t bit = (uint32_t)__builtin_ctzll(slab->free[i]);
    slab->free[i] &= slab->free[i] - 1;
    slab->first_free = i;
    slab->n_used++;
    return i * WORD_LINES + bit;
}

static void give_piece(struct stg_slab *slab, uint32_t line)
{
    uint32_t i = line / WORD_LINES;
    slab->free[i] |= (uint64_t)1 << line % WORD_LINES;
    slab->first_free = i < slab->first_free ? i : slab->first_free;
    slab->n_used--;
}

uint32_t stg_slabs_alloc(struct stg_slabs *slabs, uint64_t bytes)
{
    if (bytes > MAX_PIECE)
        return alloc_alone(slabs, bytes);
    uint32_t class_index = class_of(bytes), at = slabs->partial[class_index];
    if (at == 0)
        at = new_slab(slabs, class_index);
    if (at == 0)
        return 0;
    struct stg_slab *slab = &slabs->table[at];
    uint32_t line = take_piece(slab);
    if (slab->n_used == slab->n_pieces)
        unlink_slab(slabs, &slabs->partial[class_index], at);
    return at * STG_SLAB_LINES + line;
}

void stg_slabs_free(struct stg_slabs *slabs, uint32_t place)
{
    uint32_t at = place / STG_SLAB_LINES;
    struct stg_slab *slab = &slabs->table[at];
    if (slab->class_index == NO_CLASS) {
        free_alone(slabs, at);
        return;
    }
    uint32_t *partial = &slabs->partial[slab->class_index];
    if (slab->n_used == slab->n_pieces)
        link_slab(slabs, partial, at);
    give_piece(slab, place % STG_SLAB_LINES);
    if (slab->n_used > 0)
        return;
    unlink_slab(slabs, partial, at);
    link_slab(slabs, &slabs->empty, at);
}
