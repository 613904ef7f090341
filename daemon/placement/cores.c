/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/placement/cores.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "daemon/host/cpus.h"

#define LOOK_NS UINT64_C(1000000000)

/* user nice system idle iowait irq softirq steal: two of them are idle time. */
static bool read_stat(uint64_t *ret_idle, uint64_t *ret_all)
{
    uint64_t n[8] = {0};
    FILE *file = fopen("/proc/stat", "re");
    if (file == NULL)
        return false;
    int got = fscanf(file,
                     "cpu %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
                     " %" SCNu64 " %" SCNu64 " %" SCNu64,
                     &n[0], &n[1], &n[2], &n[3], &n[4], &n[5], &n[6], &n[7]);
    fclose(file);
    *ret_idle = n[3] + n[4];
    *ret_all = 0;
    for (int i = 0; i < 8; i++)
        *ret_all += n[i];
    return got >= 4;
}

double stg_cores_free(struct stg_cores *cores, uint64_t now_ns)
{
    uint64_t idle, all;
    double n = stg_cpus();
    if (cores->at_ns != 0 && now_ns - cores->at_ns < LOOK_NS)
        return cores->free;
    if (!read_stat(&idle, &all))
        return n;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    bool has_two = cores->at_ns != 0 && all > cores->all && idle >= cores->idle;
    double share =
        has_two ? (double)(idle - cores->idle) / (double)(all - cores->all) : 1;
    double free = share * (double)(online > 0 ? online : 1);
    *cores = (struct stg_cores){
        .at_ns = now_ns, .idle = idle, .all = all, .free = free < n ? free : n};
    return cores->free;
}
