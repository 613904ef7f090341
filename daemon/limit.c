/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/limit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "core/status.h"

#define MIB 1048576.0
#define FILES_A_CLIENT 4 /* socket, pidfd, ring, control page */
#define OTHER_FILES 64   /* the loop, pipelines, files that are read */

/* UINT64_MAX: no file, or "max". */
static uint64_t read_number(const char *path)
{
    char text[64] = "", *end;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return UINT64_MAX;
    size_t n = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    uint64_t value = strtoull(text, &end, 10);
    return n == 0 || end == text ? UINT64_MAX : value;
}

/* The least limit of a group and of those above it; names its file. */
static void least_limit(const char *root, const char *mount, char *group,
                        const char *name, uint64_t *least, char where[1024])
{
    for (;;) {
        char path[1024];
        snprintf(path, sizeof(path), "%s%s%s/%s", root, mount, group, name);
        uint64_t limit = read_number(path);
        if (limit < *least) {
            *least = limit;
            snprintf(where, 1024, "%s", path);
        }
        char *slash = strrchr(group, '/');
        if (slash == NULL)
            return;
        *slash = '\0';
    }
}

int stg_limit_check_memory(const char *root, uint64_t budget, struct stg_err *err)
{
    char path[1024], where[1024] = "", line[1024];
    uint64_t least = UINT64_MAX;
    snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    FILE *file = budget != 0 ? fopen(path, "re") : NULL;
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *v1 = strstr(line, ":memory:");
        if (v1 != NULL)
            least_limit(root, "/sys/fs/cgroup/memory", v1 + strlen(":memory:"),
                        "memory.limit_in_bytes", &least, where);
        else if (strncmp(line, "0::", 3) == 0)
            least_limit(root, "/sys/fs/cgroup", line + 3, "memory.max", &least, where);
    }
    if (file != NULL)
        fclose(file);
    if (budget <= least)
        return 0;
    return stg_err(
        err, -STAGER_INVALID_ARGUMENT,
        "memory_budget is %.1f MiB, and the control group has %.1f MiB (%s): "
        "lower memory_budget in stagerd.yaml (0: a quarter of what is free), or "
        "raise MemoryMax= of the unit or the memory limit of the container",
        (double)budget / MIB, (double)least / MIB, where);
}

void stg_limit_raise_files(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

uint64_t stg_limit_files(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_NOFILE, &limit) < 0 ? UINT64_MAX : limit.rlim_cur;
}

uint64_t stg_limit_files_wanted(uint32_t max_clients)
{
    return (uint64_t)max_clients * FILES_A_CLIENT + OTHER_FILES;
}
