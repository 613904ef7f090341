/* SPDX-License-Identifier: Apache-2.0
 *
 * How many CPUs' time there is for threads: those that they may run on, and what the
 * quotas of their control groups leave of that.
 */
#ifndef STG_DAEMON_CPUS_H
#define STG_DAEMON_CPUS_H

/* The least quota of the process's control group and of every group above it, in CPUs
 * (1.5: a CPU and a half); 0: there is none. cgroup v2 (cpu.max) and v1
 * (cpu.cfs_quota_us), below `root`, which is "" but in tests. */
double stg_cpu_quota(const char *root);

/* CPUs that the calling thread may run on, or the quota if that is less; more than 0. */
double stg_cpus(void);

/* The same, as a number of threads that it can keep busy: rounded up. */
unsigned stg_cpus_whole(void);

#endif
