/* SPDX-License-Identifier: Apache-2.0
 *
 * interleave: tf.data's order for any number of threads, errors in their places, files
 * that are read concurrently.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/dataset/step.h"
#include "daemon/dataset/tuning.h"
#include "daemon/host/cpus.h"
#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"
#include "tests/daemon/dataset/golden_interleave.h"

/* ---- blocked reads ---- */

/* Every read of a file with that inode waits at the gate; `inside` counts reads of any
 * file. */
/* guards the fields below */
static pthread_mutex_t gate_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_changed = PTHREAD_COND_INITIALIZER;
static bool gate_closed;
static ino_t gate_inode;
static int gate_waiting;    /* waiting at the gate */
static int meeting, n_came; /* reads wait until this many have arrived */
static pthread_t pulling;
static int n_elsewhere; /* reads by other threads */

ssize_t pread(int fd, void *buf, size_t bytes, off_t offset)
{
    struct stat st;
    pthread_mutex_lock(&gate_lock);
    if (meeting > 0) {
        n_came++;
        pthread_cond_broadcast(&gate_changed);
        while (n_came < meeting)
            pthread_cond_wait(&gate_changed, &gate_lock);
    }
    n_elsewhere += !pthread_equal(pthread_self(), pulling);
    gate_waiting++;
    pthread_cond_broadcast(&gate_changed);
    while (gate_closed && fstat(fd, &st) == 0 && st.st_ino == gate_inode)
        pthread_cond_wait(&gate_changed, &gate_lock);
    gate_waiting--;
    pthread_mutex_unlock(&gate_lock);
    return syscall(SYS_pread64, fd, buf, bytes, offset);
}

static void close_gate(const char *path)
{
    struct stat st;
    CHECK_INT(stat(path, &st), 0);
    pthread_mutex_lock(&gate_lock);
    gate_closed = true;
    gate_inode = st.st_ino;
    pthread_mutex_unlock(&gate_lock);
}

static void open_gate(void)
{
    pthread_mutex_lock(&gate_lock);
    gate_closed = false;
    pthread_cond_broadcast(&gate_changed);
    pthread_mutex_unlock(&gate_lock);
}

/* ---- files and pipelines ---- */

/* File i, "NAME-00i", has x lines "x". For -1 it is a pipe, which cannot be read as a
 * file.
 */
static void make_files(const char *name, const int *inputs)
{
    for (int i = 0; inputs[i] != -2; i++) {
        char file[32], text[128] = "";
        snprintf(file, sizeof(file), "%s-%03d", name, i);
        unlink(stg_test_path(file));
        if (inputs[i] == -1) {
            CHECK_INT(mkfifo(stg_test_path(file), 0644), 0);
            continue;
        }
        for (int k = 0; k < inputs[i]; k++)
            snprintf(text + strlen(text), sizeof(text) - strlen(text), "%d\n", inputs[i]);
        stg_test_file(file, text, strlen(text));
    }
}

/* Small reads and therefore small chunks, because the files are small. The text is
 * static. */
static const char *interleave_text(const char *name, const char *arguments)
{
    static char text[1024];
    snprintf(text, sizeof(text),
             "dataset:\n- files: {pattern: [\"$DIR/%s-*\"], shuffle: false}\n"
             "- interleave: {reader: {text_line: {buffer_size: 4096}}, %s}\n",
             name, arguments);
    return text;
}

/* Returns all records and errors, pulled `want` at a time, separated by spaces. */
static char *drain(struct stg_dataset *dataset, int64_t want)
{
    char *ret = NULL;
    size_t bytes;
    FILE *out = open_memstream(&ret, &bytes);
    struct stg_block *block;
    struct stg_err err = {0};
    const char *space = "";
    int rc;
    while ((rc = dataset->last->impl->next(dataset->last, want, &block, &err)) == 0) {
        CHECK(block->n_records <= want);
        if (block->error.code != 0)
            fprintf(out, "%s!", space);
        const struct stg_tensor *t = block->tensors;
        for (int64_t i = 0; i < block->n_records; i++) {
            fprintf(out, "%s%.*s", space, (int)(t->end[i] - t->begin[i]),
                    (const char *)t->data + t->begin[i]);
            space = " ";
        }
        space = " ";
        stg_block_unref(block);
    }
    CHECK_OK(rc, err);
    fclose(out);
    return ret;
}

static void check_drained(const char *text, int64_t want, const char *expected)
{
    struct stg_dataset_env env = stg_test_env();
    struct stg_pipeline_spec *spec;
    struct stg_dataset *dataset = stg_test_open_text(text, &env, &spec);
    char *got = drain(dataset, want);
    if (strcmp(got, expected) != 0)
        FAIL("%s%s\n  instead of\n%s", text, got, expected);
    free(got);
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
}

/* ---- order ---- */

static void check_golden(const struct golden_interleave *golden)
{
    if (golden->inputs[0] == -2)
        return;
    make_files("g", golden->inputs);
    static const int threads[] = {0, 1, 3, 7, -1};
    for (size_t i = 0; i < sizeof(threads) / sizeof(threads[0]); i++) {
        if (threads[i] > golden->cycle)
            continue;
        for (int64_t want = 1; want <= 1000; want += want == 1 ? 4 : 995) {
            char arguments[200];
            snprintf(arguments, sizeof(arguments),
                     "cycle_length: %d, block_length: %d, num_parallel_calls: %d, "
                     "prefetch_input_elements: %d, buffer_output_elements: %d",
                     golden->cycle, golden->block, threads[i], (int)(want % 3),
                     (int)want);
            check_drained(interleave_text("g", arguments), want, golden->want);
        }
    }
    for (int i = 0; golden->inputs[i] != -2; i++) {
        char file[32];
        snprintf(file, sizeof(file), "g-%03d", i);
        unlink(stg_test_path(file));
    }
}

/* TFD-D1: the five vectors are among the golden orders. TFD-E2: so are errors in them. */
static void the_order_is_tf_datas_for_any_number_of_threads(void)
{
    for (size_t i = 0; i < sizeof(golden_interleave) / sizeof(golden_interleave[0]); i++)
        check_golden(&golden_interleave[i]);
}

static void parallel_interleave_has_the_same_order(void)
{
    static const int inputs[] = {4, 5, 6, 4, 5, 6, -2};
    make_files("p", inputs);
    check_drained("dataset:\n- files: {pattern: \"$DIR/p-*\", shuffle: false}\n"
                  "- parallel_interleave: {cycle_length: 2, block_length: 3, reader: "
                  "{text_line: {}}}\n",
                  7, "4 4 4 5 5 5 4 5 5 6 6 6 4 4 4 6 6 6 4 5 5 5 6 6 6 5 5 6 6 6");
}

static void every_repetition_has_the_same_order_and_its_epoch(void)
{
    static const int inputs[] = {2, 1, 3, -2};
    make_files("e", inputs);
    char text[1200];
    struct stg_dataset_env env = stg_test_env();
    snprintf(text, sizeof(text), "%s- repeat: {count: 2}\n- batch: {batch_size: 4}\n",
             interleave_text("e", "cycle_length: 2"));
    char *got = stg_test_render_text(text, &env, 0);
    CHECK_STR(got, "[2 1 2 3]\n[3 3 2 1]\n#1 [2 3 3 3]\n");
    free(got);
    got = stg_test_render_text("dataset:\n"
                               "- files: {pattern: \"$DIR/e-*\", shuffle: false}\n"
                               "- repeat: {count: 2}\n"
                               "- interleave: {reader: text_line, cycle_length: 1}\n",
                               &env, 0);
    CHECK_STR(got, "2\n2\n1\n3\n3\n3\n#1 2\n2\n1\n3\n3\n3\n");
    free(got);
}

/* Files of 5,000 lines "FILE:LINE" each: long enough for many blocks and chunks. */
static void make_long_files(const char *name, int n, int n_lines)
{
    static char text[400000];
    for (int i = 0; i < n; i++) {
        char file[32];
        size_t used = 0;
        for (int k = 0; k < n_lines; k++)
            used += (size_t)sprintf(text + used, "%d:%d:%.*s\n", i, k, k % 50,
                                    "................................................."
                                    ".");
        snprintf(file, sizeof(file), "%s-%03d", name, i);
        stg_test_file(file, text, used);
    }
}

/* Checks that every row is the line of its place. */
static void check_rows(struct stg_dataset *dataset, const struct stg_block *block)
{
    const struct stg_tensor *t = &block->tensors[0];
    for (int64_t i = 0; i < block->n_rows; i++) {
        int file, line;
        char text[100];
        snprintf(text, sizeof(text), "%.*s", (int)(t->end[i] - t->begin[i]),
                 (const char *)t->data + t->begin[i]);
        CHECK_INT(sscanf(text, "%d:%d:", &file, &line), 2);
        CHECK_INT(block->rows[i].record, line);
        const char *path = stg_dataset_file(dataset, block->rows[i].file);
        CHECK_INT(atoi(path + strlen(path) - 3), file);
        CHECK_INT(t->end[i] - t->begin[i],
                  snprintf(NULL, 0, "%d:%d:", file, line) + line % 50);
    }
}

static int64_t pull_all(const char *text, uint64_t buffer_bytes)
{
    struct stg_dataset_env env = stg_test_env();
    env.buffer_bytes = buffer_bytes;
    struct stg_pipeline_spec *spec;
    struct stg_dataset *dataset = stg_test_open_text(text, &env, &spec);
    struct stg_block *block;
    int64_t n = 0;
    while ((block = stg_test_next(dataset)) != NULL) {
        CHECK_INT(block->error.code, 0);
        check_rows(dataset, block);
        n += block->n_rows;
        stg_block_unref(block);
    }
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
    return n;
}

static void long_files_come_whole_with_their_places(void)
{
    make_long_files("l", 12, 5000);
    static const char *const arguments[] = {
        "cycle_length: 4, block_length: 1",
        "cycle_length: 4, block_length: 1000",
        "cycle_length: 12, block_length: 7, prefetch_input_elements: 0",
        "cycle_length: 1",
        "cycle_length: 5, deterministic: false",
    };
    for (size_t i = 0; i < sizeof(arguments) / sizeof(arguments[0]); i++) {
        char text[1200];
        snprintf(text, sizeof(text), "%s- batch: {batch_size: 300}\n",
                 interleave_text("l", arguments[i]));
        CHECK_INT(pull_all(text, 0), 60000);
        CHECK_INT(pull_all(text, 2 << 20), 60000);
    }
}

/* Names are known and files opened before their turn, so no reader shares. */
static void a_reader_that_is_alone_reads_all_of_each_file(void)
{
    make_long_files("a", 4, 5000);
    CHECK_INT(pull_all("dataset:\n- files: {pattern: \"$DIR/a-*\", shuffle: false}\n"
                       "- interleave: {reader: text_line, cycle_length: 1, "
                       "prefetch_input_elements: 0}\n",
                       0),
              20000);
}

/* ---- errors ---- */

static void a_file_that_cannot_be_opened_is_one_error_that_names_it(void)
{
    static const int inputs[] = {1, -1, 1, -2};
    make_files("x", inputs);
    struct stg_dataset_env env = stg_test_env();
    struct stg_pipeline_spec *spec;
    struct stg_dataset *dataset =
        stg_test_open_text(interleave_text("x", "cycle_length: 2"), &env, &spec);
    stg_block_unref(stg_test_next(dataset));
    struct stg_block *block = stg_test_next(dataset);
    CHECK_INT(block->error.code, -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(block->error.text, "/x-001");
    CHECK_CONTAINS(block->error.text, "step text_line (line 3)");
    stg_block_unref(block);
    block = stg_test_next(dataset);
    CHECK_INT(block->error.code, 0);
    stg_block_unref(block);
    CHECK(stg_test_next(dataset) == NULL);
    CHECK(stg_test_next(dataset) == NULL);
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
}

/* TFD-E1 */
static void what_is_wrong_is_said_when_the_file_is_checked(void)
{
#define FILES "dataset:\n- files: {pattern: /data/*}\n"
    static const struct {
        const char *text, *want;
    } cases[] = {
        {FILES "- interleave: {cycle_length: 2}\n",
         "p:3:15: dataset[1].interleave.reader: missing; add \"reader: ...\" here"},
        {FILES "- interleave: {reader: {shuffle: {}}}\n",
         "p:3:25: dataset[1].interleave.reader: unknown key \"shuffle\"; known here: "
         "text_line"},
        {FILES "- interleave: {reader: {text_line: {skip_headers_lines: 1}}}\n",
         "p:3:37: dataset[1].interleave.reader.text_line: unknown key "
         "\"skip_headers_lines\"; "
         "did you mean \"skip_header_lines\"?"},
        {FILES "- interleave: {reader: text_line, cycle_length: 0}\n",
         "p:3:49: dataset[1].interleave.cycle_length: found 0; expected an integer from "
         "1 to 256"},
        {FILES "- interleave: {reader: text_line, cycle_length: 2, num_parallel_calls: "
               "3}\n",
         "step interleave (line 3): num_parallel_calls is 3, more than cycle_length 2: "
         "lower it, or write -1"},
        {"dataset:\n- range: {stop: 3}\n- interleave: {reader: text_line}\n",
         "step interleave (line 3): step text_line (line 3): its input must be file "
         "names: put `files` before it, with no step between them that changes the "
         "elements"},
        {FILES "- parallel_interleave: {reader: text_line}\n",
         "p:3:24: dataset[1].parallel_interleave.cycle_length: missing; add "
         "\"cycle_length: ...\" here"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *got = stg_test_refused(cases[i].text);
        if (strncmp(got, cases[i].want, strlen(cases[i].want)) != 0)
            FAIL("%s%s\n  instead of\n%s", cases[i].text, got, cases[i].want);
    }
}

/* ---- concurrent reads ---- */

static void as_many_files_as_the_cycle_are_read_at_once(void)
{
    make_long_files("m", 6, 100);
    pthread_mutex_lock(&gate_lock);
    meeting = 4;
    n_came = 0;
    pthread_mutex_unlock(&gate_lock);
    CHECK_INT(pull_all(interleave_text("m", "cycle_length: 4"), 0), 600);
}

static void files_to_come_are_opened_ahead(void)
{
    static const int inputs[] = {1, 1, 1, -2};
    make_files("o", inputs);
    struct stg_dataset_env env = stg_test_env();
    struct stg_pipeline_spec *spec;
    struct stg_dataset *dataset = stg_test_open_text(
        interleave_text("o", "cycle_length: 1, prefetch_input_elements: 2"), &env, &spec);
    close_gate(stg_test_path("o-002"));
    stg_block_unref(stg_test_next(dataset));
    pthread_mutex_lock(&gate_lock);
    while (gate_waiting == 0)
        pthread_cond_wait(&gate_changed, &gate_lock);
    pthread_mutex_unlock(&gate_lock);
    open_gate();
    stg_block_unref(stg_test_next(dataset));
    stg_block_unref(stg_test_next(dataset));
    CHECK(stg_test_next(dataset) == NULL);
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
}

/* TFD-D2 */
static void a_stalled_file_does_not_stop_the_others_when_order_is_given_up(void)
{
    make_long_files("s", 5, 3000);
    close_gate(stg_test_path("s-001"));
    struct stg_dataset_env env = stg_test_env();
    struct stg_pipeline_spec *spec;
    struct stg_dataset *dataset = stg_test_open_text(
        interleave_text("s", "cycle_length: 2, deterministic: false"), &env, &spec);
    for (int i = 0; i < 4 * 3000; i++) {
        struct stg_block *block = stg_test_next(dataset);
        CHECK(block->rows[0].file != 1);
        stg_block_unref(block);
    }
    open_gate();
    for (uint64_t i = 0; i < 3000; i++) {
        struct stg_block *block = stg_test_next(dataset);
        CHECK_INT(block->rows[0].file, 1);
        CHECK_INT(block->rows[0].record, i);
        stg_block_unref(block);
    }
    CHECK(stg_test_next(dataset) == NULL);
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
}

/* The gate opens a while after destroy has begun to wait for the read. */
static void *open_later(void *arg)
{
    pthread_mutex_lock(&gate_lock);
    while (gate_waiting == 0)
        pthread_cond_wait(&gate_changed, &gate_lock);
    pthread_mutex_unlock(&gate_lock);
    open_gate();
    return NULL;
}

/* TFD-M1, TFD-M2: while a file is read, and while the caller waits for one. */
static void a_dataset_goes_and_stops_in_the_middle_of_reads(void)
{
    make_long_files("d", 9, 3000);
    for (int n = 0; n < 3; n++) {
        _Atomic int stopped = 0;
        struct stg_dataset_env env = stg_test_env();
        env.stopped = &stopped;
        struct stg_pipeline_spec *spec;
        struct stg_dataset *dataset = stg_test_open_text(
            interleave_text("d", "cycle_length: 3, block_length: 100"), &env, &spec);
        struct stg_block *kept = stg_test_next(dataset), *block;
        struct stg_err err = {0};
        close_gate(stg_test_path("d-004"));
        atomic_store(&stopped, n == 1);
        if (n == 1)
            CHECK_INT(stg_dataset_next(dataset, &block, &err), -STAGER_CANCELLED);
        pthread_t thread;
        CHECK_INT(pthread_create(&thread, NULL, open_later, NULL), 0);
        if (n == 2)
            CHECK_OK(dataset->last->impl->rewind(dataset->last, false, &err), err);
        stg_dataset_destroy(dataset);
        open_gate();
        pthread_mutex_lock(&gate_lock);
        gate_waiting = 1;
        pthread_cond_broadcast(&gate_changed);
        pthread_mutex_unlock(&gate_lock);
        pthread_join(thread, NULL);
        gate_waiting = 0;
        CHECK_INT(kept->rows[0].record, 0);
        stg_block_unref(kept);
        stg_pipeline_spec_destroy(spec);
    }
}

/* ---- auto ---- */

/* Acts as if the previous pass had chosen this many threads; no trial runs. */
static struct stg_dataset *open_with_threads(const char *text, uint32_t n,
                                             struct stg_dataset_env *env,
                                             struct stg_pipeline_spec **ret_spec)
{
    struct stg_tuner tuner;
    *ret_spec = stg_test_load(text);
    env->tuning = stg_tuning_create();
    stg_tuner_init(&tuner, n, &(struct stg_tuner_limits){n, 2, .cpus = stg_cpus()});
    stg_tuning_keep(env->tuning, &(*ret_spec)->steps[1], &tuner);
    stg_tuning_hold(env->tuning, true);
    return stg_test_open_spec(*ret_spec, env);
}

static void the_pulling_thread_reads_when_auto_has_chosen_no_threads(void)
{
    make_long_files("n", 6, 3000);
    struct stg_dataset_env env = stg_test_env();
    struct stg_pipeline_spec *spec;
    pthread_mutex_lock(&gate_lock);
    pulling = pthread_self();
    n_elsewhere = 0;
    pthread_mutex_unlock(&gate_lock);
    struct stg_dataset *dataset =
        open_with_threads(interleave_text("n", "cycle_length: 2"), 0, &env, &spec);
    struct stg_block *block;
    int64_t n = 0;
    while ((block = stg_test_next(dataset)) != NULL) {
        check_rows(dataset, block);
        n += block->n_rows;
        stg_block_unref(block);
    }
    stg_dataset_destroy(dataset);
    CHECK_INT(n, 6 * 3000);
    CHECK_INT(n_elsewhere, 0);
    stg_pipeline_spec_destroy(spec);
    stg_tuning_destroy(env.tuning);
}

/* The pulling thread does not read either, if auto has chosen no thread or one. */
static void check_stalled(uint32_t n_threads)
{
    make_long_files("w", 5, 3000);
    close_gate(stg_test_path("w-001"));
    struct stg_dataset_env env = stg_test_env();
    struct stg_pipeline_spec *spec;
    struct stg_dataset *dataset =
        open_with_threads(interleave_text("w", "cycle_length: 2, deterministic: false"),
                          n_threads, &env, &spec);
    for (int64_t n = 0; n < 4 * 3000;) {
        struct stg_block *block = stg_test_next(dataset);
        CHECK(block->rows[0].file != 1);
        n += block->n_rows;
        stg_block_unref(block);
    }
    open_gate();
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
    stg_tuning_destroy(env.tuning);
}

static void where_order_is_given_up_auto_never_comes_to_no_threads(void)
{
    check_stalled(0);
}

static void a_thread_that_is_stuck_is_made_up_for(void)
{
    check_stalled(1);
}

static const struct stg_test tests[] = {
    TEST_SLOW(the_order_is_tf_datas_for_any_number_of_threads, 60),
    TEST(parallel_interleave_has_the_same_order),
    TEST(every_repetition_has_the_same_order_and_its_epoch),
    TEST(long_files_come_whole_with_their_places),
    TEST(a_reader_that_is_alone_reads_all_of_each_file),
    TEST(a_file_that_cannot_be_opened_is_one_error_that_names_it),
    TEST(what_is_wrong_is_said_when_the_file_is_checked),
    TEST(as_many_files_as_the_cycle_are_read_at_once),
    TEST(files_to_come_are_opened_ahead),
    TEST(a_stalled_file_does_not_stop_the_others_when_order_is_given_up),
    TEST(a_dataset_goes_and_stops_in_the_middle_of_reads),
    TEST(the_pulling_thread_reads_when_auto_has_chosen_no_threads),
    TEST(where_order_is_given_up_auto_never_comes_to_no_threads),
    TEST(a_thread_that_is_stuck_is_made_up_for),
};

TEST_MAIN(tests)
