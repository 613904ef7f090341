/* SPDX-License-Identifier: Apache-2.0
 *
 * memory_budget against the limits of control groups, in a folder that looks like the
 * machine.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/status.h"
#include "daemon/limit.h"
#include "tests/check.h"

#define MIB 1048576ull

static char root[64];

static void put(const char *path, const char *text)
{
    char whole[512];
    snprintf(whole, sizeof(whole), "%s%s", root, path);
    for (char *slash = strchr(whole + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(whole, 0700);
        *slash = '/';
    }
    FILE *file = fopen(whole, "w");
    CHECK(file != NULL);
    fputs(text, file);
    fclose(file);
}

static void make_root(void)
{
    snprintf(root, sizeof(root), "/tmp/stg-limits-XXXXXX");
    CHECK(mkdtemp(root) != NULL);
}

static void remove_root(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -r %s", root);
    CHECK(system(command) == 0);
}

static void a_group_above_limits_the_budget(void)
{
    struct stg_err err = {0};
    make_root();
    put("/proc/self/cgroup", "0::/machine/pod/stagerd\n");
    put("/sys/fs/cgroup/machine/pod/stagerd/memory.max", "max\n");
    put("/sys/fs/cgroup/machine/pod/memory.max", "536870912\n");
    put("/sys/fs/cgroup/machine/memory.max", "8589934592\n");
    CHECK_OK(stg_limit_check_memory(root, 512 * MIB, &err), err);
    CHECK_OK(stg_limit_check_memory(root, 0, &err), err);
    CHECK_INT(stg_limit_check_memory(root, 1024 * MIB, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "memory_budget is 1024.0 MiB");
    CHECK_CONTAINS(err.text, "has 512.0 MiB");
    CHECK_CONTAINS(err.text, "/sys/fs/cgroup/machine/pod/memory.max");
    CHECK_CONTAINS(err.text, "MemoryMax=");
    remove_root();
}

static void version_1_limits_it_too(void)
{
    struct stg_err err = {0};
    make_root();
    put("/proc/self/cgroup", "5:cpu:/x\n4:memory:/docker/a\n0::/\n");
    put("/sys/fs/cgroup/memory/docker/a/memory.limit_in_bytes", "268435456\n");
    CHECK_OK(stg_limit_check_memory(root, 256 * MIB, &err), err);
    CHECK_INT(stg_limit_check_memory(root, 257 * MIB, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "has 256.0 MiB");
    remove_root();
}

static void without_a_limit_every_budget_is_right(void)
{
    struct stg_err err = {0};
    make_root();
    CHECK_OK(stg_limit_check_memory(root, UINT64_MAX, &err), err);
    put("/proc/self/cgroup", "0::/\n");
    CHECK_OK(stg_limit_check_memory(root, UINT64_MAX, &err), err);
    remove_root();
}

static const struct stg_test tests[] = {
    TEST(a_group_above_limits_the_budget),
    TEST(version_1_limits_it_too),
    TEST(without_a_limit_every_budget_is_right),
};
TEST_MAIN(tests)
