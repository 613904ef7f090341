/* SPDX-License-Identifier: Apache-2.0
 *
 * Hosts that come and go: the steps from one generation to the next, and the texts.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cluster/membership.h"
#include "tests/check.h"

#define STEADY 100
#define MAX_HOSTS 8

/* The keys, and one host that looks at them. */
static struct stg_generation generation;
static struct stg_member hosts[MAX_HOSTS];
static size_t n_hosts;
static struct stg_membership_seen membership;
static uint64_t now;
static struct stg_err why;

static void begin(void)
{
    generation = (struct stg_generation){0};
    n_hosts = 0;
    membership = (struct stg_membership_seen){.steady_millis = STEADY};
    now = 1000;
}

static struct stg_member *find(const char *id)
{
    size_t i = 0;
    while (i < n_hosts && strcmp(hosts[i].id, id) != 0)
        i++;
    return i < n_hosts ? &hosts[i] : NULL;
}

static int compare(const void *a, const void *b)
{
    return strcmp(((const struct stg_member *)a)->id, ((const struct stg_member *)b)->id);
}

/* The host comes to the generation that comes, and begins there. */
static void come(const char *id, uint64_t place)
{
    struct stg_member *host = find(id);
    if (host == NULL)
        host = &hosts[n_hosts++];
    *host = (struct stg_member){
        .ready = stg_membership_coming(&generation), .begin = place, .pipeline = 7};
    snprintf(host->id, sizeof(host->id), "%s", id);
    snprintf(host->place, sizeof(host->place), "position %d", (int)place);
    qsort(hosts, n_hosts, sizeof(hosts[0]), compare);
}

static void leave(const char *id)
{
    struct stg_member *host = find(id);
    memmove(host, host + 1, (size_t)(hosts + n_hosts - host - 1) * sizeof(*host));
    n_hosts--;
}

/* One look; the step that follows is made. */
static enum stg_membership_step look(uint64_t millis)
{
    now += millis;
    struct stg_err err = {0};
    struct stg_generation next;
    const struct stg_membership_view view = {
        .generation = &generation, .hosts = hosts, .n_hosts = n_hosts, .now_millis = now};
    enum stg_membership_step step = stg_membership_decide(&membership, &view, &why);
    if (step != STG_MEMBERSHIP_OPEN && step != STG_MEMBERSHIP_CLOSE)
        return step;
    CHECK_INT(stg_membership_next(&view, step, &why, &next, &err), 0);
    stg_generation_finish(&generation);
    generation = next;
    return step;
}

/* Two hosts are in generation 1. */
static void begin_with_two(void)
{
    begin();
    come("a.1", 5);
    come("b.1", 5);
    look(0);
    CHECK_INT(look(STEADY), STG_MEMBERSHIP_CLOSE);
}

static void the_first_generation_closes_when_its_hosts_have_been_the_same(void)
{
    begin();
    CHECK_INT(look(STEADY), STG_MEMBERSHIP_KEEP);
    come("b.1", 5);
    CHECK_INT(look(0), STG_MEMBERSHIP_KEEP);
    CHECK_INT(look(STEADY - 1), STG_MEMBERSHIP_KEEP);
    come("a.1", 5);
    CHECK_INT(look(1), STG_MEMBERSHIP_KEEP); /* the time begins again */
    CHECK_INT(look(STEADY - 1), STG_MEMBERSHIP_KEEP);
    CHECK_INT(look(1), STG_MEMBERSHIP_CLOSE);
    CHECK_INT(generation.number, 1);
    CHECK_INT(generation.n, 2);
    CHECK_INT(generation.begin, 5);
    CHECK_INT(stg_generation_find(&generation, "a.1"), 0);
    CHECK_INT(stg_generation_find(&generation, "b.1"), 1);
    CHECK_INT(stg_generation_find(&generation, "c.1"), -1);
    CHECK_INT(look(10 * STEADY), STG_MEMBERSHIP_KEEP);
    stg_generation_finish(&generation);
}

static void a_host_that_is_lost_opens_a_generation_which_waits_for_the_others(void)
{
    begin_with_two();
    leave("b.1");
    CHECK_INT(look(0), STG_MEMBERSHIP_KEEP);
    CHECK_INT(look(STEADY), STG_MEMBERSHIP_OPEN);
    CHECK_STR(generation.why, "host b left");
    CHECK_INT(generation.number, 2);
    CHECK(!generation.is_closed);
    CHECK_INT(look(10 * STEADY), STG_MEMBERSHIP_KEEP);
    CHECK_CONTAINS(why.text, "host a have not opened");
    come("a.1", 9);
    look(0);
    CHECK_INT(look(STEADY), STG_MEMBERSHIP_CLOSE);
    CHECK_INT(generation.n, 1);
    CHECK_INT(generation.begin, 9);
    stg_generation_finish(&generation);
}

static void hosts_whose_keys_come_back_in_time_change_nothing(void)
{
    begin_with_two();
    const struct stg_member b = *find("b.1");
    leave("b.1");
    look(0);
    CHECK_INT(look(STEADY - 1), STG_MEMBERSHIP_KEEP);
    hosts[n_hosts++] = b;
    CHECK_INT(look(1), STG_MEMBERSHIP_KEEP);
    CHECK_INT(look(10 * STEADY), STG_MEMBERSHIP_KEEP);
    /* While the keys cannot be read the time does not count. */
    leave("b.1");
    look(0);
    stg_membership_lose(&membership);
    CHECK_INT(look(10 * STEADY), STG_MEMBERSHIP_KEEP);
    CHECK_INT(look(STEADY), STG_MEMBERSHIP_OPEN);
    stg_generation_finish(&generation);
}

static void a_host_that_joins_and_one_that_begins_again_are_named(void)
{
    begin_with_two();
    come("c.1", 5);
    CHECK_INT(look(0), STG_MEMBERSHIP_KEEP);
    CHECK_INT(look(STEADY), STG_MEMBERSHIP_OPEN);
    CHECK_STR(generation.why, "host c joined");
    stg_generation_finish(&generation);
    begin_with_two();
    come("b.1", 5);
    look(0);
    CHECK_INT(look(STEADY), STG_MEMBERSHIP_OPEN);
    CHECK_STR(generation.why, "host b began again");
    stg_generation_finish(&generation);
}

static void a_job_that_begins_when_no_host_of_the_last_one_is_left_does_not_wait(void)
{
    begin_with_two();
    leave("a.1");
    leave("b.1");
    CHECK_INT(look(0), STG_MEMBERSHIP_KEEP);
    come("d.1", 8);
    CHECK_INT(look(0), STG_MEMBERSHIP_OPEN);
    CHECK_STR(generation.why, "host a and 1 more left, host d joined");
    look(0);
    CHECK_INT(look(STEADY), STG_MEMBERSHIP_CLOSE);
    stg_generation_finish(&generation);
}

static void hosts_that_begin_at_different_places_are_named(void)
{
    begin();
    come("a.1", 5);
    come("b.1", 6);
    look(0);
    CHECK_INT(look(STEADY), STG_MEMBERSHIP_REFUSE);
    CHECK_INT(why.code, -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(why.text, "host a begins at position 5, and host b at position 6");
}

static void a_host_with_another_pipeline_is_refused_and_ends_no_run(void)
{
    struct stg_err err = {0};
    begin_with_two();
    come("c.1", 5);
    find("c.1")->pipeline = 8;
    look(0);
    CHECK_INT(look(STEADY), STG_MEMBERSHIP_KEEP);
    const struct stg_membership_view view = {
        .generation = &generation, .hosts = hosts, .n_hosts = n_hosts};
    CHECK_INT(stg_membership_check(&view, find("c.1"), &err),
              -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(err.text, "host a and host c have different pipelines");
    CHECK_INT(stg_membership_check(&view, find("a.1"), &err), 0);
    stg_generation_finish(&generation);
}

static void texts_are_read_as_written_and_any_other_byte_is_damage(void)
{
    struct stg_err err = {0};
    struct stg_generation read;
    struct stg_member member;
    char text[STG_MEMBER_TEXT_BYTES];
    size_t bytes;
    begin_with_two();
    snprintf(generation.why, sizeof(generation.why), "host c left");
    char *buf = stg_generation_write(&generation, &bytes);
    CHECK_INT(stg_generation_read(buf, bytes, &read, &err), 0);
    CHECK_INT(read.number, 1);
    CHECK_INT(read.n, 2);
    CHECK_STR(read.members[1], "b.1");
    CHECK_STR(read.why, "host c left");
    stg_generation_finish(&read);
    for (size_t i = 0; i < bytes; i++) {
        buf[i] ^= 1;
        CHECK_INT(stg_generation_read(buf, bytes, &read, &err), -STAGER_DATA_LOSS);
        buf[i] ^= 1;
        CHECK_INT(stg_generation_read(buf, i, &read, &err), -STAGER_DATA_LOSS);
    }
    free(buf);
    bytes = stg_member_write(find("a.1"), text);
    CHECK_INT(stg_member_read(text, bytes, "a.1", &member, &err), 0);
    CHECK(memcmp(&member, find("a.1"), sizeof(member)) == 0);
    for (size_t i = 0; i < bytes; i++) {
        text[i] ^= 1;
        CHECK_INT(stg_member_read(text, bytes, "a.1", &member, &err), -STAGER_DATA_LOSS);
        text[i] ^= 1;
    }
    stg_generation_finish(&generation);
}

static const struct stg_test tests[] = {
    TEST(the_first_generation_closes_when_its_hosts_have_been_the_same),
    TEST(a_host_that_is_lost_opens_a_generation_which_waits_for_the_others),
    TEST(hosts_whose_keys_come_back_in_time_change_nothing),
    TEST(a_host_that_joins_and_one_that_begins_again_are_named),
    TEST(a_job_that_begins_when_no_host_of_the_last_one_is_left_does_not_wait),
    TEST(hosts_that_begin_at_different_places_are_named),
    TEST(a_host_with_another_pipeline_is_refused_and_ends_no_run),
    TEST(texts_are_read_as_written_and_any_other_byte_is_damage),
};
TEST_MAIN(tests)
