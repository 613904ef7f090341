/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/stage/partition.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/priv.h"

/* ---- what clients need ---- */

int stg_needs_read(const struct stg_request *request,
                   const struct stg_partitions *partitions,
                   struct stg_partition_needs **ret, struct stg_err *err)
{
    struct stg_partition_wanted wanted = {
        .has_fields = request->has_fields,
        .fields = request->fields,
        .n_fields = request->n_fields,
        .has_fetches = request->has_fetches,
        .fetches = request->fetches,
        .n_fetches = request->n_fetches,
        .in_slices = request->batch_size != 0,
        .unsupported = request->unsupported,
        .n_unsupported = request->n_unsupported,
    };
    return stg_partition_needs_create(partitions, &wanted, ret, err);
}

static bool counts(const struct stg_client *client)
{
    return stg_client_takes_part(client) && client->needs != NULL;
}

/* Returns how many; *ret is the caller's to free, NULL: none, or out of memory. It has
 * room for one more. */
static size_t gather(const struct stg_stage *stage, const struct stg_client *but,
                     const struct stg_partition_needs ***ret)
{
    size_t n = 0;
    for (const struct stg_client *c = stage->members.clients; c != NULL; c = c->next)
        n += counts(c) && c != but;
    *ret = calloc(n + 1, sizeof(**ret));
    n = 0;
    for (const struct stg_client *c = stage->members.clients; *ret != NULL && c != NULL;
         c = c->next) {
        if (counts(c) && c != but)
            (*ret)[n++] = c->needs;
    }
    return n;
}

/* A client that joins later needs all features in what is made from now on. No client can
 * join while every place is taken. */
static bool must_be_wide(const struct stg_stage *stage)
{
    uint32_t taken =
        stage->members.n_attached + (stage->policy->together ? stage->members.n_away : 0);
    return stage->staged->keep_warm || taken < stage->config.num_clients;
}

/* ---- which clients may be attached together ---- */

/* How large a batch gets for all of them. */
static int find_bytes(const struct stg_partitions *partitions,
                      const struct stg_partition_needs *const *needs, size_t n,
                      uint64_t *ret, struct stg_err *err)
{
    struct stg_partition *partition = NULL;
    bool *moved = calloc(stg_partitions_n_nodes(partitions) + 1, sizeof(*moved));
    if (moved == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    stg_partitions_least(partitions, needs, n, moved);
    int rc = stg_partition_create(partitions, needs, n, moved, true, &partition, err);
    free(moved);
    if (rc < 0)
        return rc;
    *ret = stg_partition_batch_bytes(partition);
    stg_partition_destroy(partition);
    return 0;
}

static int check_size(const struct stg_stage *stage,
                      const struct stg_partition_needs *more,
                      const struct stg_client *back, struct stg_err *err)
{
    const struct stg_partitions *partitions = stage->config.partitions;
    const struct stg_partition_needs **needs;
    uint64_t bytes = 0;
    bool is_ahead = false;
    int rc = 0;
    size_t n = gather(stage, back, &needs);
    if (needs == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    needs[n++] = more;
    for (size_t i = 0; i < n; i++)
        is_ahead |= stg_partition_needs_ahead(partitions, needs[i]);
    if (is_ahead)
        rc = find_bytes(partitions, needs, n, &bytes, err);
    free(needs);
    if (rc < 0 || bytes <= stage->plan.max_batch_bytes)
        return rc;
    rc = stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                 "batches with the tensors that the trainers' libstager-compute cannot "
                 "compute have %" PRIu64 " bytes, and max_batch_bytes is %" PRIu64
                 ": install the release of stagerd for the trainers, or ",
                 bytes, stage->plan.max_batch_bytes);
    if (err != NULL)
        stg_stage_advise_batch(stage, bytes, err);
    return rc;
}

int stg_needs_check(const struct stg_stage *stage,
                    const struct stg_partition_needs *needs,
                    const struct stg_client *back, struct stg_err *err)
{
    const struct stg_partitions *partitions = stage->config.partitions;
    int rc = 0;
    if (partitions == NULL)
        return 0;
    for (const struct stg_client *c = stage->members.clients; rc == 0 && c != NULL;
         c = c->next) {
        if (!counts(c) || c == back)
            continue;
        rc = stg_partition_needs_agree(partitions, needs, c->needs, err);
        if (rc == 0)
            rc = stg_partition_needs_agree(partitions, c->needs, needs, err);
        if (rc < 0)
            stg_err_prefix(err, rc, "this trainer and client %s of pipeline %s",
                           c->client_id, stage->config.name);
    }
    return rc == 0 ? check_size(stage, needs, back, err) : rc;
}

/* ---- choosing ---- */

/* While a partition is made. */
struct choice {
    const struct stg_stage *stage;
    const struct stg_partition_needs *const *needs;
    size_t n;
    const bool *chosen;  /* by smart_stage: auto; NULL: none */
    bool *moved, *least; /* one a node that may move */
    bool has_least;
};

/* Of the nodes that were chosen, those that may move for these clients; and those that
 * have to. */
static void choose(struct choice *choice)
{
    const struct stg_stage *stage = choice->stage;
    const struct stg_partitions *partitions = stage->config.partitions;
    enum stg_smart_stage mode = stage->config.spec->smart_stage;
    bool is_auto = mode == STG_SMART_STAGE_AUTO;
    stg_partitions_least(partitions, choice->needs, choice->n, choice->least);
    stg_partitions_largest(partitions, choice->needs, choice->n, choice->moved);
    for (size_t i = 0; i < stg_partitions_n_nodes(partitions); i++) {
        bool is_chosen = is_auto ? choice->chosen != NULL && choice->chosen[i]
                                 : mode == STG_SMART_STAGE_ON;
        choice->moved[i] = choice->least[i] || (choice->moved[i] && is_chosen);
        choice->has_least |= choice->least[i];
    }
}

/* NULL: it is the pipeline's own, or there is no memory for it, or a batch would be too
 * large. */
static struct stg_stage_partition *make_partition(const struct choice *choice,
                                                  const bool *moved)
{
    const struct stg_stage *stage = choice->stage;
    struct stg_stage_partition *made = calloc(1, sizeof(*made));
    struct stg_partition *partition = NULL;
    int rc = stg_partition_create(stage->config.partitions, choice->needs, choice->n,
                                  moved, must_be_wide(stage), &partition, NULL);
    if (made == NULL || rc < 0 || stg_partition_is_own(partition) ||
        stg_partition_batch_bytes(partition) > stage->plan.max_batch_bytes) {
        stg_partition_destroy(partition);
        free(made);
        return NULL;
    }
    *made = (struct stg_stage_partition){
        .refs = 1, .partition = partition, .is_least = moved == choice->least};
    return made;
}

/* As `moved`, and with what it falls back on. */
static struct stg_stage_partition *make_partitions(const struct choice *choice)
{
    size_t bytes =
        stg_partitions_n_nodes(choice->stage->config.partitions) * sizeof(*choice->moved);
    if (!choice->has_least)
        return make_partition(choice, choice->moved);
    struct stg_stage_partition *least = make_partition(choice, choice->least);
    if (least == NULL || memcmp(choice->moved, choice->least, bytes) == 0)
        return least;
    struct stg_stage_partition *partition = make_partition(choice, choice->moved);
    if (partition == NULL)
        return least;
    partition->least = least;
    return partition;
}

static struct stg_stage_partition *find_partition(
    const struct stg_stage *stage, const struct stg_partition_needs *const *needs,
    size_t n, const bool *chosen)
{
    size_t n_nodes = stg_partitions_n_nodes(stage->config.partitions);
    struct choice choice = {.stage = stage, .needs = needs, .n = n, .chosen = chosen};
    struct stg_stage_partition *partition = NULL;
    choice.moved = calloc(2 * n_nodes + 1, sizeof(*choice.moved));
    if (choice.moved == NULL)
        return NULL;
    choice.least = choice.moved + n_nodes;
    choose(&choice);
    partition = make_partitions(&choice);
    free(choice.moved);
    return partition;
}

static bool same(const struct stg_stage_partition *a, const struct stg_stage_partition *b)
{
    if (a == NULL || b == NULL)
        return a == b;
    return a->is_least == b->is_least && stg_partition_same(a->partition, b->partition) &&
           same(a->least, b->least);
}

/* NULL is allowed. */
static void number(struct stg_stage *stage, struct stg_stage_partition *partition)
{
    for (; partition != NULL; partition = partition->least) {
        partition->number = ++stage->boundary.n_partitions;
        partition->n_known = stage->members.n_joined;
    }
}

static void replace(struct stg_stage *stage, struct stg_stage_partition *next)
{
    number(stage, next);
    if (next != NULL)
        stg_stage_log(stage, STG_LOG_DEBUG,
                      "pipeline %s: partition %" PRIu64 " from item %" PRIu64 " on",
                      stage->config.name, next->number, stage->pass.next_number);
    stg_stage_partition_unref(stage->boundary.partition);
    stage->boundary.partition = next;
    stage->effects.events.has_changed = true; /* items take another time with it */
}

static struct stg_stage_partition *find_for_all(const struct stg_stage *stage,
                                                const bool *chosen)
{
    const struct stg_partition_needs **needs = NULL;
    size_t n = gather(stage, NULL, &needs);
    struct stg_stage_partition *partition =
        n > 0 ? find_partition(stage, needs, n, chosen) : NULL;
    free(needs);
    return partition;
}

static void end_trial(struct stg_stage *stage)
{
    stg_stage_partition_unref(stage->boundary.trial);
    stage->boundary.trial = NULL;
    stage->boundary.has_trial = false;
}

/* Without clients, or without memory to make a better one, it is the pipeline's own. */
void stg_stage_recut(struct stg_stage *stage)
{
    if (stage->config.partitions == NULL || stage->stop.is_on)
        return;
    end_trial(stage);
    struct stg_stage_partition *partition = find_for_all(stage, stage->boundary.chosen);
    if (partition == NULL || !same(partition, stage->boundary.partition)) {
        replace(stage, partition);
        return;
    }
    stage->boundary.partition->n_known = stage->members.n_joined;
    if (stage->boundary.partition->least != NULL)
        stage->boundary.partition->least->n_known = stage->members.n_joined;
    stg_stage_partition_unref(partition);
}

/* ---- a partition that is proposed ---- */

/* moved: one bool a node; those that have to run ahead are added. */
static int check(const struct stg_stage *stage, bool *moved, struct stg_err *err)
{
    const struct stg_partitions *partitions = stage->config.partitions;
    const struct stg_partition_needs **needs = NULL;
    bool *least = calloc(stg_partitions_n_nodes(partitions) + 1, sizeof(*least));
    if (least == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    size_t n = gather(stage, NULL, &needs);
    stg_partitions_least(partitions, needs, n, least);
    for (size_t i = 0; i < stg_partitions_n_nodes(partitions); i++)
        moved[i] = moved[i] || least[i];
    int rc = stg_partitions_check(partitions, needs, n, moved, err);
    free(needs);
    free(least);
    return rc;
}

static int copy_checked(const struct stg_stage *stage, const bool *moved, bool **ret,
                        struct stg_err *err)
{
    if (stage->config.partitions == NULL ||
        stage->config.spec->smart_stage != STG_SMART_STAGE_AUTO)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "the pipeline does not set smart_stage: auto");
    if (moved == NULL)
        return 0;
    size_t n = stg_partitions_n_nodes(stage->config.partitions);
    bool *copy = calloc(n + 1, sizeof(*copy));
    if (copy == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    memcpy(copy, moved, n * sizeof(*copy));
    int rc = check(stage, copy, err);
    if (rc < 0)
        free(copy);
    else
        *ret = copy;
    return rc;
}

int stg_stage_set_partition(struct stg_stage *stage, const bool *moved,
                            struct stg_err *err)
{
    bool *chosen = NULL;
    int rc = copy_checked(stage, moved, &chosen, err);
    if (rc < 0)
        return rc;
    free(stage->boundary.chosen);
    stage->boundary.chosen = chosen;
    stg_stage_recut(stage);
    return 0;
}

/* ---- smart_stage: auto ---- */

/* Items in runners' hands, in the buffer, and in the clients'. */
static uint32_t count_ahead(const struct stg_stage *stage)
{
    uint32_t n =
        stage->runners.n_active + stage->buffer.capacity * stage->buffer.round_items;
    for (const struct stg_client *c = stage->members.clients; c != NULL; c = c->next)
        n += c->state == STG_CLIENT_ATTACHED ? c->max_in_flight : 0;
    return n;
}

static struct stg_smart_view see_trials(const struct stg_stage *stage)
{
    return (struct stg_smart_view){
        .now_ns = stg_now_ns(),
        .n_taken = stage->buffer.first,
        .n_changes = stage->members.n_changes,
        .n_ahead = count_ahead(stage),
        .is_running = stage->pass.state != STG_PASS_NONE &&
                      stage->members.n_attached > 0 && stage->pass.failure.code == 0,
        .is_tuning = stg_tune_in_trial(&stage->observers.tune),
    };
}

static void show_load(struct stg_stage *stage)
{
    const struct stg_stage_partition *partition = stage->boundary.partition;
    const struct stg_partition_needs **needs;
    stg_stage_measure(stage);
    struct stg_partition_load seen = {
        .measure = stage->observers.measure,
        .n_needs = gather(stage, NULL, &needs),
        .moved = partition != NULL ? stg_partition_moved(partition->partition) : NULL,
        .n_clients = stage->members.n_attached,
        .shares = stage->config.delivery != STG_DELIVERY_BROADCAST,
    };
    seen.needs = needs;
    seen.n_needs = needs != NULL ? seen.n_needs : 0;
    stg_partitioner_load(stage->observers.partitioner, &seen);
    free(needs);
}

static void plan(struct stg_stage *stage)
{
    struct stg_partitioner *p = stage->observers.partitioner;
    stg_partitioner_search(p);
    pthread_mutex_lock(&stage->lock);
    stg_partitioner_plan(p, stg_now_ns());
    pthread_mutex_unlock(&stage->lock);
}

/* It begins anew once trainers that came meanwhile need something else. */
static void use_proposal(struct stg_stage *stage, const bool *moved)
{
    struct stg_partitioner *p = stage->observers.partitioner;
    struct stg_err err = {0};
    if (stg_stage_set_partition(stage, moved, &err) == 0) {
        stg_partitioner_accepted(p);
        return;
    }
    stg_partitioner_refused(p, stg_now_ns(), err.text);
    stg_stage_set_partition(stage, NULL, &err);
}

/* Made once for each challenger: to change between the two takes no time then. */
static void use_trial(struct stg_stage *stage)
{
    struct stg_partitioner *p = stage->observers.partitioner;
    const bool *moved;
    bool tries = stg_partitioner_tries(p, &moved);
    if (tries && stage->boundary.has_trial && stg_partitioner_has_accepted(p))
        return;
    end_trial(stage);
    stage->boundary.has_trial = tries;
    if (tries)
        stage->boundary.trial = find_for_all(stage, moved);
    number(stage, stage->boundary.trial);
    stg_partitioner_accepted_trial(p);
}

static void apply_partition(struct stg_stage *stage)
{
    struct stg_partitioner *p = stage->observers.partitioner;
    const bool *moved;
    pthread_mutex_lock(&stage->lock);
    if (stg_partitioner_proposes(p, &moved))
        use_proposal(stage, moved);
    use_trial(stage);
    bool is_trying = stg_partitioner_in_trial(p);
    stg_stage_commit(stage);
    stg_tuning_hold(stage->observers.tune.log, is_trying);
}

int stg_stage_choose_partition(struct stg_stage *stage)
{
    struct stg_partitioner *p = stage->observers.partitioner;
    bool plans = false;
    int millis = -1;
    if (p == NULL)
        return -1;
    stg_partitioner_poll(p, stg_now_ns());
    pthread_mutex_lock(&stage->lock);
    bool is_over = stage->observers.measure == NULL || stage->stop.is_on;
    if (!is_over) {
        struct stg_smart_view view = see_trials(stage);
        millis = stg_partitioner_tick(p, &view, stage->observers.measure);
        plans = stg_partitioner_wants_plan(p);
    }
    if (plans)
        show_load(stage);
    pthread_mutex_unlock(&stage->lock);
    if (is_over)
        return -1;
    if (plans)
        plan(stage);
    apply_partition(stage);
    return millis;
}

/* Clients that join get of it what may move for them. */
static bool begin_with_prior(struct stg_stage *stage)
{
    const bool *moved;
    size_t n = stg_partitions_n_nodes(stage->config.partitions);
    if (!stg_partitioner_proposes(stage->observers.partitioner, &moved))
        return true;
    stage->boundary.chosen = calloc(n + 1, sizeof(*moved));
    if (stage->boundary.chosen == NULL)
        return false;
    memcpy(stage->boundary.chosen, moved, n * sizeof(*moved));
    stg_partitioner_accepted(stage->observers.partitioner);
    return true;
}

int stg_stage_init_choice(struct stg_stage *stage, struct stg_err *err)
{
    const struct stg_stage_config *config = &stage->config;
    struct stg_observers *observers = &stage->observers;
    if (config->partitions == NULL || config->spec->smart_stage != STG_SMART_STAGE_AUTO)
        return 0;
    observers->partitioner =
        stg_partitioner_create(config->partitions, stage->plan.max_batch_bytes,
                               config->prior, &observers->measure->decisions);
    return observers->partitioner != NULL && begin_with_prior(stage)
               ? 0
               : stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
}

struct stg_stage_partition *stg_stage_pull_partition(struct stg_stage *stage,
                                                     uint32_t *ret_tag)
{
    struct stg_boundary *boundary = &stage->boundary;
    bool is_challengers = false;
    *ret_tag = 0;
    if (boundary->has_trial)
        is_challengers =
            stg_partitioner_pull(stage->observers.partitioner, stg_now_ns(), ret_tag);
    return stg_stage_partition_ref(is_challengers ? boundary->trial
                                                  : boundary->partition);
}

bool stg_stage_take_prior(struct stg_stage *stage, struct stg_prior *ret)
{
    const bool *moved;
    size_t n = stage->config.partitions != NULL
                   ? stg_partitions_n_nodes(stage->config.partitions)
                   : 0;
    *ret = (struct stg_prior){.n_nodes = n};
    if (stage->observers.partitioner == NULL || n == 0)
        return false;
    pthread_mutex_lock(&stage->lock);
    bool has =
        stg_partitioner_has_prior(stage->observers.partitioner, &moved, &ret->gain);
    if (has && moved != NULL)
        ret->moved = malloc(n * sizeof(*moved));
    if (ret->moved != NULL)
        memcpy(ret->moved, moved, n * sizeof(*moved));
    has = has && (moved == NULL || ret->moved != NULL);
    pthread_mutex_unlock(&stage->lock);
    return has;
}

void stg_stage_finish_choice(struct stg_stage *stage)
{
    if (stage->observers.partitioner == NULL)
        return;
    stg_tuning_hold(stage->observers.tune.log, false);
    stg_partitioner_destroy(stage->observers.partitioner);
}

/* ---- reports ---- */

void stg_stage_show_partition(const struct stg_stage *stage, struct stg_bump *bump,
                              struct stg_pipeline_status *ret)
{
    ret->own_partitions = stage->boundary.n_own_partitions;
    if (stage->boundary.partition == NULL)
        return;
    ret->partition = stage->boundary.partition->number;
    const struct stg_partitions *partitions = stage->config.partitions;
    const bool *moved = stg_partition_moved(stage->boundary.partition->partition);
    size_t n_nodes = stg_partitions_n_nodes(partitions), n = 0;
    const char **names = stg_bump_alloc(bump, n_nodes * sizeof(*names));
    for (size_t i = 0; names != NULL && i < n_nodes; i++) {
        if (moved[i])
            names[n++] = stg_partitions_node(partitions, i);
    }
    ret->moved = names;
    ret->n_moved = n;
}
