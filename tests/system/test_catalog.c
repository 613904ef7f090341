/* SPDX-License-Identifier: Apache-2.0
 *
 * Pipelines by name: apply, repeated apply, replace, delete, restart; and their owners.
 */
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/system/fixture.h"

#define NOBODY 65534

static const char *yaml_of(const char *name, int stop, char buf[512])
{
    snprintf(buf, 512,
             "name: %s\ndataset:\n  - range: {stop: %d}\n  - batch: {batch_size: 1}\n"
             "staged: {capacity: 2}\n",
             name, stop);
    return buf;
}

/* Calls `each` for every entry of the list; returns their number. */
static size_t list(struct fixture *fixture,
                   void (*each)(const struct stg_list_entry *entry))
{
    struct stager *client;
    struct stg_request request = {.kind = STG_REQUEST_LIST};
    struct stg_reply reply;
    struct stg_err err = {0};
    CHECK_INT(stager_connect(fixture->runtime, &client), 0);
    CHECK_OK(stg_admin_call(client, &request, &reply, &err), err);
    for (size_t i = 0; i < reply.n_entries; i++)
        each(&reply.entries[i]);
    size_t n = reply.n_entries;
    stager_disconnect(client);
    return n;
}

static uint64_t generation_of(const struct stager_batch *batch)
{
    struct stager_batch_info info = {.struct_size = sizeof(info)};
    stager_batch_info(batch, &info);
    return info.generation;
}

static void the_same_text_again_changes_nothing(void)
{
    struct fixture fixture;
    char yaml[512];
    fixture_start(&fixture, "");
    fixture_apply(&fixture, yaml_of("x", 10, yaml));
    struct stager_stream *stream = fixture_open(&fixture, "x", "a", 2);
    struct stager_batch *batch = fixture_take(stream);
    CHECK_INT(generation_of(batch), 1);
    stager_release(batch);
    fixture_apply(&fixture, yaml);
    batch = fixture_take(stream);
    CHECK_INT(generation_of(batch), 1);
    stager_release(batch);
    stager_close(stream);
    fixture_finish(&fixture);
}

static void a_change_under_attached_clients_needs_replace(void)
{
    struct fixture fixture;
    char yaml[512];
    fixture_start(&fixture, "");
    fixture_apply(&fixture, yaml_of("x", 1000, yaml));
    struct stager_stream *stream = fixture_open(&fixture, "x", "alice", 1);
    stager_release(fixture_take(stream));
    struct stg_err err = {0};
    yaml_of("x", 5, yaml);
    CHECK_INT(fixture_try_apply(&fixture, yaml, false, &err),
              -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(err.text, "alice");
    CHECK_CONTAINS(err.text, "\"- range: {stop: 1000}\" becomes \"- range: {stop: 5}\"");
    CHECK_INT(fixture_try_apply(&fixture, yaml, true, &err), 0);
    struct stager_batch *batch;
    int rc, n = 0;
    while ((rc = stager_next(stream, 10000, &batch)) == 0) {
        CHECK_INT(generation_of(batch), 1);
        stager_release(batch);
        n++;
    }
    CHECK(n >= 1 && n <= 6); /* every published item, and no more */
    CHECK_INT(rc, -STAGER_ABORTED);
    CHECK_CONTAINS(stager_error_text(stream), "replaced by generation 2");
    stager_close(stream);
    stream = fixture_open(&fixture, "x", "alice", 1);
    batch = fixture_take(stream);
    CHECK_INT(generation_of(batch), 2);
    stager_release(batch);
    stager_close(stream);
    fixture_finish(&fixture);
}

static int request_delete(struct fixture *fixture, const char *name, struct stg_err *err)
{
    struct stager *client;
    CHECK_INT(stager_connect(fixture->runtime, &client), 0);
    struct stg_request request = {.kind = STG_REQUEST_DELETE, .name = name};
    struct stg_reply reply;
    int rc = stg_admin_call(client, &request, &reply, err);
    stager_disconnect(client);
    return rc;
}

static void a_deleted_pipeline_aborts_its_clients_and_is_gone(void)
{
    struct fixture fixture;
    char yaml[512];
    struct stg_err err = {0};
    fixture_start(&fixture, "");
    fixture_apply(&fixture, yaml_of("rows", 1000, yaml));
    struct stager_stream *stream = fixture_open(&fixture, "rows", "a", 2);
    CHECK_INT(request_delete(&fixture, "rows", &err), 0);
    struct stager_batch *batch;
    int rc;
    while ((rc = stager_next(stream, 10000, &batch)) == 0)
        stager_release(batch);
    CHECK_INT(rc, -STAGER_ABORTED);
    CHECK_CONTAINS(stager_error_text(stream), "deleted");
    stager_close(stream);
    CHECK_INT(request_delete(&fixture, "rows", &err), -STAGER_NOT_FOUND);
    fixture_finish(&fixture);
}

static void an_unknown_name_suggests_the_nearest(void)
{
    struct fixture fixture;
    char yaml[512];
    fixture_start(&fixture, "");
    fixture_apply(&fixture, yaml_of("criteo", 10, yaml));
    struct stager_options options = {.struct_size = sizeof(options),
                                     .runtime_dir = fixture.runtime};
    struct stager_stream *stream;
    CHECK_INT(stager_open(NULL, "crieto", &options, &stream), -STAGER_NOT_FOUND);
    CHECK_CONTAINS(stager_error_text(NULL), "did you mean criteo?");
    fixture_finish(&fixture);
}

static void is_of_test_yaml(const struct stg_list_entry *entry)
{
    CHECK_STR(entry->file, "test.yaml");
}

static int apply_as(struct fixture *fixture, const char *yaml, const char *script,
                    uint64_t run, uint64_t if_generation, struct stg_err *err)
{
    struct stager *client;
    CHECK_INT(stager_connect(fixture->runtime, &client), 0);
    struct stg_request request = {.kind = STG_REQUEST_APPLY,
                                  .text = yaml,
                                  .text_bytes = strlen(yaml),
                                  .script = script,
                                  .script_run = run,
                                  .has_if_generation = if_generation != 0,
                                  .if_generation = if_generation};
    struct stg_reply reply;
    int rc = stg_admin_call(client, &request, &reply, err);
    int generation = rc == 0 ? (int)reply.generation : rc;
    stager_disconnect(client);
    return generation;
}

static void other_content_under_an_unused_name_is_refused(void)
{
    struct fixture fixture;
    char yaml[512];
    struct stg_err err = {0};
    fixture_start(&fixture, "");
    fixture_apply(&fixture, yaml_of("x", 10, yaml));
    yaml_of("x", 11, yaml);
    CHECK_INT(fixture_try_apply(&fixture, yaml, false, &err),
              -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(err.text, "pipeline x already exists with other content: \"- range: "
                             "{stop: 10}\" becomes \"- range: {stop: 11}\"");
    CHECK_CONTAINS(err.text, "--replace (replace=True in Python)");
    /* the error named that one */
    CHECK_INT(apply_as(&fixture, yaml, NULL, 0, 1, &err), 2);
    yaml_of("x", 12, yaml);
    CHECK_INT(fixture_try_apply(&fixture, yaml, true, &err), 0);
    fixture_finish(&fixture);
}

static void a_later_run_of_the_same_script_replaces_what_is_idle(void)
{
    static const char script[] = "/home/u/train.py";
    struct fixture fixture;
    char yaml[512];
    struct stg_err err = {0};
    fixture_start(&fixture, "");
    CHECK_INT(apply_as(&fixture, yaml_of("x", 10, yaml), script, 1, 0, &err), 1);
    CHECK_INT(apply_as(&fixture, yaml_of("x", 11, yaml), script, 1, 0, &err),
              -STAGER_FAILED_PRECONDITION); /* a name used twice in one run */
    CHECK_INT(apply_as(&fixture, yaml, "/home/u/other.py", 2, 0, &err),
              -STAGER_FAILED_PRECONDITION);
    CHECK_INT(apply_as(&fixture, yaml, script, 2, 0, &err), 2);
    fixture_stop(&fixture);
    fixture_restart(&fixture);
    CHECK_INT(apply_as(&fixture, yaml_of("x", 12, yaml), script, 3, 0, &err), 3);
    struct stager_stream *stream = fixture_open(&fixture, "x", "a", 2);
    CHECK_INT(apply_as(&fixture, yaml_of("x", 13, yaml), script, 4, 0, &err),
              -STAGER_FAILED_PRECONDITION); /* a client is attached */
    stager_close(stream);
    fixture_finish(&fixture);
}

static uint64_t run_of(const struct stager_batch *batch)
{
    struct stager_batch_info info = {.struct_size = sizeof(info)};
    stager_batch_info(batch, &info);
    return info.run_id;
}

static uint64_t run_of_status(struct fixture *fixture, const char *name)
{
    struct stg_reply reply;
    struct stager *client = fixture_ask(fixture, STG_REQUEST_STATUS, name, &reply);
    uint64_t run = reply.status.run_id;
    stager_disconnect(client);
    return run;
}

static uint64_t take_run(struct fixture *fixture, uint64_t generation)
{
    struct stager_stream *stream = fixture_open(fixture, "x", "a", 2);
    struct stager_batch *batch = fixture_take(stream);
    uint64_t run = run_of(batch);
    CHECK_INT(generation_of(batch), generation);
    CHECK(run != 0 && run == run_of_status(fixture, "x"));
    stager_release(batch);
    stager_close(stream);
    return run;
}

static void a_restart_keeps_the_generation_and_another_run_begins(void)
{
    struct fixture fixture;
    char yaml[512];
    struct stg_err err = {0};
    fixture_start(&fixture, "");
    fixture_apply(&fixture, yaml_of("x", 10, yaml));
    uint64_t first = take_run(&fixture, 1);
    CHECK(take_run(&fixture, 1) == first);
    fixture_stop(&fixture);
    fixture_restart(&fixture);
    uint64_t second = take_run(&fixture, 1);
    CHECK(second != first);
    CHECK_INT(apply_as(&fixture, yaml, NULL, 0, 1, &err), 1);
    CHECK(take_run(&fixture, 1) == second);
    fixture_apply(&fixture, yaml_of("x", 11, yaml));
    CHECK(take_run(&fixture, 2) != second);
    fixture_finish(&fixture);
}

/* state_dir keeps its generation. */
static void a_file_of_pipeline_dir_that_changed_is_another_generation(void)
{
    struct fixture fixture;
    char yaml[512], path[256];
    fixture_start(&fixture, "");
    snprintf(path, sizeof(path), "%s/pipelines", fixture.dir);
    mkdir(path, 0755);
    static const int stops[] = {10, 10, 11};
    static const uint64_t generations[] = {1, 1, 2};
    for (size_t i = 0; i < 3; i++) {
        yaml_of("x", stops[i], yaml);
        fixture_file(&fixture, "pipelines/x.yaml", yaml, strlen(yaml), path);
        fixture_stop(&fixture);
        fixture_restart(&fixture);
        take_run(&fixture, generations[i]);
    }
    fixture_finish(&fixture);
}

static void a_restart_finds_what_was_applied(void)
{
    struct fixture fixture;
    char yaml[512];
    fixture_start(&fixture, "");
    fixture_apply(&fixture, yaml_of("x", 10, yaml));
    for (int i = 0; i < 2; i++) {
        fixture_stop(&fixture);
        fixture_restart(&fixture);
    }
    CHECK_INT(list(&fixture, is_of_test_yaml), 1);
    struct stager_stream *stream = fixture_open(&fixture, "x", "a", 2);
    struct stager_batch *batch = fixture_take(stream);
    CHECK_INT(generation_of(batch), 1);
    stager_release(batch);
    stager_close(stream);
    fixture_finish(&fixture);
}

static void take_named(struct fixture *fixture, const char *name)
{
    struct stager_stream *stream = fixture_open(fixture, name, "a", 2);
    stager_release(fixture_take(stream));
    stager_close(stream);
}

/* The lines that state_dir puts before a text have a limit, which the longest names of
 * files reach. */
static void a_restart_finds_a_pipeline_with_a_long_name_of_its_file(void)
{
    enum { N = 16, LONGEST = 16300 };
    static const char yaml[] = "dataset:\n  - range: {stop: 10}\n";
    struct fixture fixture;
    struct stager *client;
    struct stg_reply reply;
    struct stg_err err = {0};
    char name[8], file[LONGEST + 1];
    memset(file, 'f', LONGEST);
    fixture_start(&fixture, "");
    CHECK_INT(stager_connect(fixture.runtime, &client), 0);
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof(name), "p%d", i);
        file[LONGEST - 10 * i] = '\0';
        struct stg_request request = {.kind = STG_REQUEST_APPLY,
                                      .name = name,
                                      .text = yaml,
                                      .text_bytes = strlen(yaml),
                                      .script = "/home/u/train.py",
                                      .script_run = 1,
                                      .file = file};
        CHECK_OK(stg_admin_call(client, &request, &reply, &err), err);
    }
    stager_disconnect(client);
    fixture_stop(&fixture);
    fixture_restart(&fixture);
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof(name), "p%d", i);
        take_named(&fixture, name);
    }
    fixture_finish(&fixture);
}

static void folders_of_state_dir_that_are_not_there_are_made(void)
{
    struct fixture fixture;
    char yaml[512], home[256], away[256];
    fixture_start(&fixture, ""); /* `home` of its state_dir does not exist */
    snprintf(home, sizeof(home), "%s/home", fixture.dir);
    snprintf(away, sizeof(away), "%s/away", fixture.dir);
    CHECK(access(home, X_OK) == 0);
    CHECK(rename(home, away) == 0);
    fixture_apply(&fixture, yaml_of("x", 10, yaml));
    fixture_stop(&fixture);
    fixture_restart(&fixture);
    CHECK_INT(list(&fixture, is_of_test_yaml), 1);
    fixture_finish(&fixture);
}

static void is_from_dir(const struct stg_list_entry *entry)
{
    CHECK_STR(entry->name, "from_dir");
}

static void pipelines_of_pipeline_dir_are_there_at_start(void)
{
    struct fixture fixture;
    char yaml[512], path[256];
    fixture_start(&fixture, "");
    fixture_stop(&fixture);
    snprintf(path, sizeof(path), "%s/pipelines", fixture.dir);
    CHECK(mkdir(path, 0755) == 0 || access(path, X_OK) == 0);
    yaml_of("from_dir", 10, yaml);
    fixture_file(&fixture, "pipelines/a.yaml", yaml, strlen(yaml), path);
    fixture_file(&fixture, "pipelines/broken.yaml", "nonsense: [", 11, path);
    static const char nameless[] = "dataset: [{range: {stop: 1}}]\n";
    fixture_file(&fixture, "pipelines/no name.yaml", nameless, strlen(nameless), path);
    static const char dots[] = "name: ..\ndataset: [{range: {stop: 1}}]\n";
    fixture_file(&fixture, "pipelines/dots.yaml", dots, strlen(dots), path);
    fixture_restart(&fixture);
    CHECK_INT(list(&fixture, is_from_dir), 1);
    struct stager_stream *stream = fixture_open(&fixture, "from_dir", "a", 2);
    stager_release(fixture_take(stream));
    stager_close(stream);
    fixture_finish(&fixture);
}

static void a_pipeline_without_a_name_gets_one(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    fixture_apply(&fixture, "dataset:\n  - range: {stop: 3}\n");
    fixture_apply(&fixture, "dataset:\n  - range: {stop: 4}\n");
    struct fixture_status status;
    fixture_status(&fixture, "prefetch", &status);
    fixture_status(&fixture, "prefetch_1", &status);
    CHECK_STR(status.state, "idle");
    fixture_finish(&fixture);
}

/* ---- other users ---- */

struct as_unprivileged {
    const char *yaml;
    const char *open; /* replaces the apply: open this pipeline */
    const char *expect;
    int code;
};

static void unprivileged_body(struct fixture *fixture, int fd, void *arg)
{
    struct as_unprivileged *what = arg;
    CHECK(setgroups(0, NULL) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
    if (what->yaml != NULL) {
        struct stg_err err = {0};
        CHECK_INT(fixture_try_apply(fixture, what->yaml, false, &err), 0);
    }
    struct stager_options options = {.struct_size = sizeof(options),
                                     .runtime_dir = fixture->runtime};
    struct stager_stream *stream = NULL;
    struct stager_batch *batch;
    int rc = stager_open(NULL, what->open, &options, &stream);
    const char *text = stager_error_text(NULL);
    if (rc == 0) {
        rc = stager_next(stream, 10000, &batch);
        text = stager_error_text(stream);
    }
    if (rc != what->code)
        FAIL("%d (%s), not %d", rc, text, what->code);
    CHECK_CONTAINS(text, what->expect);
    stager_close(stream);
    trainer_send(fd, 1);
}

static void open_the_socket_to_all(struct fixture *fixture)
{
    char path[256];
    CHECK(chmod(fixture->dir, 0755) == 0);
    CHECK(chmod(fixture->runtime, 0755) == 0);
    snprintf(path, sizeof(path), "%s/attach.sock", fixture->runtime);
    CHECK(chmod(path, 0666) == 0);
}

static void a_pipeline_reads_only_what_its_applier_may(void)
{
    if (getuid() != 0)
        SKIP("needs root, to become another user");
    struct fixture fixture;
    char path[256], yaml[512];
    fixture_start(&fixture, "");
    open_the_socket_to_all(&fixture);
    fixture_numbers(&fixture, "secret.csv", 0, 10, path);
    CHECK(chmod(path, 0600) == 0);
    snprintf(yaml, sizeof(yaml),
             "name: theirs\ndataset:\n  - files: {pattern: [%s]}\n  - text_line: {}\n"
             "  - batch: {batch_size: 2}\n",
             path);
    struct as_unprivileged what = {.yaml = yaml,
                                   .open = "theirs",
                                   .expect = "may not read",
                                   .code = -STAGER_PERMISSION_DENIED};
    struct trainer trainer;
    trainer_start(&trainer, unprivileged_body, &fixture, &what);
    trainer_recv(trainer.fd);
    trainer_join(&trainer);
    fixture_finish(&fixture);
}

static void another_users_pipeline_cannot_be_opened(void)
{
    if (getuid() != 0)
        SKIP("needs root, to become another user");
    struct fixture fixture;
    char yaml[512];
    fixture_start(&fixture, "");
    open_the_socket_to_all(&fixture);
    fixture_apply(&fixture, yaml_of("ours", 10, yaml));
    struct as_unprivileged what = {
        .open = "ours", .expect = "group stager", .code = -STAGER_PERMISSION_DENIED};
    struct trainer trainer;
    trainer_start(&trainer, unprivileged_body, &fixture, &what);
    trainer_recv(trainer.fd);
    trainer_join(&trainer);
    fixture_finish(&fixture);
}

static void has_a_name(const struct stg_list_entry *entry)
{
    CHECK(entry->name[0] == 'p');
}

static void apply_from_a_long_path(struct stager *client, int i)
{
    char name[32], file[4000];
    snprintf(name, sizeof(name), "p%d", i);
    memset(file, 'x', sizeof(file));
    file[sizeof(file) - 1] = '\0';
    static const char text[] = "dataset: [{range: {stop: 1}}]\n";
    struct stg_request request = {.kind = STG_REQUEST_APPLY,
                                  .name = name,
                                  .text = text,
                                  .text_bytes = strlen(text),
                                  .file = file};
    struct stg_reply reply;
    struct stg_err err = {0};
    CHECK_OK(stg_admin_call(client, &request, &reply, &err), err);
}

static void a_list_that_is_too_long_for_a_message_goes_without_files(void)
{
    struct fixture fixture;
    struct stager *client;
    fixture_start(&fixture, "");
    CHECK_INT(stager_connect(fixture.runtime, &client), 0);
    for (int i = 0; i < 20; i++)
        apply_from_a_long_path(client, i);
    CHECK_INT(list(&fixture, has_a_name), 20);
    stager_disconnect(client);
    fixture_finish(&fixture);
}

/* ---- containers ---- */

static void check_container(struct fixture *fixture, const char *name, const char *box,
                            uint32_t tables, uint32_t caches, bool any_bytes)
{
    struct stager *client;
    struct stg_request request = {.kind = STG_REQUEST_STATUS, .name = name};
    struct stg_reply reply;
    struct stg_err err = {0};
    CHECK_INT(stager_connect(fixture->runtime, &client), 0);
    CHECK_OK(stg_admin_call(client, &request, &reply, &err), err);
    CHECK_STR(reply.status.container, box);
    CHECK_INT(reply.status.container_tables, tables);
    CHECK_INT(reply.status.container_caches, caches);
    CHECK_INT(reply.status.container_bytes > 0, any_bytes);
    stager_disconnect(client);
}

/* The text that a trainer of that pipeline gets: the numbers of the words, as digits. */
static void check_words(struct fixture *fixture, const char *name, const char *want)
{
    struct stager_stream *stream = fixture_open(fixture, name, name, 1);
    char got[16] = "";
    struct stager_batch *batch;
    while (stager_next(stream, 20000, &batch) == 0) {
        struct stager_tensor tensor;
        CHECK_INT(stager_batch_tensor_at(batch, 0, &tensor), 0);
        size_t n = strlen(got);
        got[n] = (char)('0' + *(const int64_t *)tensor.data);
        got[n + 1] = '\0';
        stager_release(batch);
    }
    CHECK_STR(got, want);
    stager_close(stream);
}

/* Two pipelines of the same words and rows, with different graphs behind them. */
static void apply_words(struct fixture *fixture, const char *name, const char *words,
                        const char *rows, const char *container)
{
    char yaml[1024];
    snprintf(
        yaml, sizeof(yaml),
        "name: %s\n%s\ndataset:\n  - files: {pattern: %s}\n  - text_line\n  - cache\n"
        "  - batch: {batch_size: 1}\n"
        "graph:\n  - {name: t, op: vocabulary, file: %s}\n"
        "  - {name: %s, op: lookup, input: [t, record]}\n"
        "staged: {features: {id: %s}}\n",
        name, container, rows, words, name, name);
    fixture_apply(fixture, yaml);
}

static void pipelines_of_one_container_hold_words_and_rows_once(void)
{
    struct fixture fixture;
    char words[256], rows[256];
    fixture_start(&fixture, "");
    fixture_file(&fixture, "words", "a\nb\nc\n", 6, words);
    fixture_file(&fixture, "rows", "c\na\nb\n", 6, rows);
    apply_words(&fixture, "one", words, rows, "container: box");
    apply_words(&fixture, "two", words, rows, "container: box");
    apply_words(&fixture, "alone", words, rows, "");
    check_container(&fixture, "one", "box", 1, 0, true);
    check_words(&fixture, "one", "201");
    check_container(&fixture, "two", "box", 1, 1, true);
    check_words(&fixture, "two", "201");
    check_words(&fixture, "alone", "201");
    check_container(&fixture, "two", "box", 1, 1, true);
    check_container(&fixture, "alone", "", 0, 0, false);
    fixture_finish(&fixture);
}

static const struct stg_test tests[] = {
    TEST(pipelines_of_one_container_hold_words_and_rows_once),
    TEST(a_list_that_is_too_long_for_a_message_goes_without_files),
    TEST(the_same_text_again_changes_nothing),
    TEST(a_change_under_attached_clients_needs_replace),
    TEST(a_deleted_pipeline_aborts_its_clients_and_is_gone),
    TEST(an_unknown_name_suggests_the_nearest),
    TEST(other_content_under_an_unused_name_is_refused),
    TEST(a_later_run_of_the_same_script_replaces_what_is_idle),
    TEST(a_restart_finds_a_pipeline_with_a_long_name_of_its_file),
    TEST(a_restart_keeps_the_generation_and_another_run_begins),
    TEST(a_file_of_pipeline_dir_that_changed_is_another_generation),
    TEST(a_restart_finds_what_was_applied),
    TEST(folders_of_state_dir_that_are_not_there_are_made),
    TEST(pipelines_of_pipeline_dir_are_there_at_start),
    TEST(a_pipeline_without_a_name_gets_one),
    TEST(a_pipeline_reads_only_what_its_applier_may),
    TEST(another_users_pipeline_cannot_be_opened),
};

TEST_MAIN(tests)
