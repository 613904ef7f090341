/* SPDX-License-Identifier: Apache-2.0
 *
 * The arithmetic of admission: a function of the pipeline and the numbers of its opens.
 */
#include "daemon/stage/plan.h"

#include <inttypes.h>
#include <stdio.h>

#include "daemon/host/cpus.h"

#define MIB (1024.0 * 1024.0)
#define BUFFER_BYTES (256ull << 20)
#define FIRST_BUFFER_BYTES (8ull << 20)
/* The most that auto comes to, where memory allows. */
#define MAX_AUTO_CAPACITY 16u
#define MIN_AUTO_THREADS 8u
#define MAX_AUTO_THREADS 128u
/* Where the size of a batch is not known, more extents would make smaller ones. */
#define AUTO_EXTENTS 16u

/* Under round_robin the buffer holds rounds, of an item for each rank. */
static uint32_t round_items(const struct stg_staged *staged, uint32_t num_clients)
{
    return staged->delivery == STG_DELIVERY_ROUND_ROBIN ? num_clients : 1;
}

/* share 0: no memory_budget was given. A batch whose size is not known takes at least a
 * granule. */
static int too_small(const struct stg_staged *staged, const struct stg_stage_plan *plan,
                     uint32_t num_clients, uint32_t max_held, uint64_t share,
                     uint64_t default_bytes, struct stg_err *err)
{
    char rounds[32] = "";
    if (round_items(staged, num_clients) > 1)
        snprintf(rounds, sizeof(rounds), " x num_clients %u", num_clients);
    bool known = plan->max_batch_bytes >= STG_GRANULE_BYTES;
    uint64_t bytes = known ? plan->max_batch_bytes : STG_GRANULE_BYTES;
    stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
            "(capacity %u%s + num_threads %u + num_clients %u x max_held %u + 1) x %s "
            "%" PRIu64 " = %.1f MiB",
            plan->capacity, rounds, plan->num_threads, num_clients, max_held,
            known ? "max_batch_bytes" : "the least bytes of a batch,", bytes,
            (double)plan->n_extents * (double)stg_granules(bytes) / MIB);
    if (share != 0)
        stg_err_append(err, err->code,
                       ", and %.1f MiB for read buffers, do not fit the pipeline's "
                       "memory_budget of %.1f MiB: raise it, or",
                       (double)plan->buffer_bytes / MIB, (double)share / MIB);
    else if (!known)
        stg_err_append(err, err->code,
                       " do not fit stagerd's default_pipeline_memory of %.1f MiB: give "
                       "the pipeline a memory_budget, or",
                       (double)default_bytes / MIB);
    else
        stg_err_append(err, err->code, " are more than can be counted:");
    return stg_err_append(err, err->code,
                          " lower %scapacity, num_threads, max_held or batch_size",
                          staged->max_batch_bytes != 0 ? "max_batch_bytes, " : "");
}

static void count_extents(const struct stg_staged *staged, uint32_t num_clients,
                          struct stg_stage_plan *plan)
{
    plan->n_extents = (uint64_t)plan->capacity * round_items(staged, num_clients) +
                      plan->num_threads + (uint64_t)num_clients * plan->max_held + 1;
}

/* Runners that auto may come to: such that sleep or read need no CPU of their own. */
static uint32_t most_threads(void)
{
    unsigned n = 2 * stg_cpus_whole();
    return n < MIN_AUTO_THREADS   ? MIN_AUTO_THREADS
           : n < MAX_AUTO_THREADS ? n
                                  : MAX_AUTO_THREADS;
}

/* Less and less for auto, the greater number first, until no more than n_extents are
 * needed, or both are 1. */
static void limit_auto(const struct stg_staged *staged, uint32_t num_clients,
                       uint64_t n_extents, struct stg_stage_plan *plan)
{
    plan->capacity = staged->capacity != 0 ? staged->capacity : MAX_AUTO_CAPACITY;
    plan->num_threads = staged->num_threads != 0 ? staged->num_threads : most_threads();
    count_extents(staged, num_clients, plan);
    while (plan->n_extents > n_extents) {
        bool threads = staged->num_threads == 0 && plan->num_threads > 1;
        bool capacity = staged->capacity == 0 && plan->capacity > 1;
        if (threads && (!capacity || plan->num_threads >= plan->capacity))
            plan->num_threads--;
        else if (capacity)
            plan->capacity--;
        else
            return;
        count_extents(staged, num_clients, plan);
    }
}

/* What is known of the largest batch; 0: nothing. Cuts that `auto` may try get room by
 * make_room_for_cuts. */
static uint64_t known_bytes(const struct stg_pipeline_spec *spec,
                            const struct stg_cuts *cuts)
{
    enum stg_smart_stage mode = spec->smart_stage;
    if (spec->staged.max_batch_bytes != 0)
        return spec->staged.max_batch_bytes;
    return stg_cuts_batch_bytes(cuts, mode == STG_SMART_STAGE_AUTO ? STG_SMART_STAGE_OFF
                                                                   : mode);
}

/* For batches of a cut that are larger than the pipeline's own, as far as there is room:
 * they are no reason to refuse it, nor to take from its dataset. */
static void make_room_for_cuts(const struct stg_pipeline_spec *spec,
                               const struct stg_cuts *cuts, uint64_t room,
                               struct stg_stage_plan *plan)
{
    if (spec->smart_stage != STG_SMART_STAGE_AUTO || spec->staged.max_batch_bytes != 0)
        return;
    uint64_t most = room / plan->n_extents / STG_GRANULE_BYTES * STG_GRANULE_BYTES;
    uint64_t wanted = stg_cuts_batch_bytes(cuts, STG_SMART_STAGE_AUTO);
    if (wanted == 0 || wanted > most)
        wanted = most;
    if (wanted > plan->max_batch_bytes)
        plan->max_batch_bytes = wanted;
}

int stg_stage_plan(const struct stg_pipeline_spec *spec, const struct stg_cuts *cuts,
                   uint32_t num_clients, uint32_t max_held, uint64_t default_bytes,
                   struct stg_stage_plan *ret, struct stg_err *err)
{
    const struct stg_staged *staged = &spec->staged;
    struct stg_stage_plan plan = {
        .max_held = max_held,
        .max_batch_bytes = known_bytes(spec, cuts),
        .buffer_bytes = BUFFER_BYTES,
    };
    uint64_t share = staged->memory_budget;
    bool known = plan.max_batch_bytes != 0;
    if (share != 0 && (!known || plan.buffer_bytes > share / 4))
        plan.buffer_bytes = share / 4;
    uint64_t room = share != 0 ? share - plan.buffer_bytes : default_bytes;
    limit_auto(staged, num_clients,
               known ? room / stg_granules(plan.max_batch_bytes) : AUTO_EXTENTS, &plan);
    if (known)
        make_room_for_cuts(spec, cuts, share != 0 ? share / 4 : default_bytes, &plan);
    else
        plan.max_batch_bytes =
            room / plan.n_extents / STG_GRANULE_BYTES * STG_GRANULE_BYTES;
    if (plan.max_batch_bytes > UINT64_MAX / 2 / plan.n_extents ||
        (known && share != 0 &&
         plan.n_extents * stg_granules(plan.max_batch_bytes) > share - plan.buffer_bytes))
        return too_small(staged, &plan, num_clients, max_held, share, default_bytes, err);
    if (plan.max_batch_bytes < STG_GRANULE_BYTES) {
        if (!known)
            return too_small(staged, &plan, num_clients, max_held, share, default_bytes,
                             err);
        plan.max_batch_bytes = STG_GRANULE_BYTES; /* room for an error's text */
    }
    plan.max_batch_bytes = stg_granules(plan.max_batch_bytes);
    plan.arena_bytes = plan.n_extents * plan.max_batch_bytes;
    if (share != 0 && known)
        plan.buffer_bytes = share - plan.arena_bytes;
    plan.is_sparse = !known && share == 0 && spec->gpu.device == NULL;
    plan.reserved_buffer_bytes = share != 0 || plan.buffer_bytes < FIRST_BUFFER_BYTES
                                     ? plan.buffer_bytes
                                     : FIRST_BUFFER_BYTES;
    plan.reserved_bytes =
        plan.reserved_buffer_bytes +
        (plan.is_sparse ? plan.n_extents * STG_GRANULE_BYTES : plan.arena_bytes);
    *ret = plan;
    return 0;
}
