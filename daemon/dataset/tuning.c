/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/tuning.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/spec.h"

#define MAX_STEPS 64 /* whose numbers are kept */

struct stg_tuning {
    pthread_mutex_t lock;                                 /* guards all below */
    struct stg_tuning_change changes[STG_TUNING_CHANGES]; /* a ring */
    _Atomic uint64_t n_changes;                           /* written with the lock held */
    struct found {
        const struct stg_step *step;
        uint32_t value;
    } found[MAX_STEPS];
    size_t n_found;
};

struct stg_tuning *stg_tuning_create(void)
{
    struct stg_tuning *tuning = calloc(1, sizeof(*tuning));
    if (tuning != NULL)
        pthread_mutex_init(&tuning->lock, NULL);
    return tuning;
}

void stg_tuning_destroy(struct stg_tuning *tuning)
{
    if (tuning == NULL)
        return;
    pthread_mutex_destroy(&tuning->lock);
    free(tuning);
}

/* The lock is held. */
static void add(struct stg_tuning *tuning, const char *what,
                const struct stg_tuner_change *change)
{
    struct stg_tuning_change *to =
        &tuning->changes[tuning->n_changes % STG_TUNING_CHANGES];
    snprintf(to->what, sizeof(to->what), "%s", what);
    to->change = *change;
    tuning->n_changes++;
}

void stg_tuning_note(struct stg_tuning *tuning, const char *what,
                     const struct stg_tuner_change *change)
{
    if (tuning == NULL)
        return;
    pthread_mutex_lock(&tuning->lock);
    add(tuning, what, change);
    pthread_mutex_unlock(&tuning->lock);
}

/* The lock is held. */
static struct found *find(struct stg_tuning *tuning, const struct stg_step *step)
{
    size_t i = 0;
    while (i < tuning->n_found && tuning->found[i].step != step)
        i++;
    return i < MAX_STEPS ? &tuning->found[i] : NULL;
}

void stg_tuning_note_step(struct stg_tuning *tuning, const struct stg_step *step,
                          const char *name, const struct stg_tuner_change *change)
{
    if (tuning == NULL)
        return;
    char what[sizeof(tuning->changes[0].what)];
    snprintf(what, sizeof(what), "step %.24s (line %d): %s", step->name, step->line,
             name);
    pthread_mutex_lock(&tuning->lock);
    add(tuning, what, change);
    struct found *found = find(tuning, step);
    if (found != NULL) {
        tuning->n_found += found->step == NULL;
        *found = (struct found){step, change->to};
    }
    pthread_mutex_unlock(&tuning->lock);
}

uint32_t stg_tuning_recall(struct stg_tuning *tuning, const struct stg_step *step)
{
    if (tuning == NULL)
        return 0;
    pthread_mutex_lock(&tuning->lock);
    const struct found *found = find(tuning, step);
    uint32_t ret = found != NULL ? found->value : 0;
    pthread_mutex_unlock(&tuning->lock);
    return ret;
}

uint64_t stg_tuning_n_changes(const struct stg_tuning *tuning)
{
    return tuning != NULL ? tuning->n_changes : 0;
}

size_t stg_tuning_changes(struct stg_tuning *tuning,
                          struct stg_tuning_change ret[STG_TUNING_CHANGES])
{
    if (tuning == NULL)
        return 0;
    pthread_mutex_lock(&tuning->lock);
    uint64_t n = tuning->n_changes;
    size_t n_kept = n < STG_TUNING_CHANGES ? (size_t)n : STG_TUNING_CHANGES;
    for (size_t i = 0; i < n_kept; i++)
        ret[i] = tuning->changes[(n - n_kept + i) % STG_TUNING_CHANGES];
    pthread_mutex_unlock(&tuning->lock);
    return n_kept;
}
