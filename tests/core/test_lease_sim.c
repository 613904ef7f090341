/* SPDX-License-Identifier: Apache-2.0
 *
 * Simulates the lease core, the arena and the rings between a lender and processes. The
 * processes take, hold, release in any order, lie, stop, continue and die; a seed chooses
 * every step. Memory is simulated too (one word for each granule), so that a reader sees
 * a batch that changes under it. tests/core/lease_model.h predicts the result of every
 * step:
 *
 *   I1, I9  a batch that a live process holds keeps its sealed bytes
 *   I2, I8  each extent's place, size and leases, and each byte counter, equal the
 * model's I3, I11 an entry of a control page is an owned release or a violation I6 after
 * a violation, everything else is unchanged in the model's view I7      a lease is new
 * when it is given out; ids of the last generation are retired I12     each process takes
 * the items pushed to it, once, in order, and no others
 *
 * The core makes no system call and reads no clock, so nothing of I4, I5 and I10 remains
 * to simulate. STG_SEED=n runs one seed. STG_SIM_SEEDS=n runs n seeds from STG_SEED (or
 * 0) on, STG_SIM_STEPS=n with that many steps each.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/core/lease_peek.h"
#include "tests/core/lease_sim.h"

#define N_SEEDS 10000u
#define N_STEPS 150u

struct sim sim;
static struct stg_ring_page *ring_pages[MODEL_MAX_CLIENTS];
static struct stg_control_page *control_pages[MODEL_MAX_CLIENTS];

/* Returns one of the clients for which `wanted` holds, or NULL. */
static struct process *any_process(bool (*wanted)(const struct process *))
{
    uint32_t first = below(sim.model.max_clients);
    for (uint32_t i = 0; i < sim.model.max_clients; i++) {
        struct process *p = &sim.processes[(first + i) % sim.model.max_clients];
        if (wanted(p))
            return p;
    }
    return NULL;
}

static bool is_known(const struct process *p)
{
    return p->known;
}

static bool is_running(const struct process *p)
{
    return p->alive && !p->stopped;
}

static bool is_running_liar(const struct process *p)
{
    return is_running(p) && p->is_liar;
}

static bool is_unknown(const struct process *p)
{
    return !p->known;
}

/* ---- the lender ---- */

/* I1: the lender writes only to an extent that it fills, at the place that the core
 * gives. */
static void write_extent(uint32_t id, uint64_t word)
{
    uint64_t start = stg_extent_offset(sim.core, id) / G;
    uint64_t n = stg_extent_bytes(sim.core, id) / G;
    SIM_CHECK(start + n <= sim.model.n_granules);
    for (uint64_t i = start; i < start + n; i++)
        sim.memory[i] = word;
}

static void reserve(void)
{
    uint32_t limit = sim.model.slot > 0 ? sim.model.slot : sim.model.n_granules / 3 + 1;
    uint64_t bytes = (1 + below(limit)) * G - below(STG_GRANULE_BYTES);
    if (below(32) == 0)
        bytes = below(2) == 0 ? 0 : (limit + below(2 * limit)) * G;
    uint32_t id, start, n;
    int want = model_reserve(&sim.model, bytes, &start, &n);
    SIM_CHECK(stg_extent_reserve(sim.core, bytes, &id) == want);
    if (want < 0)
        return;
    SIM_CHECK(id < sim.model.max_extents && !sim.model.extents[id].alive);
    SIM_CHECK(stg_extent_offset(sim.core, id) == start * G);
    model_reserved(&sim.model, id, start, n);
    sim.numbers[id] = sim.next_number++;
    write_extent(id, ~sim.numbers[id]);
}

static void drop(uint32_t id)
{
    stg_extent_drop(sim.core, id);
    model_dropped(&sim.model, id);
}

static void seal_or_drop(void)
{
    uint32_t id = below(sim.model.max_extents);
    const struct model_extent *extent = &sim.model.extents[id];
    if (!extent->lender)
        return;
    if (!extent->filling || below(8) == 0) {
        drop(id);
        return;
    }
    write_extent(id, sim.numbers[id]);
    uint64_t bytes = (1 + below(extent->n)) * G - below(STG_GRANULE_BYTES);
    stg_extent_seal(sim.core, id, bytes);
    model_sealed(&sim.model, id, bytes);
}

static void push(struct process *p, const struct stg_descriptor *descriptor)
{
    stg_ring_push(&p->ring, descriptor);
    p->queued[p->n_queued++] = *descriptor;
}

/* Acts like the stage: a batch goes to a client only once. A death report names extents,
 * and the model could not distinguish two leases on one. */
static bool may_grant(const struct process *p, uint32_t id)
{
    const struct model_extent *extent = &sim.model.extents[id];
    for (uint32_t i = 0; i < sim.model.max_leases; i++) {
        const struct model_lease *row = &sim.model.leases[i];
        if (row->out && row->client == id_of(p) && row->extent == id)
            return false;
    }
    return extent->lender && !extent->filling && p->known &&
           p->n_queued + 2 <= MAX_QUEUED;
}

static void grant_to(struct process *p, uint32_t id)
{
    if (!may_grant(p, id))
        return;
    struct stg_lease lease;
    int want = model_grant(&sim.model, id_of(p));
    SIM_CHECK(stg_lease_grant(sim.core, id, id_of(p), &lease) == want);
    if (want < 0)
        return;
    SIM_CHECK(model_lease_is_new(&sim.model, lease));
    model_leased(&sim.model, lease, id_of(p), id);
    push(p, &(struct stg_descriptor){.kind = STG_DESCRIPTOR_BATCH,
                                     .number = sim.numbers[id],
                                     .lease = lease.id,
                                     .lease_generation = lease.generation,
                                     .offset = stg_extent_offset(sim.core, id),
                                     .length = stg_extent_bytes(sim.core, id)});
}

/* Sends to one client, or to all that have room. */
static void grant(void)
{
    uint32_t id = below(sim.model.max_extents);
    bool broadcast = below(4) == 0;
    struct process *p = any_process(is_known);
    for (uint32_t i = 0; broadcast && i < sim.model.max_clients; i++)
        grant_to(&sim.processes[i], id);
    if (!broadcast && p != NULL)
        grant_to(p, id);
    if (below(3) == 0 && sim.model.extents[id].lender && !sim.model.extents[id].filling)
        drop(id);
}

static void finish(struct process *p)
{
    static const char text[] = "no more";
    if (p->finished)
        return;
    stg_ring_finish(&p->ring, STAGER_ABORTED, text);
    p->finished = true;
    SIM_CHECK(p->ring.page->final.code == STAGER_ABORTED);
    SIM_CHECK(strcmp(p->ring.page->final.text, text) == 0);
    p->queued[p->n_queued++] = (struct stg_descriptor){.kind = STG_DESCRIPTOR_FINAL};
}

static void detach(struct process *p)
{
    stg_lease_client_detach(sim.core, id_of(p));
    sim.model.clients[id_of(p)].detached = true;
    finish(p);
}

/* Drops a lease that has ended from the batches of a hostile process. An honest process
 * has released it before. */
static void forget_held(struct process *p, uint32_t lease)
{
    for (uint32_t i = 0; i < p->n_held; i++) {
        if (p->held[i].lease != lease)
            continue;
        SIM_CHECK(p->is_liar);
        p->held[i--] = p->held[--p->n_held];
    }
}

static void end_lease(uint32_t id)
{
    const struct model_lease *lease = &sim.model.leases[id];
    sim.ended[sim.n_ended++ % 64] =
        (struct stg_lease){.id = id, .generation = lease->generation};
    model_ended(&sim.model, id);
}

/* I3: the model reads the page itself and predicts the outcome. */
static int poll_once(struct process *p)
{
    const struct stg_control_page *page = p->control.page;
    struct stg_release_entry entry = {0};
    uint64_t available = atomic_load(&page->released) - p->consumed;
    int rc = stg_control_poll(&p->control, &entry);
    SIM_CHECK(stg_control_asked(&p->control) == atomic_load(&page->asked));
    SIM_CHECK(stg_control_pass_wanted(&p->control) == atomic_load(&page->pass_wanted));
    SIM_CHECK(stg_control_waiting(&p->control) == (atomic_load(&page->waiting) != 0));
    SIM_CHECK(rc == (available == 0                    ? 0
                     : available > STG_RELEASE_ENTRIES ? -STAGER_INVALID_ARGUMENT
                                                       : 1));
    if (rc <= 0)
        return rc;
    const struct stg_release_entry *posted =
        &page->releases[p->consumed++ % STG_RELEASE_ENTRIES];
    SIM_CHECK(entry.lease == posted->lease);
    SIM_CHECK(entry.lease_generation == posted->lease_generation);

    struct stg_lease lease = {.id = entry.lease, .generation = entry.lease_generation};
    bool owned = model_owns(&sim.model, id_of(p), lease);
    uint32_t extent = UINT32_MAX;
    rc = stg_lease_release(sim.core, id_of(p), lease, &extent, NULL);
    SIM_CHECK(rc == (owned ? 0 : -STAGER_INVALID_ARGUMENT));
    if (!owned) {
        SIM_CHECK(extent == UINT32_MAX);
        return rc;
    }
    SIM_CHECK(extent == sim.model.leases[lease.id].extent);
    forget_held(p, lease.id);
    end_lease(lease.id);
    return 1;
}

static void sweep(struct process *p)
{
    int rc = 1;
    for (uint32_t i = 0; i < 2 * STG_RELEASE_ENTRIES && rc == 1; i++)
        rc = poll_once(p);
    if (rc < 0) {
        SIM_CHECK(p->is_liar);
        detach(p);
    }
}

static void sweep_any(void)
{
    struct process *p = any_process(is_known);
    if (p != NULL)
        sweep(p);
}

/* ---- processes start and end ---- */

static void let_act(void)
{
    struct process *p = any_process(is_running);
    if (p != NULL)
        process_act(p);
}

static void let_lie(void)
{
    struct process *p = any_process(is_running_liar);
    if (p != NULL)
        process_lie(p);
}

/* Pages as the kernel maps them, in the middle of a long life: cursors wrap. */
static void connect(struct process *p)
{
    uint32_t i = id_of(p);
    uint64_t pushed = below(2) == 0 ? 0 : random_next(&sim.random);
    uint64_t released = below(2) == 0 ? UINT64_MAX - below(4) : 0;
    memset(ring_pages[i], 0, offsetof(struct stg_ring_page, entries));
    memset(control_pages[i], 0, sizeof(*control_pages[i]));
    stg_ring_format(ring_pages[i], 7);
    stg_control_format(control_pages[i], 7);
    SIM_CHECK(stg_ring_check(ring_pages[i], STG_RING_BYTES, NULL) == 0);
    SIM_CHECK(stg_control_check(control_pages[i], STG_CONTROL_BYTES, NULL) == 0);
    atomic_store(&ring_pages[i]->head, pushed);
    atomic_store(&control_pages[i]->released, released);
    *p = (struct process){
        .known = true,
        .alive = true,
        .is_liar = below(3) == 0,
        .ring = {.page = ring_pages[i], .head = pushed},
        .control = {.page = control_pages[i], .cursor = released},
        .consumed = released,
        .reader = {.page = ring_pages[i], .cursor = pushed},
        .writer = {.page = control_pages[i], .released = released},
    };
}

static void come(void)
{
    uint32_t id = UINT32_MAX, max_in_flight = 1 + below(6);
    bool room = any_process(is_unknown) != NULL;
    SIM_CHECK(stg_lease_client_add(sim.core, max_in_flight, &id) ==
              (room ? 0 : -STAGER_RESOURCE_EXHAUSTED));
    if (!room)
        return;
    SIM_CHECK(id < sim.model.max_clients && !sim.processes[id].known);
    sim.model.clients[id] =
        (struct model_client){.alive = true, .max_in_flight = max_in_flight};
    connect(&sim.processes[id]);
}

/* Each report is a lease of the dead process. The daemon may drop, grant and reserve
 * meanwhile, but not grant to the dead process. */
static void report(void *owner, uint32_t extent)
{
    const struct process *dead = owner;
    uint32_t i = 0;
    while (i < sim.model.max_leases &&
           (!sim.model.leases[i].out || sim.model.leases[i].client != id_of(dead) ||
            sim.model.leases[i].extent != extent))
        i++;
    SIM_CHECK(i < sim.model.max_leases);
    end_lease(i);
    switch (below(4)) {
    case 0:
        if (sim.model.extents[extent].lender)
            drop(extent);
        break;
    case 1: grant(); break;
    case 2: reserve(); break;
    }
}

static void notice_death(struct process *p)
{
    if (p->alive)
        return;
    sim.model.clients[id_of(p)].detached = true;
    p->finished = true; /* a dead process reads no further status */
    stg_lease_client_dead(sim.core, id_of(p), report, p);
    SIM_CHECK(model_held(&sim.model, id_of(p)) == 0);
    sim.model.clients[id_of(p)] = (struct model_client){0};
    *p = (struct process){0};
}

static void come_or_go(void)
{
    struct process *p = any_process(is_known);
    if (p == NULL || below(3) == 0) {
        come();
        return;
    }
    switch (below(6)) {
    case 0:
        p->alive = false;
        p->n_held = 0;
        break;
    case 1: p->stopped = true; break;
    case 2: p->stopped = false; break;
    case 3: detach(p); break;
    default: notice_death(p);
    }
}

/* The daemon's messages that carry no batch. */
static void say(void)
{
    struct process *p = any_process(is_known);
    if (p == NULL)
        return;
    struct stg_descriptor end = {.kind = STG_DESCRIPTOR_END, .number = 3};
    if (below(2) == 0) {
        stg_ring_want_doorbell(&p->ring);
        p->doorbell_due = true;
    } else if (p->finished) { /* nothing follows the terminal status */
        stg_ring_push(&p->ring, &end);
        stg_ring_finish(&p->ring, STAGER_INTERNAL, "?");
    } else if (p->n_queued + 2 <= MAX_QUEUED) {
        push(p, &end);
    }
}

/* ---- comparison ---- */

static void compare_clients(void)
{
    for (uint32_t i = 0; i < sim.model.max_clients; i++) {
        const struct process *p = &sim.processes[i];
        SIM_CHECK(p->known == sim.model.clients[i].alive);
        if (!p->known)
            continue;
        SIM_CHECK(stg_lease_client_held(sim.core, i) == model_held(&sim.model, i));
        SIM_CHECK(stg_lease_client_credits(sim.core, i) == model_credits(&sim.model, i));
        for (uint32_t k = 0; p->alive && k < p->n_held; k++)
            process_check(&p->held[k]);
    }
}

static void compare(void)
{
    struct stg_lease_usage got, want;
    for (uint32_t i = 0; i < sim.model.max_extents; i++) {
        const struct model_extent *extent = &sim.model.extents[i];
        if (!extent->alive)
            continue;
        SIM_CHECK(stg_extent_leases(sim.core, i) == model_leases_on(&sim.model, i));
        SIM_CHECK(stg_extent_offset(sim.core, i) == extent->start * G);
        SIM_CHECK(stg_extent_bytes(sim.core, i) == extent->n * G);
    }
    compare_clients();
    stg_lease_usage(sim.core, &got);
    model_usage(&sim.model, &want);
    SIM_CHECK(memcmp(&got, &want, sizeof(got)) == 0);
    struct stg_err err = {0};
    if (stg_lease_core_verify(sim.core, &err) < 0)
        FAIL("STG_SEED=%llu, step %u: %s", (unsigned long long)sim.seed, sim.step,
             err.text);
}

/* ---- one seed ---- */

static void start(uint64_t seed)
{
    struct model *m = &sim.model;
    struct stg_err err = {0};
    sim = (struct sim){.seed = seed, .random = {seed}};
    static const uint32_t sizes[] = {12, 80, MODEL_MAX_GRANULES};
    uint32_t size = sizes[below(3)];
    m->n_granules = size / 4 + below(size - size / 4) + 1;
    m->max_extents = 1 + below(MODEL_MAX_EXTENTS);
    m->max_clients = 1 + below(MODEL_MAX_CLIENTS);
    m->max_leases = 1 + below(MODEL_MAX_LEASES);
    CHECK_OK(stg_lease_core_create(m->n_granules * G + below(STG_GRANULE_BYTES),
                                   m->max_extents, m->max_clients, m->max_leases,
                                   &sim.core, &err),
             err);
    uint32_t slot = 1 + below(m->n_granules);
    if (below(2) == 0) {
        stg_lease_core_set_slot(sim.core, slot * G - below(STG_GRANULE_BYTES));
        m->slot = slot < m->n_granules ? slot : 0;
    }
    for (uint32_t i = 0; i < m->max_leases && seed % 4 == 0; i++) {
        m->leases[i].generation = UINT32_MAX - 1 - below(6);
        lease_peek_set_generation(sim.core, i, m->leases[i].generation);
    }
    for (uint32_t i = 0; i < N_ACTS; i++)
        sim.total_weight += sim.weights[i] = 1 + below(6);
}

static void act(void)
{
    static void (*const acts[N_ACTS])(void) = {
        reserve, seal_or_drop, grant,   grant,   sweep_any,
        let_lie, come_or_go,   let_act, let_act, say,
    };
    uint32_t at = below(sim.total_weight), i = 0;
    while (at >= sim.weights[i])
        at -= sim.weights[i++];
    acts[i]();
}

/* Stopped processes continue. The honest ones take every item left and release
 * everything.
 */
static void all_processes_continue(void)
{
    for (uint32_t i = 0; i < sim.model.max_clients; i++) {
        struct process *p = &sim.processes[i];
        if (!p->alive || p->is_liar)
            continue;
        while (p->n_queued > 0)
            process_take(p);
        while (p->n_held > 0)
            process_release(p, below(p->n_held));
        sweep(p);
        compare();
        SIM_CHECK(model_held(&sim.model, i) == 0);
    }
}

static void everybody_dies(void)
{
    uint32_t first = below(sim.model.max_clients);
    for (uint32_t i = 0; i < sim.model.max_clients; i++) {
        struct process *p = &sim.processes[(first + i) % sim.model.max_clients];
        p->alive = false;
        p->n_held = 0;
        if (p->known)
            notice_death(p);
        compare();
    }
    for (uint32_t i = 0; i < sim.model.max_extents; i++) {
        if (sim.model.extents[i].lender)
            drop(i);
    }
    compare();
    struct stg_lease_usage usage;
    stg_lease_usage(sim.core, &usage);
    SIM_CHECK(usage.free == usage.total);
}

static void one_seed(uint64_t seed, uint32_t n_steps)
{
    start(seed);
    for (sim.step = 0; sim.step < n_steps; sim.step++) {
        act();
        compare();
    }
    if (below(2) == 0)
        all_processes_continue();
    everybody_dies();
    stg_lease_core_destroy(sim.core);
}

static uint64_t number_from(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

static void any_mix_of_processes_keeps_the_invariants(void)
{
    bool alone = getenv("STG_SEED") != NULL;
    uint64_t first = number_from("STG_SEED", 0);
    uint64_t n = number_from("STG_SIM_SEEDS", alone ? 1 : N_SEEDS);
    uint64_t n_steps = number_from("STG_SIM_STEPS", N_STEPS);
    for (uint32_t i = 0; i < MODEL_MAX_CLIENTS; i++) {
        CHECK((ring_pages[i] = aligned_alloc(64, STG_RING_BYTES)) != NULL);
        CHECK((control_pages[i] = aligned_alloc(64, STG_CONTROL_BYTES)) != NULL);
        memset(ring_pages[i], 0, STG_RING_BYTES);
        memset(control_pages[i], 0, STG_CONTROL_BYTES);
    }
    for (uint64_t i = 0; i < n; i++)
        one_seed(first + i, (uint32_t)n_steps);
    for (uint32_t i = 0; i < MODEL_MAX_CLIENTS; i++) {
        free(ring_pages[i]);
        free(control_pages[i]);
    }
}

static const struct stg_test tests[] = {
    TEST_SLOW(any_mix_of_processes_keeps_the_invariants, 110),
};
TEST_MAIN(tests)
