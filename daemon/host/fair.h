/* SPDX-License-Identifier: Apache-2.0
 *
 * Divides CPU time among users by the `weight` of their quotas. A thread that
 * stg_fair_start starts works for a user, and so do the threads that it starts so. Twice
 * a second one thread measures how many threads of each user run or wait for a CPU, and
 * sets the nice value of all of them: those of a user weigh together what the user
 * weighs, in proportion to the others. Any thread, but where a function says otherwise.
 */
#ifndef STG_DAEMON_HOST_FAIR_H
#define STG_DAEMON_HOST_FAIR_H

#include <pthread.h>
#include <stdbool.h>

struct stg_share;

/* Divides CPU time from now on, or leaves nice values as they are. For the loop. Returns
 * 0, or a number of errno: the thread that measures could not start. */
int stg_fair_configure(bool is_on);

/* Starts a thread that works for the user of the share; NULL: for the user of the calling
 * thread. Returns what pthread_create returns. */
int stg_fair_start(pthread_t *ret, struct stg_share *share, void *(*run)(void *arg),
                   void *arg);

#endif
