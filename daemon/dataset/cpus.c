/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/cpus.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first two numbers of a file; "max" and what is missing count as none. */
static int read_numbers(const char *path, double *ret)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    int n = fscanf(file, "%lf %lf", &ret[0], &ret[1]);
    fclose(file);
    return n > 0 ? n : 0;
}

static double quota_v2(const char *group)
{
    char path[1200];
    double numbers[2];
    snprintf(path, sizeof(path), "%s/cpu.max", group);
    bool is_set = read_numbers(path, numbers) == 2 && numbers[0] > 0 && numbers[1] > 0;
    return is_set ? numbers[0] / numbers[1] : 0;
}

static double quota_v1(const char *group)
{
    char path[1200];
    double quota[2], period[2];
    snprintf(path, sizeof(path), "%s/cpu.cfs_quota_us", group);
    bool is_set = read_numbers(path, quota) > 0 && quota[0] > 0; /* -1: none */
    snprintf(path, sizeof(path), "%s/cpu.cfs_period_us", group);
    is_set = is_set && read_numbers(path, period) > 0 && period[0] > 0;
    return is_set ? quota[0] / period[0] : 0;
}

/* Of a group and of those above it, up to the mount: in a container that is as far as one
 * sees. */
static double least_quota(const char *root, const char *mount, const char *group,
                          double (*quota_of)(const char *group))
{
    char path[1100];
    int n = snprintf(path, sizeof(path), "%s%s%s", root, mount, group);
    size_t top = strlen(root) + strlen(mount);
    double least = 0;
    while (n > 0 && (size_t)n < sizeof(path)) {
        double quota = quota_of(path);
        if (quota > 0 && (least == 0 || quota < least))
            least = quota;
        char *slash = strrchr(path + top, '/');
        if (slash == NULL)
            break;
        *slash = '\0';
    }
    return least;
}

/* "4:cpu,cpuacct:/group" */
static const char *group_v1(char *line)
{
    char *names = strchr(line, ':');
    char *group = names != NULL ? strchr(names + 1, ':') : NULL;
    if (group == NULL)
        return NULL;
    *group++ = '\0';
    char *rest;
    for (char *name = strtok_r(names + 1, ",", &rest); name != NULL;
         name = strtok_r(NULL, ",", &rest)) {
        if (strcmp(name, "cpu") == 0)
            return group;
    }
    return NULL;
}

static double lesser(double a, double b)
{
    return a == 0 || (b > 0 && b < a) ? b : a;
}

double stg_cpu_quota(const char *root)
{
    char path[1100], line[1024];
    snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    double least = 0;
    while (fgets(line, sizeof(line), file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        const char *group;
        if (strncmp(line, "0::", 3) == 0)
            least =
                lesser(least, least_quota(root, "/sys/fs/cgroup", line + 3, quota_v2));
        else if ((group = group_v1(line)) != NULL)
            least =
                lesser(least, least_quota(root, "/sys/fs/cgroup/cpu", group, quota_v1));
    }
    fclose(file);
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
