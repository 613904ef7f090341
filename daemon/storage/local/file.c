/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "daemon/storage/local/access.h"
#include "daemon/storage/local/glob.h"
#include "daemon/storage/local/mapping.h"
#include "ops/base/hash.h"

struct file_source {
    struct stg_source source;
    int fd;
    struct stg_mapping mapping;
    char path[];
};

static int check_kind(int fd, const struct stat *st, const char *path,
                      const struct stg_file_user *identity, struct stg_err *err)
{
    if (S_ISDIR(st->st_mode))
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "%s is a directory: write %s/* to read the files in it", path,
                       path);
    if (!S_ISREG(st->st_mode))
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "%s is not a regular file (a pipe, a socket or a device)", path);
    /* Modes of /proc say nothing: what is read there depends on the reader. */
    struct statfs fs;
    if (identity->uid != 0 && fstatfs(fd, &fs) == 0 && fs.f_type == PROC_SUPER_MAGIC)
        return stg_access_refuse(identity, "read", path, NULL, err);
    return 0;
}

/* An O_PATH descriptor has no side effect on a pipe or a device; only what it shows to be
 * a regular file that the user may read is opened, through it, so that it is the same. */
static int open_checked(int at, const struct stat *st, const char *path,
                        const struct stg_file_user *identity, int *ret,
                        struct stg_err *err)
{
    int rc = check_kind(at, st, path, identity, err);
    if (rc < 0)
        return rc;
    if (!stg_access_fd(at, st, identity, STG_ACCESS_READ))
        return stg_access_refuse(identity, "read", path, NULL, err);
    char link[64];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", at);
    int fd = open(link, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 && (errno == EACCES || errno == EPERM))
        return stg_access_daemon_cannot(path, path, "r", err);
    if (fd < 0)
        return stg_err(err, stg_access_errno(errno), "%s: %s", path, strerror(errno));
    *ret = fd;
    return 0;
}

static int file_open(const char *path, const struct stg_file_user *identity,
                     struct stg_source **ret, struct stg_err *err)
{
    if (path[0] != '/')
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "%s is a relative path; write the absolute path", path);
    struct file_source *file = malloc(sizeof(*file) + strlen(path) + 1);
    if (file == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "%s: out of memory", path);
    file->source = (struct stg_source){.storage = &stg_storage_file};
    strcpy(file->path, path);

    int at;
    struct stat st;
    int rc = stg_access_walk(-1, path, path, identity, &at, &st, err);
    if (rc == 0) {
        rc = open_checked(at, &st, path, identity, &file->fd, err);
        close(at);
    }
    if (rc < 0) {
        free(file);
        return rc;
    }
    stg_mapping_init(&file->mapping, !identity->in_places);
    posix_fadvise(file->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    *ret = &file->source;
    return 0;
}

static int64_t file_read(struct stg_source *source, uint64_t offset, void *buf,
                         size_t bytes, struct stg_err *err)
{
    struct file_source *file = (struct file_source *)source;
    size_t done = 0;
    if (stg_mapping_read(&file->mapping, file->fd, offset, buf, bytes))
        return (int64_t)bytes;
    while (done < bytes) {
        ssize_t n =
            pread(file->fd, (char *)buf + done, bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && done > 0)
            break;
        if (n < 0)
            return stg_err(err, stg_access_errno(errno),
                           "%s: reading at offset %" PRIu64 ": %s", file->path, offset,
                           strerror(errno));
        if (n == 0)
            break;
        done += (size_t)n;
    }
    return (int64_t)done;
}

static bool is_cached(int fd, uint64_t offset)
{
    char byte;
    struct iovec to = {.iov_base = &byte, .iov_len = 1};
    return preadv2(fd, &to, 1, (off_t)offset, RWF_NOWAIT) == 1;
}

/* posix_fadvise looks up each page of the range, at a tenth of the cost of reading it
 * from the page cache: a range whose ends are cached is left to the readahead of the
 * kernel. */
static void file_will_need(struct stg_source *source, uint64_t offset, uint64_t bytes)
{
    struct file_source *file = (struct file_source *)source;
    if (bytes > 0 && is_cached(file->fd, offset) &&
        is_cached(file->fd, offset + bytes - 1))
        return;
    posix_fadvise(file->fd, (off_t)offset, (off_t)bytes, POSIX_FADV_WILLNEED);
}

static int file_direct(struct stg_source *source, struct stg_err *err)
{
    struct file_source *file = (struct file_source *)source;
    int flags = fcntl(file->fd, F_GETFL);
    stg_mapping_refuse(&file->mapping);
    if (flags >= 0 && fcntl(file->fd, F_SETFL, flags | O_DIRECT) == 0)
        return 0;
    return stg_err(
        err, -STAGER_INVALID_ARGUMENT,
        "%s: its file system does not support direct_io (%s): remove direct_io",
        file->path, strerror(errno));
}

static int file_size(struct stg_source *source, uint64_t *ret, struct stg_err *err)
{
    struct file_source *file = (struct file_source *)source;
    struct stat st;
    if (fstat(file->fd, &st) < 0)
        return stg_err(err, stg_access_errno(errno), "%s: %s", file->path,
                       strerror(errno));
    *ret = (uint64_t)st.st_size;
    return 0;
}

static int file_version(struct stg_source *source, uint64_t *ret, struct stg_err *err)
{
    struct file_source *file = (struct file_source *)source;
    struct stat st;
    if (fstat(file->fd, &st) < 0)
        return stg_err(err, stg_access_errno(errno), "%s: %s", file->path,
                       strerror(errno));
    const uint64_t of[] = {st.st_dev,         st.st_ino,          (uint64_t)st.st_size,
                           st.st_mtim.tv_sec, st.st_mtim.tv_nsec, st.st_ctim.tv_sec,
                           st.st_ctim.tv_nsec};
    *ret = stg_fingerprint64((const char *)of, sizeof(of));
    return 0;
}

static void file_close(struct stg_source *source)
{
    struct file_source *file = (struct file_source *)source;
    if (file == NULL)
        return;
    stg_mapping_finish(&file->mapping);
    close(file->fd);
    free(file);
}

const struct stg_storage stg_storage_file = {
    .scheme = "file",
    .open = file_open,
    .read = file_read,
    .will_need = file_will_need,
    .direct = file_direct,
    .size = file_size,
    .version = file_version,
    .close = file_close,
    .list = stg_glob,
    .check = stg_glob_check,
};
