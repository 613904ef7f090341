/* SPDX-License-Identifier: Apache-2.0
 *
 * What explain advises. The expected rates are worked out by hand in the comments.
 */
#include "client/stagerctl/report/advice.h"

#include <math.h>
#include <string.h>

#include "tests/check.h"

#define SECOND UINT64_C(1000000000)

/* A second in which one runner made 100 items: 1 ms of pulling, 9 ms of computing each;
 * trainers waited for `wait` hundredths of their time. */
static struct stg_explain window(const char *bottleneck, uint64_t wait)
{
    return (struct stg_explain){.bottleneck = bottleneck,
                                .elapsed_ns = SECOND,
                                .n_items = 100,
                                .n_runners = 1,
                                .pull_ns = SECOND / 10,
                                .compute_ns = SECOND * 9 / 10,
                                .trainers_ns = SECOND,
                                .trainers_wait_ns = SECOND / 100 * wait,
                                .cpu_ns = SECOND};
}

static void check_threads(const struct stg_advice *advice, uint32_t value, double gain)
{
    CHECK_STR(advice->limit, "runners");
    CHECK(advice->setting != NULL && strcmp(advice->setting, "num_threads") == 0);
    CHECK_INT(advice->value, value);
    CHECK(fabs(advice->gain - gain) < 0.001);
}

/* Trainers that wait half of their time would take 200 a second, which two runners make:
 * 2 / (1 ms + 9 ms). */
static void as_many_threads_as_the_trainers_take(void)
{
    struct stg_explain e = window("daemon CPU", 50);
    struct stg_advice advice;
    stg_advice_find(&e, 16, &advice);
    check_threads(&advice, 2, 1.0);
    CHECK(strstr(advice.text, "num_threads: 2 would give about +100 % (now 1)") != NULL);
}

/* Trainers would take 10000 a second. Four CPUs, one of them in use: four runners make
 * 400. With 64 CPUs, pulls of 1 ms bound the rate by 1000, which ten runners make. */
static void no_more_threads_than_cpus_or_pulls_allow(void)
{
    struct stg_explain e = window("daemon CPU", 99);
    struct stg_advice advice;
    stg_advice_find(&e, 4, &advice);
    check_threads(&advice, 4, 3.0);
    stg_advice_find(&e, 64, &advice);
    check_threads(&advice, 10, 9.0);
}

static void busy_cpus_are_the_limit(void)
{
    struct stg_explain e = window("daemon CPU", 50);
    struct stg_advice advice;
    e.cpu_ns = 2 * SECOND;
    stg_advice_find(&e, 2, &advice);
    CHECK_STR(advice.limit, "cpu");
    CHECK(advice.setting == NULL && advice.gain == 0);
}

/* The model says 100 items a second, and 40 were made: something else holds it up. */
static void a_model_that_does_not_fit_gives_no_number(void)
{
    struct stg_explain e = window("daemon CPU", 50);
    struct stg_advice advice;
    e.n_items = 40;
    e.pull_ns = SECOND / 25;
    e.compute_ns = SECOND * 9 / 25;
    stg_advice_find(&e, 16, &advice);
    CHECK_STR(advice.limit, "runners");
    CHECK(advice.setting == NULL && advice.gain == 0);
}

/* A wait of 5 % is 1/19 of the rest. */
static void trainers_that_do_not_wait_are_the_limit(void)
{
    struct stg_explain e = window("trainer", 5);
    struct stg_advice advice;
    stg_advice_find(&e, 16, &advice);
    CHECK_STR(advice.limit, "trainers");
    CHECK(strstr(advice.text, "at most 5 % faster") != NULL);
}

/* Without pulls, one runner makes 1000 / 9 = 111 items a second. */
static void reads_and_steps_are_named_with_their_bound(void)
{
    struct stg_advice advice;
    struct stg_explain e = window("storage", 50);
    stg_advice_find(&e, 16, &advice);
    CHECK_STR(advice.limit, "storage");
    CHECK(strstr(advice.text, "at most +11 %") != NULL);
    e = window("decode", 50);
    stg_advice_find(&e, 16, &advice);
    CHECK_STR(advice.limit, "one thread");
    e = window("py_function", 50);
    stg_advice_find(&e, 16, &advice);
    CHECK_STR(advice.limit, "py_function");
}

static void a_buffer_that_is_too_small_is_named(void)
{
    struct stg_advice advice;
    struct stg_explain e = window("decode", 50);
    e.room_ns = SECOND / 4;
    stg_advice_find(&e, 16, &advice);
    CHECK_STR(advice.limit, "capacity");
}

static void nothing_is_advised_without_measurements(void)
{
    struct stg_advice advice;
    struct stg_explain e = {.bottleneck = "unknown"};
    stg_advice_find(&e, 16, &advice);
    CHECK(advice.text[0] == '\0' && advice.limit[0] == '\0');
    e.bottleneck = "trainer";
    stg_advice_find(&e, 16, &advice);
    CHECK(advice.text[0] == '\0');
    e.bottleneck = "clients";
    stg_advice_find(&e, 16, &advice);
    CHECK_STR(advice.limit, "clients");
}

static const struct stg_test tests[] = {
    TEST(as_many_threads_as_the_trainers_take),
    TEST(no_more_threads_than_cpus_or_pulls_allow),
    TEST(busy_cpus_are_the_limit),
    TEST(a_model_that_does_not_fit_gives_no_number),
    TEST(trainers_that_do_not_wait_are_the_limit),
    TEST(reads_and_steps_are_named_with_their_bound),
    TEST(a_buffer_that_is_too_small_is_named),
    TEST(nothing_is_advised_without_measurements),
};
TEST_MAIN(tests)
