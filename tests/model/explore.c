/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "tests/model/region.h"

#define MAX_DEPTH 4000
#define MAX_STEPS 64 /* from one state */
#define RARE 100     /* as slow is a rare fiber */

static ucontext_t scheduler;
static int running = -1;
static bool setting_up;
static const struct scenario *current;

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

static int free_fiber(void)
{
    int i = 0;
    while (i < region->n_fibers && !region->fibers[i].is_forgotten)
        i++;
    CHECK(i < MAX_FIBERS);
    return i;
}

int fiber_start(const char *name, void *(*body)(void *arg), void *arg)
{
    const int self = free_fiber();
    if (self == region->n_fibers)
        region->n_fibers++;
    struct fiber *fiber = &region->fibers[self];
    *fiber = (struct fiber){.process = region_process()};
    fiber->stack = region_stack(self);
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

void fiber_forget(int fiber)
{
    CHECK(region->fibers[fiber].state == FIBER_ENDED);
    region->fibers[fiber].is_forgotten = true;
}

void fiber_set_rare(int fiber)
{
    region->fibers[fiber].is_rare = true;
}

void fiber_belong(int fiber, int process)
{
    region->fibers[fiber].process = process;
}

void process_act(int process)
{
    region->process = process;
}

int region_process(void)
{
    return running >= 0 ? region->fibers[running].process : region->process;
}

void process_kill(int process)
{
    for (int i = 0; i < region->n_fibers; i++) {
        struct fiber *fiber = &region->fibers[i];
        if (fiber->process != process)
            continue;
        CHECK(i != running);
        fiber->state = FIBER_ENDED;
        fiber->is_forgotten = true;
    }
    region_free_process(process);
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

int fiber_choose_afresh(int n, bool (*enabled)(void *arg, int i), void *arg,
                        const char *what)
{
    region->fibers[running].is_afresh = true;
    int answer = fiber_choose(n, enabled, arg, what);
    region->fibers[running].is_afresh = false;
    return answer;
}

/* The next actions of a fiber: values below n continue it with that answer, 0 continues
 * it, 1 times it out. */
static int answers_of(const struct fiber *fiber, int *ret)
{
    int n = 0;
    CHECK(fiber->state != FIBER_CHOOSING || fiber->n_choices <= MAX_STEPS);
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

/* ---- exploration ---- */

static uint64_t state_hash(void)
{
    if (current->canonical != NULL)
        current->canonical(true);
    uint64_t h = region_hash();
    if (current->canonical != NULL)
        current->canonical(false);
    return h;
}

struct step {
    int fiber, answer;
    const char *name, *what;
};

struct level {
    struct snapshot snapshot;
    uint64_t hash;
    struct step steps[MAX_STEPS];
    int n_steps, next;
    bool moved; /* some step led to another state */
    int last;   /* the fiber that led here with its step */
    uint32_t preemptions;
};

static struct level *levels;
static int depth;
static uint64_t walk_seed;            /* 0: none */
static uint64_t slowness[MAX_FIBERS]; /* a step of so many, in this walk */

static void print_step(int number, const struct step *step)
{
    const char *name = current->name_answer != NULL
                           ? current->name_answer(step->what, step->answer)
                           : NULL;
    if (name != NULL)
        fprintf(stderr, "      %3d %s: %s\n", number, step->name, name);
    else
        fprintf(stderr, "      %3d %s: %s%s\n", number, step->name, step->what,
                step->answer == 0 ? "" : " (other)");
}

static void print_trace(void)
{
    if (walk_seed != 0)
        fprintf(stderr, "    walk %llu\n", (unsigned long long)walk_seed);
    fprintf(stderr, "    scenario %s, after:\n", current->name);
    for (int i = 0; i < depth; i++)
        print_step(i, &levels[i].steps[levels[i].next - 1]);
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

/* Uses open addressing; 0 marks an empty slot. */
static uint64_t *visited;
static uint8_t *visited_preemptions; /* the fewest interruptions that lead here */
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

/* Returns whether this step interrupts a fiber. */
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

static void list_steps(struct level *level)
{
    level->next = level->n_steps = 0;
    for (int i = 0; i < region->n_fibers; i++) {
        int answers[MAX_STEPS];
        int n = answers_of(&region->fibers[i], answers);
        for (int k = 0; k < n; k++) {
            CHECK(level->n_steps < MAX_STEPS);
            level->steps[level->n_steps++] =
                (struct step){.fiber = i,
                              .answer = answers[k],
                              .name = region->fibers[i].name,
                              .what = region->fibers[i].what};
        }
    }
}

static void enter_level(struct level *level, uint64_t hash, int last,
                        uint32_t preemptions)
{
    level->last = last;
    level->preemptions = preemptions;
    level->hash = hash;
    level->moved = false;
    list_steps(level);
    region_save(&level->snapshot);
}

static void run_step(const struct step *step)
{
    struct fiber *fiber = &region->fibers[step->fiber];
    fiber->answer = step->answer;
    region_clear_below(fiber);
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
        region_forget(&levels[i].snapshot);
    free(levels);
    free(visited);
    free(visited_preemptions);
    region_unmap();
}

/* ---- walks ---- */

static uint64_t draw(uint64_t *seed, uint64_t n)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*seed >> 33) % n;
}

/* In each walk some fibers are slow. */
static void draw_slowness(uint64_t *seed)
{
    for (int i = 0; i < MAX_FIBERS; i++)
        slowness[i] = UINT64_C(1) << 3 * draw(seed, 3);
}

static const struct step *draw_step(const struct level *level, uint64_t *seed)
{
    for (int i = 0; i < 256; i++) {
        const struct step *step = &level->steps[draw(seed, (uint64_t)level->n_steps)];
        bool is_rare = region->fibers[step->fiber].is_rare;
        if (draw(seed, is_rare ? RARE : slowness[step->fiber]) == 0)
            return step;
    }
    return &level->steps[0];
}

/* Goes on until no step exists. */
static void walk(uint64_t *seed, struct explored *ret)
{
    depth = 0;
    list_steps(&levels[0]);
    while (levels[depth].n_steps > 0) {
        struct level *level = &levels[depth];
        const struct step *step = draw_step(level, seed);
        level->next = (int)(step - level->steps) + 1;
        depth++;
        if (depth == MAX_DEPTH - 1)
            explore_fail("no rest after %d steps", depth);
        run_step(step);
        list_steps(&levels[depth]);
        ret->steps++;
    }
    if ((uint32_t)depth > ret->depth)
        ret->depth = (uint32_t)depth;
    ret->rests++;
    current->at_rest();
}

void explore_walks(const struct scenario *scenario, uint64_t n, uint64_t seed,
                   struct explored *ret)
{
    static struct snapshot start; /* is in no level */
    *ret = (struct explored){0};
    begin(scenario);
    region_save(&start);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t at = walk_seed = seed + i;
        draw_slowness(&at);
        region_restore(&start);
        walk(&at, ret);
    }
    walk_seed = 0;
    region_forget(&start);
    end();
}

/* Returns the hash of the state after the step; *ret_moved: it differs from this
 * state. */
static uint64_t follow(struct level *level, const struct step *step, bool *ret_moved)
{
    depth++; /* for the trace */
    run_step(step);
    depth--;
    uint64_t hash = state_hash();
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
    enter_level(&levels[0], state_hash(), -1, 0);
    visit(levels[0].hash, 0);
    while (depth >= 0) {
        struct level *level = &levels[depth];
        region_restore(&level->snapshot);
        if (level->next == level->n_steps) {
            leave_level(ret);
            continue;
        }
        const struct step *step = &level->steps[level->next++];
        uint32_t preemptions = level->preemptions + (bound != 0 && preempts(level, step));
        if (preemptions > bound) {
            level->moved = true; /* a step exists, and its fiber has not ended */
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
