/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/autotune/bottleneck.h"

#include <inttypes.h>
#include <stdio.h>

#define MIN_ITEMS 4u
#define LONG_NS UINT64_C(1000000000) /* fewer will do */

/* Of the window, in hundredths. */
#define LITTLE 0.10 /* a shorter wait is none */
#define MOSTLY 0.60 /* a thread that had a CPU for so much of its time worked */
/* Cores in use beyond those that are accounted for: another thread works. */
#define A_THREAD 0.7
#define HALF 0.5

/* A pace in shares of the window. */
struct shares {
    double clients_wait; /* of the clients' time */
    double room;         /* of the runners' time */
    double pull;         /* of the window: pulls exclude one another */
    double compute;      /* of the runners' time */
    double call;         /* likewise; of compute */
    double on_cpu;       /* of the time of pulls; 1 where none was looked at */
    double other_cores;  /* that the daemon used, beside runners: threads of steps */
};

const char *stg_bottleneck_name(enum stg_bottleneck bottleneck)
{
    static const char *const names[] = {"unknown",    "storage",     "decode",
                                        "daemon CPU", "py_function", "transport",
                                        "trainer",    "workers"};
    return names[bottleneck];
}

static double share(uint64_t part, uint64_t of)
{
    return of > 0 ? (double)part / (double)of : 0;
}

static void take_shares(const struct stg_pace *pace, struct shares *ret)
{
    uint64_t runners_ns = pace->elapsed_ns * pace->n_runners;
    *ret = (struct shares){
        .clients_wait = share(pace->clients_wait_ns, pace->clients_ns),
        .room = share(pace->room_ns, runners_ns),
        .pull = share(pace->pull_ns, pace->elapsed_ns),
        .compute = share(pace->compute_ns, runners_ns),
        .call = share(pace->call_ns, runners_ns),
        .on_cpu = pace->sampled_pull_ns > 0
                      ? share(pace->sampled_cpu_ns, pace->sampled_pull_ns)
                      : 1,
    };
    /* What takes longer than the window was not counted yet, but for a pull. */
    double rest = 1 - ret->room - ret->pull / (double)pace->n_runners;
    if (pace->n_items == 0 && rest > 0)
        ret->compute = rest;
    if (ret->compute < ret->call)
        ret->compute = ret->call;
    double used = share(pace->cpu_ns, pace->elapsed_ns);
    double runners =
        (ret->compute - ret->call) * (double)pace->n_runners + ret->pull * ret->on_cpu;
    ret->other_cores = used > runners ? used - runners : 0;
}

static double percent(double share)
{
    return share * 100;
}

/* Pulling holds up: by waiting, or by working. */
static enum stg_bottleneck of_pulling(const struct shares *s, char *buf, size_t bytes)
{
    const char *before = "the data set is being pulled from %.0f %% of the time";
    int n = snprintf(buf, bytes, before, percent(s->pull));
    size_t at = n > 0 && (size_t)n < bytes ? (size_t)n : 0;
    if (s->on_cpu >= MOSTLY) {
        snprintf(buf + at, bytes - at,
                 ", and the pulling thread computes for %.0f %% of that",
                 percent(s->on_cpu));
        return STG_BOTTLENECK_DECODE;
    }
    if (s->other_cores >= A_THREAD) {
        snprintf(buf + at, bytes - at,
                 ", and threads of its steps take %.1f cores meanwhile", s->other_cores);
        return STG_BOTTLENECK_DECODE;
    }
    snprintf(buf + at, bytes - at,
             ", and computes for %.0f %% of that: it waits for bytes",
             percent(s->on_cpu));
    return STG_BOTTLENECK_STORAGE;
}

enum stg_bottleneck stg_bottleneck_find(const struct stg_pace *pace, char *buf,
                                        size_t bytes)
{
    struct shares s;
    if (pace->clients_ns == 0 ||
        (pace->n_items < MIN_ITEMS && pace->elapsed_ns < LONG_NS)) {
        snprintf(buf, bytes, "too little was seen: %" PRIu64 " batches", pace->n_items);
        return STG_BOTTLENECK_UNKNOWN;
    }
    take_shares(pace, &s);
    if (s.clients_wait <= LITTLE || s.room > s.clients_wait) {
        snprintf(buf, bytes,
                 "trainers wait for batches %.0f %% of the time; runners wait %.0f %% of "
                 "theirs for room",
                 percent(s.clients_wait), percent(s.room));
        return STG_BOTTLENECK_TRAINER;
    }
    if (s.pull < HALF && s.compute < HALF && s.pull + s.compute < HALF) {
        double late = share(pace->remote.stall_ns, pace->elapsed_ns);
        if (late > 0 && late >= HALF * s.clients_wait) {
            snprintf(buf, bytes,
                     "trainers wait %.0f %% of the time, and the next batch was late for "
                     "%.0f %% of it because of a stage worker",
                     percent(s.clients_wait), percent(late));
            return STG_BOTTLENECK_WORKERS;
        }
        snprintf(buf, bytes,
                 "trainers wait %.0f %% of the time, and runners pull and compute for "
                 "%.0f %% of theirs: it goes into handing over",
                 percent(s.clients_wait), percent(s.pull + s.compute));
        return STG_BOTTLENECK_TRANSPORT;
    }
    if (s.pull > s.compute)
        return of_pulling(&s, buf, bytes);
    if (s.call > HALF * s.compute) {
        snprintf(buf, bytes,
                 "trainers wait %.0f %% of the time, and runners wait for workers %.0f "
                 "%% of theirs",
                 percent(s.clients_wait), percent(s.call));
        return STG_BOTTLENECK_FUNCTION;
    }
    snprintf(buf, bytes,
             "trainers wait %.0f %% of the time, and runners compute the graph for %.0f "
             "%% of theirs",
             percent(s.clients_wait), percent(s.compute));
    return STG_BOTTLENECK_DAEMON_CPU;
}
