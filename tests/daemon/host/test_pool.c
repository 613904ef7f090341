/* SPDX-License-Identifier: Apache-2.0
 *
 * Thread pools: where their threads run, and which job runs next.
 */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/host/pool.h"
#include "ops/base/parallel.h"
#include "tests/check.h"

static struct stg_thread_pool_spec spec_of(const char *name)
{
    return (struct stg_thread_pool_spec){.global_name = name,
                                         .inter_op_threads_num = 1,
                                         .intra_op_threads_num = 1,
                                         .cpus = "",
                                         .numa_node = -1};
}

/* ---- lists of CPUs ---- */

static void a_list_of_cpus_is_read_as_the_kernel_writes_it(void)
{
    static const char *const lists[][2] = {
        {"0", "0"},       {"0-3,8", "0-3,8"}, {"8,0-3", "0-3,8"}, {"1,2,3", "1-3"},
        {"5-5,7", "5,7"}, {"0-1\n", "0-1"},   {"1023", "1023"},
    };
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        cpu_set_t set;
        char text[128];
        struct stg_err err = {0};
        CHECK_OK(stg_cpu_list_parse(lists[i][0], &set, &err), err);
        CHECK_STR(stg_cpu_list_text(&set, text, sizeof(text)), lists[i][1]);
    }
}

static void what_is_no_list_of_cpus_is_refused(void)
{
    static const char *const lists[] = {"",   "a",     "0-",       "-1",   "3-1", "0,,1",
                                        "0,", "0-1-2", "99999999", "1024", "0 1", "0-3x"};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        cpu_set_t set;
        struct stg_err err = {0};
        if (stg_cpu_list_parse(lists[i], &set, &err) != -STAGER_INVALID_ARGUMENT)
            FAIL("\"%s\" was taken", lists[i]);
    }
}

/* ---- invalid pools ---- */

static void refuse(const struct stg_thread_pool_spec *specs, size_t n, const char *part)
{
    struct stg_pools *pools;
    struct stg_err err = {0};
    CHECK_INT(stg_pools_create(specs, n, &pools, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "thread_pools: io");
    CHECK_CONTAINS(err.text, part);
}

static void an_unknown_cpu_is_refused_with_a_list_of_the_existing_ones(void)
{
    struct stg_thread_pool_spec spec = spec_of("io");
    spec.cpus = "0,1000-1001";
    refuse(&spec, 1, "1000-1001 are not available; this machine has 0");
    spec.cpus = "0;1";
    refuse(&spec, 1, "is not a list of CPUs");
    spec.cpus = "";
    spec.numa_node = 77;
    refuse(&spec, 1, "numa_node 77 does not exist");
    struct stg_thread_pool_spec two[] = {spec_of("io"), spec_of("io")};
    refuse(two, 2, "same global_name");
}

static void an_id_out_of_range_is_reported_with_the_pools(void)
{
    struct stg_thread_pool_spec specs[] = {spec_of("io"), spec_of("parse")};
    struct stg_err err = {0};
    CHECK_INT(stg_pool_check_id(1, specs, 2, &err), 0);
    CHECK_INT(stg_pool_check_id(3, specs, 2, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_STR(err.text, "stage_subgraph_thread_pool_id 3 is out of range [0, 2): "
                        "stagerd.yaml has the pools io, parse");
    CHECK_INT(stg_pool_check_id(0, NULL, 0, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_STR(err.text, "stage_subgraph_thread_pool_id 0 is out of range [0, 0): "
                        "stagerd.yaml has no thread_pools");
}

/* ---- where they run ---- */

struct seen {
    char name[16];
    int nice;
    cpu_set_t cpus;
};

static void look(void *arg)
{
    struct seen *seen = arg;
    pthread_getname_np(pthread_self(), seen->name, sizeof(seen->name));
    seen->nice = getpriority(PRIO_PROCESS, 0);
    sched_getaffinity(0, sizeof(seen->cpus), &seen->cpus);
}

static void a_thread_has_its_name_its_cpus_and_its_niceness(void)
{
    cpu_set_t allowed;
    sched_getaffinity(0, sizeof(allowed), &allowed);
    int cpu = 0;
    while (!CPU_ISSET(cpu, &allowed))
        cpu++;
    char cpus[16];
    int own = getpriority(PRIO_PROCESS, 0);
    snprintf(cpus, sizeof(cpus), "%d", cpu);
    struct stg_thread_pool_spec spec = spec_of("a_pool_with_a_long_name");
    spec.cpus = cpus;
    spec.nice = 7;
    spec.numa_node = access("/sys/devices/system/node/node0", F_OK) == 0 ? 0 : -1;
    struct stg_pools *pools;
    struct stg_err err = {0};
    CHECK_OK(stg_pools_create(&spec, 1, &pools, &err), err);
    struct stg_pool_user user = {.pool = stg_pools_get(pools, 0)};
    CHECK(stg_pools_get(pools, 1) == NULL);
    struct stg_pool_job job = {.done = PTHREAD_COND_INITIALIZER};
    struct seen seen;
    CHECK(stg_pool_run(&user, &job, look, &seen));
    CHECK_STR(seen.name, "a_pool_with_a/0");
    CHECK_INT(seen.nice, 7);
    CHECK_INT(CPU_COUNT(&seen.cpus), 1);
    CHECK(CPU_ISSET(cpu, &seen.cpus));
    CHECK_INT(getpriority(PRIO_PROCESS, 0), own); /* of the caller */
    stg_pools_destroy(pools);
}

/* ---- the order of jobs ---- */

/* A pool of one thread, which `gate` blocks until it is opened. */
struct scene {
    struct stg_pools *pools;
    struct stg_pool_user users[2];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_held, is_open;
    char order[16];
    size_t n;
};

struct asker {
    struct scene *scene;
    int user;
    bool was_run;
    pthread_t thread;
};

static void hold(void *arg)
{
    struct scene *scene = arg;
    pthread_mutex_lock(&scene->lock);
    scene->is_held = true;
    pthread_cond_broadcast(&scene->changed);
    while (!scene->is_open)
        pthread_cond_wait(&scene->changed, &scene->lock);
    pthread_mutex_unlock(&scene->lock);
}

static void note(void *arg)
{
    struct asker *asker = arg;
    struct scene *scene = asker->scene;
    scene->order[scene->n++] = (char)('a' + asker->user);
}

static void *hold_main(void *arg)
{
    struct scene *scene = arg;
    struct stg_pool_user user = {.pool = stg_pools_get(scene->pools, 0)};
    struct stg_pool_job job = {.done = PTHREAD_COND_INITIALIZER};
    CHECK(stg_pool_run(&user, &job, hold, scene));
    return NULL;
}

static void *ask_main(void *arg)
{
    struct asker *asker = arg;
    struct stg_pool_job job = {.done = PTHREAD_COND_INITIALIZER};
    asker->was_run = stg_pool_run(&asker->scene->users[asker->user], &job, note, asker);
    return NULL;
}

static void begin_scene(struct scene *scene, pthread_t *holder)
{
    struct stg_thread_pool_spec spec = spec_of("one");
    struct stg_err err = {0};
    *scene = (struct scene){.lock = PTHREAD_MUTEX_INITIALIZER,
                            .changed = PTHREAD_COND_INITIALIZER};
    static struct stg_thread_pool_spec kept;
    kept = spec;
    CHECK_OK(stg_pools_create(&kept, 1, &scene->pools, &err), err);
    for (int i = 0; i < 2; i++)
        scene->users[i].pool = stg_pools_get(scene->pools, 0);
    CHECK_INT(pthread_create(holder, NULL, hold_main, scene), 0);
    pthread_mutex_lock(&scene->lock);
    while (!scene->is_held)
        pthread_cond_wait(&scene->changed, &scene->lock);
    pthread_mutex_unlock(&scene->lock);
}

static void open_scene(struct scene *scene, pthread_t holder)
{
    pthread_mutex_lock(&scene->lock);
    scene->is_open = true;
    pthread_cond_broadcast(&scene->changed);
    pthread_mutex_unlock(&scene->lock);
    pthread_join(holder, NULL);
}

/* Waits until its job is the last one in the queue. */
static void ask(struct scene *scene, struct asker *asker, int user)
{
    size_t before = stg_pool_n_waiting(&scene->users[user]);
    *asker = (struct asker){.scene = scene, .user = user};
    CHECK_INT(pthread_create(&asker->thread, NULL, ask_main, asker), 0);
    for (int i = 0; i < 100000; i++) {
        if (stg_pool_n_waiting(&scene->users[user]) > before)
            return;
        usleep(100);
    }
    FAIL("the job was not queued");
}

static void users_take_turns_however_many_jobs_each_has(void)
{
    struct scene scene;
    pthread_t holder;
    struct asker askers[6];
    begin_scene(&scene, &holder);
    const int users[] = {0, 0, 0, 0, 1, 1};
    for (int i = 0; i < 6; i++)
        ask(&scene, &askers[i], users[i]);
    open_scene(&scene, holder);
    for (int i = 0; i < 6; i++) {
        pthread_join(askers[i].thread, NULL);
        CHECK(askers[i].was_run);
    }
    CHECK(memcmp(scene.order, "ababaa", 6) == 0);
    stg_pools_destroy(scene.pools);
}

static void a_cancelled_user_waits_for_no_thread(void)
{
    struct scene scene;
    pthread_t holder;
    struct asker askers[3], other, late;
    begin_scene(&scene, &holder);
    for (int i = 0; i < 3; i++)
        ask(&scene, &askers[i], 0);
    ask(&scene, &other, 1);
    stg_pool_cancel(&scene.users[0]);
    for (int i = 0; i < 3; i++) {
        pthread_join(askers[i].thread, NULL);
        CHECK(!askers[i].was_run);
    }
    late = (struct asker){.scene = &scene, .user = 0, .was_run = true};
    CHECK_INT(pthread_create(&late.thread, NULL, ask_main, &late), 0);
    pthread_join(late.thread, NULL);
    CHECK(!late.was_run);
    open_scene(&scene, holder);
    pthread_join(other.thread, NULL);
    CHECK(other.was_run);
    CHECK(memcmp(scene.order, "b", 2) == 0);
    stg_pools_destroy(scene.pools);
}

/* ---- work in parts ---- */

#define MAX_PARTS 64

/* Parts that wait until `n_wanted` of them run. */
struct crowd {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t n_wanted, n_here;
    struct seen seen[MAX_PARTS];
    pthread_t threads[MAX_PARTS];
};

static void meet(void *arg, uint32_t i)
{
    struct crowd *crowd = arg;
    look(&crowd->seen[i]);
    crowd->threads[i] = pthread_self();
    pthread_mutex_lock(&crowd->lock);
    crowd->n_here++;
    pthread_cond_broadcast(&crowd->changed);
    while (crowd->n_here < crowd->n_wanted)
        pthread_cond_wait(&crowd->changed, &crowd->lock);
    pthread_mutex_unlock(&crowd->lock);
}

#define CROWD(n)                                                                         \
    {                                                                                    \
        .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER,          \
        .n_wanted = (n)                                                                  \
    }

static const struct stg_parallel *start_helped(struct stg_thread_pool_spec *spec,
                                               uint32_t n_threads, struct stg_pools **ret)
{
    struct stg_err err = {0};
    *spec = spec_of("a_pool_with_a_long_name");
    spec->intra_op_threads_num = n_threads;
    spec->nice = 7;
    CHECK_OK(stg_pools_create(spec, 1, ret, &err), err);
    return stg_pool_parallel(stg_pools_get(*ret, 0));
}

static bool was_seen(const struct crowd *crowd, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(crowd->seen[i].name, name) == 0 && crowd->seen[i].nice == 7)
            return true;
    }
    return false;
}

static void threads_that_help_have_their_names_and_their_niceness(void)
{
    struct stg_thread_pool_spec spec;
    struct stg_pools *pools;
    struct crowd crowd = CROWD(3);
    const struct stg_parallel *parallel = start_helped(&spec, 3, &pools);
    CHECK_INT(parallel->n_threads, 3);
    parallel->run(parallel->owner, 3, meet, &crowd);
    CHECK_INT(crowd.n_here, 3);
    CHECK(was_seen(&crowd, 3, "a_pool_with_a+1"));
    CHECK(was_seen(&crowd, 3, "a_pool_with_a+2"));
    CHECK(!was_seen(&crowd, 3, "a_pool_with_a/0")); /* the caller runs the third itself */
    stg_pools_destroy(pools);
}

static void a_pool_of_one_thread_an_op_has_none_that_help(void)
{
    struct stg_thread_pool_spec spec;
    struct stg_pools *pools;
    CHECK(start_helped(&spec, 1, &pools) == NULL);
    stg_pools_destroy(pools);
}

static void *meet_main(void *arg)
{
    struct crowd *crowd = ((void **)arg)[0];
    const struct stg_parallel *parallel = ((void **)arg)[1];
    parallel->run(parallel->owner, 2, meet, crowd);
    return NULL;
}

static void a_caller_runs_its_work_itself_while_no_thread_is_free(void)
{
    struct stg_thread_pool_spec spec;
    struct stg_pools *pools;
    struct crowd busy = CROWD(3), alone = CROWD(0);
    const struct stg_parallel *parallel = start_helped(&spec, 2, &pools);
    void *args[] = {&busy, (void *)(uintptr_t)parallel};
    pthread_t thread;
    CHECK_INT(pthread_create(&thread, NULL, meet_main, args), 0);
    pthread_mutex_lock(&busy.lock);
    while (busy.n_here < 2)
        pthread_cond_wait(&busy.changed, &busy.lock);
    pthread_mutex_unlock(&busy.lock);
    parallel->run(parallel->owner, 8, meet, &alone);
    CHECK_INT(alone.n_here, 8);
    for (int i = 0; i < 8; i++)
        CHECK(pthread_equal(alone.threads[i], pthread_self()));
    pthread_mutex_lock(&busy.lock);
    busy.n_here = 3;
    pthread_cond_broadcast(&busy.changed);
    pthread_mutex_unlock(&busy.lock);
    pthread_join(thread, NULL);
    stg_pools_destroy(pools);
}

/* Not atomic: a part that runs twice, or before its work is handed over, is a data
 * race. */
static void count(void *arg, uint32_t i)
{
    ((uint32_t *)arg)[i]++;
}

static void *count_main(void *arg)
{
    const struct stg_parallel *parallel = arg;
    for (uint32_t round = 0; round < 2000; round++) {
        uint32_t counts[MAX_PARTS] = {0}, n = 1 + round % MAX_PARTS;
        parallel->run(parallel->owner, n, count, counts);
        for (uint32_t i = 0; i < MAX_PARTS; i++)
            CHECK_INT(counts[i], i < n);
    }
    return NULL;
}

static void each_part_runs_once_under_concurrent_callers(void)
{
    struct stg_thread_pool_spec spec;
    struct stg_pools *pools;
    pthread_t threads[4];
    const struct stg_parallel *parallel = start_helped(&spec, 4, &pools);
    for (int i = 0; i < 4; i++)
        CHECK_INT(
            pthread_create(&threads[i], NULL, count_main, (void *)(uintptr_t)parallel),
            0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    stg_pools_destroy(pools);
}

static const struct stg_test tests[] = {
    TEST(a_list_of_cpus_is_read_as_the_kernel_writes_it),
    TEST(what_is_no_list_of_cpus_is_refused),
    TEST(an_unknown_cpu_is_refused_with_a_list_of_the_existing_ones),
    TEST(an_id_out_of_range_is_reported_with_the_pools),
    TEST(a_thread_has_its_name_its_cpus_and_its_niceness),
    TEST(users_take_turns_however_many_jobs_each_has),
    TEST(a_cancelled_user_waits_for_no_thread),
    TEST(threads_that_help_have_their_names_and_their_niceness),
    TEST(a_pool_of_one_thread_an_op_has_none_that_help),
    TEST(a_caller_runs_its_work_itself_while_no_thread_is_free),
    TEST(each_part_runs_once_under_concurrent_callers),
};

TEST_MAIN(tests)
