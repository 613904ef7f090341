/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/host/pool_place.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/log.h"
#include "daemon/host/pool.h"

#define NODE_PATH "/sys/devices/system/node"
#define CPU_PATH "/sys/devices/system/cpu"
#define MAX_NODES 1024u
#define BITS (8 * sizeof(unsigned long))

/* ---- lists ---- */

static bool take_number(const char **text, unsigned *ret)
{
    unsigned n = 0;
    const char *p = *text;
    for (; *p >= '0' && *p <= '9' && n < 1000000; p++)
        n = n * 10 + (unsigned)(*p - '0');
    if (p == *text)
        return false;
    *text = p;
    *ret = n;
    return true;
}

int stg_cpu_list_parse(const char *text, cpu_set_t *ret, struct stg_err *err)
{
    const char *p = text;
    CPU_ZERO(ret);
    do {
        unsigned first = 0, last;
        bool good = take_number(&p, &first);
        last = first;
        if (good && *p == '-') {
            p++;
            good = take_number(&p, &last);
        }
        if (!good || last < first || (*p != ',' && *p != '\0' && *p != '\n'))
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "\"%.64s\" is no list of CPUs like 0-3,8 (at \"%.16s\")", text,
                           p);
        if (last >= CPU_SETSIZE)
            return stg_err(err, -STAGER_INVALID_ARGUMENT, "CPU %u: at most %d", last,
                           CPU_SETSIZE - 1);
        for (unsigned cpu = first; cpu <= last; cpu++)
            CPU_SET(cpu, ret);
    } while (*p++ == ',');
    return 0;
}

const char *stg_cpu_list_text(const cpu_set_t *set, char *buf, size_t bytes)
{
    size_t at = 0;
    buf[0] = '\0';
    for (int cpu = 0; cpu < CPU_SETSIZE && at < bytes; cpu++) {
        if (!CPU_ISSET(cpu, set))
            continue;
        int last = cpu;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, set))
            last++;
        at += (size_t)snprintf(buf + at, bytes - at, last > cpu ? "%s%d-%d" : "%s%d",
                               at > 0 ? "," : "", cpu, last);
        cpu = last;
    }
    return buf;
}

static bool read_list(const char *path, cpu_set_t *ret)
{
    char text[4096];
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    size_t n = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[n] = '\0';
    return stg_cpu_list_parse(text, ret, NULL) == 0;
}

/* ---- what there is ---- */

static int find_cpus(const char *text, struct stg_pool_place *ret, struct stg_err *err)
{
    cpu_set_t online, both;
    int rc = stg_cpu_list_parse(text, &ret->cpus, err);
    if (rc < 0)
        return stg_err_prefix(err, rc, "cpus");
    if (!read_list(CPU_PATH "/online", &online))
        sched_getaffinity(0, sizeof(online), &online);
    CPU_AND(&both, &ret->cpus, &online);
    if (!CPU_EQUAL(&both, &ret->cpus)) {
        char wanted[128], here[128];
        CPU_XOR(&both, &both, &ret->cpus);
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "cpus: %s %s not here; this machine has %s",
                       stg_cpu_list_text(&both, wanted, sizeof(wanted)),
                       CPU_COUNT(&both) == 1 ? "is" : "are",
                       stg_cpu_list_text(&online, here, sizeof(here)));
    }
    ret->has_cpus = true;
    return 0;
}

/* Without `cpus` the node's own. */
static int find_node(const struct stg_thread_pool_spec *spec, struct stg_pool_place *ret,
                     struct stg_err *err)
{
    char path[128], here[128] = "none";
    cpu_set_t nodes, cpus;
    bool known = read_list(NODE_PATH "/online", &nodes);
    if (!known || !CPU_ISSET(spec->numa_node, &nodes)) {
        if (known)
            stg_cpu_list_text(&nodes, here, sizeof(here));
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "numa_node %d is not here; the nodes of this machine: %s",
                       spec->numa_node, here);
    }
    snprintf(path, sizeof(path), NODE_PATH "/node%d/cpulist", spec->numa_node);
    if (!ret->has_cpus && read_list(path, &cpus)) {
        ret->cpus = cpus;
        ret->has_cpus = true;
    }
    return 0;
}

int stg_pool_place_find(const struct stg_thread_pool_spec *spec,
                        struct stg_pool_place *ret, struct stg_err *err)
{
    int rc = 0;
    if (spec->cpus != NULL && spec->cpus[0] != '\0')
        rc = find_cpus(spec->cpus, ret, err);
    if (rc == 0 && spec->numa_node >= 0)
        rc = find_node(spec, ret, err);
    return rc;
}

/* ---- going there ---- */

static void warn_once(struct stg_pool_place *place,
                      const struct stg_thread_pool_spec *spec, const char *what,
                      int value, const char *remedy)
{
    const char *why = strerror(errno);
    if (!place->warned)
        stg_log(STG_LOG_WARNING, "thread pool %s: %s %d is not permitted (%s); %s",
                spec->global_name, what, value, why, remedy);
    place->warned = true;
}

static void prefer_node(struct stg_pool_place *place,
                        const struct stg_thread_pool_spec *spec)
{
    const int preferred = 1; /* MPOL_PREFERRED */
    unsigned long mask[MAX_NODES / BITS + 1] = {0};
    mask[(size_t)spec->numa_node / BITS] |= 1ul << ((size_t)spec->numa_node % BITS);
    if (syscall(SYS_set_mempolicy, preferred, mask, (unsigned long)MAX_NODES + 1) < 0)
        warn_once(place, spec, "memory of numa_node", spec->numa_node,
                  "its threads run there all the same");
}

int stg_pool_place_take(struct stg_pool_place *place,
                        const struct stg_thread_pool_spec *spec, struct stg_err *err)
{
    char text[128];
    if (place->has_cpus && sched_setaffinity(0, sizeof(place->cpus), &place->cpus) < 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "cpus %s: %s; a cpuset or a container may keep stagerd off them",
                       stg_cpu_list_text(&place->cpus, text, sizeof(text)),
                       strerror(errno));
    if (spec->numa_node >= 0)
        prefer_node(place, spec);
    /* Of one thread, not of the process: Linux counts niceness by thread. */
    if (spec->nice != 0 && setpriority(PRIO_PROCESS, 0, spec->nice) < 0)
        warn_once(
            place, spec, "nice", spec->nice,
            "its threads keep stagerd's own; give stagerd LimitNICE or CAP_SYS_NICE");
    return 0;
}
