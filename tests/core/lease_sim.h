/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of one simulated run, shared by its halves: the daemon's (test_lease_sim.c)
 * and the processes' (lease_sim_process.c).
 */
#ifndef STG_TESTS_CORE_LEASE_SIM_H
#define STG_TESTS_CORE_LEASE_SIM_H

#include "core/ring.h"
#include "tests/check.h"
#include "tests/core/lease_model.h"
#include "tests/core/random.h"

#define G ((uint64_t)STG_GRANULE_BYTES)
#define MAX_QUEUED 64u
#define N_ACTS 10u

/* A client: the daemon's ends of its pages, and the process at the other ends. */
struct process {
    bool known;    /* the daemon has not noticed its death */
    bool alive;    /* false: dead, whether or not the daemon has noticed */
    bool stopped;  /* by a signal: keeps what it holds, does nothing */
    bool is_liar;  /* hostile: its writes are arbitrary */
    bool finished; /* it has read the terminal status */
    bool doorbell_due;
    struct stg_ring_writer ring;
    struct stg_control_reader control;
    uint64_t consumed; /* releases, as the model counts them */
    struct stg_ring_reader reader;
    struct stg_control_writer writer;
    struct stg_descriptor queued[MAX_QUEUED]; /* pushed, not taken */
    uint32_t n_queued;
    struct stg_descriptor held[MODEL_MAX_LEASES];
    uint32_t n_held;
};

struct sim {
    uint64_t seed;
    uint32_t step;
    struct random random;
    uint32_t weights[N_ACTS], total_weight;
    struct stg_lease_core *core;
    struct model model;
    uint64_t memory[MODEL_MAX_GRANULES]; /* one word represents the bytes of a granule */
    uint64_t numbers[MODEL_MAX_EXTENTS]; /* generation of the item in it */
    uint64_t next_number;
    struct process processes[MODEL_MAX_CLIENTS];
    struct stg_lease ended[64]; /* some have already ended */
    uint32_t n_ended;
};
extern struct sim sim;

#define SIM_CHECK(condition)                                                             \
    do {                                                                                 \
        if (!(condition))                                                                \
            FAIL("STG_SEED=%llu, step %u: not true: %s", (unsigned long long)sim.seed,   \
                 sim.step, #condition);                                                  \
    } while (0)

static inline uint32_t below(uint32_t n)
{
    return random_below(&sim.random, n);
}

static inline uint32_t id_of(const struct process *p)
{
    return (uint32_t)(p - sim.processes);
}

/* Fails unless the memory of that batch is unchanged since the batch was sealed. */
void process_check(const struct stg_descriptor *batch);

/* Takes the next descriptor from its ring, and keeps it if it is a batch. */
void process_take(struct process *p);

/* Releases the i-th batch that it holds. */
void process_release(struct process *p, uint32_t i);

/* An action of an honest process; a forbidden action. */
void process_act(struct process *p);
void process_lie(struct process *p);

#endif
