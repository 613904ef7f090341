/* SPDX-License-Identifier: Apache-2.0
 *
 * memory_budget against the limits of control groups, in a folder that imitates the
 * machine's.
 */
#include "core/status.h"
#include "daemon/host/limit.h"
#include "tests/check.h"
#include "tests/daemon/host/fake_root.h"

#define MIB 1048576ull

static void a_group_above_limits_the_budget(void)
{
    const char *root = fake_root_begin();
    struct stg_err err = {0};
    fake_root_write("/proc/self/cgroup", "0::/machine/pod/stagerd\n");
    fake_root_write("/sys/fs/cgroup/machine/pod/stagerd/memory.max", "max\n");
    fake_root_write("/sys/fs/cgroup/machine/pod/memory.max", "536870912\n");
    fake_root_write("/sys/fs/cgroup/machine/memory.max", "8589934592\n");
    CHECK_OK(stg_limit_check_memory(root, 512 * MIB, &err), err);
    CHECK_OK(stg_limit_check_memory(root, 0, &err), err);
    CHECK_INT(stg_limit_check_memory(root, 1024 * MIB, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "memory_budget is 1024.0 MiB");
    CHECK_CONTAINS(err.text, "of the control group is 512.0 MiB");
    CHECK_CONTAINS(err.text, "/sys/fs/cgroup/machine/pod/memory.max");
    CHECK_CONTAINS(err.text, "to at most 512MiB");
    CHECK_CONTAINS(err.text, "MemoryMax= of the unit or the memory limit of the "
                             "container to at least 1024M");
    fake_root_end();
}

static void version_1_limits_it_too(void)
{
    const char *root = fake_root_begin();
    struct stg_err err = {0};
    fake_root_write("/proc/self/cgroup", "5:cpu:/x\n4:memory:/docker/a\n0::/\n");
    fake_root_write("/sys/fs/cgroup/memory/docker/a/memory.limit_in_bytes",
                    "268435456\n");
    CHECK_OK(stg_limit_check_memory(root, 256 * MIB, &err), err);
    CHECK_INT(stg_limit_check_memory(root, 257 * MIB, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "of the control group is 256.0 MiB");
    fake_root_end();
}

static void without_a_limit_every_budget_is_right(void)
{
    const char *root = fake_root_begin();
    struct stg_err err = {0};
    CHECK_OK(stg_limit_check_memory(root, UINT64_MAX, &err), err);
    fake_root_write("/proc/self/cgroup", "0::/\n");
    CHECK_OK(stg_limit_check_memory(root, UINT64_MAX, &err), err);
    fake_root_end();
}

static void a_container_sees_its_limit_at_the_mount(void)
{
    const char *root = fake_root_begin();
    struct stg_err err = {0};
    fake_root_write("/proc/self/cgroup", "4:memory,hugetlb:/\n");
    fake_root_write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "268435456\n");
    CHECK_INT(stg_limit_check_memory(root, 257 * MIB, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "/sys/fs/cgroup/memory/memory.limit_in_bytes");
    fake_root_end();
}

static const struct stg_test tests[] = {
    TEST(a_group_above_limits_the_budget),
    TEST(version_1_limits_it_too),
    TEST(a_container_sees_its_limit_at_the_mount),
    TEST(without_a_limit_every_budget_is_right),
};
TEST_MAIN(tests)
