/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a program that stagerd started: the daemon waits for it, but not for ever.
 */
#include <errno.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/host/helper.h"
#include "tests/check.h"

static pid_t start_sleeper(void)
{
    pid_t pid = fork();
    CHECK(pid >= 0);
    while (pid == 0)
        pause();
    return pid;
}

static void a_child_is_killed_and_reaped(void)
{
    pid_t pid = start_sleeper();
    CHECK(stg_helper_end(pid));
    CHECK(waitpid(pid, NULL, WNOHANG) < 0 && errno == ECHILD);
}

/* Traces that process and reports whether it may. */
static void trace(pid_t pid, int fd)
{
    char allowed = ptrace(PTRACE_SEIZE, pid, NULL, NULL) == 0;
    (void)!write(fd, &allowed, 1);
    for (;;)
        pause();
}

/* A parent cannot reap a child while a debugger traces it. */
static void a_child_that_does_not_end_is_not_waited_for_without_end(void)
{
    int fds[2];
    char allowed = 0;
    CHECK(pipe(fds) == 0);
    pid_t pid = start_sleeper(), tracer = fork();
    CHECK(tracer >= 0);
    if (tracer == 0)
        trace(pid, fds[1]);
    CHECK(read(fds[0], &allowed, 1) == 1);
    bool has_ended = stg_helper_end(pid); /* the deadline of the test is the check */
    kill(tracer, SIGKILL);
    CHECK(waitpid(tracer, NULL, 0) == tracer);
    if (!has_ended)
        CHECK(waitpid(pid, NULL, 0) == pid);
    close(fds[0]);
    close(fds[1]);
    if (!allowed)
        SKIP("ptrace is not allowed here");
    CHECK(!has_ended);
}

static const struct stg_test tests[] = {
    TEST(a_child_is_killed_and_reaped),
    TEST(a_child_that_does_not_end_is_not_waited_for_without_end),
};
TEST_MAIN(tests)
