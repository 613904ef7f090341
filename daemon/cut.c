/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/cut.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "daemon/delivery.h"

struct stg_stage_cut *stg_stage_cut_ref(struct stg_stage_cut *cut)
{
    if (cut != NULL)
        atomic_fetch_add(&cut->refs, 1);
    return cut;
}

void stg_stage_cut_unref(struct stg_stage_cut *cut)
{
    if (cut == NULL || atomic_fetch_sub(&cut->refs, 1) != 1)
        return;
    stg_cut_destroy(cut->cut);
    free(cut);
}

/* ---- what clients need ---- */

int stg_needs_read(const struct stg_request *request, const struct stg_cuts *cuts,
                   struct stg_cut_needs **ret, struct stg_err *err)
{
    struct stg_cut_wanted wanted = {
        .has_fields = request->has_fields,
        .fields = request->fields,
        .n_fields = request->n_fields,
        .has_fetches = request->has_fetches,
        .fetches = request->fetches,
        .n_fetches = request->n_fetches,
        .in_slices = request->batch_size != 0,
    };
    return stg_cut_needs_create(cuts, &wanted, ret, err);
}

static bool counts(const struct stg_client *client)
{
    return client->state != STG_CLIENT_DETACHED && client->needs != NULL;
}

/* Returns how many; *ret is the caller's to free, NULL: none, or out of memory. */
static size_t gather(const struct stg_stage *stage, const struct stg_cut_needs ***ret)
{
    size_t n = 0;
    for (const struct stg_client *c = stage->clients; c != NULL; c = c->next)
        n += counts(c);
    *ret = n > 0 ? calloc(n, sizeof(**ret)) : NULL;
    n = 0;
    for (const struct stg_client *c = stage->clients; *ret != NULL && c != NULL;
         c = c->next) {
        if (counts(c))
            (*ret)[n++] = c->needs;
    }
    return n;
}

/* Whoever comes has to find all features in what is made from now on, unless nobody can
 * come. */
static bool must_be_wide(const struct stg_stage *stage)
{
    uint32_t taken = stage->n_attached + (stage->kind->together ? stage->n_away : 0);
    return stage->staged->keep_warm || taken < stage->config.num_clients;
}

/* ---- choosing ---- */

/* Of the nodes that were chosen, those that may move for these clients. */
static void choose(const struct stg_stage *stage,
                   const struct stg_cut_needs *const *needs, size_t n, bool *moved)
{
    const struct stg_cuts *cuts = stage->config.cuts;
    size_t n_nodes = stg_cuts_n_nodes(cuts);
    enum stg_smart_stage mode = stage->config.spec->smart_stage;
    if (mode == STG_SMART_STAGE_OFF ||
        (mode == STG_SMART_STAGE_AUTO && stage->chosen == NULL))
        return;
    stg_cuts_largest(cuts, needs, n, moved);
    for (size_t i = 0; mode == STG_SMART_STAGE_AUTO && i < n_nodes; i++)
        moved[i] = moved[i] && stage->chosen[i];
}

static struct stg_cut *make_cut(const struct stg_stage *stage,
                                const struct stg_cut_needs *const *needs, size_t n)
{
    const struct stg_cuts *cuts = stage->config.cuts;
    struct stg_cut *cut = NULL;
    bool *moved = calloc(stg_cuts_n_nodes(cuts) + 1, sizeof(*moved));
    if (moved == NULL)
        return NULL;
    choose(stage, needs, n, moved);
    bool is_wide = must_be_wide(stage);
    int rc = stg_cut_create(cuts, needs, n, moved, is_wide, &cut, NULL);
    if (rc == 0 && stg_cut_batch_bytes(cut) > stage->plan.max_batch_bytes) {
        stg_cut_destroy(cut);
        cut = NULL;
    }
    free(moved);
    return cut;
}

static void replace(struct stg_stage *stage, struct stg_cut *cut)
{
    struct stg_stage_cut *next = NULL;
    if (cut != NULL && !stg_cut_is_own(cut))
        next = calloc(1, sizeof(*next));
    if (next != NULL) {
        *next = (struct stg_stage_cut){
            .refs = 1, .number = ++stage->n_cuts, .cut = cut, .n_known = stage->n_joined};
        stg_log(STG_LOG_DEBUG, "pipeline %s: cut %" PRIu64 " from item %" PRIu64 " on",
                stage->config.name, next->number, stage->next_number);
    } else {
        stg_cut_destroy(cut);
    }
    stg_stage_cut_unref(stage->cut);
    stage->cut = next;
    stg_tune_forget(stage); /* an item takes as long as it does with this one */
}

/* Without clients, or without memory to make a better one, it is the pipeline's own. */
void stg_stage_recut(struct stg_stage *stage)
{
    const struct stg_cut_needs **needs = NULL;
    struct stg_cut *cut = NULL;
    if (stage->config.cuts == NULL || stage->stopping)
        return;
    size_t n = gather(stage, &needs);
    if (n > 0)
        cut = make_cut(stage, needs, n);
    free(needs);
    if (cut != NULL && stage->cut != NULL && stg_cut_same(cut, stage->cut->cut)) {
        stage->cut->n_known = stage->n_joined;
        stg_cut_destroy(cut);
    } else {
        replace(stage, cut);
    }
}

/* ---- for whom an item is ---- */

bool stg_client_may_have(const struct stg_stage *stage, const struct stg_client *client,
                         uint32_t extent)
{
    const struct stg_stage_cut *cut = stage->items[extent].cut;
    return cut == NULL || client->joined < cut->n_known ||
           stg_cut_suffices(cut->cut, client->needs);
}

bool stg_item_is_for_somebody(const struct stg_stage *stage, uint32_t extent)
{
    bool any = stage->n_attached == 0;
    for (const struct stg_client *c = stage->clients; c != NULL && !any; c = c->next)
        any = c->state != STG_CLIENT_DETACHED && stg_client_may_have(stage, c, extent);
    return any;
}

/* ---- for who chooses by measuring ---- */

void stg_stage_look_at_cuts(struct stg_stage *stage,
                            void (*look)(void *owner, const struct stg_cuts *cuts,
                                         const struct stg_cut_needs *const *needs,
                                         size_t n),
                            void *owner)
{
    const struct stg_cut_needs **needs = NULL;
    pthread_mutex_lock(&stage->lock);
    size_t n = stage->config.spec->smart_stage != STG_SMART_STAGE_OFF
                   ? gather(stage, &needs)
                   : 0;
    if (stage->config.cuts != NULL)
        look(owner, stage->config.cuts, needs, n);
    free(needs);
    pthread_mutex_unlock(&stage->lock);
}

static int check(const struct stg_stage *stage, const bool *moved, struct stg_err *err)
{
    const struct stg_cut_needs **needs = NULL;
    if (stage->config.cuts == NULL ||
        stage->config.spec->smart_stage != STG_SMART_STAGE_AUTO)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "the pipeline does not say smart_stage: auto");
    if (moved == NULL)
        return 0;
    size_t n = gather(stage, &needs);
    int rc = stg_cuts_check(stage->config.cuts, needs, n, moved, err);
    free(needs);
    return rc;
}

int stg_stage_set_cut(struct stg_stage *stage, const bool *moved, struct stg_err *err)
{
    pthread_mutex_lock(&stage->lock);
    int rc = check(stage, moved, err);
    size_t n = rc == 0 ? stg_cuts_n_nodes(stage->config.cuts) : 0;
    bool *chosen = rc == 0 && moved != NULL ? calloc(n + 1, sizeof(*chosen)) : NULL;
    if (rc == 0 && moved != NULL && chosen == NULL)
        rc = stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    if (rc == 0) {
        if (chosen != NULL)
            memcpy(chosen, moved, n * sizeof(*chosen));
        free(stage->chosen);
        stage->chosen = chosen;
        stg_stage_recut(stage);
    }
    pthread_mutex_unlock(&stage->lock);
    return rc;
}

uint64_t stg_stage_cut_number(struct stg_stage *stage)
{
    pthread_mutex_lock(&stage->lock);
    uint64_t number = stage->cut != NULL ? stage->cut->number : 0;
    pthread_mutex_unlock(&stage->lock);
    return number;
}

void stg_stage_show_cut(const struct stg_stage *stage, struct stg_bump *bump,
                        struct stg_pipeline_status *ret)
{
    ret->own_cuts = stage->n_own_cuts;
    if (stage->cut == NULL)
        return;
    ret->cut = stage->cut->number;
    const struct stg_cuts *cuts = stage->config.cuts;
    const bool *moved = stg_cut_moved(stage->cut->cut);
    size_t n_nodes = stg_cuts_n_nodes(cuts), n = 0;
    const char **names = stg_bump_alloc(bump, n_nodes * sizeof(*names));
    for (size_t i = 0; names != NULL && i < n_nodes; i++) {
        if (moved[i])
            names[n++] = stg_cuts_node(cuts, i);
    }
    ret->moved = names;
    ret->n_moved = n;
}
