/* SPDX-License-Identifier: Apache-2.0
 *
 * container: shared content of pipelines is held once and counted once. A user who may
 * not read the source never gets it.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/dataset/container.h"
#include "daemon/dataset/content.h"
#include "daemon/host/memory.h"
#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"

static struct stg_budget budget;
static struct stg_containers *containers;
static struct stg_container *box;

static int take(void *owner, uint64_t bytes, const char *what, struct stg_err *err)
{
    return stg_budget_take(owner, bytes, "containers", err);
}

static void give(void *owner, uint64_t bytes)
{
    stg_budget_give(owner, bytes, "containers");
}

static void reclaim(void *owner, uint64_t bytes)
{
    stg_containers_reclaim(owner, bytes);
}

static void begin(uint64_t bytes)
{
    struct stg_container_memory memory = {.owner = &budget, .take = take, .give = give};
    struct stg_err err = {0};
    stg_budget_init(&budget, bytes);
    CHECK_OK(stg_containers_create(&memory, &containers, &err), err);
    budget.owner = containers;
    budget.reclaim = reclaim;
    CHECK_OK(stg_container_join(containers, "box", &box, &err), err);
}

/* Checks that nothing is left and nothing is counted. */
static void end(void)
{
    stg_container_leave(box);
    CHECK_INT(stg_budget_used(&budget), 0);
    stg_containers_destroy(containers);
    stg_budget_finish(&budget);
}

static uint32_t n_caches(void)
{
    struct stg_container_usage usage;
    stg_container_usage(box, &usage);
    CHECK_INT(stg_budget_used(&budget), usage.bytes);
    return usage.n_caches;
}

/* ---- running ---- */

struct run {
    struct stg_pipeline_spec *spec;
    struct stg_dataset *dataset;
    char text[256];     /* of all items */
    const void *first;  /* bytes of the first one */
    struct stg_err err; /* the code that ended it */
};

static void run_open(struct run *run, const char *steps, uid_t uid)
{
    struct stg_dataset_env env = stg_test_env();
    env.uid = env.gid = uid;
    env.container = box;
    char text[512];
    snprintf(text, sizeof(text), "dataset:\n%s", steps);
    *run = (struct run){0};
    run->dataset = stg_test_open_text(text, &env, &run->spec);
}

static int run_all(struct run *run)
{
    struct stg_block *block;
    int rc;
    while ((rc = stg_dataset_next(run->dataset, &block, &run->err)) == 0) {
        const struct stg_tensor *tensor = block->tensors;
        size_t n = strlen(run->text);
        if (block->error.code != 0)
            strcat(run->text, "! ");
        else if (tensor->dtype == STAGER_STRING)
            snprintf(run->text + n, sizeof(run->text) - n, "%.*s ",
                     (int)(tensor->end[0] - tensor->begin[0]),
                     (const char *)tensor->data + tensor->begin[0]);
        else
            snprintf(run->text + n, sizeof(run->text) - n, "%d ",
                     (int)*(const int64_t *)tensor->data);
        if (run->first == NULL && block->error.code == 0)
            run->first = tensor->data;
        stg_block_unref(block);
    }
    return rc;
}

static void run_close(struct run *run)
{
    stg_dataset_destroy(run->dataset);
    stg_pipeline_spec_destroy(run->spec);
}

static void check_run(struct run *run, const char *steps, const char *want)
{
    run_open(run, steps, 0);
    CHECK_INT(run_all(run), 1);
    CHECK_STR(run->text, want);
}

#define LINES "- files: {pattern: $DIR/in}\n- text_line: {max_record_bytes: 5}\n"

/* ---- contents of `cache` ---- */

static void a_second_pipeline_reads_the_memory_of_the_first(void)
{
    begin(1 << 20);
    STG_TEST_FILE("in", "a\nbb\nc\n");
    struct run first, second, third;
    check_run(&first, LINES "- cache\n- repeat: {count: 2}\n", "a bb c a bb c ");
    CHECK_INT(n_caches(), 1);
    uint64_t used = stg_budget_used(&budget);
    check_run(&second, LINES "- cache\n", "a bb c ");
    check_run(&third, LINES "- cache\n- take: {count: 1}\n", "a ");
    CHECK(second.first == third.first);
    CHECK_INT(stg_budget_used(&budget), used);
    run_close(&first);
    run_close(&second);
    run_close(&third);
    end();
}

static void it_stays_for_the_next_pass(void)
{
    begin(1 << 20);
    STG_TEST_FILE("in", "a\nb\n");
    struct run run;
    check_run(&run, LINES "- cache\n", "a b ");
    run_close(&run);
    CHECK_INT(n_caches(), 1);
    check_run(&run, LINES "- cache\n", "a b ");
    const void *first = run.first;
    run_close(&run);
    check_run(&run, LINES "- cache\n", "a b ");
    CHECK(run.first == first);
    run_close(&run);
    end();
}

static void two_that_fill_it_at_once_end_with_one(void)
{
    begin(1 << 20);
    STG_TEST_FILE("in", "a\nb\n");
    struct run first, second;
    run_open(&first, LINES "- cache\n- repeat: {count: 2}\n", 0);
    run_open(&second,
             LINES "- cache\n- shuffle: {buffer_size: 1}\n- repeat: {count: 2}\n", 0);
    struct stg_block *block = stg_test_next(first.dataset);
    stg_block_unref(block);
    CHECK_INT(run_all(&second), 1);
    CHECK_STR(second.text, "a b a b ");
    uint64_t used = stg_budget_used(&budget);
    CHECK_INT(run_all(&first), 1);
    CHECK_STR(first.text, "b a b ");
    CHECK_INT(n_caches(), 1);
    CHECK_INT(stg_budget_used(&budget), used);
    run_close(&second);
    run_close(&first);
    end();
}

static void a_file_that_changed_is_read_again(void)
{
    begin(1 << 20);
    STG_TEST_FILE("in", "a\nb\n");
    struct run run;
    check_run(&run, LINES "- cache\n", "a b ");
    run_close(&run);
    STG_TEST_FILE("in", "other\n");
    check_run(&run, LINES "- cache\n", "other ");
    run_close(&run);
    end();
}

/* Content read before and after the change is shared only by its reader. */
static void a_file_that_changes_while_it_is_read_is_not_shared(void)
{
    begin(1 << 20);
    STG_TEST_FILE("in", "a\nb\n");
    struct run run;
    run_open(&run, LINES "- cache\n- repeat: {count: 2}\n", 0);
    stg_block_unref(stg_test_next(run.dataset));
    STG_TEST_FILE("in", "other\n");
    CHECK_INT(run_all(&run), 1);
    CHECK_INT(n_caches(), 0);
    run_close(&run);
    end();
}

static void other_steps_are_another_content(void)
{
    begin(1 << 20);
    struct run run;
    static const char *const steps[] = {
        "- range: {stop: 3}\n- cache\n",
        "- range: {stop: 4}\n- take: {count: 3}\n- cache\n",
        "- range: {stop: 3}\n- enumerate\n- cache\n",
        "- range: {stop: 3}\n- map: {graph: {x: {op: add, input: [value, value]}}, "
        "output: "
        "x}\n- cache\n",
        "- range: {stop: 3}\n- map: {graph: {x: {op: multiply, input: [value, value]}}, "
        "output: "
        "x}\n- cache\n",
    };
    for (uint32_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        run_open(&run, steps[i], 0);
        CHECK_INT(run_all(&run), 1);
        run_close(&run);
        CHECK_INT(n_caches(), i + 1);
    }
    check_run(&run, steps[4], "0 1 4 ");
    run_close(&run);
    end();
}

static void what_is_not_whole_or_has_an_error_is_not_shared(void)
{
    begin(1 << 20);
    STG_TEST_FILE("in", "a\ntoo long\nb\n");
    struct run run;
    check_run(&run, LINES "- cache\n- repeat: {count: 2}\n", "a ! b a ! b ");
    run_close(&run);
    check_run(&run, "- range: {stop: 9}\n- cache\n- take: {count: 2}\n", "0 1 ");
    run_close(&run);
    CHECK_INT(n_caches(), 0);
    end();
}

static void a_user_without_read_access_does_not_get_the_files(void)
{
    if (getuid() != 0)
        SKIP("only root can change the user");
    begin(1 << 20);
    STG_TEST_FILE("in", "a\nb\n");
    CHECK_INT(chmod(stg_test_dir(), 0755), 0);
    CHECK_INT(chmod(stg_test_path("in"), 0644), 0);
    struct run run;
    check_run(&run, LINES "- cache\n", "a b ");
    const void *first = run.first;
    run_close(&run);
    check_run(&run, LINES "- cache\n", "a b ");
    first = run.first;
    run_close(&run);
    run_open(&run, LINES "- cache\n", 1234);
    CHECK_INT(run_all(&run), 1);
    CHECK(run.first == first);
    run_close(&run);
    run_open(&run, LINES "- cache\n", 1234);
    CHECK_INT(chmod(stg_test_path("in"), 0600), 0);
    CHECK_INT(run_all(&run), -STAGER_PERMISSION_DENIED);
    CHECK_STR(run.text, "");
    CHECK_CONTAINS(run.err.text, "step cache (line ");
    run_close(&run);
    end();
}

static void content_of(struct stg_container *container, struct stg_content *ret)
{
    struct stg_dataset_env env = stg_test_env();
    struct stg_err err = {0};
    struct stg_pipeline_spec *spec;
    env.container = container;
    struct stg_dataset *dataset = stg_test_open_text("dataset:\n" LINES, &env, &spec);
    CHECK_OK(stg_content_of(dataset->last, ret, &err), err);
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
}

/* Steps or files with the checksums of another container are not found. */
static void what_a_content_is_called_is_known_to_one_daemon_alone(void)
{
    struct stg_content first, again, other;
    STG_TEST_FILE("in", "a\nb\n");
    begin(1 << 20);
    content_of(box, &first);
    content_of(box, &again);
    end();
    begin(1 << 20);
    content_of(box, &other);
    end();
    CHECK(first.steps == again.steps && first.files == again.files);
    CHECK(first.steps != other.steps && first.files != other.files);
}

/* ---- memory ---- */

#define MANY "- range: {stop: 2000}\n- cache\n- batch: {batch_size: 2000}\n"

static void without_memory_for_it_each_keeps_its_own(void)
{
    begin(10000);
    struct run run;
    run_open(&run, MANY, 0);
    CHECK_INT(run_all(&run), 1);
    CHECK_INT(n_caches(), 0);
    run_close(&run);
    end();
}

static void unused_caches_are_freed_when_memory_is_needed(void)
{
    begin(100000);
    struct run run;
    struct stg_err err = {0};
    run_open(&run, MANY, 0);
    CHECK_INT(run_all(&run), 1);
    CHECK_INT(n_caches(), 1);
    CHECK_INT(stg_budget_take(&budget, 99000, "an arena", &err),
              -STAGER_RESOURCE_EXHAUSTED);
    CHECK_INT(n_caches(), 1);
    run_close(&run);
    CHECK_INT(stg_budget_take(&budget, 100001, "too much", &err),
              -STAGER_RESOURCE_EXHAUSTED);
    CHECK_INT(n_caches(), 1);
    CHECK_OK(stg_budget_take(&budget, 99000, "an arena", &err), err);
    stg_budget_give(&budget, 99000, "an arena");
    CHECK_INT(n_caches(), 0);
    end();
}

/* ---- tables ---- */

static struct stg_tensor table_of(const char *bytes)
{
    struct stg_tensor ret = {.dtype = STAGER_UINT8, .ndim = 1, .shape = {4}};
    ret.data = malloc(4);
    CHECK(ret.data != NULL);
    memcpy(ret.data, bytes, 4);
    ret.data_bytes = 4;
    return ret;
}

static void tables_of_the_same_bytes_are_one(void)
{
    begin(1 << 20);
    struct stg_err err = {0};
    struct stg_tensor a = table_of("same"), b = table_of("same"), c = table_of("else");
    struct stg_shared *of[3];
    CHECK_OK(stg_container_share_table(box, &a, &of[0], &err), err);
    CHECK_OK(stg_container_share_table(box, &b, &of[1], &err), err);
    CHECK_OK(stg_container_share_table(box, &c, &of[2], &err), err);
    CHECK(a.data == b.data && a.data != c.data);
    CHECK_INT(stg_budget_used(&budget), 8);
    stg_shared_unref(of[0]);
    CHECK_INT(memcmp(b.data, "same", 4), 0);
    stg_shared_unref(of[1]);
    CHECK_INT(stg_budget_used(&budget), 4);
    stg_shared_unref(of[2]);
    end();
}

static void containers_of_other_names_share_nothing(void)
{
    begin(1 << 20);
    struct stg_err err = {0};
    struct stg_container *other, *again;
    CHECK_OK(stg_container_join(containers, "other", &other, &err), err);
    CHECK_OK(stg_container_join(containers, "box", &again, &err), err);
    CHECK(again == box && other != box);
    struct stg_tensor a = table_of("same"), b = table_of("same");
    struct stg_shared *of[2];
    CHECK_OK(stg_container_share_table(box, &a, &of[0], &err), err);
    CHECK_OK(stg_container_share_table(other, &b, &of[1], &err), err);
    CHECK(a.data != b.data);
    CHECK_INT(stg_budget_used(&budget), 8);
    stg_shared_unref(of[0]);
    stg_shared_unref(of[1]);
    stg_container_leave(again);
    stg_container_leave(other);
    end();
}

/* ---- concurrent runs ---- */

static void *many_times(void *arg)
{
    for (int i = 0; i < 60; i++) {
        struct run run;
        run_open(&run, i % 2 == 0 ? MANY : "- range: {stop: 30}\n- cache\n", 0);
        *(int *)arg |= run_all(&run) != 1;
        run_close(&run);
        stg_containers_reclaim(containers, i % 3 == 0);
    }
    return NULL;
}

static void threads_that_fill_read_and_drop_it_get_all(void)
{
    begin(1 << 20);
    pthread_t threads[4];
    int failed[4] = {0};
    for (int i = 0; i < 4; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, many_times, &failed[i]), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        CHECK_INT(failed[i], 0);
    }
    end();
}

static const struct stg_test tests[] = {
    TEST(a_second_pipeline_reads_the_memory_of_the_first),
    TEST(it_stays_for_the_next_pass),
    TEST(two_that_fill_it_at_once_end_with_one),
    TEST(a_file_that_changed_is_read_again),
    TEST(a_file_that_changes_while_it_is_read_is_not_shared),
    TEST(other_steps_are_another_content),
    TEST(what_is_not_whole_or_has_an_error_is_not_shared),
    TEST(a_user_without_read_access_does_not_get_the_files),
    TEST(what_a_content_is_called_is_known_to_one_daemon_alone),
    TEST(without_memory_for_it_each_keeps_its_own),
    TEST(unused_caches_are_freed_when_memory_is_needed),
    TEST(tables_of_the_same_bytes_are_one),
    TEST(containers_of_other_names_share_nothing),
    TEST(threads_that_fill_read_and_drop_it_get_all),
};

TEST_MAIN(tests)
