/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/tuning.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/spec.h"

#define MAX_KEYS 64 /* whose numbers are kept */

struct stg_tuning {
    pthread_mutex_t lock;                                 /* guards all below */
    struct stg_tuning_change changes[STG_TUNING_CHANGES]; /* a ring */
    _Atomic uint64_t n_changes;                           /* written with the lock held */
    struct found {
        const void *key;
        uint32_t value;
        struct stg_tuner *tuner; /* NULL: none is kept */
    } found[MAX_KEYS];
    size_t n_found;
    _Atomic bool is_held;
    _Atomic unsigned n_trials;
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
    for (size_t i = 0; i < tuning->n_found; i++)
        free(tuning->found[i].tuner);
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

/* That of the key, made where there is none. NULL: there are too many. The lock is held.
 */
static struct found *find(struct stg_tuning *tuning, const void *key)
{
    size_t i = 0;
    while (i < tuning->n_found && tuning->found[i].key != key)
        i++;
    if (i == MAX_KEYS)
        return NULL;
    tuning->n_found += i == tuning->n_found;
    tuning->found[i].key = key;
    return &tuning->found[i];
}

void stg_tuning_note(struct stg_tuning *tuning, const void *key, const char *what,
                     const struct stg_tuner_change *change)
{
    if (tuning == NULL)
        return;
    pthread_mutex_lock(&tuning->lock);
    add(tuning, what, change);
    struct found *found = find(tuning, key);
    if (found != NULL)
        found->value = change->to;
    pthread_mutex_unlock(&tuning->lock);
}

void stg_tuning_note_step(struct stg_tuning *tuning, const struct stg_step *step,
                          const char *name, const struct stg_tuner_change *change)
{
    char what[sizeof(((struct stg_tuning_change *)0)->what)];
    snprintf(what, sizeof(what), "step %.24s (line %d): %s", step->name, step->line,
             name);
    stg_tuning_note(tuning, step, what, change);
}

uint32_t stg_tuning_recall(struct stg_tuning *tuning, const void *key)
{
    if (tuning == NULL)
        return 0;
    pthread_mutex_lock(&tuning->lock);
    const struct found *found = find(tuning, key);
    uint32_t ret = found != NULL ? found->value : 0;
    pthread_mutex_unlock(&tuning->lock);
    return ret;
}

void stg_tuning_keep(struct stg_tuning *tuning, const void *key,
                     const struct stg_tuner *tuner)
{
    if (tuning == NULL)
        return;
    pthread_mutex_lock(&tuning->lock);
    struct found *found = find(tuning, key);
    if (found != NULL && found->tuner == NULL)
        found->tuner = malloc(sizeof(*found->tuner));
    if (found != NULL && found->tuner != NULL)
        *found->tuner = *tuner;
    pthread_mutex_unlock(&tuning->lock);
}

static bool same_limits(const struct stg_tuner_limits *a,
                        const struct stg_tuner_limits *b)
{
    return a->min == b->min && a->max == b->max && !(a->cpus < b->cpus) &&
           !(a->cpus > b->cpus);
}

void stg_tuning_resume(struct stg_tuning *tuning, const void *key,
                       struct stg_tuner *tuner)
{
    if (tuning == NULL)
        return;
    pthread_mutex_lock(&tuning->lock);
    const struct found *found = find(tuning, key);
    if (found != NULL && found->tuner != NULL &&
        same_limits(&found->tuner->limits, &tuner->limits))
        *tuner = *found->tuner;
    pthread_mutex_unlock(&tuning->lock);
}

/* ---- trials ---- */

void stg_tuning_hold(struct stg_tuning *tuning, bool is_held)
{
    if (tuning != NULL)
        tuning->is_held = is_held;
}

bool stg_tuning_is_held(const struct stg_tuning *tuning)
{
    return tuning != NULL && tuning->is_held;
}

void stg_tuning_count_trial(struct stg_tuning *tuning, int change)
{
    if (tuning != NULL)
        tuning->n_trials += (unsigned)change;
}

unsigned stg_tuning_n_trials(const struct stg_tuning *tuning)
{
    return tuning != NULL ? tuning->n_trials : 0;
}

/* ---- changes ---- */

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
    size_t n_retained = n < STG_TUNING_CHANGES ? (size_t)n : STG_TUNING_CHANGES;
    for (size_t i = 0; i < n_retained; i++)
        ret[i] = tuning->changes[(n - n_retained + i) % STG_TUNING_CHANGES];
    pthread_mutex_unlock(&tuning->lock);
    return n_retained;
}
