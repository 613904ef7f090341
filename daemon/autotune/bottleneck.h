/* SPDX-License-Identifier: Apache-2.0
 *
 * What holds a pipeline up, from what was counted over a window of time: pure, for any
 * thread.
 */
#ifndef STG_DAEMON_AUTOTUNE_BOTTLENECK_H
#define STG_DAEMON_AUTOTUNE_BOTTLENECK_H

#include <stddef.h>
#include <stdint.h>

/* Of a stage with stage workers on other machines. */
struct stg_remote_load {
    uint64_t n_items, n_local;   /* that workers made; that were made here */
    uint64_t n_answers, n_bytes; /* good ones */
    uint64_t answer_ns;          /* from requests to these */
    uint64_t n_timed, cpu_ns;    /* answers that name the CPU time of the worker */
    uint64_t local_cpu_ns;       /* of threads that made items here */
    uint64_t stall_ns;           /* batches were late because of a worker */
};

/* What happened between two looks. */
struct stg_pace {
    uint64_t elapsed_ns;
    uint64_t n_items;             /* that runners made */
    uint64_t n_published, n_rows; /* became ready */
    uint64_t n_runners;           /* threads that pull and compute */
    uint64_t pull_ns;             /* of items: the data set, one runner at a time */
    uint64_t compute_ns;          /* of items: what follows, and the stage subgraph */
    uint64_t call_ns;             /* runners waited for a function in workers */
    uint64_t room_ns;             /* runners waited for room, all together */
    uint64_t clients_ns;          /* clients were attached, all together */
    uint64_t clients_wait_ns;     /* of it they slept in next */
    uint64_t sampled_pull_ns;     /* of some pulls: their time, and */
    uint64_t sampled_cpu_ns;      /* how long the thread that pulled had a CPU */
    uint64_t cpu_ns;              /* CPU time of the whole daemon */
    struct stg_remote_load remote;
};

enum stg_bottleneck {
    STG_BOTTLENECK_UNKNOWN, /* too little was seen */
    STG_BOTTLENECK_STORAGE,
    STG_BOTTLENECK_DECODE,
    STG_BOTTLENECK_DAEMON_CPU,
    STG_BOTTLENECK_FUNCTION,
    STG_BOTTLENECK_TRANSPORT,
    STG_BOTTLENECK_TRAINER,
    STG_BOTTLENECK_WORKERS, /* on other machines */
};

const char *stg_bottleneck_name(enum stg_bottleneck bottleneck);

/* Says why in buf, with the numbers. */
enum stg_bottleneck stg_bottleneck_find(const struct stg_pace *pace, char *buf,
                                        size_t bytes);

#endif
