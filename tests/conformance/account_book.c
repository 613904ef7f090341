/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/account_book.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "tests/check.h"

#define SLICE_MILLIS 50
#define MAX_IN_FLIGHT 8

struct trainer_state {
    struct book *book;
    struct book_life *life;
    uint32_t me; /* life + 1 */
    uint64_t random;
    struct stager_stream *stream;
    struct stager_batch *held[MAX_IN_FLIGHT];
    uint32_t entries[MAX_IN_FLIGHT]; /* of held[i] */
    int n_held, max_in_flight;
    int64_t waited_since;
};

static uint32_t draw(struct trainer_state *t, uint32_t n)
{
    t->random = t->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((t->random >> 33) % n);
}

static bool is_split(const struct book *book)
{
    return book->plan.delivery == 0;
}

/* ---- owners ---- */

static void own(struct trainer_state *t, const struct book_entry *entry)
{
    struct book *book = t->book;
    if (!is_split(book) || entry->number >= BOOK_MAX_ITEMS)
        return;
    uint32_t before = atomic_exchange(&book->owners[entry->number], t->me);
    if (before == 0 || before == t->me ||
        atomic_load(&book->lives[before - 1].fate) != FATE_LIVES)
        return;
    snprintf(book->shared_text, sizeof(book->shared_text),
             "item %llu came to life %u while life %u, attached, had it",
             (unsigned long long)entry->number, t->me - 1, before - 1);
    atomic_store(&book->shared, 1);
}

static void disown(struct trainer_state *t, const struct book_entry *entry)
{
    uint32_t me = t->me;
    if (is_split(t->book) && entry->number < BOOK_MAX_ITEMS)
        atomic_compare_exchange_strong(&t->book->owners[entry->number], &me, 0);
}

/* ---- calls, recorded before and after ---- */

static void release(struct trainer_state *t, int i)
{
    struct book_entry *entry = &t->life->entries[t->entries[i]];
    disown(t, entry);
    atomic_store(&entry->state, ENTRY_RELEASING);
    stager_release(t->held[i]);
    atomic_store(&entry->state, ENTRY_RELEASED);
    t->n_held--;
    memmove(&t->held[i], &t->held[i + 1], (size_t)(t->n_held - i) * sizeof(t->held[0]));
    memmove(&t->entries[i], &t->entries[i + 1],
            (size_t)(t->n_held - i) * sizeof(t->entries[0]));
}

static void release_all(struct trainer_state *t)
{
    while (t->n_held > 0)
        release(t, (int)draw(t, (uint32_t)t->n_held));
}

static void tell(struct trainer_state *t)
{
    uint64_t one = 1;
    (void)!write(t->book->event_fd, &one, sizeof(one));
}

static void fail(struct trainer_state *t, int rc, const char *what)
{
    snprintf(t->life->text, sizeof(t->life->text), "%s: %s", what,
             stager_error_text(t->stream));
    atomic_store(&t->life->failed, rc);
    tell(t);
}

static struct book_entry *write_down(struct trainer_state *t, int rc,
                                     const struct stager_batch *batch)
{
    struct book_life *life = t->life;
    uint32_t n = atomic_load(&life->n);
    CHECK(n < BOOK_MAX_ENTRIES);
    struct book_entry *entry = &life->entries[n];
    *entry = (struct book_entry){.rc = rc};
    atomic_store(&entry->state, rc == 0 ? ENTRY_HELD : ENTRY_RELEASED);
    if (rc == 0) {
        struct stager_batch_info info = {.struct_size = sizeof(info)};
        struct stager_tensor tensor;
        stager_batch_info(batch, &info);
        CHECK_INT(stager_batch_tensor_at(batch, 0, &tensor), 0);
        entry->number = info.number;
        entry->pass = info.pass;
        entry->n_dropped = info.n_dropped;
        entry->redelivered = info.redelivered != 0;
        entry->value = ((const int64_t *)tensor.data)[0];
        own(t, entry);
    }
    atomic_store(&life->n, n + 1);
    atomic_fetch_add(&t->book->n_taken, 1);
    tell(t);
    return entry;
}

/* Returns the code of `next`, or 1 for an error item. */
static int take(struct trainer_state *t, int64_t millis)
{
    struct book_life *life = t->life;
    struct stager_batch *batch;
    struct stager_stream_info info = {.struct_size = sizeof(info)};
    if (!t->book->plan.manual_ack[life->slot]) {
        for (int i = 0; i < t->n_held; i++)
            disown(t, &life->entries[t->entries[i]]);
    }
    uint32_t n = atomic_load(&life->n);
    atomic_store(&life->asking, n);
    atomic_store(&life->in_next, 1);
    int rc = stager_next(t->stream, millis, &batch);
    atomic_store(&life->asked, n);
    stager_stream_info(t->stream, &info);
    if (rc == 0) {
        t->held[t->n_held] = batch;
        t->entries[t->n_held++] = n;
        write_down(t, 0, batch);
    } else if (rc == -STAGER_DATA_LOSS && !info.finished && !info.at_end) {
        write_down(t, rc, NULL);
        rc = 1;
    }
    atomic_store(&life->in_next, 0);
    return rc;
}

/* ---- the life of a trainer ---- */

static void nap(struct trainer_state *t)
{
    int micros = t->book->plan.nap_micros[t->life->slot];
    if (micros > 0) {
        uint32_t n = draw(t, 2 * (uint32_t)micros);
        nanosleep(&(struct timespec){.tv_nsec = (long)n * 1000}, NULL);
    }
}

/* Returns whether another pass follows. */
static bool end_pass(struct trainer_state *t)
{
    struct stager_stream_info info = {.struct_size = sizeof(info)};
    stager_stream_info(t->stream, &info);
    atomic_fetch_add(&t->life->n_ends, 1);
    if (info.end_pass + 1 >= (uint64_t)t->book->plan.n_passes)
        return false;
    int rc = stager_rewind(t->stream);
    if (rc < 0)
        fail(t, rc, "rewind");
    return rc == 0;
}

/* Handles a `next` that timed out. Returns whether to try again. */
static bool wait_on(struct trainer_state *t)
{
    release_all(t); /* with manual_ack, other trainers may wait for these batches */
    if (atomic_load(&t->life->order) == ORDER_FINISH)
        return false;
    if (t->waited_since == 0)
        t->waited_since = now_millis();
    if (now_millis() - t->waited_since < fixture_millis(30000))
        return true;
    fail(t, -STAGER_DEADLINE_EXCEEDED, "nothing came for 30 s");
    return false;
}

/* Runs one step. Returns whether another one follows. */
static bool step(struct trainer_state *t)
{
    if (atomic_load(&t->life->order) == ORDER_LEAVE)
        return false;
    nap(t);
    while (t->n_held > 0 && (t->n_held == t->max_in_flight || draw(t, 3) != 0))
        release(t, (int)draw(t, (uint32_t)t->n_held));
    int rc = take(t, t->n_held > 0 ? 0 : SLICE_MILLIS);
    if (rc >= 0) {
        t->waited_since = 0;
        return true;
    }
    if (rc == -STAGER_DEADLINE_EXCEEDED) {
        struct stager_stream_info info = {.struct_size = sizeof(info)};
        stager_stream_info(t->stream, &info);
        if (!info.finished)
            return wait_on(t);
    }
    if (rc == -STAGER_OUT_OF_RANGE)
        return end_pass(t);
    fail(t, rc, "next");
    return false;
}

void book_trainer_body(struct fixture *fixture, int fd, void *arg)
{
    const struct book_trainer *trainer = arg;
    struct trainer_state t = {.book = trainer->book,
                              .life = &trainer->book->lives[trainer->life],
                              .me = (uint32_t)trainer->life + 1};
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves no trainer behind */
    t.random = t.book->plan.seed * 0x9e3779b97f4a7c15u + t.me;
    t.max_in_flight = t.book->plan.max_in_flight[t.life->slot];
    bool named = t.life->client_id[0] != '\0';
    if (!named) /* the client_id that the daemon chose: see stager.h */
        snprintf(t.life->client_id, sizeof(t.life->client_id), "%.100s-%d",
                 program_invocation_short_name, (int)getpid());
    struct stager_options options = {
        .struct_size = sizeof(options),
        .client_id = named ? t.life->client_id : NULL,
        .runtime_dir = fixture->runtime,
        .max_in_flight = (uint32_t)t.max_in_flight,
        .manual_ack = t.book->plan.manual_ack[t.life->slot],
    };
    int rc = stager_open(NULL, "rows", &options, &t.stream);
    if (rc < 0)
        fail(&t, rc, "open");
    trainer_send(fd, rc < 0 ? rc : 1);
    if (rc < 0)
        return;
    while (step(&t)) {
    }
    if (atomic_load(&t.life->order) == ORDER_LEAVE) {
        atomic_store(&t.life->fate, FATE_LEAVES);
        stager_close(t.stream);
        return;
    }
    release_all(&t);
    atomic_store(&t.life->done, 1);
    tell(&t);
    int64_t go;
    (void)!read(fd, &go, sizeof(go));
    stager_close(t.stream);
}
