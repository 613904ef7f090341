/* SPDX-License-Identifier: Apache-2.0
 *
 * Users that want more CPU time than there is: the nice values of their threads. The
 * expected values are the logarithms of threads per weight to the base 1.25.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "daemon/host/fair.h"
#include "daemon/host/share.h"
#include "tests/check.h"

#define MAX_THREADS 5

struct busy {
    _Atomic pid_t tid;
    _Atomic bool *stops;
    pthread_t thread;
};

struct user {
    struct stg_share *share;
    struct busy threads[MAX_THREADS];
    int n;
    _Atomic bool stops;
};

static void *compute(void *arg)
{
    struct busy *busy = arg;
    atomic_store(&busy->tid, gettid());
    while (!atomic_load(busy->stops)) {
    }
    return NULL;
}

/* The first thread starts the others: they work for its user too. */
static void *compute_with_others(void *arg)
{
    struct user *user = arg;
    for (int i = 1; i < user->n; i++) {
        struct busy *busy = &user->threads[i];
        CHECK_INT(stg_fair_start(&busy->thread, NULL, compute, busy), 0);
    }
    compute(&user->threads[0]);
    for (int i = 1; i < user->n; i++)
        pthread_join(user->threads[i].thread, NULL);
    return NULL;
}

static void begin(struct user *user, uid_t uid, int n)
{
    user->share = stg_share_get(uid, uid, NULL, 0);
    CHECK(user->share != NULL);
    user->n = n;
    for (int i = 0; i < n; i++)
        user->threads[i].stops = &user->stops;
    CHECK_INT(
        stg_fair_start(&user->threads[0].thread, user->share, compute_with_others, user),
        0);
}

static void end(struct user *user)
{
    atomic_store(&user->stops, true);
    pthread_join(user->threads[0].thread, NULL);
    stg_share_put(user->share);
}

static int nice_of(const struct busy *busy)
{
    pid_t tid = atomic_load(&busy->tid);
    return tid != 0 ? getpriority(PRIO_PROCESS, (id_t)tid) : -100;
}

/* The runner's time limit ends a wait in vain. */
static void wait_for_nice(const struct user *user, int nice)
{
    for (int i = 0; i < user->n; i++) {
        while (nice_of(&user->threads[i]) != nice)
            nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
}

static void configure(uint32_t weight_of_first)
{
    struct stg_err err = {0};
    struct stg_quota_spec quotas[] = {{.user = "64242", .weight = weight_of_first},
                                      {.user = "64243", .weight = 1}};
    for (size_t i = 0; i < 2; i++) {
        for (size_t k = 0; k < STG_N_QUOTA_KINDS; k++)
            quotas[i].limit[k] = STG_NO_QUOTA;
    }
    CHECK_OK(stg_share_configure(quotas, 2, &err), err);
    CHECK(stg_share_has_weights(quotas, 2));
    CHECK_INT(stg_fair_configure(true), 0);
}

static int base(void)
{
    return getpriority(PRIO_PROCESS, 0);
}

static void the_threads_of_a_user_weigh_together_what_the_user_weighs(void)
{
    static struct user many, one;
    configure(1);
    begin(&many, 64242, 4);
    begin(&one, 64243, 1);
    wait_for_nice(&many, base() + 6); /* 1.25^6 is 3.8 */
    wait_for_nice(&one, base());
    end(&one);
    end(&many);
    stg_fair_configure(false);
    stg_share_finish();
}

static void a_lone_user_keeps_the_nice_value_of_the_process(void)
{
    static struct user many, idle;
    configure(1);
    begin(&many, 64242, 3);
    atomic_store(&idle.stops, true);
    begin(&idle, 64243, 1);
    end(&idle);
    uint64_t until = stg_now_ns() + 1500000000u;
    while (stg_now_ns() < until) {
        for (int i = 0; i < many.n; i++) {
            int nice = nice_of(&many.threads[i]);
            CHECK(nice == -100 || nice == base());
        }
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    end(&many);
    stg_fair_configure(false);
    stg_share_finish();
}

/* A nice value goes back with a permission alone. */
static void another_weight_is_used_for_threads_that_run(void)
{
    static struct user many, one;
    if (geteuid() != 0)
        return;
    configure(1);
    begin(&many, 64242, 4);
    begin(&one, 64243, 1);
    wait_for_nice(&many, base() + 6);
    configure(8);
    wait_for_nice(&many, base());
    wait_for_nice(&one, base() + 3); /* 8 over 4 threads to 1: 1.25^3 is 1.95 */
    stg_fair_configure(false);
    CHECK_INT(nice_of(&one.threads[0]), base());
    end(&one);
    end(&many);
    stg_share_finish();
}

static void without_a_user_a_thread_is_like_any_other(void)
{
    _Atomic bool stops = true;
    struct busy busy = {.stops = &stops};
    configure(1);
    CHECK_INT(stg_fair_start(&busy.thread, NULL, compute, &busy), 0);
    pthread_join(busy.thread, NULL);
    stg_fair_configure(false);
    stg_share_finish();
}

static void a_group_has_one_weight_for_its_members(void)
{
    struct stg_err err = {0};
    struct stg_quota_spec quotas[] = {{.group = "64300", .weight = 7},
                                      {.user = "64243", .weight = 2},
                                      {.user = "64244"}};
    gid_t group = 64300;
    CHECK_OK(stg_share_configure(quotas, 3, &err), err);
    struct stg_share *shares[] = {
        stg_share_get(64242, 1, &group, 1), stg_share_get(64243, 1, &group, 1),
        stg_share_get(64244, 1, &group, 1), stg_share_get(64245, 1, NULL, 0)};
    static const struct stg_party want[] = {
        {true, 64300, 7}, {false, 64243, 2}, {true, 64300, 7}, {false, 64245, 1}};
    for (size_t i = 0; i < 4; i++) {
        struct stg_party party = stg_share_party(shares[i]);
        CHECK(party.is_group == want[i].is_group);
        CHECK_INT(party.id, want[i].id);
        CHECK_INT(party.weight, want[i].weight);
        stg_share_put(shares[i]);
    }
    stg_share_finish();
}

static const struct stg_test tests[] = {
    TEST(the_threads_of_a_user_weigh_together_what_the_user_weighs),
    TEST(a_lone_user_keeps_the_nice_value_of_the_process),
    TEST(another_weight_is_used_for_threads_that_run),
    TEST(without_a_user_a_thread_is_like_any_other),
    TEST(a_group_has_one_weight_for_its_members),
};

TEST_MAIN(tests)
