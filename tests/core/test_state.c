/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of a state: what is written is read, and nothing else is.
 */
#include "core/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/status.h"
#include "tests/check.h"

static struct stg_state example(void)
{
    return (struct stg_state){
        .steps = "files:0a1b2c3d@3,text_line:00000001,graph:00000002,features:00000003",
        .order = STG_ORDER_VERSION,
        .pass = 20,
        .place = {.items = 8, .elements = 128, .epoch = 1, .index = 2, .passed = 3},
        .rows = 4,
        .n_delivered = 1,
        .ranks = 2,
        .data = {.n_files = 3, .bytes = 4711, .names = 0xabcdef, .sum = UINT64_MAX},
    };
}

static void must_be_refused(const char *text, size_t bytes, const char *why)
{
    struct stg_state state;
    struct stg_err err = {0};
    CHECK_INT(stg_state_read(text, bytes, &state, &err), -STAGER_INVALID_ARGUMENT);
    if (strstr(err.text, why) == NULL) {
        fprintf(stderr, "%.*s: %s\n", (int)bytes, text, err.text);
        CHECK(false);
    }
}

static void what_is_written_is_read(void)
{
    char text[STG_STATE_TEXT_BYTES];
    struct stg_state state = example(), again = {0};
    struct stg_err err = {0};
    size_t n = stg_state_write(&state, text);
    CHECK_INT(n, strlen(text));
    CHECK_OK(stg_state_read(text, n, &again, &err), err);
    CHECK(memcmp(&state, &again, sizeof(state)) == 0);
}

static void the_largest_state_fits(void)
{
    char text[STG_STATE_TEXT_BYTES];
    struct stg_state state, again;
    struct stg_err err = {0};
    memset(&state, 0xff, sizeof(state));
    memset(state.steps, 'x', sizeof(state.steps) - 1);
    state.steps[sizeof(state.steps) - 1] = '\0';
    size_t n = stg_state_write(&state, text);
    CHECK(n < STG_STATE_TEXT_BYTES);
    CHECK_INT(text[n - 1], '}');
    CHECK_OK(stg_state_read(text, n, &again, &err), err);
    CHECK_INT(again.place.has_errors, UINT32_MAX);
}

static void another_form_of_the_same_object_is_read(void)
{
    struct stg_state state = example(), again = {0};
    struct stg_err err = {0};
    char text[STG_STATE_TEXT_BYTES], other[2 * STG_STATE_TEXT_BYTES];
    stg_state_write(&state, text);
    /* As a library may write it: the last key first, with white space. */
    char *last = strrchr(text, ',');
    *last = '\0';
    snprintf(other, sizeof(other), " { %.*s ,\n\t%s }\n", (int)strlen(last + 1) - 1,
             last + 1, text + 1);
    CHECK_OK(stg_state_read(other, strlen(other), &again, &err), err);
    CHECK(memcmp(&state, &again, sizeof(state)) == 0);
}

static void a_text_that_is_cut_anywhere_is_refused(void)
{
    char text[STG_STATE_TEXT_BYTES];
    struct stg_state state = example();
    size_t n = stg_state_write(&state, text);
    for (size_t i = 0; i < n; i++) {
        char *cut = malloc(i + 1); /* a sanitizer sees a byte too far */
        CHECK(cut != NULL);
        memcpy(cut, text, i);
        must_be_refused(cut, i, "not a state of a stream");
        free(cut);
    }
}

/* But for a change that means the same: white space, a leading zero of a number. */
static void a_text_with_any_byte_changed_is_refused(void)
{
    char text[STG_STATE_TEXT_BYTES];
    struct stg_state state = example(), again;
    size_t n = stg_state_write(&state, text);
    for (size_t i = 0; i < n; i++) {
        for (int byte = 0; byte < 256; byte++) {
            char before = text[i];
            struct stg_err err = {0};
            if ((unsigned char)before == byte)
                continue;
            text[i] = (char)byte;
            int rc = stg_state_read(text, n, &again, &err);
            CHECK(rc == -STAGER_INVALID_ARGUMENT ||
                  memcmp(&state, &again, sizeof(state)) == 0);
            text[i] = before;
        }
    }
}

static void what_is_wrong_is_named(void)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"", "does not begin with {"},
        {"[]", "does not begin with {"},
        {"{}", "a key or a string is missing"},
        {"{\"stager_state\":2,\"other\":1}",
         "version 2, and this release reads version 1"},
        {"{\"stager_state\":1}", "key \"order\" is missing"},
        {"{\"order\":1}", "key \"stager_state\" is missing"},
        {"{\"stager_state\":1,\"order\":1,\"order\":1}", "there twice"},
        {"{\"stager_state\":1,\"batches\":3}", "key \"batches\" is unknown"},
        {"{\"stager_state\":1,\"pass\":99999999999999999999}", "too large"},
        {"{\"stager_state\":1,\"passed\":4294967296}", "too large"},
        {"{\"stager_state\":1,\"pass\":-1}", "a number is missing"},
        {"{\"stager_state\":1,\"names\":\"00000000000000000\"}", "hexadecimal"},
        {"{\"stager_state\":1,\"names\":\"xyz\"}", "hexadecimal"},
        {"{\"stager_state\":1,\"steps\":\"a\\n\"}", "not one that stager writes"},
        {"{\"stager_state\":1,\"steps\":\"", "truncated inside a string"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        must_be_refused(bad[i].text, strlen(bad[i].text), bad[i].why);
    char text[STG_STATE_TEXT_BYTES];
    struct stg_state state = example();
    size_t n = stg_state_write(&state, text);
    char *at = strstr(text, "\"position\":128");
    CHECK(at != NULL);
    at[11] = '2';
    must_be_refused(text, n, "its sum does not match its values");
    at[11] = '1';
    text[n] = '}';
    must_be_refused(text, n + 1, "text follows the closing }");
}

static void a_state_is_written_in_less_than_fifty_microseconds(void)
{
    enum { N = 2000 };
    char text[STG_STATE_TEXT_BYTES];
    struct stg_state state = example();
    uint64_t best = UINT64_MAX;
    for (int round = 0; round < 5; round++) {
        uint64_t began = stg_thread_cpu_ns();
        for (int i = 0; i < N; i++)
            stg_state_write(&state, text);
        uint64_t ns = (stg_thread_cpu_ns() - began) / N;
        best = ns < best ? ns : best;
    }
    fprintf(stderr, "    %llu ns\n", (unsigned long long)best);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    CHECK(best < 50000);
#endif
}

static const struct stg_test tests[] = {
    TEST(what_is_written_is_read),
    TEST(the_largest_state_fits),
    TEST(another_form_of_the_same_object_is_read),
    TEST(a_text_that_is_cut_anywhere_is_refused),
    TEST(a_text_with_any_byte_changed_is_refused),
    TEST(what_is_wrong_is_named),
    TEST(a_state_is_written_in_less_than_fifty_microseconds),
};

TEST_MAIN(tests)
