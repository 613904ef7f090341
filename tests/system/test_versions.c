/* SPDX-License-Identifier: Apache-2.0
 *
 * Earlier generations of a pipeline: which are kept, and a rollback to one.
 */
#include <grp.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/system/fixture.h"

#define NOBODY 65534

/* A pipeline x whose batches have one number each, from `start` on. */
static const char *yaml_of(int start, char buf[512])
{
    snprintf(buf, 512,
             "name: x\ndataset:\n  - range: {start: %d, stop: 1000}\n"
             "  - batch: {batch_size: 1}\nstaged: {capacity: 2}\n",
             start);
    return buf;
}

static void apply(struct fixture *fixture, int start)
{
    char yaml[512];
    fixture_apply(fixture, yaml_of(start, yaml));
}

static int roll_back(struct fixture *fixture, uint64_t generation, uint64_t if_generation,
                     struct stg_reply *ret, struct stg_err *err)
{
    struct stager *client;
    CHECK_INT(stager_connect(fixture->runtime, &client), 0);
    struct stg_request request = {.kind = STG_REQUEST_ROLLBACK,
                                  .name = "x",
                                  .generation = generation,
                                  .has_if_generation = if_generation > 0,
                                  .if_generation = if_generation};
    int rc = stg_admin_call(client, &request, ret, err);
    stager_disconnect(client);
    return rc;
}

/* Rolls back and checks which generation comes of it. */
static void expect_rollback(struct fixture *fixture, uint64_t generation,
                            uint64_t restored, uint64_t now)
{
    struct stg_reply reply;
    struct stg_err err = {0};
    CHECK_OK(roll_back(fixture, generation, 0, &reply, &err), err);
    CHECK_INT(reply.restored, restored);
    CHECK_INT(reply.generation, now);
}

static void refuse(struct fixture *fixture, uint64_t generation, int code,
                   const char *part)
{
    struct stg_reply reply;
    struct stg_err err = {0};
    CHECK_INT(roll_back(fixture, generation, 0, &reply, &err), code);
    CHECK_CONTAINS(err.text, part);
}

/* The first batch of a new stream. */
static void expect_start(struct fixture *fixture, int start)
{
    struct stager_stream *stream = fixture_open(fixture, "x", "a", 2);
    fixture_expect_value(stream, start);
    stager_close(stream);
}

/* Fills in the generations, with a blank before each. */
static void versions(struct fixture *fixture, char ret[256])
{
    struct stg_reply reply;
    struct stager *client = fixture_ask(fixture, STG_REQUEST_VERSIONS, "x", &reply);
    CHECK_STR(reply.name, "x");
    ret[0] = '\0';
    for (size_t i = 0; i < reply.n_versions; i++) {
        const struct stg_version_entry *e = &reply.versions[i];
        CHECK_INT(e->uid, getuid());
        CHECK(e->time_ns > 1700000000ull * 1000000000u && e->content != 0);
        CHECK(i == 0 || e->time_ns >= reply.versions[i - 1].time_ns);
        snprintf(ret + strlen(ret), 256 - strlen(ret), " %" PRIu64, e->generation);
    }
    stager_disconnect(client);
}

static void expect_versions(struct fixture *fixture, const char *want)
{
    char got[256];
    versions(fixture, got);
    CHECK_STR(got, want);
}

static void a_rollback_applies_an_earlier_definition_as_a_new_generation(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply(&fixture, 100);
    expect_versions(&fixture, " 1");
    refuse(&fixture, 0, -STAGER_NOT_FOUND, "keeps no earlier one");
    apply(&fixture, 200);
    apply(&fixture, 300);
    expect_versions(&fixture, " 1 2 3");
    struct stager_stream *stream = fixture_open(&fixture, "x", "a", 2);
    fixture_expect_value(stream, 300);
    expect_rollback(&fixture, 1, 1, 4);
    struct stager_batch *batch;
    int rc;
    while ((rc = stager_next(stream, 10000, &batch)) == 0)
        stager_release(batch);
    CHECK_INT(rc, -STAGER_ABORTED);
    CHECK_CONTAINS(stager_error_text(stream), "replaced by generation 4");
    stager_close(stream);
    expect_start(&fixture, 100);
    expect_versions(&fixture, " 1 2 3 4");
    fixture_finish(&fixture);
}

/* A second one undoes the first. */
static void without_a_generation_the_last_other_content_comes_back(void)
{
    struct fixture fixture;
    struct stg_reply reply;
    struct stg_err err = {0};
    fixture_start(&fixture, "");
    apply(&fixture, 100);
    apply(&fixture, 200);
    expect_rollback(&fixture, 0, 1, 3);
    expect_start(&fixture, 100);
    expect_rollback(&fixture, 0, 2, 4);
    expect_start(&fixture, 200);
    CHECK_OK(roll_back(&fixture, 2, 4, &reply, &err), err); /* it has that content */
    CHECK(reply.unchanged);
    CHECK_INT(reply.generation, 4);
    expect_versions(&fixture, " 1 2 3 4");
    fixture_finish(&fixture);
}

static void ten_generations_are_kept_over_restarts(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    for (int i = 1; i <= 12; i++) {
        apply(&fixture, 100 * i);
        if (i % 5 == 0) {
            fixture_kill(&fixture);
            fixture_restart(&fixture);
        }
    }
    expect_versions(&fixture, " 3 4 5 6 7 8 9 10 11 12");
    refuse(&fixture, 2, -STAGER_NOT_FOUND,
           "no definition of generation 2; stagerd keeps generations 3, 4, 5, 6, 7, 8, "
           "9, 10, 11");
    refuse(&fixture, 12, -STAGER_INVALID_ARGUMENT, "generation 12 is the current one");
    expect_rollback(&fixture, 3, 3, 13);
    expect_start(&fixture, 300);
    fixture_kill(&fixture);
    fixture_restart(&fixture);
    expect_start(&fixture, 300);
    expect_versions(&fixture, " 4 5 6 7 8 9 10 11 12 13");
    fixture_finish(&fixture);
}

static void another_generation_than_expected_is_refused(void)
{
    struct fixture fixture;
    struct stg_reply reply;
    struct stg_err err = {0};
    fixture_start(&fixture, "");
    apply(&fixture, 100);
    apply(&fixture, 200);
    CHECK_INT(roll_back(&fixture, 1, 1, &reply, &err), -STAGER_ABORTED);
    CHECK_CONTAINS(err.text, "is at generation 2");
    expect_versions(&fixture, " 1 2");
    fixture_finish(&fixture);
}

static void a_damaged_version_is_logged_and_left_out(void)
{
    struct fixture fixture;
    char path[256];
    fixture_start(&fixture, "");
    for (int i = 1; i <= 3; i++)
        apply(&fixture, 100 * i);
    fixture_file(&fixture, "home/state/versions/x/2.yaml", "name: y\n", 8, path);
    expect_versions(&fixture, " 1 3");
    fixture_wait_log(&fixture, "x/2.yaml is damaged");
    refuse(&fixture, 2, -STAGER_NOT_FOUND,
           "no definition of generation 2; stagerd keeps generation 1");
    expect_rollback(&fixture, 0, 1, 4);
    fixture_finish(&fixture);
}

/* A crash in the middle of a delete may leave some. */
static void a_delete_removes_all_versions(void)
{
    struct fixture fixture;
    struct stg_reply reply;
    char folder[256], file[256], aside[256];
    fixture_start(&fixture, "");
    apply(&fixture, 100);
    apply(&fixture, 200);
    snprintf(folder, sizeof(folder), "%s/home/state/versions/x", fixture.dir);
    snprintf(file, sizeof(file), "%.200s/1.yaml", folder);
    snprintf(aside, sizeof(aside), "%s/aside", fixture.dir);
    CHECK_INT(link(file, aside), 0);
    stager_disconnect(fixture_ask(&fixture, STG_REQUEST_DELETE, "x", &reply));
    CHECK(access(folder, F_OK) != 0);
    CHECK_INT(mkdir(folder, 0700), 0);
    CHECK_INT(link(aside, file), 0);
    apply(&fixture, 300);
    CHECK(access(file, F_OK) != 0);
    expect_versions(&fixture, " 1");
    refuse(&fixture, 0, -STAGER_NOT_FOUND, "keeps no earlier one");
    fixture_finish(&fixture);
}

static void put_file(struct fixture *fixture, int start)
{
    char yaml[512], path[256];
    yaml_of(start, yaml);
    fixture_file(fixture, "pipelines/x.yaml", yaml, strlen(yaml), path);
    fixture_stop(fixture);
    fixture_restart(fixture);
}

/* A restart reads the new text; the old one lies in state_dir. */
static void the_texts_that_a_file_of_pipeline_dir_had_are_kept(void)
{
    struct fixture fixture;
    char path[256];
    fixture_start(&fixture, "");
    snprintf(path, sizeof(path), "%s/pipelines", fixture.dir);
    mkdir(path, 0755);
    for (int i = 1; i <= 3; i++)
        put_file(&fixture, 100 * i);
    expect_versions(&fixture, " 1 2 3");
    expect_rollback(&fixture, 1, 1, 4);
    expect_start(&fixture, 100);
    put_file(&fixture, 400); /* what was applied wins */
    expect_start(&fixture, 100);
    expect_versions(&fixture, " 1 2 3 4");
    expect_rollback(&fixture, 3, 3, 5);
    expect_start(&fixture, 300);
    fixture_finish(&fixture);
}

/* It would otherwise undo the rollback at the next restart of the trainer. */
static void the_script_that_applied_it_does_not_undo_a_rollback(void)
{
    static const char script[] = "/home/u/train.py";
    struct fixture fixture;
    struct stager *client;
    struct stg_reply reply;
    struct stg_err err = {0};
    char yaml[512];
    fixture_start(&fixture, "");
    CHECK_INT(stager_connect(fixture.runtime, &client), 0);
    for (uint64_t run = 1; run <= 4; run++) {
        yaml_of(run == 1 ? 100 : 200, yaml);
        struct stg_request request = {.kind = STG_REQUEST_APPLY,
                                      .text = yaml,
                                      .text_bytes = strlen(yaml),
                                      .script = script,
                                      .script_run = run};
        if (run == 4)
            expect_rollback(&fixture, 1, 1, 3);
        CHECK_INT(stg_admin_call(client, &request, &reply, &err),
                  run == 4 ? -STAGER_FAILED_PRECONDITION : 0);
    }
    CHECK_CONTAINS(err.text, "use --replace");
    stager_disconnect(client);
    fixture_finish(&fixture);
}

/* The vocabulary file is not kept. */
static void a_vocabulary_that_changed_since_is_a_problem(void)
{
    struct fixture fixture;
    char rows[256], words[256], yaml[1024];
    struct stager *client;
    struct stg_request request = {
        .kind = STG_REQUEST_ROLLBACK, .name = "x", .generation = 1};
    struct stg_reply reply;
    struct stg_err err = {0};
    fixture_start(&fixture, "");
    fixture_file(&fixture, "rows", "a\nb\n", 4, rows);
    fixture_file(&fixture, "words", "a\nb\n", 4, words);
    snprintf(yaml, sizeof(yaml),
             "name: x\ndataset:\n  - files: {pattern: %s}\n  - text_line\n"
             "  - batch: {batch_size: 1}\n"
             "graph:\n  - {name: t, op: vocabulary, file: %s}\n"
             "  - {name: i, op: lookup, input: [t, record]}\n"
             "staged: {features: {i: i}}\n",
             rows, words);
    fixture_apply(&fixture, yaml);
    apply(&fixture, 200);
    fixture_file(&fixture, "words", "b\na\n", 4, words);
    CHECK_INT(stager_connect(fixture.runtime, &client), 0);
    CHECK_OK(stg_admin_call(client, &request, &reply, &err), err);
    CHECK_INT(reply.n_advice > 0, 1);
    CHECK_CONTAINS(reply.advice[reply.n_advice - 1],
                   "problem: the content is not that of generation 1");
    stager_disconnect(client);
    expect_versions(&fixture, " 1 2 3");
    fixture_finish(&fixture);
}

static void unprivileged_body(struct fixture *fixture, int fd, void *arg)
{
    struct stg_reply reply;
    struct stg_err err = {0};
    CHECK_INT(setgroups(0, NULL), 0);
    CHECK_INT(setgid(NOBODY), 0);
    CHECK_INT(setuid(NOBODY), 0);
    trainer_send(fd, roll_back(fixture, 1, 0, &reply, &err));
}

static int roll_back_as_nobody(struct fixture *fixture)
{
    struct trainer trainer;
    trainer_start(&trainer, unprivileged_body, fixture, NULL);
    int rc = (int)trainer_recv(trainer.fd);
    trainer_join(&trainer);
    return rc;
}

static void apply_as_nobody_body(struct fixture *fixture, int fd, void *arg)
{
    CHECK_INT(setgroups(0, NULL), 0);
    CHECK_INT(setgid(NOBODY), 0);
    CHECK_INT(setuid(NOBODY), 0);
    apply(fixture, 200);
    trainer_send(fd, 0);
}

/* The reader of the files is the user that applied the generation. */
static void a_definition_keeps_its_applier_and_no_other_user_restores_it(void)
{
    struct fixture fixture;
    struct trainer trainer;
    struct stg_reply reply;
    struct stg_err err = {0};
    char socket[256];
    if (getuid() != 0)
        SKIP("needs root, to become another user");
    fixture_start(&fixture, "");
    snprintf(socket, sizeof(socket), "%s/attach.sock", fixture.runtime);
    CHECK_INT(chmod(fixture.dir, 0755), 0);
    CHECK_INT(chmod(fixture.runtime, 0755), 0);
    CHECK_INT(chmod(socket, 0666), 0);
    apply(&fixture, 100);
    CHECK_INT(roll_back_as_nobody(&fixture), -STAGER_PERMISSION_DENIED);
    stager_disconnect(fixture_ask(&fixture, STG_REQUEST_DELETE, "x", &reply));
    trainer_start(&trainer, apply_as_nobody_body, &fixture, NULL);
    CHECK_INT(trainer_recv(trainer.fd), 0);
    trainer_join(&trainer);
    apply(&fixture, 300);
    CHECK_OK(roll_back(&fixture, 1, 0, &reply, &err), err);
    struct stager *client = fixture_ask(&fixture, STG_REQUEST_VERSIONS, "x", &reply);
    CHECK_INT(reply.n_versions, 3);
    CHECK_INT(reply.versions[0].uid, NOBODY);
    CHECK_INT(reply.versions[1].uid, 0);
    CHECK_INT(reply.versions[2].uid, NOBODY);
    stager_disconnect(client);
    CHECK_INT(roll_back_as_nobody(&fixture), 0); /* unchanged */
    fixture_finish(&fixture);
}

static const struct stg_test tests[] = {
    TEST(a_rollback_applies_an_earlier_definition_as_a_new_generation),
    TEST(without_a_generation_the_last_other_content_comes_back),
    TEST(ten_generations_are_kept_over_restarts),
    TEST(another_generation_than_expected_is_refused),
    TEST(a_damaged_version_is_logged_and_left_out),
    TEST(a_delete_removes_all_versions),
    TEST(the_texts_that_a_file_of_pipeline_dir_had_are_kept),
    TEST(the_script_that_applied_it_does_not_undo_a_rollback),
    TEST(a_vocabulary_that_changed_since_is_a_problem),
    TEST(a_definition_keeps_its_applier_and_no_other_user_restores_it),
};

TEST_MAIN(tests)
