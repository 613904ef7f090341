/* SPDX-License-Identifier: Apache-2.0
 *
 * The work of apply and check before anything runs: definitions, advice, the arithmetic
 * of admission.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/pipeline/definition.h"
#include "tests/check.h"

static const struct stg_identity unprivileged = {.uid = 65534, .gid = 65534};

static struct stg_definition *define(const char *text)
{
    struct stg_definition *definition;
    struct stg_err err = {0};
    if (stg_definition_create(text, strlen(text), "p.yaml", &unprivileged, NULL,
                              &definition, &err) < 0)
        FAIL("%s", err.text);
    return definition;
}

static void refuse(const char *text, int code, const char *part)
{
    struct stg_definition *definition;
    struct stg_err err = {0};
    CHECK_INT(stg_definition_create(text, strlen(text), "p.yaml", &unprivileged, NULL,
                                    &definition, &err),
              code);
    CHECK_CONTAINS(err.text, "p.yaml");
    CHECK_CONTAINS(err.text, part);
}

static int plan_for(const struct stg_definition *definition, uint32_t num_clients,
                    uint32_t max_in_flight, uint64_t default_bytes,
                    struct stg_stage_plan *ret, struct stg_err *err)
{
    struct stg_plan_asked asked =
        stg_definition_asked(definition, num_clients, max_in_flight, default_bytes);
    return stg_stage_plan(&asked, ret, err);
}

static const char *const batches_of_floats =
    "dataset:\n  - range: {stop: 10}\n"
    "graph:\n  - {name: x, op: constant, value: 1.0, shape: [262144]}\n"
    "staged: {features: {x: x}, capacity: 3, num_threads: 2, num_clients: 2%s}\n";

static uint64_t content(const char *text)
{
    struct stg_definition *definition = define(text);
    uint64_t ret = definition->content;
    stg_definition_unref(definition);
    return ret;
}

/* Of what batches have, and not of how fast they come. */
static void the_content_of_a_pipeline_is_that_of_its_batches(void)
{
    static const char text[] =
        "dataset: [{range: {stop: 10}}, {batch: {batch_size: %s}}]\n"
        "graph: [{name: x, op: cast, input: value, dtype: %s}]\n"
        "staged: {features: {x: x}, capacity: %s}\n";
    char of[5][512];
    snprintf(of[0], sizeof(of[0]), text, "2", "int32", "3");
    snprintf(of[1], sizeof(of[1]), text, "2", "int32", "4");
    snprintf(of[2], sizeof(of[2]), text, "3", "int32", "3");
    snprintf(of[3], sizeof(of[3]), text, "2", "int64", "3");
    snprintf(of[4], sizeof(of[4]), "%s", of[0]);
    memcpy(strstr(of[4], "10"), "11", 2);
    CHECK(content(of[0]) == content(of[1]));
    CHECK(content(of[0]) != content(of[2]));
    CHECK(content(of[0]) != content(of[3]));
    CHECK(content(of[0]) != content(of[4]));
}

static void the_plan_is_capacity_threads_credits_and_one(void)
{
    char text[512];
    snprintf(text, sizeof(text), batches_of_floats, "");
    struct stg_definition *definition = define(text);
    struct stg_stage_plan plan;
    struct stg_err err = {0};
    CHECK_OK(plan_for(definition, 2, 2, 1 << 27, &plan, &err), err);
    CHECK_INT(plan.n_extents, 3 + 2 + 2 * 2 + 1);
    /* 1 MiB of floats and a header: 17 granules of 64 KiB. */
    CHECK_INT(plan.max_batch_bytes, 17 * 65536);
    CHECK_INT(plan.arena_bytes, plan.n_extents * plan.max_batch_bytes);
    stg_definition_unref(definition);
}

/* A pipeline with batches of 17 granules, or of unknown size. */
static void plan_auto(const char *text, struct stg_stage_plan *ret)
{
    struct stg_definition *definition = define(text);
    struct stg_err err = {0};
    CHECK_OK(plan_for(definition, 1, 2, 1 << 27, ret, &err), err);
    CHECK_INT(ret->n_extents, ret->capacity + ret->num_threads + 2 + 1);
    stg_definition_unref(definition);
}

#define FLOATS                                                                           \
    "dataset:\n  - range: {stop: 10}\n"                                                  \
    "graph:\n  - {name: x, op: constant, value: 1.0, shape: [262144]}\n"                 \
    "staged: {features: {x: x}, capacity: auto, num_threads: "

static void auto_is_counted_with_what_the_memory_allows(void)
{
    struct stg_stage_plan plan;
    plan_auto(FLOATS "auto}\n", &plan); /* as if memory_budget were the default */
    CHECK_INT(plan.capacity, 16);
    CHECK(plan.num_threads >= 8 && plan.num_threads <= 128);
    CHECK(plan.arena_bytes <= 1 << 27);
    /* A quarter of 16 MiB is for reading; 11 batches of 1,114,112 bytes fit the rest. */
    plan_auto(FLOATS "auto, memory_budget: 16MiB}\n", &plan);
    CHECK_INT(plan.capacity, 4);
    CHECK_INT(plan.num_threads, 4);
    /* a configured value is kept */
    plan_auto(FLOATS "6, memory_budget: 16MiB}\n", &plan);
    CHECK_INT(plan.capacity, 2);
    CHECK_INT(plan.num_threads, 6);
    plan_auto(
        "dataset:\n  - files: {pattern: /x}\n  - text_line\n  - batch: {batch_size: 4}\n"
        "staged: {capacity: auto, num_threads: auto}\n",
        &plan);
    CHECK_INT(plan.n_extents, 16);
    CHECK_INT(plan.max_batch_bytes, (1 << 27) / 16);
}

static void a_share_that_is_too_small_is_refused_with_the_numbers(void)
{
    char text[512];
    snprintf(text, sizeof(text), batches_of_floats, ", memory_budget: 8MiB");
    struct stg_definition *definition = define(text);
    struct stg_stage_plan plan;
    struct stg_err err = {0};
    CHECK_INT(plan_for(definition, 2, 2, 1 << 27, &plan, &err),
              -STAGER_RESOURCE_EXHAUSTED);
    CHECK_CONTAINS(err.text,
                   "capacity 3 + num_threads 2 + num_clients 2 x max_in_flight 2 + 1");
    CHECK_CONTAINS(err.text, "8.0 MiB");
    stg_definition_unref(definition);
}

/* 5 or 6 x 64 KiB; a quarter of a budget is for read buffers. */
static void a_share_that_is_too_small_for_any_batch_is_refused_with_numbers_that_add_up(
    void)
{
    static const struct {
        const char *budget, *says;
    } rows[] = {
        {"memory_budget: 300KiB",
         "+ 1) x the least bytes of a batch, 65536 = 0.3 MiB, and 0.1 MiB for read "
         "buffers, do not fit the pipeline's memory_budget of 0.3 MiB: raise it to 1MiB"},
        {"capacity: 2",
         "+ 1) x the least bytes of a batch, 65536 = 0.4 MiB do not fit stagerd's "
         "default_pipeline_memory of 0.3 MiB: give the pipeline a memory_budget of 1MiB"},
        {"max_batch_bytes: 4000000000000000000",
         "x max_batch_bytes 4000000000000000000 = 19073486328125.0 MiB exceed any "
         "memory: lower max_batch_bytes"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[256];
        snprintf(text, sizeof(text),
                 "dataset:\n  - files: {pattern: /x}\n  - text_line\n"
                 "  - batch: {batch_size: 2}\nstaged: {%s}\n",
                 rows[i].budget);
        struct stg_definition *definition = define(text);
        struct stg_stage_plan plan;
        struct stg_err err = {0};
        CHECK_INT(plan_for(definition, 1, 2, 320 << 10, &plan, &err),
                  -STAGER_RESOURCE_EXHAUSTED);
        CHECK_CONTAINS(err.text, rows[i].says);
        stg_definition_unref(definition);
    }
}

/* one_hot makes 4000 bytes from 8; the sum after it makes 4 of them. */
static void a_partition_that_would_take_much_room_is_no_reason_to_refuse_auto(void)
{
    static const char *const yaml =
        "dataset:\n  - range: {stop: 99}\n"
        "  - batch: {batch_size: 4096, drop_remainder: true}\n"
        "graph:\n"
        "  - {name: hot, op: one_hot, input: [\"staged:v\"], depth: 1000}\n"
        "  - {name: sum, op: reduce_sum, input: [hot], axis: [1]}\n"
        "  - {name: bias, op: variable, shape: [1]}\n"
        "  - {name: y, op: add, input: [sum, bias]}\n"
        "staged: {features: {v: value}, capacity: 4%s}\n"
        "targets: [y]\nsmart_stage: %s\n";
    struct stg_stage_plan off, tried;
    char text[1024];
    snprintf(text, sizeof(text), yaml, ", memory_budget: 32MiB", "off");
    plan_auto(text, &off);
    snprintf(text, sizeof(text), yaml, ", memory_budget: 32MiB", "auto");
    plan_auto(text, &tried);
    CHECK_INT(off.max_batch_bytes, 65536);
    CHECK_INT(tried.max_batch_bytes, (8 << 20) / 8); /* of a quarter, each of 8 */
    CHECK_INT(tried.arena_bytes + tried.buffer_bytes, 32 << 20);
    snprintf(text, sizeof(text), yaml, "", "auto");
    plan_auto(text, &tried);
    CHECK(tried.max_batch_bytes > 4096 * 4000 && tried.arena_bytes <= 1 << 27);
}

static void a_batch_of_unknown_size_gets_its_part_of_the_share(void)
{
    struct stg_definition *definition = define("dataset:\n  - files: {pattern: /x}\n  - "
                                               "text_line\n  - batch: {batch_size: 2}\n");
    struct stg_stage_plan plan;
    struct stg_err err = {0};
    CHECK_OK(plan_for(definition, 1, 2, 10 << 20, &plan, &err), err);
    CHECK_INT(plan.n_extents, 5);
    CHECK_INT(plan.max_batch_bytes, 2 << 20);
    stg_definition_unref(definition);
}

/* Without a budget 5 batches of unknown size share 128 MiB in granules. */
static void a_budget_is_for_batches_and_then_for_the_dataset(void)
{
    const uint64_t gib = 1 << 30, batches = (1 << 27) / 5 / 65536 * 65536 * 5;
    const struct {
        const char *budget;
        uint64_t buffer_bytes;
    } rows[] = {
        {"max_batch_bytes: 1MiB, memory_budget: 1GiB", (1024ull - 5) << 20},
        {"max_batch_bytes: 1MiB, memory_budget: 8MiB", 3 << 20},
        {"memory_budget: 1GiB", gib - gib * batches / (batches + (256 << 20))},
        {"max_batch_bytes: 1MiB", 256 << 20},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[256];
        snprintf(text, sizeof(text),
                 "dataset:\n  - files: {pattern: /x}\n  - text_line\n"
                 "  - batch: {batch_size: 2}\nstaged: {%s}\n",
                 rows[i].budget);
        struct stg_definition *definition = define(text);
        struct stg_stage_plan plan;
        struct stg_err err = {0};
        CHECK_OK(plan_for(definition, 1, 2, 1 << 27, &plan, &err), err);
        CHECK_INT(plan.buffer_bytes, rows[i].buffer_bytes);
        stg_definition_unref(definition);
    }
}

static void numbers_that_would_overflow_are_refused(void)
{
    struct stg_definition *definition =
        define("dataset:\n  - range: {stop: 1}\n"
               "staged: {max_batch_bytes: 4000000000000000000, capacity: 60000}\n");
    struct stg_stage_plan plan;
    struct stg_err err = {0};
    CHECK_INT(plan_for(definition, 1, 2, 1 << 27, &plan, &err),
              -STAGER_RESOURCE_EXHAUSTED);
    stg_definition_unref(definition);
}

static void mistakes_are_reported_with_file_and_line(void)
{
    refuse("dataset:\n  - range: {stop: 1}\nstaged: {capacty: 1}\n",
           -STAGER_INVALID_ARGUMENT, "capacity");
    refuse("dataset:\n  - shufle: {buffer_size: 1}\n", -STAGER_INVALID_ARGUMENT,
           "shuffle");
    refuse("dataset:\n  - shuffle: {buffer_size: 1}\n", -STAGER_INVALID_ARGUMENT,
           "line 2");
    refuse("dataset:\n  - range: {stop: 1}\ngraph:\n  - {name: a, op: decode_cvs, input: "
           "[value]}\n",
           -STAGER_INVALID_ARGUMENT, "decode_csv");
    refuse("dataset:\n  - range: {stop: 1}\n  - unbatch: {size: 1}\n",
           -STAGER_INVALID_ARGUMENT, "unknown key \"size\"; known here: none");
    refuse("dataset:\n  - range: {stop: 1}\n  - enumerate: {name: \"a:1\"}\n",
           -STAGER_INVALID_ARGUMENT, "enumerate.name: \"a:1\": not a valid name");
    refuse("dataset:\n  - range: {stop: 1}\nstaged: {feed_dict: 3}\n",
           -STAGER_INVALID_ARGUMENT, "expected a mapping by name, or a list");
}

static void a_constant_that_would_take_the_machine_is_refused(void)
{
    refuse("dataset:\n  - range: {stop: 1}\n"
           "graph:\n  - {name: x, op: constant, value: 1.0, shape: [4000000000]}\n",
           -STAGER_RESOURCE_EXHAUSTED, "512 MiB together");
    refuse("dataset:\n  - range: {stop: 1}\n"
           "graph:\n  - {name: x, op: constant, value: 1.0, shape: [100000000]}\n"
           "  - {name: y, op: constant, value: 2.0, shape: [100000000]}\n",
           -STAGER_RESOURCE_EXHAUSTED, "node y");
}

/* Every pipeline that can be applied can be opened: the reply fits 64 KiB even with the
 * longest name. */
static void a_pipeline_too_large_for_the_reply_to_open_is_refused(void)
{
    static char text[30000];
    int n = snprintf(text, sizeof(text),
                     "dataset:\n  - range: {stop: 1}\nstaged: {features: {");
    for (int i = 0; i < 900; i++)
        n += snprintf(text + n, sizeof(text) - (size_t)n, "%sfeature%d: value",
                      i > 0 ? ", " : "", i);
    snprintf(text + n, sizeof(text) - (size_t)n, "}}\n");
    refuse(text, -STAGER_INVALID_ARGUMENT, "900 features exceed");
}

static void a_pipeline_without_batch_is_advised_to_have_one(void)
{
    struct stg_definition *definition = define("dataset:\n  - range: {stop: 1}\n");
    struct stg_bump bump;
    const char *advice[4];
    stg_bump_init(&bump, 0);
    size_t n = stg_definition_advice(definition, &bump, advice, 4);
    CHECK(n >= 1);
    CHECK_CONTAINS(advice[0], "batch_size");
    stg_bump_finish(&bump);
    stg_definition_unref(definition);
}

static void a_pipeline_that_may_lose_batches_gets_advice(void)
{
    struct stg_definition *definition =
        define("dataset:\n  - range: {stop: 2}\n  - batch: {batch_size: 1}\n"
               "staged: {on_timeout: drop}\n");
    struct stg_bump bump;
    const char *advice[4] = {"", "", "", ""};
    stg_bump_init(&bump, 0);
    CHECK(stg_definition_advice(definition, &bump, advice, 4) >= 1);
    CHECK_CONTAINS(advice[0], "on_timeout: drop");
    CHECK_CONTAINS(advice[0], "300000");
    CHECK_CONTAINS(advice[0], "on_timeout: wait drops none");
    stg_bump_finish(&bump);
    stg_definition_unref(definition);
}

static void a_dtype_written_as_a_default_is_reported(void)
{
    struct stg_definition *definition = define(
        "dataset:\n  - files: {pattern: /x}\n  - text_line\n  - batch: {batch_size: 1}\n"
        "graph: [{name: c, op: decode_csv, input: [record], record_defaults: [0, "
        "float]}]\n"
        "staged: {features: [c, \"c:1\"], on_timeout: wait}\n");
    struct stg_bump bump;
    const char *advice[4] = {"", "", "", ""};
    stg_bump_init(&bump, 0);
    CHECK(stg_definition_advice(definition, &bump, advice, 4) >= 1);
    CHECK_CONTAINS(advice[0], "record_defaults has the string \"float\"");
    stg_bump_finish(&bump);
    stg_definition_unref(definition);
}

static void what_smart_stage_may_move_is_listed(void)
{
    static const char text[] =
        "dataset:\n  - range: {stop: 2}\n  - batch: {batch_size: 1}\n"
        "graph:\n  - {name: half, op: cast, input: [\"staged:value\"], dtype: int32}\n"
        "  - {name: text, op: as_string, input: [half]}\n"
        "  - {name: scores, op: identity, input: [text]}\n"
        "staged: {on_timeout: wait, features: {value: value}}\ntargets: [scores]\n";
    static const struct {
        const char *mode, *want;
    } cases[] = {{"smart_stage: auto\n",
                  "smart_stage: stagerd may take over 2 nodes of the trainers' graph, "
                  "where measurements show a gain: half, text"},
                 {"smart_stage: on\n",
                  "smart_stage: stagerd runs 2 nodes of the trainers' graph: half, text"},
                 {"smart_stage: off\n", NULL}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char all[1024];
        snprintf(all, sizeof(all), "%s%s", text, cases[i].mode);
        struct stg_definition *definition = define(all);
        struct stg_bump bump;
        const char *advice[4], *found = NULL;
        stg_bump_init(&bump, 0);
        size_t n = stg_definition_advice(definition, &bump, advice, 4);
        for (size_t k = 0; k < n; k++)
            found = strncmp(advice[k], "smart_stage: ", 13) == 0 ? advice[k] : found;
        CHECK_INT(found != NULL, cases[i].want != NULL);
        if (found != NULL)
            CHECK_STR(found, cases[i].want);
        stg_bump_finish(&bump);
        stg_definition_unref(definition);
    }
}

static void what_a_branch_does_is_known(void)
{
    struct stg_definition *definition =
        define("datasets:\n"
               "  a: [{range: {stop: 9}}, {batch: {batch_size: 3}}]\n"
               "  b: [{files: {pattern: /x}},\n"
               "      {interleave: {reader: {text_line: {}}, deterministic: false}},\n"
               "      {batch: {batch_size: 3}}]\n"
               "dataset: [{zip: {from: [a, b]}}]\n"
               "staged: {on_timeout: wait}\n");
    struct stg_bump bump;
    const char *advice[4] = {"", "", "", ""};
    stg_bump_init(&bump, 0);
    size_t n = stg_definition_advice(definition, &bump, advice, 4);
    CHECK(n >= 1);
    CHECK_CONTAINS(advice[0], "differs from run to run");
    CHECK_INT(stg_definition_batch_rows(definition), 3);
    stg_bump_finish(&bump);
    stg_definition_unref(definition);
}

/* ---- vocabularies ---- */

static void write_words(char *path, const char *words, mode_t mode)
{
    strcpy(path, "/tmp/stg-vocabulary-XXXXXX");
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    CHECK(write(fd, words, strlen(words)) == (ssize_t)strlen(words));
    CHECK_INT(fchmod(fd, mode), 0);
    close(fd);
}

static void lookup_text(char *to, const char *path)
{
    sprintf(to,
            "dataset: [{range: {stop: 3}}, {batch: {batch_size: 3}}]\n"
            "graph:\n  - {name: t, op: vocabulary, file: %s}\n"
            "  - {name: w, op: as_string, input: [value]}\n"
            "  - {name: y, op: lookup, input: [t, w]}\n"
            "staged: {features: {y: y}}\n",
            path);
}

static uint64_t fingerprint_of(const char *path)
{
    char text[512];
    lookup_text(text, path);
    struct stg_definition *definition = define(text);
    uint64_t ret = definition->spec->fingerprint;
    stg_definition_unref(definition);
    return ret;
}

static void what_a_vocabulary_holds_is_part_of_the_fingerprint(void)
{
    char path[64];
    write_words(path, "1\n2\n", 0644);
    uint64_t first = fingerprint_of(path);
    CHECK(fingerprint_of(path) == first);
    FILE *file = fopen(path, "a");
    CHECK(file != NULL && fputs("3\n", file) >= 0 && fclose(file) == 0);
    CHECK(fingerprint_of(path) != first);
    unlink(path);
}

static void a_vocabulary_is_read_with_the_rights_of_the_applier(void)
{
    char path[64], text[512];
    write_words(path, "1\n2\n", 0600);
    lookup_text(text, path);
    if (geteuid() == 0)
        refuse(text, -STAGER_PERMISSION_DENIED, path);
    unlink(path);
    refuse(text, -STAGER_NOT_FOUND, "node t (vocabulary), line 3");
    write_words(path, "1\n1\n", 0644);
    lookup_text(text, path);
    refuse(text, -STAGER_INVALID_ARGUMENT, "line 2 repeats \"1\" of line 1");
    unlink(path);
}

static const struct stg_test tests[] = {
    TEST(the_content_of_a_pipeline_is_that_of_its_batches),
    TEST(the_plan_is_capacity_threads_credits_and_one),
    TEST(auto_is_counted_with_what_the_memory_allows),
    TEST(a_share_that_is_too_small_is_refused_with_the_numbers),
    TEST(a_share_that_is_too_small_for_any_batch_is_refused_with_numbers_that_add_up),
    TEST(a_partition_that_would_take_much_room_is_no_reason_to_refuse_auto),
    TEST(a_batch_of_unknown_size_gets_its_part_of_the_share),
    TEST(a_budget_is_for_batches_and_then_for_the_dataset),
    TEST(numbers_that_would_overflow_are_refused),
    TEST(mistakes_are_reported_with_file_and_line),
    TEST(a_constant_that_would_take_the_machine_is_refused),
    TEST(a_pipeline_too_large_for_the_reply_to_open_is_refused),
    TEST(a_pipeline_without_batch_is_advised_to_have_one),
    TEST(a_pipeline_that_may_lose_batches_gets_advice),
    TEST(a_dtype_written_as_a_default_is_reported),
    TEST(what_smart_stage_may_move_is_listed),
    TEST(what_a_branch_does_is_known),
    TEST(what_a_vocabulary_holds_is_part_of_the_fingerprint),
    TEST(a_vocabulary_is_read_with_the_rights_of_the_applier),
};

TEST_MAIN(tests)
