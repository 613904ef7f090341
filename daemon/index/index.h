/* SPDX-License-Identifier: Apache-2.0
 *
 * Record indexes. A place of an index is the start of a record; places are 64 KiB and one
 * record apart at most. A position counts what a reader yields from the file: records,
 * and errors in their place. An index is derived data: it is never synced, and whatever
 * is wrong with it costs a replay of the file, not a wrong record.
 */
#ifndef STG_DAEMON_INDEX_H
#define STG_DAEMON_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

/* Bytes of (uncompressed) data between two places. */
#define STG_INDEX_SPACING ((uint64_t)64 << 10)
/* Smaller files have no index: to create one takes a good part of the time in which such
 * a file is read. */
#define STG_INDEX_MIN_BYTES ((uint64_t)4 << 20)

struct stg_index_key {
    const char *url;
    const char *reader; /* the format, and all options that its records depend on */
    uint64_t version;   /* of the file, as struct stg_storage.version */
    uint64_t bytes;     /* size of the file */
};

struct stg_index_place {
    uint64_t position;
    uint64_t record; /* number of the record in its file, as in struct stg_provenance */
    uint64_t offset; /* in the uncompressed data */
    uint64_t check;  /* stg_index_check of the record */
};

/* What a whole file holds. */
struct stg_index_totals {
    uint64_t n_positions, n_records;
    uint64_t end; /* offset behind the last record, in the uncompressed data */
};

/* ---- the folder of all indexes; any thread ---- */

/* Opens the folder, and creates it if needed. most_bytes 0: no index is built or used.
 * FAILED_PRECONDITION: likewise, with the reason. */
int stg_index_configure(const char *folder, uint64_t most_bytes, struct stg_err *err);
void stg_index_finish(void);

/* Returns STG_INDEX_MIN_BYTES, or what a test has set. */
uint64_t stg_index_min_bytes(void);
void stg_index_set_min_bytes(uint64_t bytes);

/* Returns a hash of the length and the first bytes of a record. */
uint64_t stg_index_check(const char *record, uint64_t bytes);

/* ---- an index that exists ---- */

struct stg_index;

/* Finds the index of a file, and checks its head. Returns false if there is none that can
 * be used; logs the reason, and deletes it, if it is stale or damaged. The caller closes
 * it. */
bool stg_index_open(const struct stg_index_key *key, struct stg_index **ret);
void stg_index_close(struct stg_index *index); /* NULL is allowed */

const struct stg_index_totals *stg_index_totals(const struct stg_index *index);
/* Returns whether the index was deleted, and is of no more use. */
bool stg_index_is_bad(const struct stg_index *index);
/* Returns the size of the index. */
uint64_t stg_index_bytes(const struct stg_index *index);

/* Finds the last place before `position` (which is at least 1). *ret_last: the last
 * position with the same answer. The first call checks the whole index. Returns false if
 * there is no such place, or if the index is damaged, which is then logged; the index is
 * of no more use. */
bool stg_index_find(struct stg_index *index, uint64_t position,
                    struct stg_index_place *ret, uint64_t *ret_last);

/* Deletes an index whose places are not where records are. Logs that. */
void stg_index_refute(struct stg_index *index);

/* ---- an index that is being built ---- */

struct stg_index_builder {
    uint64_t next; /* the next record from this offset on is to be noted */
};

/* Returns NULL if no index is to be built, or memory runs out. */
struct stg_index_builder *stg_index_build(const struct stg_index_key *key);
/* Notes a place behind those before it. */
void stg_index_note(struct stg_index_builder *builder,
                    const struct stg_index_place *place);
/* Stores the index, and destroys the builder. The file must still be of the version that
 * the key has. *ret_bytes (may be NULL): the size of the index. Returns false if it was
 * not stored; the first failure of the process is logged. */
bool stg_index_commit(struct stg_index_builder *builder,
                      const struct stg_index_totals *totals, uint64_t *ret_bytes);
void stg_index_abandon(struct stg_index_builder *builder); /* NULL is allowed */

/* ---- the number of positions of a file; any thread ---- */

/* Sets *ret to the number of positions of that version of the file: from its index, or
 * for a file too small for one, as it was noted. Returns false if it is not known. */
bool stg_index_count(const struct stg_index_key *key, uint64_t *ret);
/* Notes the number of positions of a file, in memory (1.5 MiB for about 65,536 files).
 * The key is of the file as it was before it was read. */
void stg_index_note_count(const struct stg_index_key *key, uint64_t n);

#endif
