/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ops/base/hash.h"
#include "ops/kernels/text/vocabulary.h"
#include "tests/check.h"
#include "tests/ops/fixture.h"

static int make(const char *text, uint64_t most, struct stg_tensor *ret,
                struct stg_err *err)
{
    *err = (struct stg_err){0};
    return stg_vocabulary_create(text, strlen(text), most, ret, err);
}

static int64_t number_of(const struct stg_tensor *table, const char *word)
{
    struct stg_vocabulary v;
    CHECK(stg_vocabulary_open(table, &v));
    return stg_vocabulary_find(&v, word, strlen(word),
                               stg_fingerprint64(word, strlen(word)));
}

static void lines_are_numbered_without_their_ends(void)
{
    struct stg_tensor table;
    struct stg_err err;
    CHECK_OK(make("a\nb c\r\n\nlast\r", 0, &table, &err), err);
    CHECK_INT(number_of(&table, "a"), 0);
    CHECK_INT(number_of(&table, "b c"), 1);
    CHECK_INT(number_of(&table, ""), 2);
    CHECK_INT(number_of(&table, "last\r"), 3);
    CHECK_INT(number_of(&table, "b"), -1);
    CHECK_INT(number_of(&table, "a\n"), -1);
    free(table.data);
    CHECK_OK(make("a\nb\nb\n", 2, &table, &err), err);
    CHECK_INT(number_of(&table, "b"), 1);
    free(table.data);
}

static void many_words_are_all_found(void)
{
    static char text[400000], word[32];
    struct stg_tensor table;
    struct stg_err err;
    size_t at = 0;
    for (int i = 0; i < 30000; i++)
        at += (size_t)sprintf(text + at, "word-%d\n", i * 7);
    CHECK_OK(make(text, 0, &table, &err), err);
    for (int i = 0; i < 210000; i += 3) {
        sprintf(word, "word-%d", i);
        CHECK_INT(number_of(&table, word), i % 7 == 0 ? i / 7 : -1);
    }
    free(table.data);
}

static void what_is_no_vocabulary_is_refused(void)
{
    struct stg_tensor table;
    struct stg_err err;
    CHECK_INT(make("", 0, &table, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_STR(err.text, "the file has 0 lines; a vocabulary must have at least 1");
    CHECK_INT(make("a\nb\n", 3, &table, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_STR(err.text, "the file has 2 lines; a vocabulary must have at least 3");
    CHECK_INT(make("a\nb\na\n", 0, &table, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_STR(err.text,
              "line 3 repeats \"a\" of line 1; a vocabulary must have each word once");
}

static void a_damaged_vocabulary_is_read_within_its_bounds(void)
{
    struct stg_tensor table;
    struct stg_err err;
    CHECK_OK(make("a\nbb\nccc\n", 0, &table, &err), err);
    size_t n = table.data_bytes;
    struct stg_vocabulary v;
    for (size_t n_left = 0; n_left < n; n_left++) {
        struct stg_tensor bad = table;
        bad.data = malloc(n_left + (n_left == 0));
        memcpy(bad.data, table.data, n_left);
        bad.data_bytes = n_left;
        CHECK(!stg_vocabulary_open(&bad, &v));
        free(bad.data);
    }
    for (size_t at = 0; at < n; at++) {
        for (int value = 0; value < 256; value++) {
            struct stg_tensor bad = table;
            bad.data = malloc(n);
            memcpy(bad.data, table.data, n);
            ((uint8_t *)bad.data)[at] = (uint8_t)value;
            if (stg_vocabulary_open(&bad, &v)) {
                CHECK(number_of(&bad, "ccc") < 4);
                CHECK(number_of(&bad, "nobody") < 4);
            }
            free(bad.data);
        }
    }
    free(table.data);
}

/* ---- in a graph ---- */

struct machine {
    struct fixture fx;
    struct stg_graph *graph;
    struct stg_run *run;
    char path[64];
};

static void machine_init(struct machine *m, const char *words, const char *attrs)
{
    char text[512];
    struct stg_err err = {0};
    *m = (struct machine){.path = "/tmp/stg-vocabulary-XXXXXX"};
    int fd = mkstemp(m->path);
    CHECK(fd >= 0);
    CHECK(write(fd, words, strlen(words)) == (ssize_t)strlen(words));
    close(fd);
    snprintf(text, sizeof(text),
             "element w string [-1]\nt = vocabulary() file=\"%s\"\n"
             "y = lookup(t, w) %s\nfeature y = y\n",
             m->path, attrs);
    CHECK_OK(fixture_parse(&m->fx, text, &err), err);
    CHECK_OK(stg_graph_create(&m->fx.spec, &m->fx.element, NULL, &m->graph, &err), err);
}

static void machine_finish(struct machine *m)
{
    unlink(m->path);
    stg_run_destroy(m->run);
    stg_graph_destroy(m->graph);
    fixture_finish(&m->fx);
}

static void check_ids(const char *attrs, const int64_t *want)
{
    static const char *const words[] = {"b", "", "a", "x"};
    struct machine m;
    struct stg_err err = {0};
    struct stg_bump bump = {0};
    struct stg_tensor input = fixture_strings(&bump, 4, words), got;
    machine_init(&m, "a\nb\n", attrs);
    CHECK_OK(fixture_tables(m.graph, &err), err);
    CHECK_OK(stg_run_create_stage(m.graph, &m.run, &err), err);
    CHECK_OK(stg_run_exec(m.run, &input, NULL, NULL, &got, &err), err);
    CHECK_INT(got.shape[0], 4);
    for (int i = 0; i < 4; i++)
        CHECK_INT(((const int64_t *)got.data)[i], want[i]);
    machine_finish(&m);
    stg_bump_finish(&bump);
}

static void words_become_their_numbers(void)
{
    int64_t x = (int64_t)(stg_fingerprint64("x", 1) % 5) + 2;
    int64_t nothing = (int64_t)(stg_fingerprint64("", 0) % 5) + 2;
    check_ids("", (const int64_t[]){1, -1, 0, -1});
    check_ids("default_value=7", (const int64_t[]){1, 7, 0, 7});
    check_ids("num_oov_buckets=1", (const int64_t[]){1, 2, 0, 2});
    check_ids("num_oov_buckets=5", (const int64_t[]){1, nothing, 0, x});
}

static void a_vocabulary_that_was_not_read_is_missed(void)
{
    struct machine m;
    struct stg_err err = {0};
    machine_init(&m, "a\n", "");
    CHECK_INT(stg_run_create_stage(m.graph, &m.run, &err), -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(err.text, "vocabulary t is needed but was not read");
    machine_finish(&m);
}

static void check_refused(const char *text, const char *error)
{
    struct fixture fx;
    struct stg_graph *graph = NULL;
    struct stg_err err = {0};
    CHECK_OK(fixture_parse(&fx, text, &err), err);
    CHECK_INT(stg_graph_create(&fx.spec, &fx.element, NULL, &graph, &err),
              -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, error);
    fixture_finish(&fx);
}

#define TABLE                                                                            \
    "element w string [-1]\nelement n int64 [-1]\nt = vocabulary() file=\"/x\"\n"

static void a_vocabulary_is_for_lookup_before_the_boundary(void)
{
    check_refused(TABLE "feature f = t\n", "\"t\" is a vocabulary, which exists only in "
                                           "the daemon; stage the output of lookup");
    check_refused(
        TABLE "y = lookup(t, staged:w)\nfeature w = w\ntarget y\n",
        "vocabulary \"t\" exists only in the daemon; look words up before the boundary");
    check_refused(TABLE "y = lookup(w, w)\nfeature y = y\n", "is not a vocabulary");
    check_refused(TABLE "y = lookup(t, n)\nfeature y = y\n",
                  "is int64; words must be strings (as_string converts numbers)");
    check_refused(TABLE
                  "y = lookup(t, w) num_oov_buckets=1 default_value=3\nfeature y = y\n",
                  "default_value cannot be combined with num_oov_buckets");
}

static const struct stg_test tests[] = {
    TEST(lines_are_numbered_without_their_ends),
    TEST(many_words_are_all_found),
    TEST(what_is_no_vocabulary_is_refused),
    TEST(a_damaged_vocabulary_is_read_within_its_bounds),
    TEST(words_become_their_numbers),
    TEST(a_vocabulary_that_was_not_read_is_missed),
    TEST(a_vocabulary_is_for_lookup_before_the_boundary),
};
TEST_MAIN(tests)
