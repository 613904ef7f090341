/* SPDX-License-Identifier: Apache-2.0
 *
 * The internals of the explorer: the memory that makes a state, and the fibers in it.
 */
#ifndef STG_TESTS_MODEL_REGION_H
#define STG_TESTS_MODEL_REGION_H

#include <ucontext.h>

#include "tests/model/explore.h"

#define HEAP_BYTES (64u << 20)
#define STACK_BYTES (256u << 10)
#define N_CLASSES 22

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
    bool is_afresh;    /* its stack is no part of the state */
    bool is_rare;      /* a walk seldom takes a step of it */
    bool is_forgotten; /* ENDED: another fiber may take its place */
    int process;
    int n_choices;
    int answer; /* of the step that resumes it */
    char *stack;
};

struct chunk {
    uint64_t bytes; /* of the step after */
    struct chunk *next_free;
    bool used;
    int process;
    uint64_t reserved;
};

/* All memory that changes lies in here, at a fixed address. */
struct region {
    size_t heap_used;
    struct chunk *free_chunks[N_CLASSES];
    struct fiber fibers[MAX_FIBERS];
    int n_fibers;
    int process; /* that set_up acts for */
    char heap[HEAP_BYTES] __attribute__((aligned(4096)));
};

extern struct region *region;

/* Maps a new region; protects what set_up left in it; unmaps it. */
void region_map(void);
void region_protect(void);
void region_unmap(void);
char *region_stack(int fiber);
int region_process(void); /* of what runs */

/* Zeroes the dead part of a fiber's stack. Frames with gaps would take over what an
 * earlier call, even of another branch of the search, left there: states would differ by
 * garbage. */
void region_clear_below(const struct fiber *fiber);

struct snapshot {
    /* pages that varied then, shared with other snapshots; the others were equal to those
     * of set_up */
    struct page **pages;
    uint32_t n_pages, page_capacity;
    char *stacks; /* their live parts */
    size_t n, capacity;
};

void region_save(struct snapshot *s);
void region_restore(const struct snapshot *s);
void region_forget(struct snapshot *s);

/* Equal for states without a relevant difference. Never 0. */
uint64_t region_hash(void);

#endif
