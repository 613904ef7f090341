/* SPDX-License-Identifier: Apache-2.0
 *
 * The policies of delivery without a stage: a buffer and clients in, assignments out.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/policy.h"
#include "tests/check.h"

#define MAX 4
#define SLOT 65536u

/* In the order of the table; NULL program: no more. */
struct client_row {
    const char *name; /* one letter; NULL: no more */
    uint32_t credits, rank;
    uint64_t cursor, last_given_ns;
    enum stg_client_state state; /* attached when it is left out */
    bool elsewhere;              /* in a later pass */
    bool is_pending;             /* an item since it came back */
    bool holds;                  /* an item that it did not acknowledge */
    uint32_t has;    /* it loaded a state with so many items; 0: it loaded none */
    uint32_t errors; /* then, error items of the round after them that it has, too */
};

/* items: "." a batch, "E" an error, "r" a batch that was returned, a digit as many
 * numbers that were skipped. Expected: each assignment as client, number and gaps
 * ("a2+1"), "-" for an item that is passed over; then what becomes of the buffer. */
struct row {
    const char *what;
    enum stg_delivery delivery;
    bool waits; /* not all clients were there yet */
    bool fails; /* the pass ends with an error */
    struct client_row clients[MAX];
    const char *items;
    const char *give;
    const char *end;
};

static const struct row rows[] = {
    {.what = "split: the client with the most credits",
     .clients = {{"a", 1}, {"b", 2}},
     .items = "..",
     .give = "b0 taken 1"},
    {.what = "split: of equal credits, the one served longest ago",
     .clients = {{"a", 1, .last_given_ns = 5}, {"b", 1, .last_given_ns = 3}},
     .items = ".",
     .give = "b0 taken 1"},
    {.what = "split: a client in another pass or away gets nothing",
     .clients = {{"a", 2, .elsewhere = true},
                 {"b", 2, .state = STG_CLIENT_AWAY},
                 {"c", 1}},
     .items = ".",
     .give = "c0 taken 1"},
    {.what = "split: nothing without credits",
     .clients = {{"a", 0}, {"b", 0}},
     .items = "..",
     .give = ""},
    {.what = "split: the gap before an item is its client's",
     .clients = {{"a", 1}},
     .items = "2.",
     .give = "a2+2 taken 1 gaps 2"},
    {.what = "split: a returned item comes before the buffer",
     .clients = {{"a", 1}},
     .items = "r.",
     .give = "a0 returned 0"},
    {.what = "split: a returned item waits for a credit",
     .clients = {{"a", 0}},
     .items = "r.",
     .give = "",
     .end = ""},
    {.what = "split: the pass is over when all is acknowledged",
     .clients = {{"a", 1}, {"b", 1}},
     .items = "",
     .give = "",
     .end = "over"},
    {.what = "split: not while a client holds an item",
     .clients = {{"a", 1, .holds = true}, {"b", 1}},
     .items = "",
     .give = "",
     .end = ""},
    {.what = "split: a failure goes to all that are attached",
     .fails = true,
     .clients = {{"a", 1}, {"b", 1, .state = STG_CLIENT_AWAY}, {"c", 0}},
     .items = "",
     .give = "",
     .end = "a c over"},

    {.what = "broadcast: nothing before all are there",
     .delivery = STG_DELIVERY_BROADCAST,
     .waits = true,
     .clients = {{"a", 2}},
     .items = "..",
     .give = "",
     .end = ""},
    {.what = "broadcast: each client the item at its place",
     .delivery = STG_DELIVERY_BROADCAST,
     .clients = {{"a", 2}, {"b", 2, .cursor = 1}},
     .items = "...",
     .give = "a0 b1 taken 1"},
    {.what = "broadcast: the slowest keeps an item in the buffer",
     .delivery = STG_DELIVERY_BROADCAST,
     .clients = {{"a", 0}, {"b", 2}},
     .items = "..",
     .give = "b0"},
    {.what = "broadcast: a client that is away counts as the slowest",
     .delivery = STG_DELIVERY_BROADCAST,
     .clients = {{"a", 2, .state = STG_CLIENT_AWAY}, {"b", 2}},
     .items = "..",
     .give = "b0"},
    {.what = "broadcast: items leave when the slowest client has left",
     .delivery = STG_DELIVERY_BROADCAST,
     .clients = {{"a", 2, .state = STG_CLIENT_DETACHED}, {"b", 2, .cursor = 2}},
     .items = "..",
     .give = "taken 2"},
    {.what = "broadcast: pending redeliveries come first",
     .delivery = STG_DELIVERY_BROADCAST,
     .clients = {{"a", 2, .is_pending = true}},
     .items = ".",
     .give = "",
     .end = ""},
    {.what = "broadcast: every client counts a gap",
     .delivery = STG_DELIVERY_BROADCAST,
     .clients = {{"a", 2}, {"b", 2}},
     .items = "3.",
     .give = "a3+3 b3+3 taken 1"},
    {.what = "broadcast: the end comes to each client by itself, with the gap before it",
     .delivery = STG_DELIVERY_BROADCAST,
     .clients = {{"a", 0}, {"b", 0, .cursor = 1}},
     .items = ".2",
     .give = "",
     .end = "b+2"},
    {.what = "broadcast: the pass is over when all had the end",
     .delivery = STG_DELIVERY_BROADCAST,
     .clients = {{"a", 0, .elsewhere = true}, {"b", 0}},
     .items = "",
     .give = "",
     .end = "b over"},
    {.what = "broadcast: not while a client with a state of the pass joins",
     .delivery = STG_DELIVERY_BROADCAST,
     .clients = {{"a", 0, .cursor = 1}, {"b", 0, .state = STG_CLIENT_JOINING, .has = 1}},
     .items = ".",
     .give = "",
     .end = "a"},

    {.what = "round_robin: a round that is not whole waits",
     .delivery = STG_DELIVERY_ROUND_ROBIN,
     .clients = {{"a", 2}, {"b", 2, 1}},
     .items = ".",
     .give = "",
     .end = "a b discards over"},
    {.what = "round_robin: a round goes by rank",
     .delivery = STG_DELIVERY_ROUND_ROBIN,
     .clients = {{"a", 2, 1}, {"b", 2, 0}},
     .items = "...",
     .give = "a1 b0 taken 2"},
    {.what = "round_robin: no rank gets a round that another cannot take",
     .delivery = STG_DELIVERY_ROUND_ROBIN,
     .clients = {{"a", 2}, {"b", 0, 1}},
     .items = "..",
     .give = "",
     .end = ""},
    {.what = "round_robin: an error goes to every rank, and the round is gathered on",
     .delivery = STG_DELIVERY_ROUND_ROBIN,
     .clients = {{"a", 2}, {"b", 2, 1}},
     .items = ".E.",
     .give = "a1 b1 front 1 taken 1"},
    {.what = "round_robin: a gap belongs to the rank of the next item",
     .delivery = STG_DELIVERY_ROUND_ROBIN,
     .clients = {{"a", 2}, {"b", 2, 1}},
     .items = ".3.",
     .give = "a0 b4+3 taken 2 gaps 3"},
    {.what = "round_robin: no end while a rank is away",
     .delivery = STG_DELIVERY_ROUND_ROBIN,
     .clients = {{"a", 2}, {"b", 2, 1, .state = STG_CLIENT_AWAY}},
     .items = ".",
     .give = "",
     .end = ""},
    {.what = "round_robin: a failure does not wait for a rank",
     .delivery = STG_DELIVERY_ROUND_ROBIN,
     .fails = true,
     .clients = {{"a", 2}, {"b", 2, 1, .state = STG_CLIENT_AWAY}},
     .items = ".",
     .give = "",
     .end = "a discards over"},
    {.what = "round_robin: a rank whose state has the round gets nothing of it",
     .delivery = STG_DELIVERY_ROUND_ROBIN,
     .clients = {{"a", 2, .has = 3}, {"b", 2, 1, .has = 1}},
     .items = "..",
     .give = "a- b1 taken 2"},
    {.what = "round_robin: nor does a rank whose state is of a later pass",
     .delivery = STG_DELIVERY_ROUND_ROBIN,
     .clients = {{"a", 2, .elsewhere = true}, {"b", 2, 1, .has = 1}},
     .items = "..",
     .give = "b1 taken 2"},
    {.what = "round_robin: the others end their pass without it",
     .delivery = STG_DELIVERY_ROUND_ROBIN,
     .clients = {{"a", 2, .elsewhere = true}, {"b", 2, 1, .has = 1}},
     .items = "",
     .give = "",
     .end = "b discards over"},
    {.what = "round_robin: a failure goes to it as well",
     .delivery = STG_DELIVERY_ROUND_ROBIN,
     .fails = true,
     .clients = {{"a", 2, .elsewhere = true}, {"b", 2, 1, .has = 1}},
     .items = "",
     .give = "",
     .end = "a b discards over"},
    {.what =
         "round_robin: a rank that has the next round gets it when all of it is there",
     .delivery = STG_DELIVERY_ROUND_ROBIN,
     .clients = {{"a", 2, .has = 1}, {"b", 2, 1, .has = 1}},
     .items = "..",
     .give = "a0 b1 taken 2"},
    {.what = "round_robin: an error item of the round that one rank had",
     .delivery = STG_DELIVERY_ROUND_ROBIN,
     .clients = {{"a", 2, .has = 1, .errors = 1}, {"b", 2, 1, .has = 1}},
     .items = ".E.",
     .give = "a! b1 front 1 taken 1"},
    {.what = "round_robin: an error item of a round that one rank had",
     .delivery = STG_DELIVERY_ROUND_ROBIN,
     .clients = {{"a", 2, .has = 9, .errors = 1}, {"b", 2, 1, .has = 1}},
     .items = ".E.",
     .give = "a- b1 front 1 taken 1"},
};

struct scene {
    struct stg_buffer buffer;
    struct stg_membership members;
    struct stg_pass pass;
    struct stg_delivery_view view;
    struct stg_client clients[MAX];
    struct stg_assigned assigned[MAX];
    struct stg_assignment all[MAX];
    struct stg_assignments step;
};

static uint32_t publish(struct scene *s, bool is_error)
{
    uint32_t extent;
    struct stg_buffer *buffer = &s->buffer;
    uint64_t n = buffer->n_published + 1; /* one element is before the buffer */
    struct stg_item item = {.number = buffer->n_published + buffer->n_skipped,
                            .is_error = is_error,
                            .is_carried = is_error,
                            .before = {.elements = is_error ? 1 : n},
                            .after = {.elements = n + 1},
                            .skipped = buffer->n_skipped};
    CHECK_INT(stg_extent_reserve(buffer->leases, SLOT, &extent), 0);
    stg_extent_seal(buffer->leases, extent, SLOT);
    stg_item_publish(buffer, extent, &item);
    return extent;
}

/* The first item, before it is taken from the buffer. */
static void return_first(struct scene *s)
{
    struct stg_effects effects = {0};
    uint32_t extent = stg_buffer_at(&s->buffer, s->buffer.first);
    s->buffer.items[extent].n_pending++;
    stg_buffer_pop(&s->buffer, &effects);
    stg_item_return(&s->buffer, extent);
}

static void fill(struct scene *s, const char *items)
{
    for (; *items != '\0'; items++) {
        if (*items >= '0' && *items <= '9')
            s->buffer.n_skipped += (uint64_t)(*items - '0');
        else
            publish(s, *items == 'E');
        if (*items == 'r')
            return_first(s);
    }
}

/* Each client has one lease on an extent that is not in the buffer: so credits can be 0.
 */
static void attach(struct scene *s, const struct client_row *rows_of)
{
    uint32_t filler;
    struct stg_lease lease;
    struct stg_client **at = &s->members.clients;
    CHECK_INT(stg_extent_reserve(s->buffer.leases, SLOT, &filler), 0);
    stg_extent_seal(s->buffer.leases, filler, SLOT);
    for (unsigned i = 0; i < MAX && rows_of[i].name != NULL; i++) {
        struct stg_client *c = &s->clients[i];
        const struct client_row *row = &rows_of[i];
        c->state = row->state;
        c->rank = row->rank;
        c->cursor = row->cursor;
        c->last_given_ns = row->last_given_ns;
        c->base_pass = row->elsewhere;
        c->n_pending = row->is_pending;
        c->assigned = &s->assigned[i];
        c->n_assigned = row->holds;
        c->loads = row->has > 0;
        c->load_place.elements = row->has;
        c->load_errors = row->errors;
        snprintf(c->client_id, sizeof(c->client_id), "%s", row->name);
        CHECK_INT(
            stg_lease_client_add(s->buffer.leases, row->credits + 1, &c->lease_client),
            0);
        CHECK_INT(stg_lease_grant(s->buffer.leases, filler, c->lease_client, &lease), 0);
        s->members.n_attached += c->state == STG_CLIENT_ATTACHED;
        s->view.num_clients++;
        *at = c;
        at = &c->next;
    }
}

static void scene_init(struct scene *s, const struct row *row)
{
    struct stg_err err = {0};
    *s = (struct scene){.buffer = {.round_items = 1, .capacity = 8},
                        .members = {.begun = !row->waits},
                        .pass = {.state = STG_PASS_EXHAUSTED}};
    s->pass.failure.code = row->fails ? -STAGER_DATA_LOSS : 0;
    CHECK_OK(stg_buffer_init(&s->buffer, 16 * SLOT, SLOT, 16, MAX, &err), err);
    s->view = (struct stg_delivery_view){
        .buffer = &s->buffer, .members = &s->members, .pass = &s->pass};
    attach(s, row->clients);
    fill(s, row->items);
    s->step = (struct stg_assignments){.all = s->all, .max = s->view.num_clients};
}

static void scene_finish(struct scene *s)
{
    stg_buffer_finish(&s->buffer);
}

__attribute__((format(printf, 2, 3))) static void say(char *text, const char *fmt, ...)
{
    size_t n = strlen(text);
    va_list args;
    va_start(args, fmt);
    if (n > 0)
        text[n++] = ' ';
    vsnprintf(text + n, 128 - n, fmt, args);
    va_end(args);
}

static void show(const struct scene *s, bool is_end, char *text)
{
    const struct stg_assignments *step = &s->step;
    text[0] = '\0';
    for (uint32_t i = 0; i < step->n; i++) {
        const struct stg_assignment *a = &step->all[i];
        char number[24] = "", gaps[24] = "";
        if (a->extent != STG_NO_EXTENT)
            snprintf(number, sizeof(number), "%d",
                     (int)s->buffer.items[a->extent].number);
        if (a->n_gaps > 0)
            snprintf(gaps, sizeof(gaps), "+%d", (int)a->n_gaps);
        say(text, "%s%s%s%s", a->client->client_id,
            a->skips_error                          ? "!"
            : a->extent == STG_NO_EXTENT && !is_end ? "-"
                                                    : "",
            number, gaps);
    }
    if (step->returned != STG_NO_EXTENT)
        say(text, "returned %d", (int)step->returned);
    if (step->front != s->buffer.first)
        say(text, "front %d", (int)step->front);
    if (step->n_taken > 0)
        say(text, "taken %d", (int)step->n_taken);
    if (step->gaps_counted != 0)
        say(text, "gaps %d", (int)step->gaps_counted);
    if (step->discards)
        say(text, "discards");
}

static void a_step_is_a_function_of_buffer_and_clients(void)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct scene s;
        char text[128];
        scene_init(&s, &rows[i]);
        stg_assignments_clear(&s.step, &s.view);
        bool any = stg_policy(rows[i].delivery)->give(&s.view, &s.step);
        show(&s, false, text);
        if (strcmp(text, rows[i].give) != 0 || any != (text[0] != '\0'))
            FAIL("%s: gives \"%s\"", rows[i].what, text);
        scene_finish(&s);
    }
}

static void an_end_is_a_function_of_buffer_and_clients(void)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct scene s;
        char text[128];
        if (rows[i].end == NULL)
            continue;
        scene_init(&s, &rows[i]);
        stg_assignments_clear(&s.step, &s.view);
        bool is_over = stg_policy(rows[i].delivery)->end(&s.view, &s.step);
        show(&s, true, text);
        if (is_over)
            say(text, "over");
        if (strcmp(text, rows[i].end) != 0)
            FAIL("%s: ends \"%s\"", rows[i].what, text);
        scene_finish(&s);
    }
}

/* Of client a: whether there is more for it, and whether it holds up others. */
static void check_waits(const struct row *row, bool has_more, bool holds_up)
{
    struct scene s;
    const struct stg_policy *policy = stg_policy(row->delivery);
    scene_init(&s, row);
    s.buffer.capacity = 2;
    if (policy->has_more(&s.view, &s.clients[0]) != has_more ||
        policy->holds_up(&s.view, &s.clients[0]) != holds_up)
        FAIL("%s", row->what);
    scene_finish(&s);
}

static void what_a_client_waits_for_is_a_function_of_them_too(void)
{
    check_waits(&(struct row){.what = "split: an item is left",
                              .clients = {{"a", 1, .holds = true}},
                              .items = "."},
                true, false);
    check_waits(&(struct row){.what = "split: the end waits for a",
                              .clients = {{"a", 1, .holds = true}, {"b", 1}},
                              .items = ""},
                false, true);
    check_waits(&(struct row){.what = "broadcast: the buffer is full of items for a",
                              .delivery = STG_DELIVERY_BROADCAST,
                              .clients = {{"a", 0}, {"b", 0, .cursor = 2}},
                              .items = ".."},
                true, true);
    check_waits(&(struct row){.what = "broadcast: a had everything",
                              .delivery = STG_DELIVERY_BROADCAST,
                              .clients = {{"a", 0, .cursor = 2}, {"b", 0}},
                              .items = ".."},
                false, false);
    check_waits(&(struct row){.what = "round_robin: a has no credit for the round",
                              .delivery = STG_DELIVERY_ROUND_ROBIN,
                              .clients = {{"a", 0}, {"b", 1, 1}},
                              .items = ".."},
                true, true);
    check_waits(&(struct row){.what = "round_robin: a is ready",
                              .delivery = STG_DELIVERY_ROUND_ROBIN,
                              .clients = {{"a", 1}, {"b", 0, 1}},
                              .items = ".."},
                true, false);
}

static void a_policy_changes_nothing_that_it_sees(void)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct scene s, before;
        scene_init(&s, &rows[i]);
        stg_assignments_clear(&s.step, &s.view);
        before = s;
        struct stg_item *items = malloc(16 * sizeof(*items));
        CHECK(items != NULL);
        memcpy(items, s.buffer.items, 16 * sizeof(*items));
        stg_policy(rows[i].delivery)->give(&s.view, &s.step);
        stg_policy(rows[i].delivery)->end(&s.view, &s.step);
        CHECK(memcmp(&s.buffer, &before.buffer, sizeof(s.buffer)) == 0);
        CHECK(memcmp(items, s.buffer.items, 16 * sizeof(*items)) == 0);
        CHECK(memcmp(&s.members, &before.members, sizeof(s.members)) == 0);
        CHECK(memcmp(s.clients, before.clients, sizeof(s.clients)) == 0);
        free(items);
        scene_finish(&s);
    }
}

static const struct stg_test tests[] = {
    TEST(a_step_is_a_function_of_buffer_and_clients),
    TEST(an_end_is_a_function_of_buffer_and_clients),
    TEST(what_a_client_waits_for_is_a_function_of_them_too),
    TEST(a_policy_changes_nothing_that_it_sees),
};
TEST_MAIN(tests)
