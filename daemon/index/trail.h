/* SPDX-License-Identifier: Apache-2.0
 *
 * Trails. A trail has the marks of one step in one pass: after so many records that the
 * step has yielded, it has taken so many, and holds nothing but these. With it a pass
 * continues at a position without producing what lies before, where only the data says
 * how many records of the input that is. A trail is a file of the folder of the record
 * indexes (index.h). Marks are appended while the pass runs, and survive the daemon. A
 * trail is derived data: never synced, and without it the step produces what it skips.
 * Any thread.
 */
#ifndef STG_DAEMON_TRAIL_H
#define STG_DAEMON_TRAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Records of the input between two marks, at least. */
#define STG_TRAIL_SPACING ((uint64_t)1 << 14)

/* All that the marks depend on, as hashes: the steps, the files with their versions, the
 * rest. Those of one user are not another's. */
struct stg_trail_key {
    uint64_t steps, files, pass, rest, user;
};

/* n_held of the mark at the end of an iteration. */
#define STG_TRAIL_END UINT32_MAX

struct stg_mark {
    uint64_t iteration;   /* of the step in the pass, from 0 */
    uint64_t n_out, n_in; /* records that were yielded and taken, errors included */
    /* Part 0: a hash of record n_in of the input, or what else the step writes. Part i:
     * the number of a record of the input that the step holds, in rising order. */
    uint64_t value;
    uint32_t part, n_held; /* parts 0 to n_held make one mark */
    uint64_t sum;          /* stg_trail_add sets it */
};

struct stg_trail;

/* Returns the least number of records between two marks: STG_TRAIL_SPACING, or what a
 * test has set. */
uint64_t stg_trail_spacing(void);
void stg_trail_set_spacing(uint64_t n);

/* Finds or begins the trail. All that have one key open share it. Returns NULL if the
 * folder is closed, or memory runs out. */
struct stg_trail *stg_trail_open(const struct stg_trail_key *key);
void stg_trail_close(struct stg_trail *trail); /* NULL is allowed */

/* Appends a mark of n parts, unless the trail has come as far already. Stores nothing
 * more if the folder has no room, if the trail takes an eighth of it, or after a failure:
 * the first failure of the process is logged. */
void stg_trail_add(struct stg_trail *trail, struct stg_mark *parts, size_t n);

/* Finds the last mark of the iteration after at most n_out records. *ret: its part 0, and
 * *ret_at: where its other parts begin. Returns false if there is none, or if the trail
 * is damaged, which is then logged: it is deleted. */
bool stg_trail_find(struct stg_trail *trail, uint64_t iteration, uint64_t n_out,
                    struct stg_mark *ret, uint64_t *ret_at);
/* Reads the numbers of the records that the step holds at a mark. Returns false likewise.
 */
bool stg_trail_held(struct stg_trail *trail, const struct stg_mark *mark, uint64_t at,
                    uint64_t *ret);

/* Reads the marks of the iteration in turn; *at is 0 before the first. For a step that
 * never holds anything at a mark. Returns false after the last one, or as
 * stg_trail_find. */
bool stg_trail_walk(struct stg_trail *trail, uint64_t iteration, uint64_t *at,
                    struct stg_mark *ret);

/* Deletes a trail that does not fit the data. Logs that. */
void stg_trail_refute(struct stg_trail *trail);

#endif
