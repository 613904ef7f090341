/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/check.h"

#include <dirent.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EXIT_SKIPPED 77

static bool keeps_descriptors; /* of the child that runs the test */

void stg_test_keeps_descriptors(void)
{
    keeps_descriptors = true;
}

static int count_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    if (dir == NULL)
        return -1;
    int n = 0;
    while (readdir(dir) != NULL)
        n++;
    closedir(dir);
    return n;
}

void stg_test_fail(const char *file, int line, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fprintf(stderr, "    %s:%d: ", file, line);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    fflush(NULL);
    _exit(1);
}

void stg_test_skip(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fprintf(stderr, "    skipped: ");
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    fflush(NULL);
    _exit(EXIT_SKIPPED);
}

void stg_check_int(const char *file, int line, const char *what, int64_t got,
                   int64_t want)
{
    if (got != want)
        stg_test_fail(file, line, "%s is %lld, not %lld", what, (long long)got,
                      (long long)want);
}

void stg_check_str(const char *file, int line, const char *what, const char *got,
                   const char *want)
{
    if (got == NULL || strcmp(got, want) != 0)
        stg_test_fail(file, line, "%s is \"%s\", not \"%s\"", what, got ? got : "(null)",
                      want);
}

void stg_check_contains(const char *file, int line, const char *got, const char *part)
{
    if (got == NULL || strstr(got, part) == NULL)
        stg_test_fail(file, line, "\"%s\" does not contain \"%s\"", got ? got : "(null)",
                      part);
}

/* exit, not _exit: a leak checker reports at exit. */
static void run_child(const struct stg_test *test)
{
    sigset_t set;
    sigemptyset(&set);
    sigprocmask(SIG_SETMASK, &set, NULL);
    int before = count_descriptors();
    test->run();
    int after = count_descriptors();
    if (after != before && !keeps_descriptors)
        stg_test_fail(test->name, 0, "descriptors leaked: %d before, %d after", before,
                      after);
    exit(0);
}

/* The child leads a process group, so that its children end with it. */
static int run_one(const struct stg_test *test)
{
    const char *slow = getenv("STG_TEST_SLOW");
    unsigned deadline = test->deadline_s ? test->deadline_s : 20;
    if (slow != NULL && atoi(slow) > 0)
        deadline *= (unsigned)atoi(slow);

    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0)
        return 1;
    if (pid == 0) {
        setpgid(0, 0);
        run_child(test);
    }
    setpgid(pid, pid);

    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += deadline;
    int status = 0;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec >= end.tv_sec) {
            fprintf(stderr, "    %s: no end after %u s\n", test->name, deadline);
            kill(-pid, SIGKILL);
            waitpid(pid, &status, 0);
            return 1;
        }
        struct timespec wait = {.tv_sec = 1};
        sigtimedwait(&set, NULL, &wait);
    }
    kill(-pid, SIGKILL);
    if (WIFSIGNALED(status)) {
        fprintf(stderr, "    %s: signal %d\n", test->name, WTERMSIG(status));
        return 1;
    }
    return WEXITSTATUS(status);
}

/* Is the test named, or is none? */
static bool is_selected(const struct stg_test *test, int argc, char **argv)
{
    bool selected = argc < 2;
    for (int i = 1; i < argc && !selected; i++)
        selected = strstr(test->name, argv[i]) != NULL;
    return selected;
}

int stg_test_main(int argc, char **argv, const struct stg_test *tests, size_t n)
{
    unsigned passed = 0, failed = 0, skipped = 0;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    for (size_t i = 0; i < n; i++) {
        if (!is_selected(&tests[i], argc, argv))
            continue;
        int rc = run_one(&tests[i]);
        printf("%s %s\n",
               rc == 0              ? "ok  "
               : rc == EXIT_SKIPPED ? "skip"
                                    : "FAIL",
               tests[i].name);
        fflush(stdout);
        passed += rc == 0;
        skipped += rc == EXIT_SKIPPED;
        failed += rc != 0 && rc != EXIT_SKIPPED;
    }
    printf("%u passed, %u failed, %u skipped\n", passed, failed, skipped);
    if (failed > 0)
        return 1;
    return passed == 0 && skipped > 0 ? EXIT_SKIPPED : 0;
}
