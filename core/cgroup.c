/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cgroup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 4096

static bool has_name(char *names, const char *name)
{
    for (char *one; (one = strsep(&names, ",")) != NULL;) {
        if (strcmp(one, name) == 0)
            return true;
    }
    return false;
}

/* The group of a line: "0::/group" in version 2, "4:cpu,cpuacct:/group" in version 1;
 * NULL: the line is about other controllers. */
static char *group_of(char *line, const char *controller, bool *ret_v1)
{
    char *rest = line;
    rest[strcspn(rest, "\n")] = '\0';
    const char *hierarchy = strsep(&rest, ":");
    char *names = strsep(&rest, ":");
    if (names == NULL || rest == NULL)
        return NULL;
    *ret_v1 = names[0] != '\0';
    bool is_it = *ret_v1 ? has_name(names, controller) : strcmp(hierarchy, "0") == 0;
    return is_it ? rest : NULL;
}

static void visit_up(const char *root, const char *mount, char *group, bool is_v1,
                     stg_cgroup_visit *visit, void *owner)
{
    char folder[2 * PATH_BYTES];
    size_t n = strlen(group);
    if (n > 0 && group[n - 1] == '/')
        group[n - 1] = '\0';
    for (;;) {
        snprintf(folder, sizeof(folder), "%s/sys/fs/cgroup%s%s", root, mount, group);
        visit(owner, folder, is_v1);
        char *slash = strrchr(group, '/');
        if (slash == NULL)
            return;
        *slash = '\0';
    }
}

void stg_cgroup_each(const char *root, const char *controller, stg_cgroup_visit *visit,
                     void *owner)
{
    char path[PATH_BYTES], line[PATH_BYTES], mount[64];
    snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return;
    while (fgets(line, sizeof(line), file) != NULL) {
        bool is_v1 = false;
        char *group = group_of(line, controller, &is_v1);
        snprintf(mount, sizeof(mount), "%s%s", is_v1 ? "/" : "", is_v1 ? controller : "");
        if (group != NULL)
            visit_up(root, mount, group, is_v1, visit, owner);
    }
    fclose(file);
}

size_t stg_cgroup_numbers(const char *folder, const char *file, uint64_t *ret, size_t n)
{
    char path[2 * PATH_BYTES], text[64] = "", *at = text;
    snprintf(path, sizeof(path), "%s/%s", folder, file);
    FILE *opened = fopen(path, "re");
    if (opened == NULL)
        return 0;
    text[fread(text, 1, sizeof(text) - 1, opened)] = '\0';
    fclose(opened);
    size_t n_read = 0;
    while (n_read < n && *at >= '0' && *at <= '9') {
        ret[n_read++] = strtoull(at, &at, 10);
        at += *at == ' ';
    }
    return n_read;
}
