/* SPDX-License-Identifier: Apache-2.0
 *
 * Storage of input files. Each storage scheme has one file and one line in table.c. A
 * reader sees only a source that it can read at an offset. Every call acts on behalf of
 * an identity: it refuses what that user may not read or list, even if the daemon may
 * (docs/stagerd.md).
 *
 * Errors: NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT (not a regular file), DATA_LOSS
 * (the device failed), RESOURCE_EXHAUSTED, UNIMPLEMENTED (unknown scheme). Texts begin
 * with the path. Any thread. One thread at a time may use a source, except that several
 * threads may call read at once.
 */
#ifndef STG_DAEMON_STORAGE_H
#define STG_DAEMON_STORAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/err.h"
#include "core/trace.h"

/* The user on whose behalf a file is opened, and when to give up. Must outlive the
 * source. */
struct stg_file_user {
    uid_t uid; /* 0 may read everything */
    gid_t gid;
    const gid_t *groups;
    size_t n_groups;
    /* The files are read in places, which will_need announces: nothing else is fetched
     * from another machine. False: from their beginning to their end. */
    bool in_places;
    const _Atomic int *stopped; /* not 0: calls that wait return CANCELLED; NULL: never */
};

/* An open file. The implementation's struct begins with it. */
struct stg_source {
    const struct stg_storage *storage;
    bool spoiled; /* a read failed because of the content of the file, not of the storage:
                     the rest of this file is lost, but other files are not affected */
    struct stg_trace *trace; /* set by stg_source_trace; NULL: reads are not traced */
    const char *url;
    struct stg_trace_label label;
};

/* Called for each match. A negative code ends the listing, which then returns it. */
typedef int stg_storage_found(void *owner, const char *path, struct stg_err *err);

struct stg_storage {
    const char *scheme; /* such as "file" */
    bool remote;        /* its calls wait for another machine */

    /* Opens a file. path: without the scheme. The caller calls close. */
    int (*open)(const char *path, const struct stg_file_user *identity,
                struct stg_source **ret, struct stg_err *err);
    /* Returns the number of bytes read: fewer than requested only at the end of the file,
     * where it is 0. If the file changes meanwhile, a read returns the new content. */
    int64_t (*read)(struct stg_source *source, uint64_t offset, void *buf, size_t bytes,
                    struct stg_err *err);
    /* Announces that those bytes will be read soon. What is announced between two reads
     * of a file that is read in places will be read at one pace, each from its begin to
     * its end, and before what is announced later. Does not wait. May be NULL. */
    void (*will_need)(struct stg_source *source, uint64_t offset, uint64_t bytes);
    /* Makes later reads bypass the page cache. Their offset, buffer and size must then be
     * page-aligned. NULL: not supported. INVALID_ARGUMENT: the file system does not
     * support it. */
    int (*direct)(struct stg_source *source, struct stg_err *err);
    int (*size)(struct stg_source *source, uint64_t *ret, struct stg_err *err);
    /* Returns a number that changes if the file is replaced or written to. It is derived
     * from the device and inode, size and times of the file, or from what a server states
     * of an object. NULL: versions are not known. */
    int (*version)(struct stg_source *source, uint64_t *ret, struct stg_err *err);
    void (*close)(struct stg_source *source); /* NULL is allowed */

    /* Calls `found` for every path that matches, in no particular order. NOT_FOUND: "no
     * files matched PATTERN", with the reason if it is known. */
    int (*list)(const char *pattern, const struct stg_file_user *identity,
                stg_storage_found *found, void *owner, struct stg_err *err);
    /* Checks the syntax of a pattern without access to the storage. */
    int (*check)(const char *pattern, struct stg_err *err);
};

/* Records a read that began at began_ns and returned n (negative: it failed). */
void stg_source_add_span(struct stg_source *source, uint64_t began_ns, uint64_t offset,
                         int64_t n);

extern const struct stg_storage stg_storage_file, stg_storage_http, stg_storage_https,
    stg_storage_s3, stg_storage_hdfs;

/* Finds the storage for a url, such as "file:///data/x" or "/data/x". *ret_path points to
 * the part of the url after the scheme. UNIMPLEMENTED: unknown scheme. */
int stg_storage_find(const char *url, const struct stg_storage **ret,
                     const char **ret_path, struct stg_err *err);

/* Makes later reads of this source trace spans under its url, which must outlive the
 * source. Use it on the innermost source, which does the reading: a wrapper (a
 * decompressor, a read-ahead) only waits for it. */
void stg_source_trace(struct stg_source *source, struct stg_trace *trace,
                      const char *url);

/* Counts a read of n bytes, if the source itself reads: a wrapper, which has no `open`,
 * reads by another source. */
void stg_source_count(const struct stg_source *source, int64_t n);

/* Calls storage->read, counts it, and traces it. */
static inline int64_t stg_source_read(struct stg_source *source, uint64_t offset,
                                      void *buf, size_t bytes, struct stg_err *err)
{
    uint64_t began = stg_trace_begin(source->trace);
    int64_t n = source->storage->read(source, offset, buf, bytes, err);
    stg_source_count(source, n);
    if (began != 0)
        stg_source_add_span(source, began, offset, n);
    return n;
}

/* Fills buf with bytes of the file. DATA_LOSS if it ends before; any error of the
 * storage, which sets *ret_storage. */
int stg_source_read_all(struct stg_source *source, uint64_t offset, void *buf,
                        uint64_t bytes, bool *ret_storage, struct stg_err *err);

/* Returns a url as log and error texts may show it: for http and https without its query,
 * which may hold a signature. The result is `url` itself, or buf. */
const char *stg_storage_shown(const char *url, char *buf, size_t bytes);

/* Makes a server's text fit for logs and errors: bytes that are not printable ASCII
 * become spaces. */
void stg_storage_make_printable(char *text);

/* Writes an http or https URL without its query to buf, at most `bytes`. Returns buf. */
const char *stg_storage_shown_query(const char *url, char *buf, size_t bytes);

#endif
