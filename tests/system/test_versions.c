/* SPDX-License-Identifier: Apache-2.0
 *
 * Earlier generations of a pipeline: which are kept, and a rollback to one. And warm
 * applies: the new generation fills its buffer before it takes over.
 */
#include <grp.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
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

/* ---- warm ---- */

static int apply_warm(struct fixture *fixture, const char *yaml, bool replace,
                      struct stg_err *err)
{
    struct stager *client;
    CHECK_INT(stager_connect(fixture->runtime, &client), 0);
    struct stg_request request = {.kind = STG_REQUEST_APPLY,
                                  .text = yaml,
                                  .text_bytes = strlen(yaml),
                                  .replace = replace,
                                  .warm = true};
    struct stg_reply reply;
    int rc = stg_admin_call(client, &request, &reply, err);
    int generation = rc == 0 ? (int)reply.generation : rc;
    CHECK(rc < 0 || reply.boundary.n == 1);
    stager_disconnect(client);
    return generation;
}

static void expect_buffered(struct fixture *fixture, uint32_t n, uint64_t published)
{
    struct fixture_status status;
    fixture_status(fixture, "x", &status);
    CHECK_INT(status.buffered, n);
    CHECK_INT(status.published, published);
}

/* The clients of the old one get what is published, then ABORTED. */
static void a_warm_version_is_full_when_it_takes_over(void)
{
    struct fixture fixture;
    char yaml[512];
    struct stg_err err = {0};
    fixture_start(&fixture, "");
    apply(&fixture, 100);
    struct stager_stream *stream = fixture_open(&fixture, "x", "a", 2);
    fixture_expect_value(stream, 100);
    CHECK_INT(apply_warm(&fixture, yaml_of(500, yaml), false, &err),
              -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(err.text, "clients are attached: a");
    fixture_expect_value(stream, 101);
    CHECK_INT(apply_warm(&fixture, yaml, true, &err), 2);
    expect_buffered(&fixture, 2, 2);
    fixture_expect_value(stream, 102);
    struct stager_batch *batch;
    int rc;
    while ((rc = stager_next(stream, 10000, &batch)) == 0)
        stager_release(batch);
    CHECK_INT(rc, -STAGER_ABORTED);
    CHECK_CONTAINS(stager_error_text(stream), "replaced by generation 2");
    stager_close(stream);
    expect_start(&fixture, 500);
    expect_versions(&fixture, " 1 2");
    fixture_finish(&fixture);
}

/* It waits for its first client, whatever keep_warm says. */
static void a_new_pipeline_fills_its_buffer_before_its_first_client(void)
{
    static const char *const deliveries[] = {"split, num_clients: 1",
                                             "broadcast, num_clients: 2",
                                             "round_robin, num_clients: 2"};
    for (size_t i = 0; i < 3; i++) {
        struct fixture fixture;
        struct fixture_status status;
        struct stg_err err = {0};
        char yaml[512];
        uint32_t n = i == 2 ? 6 : 3;
        snprintf(yaml, sizeof(yaml),
                 "name: x\ndataset:\n  - range: {stop: 8}\n  - batch: {batch_size: 1}\n"
                 "staged: {capacity: 3, delivery: %s}\n",
                 deliveries[i]);
        fixture_start(&fixture, "");
        CHECK_INT(apply_warm(&fixture, yaml, false, &err), 1);
        expect_buffered(&fixture, n, n);
        fixture_status(&fixture, "x", &status);
        CHECK_INT(status.n_clients, 0);
        struct stager_stream *a = fixture_open(&fixture, "x", "a", 2);
        struct stager_stream *b = i > 0 ? fixture_open(&fixture, "x", "b", 2) : NULL;
        for (int value = 0; value < 8; value++) {
            fixture_expect_value(i == 2 && value % 2 == 1 ? b : a, value);
            if (i == 1)
                fixture_expect_value(b, value);
        }
        fixture_expect_code(a, STAGER_OUT_OF_RANGE, "");
        if (i > 0)
            fixture_expect_code(b, STAGER_OUT_OF_RANGE, "");
        stager_close(a);
        if (i > 0)
            stager_close(b);
        fixture_finish(&fixture);
    }
}

/* An idle pipeline of the same content begins a run; one that runs is as it is. */
static void the_same_content_again_fills_the_buffer_of_an_idle_pipeline(void)
{
    struct fixture fixture;
    char yaml[512];
    struct stg_err err = {0};
    fixture_start(&fixture, "");
    apply(&fixture, 100);
    expect_buffered(&fixture, 0, 0);
    CHECK_INT(apply_warm(&fixture, yaml_of(100, yaml), false, &err), 1);
    expect_buffered(&fixture, 2, 2);
    CHECK_INT(apply_warm(&fixture, yaml, false, &err), 1);
    expect_buffered(&fixture, 2, 2);
    struct stager_stream *stream = fixture_open(&fixture, "x", "a", 2);
    fixture_expect_value(stream, 100);
    CHECK_INT(apply_warm(&fixture, yaml, false, &err), 1);
    fixture_expect_value(stream, 101);
    stager_close(stream);
    fixture_finish(&fixture);
}

static bool has_two(const struct fixture_status *status, void *arg)
{
    (void)arg;
    return status->n_attached == 0 && status->buffered >= 2;
}

/* Of a pipeline that a file of pipeline_dir has, whose run begins and goes on without
 * clients; after a restart of stagerd again. */
static void keep_warm_begins_before_the_first_client(void)
{
    static const char yaml[] = "name: x\ndataset:\n  - range: {start: 100, stop: 1000}\n"
                               "  - batch: {batch_size: 1}\nstaged: {capacity: 2, "
                               "keep_warm: true, reconnect_grace_millis: 0}\n";
    struct fixture fixture;
    struct stg_err err = {0};
    char path[256];
    fixture_start(&fixture, "");
    snprintf(path, sizeof(path), "%s/pipelines", fixture.dir);
    mkdir(path, 0755);
    fixture_file(&fixture, "pipelines/x.yaml", yaml, strlen(yaml), path);
    for (int i = 0; i < 2; i++) {
        fixture_stop(&fixture);
        fixture_restart(&fixture);
        expect_buffered(&fixture, 0, 0);
        CHECK_INT(apply_warm(&fixture, yaml, false, &err), 1);
        expect_buffered(&fixture, 2, 2);
        for (int client = 0; client < 3; client++) {
            expect_start(&fixture, 100 + client);
            fixture_wait(&fixture, "x", 20000, has_two, NULL);
        }
    }
    fixture_finish(&fixture);
}

/* Its memory is for more batches in flight than the default. */
static void a_client_may_hold_more_batches_than_a_warm_run_was_planned_for(void)
{
    struct fixture fixture;
    char yaml[512];
    struct stg_err err = {0};
    fixture_start(&fixture, "");
    CHECK_INT(apply_warm(&fixture, yaml_of(100, yaml), false, &err), 1);
    struct stager_stream *stream = fixture_open(&fixture, "x", "a", 8);
    fixture_expect_value(stream, 100);
    stager_close(stream);
    CHECK_INT(apply_warm(&fixture, yaml_of(200, yaml), true, &err), 2);
    stream = fixture_open(&fixture, "x", "a", 8);
    fixture_expect_value(stream, 200);
    stager_close(stream);
    fixture_finish(&fixture);
}

static void data_that_is_shorter_than_the_buffer_is_enough(void)
{
    struct fixture fixture;
    struct stg_err err = {0};
    fixture_start(&fixture, "");
    CHECK_INT(apply_warm(&fixture,
                         "name: x\ndataset: [{range: {stop: 2}}, {batch: {batch_size: "
                         "1}}]\nstaged: {capacity: 5}\n",
                         false, &err),
              1);
    expect_buffered(&fixture, 2, 2);
    CHECK_INT(apply_warm(&fixture,
                         "name: x\ndataset: [{range: {stop: 0}}, {batch: {batch_size: "
                         "1}}]\nstaged: {capacity: 5}\n",
                         true, &err),
              2);
    struct stager_stream *stream = fixture_open(&fixture, "x", "a", 2);
    fixture_expect_code(stream, STAGER_OUT_OF_RANGE, "");
    stager_close(stream);
    fixture_finish(&fixture);
}

/* Nothing changes, and the old version goes on. */
static void expect_unharmed(struct fixture *fixture, struct stager_stream *stream,
                            int value)
{
    struct fixture_status status;
    fixture_expect_value(stream, value);
    fixture_status(fixture, "x", &status);
    CHECK_INT(status.n_attached, 1);
    expect_versions(fixture, " 1");
}

static void a_version_whose_source_fails_does_not_take_over(void)
{
    struct fixture fixture;
    char path[256], yaml[1024];
    struct stg_err err = {0};
    fixture_start(&fixture, "");
    apply(&fixture, 100);
    struct stager_stream *stream = fixture_open(&fixture, "x", "a", 2);
    fixture_expect_value(stream, 100);
    CHECK_INT(apply_warm(&fixture,
                         "name: x\ndataset:\n  - files: {pattern: /nowhere/x.txt}\n"
                         "  - text_line\n  - batch: {batch_size: 1}\n",
                         true, &err),
              -STAGER_NOT_FOUND);
    CHECK_CONTAINS(err.text, "generation 2 of pipeline x: ");
    CHECK_CONTAINS(err.text, "/nowhere/x.txt");
    CHECK_CONTAINS(err.text, "; generation 1 goes on");
    expect_unharmed(&fixture, stream, 101);
    fixture_file(&fixture, "rows", "a\nb\nc\nd\n", 8, path);
    snprintf(yaml, sizeof(yaml),
             "name: x\ndataset:\n  - files: {pattern: %s}\n  - text_line\n"
             "  - batch: {batch_size: 1}\ngraph:\n"
             "  - {name: c, op: decode_csv, input: record, record_defaults: [1]}\n"
             "staged: {features: {c: c}, capacity: 2}\n",
             path);
    CHECK_INT(apply_warm(&fixture, yaml, true, &err), -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(err.text, "its first 2 items are errors; the last one: ");
    CHECK_CONTAINS(err.text, "\"b\" is not a valid int32");
    expect_unharmed(&fixture, stream, 102);
    stager_close(stream);
    fixture_finish(&fixture);
}

/* 1 MiB a batch. */
static const char *large_yaml(int value, char buf[512])
{
    snprintf(buf, 512,
             "name: x\ndataset: [{range: {stop: 1000}}, {batch: {batch_size: 1}}]\n"
             "graph:\n  - {name: f, op: constant, value: %d, shape: [131072]}\n"
             "staged: {features: {f: f}, capacity: 8, num_threads: 1, "
             "reconnect_grace_millis: 0}\n",
             value);
    return buf;
}

static bool is_left(const struct fixture_status *status, void *arg)
{
    return status->n_attached == 0;
}

static void two_versions_that_do_not_fit_together_are_refused_with_the_sum(void)
{
    struct fixture fixture;
    char yaml[512];
    struct stg_err err = {0};
    fixture_start(&fixture, "memory_budget: 24MiB\n");
    fixture_apply(&fixture, large_yaml(1, yaml));
    struct stager_stream *stream = fixture_open(&fixture, "x", "a", 2);
    stager_release(fixture_take(stream));
    CHECK_INT(apply_warm(&fixture, large_yaml(2, yaml), true, &err),
              -STAGER_RESOURCE_EXHAUSTED);
    CHECK_CONTAINS(err.text, "memory_budget has no room for generation 2 of pipeline x "
                             "beside generation 1: ");
    CHECK_CONTAINS(err.text, "MiB, but memory_budget is 24.0 MiB and ");
    CHECK_CONTAINS(err.text, "; or apply without --warm, which first ends generation 1, "
                             "which goes on");
    stager_release(fixture_take(stream));
    stager_close(stream);
    fixture_wait(&fixture, "x", 20000, is_left, NULL);
    /* memory of a run that ends comes back */
    CHECK_OK(apply_warm(&fixture, large_yaml(2, yaml), true, &err) == 2 ? 0 : -1, err);
    fixture_finish(&fixture);
}

/* Never has a first batch. */
static const char endless[] =
    "name: x\ndataset:\n  - range: {stop: 1000000000000}\n"
    "  - filter: {graph: {never: {op: constant, value: -1, dtype: int64}, "
    "p: {op: less, input: [value, never]}}, predicate: p}\n"
    "  - batch: {batch_size: 1}\n";

/* Sends a warm apply without waiting for its reply. */
static int send_warm(struct fixture *fixture, const char *yaml)
{
    char buf[STG_MESSAGE_MAX_BYTES];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stg_request hello = {.kind = STG_REQUEST_HELLO,
                                .id = 1,
                                .min_version = STG_PROTOCOL_MIN,
                                .max_version = STG_PROTOCOL_MAX};
    struct stg_request apply = {.kind = STG_REQUEST_APPLY,
                                .id = 2,
                                .text = yaml,
                                .text_bytes = strlen(yaml),
                                .replace = true,
                                .warm = true};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof(address.sun_path), "%.90s/attach.sock",
             fixture->runtime);
    CHECK_INT(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    long n = stg_wire_encode_request(&hello, buf, sizeof(buf));
    CHECK(send(fd, buf, (size_t)n, 0) == n);
    CHECK(recv(fd, buf, sizeof(buf), 0) > 0);
    n = stg_wire_encode_request(&apply, buf, sizeof(buf));
    CHECK(send(fd, buf, (size_t)n, 0) == n);
    return fd;
}

/* Blocks until the status names that generation as the one that fills its buffer. */
static void wait_for_warming(struct fixture *fixture, uint64_t generation)
{
    int64_t until = now_millis() + fixture_millis(20000);
    uint64_t got = UINT64_MAX;
    while (got != generation) {
        struct stg_reply reply;
        struct stager *client = fixture_ask(fixture, STG_REQUEST_STATUS, "x", &reply);
        got = reply.status.warming_generation;
        stager_disconnect(client);
        CHECK(now_millis() < until);
    }
}

/* The reply, which is an error. */
static void expect_reply(int fd, int code, const char *part)
{
    char buf[STG_MESSAGE_MAX_BYTES];
    struct stg_bump bump;
    struct stg_reply reply;
    struct stg_err err = {0};
    stg_bump_init(&bump, 0);
    ssize_t n = recv(fd, buf, sizeof(buf), 0);
    CHECK(n > 0);
    CHECK_OK(stg_wire_decode_reply(buf, (size_t)n, &bump, &reply, &err), err);
    CHECK_INT(reply.id, 2);
    CHECK_INT(reply.code, code);
    CHECK_CONTAINS(reply.text, part);
    stg_bump_finish(&bump);
    close(fd);
}

static void the_end_of_the_connection_ends_the_warm_up(void)
{
    struct fixture fixture;
    char yaml[512];
    struct stg_err err = {0};
    fixture_start(&fixture, "");
    apply(&fixture, 100);
    struct stager_stream *stream = fixture_open(&fixture, "x", "a", 2);
    fixture_expect_value(stream, 100);
    int fd = send_warm(&fixture, endless);
    wait_for_warming(&fixture, 2);
    CHECK_INT(apply_warm(&fixture, yaml_of(200, yaml), true, &err),
              -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(err.text, "generation 2 of pipeline x fills its buffer already");
    close(fd);
    wait_for_warming(&fixture, 0);
    expect_unharmed(&fixture, stream, 101);
    CHECK_INT(apply_warm(&fixture, yaml, true, &err), 2);
    stager_close(stream);
    fixture_finish(&fixture);
}

static void another_change_ends_the_warm_up(void)
{
    struct fixture fixture;
    struct stg_reply reply;
    fixture_start(&fixture, "");
    apply(&fixture, 100);
    int fd = send_warm(&fixture, endless);
    wait_for_warming(&fixture, 2);
    apply(&fixture, 200);
    expect_reply(fd, -STAGER_ABORTED, "came to generation 2 by another change");
    fd = send_warm(&fixture, endless);
    wait_for_warming(&fixture, 3);
    stager_disconnect(fixture_ask(&fixture, STG_REQUEST_DELETE, "x", &reply));
    expect_reply(fd, -STAGER_ABORTED, "was deleted while its next version");
    apply(&fixture, 300);
    expect_start(&fixture, 300);
    fixture_finish(&fixture);
}

static void a_daemon_that_stops_ends_the_warm_up(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply(&fixture, 100);
    int fd = send_warm(&fixture, endless);
    wait_for_warming(&fixture, 2);
    fixture_stop(&fixture);
    close(fd);
    fixture_restart(&fixture);
    expect_start(&fixture, 100);
    fixture_finish(&fixture);
}

static void a_rollback_may_be_warm(void)
{
    struct fixture fixture;
    struct stager *client;
    struct stg_request request = {
        .kind = STG_REQUEST_ROLLBACK, .name = "x", .generation = 1, .warm = true};
    struct stg_reply reply;
    struct stg_err err = {0};
    fixture_start(&fixture, "");
    apply(&fixture, 100);
    apply(&fixture, 200);
    CHECK_INT(stager_connect(fixture.runtime, &client), 0);
    CHECK_OK(stg_admin_call(client, &request, &reply, &err), err);
    CHECK_INT(reply.generation, 3);
    CHECK_INT(reply.restored, 1);
    stager_disconnect(client);
    expect_buffered(&fixture, 2, 2);
    expect_start(&fixture, 100);
    fixture_finish(&fixture);
}

static void a_pipeline_with_a_function_in_python_cannot_be_warm(void)
{
    struct fixture fixture;
    struct stg_err err = {0};
    fixture_start(&fixture, "");
    CHECK_INT(
        apply_warm(&fixture,
                   "name: x\ndataset:\n  - range: {stop: 2}\n"
                   "  - py_function: {function: \"m:f\"}\n  - batch: {batch_size: 1}\n",
                   false, &err),
        -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(err.text,
                   "py_function cannot fill its buffer before its first stream");
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
    TEST(a_warm_version_is_full_when_it_takes_over),
    TEST(a_new_pipeline_fills_its_buffer_before_its_first_client),
    TEST(the_same_content_again_fills_the_buffer_of_an_idle_pipeline),
    TEST(keep_warm_begins_before_the_first_client),
    TEST(a_client_may_hold_more_batches_than_a_warm_run_was_planned_for),
    TEST(data_that_is_shorter_than_the_buffer_is_enough),
    TEST(a_version_whose_source_fails_does_not_take_over),
    TEST(two_versions_that_do_not_fit_together_are_refused_with_the_sum),
    TEST(the_end_of_the_connection_ends_the_warm_up),
    TEST(another_change_ends_the_warm_up),
    TEST(a_daemon_that_stops_ends_the_warm_up),
    TEST(a_rollback_may_be_warm),
    TEST(a_pipeline_with_a_function_in_python_cannot_be_warm),
};

TEST_MAIN(tests)
