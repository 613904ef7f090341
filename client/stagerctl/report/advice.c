/* SPDX-License-Identifier: Apache-2.0
 *
 * The model: runners pull one after another, and compute at once. So k of them make
 * min(1 / pull, k / (pull + compute)) items a second, and trainers that never waited
 * would take rate / (1 - wait). It is used only where it gives the rate that was seen.
 */
#include "client/stagerctl/report/advice.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LITTLE 0.10      /* a shorter wait is none */
#define TOLERANCE 0.25   /* of the model, against what was seen */
#define MIN_GAIN 0.05    /* less is noise */
#define BUSY 0.90        /* of all CPUs */
#define MAX_RUNNERS 1024 /* num_threads of a pipeline */

struct pace {
    double rate, pull_s, compute_s; /* of an item */
    double wait, room;              /* shares of the trainers' and the runners' time */
    double cores;
    uint32_t runners;
};

static double share(uint64_t part, uint64_t of)
{
    return of > 0 ? (double)part / (double)of : 0;
}

static void take_pace(const struct stg_explain *e, struct pace *ret)
{
    double n = (double)e->n_items;
    *ret = (struct pace){
        .rate = n * 1e9 / (double)e->elapsed_ns,
        .pull_s = (double)e->pull_ns / 1e9 / n,
        .compute_s = (double)e->compute_ns / 1e9 / n,
        .wait = share(e->trainers_wait_ns, e->trainers_ns),
        .room = share(e->room_ns, e->elapsed_ns * e->n_runners),
        .cores = share(e->cpu_ns, e->elapsed_ns),
        .runners = e->n_runners,
    };
}

static double rate_of(const struct pace *p, uint32_t runners)
{
    double each = (double)runners / (p->pull_s + p->compute_s);
    return p->pull_s > 0 && 1 / p->pull_s < each ? 1 / p->pull_s : each;
}

/* The rate of trainers that never wait. */
static double demand_of(const struct pace *p)
{
    return p->wait < 1 ? p->rate / (1 - p->wait) : INFINITY;
}

static void say(struct stg_advice *ret, const char *limit, const char *text)
{
    ret->limit = limit;
    snprintf(ret->text, sizeof(ret->text), "%s", text);
}

/* More runners, as far as CPUs, pulls and trainers allow. */
static void advise_threads(const struct pace *p, uint32_t n_cpus, struct stg_advice *ret)
{
    double seen = rate_of(p, p->runners);
    if (p->cores >= BUSY * n_cpus) {
        snprintf(ret->text, sizeof(ret->text),
                 "stagerd uses %.1f of %u CPUs: the nodes below that take longest are "
                 "what to make cheaper",
                 p->cores, n_cpus);
        ret->limit = "cpu";
        return;
    }
    say(ret, "runners",
        "the graph in stagerd takes all time of its runners: raise "
        "num_threads");
    if (fabs(seen - p->rate) > TOLERANCE * p->rate)
        return;
    double idle = n_cpus - p->cores;
    uint32_t most = p->runners + (idle >= 1 ? (uint32_t)idle : 0), best = p->runners;
    double demand = demand_of(p);
    while (best < most && best < MAX_RUNNERS &&
           rate_of(p, best) < demand * (1 - MIN_GAIN) &&
           rate_of(p, best + 1) > rate_of(p, best) * (1 + MIN_GAIN / 10))
        best++;
    double rate = rate_of(p, best) < demand ? rate_of(p, best) : demand;
    double gain = rate / p->rate - 1;
    if (best == p->runners || gain < MIN_GAIN)
        return;
    *ret = (struct stg_advice){
        .limit = "runners", .setting = "num_threads", .value = best, .gain = gain};
    snprintf(ret->text, sizeof(ret->text),
             "num_threads: %u would give about +%.0f %% (now %u)", best, 100 * gain,
             p->runners);
}

/* Pulling is what one thread at a time does. The bound is what no pulls would give. */
static void advise_pulling(const struct pace *p, const char *limit, const char *change,
                           struct stg_advice *ret)
{
    double demand = demand_of(p);
    double free = p->compute_s > 0 ? (double)p->runners / p->compute_s : INFINITY;
    double gain = (free < demand ? free : demand) / p->rate - 1;
    ret->limit = limit;
    if (gain >= MIN_GAIN && isfinite(gain))
        snprintf(ret->text, sizeof(ret->text), "%s; at most +%.0f %%", change,
                 100 * gain);
    else
        snprintf(ret->text, sizeof(ret->text), "%s", change);
}

void stg_advice_find(const struct stg_explain *e, uint32_t n_cpus, struct stg_advice *ret)
{
    struct pace p;
    *ret = (struct stg_advice){.limit = ""};
    if (strcmp(e->bottleneck, "clients") == 0) {
        say(ret, "clients", "it begins when the missing clients attach");
        return;
    }
    if (e->n_items == 0 || e->elapsed_ns == 0 || e->n_runners == 0 ||
        strcmp(e->bottleneck, "unknown") == 0)
        return;
    take_pace(e, &p);
    if (p.wait <= LITTLE) {
        snprintf(ret->text, sizeof(ret->text),
                 "the trainers: a faster pipeline would make them at most %.0f %% faster",
                 100 * p.wait / (1 - p.wait));
        ret->limit = "trainers";
    } else if (p.room > LITTLE) {
        say(ret, "capacity",
            "runners wait for room while trainers wait for batches: a larger capacity, "
            "or more memory, evens that out");
    } else if (strcmp(e->bottleneck, "storage") == 0) {
        advise_pulling(&p, "storage",
                       "reads of disk or network: read several files at once "
                       "(interleave, num_parallel_calls), or cache",
                       ret);
    } else if (strcmp(e->bottleneck, "decode") == 0) {
        advise_pulling(&p, p.cores >= BUSY * n_cpus ? "cpu" : "one thread",
                       "the steps of the dataset compute on the pulling thread: "
                       "num_parallel_calls: auto, or fewer bytes to decode",
                       ret);
    } else if (strcmp(e->bottleneck, "daemon CPU") == 0) {
        advise_threads(&p, n_cpus, ret);
    } else if (strcmp(e->bottleneck, "py_function") == 0) {
        say(ret, "py_function", "the workers of py_function: start more of them");
    } else if (strcmp(e->bottleneck, "transport") == 0) {
        say(ret, "transport",
            "handing batches over: larger batches, or a larger max_in_flight");
    } else if (strcmp(e->bottleneck, "workers") == 0) {
        say(ret, "workers",
            "the answers of stage workers: more workers or CPUs there, or mode: auto, "
            "which asks them only while that helps");
    }
}
