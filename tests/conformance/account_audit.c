/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks a run against its plan, the trainers' book and the last status. A number is
 * pass * n_items + value. `acked` and `open` bound what a kill leaves unknown: a trainer
 * killed inside a call may or may not have completed its acknowledgement.
 */
#include <stdio.h>
#include <string.h>

#include "tests/check.h"
#include "tests/conformance/account_book.h"

bool book_is_acked(const struct book *book, const struct book_life *life, uint32_t i)
{
    return atomic_load(&life->entries[i].state) == ENTRY_RELEASED ||
           (!book->plan.manual_ack[life->slot] && i < atomic_load(&life->asked));
}

bool book_may_be_acked(const struct book *book, const struct book_life *life, uint32_t i)
{
    return atomic_load(&life->entries[i].state) != ENTRY_HELD ||
           (!book->plan.manual_ack[life->slot] && i < atomic_load(&life->asking));
}

/* ---- the plan's entry for an item ---- */

enum kind { KIND_BATCH, KIND_ERROR, KIND_IGNORED };

static enum kind kind_of(const struct book_plan *plan, uint64_t number)
{
    uint64_t value = number % (uint64_t)plan->n_items;
    bool errors = plan->items == BOOK_ERRORS || plan->items == BOOK_BOTH;
    bool ignored = plan->items == BOOK_IGNORED || plan->items == BOOK_BOTH;
    if (errors && value % 7 == 3)
        return KIND_ERROR;
    return ignored && value % 5 == 2 ? KIND_IGNORED : KIND_BATCH;
}

static uint64_t n_numbers(const struct book_plan *plan)
{
    return (uint64_t)plan->n_items * (uint64_t)plan->n_passes;
}

/* ---- the book's entries ---- */

struct tally {
    uint32_t taken;    /* number of lives */
    uint32_t acked;    /* certainly */
    uint32_t open;     /* possibly */
    uint32_t firsts;   /* not marked as redelivered */
    uint64_t n_before; /* n_dropped as its takers read it */
};

static bool is_over(const struct book_life *life)
{
    return atomic_load(&life->fate) != FATE_LIVES;
}

static bool swallowed(const struct book_life *life)
{
    return atomic_load(&life->fate) == FATE_KILLED && atomic_load(&life->in_next);
}

static void check_entry(const struct book *book, const struct book_life *life, uint32_t i)
{
    const struct book_entry *entry = &life->entries[i];
    uint64_t n = (uint64_t)book->plan.n_items;
    if (entry->number >= n_numbers(&book->plan) ||
        entry->number != entry->pass * n + (uint64_t)entry->value)
        FAIL("%s took number %llu of pass %llu with value %lld", life->client_id,
             (unsigned long long)entry->number, (unsigned long long)entry->pass,
             (long long)entry->value);
    if (kind_of(&book->plan, entry->number) != KIND_BATCH)
        FAIL("%s took item %llu, which fails", life->client_id,
             (unsigned long long)entry->number);
    if (!is_over(life) && !book_is_acked(book, life, i))
        FAIL("%s is done and holds item %llu", life->client_id,
             (unsigned long long)entry->number);
    if (entry->redelivered && !book->plan.redeliver)
        FAIL("item %llu was redelivered", (unsigned long long)entry->number);
}

static void tally_life(const struct book *book, const struct book_life *life,
                       struct tally *tallies)
{
    for (uint32_t i = 0; i < atomic_load(&life->n); i++) {
        const struct book_entry *entry = &life->entries[i];
        if (entry->rc != 0)
            continue;
        check_entry(book, life, i);
        struct tally *tally = &tallies[entry->number];
        if (tally->taken > 0 && tally->n_before != entry->n_dropped)
            FAIL("item %llu says n_dropped %llu and %llu",
                 (unsigned long long)entry->number, (unsigned long long)tally->n_before,
                 (unsigned long long)entry->n_dropped);
        tally->taken++;
        tally->acked += book_is_acked(book, life, i);
        tally->open += book_may_be_acked(book, life, i);
        tally->firsts += !entry->redelivered;
        tally->n_before = entry->n_dropped;
    }
}

static uint64_t count_errors(const struct book_life *life)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < atomic_load(&life->n); i++)
        n += life->entries[i].rc != 0;
    return n;
}

/* Each reader of the stream gets an item once: all lives together under split, the lives
 * of one slot otherwise. */
static void check_once(const struct book *book, const struct tally *tallies)
{
    for (uint64_t i = 0; i < n_numbers(&book->plan); i++) {
        const struct tally *t = &tallies[i];
        bool twice = book->plan.redeliver ? t->acked > 1 || t->firsts > 1 : t->taken > 1;
        bool never = book->plan.redeliver && t->taken > 0 && t->open == 0;
        if (twice || never)
            FAIL("item %llu was taken %u times, %u to %u times acknowledged, %u times "
                 "not as redelivered",
                 (unsigned long long)i, t->taken, t->acked, t->open, t->firsts);
    }
}

/* ---- gaps ---- */

#define CHECK_BETWEEN(got, least, most)                                                  \
    check_between(__LINE__, #got, (int64_t)(got), (int64_t)(least), (int64_t)(most))
static void check_between(int line, const char *what, int64_t got, int64_t least,
                          int64_t most)
{
    if (got < least || got > most)
        FAIL("line %d: %s is %lld, not %lld to %lld", line, what, (long long)got,
             (long long)least, (long long)most);
}

/* n_dropped of a batch is the number of items left out before it, ignored and dropped
 * ones. The daemon does not report which items it dropped: they are among those no client
 * took.
 */
static void check_gaps(const struct book *book, const struct tally *tallies, bool exact)
{
    uint64_t ignored = 0, untaken = 0;
    for (uint64_t i = 0; i < n_numbers(&book->plan); i++) {
        const struct tally *t = &tallies[i];
        uint64_t most = ignored + (book->plan.drop ? untaken : 0);
        uint64_t least = exact ? most : ignored;
        if (t->taken > 0 && (t->n_before < least || t->n_before > most))
            FAIL("item %llu says n_dropped %llu, not %llu to %llu", (unsigned long long)i,
                 (unsigned long long)t->n_before, (unsigned long long)least,
                 (unsigned long long)most);
        enum kind kind = kind_of(&book->plan, i);
        ignored += kind == KIND_IGNORED;
        untaken += kind == KIND_BATCH && t->taken == 0;
    }
}

/* In the log of one life, n_dropped and error items in between explain every gap. */
static void check_steps(const struct book_life *life)
{
    const struct book_entry *before = NULL;
    uint64_t errors = 0;
    for (uint32_t i = 0; i < atomic_load(&life->n); i++) {
        const struct book_entry *entry = &life->entries[i];
        errors += entry->rc != 0;
        if (entry->rc != 0)
            continue;
        if (before != NULL && before->number >= entry->number)
            FAIL("%s took item %llu after %llu", life->client_id,
                 (unsigned long long)entry->number, (unsigned long long)before->number);
        uint64_t gap = before != NULL ? entry->number - before->number - 1 : 0;
        if (before != NULL && !before->redelivered &&
            gap != entry->n_dropped - before->n_dropped + errors)
            FAIL("%s: between items %llu and %llu are n_dropped %llu and %llu errors",
                 life->client_id, (unsigned long long)before->number,
                 (unsigned long long)entry->number,
                 (unsigned long long)(entry->n_dropped - before->n_dropped),
                 (unsigned long long)errors);
        before = entry;
        errors = 0;
    }
}

/* Gaps as each client counted them: all of them under broadcast, a share otherwise. */
static void check_gap_counters(const struct book *book,
                               const struct fixture_status *status)
{
    uint64_t skipped = status->dropped + status->ignored, seen = 0, counted = 0;
    for (int i = 0; i < book->n_lives; i++) {
        const struct book_life *life = &book->lives[i];
        for (uint32_t k = 0; k < atomic_load(&life->n); k++) {
            if (life->entries[k].n_dropped > seen)
                seen = life->entries[k].n_dropped;
        }
    }
    for (uint32_t i = 0; i < status->n_clients; i++) {
        bool anchor = strcmp(status->clients[i].client_id, book->lives[0].client_id) == 0;
        if (book->plan.delivery == 1 && anchor)
            CHECK_INT(status->clients[i].gaps, skipped);
        counted += status->clients[i].gaps;
    }
    if (book->plan.delivery != 1)
        CHECK_BETWEEN(counted, seen, skipped);
}

/* ---- split ---- */

struct sums {
    uint64_t errors, published, untaken, open, unacked, swallows;
};

static struct sums sum_up(const struct book *book, const struct tally *tallies)
{
    struct sums sums = {0};
    for (int i = 0; i < book->n_lives; i++) {
        sums.errors += count_errors(&book->lives[i]);
        sums.swallows += swallowed(&book->lives[i]);
    }
    for (uint64_t i = 0; i < n_numbers(&book->plan); i++) {
        if (kind_of(&book->plan, i) != KIND_BATCH)
            continue;
        sums.untaken += tallies[i].taken == 0;
        sums.open += tallies[i].taken > tallies[i].acked;
        sums.unacked += tallies[i].taken > tallies[i].open;
    }
    return sums;
}

static void audit_split(const struct book *book, const struct fixture_status *status)
{
    static struct tally tallies[BOOK_MAX_ITEMS];
    memset(tallies, 0, sizeof(tallies));
    for (int i = 0; i < book->n_lives; i++)
        tally_life(book, &book->lives[i], tallies);
    check_once(book, tallies);
    struct sums sums = sum_up(book, tallies);
    check_gaps(book, tallies, book->plan.redeliver || !book->plan.drop);
    uint64_t errors = status->errors - sums.errors; /* not recorded by any trainer */
    if (book->plan.redeliver) {
        CHECK_INT(status->lost, 0);
        CHECK_INT(sums.untaken, status->dropped);
        CHECK_BETWEEN(errors, 0, sums.swallows);
        return;
    }
    CHECK_INT(status->redelivered, 0);
    uint64_t untaken = sums.untaken - status->dropped;
    uint64_t swallowed = errors < sums.swallows ? errors : sums.swallows;
    CHECK_BETWEEN(status->lost, untaken + sums.unacked + errors - swallowed,
                  untaken + sums.open + errors);
}

/* ---- broadcast, round_robin: one slot after the other ---- */

/* The lives of a slot, first to last. Of lives with different client_ids it keeps only
 * those that continue one another. Returns the last one. */
static int last_of(const struct book *book, int slot)
{
    for (int i = book->n_lives; i-- > 0;) {
        if (book->lives[i].slot == slot)
            return i;
    }
    FAIL("no life of slot %d", slot);
}

static bool goes_on(const struct book *book, const struct book_life *life)
{
    return life->goes_on && book->plan.rejoin;
}

/* Tallies the chain of lives that ends with `life`: how many error items it received, and
 * how many it may have received. */
static int tally_chain(const struct book *book, int life, struct tally *tallies,
                       uint64_t *ret_errors, uint64_t *ret_swallows)
{
    memset(tallies, 0, BOOK_MAX_ITEMS * sizeof(*tallies));
    *ret_errors = *ret_swallows = 0;
    for (;;) {
        const struct book_life *at = &book->lives[life];
        tally_life(book, at, tallies);
        *ret_errors += count_errors(at);
        *ret_swallows += swallowed(at);
        if (!goes_on(book, at))
            return life;
        life = at->prev;
    }
}

static const struct book_entry *edge(const struct book_life *life, bool last)
{
    uint32_t n = atomic_load(&life->n);
    for (uint32_t i = 0; i < n; i++) {
        const struct book_entry *entry = &life->entries[last ? n - 1 - i : i];
        if (entry->rc == 0)
            return entry;
    }
    return NULL;
}

/* Returns whether a successor began with another pass. Its predecessor had then reached
 * the end of its own pass. */
static bool began_anew(const struct book *book, int slot)
{
    for (int i = 0; i < book->n_lives; i++) {
        const struct book_life *life = &book->lives[i];
        const struct book_entry *first = edge(life, false);
        const struct book_entry *before =
            life->prev >= 0 ? edge(&book->lives[life->prev], true) : NULL;
        if (life->slot == slot && goes_on(book, life) &&
            (first == NULL || before == NULL || first->pass != before->pass))
            return true;
    }
    return false;
}

/* From the chain's first item on, the chain received exactly what the anchor received. */
static void check_whole(const struct book *book, int slot, const struct tally *anchor,
                        const struct tally *tallies)
{
    bool begun = false;
    for (uint64_t i = 0; i < n_numbers(&book->plan); i++) {
        begun = begun || tallies[i].taken > 0 || slot == 0;
        if (begun && (anchor[i].taken > 0) != (tallies[i].taken > 0))
            FAIL("item %llu came to slot 0 %u times, and to slot %d %u times",
                 (unsigned long long)i, anchor[i].taken, slot, tallies[i].taken);
        if (anchor[i].taken > 0 && tallies[i].taken > 0)
            CHECK_INT(anchor[i].n_before, tallies[i].n_before);
    }
}

static void audit_broadcast(const struct book *book, const struct fixture_status *status)
{
    static struct tally anchor[BOOK_MAX_ITEMS], tallies[BOOK_MAX_ITEMS];
    uint64_t errors, swallows;
    for (int i = 0; i < book->n_lives; i++)
        check_steps(&book->lives[i]);
    CHECK_INT(tally_chain(book, last_of(book, 0), anchor, &errors, &swallows), 0);
    check_once(book, anchor);
    check_gaps(book, anchor, true);
    CHECK_INT(errors, status->errors);
    CHECK_INT(sum_up(book, anchor).untaken, status->dropped);
    for (int slot = 1; slot < book->plan.n_clients; slot++) {
        tally_chain(book, last_of(book, slot), tallies, &errors, &swallows);
        check_once(book, tallies);
        if (book->plan.redeliver && !began_anew(book, slot))
            check_whole(book, slot, anchor, tallies);
        CHECK_BETWEEN(errors, 0, status->errors);
    }
    if (book->plan.redeliver)
        CHECK_INT(status->lost, 0); /* the anchor acknowledged every batch */
}

/* ---- round_robin ---- */

/* Computes the rank of each item from the plan (nothing is dropped); -1 for none. Returns
 * the number of items in incomplete rounds. */
static uint64_t deal(const struct book_plan *plan, int *ret)
{
    uint64_t incomplete = 0;
    for (int pass = 0; pass < plan->n_passes; pass++) {
        uint64_t first = (uint64_t)pass * (uint64_t)plan->n_items,
                 round[BOOK_MAX_CLIENTS];
        int n = 0;
        for (uint64_t i = first; i < first + (uint64_t)plan->n_items; i++) {
            ret[i] = -1;
            if (kind_of(plan, i) != KIND_BATCH)
                continue;
            round[n++] = i;
            for (int rank = 0; n == plan->n_clients && rank < n; rank++)
                ret[round[rank]] = rank;
            n %= plan->n_clients;
        }
        incomplete += (uint64_t)n;
    }
    return incomplete;
}

static int rank_of(const struct fixture_status *status, const char *client_id)
{
    for (uint32_t i = 0; i < status->n_clients; i++) {
        if (strcmp(status->clients[i].client_id, client_id) == 0 &&
            strcmp(status->clients[i].state, "attached") == 0)
            return (int)status->clients[i].rank;
    }
    FAIL("%s is not attached", client_id);
}

static uint64_t check_dealt(const struct book *book, int rank, const int *dealt,
                            const struct tally *tallies)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < n_numbers(&book->plan); i++) {
        bool mine = dealt[i] == rank, taken = tallies[i].taken > 0;
        n += taken;
        if (!book->plan.drop && taken != mine && (taken || book->plan.redeliver))
            FAIL("rank %d took item %llu %u times, which is for rank %d", rank,
                 (unsigned long long)i, tallies[i].taken, dealt[i]);
    }
    return n;
}

static void audit_rounds(const struct book *book, const struct fixture_status *status)
{
    static struct tally tallies[BOOK_MAX_ITEMS];
    static int dealt[BOOK_MAX_ITEMS];
    uint64_t errors, swallows, n, n_first = 0;
    uint64_t incomplete = deal(&book->plan, dealt);
    if (!book->plan.drop)
        CHECK_INT(status->incomplete_rounds, incomplete);
    for (int slot = 0; slot < book->plan.n_clients; slot++) {
        int life = last_of(book, slot);
        tally_chain(book, life, tallies, &errors, &swallows);
        check_once(book, tallies);
        check_gaps(book, tallies, false);
        n = check_dealt(book, rank_of(status, book->lives[life].client_id), dealt,
                        tallies);
        n_first = slot == 0 ? n : n_first;
        if (book->plan.redeliver) {
            CHECK_INT(n, n_first); /* ranks differ by less than one step */
            CHECK_BETWEEN(errors + swallows, status->errors, status->errors + swallows);
        }
    }
    uint64_t whole = status->published - status->errors - status->incomplete_rounds;
    if (book->plan.redeliver)
        CHECK_INT(whole, n_first * (uint64_t)book->plan.n_clients);
    CHECK_INT(status->discarded_published, status->incomplete_rounds);
}

/* ---- the status of each client ---- */

/* Sums all entries with its client_id: one entry may be gone and another one its
 * successor. */
struct shown {
    uint64_t assigned, taken, released, acknowledged, redelivered, lost;
};

static struct shown shown_of(const struct fixture_status *status, const char *client_id)
{
    struct shown shown = {0};
    for (uint32_t i = 0; i < status->n_clients; i++) {
        if (client_id != NULL && strcmp(status->clients[i].client_id, client_id) != 0)
            continue;
        CHECK_INT(status->clients[i].violations, 0);
        shown.assigned += status->clients[i].assigned;
        shown.taken += status->clients[i].taken;
        shown.released += status->clients[i].released;
        shown.acknowledged += status->clients[i].acknowledged;
        shown.redelivered += status->clients[i].redelivered;
        shown.lost += status->clients[i].lost;
    }
    return shown;
}

static bool is_first_of_name(const struct book *book, int life)
{
    for (int i = 0; i < life; i++) {
        if (strcmp(book->lives[i].client_id, book->lives[life].client_id) == 0)
            return false;
    }
    return true;
}

static void audit_client(const struct book *book, const struct fixture_status *status,
                         const char *client_id)
{
    struct shown shown = shown_of(status, client_id);
    uint64_t taken = 0, released = 0, releasing = 0, acked = 0, open = 0, again = 0;
    uint64_t over = 0, swallows = 0;
    for (int i = 0; i < book->n_lives; i++) {
        const struct book_life *life = &book->lives[i];
        if (strcmp(life->client_id, client_id) != 0)
            continue;
        over += is_over(life);
        swallows += swallowed(life);
        for (uint32_t k = 0; k < atomic_load(&life->n); k++) {
            int state = atomic_load(&life->entries[k].state);
            taken++;
            released += state == ENTRY_RELEASED;
            releasing += state == ENTRY_RELEASING;
            acked += book_is_acked(book, life, k);
            open += book_may_be_acked(book, life, k);
            again += life->entries[k].redelivered;
        }
    }
    uint64_t untaken = shown.assigned - taken; /* as far as the book shows */
    CHECK_BETWEEN(shown.taken, taken, taken + over);
    CHECK_BETWEEN(shown.acknowledged, acked, open + swallows);
    CHECK_BETWEEN(shown.released, released, released + releasing + untaken);
    CHECK_BETWEEN(shown.redelivered, again, again + untaken + status->errors);
    if (over == 0) {
        CHECK_INT(untaken, 0);
        CHECK_INT(shown.lost, 0);
    }
    if (book->plan.redeliver && (book->plan.rejoin || book->plan.delivery == 0))
        CHECK_INT(shown.lost, 0);
}

void book_audit(const struct book *book, const struct fixture_status *status)
{
    struct shown all = shown_of(status, NULL);
    CHECK_INT(status->made, n_numbers(&book->plan));
    CHECK_INT(status->in_hand + status->discarded + status->buffered, 0);
    CHECK_INT(status->unacknowledged, 0);
    CHECK_INT(status->memory_used_bytes, 0);
    CHECK_INT(all.assigned, status->assigned);
    CHECK_INT(all.released, status->released);
    CHECK_INT(all.redelivered, status->redelivered);
    uint64_t ignored = 0, errors = 0;
    for (uint64_t i = 0; i < n_numbers(&book->plan); i++) {
        ignored += kind_of(&book->plan, i) == KIND_IGNORED;
        errors += kind_of(&book->plan, i) == KIND_ERROR;
    }
    CHECK_INT(status->ignored, ignored);
    CHECK_INT(status->errors, errors);
    if (!book->plan.drop)
        CHECK_INT(status->dropped, 0);
    for (int i = 0; i < book->n_lives; i++) {
        if (is_first_of_name(book, i))
            audit_client(book, status, book->lives[i].client_id);
    }
    check_gap_counters(book, status);
    switch (book->plan.delivery) {
    case 0: audit_split(book, status); break;
    case 1: audit_broadcast(book, status); break;
    default: audit_rounds(book, status); break;
    }
}
