/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/pipeline/loading.h"

#include <inttypes.h>
#include <string.h>

#include "daemon/pipeline/signature.h"

const char *stg_loading_why_inexact(const struct stg_definition *definition,
                                    bool private_run)
{
    const struct stg_staged *staged = &definition->spec->staged;
    if (!private_run && staged->delivery == STG_DELIVERY_SPLIT && staged->num_clients > 1)
        return "delivery: split gives a batch to the client that is free first; use "
               "round_robin or broadcast";
    return definition->irreproducible;
}

/* Part of a staged batch was taken, by slices: the client drops that part of the first
 * batch; or the run begins behind it, if a row is an element. */
static int place_rows(const struct stg_request *request,
                      const struct stg_definition *definition, struct stg_state *state,
                      struct stg_err *err)
{
    const struct stg_staged *staged = &definition->spec->staged;
    bool rounds = staged->delivery == STG_DELIVERY_ROUND_ROBIN && !request->private_run;
    uint64_t ranks = rounds ? staged->num_clients : 1;
    if (state->rows == 0)
        return 0;
    if (ranks != state->ranks)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "the state was taken between the slices of a batch by %" PRIu64
                       " clients, and now %" PRIu64 " share a round: load it with as "
                       "many, or take states at the end of staged batches",
                       state->ranks, ranks);
    if (request->batch_size != 0 && state->rows % request->batch_size == 0)
        return 0;
    /* An error that passed the batch's elements is one of them, and no row. */
    if (ranks != 1 || state->place.passed > 0 ||
        !stg_signature_counts_rows(definition->spec))
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "the state was taken %" PRIu64
                       " rows after the start of a staged batch: open with a batch_size "
                       "that divides that number",
                       state->rows);
    state->place.elements += state->rows;
    state->rows = 0;
    return 0;
}

/* Under split the batches between the states of several clients would be lost. */
static int check_exact(const struct stg_request *request,
                       const struct stg_definition *definition, struct stg_err *err)
{
    const struct stg_staged *staged = &definition->spec->staged;
    const char *why = stg_loading_why_inexact(definition, request->private_run);
    bool is_split = !request->private_run && staged->delivery == STG_DELIVERY_SPLIT &&
                    staged->num_clients > 1;
    if (why == NULL || (request->approximate && !is_split))
        return 0;
    return stg_err(err, -STAGER_FAILED_PRECONDITION, "a state is not exact here: %s%s",
                   why, is_split ? "" : "; or open with resume=\"approximate\"");
}

int stg_loading_read(const struct stg_request *request,
                     const struct stg_definition *definition, struct stg_state *ret,
                     struct stg_err *err)
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
    if (rc == 0)
        rc = place_rows(request, definition, ret, err);
    return rc < 0 ? stg_err_prefix(err, rc, "pipeline %s", request->name) : 0;
}
