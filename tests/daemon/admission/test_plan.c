/* SPDX-License-Identifier: Apache-2.0
 *
 * The arithmetic of admission over random pipelines. More memory never gives less of
 * anything. The number that a refusal recommends works; one MiB less does not.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/random.h"
#include "daemon/admission/plan.h"
#include "tests/check.h"

#define MIB ((uint64_t)1 << 20)
#define N_PIPELINES 3000

struct rows {
    struct stg_random random;
    uint64_t n_drawn;
    struct stg_staged staged;
    struct stg_plan_asked asked;
};

static uint64_t below(struct rows *rows, uint64_t n)
{
    return stg_random_below(&rows->random, rows->n_drawn++, n);
}

/* Returns a number of any magnitude up to 2^max_log. */
static uint64_t any_size(struct rows *rows, unsigned max_log)
{
    return below(rows, UINT64_C(1) << (1 + below(rows, max_log)));
}

static void make(struct rows *rows, uint64_t seed)
{
    stg_random_init(&rows->random, seed, STG_RANDOM_SHUFFLE, 0, 0);
    rows->n_drawn = 0;
    rows->staged = (struct stg_staged){
        .capacity = (uint32_t)(below(rows, 2) * below(rows, 40)),
        .num_threads = (uint32_t)(below(rows, 2) * below(rows, 20)),
        .delivery = below(rows, 2) ? STG_DELIVERY_ROUND_ROBIN : STG_DELIVERY_SPLIT,
        .max_batch_bytes = below(rows, 4) == 0 ? any_size(rows, 28) : 0,
    };
    struct stg_sizes *sizes = &rows->asked.sizes;
    *sizes = (struct stg_sizes){.element_bytes = any_size(rows, 28)};
    if (below(rows, 2))
        sizes->batch_bytes = 1 + any_size(rows, 28);
    else
        sizes->least_bytes = any_size(rows, 28);
    if (sizes->batch_bytes != 0 && below(rows, 2))
        sizes->partition_bytes = sizes->batch_bytes + any_size(rows, 28);
    rows->asked.for_device = false;
    rows->asked.staged = &rows->staged;
    rows->asked.num_clients = 1 + (uint32_t)below(rows, 9);
    rows->asked.max_in_flight = 2 + (uint32_t)below(rows, 5);
    rows->asked.default_bytes = below(rows, 3) ? 128 * MIB : MIB + any_size(rows, 34);
}

static int plan(struct rows *rows, uint64_t budget, struct stg_stage_plan *ret)
{
    struct stg_err err = {0};
    rows->staged.memory_budget = budget;
    return stg_stage_plan(&rows->asked, ret, &err);
}

static void check_not_less(uint64_t seed, uint64_t budget, const struct stg_stage_plan *a,
                           const struct stg_stage_plan *b)
{
    if (b->capacity < a->capacity || b->num_threads < a->num_threads ||
        b->n_extents < a->n_extents || b->max_batch_bytes < a->max_batch_bytes ||
        b->buffer_bytes < a->buffer_bytes)
        FAIL("pipeline %" PRIu64 ", memory_budget %" PRIu64
             ": capacity %u of %u, num_threads %u of %u, max_batch_bytes %" PRIu64
             " of %" PRIu64 ", buffers %" PRIu64 " of %" PRIu64,
             seed, budget, b->capacity, a->capacity, b->num_threads, a->num_threads,
             b->max_batch_bytes, a->max_batch_bytes, b->buffer_bytes, a->buffer_bytes);
}

static void more_memory_budget_is_never_less_of_anything(void)
{
    unsigned n_plans = 0;
    for (uint64_t seed = 1; seed <= N_PIPELINES; seed++) {
        struct rows rows;
        struct stg_stage_plan last, next;
        make(&rows, seed);
        bool any = false;
        for (uint64_t budget = 1 + any_size(&rows, 30); budget < (uint64_t)1 << 38;
             budget += 1 + any_size(&rows, 38)) {
            if (plan(&rows, budget, &next) < 0) {
                CHECK(!any);
                continue;
            }
            CHECK(next.arena_bytes + next.buffer_bytes <= budget);
            CHECK_INT(next.reserved_bytes, next.arena_bytes + next.buffer_bytes);
            if (any)
                check_not_less(seed, budget, &last, &next);
            any = true;
            last = next;
            n_plans++;
        }
    }
    CHECK(n_plans > 10 * N_PIPELINES);
}

static void as_much_as_without_a_memory_budget_gives_as_much(void)
{
    unsigned n = 0;
    for (uint64_t seed = 1; seed <= N_PIPELINES; seed++) {
        struct rows rows;
        struct stg_stage_plan without, with;
        make(&rows, seed);
        if (plan(&rows, 0, &without) < 0)
            continue;
        uint64_t whole = without.arena_bytes + without.buffer_bytes;
        for (unsigned i = 0; i < 3; i++) {
            CHECK_INT(plan(&rows, whole, &with), 0);
            check_not_less(seed, whole, &without, &with);
            whole += any_size(&rows, 34);
        }
        n++;
    }
    CHECK(n > N_PIPELINES / 2);
}

static void the_number_that_is_named_works_and_less_does_not(void)
{
    for (uint64_t seed = 1; seed <= N_PIPELINES; seed++) {
        struct rows rows;
        struct stg_stage_plan with, without;
        make(&rows, seed);
        uint64_t buffers = any_size(&rows, 36);
        uint64_t batch = below(&rows, 2) ? any_size(&rows, 32) : 0;
        rows.staged.memory_budget = 1;
        uint64_t budget = stg_plan_budget(&rows.asked, buffers, batch);
        if (budget == 0) {
            CHECK(rows.staged.max_batch_bytes != 0 || rows.asked.sizes.batch_bytes != 0);
            continue;
        }
        CHECK_INT(budget % MIB, 0);
        CHECK_INT(plan(&rows, budget, &with), 0);
        CHECK(with.buffer_bytes >= buffers && with.max_batch_bytes >= batch);
        if (budget > MIB && plan(&rows, budget - MIB, &with) == 0)
            CHECK(with.buffer_bytes < buffers || with.max_batch_bytes < batch);
        if (plan(&rows, 0, &without) < 0)
            continue;
        budget = stg_plan_budget(&rows.asked, buffers, batch);
        CHECK_INT(plan(&rows, budget, &with), 0);
        check_not_less(seed, budget, &without, &with);
    }
}

/* "raise it to 17MiB" and "a memory_budget of 17MiB". */
static uint64_t number_in(const char *text)
{
    const char *at = strstr(text, "raise it to ");
    at = at != NULL ? at + strlen("raise it to ") : strstr(text, "a memory_budget of ");
    if (at == NULL)
        return 0;
    return strtoull(at + strcspn(at, "0123456789"), NULL, 10) * MIB;
}

static void a_refusal_names_a_number_that_works(void)
{
    unsigned n = 0;
    for (uint64_t seed = 1; seed <= N_PIPELINES; seed++) {
        struct rows rows;
        struct stg_stage_plan with;
        struct stg_err err = {0};
        make(&rows, seed);
        rows.staged.memory_budget = below(&rows, 2) * any_size(&rows, 28);
        if (stg_stage_plan(&rows.asked, &with, &err) == 0)
            continue;
        uint64_t works = number_in(err.text);
        if (works == 0)
            FAIL("pipeline %" PRIu64 ": %s", seed, err.text);
        CHECK(works > rows.staged.memory_budget);
        CHECK_INT(plan(&rows, works, &with), 0);
        n++;
    }
    CHECK(n > 100);
}

static const struct stg_test tests[] = {
    TEST(more_memory_budget_is_never_less_of_anything),
    TEST(as_much_as_without_a_memory_budget_gives_as_much),
    TEST(the_number_that_is_named_works_and_less_does_not),
    TEST(a_refusal_names_a_number_that_works),
};

TEST_MAIN(tests)
