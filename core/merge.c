/* SPDX-License-Identifier: Apache-2.0
 *
 * One state of those of all consumers of a split.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/state.h"

/* ---- what the states have in common ---- */

static int differ(const struct stg_state *a, const struct stg_state *b, const char *what,
                  struct stg_err *err)
{
    return stg_err(err, -STAGER_FAILED_PRECONDITION,
                   "the states do not belong together: consumer %" PRIu64
                   " (client %s) and consumer %" PRIu64
                   " (client %s) have different %s; merge the states of all consumers "
                   "of one step of one run",
                   a->consumer, a->client, b->consumer, b->client, what);
}

static bool is_other_data(const struct stg_data_identity *a,
                          const struct stg_data_identity *b)
{
    return a->n_files != 0 && b->n_files != 0 && memcmp(a, b, sizeof(*a)) != 0;
}

static int compare(const struct stg_state *a, const struct stg_state *b,
                   struct stg_err *err)
{
    if (a->order != b->order)
        return differ(a, b, "order versions", err);
    if (strcmp(a->steps, b->steps) != 0)
        return differ(a, b, "pipelines", err);
    if (a->run != b->run)
        return differ(a, b, "runs", err);
    if (a->batch != b->batch)
        return differ(a, b, "batch sizes", err);
    if (a->hosts != b->hosts || (a->pass == b->pass && a->base != b->base))
        return differ(a, b, "hosts", err);
    if (a->pass != b->pass)
        return 0;
    if (a->start.items != 0 && b->start.items != 0 &&
        memcmp(&a->start, &b->start, sizeof(a->start)) != 0)
        return differ(a, b, "starts of the run", err);
    if (is_other_data(&a->data, &b->data))
        return differ(a, b, "files", err);
    return 0;
}

/* ---- is every consumer there? ---- */

/* Returns a state of the latest pass. */
static const struct stg_state *find_latest(const struct stg_state *states, size_t n)
{
    const struct stg_state *latest = &states[0];
    for (size_t i = 1; i < n; i++) {
        if (states[i].pass > latest->pass)
            latest = &states[i];
    }
    return latest;
}

static const struct stg_state *find(const struct stg_state *states, size_t n,
                                    uint64_t consumer)
{
    for (size_t i = 0; i < n; i++) {
        if (states[i].consumer == consumer)
            return &states[i];
    }
    return NULL;
}

static int refuse_missing(const struct stg_state *states, size_t n, uint64_t consumers,
                          uint64_t missing, struct stg_err *err)
{
    stg_err(err, -STAGER_FAILED_PRECONDITION,
            "the state of consumer %" PRIu64 " of %" PRIu64
            " is missing: the items that it took would be delivered again; given are",
            missing, consumers);
    for (size_t i = 0; i < n; i++)
        stg_err_append(err, err->code, "%s consumer %" PRIu64 " (client %s)",
                       i > 0 ? "," : "", states[i].consumer, states[i].client);
    return stg_err_append(
        err, err->code,
        ". If its client has left, give the last state that it took: what it took later "
        "is delivered again after a restart. If it took none, merge in the next pass, or "
        "restart all clients from the last merged state");
}

static bool is_same(const struct stg_state *a, const struct stg_state *b)
{
    return a->pass == b->pass && memcmp(&a->place, &b->place, sizeof(a->place)) == 0 &&
           strcmp(a->taken, b->taken) == 0;
}

static int check_parts(const struct stg_state *states, size_t n, uint64_t *ret,
                       struct stg_err *err)
{
    uint64_t consumers = 0;
    for (size_t i = 0; i < n; i++) {
        const struct stg_state *first = find(states, n, states[i].consumer);
        int rc = compare(find_latest(states, n), &states[i], err);
        if (rc < 0)
            return rc;
        if (!is_same(first, &states[i]))
            return stg_err(err, -STAGER_FAILED_PRECONDITION,
                           "consumer %" PRIu64
                           " (client %s) is there with two states: merge one of each "
                           "consumer, of one step",
                           states[i].consumer, states[i].client);
        if (states[i].consumers > consumers)
            consumers = states[i].consumers;
    }
    for (uint64_t k = 1; k <= consumers; k++) {
        if (find(states, n, k) == NULL)
            return refuse_missing(states, n, consumers, k, err);
    }
    *ret = consumers;
    return 0;
}

/* ---- passes ---- */

/* What all took of the latest pass, or of the one before it. */
static int unite(const struct stg_state *states, size_t n, uint64_t pass,
                 struct stg_taken *ret, struct stg_err *err)
{
    struct stg_taken *sets = calloc(n, sizeof(*sets));
    int rc = sets != NULL
                 ? 0
                 : stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "no memory to merge states");
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const struct stg_state *state = &states[i];
        if (state->pass == pass)
            rc = stg_taken_read(state->taken, &sets[i], err);
        else if (state->pass == pass + 1)
            rc = stg_taken_read(state->before, &sets[i], err);
    }
    if (rc == 0)
        rc = stg_taken_unite(sets, n, ret, err);
    for (size_t i = 0; sets != NULL && i < n; i++)
        stg_taken_finish(&sets[i]);
    free(sets);
    return rc;
}

/* A consumer that stands in the pass before the latest one has reached its end: together
 * they took all of it. Else its state is of an earlier step. */
static int check_passes(const struct stg_state *states, size_t n,
                        const struct stg_state *latest, struct stg_err *err)
{
    struct stg_taken all = {0};
    const struct stg_state *behind = NULL;
    uint64_t n_before = 0;
    for (size_t i = 0; i < n; i++) {
        if (states[i].pass + 1 < latest->pass)
            return differ(latest, &states[i], "passes", err);
        if (states[i].pass != latest->pass)
            behind = &states[i];
        else if (states[i].n_before > n_before)
            n_before = states[i].n_before;
    }
    if (behind == NULL)
        return 0;
    int rc = unite(states, n, behind->pass, &all, err);
    uint64_t first_left = stg_taken_first_left(&all);
    stg_taken_finish(&all);
    if (rc == 0 && (n_before == 0 || first_left < n_before))
        return differ(latest, behind, "passes", err);
    return rc;
}

/* ---- merging ---- */

/* The last place that is known and has every item that is left behind it. */
static void find_place(const struct stg_state *states, size_t n,
                       const struct stg_state *latest, uint64_t first_left,
                       struct stg_pass_place *ret)
{
    *ret = latest->start;
    for (size_t i = 0; i < n; i++) {
        const struct stg_pass_place *places[] = {&states[i].place, &states[i].start};
        for (size_t k = 0; k < 2; k++) {
            if (states[i].pass == latest->pass && places[k]->items <= first_left &&
                places[k]->items > ret->items)
                *ret = *places[k];
        }
    }
}

static int merge(const struct stg_state *states, size_t n, struct stg_state *ret,
                 struct stg_err *err)
{
    struct stg_taken all = {0};
    char text[STG_TAKEN_TEXT_BYTES];
    uint64_t consumers = 0;
    const struct stg_state *latest = find_latest(states, n);
    int rc = check_parts(states, n, &consumers, err);
    if (rc == 0)
        rc = check_passes(states, n, latest, err);
    if (rc == 0)
        rc = unite(states, n, latest->pass, &all, err);
    if (rc == 0)
        rc = stg_taken_write(&all, text, err);
    if (rc == 0) {
        *ret = *latest;
        memset(ret->taken, 0, sizeof(ret->taken));
        memcpy(ret->taken, text, strlen(text) + 1);
        find_place(states, n, latest, stg_taken_first_left(&all), &ret->place);
        for (size_t i = 0; i < n && ret->data.n_files == 0; i++) {
            if (states[i].pass == latest->pass)
                ret->data = states[i].data;
        }
        ret->n_before = 0;
        ret->start = (struct stg_pass_place){0};
        memset(ret->before, 0, sizeof(ret->before));
        ret->consumers = consumers;
        ret->consumer = 0;
        memset(ret->client, 0, sizeof(ret->client));
    }
    stg_taken_finish(&all);
    return rc;
}

/* The ranks of a round_robin have one state, as the only client of a split has. */
static int take_only(const struct stg_state *states, size_t n, struct stg_state *ret,
                     struct stg_err *err)
{
    for (size_t i = 1; i < n; i++) {
        if (memcmp(&states[0], &states[i], sizeof(states[0])) != 0)
            return stg_err(err, -STAGER_FAILED_PRECONDITION,
                           "state %zu differs from the first one, and they are not those "
                           "of the consumers of a split: load one of them",
                           i + 1);
    }
    *ret = states[0];
    return 0;
}

int stg_state_merge(const struct stg_state *states, size_t n, struct stg_state *ret,
                    struct stg_err *err)
{
    size_t n_parts = 0;
    for (size_t i = 0; i < n; i++)
        n_parts += states[i].consumer != 0;
    if (n == 0)
        return stg_err(
            err, -STAGER_INVALID_ARGUMENT,
            "no states are given: merge the states of all clients of the split");
    if (n_parts == 0)
        return take_only(states, n, ret, err);
    if (n_parts < n)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "%zu of the %zu states are not of one consumer of a split each: "
                       "merge the states that the consumers took",
                       n - n_parts, n);
    return merge(states, n, ret, err);
}
