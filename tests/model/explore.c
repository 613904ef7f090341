/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/model/explore.h"

#include <assert.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "tests/check.h"

#define REGION_BASE ((void *)0x200000000000)
#define HEAP_BYTES (64u << 20)
#define STACK_BYTES (256u << 10)
#define PAGE_BYTES 4096u
#define N_PAGES (sizeof(struct region) / PAGE_BYTES)
#define N_CLASSES 22
#define MAX_DEPTH 4000

enum fiber_state { FIBER_NONE, FIBER_BLOCKED, FIBER_CHOOSING, FIBER_ENDED };

struct fiber {
    ucontext_t context;
    enum fiber_state state;
    const char *name, *what;
    void *(*body)(void *arg);
    void *arg;
    bool (*ready)(void *arg);
    bool (*enabled)(void *arg, int i);
    void *wait_arg;
    bool may_time_out;
    int n_choices;
    int answer; /* of the step that lets it go on */
    char *stack;
};

struct chunk {
    uint64_t bytes; /* of what follows */
    struct chunk *next_free;
    bool used;
    uint64_t reserved;
};

/* All that changes lies in here, at an address that never does. */
struct region {
    size_t heap_used;
    struct chunk *free_chunks[N_CLASSES];
    struct fiber fibers[MAX_FIBERS];
    int n_fibers;
    _Alignas(4096) char heap[HEAP_BYTES];
};

static struct region *region;
static char *stack_base;
static ucontext_t scheduler;
static int running = -1;
static bool setting_up;
static const struct scenario *current;

/* Most of the region never changes after set_up. Pages are write-protected until
 * something writes to them; from then on they vary, and belong to every state. */
static char *baseline; /* the region as set_up left it */
static size_t set_up_used;
static uint32_t *varying;
static uint32_t n_varying;
static uint64_t *baseline_hashes; /* by place in `varying` */

/* ---- memory ---- */

static uint64_t page_hash(uint32_t page, const char *base);

static void on_write(int signal, siginfo_t *info, void *context)
{
    char *at = info->si_addr;
    if (at < (char *)region || at >= (char *)(region + 1))
        abort(); /* a fault of the program's own */
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

static void region_map(void)
{
    region = map(sizeof(struct region) + MAX_FIBERS * STACK_BYTES, REGION_BASE);
    stack_base = (char *)(region + 1);
    baseline = map(sizeof(struct region), NULL);
    varying = map(N_PAGES * sizeof(varying[0]), NULL);
    baseline_hashes = map(N_PAGES * sizeof(baseline_hashes[0]), NULL);
    stack_t stack = {.ss_sp = map(65536, NULL), .ss_size = 65536};
    CHECK(sigaltstack(&stack, NULL) == 0);
    struct sigaction action = {.sa_sigaction = on_write,
                               .sa_flags = SA_SIGINFO | SA_ONSTACK};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
}

/* What set_up left is where every state begins. What it freed is not used again. */
static void region_protect(void)
{
    memset(region->free_chunks, 0, sizeof(region->free_chunks));
    region->heap_used = (region->heap_used + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    set_up_used = region->heap_used;
    memcpy(baseline, region, offsetof(struct region, heap) + region->heap_used);
    n_varying = 0;
    CHECK(mprotect(region->heap, HEAP_BYTES, PROT_READ) == 0);
    /* The kernel writes to contexts, and gets no signal for it: they vary from the start.
     */
    for (; n_varying * PAGE_BYTES < offsetof(struct region, heap); n_varying++) {
        varying[n_varying] = n_varying;
        baseline_hashes[n_varying] = page_hash(n_varying, baseline);
    }
}

static void region_unmap(void)
{
    munmap(region, sizeof(struct region) + MAX_FIBERS * STACK_BYTES);
    munmap(baseline, sizeof(struct region));
    munmap(varying, N_PAGES * sizeof(varying[0]));
    munmap(baseline_hashes, N_PAGES * sizeof(baseline_hashes[0]));
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

void *region_alloc(size_t bytes, size_t align)
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
    uintptr_t at = (uintptr_t)(chunk + 1);
    if (align > 16)
        at = (at + align - 1) / align * align;
    return (void *)at;
}

/* The chunk that a pointer lies in. Aligned ones are not at its start. */
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

void region_free(void *pointer)
{
    struct chunk *chunk = chunk_of(pointer);
    assert(chunk != NULL);
    uint64_t *word = (void *)(chunk + 1);
    for (uint64_t i = 0; i < chunk->bytes / sizeof(*word); i++) {
        if (word[i] != 0) /* a page that is zero need not vary */
            word[i] = 0;
    }
    unsigned class = class_of(chunk->bytes);
    chunk->used = false;
    chunk->next_free = region->free_chunks[class];
    region->free_chunks[class] = chunk;
}

/* ---- a state ---- */

/* Addresses in the heap make no difference: who allocated first is no state. */
static uint64_t plain(uint64_t word)
{
    return word - (uint64_t)(uintptr_t)region < sizeof(struct region) ? 1 : word;
}

static uint64_t mix(uint64_t h, const void *bytes, size_t n)
{
    const uint64_t *p = bytes;
    for (size_t i = 0; i < n / sizeof(*p); i++) {
        if (p[i] == 0)
            continue;
        h = (h ^ plain(p[i]) ^ i << 40) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    return h ^ h >> 32;
}

/* What of a fiber's stack is alive: from its stack pointer on. */
static char *stack_from(const struct fiber *fiber)
{
#if defined(__x86_64__)
    char *sp = (char *)(uintptr_t)fiber->context.uc_mcontext.gregs[15];
    return fiber->state == FIBER_ENDED ? fiber->stack + STACK_BYTES : sp;
#else
    return fiber->state == FIBER_ENDED ? fiber->stack + STACK_BYTES : fiber->stack;
#endif
}

static uint64_t page_hash(uint32_t page, const char *base)
{
    return mix(page + 1, base + (size_t)page * PAGE_BYTES, PAGE_BYTES);
}

/* Memory that was allocated since: what lies in it, wherever. */
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
    uint64_t head[] = {(uint64_t)fiber->state, (uint64_t)(uintptr_t)fiber->what};
    h = mix(h, head, sizeof(head));
    char *from = stack_from(fiber);
    return mix(h, from, (size_t)(fiber->stack + STACK_BYTES - from));
}

/* Pages that are as set_up left them count as nothing, so that it does not matter how
 * many vary by now. */
static uint64_t state_hash(const struct scenario *scenario)
{
    if (scenario->canonical != NULL)
        scenario->canonical(true);
    uint64_t h = 0x51ab1e + chunks_hash();
    uint32_t first = offsetof(struct region, heap) / PAGE_BYTES;
    uint32_t last = first + (uint32_t)(set_up_used / PAGE_BYTES);
    for (uint32_t i = 0; i < n_varying; i++) {
        if (varying[i] >= first && varying[i] < last)
            h += page_hash(varying[i], (char *)region) - baseline_hashes[i];
    }
    for (int i = 0; i < region->n_fibers; i++)
        h = fiber_hash(h, i);
    if (scenario->canonical != NULL)
        scenario->canonical(false);
    return h != 0 ? h : 1;
}

struct snapshot {
    uint32_t n_pages; /* that varied then; the others were as set_up left them */
    char *bytes;
    size_t n, capacity;
};

static void save_piece(struct snapshot *s, const void *bytes, size_t n)
{
    if (s->n + n > s->capacity) {
        s->capacity = (s->n + n) * 3 / 2;
        s->bytes = realloc(s->bytes, s->capacity);
        CHECK(s->bytes != NULL);
    }
    memcpy(s->bytes + s->n, bytes, n);
    s->n += n;
}

static void save(struct snapshot *s)
{
    s->n = 0;
    s->n_pages = n_varying;
    for (uint32_t i = 0; i < n_varying; i++)
        save_piece(s, (char *)region + (size_t)varying[i] * PAGE_BYTES, PAGE_BYTES);
    for (int i = 0; i < region->n_fibers; i++) {
        const struct fiber *fiber = &region->fibers[i];
        char *from = stack_from(fiber);
        save_piece(s, from, (size_t)(fiber->stack + STACK_BYTES - from));
    }
}

static void restore(const struct snapshot *s)
{
    const char *at = s->bytes;
    for (uint32_t i = 0; i < n_varying; i++) {
        size_t offset = (size_t)varying[i] * PAGE_BYTES;
        bool old = i < s->n_pages;
        memcpy((char *)region + offset, old ? at : baseline + offset, PAGE_BYTES);
        at += old ? PAGE_BYTES : 0;
    }
    for (int i = 0; i < region->n_fibers; i++) {
        const struct fiber *fiber = &region->fibers[i];
        char *from = stack_from(fiber);
        size_t n = (size_t)(fiber->stack + STACK_BYTES - from);
        memcpy(from, at, n);
        at += n;
    }
}

/* ---- fibers ---- */

static void fiber_main(int self)
{
    struct fiber *fiber = &region->fibers[self];
    fiber->body(fiber->arg);
    fiber->state = FIBER_ENDED;
    swapcontext(&fiber->context, &scheduler);
}

static bool always(void *arg)
{
    return true;
}

int fiber_start(const char *name, void *(*body)(void *arg), void *arg)
{
    CHECK(region->n_fibers < MAX_FIBERS);
    int self = region->n_fibers++;
    struct fiber *fiber = &region->fibers[self];
    fiber->stack = stack_base + (size_t)self * STACK_BYTES;
    fiber->name = name;
    fiber->what = "begins";
    fiber->body = body;
    fiber->arg = arg;
    fiber->state = FIBER_BLOCKED;
    fiber->ready = always;
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&fiber->context, (void (*)(void))fiber_main, 1, self);
    return self;
}

int fiber_self(void)
{
    return running;
}

bool fiber_ended(int fiber)
{
    return region->fibers[fiber].state == FIBER_ENDED;
}

void fiber_kill(int fiber)
{
    region->fibers[fiber].state = FIBER_ENDED;
}

static int yield(void)
{
    struct fiber *fiber = &region->fibers[running];
    swapcontext(&fiber->context, &scheduler);
    return fiber->answer;
}

bool fiber_block(bool (*ready)(void *arg), void *arg, bool may_time_out, const char *what)
{
    struct fiber *fiber = &region->fibers[running];
    fiber->state = FIBER_BLOCKED;
    fiber->ready = ready;
    fiber->wait_arg = arg;
    fiber->may_time_out = may_time_out;
    fiber->what = what;
    return yield() == 0;
}

int fiber_choose(int n, bool (*enabled)(void *arg, int i), void *arg, const char *what)
{
    struct fiber *fiber = &region->fibers[running];
    fiber->state = FIBER_CHOOSING;
    fiber->n_choices = n;
    fiber->enabled = enabled;
    fiber->wait_arg = arg;
    fiber->what = what;
    return yield();
}

/* What a fiber may do next: answers for it, 0 goes on, 1 times out; or the choices. */
static int answers_of(const struct fiber *fiber, int *ret)
{
    int n = 0;
    if (fiber->state == FIBER_BLOCKED) {
        if (fiber->ready(fiber->wait_arg))
            ret[n++] = 0;
        else if (fiber->may_time_out && current->time_left != NULL &&
                 current->time_left())
            ret[n++] = 1;
    }
    for (int i = 0; fiber->state == FIBER_CHOOSING && i < fiber->n_choices; i++) {
        if (fiber->enabled == NULL || fiber->enabled(fiber->wait_arg, i))
            ret[n++] = i;
    }
    return n;
}

/* ---- exploring ---- */

struct step {
    int fiber, answer;
    const char *what;
};

struct level {
    struct snapshot snapshot;
    uint64_t hash;
    struct step steps[32];
    int n_steps, next;
    bool moved; /* some step led to another state */
    int last;   /* the fiber that came here */
    uint32_t preemptions;
};

static struct level *levels;
static int depth;

static void print_trace(void)
{
    fprintf(stderr, "    scenario %s, after:\n", current->name);
    for (int i = 0; i < depth; i++) {
        const struct step *step = &levels[i].steps[levels[i].next - 1];
        fprintf(stderr, "      %3d %s: %s%s\n", i, region->fibers[step->fiber].name,
                step->what, step->answer == 0 ? "" : " (other)");
    }
    for (int i = 0; i < region->n_fibers; i++) {
        const struct fiber *fiber = &region->fibers[i];
        fprintf(stderr, "      now %s: %s\n", fiber->name,
                fiber->state == FIBER_ENDED ? "has ended" : fiber->what);
    }
}

void explore_fail(const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    print_trace();
    FAIL("%s", text);
}

/* Open addressing; 0 is empty. */
static uint64_t *visited;
static uint8_t *visited_preemptions; /* the fewest that led there */
static uint64_t n_slots, n_visited;

static bool visit(uint64_t hash, uint32_t preemptions)
{
    uint64_t at = hash & (n_slots - 1);
    while (visited[at] != 0 && visited[at] != hash)
        at = (at + 1) & (n_slots - 1);
    if (visited[at] == hash && visited_preemptions[at] <= preemptions)
        return false;
    n_visited += visited[at] == 0;
    visited[at] = hash;
    visited_preemptions[at] = (uint8_t)preemptions;
    return true;
}

/* Is this step one that interrupts? */
static bool preempts(const struct level *level, const struct step *step)
{
    if (level->last < 0 || step->fiber == level->last)
        return false;
    for (int i = 0; i < level->n_steps; i++) {
        if (level->steps[i].fiber == level->last)
            return true;
    }
    return false;
}

static void enter_level(struct level *level, uint64_t hash, int last,
                        uint32_t preemptions)
{
    level->last = last;
    level->preemptions = preemptions;
    level->hash = hash;
    level->next = level->n_steps = 0;
    level->moved = false;
    for (int i = 0; i < region->n_fibers; i++) {
        int answers[16];
        int n = answers_of(&region->fibers[i], answers);
        for (int k = 0; k < n; k++) {
            CHECK(level->n_steps < 32);
            level->steps[level->n_steps++] = (struct step){
                .fiber = i, .answer = answers[k], .what = region->fibers[i].what};
        }
    }
    save(&level->snapshot);
}

static void run_step(const struct step *step)
{
    struct fiber *fiber = &region->fibers[step->fiber];
    fiber->answer = step->answer;
    running = step->fiber;
    swapcontext(&scheduler, &fiber->context);
    running = -1;
}

bool explore_inside(void)
{
    return setting_up || running >= 0;
}

static void begin(const struct scenario *scenario)
{
    current = scenario;
    n_slots = 1;
    while (n_slots < scenario->max_states * 2)
        n_slots *= 2;
    visited = calloc(n_slots, sizeof(visited[0]));
    levels = calloc(MAX_DEPTH, sizeof(levels[0]));
    visited_preemptions = calloc(n_slots, 1);
    CHECK(visited != NULL && visited_preemptions != NULL && levels != NULL);
    n_visited = 0;
    depth = 0;
    region_map();
    running = -1;
    setting_up = true;
    scenario->set_up();
    setting_up = false;
    region_protect();
}

static void end(void)
{
    for (int i = 0; i < MAX_DEPTH; i++)
        free(levels[i].snapshot.bytes);
    free(levels);
    free(visited);
    free(visited_preemptions);
    region_unmap();
}

/* The hash of where the step leads; *ret_moved: to another state than this one. */
static uint64_t follow(struct level *level, const struct step *step, bool *ret_moved)
{
    run_step(step);
    depth++; /* for the trace */
    current->check();
    depth--;
    uint64_t hash = state_hash(current);
    *ret_moved = hash != level->hash;
    return hash;
}

static void leave_level(struct explored *ret)
{
    if (!levels[depth].moved) {
        ret->rests++;
        current->at_rest();
    }
    depth--;
}

void explore(const struct scenario *scenario, struct explored *ret)
{
    *ret = (struct explored){0};
    begin(scenario);
    uint32_t bound = scenario->max_preemptions;
    enter_level(&levels[0], state_hash(scenario), -1, 0);
    visit(levels[0].hash, 0);
    while (depth >= 0) {
        struct level *level = &levels[depth];
        restore(&level->snapshot);
        if (level->next == level->n_steps) {
            leave_level(ret);
            continue;
        }
        const struct step *step = &level->steps[level->next++];
        uint32_t preemptions = level->preemptions + (bound != 0 && preempts(level, step));
        if (preemptions > bound) {
            level->moved = true; /* there is a way on, which is not gone */
            continue;
        }
        bool moved;
        uint64_t hash = follow(level, step, &moved);
        level->moved |= moved;
        ret->steps++;
        uint64_t place = bound == 0 ? hash : hash ^ (uint64_t)(step->fiber + 1) << 50;
        if (!moved || !visit(place, preemptions))
            continue;
        if (n_visited > scenario->max_states)
            FAIL("scenario %s has more than %llu states", scenario->name,
                 (unsigned long long)scenario->max_states);
        CHECK(depth + 1 < MAX_DEPTH);
        enter_level(&levels[++depth], hash, step->fiber, preemptions);
        if ((uint32_t)depth > ret->depth)
            ret->depth = (uint32_t)depth;
    }
    ret->states = n_visited;
    end();
}
