/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/host/memory.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/check.h"

#define MIB (1024ull * 1024ull)

static void a_budget_refuses_with_the_arithmetic_and_takes_again_what_was_given(void)
{
    struct stg_budget budget;
    struct stg_err err = {0};
    stg_budget_init(&budget, 100 * MIB);
    CHECK_OK(stg_budget_take(&budget, 60 * MIB, "one", &err), err);
    CHECK_INT(stg_budget_take(&budget, 50 * MIB, "two", &err),
              -STAGER_RESOURCE_EXHAUSTED);
    CHECK_CONTAINS(err.text, "two needs 50.0 MiB");
    CHECK_CONTAINS(err.text, "100.0 MiB");
    CHECK_CONTAINS(err.text, "60.0 MiB");
    CHECK_INT(stg_budget_used(&budget), 60 * MIB);
    CHECK_INT(stg_budget_take(&budget, UINT64_MAX, "all", &err),
              -STAGER_RESOURCE_EXHAUSTED);
    stg_budget_give(&budget, 60 * MIB, "one");
    CHECK_OK(stg_budget_take(&budget, 100 * MIB, "three", &err), err);
    stg_budget_finish(&budget);
}

static void a_budget_that_is_not_set_is_a_part_of_what_there_is(void)
{
    struct stg_budget budget;
    stg_budget_init(&budget, 0);
    CHECK(budget.total >= 64 * MIB);
    CHECK(budget.total <= stg_memory_available() / 2 || budget.total == 64 * MIB);
    stg_budget_finish(&budget);
}

static void more_than_the_machine_has_is_an_error_and_no_kill(void)
{
    struct stg_segment segment;
    struct stg_err err = {0};
    uint64_t bytes = (stg_memory_available() / MIB + 1024) * MIB;
    CHECK_INT(stg_segment_create("huge", bytes, false, NULL, &segment, &err),
              -STAGER_RESOURCE_EXHAUSTED);
    CHECK_CONTAINS(err.text, "left");
}

static void a_cancelled_reservation_stops_early(void)
{
    struct stg_segment segment;
    struct stg_err err = {0};
    _Atomic int cancelled = 1;
    CHECK_INT(stg_segment_create("arena", 2 * MIB, false, &cancelled, &segment, &err),
              -STAGER_CANCELLED);
    cancelled = 0;
    CHECK_OK(stg_segment_create("arena", 130 * MIB, false, &cancelled, &segment, &err),
             err);
    CHECK_INT(((char *)segment.base)[130 * MIB - 1], 0); /* more than one step long */
    stg_segment_destroy(&segment);
}

/* The seals of fcntl(2): no process may make a new writable mapping, resize the file, or
 * change the seals. */
static void a_segment_is_sealed_against_everybody(void)
{
    struct stg_segment segment;
    struct stg_err err = {0};
    CHECK_OK(stg_segment_create("arena", 2 * MIB, false, NULL, &segment, &err), err);
    memset(segment.base, 7, segment.bytes); /* the existing mapping still writes */
    CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, segment.fd, 0) ==
          MAP_FAILED);
    CHECK(ftruncate(segment.fd, 4096) < 0);
    CHECK(pwrite(segment.fd, "x", 1, 0) < 0);
    CHECK(fcntl(segment.fd, F_ADD_SEALS, F_SEAL_WRITE) < 0);
    char *reader = mmap(NULL, 4096, PROT_READ, MAP_SHARED, segment.fd, 0);
    CHECK(reader != MAP_FAILED);
    CHECK_INT(reader[17], 7);
    munmap(reader, 4096);
    stg_segment_destroy(&segment);
    stg_segment_destroy(&segment); /* a second seal succeeds */
}

/* For a caller that has to page-lock it before there are clients. */
static void a_segment_that_is_open_can_be_written_until_it_is_sealed(void)
{
    struct stg_segment segment;
    struct stg_err err = {0};
    CHECK_OK(stg_segment_create_open("arena", 2 * MIB, NULL, &segment, &err), err);
    char *helper = mmap(NULL, 4096, PROT_READ, MAP_SHARED, segment.fd, 0);
    CHECK(helper != MAP_FAILED);
    CHECK_INT(mprotect(helper, 4096, PROT_READ | PROT_WRITE), 0);
    CHECK(ftruncate(segment.fd, 4096) < 0);
    CHECK_OK(stg_segment_seal("arena", &segment, &err), err);
    CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, segment.fd, 0) ==
          MAP_FAILED);
    char *reader = mmap(NULL, 4096, PROT_READ, MAP_SHARED, segment.fd, 0);
    CHECK(reader != MAP_FAILED);
    CHECK(mprotect(reader, 4096, PROT_READ | PROT_WRITE) < 0);
    CHECK(fcntl(segment.fd, F_ADD_SEALS, F_SEAL_WRITE) < 0);
    munmap(helper, 4096);
    munmap(reader, 4096);
    stg_segment_destroy(&segment);
}

static void a_control_page_can_be_written_but_not_resized(void)
{
    struct stg_segment segment;
    struct stg_err err = {0};
    CHECK_OK(stg_segment_create("control", 16384, true, NULL, &segment, &err), err);
    char *writer = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, segment.fd, 0);
    CHECK(writer != MAP_FAILED);
    writer[0] = 9;
    CHECK_INT(((char *)segment.base)[0], 9);
    CHECK(ftruncate(segment.fd, 0) < 0);
    munmap(writer, 4096);
    stg_segment_destroy(&segment);
}

static const struct stg_test tests[] = {
    TEST(a_budget_refuses_with_the_arithmetic_and_takes_again_what_was_given),
    TEST(a_budget_that_is_not_set_is_a_part_of_what_there_is),
    TEST(more_than_the_machine_has_is_an_error_and_no_kill),
    TEST(a_cancelled_reservation_stops_early),
    TEST(a_segment_is_sealed_against_everybody),
    TEST(a_segment_that_is_open_can_be_written_until_it_is_sealed),
    TEST(a_control_page_can_be_written_but_not_resized),
};

TEST_MAIN(tests)
