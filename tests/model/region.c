/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/model/region.h"

#include <assert.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/check.h"

#define REGION_BASE ((void *)0x200000000000)
#define PAGE_BYTES 4096u
#define N_PAGES (sizeof(struct region) / PAGE_BYTES)

struct region *region;
static char *stack_base;

/* Most of the region never changes after set_up. Pages are write-protected until the
 * first write. From then on they vary, and belong to every state. */
static char *baseline; /* the region after set_up */
static size_t set_up_used;
static uint32_t *varying;
static uint32_t n_varying;
static uint64_t *baseline_hashes; /* by index in `varying` */
static char *latest;              /* the varying pages that were hashed last */
static uint64_t *latest_hashes;   /* by index in `varying`; 0: none yet */

struct page {
    uint32_t refs;
    char bytes[PAGE_BYTES];
};

/* By index in `varying`: what was saved or restored last; NULL: neither yet. A step
 * writes few pages, and to compare costs less than to copy. */
static struct page **current;

/* ---- memory ---- */

static uint64_t page_hash(uint32_t page, const char *base);

static void on_write(int signal, siginfo_t *info, void *context)
{
    char *at = info->si_addr;
    if (at < (char *)region || at >= (char *)(region + 1))
        abort(); /* a fault of the program itself */
    uint32_t page = (uint32_t)((size_t)(at - (char *)region) / PAGE_BYTES);
    mprotect((char *)region + (size_t)page * PAGE_BYTES, PAGE_BYTES,
             PROT_READ | PROT_WRITE);
    varying[n_varying] = page;
    baseline_hashes[n_varying++] = page_hash(page, baseline);
}

static void *map(size_t bytes, void *where)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *ret = mmap(where, bytes, PROT_READ | PROT_WRITE,
                     flags | (where != NULL ? MAP_FIXED_NOREPLACE : 0), -1, 0);
    CHECK(ret != MAP_FAILED);
    return ret;
}

void region_map(void)
{
    region = map(sizeof(struct region) + MAX_FIBERS * STACK_BYTES, REGION_BASE);
    stack_base = (char *)(region + 1);
    baseline = map(sizeof(struct region), NULL);
    varying = map(N_PAGES * sizeof(varying[0]), NULL);
    baseline_hashes = map(N_PAGES * sizeof(baseline_hashes[0]), NULL);
    latest = map(sizeof(struct region), NULL);
    latest_hashes = map(N_PAGES * sizeof(latest_hashes[0]), NULL);
    current = map(N_PAGES * sizeof(struct page *), NULL);
    stack_t stack = {.ss_sp = map(65536, NULL), .ss_size = 65536};
    CHECK(sigaltstack(&stack, NULL) == 0);
    struct sigaction action = {.sa_sigaction = on_write,
                               .sa_flags = SA_SIGINFO | SA_ONSTACK};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
}

/* Every state starts from the memory that set_up left. Chunks freed by set_up are not
 * reused. */
void region_protect(void)
{
    memset(region->free_chunks, 0, sizeof(region->free_chunks));
    region->heap_used = (region->heap_used + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    set_up_used = region->heap_used;
    memcpy(baseline, region, offsetof(struct region, heap) + region->heap_used);
    n_varying = 0;
    CHECK(mprotect(region->heap, HEAP_BYTES, PROT_READ) == 0);
    /* The kernel writes to contexts without a signal: their pages vary from the start. */
    for (; n_varying * PAGE_BYTES < offsetof(struct region, heap); n_varying++) {
        varying[n_varying] = n_varying;
        baseline_hashes[n_varying] = page_hash(n_varying, baseline);
    }
}

static struct page *ref(struct page *page)
{
    page->refs++;
    return page;
}

static void unref(struct page *page)
{
    if (page != NULL && --page->refs == 0)
        free(page);
}

void region_unmap(void)
{
    for (uint32_t i = 0; i < n_varying; i++)
        unref(current[i]);
    munmap(current, N_PAGES * sizeof(struct page *));
    munmap(region, sizeof(struct region) + MAX_FIBERS * STACK_BYTES);
    munmap(baseline, sizeof(struct region));
    munmap(varying, N_PAGES * sizeof(varying[0]));
    munmap(baseline_hashes, N_PAGES * sizeof(baseline_hashes[0]));
    munmap(latest, sizeof(struct region));
    munmap(latest_hashes, N_PAGES * sizeof(latest_hashes[0]));
    region = NULL;
}

bool region_owns(const void *pointer)
{
    const char *p = pointer;
    return region != NULL && p >= (char *)region &&
           p < stack_base + MAX_FIBERS * STACK_BYTES;
}

static unsigned class_of(size_t bytes)
{
    unsigned i = 0;
    while (((size_t)32 << i) < bytes)
        i++;
    assert(i < N_CLASSES);
    return i;
}

void *region_alloc_for(int process, size_t bytes, size_t align)
{
    unsigned class = class_of(bytes + align);
    struct chunk *chunk = region->free_chunks[class];
    if (chunk != NULL) {
        region->free_chunks[class] = chunk->next_free;
        chunk->next_free = NULL;
    } else {
        size_t whole = ((size_t)32 << class) + sizeof(struct chunk);
        if (region->heap_used + whole > HEAP_BYTES)
            return NULL;
        chunk = (void *)(region->heap + region->heap_used);
        chunk->bytes = (size_t)32 << class;
        region->heap_used += whole;
    }
    chunk->used = true;
    chunk->process = process;
    uintptr_t at = (uintptr_t)(chunk + 1);
    if (align > 16)
        at = (at + align - 1) / align * align;
    return (void *)at;
}

void *region_alloc(size_t bytes, size_t align)
{
    return region_alloc_for(region_process(), bytes, align);
}

/* Returns the chunk that contains a pointer. Aligned pointers do not lie at the start of
 * their chunk. */
static struct chunk *chunk_of(const void *pointer)
{
    for (size_t at = 0; at < region->heap_used;) {
        struct chunk *chunk = (void *)(region->heap + at);
        at += sizeof(*chunk) + chunk->bytes;
        if ((const char *)pointer < region->heap + at)
            return chunk;
    }
    return NULL;
}

size_t region_size(const void *pointer)
{
    const struct chunk *chunk = chunk_of(pointer);
    return (size_t)((const char *)(chunk + 1) + chunk->bytes - (const char *)pointer);
}

static void free_chunk(struct chunk *chunk)
{
    uint64_t *word = (void *)(chunk + 1);
    for (uint64_t i = 0; i < chunk->bytes / sizeof(*word); i++) {
        if (word[i] != 0) /* a page of zeros need not vary */
            word[i] = 0;
    }
    unsigned class = class_of(chunk->bytes);
    chunk->used = false;
    if ((char *)chunk < region->heap + set_up_used)
        return; /* what reused it would lie at a fixed address */
    chunk->next_free = region->free_chunks[class];
    region->free_chunks[class] = chunk;
}

void region_free(void *pointer)
{
    struct chunk *chunk = chunk_of(pointer);
    assert(chunk != NULL);
    free_chunk(chunk);
}

void region_free_process(int process)
{
    for (size_t at = 0; at < region->heap_used;) {
        struct chunk *chunk = (void *)(region->heap + at);
        at += sizeof(*chunk) + chunk->bytes;
        if (chunk->used && chunk->process == process)
            free_chunk(chunk);
    }
}

/* ---- a state ---- */

/* Addresses in the heap make no difference: the order of allocations is not part of the
 * state. */
static uint64_t plain(uint64_t word)
{
    return word - (uint64_t)(uintptr_t)region < sizeof(struct region) ? 1 : word;
}

/* A zero counts as nothing. */
static uint64_t word_hash(uint64_t word, size_t i)
{
    uint64_t h = (plain(word) ^ (uint64_t)i << 40) * 0x9e3779b97f4a7c15u;
    h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9u;
    return word != 0 ? h ^ h >> 32 : 0;
}

#define GROUP 8 /* words; most are zeros */

/* No word waits for the hash of the one before it: this is most of the test's time. */
static uint64_t mix(uint64_t h, const void *bytes, size_t n)
{
    const uint64_t *p = bytes;
    size_t n_words = n / sizeof(*p), i = 0;
    for (; i + GROUP <= n_words; i += GROUP) {
        uint64_t any = 0;
        for (size_t k = i; k < i + GROUP; k++)
            any |= p[k];
        for (size_t k = i; any != 0 && k < i + GROUP; k++)
            h += word_hash(p[k], k);
    }
    for (; i < n_words; i++)
        h += word_hash(p[i], i);
    h *= 0x9e3779b97f4a7c15u;
    return h ^ h >> 32;
}

/* Hashes the live part of a fiber's stack: from its stack pointer on. */
static char *stack_from(const struct fiber *fiber)
{
#if defined(__x86_64__)
    char *sp = (char *)(uintptr_t)fiber->context.uc_mcontext.gregs[15];
    return fiber->state == FIBER_ENDED ? fiber->stack + STACK_BYTES : sp;
#else
    return fiber->state == FIBER_ENDED ? fiber->stack + STACK_BYTES : fiber->stack;
#endif
}

#define DEAD_BYTES (16u << 10) /* deeper frames have no gaps that matter */

void region_clear_below(const struct fiber *fiber)
{
#if defined(__x86_64__)
    memset(stack_from(fiber) - DEAD_BYTES, 0, DEAD_BYTES);
#endif
}

static uint64_t page_hash(uint32_t page, const char *base)
{
    return mix(page + 1, base + (size_t)page * PAGE_BYTES, PAGE_BYTES);
}

/* Hashes the contents of memory allocated since set_up, independent of its address. */
static uint64_t chunks_hash(void)
{
    uint64_t h = 0;
    for (size_t at = set_up_used; at < region->heap_used;) {
        const struct chunk *chunk = (const void *)(region->heap + at);
        if (chunk->used)
            h += mix(chunk->bytes, chunk + 1, chunk->bytes);
        at += sizeof(*chunk) + chunk->bytes;
    }
    return h;
}

static uint64_t fiber_hash(uint64_t h, int i)
{
    const struct fiber *fiber = &region->fibers[i];
    bool ended = fiber->state == FIBER_ENDED; /* wherever it was */
    uint64_t head[] = {(uint64_t)fiber->state,
                       ended ? 0 : (uint64_t)(uintptr_t)fiber->what};
    h = mix(h, head, sizeof(head));
    if (ended || fiber->is_afresh)
        return h;
    char *from = stack_from(fiber);
    return mix(h, from, (size_t)(fiber->stack + STACK_BYTES - from));
}

static char *page_of(uint32_t i)
{
    return (char *)region + (size_t)varying[i] * PAGE_BYTES;
}

/* Few pages change in a step. */
static uint64_t latest_hash(uint32_t i)
{
    char *page = page_of(i);
    char *copy = latest + (size_t)varying[i] * PAGE_BYTES;
    if (latest_hashes[i] == 0 || memcmp(page, copy, PAGE_BYTES) != 0) {
        memcpy(copy, page, PAGE_BYTES);
        latest_hashes[i] = page_hash(varying[i], (char *)region);
    }
    return latest_hashes[i];
}

/* Pages equal to those of set_up count as nothing, so the number of varying pages does
 * not matter. */
uint64_t region_hash(void)
{
    uint64_t h = 0x51ab1e + chunks_hash();
    uint32_t first = offsetof(struct region, heap) / PAGE_BYTES;
    uint32_t last = first + (uint32_t)(set_up_used / PAGE_BYTES);
    for (uint32_t i = 0; i < n_varying; i++) {
        if (varying[i] >= first && varying[i] < last)
            h += latest_hash(i) - baseline_hashes[i];
    }
    for (int i = 0; i < region->n_fibers; i++)
        h = fiber_hash(h, i);
    return h != 0 ? h : 1;
}

static void drop_pages(struct snapshot *s)
{
    for (uint32_t i = 0; i < s->n_pages; i++)
        unref(s->pages[i]);
    s->n_pages = 0;
}

static void save_page(struct snapshot *s, uint32_t i)
{
    const char *bytes = page_of(i);
    if (current[i] == NULL || memcmp(current[i]->bytes, bytes, PAGE_BYTES) != 0) {
        unref(current[i]);
        current[i] = malloc(sizeof(*current[i]));
        CHECK(current[i] != NULL);
        current[i]->refs = 1;
        memcpy(current[i]->bytes, bytes, PAGE_BYTES);
    }
    s->pages[i] = ref(current[i]);
}

static void save_stack(struct snapshot *s, const void *bytes, size_t n)
{
    if (s->n + n > s->capacity) {
        s->capacity = (s->n + n) * 3 / 2;
        s->stacks = realloc(s->stacks, s->capacity);
        CHECK(s->stacks != NULL);
    }
    memcpy(s->stacks + s->n, bytes, n);
    s->n += n;
}

void region_save(struct snapshot *s)
{
    drop_pages(s);
    if (n_varying > s->page_capacity) {
        s->page_capacity = n_varying * 3 / 2;
        s->pages = realloc(s->pages, s->page_capacity * sizeof(struct page *));
        CHECK(s->pages != NULL);
    }
    for (; s->n_pages < n_varying; s->n_pages++)
        save_page(s, s->n_pages);
    s->n = 0;
    for (int i = 0; i < region->n_fibers; i++) {
        const struct fiber *fiber = &region->fibers[i];
        char *from = stack_from(fiber);
        save_stack(s, from, (size_t)(fiber->stack + STACK_BYTES - from));
    }
}

static void restore_page(const struct snapshot *s, uint32_t i)
{
    struct page *page = i < s->n_pages ? s->pages[i] : NULL;
    const char *bytes =
        page != NULL ? page->bytes : baseline + (page_of(i) - (char *)region);
    if (page == NULL || page != current[i] || memcmp(page_of(i), bytes, PAGE_BYTES) != 0)
        memcpy(page_of(i), bytes, PAGE_BYTES);
    if (page != current[i]) {
        unref(current[i]);
        current[i] = page != NULL ? ref(page) : NULL;
    }
}

void region_restore(const struct snapshot *s)
{
    for (uint32_t i = 0; i < n_varying; i++)
        restore_page(s, i);
    const char *at = s->stacks;
    for (int i = 0; i < region->n_fibers; i++) {
        const struct fiber *fiber = &region->fibers[i];
        char *from = stack_from(fiber);
        size_t n = (size_t)(fiber->stack + STACK_BYTES - from);
        memcpy(from, at, n);
        at += n;
    }
}

void region_forget(struct snapshot *s)
{
    drop_pages(s);
    free(s->pages);
    free(s->stacks);
    *s = (struct snapshot){0};
}

char *region_stack(int fiber)
{
    return stack_base + (size_t)fiber * STACK_BYTES;
}
