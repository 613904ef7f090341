/* SPDX-License-Identifier: Apache-2.0
 *
 * A small test runner. Each test is a function whose name is a sentence. It runs in a
 * separate child process with a deadline. It must end with the descriptors it began with,
 * unless it declares that a loaded library keeps some. Output: one line for each test,
 * then "N passed, N failed, N skipped". Arguments filter by substring.
 */
#ifndef STG_TESTS_CHECK_H
#define STG_TESTS_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stg_test {
    const char *name;
    void (*run)(void);
    unsigned
        deadline_s; /* 0: 20 s; multiplied by environment STG_TEST_SLOW (sanitizers) */
};

#define TEST(function)                                                                   \
    {                                                                                    \
        .name = #function, .run = function                                               \
    }
#define TEST_SLOW(function, seconds)                                                     \
    {                                                                                    \
        .name = #function, .run = function, .deadline_s = (seconds)                      \
    }

/* Runs them; the return value is for main. 77 if all were skipped. */
int stg_test_main(int argc, char **argv, const struct stg_test *tests, size_t n);

#define TEST_MAIN(tests)                                                                 \
    int main(int argc, char **argv)                                                      \
    {                                                                                    \
        return stg_test_main(argc, argv, tests, sizeof(tests) / sizeof((tests)[0]));     \
    }

/* End this test as failed, or as skipped. */
void stg_test_fail(const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4), noreturn));
void stg_test_skip(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Declares that a library loaded by the test (the driver of a GPU) opens descriptors at
 * any time and closes them at exit. They are not counted. */
void stg_test_keeps_descriptors(void);

void stg_check_int(const char *file, int line, const char *what, int64_t got,
                   int64_t want);
void stg_check_str(const char *file, int line, const char *what, const char *got,
                   const char *want);
void stg_check_contains(const char *file, int line, const char *got, const char *part);

#define FAIL(...) stg_test_fail(__FILE__, __LINE__, __VA_ARGS__)
#define SKIP(...) stg_test_skip(__VA_ARGS__)
/* At the begin of a long test that starts no thread: tsan has nothing to find in it. */
#if defined(__SANITIZE_THREAD__)
#define SKIP_WITHOUT_THREADS() SKIP("it starts no thread")
#else
#define SKIP_WITHOUT_THREADS() ((void)0)
#endif
#define CHECK(condition)                                                                 \
    do {                                                                                 \
        if (!(condition))                                                                \
            FAIL("not true: %s", #condition);                                            \
    } while (0)
#define CHECK_INT(got, want)                                                             \
    stg_check_int(__FILE__, __LINE__, #got, (int64_t)(got), (int64_t)(want))
#define CHECK_STR(got, want) stg_check_str(__FILE__, __LINE__, #got, got, want)
#define CHECK_CONTAINS(got, part) stg_check_contains(__FILE__, __LINE__, got, part)
/* For calls that take a struct stg_err: prints its text. */
#define CHECK_OK(call, err)                                                              \
    do {                                                                                 \
        int rc_ = (call);                                                                \
        if (rc_ < 0)                                                                     \
            FAIL("%s: %d: %s", #call, rc_, (err).text);                                  \
    } while (0)

#endif
