/* SPDX-License-Identifier: Apache-2.0
 *
 * What an audit (core/audit.h) says: the history of a lane, which is the attempts that
 * led to its last commit, each up to the commit at which the next one began; whether each
 * item of it was delivered once; and where two histories differ. Pure functions; one
 * thread at a time.
 */
#ifndef STG_STAGERCTL_HISTORY_H
#define STG_STAGERCTL_HISTORY_H

#include "core/record/audit.h"

/* A position, whose set is the owner's. */
struct stg_history_point {
    uint64_t pass, items;
    struct stg_taken taken;
};

/* An attempt of a history, in one run. */
struct stg_history_link {
    const struct stg_audit_attempt *attempt;
    struct stg_history_point begin, end;
    bool has_end; /* else all that it has counts */
};

struct stg_history {
    const struct stg_audit *audit; /* outlives it */
    struct stg_history_link *links;
    size_t n;
};

/* Finds the history that ends with that attempt; 0: the last one of the lane.
 * only_committed: up to its last commit; without one it has no links. NOT_FOUND: there is
 * no such attempt. RESOURCE_EXHAUSTED. */
int stg_history_find(const struct stg_audit *audit, const char *lane, uint64_t attempt,
                     bool only_committed, struct stg_history *ret, struct stg_err *err);
void stg_history_finish(struct stg_history *history);

#define STG_HISTORY_MAX_RANGES 16 /* that a proof names */

/* Items that are not as they should be. */
struct stg_history_problems {
    uint64_t n; /* items */
    struct stg_history_range {
        uint64_t attempt, pass, first, end;
    } first[STG_HISTORY_MAX_RANGES];
    size_t n_ranges; /* of `first` */
    bool has_more;
};

struct stg_history_proof {
    uint64_t n_items;          /* of the history */
    uint64_t n_acknowledged;   /* by one client */
    uint64_t n_unacknowledged; /* delivered, and the state of the commit has them */
    uint64_t n_skipped;        /* dropped, ignored, of a round that is not whole */
    uint64_t n_unrecorded;     /* delivered shortly before stagerd was killed */
    struct stg_history_problems missing, twice;
    bool is_recorded; /* else lines of the audit are missing, or a pass is not in it */
    bool is_whole;    /* it begins at the start of a pass; else at a state that is no
                         commit of the audit */
};

/* Returns whether it proves that each item was delivered exactly once. */
static inline bool stg_history_is_proven(const struct stg_history_proof *proof)
{
    return proof->is_recorded && proof->missing.n == 0 && proof->twice.n == 0;
}

/* OUT_OF_RANGE: the sets of the audit have too many ranges. */
int stg_history_prove(const struct stg_history *history, struct stg_history_proof *ret,
                      struct stg_err *err);

/* Where an item was in a history. */
struct stg_history_place {
    bool is_there;
    uint64_t attempt;
    const char *client; /* NULL: no client got it */
};

struct stg_history_difference {
    bool is_different;
    bool has_contents;         /* tensors were compared */
    uint64_t n_items;          /* compared, up to the difference */
    uint64_t pass, first, end; /* of the difference: more than one item if the audit has
                                  no hash of each */
    struct stg_history_place a, b;
};

/* Compares two histories as far as both have items. FAILED_PRECONDITION: one has hashes
 * of tensors, and the other one has not. RESOURCE_EXHAUSTED. */
int stg_history_compare(const struct stg_history *a, const struct stg_history *b,
                        struct stg_history_difference *ret, struct stg_err *err);

#endif
