/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "core/ring.h"
#include "core/status.h"
#include "tests/check.h"

#define N_MESSAGES 1000000u
#define N_HELD 200u

/* Both pages as the two processes map them. */
struct pair {
    struct stg_ring_page *ring;
    struct stg_control_page *control;
    struct stg_ring_writer out;
    struct stg_control_reader in;
    struct stg_ring_reader take;
    struct stg_control_writer give;
};

static void *page_of(size_t bytes)
{
    void *page = aligned_alloc(4096, bytes);
    CHECK(page != NULL);
    memset(page, 0, bytes);
    return page;
}

static struct pair pair_make(void)
{
    struct pair p = {.ring = page_of(STG_RING_BYTES),
                     .control = page_of(STG_CONTROL_BYTES)};
    stg_ring_format(p.ring, 0x1122334455667788);
    stg_control_format(p.control, 0x1122334455667788);
    p.out.page = p.ring;
    p.take.page = p.ring;
    p.in.page = p.give.page = p.control;
    return p;
}

static void pair_free(struct pair *p)
{
    free(p->ring);
    free(p->control);
}

static void what_is_pushed_is_taken_in_order(void)
{
    struct pair p = pair_make();
    struct stg_descriptor d = {0};
    CHECK(!stg_ring_ready(&p.take));
    CHECK(!stg_ring_take(&p.take, &d));
    for (uint64_t i = 0; i < 3 * STG_RING_ENTRIES; i++) {
        struct stg_descriptor in = {.number = i,
                                    .lease = (uint32_t)i,
                                    .lease_generation = 7,
                                    .segment = 1,
                                    .kind = STG_DESCRIPTOR_BATCH,
                                    .offset = i << 16,
                                    .length = 4096 + i};
        stg_ring_push(&p.out, &in);
        CHECK(stg_ring_ready(&p.take));
        CHECK(stg_ring_take(&p.take, &d));
        CHECK(memcmp(&in, &d, sizeof(d)) == 0);
        CHECK(!stg_ring_ready(&p.take));
    }
    pair_free(&p);
}

static void the_place_of_a_descriptor_comes_with_it(void)
{
    struct pair p = pair_make();
    struct stg_descriptor d = {0};
    struct stg_stream_place place;
    CHECK(!stg_ring_place_at(&p.take, p.take.cursor, &place));
    for (uint64_t i = 0; i < 3 * STG_RING_ENTRIES; i++) {
        stg_ring_place(&p.out,
                       &(struct stg_stream_place){
                           .pass = i / 7, .place = {.items = i, .elements = 16 * i}});
        stg_ring_push(&p.out, &d);
        CHECK(stg_ring_take(&p.take, &d));
        CHECK(stg_ring_place_at(&p.take, p.take.cursor, &place));
        CHECK(place.pass == i / 7 && place.place.items == i &&
              place.place.elements == 16 * i);
    }
    p.ring->header.version = STG_LAYOUT_MAJOR << 16; /* of an older daemon */
    CHECK(!stg_ring_place_at(&p.take, p.take.cursor, &place));
    pair_free(&p);
}

static void releases_arrive_in_order(void)
{
    struct pair p = pair_make();
    struct stg_release_entry entry;
    CHECK_INT(stg_control_poll(&p.in, &entry), 0);
    for (uint32_t round = 0; round < 5; round++) {
        for (uint32_t i = 0; i < STG_RELEASE_ENTRIES; i++)
            stg_control_release(&p.give, i, round);
        for (uint32_t i = 0; i < STG_RELEASE_ENTRIES; i++) {
            CHECK_INT(stg_control_poll(&p.in, &entry), 1);
            CHECK_INT(entry.lease, i);
            CHECK_INT(entry.lease_generation, round);
        }
        CHECK_INT(stg_control_poll(&p.in, &entry), 0);
    }
    pair_free(&p);
}

enum { N_SHARED = 200000 };

static void *share_often(void *arg)
{
    struct pair *p = arg;
    for (uint64_t i = 1; i <= N_SHARED; i++)
        stg_ring_share(&p->out,
                       &(struct stg_sharing){.run = i, .pass = i, .start.items = i});
    return NULL;
}

static void what_a_consumer_says_is_read_as_a_whole(void)
{
    struct pair p = pair_make();
    struct stg_sharing sharing = {0};
    pthread_t thread;
    CHECK_INT(stg_ring_sharing(&p.take, &sharing), -STAGER_NOT_FOUND);
    CHECK_INT(pthread_create(&thread, NULL, share_often, &p), 0);
    while (sharing.run < N_SHARED) {
        uint64_t last = sharing.run;
        if (stg_ring_sharing(&p.take, &sharing) < 0)
            continue;
        CHECK(sharing.run >= last);
        CHECK(sharing.pass == sharing.run && sharing.start.items == sharing.run);
    }
    pthread_join(thread, NULL);
    atomic_fetch_add(&p.out.page->shared, 1); /* and dies */
    CHECK_INT(stg_ring_sharing(&p.take, &sharing), -STAGER_UNAVAILABLE);
    pair_free(&p);
}

static void spans_are_read_in_order_and_the_oldest_are_dropped(void)
{
    struct pair p = pair_make();
    struct stg_trace_span span;
    uint64_t n_missed;
    CHECK(!stg_ring_is_traced(&p.take));
    stg_ring_trace(&p.out, true);
    CHECK(stg_ring_is_traced(&p.take));
    CHECK_INT(stg_control_poll_span(&p.in, &span, &n_missed), 0);
    for (uint64_t i = 0; i < STG_CONTROL_SPANS + 10; i++)
        stg_control_note(&p.give, &(struct stg_trace_span){.number = i, .kind = 3});
    for (uint64_t i = 11; i < STG_CONTROL_SPANS + 10; i++) {
        CHECK_INT(stg_control_poll_span(&p.in, &span, &n_missed), 1);
        CHECK_INT(n_missed, i == 11 ? 11 : 0);
        CHECK_INT(span.number, i);
        CHECK_INT(span.kind, 3);
    }
    CHECK_INT(stg_control_poll_span(&p.in, &span, &n_missed), 0);
    stg_control_note(&p.give, &span);
    stg_control_skip_spans(&p.in);
    CHECK_INT(stg_control_poll_span(&p.in, &span, &n_missed), 0);
    stg_ring_trace(&p.out, false);
    CHECK(!stg_ring_is_traced(&p.take));
    pair_free(&p);
}

static void a_counter_that_jumps_is_a_violation(void)
{
    static const uint64_t lies[] = {STG_RELEASE_ENTRIES + 1ull, 1ull << 32, 1ull << 63,
                                    UINT64_MAX};
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        struct pair p = pair_make();
        struct stg_release_entry entry = {.lease = 77};
        atomic_store(&p.control->released, lies[i]);
        CHECK_INT(stg_control_poll(&p.in, &entry), -STAGER_INVALID_ARGUMENT);
        CHECK_INT(stg_control_poll(&p.in, &entry), -STAGER_INVALID_ARGUMENT);
        CHECK_INT(entry.lease, 77);
        CHECK_INT(p.in.cursor, 0);
        pair_free(&p);
    }
}

static void a_counter_that_goes_back_is_a_violation(void)
{
    struct pair p = pair_make();
    struct stg_release_entry entry;
    stg_control_release(&p.give, 1, 1);
    stg_control_release(&p.give, 2, 1);
    CHECK_INT(stg_control_poll(&p.in, &entry), 1);
    CHECK_INT(stg_control_poll(&p.in, &entry), 1);
    atomic_store(&p.control->released, 1);
    CHECK_INT(stg_control_poll(&p.in, &entry), -STAGER_INVALID_ARGUMENT);
    pair_free(&p);
}

static void a_counter_may_wrap(void)
{
    struct pair p = pair_make();
    struct stg_release_entry entry;
    p.give.released = p.in.cursor = UINT64_MAX - 1;
    atomic_store(&p.control->released, UINT64_MAX - 1);
    for (uint32_t i = 0; i < 5; i++) {
        stg_control_release(&p.give, i, 9);
        CHECK_INT(stg_control_poll(&p.in, &entry), 1);
        CHECK_INT(entry.lease, i);
    }
    pair_free(&p);
}

static void nothing_follows_the_final_word(void)
{
    struct pair p = pair_make();
    struct stg_descriptor d = {.kind = STG_DESCRIPTOR_END, .number = 3};
    char text[3000];
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    stg_ring_push(&p.out, &d);
    stg_ring_finish(&p.out, STAGER_ABORTED, text);
    stg_ring_push(&p.out, &d);
    stg_ring_finish(&p.out, STAGER_INTERNAL, "later");
    CHECK(stg_ring_take(&p.take, &d));
    CHECK_INT(d.kind, STG_DESCRIPTOR_END);
    CHECK(stg_ring_take(&p.take, &d));
    CHECK_INT(d.kind, STG_DESCRIPTOR_FINAL);
    CHECK(!stg_ring_take(&p.take, &d));
    CHECK_INT(p.ring->final.code, STAGER_ABORTED);
    CHECK_INT(p.ring->final.text_bytes, STG_FINAL_TEXT_BYTES - 1);
    CHECK_INT(strlen(p.ring->final.text), STG_FINAL_TEXT_BYTES - 1);
    pair_free(&p);
}

static void the_doorbell_is_asked_for_once(void)
{
    struct pair p = pair_make();
    struct stg_descriptor d = {.kind = STG_DESCRIPTOR_BATCH};
    CHECK(!stg_ring_needs_doorbell(&p.take, 0));
    stg_ring_want_doorbell(&p.out);
    stg_ring_want_doorbell(&p.out);
    stg_ring_push(&p.out, &d);
    stg_ring_push(&p.out, &d);
    CHECK(!stg_ring_needs_doorbell(&p.take, 1));
    CHECK(stg_ring_take(&p.take, &d));
    CHECK(!stg_ring_needs_doorbell(&p.take, 0));
    CHECK(stg_ring_take(&p.take, &d));
    CHECK(stg_ring_needs_doorbell(&p.take, 0));
    CHECK(!stg_ring_needs_doorbell(&p.take, 0));
    stg_ring_want_doorbell(&p.out);
    stg_ring_push(&p.out, &d);
    CHECK(stg_ring_needs_doorbell(&p.take, 1));
    pair_free(&p);
}

static void hints_arrive(void)
{
    struct pair p = pair_make();
    CHECK(!stg_control_waiting(&p.in));
    stg_control_set_waiting_since(&p.give, 1ull << 50);
    CHECK_INT(stg_control_waiting_since(&p.in), 0); /* not yet */
    stg_control_set_waiting(&p.give, true);
    CHECK(stg_control_waiting(&p.in));
    CHECK_INT(stg_control_waiting_since(&p.in), 1ull << 50);
    stg_control_set_waiting(&p.give, false);
    CHECK(!stg_control_waiting(&p.in));
    CHECK_INT(stg_control_waiting_since(&p.in), 0);
    CHECK(!stg_control_parting(&p.in));
    stg_control_part(&p.give);
    CHECK(stg_control_parting(&p.in));
    stg_control_set_asked(&p.give, 1ull << 40);
    stg_control_set_taken(&p.give, (1ull << 40) - 1);
    stg_control_want_pass(&p.give, 3);
    CHECK_INT(stg_control_asked(&p.in), 1ull << 40);
    CHECK_INT(stg_control_taken(&p.in), (1ull << 40) - 1);
    CHECK_INT(stg_control_pass_wanted(&p.in), 3);
    pair_free(&p);
}

static void pages_are_checked_before_use(void)
{
    struct pair p = pair_make();
    struct stg_err err = {0};
    CHECK_OK(stg_ring_check(p.ring, STG_RING_BYTES, &err), err);
    CHECK_OK(stg_control_check(p.control, STG_CONTROL_BYTES, &err), err);
    CHECK_INT(stg_ring_check(p.ring, STG_RING_BYTES - 1, &err), -STAGER_DATA_LOSS);
    CHECK_INT(stg_control_check(p.control, 0, &err), -STAGER_DATA_LOSS);

    atomic_store(&p.ring->header.version, 2u << 16 | 5);
    CHECK_INT(stg_ring_check(p.ring, STG_RING_BYTES, &err), -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(err.text, "2.5");
    CHECK_CONTAINS(err.text, "1.0 to 1.x");
    atomic_store(&p.ring->header.version, 0);
    CHECK_INT(stg_ring_check(p.ring, STG_RING_BYTES, &err), -STAGER_FAILED_PRECONDITION);
    atomic_store(&p.ring->header.version, 1u << 16 | 9);
    CHECK_OK(stg_ring_check(p.ring, STG_RING_BYTES, &err), err);

    struct stg_object_header *h = &p.ring->header, good = {0};
    memcpy((void *)&good, (void *)h, sizeof(good));
    for (int what = 0; what < 5; what++) {
        memcpy((void *)h, (void *)&good, sizeof(good));
        switch (what) {
        case 0: h->magic = STG_MAGIC_CONTROL; break;
        case 1: h->total_bytes += 1; break;
        case 2: h->header_bytes = 128; break;
        case 3: h->entry_bytes = 32; break;
        case 4: h->n_entries = 1024; break;
        }
        CHECK_INT(stg_ring_check(p.ring, STG_RING_BYTES, &err), -STAGER_DATA_LOSS);
    }
    pair_free(&p);
}

/* ---- two threads ---- */

static uint64_t scramble(uint64_t x)
{
    return (x ^ (x >> 31)) * 0x9e3779b97f4a7c15ull;
}

/* Takes all items, holds some, and releases in another order. Every field of a descriptor
 * is computed from its number, so that a torn one shows. */
static void *client_thread(void *arg)
{
    struct pair *p = arg;
    struct stg_descriptor held[N_HELD], d;
    uint32_t n_held = 0;
    uint64_t taken = 0;
    for (;;) {
        while (!stg_ring_take(&p->take, &d)) {
            while (n_held > 0) {
                n_held--;
                stg_control_release(&p->give, held[n_held].lease,
                                    held[n_held].lease_generation);
            }
            sched_yield();
        }
        if (d.kind == STG_DESCRIPTOR_FINAL)
            break;
        CHECK_INT(d.number, taken);
        CHECK(d.offset == scramble(d.number) && d.length == ~d.offset);
        CHECK(d.lease_generation == (uint32_t)d.offset);
        taken++;
        if (n_held == N_HELD) {
            uint32_t i = (uint32_t)(scramble(taken) % N_HELD);
            stg_control_release(&p->give, held[i].lease, held[i].lease_generation);
            held[i] = held[--n_held];
        }
        held[n_held++] = d;
    }
    while (n_held > 0) {
        n_held--;
        stg_control_release(&p->give, held[n_held].lease, held[n_held].lease_generation);
    }
    CHECK_STR(p->ring->final.text, "that was all");
    return (void *)(uintptr_t)taken;
}

/* The daemon's half: slots of a small lease table, each out at most once. */
static void serve(struct pair *p, uint64_t *ret_released)
{
    uint32_t free_ids[STG_MAX_IN_FLIGHT], n_free = STG_MAX_IN_FLIGHT,
                                          generation[STG_MAX_IN_FLIGHT] = {0};
    struct stg_release_entry entry;
    uint64_t sent = 0, released = 0;
    for (uint32_t i = 0; i < STG_MAX_IN_FLIGHT; i++)
        free_ids[i] = i;
    while (released < N_MESSAGES) {
        while (n_free > 0 && sent < N_MESSAGES) {
            uint32_t id = free_ids[--n_free];
            uint64_t offset = scramble(sent);
            generation[id] = (uint32_t)offset;
            stg_ring_push(&p->out,
                          &(struct stg_descriptor){.number = sent,
                                                   .lease = id,
                                                   .lease_generation = (uint32_t)offset,
                                                   .kind = STG_DESCRIPTOR_BATCH,
                                                   .offset = offset,
                                                   .length = ~offset});
            if (++sent == N_MESSAGES)
                stg_ring_finish(&p->out, STAGER_CANCELLED, "that was all");
        }
        int rc = stg_control_poll(&p->in, &entry);
        CHECK(rc >= 0);
        if (rc == 0) {
            sched_yield();
            continue;
        }
        CHECK(entry.lease < STG_MAX_IN_FLIGHT);
        CHECK_INT(entry.lease_generation, generation[entry.lease]);
        free_ids[n_free++] = entry.lease;
        released++;
    }
    *ret_released = released;
}

static void a_million_descriptors_cross_two_threads(void)
{
    struct pair p = pair_make();
    pthread_t thread;
    void *taken;
    uint64_t released = 0;
    CHECK_INT(pthread_create(&thread, NULL, client_thread, &p), 0);
    serve(&p, &released);
    CHECK_INT(pthread_join(thread, &taken), 0);
    CHECK_INT((uintptr_t)taken, N_MESSAGES);
    CHECK_INT(released, N_MESSAGES);
    pair_free(&p);
}

/* Scribbles over every byte that a client can write while the daemon reads. */
static void *liar_thread(void *arg)
{
    struct pair *p = arg;
    for (uint64_t i = 0; i < 200000; i++) {
        uint64_t x = scramble(i);
        atomic_store_explicit(&p->control->released, x % 3 == 0 ? x : x % 2000,
                              memory_order_relaxed);
        atomic_store_explicit(&p->control->asked, x, memory_order_relaxed);
        atomic_store_explicit(&p->control->waiting, (uint32_t)x, memory_order_relaxed);
        __atomic_store_n(
            (uint64_t *)(void *)&p->control->releases[x % STG_RELEASE_ENTRIES], x,
            __ATOMIC_RELAXED);
    }
    return NULL;
}

static void a_liar_gets_violations_and_nothing_else(void)
{
    struct pair p = pair_make();
    pthread_t thread;
    struct stg_release_entry entry;
    uint64_t polls = 0;
    CHECK_INT(pthread_create(&thread, NULL, liar_thread, &p), 0);
    while (polls++ < 200000) {
        uint64_t before = p.in.cursor;
        int rc = stg_control_poll(&p.in, &entry);
        CHECK(rc == 0 || rc == 1 || rc == -STAGER_INVALID_ARGUMENT);
        CHECK_INT(p.in.cursor - before, rc == 1);
        stg_control_asked(&p.in);
        stg_control_waiting(&p.in);
    }
    CHECK_INT(pthread_join(thread, NULL), 0);
    atomic_store(&p.control->released, p.in.cursor + (1ull << 63));
    CHECK_INT(stg_control_poll(&p.in, &entry), -STAGER_INVALID_ARGUMENT);
    pair_free(&p);
}

static const struct stg_test tests[] = {
    TEST(what_is_pushed_is_taken_in_order),
    TEST(the_place_of_a_descriptor_comes_with_it),
    TEST(releases_arrive_in_order),
    TEST(what_a_consumer_says_is_read_as_a_whole),
    TEST(spans_are_read_in_order_and_the_oldest_are_dropped),
    TEST(a_counter_that_jumps_is_a_violation),
    TEST(a_counter_that_goes_back_is_a_violation),
    TEST(a_counter_may_wrap),
    TEST(nothing_follows_the_final_word),
    TEST(the_doorbell_is_asked_for_once),
    TEST(hints_arrive),
    TEST(pages_are_checked_before_use),
    TEST_SLOW(a_million_descriptors_cross_two_threads, 60),
    TEST_SLOW(a_liar_gets_violations_and_nothing_else, 60),
};
TEST_MAIN(tests)
