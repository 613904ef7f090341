/* SPDX-License-Identifier: Apache-2.0
 *
 * The record index of the file that a reader has open: finds it for a jump, or builds it
 * while the file is read from its start to its end. Costs one comparison a call of the
 * format where nothing is noted. One thread at a time, that of the reader.
 */
#ifndef STG_DAEMON_FILE_INDEX_H
#define STG_DAEMON_FILE_INDEX_H

#include "daemon/dataset/step.h"
#include "daemon/format/format.h"
#include "daemon/index/index.h"

/* Files whose index stays open for the next time that they are. */
#define STG_FILE_INDEX_CACHED 8

/* An index that was checked, of a file that is not open. */
struct stg_cached_index {
    struct stg_index *index; /* NULL: none */
    char *url;
    uint64_t version, bytes; /* of the file */
};

struct stg_file_index {
    struct stg_dataset *dataset; /* counts them; borrowed */
    const char *reader; /* struct stg_index_key.reader, or NULL: no indexes; borrowed */
    unsigned n_parts;   /* of a record */

    struct stg_source *file; /* as storage opened it; NULL: no index. Borrowed, as is: */
    const char *url;
    uint64_t version, bytes;           /* of the file, when it was opened */
    struct stg_index_totals so_far;    /* what came from it */
    struct stg_index_builder *builder; /* NULL: none is built */
    struct stg_index *index;           /* looked up for a jump; NULL: not found */
    uint64_t same_until;               /* no position up to this one has a better place */
    bool looked;                       /* for it */
    bool caches;                       /* files are opened again and again */
    struct stg_cached_index cached[STG_FILE_INDEX_CACHED];
    unsigned n_cached; /* so far: the next one takes the place of the oldest */
};

/* Begins a file, before any byte of it is read. Both are borrowed until the end. */
void stg_file_index_begin(struct stg_file_index *file, struct stg_source *source,
                          const char *url);
/* Drops the file. */
void stg_file_index_drop(struct stg_file_index *file);
/* Also drops all cached indexes. */
void stg_file_index_finish(struct stg_file_index *file);

/* Counts what the format returned: records, or a bad one. */
void stg_file_index_count(struct stg_file_index *file, const struct stg_records *records,
                          const int64_t *begin, const int64_t *end);
/* The file has no more: stores what was built. */
void stg_file_index_end(struct stg_file_index *file);

/* Sets *ret to the key of a file that was opened for the reader of `file`; url is
 * borrowed. Returns false if the file has none. */
bool stg_file_index_key(const struct stg_file_index *file, struct stg_source *source,
                        const char *url, struct stg_index_key *ret);

/* Returns the index of the file for a jump, or NULL. Looks it up once a file. */
struct stg_index *stg_file_index_find(struct stg_file_index *file);

/* Returns whether these records, of a call for one, begin with the one of that place. */
bool stg_file_index_is_at(const struct stg_index_place *place,
                          const struct stg_records *records, const int64_t *begin,
                          const int64_t *end);

#endif
