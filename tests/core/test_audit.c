/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of an audit: what was written is read again, lines add up, and what is
 * damaged, missing or there twice is noticed.
 */
#include "core/record/audit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"

enum { RUN = 77 };

static struct stg_err err;

static void publish(struct stg_audit_trail *trail, uint64_t first, uint64_t end,
                    size_t max_cells)
{
    for (uint64_t i = first; i < end; i++)
        CHECK(stg_audit_publish(trail, i, stg_audit_hash(i, i, i + 1, 1, 0), max_cells) ==
              0);
}

static uint64_t sum_of(const struct stg_audit_trail *trail, uint64_t *ret_n)
{
    uint64_t sum = 0;
    *ret_n = 0;
    for (size_t i = 0; i < trail->n; i++) {
        sum += trail->cells[i].sum;
        *ret_n += trail->cells[i].end - trail->cells[i].first;
    }
    return sum;
}

/* A run of three lines, and a commit. */
static void write_run(struct stg_audit_text *text)
{
    uint64_t seq = 0;
    stg_audit_write_begin(text, &seq,
                          &(struct stg_audit_begin){.run = RUN,
                                                    .attempt = 3,
                                                    .time_ns = 12345,
                                                    .lane = "a client",
                                                    .delivery = "broadcast",
                                                    .is_known = true,
                                                    .point = {1, 2, 3, "a"},
                                                    .from = 2,
                                                    .tag = "step-2"});
    struct stg_audit_trail trail = {.run = RUN, .pass = 1, .has_contents = true};
    publish(&trail, 2, 12, 100);
    CHECK(stg_taken_add(&trail.skipped, 12, 14, NULL) == 0);
    stg_audit_write_trail(text, &seq, &trail);
    stg_audit_trail_finish(&trail);
    struct stg_audit_share share = {
        .run = RUN, .attempt = 3, .pass = 1, .client = "a client", .n_redelivered = 1};
    for (uint64_t i = 2; i < 12; i += 3)
        CHECK(stg_audit_take(&share.delivered, i, i) == 0);
    CHECK(stg_audit_take(&share.acknowledged, 5, 5) == 0);
    stg_audit_write_share(text, &seq, &share);
    stg_audit_share_finish(&share);
    stg_audit_write_commit(text, &(struct stg_audit_commit){.run = RUN,
                                                            .attempt = 3,
                                                            .time_ns = 23456,
                                                            .tag = "step-5",
                                                            .point = {1, 5, 6, ""}});
    stg_audit_write_end(text, &seq, RUN, 34567);
    CHECK(!text->has_failed);
}

static void a_text_is_read_as_it_was_written(void)
{
    struct stg_audit_text text = {0}, again = {0};
    struct stg_audit audit = {0};
    write_run(&text);
    CHECK_OK(stg_audit_read(&audit, text.bytes, text.n, &err), err);
    CHECK_INT(audit.n_bad, 0);
    CHECK_INT(audit.n_attempts, 1);
    const struct stg_audit_attempt *attempt = &audit.attempts[0];
    CHECK_STR(attempt->begin.lane, "a client");
    CHECK_STR(attempt->begin.delivery, "broadcast");
    CHECK_STR(attempt->begin.point.taken, "a");
    CHECK_STR(attempt->begin.tag, "step-2");
    CHECK_INT(attempt->begin.from, 2);
    CHECK(attempt->begin.hosts.job == NULL);
    CHECK_INT(attempt->n_commits, 1);
    CHECK_INT(attempt->commits[0].point.items, 5);
    CHECK_INT(audit.trails[0].n, 10);
    CHECK(audit.trails[0].has_contents);
    CHECK_INT(audit.trails[0].skipped.end, 14);
    CHECK_INT(audit.shares[0].delivered.n, 4);
    CHECK_INT(audit.shares[0].delivered.sum, 2 + 5 + 8 + 11);
    CHECK_INT(audit.shares[0].acknowledged.set.end, 6);
    const struct stg_audit_run *run = stg_audit_find_run(&audit, RUN);
    CHECK(run != NULL && !run->is_missing && run->end_ns == 34567 && run->seq == 4);
    CHECK_INT(stg_audit_scan_newest(text.bytes, text.n), 3);

    stg_audit_write(&audit, &again);
    struct stg_audit second = {0};
    CHECK_OK(stg_audit_read(&second, again.bytes, again.n, &err), err);
    CHECK_INT(second.n_bad, 0);
    CHECK_INT(second.runs[0].seq, 4);
    CHECK(!second.runs[0].is_missing);
    CHECK_INT(second.trails[0].n, 10);
    CHECK_INT(second.attempts[0].n_commits, 1);
    stg_audit_finish(&audit);
    stg_audit_finish(&second);
    free(text.bytes);
    free(again.bytes);
}

static void an_attempt_of_a_job_is_read_as_it_was_written(void)
{
    struct stg_audit_text text = {0}, again = {0};
    struct stg_audit audit = {0}, second = {0};
    uint64_t seq = 0;
    stg_audit_write_begin(
        &text, &seq,
        &(struct stg_audit_begin){.run = RUN,
                                  .attempt = 3,
                                  .lane = "",
                                  .delivery = "split",
                                  .point.taken = "",
                                  .tag = "t",
                                  .hosts = {"a job", 2, 1, 3, 64, 1, 5}});
    CHECK_OK(stg_audit_read(&audit, text.bytes, text.n, &err), err);
    stg_audit_write(&audit, &again);
    CHECK_OK(stg_audit_read(&second, again.bytes, again.n, &err), err);
    CHECK_INT(second.n_bad, 0);
    const struct stg_audit_hosts *hosts = &second.attempts[0].begin.hosts;
    CHECK_STR(hosts->job, "a job");
    CHECK_INT(hosts->generation, 2);
    CHECK_INT(hosts->host, 1);
    CHECK_INT(hosts->n_hosts, 3);
    CHECK_INT(hosts->base, 64);
    CHECK_INT(hosts->from_generation, 1);
    CHECK_INT(hosts->from_items, 5);
    CHECK_INT(second.attempts[0].begin.from, 0);
    stg_audit_finish(&audit);
    stg_audit_finish(&second);
    free(text.bytes);
    free(again.bytes);
}

static void a_flipped_byte_is_noticed(void)
{
    struct stg_audit_text text = {0};
    write_run(&text);
    for (size_t i = 0; i < text.n; i++) {
        struct stg_audit audit = {0};
        text.bytes[i] ^= 4;
        CHECK_OK(stg_audit_read(&audit, text.bytes, text.n, &err), err);
        const struct stg_audit_run *run = stg_audit_find_run(&audit, RUN);
        /* A line feed between two lines is there twice. */
        bool is_same = run != NULL && !run->is_missing && run->end_ns != 0 &&
                       audit.n_attempts == 1 && audit.attempts[0].n_commits == 1;
        CHECK(audit.n_bad > 0 || is_same);
        text.bytes[i] ^= 4;
        stg_audit_finish(&audit);
    }
    free(text.bytes);
}

static void a_text_that_is_cut_has_what_is_before_the_cut(void)
{
    struct stg_audit_text text = {0};
    size_t n_before = 0;
    write_run(&text);
    for (size_t n = 0; n <= text.n; n++) {
        struct stg_audit audit = {0};
        CHECK_OK(stg_audit_read(&audit, text.bytes, n, &err), err);
        size_t n_all = audit.n_runs + audit.n_attempts + audit.n_trails + audit.n_shares;
        CHECK(n_all >= n_before && audit.n_bad <= 1);
        n_before = n_all;
        stg_audit_finish(&audit);
    }
    CHECK_INT(n_before, 4);
    free(text.bytes);
}

static void a_missing_line_is_noticed_and_one_that_is_there_twice_counts_once(void)
{
    struct stg_audit_text first = {0}, second = {0};
    struct stg_audit_trail trail = {.run = RUN};
    struct stg_audit audit = {0};
    uint64_t seq = 0, n;
    publish(&trail, 0, 5, 100);
    stg_audit_write_trail(&first, &seq, &trail);
    CHECK_OK(stg_audit_read(&audit, first.bytes, first.n, &err), err);
    CHECK_OK(stg_audit_read(&audit, first.bytes, first.n, &err), err);
    sum_of(&audit.trails[0], &n);
    CHECK_INT(n, 5);
    CHECK(!audit.runs[0].is_missing);
    seq++; /* a line that is missing */
    trail.n = 0;
    publish(&trail, 5, 7, 100);
    stg_audit_write_trail(&second, &seq, &trail);
    CHECK_OK(stg_audit_read(&audit, second.bytes, second.n, &err), err);
    sum_of(&audit.trails[0], &n);
    CHECK_INT(n, 7);
    CHECK(audit.runs[0].is_missing);
    stg_audit_trail_finish(&trail);
    stg_audit_finish(&audit);
    free(first.bytes);
    free(second.bytes);
}

static void more_items_than_cells_share_them(void)
{
    struct stg_audit_trail exact = {0}, folded = {0};
    uint64_t n, m;
    publish(&exact, 3, 1003, 10000);
    publish(&folded, 3, 1003, 64);
    CHECK_INT(exact.n, 1000);
    CHECK(folded.n <= 64 && folded.block == 16);
    CHECK(sum_of(&exact, &n) == sum_of(&folded, &m));
    CHECK(n == 1000 && m == 1000);
    for (size_t i = 0; i < folded.n; i++)
        CHECK(folded.cells[i].first / 16 == (folded.cells[i].end - 1) / 16);
    stg_audit_trail_finish(&exact);
    stg_audit_trail_finish(&folded);
}

static void a_smaller_table_has_the_same_sums(void)
{
    struct stg_audit audit = {0};
    struct stg_audit_text text = {0}, small = {0};
    struct stg_audit_trail trail = {.run = RUN};
    uint64_t seq = 0, n;
    stg_audit_write_begin(
        &text, &seq,
        &(struct stg_audit_begin){
            .run = RUN, .attempt = 1, .lane = "", .delivery = "split", .tag = ""});
    publish(&trail, 0, 10000, 100000);
    uint64_t sum = sum_of(&trail, &n);
    stg_audit_write_trail(&text, &seq, &trail);
    for (unsigned i = 0; i < 10; i++) {
        char tag[16];
        snprintf(tag, sizeof(tag), "%u", i);
        stg_audit_write_commit(
            &text, &(struct stg_audit_commit){
                       .run = RUN, .attempt = 1, .tag = tag, .point = {0, i, i, ""}});
    }
    uint64_t other = 0;
    stg_audit_write_begin(&text, &other,
                          &(struct stg_audit_begin){.run = RUN + 1,
                                                    .attempt = 2,
                                                    .lane = "",
                                                    .delivery = "split",
                                                    .from = 1,
                                                    .tag = "2"});
    CHECK_OK(stg_audit_read(&audit, text.bytes, text.n, &err), err);
    stg_audit_shrink(&audit, 1000, 5, 2);
    stg_audit_write(&audit, &small);
    CHECK(small.n < text.n / 5);
    stg_audit_finish(&audit);
    CHECK_OK(stg_audit_read(&audit, small.bytes, small.n, &err), err);
    CHECK_INT(audit.n_bad, 0);
    CHECK(sum_of(&audit.trails[0], &n) == sum && n == 10000);
    CHECK_INT(audit.trails[0].cells[0].end, 256);
    CHECK_INT(audit.trails[0].n, 1000 + (9000 + 255) / 256);
    CHECK_INT(audit.attempts[0].n_commits, 3); /* the last two, and that of attempt 2 */
    stg_audit_shrink(&audit, 0, 1, 2);
    CHECK_INT(audit.n_attempts, 1);
    CHECK(audit.n_trails == 0 && audit.n_runs == 1);
    stg_audit_forget_items(&audit);
    CHECK(audit.runs[0].is_missing);
    stg_audit_trail_finish(&trail);
    stg_audit_finish(&audit);
    free(text.bytes);
    free(small.bytes);
}

static void a_set_without_a_pattern_goes_on_in_another_one(void)
{
    struct stg_audit audit = {0};
    struct stg_audit_text text = {0};
    struct stg_audit_share share = {.run = RUN, .attempt = 1, .client = "c"};
    uint64_t seq = 0, item = 0, n = 0, n_read = 0;
    uint64_t random = 1;
    for (unsigned k = 0; k < 5; k++) {
        for (unsigned i = 0; i < 8000; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            item += 1 + (random >> 60);
            CHECK(stg_audit_take(&share.delivered, item, 1) == 0);
        }
        n += share.delivered.n;
        stg_audit_write_share(&text, &seq, &share);
        stg_audit_share_finish(&share);
        share.delivered = (struct stg_audit_items){0};
    }
    CHECK_OK(stg_audit_read(&audit, text.bytes, text.n, &err), err);
    CHECK(audit.n_shares > 1);
    for (size_t i = 0; i < audit.n_shares; i++) {
        struct stg_taken_walk walk = {.set = &audit.shares[i].delivered.set};
        while (stg_taken_next(&walk))
            n_read += walk.end - walk.begin;
    }
    CHECK_INT(n, 40000);
    CHECK_INT(n_read, 40000);
    stg_audit_finish(&audit);
    free(text.bytes);
}

/* A set of a few bytes can have more ranges than fit anywhere. */
static void a_set_without_end_is_refused(void)
{
    struct stg_audit audit = {0};
    struct stg_audit_text text = {0};
    struct stg_taken_run run = {.gap = 1, .len = 1, .n = UINT64_C(1) << 40};
    struct stg_audit_share share = {.run = RUN, .attempt = 1, .client = "c"};
    uint64_t seq = 0;
    share.delivered.set = (struct stg_taken){.runs = &run, .n = 1, .end = 2 * run.n};
    stg_audit_write_share(&text, &seq, &share);
    CHECK(stg_audit_read(&audit, text.bytes, text.n, &err) == -STAGER_RESOURCE_EXHAUSTED);
    stg_audit_finish(&audit);
    free(text.bytes);
}

static const struct stg_test tests[] = {
    TEST(a_text_is_read_as_it_was_written),
    TEST(an_attempt_of_a_job_is_read_as_it_was_written),
    TEST(a_flipped_byte_is_noticed),
    TEST(a_text_that_is_cut_has_what_is_before_the_cut),
    TEST(a_missing_line_is_noticed_and_one_that_is_there_twice_counts_once),
    TEST(more_items_than_cells_share_them),
    TEST(a_smaller_table_has_the_same_sums),
    TEST(a_set_without_a_pattern_goes_on_in_another_one),
    TEST(a_set_without_end_is_refused),
};

TEST_MAIN(tests)
