/* SPDX-License-Identifier: Apache-2.0
 *
 * The queue of the log. Neither a full pipe nor a stopped thread blocks a caller. No line
 * is torn or reordered, and every lost line is counted.
 */
#include <assert.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/log.h"
#include "tests/check.h"

#define PIPE_BYTES 4096
#define N_LINES 20000 /* more than the pipe and the queue hold */
#define N_THREADS 4

static void say(int thread, int number)
{
    stg_log(STG_LOG_INFO, "thread %d line %d ends here", thread, number);
}

/* ---- the other end ---- */

struct reader {
    int fd, before; /* the test's own standard error */
    char *bytes;
    size_t n, room;
};

/* Makes standard error a pipe of 4 KiB. */
static void pipe_as_stderr(struct reader *ret)
{
    int fds[2];
    unsetenv("JOURNAL_STREAM");
    CHECK(pipe2(fds, O_CLOEXEC) == 0);
    CHECK(fcntl(fds[1], F_SETPIPE_SZ, PIPE_BYTES) == PIPE_BYTES);
    *ret = (struct reader){.fd = fds[0], .before = fcntl(2, F_DUPFD_CLOEXEC, 3)};
    CHECK(dup2(fds[1], STDERR_FILENO) == STDERR_FILENO);
    close(fds[1]);
}

/* Restores the test's standard error, so that a reader reaches the end. */
static void close_pipe(struct reader *reader)
{
    if (reader->before >= 0)
        dup2(reader->before, STDERR_FILENO);
    close(reader->before);
    reader->before = -1;
}

/* Appends the result of one read; false at the end. */
static bool read_some(struct reader *reader)
{
    if (reader->room - reader->n <= PIPE_BYTES) {
        reader->room = 2 * reader->room + 4 * PIPE_BYTES;
        reader->bytes = realloc(reader->bytes, reader->room);
        CHECK(reader->bytes != NULL);
    }
    ssize_t n = read(reader->fd, reader->bytes + reader->n, PIPE_BYTES);
    CHECK(n >= 0);
    reader->n += (size_t)n;
    reader->bytes[reader->n] = '\0';
    return n > 0;
}

static void *read_to_end(void *arg)
{
    while (read_some(arg))
        ;
    return NULL;
}

static void finish(struct reader *reader)
{
    close_pipe(reader);
    free(reader->bytes);
    close(reader->fd);
}

struct counts {
    int next[N_THREADS]; /* of each thread, the next number that may be read */
    int n_read, n_lost, n_reports;
};

/* Fails if a line is incomplete or out of order. */
static void count_line(const char *line, struct counts *counts)
{
    int thread, number, n = 0;
    const char *words = strstr(line, ": ");
    if (words == NULL)
        FAIL("a torn line: %s", line);
    if (sscanf(words, ": thread %d line %d ends here%n", &thread, &number, &n) == 2) {
        if (n == 0 || words[n] != '\0' || number < counts->next[thread])
            FAIL("torn, or out of order: %s", line);
        counts->next[thread] = number + 1;
        counts->n_read++;
        return;
    }
    CHECK_CONTAINS(words, "missing here: ");
    CHECK(sscanf(words, ": %d line", &n) == 1);
    counts->n_lost += n;
    counts->n_reports++;
}

static struct counts count(struct reader *reader)
{
    struct counts counts = {0};
    CHECK(reader->n > 0 && reader->bytes[reader->n - 1] == '\n');
    char *rest = reader->bytes;
    for (char *line = strsep(&rest, "\n"); rest != NULL; line = strsep(&rest, "\n"))
        count_line(line, &counts);
    return counts;
}

/* ---- tests ---- */

static void a_full_pipe_blocks_no_caller(void)
{
    struct reader reader;
    pipe_as_stderr(&reader);
    CHECK_INT(stg_log_start(), 0);
    for (int i = 0; i < N_LINES; i++)
        say(0, i);
    do
        CHECK(read_some(&reader));
    while (strstr(reader.bytes, "missing here") == NULL);
    say(0, N_LINES);
    stg_log_stop();
    close_pipe(&reader);
    read_to_end(&reader);
    struct counts counts = count(&reader);
    CHECK_INT(counts.next[0], N_LINES + 1);
    CHECK_INT(counts.n_read + counts.n_lost, N_LINES + 1);
    CHECK_INT(counts.n_reports, 1);
    CHECK(counts.n_lost > 0);
    finish(&reader);
}

static void stopping_does_not_wait_for_a_reader(void)
{
    struct reader reader;
    pipe_as_stderr(&reader);
    signal(SIGPIPE, SIG_IGN);
    CHECK_INT(stg_log_start(), 0);
    for (int i = 0; i < N_LINES; i++)
        say(0, i);
    stg_log_stop(); /* the deadline of the test is the check */
    say(0, N_LINES);
    close(reader.before); /* the thread's remaining lines must not reach it */
    close(reader.fd);
    stg_log_stop(); /* joins the thread: its write ends with the pipe */
}

static void *say_many(void *arg)
{
    for (int i = 0; i < N_LINES / N_THREADS; i++)
        say((int)(intptr_t)arg, i);
    return NULL;
}

static void lines_of_threads_are_whole_and_in_order(void)
{
    struct reader reader;
    pthread_t threads[N_THREADS], reads;
    pipe_as_stderr(&reader);
    CHECK_INT(stg_log_start(), 0);
    CHECK(pthread_create(&reads, NULL, read_to_end, &reader) == 0);
    for (intptr_t i = 0; i < N_THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, say_many, (void *)i) == 0);
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    stg_log_stop();
    close_pipe(&reader);
    pthread_join(reads, NULL);
    struct counts counts = count(&reader);
    CHECK_INT(counts.n_read + counts.n_lost, N_LINES);
    finish(&reader);
}

/* Acts like a full disk: writes fail at first, and succeed later. */
static void lines_that_cannot_be_written_are_counted(void)
{
    char name[] = "/tmp/stg-log-XXXXXX", text[4096];
    int file = mkstemp(name), full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    unlink(name);
    CHECK(file >= 0 && full >= 0);
    int before = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    CHECK(dup2(full, STDERR_FILENO) == STDERR_FILENO);
    CHECK_INT(stg_log_start(), 0);
    for (int i = 0; i < 10; i++)
        say(0, i);
    CHECK(dup2(file, STDERR_FILENO) == STDERR_FILENO);
    say(0, 10);
    stg_log_stop();
    dup2(before, STDERR_FILENO);
    close(before);
    ssize_t n = pread(file, text, sizeof(text) - 1, 0);
    CHECK(n > 0);
    text[n] = '\0';
    if (strstr(text, "line 0 ends here") == NULL) /* the thread was writing before dup2 */
        CHECK_CONTAINS(text, "missing here: cannot write the log: No space left");
    close(file);
    close(full);
}

/* Runs body in a child; returns how the child ended. */
static int run_child(void (*body)(void))
{
    int status;
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        struct rlimit none = {0};
        setrlimit(RLIMIT_CORE, &none);
        body();
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    return status;
}

static void break_a_promise(void)
{
    CHECK_INT(stg_log_start(), 0);
    for (int i = 0; i < 10; i++)
        say(0, i);
    volatile int promise = 0;
    assert(promise && "this is the promise");
}

static void an_assertion_is_read_after_all_lines_before_it(void)
{
    struct reader reader;
    pipe_as_stderr(&reader);
    int status = run_child(break_a_promise);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    close_pipe(&reader);
    read_to_end(&reader);
    CHECK_CONTAINS(reader.bytes, "line 9 ends here");
    CHECK_CONTAINS(strstr(reader.bytes, "line 9 ends here"), "this is the promise");
    /* gcc names the function, clang its whole type. */
    CHECK_CONTAINS(strstr(reader.bytes, "line 9 ends here"), "break_a_promise");
    finish(&reader);
}

static void break_a_promise_unheard(void)
{
    CHECK_INT(stg_log_start(), 0);
    for (int i = 0; i < N_LINES; i++)
        say(0, i);
    break_a_promise();
}

static void abort_alone(void)
{
    signal(SIGABRT, SIG_DFL);
    raise(SIGABRT);
}

/* Linux writes nothing when a process aborts. qemu-user writes into the full pipe. */
static bool abort_is_written(void)
{
    struct reader reader;
    int n = 0;
    pipe_as_stderr(&reader);
    run_child(abort_alone);
    CHECK(ioctl(reader.fd, FIONREAD, &n) == 0);
    finish(&reader);
    return n > 0;
}

static void an_assertion_ends_the_process_where_nothing_reads(void)
{
    struct reader reader;
    if (abort_is_written())
        SKIP("an abort is written to standard error here, as qemu-user does");
    pipe_as_stderr(&reader);
    int status = run_child(break_a_promise_unheard);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    finish(&reader);
}

static void say_one(void)
{
    say(0, 1);
}

static void a_child_of_fork_writes_by_itself(void)
{
    struct reader reader;
    pipe_as_stderr(&reader);
    CHECK_INT(stg_log_start(), 0);
    CHECK_INT(run_child(say_one), 0);
    stg_log_stop();
    close_pipe(&reader);
    read_to_end(&reader);
    CHECK_CONTAINS(reader.bytes, "thread 0 line 1 ends here\n");
    finish(&reader);
}

static void a_signal_of_another_process_aborts(void)
{
    CHECK_INT(stg_log_start(), 0);
    raise(SIGABRT);
}

static void an_abort_that_was_sent_ends_the_process(void)
{
    int status = run_child(a_signal_of_another_process_aborts);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

/* ---- a stopped thread ---- */

static _Thread_local bool stands_still; /* in its next line */
static _Thread_local bool has_no_zone;  /* localtime_r takes a lock as well */
static sem_t stands, goes_on;

int __real_pthread_cond_signal(pthread_cond_t *cond);
int __wrap_pthread_cond_signal(pthread_cond_t *cond);
struct tm *__real_localtime_r(const time_t *time, struct tm *ret);
struct tm *__wrap_localtime_r(const time_t *time, struct tm *ret);

/* The log calls it with its lock held. */
int __wrap_pthread_cond_signal(pthread_cond_t *cond)
{
    if (stands_still) {
        stands_still = false;
        sem_post(&stands);
        while (sem_wait(&goes_on) < 0)
            ;
    }
    return __real_pthread_cond_signal(cond);
}

struct tm *__wrap_localtime_r(const time_t *time, struct tm *ret)
{
    CHECK(!has_no_zone);
    return __real_localtime_r(time, ret);
}

static void *stand_still(void *arg)
{
    stands_still = true;
    say(0, 0);
    return NULL;
}

static void a_thread_that_stands_still_in_the_log_keeps_no_other(void)
{
    struct reader reader;
    pthread_t thread;
    pipe_as_stderr(&reader);
    sem_init(&stands, 0, 0);
    sem_init(&goes_on, 0, 0);
    CHECK_INT(stg_log_start(), 0);
    CHECK(pthread_create(&thread, NULL, stand_still, NULL) == 0);
    while (sem_wait(&stands) < 0)
        ;
    has_no_zone = true;
    for (int i = 0; i < 100; i++) /* the deadline of the test is the check */
        say(1, i);
    stg_log_flush();
    stg_log_stop();
    sem_post(&goes_on);
    pthread_join(thread, NULL);
    stg_log_stop();
    close_pipe(&reader);
    read_to_end(&reader);
    CHECK_CONTAINS(reader.bytes, "100 lines are missing here: a thread stopped");
    struct counts counts = count(&reader);
    CHECK_INT(counts.n_read, 1);
    CHECK_INT(counts.n_lost, 100);
    finish(&reader);
}

static const struct stg_test tests[] = {
    TEST(a_full_pipe_blocks_no_caller),
    TEST(stopping_does_not_wait_for_a_reader),
    TEST(lines_of_threads_are_whole_and_in_order),
    TEST(lines_that_cannot_be_written_are_counted),
    TEST(an_assertion_is_read_after_all_lines_before_it),
    TEST(an_assertion_ends_the_process_where_nothing_reads),
    TEST(a_child_of_fork_writes_by_itself),
    TEST(an_abort_that_was_sent_ends_the_process),
    TEST(a_thread_that_stands_still_in_the_log_keeps_no_other),
};
TEST_MAIN(tests)
