/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/autotune/remote_gain.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

#define MIN_ITEMS 4u
#define LITTLE 0.10   /* a shorter wait of trainers is none */
#define MIN_GAIN 0.05 /* less is noise */

static double seconds_of_each(uint64_t ns, uint64_t n)
{
    return (double)ns / 1e9 / (double)n;
}

/* Seconds an item takes this host alone. Without an item of its own it counts the CPU
 * time that workers spent. Returns 0 if none is known. */
static double alone_s(const struct stg_pace *pace, double n_cpus)
{
    const struct stg_remote_load *remote = &pace->remote;
    double runners = pace->n_runners > 0 ? (double)pace->n_runners : 1;
    if (remote->n_local == 0 && remote->n_timed == 0)
        return 0;
    if (remote->n_local == 0)
        return seconds_of_each(remote->cpu_ns, remote->n_timed) /
               (runners < n_cpus ? runners : n_cpus);
    double pull = seconds_of_each(pace->pull_ns, remote->n_local);
    double both = pull + seconds_of_each(pace->compute_ns, remote->n_local);
    double cpu = seconds_of_each(remote->local_cpu_ns, remote->n_local);
    double ret = pull > both / runners ? pull : both / runners;
    return ret > cpu / n_cpus ? ret : cpu / n_cpus;
}

static void say_nothing_saved(const struct stg_pace *pace, double part, char *buf,
                              size_t bytes)
{
    bool is_trainer = pace->clients_ns > 0 &&
                      (double)pace->clients_wait_ns <= LITTLE * (double)pace->clients_ns;
    snprintf(buf, bytes, "workers made %.0f %% of the batches, and saved nothing: %s",
             part,
             is_trainer ? "the trainer is the bottleneck, and this host alone is as fast"
                        : "this host alone is as fast");
}

uint64_t stg_remote_gain(const struct stg_pace *pace, double n_cpus, char *buf,
                         size_t bytes)
{
    const struct stg_remote_load *remote = &pace->remote;
    uint64_t n = remote->n_items + remote->n_local;
    if (n < MIN_ITEMS || pace->elapsed_ns == 0) {
        snprintf(buf, bytes, "too little was seen: %" PRIu64 " batches", n);
        return 0;
    }
    double now = seconds_of_each(pace->elapsed_ns, n), alone = alone_s(pace, n_cpus);
    double part = 100 * (double)remote->n_items / (double)n;
    if (remote->n_items == 0)
        snprintf(buf, bytes, "workers made no batch of the last %" PRIu64, n);
    else if (alone == 0)
        snprintf(buf, bytes,
                 "workers made all of %" PRIu64
                 " batches: no batch was made here to compare with",
                 n);
    else if (alone < now * (1 + MIN_GAIN))
        say_nothing_saved(pace, part, buf, bytes);
    else
        snprintf(buf, bytes,
                 "workers made %.0f %% of the batches; without them a step would take "
                 "about %.1fx as long%s",
                 part, alone / now,
                 remote->n_local == 0 ? ", by the CPU time that workers spent" : "");
    if (alone == 0)
        return 0;
    return (uint64_t)((alone > now ? alone : now) * 1e9);
}
