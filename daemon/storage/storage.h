/* SPDX-License-Identifier: Apache-2.0
 *
 * Where bytes come from: one storage scheme, one file, one line in table.c. A reader
 * sees a source that it can read at an offset and nothing else. Everything is done on
 * behalf of an identity: what that user may not read or list is refused, whatever the
 * daemon itself may do (docs/stagerd.md).
 *
 * Errors: NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT (no regular file), DATA_LOSS
 * (the device failed), RESOURCE_EXHAUSTED, UNIMPLEMENTED (unknown scheme). Texts begin
 * with the path. Any thread; one source by one thread at a time, but for read, which
 * several may call at once.
 */
#ifndef STG_DAEMON_STORAGE_H
#define STG_DAEMON_STORAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/err.h"
#include "core/trace.h"

/* The user whose rights a file needs, and when to give up. Borrowed as long as the
 * source. */
struct stg_file_user {
    uid_t uid; /* 0 may read everything */
    gid_t gid;
    const gid_t *groups;
    size_t n_groups;
    const _Atomic int *stopped; /* not 0: what waits returns CANCELLED; NULL: never */
};

/* An opened file. The implementation's struct begins with it. */
struct stg_source {
    const struct stg_storage *storage;
    bool spoiled; /* a read failed because of what is in the file, not of the storage: the
                     rest of this file is lost, and others are not concerned */
    struct stg_trace *trace; /* set by stg_source_trace; NULL: reads are no spans */
    const char *url;
    struct stg_trace_label label;
};

/* Called for each name that matches; a negative code ends the listing and is returned. */
typedef int stg_storage_found(void *owner, const char *path, struct stg_err *err);

struct stg_storage {
    const char *scheme; /* "file" */
    bool remote;        /* its calls wait for another machine */

    /* path: without the scheme. The caller closes. */
    int (*open)(const char *path, const struct stg_file_user *identity,
                struct stg_source **ret, struct stg_err *err);
    /* Bytes read: fewer than asked for only at the end, 0 there. A file may change while
     * it is read: then the answer is what is there now. */
    int64_t (*read)(struct stg_source *source, uint64_t offset, void *buf, size_t bytes,
                    struct stg_err *err);
    /* May be NULL. Those bytes will be read soon: returns without them. */
    void (*will_need)(struct stg_source *source, uint64_t offset, uint64_t bytes);
    /* May be NULL: it cannot. From now on reads go past the page cache, and must be of
     * whole pages to whole pages. INVALID_ARGUMENT: the file system has no such reads. */
    int (*direct)(struct stg_source *source, struct stg_err *err);
    int (*size)(struct stg_source *source, uint64_t *ret, struct stg_err *err);
    /* May be NULL: that is not known. A number that is another one once the file is
     * another file, or was written to: of its place, size and times. */
    int (*version)(struct stg_source *source, uint64_t *ret, struct stg_err *err);
    void (*close)(struct stg_source *source); /* NULL is allowed */

    /* Every path that matches, in no order. NOT_FOUND "no files matched PATTERN", with
     * the reason where there is one. */
    int (*list)(const char *pattern, const struct stg_file_user *identity,
                stg_storage_found *found, void *owner, struct stg_err *err);
    /* Whether a pattern can be one, without touching storage. */
    int (*check)(const char *pattern, struct stg_err *err);
};

/* A read that began then and gave n bytes, or failed. */
void stg_source_add_span(struct stg_source *source, uint64_t began_ns, uint64_t offset,
                         int64_t n);

extern const struct stg_storage stg_storage_file, stg_storage_http, stg_storage_https,
    stg_storage_s3, stg_storage_hdfs;

/* The storage for a url, "file:///data/x" or "/data/x", and the rest of the url (inside
 * of it). UNIMPLEMENTED for a scheme that we do not have. */
int stg_storage_find(const char *url, const struct stg_storage **ret,
                     const char **ret_path, struct stg_err *err);

/* Reads of this source are spans from now on, by its url, which is borrowed for as long
 * as the source. For one that really reads: what lies over it waits for that. */
void stg_source_trace(struct stg_source *source, struct stg_trace *trace,
                      const char *url);

/* storage->read. */
static inline int64_t stg_source_read(struct stg_source *source, uint64_t offset,
                                      void *buf, size_t bytes, struct stg_err *err)
{
    uint64_t began = stg_trace_begin(source->trace);
    int64_t n = source->storage->read(source, offset, buf, bytes, err);
    if (began != 0)
        stg_source_add_span(source, began, offset, n);
    return n;
}

/* A url as a text may show it: of one of the web nothing of its query, which may hold a
 * signature. Returns it, or buf. */
const char *stg_storage_shown(const char *url, char *buf, size_t bytes);

/* What a text may show of a URL of the web: nothing of its query. Writes at most `bytes`.
 * Returns buf. */
const char *stg_storage_shown_query(const char *url, char *buf, size_t bytes);

#endif
