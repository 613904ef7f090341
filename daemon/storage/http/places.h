/* SPDX-License-Identifier: Apache-2.0
 *
 * What is fetched of an object that is read in places: pieces of the stretches that its
 * reader announced, in the order in which it will want them. Stretches that are announced
 * together are read at the same pace, so that those of one turn are fetched abreast.
 * Small stretches that lie close together are one piece. A pure data structure, without a
 * lock.
 */
#ifndef STG_DAEMON_PLACES_H
#define STG_DAEMON_PLACES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stg_piece {
    uint64_t begin, end;
    uint32_t turn; /* from 1 */
    uint32_t row;  /* pieces of one row follow one another in the object */
    double at;     /* of the row: how much of it lies before the piece */
    bool is_begun, is_read;
};

struct stg_stretch {
    uint64_t begin, end;
};

struct stg_places {
    struct stg_piece *pieces; /* in the order in which they are wanted */
    size_t n, size;
    struct stg_stretch *announced; /* since the last division */
    size_t n_announced, announced_size;
    uint32_t turn;   /* of the last division */
    uint32_t n_rows; /* of that turn */
};

/* Zero bytes are empty places. */

/* Announces bytes. What is not yet read of what was announced stays. Without memory the
 * announcement is lost. */
void stg_places_announce(struct stg_places *places, uint64_t begin, uint64_t end);

/* Makes pieces of at most piece_bytes of what was announced, in a new turn behind those
 * before. Drops pieces of turns before `reached`. */
void stg_places_divide(struct stg_places *places, uint64_t piece_bytes, uint32_t reached);

/* Returns the latest piece with that byte, or NULL. */
struct stg_piece *stg_places_find(const struct stg_places *places, uint64_t offset);

/* Notes that the latest piece with that byte is begun, if there is one. */
void stg_places_begun(struct stg_places *places, uint64_t offset);

/* Returns the first piece that was not begun, or NULL. */
struct stg_piece *stg_places_next(const struct stg_places *places);

void stg_places_finish(struct stg_places *places);

#endif
