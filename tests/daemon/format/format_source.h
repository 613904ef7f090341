/* SPDX-License-Identifier: Apache-2.0
 *
 * A source in memory, and a format's complete output for it, for tests of formats.
 */
#ifndef STG_TESTS_FORMAT_SOURCE_H
#define STG_TESTS_FORMAT_SOURCE_H

#include "daemon/format/format.h"

struct stg_test_memory {
    struct stg_source source;
    const char *data;
    uint64_t bytes;
    uint64_t virtual_bytes;  /* zeros behind the data, up to here */
    uint64_t most;           /* bytes that a read returns; 0: as many as requested */
    uint64_t fail_at;        /* reads beyond this fail; 0: none */
    uint64_t longest_read;   /* bytes of the largest request */
    _Atomic int *stop_after; /* set once n_reads is reached */
    int n_reads;
    /* Called once the file was started; NULL: not. */
    void (*started)(void *owner, const struct stg_format *format, void *reader);
    void *owner;
};

struct stg_test_memory stg_test_memory(const void *data, size_t bytes);

/* A record: its parts one after another, each preceded by its length ("3:abc") if there
 * are several. With a code, the error instead of it. */
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

/* Reads a whole source, `ask` records at a time. quota, and limits of 1 MiB unless set,
 * are filled in. `hold`: every chunk is kept to the end and must not have changed by
 * then. Some calls continue in the chunk of the previous one. */
struct stg_test_records stg_test_read(const struct stg_format *format,
                                      struct stg_format_config config,
                                      struct stg_test_memory *source, int64_t ask,
                                      bool hold);
void stg_test_records_finish(struct stg_test_records *records);

/* Ends the test unless both are exactly equal. */
void stg_test_records_equal(const struct stg_test_records *got,
                            const struct stg_test_records *want);

/* Reads it with all sizes of reads and chunks, with and without holding. All results must
 * be equal. The caller finishes the returned records. */
struct stg_test_records stg_test_read_all_ways(const struct stg_format *format,
                                               struct stg_format_config config,
                                               const void *data, size_t bytes);

/* Every prefix of the data, and the data with any one bit flipped, must give records or
 * errors: no crash, no endless loop. */
void stg_test_every_damage(const struct stg_format *format,
                           struct stg_format_config config, const void *data,
                           size_t bytes);

/* Changes, deletes, doubles or truncates a few bytes at random, n times. The seed is
 * printed on failure (STG_SEED sets another one). Each variant must give records or
 * errors, the same with reads of one byte and with large ones. */
void stg_test_some_damage(const struct stg_format *format,
                          struct stg_format_config config, const void *data, size_t bytes,
                          int n);

#endif
