/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/steps/division.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/dataset/step.h"

static bool is_among(const char *name, const char *const *names, size_t n)
{
    size_t i = 0;
    while (i < n && strcmp(name, names[i]) != 0)
        i++;
    return i < n;
}

#define IS_AMONG(name, names) is_among(name, names, sizeof(names) / sizeof((names)[0]))

bool stg_division_is(const struct stg_step *step)
{
    return strcmp(step->name, "shard") == 0 && stg_step_int(step, "num_shards", 1) == 0;
}

const struct stg_step *stg_division_find(const struct stg_pipeline_spec *spec)
{
    for (size_t i = 0; i < spec->n_steps; i++) {
        if (stg_division_is(&spec->steps[i]))
            return &spec->steps[i];
    }
    return NULL;
}

/* ---- weights ---- */

const struct stg_attr *stg_division_weights(const struct stg_step *step)
{
    return stg_attr_find(step->attrs, step->n_attrs, "weights");
}

static const struct stg_attr *find_weights(const struct stg_pipeline_spec *spec)
{
    const struct stg_step *division = stg_division_find(spec);
    return division != NULL ? stg_division_weights(division) : NULL;
}

/* A host that is alone takes all records. */
static bool applies(const struct stg_attr *weights, const struct stg_deal *deal)
{
    return weights != NULL && (deal->n_hosts != 1 || weights->n_values == 1);
}

struct stg_deal_share stg_division_share(const struct stg_step *step,
                                         const struct stg_deal *deal)
{
    const struct stg_attr *weights = stg_division_weights(step);
    if (!applies(weights, deal))
        return stg_deal_share(deal, NULL);
    assert(weights->n_values == deal->n_hosts && deal->host < deal->n_hosts);
    return stg_deal_share(deal, weights->values);
}

uint32_t stg_division_weight(const struct stg_pipeline_spec *spec,
                             const struct stg_deal *deal)
{
    const struct stg_step *division = stg_division_find(spec);
    if (division == NULL || deal->n_hosts == 0 ||
        !applies(stg_division_weights(division), deal))
        return 0;
    return stg_division_share(division, deal).n_own;
}

int stg_division_check_hosts(const struct stg_pipeline_spec *spec,
                             const struct stg_deal *deal, struct stg_err *err)
{
    const struct stg_attr *weights = find_weights(spec);
    if (weights == NULL || weights->n_values == deal->n_hosts)
        return 0;
    return stg_step_err(stg_division_find(spec), -STAGER_FAILED_PRECONDITION, err,
                        "weights has %zu values, and the job has %u hosts: give each "
                        "host one weight",
                        weights->n_values, deal->n_hosts);
}

int stg_division_check_elastic(const struct stg_pipeline_spec *spec, struct stg_err *err)
{
    if (find_weights(spec) == NULL)
        return 0;
    return stg_step_err(stg_division_find(spec), -STAGER_FAILED_PRECONDITION, err,
                        "weights are those of a fixed number of hosts, and those that "
                        "etcd finds come and go: leave weights out, or open with dp_rank "
                        "and dp_size");
}

static int check_weights(const struct stg_pipeline_spec *spec,
                         const struct stg_step *division, struct stg_err *err)
{
    if (stg_division_weights(division) == NULL ||
        spec->staged.delivery == STG_DELIVERY_SPLIT)
        return 0;
    return stg_step_err(
        division, -STAGER_INVALID_ARGUMENT, err,
        "with weights hosts get different numbers of batches, and clients "
        "in rounds, or of a broadcast, need equally many on each host: "
        "set delivery of staged to split, or leave weights out");
}

/* ---- what may stand behind it ---- */

static bool is_batching(const struct stg_step *step)
{
    static const char *const names[] = {"batch", "padded_batch", "ragged_batch"};
    return IS_AMONG(step->name, names);
}

/* How many records it yields depends on how many it gets, and on nothing else. */
static bool counts_alike(const struct stg_step *step)
{
    static const char *const names[] = {
        "map",     "map_and_batch", "prefetch",          "enumerate", "take",
        "skip",    "repeat",        "shuffle",           "cache",     "shard",
        "rebatch", "py_function",   "shuffle_and_repeat"};
    return is_batching(step) || IS_AMONG(step->name, names);
}

static bool is_endless(const struct stg_step *step)
{
    static const char *const names[] = {"repeat", "shuffle_and_repeat"};
    return IS_AMONG(step->name, names) && stg_step_int(step, "count", -1) == -1;
}

static bool any_endless(const struct stg_pipeline_spec *spec)
{
    for (size_t i = 0; i < spec->n_steps; i++) {
        if (is_endless(&spec->steps[i]))
            return true;
    }
    return false;
}

static int check_branches(const struct stg_pipeline_spec *spec, struct stg_err *err)
{
    for (size_t b = 0; b < spec->n_branches; b++) {
        for (size_t i = 0; i < spec->branches[b].n_steps; i++) {
            const struct stg_step *step = &spec->branches[b].steps[i];
            if (stg_division_is(step))
                return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                                    "num_shards: auto divides all that a host gets, and "
                                    "cannot stand in a branch: put it into `dataset`");
        }
    }
    return 0;
}

static int check_behind(const struct stg_step *division, const struct stg_step *step,
                        bool is_free, struct stg_err *err)
{
    if (stg_division_is(step))
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "line %d has num_shards: auto already: remove one",
                            division->line);
    if (stg_attr_find(step->attrs, step->n_attrs, "from") != NULL)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "its branches are not divided by shard (line %d), which has "
                            "num_shards: auto: put shard behind it",
                            division->line);
    if (is_free || counts_alike(step))
        return 0;
    return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                        "how many records it yields depends on the data, and hosts that "
                        "divide it by shard (line %d) would have different numbers of "
                        "batches: put shard behind it, or add a repeat without a count",
                        division->line);
}

int stg_division_check(const struct stg_pipeline_spec *spec, struct stg_err *err)
{
    const struct stg_step *division = stg_division_find(spec);
    int rc = check_branches(spec, err);
    if (rc < 0 || division == NULL)
        return rc;
    /* Numbers of batches are endless, or differ anyway. */
    bool is_free = any_endless(spec) || stg_division_weights(division) != NULL;
    rc = check_weights(spec, division, err);
    for (const struct stg_step *step = division + 1;
         rc == 0 && step < spec->steps + spec->n_steps; step++)
        rc = check_behind(division, step, is_free, err);
    if (rc == 0 && !is_free && spec->staged.ignored_codes != 0)
        return stg_step_err(division, -STAGER_INVALID_ARGUMENT, err,
                            "with ignored_exception_types hosts would have different "
                            "numbers of batches: leave it out, or add a repeat without a "
                            "count");
    return rc;
}

/* ---- another number of hosts ---- */

/* Returns the first step behind the division which changes the order or the number of
 * records other than one batching step does; NULL: a position counts records of the
 * share. */
static const struct stg_step *find_obstacle(const struct stg_step *division,
                                            const struct stg_step *end)
{
    static const char *const names[] = {"map", "prefetch"};
    unsigned n_batching = 0;
    for (const struct stg_step *step = division + 1; step < end; step++) {
        n_batching += is_batching(step);
        if (n_batching > 1 || (!is_batching(step) && !IS_AMONG(step->name, names)))
            return step;
    }
    return NULL;
}

static int refuse(const struct stg_state *state, const struct stg_deal *deal,
                  const char *why, struct stg_err *err)
{
    return stg_err(err, -STAGER_FAILED_PRECONDITION,
                   "the state is of %" PRIu64 " hosts, and now there are %u: %s; load it "
                   "with %" PRIu64 " hosts",
                   state->hosts, deal->n_hosts, why, state->hosts);
}

/* Hosts with weights do not go step by step: the place of one is none of another. */
static int refuse_weight(const struct stg_state *state, uint32_t weight,
                         struct stg_err *err)
{
    char now[48] = "a run without weights";
    if (weight != 0)
        snprintf(now, sizeof(now), "a host of weight %u", weight);
    return stg_err(err, -STAGER_FAILED_PRECONDITION,
                   "the state is of a host of weight %" PRIu64 " of %" PRIu64
                   " hosts, and this is %s: load it on the host that it was taken on",
                   state->weight, state->hosts, now);
}

int stg_division_restate(const struct stg_pipeline_spec *spec,
                         const struct stg_deal *deal, struct stg_state *state,
                         struct stg_err *err)
{
    const struct stg_step *division = stg_division_find(spec);
    uint32_t weight = stg_division_weight(spec, deal);
    if (division == NULL || (state->hosts == deal->n_hosts && state->weight == weight))
        return 0;
    if (state->weight != 0)
        return refuse_weight(state, weight, err);
    char why[160];
    const struct stg_step *obstacle =
        find_obstacle(division, spec->steps + spec->n_steps);
    if (state->hosts == 0 || state->hosts > STG_DEAL_MAX_HOSTS)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "the state is of a run that did not divide its records among "
                       "hosts");
    bool has_begun = state->place.items != 0 || state->place.elements != 0;
    if (obstacle != NULL && has_begun) {
        snprintf(why, sizeof(why),
                 "step %s (line %d) behind shard hides which records were taken",
                 obstacle->name, obstacle->line);
        return refuse(state, deal, why, err);
    }
    if (state->place.errors_from != 0 || state->place.passed != 0)
        return refuse(state, deal, "the pass has met errors", err);
    if (state->rows != 0 || state->n_delivered != 0 || state->consumers != 0)
        return refuse(state, deal,
                      "it was taken between slices of a batch, or clients of a split "
                      "took batches out of their order",
                      err);
    const struct stg_deal_share then =
        stg_deal_share(&(struct stg_deal){.n_hosts = (uint32_t)state->hosts}, NULL);
    state->base = stg_deal_after(&then, state->base, state->place.elements);
    state->hosts = deal->n_hosts;
    state->weight = weight;
    state->place.items = state->place.elements = 0;
    return 0;
}
