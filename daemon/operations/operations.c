/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/operations/operations.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"

#define JOURNAL_SOCKET "/run/systemd/journal/socket"
#define PATH_BYTES 4096
#define N_RECORDS 128            /* in the queue */
#define N_USERS 64               /* that have a limit of their own at once */
#define BURST 100                /* records of one user at once */
#define INTERVAL_NS 100000000ull /* for each further one */
#define FINISH_LOOKS 1000        /* a millisecond each */

enum where {
    NOWHERE,
    JOURNAL,
    FILE_OF_LINES,
};

struct record {
    enum where where;
    unsigned n_opens; /* of the settings that it was made with */
    size_t n;
    char bytes[STG_OPERATION_BYTES];
};

static struct {
    pthread_mutex_t lock; /* guards what follows; held for a copy at most */
    pthread_cond_t more;  /* for the writer */
    pthread_t writer;
    bool is_started, is_stopping, has_ended;
    enum where where;
    char path[PATH_BYTES];
    unsigned n_opens; /* the writer opens the path when this has grown */
    size_t head, n;   /* of `records` */
    uint64_t n_lost;  /* in all */
    uint64_t n_reported;
    struct record *records;
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- the limit of a user; the loop's ---- */

struct user {
    bool has_user;
    uid_t uid;
    uint64_t paid_ns; /* when all of its records are paid */
    uint64_t n_lost;  /* since its last record */
};

static struct user users[N_USERS];

/* Returns the place of the user; a new one gets that which was idle longest. */
static struct user *find_user(const struct stg_operation *operation)
{
    uid_t uid = operation->has_user ? operation->uid : 0;
    struct user *oldest = &users[0];
    for (size_t i = 0; i < N_USERS; i++) {
        if (users[i].paid_ns != 0 && users[i].uid == uid &&
            users[i].has_user == operation->has_user)
            return &users[i];
        if (users[i].paid_ns < oldest->paid_ns)
            oldest = &users[i];
    }
    pthread_mutex_lock(&queue.lock);
    queue.n_reported -= oldest->n_lost;
    pthread_mutex_unlock(&queue.lock);
    *oldest = (struct user){.has_user = operation->has_user, .uid = uid};
    return oldest;
}

/* Returns whether the user may have another record now. */
static bool spend(struct user *user)
{
    uint64_t now = stg_now_ns(), most = BURST * INTERVAL_NS;
    if (user->paid_ns < now)
        user->paid_ns = now;
    if (user->paid_ns + INTERVAL_NS > now + most)
        return false;
    user->paid_ns += INTERVAL_NS;
    return true;
}

/* ---- the writer ---- */

struct writer {
    enum where where;
    char path[PATH_BYTES];
    unsigned n_opens;
    int fd;      /* -1: none */
    bool is_bad; /* the log has the reason */
};

static void report(struct writer *writer, const char *what, int number)
{
    if (!writer->is_bad)
        stg_log(STG_LOG_ERROR, "operations_log: %s: %s: %s; records are missing",
                writer->path, what, strerror(number));
    writer->is_bad = true;
}

static void open_file(struct writer *writer)
{
    if (writer->fd >= 0)
        close(writer->fd);
    writer->fd = -1;
    if (writer->where == JOURNAL)
        writer->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    else if (writer->where == FILE_OF_LINES)
        writer->fd = open(writer->path,
                          O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0640);
    if (writer->fd < 0 && writer->where != NOWHERE)
        report(writer, "cannot open it", errno);
}

/* A line that does not fit a disk leaves nothing in the file. */
static int append(int fd, const struct record *record)
{
    struct stat before;
    bool is_file = fstat(fd, &before) == 0 && S_ISREG(before.st_mode);
    ssize_t n = write(fd, record->bytes, record->n);
    int number = n < 0 ? errno : ENOSPC;
    if (n == (ssize_t)record->n)
        return 0;
    if (n > 0 && is_file && ftruncate(fd, before.st_size) < 0)
        number = errno;
    return number;
}

static int send_to_journal(int fd, const struct record *record)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = JOURNAL_SOCKET};
    ssize_t n = sendto(fd, record->bytes, record->n, MSG_NOSIGNAL,
                       (const struct sockaddr *)&address, sizeof(address));
    return n == (ssize_t)record->n ? 0 : errno;
}

/* Returns whether the record was written. Blocks. */
static bool write_record(struct writer *writer, const struct record *record)
{
    if (writer->fd < 0)
        open_file(writer);
    if (writer->fd < 0)
        return false;
    int number = writer->where == JOURNAL ? send_to_journal(writer->fd, record)
                                          : append(writer->fd, record);
    if (number != 0)
        report(writer, "cannot write it", number);
    else
        writer->is_bad = false;
    return number == 0;
}

static size_t format(enum where where, const struct stg_operation *operation,
                     char buf[STG_OPERATION_BYTES])
{
    return where == JOURNAL ? stg_operation_for_journal(operation, buf)
                            : stg_operation_for_file(
                                  operation, stg_clock_read_ns(CLOCK_REALTIME), buf);
}

/* Called under the lock, which it releases for the write. A loss is reported after the
 * first record that could be written again. */
static void write_first(struct writer *writer, struct record *buf)
{
    *buf = queue.records[queue.head];
    queue.head = (queue.head + 1) % N_RECORDS;
    queue.n--;
    uint64_t n_lost = queue.n_lost - queue.n_reported;
    pthread_mutex_unlock(&queue.lock);
    bool is_written = buf->where == writer->where && write_record(writer, buf);
    bool is_reported = false;
    if (is_written && n_lost > 0) {
        struct stg_operation lost = {.kind = STG_OPERATION_LOST, .n_lost = n_lost};
        buf->n = format(writer->where, &lost, buf->bytes);
        is_reported = buf->n > 0 && write_record(writer, buf);
    }
    pthread_mutex_lock(&queue.lock);
    queue.n_lost += !is_written;
    queue.n_reported += is_reported ? n_lost : 0;
}

/* Called under the lock, which it releases to open the file. */
static void take_settings(struct writer *writer)
{
    writer->n_opens = queue.n_opens;
    writer->where = queue.where;
    memcpy(writer->path, queue.path, sizeof(writer->path));
    writer->is_bad = false;
    pthread_mutex_unlock(&queue.lock);
    open_file(writer);
    pthread_mutex_lock(&queue.lock);
}

static void *write_records(void *arg)
{
    static struct writer writer = {.fd = -1};
    static struct record buf;
    pthread_setname_np(pthread_self(), "operations");
    pthread_mutex_lock(&queue.lock);
    for (;;) {
        bool has_changed = writer.n_opens != queue.n_opens;
        if (queue.n > 0 &&
            (!has_changed || queue.records[queue.head].n_opens == writer.n_opens))
            write_first(&writer, &buf);
        else if (has_changed)
            take_settings(&writer);
        else if (queue.is_stopping)
            break;
        else
            pthread_cond_wait(&queue.more, &queue.lock);
    }
    queue.has_ended = true;
    pthread_mutex_unlock(&queue.lock);
    if (writer.fd >= 0)
        close(writer.fd);
    writer.fd = -1;
    return NULL;
}

/* ---- life ---- */

int stg_operations_check(const char *where, struct stg_err *err)
{
    if (strcmp(where, "auto") == 0 || strcmp(where, "journal") == 0 ||
        strcmp(where, "off") == 0 || (where[0] == '/' && strlen(where) < PATH_BYTES))
        return 0;
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "operations_log: \"%.64s\" is not one of auto, journal, off, or an "
                   "absolute path",
                   where);
}

static int start(struct stg_err *err)
{
    sigset_t all, before;
    queue.records = calloc(N_RECORDS, sizeof(queue.records[0]));
    if (queue.records == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                       "operations_log: out of memory for its queue");
    pthread_cond_init(&queue.more, NULL);
    queue.is_stopping = queue.has_ended = false;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int number = pthread_create(&queue.writer, NULL, write_records, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (number != 0) {
        free(queue.records);
        queue.records = NULL;
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                       "operations_log: cannot start its thread: %s; raise TasksMax",
                       strerror(number));
    }
    queue.is_started = true;
    return 0;
}

static enum where find_where(const char *where)
{
    if (where[0] == '/')
        return FILE_OF_LINES;
    bool is_journal = strcmp(where, "journal") == 0 ||
                      (strcmp(where, "auto") == 0 && stg_log_is_journal());
    return is_journal ? JOURNAL : NOWHERE;
}

int stg_operations_configure(const char *where, struct stg_err *err)
{
    enum where kind = find_where(where);
    int rc = stg_operations_check(where, err);
    if (rc == 0 && !queue.is_started && kind != NOWHERE)
        rc = start(err);
    if (rc < 0 || !queue.is_started)
        return rc;
    pthread_mutex_lock(&queue.lock);
    queue.where = kind;
    snprintf(queue.path, sizeof(queue.path), "%s",
             kind == JOURNAL ? JOURNAL_SOCKET : where);
    queue.n_opens++;
    pthread_cond_signal(&queue.more);
    pthread_mutex_unlock(&queue.lock);
    return 0;
}

/* Returns whether the record is in the queue, which is full while the writer waits. */
static bool put(const struct stg_operation *operation)
{
    static struct record record; /* the loop's */
    record.where = queue.where;
    record.n_opens = queue.n_opens;
    record.n = format(queue.where, operation, record.bytes);
    pthread_mutex_lock(&queue.lock);
    bool fits = record.n > 0 && queue.n < N_RECORDS;
    if (fits)
        queue.records[(queue.head + queue.n++) % N_RECORDS] = record;
    queue.n_lost += !fits;
    pthread_cond_signal(&queue.more);
    pthread_mutex_unlock(&queue.lock);
    return fits;
}

/* The next record of the user reports it, not one of kind "lost". */
static void count_lost(struct user *user)
{
    user->n_lost++;
    pthread_mutex_lock(&queue.lock);
    queue.n_lost++;
    queue.n_reported++;
    pthread_mutex_unlock(&queue.lock);
}

void stg_operations_note(const struct stg_operation *operation)
{
    if (!queue.is_started || queue.where == NOWHERE)
        return;
    struct user *user = find_user(operation);
    struct stg_operation numbered = *operation;
    if (!spend(user)) {
        count_lost(user);
        return;
    }
    numbered.n_lost = user->n_lost;
    if (put(&numbered))
        user->n_lost = 0;
}

uint64_t stg_operations_lost(void)
{
    pthread_mutex_lock(&queue.lock);
    uint64_t n = queue.n_lost;
    pthread_mutex_unlock(&queue.lock);
    return n;
}

/* A writer that a disk holds ends with the process. */
void stg_operations_finish(void)
{
    bool has_ended = false;
    if (!queue.is_started)
        return;
    for (int i = 0; i < FINISH_LOOKS && !has_ended; i++) {
        pthread_mutex_lock(&queue.lock);
        queue.is_stopping = true;
        has_ended = queue.has_ended;
        pthread_cond_signal(&queue.more);
        pthread_mutex_unlock(&queue.lock);
        if (!has_ended)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    if (!has_ended)
        return;
    pthread_join(queue.writer, NULL);
    free(queue.records);
    queue.records = NULL;
    queue.is_started = false;
}
