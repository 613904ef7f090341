/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines of a bugreport, without what must not leave the machine.
 */
#include "client/stagerctl/report/mask.h"

#include <stdlib.h>
#include <string.h>

#include "tests/check.h"

static void check_line(const char *line, const char *want)
{
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    CHECK(out != NULL);
    stg_mask_line(out, line, strlen(line));
    fclose(out);
    CHECK(n > 0 && text[n - 1] == '\n');
    text[n - 1] = '\0';
    CHECK_STR(text, want);
    free(text);
}

static void secrets_are_masked(void)
{
    check_line("s3_secret_key: abc def", "s3_secret_key: ***");
    check_line("Authorization: Bearer x.y", "Authorization: ***");
    check_line("got token=77 of alice", "got token=***");
    check_line("GET http://bob:pw@host/x", "GET http://***@host/x");
    check_line("s3://data/x?X-Amz-Signature=1 now", "s3://data/x?*** now");
    check_line("0123456789abcdef0123456789abcdef is", "*** is");
    check_line("export STAGER_TOKEN=deadbeef", "export STAGER_TOKEN=***");
}

static void data_is_masked(void)
{
    check_line("rows.csv:3: field 2: \"4111 1111\" is no int32",
               "rows.csv:3: field 2: \"***\" is no int32");
    check_line("\"a \\\" b\" and \"no end", "\"***\" and \"***");
    check_line("\"", "\"***");
}

static void the_rest_stays(void)
{
    check_line("  buffer    3 of 8, filled by 2 threads",
               "  buffer    3 of 8, filled by 2 threads");
    check_line("memory_budget: 4GiB # of the machine",
               "memory_budget: 4GiB # of the machine");
    check_line("https://host:80/a/b.csv is slow?", "https://host:80/a/b.csv is slow?");
    check_line("", "");
    check_line("an \x1b[31m escape", "an ?[31m escape");
}

static const struct stg_test tests[] = {
    TEST(secrets_are_masked),
    TEST(data_is_masked),
    TEST(the_rest_stays),
};
TEST_MAIN(tests)
