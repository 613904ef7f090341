/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/server/stop.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "core/log.h"

static struct {
    pthread_mutex_t lock; /* guards what follows: it is in use while the lock is held */
    uv_async_t *async;
    void (*at_end)(void *owner);
    void *owner;
} served = {.lock = PTHREAD_MUTEX_INITIALIZER};

static pthread_t thread;
static bool has_thread;
static _Atomic int came; /* the signal, or 0 */

static void wake(void)
{
    pthread_mutex_lock(&served.lock);
    if (served.async != NULL)
        uv_async_send(served.async);
    pthread_mutex_unlock(&served.lock);
}

static void end(void)
{
    stg_log(
        STG_LOG_WARNING,
        "stagerd still runs %d ms after the signal: a thread is stopped, or hangs with "
        "a lock that others need; the process ends without it",
        STG_STOP_END_MILLIS);
    pthread_mutex_lock(&served.lock);
    if (served.at_end != NULL)
        served.at_end(served.owner);
    pthread_mutex_unlock(&served.lock);
    stg_log_flush();
    _exit(EXIT_SUCCESS);
}

static void *run(void *arg)
{
    sigset_t *signals = arg;
    int number;
    pthread_setname_np(pthread_self(), "stop");
    do {
        number = sigwaitinfo(signals, NULL);
    } while (number < 0);
    atomic_store(&came, number);
    wake();
    struct timespec left = {.tv_sec = STG_STOP_END_MILLIS / 1000};
    while (nanosleep(&left, &left) < 0)
        ;
    end();
    return NULL;
}

int stg_stop_start(void)
{
    static sigset_t signals;
    sigset_t all, before;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int number = pthread_create(&thread, NULL, run, &signals);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    has_thread = number == 0;
    return number;
}

void stg_stop_serve(uv_async_t *async, void (*at_end)(void *owner), void *owner)
{
    pthread_mutex_lock(&served.lock);
    served.async = async;
    served.at_end = at_end;
    served.owner = owner;
    pthread_mutex_unlock(&served.lock);
    if (at_end == NULL)
        atomic_store(&came, 0);
    else if (atomic_load(&came) != 0)
        wake();
}

int stg_stop_signal(void)
{
    return atomic_load(&came);
}

void stg_stop_begin(void)
{
    if (has_thread) {
        pthread_kill(thread, SIGTERM);
    } else {
        atomic_store(&came, SIGTERM);
        wake();
    }
}
