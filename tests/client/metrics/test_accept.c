/* SPDX-License-Identifier: Apache-2.0
 *
 * Headers Accept of Prometheus 2.42 and 3, of curl and browsers, and odd ones.
 */
#include "client/metrics/accept.h"

#include <stddef.h>

#include "tests/check.h"

static void prometheus_gets_openmetrics(void)
{
    CHECK(stg_metrics_wants_open(
        "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version="
        "0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"));
    CHECK(stg_metrics_wants_open(
        "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
        "application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;"
        "escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"));
    CHECK(stg_metrics_wants_open("application/openmetrics-text; version=1.0.0"));
    CHECK(stg_metrics_wants_open("Application/OpenMetrics-Text ; q = 1"));
    CHECK(stg_metrics_wants_open("application/openmetrics-text; version=\"1.0.0\""));
}

static void others_get_text(void)
{
    CHECK(!stg_metrics_wants_open(NULL));
    CHECK(!stg_metrics_wants_open(""));
    CHECK(!stg_metrics_wants_open("*/*"));
    CHECK(!stg_metrics_wants_open("text/html,application/xhtml+xml,*/*;q=0.8"));
    CHECK(!stg_metrics_wants_open("text/plain;version=0.0.4;q=1,*/*;q=0.1"));
    CHECK(!stg_metrics_wants_open("application/openmetrics-text;version=0.0.1"));
    CHECK(!stg_metrics_wants_open("application/openmetrics-text;version=2.0.0"));
    CHECK(!stg_metrics_wants_open("application/openmetrics-text;q=0"));
    CHECK(!stg_metrics_wants_open("application/openmetrics-text;q=0.000,*/*"));
    CHECK(!stg_metrics_wants_open("application/openmetrics-text;q=0.2,text/plain"));
    CHECK(
        !stg_metrics_wants_open("application/openmetrics-text;q=0.2,text/plain;q=0.25"));
}

static void odd_headers_do_no_harm(void)
{
    CHECK(!stg_metrics_wants_open(",,;;,;=,=;q=,"));
    CHECK(!stg_metrics_wants_open("application/openmetrics-textual"));
    CHECK(!stg_metrics_wants_open("application/openmetrics-text;q=x"));
    CHECK(stg_metrics_wants_open(",,application/openmetrics-text,,"));
    CHECK(!stg_metrics_wants_open("application/openmetrics-text;q="));
}

static const struct stg_test tests[] = {
    TEST(prometheus_gets_openmetrics),
    TEST(others_get_text),
    TEST(odd_headers_do_no_harm),
};

TEST_MAIN(tests)
