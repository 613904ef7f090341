/* SPDX-License-Identifier: Apache-2.0
 *
 * Loaded before libc: the time of day is $STG_SHIFT_SECONDS ahead, or, if the value
 * begins with "~", jumps: by turns that much ahead and behind. Monotonic clocks are
 * right.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long shift(void)
{
    static atomic_uint n_calls;
    const char *text = getenv("STG_SHIFT_SECONDS");
    if (text == NULL)
        return 0;
    long seconds = atol(text + (text[0] == '~'));
    return text[0] == '~' && atomic_fetch_add(&n_calls, 1) % 2 != 0 ? -seconds : seconds;
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock,
                                                         struct timespec *ret)
{
    int rc = (int)syscall(SYS_clock_gettime, clock, ret);
    if (rc == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        ret->tv_sec += shift();
    return rc;
}

__attribute__((visibility("default"))) int gettimeofday(struct timeval *ret, void *zone)
{
    struct timespec now;
    int rc = clock_gettime(CLOCK_REALTIME, &now);
    ret->tv_sec = now.tv_sec;
    ret->tv_usec = now.tv_nsec / 1000;
    return rc;
}

__attribute__((visibility("default"))) time_t time(time_t *ret)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (ret != NULL)
        *ret = now.tv_sec;
    return now.tv_sec;
}
