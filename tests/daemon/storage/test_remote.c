/* SPDX-License-Identifier: Apache-2.0
 *
 * Objects of a server on loopback that fails on request: the bytes are exactly right, or
 * an error names the URL and the cause.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/storage/http/fetcher.h"
#include "daemon/storage/http/store.h"
#include "daemon/storage/storage.h"
#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"
#include "tests/daemon/storage/remote_server.h"

static const struct stg_file_user root = {.uid = 0};

static void start(void)
{
    stg_test_fetch_with(1000, 3);
    stg_test_server_start();
}

static int64_t read_at(struct stg_source *source, uint64_t offset, void *buf,
                       size_t bytes, struct stg_err *err)
{
    return source->storage->read(source, offset, buf, bytes, err);
}

static void check_bytes(const uint8_t *got, uint64_t offset, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        if (got[i] != stg_test_server_value(offset + i))
            FAIL("byte %llu is wrong", (unsigned long long)(offset + i));
    }
}

/* Reads all of it in pieces of `piece`. Returns the number of bytes, or the error. */
static int64_t read_all(const char *url, size_t piece, struct stg_err *err)
{
    struct stg_source *source;
    int rc = stg_test_open_url(url, &root, &source, err);
    if (rc < 0)
        return rc;
    uint8_t *buf = malloc(piece);
    uint64_t at = 0;
    int64_t n;
    while ((n = read_at(source, at, buf, piece, err)) > 0) {
        check_bytes(buf, at, (uint64_t)n);
        at += (uint64_t)n;
    }
    free(buf);
    source->storage->close(source);
    return n < 0 ? n : (int64_t)at;
}

static void check_reads(const char *url, int64_t size)
{
    struct stg_err err = {0};
    int64_t n = read_all(url, 10000, &err);
    if (n != size)
        FAIL("%s: %lld, not %lld: %s", url, (long long)n, (long long)size, err.text);
}

static void check_fails(const char *url, int code, const char *part)
{
    struct stg_err err = {0};
    CHECK_INT(read_all(url, 10000, &err), code);
    CHECK_CONTAINS(err.text, part);
    CHECK_CONTAINS(err.text, "http://127.0.0.1:");
}

/* ---- contents ---- */

static void an_object_is_read_in_ranges_to_the_byte(void)
{
    start();
    check_reads(stg_test_server_url("/object/a?size=1000000"), 1000000);
    CHECK_INT(stg_test_server_asked("Range="), 16);
    CHECK_INT(stg_test_server_asked("Range=bytes=0-65535"), 1);
    CHECK_INT(stg_test_server_asked("Range=bytes=983040-999999"), 1);
    stg_test_server_stop();
}

static void an_object_of_one_byte_or_none_is_read(void)
{
    start();
    check_reads(stg_test_server_url("/object/none?size=0"), 0);
    check_reads(stg_test_server_url("/object/one?size=1"), 1);
    check_reads(stg_test_server_url("/object/exact?size=65536"), 65536);
    stg_test_server_stop();
}

static void reads_may_jump_back_and_forth(void)
{
    static const uint64_t offsets[] = {900000, 0,      500001, 65535,  65536,
                                       999999, 130000, 1,      1000000};
    struct stg_source *source;
    struct stg_err err = {0};
    uint8_t buf[70000];
    start();
    const char *url = stg_test_server_url("/object/a?size=1000000");
    CHECK_OK(stg_test_open_url(url, &root, &source, &err), err);
    for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
        uint64_t left = 1000000 - offsets[i];
        int64_t n = read_at(source, offsets[i], buf, sizeof(buf), &err);
        CHECK_INT(n, left < sizeof(buf) ? left : sizeof(buf));
        check_bytes(buf, offsets[i], (uint64_t)n);
    }
    uint64_t size = 0;
    CHECK_INT(source->storage->size(source, &size, &err), 0);
    CHECK_INT(size, 1000000);
    source->storage->close(source);
    stg_test_server_stop();
}

struct part {
    struct stg_source *source;
    uint64_t from, to;
};

static void *read_part(void *arg)
{
    const struct part *part = arg;
    struct stg_err err;
    uint8_t buf[5000];
    for (uint64_t at = part->from; at < part->to; at += sizeof(buf)) {
        CHECK_INT(read_at(part->source, at, buf, sizeof(buf), &err), sizeof(buf));
        check_bytes(buf, at, sizeof(buf));
    }
    return NULL;
}

static void several_threads_read_one_object(void)
{
    struct stg_source *source;
    struct stg_err err = {0};
    pthread_t threads[4];
    struct part parts[4];
    start();
    CHECK_OK(stg_test_open_url(stg_test_server_url("/object/a?size=1000000"), &root,
                               &source, &err),
             err);
    for (unsigned i = 0; i < 4; i++) {
        parts[i] = (struct part){source, i * 250000, (i + 1) * 250000};
        CHECK(pthread_create(&threads[i], NULL, read_part, &parts[i]) == 0);
    }
    for (unsigned i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    source->storage->close(source);
    stg_test_server_stop();
}

static void what_does_not_fit_into_read_ahead_is_read_all_the_same(void)
{
    struct stg_source *sources[4];
    struct stg_err err = {0};
    uint8_t buf[1000];
    const struct stg_remote_settings settings = {.read_ahead_bytes =
                                                     2 * STG_TEST_RANGE_BYTES,
                                                 .range_bytes = STG_TEST_RANGE_BYTES,
                                                 .ranges_per_file = 4,
                                                 .connect_timeout_millis = 5000,
                                                 .stall_timeout_millis = 1000};
    stg_fetchers_configure(&settings);
    stg_test_server_start();
    for (unsigned i = 0; i < 4; i++)
        CHECK_OK(stg_test_open_url(stg_test_server_url("/object/%u?size=300000", i),
                                   &root, &sources[i], &err),
                 err);
    for (uint64_t at = 0; at < 300000; at += sizeof(buf)) {
        for (unsigned i = 0; i < 4; i++) {
            CHECK_INT(read_at(sources[i], at, buf, sizeof(buf), &err), sizeof(buf));
            check_bytes(buf, at, sizeof(buf));
        }
    }
    for (unsigned i = 0; i < 4; i++)
        sources[i]->storage->close(sources[i]);
    stg_test_server_stop();
}

/* ---- temporary failures ---- */

static void a_busy_server_is_asked_again(void)
{
    start();
    check_reads(stg_test_server_url("/object/a?size=1000&status=503&times=2"), 1000);
    check_reads(stg_test_server_url("/object/b?size=1000&status=429&times=3"), 1000);
    check_reads(stg_test_server_url("/object/c?size=1000&status=500&times=1"), 1000);
    CHECK_INT(stg_test_server_asked("/object/a"), 3);
    CHECK_INT(stg_test_server_asked("/object/b"), 4);
    stg_test_server_stop();
}

static void a_server_that_stays_busy_is_given_up(void)
{
    start();
    check_fails(stg_test_server_url("/object/a?size=9&status=503"), -STAGER_UNAVAILABLE,
                "the server answered 503 (4 attempts, remote.retries)");
    CHECK_INT(stg_test_server_asked("/object/a"), 4);
    stg_test_server_stop();
}

static void a_server_with_retry_after_is_not_asked_earlier(void)
{
    struct timespec before, after;
    start();
    clock_gettime(CLOCK_MONOTONIC, &before);
    check_reads(stg_test_server_url("/object/a?size=9&status=429&after=1&times=1"), 9);
    clock_gettime(CLOCK_MONOTONIC, &after);
    CHECK((after.tv_sec - before.tv_sec) * 1000 +
              (after.tv_nsec - before.tv_nsec) / 1000000 >=
          1000);
    stg_test_server_stop();
}

static void a_fetch_resumes_at_the_byte_after_a_reset(void)
{
    start();
    check_reads(stg_test_server_url("/object/a?size=60000&reset=30000&times=1"), 60000);
    CHECK_INT(stg_test_server_asked("/object/a"), 2);
    CHECK_INT(stg_test_server_asked("Range=bytes=0-65535"), 1);
    CHECK_INT(stg_test_server_asked("-59999 If-Match=\"old\""), 1);
    stg_test_server_stop();
}

static void a_fetch_resumes_at_the_byte_after_a_short_body(void)
{
    start();
    check_reads(stg_test_server_url("/object/a?size=60000&short=10000&times=1"), 60000);
    CHECK_INT(stg_test_server_asked("Range=bytes=10000-59999"), 1);
    stg_test_server_stop();
}

static void a_fetch_resumes_at_the_byte_after_a_stall(void)
{
    start();
    check_reads(stg_test_server_url("/object/a?size=60000&stall=10000&times=1"), 60000);
    CHECK_INT(stg_test_server_asked("Range=bytes=10000-59999"), 1);
    stg_test_server_stop();
}

static void a_body_that_is_always_short_is_given_up(void)
{
    start();
    check_fails(stg_test_server_url("/object/a?size=60000&short=0"), -STAGER_UNAVAILABLE,
                "(4 attempts, remote.retries)");
    stg_test_server_stop();
}

static void an_answer_with_another_range_is_refused(void)
{
    start();
    check_reads(stg_test_server_url("/object/a?size=60000&wrong=1&times=1"), 60000);
    check_fails(stg_test_server_url("/object/b?size=60000&wrong=1"), -STAGER_UNAVAILABLE,
                "with status 206 and another range");
    stg_test_server_stop();
}

static void no_server_listens(void)
{
    start();
    const char *url = stg_test_server_url("/object/a?size=9");
    stg_test_server_stop();
    stg_test_fetch_with(1000, 1);
    check_fails(url, -STAGER_UNAVAILABLE, "at offset 0: ");
    stg_fetchers_finish();
}

/* ---- refusals ---- */

static void a_refusal_names_url_and_status_and_what_to_set(void)
{
    start();
    check_fails(stg_test_server_url("/object/a?size=9&status=404"), -STAGER_NOT_FOUND,
                "/object/a?…: the server answered 404");
    check_fails(stg_test_server_url("/object/a?size=9&status=403"),
                -STAGER_PERMISSION_DENIED, "the server answered 403; ");
    check_fails(stg_test_server_url("/object/b?size=9&user=ann:secret"),
                -STAGER_UNAUTHENTICATED, "remote.stores");
    check_fails(stg_test_server_url("/object/a?size=9&status=418"),
                -STAGER_FAILED_PRECONDITION, "the server answered 418");
    check_fails(stg_test_server_url("/object/a?size=9&status=403&said=%%3CError%%3E%%3C"
                                    "Code%%3EAccessDenied%%3C/Code%%3E%%3CMessage%%3ENot"
                                    "%%09you%%3C/Message%%3E"),
                -STAGER_PERMISSION_DENIED,
                "the server answered 403: AccessDenied, Not you; ");
    CHECK_INT(stg_test_server_asked("status=404"), 1);
    stg_test_server_stop();
}

static void a_query_is_never_shown(void)
{
    struct stg_err err = {0};
    start();
    CHECK_INT(read_all(stg_test_server_url("/object/a?status=403&key=hidden"), 10, &err),
              -STAGER_PERMISSION_DENIED);
    CHECK(strstr(err.text, "hidden") == NULL);
    stg_test_server_stop();
}

static void an_object_that_is_replaced_is_data_loss(void)
{
    start();
    const char *by_match = stg_test_server_url("/object/a?size=300000&swap=3");
    const char *by_etag = stg_test_server_url("/object/b?size=300000&swap=3&match=0");
    const char *weak = stg_test_server_url("/object/c?size=300000&swap=3&weak=1");
    const char *by_time = stg_test_server_url("/object/d?size=300000&swap=3&etag=0");
    check_fails(by_match, -STAGER_DATA_LOSS,
                "/object/a?…: the object was replaced while it was read");
    check_fails(by_etag, -STAGER_DATA_LOSS,
                "the object was replaced while it was read (its ETag was \"old\" and is "
                "now \"new\")");
    check_fails(weak, -STAGER_DATA_LOSS, "(its ETag was W/\"old\" and is now W/\"new\")");
    check_fails(by_time, -STAGER_DATA_LOSS, "(its time was Sat, 01 Jan 2022");
    stg_test_server_stop();
}

static void an_object_replaced_between_attempts_is_data_loss(void)
{
    start();
    check_fails(
        stg_test_server_url("/object/a?size=60000&short=10000&times=1&swap=1&match=0"),
        -STAGER_DATA_LOSS, "the object was replaced while it was read");
    stg_test_server_stop();
}

static void a_server_without_ranges_serves_small_objects(void)
{
    start();
    check_reads(stg_test_server_url("/object/a?size=65536&whole=1"), 65536);
    check_reads(stg_test_server_url("/object/b?size=65536&whole=chunked"), 65536);
    check_reads(stg_test_server_url("/object/c?size=60000&whole=1&short=10000&times=1"),
                60000);
    check_reads(stg_test_server_url("/object/d?size=0&whole=1"), 0);
    check_fails(stg_test_server_url("/object/e?size=65537&whole=1"),
                -STAGER_UNIMPLEMENTED, "raise remote.range_size to 65537, or");
    check_fails(stg_test_server_url("/object/f?size=65537&whole=chunked"),
                -STAGER_UNIMPLEMENTED, "does not support ranges");
    stg_test_server_stop();
}

/* ---- redirects ---- */

static void a_redirection_is_followed_on_the_web_alone(void)
{
    start();
    check_reads(stg_test_server_url("/object/a?size=200000&to=/object/b%%3Fsize=200000"),
                200000);
    check_fails(stg_test_server_url("/object/a?to=file:///etc/passwd"),
                -STAGER_INVALID_ARGUMENT, "rotocol");
    check_fails(stg_test_server_url("/object/a?to=file:///etc/passwd"),
                -STAGER_INVALID_ARGUMENT, "the server redirects to file:///etc/passwd");
    check_fails(stg_test_server_url("/object/a?to=gopher://127.0.0.1/x%%3Fkey=secret"),
                -STAGER_INVALID_ARGUMENT,
                "the server redirects to gopher://127.0.0.1/x?…");
    check_fails(stg_test_server_url("/object/loop?to="), -STAGER_INVALID_ARGUMENT,
                "maximum amount: the server redirects to http://127.0.0.1:");
    check_fails(stg_test_server_url("/object/a?to=http://169.254.169.254/latest"),
                -STAGER_PERMISSION_DENIED, "169.254.169.254 is link-local");
    stg_test_server_stop();
}

static void another_user_may_not_read_from_this_machine(void)
{
    const struct stg_file_user alice = {.uid = 54321, .gid = 54321};
    struct stg_source *source;
    struct stg_err err = {0};
    start();
    const char *url = stg_test_server_url("/object/a?size=100");
    CHECK_OK(stg_test_open_url(url, &root, &source, &err), err);
    source->storage->close(source);
    /* Nor through the connection that is still open. */
    CHECK_INT(stg_test_open_url(url, &alice, &source, &err), -STAGER_PERMISSION_DENIED);
    CHECK_CONTAINS(err.text, "127.0.0.1 is this machine's own");
    CHECK_INT(stg_test_server_asked("/object/a"), 1);
    stg_test_server_stop();
}

/* ---- credentials ---- */

static const char keys[] = "# of a test\n"
                           "[default]\n"
                           "user = nobody\n"
                           "[ann]\n"
                           " user = ann \n"
                           "; more\n"
                           "password=a=b\n"
                           "colour = red\n"
                           "[robot]\n"
                           "bearer_token = t0ken\n";

static const char *write_keys(mode_t mode)
{
    const char *path = STG_TEST_FILE("keys", keys);
    CHECK(chmod(path, mode) == 0);
    return path;
}

static void use_store(const char *prefix, const char *file, const char *profile,
                      const char *const *users, size_t n_users)
{
    const struct stg_remote_store_spec spec = {.prefix = prefix,
                                               .endpoint = "",
                                               .region = "",
                                               .credentials_file = file,
                                               .profile = profile,
                                               .users = users,
                                               .n_users = n_users};
    struct stg_err err = {0};
    CHECK_OK(stg_stores_configure(&spec, 1, &err), err);
}

static void a_login_comes_from_its_file_for_its_prefix_alone(void)
{
    start();
    const char *file = write_keys(0640);
    const char *prefix = stg_test_server_url("/object");
    use_store(prefix, file, "ann", NULL, 0);
    check_reads(stg_test_server_url("/object/a?size=100000&user=ann:a%%3Db"), 100000);
    use_store(prefix, file, "robot", NULL, 0);
    check_reads(stg_test_server_url("/object/a?size=100000&bearer=t0ken"), 100000);
    check_reads(stg_test_server_url("/objects/a?size=10"), 10);
    CHECK_INT(stg_test_server_asked("/objects/a?size=10 Range=bytes=0-65535 Host="), 1);
    stg_stores_finish();
    stg_test_server_stop();
}

static void a_login_is_not_sent_to_another_host(void)
{
    start();
    use_store(stg_test_server_url("/object"), write_keys(0600), "robot", NULL, 0);
    const char *host = strstr(stg_test_server_url("/x"), "127.0.0.1") + 9;
    struct stg_err err = {0};
    read_all(stg_test_server_url("/object/a?to=http://localhost%.*s/moved",
                                 (int)strcspn(host, "/"), host),
             10, &err);
    CHECK_INT(stg_test_server_asked("Authorization=Bearer_t0ken"), 1);
    CHECK_INT(stg_test_server_asked("GET /moved"), 1);
    stg_stores_finish();
    stg_test_server_stop();
}

static int open_as(const char *url, uid_t uid, struct stg_err *err)
{
    const struct stg_file_user identity = {.uid = uid, .gid = uid};
    struct stg_source *source;
    int rc = stg_test_open_url(url, &identity, &source, err);
    if (rc == 0)
        source->storage->close(source);
    return rc;
}

static void secrets_are_for_the_named_users(void)
{
    struct stg_err err = {0};
    const char *users[] = {"games"};
    start();
    const char *file = write_keys(0600);
    const char *url = stg_test_server_url("/object/a?size=9&bearer=t0ken");
    use_store(stg_test_server_url("/object"), file, "robot", users, 1);
    CHECK_OK(open_as(url, 5, &err), err); /* games, in every Debian */
    CHECK_INT(open_as(url, 54321, &err), -STAGER_PERMISSION_DENIED);
    CHECK_CONTAINS(
        err.text,
        "/object/a?…: user 54321 may not use the credentials with which stagerd reads");
    CHECK_INT(stg_test_server_asked("/object/a"), 1);
    stg_stores_finish();
    stg_test_server_stop();
}

static void a_file_of_secrets_that_is_open_to_others_is_refused(void)
{
    struct stg_err err = {0};
    const char *file = write_keys(0644);
    use_store("http://127.0.0.1", file, "ann", NULL, 0);
    CHECK_INT(open_as("http://127.0.0.1/a", 0, &err), -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(err.text, "chmod");
    write_keys(0600);
    use_store("http://127.0.0.1", file, "bob", NULL, 0);
    CHECK_INT(open_as("http://127.0.0.1/a", 0, &err), -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(err.text, "has no profile [bob]");
    use_store("http://127.0.0.1", "/nonexistent", "bob", NULL, 0);
    CHECK_INT(open_as("http://127.0.0.1/a", 0, &err), -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(err.text, "No such file");
    stg_stores_finish();
}

/* ---- cancelled readers ---- */

static _Atomic int stopped;

static void *stop_soon(void *arg)
{
    while (stg_test_server_asked("/object") < 1)
        sched_yield();
    atomic_store(&stopped, 1);
    return NULL;
}

static void a_reader_that_is_stopped_returns_at_once(void)
{
    const struct stg_file_user identity = {.uid = 0, .stopped = &stopped};
    struct stg_source *source;
    struct stg_err err = {0};
    pthread_t thread;
    struct timespec before, after;
    start();
    CHECK(pthread_create(&thread, NULL, stop_soon, NULL) == 0);
    CHECK_INT(stg_test_open_url(stg_test_server_url("/object/a?size=9&delay=20000"),
                                &identity, &source, &err),
              -STAGER_CANCELLED);
    pthread_join(thread, NULL);
    clock_gettime(CLOCK_MONOTONIC, &before);
    stg_test_server_stop();
    clock_gettime(CLOCK_MONOTONIC, &after);
    CHECK(after.tv_sec - before.tv_sec < 5);
}

static const struct stg_test tests[] = {
    TEST_SLOW(an_object_is_read_in_ranges_to_the_byte, 60),
    TEST_SLOW(an_object_of_one_byte_or_none_is_read, 60),
    TEST_SLOW(reads_may_jump_back_and_forth, 60),
    TEST_SLOW(several_threads_read_one_object, 60),
    TEST_SLOW(what_does_not_fit_into_read_ahead_is_read_all_the_same, 60),
    TEST_SLOW(a_busy_server_is_asked_again, 60),
    TEST_SLOW(a_server_that_stays_busy_is_given_up, 60),
    TEST_SLOW(a_server_with_retry_after_is_not_asked_earlier, 60),
    TEST_SLOW(a_fetch_resumes_at_the_byte_after_a_reset, 60),
    TEST_SLOW(a_fetch_resumes_at_the_byte_after_a_short_body, 60),
    TEST_SLOW(a_fetch_resumes_at_the_byte_after_a_stall, 60),
    TEST_SLOW(a_body_that_is_always_short_is_given_up, 60),
    TEST_SLOW(an_answer_with_another_range_is_refused, 60),
    TEST_SLOW(no_server_listens, 60),
    TEST_SLOW(a_refusal_names_url_and_status_and_what_to_set, 60),
    TEST_SLOW(a_query_is_never_shown, 60),
    TEST_SLOW(an_object_that_is_replaced_is_data_loss, 60),
    TEST_SLOW(an_object_replaced_between_attempts_is_data_loss, 60),
    TEST_SLOW(a_server_without_ranges_serves_small_objects, 60),
    TEST_SLOW(a_redirection_is_followed_on_the_web_alone, 60),
    TEST_SLOW(another_user_may_not_read_from_this_machine, 60),
    TEST_SLOW(a_login_comes_from_its_file_for_its_prefix_alone, 60),
    TEST_SLOW(a_login_is_not_sent_to_another_host, 60),
    TEST_SLOW(secrets_are_for_the_named_users, 60),
    TEST_SLOW(a_file_of_secrets_that_is_open_to_others_is_refused, 60),
    TEST_SLOW(a_reader_that_is_stopped_returns_at_once, 60),
};
TEST_MAIN(tests)
