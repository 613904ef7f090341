/* SPDX-License-Identifier: Apache-2.0
 *
 * Record formats: how the bytes of a file fall into records. One format, one file. A
 * reader takes bytes from a source in large pieces into chunks and says where records
 * begin and end in them: it copies no record. It is independent of steps, file names
 * and patterns. One thread at a time.
 */
#ifndef STG_DAEMON_FORMAT_H
#define STG_DAEMON_FORMAT_H

#include <stdbool.h>
#include <stdio.h>

#include "core/batch.h"
#include "daemon/storage/ahead.h"
#include "daemon/storage/chunk.h"
#include "daemon/storage/storage.h"

struct stg_fixed_length_options {
    uint64_t record_bytes, header_bytes, footer_bytes;
};

struct stg_csv_header;
struct stg_csv_name;

struct stg_csv_reader_options {
    char delim;
    bool quotes; /* a field may be in quotes */
    bool header; /* the first record of a file is left out */
    /* What the header must name, sorted; borrowed. n_names 0: it may be anything. */
    const struct stg_csv_name *names;
    uint32_t n_names;
};

struct stg_npy_options {
    struct stg_component row; /* what a row is; a dimension of -1 may be any */
};

/* A record is the name of a sample, then its parts in this order. */
struct stg_tar_options {
    uint32_t n_parts; /* at least 1 */
    const char *const
        *parts;           /* "jpg", in any case of letters; the strings are borrowed */
    const bool *optional; /* of each part: it is empty where a sample lacks it */
};

struct stg_format_config {
    uint32_t n_parts;           /* components of a record; 0: one */
    uint64_t read_bytes;        /* bytes asked of the source at once, at least 1 */
    uint64_t chunk_bytes;       /* of a chunk, unless a record needs a larger one */
    uint64_t max_record_bytes;  /* a longer record is a bad record */
    const char *advice;         /* what to do about that, for the text */
    uint64_t skip_header_lines; /* text_line */
    bool skip_blank_lines;      /* text_line: those of spaces and tabs too */
    const void *options;        /* the format's own, see below; NULL: it has none */
    struct stg_ahead *ahead;    /* borrowed; NULL: nothing is read before it is needed */
    struct stg_quota *quota;    /* borrowed */
    const _Atomic int *stopped; /* not 0: CANCELLED soon; NULL: never */
};

/* Records of one chunk. Part p of record i is the bytes [begin[k], end[k]) of
 * chunk->data, k = i * n_parts + p; the record's place in the file is base + begin[i *
 * n_parts], its number is first + i. */
struct stg_records {
    struct stg_chunk *chunk; /* the reader's; take a reference to keep it */
    uint64_t chunk_used;     /* bytes of it that are filled */
    int64_t n;
    uint64_t base; /* modulo 2^64: a file may begin in the middle of a chunk */
    uint64_t first;
    /* Of a format of dense records: what each of them is, of one part; the records of a
     * call, and of calls that go on in one chunk, follow one another. Valid until the
     * next call. The caller sets NULL before each. */
    const struct stg_component *row;
    struct stg_err bad; /* code != 0: no records, but one that cannot be had */
};

enum stg_format_more {
    STG_FORMAT_RECORDS = 0, /* records, or bad.code */
    STG_FORMAT_END = 1,     /* the file has no more */
    STG_FORMAT_FULL = 2     /* the next record needs another chunk (same_chunk only) */
};

struct stg_format {
    const char *name;

    /* RESOURCE_EXHAUSTED. The options are read here alone. */
    int (*create)(const struct stg_format_config *config, void **ret);
    void (*destroy)(void *reader); /* NULL is allowed */

    /* Begins a file; ends the one before. The source is borrowed until stop. */
    void (*start)(void *reader, struct stg_source *source);
    /* The source is not touched any more. Without a start: nothing. */
    void (*stop)(void *reader);

    /* Up to n_max (at least 1) records of the file. same_chunk: only from the chunk of
     * the last call. Returns an enum stg_format_more, or a negative code when the source
     * failed, after which only stop, start and destroy may follow. A bad record has been
     * skipped when it is reported; its text has line and offset, not the file. */
    int (*next)(void *reader, int64_t n_max, bool same_chunk, int64_t *begin,
                int64_t *end, struct stg_records *ret, struct stg_err *err);

    /* Writes all options that decide where records begin, and how many records and bad
     * records a file has. NULL: the format has no record index (daemon/index). */
    void (*describe)(const void *reader, FILE *to);
    /* Moves forward, also in a file that has just been started, to the record of that
     * number, which begins at that offset. NULL if describe is. */
    void (*seek)(void *reader, uint64_t offset, uint64_t record);
    /* Moves forward by up to n records that it does not read. Returns how many in *ret:
     * 0 if that takes reading. Fails only for lack of memory. NULL: always 0. */
    int (*skip)(void *reader, uint64_t n, uint64_t *ret, struct stg_err *err);
    bool is_one_record; /* a file has one, or an error for one */
};

extern const struct stg_format stg_format_text_line, stg_format_tfrecord,
    stg_format_fixed_length, stg_format_csv, stg_format_read_file, stg_format_npy,
    stg_format_tar;

/* What a reader of stg_format_csv with names has found in the header of the file that the
 * last records are of. */
const struct stg_csv_header *stg_csv_header_of(const void *reader);

/* All of them. */
const struct stg_format *const *stg_formats(size_t *ret_n);

#endif
