/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/storage/http/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "daemon/storage/counts.h"
#include "daemon/storage/local/folder.h"
#include "ops/base/hash.h"

/* Of this layout: a file of another one is none, and goes. */
#define MAGIC UINT64_C(0x3230656b61677473)

/* In front of the bytes, and behind it what they are the bytes of: key_bytes. */
struct head {
    uint64_t magic, bytes, sum, key_bytes;
};

static struct stg_folder disk = STG_FOLDER_INIT;

/* ---- names ---- */

/* URL, version (NULL: of the version itself) and place, in full. The name of a file is a
 * hash of it, which says where to look and nothing else: URLs may be made to share one.
 */
struct key {
    char *text; /* NULL: out of memory */
    size_t n;
};

static struct key key_of(const char *url, const struct stg_version *version,
                         uint64_t begin, uint64_t bytes)
{
    struct key key = {NULL, 0};
    FILE *to = open_memstream(&key.text, &key.n);
    if (to == NULL)
        return key;
    fprintf(to, "%s%c%s%c%s%c", url, '\0', version != NULL ? version->etag : "", '\0',
            version != NULL ? version->modified : "", '\0');
    fprintf(to, "%" PRIu64 ",%" PRIu64 ",%" PRIu64, version != NULL ? version->size : 0,
            begin, bytes);
    bool failed = ferror(to) != 0;
    if ((fclose(to) != 0) | failed) {
        free(key.text);
        key.text = NULL;
    }
    return key;
}

/* ---- life ---- */

int stg_disk_configure(const char *dir, uint64_t most_bytes, struct stg_err *err)
{
    int rc = stg_folder_open(&disk, dir, most_bytes);
    if (rc < 0)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "remote.cache_dir: %s: %s: stagerd caches nothing there", dir,
                       strerror(-rc));
    return 0;
}

void stg_disk_finish(void)
{
    stg_folder_close(&disk);
}

/* ---- one file ---- */

static bool is_head(const struct head *head, struct key key, uint64_t bytes)
{
    return head->magic == MAGIC && head->bytes == bytes && head->key_bytes == key.n;
}

static bool read_file(int fd, struct key key, void *buf, uint64_t bytes)
{
    struct head head;
    char *text = malloc(key.n);
    struct iovec parts[] = {{&head, sizeof(head)}, {text, key.n}, {buf, bytes}};
    bool good = text != NULL &&
                readv(fd, parts, 3) == (ssize_t)(sizeof(head) + key.n + bytes) &&
                is_head(&head, key, bytes) && memcmp(text, key.text, key.n) == 0 &&
                stg_fingerprint64(buf, bytes) == head.sum;
    free(text);
    return good;
}

static bool get_by(struct key key, int dir, void *buf, uint64_t bytes)
{
    char name[STG_FOLDER_NAME];
    if (key.text == NULL)
        return false;
    stg_folder_name(key.text, key.n, name);
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    bool good = fd >= 0 && read_file(fd, key, buf, bytes);
    if (good)
        futimens(fd, NULL);
    else if (fd >= 0)
        unlinkat(dir, name, 0);
    if (fd >= 0)
        close(fd);
    return good;
}

static bool get(const char *url, const struct stg_version *version, uint64_t begin,
                void *buf, uint64_t bytes)
{
    int dir = stg_folder_take(&disk);
    if (dir < 0)
        return false;
    struct key key = key_of(url, version, begin, version != NULL ? bytes : 0);
    bool good = get_by(key, dir, buf, bytes);
    free(key.text);
    close(dir);
    if (version != NULL)
        stg_storage_count(good ? STG_COUNT_CACHE_HITS : STG_COUNT_CACHE_MISSES, 1);
    return good;
}

static bool write_file(int dir, const char *name, struct key key, const void *buf,
                       uint64_t bytes)
{
    struct head head = {.magic = MAGIC,
                        .bytes = bytes,
                        .sum = stg_fingerprint64(buf, bytes),
                        .key_bytes = key.n};
    struct iovec parts[] = {
        {&head, sizeof(head)}, {key.text, key.n}, {(void *)buf, bytes}};
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    bool good = writev(fd, parts, 3) == (ssize_t)(sizeof(head) + key.n + bytes);
    return (close(fd) == 0) & good;
}

static void put_by(struct key key, int dir, const void *buf, uint64_t bytes)
{
    char name[STG_FOLDER_NAME], temporary[STG_FOLDER_NAME];
    if (key.text == NULL)
        return;
    stg_folder_name(key.text, key.n, name);
    stg_folder_temporary(temporary);
    if (stg_folder_reserve(&disk, sizeof(struct head) + key.n + bytes) &&
        (!write_file(dir, temporary, key, buf, bytes) ||
         renameat(dir, temporary, dir, name) < 0))
        unlinkat(dir, temporary, 0);
}

static void put(const char *url, const struct stg_version *version, uint64_t begin,
                const void *buf, uint64_t bytes)
{
    int dir = stg_folder_take(&disk);
    if (dir < 0)
        return;
    struct key key = key_of(url, version, begin, version != NULL ? bytes : 0);
    put_by(key, dir, buf, bytes);
    free(key.text);
    close(dir);
}

/* ---- ranges, versions ---- */

static bool says_which(const struct stg_version *version)
{
    return version->known && (version->etag[0] != '\0' || version->modified[0] != '\0');
}

bool stg_disk_get(const char *url, const struct stg_version *version, uint64_t begin,
                  void *buf, uint64_t bytes)
{
    return says_which(version) && get(url, version, begin, buf, bytes);
}

void stg_disk_put(const char *url, const struct stg_version *version, uint64_t begin,
                  const void *buf, uint64_t bytes)
{
    if (says_which(version) && bytes > 0)
        put(url, version, begin, buf, bytes);
}

bool stg_disk_version(const char *url, struct stg_version *ret)
{
    struct stg_version version;
    if (!get(url, NULL, 0, &version, sizeof(version)) || !says_which(&version) ||
        version.etag[sizeof(version.etag) - 1] != '\0' ||
        version.modified[sizeof(version.modified) - 1] != '\0')
        return false;
    *ret = version;
    return true;
}

void stg_disk_put_version(const char *url, const struct stg_version *version)
{
    if (says_which(version))
        put(url, NULL, 0, version, sizeof(*version));
}
