/* SPDX-License-Identifier: Apache-2.0
 *
 * Refusals before any connection: invalid URLs, and addresses that the daemon does not
 * read from.
 */
#include "daemon/storage/http/attempt.h"
#include "daemon/storage/storage.h"
#include "tests/check.h"

/* ---- valid and invalid URLs ---- */

static void check_url(const char *url, const char *part)
{
    const struct stg_storage *storage;
    const char *path;
    struct stg_err err = {0};
    CHECK_OK(stg_storage_find(url, &storage, &path, &err), err);
    if (part == NULL) {
        CHECK_OK(storage->check(path, &err), err);
        return;
    }
    CHECK_INT(storage->check(path, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, part);
}

static void a_url_is_checked_before_it_is_asked_for(void)
{
    check_url("https://host/a.csv", NULL);
    check_url("https://host:8443/a/b.csv?version=2", NULL);
    check_url("http://[::1]:80/a.csv?x=*", NULL);
    check_url("https://host/*.csv", "https cannot list files");
    check_url("http://host/part-[0-9]", "%5B");
    check_url("http://host/", "list a directory");
    check_url("http://host", "list a directory");
    check_url("http:///a", "the host is missing");
    check_url("http://ann:pw@host/a", "a URL must not contain a password");
    check_url("http://host/a b", "%20");
    check_url("http://host/a\r\nX: y", "spaces");
    check_url("http://host/a#b", "%23");
    check_url("http://host/a/../b", "\"..\"");
    check_url("http://host/a/%2E./b", "\"..\"");
    check_url("http://host/./b", "\"..\"");
    check_url("http://host/a/..b?x=../y", NULL);
    struct stg_err err = {0};
    const struct stg_storage *storage;
    const char *path;
    CHECK_INT(stg_storage_find("gopher://x/y", &storage, &path, &err),
              -STAGER_UNIMPLEMENTED);
}

static void names_are_checked_before_anything_is_asked_for(void)
{
    check_url("s3://bucket/key*", NULL);
    check_url("s3://my.bucket-1/a/..b", NULL);
    check_url("s3://bucket", "the key is missing");
    check_url("s3://bucket/", "the key is missing");
    check_url("s3:///key", "the bucket is missing");
    check_url("s3://b@x/key", "not valid");
    check_url("s3://bucket/a/../b", "\"..\"");
    check_url("hdfs://nn:8020/logs/*", NULL);
    check_url("hdfs:///logs/*", "host is missing");
    check_url("hdfs://nn", "the path is missing");
    check_url("hdfs://nn/a/../b", "\"..\"");
}

/* ---- addresses ---- */

static void addresses_of_machines_own_are_refused(void)
{
    static const struct {
        const char *address;
        bool own, local; /* own: refused with exceptions; local: refused for all */
    } rows[] = {
        {"127.0.0.1", true, false},
        {"127.8.9.1", true, false},
        {"0.0.0.0", true, false},
        {"::1", true, false},
        {"::", true, false},
        {"::ffff:127.0.0.1", true, false},
        {"64:ff9b::7f00:1", true, false},
        {"169.254.169.254", false, true},
        {"::ffff:169.254.169.254", false, true},
        {"fe80::1%lo", false, true},
        {"fd00:ec2::254", false, true},
        {"10.0.0.1", false, false},
        {"192.168.1.1", false, false},
        {"93.184.216.34", false, false},
        {"169.253.0.1", false, false},
        {"2001:db8::1", false, false},
        {"fd00:1::1", false, false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (int k = 0; k < 2; k++) {
            struct stg_object object = {.loopback = k == 1};
            bool refused = (rows[i].own && !object.loopback) || rows[i].local;
            if ((stg_attempt_refuses(&object, rows[i].address) != NULL) != refused)
                FAIL("%s, %d", rows[i].address, k);
        }
    }
    struct stg_object all = {.loopback = true};
    CHECK(stg_attempt_refuses(&all, "224.0.0.1") != NULL);
    CHECK(stg_attempt_refuses(&all, "255.255.255.255") != NULL);
    CHECK(stg_attempt_refuses(&all, "ff02::1") != NULL);
    CHECK(stg_attempt_refuses(&all, "/run/x.sock") != NULL);
}

static const struct stg_test tests[] = {
    TEST(a_url_is_checked_before_it_is_asked_for),
    TEST(names_are_checked_before_anything_is_asked_for),
    TEST(addresses_of_machines_own_are_refused),
};
TEST_MAIN(tests)
