/* SPDX-License-Identifier: Apache-2.0
 *
 * The audit of a pipeline: which items of which pass each run published, which client got
 * and acknowledged them in which attempt, and what was committed; with hashes. The stage
 * collects it, the daemon appends it to a file as text, and stagerctl reads that. The
 * text is a sequence of lines, each with a checksum, which add up:
 *
 *   a1 SUM begin SEQ RUN ATTEMPT TIME =LANE DELIVERY KNOWN POINT FROM =TAG [HOSTS]
 *   a1 SUM publish SEQ RUN PASS CONTENTS SKIPPED FIRST CELL,CELL...
 *   a1 SUM client SEQ RUN ATTEMPT PASS =CLIENT N HASH ITEMS N HASH ITEMS N
 *   a1 SUM commit RUN ATTEMPT TIME =TAG POINT
 *   a1 SUM end SEQ RUN TIME
 *   a1 SUM lines RUN SEQ MISSING
 *
 * POINT is PASS ITEMS ELEMENTS TAKEN. HOSTS, of a job whose hosts etcd has, is =JOB
 * GENERATION HOST HOSTS BASE FROM_GENERATION FROM_ITEMS. A set of items is a text of
 * core/taken.h, or "-". SEQ numbers the lines of a run, so that a missing line is
 * noticed. Nothing of a text is trusted. Pure functions; one thread at a time.
 */
#ifndef STG_CORE_AUDIT_H
#define STG_CORE_AUDIT_H

#include "core/err.h"
#include "core/fingerprint.h"
#include "core/state.h"
#include "core/taken.h"

#define STG_AUDIT_NAME_BYTES 129

/* ---- what a stage collects ---- */

/* The sum of the hashes of some items in a row. */
struct stg_audit_cell {
    uint64_t first, end, sum;
};

/* The items of a pass that a run published, and those that it left out. */
struct stg_audit_trail {
    struct stg_audit_trail *next; /* of the owner */
    uint64_t run, pass;
    bool has_contents; /* the hashes cover the tensors */
    struct stg_audit_cell *cells;
    size_t n, size;
    uint64_t block;           /* items that one cell covers from now on; 0: one */
    struct stg_taken skipped; /* dropped or ignored, of a round that is not whole, or
                                 delivered before the run began */
};

/* The items of a pass that a client got and acknowledged. */
struct stg_audit_share {
    struct stg_audit_share *next; /* of the owner */
    uint64_t run, attempt, pass;
    char client[STG_AUDIT_NAME_BYTES];
    struct stg_audit_items {
        struct stg_taken set;
        uint64_t n, sum; /* an item that is there again counts once */
    } delivered, acknowledged;
    uint64_t n_redelivered;
};

/* Returns the hash of an item: of its number in the pass, the elements before and after
 * it, its rows, and its content; 0: the content is not known. */
static inline uint64_t stg_audit_hash(uint64_t item, uint64_t before, uint64_t after,
                                      uint64_t n_rows, uint64_t content)
{
    uint64_t hash = stg_fingerprint64_of(item, before, 16);
    hash = stg_fingerprint64_of(hash, after, 16);
    hash = stg_fingerprint64_of(hash, n_rows, 16);
    return content != 0 ? stg_fingerprint64_of(hash, content, 16) : hash;
}

/* Adds an item, whose number is not less than that of the one before. Of more than
 * max_cells cells, neighbours become one. RESOURCE_EXHAUSTED: nothing changed. */
int stg_audit_publish(struct stg_audit_trail *trail, uint64_t item, uint64_t hash,
                      size_t max_cells);

/* Adds an item. RESOURCE_EXHAUSTED: the set is full or memory ran out; nothing changed.
 */
int stg_audit_take(struct stg_audit_items *items, uint64_t item, uint64_t hash);

void stg_audit_trail_finish(struct stg_audit_trail *trail);
void stg_audit_share_finish(struct stg_audit_share *share);

/* ---- the text ---- */

/* Lines. Zero-initialise; the owner frees bytes. */
struct stg_audit_text {
    char *bytes;
    size_t n, size;
    bool has_failed; /* out of memory: a line is missing */
};

/* A position of a pipeline: before an item of a pass. */
struct stg_audit_point {
    uint64_t pass, items, elements;
    const char *taken; /* of the items from there on, those that a merged state has */
};

/* Returns that of a state; `taken` is the state's. */
static inline struct stg_audit_point stg_audit_point_of(const struct stg_state *state)
{
    struct stg_audit_point point = {state->pass, state->place.items,
                                    state->place.elements, state->taken};
    return point;
}

/* This host in a job whose hosts and commits etcd has. Each division numbers items anew.
 */
struct stg_audit_hosts {
    const char *job; /* NULL: etcd has no part in it */
    uint64_t generation, host, n_hosts;
    uint64_t base; /* element of the pass at which the division began */
    uint64_t
        from_generation; /* whose commit the attempt begins at; 0: it begins at none */
    uint64_t from_items; /* of that commit, as its generation numbers them */
};

struct stg_audit_begin {
    uint64_t run, attempt, time_ns; /* since 1970 */
    const char *lane;               /* "", or the client, under broadcast */
    const char *delivery;
    bool is_known; /* else the attempt begins with its first item */
    struct stg_audit_point point;
    uint64_t from; /* the attempt whose commit it begins at; 0: it begins at none. With
                      hosts: found by the reader; 0: this audit has no such attempt */
    const char *tag;
    struct stg_audit_hosts hosts;
};

struct stg_audit_commit {
    uint64_t run, attempt, time_ns;
    const char *tag;
    struct stg_audit_point point;
};

/* Append a line. seq: of the run, raised by one. */
void stg_audit_write_begin(struct stg_audit_text *text, uint64_t *seq,
                           const struct stg_audit_begin *begin);
void stg_audit_write_trail(struct stg_audit_text *text, uint64_t *seq,
                           const struct stg_audit_trail *trail);
void stg_audit_write_share(struct stg_audit_text *text, uint64_t *seq,
                           const struct stg_audit_share *share);
void stg_audit_write_commit(struct stg_audit_text *text,
                            const struct stg_audit_commit *commit);
void stg_audit_write_end(struct stg_audit_text *text, uint64_t *seq, uint64_t run,
                         uint64_t time_ns);

/* ---- the table ---- */

struct stg_audit_run {
    uint64_t run, seq; /* of the next line */
    uint64_t end_ns;   /* 0: it runs, or stagerd was killed */
    bool is_missing;   /* a line is missing */
};

/* An attempt in one run. */
struct stg_audit_attempt {
    struct stg_audit_begin begin;     /* texts are the attempt's */
    struct stg_audit_commit *commits; /* of this attempt and run, in their order */
    size_t n_commits, size;
};

/* In the order of the text. Zero-initialise. */
struct stg_audit {
    struct stg_audit_run *runs;
    struct stg_audit_attempt *attempts;
    struct stg_audit_trail *trails;
    struct stg_audit_share *shares; /* several of one client, pass and attempt follow one
                                       another if its set is large */
    size_t n_runs, n_attempts, n_trails, n_shares;
    size_t size_runs, size_attempts, size_trails, size_shares;
    size_t n_bad; /* lines that are damaged */
};

void stg_audit_finish(struct stg_audit *audit);

/* Adds the lines of a text. Damaged ones are counted. RESOURCE_EXHAUSTED. */
int stg_audit_read(struct stg_audit *audit, const char *text, size_t bytes,
                   struct stg_err *err);

/* Keeps the attempts of that job alone; NULL: those that belong to no job. */
void stg_audit_keep_job(struct stg_audit *audit, const char *job);

/* Makes the table smaller: of the hashes, the newest n_exact stay single; of the
 * attempts, the last n_attempts stay, and of an attempt the last n_commits commits and
 * those that an attempt began at. RESOURCE_EXHAUSTED. */
void stg_audit_shrink(struct stg_audit *audit, size_t n_exact, size_t n_attempts,
                      size_t n_commits);

/* Removes all items, and says that lines are missing. */
void stg_audit_forget_items(struct stg_audit *audit);

/* Writes the whole table. */
void stg_audit_write(const struct stg_audit *audit, struct stg_audit_text *text);

/* Returns the run; NULL: no line is of it. */
const struct stg_audit_run *stg_audit_find_run(const struct stg_audit *audit,
                                               uint64_t run);

/* Returns the newest attempt of a text; 0: there is none. */
uint64_t stg_audit_scan_newest(const char *text, size_t bytes);

#endif
