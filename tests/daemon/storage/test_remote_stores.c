/* SPDX-License-Identifier: Apache-2.0
 *
 * s3:// and hdfs:// against servers on loopback: requests as their protocols define them,
 * lists, and refusals. The S3 server computes signatures independently.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/storage/http/fetcher.h"
#include "daemon/storage/http/hdfs.h"
#include "daemon/storage/http/store.h"
#include "daemon/storage/storage.h"
#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"
#include "tests/daemon/storage/remote_server.h"

static const struct stg_file_user root = {.uid = 0};

static void start(const char *script)
{
    static const char *const variables[] = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
                                            "AWS_SESSION_TOKEN", "AWS_REGION",
                                            "AWS_ENDPOINT_URL",  "AWS_PROFILE"};
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
        unsetenv(variables[i]);
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent", 1);
    stg_test_fetch_with(2000, 2);
    stg_test_server_start_as(script);
}

static void stop(void)
{
    stg_stores_finish();
    stg_test_server_stop();
}

static void check_reads(const char *url, int64_t size)
{
    struct stg_err err = {0};
    int64_t n = stg_test_read_url(url, 0, &err);
    if (n != size)
        FAIL("%s: %lld: %s", url, (long long)n, err.text);
}

static void check_fails(const char *url, int code, const char *part)
{
    struct stg_err err = {0};
    CHECK_INT(stg_test_read_url(url, 0, &err), code);
    CHECK_CONTAINS(err.text, part);
    CHECK_CONTAINS(err.text, url);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

struct names {
    char *at[64];
    size_t n;
};

static int add_name(void *owner, const char *path, struct stg_err *err)
{
    struct names *names = owner;
    CHECK(names->n < 64);
    names->at[names->n++] = strdup(path);
    return 0;
}

static int list(const char *url, const struct stg_file_user *identity, char *ret,
                size_t bytes, struct stg_err *err)
{
    const struct stg_storage *storage;
    const char *path;
    struct names names = {0};
    CHECK_OK(stg_storage_find(url, &storage, &path, err), *err);
    int rc = storage->list(path, identity, add_name, &names, err);
    qsort(names.at, names.n, sizeof(char *), by_text);
    size_t at = 0;
    ret[0] = '\0';
    for (size_t i = 0; i < names.n; i++) {
        at += (size_t)snprintf(ret + at, bytes - at, "%s%s", i > 0 ? " | " : "",
                               names.at[i]);
        free(names.at[i]);
    }
    return rc;
}

static void check_list(const char *url, const char *want)
{
    struct stg_err err = {0};
    char got[4096];
    CHECK_OK(list(url, &root, got, sizeof(got), &err), err);
    CHECK_STR(got, want);
}

/* ---- s3 ---- */

static const char keys[] = "[default]\n"
                           "aws_access_key_id = AKTEST\n"
                           "aws_secret_access_key = se/cr+et=\n"
                           "[wrong]\n"
                           "aws_access_key_id = AKTEST\n"
                           "aws_secret_access_key = other\n"
                           "[session]\n"
                           "aws_access_key_id = AKTEST\n"
                           "aws_secret_access_key = se/cr+et=\n"
                           "aws_session_token = to/ken+==\n"
                           "region = eu-test-1\n"
                           "[namenode]\n"
                           "user = ann\n"
                           "[token]\n"
                           "bearer_token = d/e l\n";

static const char *write_keys(void)
{
    const char *path = STG_TEST_FILE("keys", keys);
    CHECK(chmod(path, 0600) == 0);
    return path;
}

static void use_store(const char *prefix, const char *profile, const char *region)
{
    struct stg_err err = {0};
    const struct stg_remote_store_spec specs[] = {
        {.prefix = prefix,
         .endpoint = stg_test_server_url("/"),
         .region = region,
         .credentials_file = profile[0] != '\0' ? write_keys() : "",
         .profile = profile},
    };
    CHECK_OK(stg_stores_configure(specs, 1, &err), err);
}

static void an_object_is_read_with_a_signature(void)
{
    start("remote_s3.py");
    use_store("s3://private/", "default", "eu-test-1");
    check_reads("s3://private/data/part-0", 100011);
    check_reads("s3://private/data/b a&c+d%é<x>.csv", 100021);
    check_reads("s3://private/odd/..x", 100007);
    check_reads("s3://private/odd/star*[1]", 100012);
    CHECK_INT(stg_test_server_asked("/private/data/b%20a%26c%2Bd%25%C3%A9%3Cx%3E.csv "),
              2);
    stop();
}

static void a_session_is_signed_for(void)
{
    start("remote_s3.py");
    use_store("s3://session/", "session", "");
    check_reads("s3://session/data/part-0", 100011);
    CHECK_INT(stg_test_server_asked("x-amz-security-token=to/ken+=="), 2);
    stop();
}

static void a_daemon_of_its_own_uses_its_environment(void)
{
    start("remote_s3.py");
    setenv("AWS_ENDPOINT_URL", stg_test_server_url("%s", ""), 1);
    setenv("AWS_ACCESS_KEY_ID", "AKTEST", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "se/cr+et=", 1);
    setenv("AWS_REGION", "eu-test-1", 1);
    check_reads("s3://private/data/part-0", 100011);
    unsetenv("AWS_ACCESS_KEY_ID");
    setenv("AWS_SHARED_CREDENTIALS_FILE", write_keys(), 1);
    check_reads("s3://private/data/part-0", 100011);
    setenv("AWS_PROFILE", "wrong", 1);
    check_fails("s3://private/data/part-0", -STAGER_PERMISSION_DENIED,
                "SignatureDoesNotMatch");
    stop();
}

static void what_is_public_needs_no_key(void)
{
    start("remote_s3.py");
    use_store("s3://", "", "");
    check_reads("s3://public/data/part-0", 100011);
    CHECK_INT(stg_test_server_asked("Authorization="), 0);
    check_fails("s3://private/data/part-0", -STAGER_PERMISSION_DENIED,
                "the server answered 403: AccessDenied, Access Denied; it was requested "
                "without a key: name a credentials_file");
    stop();
}

static void a_refusal_of_s3_is_reported_with_its_reason_and_without_keys(void)
{
    struct stg_err err = {0};
    start("remote_s3.py");
    use_store("s3://private/", "wrong", "eu-test-1");
    check_fails("s3://private/data/part-0", -STAGER_PERMISSION_DENIED,
                "SignatureDoesNotMatch, wrong; its key, secret and region");
    CHECK_INT(stg_test_read_url("s3://private/data/part-0", 0, &err),
              -STAGER_PERMISSION_DENIED);
    CHECK(strstr(err.text, "AKTEST") == NULL && strstr(err.text, "other") == NULL);
    use_store("s3://private/", "default", "eu-test-1");
    check_fails("s3://private/data/none", -STAGER_NOT_FOUND, "404: NoSuchKey");
    stop();
}

static void a_bucket_is_listed_by_pattern(void)
{
    start("remote_s3.py");
    use_store("s3://private/", "default", "eu-test-1");
    check_list("s3://private/data/part-*",
               "private/data/part-0 | private/data/part-1 | private/data/part-10 | "
               "private/data/part-2");
    check_list("s3://private/data/*",
               "private/data/b a&c+d%é<x>.csv | private/data/part-0 | "
               "private/data/part-1 | private/data/part-10 | private/data/part-2");
    check_list("s3://private/data/", "private/data/b a&c+d%é<x>.csv | "
                                     "private/data/part-0 | private/data/part-1 | "
                                     "private/data/part-10 | private/data/part-2");
    check_list("s3://private/dat?/part-0", "private/data/part-0 | private/datb/part-0");
    check_list("s3://private/data/*/part-0", "private/data/sub/part-0");
    check_list("s3://private/odd/star\\**", "private/odd/star*[1]");
    check_list("s3://private/odd/star\\*\\[1]", "private/odd/star*[1]");
    check_list("s3://private/data/part-[12]",
               "private/data/part-1 | private/data/part-2");
    CHECK(stg_test_server_asked("continuation-token=at%2F%2B3") > 0);
    CHECK_INT(stg_test_server_asked("prefix=data%2Fpart- "), 4);
    stop();
}

/* The keys of its first part occur only once. */
static void a_truncated_list_is_asked_for_anew(void)
{
    start("remote_s3.py");
    use_store("s3://cut/", "default", "eu-test-1");
    check_list("s3://cut/data/part-*", "cut/data/part-0 | cut/data/part-1 | "
                                       "cut/data/part-10 | cut/data/part-2");
    CHECK_INT(stg_test_server_asked("prefix=data%2Fpart- "), 4);
    stop();
}

static void a_list_that_goes_round_is_refused(void)
{
    struct stg_err err = {0};
    char got[64];
    start("remote_s3.py");
    use_store("s3://loop/", "default", "eu-test-1");
    CHECK_INT(list("s3://loop/none*", &root, got, sizeof(got), &err), -STAGER_DATA_LOSS);
    CHECK_CONTAINS(err.text,
                   "s3://loop/none*: the server repeats a page of the bucket's list");
    CHECK_INT(stg_test_server_asked("GET"), 2);
    stop();
}

static void a_server_other_than_s3_is_reported(void)
{
    struct stg_err err = {0};
    char got[64];
    start("remote_s3.py");
    use_store("s3://html/", "default", "eu-test-1");
    CHECK_INT(list("s3://html/a*", &root, got, sizeof(got), &err), -STAGER_DATA_LOSS);
    CHECK_STR(err.text,
              "s3://html/a*: the server's answer is not a list of a bucket: XML, "
              "line 1: mismatched tag: is the endpoint an S3 endpoint?");
    stop();
}

static void a_pattern_that_matches_nothing_is_reported(void)
{
    struct stg_err err = {0};
    char got[64];
    start("remote_s3.py");
    use_store("s3://private/", "default", "eu-test-1");
    CHECK_INT(list("s3://private/none*", &root, got, sizeof(got), &err),
              -STAGER_NOT_FOUND);
    CHECK_CONTAINS(err.text, "no files matched s3://private/none*");
    use_store("s3://private/", "wrong", "eu-test-1");
    CHECK_INT(list("s3://private/data/*", &root, got, sizeof(got), &err),
              -STAGER_PERMISSION_DENIED);
    CHECK_CONTAINS(err.text, "(listing the bucket)");
    stop();
}

static void keys_are_for_the_named_users(void)
{
    struct stg_err err = {0};
    const struct stg_file_user alice = {.uid = 54321, .gid = 54321};
    struct stg_source *source;
    char got[64];
    start("remote_s3.py");
    use_store("s3://private/", "default", "eu-test-1");
    CHECK_INT(stg_test_open_url("s3://private/data/part-0", &alice, &source, &err),
              -STAGER_PERMISSION_DENIED);
    CHECK_CONTAINS(
        err.text,
        "user 54321 may not use the credentials with which stagerd reads s3://private/");
    CHECK_INT(list("s3://private/data/*", &alice, got, sizeof(got), &err),
              -STAGER_PERMISSION_DENIED);
    CHECK_INT(stg_test_server_asked("GET"), 0);
    stop();
}

/* ---- hdfs ---- */

static const char *hdfs_url(const char *path)
{
    static char urls[4][512];
    static unsigned turn;
    char *url = urls[turn++ % 4];
    snprintf(url, 512, "hdfs://127.0.0.1:%d%s", stg_test_server_port(), path);
    return url;
}

static void a_file_of_hdfs_is_read_from_its_datanode(void)
{
    start("remote_hdfs.py");
    check_reads(hdfs_url("/logs/day 1/part-0"), 100000);
    check_reads(hdfs_url("/logs/day-2/empty"), 0);
    CHECK_INT(
        stg_test_server_asked("GET /webhdfs/v1/logs/day%201/part-0?op=OPEN&user.name="
                              "root&offset=65536&length=34464"),
        1);
    CHECK_INT(stg_test_server_asked("GET /datanode/logs/day%201/part-0"), 2);
    stop();
}

static void hdfs_is_listed_by_pattern(void)
{
    char want[512];
    int port;
    start("remote_hdfs.py");
    port = stg_test_server_port();
    snprintf(want, sizeof(want),
             "127.0.0.1:%d/logs/day 1/part-0 | 127.0.0.1:%d/logs/day 1/part-1 | "
             "127.0.0.1:%d/logs/day-2/part-0",
             port, port, port);
    check_list(hdfs_url("/logs/day*/part-*"), want);
    snprintf(want, sizeof(want), "127.0.0.1:%d/logs/top", port);
    check_list(hdfs_url("/logs/*"), want);
    check_list(hdfs_url("/logs"), want);
    check_list(hdfs_url("/logs/"), want);
    check_list(hdfs_url("/logs/top"), want);
    struct stg_err err = {0};
    char got[64];
    CHECK_INT(list(hdfs_url("/logs/x*"), &root, got, sizeof(got), &err),
              -STAGER_NOT_FOUND);
    CHECK_CONTAINS(err.text, "no files matched hdfs://");
    CHECK_INT(list(hdfs_url("/none/*"), &root, got, sizeof(got), &err),
              -STAGER_NOT_FOUND);
    CHECK_CONTAINS(err.text, "FileNotFoundException, File does not exist: /none");
    stop();
}

static void hdfs_is_read_as_the_user_that_applied(void)
{
    start("remote_hdfs.py");
    check_fails(hdfs_url("/only/ann"), -STAGER_PERMISSION_DENIED,
                "the server answered 403: AccessControlException, Permission denied: "
                "user=root; ");
    const char *prefix = hdfs_url("/only/");
    use_store(prefix, "namenode", "");
    check_reads(hdfs_url("/only/ann"), 9);
    use_store(prefix, "token", "");
    CHECK_INT(stg_test_read_url(hdfs_url("/only/ann"), 0, &(struct stg_err){0}),
              -STAGER_PERMISSION_DENIED);
    CHECK_INT(stg_test_server_asked("&delegation=d%2Fe%20l "), 1);
    stop();
}

static void a_file_of_hdfs_that_is_replaced_is_data_loss(void)
{
    start("remote_hdfs.py");
    check_fails(hdfs_url("/changes/x"), -STAGER_DATA_LOSS,
                "the file was replaced while it was read");
    stop();
}

static int take_none(void *owner, const struct stg_hdfs_status *status,
                     struct stg_err *err)
{
    ++*(int *)owner;
    return 0;
}

static void an_answer_outside_the_webhdfs_protocol_is_refused(void)
{
    static const char *const rows[] = {
        "",
        "x",
        "{}",
        "{\"FileStatus\":1}",
        "[]",
        "{\"FileStatuses\":{\"FileStatus\":[{\"pathSuffix\":\"../x\"}]}}",
        "{\"FileStatuses\":{\"FileStatus\":[{\"pathSuffix\":\"..\"}]}}",
        "{\"FileStatuses\":{\"FileStatus\":[{\"pathSuffix\":\"a\\u0000b\"}]}}",
        "{\"FileStatuses\":{\"FileStatus\":[{\"pathSuffix\":7}]}}",
        "{\"FileStatuses\":{\"FileStatus\":[{\"a\":1},"};
    struct stg_hdfs_status status;
    struct stg_err err;
    int n = 0;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        CHECK_INT(stg_hdfs_status(rows[i], strlen(rows[i]), &status, &err),
                  -STAGER_DATA_LOSS);
        CHECK_INT(stg_hdfs_list(rows[i], strlen(rows[i]), take_none, &n, &err),
                  -STAGER_DATA_LOSS);
    }
    static const char list_text[] = "{\"FileStatuses\":{\"FileStatus\":[]}}";
    CHECK_INT(stg_hdfs_list(list_text, strlen(list_text), take_none, &n, &err), 0);
}

static void a_refusal_of_webhdfs_is_reported_with_its_reason(void)
{
    static const struct {
        const char *text, *exception, *message;
    } rows[] = {
        {"{\"RemoteException\":{\"exception\":\"E\",\"javaClassName\":\"x\","
         "\"message\":\"a \\\"b\\\"\"}}",
         "E", "a \"b\""},
        {" { \"RemoteException\" : { \"message\" : \"m\" , \"exception\" : \"E\"", "E",
         "m"},
        {"{\"RemoteException\":{\"message\":[\"m\"],\"exception\":{}}}", "", ""},
        {"{\"RemoteException\":{\"exception\":\"E\",\"message\":\"cut", "E", ""},
        {"{\"exception\":\"E\"}", "", ""},
        {"", "", ""},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char exception[8], message[16];
        stg_hdfs_refusal(rows[i].text, strlen(rows[i].text), exception, sizeof(exception),
                         message, sizeof(message));
        CHECK_STR(exception, rows[i].exception);
        CHECK_STR(message, rows[i].message);
    }
}

static const struct stg_test tests[] = {
    TEST_SLOW(an_object_is_read_with_a_signature, 60),
    TEST_SLOW(a_session_is_signed_for, 60),
    TEST_SLOW(a_daemon_of_its_own_uses_its_environment, 60),
    TEST_SLOW(what_is_public_needs_no_key, 60),
    TEST_SLOW(a_refusal_of_s3_is_reported_with_its_reason_and_without_keys, 60),
    TEST_SLOW(a_bucket_is_listed_by_pattern, 60),
    TEST_SLOW(a_truncated_list_is_asked_for_anew, 60),
    TEST_SLOW(a_list_that_goes_round_is_refused, 60),
    TEST_SLOW(a_server_other_than_s3_is_reported, 60),
    TEST_SLOW(a_pattern_that_matches_nothing_is_reported, 60),
    TEST_SLOW(keys_are_for_the_named_users, 60),
    TEST_SLOW(a_file_of_hdfs_is_read_from_its_datanode, 60),
    TEST_SLOW(hdfs_is_listed_by_pattern, 60),
    TEST_SLOW(hdfs_is_read_as_the_user_that_applied, 60),
    TEST_SLOW(a_file_of_hdfs_that_is_replaced_is_data_loss, 60),
    TEST_SLOW(an_answer_outside_the_webhdfs_protocol_is_refused, 60),
    TEST(a_refusal_of_webhdfs_is_reported_with_its_reason),
};
TEST_MAIN(tests)
