/* SPDX-License-Identifier: Apache-2.0
 *
 * A source in memory, and all that a format makes of it, for tests of formats.
 */
#ifndef STG_TESTS_FORMAT_SOURCE_H
#define STG_TESTS_FORMAT_SOURCE_H

#include "daemon/format/format.h"

struct stg_test_memory {
    struct stg_source source;
    const char *data;
    uint64_t bytes;
    uint64_t virtual_bytes;  /* zeros behind the data, up to here */
    uint64_t most;           /* bytes that a read gives; 0: all that were asked for */
    uint64_t fail_at;        /* reads that would pass it fail; 0: none */
    uint64_t longest_read;   /* bytes asked for at once */
    _Atomic int *stop_after; /* set once n_reads is reached */
    int n_reads;
};

struct stg_test_memory stg_test_memory(const void *data, size_t bytes);

/* A record: its parts one after the other, each with its length before it ("3:abc")
 * where there are several. Or, with a code, what was told instead of it. */
struct stg_test_record {
    char *data;
    size_t bytes;
    uint64_t offset, number;
    int code;
};

struct stg_test_records {
    struct stg_test_record *at;
    size_t n;
    int rc; /* of the source: negative, with err, or 0 */
    struct stg_err err;
};

/* Reads a whole source, `ask` records at a time; quota and, unless given, limits of 1 MiB
 * are filled in. `hold`: every chunk is kept to the end, and must not have changed by
 * then. Some calls go on in the chunk of the one before. */
struct stg_test_records stg_test_read(const struct stg_format *format,
                                      struct stg_format_config config,
                                      struct stg_test_memory *source, int64_t ask,
                                      bool hold);
void stg_test_records_finish(struct stg_test_records *records);

/* Ends the test unless both are the same, to the letter. */
void stg_test_records_equal(const struct stg_test_records *got,
                            const struct stg_test_records *want);

/* Reads it by all sizes of reads and chunks, with and without holding; all must give the
 * same. The caller finishes what is returned. */
struct stg_test_records stg_test_read_all_ways(const struct stg_format *format,
                                               struct stg_format_config config,
                                               const void *data, size_t bytes);

/* Each prefix of the data, and the data with each bit of each byte turned, must give
 * records or errors: no crash, no end that does not come. */
void stg_test_every_damage(const struct stg_format *format,
                           struct stg_format_config config, const void *data,
                           size_t bytes);

/* n times a few bytes changed, cut out, doubled or cut off at random, by a seed that is
 * said when one fails (STG_SEED is another one). Each must give records or errors, and
 * the same by reads of one byte as by large ones. */
void stg_test_some_damage(const struct stg_format *format,
                          struct stg_format_config config, const void *data, size_t bytes,
                          int n);

#endif
