/* SPDX-License-Identifier: Apache-2.0
 *
 * Status codes that end a pass, that are ignored, that become error items, and that are
 * fatal. Items fail by an `assert` on the bytes of a line.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "tests/system/fixture.h"

/* A pipeline "p" with one line for each item: a line "x" is not numeric, an
 * INVALID_ARGUMENT. */
static void apply_lines(struct fixture *fixture, const char *text, const char *staged)
{
    char path[256], yaml[2048];
    fixture_file(fixture, "lines.txt", text, strlen(text), path);
    snprintf(yaml, sizeof(yaml),
             "name: p\n"
             "dataset:\n  - files: {pattern: %s}\n  - text_line: {}\n"
             "graph:\n  - {name: n, op: decode_csv, input: [record], record_defaults: "
             "[0]}\n"
             "staged: {features: {n: n}, max_batch_bytes: 64KiB, %s}\n",
             path, staged);
    fixture_apply(fixture, yaml);
}

/* A pipeline "p" of the numbers below stop, all of which fail with that code. */
static void apply_failing(struct fixture *fixture, int stop, const char *code,
                          const char *staged)
{
    char yaml[2048];
    snprintf(yaml, sizeof(yaml),
             "name: p\n"
             "dataset:\n  - range: {stop: %d}\n"
             "graph:\n  - {name: never, op: constant, value: false}\n"
             "  - {name: v, op: assert, input: [never, value], code: %s, message: "
             "planned}\n"
             "staged: {features: {v: v}, %s}\n",
             stop, code, staged);
    fixture_apply(fixture, yaml);
}

static int64_t take_number(struct stager_stream *stream, struct stager_batch_info *info)
{
    struct stager_batch *batch = fixture_take(stream);
    struct stager_tensor tensor;
    CHECK_INT(stager_batch_tensor(batch, "n", &tensor), 0);
    int32_t value = *(const int32_t *)tensor.data;
    if (info != NULL)
        stager_batch_info(batch, info);
    stager_release(batch);
    return value;
}

static void expect(struct stager_stream *stream, int code, const char *text)
{
    struct stager_batch *batch;
    CHECK_INT(stager_next(stream, fixture_millis(20000), &batch), -code);
    CHECK_CONTAINS(stager_error_text(stream), text);
}

/* made = published + dropped + ignored + in_hand + discarded, at any time. */
static struct fixture_status balance(struct fixture *fixture)
{
    struct fixture_status status;
    fixture_status(fixture, "p", &status);
    CHECK_INT(status.made, status.published + status.dropped + status.ignored +
                               status.in_hand + status.discarded);
    return status;
}

static const char *const many_threads[] = {"num_threads: 1", "num_threads: 2",
                                           "num_threads: 7"};
#define N_MANY (sizeof(many_threads) / sizeof(many_threads[0]))

static void an_unexpected_error_is_an_item_and_the_stream_continues(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    for (size_t i = 0; i < N_MANY; i++) {
        apply_lines(&fixture, "0\n1\nx\n3\n", many_threads[i]);
        struct stager_stream *stream = fixture_open(&fixture, "p", "c", 2);
        CHECK_INT(take_number(stream, NULL), 0);
        CHECK_INT(take_number(stream, NULL), 1);
        expect(stream, STAGER_INVALID_ARGUMENT, "is not a valid int32");
        struct stager_batch_info info = {.struct_size = sizeof(info)};
        CHECK_INT(take_number(stream, &info), 3);
        CHECK_INT(info.number, 3);
        CHECK_INT(info.n_dropped, 0);
        expect(stream, STAGER_OUT_OF_RANGE, "");
        struct fixture_status status = balance(&fixture);
        CHECK_INT(status.errors, 1);
        stager_close(stream);
    }
    fixture_finish(&fixture);
}

static void an_ignored_error_leaves_out_its_item_alone(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    for (size_t i = 0; i < N_MANY; i++) {
        char staged[256];
        snprintf(staged, sizeof(staged),
                 "ignored_exception_types: [INVALID_ARGUMENT], %s", many_threads[i]);
        apply_lines(&fixture, "0\nx\nx\n3\nx\n5\n", staged);
        struct stager_stream *stream = fixture_open(&fixture, "p", "c", 2);
        struct stager_batch_info info = {.struct_size = sizeof(info)};
        CHECK_INT(take_number(stream, &info), 0);
        CHECK_INT(info.n_dropped, 0);
        CHECK_INT(take_number(stream, &info), 3);
        CHECK_INT(info.number, 3);
        CHECK_INT(info.n_dropped, 2);
        CHECK_INT(take_number(stream, &info), 5);
        CHECK_INT(info.number, 5);
        CHECK_INT(info.n_dropped, 3);
        expect(stream, STAGER_OUT_OF_RANGE, "");
        struct fixture_status status = balance(&fixture);
        CHECK_INT(status.ignored, 3);
        CHECK_INT(status.dropped, 0);
        CHECK_INT(status.errors, 0);
        CHECK_CONTAINS(status.last_error, "item 4 was ignored");
        stager_close(stream);
    }
    fixture_finish(&fixture);
}

static void one_more_than_max_ignored_is_fatal_with_its_own_code(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    for (size_t i = 0; i < N_MANY; i++) {
        char staged[256];
        snprintf(staged, sizeof(staged),
                 "ignored_exception_types: [INVALID_ARGUMENT], max_ignored: 2, %s",
                 many_threads[i]);
        apply_lines(&fixture, "0\nx\n2\nx\n4\nx\n6\n", staged);
        struct stager_stream *stream = fixture_open(&fixture, "p", "c", 2);
        for (int n = 0; n < 6; n += 2)
            CHECK_INT(take_number(stream, NULL), n);
        expect(stream, STAGER_INVALID_ARGUMENT, "more than max_ignored 2");
        expect(stream, STAGER_INVALID_ARGUMENT, "is not a valid int32");
        struct fixture_status status = balance(&fixture);
        CHECK_STR(status.state, "failed");
        CHECK_INT(status.ignored, 2);
        stager_close(stream);
    }
    fixture_finish(&fixture);
}

static void max_ignored_counts_within_a_pass(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_lines(&fixture, "0\nx\nx\n3\n",
                "ignored_exception_types: [INVALID_ARGUMENT], max_ignored: 2");
    struct stager_stream *stream = fixture_open(&fixture, "p", "c", 2);
    for (int pass = 0; pass < 3; pass++) {
        CHECK_INT(take_number(stream, NULL), 0);
        CHECK_INT(take_number(stream, NULL), 3);
        expect(stream, STAGER_OUT_OF_RANGE, "");
        CHECK_INT(stager_rewind(stream), 0);
    }
    stager_close(stream);
    fixture_finish(&fixture);
}

/* Every item fails: the runner pauses between them and does not spin until the limit. */
static void a_source_that_is_bad_throughout_is_backed_off_from(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_failing(&fixture, 1000000, "DATA_LOSS",
                  "ignored_exception_types: [DATA_LOSS], max_ignored: 60");
    int64_t began = now_millis();
    struct stager_stream *stream = fixture_open(&fixture, "p", "c", 2);
    expect(stream, STAGER_DATA_LOSS, "more than max_ignored 60");
    CHECK(now_millis() - began >= 250); /* one runner: 60 - 16 times 10 ms, except for the
                                           first few */
    CHECK_INT(balance(&fixture).ignored, 60);
    stager_close(stream);
    fixture_finish(&fixture);
}

static void a_stop_does_not_wait_for_the_pause_after_ignored_items(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_failing(&fixture, 1000000, "DATA_LOSS",
                  "ignored_exception_types: [DATA_LOSS], max_ignored: 1000000, "
                  "num_threads: 4");
    struct stager_stream *stream = fixture_open(&fixture, "p", "c", 2);
    struct stager_batch *batch;
    CHECK_INT(stager_next(stream, 300, &batch), -STAGER_DEADLINE_EXCEEDED);
    struct fixture_status status = balance(&fixture);
    CHECK(status.ignored > 16);
    CHECK(status.ignored < 2000);
    stager_close(stream);
    fixture_finish(&fixture); /* checks that it ends within 5 s */
}

static void a_closed_error_ends_the_pass_in_its_place(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    for (size_t i = 0; i < N_MANY; i++) {
        char staged[256];
        snprintf(staged, sizeof(staged),
                 "closed_exception_types: [INVALID_ARGUMENT], ignored_exception_types: "
                 "[INVALID_ARGUMENT], capacity: 3, %s",
                 many_threads[i]);
        apply_lines(&fixture, "0\n1\n2\nx\n4\n5\n6\n7\n8\nx\n", staged);
        struct stager_stream *stream = fixture_open(&fixture, "p", "c", 2);
        for (int pass = 0; pass < 3; pass++) {
            for (int n = 0; n < 3; n++) {
                struct stager_batch_info info = {.struct_size = sizeof(info)};
                CHECK_INT(take_number(stream, &info), n);
                CHECK_INT(info.number, 3 * pass + n);
                CHECK_INT(info.pass, pass);
            }
            expect(stream, STAGER_OUT_OF_RANGE, "");
            expect(stream, STAGER_OUT_OF_RANGE, "");
            CHECK_INT(stager_rewind(stream), 0);
        }
        struct fixture_status status = balance(&fixture);
        CHECK_INT(status.errors, 0);
        CHECK_INT(status.ignored, 0);
        stager_close(stream);
    }
    fixture_finish(&fixture);
}

static void with_closed_none_the_end_is_a_failed_precondition(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_lines(&fixture, "0\n1\n", "closed_exception_types: [], num_threads: 3");
    struct stager_stream *stream = fixture_open(&fixture, "p", "c", 2);
    CHECK_INT(take_number(stream, NULL), 0);
    CHECK_INT(take_number(stream, NULL), 1);
    for (int i = 0; i < 2; i++)
        expect(stream, STAGER_FAILED_PRECONDITION,
               "end of data, not in closed_exception_types");
    CHECK_STR(balance(&fixture).state, "failed");
    stager_close(stream);
    fixture_finish(&fixture);
}

static void an_end_that_is_ignored_and_not_closed_does_not_spin(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_lines(&fixture, "0\n1\n",
                "closed_exception_types: [], ignored_exception_types: [OUT_OF_RANGE], "
                "num_threads: 3");
    struct stager_stream *stream = fixture_open(&fixture, "p", "c", 2);
    CHECK_INT(take_number(stream, NULL), 0);
    CHECK_INT(take_number(stream, NULL), 1);
    expect(stream, STAGER_FAILED_PRECONDITION, "nothing follows");
    stager_close(stream);
    fixture_finish(&fixture);
}

static void an_item_out_of_range_is_not_taken_for_the_end(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_failing(&fixture, 2, "OUT_OF_RANGE", "closed_exception_types: [NOT_FOUND]");
    struct stager_stream *stream = fixture_open(&fixture, "p", "c", 2);
    for (int i = 0; i < 2; i++)
        expect(stream, STAGER_FAILED_PRECONDITION,
               "OUT_OF_RANGE, not in closed_exception_types");
    expect(stream, STAGER_FAILED_PRECONDITION, "end of data");
    stager_close(stream);
    fixture_finish(&fixture);
}

static void an_item_out_of_range_ends_the_pass_as_the_end_of_data_does(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply_failing(&fixture, 1000000, "OUT_OF_RANGE", "num_threads: 4");
    struct stager_stream *stream = fixture_open(&fixture, "p", "c", 2);
    for (int pass = 0; pass < 3; pass++) {
        expect(stream, STAGER_OUT_OF_RANGE, "");
        CHECK_INT(stager_rewind(stream), 0);
    }
    balance(&fixture);
    stager_close(stream);
    fixture_finish(&fixture);
}

static void a_cancelled_item_wakes_takers_with_its_code_and_text(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    for (size_t i = 0; i < N_MANY; i++) {
        char staged[256];
        snprintf(staged, sizeof(staged),
                 "closed_exception_types: [CANCELLED], ignored_exception_types: "
                 "[CANCELLED], %s",
                 many_threads[i]);
        apply_failing(&fixture, 10, "CANCELLED", staged);
        struct stager_stream *stream = fixture_open(&fixture, "p", "c", 2);
        expect(stream, STAGER_CANCELLED, "assertion failed: planned");
        expect(stream, STAGER_CANCELLED, "assertion failed: planned");
        stager_close(stream);
    }
    fixture_finish(&fixture);
}

static void a_failure_of_the_source_may_be_closed_too(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    char one[256], yaml[1024];
    fixture_numbers(&fixture, "n1.txt", 0, 3, one);
    snprintf(yaml, sizeof(yaml),
             "name: p\n"
             "dataset:\n  - files: {pattern: [%s, %s/none.txt], shuffle: false}\n"
             "  - text_line: {}\n"
             "staged: {max_batch_bytes: 64KiB, closed_exception_types: [NOT_FOUND]}\n",
             one, fixture.dir);
    fixture_apply(&fixture, yaml);
    struct stager_stream *stream = fixture_open(&fixture, "p", "c", 2);
    expect(stream, STAGER_OUT_OF_RANGE, ""); /* no file matched: NOT_FOUND, closed */
    stager_close(stream);
    fixture_finish(&fixture);
}

/* They never became items: made is 8, in two epochs of four good lines. */
static void elements_that_ignore_errors_leaves_out_are_counted(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    static const char lines[] = "0\nlong\n1\nlonger\n2\n3\n";
    char path[256], yaml[1024];
    fixture_file(&fixture, "lines.txt", lines, sizeof(lines) - 1, path);
    snprintf(yaml, sizeof(yaml),
             "name: p\ndataset:\n  - files: {pattern: %s}\n"
             "  - text_line: {max_record_bytes: 2}\n  - ignore_errors\n"
             "  - repeat: {count: 2}\nstaged: {max_batch_bytes: 64KiB}\n",
             path);
    fixture_apply(&fixture, yaml);
    struct stager_stream *stream = fixture_open(&fixture, "p", "c", 2);
    for (int pass = 1; pass <= 2; pass++) {
        for (int i = 0; i < 8; i++)
            stager_release(fixture_take(stream));
        expect(stream, STAGER_OUT_OF_RANGE, "");
        struct fixture_status status = balance(&fixture);
        CHECK_INT(status.made, pass * 8);
        CHECK_INT(status.ignored, 0);
        CHECK_INT(status.ignored_elements, pass * 4);
        CHECK_INT(stager_rewind(stream), 0);
    }
    stager_close(stream);
    fixture_finish(&fixture);
}

static const struct stg_test tests[] = {
    TEST(an_unexpected_error_is_an_item_and_the_stream_continues),
    TEST(an_ignored_error_leaves_out_its_item_alone),
    TEST(one_more_than_max_ignored_is_fatal_with_its_own_code),
    TEST(max_ignored_counts_within_a_pass),
    TEST(a_source_that_is_bad_throughout_is_backed_off_from),
    TEST(a_stop_does_not_wait_for_the_pause_after_ignored_items),
    TEST(a_closed_error_ends_the_pass_in_its_place),
    TEST(with_closed_none_the_end_is_a_failed_precondition),
    TEST(an_end_that_is_ignored_and_not_closed_does_not_spin),
    TEST(an_item_out_of_range_is_not_taken_for_the_end),
    TEST(an_item_out_of_range_ends_the_pass_as_the_end_of_data_does),
    TEST(a_cancelled_item_wakes_takers_with_its_code_and_text),
    TEST(a_failure_of_the_source_may_be_closed_too),
    TEST(elements_that_ignore_errors_leaves_out_are_counted),
};

TEST_MAIN(tests)
