/* SPDX-License-Identifier: Apache-2.0
 *
 * A number that `auto` stands for, found by measurement: how many threads work, or how
 * many items may wait. Pure: its inputs are the measurements of one window of items
 * after the other; it returns what to change, and why. The rules are the definition's:
 *
 *   threads  >= time to make an item / time between two that the consumer asks for
 *   capacity ~  time between two that the consumer asks for / time to make one
 *
 * and each change is a trial. It is held against what was measured before it: more must
 * have come of a larger number, by more than the windows differ among themselves, and no
 * less of a smaller one in the mean. Else it is taken back, and not tried again for a
 * number of windows that doubles each time, or until times have changed. So it comes to
 * rest.
 *
 * Nothing that it decides changes what is made, or in which order. One thread at a time.
 */
#ifndef STG_DAEMON_TUNER_H
#define STG_DAEMON_TUNER_H

#include <stdbool.h>
#include <stdint.h>

#define STG_TUNER_WINDOWS 8

/* What was measured in one window. Times are sums. */
struct stg_tuner_sample {
    uint64_t n_items;
    uint64_t interval_ns; /* how long it was */
    uint64_t busy_ns;     /* all threads were at work, with serial_ns */
    uint64_t serial_ns;   /* of that: what one thread at a time does */
    uint64_t cpu_ns;      /* CPU time of that; 0: not measured */
    uint64_t wait_ns;     /* the consumer waited; at most interval_ns */
    uint64_t room_ns;     /* finished items waited for room, all together */
    uint32_t least;       /* items that waited for the consumer, at the least */
};

struct stg_tuner_limits {
    uint32_t min, max; /* min 0: the consumer can do without threads */
    double cpus;       /* that threads share; 0: it is not threads */
};

struct stg_tuner_change {
    uint32_t from, to;
    char why[200];
};

/* How long not to try a direction again. */
struct stg_tuner_bar {
    uint32_t left, next; /* windows */
    double need;         /* under which it was tried in vain */
};

struct stg_tuner {
    struct stg_tuner_limits limits;
    uint32_t value;
    struct stg_tuner_sample windows[STG_TUNER_WINDOWS]; /* of this value; a ring */
    uint32_t n_windows;
    bool was_odd;     /* the last one was left out */
    double cpu_share; /* of a thread's time at work; -1: not known */
    bool in_trial;
    uint32_t back_to;                     /* the value before it */
    double mean_before, deviation_before; /* items a second, and of the windows */
    uint32_t n_before;
    double need_before; /* what the rule said then */
    struct stg_tuner_bar up, down;
};

/* min <= start <= max; min and max the same: nothing ever changes. */
void stg_tuner_init(struct stg_tuner *tuner, uint32_t start,
                    const struct stg_tuner_limits *limits);

/* One window more, for a number of threads. True: tuner->value has changed; what is
 * still in hand of the old value is not to be part of the next window. */
bool stg_tuner_threads(struct stg_tuner *tuner, const struct stg_tuner_sample *sample,
                       struct stg_tuner_change *ret);

/* Likewise for the room of a buffer; n_threads fill it. */
bool stg_tuner_capacity(struct stg_tuner *tuner, const struct stg_tuner_sample *sample,
                        uint32_t n_threads, struct stg_tuner_change *ret);

/* Does a change still have to prove itself? Nothing else should be changed meanwhile. */
bool stg_tuner_in_trial(const struct stg_tuner *tuner);

/* Something else has changed: what was measured so far counts no more. Not in a trial. */
void stg_tuner_start_over(struct stg_tuner *tuner);

/* The consumer has changed: likewise, and what was tried in vain may be tried again. A
 * trial goes on. */
void stg_tuner_forget(struct stg_tuner *tuner);

#endif
