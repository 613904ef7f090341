/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of metrics: label values as Prometheus' documentation of the format escapes
 * them, numbers, families in both formats. Expected texts are written by hand.
 */
#include "daemon/metrics/text.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/check.h"

static char buf[64];

/* ---- labels ---- */

static void a_value_is_escaped(void)
{
    CHECK_STR(stg_metrics_label("a", "x", buf, sizeof(buf)), "a=\"x\"");
    CHECK_STR(stg_metrics_label("a", "", buf, sizeof(buf)), "a=\"\"");
    CHECK_STR(stg_metrics_label("a", "C:\\DIR \"q\"\n", buf, sizeof(buf)),
              "a=\"C:\\\\DIR \\\"q\\\"\\n\"");
    CHECK_STR(stg_metrics_label("a", "{},=\t", buf, sizeof(buf)), "a=\"{},=\t\"");
}

static void bytes_that_are_not_utf_8_are_replaced(void)
{
    CHECK_STR(
        stg_metrics_label("a", "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", buf, sizeof(buf)),
        "a=\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\"");
    CHECK_STR(stg_metrics_label("a", "\xff\x80x", buf, sizeof(buf)), "a=\"\?\?x\"");
    CHECK_STR(stg_metrics_label("a", "\xc3", buf, sizeof(buf)), "a=\"?\"");
    CHECK_STR(stg_metrics_label("a", "\xc0\xaf", buf, sizeof(buf)), "a=\"\?\?\"");
    CHECK_STR(stg_metrics_label("a", "\xe0\x80\xaf", buf, sizeof(buf)), "a=\"\?\?\?\"");
    CHECK_STR(stg_metrics_label("a", "\xed\xa0\x80", buf, sizeof(buf)), "a=\"\?\?\?\"");
    CHECK_STR(stg_metrics_label("a", "\xf4\x90\x80\x80", buf, sizeof(buf)),
              "a=\"\?\?\?\?\"");
}

/* Never in the middle of a character or of an escape. */
static void a_long_value_is_shortened(void)
{
    CHECK_STR(stg_metrics_label("a", "12345678", buf, 8), "a=\"123\"");
    CHECK_STR(stg_metrics_label("a", "12\"4", buf, 8), "a=\"12\"");
    CHECK_STR(stg_metrics_label("a", "12\xc3\xa4", buf, 8), "a=\"12\"");
    CHECK_STR(stg_metrics_label("a", "123", buf, 8), "a=\"123\"");
}

/* ---- numbers ---- */

static void times_are_exact(void)
{
    CHECK_STR(stg_metrics_seconds(0, buf), "0.0");
    CHECK_STR(stg_metrics_seconds(1, buf), "0.000000001");
    CHECK_STR(stg_metrics_seconds(100000, buf), "0.0001");
    CHECK_STR(stg_metrics_seconds(1000000000, buf), "1.0");
    CHECK_STR(stg_metrics_seconds(12340000000, buf), "12.34");
    CHECK_STR(stg_metrics_seconds(UINT64_MAX, buf), "18446744073.709551615");
}

/* ---- families ---- */

static void write_all(struct stg_metrics_text *text)
{
    stg_metrics_family(text, "a_info", STG_METRIC_INFO, "An info.");
    stg_metrics_put(text, "v=\"1\"", "", 1);
    stg_metrics_family(text, "b_total", STG_METRIC_COUNTER, "A counter.");
    stg_metrics_put(text, "", "", UINT64_MAX);
    stg_metrics_family(text, "c", STG_METRIC_GAUGE, "A gauge.");
    stg_metrics_put_ns(text, "", "d=\"1\"", 2500000000);
    stg_metrics_family(text, "e", STG_METRIC_GAUGE, "Two labels.");
    stg_metrics_put(text, "f=\"1\"", "g=\"2\"", 0);
    stg_metrics_end(text);
    stg_metrics_put(text, "", "", 0);
    text->data[text->n - 4] = '\0'; /* that sample is "e 0\n" */
}

/* The expected text is that of an example by hand: 2, 1 and 4 waits. */
static void put_histogram(struct stg_metrics_text *text)
{
    char bounds[2][STG_METRICS_BOUND_BYTES] = {"le=\"0.1\"", "le=\"1.0\""};
    static const uint64_t counts[] = {2, 1, 4};
    stg_metrics_family(text, "h", STG_METRIC_HISTOGRAM, "Waits.");
    stg_metrics_put_histogram(text, "p=\"x\"", "r=\"0\"", bounds, 2, counts, 2500000000);
}
static const char histogram[] =
    "# HELP h Waits.\n# TYPE h histogram\n"
    "h_bucket{p=\"x\",r=\"0\",le=\"0.1\"} 2\n"
    "h_bucket{p=\"x\",r=\"0\",le=\"1.0\"} 3\n"
    "h_bucket{p=\"x\",r=\"0\",le=\"+Inf\"} 7\n"
    "h_sum{p=\"x\",r=\"0\"} 2.5\nh_count{p=\"x\",r=\"0\"} 7\n";

static void a_histogram_has_cumulative_buckets(void)
{
    struct stg_metrics_text text = {0};
    put_histogram(&text);
    CHECK(!text.has_failed && text.n == strlen(histogram));
    CHECK(memcmp(text.data, histogram, text.n) == 0);
    free(text.data);
}

/* More than the memory that a text with a file uses. */
static void a_file_has_the_whole_text(void)
{
    struct stg_metrics_text text = {.has_file = true,
                                    .fd = memfd_create("text", MFD_CLOEXEC)};
    char got[sizeof(histogram)];
    const size_t n = strlen(histogram), times = 2000;
    CHECK(text.fd >= 0);
    for (size_t i = 0; i < times; i++)
        put_histogram(&text);
    stg_metrics_end(&text);
    CHECK(!text.has_failed && text.capacity < times * n / 2);
    for (size_t i = 0; i < times; i++) {
        CHECK(pread(text.fd, got, n, (off_t)(i * n)) == (ssize_t)n);
        CHECK(memcmp(got, histogram, n) == 0);
    }
    CHECK_INT(pread(text.fd, got, 1, (off_t)(times * n)), 0);
    close(text.fd);
    free(text.data);
}

static void a_file_without_room_fails(void)
{
    struct stg_metrics_text text = {.has_file = true, .fd = open("/dev/full", O_WRONLY)};
    CHECK(text.fd >= 0);
    put_histogram(&text);
    stg_metrics_end(&text);
    CHECK(text.has_failed);
    close(text.fd);
    free(text.data);
}

static void text_for_prometheus(void)
{
    struct stg_metrics_text text = {0};
    write_all(&text);
    CHECK_STR(text.data, "# HELP a_info An info.\n# TYPE a_info gauge\n"
                         "a_info{v=\"1\"} 1\n"
                         "# HELP b_total A counter.\n# TYPE b_total counter\n"
                         "b_total 18446744073709551615\n"
                         "# HELP c A gauge.\n# TYPE c gauge\n"
                         "c{d=\"1\"} 2.5\n"
                         "# HELP e Two labels.\n# TYPE e gauge\n"
                         "e{f=\"1\",g=\"2\"} 0\n");
    free(text.data);
}

static void text_of_openmetrics(void)
{
    struct stg_metrics_text text = {.is_open = true};
    write_all(&text);
    CHECK_STR(text.data, "# HELP a An info.\n# TYPE a info\n"
                         "a_info{v=\"1\"} 1\n"
                         "# HELP b A counter.\n# TYPE b counter\n"
                         "b_total 18446744073709551615\n"
                         "# HELP c A gauge.\n# TYPE c gauge\n"
                         "c{d=\"1\"} 2.5\n"
                         "# HELP e Two labels.\n# TYPE e gauge\n"
                         "e{f=\"1\",g=\"2\"} 0\n"
                         "# EOF\n");
    free(text.data);
}

static void a_text_grows(void)
{
    struct stg_metrics_text text = {0};
    stg_metrics_family(&text, "name", STG_METRIC_GAUGE, "");
    size_t n_header = text.n;
    for (unsigned i = 0; i < 100000; i++)
        stg_metrics_put(&text, "a=\"b\"", "", 1);
    CHECK(!text.has_failed);
    CHECK_INT(text.n - n_header, 100000 * strlen("name{a=\"b\"} 1\n"));
    CHECK(memcmp(text.data + text.n - 14, "name{a=\"b\"} 1\n", 14) == 0);
    free(text.data);
}

static const struct stg_test tests[] = {
    TEST(a_value_is_escaped),
    TEST(bytes_that_are_not_utf_8_are_replaced),
    TEST(a_long_value_is_shortened),
    TEST(times_are_exact),
    TEST(a_histogram_has_cumulative_buckets),
    TEST(a_file_has_the_whole_text),
    TEST(a_file_without_room_fails),
    TEST(text_for_prometheus),
    TEST(text_of_openmetrics),
    TEST(a_text_grows),
};

TEST_MAIN(tests)
