/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/storage/http/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "ops/base/hash.h"

/* Of this layout: a file of another one is none, and goes. */
#define MAGIC UINT64_C(0x3230656b61677473)
#define SUFFIX ".kept"
#define TEMPORARY "new-"
/* Of the limit, what is left when some have gone: not each new one looks for one to go.
 */
#define KEEP_PERCENT 90

/* In front of the bytes, and behind it what they are the bytes of: key_bytes. */
struct head {
    uint64_t magic, bytes, sum, key_bytes;
};

static struct {
    pthread_mutex_t lock; /* guards these */
    int dir;              /* -1: nothing is kept */
    uint64_t most, used;
} disk = {.lock = PTHREAD_MUTEX_INITIALIZER, .dir = -1};

static _Atomic uint64_t n_temporary;

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

static void name_of(struct key key, char name[64])
{
    uint64_t first = stg_fingerprint64(key.text, key.n);
    key.text[0] ^= 0x55;
    uint64_t second = stg_fingerprint64(key.text, key.n);
    key.text[0] ^= 0x55;
    snprintf(name, 64, "%016" PRIx64 "%016" PRIx64 SUFFIX, first, second);
}

/* A descriptor of the folder that stays what it is, or -1. */
static int take_dir(void)
{
    pthread_mutex_lock(&disk.lock);
    int dir = disk.dir >= 0 ? fcntl(disk.dir, F_DUPFD_CLOEXEC, 0) : -1;
    pthread_mutex_unlock(&disk.lock);
    return dir;
}

/* ---- making room ---- */

struct entry {
    char name[64];
    struct timespec used;
    uint64_t bytes;
};

struct entry_list {
    struct entry *at;
    size_t n, size;
    uint64_t bytes;
};

static bool is_entry(const char *name)
{
    size_t n = strlen(name);
    return n == 32 + strlen(SUFFIX) && strcmp(name + 32, SUFFIX) == 0;
}

static bool add_entry(struct entry_list *list, const char *name, const struct stat *st)
{
    if (list->n == list->size) {
        size_t size = list->size > 0 ? 2 * list->size : 256;
        struct entry *at = realloc(list->at, size * sizeof(*at));
        if (at == NULL)
            return false;
        list->at = at;
        list->size = size;
    }
    struct entry *entry = &list->at[list->n++];
    *entry = (struct entry){.used = st->st_mtim, .bytes = (uint64_t)st->st_size};
    memcpy(entry->name, name, strlen(name) + 1);
    list->bytes += entry->bytes;
    return true;
}

/* What a crash left half written goes. */
static int list_entries(int dir, bool clean, struct entry_list *ret)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    if (folder == NULL) {
        int error = errno;
        if (fd >= 0)
            close(fd);
        return -error;
    }
    const struct dirent *entry;
    struct stat st;
    while ((entry = readdir(folder)) != NULL) {
        if (clean && strncmp(entry->d_name, TEMPORARY, strlen(TEMPORARY)) == 0)
            unlinkat(dir, entry->d_name, 0);
        if (is_entry(entry->d_name) &&
            fstatat(dir, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(st.st_mode) && !add_entry(ret, entry->d_name, &st))
            break;
    }
    closedir(folder);
    return 0;
}

static int by_use(const void *a, const void *b)
{
    const struct timespec *x = &((const struct entry *)a)->used,
                          *y = &((const struct entry *)b)->used;
    if (x->tv_sec != y->tv_sec)
        return x->tv_sec < y->tv_sec ? -1 : 1;
    return x->tv_nsec < y->tv_nsec ? -1 : x->tv_nsec > y->tv_nsec;
}

/* The lock is held. */
static void make_room(uint64_t bytes)
{
    struct entry_list list = {0};
    if (disk.used + bytes <= disk.most || list_entries(disk.dir, false, &list) < 0)
        return;
    uint64_t most = disk.most / 100 * KEEP_PERCENT;
    most = most > bytes ? most - bytes : 0;
    qsort(list.at, list.n, sizeof(*list.at), by_use);
    for (size_t i = 0; i < list.n && list.bytes > most; i++) {
        unlinkat(disk.dir, list.at[i].name, 0);
        list.bytes -= list.at[i].bytes;
    }
    disk.used = list.bytes;
    free(list.at);
}

/* ---- life ---- */

/* The lock is held. */
static void forget(void)
{
    if (disk.dir >= 0)
        close(disk.dir);
    disk.dir = -1;
    disk.used = 0;
}

int stg_disk_configure(const char *dir, uint64_t most_bytes, struct stg_err *err)
{
    struct entry_list list = {0};
    int rc = 0;
    pthread_mutex_lock(&disk.lock);
    forget();
    disk.most = most_bytes;
    if (dir[0] != '\0') {
        if (mkdir(dir, 0700) == 0 || errno == EEXIST)
            disk.dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        rc = disk.dir >= 0 ? list_entries(disk.dir, true, &list) : -errno;
        disk.used = list.bytes;
        free(list.at);
    }
    if (rc < 0) {
        forget();
        rc = stg_err(err, -STAGER_FAILED_PRECONDITION,
                     "remote.cache_dir: %s: %s: stagerd caches nothing there", dir,
                     strerror(-rc));
    } else if (disk.dir >= 0) {
        make_room(0);
    }
    pthread_mutex_unlock(&disk.lock);
    return rc;
}

void stg_disk_finish(void)
{
    pthread_mutex_lock(&disk.lock);
    forget();
    pthread_mutex_unlock(&disk.lock);
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
    char name[64];
    if (key.text == NULL)
        return false;
    name_of(key, name);
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
    int dir = take_dir();
    if (dir < 0)
        return false;
    struct key key = key_of(url, version, begin, version != NULL ? bytes : 0);
    bool good = get_by(key, dir, buf, bytes);
    free(key.text);
    close(dir);
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
    char name[64], temporary[64];
    uint64_t all = sizeof(struct head) + key.n + bytes;
    if (key.text == NULL)
        return;
    name_of(key, name);
    snprintf(temporary, sizeof(temporary), TEMPORARY "%ld-%" PRIu64, (long)getpid(),
             atomic_fetch_add(&n_temporary, 1));
    pthread_mutex_lock(&disk.lock);
    bool fits = disk.dir >= 0 && all <= disk.most / 2;
    if (fits) {
        make_room(all);
        disk.used += all;
    }
    pthread_mutex_unlock(&disk.lock);
    if (fits && (!write_file(dir, temporary, key, buf, bytes) ||
                 renameat(dir, temporary, dir, name) < 0))
        unlinkat(dir, temporary, 0);
}

static void put(const char *url, const struct stg_version *version, uint64_t begin,
                const void *buf, uint64_t bytes)
{
    int dir = take_dir();
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
