/* SPDX-License-Identifier: Apache-2.0
 *
 * The record of a run: what is written is read again, and no damaged text is.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/fingerprint.h"
#include "daemon/recover/record.h"
#include "tests/check.h"
#include "tests/failalloc.h"

#define N_MEMBERS 3

static struct stg_run_record *make_record(void)
{
    struct stg_run_record *record = calloc(1, sizeof(*record));
    *record = (struct stg_run_record){.boot = "0f5e7d1c-0000-4000-8000-000000000000",
                                      .name = "reader",
                                      .generation = 7,
                                      .fingerprint = UINT64_C(0xfedcba9876543210),
                                      .steps = "range:00000001",
                                      .delivery = STG_DELIVERY_ROUND_ROBIN,
                                      .batch_size = 8,
                                      .run = 12345,
                                      .attempt = 9,
                                      .num_clients = N_MEMBERS,
                                      .pass = 4,
                                      .numbers_pass = 3,
                                      .consumers = 5,
                                      .has_begun = true,
                                      .has_origin = true,
                                      .n_vacant = 2,
                                      .n_members = N_MEMBERS};
    struct stg_taken left = {0};
    for (uint64_t i = 0; i < 10; i++)
        stg_taken_add(&left, 3 * i + 1, 3 * i + 3, NULL);
    stg_taken_write(&left, record->left, NULL);
    stg_taken_finish(&left);
    record->origin = (struct stg_state){.steps = "range:00000001",
                                        .order = 1,
                                        .pass = 3,
                                        .run = 1,
                                        .consumers = 2,
                                        .taken = "c",
                                        .place = {.items = 2}};
    record->vacant = calloc(2, sizeof(record->vacant[0]));
    record->vacant[0] = 4;
    record->vacant[1] = 2;
    record->members = calloc(N_MEMBERS, sizeof(record->members[0]));
    for (uint32_t i = 0; i < N_MEMBERS; i++)
        record->members[i] = (struct stg_run_member){.member = UINT64_MAX - i,
                                                     .attempt = i,
                                                     .process = 100 + i,
                                                     .pid = 1000 + i,
                                                     .uid = 10 + i,
                                                     .rank = i,
                                                     .consumer = i + 1,
                                                     .is_named = i == 0,
                                                     .is_late = i == 1,
                                                     .took_over = i == 2,
                                                     .follows = i == 1};
    strcpy(record->members[0].client_id, "trainer 1 % \n=end");
    record->members[2].acknowledged = strdup(record->left);
    memset(record->members[1].client_id, 'x', 127);
    return record;
}

static void destroy(struct stg_run_record *record)
{
    stg_run_record_finish(record);
    free(record);
}

static void check_member(const struct stg_run_member *got,
                         const struct stg_run_member *want)
{
    CHECK(got->member == want->member && got->process == want->process);
    CHECK_INT(got->attempt, want->attempt);
    CHECK_INT(got->pid, want->pid);
    CHECK_INT(got->uid, want->uid);
    CHECK_INT(got->rank, want->rank);
    CHECK_INT(got->consumer, want->consumer);
    CHECK_INT(got->is_named, want->is_named);
    CHECK_INT(got->is_late, want->is_late);
    CHECK_INT(got->took_over, want->took_over);
    CHECK_INT(got->follows, want->follows);
    CHECK_STR(got->client_id, want->client_id);
    CHECK_INT(got->acknowledged != NULL, want->acknowledged != NULL);
    if (want->acknowledged != NULL)
        CHECK_STR(got->acknowledged, want->acknowledged);
}

static void a_record_is_read_as_it_was_written(void)
{
    struct stg_err err = {0};
    struct stg_run_record *record = make_record(), *got = calloc(1, sizeof(*got));
    size_t bytes;
    char *text = stg_run_record_write(record, &bytes);
    CHECK_OK(stg_run_record_read(text, bytes, got, &err), err);
    CHECK_STR(got->boot, record->boot);
    CHECK_STR(got->name, "reader");
    CHECK_INT(got->generation, 7);
    CHECK(got->fingerprint == record->fingerprint && got->run == record->run);
    CHECK_STR(got->steps, "range:00000001");
    CHECK_INT(got->delivery, STG_DELIVERY_ROUND_ROBIN);
    CHECK_INT(got->batch_size, 8);
    CHECK_INT(got->attempt, 9);
    CHECK_INT(got->pass, 4);
    CHECK_INT(got->numbers_pass, 3);
    CHECK_INT(got->consumers, 5);
    CHECK(got->has_begun && !got->is_full && got->has_origin);
    CHECK_STR(got->left, record->left);
    CHECK(stg_state_differs(&got->origin, &record->origin) == NULL);
    CHECK_INT(got->n_vacant, 2);
    CHECK(got->vacant[0] == 4 && got->vacant[1] == 2);
    CHECK_INT(got->n_members, N_MEMBERS);
    CHECK_INT(got->num_clients, N_MEMBERS);
    for (size_t i = 0; i < N_MEMBERS; i++)
        check_member(&got->members[i], &record->members[i]);
    free(text);
    destroy(record);
    destroy(got);
}

static void a_record_without_members_or_origin_is_read(void)
{
    struct stg_err err = {0};
    struct stg_run_record *record = calloc(1, sizeof(*record));
    struct stg_run_record *got = calloc(1, sizeof(*got));
    strcpy(record->boot, "b");
    strcpy(record->name, "p");
    record->num_clients = 1;
    size_t bytes;
    char *text = stg_run_record_write(record, &bytes);
    CHECK_OK(stg_run_record_read(text, bytes, got, &err), err);
    CHECK_INT(got->n_members, 0);
    CHECK(!got->has_origin);
    free(text);
    destroy(record);
    destroy(got);
}

static void refuse(const char *text, size_t bytes)
{
    struct stg_err err = {0};
    struct stg_run_record *got = calloc(1, sizeof(*got));
    CHECK_INT(stg_run_record_read(text, bytes, got, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "not a ");
    destroy(got);
}

static void damage_at_any_byte_is_found(void)
{
    struct stg_run_record *record = make_record();
    size_t bytes;
    char *text = stg_run_record_write(record, &bytes);
    for (size_t i = 0; i < bytes; i++) {
        refuse(text, i);
        for (int bit = 0; bit < 8; bit++) {
            text[i] ^= (char)(1 << bit);
            refuse(text, bytes);
            text[i] ^= (char)(1 << bit);
        }
    }
    free(text);
    destroy(record);
}

/* A text whose sum is right, after an edit of its body. */
static void refuse_body(const char *body)
{
    char text[4096];
    int n = snprintf(text, sizeof(text), "%s", body);
    n += snprintf(text + n, sizeof(text) - (size_t)n, "sum %016llx\n",
                  (unsigned long long)stg_farm_hash(body, strlen(body)));
    refuse(text, (size_t)n);
}

#define HEAD "stager_run 2 boot p 1 0000000000000001\n"
#define RUN(vacant, members)                                                             \
    "run 0000000000000001 1 1 0 0 0 1 0 " vacant " " members                             \
    "\ndefinition 0 0 =\nleft =\norigin \n"

static void a_body_that_is_not_whole_is_refused(void)
{
    refuse_body("");
    refuse_body("stager_run 3 boot p 1 0000000000000001\n" RUN("0", "0"));
    refuse_body("stager_run 2 boot p 1\n" RUN("0", "0"));
    refuse_body(HEAD);
    refuse_body(HEAD "run 1 1 1 0 0 0 1 0 0\nleft =\norigin \n");
    refuse_body(HEAD "run 0000000000000001 1 1 0 0 0 1 0 0 0\nleft =\norigin \n");
    refuse_body(HEAD RUN("0", "99999999"));
    refuse_body(HEAD RUN("1", "0"));
    refuse_body(HEAD RUN("0", "1"));
    refuse_body(HEAD RUN("0", "1") "member 0 1 1 1 1 1 1 0 0 0 0 = =a\n");
    refuse_body(HEAD RUN("0", "1") "member 1 1 1 1 1 1 1 0 0 0 = =a\n");
    refuse_body(HEAD RUN("0", "1") "member 1 1 1 1 1 1 1 0 0 0 0 = a\n");
    refuse_body(HEAD RUN("0", "1") "member 1 1 1 1 1 1 1 0 0 0 0 = =a%0\n");
    refuse_body(HEAD RUN("0", "1") "member 1 1 1 1 1 1 1 0 0 0 0 = =a%00\n");
    refuse_body(HEAD RUN("0", "1") "member 1 1 1 1 1 1 1 0 0 0 0 =? =a\n");
    refuse_body(HEAD RUN("0", "1") "member 1 1 1 1 1 1 1 0 0 0 0 a =a\n");
    refuse_body(HEAD RUN("0", "0") "text\n");
    refuse_body(HEAD RUN("0", "0") "text");
}

struct text {
    char *bytes;
    size_t n;
};

static int read_it(void *owner)
{
    const struct text *text = owner;
    struct stg_run_record record = {0};
    struct stg_err err = {0};
    int rc = stg_run_record_read(text->bytes, text->n, &record, &err);
    stg_run_record_finish(&record);
    return rc;
}

static void memory_that_runs_out_is_an_error(void)
{
    struct stg_run_record *record = make_record();
    struct text text;
    text.bytes = stg_run_record_write(record, &text.n);
    CHECK(stg_failalloc_each(read_it, &text) > 2);
    free(text.bytes);
    destroy(record);
}

static const struct stg_test tests[] = {
    TEST(a_record_is_read_as_it_was_written),
    TEST(a_record_without_members_or_origin_is_read),
    TEST_SLOW(damage_at_any_byte_is_found, 60),
    TEST(a_body_that_is_not_whole_is_refused),
    TEST(memory_that_runs_out_is_an_error),
};
TEST_MAIN(tests)
