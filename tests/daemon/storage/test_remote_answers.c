/* SPDX-License-Identifier: Apache-2.0
 *
 * Contradictory answers of one server: the reader gets one object or an error.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/storage/storage.h"
#include "tests/check.h"
#include "tests/daemon/storage/remote_server.h"

static void start(void)
{
    stg_test_fetch_with(1000, 3);
    stg_test_server_start();
}

static void check_reads(const char *url, int64_t size)
{
    struct stg_err err = {0};
    int64_t n = stg_test_read_url(url, 0, &err);
    if (n != size)
        FAIL("%s: %lld, not %lld: %s", url, (long long)n, (long long)size, err.text);
}

static void check_fails(const char *url, int code, const char *part)
{
    struct stg_err err = {0};
    CHECK_INT(stg_test_read_url(url, 0, &err), code);
    CHECK_CONTAINS(err.text, part);
}

static void an_answer_without_a_version_is_discarded_on_a_retry(void)
{
    start();
    /* The second answer is shorter than the bytes of the first one. */
    check_reads(
        stg_test_server_url("/answers/a?of=200:-:40000:reset,200:39000:39000:end"),
        39000);
    check_reads(stg_test_server_url("/answers/b?of=200:-:40000:reset,200:-:30000:end"),
                30000);
    check_reads(stg_test_server_url("/answers/c?of=200:-:40000:reset,"
                                    "206:50000:50000:end:0-49999/50000"),
                50000);
    CHECK_INT(stg_test_server_asked("Range=bytes=0-65535"), 6);
    stg_test_server_stop();
}

static void a_server_that_changes_its_mind_writes_nothing_past_a_range(void)
{
    start();
    check_fails(stg_test_server_url("/answers/a?of=200:-:40000:reset,200:39000:1:reset,"
                                    "200:-:6291456:end"),
                -STAGER_DATA_LOSS, "the object was replaced while it was read");
    check_fails(stg_test_server_url("/answers/b?of=200:-:40000:reset,200:-:6291456:end"),
                -STAGER_UNIMPLEMENTED, "does not support ranges");
    check_fails(stg_test_server_url("/answers/c?of=206:40000:30000:reset:0-39999/40000,"
                                    "200:-:6291456:end"),
                -STAGER_DATA_LOSS, "the object was replaced while it was read");
    check_fails(stg_test_server_url("/answers/d?of=206:-:6291456:end:0-39999/50000"),
                -STAGER_UNAVAILABLE, "with status 206 and another range");
    stg_test_server_stop();
}

static void an_object_that_is_empty_after_bytes_came_is_data_loss(void)
{
    start();
    check_fails(stg_test_server_url("/answers/a?of=200:-:40000:reset,416:0:0:end:*/0"),
                -STAGER_DATA_LOSS, "(its length was at least 40000 and is now 0)");
    check_fails(stg_test_server_url("/answers/c?of=200:-:40000:reset,200:0:0:end"),
                -STAGER_DATA_LOSS, "(its length was at least 40000 and is now 0)");
    check_fails(stg_test_server_url("/answers/b?of=206:40000:100:reset:0-39999/40000,"
                                    "416:0:0:end:*/0"),
                -STAGER_DATA_LOSS, "(its length was 40000 and is now 0)");
    stg_test_server_stop();
}

static void an_object_whose_last_byte_came_before_a_reset_is_whole(void)
{
    start();
    check_reads(stg_test_server_url("/answers/a?of=206:-:40000:reset:0-39999/40000,"
                                    "404:0:0:end"),
                40000);
    CHECK_INT(stg_test_server_asked("/answers/a"), 1);
    stg_test_server_stop();
}

static const struct stg_test tests[] = {
    TEST_SLOW(an_answer_without_a_version_is_discarded_on_a_retry, 60),
    TEST_SLOW(a_server_that_changes_its_mind_writes_nothing_past_a_range, 60),
    TEST_SLOW(an_object_that_is_empty_after_bytes_came_is_data_loss, 60),
    TEST_SLOW(an_object_whose_last_byte_came_before_a_reset_is_whole, 60),
};
TEST_MAIN(tests)
