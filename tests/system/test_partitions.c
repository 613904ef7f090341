/* SPDX-License-Identifier: Apache-2.0
 *
 * One pipeline, trainers that use different parts of it. A real daemon sends the union of
 * their needs and runs ahead the nodes it may. Each trainer gets the tensors it
 * requested, with the same bytes for every partition.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "tests/system/fixture.h"

/* Item i has v = i, word = "<i>", half = i / 2, and big: that many of 1.5. */
#define BIG 5000

static void apply(struct fixture *fixture, int n, const char *smart_stage,
                  const char *staged)
{
    char yaml[4096];
    snprintf(
        yaml, sizeof(yaml),
        "name: p\n"
        "dataset: [{range: {stop: %d}}, {batch: {batch_size: 1}}]\n"
        "graph:\n"
        "  - {name: word, op: as_string, input: [value]}\n"
        "  - {name: real, op: cast, input: [value], dtype: float32}\n"
        "  - {name: two, op: constant, value: 2.0}\n"
        "  - {name: half, op: divide, input: [real, two]}\n"
        "  - {name: big, op: constant, value: 1.5, shape: [1, %d]}\n"
        "  - {name: square, op: multiply, input: [\"staged:v\", \"staged:v\"]}\n"
        "  - {name: cube, op: multiply, input: [square, \"staged:v\"]}\n"
        "  - {name: hash, op: string_to_hash_bucket_fast, input: [\"staged:word\"],\n"
        "     num_buckets: 1000}\n"
        "  - {name: table, op: variable, shape: [1000, 1], initializer: ones}\n"
        "  - {name: row, op: embedding_lookup, input: [table, hash]}\n"
        "  - {name: bias, op: variable, shape: [1], initializer: ones, dtype: int64}\n"
        "  - {name: sum, op: add, input: [cube, bias]}\n"
        "staged:\n"
        "  features: {v: value, word: word, half: half, big: big}\n%s"
        "targets: [sum, row]\nsmart_stage: %s\n",
        n, BIG, staged, smart_stage);
    fixture_apply(fixture, yaml);
}

/* ---- kinds of clients ---- */

struct kind {
    const char *const *fields; /* NULL: all */
    size_t n_fields;
    const char *const *fetches; /* NULL: the targets */
    size_t n_fetches;
};

static const char *const names[] = {"v",   "word", "half",        "big",  "sum",
                                    "row", "hash", "staged:half", "cube", "square"};

static const struct kind kinds[] = {
    {0},                                                     /* 0: declares nothing */
    {.fields = names, .n_fields = 1, .fetches = names},      /* 1: v */
    {.fields = names, .fetches = names + 4, .n_fetches = 1}, /* 2: sum alone */
    {.fields = names + 1,
     .n_fields = 2,
     .fetches = names + 6,                                   /* 3: word, half; hash, */
     .n_fetches = 2},                                        /*    staged:half */
    {.fields = names, .fetches = names + 8, .n_fetches = 2}, /* 4: cube, square */
    {.fields = names + 3, .n_fields = 1},                    /* 5: big; the targets */
};
#define N_KINDS (int)(sizeof(kinds) / sizeof(kinds[0]))

static int try_open(struct fixture *fixture, const struct kind *kind, const char *id,
                    uint32_t max_in_flight, struct stager_stream **ret)
{
    struct stager_options options = {.struct_size = sizeof(options),
                                     .runtime_dir = fixture->runtime,
                                     .client_id = id,
                                     .max_in_flight = max_in_flight,
                                     .fields = kind->fields,
                                     .n_fields = kind->n_fields,
                                     .fetches = kind->fetches,
                                     .n_fetches = kind->n_fetches};
    return stager_open(NULL, "p", &options, ret);
}

static struct stager_stream *open_kind(struct fixture *fixture, const struct kind *kind,
                                       const char *id)
{
    struct stager_stream *stream;
    if (try_open(fixture, kind, id, 2, &stream) < 0)
        FAIL("open: %s", stager_error_text(NULL));
    return stream;
}

static const int64_t *int64_of(const struct stager_tensor *tensor)
{
    CHECK_INT(tensor->dtype, STAGER_INT64);
    CHECK_INT(tensor->shape[0], 1);
    return tensor->data;
}

static float float_of(const struct stager_tensor *tensor)
{
    CHECK_INT(tensor->dtype, STAGER_FLOAT32);
    CHECK_INT(tensor->shape[0], 1);
    return *(const float *)tensor->data;
}

/* Checks a field or a fetch of item i. */
static void check_value(const char *name, const struct stager_tensor *t, int64_t i)
{
    if (strcmp(name, "v") == 0) {
        CHECK_INT(*int64_of(t), i);
    } else if (strcmp(name, "word") == 0) {
        char word[32];
        size_t n = (size_t)snprintf(word, sizeof(word), "%lld", (long long)i);
        CHECK_INT(t->offsets[1] - t->offsets[0], n);
        CHECK(memcmp((const char *)t->data + t->offsets[0], word, n) == 0);
    } else if (strstr(name, "half") != NULL) {
        CHECK(float_of(t) == (float)i / 2);
    } else if (strcmp(name, "big") == 0) {
        CHECK_INT(t->data_bytes, BIG * sizeof(float));
        for (int k = 0; k < BIG; k++)
            CHECK(((const float *)t->data)[k] == 1.5f);
    } else if (strcmp(name, "sum") == 0) {
        CHECK_INT(*int64_of(t), i * i * i + 1);
    } else if (strcmp(name, "row") == 0) {
        CHECK(float_of(t) == 1.0f);
    } else if (strcmp(name, "cube") == 0) {
        CHECK_INT(*int64_of(t), i * i * i);
    } else if (strcmp(name, "square") == 0) {
        CHECK_INT(*int64_of(t), i * i);
    } else { /* hash: another test covers FarmHash */
        CHECK(*int64_of(t) >= 0 && *int64_of(t) < 1000);
    }
}

/* The item of a batch: 0, 1, 2 … in passes of n. */
static int64_t check_batch(struct stager_stream *stream, struct stager_batch *batch,
                           const struct kind *kind)
{
    static const char *const targets[] = {"sum", "row"};
    struct stager_batch_info info = {.struct_size = sizeof(info)};
    struct stager_tensor t, results[4];
    stager_batch_info(batch, &info);
    size_t n_fields = kind->fields != NULL ? kind->n_fields : 4;
    CHECK_INT(info.n_tensors, n_fields);
    for (uint32_t i = 0; i < n_fields; i++) {
        const char *name = kind->fields != NULL ? kind->fields[i] : names[i];
        CHECK_INT(stager_batch_tensor(batch, name, &t), 0);
        check_value(name, &t, (int64_t)info.index);
        CHECK_INT(stager_batch_tensor_at(batch, i, &t), 0);
        CHECK_STR(t.name, name);
    }
    const char *const *fetches = kind->fetches != NULL ? kind->fetches : targets;
    size_t n = kind->fetches != NULL ? kind->n_fetches : 2;
    if (n > 0 && stager_run(stream, batch, fetches, n, results) < 0)
        FAIL("run: %s", stager_error_text(stream));
    for (size_t i = 0; i < n; i++)
        check_value(fetches[i], &results[i], (int64_t)info.index);
    return (int64_t)info.index;
}

static int64_t take_one(struct stager_stream *stream, const struct kind *kind)
{
    struct stager_batch *batch = fixture_take(stream);
    int64_t i = check_batch(stream, batch, kind);
    stager_release(batch);
    return i;
}

/* ---- the status ---- */

struct seen {
    uint64_t partition, own_partitions, gaps, lost;
    char moved[256]; /* names, each preceded by a blank */
};

static void look(struct fixture *fixture, struct seen *ret)
{
    struct stg_reply reply;
    struct stager *client = fixture_ask(fixture, STG_REQUEST_STATUS, "p", &reply);
    *ret = (struct seen){.partition = reply.status.partition,
                         .own_partitions = reply.status.own_partitions,
                         .lost = reply.status.lost + reply.status.discarded_published};
    fixture_moved(&reply.status, ret->moved, sizeof(ret->moved));
    for (size_t i = 0; i < reply.status.n_clients; i++)
        ret->gaps += reply.status.clients[i].gaps;
    stager_disconnect(client);
}

static void check_moved(struct fixture *fixture, const char *names_moved)
{
    struct seen seen;
    look(fixture, &seen);
    CHECK_STR(seen.moved, names_moved);
    CHECK(seen.partition != 0 || names_moved[0] == '\0');
}

/* ---- tests ---- */

static void what_the_targets_depend_on_moves_with_on(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply(&fixture, 5, "on", "");
    struct stager_stream *stream = open_kind(&fixture, &kinds[0], NULL);
    check_moved(&fixture, " square cube hash");
    for (int64_t i = 0; i < 5; i++)
        CHECK_INT(take_one(stream, &kinds[0]), i);
    stager_close(stream);
    fixture_finish(&fixture);
}

static void nothing_moves_with_off_nor_yet_with_auto(void)
{
    static const char *const modes[] = {"off", "auto"};
    for (int m = 0; m < 2; m++) {
        struct fixture fixture;
        fixture_start(&fixture, "");
        apply(&fixture, 3, modes[m], "");
        struct stager_stream *stream = open_kind(&fixture, &kinds[0], NULL);
        check_moved(&fixture, "");
        for (int64_t i = 0; i < 3; i++)
            CHECK_INT(take_one(stream, &kinds[0]), i);
        stager_close(stream);
        fixture_finish(&fixture);
    }
}

static void a_fetch_is_never_run_ahead(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply(&fixture, 3, "on", "");
    struct stager_stream *stream = open_kind(&fixture, &kinds[4], NULL);
    check_moved(&fixture, ""); /* it fetches square, on which all others depend */
    CHECK_INT(take_one(stream, &kinds[4]), 0);
    stager_close(stream);
    stream = open_kind(&fixture, &kinds[1], NULL);
    check_moved(&fixture, ""); /* it fetches nothing */
    stager_close(stream);
    fixture_finish(&fixture);
}

static void unused_outputs_are_not_sent(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply(&fixture, 9, "on", "");
    struct stager_stream *stream = open_kind(&fixture, &kinds[1], NULL);
    struct stager_batch *batch = fixture_take(stream);
    struct stager_batch_info info = {.struct_size = sizeof(info)};
    stager_batch_info(batch, &info);
    CHECK(info.bytes < 1024);
    CHECK_INT(check_batch(stream, batch, &kinds[1]), 0);
    struct stager_tensor t;
    CHECK_INT(stager_batch_tensor(batch, "half", &t), -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(stager_error_text(stream), "\"half\" is not in the batches");
    CHECK_INT(stager_batch_tensor(batch, "haf", &t), -STAGER_NOT_FOUND);
    CHECK_CONTAINS(stager_error_text(stream), "the batch has v");
    CHECK_INT(stager_batch_tensor_at(batch, 1, &t), -STAGER_OUT_OF_RANGE);
    const char *fetch = "staged:half";
    CHECK_INT(stager_run(stream, batch, &fetch, 1, &t), -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(stager_error_text(stream), "\"staged:half\" is needed but is not in");
    fetch = "cube"; /* not declared, but this process has all its inputs */
    CHECK_INT(stager_run(stream, batch, &fetch, 1, &t), 0);
    check_value("cube", &t, 0);
    stager_release(batch);
    stager_close(stream);
    fixture_finish(&fixture);
}

static void names_that_are_not_there_are_refused_at_open(void)
{
    static const char *const bad[] = {"hafl", "cub", ""};
    const struct kind field = {.fields = bad, .n_fields = 1},
                      fetch = {.fetches = bad + 1, .n_fetches = 1},
                      empty = {.fetches = bad + 2, .n_fetches = 1};
    struct fixture fixture;
    struct stager_stream *stream;
    fixture_start(&fixture, "");
    apply(&fixture, 9, "on", "");
    CHECK_INT(try_open(&fixture, &field, NULL, 2, &stream), -STAGER_NOT_FOUND);
    CHECK_CONTAINS(stager_error_text(NULL), "did you mean \"staged:half\"?");
    CHECK_INT(try_open(&fixture, &fetch, NULL, 2, &stream), -STAGER_NOT_FOUND);
    CHECK_CONTAINS(stager_error_text(NULL), "did you mean \"cube\"?");
    CHECK_INT(try_open(&fixture, &empty, NULL, 2, &stream), -STAGER_INVALID_ARGUMENT);
    fixture_finish(&fixture);
}

static void all_features_are_there_while_a_place_is_free(void)
{
    struct fixture fixture;
    struct stager_batch *batch;
    struct stager_batch_info info = {.struct_size = sizeof(info)};
    fixture_start(&fixture, "");
    apply(&fixture, 64, "off", "  num_clients: 2\n  capacity: 2\n");
    struct stager_stream *a = open_kind(&fixture, &kinds[1], NULL);
    batch = fixture_take(a);
    stager_batch_info(batch, &info);
    CHECK(info.bytes > BIG * sizeof(float));
    stager_release(batch);
    struct stager_stream *b = open_kind(&fixture, &kinds[1], NULL);
    do { /* the batches made before it opened */
        batch = fixture_take(b);
        stager_batch_info(batch, &info);
        stager_release(batch);
        CHECK(info.index < 20);
    } while (info.bytes > BIG * sizeof(float));
    stager_close(a);
    struct stager_stream *all = open_kind(&fixture, &kinds[0], NULL);
    for (int i = 0; i < 8; i++)
        take_one(all, &kinds[0]);
    stager_close(all);
    stager_close(b);
    fixture_finish(&fixture);
}

static bool is_full(const struct fixture_status *status, void *arg)
{
    return status->buffered == status->capacity;
}

/* Only v crosses while both trainers are attached. After they left, the buffer is full of
 * batches that no remaining client can use. */
static void a_batch_that_no_remaining_client_can_use_is_counted_as_lost(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply(&fixture, 24, "off",
          "  num_clients: 2\n  capacity: 3\n  reconnect_grace_millis: 0\n");
    struct stager_stream *a = open_kind(&fixture, &kinds[1], "a");
    struct stager_stream *b = open_kind(&fixture, &kinds[1], "b");
    while (take_one(a, &kinds[1]) < 5) {
    }
    fixture_wait(&fixture, "p", fixture_millis(10000), is_full, NULL);
    stager_close(a);
    struct stager_stream *all = open_kind(&fixture, &kinds[0], "c");
    stager_close(b);
    struct stager_batch *batch;
    int rc, n = 0;
    while ((rc = stager_next(all, fixture_millis(60000), &batch)) == 0) {
        check_batch(all, batch, &kinds[0]);
        stager_release(batch);
        n++;
    }
    CHECK_INT(rc, -STAGER_OUT_OF_RANGE);
    struct seen seen;
    look(&fixture, &seen);
    CHECK(n > 0 && seen.lost >= 3);
    stager_close(all);
    fixture_finish(&fixture);
}

static void an_error_of_a_node_that_moved_comes_where_it_was_written(void)
{
    static const char *const fetch[] = {"y"};
    const struct kind trains = {.fetches = fetch, .n_fetches = 1};
    struct fixture fixture;
    fixture_start(&fixture, "");
    fixture_apply(&fixture, "name: p\n"
                            "dataset: [{range: {stop: 4}}, {batch: {batch_size: 1}}]\n"
                            "graph:\n"
                            "  - {name: two, op: constant, value: 2, dtype: int64}\n"
                            "  - {name: off, op: subtract, input: [\"staged:v\", two]}\n"
                            "  - {name: part, op: floordiv, input: [\"staged:v\", off]}\n"
                            "  - {name: bias, op: variable, shape: [1], dtype: int64}\n"
                            "  - {name: y, op: add, input: [part, bias]}\n"
                            "staged: {features: {v: value}}\n"
                            "targets: [y]\nsmart_stage: on\n");
    struct stager_stream *stream = open_kind(&fixture, &trains, NULL);
    check_moved(&fixture, " off part");
    for (int64_t i = 0; i < 4; i++) {
        struct stager_batch *batch = fixture_take(stream);
        struct stager_tensor t;
        CHECK_INT(stager_batch_tensor(batch, "v", &t), 0);
        CHECK_INT(*int64_of(&t), i);
        int rc = stager_run(stream, batch, fetch, 1, &t);
        CHECK_INT(rc, i == 2 ? -STAGER_INVALID_ARGUMENT : 0);
        if (rc < 0)
            CHECK_CONTAINS(stager_error_text(stream), "node part (floordiv)");
        stager_release(batch);
    }
    struct seen seen;
    look(&fixture, &seen);
    CHECK_INT(seen.own_partitions, 1);
    stager_close(stream);
    fixture_finish(&fixture);
}

static void a_client_that_reconnects_and_asks_for_more_is_refused(void)
{
    struct fixture fixture;
    struct stager_stream *stream;
    fixture_start(&fixture, "");
    apply(&fixture, 64, "on", "  num_clients: 2\n  delivery: broadcast\n");
    struct stager_stream *a = open_kind(&fixture, &kinds[1], "a");
    struct stager_stream *b = open_kind(&fixture, &kinds[1], "b");
    CHECK_INT(take_one(a, &kinds[1]), 0);
    CHECK_INT(take_one(b, &kinds[1]), 0);
    stager_close(b);
    CHECK_INT(try_open(&fixture, &kinds[0], "b", 2, &stream),
              -STAGER_FAILED_PRECONDITION);
    CHECK_CONTAINS(stager_error_text(NULL), "client b of pipeline p reconnects");
    b = open_kind(&fixture, &kinds[1], "b");
    CHECK_INT(take_one(b, &kinds[1]), 1);
    stager_close(b);
    stager_close(a);
    fixture_finish(&fixture);
}

/* A fed tensor does not come from a value that stagerd computed otherwise. */
static void a_feed_is_not_overruled_by_what_was_run_ahead(void)
{
    struct fixture fixture;
    fixture_start(&fixture, "");
    apply(&fixture, 9, "on", "");
    struct stager_stream *stream = open_kind(&fixture, &kinds[0], NULL);
    struct stager_batch *batch = fixture_take(stream);
    const char *fetch = "sum";
    int64_t ten = 10;
    struct stager_tensor t, feed = {.name = "staged:v",
                                    .dtype = STAGER_INT64,
                                    .ndim = 1,
                                    .shape = {1},
                                    .data = &ten,
                                    .data_bytes = sizeof(ten)};
    CHECK_INT(stager_run_fed(stream, batch, &feed, 1, &fetch, 1, &t), 0);
    CHECK_INT(*int64_of(&t), 1001);
    feed.name = "cube";
    CHECK_INT(stager_run_fed(stream, batch, &feed, 1, &fetch, 1, &t), 0);
    CHECK_INT(*int64_of(&t), 11);
    feed.name = "square"; /* v is 0 */
    CHECK_INT(stager_run_fed(stream, batch, &feed, 1, &fetch, 1, &t), 0);
    CHECK_INT(*int64_of(&t), 1);
    CHECK_INT(stager_run(stream, batch, &fetch, 1, &t), 0);
    CHECK_INT(*int64_of(&t), 1);
    stager_release(batch);
    stager_close(stream);
    fixture_finish(&fixture);
}

/* ---- many trainers, and kills ---- */

struct role {
    int kind;
    char id[16]; /* "": none */
};

/* The reports of a trainer, in addition to checked items. */
#define IS_OVER (-1)
#define HAS_OPENED (-2)

/* Reports that it has opened, then each checked item; continues on request; ends with the
 * pass. */
static void train(struct fixture *fixture, int fd, void *arg)
{
    const struct role *role = arg;
    struct stager_stream *stream;
    struct stager_batch *batch;
    int rc;
    while ((rc = try_open(fixture, &kinds[role->kind], role->id[0] ? role->id : NULL, 2,
                          &stream)) == -STAGER_RESOURCE_EXHAUSTED ||
           rc == -STAGER_ALREADY_EXISTS) {
    }
    if (rc < 0)
        FAIL("open: %s", stager_error_text(NULL));
    trainer_send(fd, HAS_OPENED);
    while ((rc = stager_next(stream, fixture_millis(60000), &batch)) == 0) {
        int64_t i = check_batch(stream, batch, &kinds[role->kind]);
        stager_release(batch);
        trainer_send(fd, i);
        trainer_recv(fd);
    }
    if (rc != -STAGER_OUT_OF_RANGE)
        FAIL("next: %s", stager_error_text(stream));
    trainer_send(fd, IS_OVER);
    stager_close(stream);
}

/* Waits until it has opened. The others must not end the pass before, or it would wait
 * for the same kinds in the next pass. */
static void start(struct trainer *trainer, struct fixture *fixture, struct role *role)
{
    trainer_start(trainer, train, fixture, role);
    CHECK_INT(trainer_recv(trainer->fd), HAS_OPENED);
}

static unsigned next_random(unsigned *state)
{
    *state = *state * 1103515245u + 12345u;
    return *state >> 16;
}

/* Waits for the n-th trainer that has sent something. */
static int any_that_speaks(const struct trainer *trainers, const bool *over, unsigned n)
{
    struct pollfd fds[3];
    for (int i = 0; i < 3; i++)
        fds[i] = (struct pollfd){.fd = over[i] ? -1 : trainers[i].fd, .events = POLLIN};
    CHECK(poll(fds, 3, (int)fixture_millis(20000)) > 0);
    for (int i = (int)(n % 3);; i = (i + 1) % 3) {
        if (fds[i].revents != 0)
            return i;
    }
}

/* Runs three trainers that change their kind with each kill. A killed trainer starts
 * again (under its name with its old kind). */
static void run_with_kills(const char *delivery, const char *smart_stage, bool named,
                           unsigned seed, int n_items)
{
    struct fixture fixture;
    struct trainer trainers[3];
    struct role roles[3];
    char staged[128];
    fixture_start(&fixture, "");
    snprintf(staged, sizeof(staged),
             "  num_clients: 3\n  delivery: %s\n  capacity: 3\n  num_threads: 2\n",
             delivery);
    apply(&fixture, n_items, smart_stage, staged);
    for (int i = 0; i < 3; i++) {
        roles[i] = (struct role){.kind = (int)(next_random(&seed) % N_KINDS)};
        if (named)
            snprintf(roles[i].id, sizeof(roles[i].id), "r%d", i);
        start(&trainers[i], &fixture, &roles[i]);
    }
    bool over[3] = {false};
    for (int n_over = 0, kills = 0; n_over < 3;) {
        int i = any_that_speaks(trainers, over, next_random(&seed));
        int64_t item = trainer_recv(trainers[i].fd);
        over[i] = item == IS_OVER;
        n_over += over[i];
        bool begins_anew =
            item > n_items / 2 && !named; /* alone it would wait for ever */
        if (over[i] || begins_anew || kills > 12 || next_random(&seed) % 4 != 0) {
            if (!over[i])
                trainer_send(trainers[i].fd, 0);
            continue;
        }
        kills++;
        trainer_kill(&trainers[i]);
        if (!named)
            roles[i].kind = (int)(next_random(&seed) % N_KINDS);
        start(&trainers[i], &fixture, &roles[i]);
    }
    for (int i = 0; i < 3; i++)
        trainer_join(&trainers[i]);
    fixture_finish(&fixture);
}

static void each_gets_its_own_under_kills_when_items_are_split(void)
{
    for (unsigned seed = 1; seed <= 3; seed++) {
        run_with_kills("split", "on", false, seed, 150);
        run_with_kills("split", "off", seed == 2, seed + 10, 150);
    }
}

static void each_gets_its_own_under_kills_when_all_get_all(void)
{
    for (unsigned seed = 1; seed <= 3; seed++)
        run_with_kills("broadcast", "on", seed != 2, seed, 120);
}

static void each_gets_its_own_under_kills_in_rounds(void)
{
    for (unsigned seed = 1; seed <= 3; seed++)
        run_with_kills("round_robin", "on", true, seed, 150);
}

static const struct stg_test tests[] = {
    TEST(what_the_targets_depend_on_moves_with_on),
    TEST(nothing_moves_with_off_nor_yet_with_auto),
    TEST(a_fetch_is_never_run_ahead),
    TEST(unused_outputs_are_not_sent),
    TEST(names_that_are_not_there_are_refused_at_open),
    TEST(all_features_are_there_while_a_place_is_free),
    TEST(a_batch_that_no_remaining_client_can_use_is_counted_as_lost),
    TEST(an_error_of_a_node_that_moved_comes_where_it_was_written),
    TEST(a_client_that_reconnects_and_asks_for_more_is_refused),
    TEST(a_feed_is_not_overruled_by_what_was_run_ahead),
    TEST(each_gets_its_own_under_kills_when_items_are_split),
    TEST(each_gets_its_own_under_kills_when_all_get_all),
    TEST(each_gets_its_own_under_kills_in_rounds),
};
TEST_MAIN(tests)
