/* SPDX-License-Identifier: Apache-2.0
 *
 * cache: in memory, and in a file that is complete or refused.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/log.h"
#include "daemon/dataset/step.h"
#include "proto/load.h"
#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"

/* ---- running ---- */

/* $DIR is the folder of the test. The caller frees the result. */
static struct stg_pipeline_spec *load(const char *text)
{
    char full[1024] = "dataset:\n";
    size_t n = strlen(full);
    for (const char *at = text; *at != '\0'; at++) {
        if (strncmp(at, "$DIR", 4) == 0) {
            n += (size_t)snprintf(full + n, sizeof(full) - n, "%s", stg_test_dir());
            at += 3;
        } else {
            full[n++] = *at;
        }
    }
    struct stg_pipeline_spec *spec;
    struct stg_err err = {0};
    CHECK_OK(stg_load_pipeline(full, n, "p", &spec, &err), err);
    return spec;
}

static uint64_t test_pass; /* of the runs */

/* Returns the output as text, or its error as "!CODE text". The caller frees it. */
static char *run_as(const char *text, uid_t uid)
{
    struct stg_pipeline_spec *spec = load(text);
    struct stg_dataset_env env = stg_test_env();
    env.uid = env.gid = uid;
    env.pass = test_pass;
    struct stg_dataset *dataset;
    struct stg_err err = {0};
    CHECK_OK(stg_dataset_create(spec, &env, &dataset, &err), err);
    char *ret = NULL;
    size_t bytes;
    FILE *out = open_memstream(&ret, &bytes);
    struct stg_block *block;
    int rc;
    while ((rc = stg_dataset_next(dataset, &block, &err)) == 0) {
        const struct stg_tensor *tensor = block->tensors;
        if (block->error.code != 0)
            fprintf(out, "! ");
        else if (tensor->dtype == STAGER_STRING)
            fprintf(out, "%.*s ", (int)(tensor->end[0] - tensor->begin[0]),
                    (const char *)tensor->data + tensor->begin[0]);
        else
            fprintf(out, "%d ", (int)*(int64_t *)tensor->data);
        stg_block_unref(block);
    }
    if (rc < 0)
        fprintf(out, "!%s %s", stg_status_name(rc), err.text);
    fclose(out);
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
    return ret;
}

static void check_run(const char *text, const char *want)
{
    char *got = run_as(text, 0);
    CHECK_STR(got, want);
    free(got);
}

/* Checks that it fails with that code, and that the error names the path and a remedy. */
static void check_fails_as(const char *text, uid_t uid, const char *code,
                           const char *what)
{
    char *got = run_as(text, uid);
    CHECK_CONTAINS(got, code);
    CHECK_CONTAINS(got, "step cache (line ");
    CHECK_CONTAINS(got, what);
    free(got);
}

#define KEY_BYTES 16

/* Finds the only entry "NAME.KEY", or "NAME.KEY.part". Returns how many there are;
 * ret: its name in the folder of the test, or NULL. */
static int find_entry(const char *name, bool is_part, char *ret)
{
    DIR *dir = opendir(stg_test_dir());
    size_t n = strlen(name);
    int found = 0;
    CHECK(dir != NULL);
    for (struct dirent *at; (at = readdir(dir)) != NULL;) {
        const char *key = at->d_name + n + 1;
        if (strncmp(at->d_name, name, n) != 0 || at->d_name[n] != '.' ||
            strspn(key, "0123456789abcdef") != KEY_BYTES ||
            strcmp(key + KEY_BYTES, is_part ? ".part" : "") != 0)
            continue;
        if (ret != NULL)
            snprintf(ret, 64, "%.63s", at->d_name);
        found++;
    }
    closedir(dir);
    return found;
}

/* "c.part": an entry of "c" that is being written. */
static bool is_there(const char *name)
{
    size_t n = strcspn(name, ".");
    char stem[64];
    snprintf(stem, sizeof(stem), "%.*s", (int)n, name);
    return find_entry(stem, name[n] != '\0', NULL) > 0;
}

/* The entry of that filename; there is one. */
static const char *entry_of(const char *name)
{
    static char entry[64];
    CHECK_INT(find_entry(name, false, entry), 1);
    return entry;
}

#define LINES "- files: {pattern: $DIR/in}\n- text_line: {max_record_bytes: 5}\n"
#define CACHED LINES "- cache: {filename: $DIR/c}\n"

/* ---- in memory ---- */

static void the_input_runs_once(void)
{
    struct stg_pipeline_spec *spec = load(LINES "- cache\n- repeat: {count: 3}\n");
    STG_TEST_FILE("in", "a\nb\n");
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset;
    struct stg_err err = {0};
    CHECK_OK(stg_dataset_create(spec, &env, &dataset, &err), err);
    for (int i = 0; i < 6; i++) {
        struct stg_block *block = stg_test_next(dataset);
        CHECK_INT(((const char *)block->tensors[0].data)[block->tensors[0].begin[0]],
                  "ab"[i % 2]);
        CHECK_INT(block->epoch, i / 2);
        CHECK_INT(block->rows[0].record, i % 2);
        stg_block_unref(block);
        if (i == 2)
            CHECK_INT(unlink(stg_test_path("in")), 0);
    }
    CHECK(stg_test_next(dataset) == NULL);
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
}

static void a_part_of_it_is_enough(void)
{
    check_run("- range: {stop: 10}\n- cache\n- take: {count: 5}\n- repeat: {count: 2}\n",
              "0 1 2 3 4 0 1 2 3 4 ");
    check_run("- range: {stop: 3}\n- repeat\n- cache\n- take: {count: 5}\n"
              "- repeat: {count: 2}\n",
              "0 1 2 0 1 0 1 2 0 1 ");
}

static void too_much_for_the_memory_is_reported(void)
{
    struct stg_pipeline_spec *spec = load("- range: {stop: 1000000}\n- cache\n");
    struct stg_dataset_env env = stg_test_env();
    env.buffer_bytes = 1000000;
    struct stg_dataset *dataset;
    struct stg_err err = {0};
    CHECK_OK(stg_dataset_create(spec, &env, &dataset, &err), err);
    struct stg_block *block;
    int rc;
    while ((rc = stg_dataset_next(dataset, &block, &err)) == 0)
        stg_block_unref(block);
    CHECK_INT(rc, -STAGER_RESOURCE_EXHAUSTED);
    CHECK_CONTAINS(err.text, "step cache (line 3): the cached elements take ");
    CHECK_CONTAINS(err.text, "give `cache` a filename, so that it needs no memory, or, "
                             "for twice as much, raise staged.memory_budget ");
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
}

/* ---- a file ---- */

static struct stg_dataset *start(const struct stg_pipeline_spec *spec);
static int rest_of(struct stg_dataset *dataset);

static void a_whole_epoch_makes_the_file_and_the_next_pass_reads_it(void)
{
    STG_TEST_FILE("in", "a\n\nccc\n");
    check_run(CACHED "- take: {count: 2}\n", "a  ");
    CHECK(!is_there("c") && !is_there("c.part"));
    check_run(CACHED, "a  ccc ");
    CHECK(is_there("c") && !is_there("c.part"));
    check_run(CACHED, "a  ccc ");
    CHECK_INT(find_entry("c", false, NULL), 1);
}

/* Runs the text, which leaves so many entries of "c". */
static void check_entries(const char *text, const char *want, int n)
{
    check_run(text, want);
    CHECK_INT(find_entry("c", false, NULL), n);
}

#define CACHE "- cache: {filename: $DIR/c}\n"

/* What stands before the cache is its key: steps, their parameters, files. What stands
 * behind it, and settings, are not. */
static void each_content_has_its_own_entry(void)
{
    STG_TEST_FILE("in", "a\nb\n");
    check_entries(CACHED, "a b ", 1);
    check_entries(CACHED "- take: {count: 1}\n", "a ", 1);
    check_entries(CACHED "- repeat: {count: 2}\n", "a b a b ", 1);
    check_entries(
        "- files: {pattern: $DIR/in}\n- text_line: {max_record_bytes: 6}\n" CACHE, "a b ",
        2);
    check_entries(LINES "- skip: {count: 1}\n" CACHE, "b ", 3);
    check_entries(LINES "- skip: {count: 0}\n" CACHE, "a b ", 4);
    STG_TEST_FILE("in", "other\n");
    check_entries(CACHED, "other ", 5);
    STG_TEST_FILE("in2", "more\n");
    check_entries("- files: {pattern: [\"$DIR/in\", \"$DIR/in2\"], shuffle: false}\n"
                  "- text_line: {max_record_bytes: 5}\n" CACHE,
                  "other more ", 6);
    check_entries(CACHED, "other ", 6);
}

/* The input changes after it was read: the entry would not be what its key says. */
static void a_file_that_changes_meanwhile_makes_no_entry(void)
{
    stg_log_set_level(STG_LOG_ERROR);
    STG_TEST_FILE("in", "a\nb\n");
    struct stg_pipeline_spec *spec = load(CACHED);
    struct stg_dataset *dataset = start(spec);
    STG_TEST_FILE("in", "c\nd\ne\n");
    CHECK(rest_of(dataset) > 0);
    CHECK(!is_there("c") && !is_there("c.part"));
    stg_pipeline_spec_destroy(spec);
}

/* Removes the entry of "c", and makes it in that pass. The caller frees the output. */
static char *make_entry(const char *text, uint64_t pass)
{
    if (is_there("c"))
        CHECK_INT(unlink(stg_test_path(entry_of("c"))), 0);
    test_pass = pass;
    char *ret = run_as(text, 0);
    test_pass = 0;
    return ret;
}

/* A state of a later pass leads to the same rows, also when the file is lost. */
static void the_cache_has_what_the_first_pass_makes_whichever_pass_fills_it(void)
{
    static const char frozen[] =
        "- range: {stop: 20}\n- shuffle: {buffer_size: 20, seed: 3}\n"
        "- cache: {filename: $DIR/c}\n";
    static const char with_branch[] =
        "- range: {stop: 10}\n- shuffle: {buffer_size: 20, seed: 3}\n"
        "- sample_from_datasets: {from: [other], seed: 2, rerandomize_each_iteration: "
        "true}\n- cache: {filename: $DIR/c}\n"
        "datasets:\n  other:\n  - range: {start: 10, stop: 20}\n"
        "  - shuffle: {buffer_size: 20, seed: 4}\n";
    static const char behind[] = "- range: {stop: 20}\n- cache: {filename: $DIR/c}\n"
                                 "- shuffle: {buffer_size: 20, seed: 3}\n";
    static const char *const texts[] = {frozen, with_branch, behind};
    for (size_t i = 0; i < 3; i++) {
        char *first = make_entry(texts[i], 0), *later = make_entry(texts[i], 7);
        CHECK((strcmp(first, later) == 0) == (texts[i] != behind));
        free(first);
        free(later);
    }
}

/* Also one that two steps use. */
static void a_vocabulary_is_part_of_the_key(void)
{
    static const char text[] =
        "- files: {pattern: $DIR/in}\n- text_line\n"
        "- filter: {graph: {words: {op: vocabulary, file: $DIR/words}, id: {op: lookup, "
        "input: [words, record]}, none: {op: constant, value: -1, dtype: int64}, is: "
        "{op: "
        "not_equal, input: [id, none]}}, predicate: is}\n"
        "- map: {graph: {words: {op: vocabulary, file: $DIR/words}, id: {op: lookup, "
        "input: [words, record]}}, output: id}\n- cache: {filename: $DIR/c}\n";
    STG_TEST_FILE("in", "a\nb\nx\n");
    STG_TEST_FILE("words", "a\nb\n");
    check_run(text, "0 1 ");
    STG_TEST_FILE("words", "b\na\n");
    check_run(text, "1 0 ");
    CHECK_INT(find_entry("c", false, NULL), 2);
}

static void within_a_pass_the_file_is_read_from_the_second_epoch_on(void)
{
    STG_TEST_FILE("in", "a\nb\n");
    check_run(CACHED "- repeat: {count: 3}\n", "a b a b a b ");
    CHECK(is_there("c"));
    check_run("- range: {stop: 0}\n- cache: {filename: $DIR/none}\n- repeat\n", "");
    CHECK(is_there("none"));
    check_run("- range: {stop: 0}\n- cache: {filename: $DIR/none}\n- repeat\n", "");
}

static void an_epoch_with_an_error_makes_no_file(void)
{
    stg_log_set_level(STG_LOG_ERROR);
    STG_TEST_FILE("in", "a\nlong line\nb\n");
    check_run(CACHED "- repeat: {count: 2}\n", "a ! b a ! b ");
    CHECK(!is_there("c") && !is_there("c.part"));
    check_run(LINES "- ignore_errors\n- cache: {filename: $DIR/c}\n", "a b ");
    CHECK(is_there("c"));
}

/* ---- the owner of the file ---- */

static void what_is_not_this_cache_is_refused_and_left_alone(void)
{
    STG_TEST_FILE("in", "a\n");
    STG_TEST_FILE("c", "content of another program");
    check_run(CACHED, "a ");
    char entry[64], other[64];
    snprintf(entry, sizeof(entry), "%s", entry_of("c"));
    check_run(LINES "- skip: {count: 0}\n- cache: {filename: $DIR/d}\n", "a ");
    snprintf(other, sizeof(other), "%s", entry_of("d"));
    stg_test_file(entry, "content of another program", 26);
    check_fails_as(CACHED, 0, "FAILED_PRECONDITION", " is not a cache of stager");
    CHECK(is_there("c") && !is_there("c.part"));

    char from[512];
    snprintf(from, sizeof(from), "%s", stg_test_path(other));
    CHECK_INT(rename(from, stg_test_path(entry)), 0);
    check_fails_as(CACHED, 0, "FAILED_PRECONDITION",
                   " is the cache of other steps, other files or another user: choose "
                   "another filename, or delete the file");
}

static void each_user_has_an_own_entry(void)
{
    STG_TEST_FILE("in", "a\n");
    CHECK_INT(chmod(stg_test_path("in"), 0644), 0);
    CHECK_INT(chmod(stg_test_dir(), 0777), 0);
    check_entries(CACHED, "a ", 1);
    char *got = run_as(CACHED, 4711);
    CHECK_STR(got, "a ");
    free(got);
    CHECK_INT(find_entry("c", false, NULL), 2);
}

static void the_applier_needs_the_right_to_write_there(void)
{
    STG_TEST_FILE("in", "a\n");
    CHECK_INT(chmod(stg_test_path("in"), 0644), 0);
    check_fails_as(CACHED, 4711, "PERMISSION_DENIED", "may not write in ");
    CHECK(!is_there("c") && !is_there("c.part"));
    check_fails_as(LINES "- cache: {filename: $DIR/no/c}\n", 0, "NOT_FOUND", "/no");
    check_fails_as(LINES "- cache: {filename: $DIR/in/c}\n", 0, "INVALID_ARGUMENT",
                   "/in");
    check_run(CACHED, "a ");
    char part[80], in[512];
    snprintf(part, sizeof(part), "%s.part", entry_of("c"));
    CHECK_INT(unlink(stg_test_path(entry_of("c"))), 0);
    CHECK_INT(symlink("/etc/hostname", stg_test_path(part)), 0);
    check_fails_as(CACHED, 0, "", "cannot make ");
    CHECK_INT(unlink(stg_test_path(part)), 0);
    snprintf(in, sizeof(in), "%s", STG_TEST_FILE("other", "b\n"));
    CHECK_INT(link(in, stg_test_path(part)), 0);
    check_fails_as(CACHED, 0, "FAILED_PRECONDITION", ".part was not written by stagerd");
    struct stat st;
    CHECK_INT(stat(stg_test_path("other"), &st), 0);
    CHECK_INT(st.st_size, 2);
}

/* ---- damage ---- */

static size_t read_file(const char *name, char **ret)
{
    struct stat st;
    int fd = open(stg_test_path(name), O_RDONLY);
    CHECK(fd >= 0 && fstat(fd, &st) == 0);
    *ret = malloc((size_t)st.st_size);
    CHECK_INT(read(fd, *ret, (size_t)st.st_size), st.st_size);
    close(fd);
    return (size_t)st.st_size;
}

/* Any content of the file gives the right elements or an error with its path. */
static void check_damaged(const char *good, const char *text)
{
    char *got = run_as(text, 0);
    if (strstr(got, good) == NULL || strlen(got) != strlen(good)) {
        CHECK(strstr(got, "!DATA_LOSS step cache") != NULL ||
              strstr(got, "!FAILED_PRECONDITION step cache") != NULL);
        CHECK_CONTAINS(got, "/c");
        CHECK(strstr(got, "delete the file") != NULL ||
              strstr(got, "leaves it unchanged") != NULL);
    }
    free(got);
}

static void a_file_that_is_truncated_is_refused(void)
{
    static const char *const text = CACHED "- repeat: {count: 1}\n";
    STG_TEST_FILE("in", "one\ntwo\nthree\n");
    check_run(text, "one two three ");
    char *data;
    const char *entry = entry_of("c");
    size_t n = read_file(entry, &data);
    for (size_t i = 0; i < n; i += 1 + i % 13) {
        stg_test_file(entry, data, i);
        char *got = run_as(text, 0);
        CHECK(got[0] == '!');
        free(got);
        check_damaged("one two three ", text);
    }
    free(data);
}

static void a_flipped_bit_is_found(void)
{
    static const char *const text =
        LINES "- batch: {batch_size: 2}\n- cache: {filename: $DIR/c}\n- unbatch\n";
    STG_TEST_FILE("in", "one\ntwo\nthree\n");
    check_run(text, "one two three ");
    char *data;
    const char *entry = entry_of("c");
    size_t n = read_file(entry, &data);
    for (size_t i = 0; i < n; i++) {
        data[i] = (char)(data[i] ^ (1 << i % 8));
        stg_test_file(entry, data, n);
        check_damaged("one two three ", text);
        data[i] = (char)(data[i] ^ (1 << i % 8));
    }
    free(data);
}

/* ---- several runs, and crashes ---- */

static struct stg_dataset *start(const struct stg_pipeline_spec *spec)
{
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset;
    struct stg_err err = {0};
    CHECK_OK(stg_dataset_create(spec, &env, &dataset, &err), err);
    stg_block_unref(stg_test_next(dataset));
    return dataset;
}

static int rest_of(struct stg_dataset *dataset)
{
    struct stg_block *block;
    int n = 0;
    while ((block = stg_test_next(dataset)) != NULL) {
        stg_block_unref(block);
        n++;
    }
    stg_dataset_destroy(dataset);
    return n;
}

static void of_two_at_once_one_writes_and_both_get_all(void)
{
    struct stg_pipeline_spec *spec =
        load("- range: {stop: 50}\n- cache: {filename: $DIR/c}\n");
    struct stg_dataset *first = start(spec), *second = start(spec);
    CHECK_INT(rest_of(second), 49);
    CHECK(!is_there("c") && is_there("c.part"));
    CHECK_INT(rest_of(first), 49);
    CHECK(is_there("c") && !is_there("c.part"));
    CHECK_INT(rest_of(start(spec)), 49);
    stg_pipeline_spec_destroy(spec);
}

#define FROZEN                                                                           \
    "- range: {stop: 20}\n- shuffle: {buffer_size: 20, seed: 3}\n"                       \
    "- cache: {filename: $DIR/c}\n"

/* Each epoch that comes from the input is what the file will have. */
static void an_epoch_beside_another_writer_is_that_of_the_file(void)
{
    struct stg_pipeline_spec *spec = load(FROZEN);
    struct stg_dataset *writer = start(spec);
    char *got = run_as(FROZEN "- repeat: {count: 3}\n", 0);
    CHECK(!is_there("c") && is_there("c.part"));
    rest_of(writer);
    char *want = run_as(FROZEN "- repeat: {count: 3}\n", 0);
    CHECK(is_there("c"));
    CHECK_STR(got, want);
    free(got);
    free(want);
    char *part = run_as(FROZEN "- take: {count: 5}\n- repeat: {count: 3}\n", 0);
    CHECK_INT(unlink(stg_test_path(entry_of("c"))), 0);
    got = run_as(FROZEN "- take: {count: 5}\n- repeat: {count: 3}\n", 0);
    CHECK(!is_there("c"));
    CHECK_STR(got, part);
    free(got);
    free(part);
    stg_pipeline_spec_destroy(spec);
}

static void what_a_crash_leaves_is_taken_over(void)
{
    struct stg_pipeline_spec *spec =
        load("- range: {stop: 100000}\n- cache: {filename: $DIR/c}\n");
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct stg_dataset *dataset = start(spec);
        for (int i = 0; i < 70000; i++)
            stg_block_unref(stg_test_next(dataset));
        raise(SIGKILL);
    }
    int status;
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    CHECK(!is_there("c") && is_there("c.part"));
    CHECK_INT(rest_of(start(spec)), 99999);
    CHECK(is_there("c") && !is_there("c.part"));
    CHECK_INT(rest_of(start(spec)), 99999);
    stg_pipeline_spec_destroy(spec);
}

static void a_filename_is_a_whole_path(void)
{
    static const char *const cases[] = {"c", "./c", "$DIR/"};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[200];
        snprintf(text, sizeof(text), "- range: {stop: 1}\n- cache: {filename: %s}\n",
                 cases[i]);
        struct stg_pipeline_spec *spec = load(text);
        struct stg_bump bump;
        stg_bump_init(&bump, 0);
        struct stg_schema schema;
        struct stg_err err = {0};
        CHECK_INT(stg_dataset_infer(spec, &bump, &schema, &err),
                  -STAGER_INVALID_ARGUMENT);
        CHECK_CONTAINS(err.text, "step cache (line 3): filename is ");
        CHECK_CONTAINS(err.text, "write the absolute path of a file");
        stg_bump_finish(&bump);
        stg_pipeline_spec_destroy(spec);
    }
}

static const struct stg_test tests[] = {
    TEST(the_input_runs_once),
    TEST(a_part_of_it_is_enough),
    TEST(too_much_for_the_memory_is_reported),
    TEST(a_whole_epoch_makes_the_file_and_the_next_pass_reads_it),
    TEST(each_content_has_its_own_entry),
    TEST(the_cache_has_what_the_first_pass_makes_whichever_pass_fills_it),
    TEST(a_vocabulary_is_part_of_the_key),
    TEST(a_file_that_changes_meanwhile_makes_no_entry),
    TEST(each_user_has_an_own_entry),
    TEST(within_a_pass_the_file_is_read_from_the_second_epoch_on),
    TEST(an_epoch_with_an_error_makes_no_file),
    TEST(what_is_not_this_cache_is_refused_and_left_alone),
    TEST(the_applier_needs_the_right_to_write_there),
    TEST(a_file_that_is_truncated_is_refused),
    TEST_SLOW(a_flipped_bit_is_found, 90),
    TEST(of_two_at_once_one_writes_and_both_get_all),
    TEST(an_epoch_beside_another_writer_is_that_of_the_file),
    TEST(what_a_crash_leaves_is_taken_over),
    TEST(a_filename_is_a_whole_path),
};

TEST_MAIN(tests)
