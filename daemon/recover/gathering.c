/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/recover/gathering.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- life ---- */

int stg_gathering_create(const struct stg_gathering_rules *rules,
                         struct stg_run_record *record, struct stg_gathering **ret,
                         struct stg_err *err)
{
    struct stg_gathering *gathering = calloc(1, sizeof(*gathering));
    struct stg_gathered *members = calloc(record->n_members + 1, sizeof(*members));
    if (gathering == NULL || members == NULL) {
        free(gathering);
        free(members);
        stg_run_record_finish(record);
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    }
    gathering->rules = *rules;
    gathering->record = *record;
    gathering->members = members;
    record->vacant = NULL;
    record->members = NULL;
    for (size_t i = 0; i < gathering->record.n_members; i++) {
        if (gathering->record.members[i].is_late)
            members[i].state = STG_GATHERED_LATE;
    }
    *ret = gathering;
    return 0;
}

void stg_gathering_destroy(struct stg_gathering *gathering)
{
    if (gathering == NULL)
        return;
    for (size_t i = 0; i < gathering->record.n_members; i++)
        free(gathering->members[i].place);
    free(gathering->members);
    stg_run_record_finish(&gathering->record);
    free(gathering);
}

const char *stg_gathering_cause(const struct stg_gathering *gathering)
{
    return gathering->rules.follows ? "the pipeline was replaced"
                                    : "stagerd was started again";
}

/* ---- members ---- */

int stg_gathering_find(const struct stg_gathering *gathering, uint64_t run,
                       uint64_t member, uint32_t uid)
{
    const struct stg_run_record *record = &gathering->record;
    for (size_t i = 0; i < record->n_members; i++) {
        if ((record->run == run || gathering->rules.follows) &&
            record->members[i].member == member && record->members[i].uid == uid)
            return (int)i;
    }
    return -1;
}

int stg_gathering_arrive(struct stg_gathering *gathering, int member,
                         const struct stg_state *state, uint32_t max_in_flight,
                         struct stg_err *err)
{
    struct stg_gathered *gathered = &gathering->members[member];
    if (gathered->state == STG_GATHERED_LATE)
        return 0; /* the run has gone on without it: admit decides */
    struct stg_state *place = state != NULL ? malloc(sizeof(*place)) : NULL;
    if (state != NULL && place == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    if (place != NULL)
        *place = *state;
    free(gathered->place);
    gathered->place = place;
    gathered->max_in_flight = max_in_flight;
    gathered->state = STG_GATHERED_ARRIVED;
    return 0;
}

bool stg_gathering_lose(struct stg_gathering *gathering, int member)
{
    struct stg_gathered *gathered = &gathering->members[member];
    bool is_new = gathered->state != STG_GATHERED_GONE;
    /* What it had taken when it came stays taken. */
    if (is_new)
        gathered->state = STG_GATHERED_GONE;
    return is_new;
}

void stg_gathering_expire(struct stg_gathering *gathering)
{
    for (size_t i = 0; i < gathering->record.n_members; i++) {
        enum stg_gathered_state *state = &gathering->members[i].state;
        if (*state == STG_GATHERED_AWAITED ||
            (*state == STG_GATHERED_ARRIVED && gathering->state != STG_GATHERING_OPEN))
            *state = STG_GATHERED_LATE;
    }
}

uint32_t stg_gathering_count(const struct stg_gathering *gathering,
                             enum stg_gathered_state state)
{
    uint32_t n = 0;
    for (size_t i = 0; i < gathering->record.n_members; i++)
        n += gathering->members[i].state == state;
    return n;
}

void stg_gathering_name(const struct stg_gathering *gathering,
                        enum stg_gathered_state state, struct stg_err *err)
{
    for (size_t i = 0; i < gathering->record.n_members; i++) {
        const struct stg_run_member *member = &gathering->record.members[i];
        if (gathering->members[i].state == state)
            stg_err_append(err, err->code, " %s (pid %u)", member->client_id,
                           member->pid);
    }
}

uint32_t stg_gathering_max_in_flight(const struct stg_gathering *gathering)
{
    uint32_t most = 0;
    for (size_t i = 0; i < gathering->record.n_members; i++) {
        if (gathering->members[i].max_in_flight > most)
            most = gathering->members[i].max_in_flight;
    }
    return most;
}

/* ---- round_robin, broadcast: the earliest place ---- */

static bool is_before(const struct stg_state *a, const struct stg_state *b)
{
    if (a->pass != b->pass)
        return a->pass < b->pass;
    if (stg_place_is_before(&a->place, &b->place) ||
        stg_place_is_before(&b->place, &a->place))
        return stg_place_is_before(&a->place, &b->place);
    return a->rows != b->rows ? a->rows < b->rows : a->n_delivered < b->n_delivered;
}

static bool has_arrived(const struct stg_gathering *gathering, size_t i)
{
    return gathering->members[i].state == STG_GATHERED_ARRIVED;
}

/* Nothing of the pass was taken: no state is needed. */
static bool is_start(const struct stg_state *state)
{
    return state->place.elements == 0 && state->place.items == 0 &&
           state->place.passed == 0 && state->rows == 0 && state->n_delivered == 0 &&
           state->taken[0] == '\0';
}

static void begin_at_pass(struct stg_gathering *gathering, uint64_t pass)
{
    gathering->has_start = false;
    gathering->start = (struct stg_state){.pass = pass};
}

/* A client that ended before the run began may come back at its state, the earliest one:
 * the run begins where it would have begun. */
static const struct stg_state *find_origin(struct stg_gathering *gathering)
{
    const struct stg_run_record *record = &gathering->record;
    if (gathering->rules.delivery != STG_DELIVERY_BROADCAST || record->has_begun)
        return NULL;
    gathering->start = (struct stg_state){.pass = record->pass};
    return record->has_origin ? &record->origin : &gathering->start;
}

static void begin_at_earliest(struct stg_gathering *gathering)
{
    const struct stg_state *first = find_origin(gathering);
    for (size_t i = 0; i < gathering->record.n_members; i++) {
        const struct stg_state *place = gathering->members[i].place;
        if (has_arrived(gathering, i) && place != NULL &&
            (first == NULL || is_before(place, first)))
            first = place;
    }
    if (first == NULL || is_start(first)) {
        begin_at_pass(gathering, first != NULL ? first->pass : gathering->record.pass);
        return;
    }
    gathering->has_start = true;
    gathering->start = *first;
}

/* A rank that is missing, or that does not know what it has. */
static int check_ranks(struct stg_gathering *gathering)
{
    struct stg_err *err = &gathering->failure;
    for (size_t i = 0; i < gathering->record.n_members; i++) {
        const struct stg_run_member *member = &gathering->record.members[i];
        bool is_lost = has_arrived(gathering, i) && gathering->members[i].place == NULL &&
                       member->took_over;
        bool is_missing = !has_arrived(gathering, i) && gathering->record.has_begun;
        if (is_missing)
            return stg_err(
                err, -STAGER_ABORTED,
                "%s, and round_robin cannot go on without rank %u, client %s (pid %u): "
                "%s",
                stg_gathering_cause(gathering), member->rank, member->client_id,
                member->pid,
                gathering->members[i].state == STG_GATHERED_GONE
                    ? "its process ended"
                    : "its process did not ask for a batch in time");
        if (is_lost)
            return stg_err(err, -STAGER_ABORTED,
                           "%s before rank %u, client %s (pid %u), which had come back "
                           "in the middle of the pass, got its first batch: its "
                           "position is not known",
                           stg_gathering_cause(gathering), member->rank,
                           member->client_id, member->pid);
    }
    return 0;
}

/* ---- split: all that was taken ---- */

/* Reads what a client has of the pass of its state; all before its place, if it is the
 * only one. */
static int read_taken(const struct stg_state *state, struct stg_taken *ret,
                      struct stg_err *err)
{
    int rc = stg_taken_read(state->taken, ret, err);
    if (rc == 0 && state->consumer == 0)
        rc = stg_taken_add(ret, 0, state->place.items, err);
    return rc;
}

static int unite(const struct stg_gathering *gathering, uint64_t pass,
                 struct stg_taken *ret, struct stg_err *err)
{
    const struct stg_run_record *record = &gathering->record;
    size_t n = record->n_members;
    struct stg_taken *sets = calloc(n + 1, sizeof(*sets));
    int rc = sets != NULL ? 0 : stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (size_t i = 0; rc == 0 && i < n; i++) {
        /* One that came and whose process ended then has taken what it said. */
        const struct stg_state *place = gathering->members[i].place;
        const char *known = record->members[i].acknowledged;
        if (place != NULL && place->pass == pass)
            rc = read_taken(place, &sets[i], err);
        else if (place == NULL && known != NULL && record->numbers_pass == pass)
            rc = stg_taken_read(known, &sets[i], err);
    }
    if (rc == 0 && record->numbers_pass == pass)
        rc = stg_taken_read(record->left, &sets[n], err);
    if (rc == 0)
        rc = stg_taken_unite(sets, n + 1, ret, err);
    for (size_t i = 0; sets != NULL && i <= n; i++)
        stg_taken_finish(&sets[i]);
    free(sets);
    return rc;
}

/* A pass ends for all clients at once: a later one begins only when it has ended. */
static uint64_t find_pass(const struct stg_gathering *gathering)
{
    uint64_t pass = gathering->record.pass;
    for (size_t i = 0; i < gathering->record.n_members; i++) {
        const struct stg_state *place = gathering->members[i].place;
        if (place != NULL && place->pass > pass)
            pass = place->pass;
    }
    return pass;
}

static void use_place(const struct stg_pass_place *place, uint64_t first_left,
                      struct stg_state *start)
{
    if (place->items <= first_left && place->items > start->place.items)
        start->place = *place;
}

/* The last known place that has every item that is left behind it. */
static void find_place(const struct stg_gathering *gathering, uint64_t first_left,
                       struct stg_state *start)
{
    const struct stg_run_record *record = &gathering->record;
    if (record->has_origin && record->origin.pass == start->pass) {
        use_place(&record->origin.place, first_left, start);
        start->data = record->origin.data;
    }
    for (size_t i = 0; i < record->n_members; i++) {
        const struct stg_state *place = gathering->members[i].place;
        if (place == NULL || place->pass != start->pass)
            continue;
        use_place(&place->start, first_left, start);
        use_place(&place->place, first_left, start);
        if (start->data.n_files == 0)
            start->data = place->data;
    }
}

/* The only client of a split, which is between two error items, or slices of a batch. */
static void take_rest(const struct stg_gathering *gathering, struct stg_state *start)
{
    for (size_t i = 0; i < gathering->record.n_members; i++) {
        const struct stg_state *place = gathering->members[i].place;
        if (place == NULL || place->consumer != 0 || place->pass != start->pass ||
            stg_place_is_before(&place->place, &start->place) ||
            place->place.items != start->place.items)
            continue;
        start->place = place->place; /* with elements that an error passed */
        start->rows = place->rows;
        start->n_delivered = place->n_delivered;
        start->ranks = place->ranks;
    }
}

static const struct stg_state *find_any(const struct stg_gathering *gathering)
{
    const struct stg_state *any = NULL;
    for (size_t i = 0; i < gathering->record.n_members; i++)
        any = gathering->members[i].place != NULL ? gathering->members[i].place : any;
    return any;
}

static int begin_at_rest(struct stg_gathering *gathering)
{
    struct stg_taken taken = {0};
    struct stg_err *err = &gathering->failure;
    struct stg_state *start = &gathering->start;
    const struct stg_state *any = find_any(gathering);
    *start = (struct stg_state){.order = STG_ORDER_VERSION,
                                .pass = find_pass(gathering),
                                .run = gathering->record.run,
                                .batch = gathering->rules.batch_size,
                                .consumers = 1};
    if (any != NULL)
        memcpy(start->steps, any->steps, sizeof(start->steps));
    int rc = unite(gathering, start->pass, &taken, err);
    if (rc == 0)
        rc = stg_taken_write(&taken, start->taken, err);
    if (rc == 0)
        find_place(gathering, stg_taken_first_left(&taken), start);
    if (rc == 0 && taken.end <= start->place.items) { /* the place is enough */
        start->consumers = start->run = start->batch = 0;
        memset(start->taken, 0, sizeof(start->taken));
    }
    stg_taken_finish(&taken);
    if (rc < 0)
        return stg_err_prefix(err, -STAGER_ABORTED, "%s, and the run cannot go on",
                              stg_gathering_cause(gathering));
    take_rest(gathering, start);
    gathering->has_start = !is_start(start);
    if (!gathering->has_start)
        begin_at_pass(gathering, start->pass);
    return 0;
}

/* ---- beginning ---- */

static int begin(struct stg_gathering *gathering)
{
    struct stg_err *err = &gathering->failure;
    if (gathering->rules.delivery == STG_DELIVERY_SPLIT) {
        if (gathering->record.is_full)
            return stg_err(err, -STAGER_ABORTED,
                           "%s, and clients that left before had taken their items in "
                           "no order: which ones are left is not known",
                           stg_gathering_cause(gathering));
        return begin_at_rest(gathering);
    }
    int rc = gathering->rules.delivery == STG_DELIVERY_ROUND_ROBIN
                 ? check_ranks(gathering)
                 : 0;
    if (rc == 0)
        begin_at_earliest(gathering);
    return rc;
}

int stg_gathering_begin(struct stg_gathering *gathering)
{
    if (gathering->state != STG_GATHERING_OPEN)
        return gathering->failure.code;
    bool is_ranked = gathering->rules.delivery == STG_DELIVERY_ROUND_ROBIN;
    bool is_broken = is_ranked && gathering->record.has_begun &&
                     stg_gathering_count(gathering, STG_GATHERED_GONE) > 0;
    if (stg_gathering_count(gathering, STG_GATHERED_AWAITED) > 0 && !is_broken)
        return 1;
    int rc = is_broken || stg_gathering_count(gathering, STG_GATHERED_ARRIVED) > 0
                 ? begin(gathering)
                 : stg_err(&gathering->failure, -STAGER_ABORTED,
                           "%s, and no client came back in time",
                           stg_gathering_cause(gathering));
    gathering->state = rc < 0 ? STG_GATHERING_FAILED : STG_GATHERING_BEGUN;
    return rc;
}

void stg_gathering_fail(struct stg_gathering *gathering, const struct stg_err *err)
{
    gathering->state = STG_GATHERING_FAILED;
    gathering->failure = *err;
}

void stg_gathering_replace(struct stg_gathering *gathering)
{
    if (gathering->state == STG_GATHERING_FAILED)
        return;
    gathering->state = STG_GATHERING_REPLACED;
    stg_err(&gathering->failure, -STAGER_ABORTED,
            "%s, and another run has begun since: the stream came back too late",
            stg_gathering_cause(gathering));
}

/* ---- members that come when the run has begun ---- */

/* Returns whether the start of the run has all that the state has. */
static bool is_within(const struct stg_state *state, const struct stg_state *start)
{
    struct stg_taken sets[2] = {{0}}, all = {0};
    char before[STG_TAKEN_TEXT_BYTES], after[STG_TAKEN_TEXT_BYTES];
    bool ok = read_taken(start, &sets[0], NULL) == 0 &&
              read_taken(state, &sets[1], NULL) == 0 &&
              stg_taken_unite(sets, 2, &all, NULL) == 0 &&
              stg_taken_write(&sets[0], before, NULL) == 0 &&
              stg_taken_write(&all, after, NULL) == 0 && strcmp(before, after) == 0;
    stg_taken_finish(&sets[0]);
    stg_taken_finish(&sets[1]);
    stg_taken_finish(&all);
    return ok;
}

static bool has_items(const struct stg_state *state)
{
    return state->taken[0] != '\0' || (state->consumer == 0 && state->place.items > 0);
}

int stg_gathering_admit(const struct stg_gathering *gathering, int member,
                        const struct stg_state *state, struct stg_err *err)
{
    enum stg_gathered_state gathered = gathering->members[member].state;
    const struct stg_run_member *m = &gathering->record.members[member];
    enum stg_delivery delivery = gathering->rules.delivery;
    if (gathering->failure.code != 0) {
        *err = gathering->failure;
        return err->code;
    }
    if (state == NULL && m->took_over && delivery == STG_DELIVERY_BROADCAST)
        return stg_err(err, -STAGER_ABORTED,
                       "%s before client %s, which had come back in the middle of the "
                       "pass, got its first batch: its position is not known",
                       stg_gathering_cause(gathering), m->client_id);
    if (gathered == STG_GATHERED_ARRIVED || delivery == STG_DELIVERY_BROADCAST)
        return 0;
    /* Late since an earlier restart: its items may have been delivered again by then. */
    bool is_in_pass = state != NULL && state->pass == gathering->start.pass;
    bool has_lost = (state != NULL && state->pass > gathering->start.pass) ||
                    (is_in_pass && !is_within(state, &gathering->start)) ||
                    (is_in_pass && m->is_late && has_items(state));
    if (delivery == STG_DELIVERY_SPLIT && !has_lost)
        return 0; /* none of its items was delivered again */
    return stg_err(err, -STAGER_ABORTED,
                   "%s, and client %s came back too late: the others went on without it, "
                   "with its batches",
                   stg_gathering_cause(gathering), m->client_id);
}
