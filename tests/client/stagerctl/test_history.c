/* SPDX-License-Identifier: Apache-2.0
 *
 * Histories of an audit: what is exactly once and what is not, and the first item in
 * which two of them differ. Audits are written as a daemon would.
 */
#include "client/stagerctl/report/history.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"

static struct stg_err err;

/* ---- a daemon ---- */

struct pen {
    struct stg_audit_text text;
    uint64_t seq[16]; /* of the runs */
    struct stg_audit audit;
};

static void begin(struct pen *pen, uint64_t attempt, uint64_t items, uint64_t from,
                  const char *tag)
{
    stg_audit_write_begin(&pen->text, &pen->seq[attempt],
                          &(struct stg_audit_begin){.run = attempt,
                                                    .attempt = attempt,
                                                    .lane = "",
                                                    .delivery = "split",
                                                    .is_known = true,
                                                    .point = {0, items, items, ""},
                                                    .from = from,
                                                    .tag = tag});
}

static uint64_t hash_of(uint64_t item, uint64_t content)
{
    return stg_audit_hash(item, item, item + 1, 1, content);
}

/* Items of a pass; the content of one of them differs. */
static void publish(struct pen *pen, uint64_t run, uint64_t pass, uint64_t first,
                    uint64_t end, uint64_t odd)
{
    struct stg_audit_trail trail = {.run = run, .pass = pass, .has_contents = true};
    for (uint64_t i = first; i < end; i++)
        CHECK(stg_audit_publish(&trail, i, hash_of(i, i == odd ? 2 : 1), 4096) == 0);
    stg_audit_write_trail(&pen->text, &pen->seq[run], &trail);
    stg_audit_trail_finish(&trail);
}

static void skip(struct pen *pen, uint64_t run, uint64_t pass, uint64_t item)
{
    struct stg_audit_trail trail = {.run = run, .pass = pass, .has_contents = true};
    CHECK(stg_taken_add(&trail.skipped, item, item + 1, NULL) == 0);
    stg_audit_write_trail(&pen->text, &pen->seq[run], &trail);
    stg_audit_trail_finish(&trail);
}

/* Every step-th item; it acknowledges those before `acknowledged`. */
static void deliver(struct pen *pen, uint64_t attempt, const char *client, uint64_t pass,
                    uint64_t first, uint64_t end, uint64_t step, uint64_t acknowledged)
{
    struct stg_audit_share share = {.run = attempt, .attempt = attempt, .pass = pass};
    snprintf(share.client, sizeof(share.client), "%s", client);
    for (uint64_t i = first; i < end; i += step) {
        CHECK(stg_audit_take(&share.delivered, i, hash_of(i, 1)) == 0);
        if (i < acknowledged)
            CHECK(stg_audit_take(&share.acknowledged, i, hash_of(i, 1)) == 0);
    }
    stg_audit_write_share(&pen->text, &pen->seq[attempt], &share);
    stg_audit_share_finish(&share);
}

static void commit(struct pen *pen, uint64_t attempt, const char *tag, uint64_t pass,
                   uint64_t items, const char *taken)
{
    stg_audit_write_commit(
        &pen->text, &(struct stg_audit_commit){.run = attempt,
                                               .attempt = attempt,
                                               .tag = tag,
                                               .point = {pass, items, items, taken}});
}

static void read(struct pen *pen)
{
    stg_audit_finish(&pen->audit);
    CHECK_OK(stg_audit_read(&pen->audit, pen->text.bytes, pen->text.n, &err), err);
    CHECK_INT(pen->audit.n_bad, 0);
}

static void finish(struct pen *pen)
{
    stg_audit_finish(&pen->audit);
    free(pen->text.bytes);
    *pen = (struct pen){0};
}

static struct stg_history_proof prove(struct pen *pen)
{
    struct stg_history history;
    struct stg_history_proof proof;
    read(pen);
    CHECK_OK(stg_history_find(&pen->audit, "", 0, true, &history, &err), err);
    CHECK_OK(stg_history_prove(&history, &proof, &err), err);
    stg_history_finish(&history);
    return proof;
}

/* ---- proofs ---- */

static void an_attempt_after_another_is_exactly_once(void)
{
    struct pen pen = {0};
    begin(&pen, 1, 0, 0, "");
    deliver(&pen, 1, "a", 0, 0, 60, 1, 55);
    commit(&pen, 1, "fifty", 0, 50, "");
    begin(&pen, 2, 50, 1, "fifty");
    deliver(&pen, 2, "b", 0, 50, 101, 1, 99);
    commit(&pen, 2, "hundred", 0, 100, "");
    struct stg_history_proof proof = prove(&pen);
    CHECK(stg_history_is_proven(&proof) && proof.is_whole);
    CHECK_INT(proof.n_items, 100);
    CHECK_INT(proof.n_acknowledged, 99);
    CHECK_INT(proof.n_unacknowledged, 1);
    finish(&pen);
}

static void an_item_that_no_client_got_is_named(void)
{
    struct pen pen = {0};
    begin(&pen, 1, 0, 0, "");
    deliver(&pen, 1, "a", 0, 0, 10, 1, 10);
    deliver(&pen, 1, "a", 0, 12, 20, 1, 20);
    skip(&pen, 1, 0, 10);
    commit(&pen, 1, "t", 0, 20, "");
    struct stg_history_proof proof = prove(&pen);
    CHECK(!stg_history_is_proven(&proof));
    CHECK_INT(proof.missing.n, 1);
    CHECK_INT(proof.missing.first[0].first, 11);
    CHECK_INT(proof.missing.first[0].attempt, 1);
    CHECK_INT(proof.n_skipped, 1);
    finish(&pen);
}

static void an_item_that_two_clients_acknowledged_is_named(void)
{
    struct pen pen = {0};
    begin(&pen, 1, 0, 0, "");
    deliver(&pen, 1, "a", 0, 0, 20, 2, 20);
    deliver(&pen, 1, "b", 0, 1, 20, 2, 20);
    deliver(&pen, 1, "c", 0, 6, 9, 1, 8); /* 6 and 7; 8 came again, and went */
    commit(&pen, 1, "t", 0, 20, "");
    struct stg_history_proof proof = prove(&pen);
    CHECK_INT(proof.twice.n, 2);
    CHECK_INT(proof.twice.first[0].first, 6);
    CHECK_INT(proof.twice.first[0].end, 8);
    CHECK_INT(proof.n_acknowledged, 18);
    CHECK_INT(proof.missing.n, 0);
    finish(&pen);
}

/* Items 3 and 5 were taken out of order. */
static void a_merged_state_begins_the_next_attempt(void)
{
    struct pen pen = {0};
    begin(&pen, 1, 0, 0, "");
    deliver(&pen, 1, "a", 0, 0, 3, 1, 3);
    deliver(&pen, 1, "b", 0, 3, 6, 2, 6);
    commit(&pen, 1, "m", 0, 3, "ca");
    stg_audit_write_begin(&pen.text, &pen.seq[2],
                          &(struct stg_audit_begin){.run = 2,
                                                    .attempt = 2,
                                                    .lane = "",
                                                    .delivery = "split",
                                                    .is_known = true,
                                                    .point = {0, 3, 3, "ca"},
                                                    .from = 1,
                                                    .tag = "m"});
    deliver(&pen, 2, "c", 0, 4, 5, 1, 5);
    deliver(&pen, 2, "c", 0, 6, 10, 1, 10);
    commit(&pen, 2, "end", 0, 10, "");
    struct stg_history_proof proof = prove(&pen);
    CHECK(stg_history_is_proven(&proof));
    CHECK_INT(proof.n_items, 10);
    finish(&pen);
}

static void passes_that_are_over_count_with_all_their_items(void)
{
    struct pen pen = {0};
    begin(&pen, 1, 0, 0, "");
    for (uint64_t pass = 0; pass < 3; pass++) {
        publish(&pen, 1, pass, 0, 7, UINT64_MAX);
        deliver(&pen, 1, "a", pass, 0, pass == 1 ? 6 : 7, 1, 7);
    }
    commit(&pen, 1, "t", 2, 7, "");
    struct stg_history_proof proof = prove(&pen);
    CHECK_INT(proof.n_items, 21);
    CHECK_INT(proof.missing.n, 1); /* it was published, and is of pass 1 */
    CHECK_INT(proof.missing.first[0].pass, 1);
    CHECK_INT(proof.missing.first[0].first, 6);
    finish(&pen);
}

/* The second attempt has no item of the pass at whose end it begins. */
static void an_attempt_may_begin_at_the_end_of_a_pass(void)
{
    struct pen pen = {0};
    begin(&pen, 1, 0, 0, "");
    deliver(&pen, 1, "a", 0, 0, 7, 1, 7);
    commit(&pen, 1, "seven", 0, 7, "");
    begin(&pen, 2, 7, 1, "seven");
    deliver(&pen, 2, "a", 1, 0, 3, 1, 3);
    commit(&pen, 2, "ten", 1, 3, "");
    struct stg_history_proof proof = prove(&pen);
    CHECK(stg_history_is_proven(&proof));
    CHECK_INT(proof.n_items, 10);
    finish(&pen);
}

static void what_is_not_recorded_is_not_proven(void)
{
    struct pen pen = {0};
    begin(&pen, 1, 0, 0, "");
    deliver(&pen, 1, "a", 0, 0, 20, 1, 20);
    pen.seq[1]++;
    deliver(&pen, 1, "a", 0, 20, 30, 1, 30);
    commit(&pen, 1, "t", 0, 30, "");
    struct stg_history_proof proof = prove(&pen);
    CHECK(!proof.is_recorded && !stg_history_is_proven(&proof));
    CHECK_INT(proof.missing.n, 0);
    finish(&pen);
}

/* The attempt went on in another run, from the states of its clients. */
static void the_last_moment_of_a_killed_daemon_is_not_missing(void)
{
    struct pen pen = {0};
    begin(&pen, 1, 0, 0, "");
    deliver(&pen, 1, "a", 0, 0, 20, 1, 20);
    stg_audit_write_begin(&pen.text, &pen.seq[2],
                          &(struct stg_audit_begin){.run = 2,
                                                    .attempt = 1,
                                                    .lane = "",
                                                    .delivery = "split",
                                                    .is_known = true,
                                                    .point = {0, 25, 25, ""},
                                                    .from = 1,
                                                    .tag = ""});
    struct stg_audit_share share = {.run = 2, .attempt = 1, .client = "a"};
    for (uint64_t i = 25; i < 30; i++)
        CHECK(stg_audit_take(&share.acknowledged, i, 1) == 0);
    stg_audit_write_share(&pen.text, &pen.seq[2], &share);
    stg_audit_share_finish(&share);
    stg_audit_write_commit(
        &pen.text, &(struct stg_audit_commit){
                       .run = 2, .attempt = 1, .tag = "t", .point = {0, 30, 30, ""}});
    struct stg_history_proof proof = prove(&pen);
    CHECK_INT(proof.n_unrecorded, 5);
    CHECK_INT(proof.missing.n, 0);
    CHECK_INT(proof.n_acknowledged, 25);
    CHECK(!stg_history_is_proven(&proof));
    finish(&pen);
}

/* A job whose hosts etcd has: attempt 2 is of another job, and attempt 3 is of the
 * generation that went on at item 20 of generation 1, with items that begin anew. */
static void begin_in_job(struct pen *pen, uint64_t attempt, const char *job,
                         struct stg_audit_hosts hosts, const char *tag)
{
    hosts.job = job;
    stg_audit_write_begin(&pen->text, &pen->seq[attempt],
                          &(struct stg_audit_begin){.run = attempt,
                                                    .attempt = attempt,
                                                    .lane = "",
                                                    .delivery = "split",
                                                    .is_known = true,
                                                    .point = {0, 0, 0, ""},
                                                    .tag = tag,
                                                    .hosts = hosts});
}

static void write_job(struct pen *pen)
{
    begin_in_job(pen, 1, "run", (struct stg_audit_hosts){.generation = 1, .n_hosts = 3},
                 "");
    deliver(pen, 1, "a", 0, 0, 50, 1, 50);
    commit(pen, 1, "t", 0, 20, "");
    begin_in_job(pen, 2, "other", (struct stg_audit_hosts){.generation = 1, .n_hosts = 1},
                 "");
    deliver(pen, 2, "a", 0, 0, 5, 1, 5);
    begin_in_job(pen, 3, "run",
                 (struct stg_audit_hosts){.generation = 2,
                                          .n_hosts = 2,
                                          .base = 60,
                                          .from_generation = 1,
                                          .from_items = 20},
                 "t");
    deliver(pen, 3, "a", 0, 0, 30, 1, 30);
    deliver(pen, 3, "a", 1, 0, 10, 1, 10);
    commit(pen, 3, "u", 1, 10, "");
}

static void a_generation_of_another_number_of_hosts_numbers_items_anew(void)
{
    struct pen pen = {0};
    struct stg_history history;
    struct stg_history_proof proof;
    write_job(&pen);
    read(&pen);
    CHECK_INT(pen.audit.attempts[2].begin.from, 1);
    stg_audit_keep_job(&pen.audit, "run");
    CHECK_INT(pen.audit.n_attempts, 2);
    CHECK_OK(stg_history_find(&pen.audit, "", 0, true, &history, &err), err);
    CHECK_INT(history.n, 2);
    CHECK_OK(stg_history_prove(&history, &proof, &err), err);
    /* Not the items of pass 0 that the first generation numbered up to 50. */
    CHECK_INT(proof.n_items, 20 + 30 + 10);
    CHECK_INT(proof.n_acknowledged, 60);
    CHECK(proof.is_whole && stg_history_is_proven(&proof));
    stg_history_finish(&history);
    finish(&pen);
}

static void a_host_that_joined_a_job_has_no_whole_history(void)
{
    struct pen pen = {0};
    begin_in_job(&pen, 1, "run",
                 (struct stg_audit_hosts){.generation = 2,
                                          .n_hosts = 2,
                                          .base = 60,
                                          .from_generation = 1,
                                          .from_items = 20},
                 "t");
    deliver(&pen, 1, "a", 0, 0, 30, 1, 30);
    commit(&pen, 1, "u", 0, 30, "");
    struct stg_history_proof proof = prove(&pen);
    CHECK_INT(proof.n_items, 30);
    CHECK(!proof.is_whole && stg_history_is_proven(&proof));
    stg_audit_keep_job(&pen.audit, NULL);
    CHECK_INT(pen.audit.n_attempts, 0);
    finish(&pen);
}

static void an_attempt_without_a_commit_does_not_count(void)
{
    struct pen pen = {0};
    struct stg_history history;
    begin(&pen, 1, 0, 0, "");
    deliver(&pen, 1, "a", 0, 0, 20, 1, 20);
    read(&pen);
    CHECK_OK(stg_history_find(&pen.audit, "", 0, true, &history, &err), err);
    CHECK_INT(history.n, 0);
    stg_history_finish(&history);
    CHECK(stg_history_find(&pen.audit, "", 9, true, &history, &err) == -STAGER_NOT_FOUND);
    CHECK_CONTAINS(err.text, "the audit has no attempt 9");
    commit(&pen, 1, "ten", 0, 10, "");
    begin(&pen, 2, 10, 1, "ten");
    deliver(&pen, 2, "a", 0, 10, 15, 1, 15);
    struct stg_history_proof proof = prove(&pen);
    CHECK_INT(proof.n_items, 10);
    finish(&pen);
}

static void a_set_without_end_ends_the_proof(void)
{
    struct pen pen = {0};
    begin(&pen, 1, 0, 0, "");
    commit(&pen, 1, "t", 0, 3, "c1000000000000");
    struct stg_history history;
    struct stg_history_proof proof;
    read(&pen);
    CHECK_OK(stg_history_find(&pen.audit, "", 0, true, &history, &err), err);
    CHECK(stg_history_prove(&history, &proof, &err) == -STAGER_OUT_OF_RANGE);
    stg_history_finish(&history);
    finish(&pen);
}

/* ---- comparisons ---- */

static struct stg_history_difference compare(struct pen *a, struct pen *b)
{
    struct stg_history of_a, of_b;
    struct stg_history_difference ret;
    read(a);
    read(b);
    CHECK_OK(stg_history_find(&a->audit, "", 0, false, &of_a, &err), err);
    CHECK_OK(stg_history_find(&b->audit, "", 0, false, &of_b, &err), err);
    CHECK_OK(stg_history_compare(&of_a, &of_b, &ret, &err), err);
    stg_history_finish(&of_a);
    stg_history_finish(&of_b);
    return ret;
}

static void a_run_with_a_restart_equals_one_without(void)
{
    struct pen a = {0}, b = {0};
    begin(&a, 1, 0, 0, "");
    publish(&a, 1, 0, 0, 100, UINT64_MAX);
    begin(&b, 1, 0, 0, "");
    publish(&b, 1, 0, 0, 60, 55); /* of item 55 on it does not count */
    commit(&b, 1, "fifty", 0, 50, "");
    begin(&b, 2, 50, 1, "fifty");
    publish(&b, 2, 0, 50, 80, UINT64_MAX);
    struct stg_history_difference d = compare(&a, &b);
    CHECK(!d.is_different && d.has_contents);
    CHECK_INT(d.n_items, 80);
    finish(&a);
    finish(&b);
}

static void the_first_item_that_differs_is_named(void)
{
    struct pen a = {0}, b = {0};
    begin(&a, 1, 0, 0, "");
    publish(&a, 1, 0, 0, 100, UINT64_MAX);
    deliver(&a, 1, "first", 0, 0, 100, 1, 100);
    begin(&b, 1, 0, 0, "");
    publish(&b, 1, 0, 0, 40, UINT64_MAX);
    commit(&b, 1, "forty", 0, 40, "");
    begin(&b, 2, 40, 1, "forty");
    publish(&b, 2, 0, 40, 100, 73);
    deliver(&b, 2, "even", 0, 40, 100, 2, 100);
    deliver(&b, 2, "odd", 0, 41, 100, 2, 41);
    struct stg_history_difference d = compare(&a, &b);
    CHECK(d.is_different);
    CHECK_INT(d.n_items, 73);
    CHECK_INT(d.first, 73);
    CHECK_INT(d.end, 74);
    CHECK_STR(d.a.client, "first");
    CHECK_STR(d.b.client, "odd");
    CHECK_INT(d.b.attempt, 2);
    finish(&a);
    finish(&b);
}

/* One has old hashes by blocks, the other one each. */
static void blocks_are_compared_with_their_items(void)
{
    for (int odd = 0; odd < 2; odd++) {
        struct pen a = {0}, b = {0};
        begin(&a, 1, 0, 0, "");
        publish(&a, 1, 0, 0, 3000, UINT64_MAX);
        begin(&b, 1, 0, 0, "");
        publish(&b, 1, 0, 0, 3000, odd ? 700 : UINT64_MAX);
        read(&a);
        stg_audit_shrink(&a.audit, 100, 5, 5);
        a.text.n = 0;
        stg_audit_write(&a.audit, &a.text);
        struct stg_history_difference d = compare(&a, &b);
        CHECK(d.is_different == (odd == 1));
        CHECK_INT(d.n_items, odd ? 512 : 3000);
        CHECK_INT(odd ? d.first : 512, 512);
        CHECK_INT(odd ? d.end : 768, 768);
        finish(&a);
        finish(&b);
    }
}

static void an_item_that_one_run_has_not_is_a_difference(void)
{
    struct pen a = {0}, b = {0};
    begin(&a, 1, 0, 0, "");
    publish(&a, 1, 0, 0, 100, UINT64_MAX);
    begin(&b, 1, 0, 0, "");
    publish(&b, 1, 0, 0, 30, UINT64_MAX);
    publish(&b, 1, 0, 31, 100, UINT64_MAX);
    struct stg_history_difference d = compare(&a, &b);
    CHECK(d.is_different && d.a.is_there && !d.b.is_there);
    CHECK_INT(d.first, 30);
    CHECK_INT(d.end, 31);
    finish(&a);
    finish(&b);
}

static const struct stg_test tests[] = {
    TEST(an_attempt_after_another_is_exactly_once),
    TEST(an_item_that_no_client_got_is_named),
    TEST(an_item_that_two_clients_acknowledged_is_named),
    TEST(a_merged_state_begins_the_next_attempt),
    TEST(passes_that_are_over_count_with_all_their_items),
    TEST(an_attempt_may_begin_at_the_end_of_a_pass),
    TEST(what_is_not_recorded_is_not_proven),
    TEST(the_last_moment_of_a_killed_daemon_is_not_missing),
    TEST(a_generation_of_another_number_of_hosts_numbers_items_anew),
    TEST(a_host_that_joined_a_job_has_no_whole_history),
    TEST(an_attempt_without_a_commit_does_not_count),
    TEST_SLOW(a_set_without_end_ends_the_proof, 60),
    TEST(a_run_with_a_restart_equals_one_without),
    TEST(the_first_item_that_differs_is_named),
    TEST(blocks_are_compared_with_their_items),
    TEST(an_item_that_one_run_has_not_is_a_difference),
};

TEST_MAIN(tests)
