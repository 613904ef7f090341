/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/host/text_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/status.h"

static int system_error(const char *path, struct stg_err *err)
{
    int code = errno == ENOENT                     ? -STAGER_NOT_FOUND
               : errno == EACCES || errno == EPERM ? -STAGER_PERMISSION_DENIED
                                                   : -STAGER_UNAVAILABLE;
    return stg_err(err, code, "%s: %s", path, strerror(errno));
}

static int read_all(int fd, const char *path, size_t limit, char *text, size_t *ret_bytes,
                    struct stg_err *err)
{
    size_t n = 0;
    ssize_t m = 1;
    while (m > 0 && n <= limit) {
        m = read(fd, text + n, limit + 1 - n);
        n += m > 0 ? (size_t)m : 0;
    }
    if (m < 0)
        return system_error(path, err);
    if (n > limit)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "%s: longer than %zu bytes", path,
                       limit);
    text[n] = '\0';
    *ret_bytes = n;
    return 0;
}

static int write_part(int fd, const struct stg_text_part *part)
{
    for (size_t at = 0; at < part->n;) {
        ssize_t m = write(fd, part->bytes + at, part->n - at);
        if (m < 0)
            return -1;
        at += (size_t)m;
    }
    return 0;
}

static int write_parts(int fd, const struct stg_text_part *parts, size_t n_parts)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n_parts; i++)
        rc = write_part(fd, &parts[i]);
    return rc;
}

static int replace(const char *path, const char *temporary,
                   const struct stg_text_part *parts, size_t n_parts, bool syncs,
                   const char **ret_failed)
{
    *ret_failed = temporary;
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -1;
    int rc = write_parts(fd, parts, n_parts);
    if (rc == 0 && syncs)
        rc = fsync(fd);
    int reason = errno;
    close(fd);
    if (rc == 0) {
        *ret_failed = path;
        rc = rename(temporary, path);
        reason = errno;
    }
    if (rc < 0)
        unlink(temporary);
    errno = reason;
    return rc;
}

int stg_text_file_replace(const char *path, const char *temporary,
                          const struct stg_text_part *parts, size_t n_parts,
                          const char **ret_failed)
{
    return replace(path, temporary, parts, n_parts, true, ret_failed);
}

int stg_text_file_replace_soon(const char *path, const char *temporary,
                               const struct stg_text_part *parts, size_t n_parts,
                               const char **ret_failed)
{
    return replace(path, temporary, parts, n_parts, false, ret_failed);
}

int stg_text_file_read(const char *path, size_t limit, struct stat *ret_stat, char **ret,
                       size_t *ret_bytes, struct stg_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | (ret_stat != NULL ? O_NONBLOCK : 0));
    if (fd < 0)
        return system_error(path, err);
    char *text = malloc(limit + 1);
    int rc = 0;
    if (text == NULL)
        rc = stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "%s: out of memory", path);
    else if (ret_stat != NULL && fstat(fd, ret_stat) < 0)
        rc = system_error(path, err);
    else if (ret_stat != NULL && !S_ISREG(ret_stat->st_mode))
        rc = stg_err(err, -STAGER_FAILED_PRECONDITION, "%s is not a regular file", path);
    if (rc == 0)
        rc = read_all(fd, path, limit, text, ret_bytes, err);
    close(fd);
    if (rc < 0)
        free(text);
    else
        *ret = text;
    return rc;
}
