/* SPDX-License-Identifier: Apache-2.0
 *
 * Properties of every transformation, tested over the rows of step_rows.c. The output
 * does not depend on the number of records pulled at once, nor on the number of threads.
 * Errors stay in their places. An empty input, one element, a stop, a failure and a
 * failed allocation at any point do no harm. A rewind gives the same output again. Memory
 * does not grow over epochs.
 */
#include <dirent.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "tests/daemon/dataset/step_run.h"
#include "tests/failalloc.h"

static bool has(const struct stg_step_run *run, unsigned flag)
{
    return (run->row->flags & flag) != 0;
}

/* ---- output as text ---- */

static int count_errors(const char *text)
{
    int n = text[0] == '!';
    for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++)
        n += at[1] == '!';
    return n;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Returns the lines: all of them or only those without errors, as they are or sorted. */
static char *lines_of(const char *text, bool errors, bool sorted)
{
    char *copy = strdup(text), *save = NULL, *ret = NULL;
    size_t n = 0, bytes;
    char **lines = malloc((strlen(text) + 1) * sizeof(char *));
    for (char *at = strtok_r(copy, "\n", &save); at != NULL;
         at = strtok_r(NULL, "\n", &save))
        lines[n++] = at;
    if (sorted)
        qsort(lines, n, sizeof(char *), by_text);
    FILE *out = open_memstream(&ret, &bytes);
    for (size_t i = 0; i < n; i++) {
        if (errors || lines[i][0] != '!')
            fprintf(out, "%s\n", lines[i]);
    }
    fclose(out);
    free(lines);
    free(copy);
    return ret;
}

/* Checks for the same output: exactly, or in another order if the row allows it. */
static void check_again(const struct stg_step_run *run, const char *what, const char *got,
                        const char *want)
{
    bool sorted = has(run, STG_ROW_RESHUFFLES);
    char *a = lines_of(got, true, sorted), *b = lines_of(want, true, sorted);
    stg_step_run_same(run, what, a, b);
    free(a);
    free(b);
}

/* ---- the table ---- */

static void every_transformation_has_a_row(void)
{
    for (size_t i = 0; i < stg_n_transformations; i++) {
        const char *name = stg_transformations[i]->name;
        bool found = false;
        for (size_t k = 0; k < stg_n_step_rows; k++)
            found |= strcmp(stg_step_rows[k].step, name) == 0;
        if (!found)
            FAIL("%s has no row in step_rows.c", name);
    }
    for (size_t k = 0; k < stg_n_step_rows; k++) {
        if (stg_transformation_find(stg_step_rows[k].step) == NULL)
            FAIL("a row is for %s, which is no transformation", stg_step_rows[k].step);
    }
}

static void a_row_has_the_step_that_it_is_for(struct stg_step_run *run)
{
    if (strstr(run->row->pipeline, run->row->step) == NULL)
        FAIL("the row\n%sis without %s", run->row->pipeline, run->row->step);
}

static int count_threads(void)
{
    struct dirent *entry;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    int n = 0;
    while ((entry = readdir(tasks)) != NULL)
        n += entry->d_name[0] != '.';
    closedir(tasks);
    return n;
}

/* stg_step_over_rows goes by the flags. */
static void check_flags(struct stg_step_run *run)
{
    struct stg_err err = {0};
    int before = count_threads();
    stg_step_run_open(run);
    stg_step_run_some(run, 3, 2, NULL, &err);
    bool has_more = count_threads() > before;
    stg_step_run_close(run);
    if (has_more && !has(run, STG_ROW_THREADS) && !has(run, STG_ROW_AHEAD))
        FAIL("the row\n%shas threads, and no flag says so", run->row->pipeline);
}

static void a_row_without_a_flag_starts_no_thread(void)
{
    stg_step_over_all_rows(check_flags);
}

static void every_row_has_its_step(void)
{
    stg_step_over_all_rows(a_row_has_the_step_that_it_is_for);
}

static void a_first_step_is_a_source_or_refused(void)
{
    for (size_t i = 0; i < stg_n_transformations; i++) {
        const struct stg_step step = {.name = stg_transformations[i]->name, .line = 7};
        struct stg_bump bump;
        stg_bump_init(&bump, 0);
        struct stg_schema schema;
        struct stg_err err = {0};
        const struct stg_pipeline_spec spec = {.steps = &step, .n_steps = 1};
        int rc = stg_dataset_infer(&spec, &bump, &schema, &err);
        if (rc < 0) {
            CHECK_INT(rc, -STAGER_INVALID_ARGUMENT);
            CHECK_CONTAINS(err.text, step.name);
            CHECK_CONTAINS(err.text, "(line 7)");
        }
        stg_bump_finish(&bump);
    }
}

/* ---- sizes of pulls ---- */

static void check_wants(struct stg_step_run *run)
{
    static const int64_t wants[] = {2, 7, 100000}, mixed[] = {1, 5, 2, 3};
    char *want = stg_step_run_all(run, 1);
    for (size_t i = 0; i < sizeof(wants) / sizeof(wants[0]); i++) {
        char *got = stg_step_run_all(run, wants[i]);
        stg_step_run_same(run, "asked for more at once, gives", got, want);
        free(got);
    }
    stg_step_run_open(run);
    char *got = stg_step_run_rest(run, mixed, 4);
    stg_step_run_close(run);
    stg_step_run_same(run, "asked for 1, 5, 2, 3 in turn, gives", got, want);
    free(got);
    free(want);
}

static void what_comes_out_does_not_depend_on_how_much_is_asked_for(void)
{
    stg_step_over_rows(check_wants);
}

static void check_few(struct stg_step_run *run)
{
    for (stg_test_source.n = 0; stg_test_source.n < 3; stg_test_source.n++)
        check_wants(run);
}

static void no_element_and_one_element_are_enough(void)
{
    stg_step_over_rows(check_few);
}

static const int64_t some_errors[][STG_SOURCE_MAX_ERRORS] = {
    {0}, {3}, {INT64_MAX}, {5, 5, 6}, {0, 0, 1, 7, INT64_MAX, INT64_MAX},
};
static const int n_some_errors[] = {1, 1, 1, 3, 6};

/* ---- threads ---- */

/* TFD-D1: 1, 2 and 7 threads pull, and as many work in the step if it can have threads.
 * Every text must equal the first one: that of a single pulling thread that works ahead
 * for no other. */
static const unsigned n_threads[] = {1, 2, STG_STEP_MAX_THREADS};
#define N_THREADS (sizeof(n_threads) / sizeof(n_threads[0]))

static void check_row_on_threads(const struct stg_step_row *row, unsigned elements,
                                 int n_errors)
{
    char *want = NULL;
    for (size_t i = 0; i < N_THREADS; i++) {
        struct stg_step_run run;
        stg_step_run_init(&run, row, elements, n_threads[i]);
        stg_test_source_set_errors(some_errors[4], n_errors);
        if (want == NULL)
            want = stg_step_run_all(&run, 3);
        char *got = stg_step_run_on_threads(&run, 3, n_threads[i]);
        stg_step_run_same(&run, "pulled on threads, gives", got, want);
        stg_step_run_finish(&run);
        free(got);
    }
    free(want);
}

static void check_threads(struct stg_step_run *run)
{
    check_row_on_threads(run->row, stg_test_source.elements, 0);
    check_row_on_threads(run->row, stg_test_source.elements, n_some_errors[4]);
}

static void what_comes_out_does_not_depend_on_the_number_of_threads(void)
{
    stg_step_over_all_rows(check_threads);
}

/* ---- errors ---- */

/* Checks for the same records and all errors, as the row promises. */
static void check_with_errors(struct stg_step_run *run, int n, const char *without)
{
    char *got = stg_step_run_all(run, 3);
    int out = count_errors(got) - count_errors(without);
    if (!has(run, STG_ROW_DROPS_ERRORS) && (out < n || out % n != 0))
        FAIL("the row\n%sgives %d errors for %d:\n%s", run->row->pipeline, out, n, got);
    if (!has(run, STG_ROW_COUNTS_ERRORS)) {
        char *a = lines_of(got, false, false), *b = lines_of(without, false, false);
        stg_step_run_same(run, "gives other records where there are errors", a, b);
        free(a);
        free(b);
    }
    free(got);
}

static void check_errors(struct stg_step_run *run)
{
    if (has(run, STG_ROW_OWN_SOURCE))
        return;
    char *without = stg_step_run_all(run, 3);
    for (size_t i = 0; i < sizeof(n_some_errors) / sizeof(n_some_errors[0]); i++) {
        stg_test_source_set_errors(some_errors[i], n_some_errors[i]);
        check_wants(run);
        check_with_errors(run, n_some_errors[i], without);
        stg_test_source.n = 0;
        check_wants(run);
        stg_test_source.n = INT64_MAX;
    }
    free(without);
}

static void an_error_keeps_its_place_and_the_rest_continues(void)
{
    stg_step_over_rows(check_errors);
}

/* The first component of every record. */
static char *first_components(const char *text)
{
    char *ret = NULL;
    size_t bytes;
    FILE *out = open_memstream(&ret, &bytes);
    for (const char *at = text; *at != '\0'; at = strchr(at, '\n') + 1)
        fprintf(out, "%s%.*s", at > text ? " " : "", (int)(strstr(at, "  ") - at), at);
    fclose(out);
    return ret;
}

static void check_in_place(struct stg_step_run *run)
{
    static const int64_t errors[] = {2, INT64_MAX};
    if (run->row->in_place == NULL || stg_test_source.elements != STG_ELEMENTS_SCALAR)
        return;
    stg_test_source.n = 8;
    stg_test_source_set_errors(errors, 2);
    char *text = stg_step_run_all(run, 3), *got = first_components(text);
    stg_step_run_same(run, "with an error before record 2 and at its end, gives", got,
                      run->row->in_place);
    free(got);
    free(text);
}

/* TFD-E2 */
static void errors_stand_where_they_stand_in_tf_data(void)
{
    stg_step_over_rows(check_in_place);
}

static void check_failure(struct stg_step_run *run)
{
    if (has(run, STG_ROW_OWN_SOURCE))
        return;
    for (int64_t at = 0; at < 6; at++) {
        stg_test_source.fail_at = at;
        for (int64_t want = 1; want < 100; want += 7) {
            struct stg_err err = {0};
            stg_step_run_open(run);
            int rc = stg_step_run_some(run, want, INT64_MAX, NULL, &err);
            if (rc != 1 && rc != -STAGER_DATA_LOSS)
                FAIL("the row\n%sturns a failure into %d", run->row->pipeline, rc);
            if (rc < 0)
                CHECK_CONTAINS(err.text, "the source failed");
            stg_step_run_close(run);
        }
    }
    stg_test_source.fail_at = -1;
}

static void a_failure_of_the_source_comes_through(void)
{
    stg_step_over_rows(check_failure);
}

/* ---- a stop ---- */

/* After a stop behind n blocks, the dataset first yields what it holds, then reports the
 * stop. Returns whether it reached n. */
static bool check_stop_after(struct stg_step_run *run, int64_t n, int64_t want)
{
    struct stg_err err = {0};
    stg_step_run_open(run);
    int rc = stg_step_run_some(run, want, n, NULL, &err);
    bool reached = rc == 0;
    if (reached) {
        atomic_store(&run->stopped, 1);
        rc = stg_step_run_some(run, want, n == 0 ? 1 : INT64_MAX, NULL, &err);
        if (rc != 1 && rc != -STAGER_CANCELLED)
            FAIL("the row\n%sstopped after %" PRId64 " blocks, gives %d",
                 run->row->pipeline, n, rc);
    }
    stg_step_run_close(run);
    return reached;
}

static void check_stop(struct stg_step_run *run)
{
    static const int64_t wants[] = {1, 3, 9};
    for (size_t i = 0; i < 3; i++) {
        for (int64_t n = 0; check_stop_after(run, n, wants[i]);)
            n++;
    }
}

static void check_stop_of_errors(struct stg_step_run *run)
{
    stg_test_source_set_errors(some_errors[4], n_some_errors[4]);
    check_stop(run);
}

/* TFD-M2 */
static void a_stop_after_any_block_cancels(void)
{
    stg_step_over_rows(check_stop);
    stg_step_over_rows_once(check_stop_of_errors);
}

/* ---- rewind ---- */

/* Rewound after n blocks, and at the end, the dataset yields the same output as before;
 * rewound afresh, also in the same order. */
static bool check_rewind_after(struct stg_step_run *run, int64_t n, int64_t want,
                               const char *all)
{
    struct stg_err err = {0};
    stg_step_run_open(run);
    int rc = stg_step_run_some(run, want, n, NULL, &err);
    for (int i = 0; i < (n % 4 == 0 ? 2 : 1); i++) {
        stg_step_run_rewind(run, false);
        char *got = stg_step_run_rest(run, &want, 1);
        check_again(run, "rewound, gives", got, all);
        free(got);
    }
    stg_step_run_rewind(run, true);
    char *got = stg_step_run_rest(run, &want, 1);
    stg_step_run_same(run, "rewound afresh, gives", got, all);
    free(got);
    stg_step_run_close(run);
    return rc == 0;
}

static void check_rewind(struct stg_step_run *run)
{
    static const int64_t wants[] = {1, 3, 100000};
    char *all = stg_step_run_all(run, 1);
    for (size_t i = 0; i < 3; i++) {
        for (int64_t n = 0; check_rewind_after(run, n, wants[i], all);)
            n++;
    }
    free(all);
}

static void check_rewind_of_errors(struct stg_step_run *run)
{
    stg_test_source_set_errors(some_errors[4], n_some_errors[4]);
    check_rewind(run);
}

static void a_rewind_after_any_block_gives_the_same_again(void)
{
    stg_step_over_rows(check_rewind);
    stg_step_over_rows_once(check_rewind_of_errors);
}

/* ---- memory ---- */

static int attempt(void *owner)
{
    struct stg_step_run *run = owner;
    struct stg_err err = {0};
    int rc = stg_step_run_try(run, &err);
    if (rc == 0)
        rc = stg_step_run_some(run, 3, INT64_MAX, NULL, &err);
    if (rc == 1) {
        struct stg_iter *last = run->dataset->last;
        rc = last->impl->rewind(last, false, &err);
        if (rc == 0)
            rc = stg_step_run_some(run, 3, INT64_MAX, NULL, &err);
    }
    if (rc < 0)
        CHECK(err.code == rc && err.text[0] != '\0');
    stg_step_run_close(run);
    return rc == 1 ? 0 : rc;
}

static int infer(void *owner)
{
    struct stg_step_run *run = owner;
    struct stg_bump bump;
    stg_bump_init(&bump, 0);
    struct stg_schema schema;
    int rc = stg_dataset_infer(run->spec, &bump, &schema, NULL);
    stg_bump_finish(&bump);
    return rc;
}

static void check_allocations(struct stg_step_run *run)
{
    stg_test_source_set_errors(some_errors[4], n_some_errors[4]);
    if (has(run, STG_ROW_THREADS))
        stg_failalloc_each_of_threads(attempt, run);
    else
        stg_failalloc_each(attempt, run);
    stg_failalloc_each(infer, run);
}

static void any_allocation_may_fail(void)
{
    stg_step_over_rows_once(check_allocations);
}

#ifdef STG_SANITIZED
#define EPOCHS                                                                           \
    150 /* a sanitizer has its own malloc, and other builds run all of them              \
         */
#else
#define EPOCHS 1000
#endif
#define WARM 50

/* The largest counted size in each epoch, and the malloc'ed size after it. */
static void check_memory(struct stg_step_run *run)
{
    uint64_t most[2] = {0, 0};
    size_t given[2] = {0, 0};
    struct stg_err err = {0};
    stg_test_source.n = 10; /* more than a window or a batch of a row */
    stg_step_run_open(run);
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        int rc;
        uint64_t *peak = &most[epoch >= WARM];
        while ((rc = stg_step_run_some(run, 7, 1, NULL, &err)) == 0) {
            uint64_t used = stg_quota_used(run->quota);
            *peak = used > *peak ? used : *peak;
        }
        CHECK_INT(rc, 1);
        stg_step_run_rewind(run, false);
        given[epoch >= WARM] = mallinfo2().uordblks;
    }
    stg_step_run_close(run);
    if (most[1] > most[0] + 65536 || given[1] > given[0] + 65536)
        FAIL("the row\n%sgrows from %" PRIu64 " to %" PRIu64 " bytes counted, from %zu "
             "to %zu bytes of malloc",
             run->row->pipeline, most[0], most[1], given[0], given[1]);
}

/* TFD-M3 */
static void memory_does_not_grow_over_a_thousand_epochs(void)
{
    stg_step_over_rows_once(check_memory);
}

static const struct stg_test tests[] = {
    TEST(every_transformation_has_a_row),
    TEST(every_row_has_its_step),
    TEST(a_row_without_a_flag_starts_no_thread),
    TEST(a_first_step_is_a_source_or_refused),
    TEST(what_comes_out_does_not_depend_on_how_much_is_asked_for),
    TEST_SLOW(what_comes_out_does_not_depend_on_the_number_of_threads, 180),
    TEST(no_element_and_one_element_are_enough),
    TEST(an_error_keeps_its_place_and_the_rest_continues),
    TEST(errors_stand_where_they_stand_in_tf_data),
    TEST(a_failure_of_the_source_comes_through),
    TEST_SLOW(a_stop_after_any_block_cancels, 180),
    TEST_SLOW(a_rewind_after_any_block_gives_the_same_again, 120),
    TEST_SLOW(any_allocation_may_fail, 180),
    TEST_SLOW(memory_does_not_grow_over_a_thousand_epochs, 180),
};

TEST_MAIN(tests)
