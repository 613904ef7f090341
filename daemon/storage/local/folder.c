/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/storage/local/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ops/base/hash.h"

#define SUFFIX ".kept"
#define TEMPORARY "new-"
/* Of the limit, what is left when some have gone: not each new one looks for one to go.
 */
#define KEEP_PERCENT 90
/* A file takes whole blocks, so that many small files reach the limit too. */
#define BLOCK_BYTES ((uint64_t)4096)

static _Atomic uint64_t n_temporary;

static uint64_t room_of(uint64_t bytes)
{
    return (bytes + BLOCK_BYTES - 1) & ~(BLOCK_BYTES - 1);
}

/* ---- names ---- */

void stg_folder_name(char *key, size_t n, char ret[STG_FOLDER_NAME])
{
    uint64_t first = stg_fingerprint64(key, n);
    key[0] ^= 0x55;
    uint64_t second = stg_fingerprint64(key, n);
    key[0] ^= 0x55;
    snprintf(ret, STG_FOLDER_NAME, "%016" PRIx64 "%016" PRIx64 SUFFIX, first, second);
}

void stg_folder_temporary(char ret[STG_FOLDER_NAME])
{
    snprintf(ret, STG_FOLDER_NAME, TEMPORARY "%ld-%" PRIu64, (long)getpid(),
             atomic_fetch_add(&n_temporary, 1));
}

/* ---- making room ---- */

struct entry {
    char name[STG_FOLDER_NAME];
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
    *entry = (struct entry){.used = st->st_mtim, .bytes = room_of((uint64_t)st->st_size)};
    memcpy(entry->name, name, strlen(name) + 1);
    list->bytes += entry->bytes;
    return true;
}

/* What a crash left half written goes. */
static int list_entries(int dir, bool clean, struct entry_list *ret)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;
    if (directory == NULL) {
        int error = errno;
        if (fd >= 0)
            close(fd);
        return -error;
    }
    const struct dirent *entry;
    struct stat st;
    while ((entry = readdir(directory)) != NULL) {
        if (clean && strncmp(entry->d_name, TEMPORARY, strlen(TEMPORARY)) == 0)
            unlinkat(dir, entry->d_name, 0);
        if (is_entry(entry->d_name) &&
            fstatat(dir, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(st.st_mode) && !add_entry(ret, entry->d_name, &st))
            break;
    }
    closedir(directory);
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
static void make_room(struct stg_folder *folder, uint64_t bytes)
{
    struct entry_list list = {0};
    if (folder->used + bytes <= folder->most ||
        list_entries(folder->dir, false, &list) < 0)
        return;
    uint64_t most = folder->most / 100 * KEEP_PERCENT;
    most = most > bytes ? most - bytes : 0;
    if (list.n > 1)
        qsort(list.at, list.n, sizeof(*list.at), by_use);
    for (size_t i = 0; i < list.n && list.bytes > most; i++) {
        unlinkat(folder->dir, list.at[i].name, 0);
        list.bytes -= list.at[i].bytes;
    }
    folder->used = list.bytes;
    free(list.at);
}

uint64_t stg_folder_limit(struct stg_folder *folder)
{
    pthread_mutex_lock(&folder->lock);
    uint64_t ret = folder->most;
    pthread_mutex_unlock(&folder->lock);
    return ret;
}

bool stg_folder_reserve(struct stg_folder *folder, uint64_t bytes)
{
    bytes = room_of(bytes);
    pthread_mutex_lock(&folder->lock);
    bool fits = folder->dir >= 0 && bytes <= folder->most / 2;
    if (fits) {
        make_room(folder, bytes);
        folder->used += bytes;
    }
    pthread_mutex_unlock(&folder->lock);
    return fits;
}

/* ---- life ---- */

/* The lock is held. */
static void forget(struct stg_folder *folder)
{
    if (folder->dir >= 0)
        close(folder->dir);
    folder->dir = -1;
    folder->used = 0;
}

int stg_folder_open(struct stg_folder *folder, const char *path, uint64_t most_bytes)
{
    struct entry_list list = {0};
    int rc = 0;
    pthread_mutex_lock(&folder->lock);
    forget(folder);
    folder->most = most_bytes;
    if (path[0] != '\0') {
        if (mkdir(path, 0700) == 0 || errno == EEXIST)
            folder->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        rc = folder->dir >= 0 ? list_entries(folder->dir, true, &list) : -errno;
        folder->used = list.bytes;
        free(list.at);
    }
    if (rc < 0)
        forget(folder);
    else if (folder->dir >= 0)
        make_room(folder, 0);
    pthread_mutex_unlock(&folder->lock);
    return rc;
}

void stg_folder_close(struct stg_folder *folder)
{
    pthread_mutex_lock(&folder->lock);
    forget(folder);
    pthread_mutex_unlock(&folder->lock);
}

int stg_folder_take(struct stg_folder *folder)
{
    pthread_mutex_lock(&folder->lock);
    int dir = folder->dir >= 0 ? fcntl(folder->dir, F_DUPFD_CLOEXEC, 0) : -1;
    pthread_mutex_unlock(&folder->lock);
    return dir;
}
