/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "core/arena.h"
#include "core/layout.h"
#include "tests/check.h"
#include "tests/core/random.h"

#define G ((uint64_t)STG_GRANULE_BYTES)

static struct stg_arena *arena_of(uint64_t granules, uint32_t max_extents)
{
    struct stg_arena *arena;
    struct stg_err err = {0};
    CHECK_OK(stg_arena_create(granules * G, max_extents, &arena, &err), err);
    return arena;
}

static uint32_t take(struct stg_arena *arena, uint64_t granules)
{
    uint32_t id;
    int rc = stg_arena_reserve(arena, granules * G, &id);
    if (rc < 0)
        FAIL("no room for %llu granules: %d", (unsigned long long)granules, rc);
    return id;
}

static void verify(const struct stg_arena *arena)
{
    struct stg_err err = {0};
    CHECK_OK(stg_arena_verify(arena, &err), err);
}

static void the_lowest_place_that_fits_is_taken(void)
{
    struct stg_arena *arena = arena_of(100, 8);
    uint32_t a = take(arena, 10), b = take(arena, 20), c = take(arena, 5);
    CHECK_INT(stg_arena_offset(arena, a), 0);
    CHECK_INT(stg_arena_offset(arena, b), 10 * G);
    CHECK_INT(stg_arena_offset(arena, c), 30 * G);
    stg_arena_free(arena, a);
    CHECK_INT(stg_arena_offset(arena, take(arena, 11)), 35 * G);
    CHECK_INT(stg_arena_offset(arena, take(arena, 4)), 0);
    CHECK_INT(stg_arena_offset(arena, take(arena, 6)), 4 * G);
    verify(arena);
    stg_arena_destroy(arena);
}

static void a_trimmed_tail_is_free_again(void)
{
    struct stg_arena *arena = arena_of(130, 8);
    uint32_t a = take(arena, 130), b;
    CHECK_INT(stg_arena_free_bytes(arena), 0);
    CHECK_INT(stg_arena_reserve(arena, 1, &b), -STAGER_RESOURCE_EXHAUSTED);
    stg_arena_trim(arena, a, 3 * G + 1);
    CHECK_INT(stg_arena_bytes(arena, a), 4 * G);
    CHECK_INT(stg_arena_free_bytes(arena), 126 * G);
    CHECK_INT(stg_arena_offset(arena, take(arena, 126)), 4 * G);
    stg_arena_trim(arena, a, 0);
    CHECK_INT(stg_arena_bytes(arena, a), G);
    verify(arena);
    stg_arena_destroy(arena);
}

static void bytes_round_to_granules(void)
{
    struct stg_arena *arena;
    struct stg_err err = {0};
    CHECK_OK(stg_arena_create(3 * G + G - 1, 4, &arena, &err), err);
    CHECK_INT(stg_arena_total_bytes(arena), 3 * G);
    uint32_t id;
    CHECK_INT(stg_arena_reserve(arena, 0, &id), 0);
    CHECK_INT(stg_arena_bytes(arena, id), G);
    CHECK_INT(stg_arena_reserve(arena, G + 1, &id), 0);
    CHECK_INT(stg_arena_bytes(arena, id), 2 * G);
    CHECK_INT(stg_arena_reserve(arena, 1, &id), -STAGER_RESOURCE_EXHAUSTED);
    stg_arena_destroy(arena);
}

static void what_can_never_fit_is_not_worth_waiting_for(void)
{
    struct stg_arena *arena = arena_of(10, 4);
    uint32_t id = 77;
    CHECK_INT(stg_arena_reserve(arena, 10 * G + 1, &id), -STAGER_INVALID_ARGUMENT);
    CHECK_INT(stg_arena_reserve(arena, UINT64_MAX, &id), -STAGER_INVALID_ARGUMENT);
    stg_arena_set_slot(arena, 4 * G);
    CHECK_INT(stg_arena_reserve(arena, 4 * G + 1, &id), -STAGER_INVALID_ARGUMENT);
    CHECK_INT(id, 77);
    stg_arena_destroy(arena);
}

static void extents_run_out(void)
{
    struct stg_arena *arena = arena_of(10, 2);
    uint32_t a = take(arena, 1), id;
    take(arena, 1);
    CHECK_INT(stg_arena_reserve(arena, 1, &id), -STAGER_RESOURCE_EXHAUSTED);
    stg_arena_free(arena, a);
    CHECK_INT(take(arena, 1), a);
    stg_arena_destroy(arena);
}

static void senseless_sizes_are_refused(void)
{
    struct stg_arena *arena = NULL;
    struct stg_err err = {0};
    CHECK_INT(stg_arena_create(G - 1, 4, &arena, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_INT(stg_arena_create(G, 0, &arena, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_INT(stg_arena_create(UINT64_MAX, 4, &arena, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "18446744073709551615");
    CHECK(arena == NULL);
    stg_arena_destroy(NULL);
}

/* The same in a slow version: an array of owners. */
struct model {
    uint32_t n, slot;
    uint16_t owner[5000]; /* extent id + 1 */
};

static bool model_fits(const struct model *model, uint32_t start, uint32_t n)
{
    if (start + n > model->n)
        return false;
    if (model->slot > 0 && start / model->slot != (start + n - 1) / model->slot)
        return false;
    for (uint32_t i = start; i < start + n; i++) {
        if (model->owner[i] != 0)
            return false;
    }
    return true;
}

static uint32_t model_find(const struct model *model, uint32_t n)
{
    for (uint32_t start = 0; start < model->n; start++) {
        if (model_fits(model, start, n))
            return start;
    }
    return UINT32_MAX;
}

static void model_clear(struct model *model, uint32_t id, uint32_t keep)
{
    for (uint32_t i = 0; i < model->n; i++) {
        if (model->owner[i] == id + 1 && keep > 0)
            keep--;
        else if (model->owner[i] == id + 1)
            model->owner[i] = 0;
    }
}

static void reserve_both(struct stg_arena *arena, struct model *model, uint32_t n)
{
    uint32_t id, start = model_find(model, n);
    int rc = stg_arena_reserve(arena, n * G, &id);
    if (start == UINT32_MAX) {
        CHECK(rc < 0);
        return;
    }
    /* there is room, but no free id; then the reverse */
    if (rc == -STAGER_RESOURCE_EXHAUSTED) {
        uint32_t n_alive = 0;
        for (uint32_t i = 0; i < 40; i++)
            n_alive += stg_arena_bytes(arena, i) > 0;
        CHECK_INT(n_alive, 40);
        return;
    }
    CHECK_INT(rc, 0);
    CHECK_INT(stg_arena_offset(arena, id), start * G);
    for (uint32_t i = start; i < start + n; i++)
        model->owner[i] = (uint16_t)(id + 1);
}

static void one_seed(uint64_t seed)
{
    struct random random = {seed};
    struct model model = {.n = 1 + random_below(&random, seed % 20 ? 700 : 5000)};
    struct stg_arena *arena = arena_of(model.n, 40);
    uint32_t largest = 1 + random_below(&random, model.n);
    if (seed % 2 == 1) {
        stg_arena_set_slot(arena, largest * G);
        model.slot = largest < model.n ? largest : 0;
    }
    for (int step = 0; step < 200; step++) {
        uint32_t id = random_below(&random, 40);
        uint32_t have = (uint32_t)(stg_arena_bytes(arena, id) / G);
        if (have == 0 || random_below(&random, 3) == 0) {
            reserve_both(arena, &model, 1 + random_below(&random, largest));
        } else if (random_below(&random, 2) == 0) {
            uint32_t keep = 1 + random_below(&random, have);
            stg_arena_trim(arena, id, keep * G);
            model_clear(&model, id, keep);
        } else {
            stg_arena_free(arena, id);
            model_clear(&model, id, 0);
        }
        struct stg_err err = {0};
        if (stg_arena_verify(arena, &err) < 0)
            FAIL("seed %llu, step %d: %s", (unsigned long long)seed, step, err.text);
    }
    stg_arena_destroy(arena);
}

static void it_agrees_with_a_slow_model(void)
{
    for (uint64_t seed = 0; seed < 400; seed++)
        one_seed(seed);
}

/* Without slots: extents of size M with holes of M - 1 between them. The first of each
 * pair is trimmed to M - 1 and freed once the second lies behind it. */
static uint32_t pairs_until_full(struct stg_arena *arena, uint32_t m, uint32_t max_live)
{
    for (uint32_t live = 0; live < max_live; live++) {
        uint32_t small, large;
        if (stg_arena_reserve(arena, m * G, &small) < 0)
            return live;
        stg_arena_trim(arena, small, (m - 1) * G);
        if (stg_arena_reserve(arena, m * G, &large) < 0)
            large = small;
        else
            stg_arena_free(arena, small);
    }
    return max_live;
}

static void half_free_memory_may_have_no_room_without_slots(void)
{
    const uint32_t m = 64, n = 11;
    struct stg_arena *arena = arena_of(m * n, 64);
    uint32_t live = pairs_until_full(arena, m, n - 1), id;
    CHECK(live < n - 1);
    CHECK_INT(stg_arena_reserve(arena, m * G, &id), -STAGER_RESOURCE_EXHAUSTED);
    CHECK(stg_arena_free_bytes(arena) > m * n * G * 2 / 5);
    stg_arena_destroy(arena);

    uint32_t k = 10;
    arena = arena_of((2 * k + 1) * m - k, 64);
    CHECK_INT(pairs_until_full(arena, m, k), k);
    take(arena, m);
    stg_arena_destroy(arena);
}

static void with_slots_admission_always_finds_room(void)
{
    const uint32_t m = 37, n = 9;
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct random random = {seed};
        struct stg_arena *arena = arena_of(m * n, 64);
        stg_arena_set_slot(arena, m * G);
        uint32_t live[16], n_live = 0;
        for (int step = 0; step < 300; step++) {
            if (n_live == n || (n_live > 0 && random_below(&random, 3) == 0)) {
                uint32_t i = random_below(&random, n_live);
                stg_arena_free(arena, live[i]);
                live[i] = live[--n_live];
            }
            live[n_live] = take(arena, random_below(&random, 4) ? m : 1 + step % m);
            uint64_t have = stg_arena_bytes(arena, live[n_live]);
            stg_arena_trim(arena, live[n_live], have * random_below(&random, 100) / 99);
            n_live++;
        }
        stg_arena_destroy(arena);
    }
}

static const struct stg_test tests[] = {
    TEST(the_lowest_place_that_fits_is_taken),
    TEST(a_trimmed_tail_is_free_again),
    TEST(bytes_round_to_granules),
    TEST(what_can_never_fit_is_not_worth_waiting_for),
    TEST(extents_run_out),
    TEST(senseless_sizes_are_refused),
    TEST(it_agrees_with_a_slow_model),
    TEST(half_free_memory_may_have_no_room_without_slots),
    TEST(with_slots_admission_always_finds_room),
};
TEST_MAIN(tests)
