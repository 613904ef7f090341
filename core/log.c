/* SPDX-License-Identifier: Apache-2.0 */
#include "core/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static _Atomic int max_level = STG_LOG_INFO;

void stg_log_fill_standard(void)
{
    for (int fd = 0; fd <= 2; fd++) { /* what is opened gets the lowest that is free */
        if (fcntl(fd, F_GETFD) < 0 &&
            open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd)
            return;
    }
}

void stg_log_set_level(enum stg_log_level level)
{
    atomic_store(&max_level, (int)level);
}

int stg_log_level_from_name(const char *name)
{
    static const struct {
        const char *name;
        int level;
    } levels[] = {
        {"error", STG_LOG_ERROR},
        {"warning", STG_LOG_WARNING},
        {"info", STG_LOG_INFO},
        {"debug", STG_LOG_DEBUG},
    };
    for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
        if (strcmp(levels[i].name, name) == 0)
            return levels[i].level;
    }
    return -1;
}

/* systemd sets JOURNAL_STREAM to "device:inode" of the journal's socket
 * (systemd.exec(5)). */
int stg_log_is_journal(void)
{
    static _Atomic int known = -1;
    int answer = atomic_load(&known);
    if (answer >= 0)
        return answer;
    answer = 0;
    const char *stream = getenv("JOURNAL_STREAM");
    unsigned long long dev, ino;
    struct stat st;
    if (stream != NULL && sscanf(stream, "%llu:%llu", &dev, &ino) == 2 &&
        fstat(2, &st) == 0)
        answer = st.st_dev == dev && st.st_ino == ino;
    atomic_store(&known, answer);
    return answer;
}

static const char *level_name(enum stg_log_level level)
{
    switch (level) {
    case STG_LOG_ERROR: return "error";
    case STG_LOG_WARNING: return "warning";
    case STG_LOG_INFO: return "info";
    case STG_LOG_DEBUG: return "debug";
    }
    return "?";
}

/* ---- the queue ---- */

/* A line has at most LINE_BYTES, so that one write of whole lines is one piece to a pipe
 * that other processes write to as well. */
#define LINE_BYTES 2048
#define QUEUE_BYTES ((size_t)256 << 10)
#define LOCK_SECONDS 1
#define FLUSH_LOOKS 1000 /* a millisecond each */
#define ABORT_LOOKS 200

static struct {
    pthread_mutex_t lock; /* guards what follows; held for a copy at most */
    pthread_cond_t more;  /* for the writer */
    pthread_t writer;
    size_t head, n; /* of `bytes`: whole lines */
    uint64_t n_dropped;
    int error;     /* errno of the last write; 0: it succeeded */
    bool is_tried; /* a line came after that error: the writer tries again */
    bool was_held; /* some of n_dropped found the queue locked */
    bool is_stopping;
    char bytes[QUEUE_BYTES];
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Atomic bool is_started;
static _Atomic bool is_idle = true; /* the writer has nothing to do */
static _Atomic bool has_ended = true;
static _Atomic bool is_held;    /* the last to want the lock did not get it */
static _Atomic uint64_t n_held; /* lines dropped for that, not yet in queue.n_dropped */

static int lock_in_time(void)
{
    struct timespec until;
#if defined(__SANITIZE_THREAD__) /* which does not know pthread_mutex_clocklock */
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LOCK_SECONDS;
    return pthread_mutex_timedlock(&queue.lock, &until);
#else
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += LOCK_SECONDS;
    return pthread_mutex_clocklock(&queue.lock, CLOCK_MONOTONIC, &until);
#endif
}

/* Locks the queue; false: a thread that has the lock is stopped. Once a caller has waited
 * in vain, the others do not wait. */
static bool lock_queue(void)
{
    bool waits = !atomic_load(&is_held);
    int number = waits ? lock_in_time() : pthread_mutex_trylock(&queue.lock);
    atomic_store(&is_held, number != 0);
    return number == 0;
}

/* Adds the lines that were dropped without the lock. Under the lock. */
static void count_held(void)
{
    uint64_t n = atomic_exchange(&n_held, 0);
    queue.n_dropped += n;
    queue.was_held = queue.was_held || n > 0;
}

/* A line carries its second as eight hexadecimal digits until it is written: localtime_r
 * takes a lock of the C library. */
static void write_times(char *bytes, size_t n)
{
    if (stg_log_is_journal())
        return;
    for (char *line = bytes, *end; line < bytes + n; line = end + 1) {
        end = memchr(line, '\n', n - (size_t)(line - bytes));
        if (end == NULL || end - line < 8)
            return;
        char digits[9] = "", text[9];
        memcpy(digits, line, 8);
        time_t second = (time_t)strtoul(digits, NULL, 16);
        struct tm tm;
        localtime_r(&second, &tm);
        strftime(text, sizeof(text), "%H:%M:%S", &tm);
        memcpy(line, text, 8);
    }
}

static size_t format_line(char line[LINE_BYTES], enum stg_log_level level,
                          const char *fmt, va_list args)
{
    int n;
    if (stg_log_is_journal()) {
        n = snprintf(line, LINE_BYTES, "<%d>", (int)level);
    } else {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        n = snprintf(line, LINE_BYTES, "%08x.%03ld %s: ", (unsigned)now.tv_sec,
                     now.tv_nsec / 1000000, level_name(level));
    }
    int m = vsnprintf(line + n, LINE_BYTES - (size_t)n - 1, fmt, args);
    size_t bytes = (size_t)n + (m < 0 ? 0 : (size_t)m);
    if (bytes > LINE_BYTES - 2)
        bytes = LINE_BYTES - 2;
    for (size_t i = (size_t)n; i < bytes; i++) {
        if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
            line[i] = line[i] == '\n' ? ' ' : '?'; /* names may come from any client */
    }
    line[bytes++] = '\n';
    return bytes;
}

static size_t format(char line[LINE_BYTES], enum stg_log_level level, const char *fmt,
                     ...) __attribute__((format(printf, 3, 4)));

static size_t format(char line[LINE_BYTES], enum stg_log_level level, const char *fmt,
                     ...)
{
    va_list args;
    va_start(args, fmt);
    size_t n = format_line(line, level, fmt, args);
    va_end(args);
    return n;
}

/* Queues a line. After a loss, lines are dropped until the queue is empty and the writer
 * has reported the loss: the report stands where the lost lines would. */
static void put(const char *line, size_t bytes)
{
    if (!lock_queue()) {
        atomic_fetch_add(&n_held, 1);
        return;
    }
    count_held();
    if (queue.n_dropped > 0 || bytes > QUEUE_BYTES - queue.n || queue.is_stopping) {
        queue.n_dropped++;
        queue.is_tried = true;
    } else {
        size_t tail = (queue.head + queue.n) % QUEUE_BYTES;
        size_t first = bytes < QUEUE_BYTES - tail ? bytes : QUEUE_BYTES - tail;
        memcpy(queue.bytes + tail, line, first);
        memcpy(queue.bytes, line + first, bytes - first);
        queue.n += bytes;
    }
    if (!queue.is_stopping) {
        atomic_store(&is_idle, false);
        pthread_cond_signal(&queue.more);
    }
    pthread_mutex_unlock(&queue.lock);
}

/* Takes whole lines of the queue. Under the lock. */
static size_t take(char *batch, size_t bytes)
{
    size_t n = queue.n < bytes ? queue.n : bytes;
    size_t first = n < QUEUE_BYTES - queue.head ? n : QUEUE_BYTES - queue.head;
    memcpy(batch, queue.bytes + queue.head, first);
    memcpy(batch + first, queue.bytes, n - first);
    const char *end = n > 0 ? memrchr(batch, '\n', n) : NULL;
    n = end != NULL ? (size_t)(end - batch) + 1 : 0;
    queue.head = (queue.head + n) % QUEUE_BYTES;
    queue.n -= n;
    return n;
}

/* Under the lock. */
static size_t format_loss(char line[LINE_BYTES], uint64_t n)
{
    int error = queue.error;
    const char *lines = n == 1 ? "line is" : "lines are";
    if (error != 0)
        return format(line, STG_LOG_WARNING,
                      "%" PRIu64 " %s missing here: cannot write the log: %s", n, lines,
                      strerror(error));
    return format(line, STG_LOG_WARNING, "%" PRIu64 " %s missing here: %s", n, lines,
                  queue.was_held ? "a thread stopped while it held the lock of the log"
                                 : "the reader of the log did not keep up");
}

static uint64_t count_lines(const char *bytes, size_t n)
{
    uint64_t ret = 0;
    for (size_t i = 0; i < n; i++)
        ret += bytes[i] == '\n';
    return ret;
}

/* Returns how many bytes were written; if not all, errno has the reason. Blocks. */
static size_t write_all(const char *bytes, size_t n)
{
    size_t done = 0;
    while (done < n) {
        ssize_t m = write(STDERR_FILENO, bytes + done, n - done);
        struct pollfd room = {.fd = STDERR_FILENO, .events = POLLOUT};
        if (m >= 0)
            done += (size_t)m;
        else if (errno == EAGAIN)
            poll(&room, 1, -1);
        else if (errno != EINTR)
            break;
    }
    return done;
}

/* Returns 0 or errno; n_lost is the number of lines that were not written. A line that an
 * error has torn ends before the next one begins. */
static int write_batch(const char *batch, size_t n, bool *torn, uint64_t *n_lost)
{
    if (*torn && write_all("\n", 1) == 1)
        *torn = false;
    size_t done = write_all(batch, n);
    int error = done < n ? errno : 0;
    *n_lost = count_lines(batch + done, n - done);
    if (done > 0 && done < n)
        *torn = batch[done - 1] != '\n';
    return error;
}

/* Under the lock. */
static bool has_work(void)
{
    count_held();
    return queue.n > 0 || (queue.n_dropped > 0 && (queue.error == 0 || queue.is_tried));
}

/* Called under the lock, which it releases for the write. */
static void write_some(bool *torn)
{
    char batch[2 * LINE_BYTES];
    uint64_t n_said = queue.n == 0 ? queue.n_dropped : 0, n_lost;
    size_t n = n_said > 0 ? format_loss(batch, n_said) : take(batch, sizeof(batch));
    queue.is_tried = false;
    pthread_mutex_unlock(&queue.lock);
    write_times(batch, n);
    int error = write_batch(batch, n, torn, &n_lost);
    pthread_mutex_lock(&queue.lock);
    queue.error = error;
    if (n_said == 0)
        queue.n_dropped += n_lost;
    else if (error == 0)
        queue.n_dropped -= n_said;
    queue.was_held = queue.was_held && queue.n_dropped > 0;
}

static void *write_lines(void *arg)
{
    bool torn = false;
    pthread_setname_np(pthread_self(), "log");
    pthread_mutex_lock(&queue.lock);
    for (;;) {
        if (has_work()) {
            write_some(&torn);
            continue;
        }
        atomic_store(&is_idle, true);
        if (queue.is_stopping)
            break;
        pthread_cond_wait(&queue.more, &queue.lock);
    }
    pthread_mutex_unlock(&queue.lock);
    atomic_store(&has_ended, true);
    return NULL;
}

/* ---- life ---- */

/* In a child of fork, which has no writer. */
static void forget_writer(void)
{
    atomic_store(&is_started, false);
    atomic_store(&is_idle, true);
}

/* Waits without a lock, which a stopped thread may hold, and in the handler of a signal.
 */
static void wait_until(_Atomic bool *is_true, int looks)
{
    struct timespec moment = {.tv_nsec = 1000000};
    for (int i = 0; i < looks && !atomic_load(is_true); i++)
        nanosleep(&moment, NULL);
}

/* Gives the writer a moment, then ends the process by the signal, whether it aborts or
 * another process sent the signal. */
static void on_abort(int number)
{
    wait_until(&is_idle, ABORT_LOOKS);
    signal(number, SIG_DFL);
    raise(number);
}

static int start_thread(void)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int number = pthread_create(&queue.writer, NULL, write_lines, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return number;
}

int stg_log_start(void)
{
    static bool is_known;
    stg_log_is_journal();
    pthread_cond_init(&queue.more, NULL);
    queue.is_stopping = false;
    atomic_store(&has_ended, false);
    int number = start_thread();
    if (number != 0)
        return number;
    if (!is_known)
        pthread_atfork(NULL, NULL, forget_writer);
    is_known = true;
    signal(SIGABRT, on_abort);
    atomic_store(&is_started, true);
    return 0;
}

void stg_log_flush(void)
{
    if (atomic_load(&is_started))
        wait_until(&is_idle, FLUSH_LOOKS);
}

void stg_log_stop(void)
{
    if (!atomic_load(&is_started) || lock_in_time() != 0)
        return;
    queue.is_stopping = true;
    pthread_cond_signal(&queue.more);
    pthread_mutex_unlock(&queue.lock);
    wait_until(&has_ended, FLUSH_LOOKS);
    if (!atomic_load(&has_ended))
        return; /* the writer hangs, and ends with the process */
    atomic_store(&is_started, false);
    pthread_join(queue.writer, NULL);
}

static void write_now(char *line, size_t bytes)
{
    write_times(line, bytes);
    if (write(STDERR_FILENO, line, bytes) < 0) {
        /* nothing is left to report it to */
    }
}

void stg_log(enum stg_log_level level, const char *fmt, ...)
{
    if ((int)level > atomic_load(&max_level))
        return;
    int saved = errno;
    char line[LINE_BYTES];
    va_list args;
    va_start(args, fmt);
    size_t bytes = format_line(line, level, fmt, args);
    va_end(args);
    if (atomic_load(&is_started))
        put(line, bytes);
    else
        write_now(line, bytes);
    errno = saved;
}
