/* SPDX-License-Identifier: Apache-2.0
 *
 * What is to be done once the parts of a stage are changed: recorded with the stage's
 * lock held, performed by commit.c.
 */
#ifndef STG_DAEMON_STAGE_EFFECTS_H
#define STG_DAEMON_STAGE_EFFECTS_H

#include <stdbool.h>

/* What a waiting runner may wait for. */
enum stg_wake {
    STG_WAKE_ROOM = 1,   /* there is room in the buffer, or the clock of its turn changes
                          */
    STG_WAKE_MEMORY = 2, /* an extent may be free */
    STG_WAKE_PASS = 4,   /* the pass is RUNNING */
    STG_WAKE_ALL = 7,    /* and stopping */
};

struct stg_effects {
    unsigned wake; /* enum stg_wake: runners that wait for it */
    bool is_swept; /* the loop was asked to sweep, or does so every few milliseconds */
};

#endif
