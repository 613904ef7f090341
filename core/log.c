/* SPDX-License-Identifier: Apache-2.0 */
#include "core/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
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
static int stderr_is_journal(void)
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

void stg_log(enum stg_log_level level, const char *fmt, ...)
{
    if ((int)level > atomic_load(&max_level))
        return;
    int saved = errno;
    char line[2048];
    int n;
    if (stderr_is_journal()) {
        n = snprintf(line, sizeof(line), "<%d>", (int)level);
    } else {
        struct timespec now;
        struct tm tm;
        clock_gettime(CLOCK_REALTIME, &now);
        localtime_r(&now.tv_sec, &tm);
        n = (int)strftime(line, sizeof(line), "%H:%M:%S", &tm);
        n += snprintf(line + n, sizeof(line) - (size_t)n,
                      ".%03ld %s: ", now.tv_nsec / 1000000, level_name(level));
    }
    va_list args;
    va_start(args, fmt);
    int m = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, args);
    va_end(args);
    size_t bytes = (size_t)n + (m < 0 ? 0 : (size_t)m);
    if (bytes > sizeof(line) - 2)
        bytes = sizeof(line) - 2;
    for (size_t i = (size_t)n; i < bytes; i++) {
        if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
            line[i] = line[i] == '\n' ? ' ' : '?'; /* names may come from anybody */
    }
    line[bytes++] = '\n';
    if (write(2, line, bytes) < 0) {
        /* nobody is left to tell */
    }
    errno = saved;
}
