/* SPDX-License-Identifier: Apache-2.0
 *
 * Thread pools: where their threads run, and who is served next.
 */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/pool.h"
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

/* ---- pools that cannot be ---- */

static void refuse(const struct stg_thread_pool_spec *specs, size_t n, const char *part)
{
    struct stg_pools *pools;
    struct stg_err err = {0};
    CHECK_INT(stg_pools_create(specs, n, &pools, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "thread_pools: io");
    CHECK_CONTAINS(err.text, part);
}

static void what_the_machine_has_not_is_refused_with_what_it_has(void)
{
    struct stg_thread_pool_spec spec = spec_of("io");
    spec.cpus = "0,1000-1001";
    refuse(&spec, 1, "1000-1001 are not here; this machine has 0");
    spec.cpus = "0;1";
    refuse(&spec, 1, "is no list of CPUs");
    spec.cpus = "";
    spec.numa_node = 77;
    refuse(&spec, 1, "numa_node 77 is not here");
    struct stg_thread_pool_spec two[] = {spec_of("io"), spec_of("io")};
    refuse(two, 2, "same global_name");
}

static void an_id_out_of_range_is_told_with_the_pools(void)
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
    CHECK_INT(getpriority(PRIO_PROCESS, 0), 0); /* of the caller */
    stg_pools_destroy(pools);
}

/* ---- who is served ---- */

/* A pool of one thread, which `gate` holds until it is opened. */
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

/* Until its job is the last that waits. */
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

static const struct stg_test tests[] = {
    TEST(a_list_of_cpus_is_read_as_the_kernel_writes_it),
    TEST(what_is_no_list_of_cpus_is_refused),
    TEST(what_the_machine_has_not_is_refused_with_what_it_has),
    TEST(an_id_out_of_range_is_told_with_the_pools),
    TEST(a_thread_has_its_name_its_cpus_and_its_niceness),
    TEST(users_take_turns_however_many_jobs_each_has),
    TEST(a_cancelled_user_waits_for_no_thread),
};

TEST_MAIN(tests)
