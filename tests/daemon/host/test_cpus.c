/* SPDX-License-Identifier: Apache-2.0
 *
 * CPU quotas, read from files in the kernel's format below a root of the test.
 */
#include "daemon/host/cpus.h"

#include <sched.h>

#include "tests/check.h"
#include "tests/daemon/host/fake_root.h"

static const char *root;

static void begin(const char *groups)
{
    root = fake_root_begin();
    fake_root_write("/proc/self/cgroup", groups);
}

#define CHECK_QUOTA(want) CHECK(stg_cpu_quota(root) == (want))

static void a_group_without_a_quota_has_none(void)
{
    begin("0::/user.slice/job\n");
    CHECK_QUOTA(0);
    fake_root_write("/sys/fs/cgroup/user.slice/job/cpu.max", "max 100000\n");
    CHECK_QUOTA(0);
    fake_root_end();
}

static void the_least_quota_of_a_group_and_those_above_it_counts(void)
{
    begin("0::/user.slice/job\n");
    fake_root_write("/sys/fs/cgroup/user.slice/job/cpu.max", "400000 100000\n");
    CHECK_QUOTA(4);
    fake_root_write("/sys/fs/cgroup/user.slice/cpu.max", "150000 100000\n");
    CHECK_QUOTA(1.5);
    fake_root_write("/sys/fs/cgroup/user.slice/job/cpu.max", "50000 50000\n");
    CHECK_QUOTA(1);
    fake_root_end();
}

/* /proc gives a path of the host; the mount is the container's. */
static void a_container_sees_its_quota_at_the_mount(void)
{
    begin("0::/docker/4711\n");
    fake_root_write("/sys/fs/cgroup/cpu.max", "200000 100000\n");
    CHECK_QUOTA(2);
    fake_root_end();
}

static void quotas_of_the_first_version_are_read(void)
{
    begin("5:memory:/a\n4:cpuset:/c\n3:cpu,cpuacct:/a/b\n0::/\n");
    CHECK_QUOTA(0);
    fake_root_write("/sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us", "-1\n");
    fake_root_write("/sys/fs/cgroup/cpu/a/b/cpu.cfs_period_us", "100000\n");
    CHECK_QUOTA(0);
    fake_root_write("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "250000\n");
    fake_root_write("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
    CHECK_QUOTA(2.5);
    fake_root_end();
}

static void nonsense_is_no_quota(void)
{
    begin("nonsense\n0\n::\n0::/a\n");
    fake_root_write("/sys/fs/cgroup/a/cpu.max", "0 0\n");
    CHECK_QUOTA(0);
    fake_root_write("/sys/fs/cgroup/a/cpu.max", "");
    CHECK_QUOTA(0);
    fake_root_write("/sys/fs/cgroup/a/cpu.max", "-5 100000\n");
    CHECK_QUOTA(0);
    fake_root_end();
}

static void a_thread_has_no_more_cpus_than_it_may_run_on(void)
{
    cpu_set_t all, one;
    CHECK_INT(sched_getaffinity(0, sizeof(all), &all), 0);
    CHECK(stg_cpus() <= CPU_COUNT(&all));
    int cpu = 0;
    while (!CPU_ISSET(cpu, &all))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    CHECK_INT(sched_setaffinity(0, sizeof(one), &one), 0);
    CHECK(stg_cpus() > 0 && stg_cpus() <= 1);
    CHECK_INT(stg_cpus_whole(), 1);
}

static const struct stg_test tests[] = {
    TEST(a_group_without_a_quota_has_none),
    TEST(the_least_quota_of_a_group_and_those_above_it_counts),
    TEST(a_container_sees_its_quota_at_the_mount),
    TEST(quotas_of_the_first_version_are_read),
    TEST(nonsense_is_no_quota),
    TEST(a_thread_has_no_more_cpus_than_it_may_run_on),
};

TEST_MAIN(tests)
