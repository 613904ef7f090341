/* SPDX-License-Identifier: Apache-2.0
 *
 * The book of an accounting run. Trainers record what they took, held, acknowledged and
 * released in memory that outlives them. This header also declares those trainers and the
 * audit that compares the book with the counters of stagerd.
 *
 * A life is one attached stream of one process. A trainer writes only to its own life
 * (and swaps the owner words of items). The test writes `step_lint`, `fate` and the
 * fields marked as the test's before the life can read them.
 */
#ifndef STG_TESTS_CONFORMANCE_ACCOUNT_BOOK_H
#define STG_TESTS_CONFORMANCE_ACCOUNT_BOOK_H

#include <stdatomic.h>

#include "tests/conformance/pipelines.h"
#include "tests/faults/points.h"

#define BOOK_MAX_CLIENTS 4
#define BOOK_MAX_LIVES 16
#define BOOK_MAX_EVENTS 7 /* lives that end: as many as the status remembers */
#define BOOK_MAX_ITEMS 1024
#define BOOK_MAX_ENTRIES 2048

enum book_items { BOOK_PLAIN, BOOK_ERRORS, BOOK_IGNORED, BOOK_BOTH };

enum book_event_kind { EVENT_KILL, EVENT_LEAVE, EVENT_STOP };

struct book_event {
    enum book_event_kind kind;
    int slot;
    bool same_id; /* the successor has the same client_id, if there is one */
    /* the successor starts once stagerd has seen the end of its predecessor */
    bool wait_seen;
    uint64_t at;     /* fires after the trainers together have taken this many batches */
    uint64_t resume; /* EVENT_STOP: continues after this many further batches */
    enum point dies; /* before the successor starts, a process with its client_id dies at
                        this point of its opening; POINT_NONE: skipped */
};

/* All choices of a seed. */
struct book_plan {
    uint64_t seed;
    int delivery; /* 0 split, 1 broadcast, 2 round_robin */
    int n_clients, n_items, n_passes;
    int capacity, num_threads;
    int max_in_flight[BOOK_MAX_CLIENTS], nap_micros[BOOK_MAX_CLIENTS];
    bool manual_ack[BOOK_MAX_CLIENTS];
    bool redeliver, rejoin, drop;
    enum book_items items;
    int timeout_millis;
    int n_events;
    struct book_event events[BOOK_MAX_EVENTS];
};

enum entry_state { ENTRY_HELD, ENTRY_RELEASING, ENTRY_RELEASED };

struct book_entry {
    int rc; /* 0: a batch; otherwise an error item, acknowledged when it is taken */
    uint64_t number, pass, n_dropped;
    int64_t value;
    bool redelivered;
    _Atomic int state; /* enum entry_state */
};

enum fate {
    FATE_LIVES,
    FATE_LEAVES, /* closes, or is about to close */
    FATE_KILLED, /* was killed, or is about to be */
};

enum life_order { ORDER_NONE, ORDER_LEAVE, ORDER_FINISH };

struct book_life {
    /* Written by the test. */
    int slot, prev; /* prev: the life that held the slot before, or -1 */
    /* "": none was chosen, and the life records the one it received */
    char client_id[128];
    bool goes_on;      /* same client_id as prev */
    _Atomic int order; /* enum life_order */
    _Atomic int fate;  /* also written by the life itself when it leaves */

    /* Written by the life. */
    _Atomic uint32_t n;      /* number of entries */
    _Atomic uint32_t asking; /* number of entries when `next` was called last */
    _Atomic uint32_t asked;  /* the same, after the call has returned */
    /* inside the call: it may have taken a batch that is not recorded yet */
    _Atomic int in_next;
    _Atomic int n_ends, done; /* passes that ended, the last one included */
    _Atomic int failed;       /* an unexpected error code */
    char text[256];           /* the text of that error */
    struct book_entry entries[BOOK_MAX_ENTRIES];
};

struct book {
    struct book_plan plan;
    int event_fd; /* each trainer adds 1 for each batch and when it is done */
    _Atomic uint64_t n_taken;
    _Atomic uint32_t owners[BOOK_MAX_ITEMS]; /* split: life + 1; 0: no owner */
    _Atomic int shared;                      /* two attached clients held the same item */
    char shared_text[256];
    int n_lives;
    struct book_life lives[BOOK_MAX_LIVES];
};

struct book_trainer {
    struct book *book;
    int life;
};

/* The body of a trainer, for trainer_start; arg: struct book_trainer. Sends 1 (or an
 * error code) when it has opened. After the last pass it waits for one number, then
 * closes. */
void book_trainer_body(struct fixture *fixture, int fd, void *arg);

/* Return whether that item is certainly, or possibly, acknowledged. */
bool book_is_acked(const struct book *book, const struct book_life *life, uint32_t i);
bool book_may_be_acked(const struct book *book, const struct book_life *life, uint32_t i);

/* Fails the test unless the book agrees with the last status and every item was delivered
 * as the plan promises. Every life must be over, or done and attached. */
void book_audit(const struct book *book, const struct fixture_status *status);

#endif
