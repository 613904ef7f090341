/* SPDX-License-Identifier: Apache-2.0
 *
 * The difference between two texts, as the refusal of a changed pipeline reports it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/pipeline/difference.h"
#include "proto/load.h"
#include "tests/check.h"

static const char *differ(const char *before, const char *after)
{
    static char text[512];
    stg_difference(before, strlen(before), after, strlen(after), text, sizeof(text));
    return text;
}

static void lines_of_one_text_are_shown(void)
{
    CHECK_STR(differ("a: 1\nb: 2\n", "a: 1\nb: 3\n"), "\"b: 2\" becomes \"b: 3\"");
    CHECK_STR(differ("a: 1\n", "a: 1\nb: 3"), "\"b: 3\" is new");
    CHECK_STR(differ("a: 1\nb: 3\n", "a: 1\n"), "\"b: 3\" goes");
    CHECK_STR(differ("a\nb\nc\nd\n", ""), "\"a\", \"b\" and 2 more goes");
}

static void order_indentation_and_comments_do_not_count(void)
{
    CHECK_STR(differ("a: 1\n\n# b\n  b: 2\n", "b: 2 \n\ta: 1\r\n"), "");
    CHECK_STR(differ("", ""), "");
}

/* n lines of three letters; the last one is first or later. */
static size_t fill(char *text, char first)
{
    size_t n = 0;
    for (int i = 0; n + 4 < STG_TEXT_MAX_BYTES; i++) {
        text[n++] = (char)('a' + i % 26);
        text[n++] = (char)('a' + i / 26 % 26);
        text[n++] = (char)(first + i / 676 % 26);
        text[n++] = '\n';
    }
    return n;
}

/* The daemon answers no other client meanwhile. */
static void the_longest_texts_take_a_moment(void)
{
    static char before[STG_TEXT_MAX_BYTES], after[STG_TEXT_MAX_BYTES];
    char text[512];
    size_t n_before = fill(before, 'a'), n_after = fill(after, 'A');
    clock_t began = clock();
    stg_difference(before, n_before, after, n_after, text, sizeof(text));
    CHECK_CONTAINS(text, "\"aaa\", \"baa\" and 15357 more becomes \"aaA\"");
    CHECK((double)(clock() - began) / CLOCKS_PER_SEC < 1);
}

static const struct stg_test tests[] = {
    TEST(lines_of_one_text_are_shown),
    TEST(order_indentation_and_comments_do_not_count),
    TEST(the_longest_texts_take_a_moment),
};
TEST_MAIN(tests)
