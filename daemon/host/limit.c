/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/host/limit.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>

#include "core/cgroup.h"
#include "core/status.h"

#define MIB 1048576.0
#define FILES_A_CLIENT 4 /* socket, pidfd, ring, control page */
#define OTHER_FILES 64   /* the loop, pipelines, files that are read */

struct limit {
    uint64_t bytes;
    char where[STG_ERR_TEXT_BYTES / 2]; /* its file */
};

static void take_lesser(void *owner, const char *folder, bool is_v1)
{
    struct limit *least = owner;
    const char *file = is_v1 ? "memory.limit_in_bytes" : "memory.max";
    uint64_t bytes;
    if (stg_cgroup_numbers(folder, file, &bytes, 1) == 0 || bytes >= least->bytes)
        return;
    least->bytes = bytes;
    snprintf(least->where, sizeof(least->where), "%s/%s", folder, file);
}

int stg_limit_check_memory(const char *root, uint64_t budget, struct stg_err *err)
{
    struct limit least = {.bytes = UINT64_MAX};
    if (budget != 0)
        stg_cgroup_each(root, "memory", take_lesser, &least);
    if (budget <= least.bytes)
        return 0;
    return stg_err(
        err, -STAGER_INVALID_ARGUMENT,
        "memory_budget is %.1f MiB, but the limit of the control group is %.1f MiB (%s): "
        "lower memory_budget in stagerd.yaml to at most %" PRIu64
        "MiB (0: a quarter of what is free), or raise MemoryMax= of the unit or the "
        "memory limit of the container to at least %" PRIu64 "M",
        (double)budget / MIB, (double)least.bytes / MIB, least.where, least.bytes >> 20,
        (budget >> 20) + ((budget & ((1u << 20) - 1)) != 0));
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
