/* SPDX-License-Identifier: Apache-2.0
 *
 * A position is exact, for every transformation: from each one, what follows is bit for
 * bit what follows in a run that is not interrupted, with its epochs, rows and errors.
 * STG_POSITION_LONG=1: every position, and more pipelines drawn at random.
 */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/random.h"
#include "daemon/index/index.h"
#include "daemon/index/trail.h"
#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"
#include "tests/daemon/dataset/step_run.h"
#include "tests/failalloc.h"

#define MAX_RECORDS 20000

static bool is_long(void)
{
    return getenv("STG_POSITION_LONG") != NULL;
}

/* ---- an uninterrupted run ---- */

struct whole {
    char *text;
    size_t *at; /* where each record begins in it, and where the last one ends */
    uint64_t n, size;
    bool is_clean;                  /* no step has met an error */
    char *again;                    /* after a rewind */
    struct stg_position *positions; /* of items: after each, and at the start */
};

static void whole_init(struct whole *whole)
{
    *whole = (struct whole){.at = calloc(1, sizeof(size_t)),
                            .positions = calloc(1, sizeof(struct stg_position)),
                            .size = 1};
    CHECK(whole->at != NULL && whole->positions != NULL);
}

static void whole_finish(struct whole *whole)
{
    free(whole->text);
    free(whole->at);
    free(whole->again);
    free(whole->positions);
}

/* Notes where a record ends, and its position. */
static void add(struct whole *whole, FILE *out, const struct stg_position *position)
{
    fflush(out);
    CHECK(whole->n < MAX_RECORDS);
    if (++whole->n == whole->size) {
        whole->size *= 2;
        whole->at = realloc(whole->at, whole->size * sizeof(size_t));
        whole->positions =
            realloc(whole->positions, whole->size * sizeof(struct stg_position));
        CHECK(whole->at != NULL && whole->positions != NULL);
    }
    whole->at[whole->n] = (size_t)ftell(out);
    whole->positions[whole->n] = *position;
}

/* By record. */
static void read_records(struct stg_step_run *run, struct whole *ret)
{
    static const int64_t one = 1;
    static const struct stg_position none;
    struct stg_err err = {0};
    size_t bytes;
    int rc;
    whole_init(ret);
    stg_step_run_open(run);
    FILE *out = open_memstream(&ret->text, &bytes);
    while ((rc = stg_step_run_some(run, 1, 1, out, &err)) == 0)
        add(ret, out, &none);
    fclose(out);
    if (rc < 0)
        FAIL("the row\n%sfails: %s", run->row->pipeline, err.text);
    ret->is_clean = run->dataset->errors_from == 0 && strchr(ret->text, '!') == NULL;
    stg_step_run_rewind(run, false);
    ret->again = stg_step_run_rest(run, &one, 1);
    stg_step_run_close(run);
}

/* By item, with the positions. */
static void read_items(struct stg_step_run *run, struct whole *ret)
{
    struct stg_position position;
    size_t bytes;
    whole_init(ret);
    stg_step_run_open(run);
    FILE *out = open_memstream(&ret->text, &bytes);
    while (stg_step_run_item(run, out, &position) == 0)
        add(ret, out, &position);
    fclose(out);
    stg_step_run_close(run);
}

/* About seven places of 0 to n; all of them in a long run. */
static uint64_t after(uint64_t k, uint64_t n)
{
    uint64_t step = is_long() || n < 8 ? 1 : n / 6;
    return k < n && k + step > n ? n : k + step;
}

/* ---- skip ---- */

static uint64_t skip(struct stg_step_run *run, uint64_t n, bool is_clean)
{
    struct stg_err err = {0};
    uint64_t ret = 0;
    run->dataset->clean_below = is_clean ? UINT32_MAX : 0;
    int rc = stg_iter_skip(run->dataset->last, n, &ret, &err);
    run->dataset->clean_below = 0;
    if (rc < 0)
        FAIL("the row\n%scannot skip %" PRIu64 " records: %s", run->row->pipeline, n,
             err.text);
    return ret;
}

/* What follows after `at` records, when it is asked for by that many. */
static void check_rest(struct stg_step_run *run, const struct whole *whole, uint64_t at,
                       int64_t want)
{
    char what[80], *got = stg_step_run_rest(run, &want, 1);
    snprintf(what, sizeof(what), "moved to record %" PRIu64 ", gives", at);
    stg_step_run_same(run, what, got, whole->text + whole->at[at]);
    free(got);
}

/* An iteration that a step cuts short (zip, take) begins more or fewer repeats inside it,
 * by how much is asked for at once: that many as in the uninterrupted run. */
static void check_again(struct stg_step_run *run, const struct whole *whole)
{
    static const int64_t one = 1;
    stg_step_run_rewind(run, false);
    char *got = stg_step_run_rest(run, &one, 1);
    stg_step_run_same(run, "rewound after a skip, gives", got, whole->again);
    free(got);
}

static void check_skip_to(struct stg_step_run *run, const struct whole *whole, uint64_t k,
                          bool is_clean)
{
    static const int64_t wants[] = {1, 3, 100000};
    int64_t want = wants[k % 3];
    stg_step_run_open(run);
    CHECK_INT(skip(run, k, is_clean), k);
    check_rest(run, whole, k, want);
    if (want == 1)
        check_again(run, whole);
    stg_step_run_close(run);
}

static void check_skip_past_end(struct stg_step_run *run, const struct whole *whole,
                                uint64_t n, bool is_clean)
{
    struct stg_err err = {0};
    stg_step_run_open(run);
    CHECK_INT(skip(run, whole->n + n, is_clean), whole->n);
    CHECK_INT(stg_step_run_some(run, 3, 1, NULL, &err), 1);
    stg_step_run_close(run);
}

/* From where some were pulled. */
static void check_skip_from(struct stg_step_run *run, const struct whole *whole,
                            uint64_t k, bool is_clean)
{
    struct stg_err err = {0};
    uint64_t got = 0, n = whole->n - k < 4 ? whole->n - k : 1 + k % 4;
    stg_step_run_open(run);
    while (got < k) {
        struct stg_block *block;
        CHECK_INT(stg_iter_next(run->dataset->last, (int64_t)(k - got), &block, &err), 0);
        got += block->error.code != 0 ? 1 : (uint64_t)block->n_records;
        stg_block_unref(block);
    }
    CHECK_INT(skip(run, n, is_clean), n);
    check_rest(run, whole, k + n, 2);
    stg_step_run_close(run);
}

static void check_skips(struct stg_step_run *run)
{
    struct whole whole;
    read_records(run, &whole);
    for (int is_clean = 0; is_clean <= whole.is_clean; is_clean++) {
        for (uint64_t k = 0; k <= whole.n; k = after(k, whole.n)) {
            check_skip_to(run, &whole, k, is_clean);
            check_skip_from(run, &whole, k, is_clean);
        }
        check_skip_past_end(run, &whole, 1, is_clean);
        check_skip_past_end(run, &whole, whole.n + 1, is_clean);
    }
    whole_finish(&whole);
}

/* ---- seek ---- */

static void check_seek_to(struct stg_step_run *run, const struct whole *whole, uint64_t k)
{
    struct stg_position position, end = whole->positions[whole->n];
    struct stg_err err = {0};
    char what[80], *text = NULL;
    size_t bytes;
    stg_step_run_open(run);
    CHECK_OK(stg_dataset_seek(run->dataset, &whole->positions[k], &err), err);
    FILE *out = open_memstream(&text, &bytes);
    position = whole->positions[k];
    while (stg_step_run_item(run, out, &position) == 0)
        ;
    fclose(out);
    snprintf(what, sizeof(what), "moved to item %" PRIu64 ", gives", k);
    stg_step_run_same(run, what, text, whole->text + whole->at[k]);
    CHECK_INT(position.items, end.items);
    CHECK_INT(position.elements, end.elements);
    CHECK_INT(position.passed, end.passed);
    /* What a step pulls ahead may hold an error that is in no item. */
    if (strchr(text, '!') != NULL)
        CHECK(position.errors > 0);
    stg_step_run_close(run);
    free(text);
}

static void check_seek_past_end(struct stg_step_run *run, const struct whole *whole)
{
    struct stg_position position = whole->positions[whole->n];
    struct stg_err err = {0};
    position.items += 3;
    position.elements += 1000;
    position.errors = 1; /* those at the end */
    stg_step_run_open(run);
    CHECK_INT(stg_dataset_seek(run->dataset, &position, &err), -STAGER_OUT_OF_RANGE);
    CHECK_CONTAINS(err.text, "of the pass, which has");
    struct stg_block *block;
    CHECK_INT(stg_dataset_next(run->dataset, &block, &err), -STAGER_OUT_OF_RANGE);
    stg_step_run_close(run);
}

static void check_seeks(struct stg_step_run *run)
{
    struct whole whole;
    read_items(run, &whole);
    for (uint64_t k = 0; k <= whole.n; k = after(k, whole.n))
        check_seek_to(run, &whole, k);
    check_seek_past_end(run, &whole);
    whole_finish(&whole);
}

/* ---- rows ---- */

static const int64_t some_errors[][STG_SOURCE_MAX_ERRORS] = {
    {3}, {5, 5, 6}, {0, 0, 1, 7, INT64_MAX, INT64_MAX}};
static const int n_some_errors[] = {1, 3, 6};

/* With some errors; also where the source cannot skip. */
static void vary(struct stg_step_run *run, stg_step_check *check)
{
    if (run->row->flags & STG_ROW_OWN_SOURCE)
        return;
    stg_test_source.cannot_skip = true;
    check(run);
    for (int i = 0; i < 3; i++) {
        stg_test_source_set_errors(some_errors[i], n_some_errors[i]);
        stg_test_source.cannot_skip = i == 1;
        check(run);
    }
    stg_test_source_set_errors(NULL, 0);
    stg_test_source.cannot_skip = false;
    for (stg_test_source.n = 0; stg_test_source.n < 2; stg_test_source.n++)
        check(run);
}

static void vary_skips(struct stg_step_run *run)
{
    vary(run, check_skips);
}

static void vary_seeks(struct stg_step_run *run)
{
    vary(run, check_seeks);
}

/* TFD-K1 to K5 */
static void after_a_skip_the_rest_is_that_of_an_uninterrupted_run(void)
{
    stg_step_over_rows(check_skips);
    stg_step_over_rows_once(vary_skips);
}

/* TFD-K1 to K4, K7 */
static void from_the_position_of_each_item_the_rest_follows(void)
{
    stg_step_over_rows(check_seeks);
    stg_step_over_rows_once(vary_seeks);
}

/* ---- marks ---- */

#define TWO_OF_THREE                                                                     \
    "filter: {graph: {three: {op: constant, value: 3, dtype: int64}, two: {op: "         \
    "constant, value: 2, dtype: int64}, rest: {op: floormod, input: [value, three]}, "   \
    "is: {op: less, input: [rest, two]}}, predicate: is}"

static const char *marks_folder;

/* The row notes marks from now on, in a folder of its own. */
static void begin_marks(struct stg_step_run *run, uint64_t spacing)
{
    static unsigned n;
    struct stg_err err = {0};
    char name[32];
    snprintf(name, sizeof(name), "marks%u", n++);
    marks_folder = stg_test_path(name);
    stg_trail_set_spacing(spacing);
    CHECK_OK(stg_index_configure(marks_folder, 1u << 30, &err), err);
    run->notes_marks = true;
}

static void end_marks(struct stg_step_run *run)
{
    run->notes_marks = false;
    stg_index_finish();
    stg_trail_set_spacing(STG_TRAIL_SPACING);
}

/* The first run of each check notes the marks that the others use. */
static void check_with_marks(struct stg_step_run *run)
{
    begin_marks(run, 1);
    check_seeks(run);
    end_marks(run);
    begin_marks(run, 3);
    check_skips(run);
    end_marks(run);
}

static bool has_marks(const char *pipeline)
{
    static const char *const steps[] = {"filter:", "batch", "bucket_by",     "shuffle",
                                        "take:",   "skip:", "ignore_errors", "shard:"};
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        if (strstr(pipeline, steps[i]) != NULL)
            return true;
    }
    return false;
}

static void check_row_with_marks(struct stg_step_run *run)
{
    if (has_marks(run->row->pipeline))
        check_with_marks(run);
}

static void vary_marks(struct stg_step_run *run)
{
    vary(run, check_row_with_marks);
}

/* The last mark before a record that follows dropped ones may be behind an error that the
 * position does not have. */
static void check_marks_behind_errors(void)
{
    static const struct stg_step_row row = {
        .step = "filter", .pipeline = STG_AFTER_SOURCE("ignore_errors\n- " TWO_OF_THREE)};
    struct stg_step_run run;
    stg_step_run_init(&run, &row, STG_ELEMENTS_SCALAR, 1);
    vary_marks(&run);
    stg_step_run_finish(&run);
}

static void with_the_marks_of_another_run_the_rest_follows_too(void)
{
    check_marks_behind_errors();
    stg_step_over_rows_once(check_row_with_marks);
    stg_step_over_rows_once(vary_marks);
}

/* A row of many elements, with lists. */
static void init_marked(struct stg_step_run *run, const struct stg_step_row *row)
{
    stg_step_run_init(run, row, STG_ELEMENTS_VARIED, 1);
    begin_marks(run, 200);
}

/* The end of a pass is not reached, nor is the dataset destroyed. */
static void note_and_die(struct stg_step_run *run, uint64_t n)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct stg_err err;
        struct stg_block *block;
        stg_step_run_open(run);
        for (uint64_t i = 0; i < n; i++) {
            CHECK_OK(stg_dataset_next(run->dataset, &block, &err), err);
            stg_block_unref(block);
        }
        _exit(0);
    }
    int status;
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* n items without marks, from the start. Sets *ret_at to where the last of them begins,
 * and *ret to the position before it. */
static char *read_some(struct stg_step_run *run, uint64_t n, size_t *ret_at,
                       struct stg_position *ret)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    run->notes_marks = false;
    stg_step_run_open(run);
    for (uint64_t i = 0; i < n; i++) {
        fflush(out);
        *ret_at = (size_t)ftell(out);
        CHECK_INT(stg_step_run_item(run, out, i + 2 == n ? ret : NULL), 0);
    }
    stg_step_run_close(run);
    fclose(out);
    run->notes_marks = true;
    return text;
}

/* The item behind a position, as text. *err: why there is none. */
static char *read_at(struct stg_step_run *run, const struct stg_position *position,
                     struct stg_err *err)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    stg_test_source.n_made = 0;
    stg_step_run_open(run);
    if (stg_dataset_seek(run->dataset, position, err) == 0)
        CHECK_INT(stg_step_run_item(run, out, NULL), 0);
    stg_step_run_close(run);
    fclose(out);
    return text;
}

/* After a daemon that died behind item n, item n comes after n_made records at most. */
static void check_killed(const char *pipeline, bool has_errors, uint64_t n,
                         int64_t n_made)
{
    static const int64_t errors[] = {300, 301, 301, 3000, 9000, 9001, 15000};
    const struct stg_step_row row = {.step = "range", .pipeline = pipeline};
    struct stg_position position;
    struct stg_err err = {0};
    struct stg_step_run run;
    size_t at = 0;
    init_marked(&run, &row);
    stg_test_source_set_errors(errors, has_errors ? 7 : 0);
    note_and_die(&run, n + 10);
    char *all = read_some(&run, n, &at, &position);
    char *got = read_at(&run, &position, &err);
    CHECK_INT(err.code, 0);
    stg_step_run_same(&run, "after a crash, gives", got, all + at);
    if (stg_test_source.n_made > n_made)
        FAIL("the pipeline\n%shas produced %d records, more than %d", pipeline,
             (int)stg_test_source.n_made, (int)n_made);
    free(all);
    free(got);
    end_marks(&run);
    stg_step_run_finish(&run);
}

#define ADD_MAP "map: {output: [value, text]}"
#define LISTS "dataset:\n- range: {stop: 20000}\n- "
#define BUCKETS                                                                          \
    LISTS "bucket_by_sequence_length: {element_length: list, bucket_boundaries: [1, "    \
          "3], bucket_batch_sizes: [5, 40, 9]}\n"

static void marks_survive_the_daemon_and_replace_what_lies_before(void)
{
    for (int has_errors = 0; has_errors < 2; has_errors++) {
        check_killed(LISTS TWO_OF_THREE "\n", has_errors, 10000, 1500);
        check_killed(LISTS TWO_OF_THREE "\n- " ADD_MAP "\n- batch: {batch_size: 10}\n",
                     has_errors, 1000, 1500);
        check_killed(LISTS TWO_OF_THREE "\n- " TWO_OF_THREE "\n- repeat: {count: 3}\n",
                     has_errors, 25000, 2500);
        check_killed(LISTS TWO_OF_THREE "\n- prefetch: {buffer_size: 2}\n"
                                        "- batch: {batch_size: 10}\n",
                     has_errors, 1000, 1500);
        check_killed(LISTS "map: {output: [list]}\n- unbatch\n", has_errors, 20000, 1500);
        check_killed(LISTS "map: {output: [list]}\n- rebatch: {batch_size: 7}\n",
                     has_errors, 3000, 1500);
        check_killed(BUCKETS, has_errors, 900, 1500);
    }
}

static void a_shuffle_goes_on_behind_marks_and_behind_errors(void)
{
    SKIP_WITHOUT_THREADS();
    check_killed(LISTS TWO_OF_THREE "\n- shuffle: {buffer_size: 50}\n", false, 10000,
                 6000);
    check_killed(LISTS TWO_OF_THREE "\n- shuffle: {buffer_size: 50}\n"
                                    "- repeat: {count: 3}\n",
                 false, 36000, 8000);
    check_killed(LISTS "shuffle: {buffer_size: 50}\n", true, 10000, 1500);
    check_killed(LISTS "shuffle: {buffer_size: 50}\n- repeat: {count: 3}\n", true, 50000,
                 1500);
    check_killed(LISTS "shuffle_and_repeat: {buffer_size: 700, count: 2}\n- " ADD_MAP
                       "\n- batch: {batch_size: 10}\n",
                 true, 3000, 6000);
    check_killed(LISTS TWO_OF_THREE "\n- shuffle: {buffer_size: 50}\n", true, 10000,
                 3000);
}

/* ---- errors ---- */

#define TWO(a, b, merge)                                                                 \
    "datasets:\n  a: [range: {stop: 20000}" a "]\n  b: [range: {stop: 20000}" b "]\n"    \
    "dataset: [" merge "]\n"
#define CHOICES                                                                          \
    "datasets:\n  a: [range: {stop: 20000}]\n  b: [range: {stop: 20000}]\n"              \
    "  c: [range: {stop: 20000}, map: {graph: {n: {op: constant, value: 3, dtype: "      \
    "int64}, rest: {op: floormod, input: [value, n]}}, output: rest}]\n"

/* For each step: what a daemon that dies right behind an item, also an error, leaves to
 * be produced for the next one. */
static const struct {
    const char *pipeline;
    uint64_t n; /* items that are handed out */
    int64_t n_made;
} behind_errors[] = {
    {LISTS "take: {count: 19000}\n", 9005, 5},
    {LISTS "take: {count: 19000}\n", 8500, 210},
    {LISTS "take: {count: 12000}\n- repeat: {count: 3}\n", 21012, 410},
    {LISTS "skip: {count: 2000}\n", 7004, 110},
    {LISTS "skip: {count: 9500}\n- skip: {count: 100}\n", 7, 610},
    {LISTS "shard: {num_shards: 3, index: 1}\n", 3006, 15},
    {LISTS "shard: {num_shards: 3, index: 1}\n", 2500, 210},
    {LISTS "enumerate\n- shard: {num_shards: 2, index: 1}\n- take: {count: 7000}\n", 4506,
     10},
    {LISTS "ignore_errors\n", 9001, 10},
    {LISTS "ignore_errors\n- batch: {batch_size: 10}\n", 901, 70},
    {LISTS "batch: {batch_size: 10}\n- take: {count: 1900}\n", 907, 70},
    {LISTS "batch: {batch_size: 10}\n- repeat: {count: 2}\n- repeat: {count: 2}\n", 906,
     70},
    {LISTS "repeat: {count: 2}\n- batch: {batch_size: 7}\n- repeat: {count: 2}\n", 1291,
     60},
    {LISTS "repeat: {count: 2}\n- take: {count: 30000}\n- repeat: {count: 2}\n", 9005, 5},
    {LISTS "repeat: {count: 2}\n- take: {count: 30000}\n- repeat: {count: 2}\n", 59018,
     410},
    {LISTS "batch: {batch_size: 10}\n", 904, 10},
    {TWO("", "", "zip: {from: [a, b]}"), 9004, 2},
    {TWO("", ", skip: {count: 10}", "zip: {from: [a, b]}, repeat: {count: 2}"), 9004, 15},
    {TWO("", ", skip: {count: 10}", "zip: {from: [a, b]}, repeat: {count: 2}"), 29004,
     30},
    {TWO("", "", "concatenate: {from: [a, b]}"), 29011, 1},
    {TWO(", take: {count: 12000}", "", "concatenate: {from: [a, b]}"), 9005, 5},
    {TWO("", "", "sample_from_datasets: {from: [a, b]}"), 18000, 1},
    {CHOICES "dataset: [choose_from_datasets: {from: [a, b], choice_dataset: c}]\n",
     12000, 12600},
};

static void check_behind_error(const char *pipeline, uint64_t n, int64_t n_made)
{
    static const int64_t errors[] = {300, 301, 301, 3000, 9000, 9001, 9001, 15000};
    const struct stg_step_row row = {.step = "range", .pipeline = pipeline};
    struct stg_position position;
    struct stg_err err = {0};
    struct stg_step_run run;
    size_t at = 0;
    init_marked(&run, &row);
    stg_test_source_set_errors(errors, 8);
    char *all = read_some(&run, n, &at, &position);
    note_and_die(&run, n - 1);
    char *got = read_at(&run, &position, &err);
    CHECK_INT(err.code, 0);
    stg_step_run_same(&run, "behind errors, gives", got, all + at);
    if (stg_test_source.n_made > n_made)
        FAIL("the pipeline\n%shas produced %d records for item %d, more than %d",
             pipeline, (int)stg_test_source.n_made, (int)n, (int)n_made);
    free(all);
    free(got);
    end_marks(&run);
    stg_step_run_finish(&run);
}

static void behind_errors_what_lies_before_is_not_produced(void)
{
    SKIP_WITHOUT_THREADS();
    for (size_t i = 0; i < sizeof(behind_errors) / sizeof(behind_errors[0]); i++) {
        for (uint64_t n = 0; n < 7; n++)
            check_behind_error(behind_errors[i].pipeline, behind_errors[i].n + n,
                               behind_errors[i].n_made);
    }
}

/* ---- marks that do not fit ---- */

/* The only file of the folder: of a pipeline with one marked step. */
static const char *path_of_trail(void)
{
    static char path[5000];
    DIR *dir = opendir(marks_folder);
    int n = 0;
    CHECK(dir != NULL);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%s/%s", marks_folder, entry->d_name);
        n++;
    }
    closedir(dir);
    CHECK_INT(n, 1);
    return path;
}

static size_t read_trail(char *buf, size_t bytes)
{
    FILE *file = fopen(path_of_trail(), "re");
    CHECK(file != NULL);
    size_t n = fread(buf, 1, bytes, file);
    CHECK(n < bytes);
    fclose(file);
    return n;
}

static void write_trail(const char *path, const char *buf, size_t bytes)
{
    FILE *file = fopen(path, "we");
    CHECK(file != NULL && fwrite(buf, 1, bytes, file) == bytes && fclose(file) == 0);
}

/* A flipped byte, or a cut, costs time and no record. */
static void damaged_marks_are_not_used(void)
{
    const struct stg_step_row row = {.step = "range", .pipeline = BUCKETS};
    struct stg_position position;
    struct stg_step_run run;
    char marks[65536], path[5000];
    size_t begin = 0;
    init_marked(&run, &row);
    note_and_die(&run, 300);
    size_t n = read_trail(marks, sizeof(marks));
    snprintf(path, sizeof(path), "%s", path_of_trail());
    CHECK(n > 2000);
    char *all = read_some(&run, 290, &begin, &position);
    for (size_t at = 0; at < 2000; at += is_long() ? 1 : 97) {
        struct stg_err err = {0};
        marks[at] ^= 0x10;
        write_trail(path, marks, at % 2 == 0 ? n : at);
        marks[at] ^= 0x10;
        char *got = read_at(&run, &position, &err);
        CHECK_INT(err.code, 0);
        stg_step_run_same(&run, "with damaged marks, gives", got, all + begin);
        free(got);
    }
    free(all);
    end_marks(&run);
    stg_step_run_finish(&run);
}

/* Replaces the marks by one that has valid sums, and checks that it is found out. */
static void check_hostile(const char *pipeline, bool has_errors, uint64_t n,
                          struct stg_mark *parts, size_t n_parts, const char *what)
{
    static const int64_t errors[] = {300};
    const struct stg_step_row row = {.step = "range", .pipeline = pipeline};
    struct stg_trail_key key;
    struct stg_position position;
    struct stg_err err = {0};
    struct stg_step_run run;
    char marks[65536], path[5000];
    size_t begin = 0;
    init_marked(&run, &row);
    stg_test_source_set_errors(errors, has_errors);
    note_and_die(&run, n + 10);
    read_trail(marks, sizeof(marks));
    memcpy(&key, marks + 16, sizeof(key));
    snprintf(path, sizeof(path), "%s", path_of_trail());
    CHECK(unlink(path) == 0);
    struct stg_trail *trail = stg_trail_open(&key);
    stg_trail_add(trail, parts, n_parts);
    stg_trail_close(trail);
    CHECK_STR(path_of_trail(), path);
    char *all = read_some(&run, n, &begin, &position);
    free(read_at(&run, &position, &err));
    CHECK_INT(err.code, -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(err.text, what);
    CHECK_CONTAINS(err.text, "the marks of the step are deleted");
    err.code = 0;
    char *got = read_at(&run, &position, &err); /* without them */
    CHECK_INT(err.code, 0);
    stg_step_run_same(&run, "without hostile marks, gives", got, all + begin);
    free(all);
    free(got);
    end_marks(&run);
    stg_step_run_finish(&run);
}

static void marks_with_wrong_numbers_are_found_out(void)
{
    static const char filter[] = LISTS TWO_OF_THREE "\n";
    struct stg_mark mark = {.n_out = 100, .n_in = 151, .value = 1};
    check_hostile(filter, false, 1500, &mark, 1, "another record follows");
    mark.n_in = 20001;
    check_hostile(filter, false, 1500, &mark, 1, "the input has ended early");
    mark.n_in = UINT64_MAX;
    check_hostile(filter, false, 1500, &mark, 1, "the input has ended early");
    mark =
        (struct stg_mark){.n_out = 100, .n_in = 150, .value = 4, .n_held = STG_TRAIL_END};
    check_hostile(filter, false, 1500, &mark, 1, "another record follows");
    static const char take[] = LISTS "take: {count: 19000}\n";
    static const char batch[] = LISTS "batch: {batch_size: 10}\n- repeat: {count: 2}\n";
    mark = (struct stg_mark){.n_out = 100, .n_in = 101, .value = 1};
    check_hostile(take, true, 1500, &mark, 1, "another record follows");
    check_hostile(batch, true, 150, &mark, 1, "another record follows");
    mark.n_in = UINT64_MAX;
    check_hostile(take, true, 1500, &mark, 1, "the input has ended early");
    check_hostile(batch, true, 150, &mark, 1, "the input has ended early");
    struct stg_mark held[3];
    for (uint32_t i = 0; i < 3; i++)
        held[i] = (struct stg_mark){.n_out = 100,
                                    .n_in = (uint64_t)1 << 60,
                                    .value = i == 0 ? 1 : (uint64_t)i << (29 * i),
                                    .part = i,
                                    .n_held = 2};
    check_hostile(BUCKETS, false, 290, held, 3, "the input has ended early");
}

/* The same size, and other lines: line i has the number step * i. */
static void write_numbers(int step)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    for (int i = 0; i < 9000; i++)
        fprintf(out, "%05d\n", step * i);
    fclose(out);
    stg_test_file("numbers", text, bytes);
    free(text);
}

static void marks_of_a_file_that_has_changed_are_not_used(void)
{
    static const struct stg_step_row row = {
        .step = "filter",
        .flags = STG_ROW_OWN_SOURCE,
        .pipeline =
            "dataset:\n- files: {pattern: $DIR/numbers}\n- text_line\n"
            "- filter: {graph: {three: {op: constant, value: 3, dtype: int64}, two: {op: "
            "constant, value: 2, dtype: int64}, value: {op: string_to_number, input: "
            "record, out_type: int64}, rest: {op: floormod, input: [value, three]}, is: "
            "{op: less, input: [rest, two]}}, predicate: is}\n"};
    struct stg_position position;
    struct stg_step_run run;
    size_t at = 0;
    write_numbers(1);
    stg_step_run_init(&run, &row, STG_ELEMENTS_SCALAR, 1);
    begin_marks(&run, 200);
    note_and_die(&run, 3000);
    char *first = strdup(path_of_trail());
    for (int step = 1; step <= 3; step += 2) {
        struct stg_err err = {0};
        write_numbers(step);
        char *all = read_some(&run, 2500, &at, &position);
        char *got = read_at(&run, &position, &err);
        CHECK_INT(err.code, 0);
        stg_step_run_same(&run, "of a changed file, gives", got, all + at);
        free(all);
        free(got);
    }
    CHECK(access(first, F_OK) == 0); /* the folder removes it in its turn */
    free(first);
    end_marks(&run);
    stg_step_run_finish(&run);
}

/* Of a pass of nothing but errors. */
static void the_errors_of_a_pass_have_marks_up_to_a_limit(void)
{
    static const struct stg_step_row row = {
        .step = "range",
        .pipeline = "dataset:\n- range: {stop: 70000}\n- map: {graph: {none: {op: "
                    "constant, value: 0, dtype: int64}, bad: {op: floordiv, input: "
                    "[value, none]}}, output: bad}\n- shuffle: {buffer_size: 50}\n"};
    struct stg_step_run run;
    struct stat st;
    stg_step_run_init(&run, &row, STG_ELEMENTS_SCALAR, 1);
    begin_marks(&run, 200);
    note_and_die(&run, 69000);
    CHECK(stat(path_of_trail(), &st) == 0);
    CHECK_INT(st.st_size, 64 + 65536 * 48);
    end_marks(&run);
    stg_step_run_finish(&run);
}

/* The source has no version: it changes without a trace, as no file can. */
static void marks_of_other_data_are_refused_once(void)
{
    const struct stg_step_row row = {.step = "range",
                                     .pipeline = LISTS TWO_OF_THREE "\n"};
    static const int64_t errors[] = {3};
    struct stg_position position;
    struct stg_err err = {0};
    struct stg_step_run run;
    size_t at = 0;
    init_marked(&run, &row);
    note_and_die(&run, 2000);
    free(read_some(&run, 1500, &at, &position));
    stg_test_source_set_errors(errors, 1);
    position.errors = 1;
    free(read_at(&run, &position, &err));
    CHECK_INT(err.code, -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(err.text, "another record follows");
    char *all = read_some(&run, 1500, &at, &position);
    err.code = 0;
    char *got = read_at(&run, &position, &err);
    CHECK_INT(err.code, 0);
    stg_step_run_same(&run, "without the marks, gives", got, all + at);
    free(all);
    free(got);
    end_marks(&run);
    stg_step_run_finish(&run);
}

/* ---- pipelines drawn at random ---- */

/* Errors of every source: one to eight, some in a row, some at either end. */
static void draw_errors(uint64_t seed)
{
    struct stg_random random;
    int64_t errors[STG_SOURCE_MAX_ERRORS];
    uint64_t at = 0;
    stg_random_init(&random, seed, 78, 0, 0);
    int n = 1 + (int)stg_random_below(&random, at++, STG_SOURCE_MAX_ERRORS);
    for (int i = 0; i < n; i++) {
        int64_t last = i > 0 ? errors[i - 1] : 0;
        int64_t step = (int64_t)stg_random_below(&random, at++, 14) - 6;
        bool is_last = last == INT64_MAX || stg_random_below(&random, at++, 8) == 0;
        errors[i] = is_last ? INT64_MAX : last + (step > 0 ? step : 0);
    }
    stg_test_source_set_errors(errors, n);
}

static void check_drawn(uint64_t seed)
{
    char *text = stg_step_draw(seed);
    const struct stg_step_row row = {.step = "drawn", .pipeline = text};
    struct stg_step_run run;
    stg_step_run_init(&run, &row, STG_ELEMENTS_SCALAR, 2);
    check_skips(&run);
    check_seeks(&run);
    draw_errors(seed);
    check_skips(&run);
    check_seeks(&run);
    if (seed % 3 == 1 || is_long())
        check_with_marks(&run);
    stg_test_source_set_errors(NULL, 0);
    if (seed % 3 == 1 || is_long())
        check_with_marks(&run);
    stg_step_run_finish(&run);
    free(text);
}

static void pipelines_drawn_at_random_continue_at_every_position(void)
{
    const char *only = getenv("STG_POSITION_SEED");
    if (only != NULL) {
        check_drawn(strtoull(only, NULL, 10));
        return;
    }
    for (uint64_t seed = 0; seed < (is_long() ? 3000 : 150); seed++)
        check_drawn(seed);
}

/* ---- another batch size ---- */

/* The numbers of all batches from a position on, as text; and where each item ends in it,
 * with its position. */
struct rows {
    char *text;
    size_t ends[100], n;
    struct stg_position positions[100];
};

static void read_rows(const char *pipeline, const struct stg_position *from,
                      struct rows *ret)
{
    static const int64_t errors[] = {3, 4, 9, 20, 33};
    const struct stg_step_row row = {.step = "batch", .pipeline = pipeline};
    struct stg_step_run run;
    struct stg_block *block;
    struct stg_err err = {0};
    size_t bytes;
    *ret = (struct rows){0};
    FILE *out = open_memstream(&ret->text, &bytes);
    stg_step_run_init(&run, &row, STG_ELEMENTS_SCALAR, 2);
    stg_test_source_set_errors(errors, 5);
    stg_step_run_open(&run);
    CHECK_OK(stg_dataset_seek(run.dataset, from, &err), err);
    for (; stg_dataset_next(run.dataset, &block, &err) == 0; ret->n++) {
        bool is_error = block->error.code != 0;
        for (int64_t i = 0; !is_error && i < block->n_rows; i++)
            fprintf(out, "%" PRId64 " ", ((const int64_t *)block->tensors[0].data)[i]);
        fflush(out);
        ret->ends[ret->n] = bytes;
        ret->positions[ret->n] = block->position;
        stg_block_unref(block);
    }
    stg_step_run_close(&run);
    stg_step_run_finish(&run);
    fclose(out);
}

static void another_batch_size_continues_at_the_right_row(void)
{
    static const struct stg_position start = {0};
    struct rows all, rest;
    read_rows(STG_AFTER_SOURCE("repeat: {count: 2}\n- batch: {batch_size: 4}\n"
                               "- prefetch: {buffer_size: 2}"),
              &start, &all);
    for (size_t i = 0; i < all.n; i++) {
        read_rows(STG_AFTER_SOURCE("repeat: {count: 2}\n- batch: {batch_size: 7}"),
                  &all.positions[i], &rest);
        CHECK_STR(rest.text, all.text + all.ends[i]);
        free(rest.text);
    }
    CHECK(all.n > 10);
    free(all.text);
}

/* ---- what is skipped is not produced ---- */

/* n_made: of the source, when a new dataset is moved to that position. */
static void check_made(const char *pipeline, struct stg_position position, int64_t n_made)
{
    const struct stg_step_row row = {.step = "range", .pipeline = pipeline};
    struct stg_step_run run;
    struct stg_err err = {0};
    struct stg_block *block;
    stg_step_run_init(&run, &row, STG_ELEMENTS_SCALAR, 1);
    stg_step_run_open(&run);
    CHECK_OK(stg_dataset_seek(run.dataset, &position, &err), err);
    CHECK_OK(stg_dataset_next(run.dataset, &block, &err), err);
    stg_block_unref(block);
    stg_step_run_close(&run);
    int64_t made = stg_test_source.n_made;
    if (made > n_made)
        FAIL("the pipeline\n%shas produced %" PRId64 " records, more than %" PRId64,
             pipeline, made, n_made);
    stg_step_run_finish(&run);
}

#define MANY "dataset:\n- range: {stop: 100000}\n- "

static void what_is_skipped_is_not_produced(void)
{
    struct stg_position at = {.items = 90000, .elements = 90000};
    struct stg_position batches = {.items = 900, .elements = 90000};
    struct stg_position dirty = {.items = 900, .elements = 90000, .errors = 3};
    check_made(MANY "take: {count: 99000}\n", at, 1);
    check_made(MANY "skip: {count: 9000}\n", at, 1);
    check_made(MANY "enumerate\n- " ADD_MAP "\n", at, 4);
    check_made(MANY "map: {output: [value, text], num_parallel_calls: 2}\n", at, 1000);
    check_made(MANY "repeat: {count: 2}\n- shard: {num_shards: 2, index: 1}\n", at, 2);
    check_made(MANY "prefetch: {buffer_size: 2}\n- ignore_errors\n", at, 10);
    check_made(MANY "batch: {batch_size: 100}\n", batches, 100);
    check_made(MANY ADD_MAP "\n- batch: {batch_size: 100}\n", dirty, 200);
    check_made(MANY "padded_batch: {batch_size: 100}\n- enumerate\n", batches, 100);
    check_made(MANY "batch: {batch_size: 50, drop_remainder: true}\n- unbatch\n", at, 50);
    check_made(MANY "batch: {batch_size: 100}\n- repeat: {count: 2}\n", batches, 100);
    check_made(MANY "shuffle: {buffer_size: 100}\n- batch: {batch_size: 100}\n", batches,
               2000);
    /* The shuffle has the depth 2. */
    check_made(MANY "shuffle: {buffer_size: 100}\n- " ADD_MAP
                    "\n- batch: {batch_size: 100}\n",
               dirty, 2000);
    check_made(MANY
               "prefetch: {buffer_size: 2}\n- shuffle: {buffer_size: 100}\n- " ADD_MAP
               "\n- batch: {batch_size: 100}\n",
               dirty, 2000);
    check_made(MANY "shuffle: {global: true, block_size: 10, buffer_size: 100}\n"
                    "- batch: {batch_size: 100}\n",
               dirty, 200);
    check_made(MANY "shuffle: {global: true, exact: true, buffer_size: 100}\n"
                    "- repeat: {count: 3}\n",
               (struct stg_position){.items = 290000, .elements = 290000}, 100);
    check_made(MANY "shuffle: {buffer_size: 100}\n- repeat: {count: 3}\n",
               (struct stg_position){.items = 290000, .elements = 290000}, 2000);
    check_made("datasets: {a: [range: {stop: 100000}], b: [range: {stop: 100000}]}\n"
               "dataset: [zip: {from: [a, b]}, batch: {batch_size: 100}]\n",
               batches, 200);
    check_made("datasets: {a: [range: {stop: 80000}], b: [range: {stop: 80000}]}\n"
               "dataset: [sample_from_datasets: {from: [a, b]}]\n",
               at, 512);
    check_made("datasets: {a: [range: {stop: 80000}], b: [range: {stop: 80000}]}\n"
               "dataset: [concatenate: {from: [a, b]}]\n",
               at, 1);
}

/* ---- large windows ---- */

struct numbers {
    int64_t *values;
    uint64_t n;
};

/* By the real range: one record after the other, in large blocks. */
static void read_numbers(const char *pipeline, uint64_t from, uint64_t n,
                         struct numbers *ret)
{
    const struct stg_step_row row = {
        .step = "range", .pipeline = pipeline, .flags = STG_ROW_OWN_SOURCE};
    struct stg_step_run run;
    struct stg_err err = {0};
    struct stg_block *block;
    *ret = (struct numbers){.values = malloc((n + 1) * sizeof(int64_t))};
    stg_step_run_init(&run, &row, STG_ELEMENTS_SCALAR, 1);
    stg_step_run_open(&run);
    CHECK_INT(skip(&run, from, true), from);
    while (ret->n < n &&
           stg_iter_next(run.dataset->last, (int64_t)(n - ret->n), &block, &err) == 0) {
        uint64_t got = (uint64_t)block->n_records;
        memcpy(ret->values + ret->n, block->tensors[0].data, got * sizeof(int64_t));
        ret->n += got;
        stg_block_unref(block);
    }
    stg_step_run_close(&run);
    stg_step_run_finish(&run);
}

/* n: in all epochs; size: of the window; one: of an epoch. */
static void check_window(const char *pipeline, uint64_t n, uint64_t size, uint64_t one)
{
    const uint64_t places[] = {1,
                               2,
                               size - 1,
                               size,
                               size + 1,
                               one / 2,
                               one - size,
                               one - size + 1,
                               one - size + 2,
                               one - 1,
                               one,
                               one + 1,
                               n - 1,
                               n,
                               n - size,
                               n / 2 + 7,
                               n / 3};
    struct numbers all, some;
    read_numbers(pipeline, 0, n + 1, &all);
    CHECK_INT(all.n, n);
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        uint64_t at = places[i] < n ? places[i] : n;
        read_numbers(pipeline, at, 3 * size, &some);
        uint64_t want = n - at < 3 * size ? n - at : 3 * size;
        CHECK_INT(some.n, want);
        CHECK(memcmp(some.values, all.values + at, want * sizeof(int64_t)) == 0);
        free(some.values);
    }
    free(all.values);
}

static void a_shuffle_continues_with_the_same_window(void)
{
    check_window(
        "dataset: [range: {stop: 100000}, shuffle: {buffer_size: 5000, seed: 4}]", 100000,
        5000, 100000);
    check_window("dataset: [range: {stop: 20000}, shuffle: {buffer_size: 999}, repeat: "
                 "{count: 4}]",
                 80000, 999, 20000);
    check_window("dataset: [range: {stop: 3000}, shuffle_and_repeat: {buffer_size: 2999, "
                 "count: 5}]",
                 15000, 2999, 3000);
    check_window("dataset: [range: {stop: 3000}, shuffle: {buffer_size: 3000, "
                 "reshuffle_each_iteration: false}, repeat: {count: 2}]",
                 6000, 3000, 3000);
    check_window("dataset: [range: {stop: 3000}, repeat: {count: 5}, shuffle: "
                 "{buffer_size: 70}, shuffle: {buffer_size: 500}]",
                 15000, 500, 3000);
}

/* ---- files ---- */

/* n records from a position on: their lines, and how many bytes were read before the
 * first. */
struct lines {
    char *text;
    size_t *ends;
    uint64_t n, n_read;
};

static void read_lines(const char *pipeline, uint64_t from, uint64_t n, struct lines *ret)
{
    const struct stg_step_row row = {
        .step = "text_line", .pipeline = pipeline, .flags = STG_ROW_OWN_SOURCE};
    struct stg_step_run run;
    struct stg_err err = {0};
    struct stg_block *block;
    size_t bytes;
    *ret = (struct lines){.ends = calloc(n + 1, sizeof(size_t))};
    FILE *out = open_memstream(&ret->text, &bytes);
    stg_step_run_init(&run, &row, STG_ELEMENTS_SCALAR, 1);
    stg_step_run_open(&run);
    uint64_t before = stg_test_bytes_read();
    CHECK_INT(skip(&run, from, true), from);
    while (ret->n < n &&
           stg_iter_next(run.dataset->last, (int64_t)(n - ret->n), &block, &err) == 0) {
        const struct stg_tensor *tensor = &block->tensors[0];
        if (ret->n == 0)
            ret->n_read = stg_test_bytes_read() - before;
        for (int64_t i = 0; i < block->n_records; i++) {
            fprintf(out, "%.*s@%d\n", (int)(tensor->end[i] - tensor->begin[i]),
                    (const char *)tensor->data + tensor->begin[i], (int)block->epoch);
            ret->ends[++ret->n] = (size_t)ftell(out);
        }
        stg_block_unref(block);
    }
    fclose(out);
    stg_step_run_close(&run);
    stg_step_run_finish(&run);
}

static void make_file(const char *name, int n)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    for (int i = 0; i < n; i++)
        fprintf(out, "%s, line %08d\n", name, i);
    fclose(out);
    stg_test_file(name, text, bytes);
    free(text);
}

/* most: bytes that are read for the last quarter of it. */
static void check_lines(const char *pipeline, uint64_t n, uint64_t most)
{
    const uint64_t places[] = {1,         2,         99,       2500,  n / 3, n / 2,
                               n * 3 / 4, n * 4 / 5, n - 1500, n - 1, n};
    struct lines all, some;
    read_lines(pipeline, 0, n + 1, &all);
    CHECK_INT(all.n, n);
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        uint64_t at = places[i], want = n - at < 3000 ? n - at : 3000;
        read_lines(pipeline, at, 3000, &some);
        CHECK_INT(some.n, want);
        CHECK(memcmp(some.text, all.text + all.ends[at],
                     all.ends[at + want] - all.ends[at]) == 0);
        if (at >= n * 3 / 4 && some.n_read > most)
            FAIL("%sread %" PRIu64 " bytes to get to record %" PRIu64, pipeline,
                 some.n_read, at);
        free(some.text);
        free(some.ends);
    }
    free(all.text);
    free(all.ends);
}

#define FILES "dataset:\n- files: {pattern: \"$DIR/f*\", seed: 2}\n"

/* 141,100 lines of 20 bytes. */
static void files_continue_through_their_indexes(void)
{
    struct stg_err err;
    make_file("f0", 60000);
    make_file("f1", 1000);
    make_file("f2", 40000);
    make_file("f3", 0);
    make_file("f4", 40000);
    make_file("f5", 100);
    stg_index_set_min_bytes(100000);
    CHECK_OK(stg_index_configure(stg_test_path("index"), 1 << 20, &err), err);
    check_lines(FILES "- text_line: {buffer_size: 4096}\n", 141100, 300000);
    check_lines(FILES "- text_line: {buffer_size: 4096}\n- repeat: {count: 2}\n"
                      "- shuffle: {buffer_size: 500}\n",
                282200, 500000);
    check_lines(FILES "- text_line: {buffer_size: 4096}\n- shuffle: {buffer_size: 500}\n"
                      "- repeat: {count: 3}\n",
                423300, 500000);
    check_lines(FILES "- text_line: {buffer_size: 4096}\n- shuffle: {global: true, "
                      "block_size: 500, buffer_size: 5000}\n- repeat: {count: 2}\n",
                282200, 2000000);
    check_lines(FILES "- interleave: {cycle_length: 3, block_length: 7, reader: "
                      "{text_line: {buffer_size: 4096}}}\n",
                141100, 500000);
    check_lines(FILES "- repeat: {count: 2}\n- interleave: {cycle_length: 2, reader: "
                      "{text_line: {buffer_size: 4096}}}\n"
                      "- shuffle: {buffer_size: 500, seed: 1}\n",
                282200, 500000);
    check_lines(FILES "- interleave: {cycle_length: 4, num_parallel_calls: 0, reader: "
                      "{text_line: {buffer_size: 4096}}}\n"
                      "- map: {output: [record]}\n- shuffle: {buffer_size: 300}\n"
                      "- repeat: {count: 2}\n",
                282200, 500000);
    stg_index_finish();
}

/* ---- memory ---- */

static int attempt(void *owner)
{
    struct stg_step_run *run = owner;
    const struct stg_position position = {.items = 4, .elements = 4};
    struct stg_err err = {0};
    int rc = stg_step_run_try(run, &err);
    if (rc == 0)
        rc = stg_dataset_seek(run->dataset, &position, &err);
    if (rc == 0)
        rc = stg_step_run_some(run, 3, INT64_MAX, NULL, &err);
    if (rc < 0)
        CHECK(err.code == rc && err.text[0] != '\0');
    stg_step_run_close(run);
    /* Without memory to count a file or to find its index, a seek reads the file. */
    if (stg_failalloc_off() > 0)
        return -STAGER_RESOURCE_EXHAUSTED;
    bool is_refused = rc == -STAGER_OUT_OF_RANGE || rc == -STAGER_FAILED_PRECONDITION;
    return rc == 1 || is_refused ? 0 : rc;
}

static void check_allocations(struct stg_step_run *run)
{
    bool marked = has_marks(run->row->pipeline);
    if (marked) {
        begin_marks(run, 1);
        free(stg_step_run_all(run, 3));
    }
    if (run->row->flags & STG_ROW_THREADS)
        stg_failalloc_each_of_threads(attempt, run);
    else
        stg_failalloc_each(attempt, run);
    if (marked)
        end_marks(run);
}

static void any_allocation_of_a_seek_may_fail(void)
{
    stg_step_over_rows_once(check_allocations);
}

static const struct stg_test tests[] = {
    TEST_SLOW(after_a_skip_the_rest_is_that_of_an_uninterrupted_run, 300),
    TEST_SLOW(from_the_position_of_each_item_the_rest_follows, 300),
    TEST_SLOW(with_the_marks_of_another_run_the_rest_follows_too, 300),
    TEST_SLOW(marks_survive_the_daemon_and_replace_what_lies_before, 60),
    TEST_SLOW(a_shuffle_goes_on_behind_marks_and_behind_errors, 60),
    TEST_SLOW(behind_errors_what_lies_before_is_not_produced, 60),
    TEST_SLOW(damaged_marks_are_not_used, 60),
    TEST_SLOW(marks_with_wrong_numbers_are_found_out, 60),
    TEST_SLOW(the_errors_of_a_pass_have_marks_up_to_a_limit, 60),
    TEST(marks_of_other_data_are_refused_once),
    TEST(marks_of_a_file_that_has_changed_are_not_used),
    TEST_SLOW(pipelines_drawn_at_random_continue_at_every_position, 300),
    TEST(another_batch_size_continues_at_the_right_row),
    TEST(what_is_skipped_is_not_produced),
    TEST(a_shuffle_continues_with_the_same_window),
    TEST_SLOW(files_continue_through_their_indexes, 60),
    TEST_SLOW(any_allocation_of_a_seek_may_fail, 180),
};

TEST_MAIN(tests)
