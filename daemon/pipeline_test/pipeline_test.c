/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/pipeline_test/pipeline_test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/param.h"
#include "core/text/json.h"
#include "daemon/dataset/dataset.h"
#include "daemon/dataset/vocabulary.h"
#include "daemon/host/text_file.h"
#include "daemon/pipeline_test/compare.h"
#include "daemon/pipeline_test/rewrite.h"
#include "ops/exec/run.h"
#include "ops/graph/composite.h"
#include "proto/load.h"

#define BUFFER_BYTES ((uint64_t)1 << 30)

/* The text of a file. */
struct text {
    char *data;
    size_t bytes;
};

/* One test while it runs. */
struct run {
    const struct stg_test_case *test;
    struct stg_pipeline_spec *spec;
    struct stg_bump bump;
    struct stg_schema element;
    struct stg_graph *graph, *trainer;
    struct stg_vocabularies vocabularies;
    struct stg_dataset *dataset;
    struct stg_run *stage;
    struct stg_resources *variables;
    struct stg_run *compute; /* of the targets that the test names; or NULL */
    const char **targets;
    size_t n_targets;
    struct stg_tensor *features, *fetched;
    size_t n_batches;
    char temporary[64]; /* holds `text`; "": none */
};

/* The end of a test. */
struct outcome {
    bool passed;
    struct stg_err error; /* code 0: the differences say it */
    struct stg_differences differences;
};

static int fail_memory(struct stg_err *err)
{
    return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
}

/* A path in a file is relative to its folder. */
static char *beside(struct stg_bump *bump, const char *file, const char *path)
{
    const char *slash = strrchr(file, '/');
    if (path[0] == '/' || slash == NULL)
        return stg_bump_strdup(bump, path);
    return stg_bump_printf(bump, "%.*s/%s", (int)(slash - file), file, path);
}

/* ---- making ---- */

static int write_temporary(struct run *run, struct stg_err *err)
{
    const char *folder = getenv("TMPDIR");
    int n = snprintf(run->temporary, sizeof(run->temporary), "%s/stager-test-XXXXXX",
                     folder != NULL && strlen(folder) < 40 ? folder : "/tmp");
    int fd = n > 0 ? mkstemp(run->temporary) : -1;
    if (fd < 0) {
        run->temporary[0] = '\0';
        return stg_err(err, -STAGER_INTERNAL, "cannot write a temporary file: %s",
                       strerror(errno));
    }
    FILE *out = fdopen(fd, "w");
    bool ok = out != NULL && fputs(run->test->text, out) >= 0;
    if (out == NULL)
        close(fd);
    else
        ok = fclose(out) == 0 && ok;
    return ok ? 0
              : stg_err(err, -STAGER_INTERNAL, "%s: %s", run->temporary, strerror(errno));
}

static int rewrite(struct run *run, const char *file, struct stg_err *err)
{
    const struct stg_test_case *test = run->test;
    const char *path = NULL;
    int rc = test->text != NULL ? write_temporary(run, err) : 0;
    if (test->text != NULL)
        path = run->temporary;
    if (test->file != NULL && (path = beside(&run->bump, file, test->file)) == NULL)
        return fail_memory(err);
    return rc < 0 ? rc : stg_pipeline_test_rewrite(run->spec, test, path, err);
}

static int no_file(const char *file, struct stg_tensor *variable, struct stg_err *err)
{
    return stg_err(err, -STAGER_UNIMPLEMENTED, "a test reads no variables from files: %s",
                   file);
}

static bool is_feature(const struct run *run, const char *name, size_t *ret)
{
    const struct stg_schema *boundary = stg_graph_boundary(run->graph);
    for (size_t i = 0; i < boundary->n; i++) {
        *ret = i;
        if (strcmp(boundary->components[i].name, name) == 0)
            return true;
    }
    return false;
}

static bool is_target(const struct run *run, const char *name, size_t *ret)
{
    for (size_t i = 0; i < run->spec->n_targets; i++) {
        *ret = i;
        if (strcmp(run->spec->targets[i], name) == 0)
            return true;
    }
    return false;
}

static int fail_name(const struct run *run, const struct stg_attr *value,
                     struct stg_err *err)
{
    const struct stg_schema *boundary = stg_graph_boundary(run->graph);
    const char *names[256];
    char all[512] = "";
    size_t n = 0;
    for (size_t i = 0; i < boundary->n && n < 128; i++)
        names[n++] = boundary->components[i].name;
    for (size_t i = 0; i < run->spec->n_targets && n < 256; i++)
        names[n++] = run->spec->targets[i];
    for (size_t i = 0, used = 0; i < n; i++, used = strlen(all))
        snprintf(all + used, sizeof(all) - used, "%s%s", i > 0 ? ", " : "", names[i]);
    const char *near = stg_nearest(value->name, names, n);
    if (near != NULL)
        return stg_err(err, -STAGER_NOT_FOUND,
                       "expect (line %d): unknown feature \"%s\"; did you mean \"%s\"?",
                       value->line, value->name, near);
    return stg_err(err, -STAGER_NOT_FOUND,
                   "expect (line %d): unknown feature \"%s\"; the pipeline has: %s",
                   value->line, value->name, all);
}

/* Checks the names, and notes which targets are among them. */
static int find_names(struct run *run, struct stg_err *err)
{
    const struct stg_test_case *test = run->test;
    bool any = false;
    for (size_t i = 0; i < test->n_batches; i++) {
        for (size_t k = 0; k < test->batches[i].n; k++) {
            const struct stg_attr *value = &test->batches[i].values[k];
            size_t at;
            if (is_feature(run, value->name, &at))
                continue;
            if (!is_target(run, value->name, &at))
                return fail_name(run, value, err);
            any = true;
        }
    }
    /* A test of an error runs all of it. */
    run->n_targets = any || test->error != NULL ? run->spec->n_targets : 0;
    return 0;
}

/* As a trainer has it: what it computes comes from the tensors of a batch. */
static int create_compute(struct run *run, struct stg_err *err)
{
    const struct stg_schema *boundary = stg_graph_boundary(run->graph);
    int rc = stg_graph_create(run->spec, NULL, boundary, &run->trainer, err);
    if (rc < 0)
        return rc;
    stg_graph_borrow_tables(run->trainer, run->graph);
    rc = stg_resources_create(run->trainer, &run->variables, err);
    if (rc == 0)
        rc = stg_resources_load(run->variables, run->trainer, no_file, err);
    if (rc == 0)
        rc = stg_run_create_compute(run->trainer, run->variables, run->spec->targets,
                                    run->n_targets, &run->compute, err);
    return rc;
}

static int create_executors(struct run *run, struct stg_err *err)
{
    struct stg_vocabulary_reader reader = {.uid = getuid(), .gid = getgid()};
    int rc = stg_graph_create(run->spec, &run->element, NULL, &run->graph, err);
    if (rc == 0)
        rc = stg_vocabularies_load(run->graph, &reader, &run->vocabularies, err);
    if (rc == 0)
        rc = stg_run_create_stage(run->graph, &run->stage, err);
    if (rc == 0)
        rc = find_names(run, err);
    if (rc == 0 && run->n_targets > 0)
        rc = create_compute(run, err);
    if (rc < 0)
        return rc;
    size_t n = stg_graph_boundary(run->graph)->n;
    run->features = stg_bump_alloc(&run->bump, (n + 1) * sizeof(*run->features));
    run->fetched =
        stg_bump_alloc(&run->bump, (run->n_targets + 1) * sizeof(*run->fetched));
    return run->features != NULL && run->fetched != NULL ? 0 : fail_memory(err);
}

static int create(struct run *run, const char *file, const char *pipeline,
                  const struct text *text, struct stg_err *err)
{
    struct stg_pipeline_spec *spec;
    int rc = stg_load_pipeline(text->data, text->bytes, pipeline, &run->spec, err);
    if (rc < 0)
        return rc;
    spec = run->spec;
    rc = rewrite(run, file, err);
    if (rc == 0)
        rc = stg_dataset_infer(spec, &run->bump, &run->element, err);
    if (rc == 0 && stg_composite_staged(&run->element, spec->nodes, spec->n_nodes,
                                        &spec->bump, &spec->staged) < 0)
        rc = fail_memory(err);
    if (rc == 0)
        rc = create_executors(run, err);
    if (rc < 0)
        return rc;
    struct stg_dataset_env env = {.uid = getuid(),
                                  .gid = getgid(),
                                  .buffer_bytes = BUFFER_BYTES,
                                  .ignored_codes = spec->staged.ignored_codes};
    return stg_dataset_create(spec, &env, &run->dataset, err);
}

static void finish(struct run *run)
{
    stg_dataset_destroy(run->dataset);
    stg_run_destroy(run->compute);
    stg_resources_destroy(run->variables);
    stg_run_destroy(run->stage);
    stg_graph_destroy(run->trainer);
    stg_graph_destroy(run->graph);
    stg_vocabularies_finish(&run->vocabularies);
    if (run->spec != NULL)
        stg_pipeline_spec_destroy(run->spec);
    if (run->temporary[0] != '\0')
        unlink(run->temporary);
    stg_bump_finish(&run->bump);
}

/* ---- running ---- */

static void compare(struct run *run, struct outcome *outcome)
{
    const struct stg_test_case *test = run->test;
    size_t number = run->n_batches;
    for (size_t i = 0; number < test->n_batches && i < test->batches[number].n; i++) {
        const struct stg_attr *value = &test->batches[number].values[i];
        size_t at;
        const struct stg_tensor *got;
        if (is_feature(run, value->name, &at))
            got = &run->features[at];
        else
            got = is_target(run, value->name, &at) ? &run->fetched[at] : NULL;
        if (got != NULL)
            stg_differences_add(&outcome->differences, number, value, got,
                                test->tolerance);
    }
}

static int compute(struct run *run, const struct stg_block *block, struct stg_err *err)
{
    struct stg_key key = {.epoch = block->epoch, .index = run->n_batches};
    if (block->error.code != 0) {
        *err = block->error;
        return err->code;
    }
    int rc = stg_run_exec(run->stage, block->tensors, &key, NULL, run->features, err);
    if (rc == 0 && run->compute != NULL)
        rc = stg_run_exec(run->compute, run->features, &key, NULL, run->fetched, err);
    if (rc < 0)
        stg_block_add_place(run->dataset, block, err);
    return rc;
}

/* Returns 1 at the end of the data. */
static int run_batch(struct run *run, struct outcome *outcome, struct stg_err *err)
{
    const struct stg_staged *staged = &run->spec->staged;
    struct stg_block *block = NULL;
    int rc = stg_dataset_next(run->dataset, &block, err);
    if (rc != 0)
        return rc;
    rc = compute(run, block, err);
    if (rc == 0) {
        compare(run, outcome);
        run->n_batches++;
    }
    stg_block_unref(block);
    uint32_t bit = rc < 0 ? STG_CODE_BIT(-rc) : 0;
    if ((bit & staged->closed_codes) != 0)
        return 1;
    return (bit & staged->ignored_codes) != 0 ? 0 : rc;
}

static int run_all(struct run *run, struct outcome *outcome, struct stg_err *err)
{
    int rc = 0;
    while (rc == 0 && run->n_batches <= run->test->n_batches)
        rc = run_batch(run, outcome, err);
    if (rc < 0 || run->test->error != NULL)
        return rc < 0 ? rc : 0;
    if (run->n_batches > run->test->n_batches)
        return stg_err(err, -STAGER_OUT_OF_RANGE,
                       "the pipeline makes more than the %zu batches of the test; list "
                       "them in `batches`",
                       run->test->n_batches);
    if (run->n_batches < run->test->n_batches)
        return stg_err(err, -STAGER_OUT_OF_RANGE,
                       "the pipeline makes %zu batches; the test expects %zu",
                       run->n_batches, run->test->n_batches);
    return 0;
}

/* "DATA_LOSS" or "DATA_LOSS a part of the text". */
static bool is_expected(const char *error, const struct stg_err *err)
{
    const char *name = stg_status_name(err->code);
    size_t n = strlen(name);
    if (strncmp(error, name, n) != 0 || (error[n] != '\0' && error[n] != ' '))
        return false;
    return error[n] == '\0' || strstr(err->text, error + n + 1) != NULL;
}

static void judge(const struct stg_test_case *test, int rc, struct outcome *ret)
{
    if (rc == 0)
        ret->error.code = 0;
    if (test->error == NULL) {
        ret->passed = rc == 0 && ret->differences.n == 0 && ret->differences.n_more == 0;
    } else if (rc == 0) {
        stg_err(&ret->error, -STAGER_FAILED_PRECONDITION,
                "expected the error %s; there was none", test->error);
    } else {
        ret->passed = is_expected(test->error, &ret->error);
        if (!ret->passed)
            stg_err_prefix(&ret->error, ret->error.code, "expected the error %s; got %s",
                           test->error, stg_status_name(ret->error.code));
    }
}

static void run_test(const struct stg_test_case *test, const char *file,
                     const char *pipeline, const struct text *text, struct outcome *ret)
{
    struct run run = {.test = test};
    *ret = (struct outcome){0};
    int rc = create(&run, file, pipeline, text, &ret->error);
    if (rc == 0)
        rc = run_all(&run, ret, &ret->error);
    ret->error.code = rc;
    finish(&run);
    judge(test, rc, ret);
}

/* ---- printing ---- */

static void print_outcome(const char *file, const struct stg_test_case *test,
                          const struct outcome *o)
{
    if (o->passed) {
        printf("ok    %s\n", test->name);
        return;
    }
    printf("FAIL  %s (%s:%d)\n", test->name, file, test->line);
    if (o->error.code != 0)
        printf("      %s: %s\n", stg_status_name(o->error.code), o->error.text);
    for (size_t i = 0; i < o->differences.n; i++) {
        const struct stg_difference *d = &o->differences.all[i];
        printf("      ");
        if (test->n_batches > 1)
            printf("batch %zu, ", d->batch);
        printf("%s%s: expected %s%s, got %s\n", d->feature, d->index,
               strcmp(d->what, "shape") == 0 ? "shape " : "", d->expected, d->got);
    }
    if (o->differences.n_more > 0)
        printf("      and %zu more differences\n", o->differences.n_more);
}

static void json_outcome(struct stg_json_writer *json, const struct stg_test_case *test,
                         const struct outcome *o)
{
    stg_json_object_begin(json);
    stg_json_put_string(json, "name", test->name);
    stg_json_put_uint(json, "line", (uint64_t)test->line);
    stg_json_put_bool(json, "passed", o->passed);
    if (!o->passed && o->error.code != 0) {
        stg_json_key(json, "error");
        stg_json_object_begin(json);
        stg_json_put_string(json, "code", stg_status_name(o->error.code));
        stg_json_put_string(json, "text", o->error.text);
        stg_json_object_end(json);
    }
    stg_json_key(json, "differences");
    stg_json_array_begin(json);
    for (size_t i = 0; i < o->differences.n; i++) {
        const struct stg_difference *d = &o->differences.all[i];
        stg_json_object_begin(json);
        stg_json_put_uint(json, "batch", d->batch);
        stg_json_put_string(json, "feature", d->feature);
        stg_json_put_string(json, "what", d->what);
        stg_json_put_string(json, "index", d->index);
        stg_json_put_string(json, "expected", d->expected);
        stg_json_put_string(json, "got", d->got);
        stg_json_object_end(json);
    }
    stg_json_array_end(json);
    stg_json_put_uint(json, "n_left_out", o->differences.n_more);
    stg_json_object_end(json);
}

/* Returns how many failed. */
static size_t run_tests(const struct stg_test_cases *tests, const char *file,
                        const char *pipeline, const struct text *text,
                        struct stg_json_writer *json)
{
    size_t n_failed = 0;
    struct outcome *outcome = malloc(sizeof(*outcome));
    for (size_t i = 0; outcome != NULL && i < tests->n_tests; i++) {
        run_test(&tests->tests[i], file, pipeline, text, outcome);
        n_failed += !outcome->passed;
        if (json != NULL)
            json_outcome(json, &tests->tests[i], outcome);
        else
            print_outcome(file, &tests->tests[i], outcome);
        stg_bump_finish(&outcome->differences.bump);
    }
    if (outcome == NULL)
        n_failed = tests->n_tests;
    free(outcome);
    return n_failed;
}

static size_t run_and_print(const struct stg_test_cases *tests, const char *file,
                            const char *pipeline, const struct text *text, bool as_json)
{
    struct stg_json_writer json = {.out = stdout, .schema_version = 1};
    size_t n_failed;
    if (!as_json) {
        n_failed = run_tests(tests, file, pipeline, text, NULL);
        printf("%zu passed, %zu failed\n", tests->n_tests - n_failed, n_failed);
        return n_failed;
    }
    stg_json_object_begin(&json);
    stg_json_put_string(&json, "file", file);
    stg_json_put_string(&json, "pipeline", pipeline);
    stg_json_key(&json, "tests");
    stg_json_array_begin(&json);
    n_failed = run_tests(tests, file, pipeline, text, &json);
    stg_json_array_end(&json);
    stg_json_put_uint(&json, "passed", tests->n_tests - n_failed);
    stg_json_put_uint(&json, "failed", n_failed);
    stg_json_object_end(&json);
    putchar('\n');
    return n_failed;
}

/* The file is wrong, and no test ran. */
static int refuse(const struct stg_err *err, bool as_json)
{
    const char *code = stg_status_name(err->code);
    struct stg_json_writer json = {.out = stderr, .schema_version = 1};
    if (!as_json) {
        fprintf(stderr, "stagerctl: %s: %s\n", code, err->text);
        return 1;
    }
    stg_json_object_begin(&json);
    stg_json_key(&json, "error");
    stg_json_object_begin(&json);
    stg_json_put_string(&json, "code", code);
    stg_json_put_string(&json, "text", err->text);
    stg_json_object_end(&json);
    stg_json_object_end(&json);
    fputc('\n', stderr);
    return 1;
}

int stg_pipeline_test_run(const char *file, bool json)
{
    struct text text = {0}, pipeline = {0};
    struct stg_test_cases tests = {0};
    struct stg_err err = {0};
    char *path = NULL;
    size_t n_failed = 1;
    int rc =
        stg_text_file_read(file, STG_TEXT_MAX_BYTES, NULL, &text.data, &text.bytes, &err);
    if (rc == 0)
        rc = stg_load_tests(text.data, text.bytes, file, &tests, &err);
    if (rc == 0 && (path = beside(&tests.bump, file, tests.pipeline)) == NULL)
        rc = fail_memory(&err);
    if (rc == 0)
        rc = stg_text_file_read(path, STG_TEXT_MAX_BYTES, NULL, &pipeline.data,
                                &pipeline.bytes, &err);
    if (rc == 0)
        n_failed = run_and_print(&tests, file, path, &pipeline, json);
    else
        refuse(&err, json);
    free(text.data);
    free(pipeline.data);
    stg_bump_finish(&tests.bump);
    bool printed = fflush(stdout) == 0 && !ferror(stdout);
    return n_failed == 0 && printed ? 0 : 1;
}
