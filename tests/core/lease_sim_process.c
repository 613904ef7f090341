/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/core/lease_sim.h"

#include <string.h>

void process_check(const struct stg_descriptor *batch)
{
    for (uint64_t i = 0; i < batch->length / G; i++)
        SIM_CHECK(sim.memory[batch->offset / G + i] == batch->number);
}

void process_take(struct process *p)
{
    struct stg_descriptor got;
    bool ready = p->n_queued > 0;
    SIM_CHECK(stg_ring_ready(&p->reader) == ready);
    SIM_CHECK(stg_ring_take(&p->reader, &got) == ready);
    if (!ready)
        return;
    struct stg_descriptor want = p->queued[0]; /* I12 */
    memmove(p->queued, p->queued + 1, --p->n_queued * sizeof(p->queued[0]));
    SIM_CHECK(memcmp(&got, &want, sizeof(got)) == 0);
    struct stg_lease lease = {.id = got.lease, .generation = got.lease_generation};
    if (got.kind != STG_DESCRIPTOR_BATCH ||
        (p->is_liar && !model_owns(&sim.model, id_of(p), lease)))
        return;
    process_check(&got);
    p->held[p->n_held++] = got;
}

void process_release(struct process *p, uint32_t i)
{
    struct stg_descriptor batch = p->held[i];
    process_check(&batch);
    p->held[i] = p->held[--p->n_held];
    stg_control_release(&p->writer, batch.lease, batch.lease_generation);
}

static void ring_doorbell(struct process *p)
{
    uint32_t few = below(3);
    bool due = p->doorbell_due && p->n_queued <= few;
    SIM_CHECK(stg_ring_needs_doorbell(&p->reader, few) == due);
    if (due)
        p->doorbell_due = false;
}

void process_act(struct process *p)
{
    switch (below(8)) {
    case 0: ring_doorbell(p); break;
    case 1: stg_control_set_waiting(&p->writer, below(2)); break;
    case 2: stg_control_want_pass(&p->writer, below(9)); break;
    case 3:
    case 4:
        if (p->n_held > 0)
            process_release(p, below(p->n_held));
        break;
    default: stg_control_set_asked(&p->writer, p->reader.cursor + 1); process_take(p);
    }
}

/* Makes up a lease id and generation that could be useful to an attacker. */
static struct stg_lease forge(void)
{
    struct stg_lease lease = {.id = below(2 * MODEL_MAX_LEASES), .generation = below(40)};
    const struct model_lease *row = &sim.model.leases[below(sim.model.max_leases)];
    switch (below(6)) {
    case 0:
        if (sim.n_ended > 0) /* an ended lease */
            lease = sim.ended[below(sim.n_ended < 64 ? sim.n_ended : 64)];
        break;
    case 1: /* a lease that is out, at any client */
    case 2:
        lease = (struct stg_lease){.id = (uint32_t)(row - sim.model.leases),
                                   .generation = row->generation};
        break;
    case 3: /* the next lease of that id */
        lease = (struct stg_lease){.id = (uint32_t)(row - sim.model.leases),
                                   .generation = row->generation + 1};
        break;
    case 4: lease.id = sim.model.max_leases; break;
    default:
        if (below(2) == 0)
            lease = (struct stg_lease){.id = (uint32_t)random_next(&sim.random),
                                       .generation = (uint32_t)random_next(&sim.random)};
    }
    return lease;
}

static void scribble(struct stg_control_page *page)
{
    uint64_t *words = (uint64_t *)(void *)page;
    for (size_t i = 0; i < sizeof(*page) / sizeof(*words); i++)
        words[i] = below(2) == 0 ? random_next(&sim.random) : below(64);
}

void process_lie(struct process *p)
{
    struct stg_control_page *page = p->writer.page;
    uint64_t released = atomic_load(&page->released);
    struct stg_lease lease = forge();
    switch (below(8)) {
    case 0: scribble(page); break;
    case 1: atomic_store(&page->released, random_next(&sim.random)); break;
    case 2: atomic_store(&page->released, p->consumed + STG_RELEASE_ENTRIES + 1); break;
    case 3: atomic_store(&page->released, p->consumed + STG_RELEASE_ENTRIES); break;
    case 4: atomic_store(&page->released, released - 1 - below(3)); break;
    case 5: /* the posted entry has changed since */
        page->releases[p->consumed % STG_RELEASE_ENTRIES] = (struct stg_release_entry){
            .lease = lease.id, .lease_generation = lease.generation};
        break;
    default: stg_control_release(&p->writer, lease.id, lease.generation); break;
    }
}
