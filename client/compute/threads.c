/* SPDX-License-Identifier: Apache-2.0 */
#include "client/compute/threads.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

static void *help(void *parts)
{
    stg_parts_help(parts);
    return NULL;
}

static int start_all(struct stg_threads *threads, uint32_t n)
{
    sigset_t all, before;
    int error = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (error == 0 && threads->n < n) {
        error = pthread_create(&threads->all[threads->n], NULL, help, &threads->parts);
        threads->n += error == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

int stg_threads_start(struct stg_threads *threads, uint32_t inter_op, uint32_t intra_op,
                      struct stg_err *err)
{
    uint32_t n = inter_op > intra_op ? inter_op : intra_op;
    if (n < 2)
        return 0;
    threads->all = calloc(n, sizeof(threads->all[0]));
    if (threads->all == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    stg_parts_init(&threads->parts, n);
    threads->is_on = true;
    threads->nodes = threads->rows = threads->parts.parallel;
    threads->nodes.n_threads = inter_op;
    threads->rows.n_threads = intra_op;
    int error = start_all(threads, n - 1);
    if (error == 0)
        return 0;
    stg_threads_stop(threads);
    return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                   "cannot start %u threads for stager_run: %s", n - 1, strerror(error));
}

void stg_threads_stop(struct stg_threads *threads)
{
    if (threads->is_on) {
        stg_parts_stop(&threads->parts);
        for (uint32_t i = 0; i < threads->n; i++)
            pthread_join(threads->all[i], NULL);
        stg_parts_finish(&threads->parts);
    }
    free(threads->all);
    *threads = (struct stg_threads){0};
}
