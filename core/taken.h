/* SPDX-License-Identifier: Apache-2.0
 *
 * A set of item numbers of a pass: what one consumer of a split has taken. Consumers that
 * take items in turn take every n-th one, so that equal gaps and lengths that follow one
 * another are one run. Pure functions; one thread at a time.
 */
#ifndef STG_CORE_TAKEN_H
#define STG_CORE_TAKEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

/* Room for the text of a set, with its NUL. A larger set has no text. */
#define STG_TAKEN_TEXT_BYTES 14336

/* n times: `gap` items that are not in the set, then `len` items that are. */
struct stg_taken_run {
    uint64_t gap, len, n;
};

/* Zero-initialise: the empty set. */
struct stg_taken {
    struct stg_taken_run *runs;
    size_t n, size;
    uint64_t end; /* after the last item */
};

void stg_taken_finish(struct stg_taken *set);
void stg_taken_clear(struct stg_taken *set);

/* Adds the items from begin to before end. RESOURCE_EXHAUSTED: memory ran out, or the set
 * has more runs than its text can have; the set is as before. */
int stg_taken_add(struct stg_taken *set, uint64_t begin, uint64_t end,
                  struct stg_err *err);
/* Makes the set of the items of n sets. Errors: as stg_taken_add. They are united at
 * once: a set of some consumers that take items in turn has far more runs than the set of
 * all.
 */
int stg_taken_unite(const struct stg_taken *sets, size_t n, struct stg_taken *ret,
                    struct stg_err *err);

/* Returns the lowest item that is not in the set. */
uint64_t stg_taken_first_left(const struct stg_taken *set);

/* Walks over the ranges of a set that does not change. Zero-initialise, set `set`. */
struct stg_taken_walk {
    const struct stg_taken *set;
    size_t run;
    uint64_t i;          /* repetitions of the run that are behind */
    uint64_t begin, end; /* of the current range */
};
/* Moves to the next range. Returns false if there is none. */
bool stg_taken_next(struct stg_taken_walk *walk);
/* Moves on to the first range that ends after the item, in a time that depends on the
 * number of runs alone. Returns false if there is none. */
bool stg_taken_seek(struct stg_taken_walk *walk, uint64_t item);

/* Writes the text. buf has STG_TAKEN_TEXT_BYTES. RESOURCE_EXHAUSTED: it does not fit. */
int stg_taken_write(const struct stg_taken *set, char *buf, struct stg_err *err);
/* Reads a text into an empty set. INVALID_ARGUMENT: it is not what stg_taken_write
 * writes. RESOURCE_EXHAUSTED. */
int stg_taken_read(const char *text, struct stg_taken *ret, struct stg_err *err);

#endif
