/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a run begins again after a restart: members, states and what clients that left
 * had in, the start out. A model of a split deals items at random, and is killed at
 * random: no item that is left is missing, and none that was taken is dealt again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/random.h"
#include "daemon/recover/gathering.h"
#include "tests/check.h"
#include "tests/failalloc.h"

#define MAX 8
#define UID 7u
#define RUN 4711u

static const struct stg_gathering_rules split = {STG_DELIVERY_SPLIT, MAX, 16};
static const struct stg_gathering_rules rounds = {STG_DELIVERY_ROUND_ROBIN, MAX, 16};
static const struct stg_gathering_rules broadcast = {STG_DELIVERY_BROADCAST, MAX, 16};

static struct stg_run_record *make_record(size_t n)
{
    static struct stg_run_record record;
    memset(&record, 0, sizeof(record));
    record.run = RUN;
    record.has_begun = true;
    record.n_members = n;
    record.members = calloc(n + 1, sizeof(record.members[0]));
    for (size_t i = 0; i < n; i++) {
        struct stg_run_member *member = &record.members[i];
        *member = (struct stg_run_member){.member = 100 + i,
                                          .uid = UID,
                                          .pid = 1000 + (uint32_t)i,
                                          .rank = (uint32_t)i,
                                          .consumer = (uint32_t)i + 1};
        snprintf(member->client_id, sizeof(member->client_id), "client%zu", i);
    }
    return &record;
}

static struct stg_gathering *make(const struct stg_gathering_rules *rules,
                                  struct stg_run_record *record)
{
    struct stg_err err = {0};
    struct stg_gathering *gathering;
    CHECK_OK(stg_gathering_create(rules, record, &gathering, &err), err);
    return gathering;
}

/* A state of a rank, or a client of a broadcast, after so many items of 16 elements. */
static struct stg_state *at(uint64_t pass, uint64_t items)
{
    static struct stg_state state;
    state = (struct stg_state){.steps = "range:1",
                               .order = STG_ORDER_VERSION,
                               .pass = pass,
                               .place = {.items = items, .elements = 16 * items}};
    return &state;
}

static void arrive(struct stg_gathering *gathering, int i, const struct stg_state *state)
{
    struct stg_err err = {0};
    CHECK_OK(stg_gathering_arrive(gathering, i, state, 2 + (uint32_t)i, &err), err);
}

/* ---- members ---- */

static void a_member_is_found_by_run_number_and_user(void)
{
    struct stg_gathering *gathering = make(&split, make_record(3));
    CHECK_INT(stg_gathering_find(gathering, RUN, 101, UID), 1);
    CHECK_INT(stg_gathering_find(gathering, RUN + 1, 101, UID), -1);
    CHECK_INT(stg_gathering_find(gathering, RUN, 103, UID), -1);
    CHECK_INT(stg_gathering_find(gathering, RUN, 101, UID + 1), -1);
    stg_gathering_destroy(gathering);
}

static void it_begins_when_each_member_came_or_ended(void)
{
    struct stg_gathering *gathering = make(&broadcast, make_record(3));
    struct stg_err err = {0};
    arrive(gathering, 0, at(2, 8));
    CHECK_INT(stg_gathering_begin(gathering), 1);
    stg_gathering_name(gathering, STG_GATHERED_AWAITED, &err);
    CHECK_STR(err.text, " client1 (pid 1001) client2 (pid 1002)");
    CHECK(stg_gathering_lose(gathering, 1));
    CHECK(!stg_gathering_lose(gathering, 1));
    CHECK_INT(stg_gathering_begin(gathering), 1);
    arrive(gathering, 2, at(2, 6));
    CHECK_INT(stg_gathering_begin(gathering), 0);
    CHECK_INT(gathering->state, STG_GATHERING_BEGUN);
    CHECK(gathering->has_start);
    CHECK_INT(gathering->start.place.items, 6);
    CHECK_INT(stg_gathering_max_in_flight(gathering), 4);
    stg_gathering_destroy(gathering);
}

static void members_that_do_not_come_in_time_are_late(void)
{
    struct stg_gathering *gathering = make(&broadcast, make_record(2));
    arrive(gathering, 0, at(0, 3));
    stg_gathering_expire(gathering);
    CHECK_INT(stg_gathering_begin(gathering), 0);
    CHECK_INT(gathering->members[1].state, STG_GATHERED_LATE);
    CHECK_INT(stg_gathering_admit(gathering, 1, at(0, 1), NULL), 0); /* B: with a state */
    stg_gathering_destroy(gathering);
}

static void without_a_member_in_time_the_run_is_over(void)
{
    struct stg_gathering *gathering = make(&split, make_record(2));
    struct stg_err err = {0};
    stg_gathering_expire(gathering);
    CHECK_INT(stg_gathering_begin(gathering), -STAGER_ABORTED);
    CHECK_INT(stg_gathering_admit(gathering, 1, NULL, &err), -STAGER_ABORTED);
    CHECK_CONTAINS(err.text, "no client came back in time");
    stg_gathering_destroy(gathering);
}

static void another_run_ends_the_gathering(void)
{
    struct stg_gathering *gathering = make(&split, make_record(1));
    struct stg_err err = {0};
    arrive(gathering, 0, at(0, 3));
    CHECK_INT(stg_gathering_begin(gathering), 0);
    stg_gathering_replace(gathering);
    CHECK_INT(stg_gathering_admit(gathering, 0, at(0, 3), &err), -STAGER_ABORTED);
    CHECK_CONTAINS(err.text, "another run has begun since");
    stg_gathering_destroy(gathering);
}

/* ---- round_robin, broadcast ---- */

static void ranks_begin_at_the_earliest_place(void)
{
    struct stg_gathering *gathering = make(&rounds, make_record(3));
    arrive(gathering, 0, at(3, 0));
    arrive(gathering, 1, at(2, 12));
    arrive(gathering, 2, at(2, 15));
    CHECK_INT(stg_gathering_begin(gathering), 0);
    CHECK(gathering->has_start);
    CHECK_INT(gathering->start.pass, 2);
    CHECK_INT(gathering->start.place.items, 12);
    stg_gathering_destroy(gathering);
}

static void of_equal_places_the_one_with_fewer_error_items_is_the_earlier(void)
{
    struct stg_gathering *gathering = make(&rounds, make_record(2));
    struct stg_state state = *at(0, 6);
    state.n_delivered = 2;
    arrive(gathering, 0, &state);
    state.n_delivered = 1;
    arrive(gathering, 1, &state);
    CHECK_INT(stg_gathering_begin(gathering), 0);
    CHECK_INT(gathering->start.n_delivered, 1);
    stg_gathering_destroy(gathering);
}

static void at_the_start_of_a_pass_no_state_is_needed(void)
{
    struct stg_gathering *gathering = make(&rounds, make_record(2));
    arrive(gathering, 0, at(5, 0));
    arrive(gathering, 1, at(5, 0));
    CHECK_INT(stg_gathering_begin(gathering), 0);
    CHECK(!gathering->has_start);
    CHECK_INT(gathering->start.pass, 5);
    stg_gathering_destroy(gathering);
}

static void members_without_a_place_begin_where_the_record_stands(void)
{
    struct stg_run_record *record = make_record(2);
    record->pass = 6;
    struct stg_gathering *gathering = make(&broadcast, record);
    arrive(gathering, 0, NULL);
    arrive(gathering, 1, NULL);
    CHECK_INT(stg_gathering_begin(gathering), 0);
    CHECK(!gathering->has_start);
    CHECK_INT(gathering->start.pass, 6);
    stg_gathering_destroy(gathering);
}

static void a_rank_that_ended_ends_the_run_by_name(void)
{
    struct stg_gathering *gathering = make(&rounds, make_record(3));
    struct stg_err err = {0};
    arrive(gathering, 0, at(2, 12));
    stg_gathering_lose(gathering, 1);
    CHECK_INT(stg_gathering_begin(gathering), -STAGER_ABORTED);
    CHECK_INT(stg_gathering_admit(gathering, 0, at(2, 12), &err), -STAGER_ABORTED);
    CHECK_CONTAINS(err.text, "without rank 1, client client1 (pid 1001): its process");
    CHECK_INT(stg_gathering_admit(gathering, 2, at(2, 12), &err), -STAGER_ABORTED);
    stg_gathering_destroy(gathering);
}

static void a_rank_that_waited_for_the_start_may_be_missing(void)
{
    struct stg_run_record *record = make_record(2);
    record->has_begun = false;
    struct stg_gathering *gathering = make(&rounds, record);
    arrive(gathering, 0, at(0, 0));
    stg_gathering_lose(gathering, 1);
    CHECK_INT(stg_gathering_begin(gathering), 0);
    stg_gathering_destroy(gathering);
}

static void a_broadcast_that_waited_begins_where_it_would_have_begun(void)
{
    struct stg_run_record *record = make_record(2);
    record->has_begun = false;
    record->has_origin = true;
    record->origin = *at(1, 4);
    struct stg_gathering *gathering = make(&broadcast, record);
    arrive(gathering, 0, at(1, 9));
    stg_gathering_lose(gathering, 1); /* it had loaded the state of the origin */
    CHECK_INT(stg_gathering_begin(gathering), 0);
    CHECK(gathering->has_start);
    CHECK_INT(gathering->start.place.items, 4);
    stg_gathering_destroy(gathering);
    record = make_record(1);
    record->has_begun = false;
    record->pass = 3;
    gathering = make(&broadcast, record);
    arrive(gathering, 0, at(3, 9));
    CHECK_INT(stg_gathering_begin(gathering), 0);
    CHECK(!gathering->has_start);
    CHECK_INT(gathering->start.pass, 3);
    stg_gathering_destroy(gathering);
}

static void a_broadcast_that_had_begun_is_not_rewound_to_its_origin(void)
{
    struct stg_run_record *record = make_record(2);
    record->has_origin = true;
    record->origin = *at(1, 4);
    struct stg_gathering *gathering = make(&broadcast, record);
    arrive(gathering, 0, at(1, 9));
    stg_gathering_lose(gathering, 1);
    CHECK_INT(stg_gathering_begin(gathering), 0);
    CHECK_INT(gathering->start.place.items, 9);
    stg_gathering_destroy(gathering);
}

static void a_client_that_had_come_back_needs_a_place(void)
{
    struct stg_run_record *record = make_record(2);
    record->members[1].took_over = true;
    struct stg_gathering *gathering = make(&rounds, record);
    struct stg_err err = {0};
    arrive(gathering, 0, at(2, 12));
    arrive(gathering, 1, NULL);
    CHECK_INT(stg_gathering_begin(gathering), -STAGER_ABORTED);
    CHECK_CONTAINS(gathering->failure.text, "its position is not known");
    stg_gathering_destroy(gathering);
    record = make_record(2);
    record->members[1].took_over = true;
    gathering = make(&broadcast, record);
    arrive(gathering, 0, at(2, 12));
    arrive(gathering, 1, NULL);
    CHECK_INT(stg_gathering_begin(gathering), 0); /* the others go on */
    CHECK_INT(stg_gathering_admit(gathering, 0, at(2, 12), &err), 0);
    CHECK_INT(stg_gathering_admit(gathering, 1, NULL, &err), -STAGER_ABORTED);
    stg_gathering_destroy(gathering);
}

/* ---- split ---- */

static void the_only_client_begins_at_its_place(void)
{
    struct stg_gathering_rules rules = {STG_DELIVERY_SPLIT, 1, 16};
    struct stg_gathering *gathering = make(&rules, make_record(1));
    struct stg_state state = *at(1, 9);
    state.rows = 4;
    state.ranks = 1;
    state.n_delivered = 1;
    arrive(gathering, 0, &state);
    CHECK_INT(stg_gathering_begin(gathering), 0);
    CHECK(gathering->has_start);
    CHECK_INT(gathering->start.place.items, 9);
    CHECK_INT(gathering->start.place.elements, 144);
    CHECK_INT(gathering->start.rows, 4);
    CHECK_INT(gathering->start.n_delivered, 1);
    CHECK_INT(gathering->start.consumers, 0);
    stg_gathering_destroy(gathering);
}

static void a_client_without_a_place_gets_what_those_that_left_did_not_have(void)
{
    struct stg_gathering_rules rules = {STG_DELIVERY_SPLIT, 1, 16};
    struct stg_run_record *record = make_record(1);
    struct stg_taken left = {0}, got = {0};
    struct stg_err err = {0};
    stg_taken_add(&left, 0, 4, NULL);
    stg_taken_add(&left, 6, 7, NULL);
    stg_taken_write(&left, record->left, NULL);
    stg_taken_finish(&left);
    struct stg_gathering *gathering = make(&rules, record);
    arrive(gathering, 0, NULL);
    CHECK_INT(stg_gathering_begin(gathering), 0);
    CHECK(gathering->has_start);
    CHECK_OK(stg_taken_read(gathering->start.taken, &got, &err), err);
    CHECK_INT(got.end, 7);
    CHECK_INT(stg_taken_first_left(&got), 4);
    CHECK_INT(gathering->start.batch, 16);
    stg_taken_finish(&got);
    stg_gathering_destroy(gathering);
}

static void items_in_no_order_that_do_not_fit_end_the_run(void)
{
    struct stg_run_record *record = make_record(1);
    record->is_full = true;
    struct stg_gathering *gathering = make(&split, record);
    arrive(gathering, 0, at(0, 3));
    CHECK_INT(stg_gathering_begin(gathering), -STAGER_ABORTED);
    CHECK_CONTAINS(gathering->failure.text, "which ones are left is not known");
    stg_gathering_destroy(gathering);
}

/* ---- split: a model ---- */

#define N_ITEMS 200

/* A client of a run, as far as its state has it. */
struct client {
    bool is_there, has_state, dies;
    struct stg_state state;
    struct stg_taken taken;
};

struct model {
    uint64_t seed;
    struct client clients[MAX];
    bool taken[N_ITEMS]; /* by a client that is there, or that left */
    bool known[N_ITEMS]; /* by one that comes back, or that left */
    struct stg_taken left;
    uint64_t pass;
};

static uint64_t draw(struct model *model, uint64_t n)
{
    model->seed = model->seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (model->seed >> 33) % n;
}

static void write_state(struct model *model, int i)
{
    struct client *client = &model->clients[i];
    struct stg_state *state = &client->state;
    memset(state->taken, 0, sizeof(state->taken));
    stg_taken_write(&client->taken, state->taken, NULL);
    state->pass = model->pass;
    state->run = RUN;
    state->order = STG_ORDER_VERSION;
    state->consumers = MAX;
    state->consumer = (uint64_t)i + 1;
    state->batch = 16;
    state->place.items = client->taken.end;
    state->place.elements = 16 * client->taken.end;
}

static void take(struct model *model, int i, uint64_t item)
{
    stg_taken_add(&model->clients[i].taken, item, item + 1, NULL);
    model->taken[item] = true;
}

/* A client leaves: what it acknowledged is known, and the rest is dealt again. */
static void leave(struct model *model, int i)
{
    struct client *client = &model->clients[i];
    struct stg_taken_walk walk = {.set = &client->taken};
    struct stg_taken_walk all = {.set = &client->taken};
    while (stg_taken_next(&all)) {
        for (uint64_t item = all.begin; item < all.end; item++)
            model->taken[item] = false;
    }
    while (stg_taken_next(&walk)) {
        for (uint64_t item = walk.begin; item < walk.end; item++) {
            if (draw(model, 4) == 0)
                continue;
            stg_taken_add(&model->left, item, item + 1, NULL);
            model->taken[item] = model->known[item] = true;
        }
    }
    stg_taken_clear(&client->taken);
    client->is_there = false;
}

static void run_model(struct model *model)
{
    uint64_t n_steps = draw(model, 2 * N_ITEMS);
    for (int i = 0; i < MAX; i++)
        model->clients[i].is_there = draw(model, 4) > 0;
    model->clients[0].is_there = true;
    for (uint64_t step = 0; step < n_steps; step++) {
        int i = (int)draw(model, MAX);
        uint64_t item = 0;
        while (item < N_ITEMS && model->taken[item])
            item++;
        item += draw(model, 5); /* in hand of others, or not released in order */
        if (i != 0 && draw(model, 60) == 0 && model->clients[i].is_there)
            leave(model, i);
        else if (model->clients[i].is_there && item < N_ITEMS && !model->taken[item])
            take(model, i, item);
    }
}

/* The kill: some processes end with stagerd. */
static struct stg_gathering *gather(struct model *model)
{
    struct stg_run_record *record = make_record(MAX);
    record->pass = record->numbers_pass = model->pass;
    stg_taken_write(&model->left, record->left, NULL);
    struct stg_gathering *gathering = make(&split, record);
    for (int i = 0; i < MAX; i++) {
        struct client *client = &model->clients[i];
        client->dies = i != 0 && (!client->is_there || draw(model, 4) == 0);
        if (client->dies) {
            stg_gathering_lose(gathering, i);
            continue;
        }
        CHECK_INT(stg_gathering_begin(gathering), 1);
        write_state(model, i);
        arrive(gathering, i, &client->state);
        struct stg_taken_walk walk = {.set = &client->taken};
        while (stg_taken_next(&walk)) {
            for (uint64_t item = walk.begin; item < walk.end; item++)
                model->known[item] = true;
        }
    }
    return gathering;
}

static void check_start(const struct model *model, const struct stg_gathering *gathering)
{
    const struct stg_state *start = &gathering->start;
    struct stg_taken taken = {0};
    struct stg_err err = {0};
    CHECK_INT(start->pass, model->pass);
    CHECK_OK(stg_taken_read(start->taken, &taken, &err), err);
    struct stg_taken_walk walk = {.set = &taken};
    bool more = stg_taken_next(&walk);
    for (uint64_t item = 0; item < N_ITEMS; item++) {
        while (more && walk.end <= item)
            more = stg_taken_next(&walk);
        bool is_taken = (more && walk.begin <= item) || item < start->place.items;
        if (is_taken != model->known[item])
            FAIL("item %d: taken %d, and the start says %d", (int)item,
                 model->known[item], is_taken);
    }
    CHECK_INT(start->place.elements, 16 * start->place.items);
    CHECK(gathering->has_start == (taken.n > 0 || start->place.items > 0));
    stg_taken_finish(&taken);
}

static void a_split_delivers_what_is_left_and_nothing_else(void)
{
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        static struct model model;
        memset(&model, 0, sizeof(model));
        model.seed = seed;
        model.pass = seed % 3;
        run_model(&model);
        struct stg_gathering *gathering = gather(&model);
        CHECK_INT(stg_gathering_begin(gathering), 0);
        check_start(&model, gathering);
        stg_gathering_destroy(gathering);
        for (int i = 0; i < MAX; i++)
            stg_taken_finish(&model.clients[i].taken);
        stg_taken_finish(&model.left);
    }
}

/* A consumer's state with these items. */
static struct stg_state *consumer_at(uint64_t pass, uint64_t first, uint64_t end)
{
    static struct stg_state state;
    struct stg_taken taken = {0};
    state = *at(pass, end);
    state.consumer = 1;
    state.consumers = 2;
    if (end > first)
        stg_taken_add(&taken, first, end, NULL);
    stg_taken_write(&taken, state.taken, NULL);
    stg_taken_finish(&taken);
    return &state;
}

static void clients_in_neighbouring_passes_begin_in_the_later_one(void)
{
    struct stg_gathering *gathering = make(&split, make_record(2));
    arrive(gathering, 0, consumer_at(4, 0, 50));
    arrive(gathering, 1, consumer_at(5, 0, 2));
    CHECK_INT(stg_gathering_begin(gathering), 0);
    CHECK_INT(gathering->start.pass, 5);
    CHECK_INT(gathering->start.place.items, 2);
    stg_gathering_destroy(gathering);
    struct stg_run_record *record = make_record(1);
    record->pass = 5; /* the pass has ended, and its client does not know that */
    gathering = make(&split, record);
    arrive(gathering, 0, consumer_at(4, 0, 50));
    CHECK_INT(stg_gathering_begin(gathering), 0);
    CHECK(!gathering->has_start);
    CHECK_INT(gathering->start.pass, 5);
    stg_gathering_destroy(gathering);
}

static void a_late_client_of_a_split_comes_in_if_it_lost_nothing(void)
{
    struct stg_gathering *gathering = make(&split, make_record(2));
    struct stg_err err = {0};
    arrive(gathering, 0, consumer_at(5, 0, 10));
    stg_gathering_expire(gathering);
    CHECK_INT(stg_gathering_begin(gathering), 0);
    CHECK_INT(stg_gathering_admit(gathering, 1, NULL, &err), 0);
    CHECK_INT(stg_gathering_admit(gathering, 1, consumer_at(4, 0, 50), &err), 0);
    CHECK_INT(stg_gathering_admit(gathering, 1, consumer_at(5, 0, 0), &err), 0);
    CHECK_INT(stg_gathering_admit(gathering, 1, consumer_at(5, 3, 5), &err), 0);
    CHECK_INT(stg_gathering_admit(gathering, 1, consumer_at(5, 3, 11), &err),
              -STAGER_ABORTED);
    CHECK_CONTAINS(err.text, "client1 came back too late: the others went on without it");
    stg_gathering_destroy(gathering);
}

static void a_client_that_was_late_before_stays_out_if_it_has_items(void)
{
    struct stg_run_record *record = make_record(2);
    struct stg_err err = {0};
    record->members[1].is_late = true;
    struct stg_gathering *gathering = make(&split, record);
    arrive(gathering, 0, consumer_at(5, 0, 10));
    CHECK_INT(stg_gathering_begin(gathering), 0);
    CHECK_INT(stg_gathering_admit(gathering, 1, NULL, &err), 0);
    CHECK_INT(stg_gathering_admit(gathering, 1, consumer_at(4, 0, 50), &err), 0);
    CHECK_INT(stg_gathering_admit(gathering, 1, consumer_at(5, 3, 5), &err),
              -STAGER_ABORTED); /* the other one may have got them since */
    stg_gathering_destroy(gathering);
}

static void what_a_client_said_counts_although_its_process_ended_since(void)
{
    struct stg_gathering *gathering = make(&split, make_record(2));
    arrive(gathering, 0, consumer_at(0, 0, 10));
    stg_gathering_lose(gathering, 0);
    arrive(gathering, 1, consumer_at(0, 10, 20));
    CHECK_INT(stg_gathering_begin(gathering), 0);
    CHECK_INT(gathering->start.place.items, 20);
    stg_gathering_destroy(gathering);
}

struct owner {
    const struct stg_run_record *record;
    struct stg_state state;
};

static int gather_once(void *arg)
{
    struct stg_gathering *gathering;
    const struct owner *owner = arg;
    const struct stg_run_record *record = owner->record;
    struct stg_run_record copy = *record;
    struct stg_err err = {0};
    copy.members = calloc(2, sizeof(copy.members[0]));
    if (copy.members == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    memcpy(copy.members, record->members, 2 * sizeof(copy.members[0]));
    int rc = stg_gathering_create(&split, &copy, &gathering, &err);
    if (rc < 0)
        return rc;
    rc = stg_gathering_arrive(gathering, 0, &owner->state, 2, &err);
    if (rc == 0)
        rc = stg_gathering_arrive(gathering, 1, NULL, 2, &err);
    if (rc == 0)
        rc = stg_gathering_begin(gathering);
    if (rc == -STAGER_ABORTED) /* it says what was short */
        rc = -STAGER_RESOURCE_EXHAUSTED;
    stg_gathering_destroy(gathering);
    return rc;
}

static void memory_that_runs_out_is_an_error(void)
{
    struct stg_run_record *record = make_record(2);
    struct owner owner = {.record = record, .state = *consumer_at(0, 0, 10)};
    CHECK(stg_failalloc_each(gather_once, &owner) > 3);
    stg_run_record_finish(record);
}

static void what_a_client_that_ended_had_acknowledged_is_not_delivered_again(void)
{
    struct stg_run_record *record = make_record(2);
    record->members[1].acknowledged = strdup(consumer_at(0, 10, 14)->taken);
    struct stg_gathering *gathering = make(&split, record);
    arrive(gathering, 0, consumer_at(0, 0, 10));
    stg_gathering_lose(gathering, 1);
    CHECK_INT(stg_gathering_begin(gathering), 0);
    struct stg_taken taken = {0};
    CHECK_INT(stg_taken_read(gathering->start.taken, &taken, NULL), 0);
    CHECK_INT(taken.end, 14);
    stg_taken_finish(&taken);
    stg_gathering_destroy(gathering);
}

static const struct stg_test tests[] = {
    TEST(a_member_is_found_by_run_number_and_user),
    TEST(it_begins_when_each_member_came_or_ended),
    TEST(members_that_do_not_come_in_time_are_late),
    TEST(without_a_member_in_time_the_run_is_over),
    TEST(another_run_ends_the_gathering),
    TEST(ranks_begin_at_the_earliest_place),
    TEST(of_equal_places_the_one_with_fewer_error_items_is_the_earlier),
    TEST(at_the_start_of_a_pass_no_state_is_needed),
    TEST(members_without_a_place_begin_where_the_record_stands),
    TEST(a_rank_that_ended_ends_the_run_by_name),
    TEST(a_rank_that_waited_for_the_start_may_be_missing),
    TEST(a_broadcast_that_waited_begins_where_it_would_have_begun),
    TEST(a_broadcast_that_had_begun_is_not_rewound_to_its_origin),
    TEST(a_client_that_had_come_back_needs_a_place),
    TEST(the_only_client_begins_at_its_place),
    TEST(a_client_without_a_place_gets_what_those_that_left_did_not_have),
    TEST(items_in_no_order_that_do_not_fit_end_the_run),
    TEST_SLOW(a_split_delivers_what_is_left_and_nothing_else, 60),
    TEST(clients_in_neighbouring_passes_begin_in_the_later_one),
    TEST(a_late_client_of_a_split_comes_in_if_it_lost_nothing),
    TEST(a_client_that_was_late_before_stays_out_if_it_has_items),
    TEST(what_a_client_said_counts_although_its_process_ended_since),
    TEST(what_a_client_that_ended_had_acknowledged_is_not_delivered_again),
    TEST(memory_that_runs_out_is_an_error),
};
TEST_MAIN(tests)
