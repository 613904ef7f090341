/* SPDX-License-Identifier: Apache-2.0
 *
 * What `auto` found in one stage: the last changes with their reasons, for whoever asks,
 * and the numbers of dataset steps, which the next pass begins with. Any thread.
 */
#ifndef STG_DAEMON_TUNING_H
#define STG_DAEMON_TUNING_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/dataset/tuner.h"

#define STG_TUNING_CHANGES 12 /* that are remembered */

struct stg_tuning;
struct stg_step;

struct stg_tuning_change {
    char what[80]; /* "num_threads", "step map (line 7): num_parallel_calls" */
    struct stg_tuner_change change;
};

/* NULL: out of memory. All that follows takes NULL for nothing that remembers. */
struct stg_tuning *stg_tuning_create(void);
void stg_tuning_destroy(struct stg_tuning *tuning);

/* A number has changed. */
void stg_tuning_note(struct stg_tuning *tuning, const char *what,
                     const struct stg_tuner_change *change);

/* The same of a step, whose next run begins with it; name: of the parameter. */
void stg_tuning_note_step(struct stg_tuning *tuning, const struct stg_step *step,
                          const char *name, const struct stg_tuner_change *change);

/* What a step came to before, or 0. */
uint32_t stg_tuning_recall(struct stg_tuning *tuning, const struct stg_step *step);

/* How many there were, ever. */
uint64_t stg_tuning_n_changes(const struct stg_tuning *tuning);

/* The last changes, oldest first; returns how many. */
size_t stg_tuning_changes(struct stg_tuning *tuning,
                          struct stg_tuning_change ret[STG_TUNING_CHANGES]);

#endif
