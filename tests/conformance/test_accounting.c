/* SPDX-License-Identifier: Apache-2.0
 *
 * Every item is accounted for. Trainers are killed, stopped, slow, leave and reconnect;
 * items fail, are ignored and are dropped. The seed determines all choices but not the
 * timing. STG_SEED=n repeats the choices of seed n; STG_ACCOUNT_SEEDS=n makes n runs of
 * each delivery.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/conformance/account_book.h"

#define N_SEEDS 10
#define STALL_MILLIS 100
#define END_MILLIS 60000

struct run {
    struct fixture fixture;
    struct book *book;
    struct trainer trainers[BOOK_MAX_LIVES];
    int current[BOOK_MAX_CLIENTS]; /* the current life of that slot */
    uint64_t resume[BOOK_MAX_CLIENTS];
    bool stopped[BOOK_MAX_CLIENTS];
};

static const char *const deliveries[] = {"split", "broadcast", "round_robin"};
static const char *const items_names[] = {"fine", "errors", "ignored",
                                          "errors and ignored"};
static const char *const event_names[] = {"kill", "leave", "stop"};

/* ---- choices ---- */

static uint64_t random_state;

/* splitmix64 */
static int draw(int n)
{
    uint64_t x = random_state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (int)((x ^ (x >> 31)) % (uint64_t)n);
}

static void choose_events(struct book_plan *plan)
{
    uint64_t most = (uint64_t)plan->n_items * (uint64_t)plan->n_passes *
                    (plan->delivery == 1 ? (uint64_t)plan->n_clients : 1);
    plan->n_events = draw(8) == 0 ? 0 : 1 + draw(BOOK_MAX_EVENTS);
    uint64_t at = 0;
    for (int i = 0; i < plan->n_events; i++) {
        struct book_event *event = &plan->events[i];
        at += (uint64_t)draw((int)most / plan->n_events);
        event->at = at;
        event->kind = (enum book_event_kind)draw(3);
        event->slot = draw(plan->n_clients);
        if (event->slot == 0 && event->kind != EVENT_STOP)
            event->slot = plan->n_clients - 1; /* slot 0 is always used */
        if (event->slot == 0)
            event->kind = EVENT_STOP;
        event->same_id = plan->rejoin || draw(2) == 0;
        event->wait_seen = draw(2) == 0;
        event->resume = 1 + (uint64_t)draw(60);
    }
    /* Drawn last, so that the other choices of a seed stay the same. Without a client_id,
     * or if clients may not reconnect, the process would be a new client. */
    for (int i = 0; i < plan->n_events; i++) {
        struct book_event *event = &plan->events[i];
        if (plan->rejoin && event->same_id && event->kind != EVENT_STOP && draw(2) == 0)
            event->dies =
                (enum point)(POINT_CONNECTED + draw(POINT_ASKED - POINT_CONNECTED + 1));
    }
}

static void choose(uint64_t seed, int delivery, struct book_plan *plan)
{
    random_state = seed * 0xd1342543de82ef95u + (uint64_t)delivery;
    *plan = (struct book_plan){.seed = seed, .delivery = delivery};
    plan->n_clients = 1 + draw(delivery == 0 ? 4 : 3) + (delivery != 0);
    plan->n_passes = 1 + draw(3);
    plan->n_items = 60 + draw(240);
    plan->capacity = 1 + draw(5);
    plan->num_threads = 1 + draw(4);
    plan->redeliver = draw(3) != 0;
    plan->rejoin = delivery == 2 || draw(2) == 0;
    plan->items = (enum book_items)draw(4);
    plan->drop = plan->items != BOOK_ERRORS && plan->items != BOOK_BOTH && draw(2) == 0;
    plan->timeout_millis = plan->drop ? 1 + draw(3) : draw(2) == 0 ? 2 : 300000;
    for (int i = 0; i < plan->n_clients; i++) {
        plan->max_in_flight[i] = 1 + draw(i == 0 ? 4 : plan->max_in_flight[0]);
        plan->manual_ack[i] = draw(3) == 0;
        plan->nap_micros[i] = draw(2) == 0 ? 0 : plan->drop ? draw(1000) : draw(200);
    }
    choose_events(plan);
}

static void print_plan(const struct book_plan *plan)
{
    printf("  seed %llu: %s, %d clients, %d passes of %d items (%s), capacity %d, "
           "%d threads, %s after %d ms, redeliver %d, rejoin %d;",
           (unsigned long long)plan->seed, deliveries[plan->delivery], plan->n_clients,
           plan->n_passes, plan->n_items, items_names[plan->items], plan->capacity,
           plan->num_threads, plan->drop ? "drop" : "wait", plan->timeout_millis,
           plan->redeliver, plan->rejoin);
    for (int i = 0; i < plan->n_events; i++)
        printf(" %s %d at %llu%s%s,", event_names[plan->events[i].kind],
               plan->events[i].slot, (unsigned long long)plan->events[i].at,
               plan->events[i].dies != POINT_NONE ? ", dies " : "",
               plan->events[i].dies != POINT_NONE ? point_name(plan->events[i].dies)
                                                  : "");
    printf("\n");
    fflush(stdout);
}

static void apply_plan(struct run *run)
{
    const struct book_plan *plan = &run->book->plan;
    char graph[2048] = "", staged[512];
    bool errors = plan->items == BOOK_ERRORS || plan->items == BOOK_BOTH;
    bool ignored = plan->items == BOOK_IGNORED || plan->items == BOOK_BOTH;
    snprintf(graph, sizeof(graph),
             "  - {name: seven, op: constant, value: 7, dtype: int64}\n"
             "  - {name: three, op: constant, value: %d, dtype: int64}\n"
             "  - {name: left7, op: floormod, input: [value, seven]}\n"
             "  - {name: fine7, op: not_equal, input: [left7, three]}\n"
             "  - {name: first, op: assert, input: [fine7, value], code: DATA_LOSS}\n"
             "  - {name: five, op: constant, value: 5, dtype: int64}\n"
             "  - {name: two, op: constant, value: %d, dtype: int64}\n"
             "  - {name: left5, op: floormod, input: [first, five]}\n"
             "  - {name: fine5, op: not_equal, input: [left5, two]}\n"
             "  - {name: out, op: assert, input: [fine5, first], code: NOT_FOUND}\n",
             errors ? 3 : -1, ignored ? 2 : -1);
    snprintf(
        staged, sizeof(staged),
        "delivery: %s, num_clients: %d, capacity: %d, num_threads: %d, "
        "on_timeout: %s, timeout_millis: %d, redeliver: %s, reconnect_grace_millis: %d, "
        "ignored_exception_types: [NOT_FOUND], max_ignored: 1000000, "
        "max_batch_bytes: 65536",
        deliveries[plan->delivery], plan->n_clients, plan->capacity, plan->num_threads,
        plan->drop ? "drop" : "wait", plan->timeout_millis,
        plan->redeliver ? "true" : "false", plan->rejoin ? 300000 : 0);
    apply_rows(&run->fixture, plan->n_items, graph, staged);
}

/* ---- checks at any time ---- */

static void check_trainers(const struct book *book)
{
    if (atomic_load(&book->shared))
        FAIL("%s", book->shared_text);
    for (int i = 0; i < book->n_lives; i++) {
        const struct book_life *life = &book->lives[i];
        if (atomic_load(&life->failed) != 0)
            FAIL("life %d (%s): %d: %s", i, life->client_id, atomic_load(&life->failed),
                 life->text);
    }
}

/* At any time the counters add up and all ranks were offered the same number of steps. */
static struct fixture_status check_status(struct run *run)
{
    struct fixture_status s;
    check_accounts(&run->fixture);
    fixture_status(&run->fixture, "rows", &s);
    for (uint32_t i = 0; run->book->plan.delivery == 2 && i < s.n_clients; i++) {
        if (strcmp(s.clients[i].state, "attached") != 0 || s.pass > 0 ||
            !run->book->plan.redeliver)
            continue;
        CHECK_INT(s.clients[i].assigned - s.clients[i].redelivered,
                  s.clients[0].assigned - s.clients[0].redelivered);
    }
    return s;
}

/* ---- trainers ---- */

static void start_life(struct run *run, int slot, bool same_id)
{
    struct book *book = run->book;
    CHECK(book->n_lives < BOOK_MAX_LIVES);
    int index = book->n_lives++;
    struct book_life *life = &book->lives[index];
    life->slot = slot;
    life->prev = run->current[slot];
    life->goes_on = life->prev >= 0 && same_id;
    if (life->goes_on)
        memcpy(life->client_id, book->lives[life->prev].client_id,
               sizeof(life->client_id));
    else if (life->prev < 0)
        snprintf(life->client_id, sizeof(life->client_id), "c%d", slot);
    struct book_trainer trainer = {.book = book, .life = index};
    trainer_start(&run->trainers[index], book_trainer_body, &run->fixture, &trainer);
    run->current[slot] = index;
    if (trainer_recv(run->trainers[index].fd) != 1)
        check_trainers(book);
}

static bool is_gone(const struct fixture_status *status, void *arg)
{
    return (int)status->n_attached < *(int *)arg;
}

static void stop(struct run *run, int slot)
{
    int status;
    pid_t pid = run->trainers[run->current[slot]].pid;
    CHECK(kill(pid, SIGSTOP) == 0);
    CHECK_INT(waitpid(pid, &status, WUNTRACED), pid);
    if (!WIFSTOPPED(status))
        FAIL("trainer of slot %d ended with status %d", slot, status);
    run->stopped[slot] = true;
}

static void resume(struct run *run, int slot)
{
    if (run->stopped[slot])
        CHECK(kill(run->trainers[run->current[slot]].pid, SIGCONT) == 0);
    run->stopped[slot] = false;
}

static void end_life(struct run *run, const struct book_event *event)
{
    int index = run->current[event->slot];
    struct book_life *life = &run->book->lives[index];
    if (event->kind == EVENT_KILL) {
        atomic_store(&life->fate, FATE_KILLED);
        trainer_kill(&run->trainers[index]);
        run->stopped[event->slot] = false;
        return;
    }
    resume(run, event->slot);
    atomic_store(&life->order, ORDER_LEAVE);
    /* The life may already be done and wait for this message, or be gone. */
    (void)!send(run->trainers[index].fd, &(int64_t){1}, sizeof(int64_t), MSG_NOSIGNAL);
    trainer_join(&run->trainers[index]);
    atomic_store(&life->fate, FATE_LEAVES);
}

/* A process opens with the client_id of the slot's last life and dies while it opens. */
static void die_early(struct run *run, const struct book_event *event)
{
    static _Atomic int died;
    const struct book_life *life = &run->book->lives[run->current[event->slot]];
    int status;
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        struct stager_options options = {
            .struct_size = sizeof(options),
            .client_id = life->client_id,
            .runtime_dir = run->fixture.runtime,
            .max_in_flight = (uint32_t)run->book->plan.max_in_flight[life->slot]};
        struct stager_stream *stream;
        struct stager_batch *batch;
        point_plan(event->dies, 1, &died);
        if (stager_open(NULL, "rows", &options, &stream) < 0)
            FAIL("open of %s: %s", life->client_id, stager_error_text(NULL));
        point_reach(POINT_OPENED);
        (void)stager_next(stream, fixture_millis(20000), &batch);
        FAIL("%s did not die", life->client_id);
    }
    CHECK_INT(waitpid(pid, &status, 0), pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void happen(struct run *run, const struct book_event *event)
{
    int slot = event->slot;
    if (atomic_load(&run->book->lives[run->current[slot]].done))
        return;
    if (event->kind == EVENT_STOP) {
        if (!run->stopped[slot])
            stop(run, slot);
        run->resume[slot] = atomic_load(&run->book->n_taken) + event->resume;
        return;
    }
    end_life(run, event);
    if (event->wait_seen)
        fixture_wait(&run->fixture, "rows", 20000, is_gone, &run->book->plan.n_clients);
    if (event->dies != POINT_NONE)
        die_early(run, event);
    start_life(run, slot, event->same_id);
}

/* ---- a run ---- */

/* Waits until a batch is taken, or for a while. Returns whether one was taken. */
static bool wait_for_news(struct run *run)
{
    uint64_t n;
    struct pollfd fd = {.fd = run->book->event_fd, .events = POLLIN};
    bool news = poll(&fd, 1, STALL_MILLIS) == 1 &&
                read(run->book->event_fd, &n, sizeof(n)) == sizeof(n);
    check_trainers(run->book);
    return news;
}

/* Continues stopped trainers when they are due, or at once if no trainer makes
 * progress. */
static void resume_some(struct run *run, bool all)
{
    for (int slot = 0; slot < run->book->plan.n_clients; slot++) {
        if (all || run->resume[slot] <= atomic_load(&run->book->n_taken))
            resume(run, slot);
    }
}

static bool all_done(const struct run *run)
{
    for (int slot = 0; slot < run->book->plan.n_clients; slot++) {
        if (!atomic_load(&run->book->lives[run->current[slot]].done))
            return false;
    }
    return true;
}

static void play_events(struct run *run)
{
    const struct book_plan *plan = &run->book->plan;
    for (int i = 0; i < plan->n_events && !all_done(run); i++) {
        bool moves = true;
        while (moves && atomic_load(&run->book->n_taken) < plan->events[i].at) {
            moves = wait_for_news(run);
            resume_some(run, !moves);
        }
        happen(run, &plan->events[i]);
        check_status(run);
    }
}

/* A runner that waits for its turn to draw holds memory until it sees the end. */
static bool is_idle(const struct fixture_status *status, void *arg)
{
    return status->n_detached == 0 && status->n_away == 0 &&
           status->unacknowledged == 0 && status->memory_used_bytes == 0;
}

/* Runs to the end of the last pass. A life that began after that end waits for
 * nothing. */
static void play_to_the_end(struct run *run)
{
    struct book *book = run->book;
    int64_t until = now_millis() + fixture_millis(END_MILLIS);
    while (!all_done(run)) {
        bool moves = wait_for_news(run);
        resume_some(run, !moves);
        if (moves)
            continue;
        struct fixture_status status = check_status(run);
        if (status.pass == (uint64_t)book->plan.n_passes &&
            strcmp(status.state, "ended") == 0) {
            for (int i = 0; i < book->n_lives; i++)
                atomic_store(&book->lives[i].order,
                             atomic_load(&book->lives[i].fate) == FATE_LIVES
                                 ? ORDER_FINISH
                                 : ORDER_NONE);
        }
        if (now_millis() > until)
            FAIL("nothing moves: state %s, pass %llu, made %llu, published %llu, "
                 "acknowledged %llu, buffered %u, unacknowledged %llu, away %u: %s",
                 status.state, (unsigned long long)status.pass,
                 (unsigned long long)status.made, (unsigned long long)status.published,
                 (unsigned long long)status.acknowledged, status.buffered,
                 (unsigned long long)status.unacknowledged, status.n_away,
                 status.last_error);
    }
    fixture_wait(&run->fixture, "rows", 20000, is_idle, NULL);
}

static void account(uint64_t seed, int delivery)
{
    struct run run = {.current = {-1, -1, -1, -1}};
    run.book = mmap(NULL, sizeof(*run.book), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(run.book != MAP_FAILED);
    run.book->event_fd = eventfd(0, EFD_CLOEXEC);
    CHECK(run.book->event_fd >= 0);
    choose(seed, delivery, &run.book->plan);
    print_plan(&run.book->plan);
    fixture_start(&run.fixture, "");
    apply_plan(&run);
    for (int slot = 0; slot < run.book->plan.n_clients; slot++)
        start_life(&run, slot, false);
    play_events(&run);
    play_to_the_end(&run);
    struct fixture_status status = check_status(&run);
    book_audit(run.book, &status);
    printf("    %d lives, %llu taken, %llu redelivered, %llu lost, %llu dropped\n",
           run.book->n_lives, (unsigned long long)atomic_load(&run.book->n_taken),
           (unsigned long long)status.redelivered, (unsigned long long)status.lost,
           (unsigned long long)status.dropped);
    for (int slot = 0; slot < run.book->plan.n_clients; slot++) {
        struct trainer *trainer = &run.trainers[run.current[slot]];
        trainer_send(trainer->fd, 1);
        trainer_join(trainer);
    }
    fixture_finish(&run.fixture);
    close(run.book->event_fd);
    munmap(run.book, sizeof(*run.book));
}

static uint64_t n_seeds(void)
{
    const char *text = getenv("STG_ACCOUNT_SEEDS");
    return text != NULL ? strtoull(text, NULL, 10) : N_SEEDS;
}

static void account_seeds(int delivery)
{
    const char *seed = getenv("STG_SEED");
    if (seed != NULL) {
        account(strtoull(seed, NULL, 10), delivery);
        return;
    }
    for (uint64_t i = 1; i <= n_seeds(); i++)
        account(i, delivery);
}

static void every_item_of_a_split_is_accounted_for(void)
{
    account_seeds(0);
}

static void every_item_of_a_broadcast_is_accounted_for(void)
{
    account_seeds(1);
}

static void every_item_of_a_round_robin_is_accounted_for(void)
{
    account_seeds(2);
}

int main(int argc, char **argv)
{
    unsigned seconds = 60 + 10 * (unsigned)n_seeds();
    const struct stg_test tests[] = {
        TEST_SLOW(every_item_of_a_split_is_accounted_for, seconds),
        TEST_SLOW(every_item_of_a_broadcast_is_accounted_for, seconds),
        TEST_SLOW(every_item_of_a_round_robin_is_accounted_for, seconds),
    };
    return stg_test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
