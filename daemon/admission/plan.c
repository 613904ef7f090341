/* SPDX-License-Identifier: Apache-2.0
 *
 * The arithmetic of admission. Every part is a function of memory_budget that never
 * falls, and never rises faster than it, so that what is left never falls either.
 */
#include "daemon/admission/plan.h"

#include <inttypes.h>
#include <stdio.h>

#include "daemon/host/cpus.h"

#define MIB (1024.0 * 1024.0)
#define WHOLE_MIB (UINT64_C(1) << 20)
#define BUFFER_BYTES (256ull << 20)
#define FIRST_BUFFER_BYTES (8ull << 20)
/* Of batches that the dataset holds at once: one in the making, and what it is made of.
 * Each runner holds one more. */
#define BATCHES_IN_MAKING 2u
/* The most that auto comes to, where memory allows. */
#define MAX_AUTO_CAPACITY 16u
#define MIN_AUTO_THREADS 8u
#define MAX_AUTO_THREADS 128u
/* Where the size of a batch is not known, more extents would make smaller ones. */
#define AUTO_EXTENTS 16u
#define MOST_BYTES (UINT64_MAX / 4)

__extension__ typedef unsigned __int128 wide;

static uint64_t at_most(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t at_least(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* Up to MOST_BYTES. */
static uint64_t times(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? MOST_BYTES
                                                  : at_most(product, MOST_BYTES);
}

/* bytes * part / whole, part <= whole. */
static uint64_t share_of(uint64_t bytes, uint64_t part, uint64_t whole)
{
    return (uint64_t)((wide)bytes * part / whole);
}

/* ---- what a pipeline can use ---- */

/* Between these two lies the plan. Bytes of a batch are in granules. */
struct demand {
    bool is_known;           /* is the size of a batch known? */
    uint64_t known;          /* where it is not: what of a full batch is */
    uint64_t least, most;    /* bytes of a batch */
    struct stg_stage_plan n; /* with the most extents */
    uint64_t least_extents;
    uint32_t least_threads;
};

/* Under round_robin the buffer holds rounds, of an item for each rank. */
static uint32_t round_items(const struct stg_plan_asked *asked)
{
    return asked->staged->delivery == STG_DELIVERY_ROUND_ROBIN ? asked->num_clients : 1;
}

static void count_extents(struct stg_stage_plan *plan)
{
    const struct stg_plan_asked *asked = &plan->asked;
    plan->n_extents = (uint64_t)plan->capacity * round_items(asked) + plan->num_threads +
                      plan->num_remote +
                      (uint64_t)asked->num_clients * plan->max_in_flight + 1;
}

/* Runners that auto may come to: such that sleep or read need no CPU of their own. */
static uint32_t most_threads(void)
{
    unsigned n = 2 * stg_cpus_whole();
    return n < MIN_AUTO_THREADS   ? MIN_AUTO_THREADS
           : n < MAX_AUTO_THREADS ? n
                                  : MAX_AUTO_THREADS;
}

/* Less for auto, the greater number first. Whatever the memory, auto comes to one of the
 * steps of this way. */
static bool take_from_auto(struct stg_stage_plan *plan)
{
    const struct stg_staged *staged = plan->asked.staged;
    bool threads = staged->num_threads == 0 && plan->num_threads > 1;
    bool capacity = staged->capacity == 0 && plan->capacity > 1;
    if (threads && (!capacity || plan->num_threads >= plan->capacity))
        plan->num_threads--;
    else if (capacity)
        plan->capacity--;
    else
        return false;
    count_extents(plan);
    return true;
}

/* Of the dataset, for batches that are pulled or in the making. */
static uint64_t making_bytes(const struct stg_plan_asked *asked, uint32_t num_threads)
{
    return times(asked->sizes.element_bytes, BATCHES_IN_MAKING + (uint64_t)num_threads);
}

static void find_sizes(const struct stg_plan_asked *asked, struct demand *ret)
{
    const struct stg_sizes *sizes = &asked->sizes;
    uint64_t written = asked->staged->max_batch_bytes;
    uint64_t known = written != 0 ? written : sizes->batch_bytes;
    ret->is_known = known != 0;
    ret->known = 0;
    if (ret->is_known) {
        /* at least room for an error's text */
        ret->least = known > MOST_BYTES ? MOST_BYTES : stg_granules(known);
        ret->most = ret->least;
        if (written == 0 && sizes->partition_bytes != 0)
            ret->most = at_least(ret->least, stg_granules(sizes->partition_bytes));
    } else { /* less than a granule is had with the first one */
        if (sizes->least_bytes > STG_GRANULE_BYTES)
            ret->known = stg_granules(at_most(sizes->least_bytes, MOST_BYTES));
        ret->least = ret->known + STG_GRANULE_BYTES;
        ret->most = MOST_BYTES;
    }
}

static void find_demand(const struct stg_plan_asked *asked, struct demand *ret)
{
    const struct stg_staged *staged = asked->staged;
    find_sizes(asked, ret);
    struct stg_stage_plan *n = &ret->n;
    *n = (struct stg_stage_plan){
        .asked = *asked,
        .capacity = staged->capacity != 0 ? staged->capacity : MAX_AUTO_CAPACITY,
        .num_threads = staged->num_threads != 0 ? staged->num_threads : most_threads(),
        .num_remote =
            staged->remote.mode != STG_SMART_STAGE_OFF ? staged->remote.max_requests : 0,
        .max_in_flight = asked->max_in_flight,
    };
    count_extents(n);
    while (!ret->is_known &&
           (n->n_extents > AUTO_EXTENTS ||
            times(n->n_extents, ret->known) > asked->default_bytes) &&
           take_from_auto(n))
        ;
    n->most_threads = n->num_threads;
    struct stg_stage_plan least = *n;
    while (take_from_auto(&least))
        ;
    ret->least_extents = least.n_extents;
    ret->least_threads = least.num_threads;
}

/* ---- shares ---- */

/* Memory for the dataset, for as many extents as there can be, and for larger ones. The
 * arena is the larger of the last two. */
struct shares {
    uint64_t buffers, extents, batches;
};

/* Fills the plan with as many extents as both shares allow. False: not even the least. */
static bool fill(const struct demand *demand, const struct shares *shares,
                 struct stg_stage_plan *ret)
{
    struct stg_stage_plan plan = demand->n;
    uint64_t most_extents = plan.n_extents;
    while (times(plan.n_extents, demand->least) > shares->extents ||
           making_bytes(&plan.asked, plan.num_threads) > shares->buffers) {
        if (!take_from_auto(&plan))
            return false;
    }
    uint64_t bytes =
        shares->batches / most_extents / STG_GRANULE_BYTES * STG_GRANULE_BYTES;
    plan.max_batch_bytes = at_least(demand->least, at_most(bytes, demand->most));
    plan.arena_bytes = times(plan.n_extents, plan.max_batch_bytes);
    plan.buffer_bytes = shares->buffers;
    *ret = plan;
    return plan.arena_bytes < MOST_BYTES;
}

/* Without memory_budget: default_bytes, or what the least takes. Where the size of a
 * batch is not known, they are for what is not. *ret is what the plan has of it. */
static bool share_default(const struct demand *demand, struct shares *ret,
                          struct stg_stage_plan *plan)
{
    const struct stg_plan_asked *asked = &demand->n.asked;
    uint64_t bytes = asked->default_bytes, n = demand->n.n_extents;
    if (!demand->is_known && bytes < times(demand->least_extents, STG_GRANULE_BYTES))
        return false;
    bytes = at_most(bytes + times(n, demand->known), MOST_BYTES);
    uint64_t least = times(demand->least_extents, demand->least);
    struct shares shares = {.buffers = MOST_BYTES,
                            .extents = at_least(bytes, least),
                            .batches = at_most(bytes, times(n, demand->most))};
    if (!fill(demand, &shares, plan))
        return false;
    uint64_t making = making_bytes(asked, plan->num_threads);
    plan->buffer_bytes = at_least(BUFFER_BYTES, making + making / 4);
    *ret = (struct shares){.buffers = plan->buffer_bytes,
                           .extents = demand->is_known ? plan->n_extents * demand->least
                                                       : plan->arena_bytes,
                           .batches = plan->arena_bytes};
    return true;
}

/* What comes of `budget` for a part that has `part` of it without one, in which the
 * dataset has `buffers` and all have `whole`: up to that much no more than without, and
 * what the dataset leaves, but `at_once` in any case; then as the parts are. */
static uint64_t grow(uint64_t budget, uint64_t at_once, uint64_t part, uint64_t buffers,
                     uint64_t whole)
{
    return budget <= whole ? at_most(part, at_least(at_once, less(budget, buffers)))
                           : share_of(budget, part, whole);
}

/* For reading, whatever the batches are. */
static uint64_t least_buffers(const struct demand *demand, uint64_t budget)
{
    return at_least(making_bytes(&demand->n.asked, demand->least_threads),
                    at_most(budget / 4, BUFFER_BYTES));
}

static bool share_budget(const struct demand *demand, uint64_t budget,
                         struct stg_stage_plan *plan)
{
    struct shares without, shares;
    uint64_t least = times(demand->least_extents, demand->least);
    uint64_t reading = least_buffers(demand, budget);
    if (budget > MOST_BYTES || least + reading > budget)
        return false;
    if (!share_default(demand, &without, plan)) /* default_bytes are too few for any */
        without = (struct shares){BUFFER_BYTES, least, least};
    uint64_t whole = without.buffers + at_least(without.extents, without.batches);
    shares.extents =
        grow(budget, budget - budget / 4, without.extents, without.buffers, whole);
    shares.extents = at_most(shares.extents, budget - reading);
    if (demand->is_known)
        shares.extents =
            at_most(shares.extents, times(demand->n.n_extents, demand->least));
    shares.extents = at_least(shares.extents, least);
    shares.batches = demand->is_known ? grow(budget, budget / 4, without.batches,
                                             without.buffers, whole)
                                      : shares.extents;
    shares.batches = at_most(shares.batches, budget - reading);
    shares.batches = at_most(shares.batches, times(demand->n.n_extents, demand->most));
    shares.buffers = budget - at_least(shares.extents, shares.batches);
    return fill(demand, &shares, plan);
}

/* ---- the plan ---- */

static bool try_budget(const struct demand *demand, uint64_t budget,
                       struct stg_stage_plan *plan)
{
    struct shares shares;
    return budget != 0 ? share_budget(demand, budget, plan)
                       : share_default(demand, &shares, plan);
}

uint64_t stg_plan_budget(const struct stg_plan_asked *asked, uint64_t buffer_bytes,
                         uint64_t batch_bytes)
{
    struct demand demand;
    struct stg_stage_plan plan;
    find_demand(asked, &demand);
    uint64_t few = 0, enough = MOST_BYTES / WHOLE_MIB; /* MiB */
    struct shares shares;
    if (batch_bytes > demand.most)
        return 0;
    /* What is there without one is not to be less with it. */
    if (asked->staged->memory_budget == 0 && share_default(&demand, &shares, &plan))
        few = (plan.arena_bytes + plan.buffer_bytes - 1) / WHOLE_MIB;
    while (few + 1 < enough) {
        uint64_t n = few + (enough - few) / 2;
        if (share_budget(&demand, n * WHOLE_MIB, &plan) &&
            plan.buffer_bytes >= buffer_bytes && plan.max_batch_bytes >= batch_bytes)
            enough = n;
        else
            few = n;
    }
    return enough < MOST_BYTES / WHOLE_MIB ? enough * WHOLE_MIB : 0;
}

static void say_least(const struct demand *demand, struct stg_err *err)
{
    const struct stg_plan_asked *asked = &demand->n.asked;
    struct stg_stage_plan plan = demand->n;
    char rounds[32] = "", remote[48] = "";
    while (take_from_auto(&plan))
        ;
    if (round_items(asked) > 1)
        snprintf(rounds, sizeof(rounds), " x num_clients %u", asked->num_clients);
    if (plan.num_remote > 0)
        snprintf(remote, sizeof(remote), " + remote.max_requests %u", plan.num_remote);
    uint64_t written = asked->staged->max_batch_bytes;
    uint64_t bytes = written != 0 ? written : demand->least;
    stg_err(
        err, -STAGER_RESOURCE_EXHAUSTED,
        "(capacity %u%s + num_threads %u%s + num_clients %u x max_in_flight %u + 1) x %s "
        "%" PRIu64 " = %.1f MiB",
        plan.capacity, rounds, plan.num_threads, remote, asked->num_clients,
        asked->max_in_flight,
        demand->is_known ? "max_batch_bytes" : "the least bytes of a batch,", bytes,
        (double)plan.n_extents * (double)stg_granules(bytes) / MIB);
}

static int too_small(const struct demand *demand, struct stg_err *err)
{
    const struct stg_plan_asked *asked = &demand->n.asked;
    uint64_t budget = asked->staged->memory_budget;
    uint64_t works = stg_plan_budget(asked, 0, 0);
    if (err == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    say_least(demand, err);
    if (works == 0)
        stg_err_append(err, err->code, " exceed any memory:");
    else if (budget != 0)
        stg_err_append(err, err->code,
                       ", and %.1f MiB for read buffers, do not fit the pipeline's "
                       "memory_budget of %.1f MiB: raise it to %" PRIu64 "MiB, or",
                       (double)least_buffers(demand, budget) / MIB, (double)budget / MIB,
                       works / WHOLE_MIB);
    else
        stg_err_append(err, err->code,
                       " do not fit stagerd's default_pipeline_memory of %.1f MiB: give "
                       "the pipeline a memory_budget of %" PRIu64 "MiB, or",
                       (double)asked->default_bytes / MIB, works / WHOLE_MIB);
    return stg_err_append(err, err->code,
                          " lower %scapacity, num_threads, max_in_flight or batch_size",
                          asked->staged->max_batch_bytes != 0 ? "max_batch_bytes, " : "");
}

static void reserve(const struct demand *demand, struct stg_stage_plan *plan)
{
    const struct stg_plan_asked *asked = &plan->asked;
    bool has_budget = asked->staged->memory_budget != 0;
    bool is_exact = asked->staged->max_batch_bytes != 0 ||
                    (demand->is_known && !asked->sizes.is_bound);
    uint64_t making =
        at_least(FIRST_BUFFER_BYTES, making_bytes(asked, demand->least_threads));
    plan->is_sparse = !is_exact && !has_budget && !asked->for_device;
    plan->reserved_buffer_bytes = has_budget        ? plan->buffer_bytes
                                  : plan->is_sparse ? FIRST_BUFFER_BYTES
                                                    : making;
    plan->reserved_bytes =
        plan->reserved_buffer_bytes +
        (plan->is_sparse ? plan->n_extents * STG_GRANULE_BYTES : plan->arena_bytes);
    plan->full_bytes = plan->reserved_bytes;
    if (!has_budget) /* with one, all of it is reserved */
        plan->full_bytes =
            at_least(plan->full_bytes, making + times(plan->n_extents, demand->least));
}

int stg_stage_plan(const struct stg_plan_asked *asked, struct stg_stage_plan *ret,
                   struct stg_err *err)
{
    struct demand demand;
    struct stg_stage_plan plan;
    find_demand(asked, &demand);
    if (!try_budget(&demand, asked->staged->memory_budget, &plan))
        return too_small(&demand, err);
    reserve(&demand, &plan);
    *ret = plan;
    return 0;
}
