/* SPDX-License-Identifier: Apache-2.0
 *
 * Fetched objects cached on disk: the daemon uses one only if the server confirms it,
 * never uses a damaged one, and keeps the cache within its limit.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/storage/http/disk.h"
#include "daemon/storage/http/fetcher.h"
#include "daemon/storage/http/store.h"
#include "daemon/storage/storage.h"
#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"
#include "tests/daemon/storage/remote_server.h"

static void use_disk(uint64_t most_bytes)
{
    struct stg_err err = {0};
    CHECK_OK(stg_disk_configure(stg_test_path("kept"), most_bytes, &err), err);
}

static void start(uint64_t most_bytes)
{
    stg_test_fetch_with(2000, 2);
    use_disk(most_bytes);
    stg_test_server_start();
}

static void stop(void)
{
    stg_disk_finish();
    stg_test_server_stop();
}

static void check_reads(const char *url, uint8_t salt, int64_t size)
{
    struct stg_err err = {0};
    int64_t n = stg_test_read_url(url, salt, &err);
    if (n != size)
        FAIL("%s: %lld: %s", url, (long long)n, err.text);
}

/* Returns the size of all files there; calls `visit` for each, if it is not NULL. */
static uint64_t held_bytes(void (*visit)(const char *path))
{
    char path[8192];
    struct stat st;
    uint64_t bytes = 0;
    DIR *dir = opendir(stg_test_path("kept"));
    CHECK(dir != NULL);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        snprintf(path, sizeof(path), "%s/%s", stg_test_path("kept"), entry->d_name);
        if (stat(path, &st) < 0 || !S_ISREG(st.st_mode))
            continue;
        CHECK_INT(st.st_mode & 07777, 0600);
        bytes += (uint64_t)st.st_size;
        if (visit != NULL)
            visit(path);
    }
    closedir(dir);
    return bytes;
}

static void what_is_kept_is_not_fetched_again(void)
{
    start(10u << 20);
    const char *url = stg_test_server_url("/object/a?size=200000");
    check_reads(url, 0, 200000);
    CHECK_INT(stg_test_server_asked("/object/a"), 4);
    check_reads(url, 0, 200000);
    CHECK_INT(stg_test_server_asked("/object/a"), 5);
    /* Also by the next daemon. */
    stg_disk_finish();
    use_disk(10u << 20);
    check_reads(url, 0, 200000);
    CHECK_INT(stg_test_server_asked("/object/a"), 6);
    stop();
}

static void an_object_that_was_replaced_is_fetched_anew(void)
{
    start(10u << 20);
    const char *url = stg_test_server_url("/object/a?size=200000&swap=5");
    check_reads(url, 0, 200000);
    check_reads(url, 0, 200000);
    check_reads(url, 1, 200000);
    check_reads(url, 1, 200000);
    stop();
}

static void an_object_without_a_version_is_not_cached(void)
{
    start(10u << 20);
    const char *url = stg_test_server_url("/object/a?size=100000&etag=0&modified=0");
    check_reads(url, 0, 100000);
    CHECK_INT(held_bytes(NULL), 0);
    stop();
}

static void a_user_without_read_access_gets_nothing_from_the_cache(void)
{
    struct stg_err err = {0};
    start(10u << 20);
    const char *keys = STG_TEST_FILE("keys", "[default]\nuser=a\npassword=b\n");
    CHECK(chmod(keys, 0600) == 0);
    const struct stg_remote_store_spec spec = {.prefix = stg_test_server_url("/object"),
                                               .endpoint = "",
                                               .region = "",
                                               .credentials_file = keys,
                                               .profile = ""};
    CHECK_OK(stg_stores_configure(&spec, 1, &err), err);
    const char *url = stg_test_server_url("/object/a?size=100000&user=a:b");
    check_reads(url, 0, 100000);
    CHECK(held_bytes(NULL) > 100000);
    stg_stores_finish();
    CHECK_INT(stg_test_read_url(url, 0, &err), -STAGER_UNAUTHENTICATED);
    stop();
}

static void damage(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    char c;
    struct stat st;
    CHECK(fstat(fd, &st) == 0 && pread(fd, &c, 1, st.st_size - 1) == 1);
    c ^= 1;
    CHECK(pwrite(fd, &c, 1, st.st_size - 1) == 1);
    close(fd);
}

static void truncate_it(const char *path)
{
    struct stat st;
    CHECK(stat(path, &st) == 0 && truncate(path, st.st_size / 2) == 0);
}

static void files_left_by_a_crash_are_not_used(void)
{
    start(10u << 20);
    const char *url = stg_test_server_url("/object/a?size=200000");
    check_reads(url, 0, 200000);
    held_bytes(damage);
    check_reads(url, 0, 200000);
    CHECK_INT(stg_test_server_asked("/object/a"), 8);
    held_bytes(truncate_it);
    check_reads(url, 0, 200000);
    CHECK_INT(stg_test_server_asked("/object/a"), 12);
    stg_disk_finish();
    const char *half = stg_test_file("kept/new-1-1", "half", 4);
    use_disk(10u << 20);
    CHECK(access(half, F_OK) != 0);
    stop();
}

/* ---- equal names ---- */

static bool all_alike;

uint64_t __real_stg_fingerprint64(const char *s, size_t n);
uint64_t __wrap_stg_fingerprint64(const char *s, size_t n);

uint64_t __wrap_stg_fingerprint64(const char *s, size_t n)
{
    return all_alike ? 7 : __real_stg_fingerprint64(s, n);
}

/* Simulates URLs with equal hashes. */
static void what_is_kept_of_another_url_is_not_given_out(void)
{
    struct stg_version version = {.known = true, .size = 8, .etag = "\"e\""}, got;
    char buf[8];
    use_disk(10u << 20);
    all_alike = true;
    stg_disk_put("http://a/b", &version, 0, "what a b", 8);
    CHECK(stg_disk_get("http://a/b", &version, 0, buf, 8));
    CHECK(memcmp(buf, "what a b", 8) == 0);
    CHECK(!stg_disk_get("http://a/c", &version, 0, buf, 8));
    stg_disk_put("http://a/b", &version, 0, "what a b", 8);
    CHECK(!stg_disk_get("http://a/b", &version, 8, buf, 8));
    stg_disk_put("http://a/b", &version, 0, "what a b", 8);
    version.etag[1] = 'f';
    CHECK(!stg_disk_get("http://a/b", &version, 0, buf, 8));
    stg_disk_put_version("http://a/b", &version);
    CHECK(!stg_disk_version("http://a/c", &got));
    stg_disk_put_version("http://a/b", &version);
    CHECK(stg_disk_version("http://a/b", &got));
    CHECK_STR(got.etag, "\"f\"");
    stg_disk_finish();
}

/* A file of the previous layout: a magic number, bytes, sum and two hashes. */
static void make_old(const char *path)
{
    static const uint64_t old[5] = {UINT64_C(0x3130656b61677473), 8, 1, 2, 3};
    int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    CHECK(fd >= 0 && write(fd, old, sizeof(old)) == sizeof(old));
    CHECK(write(fd, "what a b", 8) == 8);
    close(fd);
}

static void what_another_version_kept_is_thrown_away(void)
{
    const struct stg_version version = {.known = true, .size = 8, .etag = "\"e\""};
    char buf[8];
    use_disk(10u << 20);
    stg_disk_put("http://a/b", &version, 0, "what a b", 8);
    held_bytes(make_old);
    CHECK(!stg_disk_get("http://a/b", &version, 0, buf, 8));
    CHECK_INT(held_bytes(NULL), 0);
    stg_disk_put("http://a/b", &version, 0, "what a b", 8);
    CHECK(stg_disk_get("http://a/b", &version, 0, buf, 8));
    stg_disk_finish();
}

static void no_more_is_kept_than_may_be(void)
{
    start(300000);
    for (int i = 0; i < 8; i++) {
        check_reads(stg_test_server_url("/object/%d?size=150000", i), 0, 150000);
        CHECK(held_bytes(NULL) <= 300000);
    }
    CHECK(held_bytes(NULL) > 100000);
    use_disk(70000);
    CHECK(held_bytes(NULL) <= 70000);
    check_reads(stg_test_server_url("/object/7?size=150000"), 0, 150000);
    CHECK(held_bytes(NULL) <= 70000);
    stop();
}

static void an_impossible_folder_is_reported(void)
{
    struct stg_err err = {0};
    CHECK_INT(stg_disk_configure("/proc/none", 1u << 20, &err),
              -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(err.text, "remote.cache_dir: /proc/none: No such file");
    stg_disk_finish();
}

static const struct stg_test tests[] = {
    TEST_SLOW(what_is_kept_is_not_fetched_again, 60),
    TEST_SLOW(an_object_that_was_replaced_is_fetched_anew, 60),
    TEST_SLOW(an_object_without_a_version_is_not_cached, 60),
    TEST_SLOW(a_user_without_read_access_gets_nothing_from_the_cache, 60),
    TEST_SLOW(files_left_by_a_crash_are_not_used, 60),
    TEST(what_is_kept_of_another_url_is_not_given_out),
    TEST(what_another_version_kept_is_thrown_away),
    TEST_SLOW(no_more_is_kept_than_may_be, 60),
    TEST_SLOW(an_impossible_folder_is_reported, 60),
};
TEST_MAIN(tests)
