/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/host/cpus.h"

#include <sched.h>

#include "core/cgroup.h"

/* "400000 100000": four CPUs. */
static bool read_v2(const char *folder, uint64_t numbers[2])
{
    return stg_cgroup_numbers(folder, "cpu.max", numbers, 2) == 2;
}

static bool read_v1(const char *folder, uint64_t numbers[2])
{
    return stg_cgroup_numbers(folder, "cpu.cfs_quota_us", &numbers[0], 1) == 1 &&
           stg_cgroup_numbers(folder, "cpu.cfs_period_us", &numbers[1], 1) == 1;
}

static void take_lesser(void *owner, const char *folder, bool is_v1)
{
    double *least = owner;
    uint64_t numbers[2]; /* quota, period */
    bool is_set = is_v1 ? read_v1(folder, numbers) : read_v2(folder, numbers);
    if (!is_set || numbers[0] == 0 || numbers[1] == 0)
        return;
    double quota = (double)numbers[0] / (double)numbers[1];
    *least = *least == 0 || quota < *least ? quota : *least;
}

double stg_cpu_quota(const char *root)
{
    double least = 0;
    stg_cgroup_each(root, "cpu", take_lesser, &least);
    return least;
}

double stg_cpus(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
    double quota = stg_cpu_quota("");
    double cpus = n > 0 ? n : 1;
    return quota > 0 && quota < cpus ? quota : cpus;
}

unsigned stg_cpus_whole(void)
{
    double cpus = stg_cpus();
    unsigned whole = (unsigned)cpus;
    return whole < cpus ? whole + 1 : whole;
}
