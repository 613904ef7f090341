/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/files/listing.h"

#include <inttypes.h>
#include <string.h>

struct listing {
    const char *url; /* as texts show it */
    stg_storage_found *found;
    void *owner;
    uint64_t line; /* from 1 */
    uint64_t n;    /* names so far */
    char buffer[STG_LISTING_LINE_BYTES + 1];
};

static int blame(const struct listing *listing, int code, struct stg_err *err)
{
    return stg_err_prefix(err, code, "%s: line %" PRIu64, listing->url, listing->line);
}

static int take_name(struct listing *listing, const char *name, struct stg_err *err)
{
    const struct stg_storage *storage;
    const char *path;
    int rc = stg_storage_find(name, &storage, &path, err);
    if (rc == 0)
        rc = storage->check(path, err);
    if (rc < 0)
        return blame(listing, rc, err);
    listing->n++;
    return listing->found(listing->owner, name, err);
}

/* The n bytes at `line` are one, without its end; the byte behind them may be written. */
static int take_line(struct listing *listing, char *line, size_t n, struct stg_err *err)
{
    listing->line++;
    if (n > 0 && line[n - 1] == '\r')
        n--;
    if (n == 0 || line[0] == '#')
        return 0;
    if (memchr(line, '\0', n) != NULL)
        return blame(listing,
                     stg_err(err, -STAGER_INVALID_ARGUMENT,
                             "a NUL byte; a listing is text with one path per line"),
                     err);
    line[n] = '\0';
    return take_name(listing, line, err);
}

/* The whole lines among the first n bytes of the buffer; how many bytes they have. */
static int take_lines(struct listing *listing, size_t n, size_t *ret, struct stg_err *err)
{
    char *at = listing->buffer, *end;
    size_t left = n;
    while ((end = memchr(at, '\n', left)) != NULL) {
        int rc = take_line(listing, at, (size_t)(end - at), err);
        if (rc < 0)
            return rc;
        left -= (size_t)(end + 1 - at);
        at = end + 1;
    }
    *ret = n - left;
    return 0;
}

static int too_long(struct listing *listing, struct stg_err *err)
{
    listing->line++;
    return blame(listing,
                 stg_err(err, -STAGER_INVALID_ARGUMENT,
                         "longer than %d bytes; a listing is text with one path per line",
                         STG_LISTING_LINE_BYTES),
                 err);
}

static int read_lines(struct listing *listing, struct stg_source *source,
                      struct stg_err *err)
{
    uint64_t offset = 0;
    for (size_t retained = 0;;) {
        int64_t n = stg_source_read(source, offset, listing->buffer + retained,
                                    STG_LISTING_LINE_BYTES - retained, err);
        if (n < 0)
            return (int)n;
        if (n == 0)
            return retained > 0 ? take_line(listing, listing->buffer, retained, err) : 0;
        size_t used;
        int rc = take_lines(listing, retained + (size_t)n, &used, err);
        if (rc < 0)
            return rc;
        retained += (size_t)n - used;
        memmove(listing->buffer, listing->buffer + used, retained);
        if (retained == STG_LISTING_LINE_BYTES)
            return too_long(listing, err);
        offset += (uint64_t)n;
    }
}

int stg_listing_read(const char *url, const struct stg_file_user *identity,
                     stg_storage_found *found, void *owner, struct stg_err *err)
{
    char hidden[512];
    struct listing listing = {.url = stg_storage_shown(url, hidden, sizeof(hidden)),
                              .found = found,
                              .owner = owner};
    const struct stg_storage *storage;
    struct stg_source *source;
    const char *path;
    int rc = stg_storage_find(url, &storage, &path, err);
    if (rc == 0)
        rc = storage->open(path, identity, &source, err);
    if (rc < 0)
        return rc;
    rc = read_lines(&listing, source, err);
    storage->close(source);
    if (rc == 0 && listing.n == 0)
        rc = stg_err(err, -STAGER_INVALID_ARGUMENT,
                     "%s: the file is empty; a listing is text with one path per line",
                     listing.url);
    return rc;
}
