/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/daemon/dataset/step_run.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "daemon/dataset/block.h"
#include "daemon/format/arrow/metadata.h"
#include "proto/load.h"
#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"

/* Large enough never to be used up, and small enough to be counted. */
#define BUFFER_BYTES ((uint64_t)1 << 50)
/* Of the address sanitizer. A run of a row allocates less than the usual 256 MiB by far,
 * and memory that was freed long ago is not in the processor's cache. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "quarantine_size_mb=16";
}

#define MAX_BLOCKS 20000 /* a row that yields more does not end */

/* ---- lifetime ---- */

static char *fill_in(const char *text, unsigned calls)
{
    char *ret = NULL;
    size_t bytes;
    FILE *out = open_memstream(&ret, &bytes);
    for (const char *at; (at = strchr(text, '$')) != NULL;) {
        bool is_dir = strncmp(at, "$DIR", 4) == 0;
        CHECK(is_dir || strncmp(at, "$CALLS", 6) == 0);
        fprintf(out, "%.*s", (int)(at - text), text);
        if (is_dir)
            fprintf(out, "%s", stg_test_dir());
        else
            fprintf(out, "%u", calls);
        text = at + (is_dir ? 4 : 6);
    }
    fprintf(out, "%s", text);
    fclose(out);
    return ret;
}

int stg_step_run_load(struct stg_step_run *run, const struct stg_step_row *row,
                      unsigned elements, unsigned calls, struct stg_err *err)
{
    *run = (struct stg_step_run){.row = row, .buffer_bytes = BUFFER_BYTES};
    stg_test_source =
        (struct stg_test_source){.enabled = (row->flags & STG_ROW_OWN_SOURCE) == 0,
                                 .elements = elements,
                                 .n = INT64_MAX,
                                 .fail_at = -1};
    stg_log_set_level(STG_LOG_ERROR);
    stg_test_dir_in_memory();
    if (row->prepare != NULL)
        row->prepare();
    stg_bump_init(&run->bump, 0);
    char *text = fill_in(row->pipeline, calls);
    int rc = stg_load_pipeline(text, strlen(text), row->step, &run->spec, err);
    free(text);
    return rc < 0 ? rc : stg_dataset_infer(run->spec, &run->bump, &run->schema, err);
}

void stg_step_run_init(struct stg_step_run *run, const struct stg_step_row *row,
                       unsigned elements, unsigned calls)
{
    struct stg_err err = {0};
    if (stg_step_run_load(run, row, elements, calls, &err) < 0)
        FAIL("the row\n%sis refused: %s", row->pipeline, err.text);
}

void stg_step_run_finish(struct stg_step_run *run)
{
    stg_bump_finish(&run->bump);
    stg_pipeline_spec_destroy(run->spec);
}

int stg_step_run_try(struct stg_step_run *run, struct stg_err *err)
{
    struct stg_dataset_env env = stg_test_env();
    if (run->row->reset != NULL)
        run->row->reset();
    env.stopped = &run->stopped;
    env.buffer_bytes = run->buffer_bytes;
    env.notes_marks = run->notes_marks;
    env.deal = run->row->deal;
    atomic_store(&run->stopped, 0);
    int rc = stg_dataset_create(run->spec, &env, &run->dataset, err);
    if (rc == 0)
        run->quota = stg_quota_ref(run->dataset->quota);
    return rc;
}

void stg_step_run_open(struct stg_step_run *run)
{
    struct stg_err err = {0};
    if (stg_step_run_try(run, &err) < 0)
        FAIL("the row\n%sdoes not start: %s", run->row->pipeline, err.text);
}

/* Checks that the whole budget is available again: what is still counted is kept for
 * reuse. */
static void check_given_back(const struct stg_step_run *run)
{
    struct stg_err err = {0};
    if (stg_quota_take(run->quota, run->buffer_bytes, "the end of it", &err) < 0)
        FAIL("the row\n%sdoes not give all memory back: %s", run->row->pipeline,
             err.text);
    stg_quota_give(run->quota, run->buffer_bytes);
}

void stg_step_run_close(struct stg_step_run *run)
{
    stg_dataset_destroy(run->dataset);
    run->dataset = NULL;
    if (run->quota != NULL)
        check_given_back(run);
    stg_quota_unref(run->quota);
    run->quota = NULL;
}

void stg_step_run_same(const struct stg_step_run *run, const char *what, const char *got,
                       const char *want)
{
    if (strcmp(got, want) != 0)
        FAIL("the row\n%s%s:\n%s--- instead of\n%s---", run->row->pipeline, what, got,
             want);
}

/* ---- a block agrees with the schema ---- */

static void check_shape(const struct stg_block *block, const struct stg_tensor *tensor,
                        const struct stg_component *component)
{
    CHECK_INT(tensor->dtype, component->dtype);
    CHECK_INT(tensor->ndim, component->ndim + 1);
    CHECK_INT(tensor->shape[0], block->n_records);
    for (int d = 0; d < component->ndim; d++) {
        if (component->shape[d] >= 0)
            CHECK_INT(tensor->shape[d + 1], component->shape[d]);
        CHECK(tensor->shape[d + 1] >= 0);
    }
}

static void check_bytes(const struct stg_tensor *tensor)
{
    int64_t n = stg_tensor_n(tensor);
    if (tensor->dtype != STAGER_STRING) {
        CHECK_INT(tensor->data_bytes, (uint64_t)n * stg_dtype_bytes(tensor->dtype));
        return;
    }
    for (int64_t i = 0; i < n; i++)
        CHECK(0 <= tensor->begin[i] && tensor->begin[i] <= tensor->end[i] &&
              (uint64_t)tensor->end[i] <= tensor->data_bytes);
}

static void check_block(const struct stg_step_run *run, const struct stg_block *block,
                        int64_t want)
{
    if (block->error.code != 0) {
        CHECK(block->error.code < 0 && block->error.text[0] != '\0');
        CHECK_INT(block->n_records, 0);
        return;
    }
    CHECK(block->n_records >= 1 && block->n_records <= want);
    CHECK(block->n_records == 1 || block->n_rows == block->n_records);
    CHECK_INT(block->n_components, run->schema.n);
    for (uint32_t c = 0; c < block->n_components; c++) {
        check_shape(block, &block->tensors[c], &run->schema.components[c]);
        check_bytes(&block->tensors[c]);
    }
}

/* ---- as text ---- */

static void print_value(FILE *out, const struct stg_tensor *tensor, int64_t i)
{
    const char *data = tensor->data;
    unsigned bytes = stg_dtype_bytes(tensor->dtype);
    if (tensor->dtype == STAGER_STRING)
        fprintf(out, "%.*s", (int)(tensor->end[i] - tensor->begin[i]),
                data + tensor->begin[i]);
    else if (tensor->dtype == STAGER_INT64)
        fprintf(out, "%" PRId64, ((const int64_t *)tensor->data)[i]);
    else
        for (unsigned k = 0; k < bytes; k++)
            fprintf(out, "%02x", (unsigned char)data[(uint64_t)i * bytes + k]);
}

static void print_values(FILE *out, const struct stg_tensor *tensor, int dim, int64_t *at)
{
    if (dim == tensor->ndim) {
        print_value(out, tensor, (*at)++);
        return;
    }
    fprintf(out, "[");
    for (int64_t i = 0; i < tensor->shape[dim]; i++) {
        fprintf(out, "%s", i > 0 ? " " : "");
        print_values(out, tensor, dim + 1, at);
    }
    fprintf(out, "]");
}

static void print_rows(FILE *out, const struct stg_block *block, int64_t i)
{
    int64_t n = block->n_records == 1 ? block->n_rows : 1;
    fprintf(out, "  rows %" PRId64, n);
    for (int64_t k = 0; block->rows != NULL && k < n; k++)
        fprintf(out, " %" PRIu32 ":%" PRIu64 "@%" PRIu64, block->rows[i + k].file,
                block->rows[i + k].record, block->rows[i + k].offset);
    fprintf(out, "  epoch %" PRIu64 "\n", block->epoch);
}

static void print_block(FILE *out, const struct stg_block *block)
{
    if (block->error.code != 0)
        fprintf(out, "!  %s %s  epoch %" PRIu64 "\n", stg_status_name(block->error.code),
                block->error.text, block->epoch);
    for (int64_t i = 0; i < block->n_records; i++) {
        for (uint32_t c = 0; c < block->n_components; c++) {
            const struct stg_tensor *tensor = &block->tensors[c];
            int64_t n = stg_tensor_n(tensor), at = n / block->n_records * i;
            fprintf(out, "%s", c > 0 ? "  " : "");
            print_values(out, tensor, 1, &at);
        }
        print_rows(out, block, i);
    }
}

/* ---- running ---- */

int stg_step_run_item(struct stg_step_run *run, FILE *out, struct stg_position *ret)
{
    struct stg_err err = {0};
    struct stg_block *block;
    int rc = stg_dataset_next(run->dataset, &block, &err);
    if (rc < 0)
        FAIL("the row\n%sfails: %s", run->row->pipeline, err.text);
    if (rc == 1)
        return 1;
    if (ret != NULL)
        *ret = block->position;
    if (block->error.code == 0)
        stg_block_pack(block);
    check_block(run, block, 1);
    print_block(out, block);
    stg_block_unref(block);
    return 0;
}

static int one_block(struct stg_step_run *run, int64_t want, FILE *out,
                     struct stg_err *err)
{
    struct stg_iter *last = run->dataset->last;
    struct stg_block *block;
    int rc = last->impl->next(last, want, &block, err);
    if (rc != 0)
        return rc;
    check_block(run, block, want);
    if (out != NULL)
        print_block(out, block);
    stg_block_unref(block);
    return 0;
}

int stg_step_run_some(struct stg_step_run *run, int64_t want, int64_t n, FILE *out,
                      struct stg_err *err)
{
    int rc = 0;
    for (int64_t i = 0; rc == 0 && i < n; i++) {
        rc = one_block(run, want, out, err);
        if (i > MAX_BLOCKS)
            FAIL("the row\n%sdoes not end; bound it", run->row->pipeline);
    }
    return rc;
}

char *stg_step_run_rest(struct stg_step_run *run, const int64_t *wants, size_t n_wants)
{
    char *ret = NULL;
    size_t bytes;
    FILE *out = open_memstream(&ret, &bytes);
    struct stg_err err = {0};
    int rc = 0;
    for (size_t i = 0; rc == 0; i++) {
        rc = one_block(run, wants[i % n_wants], out, &err);
        if (i > MAX_BLOCKS)
            FAIL("the row\n%sdoes not end; bound it", run->row->pipeline);
    }
    if (rc < 0)
        FAIL("the row\n%sfails: %s", run->row->pipeline, err.text);
    if (one_block(run, 1, out, &err) != 1)
        FAIL("the row\n%sdoes not stay at its end", run->row->pipeline);
    fclose(out);
    return ret;
}

void stg_step_run_rewind(struct stg_step_run *run, bool afresh)
{
    struct stg_iter *last = run->dataset->last;
    struct stg_err err = {0};
    if (last->impl->rewind(last, afresh, &err) < 0)
        FAIL("the row\n%sis not rewound: %s", run->row->pipeline, err.text);
}

static void over_row(const struct stg_step_row *row, bool once, stg_step_check *check)
{
    unsigned elements = row->elements != 0 ? row->elements : STG_ELEMENTS_USUAL;
    if (row->flags & STG_ROW_OWN_SOURCE)
        elements = STG_ELEMENTS_SCALAR;
    for (unsigned one = 1; one <= elements; one *= 2) {
        if ((elements & one) == 0 || (once && 2 * one <= elements))
            continue;
        struct stg_step_run run;
        stg_step_run_init(&run, row, one, 3);
        check(&run);
        stg_step_run_finish(&run);
    }
}

/* The step arrow needs flatbuffers. */
static bool is_built(const struct stg_step_row *row)
{
    return stg_arrow_is_built || strcmp(row->step, "arrow") != 0;
}

/* any_of: of these flags a row needs one; 0: every row. */
static void over_rows(unsigned any_of, bool once, stg_step_check *check)
{
    for (size_t i = 0; i < stg_n_step_rows; i++) {
        bool is_meant = any_of == 0 || (stg_step_rows[i].flags & any_of) != 0;
        if (is_meant && is_built(&stg_step_rows[i]))
            over_row(&stg_step_rows[i], once, check);
    }
}

#if defined(__SANITIZE_THREAD__)
#define NEEDED (STG_ROW_THREADS | STG_ROW_AHEAD)
#else
#define NEEDED 0
#endif

void stg_step_over_rows(stg_step_check *check)
{
    over_rows(NEEDED, false, check);
}

void stg_step_over_rows_once(stg_step_check *check)
{
    over_rows(NEEDED, true, check);
}

void stg_step_over_all_rows(stg_step_check *check)
{
    over_rows(0, false, check);
}

/* ---- on threads ---- */

struct pulling {
    struct stg_step_run *run;
    int64_t want;
    FILE *out;
    pthread_mutex_t lock; /* guards pulling, like the lock of runners */
};

static void *pull_all(void *arg)
{
    struct pulling *pulling = arg;
    struct stg_ahead *ahead = pulling->run->dataset->ahead;
    for (int rc = 0; rc == 0;) {
        struct stg_err err = {0};
        pthread_mutex_lock(&pulling->lock);
        rc = one_block(pulling->run, pulling->want, pulling->out, &err);
        pthread_mutex_unlock(&pulling->lock);
        if (rc < 0)
            FAIL("the row\n%sfails on threads: %s", pulling->run->row->pipeline,
                 err.text);
        if (ahead != NULL)
            stg_ahead_work(ahead);
    }
    return NULL;
}

char *stg_step_run_on_threads(struct stg_step_run *run, int64_t want, unsigned n_threads)
{
    char *ret = NULL;
    size_t bytes;
    struct pulling pulling = {
        .run = run, .want = want, .lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t threads[STG_STEP_MAX_THREADS];
    CHECK(n_threads <= STG_STEP_MAX_THREADS);
    pulling.out = open_memstream(&ret, &bytes);
    stg_step_run_open(run);
    for (unsigned i = 0; i < n_threads; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, pull_all, &pulling), 0);
    for (unsigned i = 0; i < n_threads; i++)
        pthread_join(threads[i], NULL);
    stg_step_run_close(run);
    fclose(pulling.out);
    return ret;
}

char *stg_step_run_all(struct stg_step_run *run, int64_t want)
{
    stg_step_run_open(run);
    char *ret = stg_step_run_rest(run, &want, 1);
    stg_step_run_close(run);
    return ret;
}
