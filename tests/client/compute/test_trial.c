/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests which variant a trial keeps. The test drives the clock.
 */
#include "client/compute/trial.h"
#include "tests/check.h"

/* Runs steps until the trial is over. The functions give the duration of a step of each
 * variant. Returns the number of steps. */
static unsigned try(struct stg_trial *trial, uint64_t (*baseline)(unsigned i),
                    uint64_t (*other)(unsigned i))
{
    uint64_t now = 1000;
    unsigned i = 0;
    while (trial->turn < STG_TRIAL_TURNS && i < 100000) {
        bool way = stg_trial_step(trial, now);
        now += way ? other(i) : baseline(i);
        i++;
    }
    CHECK(trial->turn == STG_TRIAL_TURNS);
    for (unsigned k = 0; k < 10; k++)
        CHECK(stg_trial_step(trial, now += 5) == trial->keeps);
    return i;
}

static uint64_t four_ms(unsigned i)
{
    return 4000000;
}

static uint64_t five_ms(unsigned i)
{
    return 5000000;
}

/* Rises from 4 to 6 ms over a long time. */
static uint64_t noisy(unsigned i)
{
    return 4000000 + (i / 40 % 3) * 1000000;
}

/* The first steps after a change are slow. */
static uint64_t slow_at_first(unsigned i)
{
    static unsigned last, run;
    run = i == last + 1 ? run + 1 : 0;
    last = i;
    return run < STG_TRIAL_SKIPPED ? 90000000 : 4000000;
}

static uint64_t fast(unsigned i)
{
    return 1000;
}

static void the_faster_way_is_kept(void)
{
    struct stg_trial trial = {0};
    double baseline, other;
    try(&trial, five_ms, four_ms);
    CHECK(trial.keeps);
    stg_trial_steps(&trial, &baseline, &other);
    CHECK(baseline == 5e6 && other == 4e6);
    trial = (struct stg_trial){0};
    try(&trial, four_ms, five_ms);
    CHECK(!trial.keeps);
}

static void what_is_no_faster_than_the_noise_is_not_kept(void)
{
    struct stg_trial trial = {0};
    try(&trial, noisy, four_ms);
    CHECK(!trial.keeps);
    trial = (struct stg_trial){0};
    try(&trial, four_ms, four_ms);
    CHECK(!trial.keeps);
}

static void the_first_steps_of_a_turn_do_not_count(void)
{
    struct stg_trial trial = {0};
    try(&trial, five_ms, slow_at_first);
    CHECK(trial.keeps);
}

static void a_turn_is_neither_too_short_nor_too_long(void)
{
    struct stg_trial trial = {0};
    unsigned n = try(&trial, five_ms, five_ms);
    CHECK(n >= STG_TRIAL_TURNS * STG_TRIAL_MIN_STEPS);
    CHECK(n <= STG_TRIAL_TURNS * (STG_TRIAL_MIN_STEPS + STG_TRIAL_SKIPPED + 1));
    trial = (struct stg_trial){0};
    n = try(&trial, fast, fast);
    CHECK(n >= STG_TRIAL_TURNS * STG_TRIAL_MAX_STEPS);
    CHECK(n <= STG_TRIAL_TURNS * (STG_TRIAL_MAX_STEPS + STG_TRIAL_SKIPPED + 1));
}

static const struct stg_test tests[] = {
    TEST(the_faster_way_is_kept),
    TEST(what_is_no_faster_than_the_noise_is_not_kept),
    TEST(the_first_steps_of_a_turn_do_not_count),
    TEST(a_turn_is_neither_too_short_nor_too_long),
};

TEST_MAIN(tests)
