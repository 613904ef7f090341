/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the value of an `auto` setting by measurement: the number of threads, or the
 * number of items that may wait. Pure: the inputs are the measurements of successive
 * windows of items; the output is a change and the reason for it. The rules:
 *
 *   threads  >= time to make an item / time between two requests of the consumer
 *   capacity ~  time between two requests of the consumer / time to make an item
 *
 * Each change is a trial, and is compared with the measurements before it. A larger
 * number must raise the throughput by more than the windows differ among themselves. A
 * smaller one must not lower the mean. Otherwise the tuner reverts the change, and does
 * not try it again for a number of windows that doubles each time, or until the times
 * have changed. So the value converges.
 *
 * No decision changes the items or their order. One thread at a time.
 */
#ifndef STG_DAEMON_TUNER_H
#define STG_DAEMON_TUNER_H

#include <stdbool.h>
#include <stdint.h>

#define STG_TUNER_WINDOWS 8

/* The measurements of one window. Times are sums. */
struct stg_tuner_sample {
    uint64_t n_items;
    uint64_t interval_ns; /* length of the window */
    uint64_t busy_ns;     /* work of all threads, including serial_ns */
    uint64_t serial_ns;   /* of that: work that one thread at a time does */
    uint64_t cpu_ns;      /* CPU time of that; 0: not measured */
    uint64_t wait_ns;     /* the consumer waited; at most interval_ns */
    uint64_t room_ns;     /* finished items waited for room, in total */
    uint32_t least;       /* minimum number of items that waited for the consumer */
};

struct stg_tuner_limits {
    uint32_t min, max; /* min 0: the consumer can do without threads */
    double cpus; /* that the threads share; 0: the value is not a number of threads */
};

struct stg_tuner_change {
    uint32_t from, to;
    char why[200];
};

/* Blocks trials in one direction for a time. */
struct stg_tuner_bar {
    uint32_t left, next; /* windows */
    double need;         /* at which a trial failed */
};

struct stg_tuner {
    struct stg_tuner_limits limits;
    uint32_t value;
    struct stg_tuner_sample windows[STG_TUNER_WINDOWS]; /* of this value; a ring */
    uint32_t n_windows;
    bool was_odd;     /* the last window was ignored */
    double cpu_share; /* of a thread's time at work; -1: not known */
    bool in_trial;
    uint32_t back_to;                     /* the value before the trial */
    double mean_before, deviation_before; /* items a second, and of the windows */
    uint32_t n_before;
    double need_before; /* what the rule said then */
    struct stg_tuner_bar up, down;
};

/* Requires min <= start <= max. If min equals max, the value never changes. */
void stg_tuner_init(struct stg_tuner *tuner, uint32_t start,
                    const struct stg_tuner_limits *limits);

/* Adds a window, for a number of threads. Returns true if tuner->value has changed; items
 * still in progress under the old value must not count in the next window. */
bool stg_tuner_threads(struct stg_tuner *tuner, const struct stg_tuner_sample *sample,
                       struct stg_tuner_change *ret);

/* Adds a window, for the capacity of a buffer that n_threads fill. Returns the same. */
bool stg_tuner_capacity(struct stg_tuner *tuner, const struct stg_tuner_sample *sample,
                        uint32_t n_threads, struct stg_tuner_change *ret);

/* Returns whether a trial is in progress. The caller should change nothing else then. */
bool stg_tuner_in_trial(const struct stg_tuner *tuner);

/* Discards the measurements, because something else has changed. Not during a trial. */
void stg_tuner_start_over(struct stg_tuner *tuner);

/* Discards the measurements and allows failed trials again, because the consumer has
 * changed. A current trial continues. */
void stg_tuner_forget(struct stg_tuner *tuner);

#endif
