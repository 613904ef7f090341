/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/dataset/block.h"
#include "daemon/dataset/cache/cache_layout.h"
#include "daemon/storage/local/access.h"

#define BUFFER_BYTES 262144

struct stg_cache_writer {
    int dir;    /* the folder, O_PATH */
    int fd;     /* of the .part, locked */
    char *path; /* for messages */
    char *name; /* of the file in the folder */
    char *part; /* of the .part in the folder */
    uint64_t n_blocks, bytes;
    size_t n_used; /* of buffer */
    char buffer[BUFFER_BYTES];
};

static int io_error(const char *what, const char *path, struct stg_err *err)
{
    int error = errno;
    const char *hint = "";
    if (error == EROFS || error == EACCES || error == EPERM)
        hint = "; the service may write only below ReadWritePaths= of stagerd.service, "
               "and stagerd's user needs permission to write in that directory";
    else if (error == ENOSPC || error == EDQUOT)
        hint = "; free some space, or choose another filename";
    return stg_err(err, stg_access_errno(error), "cannot %s %s: %s%s", what, path,
                   strerror(error), hint);
}

/* ---- the folder, and the .part in it ---- */

static int open_folder(struct stg_cache_writer *writer,
                       const struct stg_file_user *identity, struct stg_err *err)
{
    struct stat st;
    char *slash = strrchr(writer->path, '/');
    *slash = '\0';
    const char *folder = slash == writer->path ? "/" : writer->path;
    int rc = stg_access_walk(-1, folder, folder, identity, &writer->dir, &st, err);
    if (rc == 0 && !S_ISDIR(st.st_mode))
        rc = stg_err(err, -STAGER_INVALID_ARGUMENT, "%s is not a directory", folder);
    if (rc == 0 &&
        !stg_access_fd(writer->dir, &st, identity, STG_ACCESS_WRITE | STG_ACCESS_SEARCH))
        rc = stg_access_refuse(identity, "write in", folder, NULL, err);
    *slash = '/';
    return rc;
}

/* The .part is a file of this user that has no other name. A file of another program is
 * not written over. */
static int check_part(const struct stg_cache_writer *writer, struct stg_err *err)
{
    struct stat st;
    if (fstat(writer->fd, &st) < 0)
        return io_error("examine", writer->path, err);
    if (S_ISREG(st.st_mode) && st.st_nlink <= 1 && st.st_uid == geteuid())
        return 0;
    return stg_err(
        err, -STAGER_FAILED_PRECONDITION,
        "%s.part was not written by stagerd: delete it, or choose another filename",
        writer->path);
}

/* 1: another writer has it. The owner of the lock checks that the name is still that of
 * the file: the writer before it may have renamed the file. */
static int lock_part(struct stg_cache_writer *writer, struct stg_err *err)
{
    struct stat mine, named;
    writer->fd = openat(writer->dir, writer->part,
                        O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
    if (writer->fd < 0)
        return io_error("make", writer->path, err);
    int rc = check_part(writer, err);
    if (rc < 0)
        return rc;
    if (flock(writer->fd, LOCK_EX | LOCK_NB) < 0)
        return errno == EWOULDBLOCK ? 1 : io_error("lock", writer->path, err);
    if (fstat(writer->fd, &mine) < 0 ||
        fstatat(writer->dir, writer->part, &named, AT_SYMLINK_NOFOLLOW) < 0 ||
        mine.st_ino != named.st_ino || mine.st_dev != named.st_dev)
        return 1;
    if (ftruncate(writer->fd, 0) < 0)
        return io_error("empty", writer->path, err);
    return 0;
}

/* ---- bytes ---- */

static int flush(struct stg_cache_writer *writer, struct stg_err *err)
{
    size_t at = 0;
    while (at < writer->n_used) {
        ssize_t n = write(writer->fd, writer->buffer + at, writer->n_used - at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return io_error("write", writer->path, err);
        at += (size_t)n;
    }
    writer->n_used = 0;
    return 0;
}

static int put(struct stg_cache_writer *writer, const void *data, uint64_t bytes,
               struct stg_err *err)
{
    const char *from = data;
    writer->bytes += bytes;
    while (bytes > 0) {
        uint64_t n = BUFFER_BYTES - writer->n_used;
        if (n > bytes)
            n = bytes;
        memcpy(writer->buffer + writer->n_used, from, n);
        writer->n_used += n;
        from += n;
        bytes -= n;
        int rc = writer->n_used == BUFFER_BYTES ? flush(writer, err) : 0;
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- blocks: the same walk sums, then writes ---- */

enum walk { SUM, WRITE };

struct walker {
    struct stg_cache_writer *writer;
    enum walk what;
    uint64_t bytes, sum;
    struct stg_err *err;
};

static int visit(struct walker *walker, const void *data, uint64_t bytes)
{
    static const char zeros[64];
    uint64_t pad = stg_block_room(bytes) - bytes;
    walker->bytes += bytes + pad;
    if (walker->what == SUM)
        walker->sum = stg_fingerprint64_join(walker->sum, data, bytes);
    if (walker->what != WRITE)
        return 0;
    int rc = put(walker->writer, data, bytes, walker->err);
    return rc == 0 ? put(walker->writer, zeros, pad, walker->err) : rc;
}

static int visit_tensor(struct walker *walker, const struct stg_tensor *tensor)
{
    uint64_t n = (uint64_t)stg_tensor_n(tensor);
    int rc = 0;
    if (tensor->dtype == STAGER_STRING) {
        rc = visit(walker, tensor->begin, n * sizeof(int64_t));
        if (rc == 0)
            rc = visit(walker, tensor->end, n * sizeof(int64_t));
    }
    return rc == 0 ? visit(walker, tensor->data, tensor->data_bytes) : rc;
}

static int visit_block(struct walker *walker, const struct stg_block *block)
{
    int rc = 0;
    for (uint32_t c = 0; rc == 0 && c < block->n_components; c++) {
        const struct stg_tensor *tensor = &block->tensors[c];
        struct stg_cache_tensor head = {.dtype = tensor->dtype,
                                        .ndim = tensor->ndim,
                                        .data_bytes = tensor->data_bytes};
        memcpy(head.shape, tensor->shape, (size_t)tensor->ndim * sizeof(int64_t));
        rc = visit(walker, &head, sizeof(head));
    }
    for (uint32_t c = 0; rc == 0 && c < block->n_components; c++)
        rc = visit_tensor(walker, &block->tensors[c]);
    if (rc == 0 && block->rows != NULL)
        rc = visit(walker, block->rows,
                   (uint64_t)block->n_rows * sizeof(struct stg_provenance));
    return rc;
}

int stg_cache_write(struct stg_cache_writer *writer, const struct stg_block *block,
                    struct stg_err *err)
{
    assert(block->error.code == 0);
    struct walker walker = {.writer = writer, .what = SUM, .err = err};
    visit_block(&walker, block);
    struct stg_cache_block head = {.bytes = walker.bytes,
                                   .sum = walker.sum,
                                   .n_records = block->n_records,
                                   .n_rows = block->n_rows,
                                   .epoch = block->epoch,
                                   .n_components = block->n_components,
                                   .has_rows = block->rows != NULL};
    head.head_sum =
        stg_fingerprint64_join(0, &head, offsetof(struct stg_cache_block, head_sum));
    int rc = put(writer, &head, sizeof(head), err);
    walker.what = WRITE;
    if (rc == 0)
        rc = visit_block(&walker, block);
    writer->n_blocks += rc == 0;
    return rc;
}

/* ---- life ---- */

static void writer_free(struct stg_cache_writer *writer)
{
    if (writer->fd >= 0)
        close(writer->fd);
    if (writer->dir >= 0)
        close(writer->dir);
    free(writer->path);
    free(writer->part);
    free(writer);
}

static int put_head(struct stg_cache_writer *writer, const struct stg_cache_key *key,
                    struct stg_err *err)
{
    struct stg_cache_head head = {.version = STG_CACHE_VERSION, .key = *key};
    memcpy(head.magic, STG_CACHE_MAGIC, sizeof(head.magic));
    head.sum = stg_fingerprint64_join(0, &head, offsetof(struct stg_cache_head, sum));
    return put(writer, &head, sizeof(head), err);
}

int stg_cache_create(const char *path, const struct stg_file_user *identity,
                     const struct stg_cache_key *key, struct stg_cache_writer **ret,
                     struct stg_err *err)
{
    struct stg_cache_writer *writer = malloc(sizeof(*writer));
    if (writer == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "%s: out of memory", path);
    memset(writer, 0, offsetof(struct stg_cache_writer, buffer));
    writer->dir = writer->fd = -1;
    writer->path = strdup(path);
    const char *name = strrchr(path, '/') + 1;
    writer->part = malloc(strlen(name) + sizeof(".part"));
    int rc;
    if (writer->path == NULL || writer->part == NULL) {
        rc = stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "%s: out of memory", path);
        goto fail;
    }
    writer->name = strrchr(writer->path, '/') + 1;
    strcpy(writer->part, name);
    strcat(writer->part, ".part");
    rc = open_folder(writer, identity, err);
    if (rc == 0)
        rc = lock_part(writer, err);
    if (rc == 0)
        rc = put_head(writer, key, err);
    if (rc != 0)
        goto fail;
    *ret = writer;
    return 0;

fail:
    writer_free(writer);
    return rc;
}

static int put_tail(struct stg_cache_writer *writer, struct stg_err *err)
{
    struct stg_cache_tail tail = {.n_blocks = writer->n_blocks, .bytes = writer->bytes};
    memcpy(tail.magic, STG_CACHE_TAIL_MAGIC, sizeof(tail.magic));
    tail.sum = stg_fingerprint64_join(0, &tail, offsetof(struct stg_cache_tail, sum));
    int rc = put(writer, &tail, sizeof(tail), err);
    return rc == 0 ? flush(writer, err) : rc;
}

/* A folder that is O_PATH cannot be synced: it is opened for it. */
static void sync_folder(const struct stg_cache_writer *writer)
{
    int fd = openat(writer->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    fsync(fd);
    close(fd);
}

/* Never over a file that is there. Without RENAME_NOREPLACE (some network file systems)
 * by a look before. */
static int give_name(struct stg_cache_writer *writer, struct stg_err *err)
{
    struct stat st;
    int rc =
        renameat2(writer->dir, writer->part, writer->dir, writer->name, RENAME_NOREPLACE);
    if (rc < 0 && (errno == EINVAL || errno == ENOSYS)) {
        errno = EEXIST;
        if (fstatat(writer->dir, writer->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            rc = renameat(writer->dir, writer->part, writer->dir, writer->name);
    }
    return rc < 0 ? io_error("rename", writer->path, err) : 0;
}

int stg_cache_commit(struct stg_cache_writer *writer, struct stg_err *err)
{
    int rc = put_tail(writer, err);
    if (rc == 0 && fsync(writer->fd) < 0)
        rc = io_error("write", writer->path, err);
    if (rc == 0)
        rc = give_name(writer, err);
    if (rc < 0) {
        stg_cache_abandon(writer);
        return rc;
    }
    sync_folder(writer);
    writer_free(writer);
    return 0;
}

void stg_cache_abandon(struct stg_cache_writer *writer)
{
    if (writer == NULL)
        return;
    unlinkat(writer->dir, writer->part, 0);
    writer_free(writer);
}
