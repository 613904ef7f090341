/* SPDX-License-Identifier: Apache-2.0
 *
 * Named clients that are killed at every named point of their life (points.h), and come
 * back, over all three deliveries. A ledger in memory that outlives them holds each batch
 * of each client: what was given is acknowledged exactly once, or comes again.
 *
 *     STG_KILLS=7000 STG_KILLS_SEED=1 STG_TEST_SLOW=60 test_faults_kills broadcast
 *
 * A round is one run of a pipeline that is drawn from the seed: its clients, passes,
 * items and a number of kills. Rounds follow until so many kills were made.
 */
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/core/random.h"
#include "tests/faults/points.h"
#include "tests/system/fixture.h"

#define MAX_CLIENTS 4
#define MAX_ITEMS 64 /* of a pass */
#define MAX_PASSES 2
#define MAX_IN_FLIGHT 3
#define KILLS 150 /* per delivery, unless STG_KILLS is set */

enum delivery { SPLIT, BROADCAST, ROUND_ROBIN };

static const char *const deliveries[] = {"split", "broadcast", "round_robin"};

struct round {
    enum delivery delivery;
    uint32_t n_clients, max_in_flight, n_items, n_passes, capacity, num_threads;
    char name[16];
};

/* The history of one batch at one client. */
struct entry {
    _Atomic int got;      /* number of times that stager_next returned it */
    _Atomic bool may_be;  /* calls that acknowledge it and have begun */
    _Atomic bool is_done; /* those that have returned */
};

/* Shared by the test and the clients; a client writes only to its own part. */
struct ledger {
    struct entry entries[MAX_CLIENTS][MAX_ITEMS * MAX_PASSES];
    _Atomic uint32_t n_opened; /* clients that have opened once */
    struct client {
        _Atomic bool has_opened, is_finished;
        _Atomic uint32_t ends; /* passes that it received the end of */
        _Atomic int died_at;
    } clients[MAX_CLIENTS];
    /* opens that failed for memory not yet released by others */
    _Atomic uint32_t n_refused;
    _Atomic int has_failed;
    char why[512]; /* of the first failure */
};

static struct ledger *ledger;
static struct round now;
static uint64_t n_kills[N_POINTS], n_rounds, n_again, n_refused;

/* ---- a client, in its process ---- */

struct life {
    uint32_t id;
    bool manual_ack, holds;
    struct stager_stream *stream;
    struct stager_batch *held[MAX_IN_FLIGHT];
    uint64_t numbers[MAX_IN_FLIGHT];
    uint32_t n_held;
    int64_t last; /* number of the last batch of this stream */
};

static void die_because(const struct life *life, const char *fmt, ...)
    __attribute__((format(printf, 2, 3), noreturn));

static void die_because(const struct life *life, const char *fmt, ...)
{
    if (atomic_exchange(&ledger->has_failed, 1) == 0) {
        va_list args;
        int n = snprintf(ledger->why, sizeof(ledger->why), "client %u: ", life->id);
        va_start(args, fmt);
        vsnprintf(ledger->why + n, sizeof(ledger->why) - (size_t)n, fmt, args);
        va_end(args);
    }
    _exit(1);
}

static struct entry *entry_of(const struct life *life, uint64_t number)
{
    if (number >= (uint64_t)now.n_items * now.n_passes)
        die_because(life, "was given batch %d of %u", (int)number,
                    now.n_items * now.n_passes);
    return &ledger->entries[life->id][number];
}

/* The entry of any client under split, otherwise of this one. */
static bool any_did(const struct life *life, uint64_t number,
                    bool (*did)(const struct entry *entry))
{
    if (now.delivery != SPLIT)
        return did(&ledger->entries[life->id][number]);
    bool any = false;
    for (uint32_t i = 0; i < now.n_clients; i++)
        any |= did(&ledger->entries[i][number]);
    return any;
}

static bool was_got(const struct entry *entry)
{
    return atomic_load(&entry->got) > 0;
}

static bool was_acknowledged(const struct entry *entry)
{
    return atomic_load(&entry->is_done);
}

static bool may_be_acknowledged(const struct entry *entry)
{
    return atomic_load(&entry->may_be);
}

static void check_value(const struct life *life, const struct stager_batch *batch,
                        uint64_t number)
{
    struct stager_tensor tensor;
    if (stager_batch_tensor(batch, "value", &tensor) < 0 ||
        *(const int64_t *)tensor.data != (int64_t)(number % now.n_items))
        die_because(life, "batch %d has another's value", (int)number);
}

static void note_batch(struct life *life, struct stager_batch *batch)
{
    struct stager_batch_info info = {.struct_size = sizeof(info)};
    stager_batch_info(batch, &info);
    struct entry *entry = entry_of(life, info.number);
    int number = (int)info.number;
    check_value(life, batch, info.number);
    if (any_did(life, info.number, was_acknowledged))
        die_because(life, "batch %d came after it was acknowledged", number);
    if (!info.redelivered && any_did(life, info.number, was_got))
        die_because(life, "batch %d came again without a word", number);
    if (number <= life->last && (now.delivery != SPLIT || !info.redelivered))
        die_because(life, "batch %d came after %d", number, (int)life->last);
    if (now.delivery != SPLIT || !info.redelivered)
        life->last = number;
    atomic_fetch_add(&entry->got, 1);
    life->held[life->n_held] = batch;
    life->numbers[life->n_held++] = info.number;
}

static void acknowledge(const struct life *life, bool done)
{
    for (uint32_t i = 0; i < life->n_held && !life->manual_ack; i++) {
        struct entry *entry = entry_of(life, life->numbers[i]);
        atomic_store(done ? &entry->is_done : &entry->may_be, true);
    }
}

static void release_first(struct life *life)
{
    struct entry *entry = entry_of(life, life->numbers[0]);
    atomic_store(&entry->may_be, true);
    stager_release(life->held[0]);
    atomic_store(&entry->is_done, true);
    life->n_held--;
    memmove(&life->held[0], &life->held[1], life->n_held * sizeof(life->held[0]));
    memmove(&life->numbers[0], &life->numbers[1],
            life->n_held * sizeof(life->numbers[0]));
}

/* Returns whether this client acknowledged, or may have acknowledged, all its batches of
 * the pass. */
static void check_pass(const struct life *life, uint64_t pass)
{
    uint64_t first = pass * now.n_items;
    uint64_t stride = now.delivery == ROUND_ROBIN ? now.n_clients : 1;
    uint64_t offset = 0;
    if (now.delivery == ROUND_ROBIN) {
        while (offset < stride && !was_got(entry_of(life, first + offset)))
            offset++;
    }
    for (uint64_t i = first + offset; i < first + now.n_items; i += stride) {
        if (!any_did(life, i, may_be_acknowledged))
            die_because(life, "pass %d ended without batch %d", (int)pass, (int)i);
    }
    for (uint64_t i = first; i < first + now.n_items && stride > 1; i++) {
        if ((i - first) % stride != offset && was_got(entry_of(life, i)))
            die_because(life, "batch %d is of another rank", (int)i);
    }
}

static void take_end(struct life *life)
{
    struct client *self = &ledger->clients[life->id];
    struct stager_stream_info info = {.struct_size = sizeof(info)};
    stager_stream_info(life->stream, &info);
    uint32_t ends = atomic_load(&self->ends);
    if (info.end_pass != ends && info.end_pass + 1 != ends)
        die_because(life, "took the end of pass %d after %u ends", (int)info.end_pass,
                    ends);
    check_pass(life, info.end_pass);
    atomic_store(&self->ends, (uint32_t)info.end_pass + 1);
    atomic_store(&self->is_finished, info.end_pass + 1 == now.n_passes);
    point_reach(POINT_ENDED);
}

static void take_next(struct life *life)
{
    struct stager_batch *batch;
    acknowledge(life, false);
    int rc = stager_next(life->stream, fixture_millis(20000), &batch);
    acknowledge(life, true);
    if (rc == 0) {
        note_batch(life, batch);
        point_reach(POINT_IN_HAND);
    } else if (rc == -STAGER_OUT_OF_RANGE) {
        while (life->n_held > 0)
            release_first(life);
        take_end(life);
    } else {
        die_because(life, "next: %d: %s", rc, stager_error_text(life->stream));
    }
    bool full = life->n_held == now.max_in_flight || !life->holds;
    while (life->n_held > (life->holds ? now.max_in_flight - 1 : 0) && full)
        release_first(life);
    if (rc < 0 && !atomic_load(&ledger->clients[life->id].is_finished))
        stager_rewind(life->stream);
}

/* No client takes before all have opened once: another test covers a client that first
 * attaches after the end of a pass. */
static void await_others(const struct life *life)
{
    struct client *self = &ledger->clients[life->id];
    if (!atomic_exchange(&self->has_opened, true))
        atomic_fetch_add(&ledger->n_opened, 1);
    struct timespec wait = {.tv_nsec = 200000};
    for (int64_t end = now_millis() + fixture_millis(20000);
         atomic_load(&ledger->n_opened) < now.n_clients; nanosleep(&wait, NULL)) {
        if (now_millis() > end)
            die_because(life, "the others do not come");
    }
}

static void open_stream(struct fixture *fixture, struct life *life)
{
    char client_id[16];
    snprintf(client_id, sizeof(client_id), "client-%u", life->id);
    struct stager_options options = {.struct_size = sizeof(options),
                                     .client_id = client_id,
                                     .runtime_dir = fixture->runtime,
                                     .max_in_flight = now.max_in_flight,
                                     .manual_ack = life->manual_ack};
    struct timespec wait = {.tv_nsec = 1000000};
    int64_t end = now_millis() + fixture_millis(20000);
    int rc;
    /* Other clients that closed in the middle may still hold batches. */
    while ((rc = stager_open(NULL, now.name, &options, &life->stream)) ==
               -STAGER_RESOURCE_EXHAUSTED &&
           strstr(stager_error_text(NULL), "processes that closed") != NULL &&
           now_millis() < end) {
        atomic_fetch_add(&ledger->n_refused, 1);
        nanosleep(&wait, NULL);
    }
    if (rc < 0)
        die_because(life, "open: %s", stager_error_text(NULL));
    life->last = -1;
    point_reach(POINT_OPENED);
}

/* Batches in hand are redelivered: a release after close acknowledges nothing. */
static void close_stream(struct life *life)
{
    stager_close(life->stream);
    while (life->n_held > 0)
        stager_release(life->held[--life->n_held]);
    point_reach(POINT_CLOSED);
}

/* Some clients close the stream in the middle, and open it again. */
static void live(struct fixture *fixture, uint32_t id, uint64_t seed)
{
    struct random random = {seed};
    struct life life = {.id = id};
    life.manual_ack = random_below(&random, 3) == 0;
    /* Under split, the end of a pass waits for unacknowledged batches. */
    life.holds =
        random_below(&random, 2) == 0 && (now.delivery != SPLIT || !life.manual_ack);
    bool leaves = random_below(&random, 3) == 0;
    while (!atomic_load(&ledger->clients[id].is_finished)) {
        uint32_t n_left = leaves ? random_below(&random, 8) : UINT32_MAX;
        open_stream(fixture, &life);
        await_others(&life);
        while (!atomic_load(&ledger->clients[id].is_finished) && n_left-- > 0)
            take_next(&life);
        close_stream(&life);
    }
}

/* ---- a round ---- */

/* Chooses the point of the next death in a part of the client's life that still lies
 * ahead. */
static void draw_plan(struct random *random, enum point *point, uint32_t *n)
{
    *point = (enum point)(1 + random_below(random, N_POINTS - 1));
    *n = 1;
    if (*point >= POINT_ASKED && *point <= POINT_RANG)
        *n = 1 + (uint32_t)random_below(random, 6);
    if (*point == POINT_ANYWHERE)
        *n = 1 + (uint32_t)random_below(random, 4000);
}

static void start(struct fixture *fixture, pid_t *pids, uint32_t id, bool dies,
                  struct random *random)
{
    enum point point = POINT_NONE;
    uint32_t n = 0;
    uint64_t seed = random_next(random);
    if (dies)
        draw_plan(random, &point, &n);
    fflush(NULL);
    pids[id] = fork();
    CHECK(pids[id] >= 0);
    if (pids[id] > 0)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves no client behind */
    point_plan(point, n, &ledger->clients[id].died_at);
    live(fixture, id, seed);
    _exit(0);
}

static void show_round(void)
{
    fprintf(stderr,
            "    %s: %u clients, %u passes of %u items, capacity %u, num_threads %u\n",
            deliveries[now.delivery], now.n_clients, now.n_passes, now.n_items,
            now.capacity, now.num_threads);
    for (uint32_t i = 0; i < now.n_clients; i++)
        fprintf(stderr, "    client %u: opened %d, %u ends, last died at: %s\n", i,
                (int)ledger->clients[i].has_opened, ledger->clients[i].ends,
                point_name((enum point)ledger->clients[i].died_at));
}

/* Restarts killed clients until each has received every end. Returns the number of kills.
 */
static uint32_t run_clients(struct fixture *fixture, uint32_t n_deaths,
                            struct random *random)
{
    pid_t pids[MAX_CLIENTS];
    uint32_t n_killed = 0, n_left = now.n_clients, n_planned = 0;
    for (uint32_t i = 0; i < now.n_clients; i++)
        start(fixture, pids, i, n_planned++ < n_deaths, random);
    while (n_left > 0) {
        int status;
        pid_t pid = waitpid(-1, &status, 0);
        uint32_t id = 0;
        while (id < now.n_clients && pids[id] != pid)
            id++;
        if (id == now.n_clients)
            FAIL("%s: stagerd ended", now.name);
        bool was_killed = WIFSIGNALED(status) &&
                          (WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGALRM);
        if (!was_killed && status != 0) {
            show_round();
            FAIL("%s (status %d)", ledger->why, status);
        }
        n_killed += was_killed;
        n_kills[was_killed ? ledger->clients[id].died_at : POINT_NONE]++;
        if (!was_killed || ledger->clients[id].is_finished)
            n_left--;
        else
            start(fixture, pids, id, n_planned++ < n_deaths, random);
    }
    return n_killed;
}

/* Counts for each batch, of one client, or of all under split. */
static void check_entries(uint32_t first, uint32_t n)
{
    for (uint32_t k = 0; k < now.n_items * now.n_passes; k++) {
        int n_done = 0, n_may_be = 0, n_got = 0;
        for (uint32_t i = first; i < first + n; i++) {
            n_done += ledger->entries[i][k].is_done;
            n_may_be += ledger->entries[i][k].may_be;
            n_got += ledger->entries[i][k].got;
        }
        n_again += n_got > 1 ? (uint64_t)n_got - 1 : 0;
        bool is_mine = now.delivery != ROUND_ROBIN || n_got > 0;
        if (n_done > 1 || (is_mine && n_may_be == 0)) {
            show_round();
            FAIL("batch %u was acknowledged %d times, and perhaps %d", k, n_done,
                 n_may_be);
        }
    }
}

static void check_ledger(struct fixture *fixture)
{
    if (now.delivery == SPLIT)
        check_entries(0, now.n_clients);
    for (uint32_t i = 0; i < now.n_clients && now.delivery != SPLIT; i++)
        check_entries(i, 1);
    struct fixture_status status;
    fixture_status(fixture, now.name, &status);
    if (status.acknowledged != now.n_items * now.n_passes || status.lost != 0 ||
        status.evicted != 0 || status.discarded_published != 0) {
        show_round();
        FAIL("%s: acknowledged %d of %u, lost %d, evicted %d, discarded %d", now.name,
             (int)status.acknowledged, now.n_items * now.n_passes, (int)status.lost,
             (int)status.evicted, (int)status.discarded_published);
    }
}

static void draw_round(struct random *random, enum delivery delivery)
{
    now = (struct round){.delivery = delivery};
    now.n_clients = 1 + (uint32_t)random_below(random, MAX_CLIENTS);
    now.max_in_flight = 1 + (uint32_t)random_below(random, MAX_IN_FLIGHT);
    now.n_items =
        now.n_clients * (1 + (uint32_t)random_below(random, MAX_ITEMS / MAX_CLIENTS));
    now.n_passes = 1 + (uint32_t)random_below(random, MAX_PASSES);
    now.capacity = 1 + (uint32_t)random_below(random, 3);
    now.num_threads = 1 + (uint32_t)random_below(random, 2);
    snprintf(now.name, sizeof(now.name), "p%u", (unsigned)n_rounds++);
}

static void apply(struct fixture *fixture)
{
    char yaml[512];
    snprintf(yaml, sizeof(yaml),
             "name: %s\ndataset:\n  - range: {stop: %u}\n"
             "staged: {delivery: %s, num_clients: %u, capacity: %u, num_threads: %u, "
             "max_batch_bytes: 64KiB}\n",
             now.name, now.n_items, deliveries[now.delivery], now.n_clients, now.capacity,
             now.num_threads);
    fixture_apply(fixture, yaml);
}

static uint32_t run_round(struct fixture *fixture, enum delivery delivery,
                          struct random *random)
{
    struct stg_reply reply;
    draw_round(random, delivery);
    memset(ledger, 0, sizeof(*ledger));
    apply(fixture);
    uint32_t n = run_clients(fixture, 4 + (uint32_t)random_below(random, 28), random);
    check_ledger(fixture);
    n_refused += ledger->n_refused;
    stager_disconnect(fixture_ask(fixture, STG_REQUEST_DELETE, now.name, &reply));
    return n;
}

/* ---- the tests ---- */

static uint64_t number_of(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);
    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

static void show_counts(const char *delivery, uint64_t n, uint64_t seed)
{
    printf("    %s: %llu kills in %llu rounds, %llu batches again, %llu opens "
           "tried again, 0 batches lost; STG_KILLS_SEED=%llu\n   ",
           delivery, (unsigned long long)n, (unsigned long long)n_rounds,
           (unsigned long long)n_again, (unsigned long long)n_refused,
           (unsigned long long)seed);
    for (int i = POINT_NONE + 1; i < N_POINTS; i++)
        printf(" %s %llu%s", point_name((enum point)i), (unsigned long long)n_kills[i],
               i + 1 < N_POINTS ? "," : "\n");
}

static void attack(enum delivery delivery)
{
    uint64_t wanted = number_of("STG_KILLS", KILLS), n = 0;
    uint64_t seed = number_of("STG_KILLS_SEED", (uint64_t)time(NULL));
    struct random random = {seed + delivery};
    struct fixture fixture;
    fixture_start(&fixture, "memory_budget: 256MiB\n");
    ledger = mmap(NULL, sizeof(*ledger), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(ledger != MAP_FAILED);
    printf("    STG_KILLS_SEED=%llu\n", (unsigned long long)seed);
    while (n < wanted)
        n += run_round(&fixture, delivery, &random);
    show_counts(deliveries[delivery], n, seed);
    munmap(ledger, sizeof(*ledger));
    fixture_finish(&fixture);
}

static void under_split_each_batch_is_acknowledged_once(void)
{
    attack(SPLIT);
}

static void under_broadcast_each_name_has_every_batch(void)
{
    attack(BROADCAST);
}

static void under_round_robin_each_rank_has_its_batches_in_order(void)
{
    attack(ROUND_ROBIN);
}

static const struct stg_test tests[] = {
    TEST_SLOW(under_split_each_batch_is_acknowledged_once, 120),
    TEST_SLOW(under_broadcast_each_name_has_every_batch, 120),
    TEST_SLOW(under_round_robin_each_rank_has_its_batches_in_order, 120),
};

TEST_MAIN(tests)
