/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/failalloc.h"

#include <stdlib.h>
#include <string.h>

#include "core/arena.h"
#include "core/bump.h"
#include "core/device.h"
#include "core/lease.h"
#include "core/record/audit.h"
#include "core/record/line.h"
#include "core/state.h"
#include "tests/check.h"

static struct stg_err err;

static int make_arena(void *owner)
{
    struct stg_arena *arena = NULL;
    int rc = stg_arena_create(1u << 24, 8, &arena, &err);
    if (rc < 0) {
        CHECK(arena == NULL);
        CHECK_CONTAINS(err.text, "out of memory");
    }
    stg_arena_destroy(arena);
    return rc;
}

static int make_leases(void *owner)
{
    struct stg_lease_core *core = NULL;
    err.text[0] = '\0';
    int rc = stg_lease_core_create(1u << 24, 8, 4, 16, &core, &err);
    if (rc < 0) {
        CHECK(core == NULL);
        CHECK_CONTAINS(err.text, "out of memory");
    }
    stg_lease_core_destroy(core);
    return rc;
}

static int fill_bump(void *owner)
{
    struct stg_bump bump = {0};
    int rc = 0;
    for (size_t i = 0; i < 20 && rc == 0; i++) {
        if (stg_bump_alloc(&bump, 1000 * i) == NULL)
            rc = -STAGER_RESOURCE_EXHAUSTED;
    }
    /* Existing objects stay usable after a failure. */
    stg_bump_reset(&bump);
    if (rc == 0)
        CHECK(stg_bump_strndup(&bump, "abc", 3) != NULL);
    stg_bump_finish(&bump);
    return rc;
}

static int make_stream_and_event(void *owner)
{
    const struct stg_device *cpu = stg_device_cpu();
    struct stg_stream *stream = NULL;
    struct stg_device_event *event = NULL;
    void *memory = NULL;
    int rc = cpu->stream_create(0, &stream, &err);
    if (rc == 0)
        rc = cpu->event_create(0, &event, &err);
    if (rc == 0)
        rc = cpu->alloc(0, 1000, &memory, &err);
    cpu->event_destroy(event);
    cpu->stream_destroy(stream);
    cpu->free(0, memory);
    return rc;
}

/* Out of order, so that each item but the first makes the set anew. */
static int take_items(void *owner)
{
    struct stg_taken set = {0};
    int rc = 0;
    for (uint64_t item = 40; rc == 0 && item > 0; item -= 2) {
        uint64_t first = set.n > 0 ? set.runs[0].gap : 0, end = set.end;
        rc = stg_taken_add(&set, item, item + 1, &err);
        if (rc < 0) {
            CHECK_CONTAINS(err.text, "no memory for the items");
            CHECK(set.end == end && (end == 0 || set.runs[0].gap == first));
        }
    }
    stg_taken_finish(&set);
    return rc;
}

static int merge_states(void *owner)
{
    static struct stg_state states[3], merged;
    static const char *const taken[] = {"", "ab5", ".0+1.1+2*9bcaz"};
    for (size_t i = 0; i < 3; i++) {
        states[i].consumers = 3;
        states[i].consumer = i + 1;
        strcpy(i == 0 ? states[i].before : states[i].taken, taken[i]);
        states[i].pass = i == 0 ? 1 : 0;
        states[i].n_before = 5;
    }
    strcpy(states[0].before, ".0+5");
    merged.pass = 77;
    int rc = stg_state_merge(states, 3, &merged, &err);
    CHECK_INT(merged.pass, rc == 0 ? 1 : 77);
    if (rc < 0)
        CHECK_CONTAINS(err.text, "no memory");
    return rc;
}

static int read_state(void *owner)
{
    static struct stg_state state = {.consumers = 2, .taken = "abab9", .before = "a"},
                            ret;
    char text[STG_STATE_TEXT_BYTES];
    size_t n = stg_state_write(&state, text);
    return stg_state_read(text, n, &ret, &err);
}

/* ---- records ---- */

enum { RUN = 77, N_ITEMS = 40 };

/* What a stage collects of a run: each item published, every third one taken. */
static int collect(struct stg_audit_trail *trail, struct stg_audit_share *share)
{
    int rc = 0;
    *trail = (struct stg_audit_trail){.run = RUN, .pass = 1};
    *share = (struct stg_audit_share){.run = RUN, .attempt = 3, .pass = 1, .client = "c"};
    for (uint64_t i = 0; rc == 0 && i < N_ITEMS; i++) {
        rc = stg_audit_publish(trail, i, i, 1000);
        CHECK_INT(trail->n, i + (rc == 0));
    }
    for (uint64_t i = N_ITEMS; rc == 0 && i > 2; i -= 3) {
        uint64_t n = share->delivered.n, sum = share->delivered.sum;
        rc = stg_audit_take(&share->delivered, i, i);
        CHECK(rc == 0 || (share->delivered.n == n && share->delivered.sum == sum));
    }
    if (rc == 0)
        rc = stg_taken_add(&trail->skipped, N_ITEMS, N_ITEMS + 2, &err);
    return rc;
}

static int write_run(struct stg_audit_text *text)
{
    struct stg_audit_begin begin = {.run = RUN,
                                    .attempt = 3,
                                    .lane = "c",
                                    .delivery = "split",
                                    .is_known = true,
                                    .point = {1, 0, 0, "ab"},
                                    .tag = "t"};
    struct stg_audit_commit commit = {
        .run = RUN, .attempt = 3, .tag = "t", .point = {1, 5, 5, "a"}};
    struct stg_audit_trail trail;
    struct stg_audit_share share;
    uint64_t seq = 0;
    int rc = collect(&trail, &share);
    stg_audit_write_begin(text, &seq, &begin);
    stg_audit_write_trail(text, &seq, &trail);
    stg_audit_write_share(text, &seq, &share);
    stg_audit_write_commit(text, &commit);
    stg_audit_write_end(text, &seq, RUN, 5);
    stg_audit_trail_finish(&trail);
    stg_audit_share_finish(&share);
    return rc;
}

/* Each line that is there is whole. */
static void check_lines(const struct stg_audit_text *text)
{
    for (const char *at = text->bytes, *end = at + text->n; at < end; at++) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        CHECK(line_end != NULL);
        CHECK(line_end == at || stg_line_is_right(at, (size_t)(line_end - at), "a1 "));
        at = line_end;
    }
}

static int write_audit(void *owner)
{
    struct stg_audit_text text = {0};
    int rc = write_run(&text);
    if (text.n > 0)
        check_lines(&text);
    if (text.has_failed)
        rc = -STAGER_RESOURCE_EXHAUSTED;
    free(text.bytes);
    return rc;
}

/* A line that finds no memory is not taken for a damaged one. */
static int read_audit(void *owner)
{
    const struct stg_audit_text *text = owner;
    struct stg_audit audit = {0};
    int rc = stg_audit_read(&audit, text->bytes, text->n, &err);
    CHECK_INT(audit.n_bad, 0);
    const struct stg_audit_run *run = stg_audit_find_run(&audit, RUN);
    /* Items that a set has no memory for are missing, or follow in another set. */
    if (stg_failalloc_off() > 0 && rc == 0 && run->is_missing)
        rc = -STAGER_RESOURCE_EXHAUSTED;
    if (rc == 0)
        CHECK(!run->is_missing && audit.n_attempts == 1 &&
              audit.attempts[0].n_commits == 1 && audit.trails[0].n == N_ITEMS &&
              audit.shares[0].delivered.n == 13);
    if (rc == 0 && audit.n_shares > 1)
        rc = -STAGER_RESOURCE_EXHAUSTED;
    stg_audit_finish(&audit);
    return rc;
}

static void writing_an_audit_survives_every_failed_allocation(void)
{
    CHECK(stg_failalloc_each(write_audit, NULL) > 5);
}

static void reading_an_audit_survives_every_failed_allocation(void)
{
    struct stg_audit_text text = {0};
    CHECK_INT(write_run(&text), 0);
    CHECK(stg_failalloc_each(read_audit, &text) > 10);
    free(text.bytes);
}

static void a_set_of_items_survives_every_failed_allocation(void)
{
    CHECK(stg_failalloc_each(take_items, NULL) > 20);
}

static void merging_states_survives_every_failed_allocation(void)
{
    CHECK(stg_failalloc_each(merge_states, NULL) > 5);
}

static void reading_a_state_survives_every_failed_allocation(void)
{
    CHECK_INT(stg_failalloc_each(read_state, NULL), 1);
}

static void creating_an_arena_survives_every_failed_allocation(void)
{
    CHECK_INT(stg_failalloc_each(make_arena, NULL), 5);
}

static void creating_a_lease_core_survives_every_failed_allocation(void)
{
    CHECK_INT(stg_failalloc_each(make_leases, NULL), 9);
}

static void a_bump_allocator_survives_every_failed_allocation(void)
{
    CHECK(stg_failalloc_each(fill_bump, NULL) > 2);
}

static void the_cpu_device_survives_every_failed_allocation(void)
{
    CHECK_INT(stg_failalloc_each(make_stream_and_event, NULL), 3);
}

/* If its result is not used elsewhere, the compiler may remove a malloc. */
static void *volatile seen[6];

/* Without it the tests above would prove nothing. */
static void the_helper_fails_the_requested_allocations(void)
{
    stg_failalloc_once(2);
    for (int i = 0; i < 3; i++)
        seen[i] = malloc(8);
    CHECK_INT(stg_failalloc_off(), 1);
    CHECK(seen[0] != NULL && seen[1] == NULL && seen[2] != NULL);
    stg_failalloc_from(2);
    seen[3] = calloc(1, 8);
    seen[4] = aligned_alloc(64, 64);
    seen[5] = realloc(NULL, 8);
    CHECK_INT(stg_failalloc_off(), 2);
    CHECK(seen[3] != NULL && seen[4] == NULL && seen[5] == NULL);
    free(seen[0]);
    free(seen[2]);
    free(seen[3]);
}

static const struct stg_test tests[] = {
    TEST(writing_an_audit_survives_every_failed_allocation),
    TEST(reading_an_audit_survives_every_failed_allocation),
    TEST(a_set_of_items_survives_every_failed_allocation),
    TEST(merging_states_survives_every_failed_allocation),
    TEST(reading_a_state_survives_every_failed_allocation),
    TEST(the_helper_fails_the_requested_allocations),
    TEST(creating_an_arena_survives_every_failed_allocation),
    TEST(creating_a_lease_core_survives_every_failed_allocation),
    TEST(a_bump_allocator_survives_every_failed_allocation),
    TEST(the_cpu_device_survives_every_failed_allocation),
};
TEST_MAIN(tests)
