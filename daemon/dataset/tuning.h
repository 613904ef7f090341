/* SPDX-License-Identifier: Apache-2.0
 *
 * What `auto` found in one pipeline: the last changes with their reasons, and
 * the numbers, which the next pass and the next stage begin with. Also the tuner that has
 * a trial: a measurement is worthless if something else changes meanwhile. Any thread.
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

/* A number has changed: that of `key`, an address that is its own, and no more than that.
 */
void stg_tuning_note(struct stg_tuning *tuning, const void *key, const char *what,
                     const struct stg_tuner_change *change);

/* The same of a step, which is the key; name: of the parameter. */
void stg_tuning_note_step(struct stg_tuning *tuning, const struct stg_step *step,
                          const char *name, const struct stg_tuner_change *change);

/* What the number came to before, or 0. */
uint32_t stg_tuning_recall(struct stg_tuning *tuning, const void *key);

/* A tuner with all that it has measured, for the next one of that key and those limits to
 * go on with; resume leaves *tuner alone where there is none. */
void stg_tuning_keep(struct stg_tuning *tuning, const void *key,
                     const struct stg_tuner *tuner);
void stg_tuning_resume(struct stg_tuning *tuning, const void *key,
                       struct stg_tuner *tuner);

/* While it is held no tuner begins a trial; one that runs goes on to its end. */
void stg_tuning_hold(struct stg_tuning *tuning, bool is_held);
bool stg_tuning_is_held(const struct stg_tuning *tuning);

/* A tuner has begun a trial (1) or ended it (-1); how many run. */
void stg_tuning_count_trial(struct stg_tuning *tuning, int change);
unsigned stg_tuning_n_trials(const struct stg_tuning *tuning);

/* How many there were, ever. */
uint64_t stg_tuning_n_changes(const struct stg_tuning *tuning);

/* The last changes, oldest first; returns how many. */
size_t stg_tuning_changes(struct stg_tuning *tuning,
                          struct stg_tuning_change ret[STG_TUNING_CHANGES]);

#endif
