/* SPDX-License-Identifier: Apache-2.0
 *
 * The book of an accounting run: what trainers took, held, acknowledged and released,
 * written by themselves into memory that survives their death; the trainers that write
 * it; and the audit that holds it against the counters of stagerd.
 *
 * A life is one attached stream of one process. A trainer writes into its own life alone
 * (and swaps the owner words of items); the test writes `order`, `fate` and the rest of
 * what its comment says, before the life can see it.
 */
#ifndef STG_TESTS_CONFORMANCE_ACCOUNT_BOOK_H
#define STG_TESTS_CONFORMANCE_ACCOUNT_BOOK_H

#include <stdatomic.h>

#include "tests/conformance/pipelines.h"
#include "tests/faults/points.h"

#define BOOK_MAX_CLIENTS 4
#define BOOK_MAX_LIVES 16
#define BOOK_MAX_EVENTS 7 /* of lives that end: as many as status remembers */
#define BOOK_MAX_ITEMS 1024
#define BOOK_MAX_ENTRIES 2048

enum book_items { BOOK_PLAIN, BOOK_ERRORS, BOOK_IGNORED, BOOK_BOTH };

enum book_event_kind { EVENT_KILL, EVENT_LEAVE, EVENT_STOP };

struct book_event {
    enum book_event_kind kind;
    int slot;
    bool same_id;    /* the successor has the same client_id; else none */
    bool wait_seen;  /* it starts when stagerd has seen the end of the one before */
    uint64_t at;     /* after so many batches were taken by all */
    uint64_t resume; /* EVENT_STOP: so many batches later it goes on */
    enum point dies; /* before the successor, a process of its name dies at that point of
                        its opening; POINT_NONE: none does */
};

/* Everything that a seed chooses. */
struct book_plan {
    uint64_t seed;
    int delivery; /* 0 split, 1 broadcast, 2 round_robin */
    int n_clients, n_items, n_passes;
    int capacity, num_threads;
    int max_held[BOOK_MAX_CLIENTS], nap_micros[BOOK_MAX_CLIENTS];
    bool ack_explicit[BOOK_MAX_CLIENTS];
    bool redeliver, rejoin, drop;
    enum book_items items;
    int timeout_millis;
    int n_events;
    struct book_event events[BOOK_MAX_EVENTS];
};

enum entry_state { ENTRY_HELD, ENTRY_RELEASING, ENTRY_RELEASED };

struct book_entry {
    int rc; /* 0: a batch; else an error item, acknowledged as it is taken */
    uint64_t number, pass, n_dropped;
    int64_t value;
    bool redelivered;
    _Atomic int state; /* enum entry_state */
};

enum fate {
    FATE_LIVES,
    FATE_LEAVES, /* closes, or is about to */
    FATE_KILLED, /* or is about to be */
};

enum life_order { ORDER_NONE, ORDER_LEAVE, ORDER_FINISH };

struct book_life {
    /* Of the test. */
    int slot, prev;      /* prev: the life that had the slot before, or -1 */
    char client_id[128]; /* "": none was chosen, and the life writes what it is called */
    bool goes_on;        /* under the same client_id as prev */
    _Atomic int order;   /* enum life_order */
    _Atomic int fate;    /* also of the life itself, when it leaves */

    /* Of the life. */
    _Atomic uint32_t n;       /* entries */
    _Atomic uint32_t asking;  /* entries when `next` was called last */
    _Atomic uint32_t asked;   /* the same, once the call has returned */
    _Atomic int in_next;      /* inside the call: may have taken what it did not write */
    _Atomic int n_ends, done; /* passes that ended; the last one did */
    _Atomic int failed;       /* a code that no trainer should see */
    char text[256];           /* of it */
    struct book_entry entries[BOOK_MAX_ENTRIES];
};

struct book {
    struct book_plan plan;
    int event_fd; /* a trainer adds 1 for each batch, and when it is done */
    _Atomic uint64_t n_taken;
    _Atomic uint32_t owners[BOOK_MAX_ITEMS]; /* split: life + 1; 0: nobody */
    _Atomic int shared;                      /* an item was with two attached clients */
    char shared_text[256];
    int n_lives;
    struct book_life lives[BOOK_MAX_LIVES];
};

struct book_trainer {
    struct book *book;
    int life;
};

/* The body of a trainer, for trainer_start; arg: struct book_trainer. Says 1 (or a code)
 * when it has opened; after the last pass it waits for one number, then closes. */
void book_trainer_body(struct fixture *fixture, int fd, void *arg);

/* Is that item certainly, or possibly, acknowledged? */
bool book_is_acked(const struct book *book, const struct book_life *life, uint32_t i);
bool book_may_be_acked(const struct book *book, const struct book_life *life, uint32_t i);

/* Fails the test unless the book and the last status agree, and every item was delivered
 * as the plan promises. All lives are over, or done and attached. */
void book_audit(const struct book *book, const struct fixture_status *status);

#endif
