/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/pipeline/loading.h"

#include <inttypes.h>
#include <string.h>

#include "daemon/dataset/steps/division.h"
#include "daemon/pipeline/signature.h"

static bool is_shared(const struct stg_request *request,
                      const struct stg_definition *definition)
{
    return !request->private_run &&
           definition->spec->staged.delivery == STG_DELIVERY_SPLIT &&
           stg_definition_num_clients(definition, request->world_size) > 1;
}

/* Part of a staged batch was taken, by slices: the client drops that part of the first
 * batch; or the run begins behind it, if a row is an element. */
static int place_rows(const struct stg_request *request,
                      const struct stg_definition *definition, struct stg_state *state,
                      struct stg_err *err)
{
    bool rounds = definition->spec->staged.delivery == STG_DELIVERY_ROUND_ROBIN &&
                  !request->private_run;
    uint64_t ranks =
        rounds ? stg_definition_num_clients(definition, request->world_size) : 1;
    if (state->rows == 0)
        return 0;
    if (ranks != state->ranks)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "the state was taken between the slices of a batch by %" PRIu64
                       " clients, and now %" PRIu64 " share a round: load it with as "
                       "many, or take states at the end of staged batches",
                       state->ranks, ranks);
    if (request->batch_size != 0 && state->rows % request->batch_size == 0 &&
        !is_shared(request, definition))
        return 0;
    /* An error that passed the batch's elements is one of them, and no row. */
    if (ranks != 1 || state->place.passed > 0 ||
        !stg_signature_counts_rows(definition->spec))
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "the state was taken %" PRIu64
                       " rows after the start of a staged batch: open with a batch_size "
                       "that divides that number, as the only client of the run",
                       state->rows);
    state->place.elements += state->rows;
    state->rows = 0;
    return 0;
}

static int check_exact(const struct stg_request *request,
                       const struct stg_definition *definition, struct stg_err *err)
{
    const char *why = definition->irreproducible;
    if (why == NULL || request->approximate)
        return 0;
    return stg_err(err, -STAGER_FAILED_PRECONDITION,
                   "a state is not exact here: %s; or open with resume=\"approximate\"",
                   why);
}

/* Returns whether the state has no item behind its place. 0, 1, or RESOURCE_EXHAUSTED. */
static int has_all_before(const struct stg_state *state, struct stg_err *err)
{
    struct stg_taken taken = {0};
    int rc = stg_taken_read(state->taken, &taken, err);
    uint64_t end = taken.end;
    stg_taken_finish(&taken);
    return rc < 0 ? rc : end <= state->place.items;
}

static void forget_taken(struct stg_state *state)
{
    state->run = state->consumers = state->consumer = state->batch = state->n_before = 0;
    state->start = (struct stg_pass_place){0};
    memset(state->client, 0, sizeof(state->client));
    memset(state->taken, 0, sizeof(state->taken));
    memset(state->before, 0, sizeof(state->before));
}

int stg_loading_check_taken(const struct stg_definition *definition, bool private_run,
                            struct stg_state *state, struct stg_err *err)
{
    uint64_t batch = stg_signature_batch_size(definition->spec);
    if (state->consumers > 1 && state->consumer != 0)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "the state is that of consumer %" PRIu64 " of %" PRIu64
                       " (client %s): merge it with those of the others "
                       "(stager.merge_states, stager_merge_states)",
                       state->consumer, state->consumers, state->client);
    int rc = has_all_before(state, err);
    if (rc == 1)
        forget_taken(state);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    if (!private_run && definition->spec->staged.delivery != STG_DELIVERY_SPLIT)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "clients of a split took the items of the state out of their "
                       "order: load it with delivery: split, or in a private run");
    if (batch != state->batch)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "the state counts batches of %" PRIu64
                       " rows, which clients of a split took out of their order, and now "
                       "batch_size is %" PRIu64 ": load it with the earlier batch_size",
                       state->batch, batch);
    return 0;
}

int stg_loading_read(const struct stg_request *request,
                     const struct stg_definition *definition, const struct stg_deal *deal,
                     struct stg_state *ret, struct stg_err *err)
{
    int rc = stg_state_read(request->state, strlen(request->state), ret, err);
    if (rc == 0 && ret->order != STG_ORDER_VERSION)
        rc = stg_err(err, -STAGER_FAILED_PRECONDITION,
                     "the state counts elements in order version %" PRIu64
                     ", and this release of stagerd has version %d: load it with the "
                     "release that wrote it",
                     ret->order, STG_ORDER_VERSION);
    if (rc == 0)
        rc = stg_signature_compare(definition->signature, ret->steps, err);
    if (rc == 0)
        rc = check_exact(request, definition, err);
    bool is_merged = request->rejoin.member == 0 || ret->consumer == 0;
    if (rc == 0 && is_merged) /* else stagerd merges it */
        rc = stg_loading_check_taken(definition, request->private_run, ret, err);
    if (rc == 0)
        rc = place_rows(request, definition, ret, err);
    if (rc == 0 && deal->n_hosts != 0)
        rc = stg_division_restate(definition->spec, deal, ret, err);
    return rc < 0 ? stg_err_prefix(err, rc, "pipeline %s", request->name) : 0;
}

/* Returns whether the clients of a host share one data-parallel rank: those of a
 * broadcast; and where hosts have weights, and may have different numbers of clients. */
static bool shares_rank(const struct stg_request *request,
                        const struct stg_definition *definition)
{
    const struct stg_staged *staged = &definition->spec->staged;
    bool has_weights = stg_division_weights(stg_division_find(definition->spec)) != NULL;
    return staged->delivery == STG_DELIVERY_BROADCAST ||
           (has_weights && !staged->num_clients_auto &&
            request->data_parallel.local_size == 1);
}

/* Otherwise the clients of a host are its data-parallel ranks. */
static int check_local(const struct stg_request *request,
                       const struct stg_definition *definition, struct stg_err *err)
{
    const struct stg_staged *staged = &definition->spec->staged;
    uint32_t local_size = request->data_parallel.local_size;
    if (staged->delivery == STG_DELIVERY_BROADCAST && local_size != 1)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "local_size is %u: with delivery: broadcast and shard: auto the "
                       "clients of a host share one dp_rank, and local_size is 1",
                       local_size);
    if (!shares_rank(request, definition) && !staged->num_clients_auto &&
        staged->num_clients != local_size)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "local_size is %u, and num_clients %u: with shard: auto the "
                       "clients of a host are its data-parallel ranks; set num_clients "
                       "to %u, or to auto",
                       local_size, staged->num_clients, local_size);
    return 0;
}

int stg_loading_divide(struct stg_request *request,
                       const struct stg_definition *definition,
                       const struct stg_deal *found, struct stg_deal *ret,
                       struct stg_err *err)
{
    const struct stg_deal_rank *rank = &request->data_parallel;
    *ret = (struct stg_deal){0};
    if (stg_division_find(definition->spec) == NULL)
        return 0;
    if (rank->size == 0 && request->private_run) {
        ret->n_hosts = 1;
        return 0;
    }
    if (rank->size == 0 && found == NULL)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "pipeline %s divides its records among hosts (shard: auto): open "
                       "it with dp_rank, dp_size, local_rank and local_size",
                       request->name);
    if (found != NULL) {
        *ret = *found;
        if (rank->local_size == 0)
            return 0;
    }
    int rc =
        found == NULL ? stg_deal_find(rank, ret, err) : stg_deal_check_local(rank, err);
    if (rc == 0)
        rc = stg_division_check_hosts(definition->spec, ret, err);
    if (rc == 0 && !request->private_run)
        rc = check_local(request, definition, err);
    if (rc < 0)
        return stg_err_prefix(err, rc, "pipeline %s", request->name);
    if (!shares_rank(request, definition)) {
        request->rank = rank->local_rank;
        request->world_size = rank->local_size;
    } else if (definition->spec->staged.delivery != STG_DELIVERY_BROADCAST) {
        request->world_size = 0; /* local_size says nothing of its clients */
    }
    return 0;
}
