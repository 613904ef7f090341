/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/storage/confine.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/bump.h"
#include "daemon/storage/storage.h"

#define URL_BYTES 4096

static struct {
    pthread_rwlock_t lock; /* guards the rest */
    struct stg_read_rules rules;
    struct stg_bump bump; /* of it */
} confine = {.lock = PTHREAD_RWLOCK_INITIALIZER};

/* ---- settings ---- */

static const char *const *copy(struct stg_bump *bump, const char *const *from, size_t n)
{
    const char **to = stg_bump_alloc(bump, n * sizeof(*to));
    for (size_t i = 0; to != NULL && i < n; i++) {
        to[i] = stg_bump_strdup(bump, from[i]);
        if (to[i] == NULL)
            return NULL;
    }
    return to;
}

int stg_confine_configure(const struct stg_read_rules *rules, struct stg_err *err)
{
    struct stg_read_rules fresh = *rules;
    struct stg_bump bump;
    stg_bump_init(&bump, 0);
    fresh.paths = copy(&bump, rules->paths, rules->n_paths);
    fresh.urls = copy(&bump, rules->urls, rules->n_urls);
    if (fresh.paths == NULL || fresh.urls == NULL) {
        stg_bump_finish(&bump);
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory for rules.read");
    }
    pthread_rwlock_wrlock(&confine.lock);
    struct stg_bump old = confine.bump;
    confine.rules = fresh;
    confine.bump = bump;
    pthread_rwlock_unlock(&confine.lock);
    stg_bump_finish(&old);
    return 0;
}

void stg_confine_finish(void)
{
    pthread_rwlock_wrlock(&confine.lock);
    stg_bump_finish(&confine.bump);
    confine.rules = (struct stg_read_rules){0};
    confine.bump = (struct stg_bump){0};
    pthread_rwlock_unlock(&confine.lock);
}

/* ---- paths ---- */

/* Returns what of the path is behind the folder; NULL: it does not begin with it. */
static const char *behind(const char *folder, const char *path)
{
    size_t n = strlen(folder);
    while (n > 0 && folder[n - 1] == '/')
        n--;
    if (strncmp(folder, path, n) != 0 || (path[n] != '/' && path[n] != '\0'))
        return NULL;
    return path + n + strspn(path + n, "/");
}

/* Opens the path below the folder, as the kernel resolves it. Returns a negative number
 * if it leads elsewhere. */
static int open_beneath(const char *folder, const char *rest, bool is_dir)
{
    char path[PATH_MAX + 2];
    struct open_how how = {.flags = O_PATH | O_CLOEXEC,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    int base = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (base < 0)
        return -1;
    /* "/.": a step through a folder that is mounted on demand */
    int n = snprintf(path, sizeof(path), "%s%s%s", rest,
                     rest[0] != '\0' && is_dir ? "/" : "", is_dir ? "." : "");
    int fd = n > 0 && (size_t)n < sizeof(path)
                 ? (int)syscall(SYS_openat2, base, path, &how, sizeof(how))
                 : -1;
    close(base);
    return fd;
}

static bool is_beneath(const char *folder, const char *path, const struct stat *st)
{
    const char *rest = behind(folder, path);
    struct stat there;
    if (rest == NULL)
        return false;
    int fd = open_beneath(folder, rest, S_ISDIR(st->st_mode));
    if (fd < 0)
        return false;
    bool is_same = fstat(fd, &there) == 0 && there.st_dev == st->st_dev &&
                   there.st_ino == st->st_ino;
    close(fd);
    return is_same;
}

int stg_confine_check_fd(int fd, const char *path, struct stg_err *err)
{
    struct stat st;
    bool may = false;
    pthread_rwlock_rdlock(&confine.lock);
    const struct stg_read_rules *rules = &confine.rules;
    bool stands = rules->is_set && fstat(fd, &st) == 0;
    for (size_t i = 0; stands && !may && i < rules->n_paths; i++)
        may = is_beneath(rules->paths[i], path, &st);
    may = may || !rules->is_set;
    pthread_rwlock_unlock(&confine.lock);
    return may ? 0
               : stg_err(err, -STAGER_PERMISSION_DENIED,
                         "%s lies in none of the paths of rules.read of stagerd.yaml, or "
                         "a link or \"..\" leads out of them: move the file, or "
                         "have an administrator add its folder",
                         path);
}

/* ---- URLs ---- */

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Returns whether a segment is "." or "..", also between backslashes. */
static bool has_dots(const char *path)
{
    while (*path != '\0') {
        size_t n = strcspn(path, "/\\");
        if ((n == 1 && path[0] == '.') || (n == 2 && path[0] == '.' && path[1] == '.'))
            return true;
        path += n + (path[n] != '\0');
    }
    return false;
}

/* The default port says nothing. */
static size_t host_bytes(const char *scheme, size_t scheme_bytes, const char *host,
                         size_t n)
{
    const char *port = "";
    if (scheme_bytes == 5 && memcmp(scheme, "https", 5) == 0)
        port = ":443";
    else if (scheme_bytes == 4 && memcmp(scheme, "http", 4) == 0)
        port = ":80";
    size_t bytes = strlen(port);
    if (bytes > 0 && n > bytes && strncmp(host + n - bytes, port, bytes) == 0)
        n -= bytes;
    else if (n > 0 && host[n - 1] == ':')
        n--;
    return n;
}

/* Decodes percent-encoded bytes once. Returns false for a NUL, or without room. */
static bool decode(const char *from, size_t n, char *to, size_t bytes)
{
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        char c = from[i];
        if (c == '%' && i + 2 < n && hex(from[i + 1]) >= 0 && hex(from[i + 2]) >= 0) {
            c = (char)(hex(from[i + 1]) << 4 | hex(from[i + 2]));
            i += 2;
        }
        if (c == '\0' || at + 1 >= bytes)
            return false;
        to[at++] = c;
    }
    to[at] = '\0';
    return true;
}

bool stg_confine_normal(const char *url, char *ret, size_t bytes)
{
    const char *colon = strstr(url, "://");
    if (colon == NULL || colon == url)
        return false;
    size_t scheme = (size_t)(colon - url);
    const char *host = colon + 3, *path = host + strcspn(host, "/?#");
    size_t n = (size_t)(path - host), used = scheme + 3;
    const char *user = memrchr(host, '@', n);
    if (user != NULL) {
        n -= (size_t)(user + 1 - host);
        host = user + 1;
    }
    for (size_t i = 0; i < scheme && i < bytes; i++)
        ret[i] = (char)tolower((unsigned char)url[i]);
    if (used + n + 2 > bytes)
        return false;
    memcpy(ret + scheme, "://", 3);
    n = host_bytes(ret, scheme, host, n);
    for (size_t i = 0; i < n; i++)
        ret[used + i] = (char)tolower((unsigned char)host[i]);
    used += n;
    if (*path != '/')
        ret[used++] = '/';
    return decode(path, strcspn(path, "?#"), ret + used, bytes - used) &&
           !has_dots(ret + used);
}

/* Up to where a component of the URL ends. */
static bool begins(const char *url, const char *prefix)
{
    char normal[URL_BYTES];
    if (!stg_confine_normal(prefix, normal, sizeof(normal)))
        return false;
    size_t n = strlen(normal);
    return strncmp(normal, url, n) == 0 &&
           (normal[n - 1] == '/' || url[n] == '/' || url[n] == '\0');
}

int stg_confine_check_url(const char *url, struct stg_err *err)
{
    char normal[URL_BYTES], shown[512];
    pthread_rwlock_rdlock(&confine.lock);
    const struct stg_read_rules *rules = &confine.rules;
    bool stands = rules->is_set && stg_confine_normal(url, normal, sizeof(normal));
    bool may = !rules->is_set;
    for (size_t i = 0; stands && !may && i < rules->n_urls; i++)
        may = begins(normal, rules->urls[i]);
    pthread_rwlock_unlock(&confine.lock);
    return may ? 0
               : stg_err(err, -STAGER_PERMISSION_DENIED,
                         "%s begins with none of the urls of rules.read of stagerd.yaml: "
                         "have an administrator add its prefix",
                         stg_storage_shown_query(url, shown, sizeof(shown)));
}

bool stg_confine_has_urls(void)
{
    pthread_rwlock_rdlock(&confine.lock);
    bool is_set = confine.rules.is_set;
    pthread_rwlock_unlock(&confine.lock);
    return is_set;
}
