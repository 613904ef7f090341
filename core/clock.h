/* SPDX-License-Identifier: Apache-2.0
 *
 * Clocks, in nanoseconds. Times that two processes see, deadlines and spans are all of
 * CLOCK_MONOTONIC (a date set back moves none of them); what work costs is of a CPU
 * clock. Nothing here fails. Any thread.
 */
#ifndef STG_CORE_CLOCK_H
#define STG_CORE_CLOCK_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

static inline uint64_t stg_clock_read_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* CLOCK_MONOTONIC. No system call. */
static inline uint64_t stg_now_ns(void)
{
    return stg_clock_read_ns(CLOCK_MONOTONIC);
}

/* CPU time of the calling thread. A system call. */
static inline uint64_t stg_thread_cpu_ns(void)
{
    return stg_clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
}

/* CPU time of all threads that this process has and had. A system call. */
static inline uint64_t stg_process_cpu_ns(void)
{
    return stg_clock_read_ns(CLOCK_PROCESS_CPUTIME_ID);
}

static inline struct timespec stg_timespec(uint64_t ns)
{
    struct timespec ret;
    ret.tv_sec = (time_t)(ns / 1000000000u);
    ret.tv_nsec = (long)(ns % 1000000000u);
    return ret;
}

/* A condition whose deadlines are of CLOCK_MONOTONIC. */
static inline void stg_clock_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

/* pthread_cond_timedwait of such a condition. */
static inline int stg_clock_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock,
                                      uint64_t deadline_ns)
{
    struct timespec at = stg_timespec(deadline_ns);
    return pthread_cond_timedwait(cond, lock, &at);
}

#endif
