/* SPDX-License-Identifier: Apache-2.0
 *
 * Headers Host that a browser, curl, a proxy or another site's name makes.
 */
#include "client/metrics/host.h"

#include "tests/check.h"

static void this_machine_by_address_or_localhost(void)
{
    CHECK(stg_metrics_is_local("localhost"));
    CHECK(stg_metrics_is_local("LocalHost:9464"));
    CHECK(stg_metrics_is_local("127.0.0.1"));
    CHECK(stg_metrics_is_local("127.0.0.1:9464"));
    CHECK(stg_metrics_is_local("[::1]"));
    CHECK(stg_metrics_is_local("[::1]:9464"));
    CHECK(stg_metrics_is_local("10.1.2.3:80"));
}

static void names_are_not(void)
{
    CHECK(!stg_metrics_is_local(""));
    CHECK(!stg_metrics_is_local("evil.example"));
    CHECK(!stg_metrics_is_local("evil.example:9464"));
    CHECK(!stg_metrics_is_local("localhost.evil.example"));
    CHECK(!stg_metrics_is_local("127.0.0.1.evil.example:9464"));
    CHECK(!stg_metrics_is_local("127.0.0.1:9464.evil.example"));
    CHECK(!stg_metrics_is_local("localhost@evil.example"));
    CHECK(!stg_metrics_is_local("[::1].evil.example"));
    CHECK(!stg_metrics_is_local("[evil.example]"));
    CHECK(!stg_metrics_is_local("[::1"));
    CHECK(!stg_metrics_is_local("[]"));
    CHECK(!stg_metrics_is_local("::1"));
    CHECK(!stg_metrics_is_local("2130706433"));
    CHECK(!stg_metrics_is_local(
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"));
}

static const struct stg_test tests[] = {
    TEST(this_machine_by_address_or_localhost),
    TEST(names_are_not),
};

TEST_MAIN(tests)
