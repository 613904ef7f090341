/* SPDX-License-Identifier: Apache-2.0
 *
 * What a worker reads of a request: path, query and token.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/worker/path.h"
#include "tests/check.h"

#define DIGEST "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define LARGEST "18446744073709551614" /* 2^64 - 2 */
#define TOO_LARGE "18446744073709551615"

static struct stg_worker_ask ask;

/* Reads the path behind the digest. */
static const char *read_path(const char *rest)
{
    char text[512];
    snprintf(text, sizeof(text), DIGEST "%s", rest);
    ask = (struct stg_worker_ask){.kind = STG_WORKER_ASK};
    return stg_worker_path(text, &ask);
}

static void check_place(const char *rest, uint64_t pass, uint64_t first, uint64_t last)
{
    const char *wrong = read_path(rest);
    if (wrong != NULL)
        FAIL("%s: %s", rest, wrong);
    CHECK_STR(ask.digest, DIGEST);
    CHECK(ask.pass == pass && ask.first == first && ask.last == last);
    CHECK(ask.has_epoch == 0 && ask.deal.n_hosts == 0);
}

static void check_refused(const char *rest, const char *part)
{
    const char *wrong = read_path(rest);
    if (wrong == NULL)
        FAIL("%s is not refused", rest);
    CHECK_CONTAINS(wrong, part);
}

/* ---- paths ---- */

static void a_path_has_a_digest_a_pass_and_an_index_or_a_range(void)
{
    check_place("/0/0", 0, 0, 0);
    check_place("/7/120", 7, 120, 120);
    check_place("/7/120-120", 7, 120, 120);
    check_place("/10/9-72", 10, 9, 72);
    check_place("/" LARGEST "/" LARGEST, UINT64_MAX - 1, UINT64_MAX - 1, UINT64_MAX - 1);
    check_place("/0/18446744073709551551-" LARGEST, 0, UINT64_MAX - 64, UINT64_MAX - 1);
}

static void a_range_has_1_to_64_batches(void)
{
    static const char want[] = "a range has 1 to 64 batches";
    check_place("/0/100-163", 0, 100, 163);
    check_refused("/0/100-164", want);
    check_refused("/0/0-" LARGEST, want);
    check_refused("/0/18446744073709551550-" LARGEST, want);
    check_refused("/0/5-4", want);
    check_refused("/0/" LARGEST "-0", want);
}

static void a_digest_has_64_digits_in_lower_case(void)
{
    static const char *const wrong[] = {"",
                                        "/",
                                        "/0/0",
                                        DIGEST,
                                        DIGEST "0/0/0",
                                        "ABCDEF0123456789" DIGEST "/0/0",
                                        "g" DIGEST "/0/0",
                                        "%61" DIGEST "/0/0",
                                        " " DIGEST "/0/0",
                                        "/" DIGEST "/0/0"};
    char text[] = DIGEST "/0/0";
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        const char *got = stg_worker_path(wrong[i], &ask);
        if (got == NULL)
            FAIL("%s is not refused", wrong[i]);
        CHECK_CONTAINS(got, "the digest must have 64");
    }
    CHECK_CONTAINS(stg_worker_path(text + 1, &ask), "the digest must have 64");
    for (size_t i = 0; i < strlen(DIGEST); i++) {
        char was = text[i];
        for (const char *c = "gGAF/-% \xff"; *c != '\0'; c++) {
            text[i] = *c;
            CHECK_CONTAINS(stg_worker_path(text, &ask), "the digest must have 64");
        }
        text[i] = was;
    }
    CHECK(stg_worker_path(text, &ask) == NULL);
}

/* Each number of a path, and of a query: decimal, as it is printed. */
static const char *const no_numbers[] = {"",
                                         "-1",
                                         "+1",
                                         " 1",
                                         "00",
                                         "01",
                                         "0x1",
                                         "a",
                                         "1a",
                                         "1 ",
                                         "1.",
                                         "1,",
                                         "%31",
                                         "1%20",
                                         "1%00",
                                         "\xd9\xa1",
                                         TOO_LARGE,
                                         "1e3",
                                         "-",
                                         "/",
                                         "?",
                                         "#",
                                         "18446744073709551616",
                                         "184467440737095516140",
                                         "99999999999999999999999999999999999999999999"};
#define N_NO_NUMBERS (sizeof(no_numbers) / sizeof(no_numbers[0]))

static void each_number_of_a_path_is_a_decimal_without_leading_zeros(void)
{
    char rest[256];
    for (size_t i = 0; i < N_NO_NUMBERS; i++) {
        snprintf(rest, sizeof(rest), "/%s/1", no_numbers[i]);
        check_refused(rest, "the pass must be a decimal number");
        if (strcmp(no_numbers[i], "") != 0) {
            snprintf(rest, sizeof(rest), "/1/%s", no_numbers[i]);
            check_refused(rest, "");
        }
        snprintf(rest, sizeof(rest), "/1/0-%s", no_numbers[i]);
        check_refused(rest, "");
    }
    check_refused("/1/" TOO_LARGE, "the index must be a decimal number");
    check_refused("/1/01", "the index must be a decimal number");
    check_refused("/1/1-" TOO_LARGE, "the last index must be a decimal number");
    check_refused("/1/1-01", "the last index must be a decimal number");
}

static void a_path_ends_behind_its_last_number(void)
{
    static const char *const wrong[] = {
        "/0/1/", "/0/1/2", "/0/1-2-3", "/0/1?epoch=1", "/0/1-2 ", "/0/1-2%00", "/0/1;"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        check_refused(wrong[i], "the path ends with INDEX or FIRST-LAST");
    check_refused("/", "the pass must be");
    check_refused("/1", "the pass must be");
    check_refused("//1", "the pass must be");
    check_refused("/1/", "the index must be");
    check_refused("/1//1", "the index must be");
    check_refused("/1/2-", "the last index must be");
    /* The text ends at a NUL: stager-worker decodes no %00. */
    CHECK(stg_worker_path(DIGEST "/0/1\0/2", &ask) == NULL && ask.last == 1);
}

/* Each text is on the heap alone: a sanitizer catches a read behind it. */
static void a_path_that_is_cut_off_anywhere_is_refused_or_shorter(void)
{
    static const char whole[] = DIGEST "/123/4567-4570";
    size_t head = strlen(DIGEST "/123/4");
    for (size_t n = 0; n < sizeof(whole); n++) {
        char *text = strndup(whole, n);
        bool is_range = n > head + 4;
        /* 4567-4, -45 and -457 are no ranges */
        bool is_good = n >= head && n != head + 4 && (!is_range || n == head + 8);
        CHECK((stg_worker_path(text, &ask) == NULL) == is_good);
        free(text);
    }
}

static void a_path_of_any_length_is_refused(void)
{
    static const char letters[] = "0f/-%9";
    size_t n = 1 << 20;
    char *text = malloc(n + 1);
    CHECK(text != NULL);
    for (const char *c = letters; *c != '\0'; c++) {
        memset(text, *c, n);
        text[n] = '\0';
        CHECK(stg_worker_path(text, &ask) != NULL);
        memcpy(text, DIGEST "/1/", strlen(DIGEST "/1/"));
        CHECK(stg_worker_path(text, &ask) != NULL);
        memcpy(text, DIGEST "/1/0-", strlen(DIGEST "/1/0-"));
        CHECK(stg_worker_path(text, &ask) != NULL);
    }
    free(text);
}

/* ---- queries ---- */

static const char *read_query(const struct stg_worker_query *query)
{
    ask = (struct stg_worker_ask){.kind = STG_WORKER_ASK};
    return stg_worker_query(query, &ask);
}

static void a_query_may_be_empty(void)
{
    CHECK(read_query(&(struct stg_worker_query){0}) == NULL);
    CHECK(ask.has_epoch == 0 && ask.deal.n_hosts == 0);
}

static void epoch_and_index_come_together(void)
{
    struct stg_worker_query query = {.epoch = "3", .index = LARGEST};
    CHECK(read_query(&query) == NULL);
    CHECK(ask.has_epoch != 0 && ask.epoch == 3 && ask.index == UINT64_MAX - 1);
    CHECK(ask.deal.n_hosts == 0);
    query.epoch = NULL;
    CHECK_CONTAINS(read_query(&query), "epoch and index must both be");
    query = (struct stg_worker_query){.epoch = "3"};
    CHECK_CONTAINS(read_query(&query), "epoch and index must both be");
}

static void host_hosts_and_begin_come_together(void)
{
    for (unsigned i = 0; i < 8; i++) {
        const struct stg_worker_query query = {.host = (i & 1) != 0 ? "2" : NULL,
                                               .hosts = (i & 2) != 0 ? "3" : NULL,
                                               .begin = (i & 4) != 0 ? "5" : NULL};
        const char *wrong = read_query(&query);
        if (i == 0 || i == 7)
            CHECK(wrong == NULL);
        else
            CHECK_CONTAINS(wrong, "host, hosts and begin must all be decimal numbers");
        CHECK_INT(ask.deal.n_hosts, i == 7 ? 3 : 0);
    }
    CHECK(ask.deal.host == 2 && ask.deal_first == 5 && ask.has_epoch == 0);
}

static void a_host_is_less_than_hosts_of_which_there_are_at_most_2_to_the_20(void)
{
    struct stg_worker_query query = {.host = "1048575", .hosts = "1048576", .begin = "0"};
    CHECK(read_query(&query) == NULL && ask.deal.host == STG_DEAL_MAX_HOSTS - 1);
    query.hosts = "1048575";
    CHECK_CONTAINS(read_query(&query), "host is from 0 to hosts - 1");
    query.hosts = "1048577";
    CHECK_CONTAINS(read_query(&query), "hosts is from 1 to 1048576");
    query.hosts = "0";
    CHECK_CONTAINS(read_query(&query), "hosts is from 1 to 1048576");
    /* 2^32 + 1 and 2^32, of which 32 bits are 1 and 0 */
    query = (struct stg_worker_query){
        .host = "4294967296", .hosts = "4294967297", .begin = "0"};
    CHECK_CONTAINS(read_query(&query), "hosts is from 1 to 1048576");
    query.hosts = "1";
    CHECK_CONTAINS(read_query(&query), "host is from 0 to hosts - 1");
}

static void each_number_of_a_query_is_a_decimal_without_leading_zeros(void)
{
    for (size_t i = 0; i < N_NO_NUMBERS; i++) {
        const char *bad = no_numbers[i];
        for (unsigned k = 0; k < 5; k++) {
            const struct stg_worker_query query = {.epoch = k == 0 ? bad : "0",
                                                   .index = k == 1 ? bad : "0",
                                                   .host = k == 2 ? bad : "0",
                                                   .hosts = k == 3 ? bad : "1",
                                                   .begin = k == 4 ? bad : "0"};
            if (read_query(&query) == NULL)
                FAIL("value %u: \"%s\" is not refused", k, bad);
        }
    }
}

/* ---- tokens ---- */

static void a_token_is_compared_whole(void)
{
    static const char *const wrong[] = {"",
                                        "secret",
                                        "Bearer",
                                        "Bearer ",
                                        "Bearer secre",
                                        "Bearer secret ",
                                        "Bearer  secret",
                                        "Bearer secretsecret",
                                        "Bearer Secret",
                                        "Bearer secreT",
                                        "Bearer secre\xf4",
                                        "Basic secret",
                                        " Bearer secret"};
    CHECK(stg_worker_is_allowed("Bearer secret", "secret"));
    CHECK(stg_worker_is_allowed("bEARER secret", "secret"));
    CHECK(!stg_worker_is_allowed(NULL, "secret"));
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        if (stg_worker_is_allowed(wrong[i], "secret"))
            FAIL("\"%s\" is allowed", wrong[i]);
    }
    CHECK(!stg_worker_is_allowed("Bearer x", ""));
}

static const struct stg_test tests[] = {
    TEST(a_path_has_a_digest_a_pass_and_an_index_or_a_range),
    TEST(a_range_has_1_to_64_batches),
    TEST(a_digest_has_64_digits_in_lower_case),
    TEST(each_number_of_a_path_is_a_decimal_without_leading_zeros),
    TEST(a_path_ends_behind_its_last_number),
    TEST(a_path_that_is_cut_off_anywhere_is_refused_or_shorter),
    TEST(a_path_of_any_length_is_refused),
    TEST(a_query_may_be_empty),
    TEST(epoch_and_index_come_together),
    TEST(host_hosts_and_begin_come_together),
    TEST(a_host_is_less_than_hosts_of_which_there_are_at_most_2_to_the_20),
    TEST(each_number_of_a_query_is_a_decimal_without_leading_zeros),
    TEST(a_token_is_compared_whole),
};
TEST_MAIN(tests)
