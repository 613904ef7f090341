/* SPDX-License-Identifier: Apache-2.0
 *
 * URLs as rules.read compares them. The forms are those of RFC 3986, 6.2.
 */
#include <string.h>

#include "daemon/storage/confine.h"
#include "tests/check.h"

static void urls_are_compared_in_one_form(void)
{
    static const struct {
        const char *url, *want; /* NULL: it is refused */
    } cases[] = {
        {"HTTP://Example.COM:80/Data/x", "http://example.com/Data/x"},
        {"https://example.com:443", "https://example.com/"},
        {"https://example.com:80/", "https://example.com:80/"},
        {"http://example.com:/a", "http://example.com/a"},
        {"http://u:p@example.com/a?b=/../c#d", "http://example.com/a"},
        {"http://good@evil/a", "http://evil/a"},
        {"http://h/%64ata/%41", "http://h/data/A"},
        {"http://h/a%2Fb", "http://h/a/b"},
        {"s3://Bucket/key", "s3://bucket/key"},
        {"http://h/100%", "http://h/100%"},
        {"http://h/a/../b", NULL},
        {"http://h/a/%2e%2E/b", NULL},
        {"http://h/a/.%2e", NULL},
        {"http://h/a%2f..%2fb", NULL},
        {"http://h/a\\..\\b", NULL},
        {"http://h/a%5c..", NULL},
        {"http://h/./b", NULL},
        {"http://h/a%00b", NULL},
        {"/data/x", NULL},
        {"://h/x", NULL},
        {"", NULL},
    };
    char got[256];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bool is_url = stg_confine_normal(cases[i].url, got, sizeof(got));
        CHECK_STR(is_url ? got : "refused",
                  cases[i].want != NULL ? cases[i].want : "refused");
    }
    for (size_t bytes = 1; bytes < 24; bytes++)
        CHECK(!stg_confine_normal("http://example.com:80/long", got, bytes));
}

static void a_prefix_ends_where_a_component_does(void)
{
    static const char *const urls[] = {"https://host/data", "s3://bucket/"};
    const struct stg_read_rules rules = {.is_set = true, .urls = urls, .n_urls = 2};
    struct stg_err err = {0};
    CHECK_OK(stg_confine_check_url("http://anywhere/x", &err), err);
    CHECK(!stg_confine_has_urls());
    CHECK_OK(stg_confine_configure(&rules, &err), err);
    CHECK(stg_confine_has_urls());
    CHECK_OK(stg_confine_check_url("https://HOST:443/data/x?a=b", &err), err);
    CHECK_OK(stg_confine_check_url("https://host/data", &err), err);
    CHECK_OK(stg_confine_check_url("s3://bucket/deep/key", &err), err);
    static const char *const others[] = {
        "https://host/data2/x",     "http://host/data/x",
        "https://host.evil/data/x", "https://host/data/../x",
        "https://host/data%2f../x", "s3://bucket2/key",
        "https://host@evil/data/x", "https://host:444/data/x",
    };
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        CHECK_INT(stg_confine_check_url(others[i], &err), -STAGER_PERMISSION_DENIED);
        CHECK(strstr(err.text, "rules.read") != NULL);
    }
    stg_confine_finish();
}

static const struct stg_test tests[] = {
    TEST(urls_are_compared_in_one_form),
    TEST(a_prefix_ends_where_a_component_does),
};

TEST_MAIN(tests)
