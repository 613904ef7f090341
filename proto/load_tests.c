/* SPDX-License-Identifier: Apache-2.0
 *
 * A file of tests of a pipeline.
 */
#include <string.h>

#include "proto/convert.h"
#include "proto/load.h"
#include "proto/load_read.h"

#define LOAD_MAX_BYTES (64u << 20)

static int fail(struct stg_reader *r, const Stager__PipelineTest *test, const char *what)
{
    return stg_read_fail(r, (int)test->line, (int)test->column, "test \"%s\": %s",
                         test->name, what);
}

/* One input; and what comes of it. */
static int check(struct stg_reader *r, const Stager__PipelineTest *test)
{
    int inputs = (test->input != NULL) + (test->text != NULL) + (test->file != NULL);
    int results = (test->expect != NULL) + (test->n_batches > 0) + (test->error != NULL);
    if (inputs != 1)
        return fail(r, test, "give one of input, text and file");
    if (results != 1)
        return fail(r, test, "give one of expect, batches and error");
    if (!(test->tolerance >= 0))
        return fail(r, test, "tolerance must be 0 or more");
    return 0;
}

static int batches_fill(struct stg_reader *r, const Stager__PipelineTest *from,
                        struct stg_test_case *ret)
{
    Stager__Values *const *all = from->expect != NULL ? &from->expect : from->batches;
    size_t n = from->expect != NULL ? 1 : from->n_batches;
    struct stg_test_batch *batches = stg_bump_alloc(r->bump, (n + 1) * sizeof(*batches));
    if (batches == NULL)
        return stg_read_fail_memory(r);
    for (size_t i = 0; i < n; i++) {
        int rc = stg_convert_values(all[i], r->bump, &batches[i].values, &batches[i].n,
                                    r->err);
        if (rc < 0)
            return stg_err_prefix(r->err, rc, "%s:%u", r->file, from->line);
        for (size_t k = 0; k < batches[i].n; k++) {
            if (batches[i].values[k].name[0] == '\0')
                return fail(r, from,
                            "name the features that it expects: {label: [1, 0]}");
        }
    }
    ret->batches = batches;
    ret->n_batches = n;
    return 0;
}

static int test_fill(struct stg_reader *r, const Stager__PipelineTest *from,
                     struct stg_test_case *ret)
{
    int rc = check(r, from);
    if (rc < 0)
        return rc;
    *ret = (struct stg_test_case){.name = from->name,
                                  .has_input = from->input != NULL,
                                  .text = from->text,
                                  .file = from->file,
                                  .error = from->error,
                                  .tolerance = from->tolerance,
                                  .line = (int)from->line,
                                  .column = (int)from->column};
    rc = stg_convert_values(from->input, r->bump, &ret->input, &ret->n_input, r->err);
    if (rc < 0)
        return stg_err_prefix(r->err, rc, "%s:%u", r->file, from->line);
    return batches_fill(r, from, ret);
}

static int tests_read(struct stg_reader *r, const char *text, size_t bytes,
                      struct stg_test_cases *ret)
{
    struct stg_text_node *root = NULL;
    ProtobufCMessage *message;
    int rc = stg_text_parse(text, bytes, r->file, r->bump, &root, r->err);
    if (rc < 0)
        return rc;
    if (root == NULL || stg_text_is_null(root))
        return stg_read_fail(r, 1, 1, "the text is empty; begin with \"pipeline: FILE\"");
    rc = stg_read_message(r, root, &stager__pipeline_tests__descriptor, &message);
    if (rc < 0)
        return rc;
    const Stager__PipelineTests *from = (const Stager__PipelineTests *)message;
    if (from->n_tests == 0)
        return stg_read_fail(r, root->line, root->column, "tests: missing; add a list");
    struct stg_test_case *tests = stg_bump_alloc(r->bump, from->n_tests * sizeof(*tests));
    if (tests == NULL)
        return stg_read_fail_memory(r);
    for (size_t i = 0; rc == 0 && i < from->n_tests; i++)
        rc = test_fill(r, from->tests[i], &tests[i]);
    ret->pipeline = from->pipeline;
    ret->tests = tests;
    ret->n_tests = from->n_tests;
    return rc;
}

int stg_load_tests(const char *text, size_t bytes, const char *file,
                   struct stg_test_cases *ret, struct stg_err *err)
{
    struct stg_bump bump;
    stg_bump_init(&bump, LOAD_MAX_BYTES);
    struct stg_reader r = {.file = file, .bump = &bump, .err = err};
    int rc = tests_read(&r, text, bytes, ret);
    if (rc < 0)
        stg_bump_finish(&bump);
    else
        ret->bump = bump;
    return rc;
}
