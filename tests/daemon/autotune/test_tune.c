/* SPDX-License-Identifier: Apache-2.0
 *
 * The tuners of a stage without a stage: events in, proposals out.
 */
#include "daemon/autotune/tune.h"
#include "tests/check.h"

#define MS UINT64_C(1000000)

struct scene {
    struct stg_staged staged;
    struct stg_tune tune;
    struct stg_tune_numbers numbers;
    struct stg_tune_consumer fast, slow;
    struct stg_tune_view view;
    uint64_t n_proposed;
};

static void scene_init(struct scene *s, bool together)
{
    struct stg_tune_limits limits = {.max_threads = 8, .max_capacity = 16, .cpus = 8};
    struct stg_err err = {0};
    *s = (struct scene){.view = {.now_ns = 1000 * MS, .together = together}};
    CHECK_OK(stg_tune_init(&s->tune, &s->staged, &limits, NULL, &s->numbers, &err), err);
    CHECK_INT(s->numbers.num_threads, 1);
    CHECK_INT(s->numbers.capacity, 2);
    CHECK(stg_tune_changed(&s->tune));
}

/* n items, one each 4 ms, that took busy_ms; the consumers wait for most of the time. */
static void publish(struct scene *s, int n, uint64_t busy_ms, uint64_t fast_waits,
                    uint64_t slow_waits)
{
    for (int i = 0; i < n; i++) {
        s->view.now_ns += 4 * MS;
        s->fast.wait_ns += fast_waits * MS;
        s->slow.wait_ns += slow_waits * MS;
        s->fast.n_given++;
        s->slow.n_given++;
        s->fast.next = &s->slow;
        s->view.consumers = &s->fast;
        stg_tune_taken(&s->tune, 0);
        if (stg_tune_published(&s->tune, 0, busy_ms * MS, 0, true))
            s->n_proposed += stg_tune_look(&s->tune, &s->view, &s->numbers);
    }
}

static void more_threads_are_proposed_when_clients_wait(void)
{
    struct scene s;
    scene_init(&s, false);
    publish(&s, 60, 100, 3, 3);
    CHECK(s.n_proposed > 0 && s.numbers.num_threads > 1);
    stg_tune_finish(&s.tune);
}

static void together_the_client_that_waits_least_counts(void)
{
    struct scene s;
    scene_init(&s, true);
    publish(&s, 60, 100, 3, 0);
    CHECK_INT(s.n_proposed, 0);
    stg_tune_finish(&s.tune);
    scene_init(&s, false);
    publish(&s, 60, 100, 3, 3);
    CHECK(s.n_proposed > 0);
    stg_tune_finish(&s.tune);
}

static void without_consumers_nothing_is_measured(void)
{
    struct scene s;
    scene_init(&s, false);
    for (int i = 0; i < 100; i++) {
        s.view.now_ns += 4 * MS;
        if (stg_tune_published(&s.tune, 0, 100 * MS, 0, false))
            CHECK(!stg_tune_look(&s.tune, &s.view, &s.numbers));
    }
    CHECK_INT(s.tune.threads.n_windows, 0);
    stg_tune_finish(&s.tune);
}

static void a_change_is_news_once(void)
{
    struct scene s;
    struct stg_tuning_change changes[STG_TUNING_CHANGES];
    scene_init(&s, false);
    while (s.n_proposed == 0)
        publish(&s, 1, 100, 3, 3);
    CHECK_INT(stg_tune_news(&s.tune, changes), 1);
    CHECK_STR(changes[0].what, "num_threads");
    CHECK_INT(changes[0].change.to, s.numbers.num_threads);
    CHECK_INT(stg_tune_news(&s.tune, changes), 0);
    stg_tune_finish(&s.tune);
}

static void numbers_that_are_given_never_change(void)
{
    struct scene s;
    struct stg_tune_limits limits = {.max_threads = 8, .max_capacity = 16, .cpus = 8};
    struct stg_err err = {0};
    s = (struct scene){.staged = {.num_threads = 3, .capacity = 5}};
    CHECK_OK(stg_tune_init(&s.tune, &s.staged, &limits, NULL, &s.numbers, &err), err);
    CHECK_INT(s.numbers.num_threads, 3);
    CHECK_INT(s.numbers.capacity, 5);
    CHECK(!stg_tune_changed(&s.tune));
    publish(&s, 100, 100, 3, 3);
    CHECK_INT(s.n_proposed, 0);
    stg_tune_finish(&s.tune);
}

static const struct stg_test tests[] = {
    TEST(more_threads_are_proposed_when_clients_wait),
    TEST(together_the_client_that_waits_least_counts),
    TEST(without_consumers_nothing_is_measured),
    TEST(a_change_is_news_once),
    TEST(numbers_that_are_given_never_change),
};
TEST_MAIN(tests)
