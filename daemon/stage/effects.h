/* SPDX-License-Identifier: Apache-2.0
 *
 * What is to be done once the parts of a stage are changed: recorded with the stage's
 * lock held, performed by stg_stage_commit.
 */
#ifndef STG_DAEMON_STAGE_EFFECTS_H
#define STG_DAEMON_STAGE_EFFECTS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/log.h"

/* Runners to wake: those that wait for … */
enum stg_wake {
    STG_WAKE_ROOM = 1,      /* room in the buffer, or a clock of its turn that changes */
    STG_WAKE_MEMORY = 2,    /* an extent */
    STG_WAKE_PASS = 4,      /* a pass that is RUNNING */
    STG_WAKE_ALL = 7,       /* and the stop */
    STG_WAKE_TURN = 8,      /* the turn of publish_next */
    STG_WAKE_DRAW = 16,     /* the data set: one of them */
    STG_WAKE_DRAW_ALL = 32, /* the data set: all of them, because the pass is drawn out */
    STG_WAKE_LOOK = 64,     /* anything: they look around, and wait on */
};

struct stg_stage;
struct stg_client;
struct stg_work;
struct stg_join;

/* What observers hear of at the next commit. Zero: nothing. */
struct stg_events {
    const struct stg_work
        *published;    /* or dropped, or ignored: out of a runner's hands */
    bool has_changed;  /* clients came or went, or the boundary changed */
    bool has_taken;    /* items left the buffer, … */
    uint32_t n_rounds; /* … down to so many rounds */
};

/* A line of the log that waits for the lock to be released. */
struct stg_line {
    struct stg_line *before;
    enum stg_log_level level;
    char text[];
};

/* Zero: nothing. */
struct stg_effects {
    unsigned wake;                /* enum stg_wake */
    bool bells;                   /* some client has `rings` or `disconnects` set */
    bool asks_loop;               /* config.wake is to be called */
    bool is_swept;                /* the loop was asked to sweep, or does so every few
                                     milliseconds */
    struct stg_line *line;        /* of the log, the last one first */
    uint32_t n_no_line;           /* for which there was no memory */
    const struct stg_join *reply; /* to a client that joins; NULL: none */
    struct stg_client *dead;      /* to be freed; none is in the stage any more */
    struct stg_events events;
};

/* The rest records, with the lock held. */

/* Something new lies in the ring of a client that sleeps. */
void stg_stage_ring(struct stg_stage *stage, struct stg_client *client);

/* Ends the stream of a client: the loop sees the end of its socket and closes it. */
void stg_stage_disconnect(struct stg_stage *stage, struct stg_client *client);

/* Frees a client that the caller took from the list: its pages are unmapped without the
 * lock. */
void stg_stage_bury(struct stg_stage *stage, struct stg_client *client);

void stg_stage_log(struct stg_stage *stage, enum stg_log_level level, const char *fmt,
                   ...) __attribute__((format(printf, 3, 4)));

#endif
