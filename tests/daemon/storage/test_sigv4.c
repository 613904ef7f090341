/* SPDX-License-Identifier: Apache-2.0
 *
 * Signatures compared with the examples that AWS publishes: its test suite of Signature
 * Version 4, and those of the S3 documentation ("Authenticating Requests").
 * golden_sigv4.py computes the rest; it is checked with the same examples.
 */
#include "daemon/storage/http/sigv4.h"

#include <stdlib.h>

#include "core/status.h"
#include "tests/check.h"
#include "tests/daemon/storage/golden_sigv4.h"
#include "tests/failalloc.h"

#define SUITE_HOST "example.amazonaws.com"
#define S3_HOST "examplebucket.s3.amazonaws.com"

static const struct stg_sigv4_header suite_headers[] = {
    {"host", SUITE_HOST},
    {"x-amz-date", "20150830T123600Z"},
};

static const struct stg_sigv4 suite = {
    .key = "AKIDEXAMPLE",
    .secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
    .region = "us-east-1",
    .service = "service",
    .date = "20150830T123600Z",
    .headers = suite_headers,
    .n_headers = 2,
};

static const struct stg_sigv4_header s3_headers[] = {
    {"host", S3_HOST},
    {"x-amz-content-sha256", STG_SIGV4_NO_BODY},
    {"x-amz-date", "20130524T000000Z"},
};

static const struct stg_sigv4_header range_headers[] = {
    {"host", S3_HOST},
    {"range", "bytes=0-9"},
    {"x-amz-content-sha256", STG_SIGV4_NO_BODY},
    {"x-amz-date", "20130524T000000Z"},
};

static const struct stg_sigv4 s3 = {
    .key = "AKIAIOSFODNN7EXAMPLE",
    .secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    .region = "us-east-1",
    .service = "s3",
    .date = "20130524T000000Z",
    .headers = s3_headers,
    .n_headers = 3,
};

static void check_signature(struct stg_sigv4 request, const char *url, const char *want)
{
    request.url = url;
    char *got = stg_sigv4(&request);
    CHECK(got != NULL);
    CHECK_CONTAINS(got, want);
    free(got);
}

static void the_examples_of_the_test_suite_are_signed(void)
{
#define URL "https://" SUITE_HOST
#define UNRESERVED "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    static const char *const rows[][2] = {
        {URL, "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
        {URL "/", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
        {URL "/%E1%88%B4",
         "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"},
        {URL "/?Param1=value1",
         "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb"},
        {URL "/?Param2=value2&Param1=value1",
         "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
        {URL "/?Param1=value2&Param1=value1",
         "5772eed61e12b33fae39ee5e7012498b51d56abc0abb7c60486157bd471c4694"},
        {URL "/?Param1=value2&Param1=Value1",
         "eedbc4e291e521cf13422ffca22be7d2eb8146eecf653089df300a15b2382bd1"},
        {URL "/?" UNRESERVED "=" UNRESERVED,
         "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        check_signature(suite, rows[i][0], rows[i][1]);
#undef URL
}

static void the_examples_of_s3_are_signed(void)
{
    struct stg_sigv4 ranged = s3;
    ranged.headers = range_headers;
    ranged.n_headers = 4;
    check_signature(ranged, "https://" S3_HOST "/test.txt",
                    "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/"
                    "s3/aws4_request, "
                    "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, Signature="
                    "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
    check_signature(s3, "https://" S3_HOST "/?lifecycle",
                    "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
    check_signature(s3, "https://" S3_HOST "/?max-keys=2&prefix=J",
                    "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

static void a_query_is_signed_as_it_is_sent(void)
{
    for (size_t i = 0; i < sizeof(golden_sigv4) / sizeof(golden_sigv4[0]); i++)
        check_signature(s3, golden_sigv4[i].url, golden_sigv4[i].signature);
}

static void the_host_has_a_port_where_it_is_not_the_schemes(void)
{
    static const char *const rows[][2] = {
        {"https://a.example/b?c=d", "a.example"},
        {"https://a.example:443/b", "a.example"},
        {"https://a.example:80", "a.example:80"},
        {"http://a.example:80?x", "a.example"},
        {"http://127.0.0.1:9000/b:80", "127.0.0.1:9000"},
        {"http://[::1]:80/", "[::1]"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *host = stg_sigv4_host(rows[i][0]);
        CHECK_STR(host, rows[i][1]);
        free(host);
    }
}

static int sign_once(void *owner)
{
    struct stg_sigv4 request = s3;
    request.url = golden_sigv4[0].url;
    char *got = stg_sigv4(&request), *host = stg_sigv4_host(request.url);
    int rc = got != NULL && host != NULL ? 0 : -STAGER_RESOURCE_EXHAUSTED;
    if (got != NULL)
        CHECK_CONTAINS(got, golden_sigv4[0].signature);
    free(got);
    free(host);
    return rc;
}

static void no_memory_is_no_signature(void)
{
    CHECK(stg_failalloc_each(sign_once, NULL) >= 3);
}

static const struct stg_test tests[] = {
    TEST(the_examples_of_the_test_suite_are_signed),
    TEST(the_examples_of_s3_are_signed),
    TEST(a_query_is_signed_as_it_is_sent),
    TEST(the_host_has_a_port_where_it_is_not_the_schemes),
    TEST(no_memory_is_no_signature),
};

TEST_MAIN(tests)
