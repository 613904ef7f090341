/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/metrics/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"

/* Returns what follows `key` in the text; 0: it is not there. */
static uint64_t number_after(const char *text, const char *key)
{
    uint64_t ret = 0;
    const char *at = strstr(text, key);
    if (at != NULL)
        (void)sscanf(at + strlen(key), "%" SCNu64, &ret);
    return ret;
}

/* Before Linux 6.2 the size of the folder is 0. */
static uint64_t count_fds(void)
{
    struct stat st;
    uint64_t n = 0;
    if (stat("/proc/self/fd", &st) == 0 && st.st_size > 0)
        return (uint64_t)st.st_size;
    DIR *dir = opendir("/proc/self/fd");
    if (dir == NULL)
        return 0;
    while (readdir(dir) != NULL)
        n++;
    closedir(dir);
    return n > 3 ? n - 3 : 0; /* ".", "..", and that of the folder */
}

void stg_process_usage(struct stg_process_usage *ret)
{
    char text[4096];
    struct rlimit limit = {0};
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;
    text[n > 0 ? n : 0] = '\0';
    if (fd >= 0)
        close(fd);
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    *ret = (struct stg_process_usage){
        .resident_bytes = number_after(text, "\nVmRSS:") * 1024,
        .virtual_bytes = number_after(text, "\nVmSize:") * 1024,
        .n_threads = number_after(text, "\nThreads:"),
        .cpu_ns = stg_process_cpu_ns(),
        .n_fds = count_fds(),
        .max_fds = limit.rlim_cur,
    };
}
