/* SPDX-License-Identifier: Apache-2.0
 *
 * stagerctl cache list, cache rm: the entries that `cache: {filename: PATH}` has left
 * beside each other, "PATH.0123456789abcdef", one for each content. They are files in a
 * folder of the user's: stagerd is not asked.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/stagerctl/command.h"
#include "core/status.h"

#define KEY_BYTES 16
#define PART ".part"

struct entry {
    char key[KEY_BYTES + 1];
    bool is_whole; /* false: it is being written, or was when stagerd ended */
    uint64_t bytes;
    time_t written, read;
};

struct entries {
    int dir;
    const char *name; /* of PATH in its folder */
    struct entry *all;
    size_t n, size;
};

static int fail_errno(const char *what, const char *path)
{
    char text[STG_ERR_TEXT_BYTES];
    int error = errno;
    snprintf(text, sizeof(text), "cannot %s %.700s: %s", what, path, strerror(error));
    stg_ctl_clean(text);
    return stg_ctl_fail(stg_ctl_file_code(error), text);
}

/* ---- finding them ---- */

static bool is_key(const char *s)
{
    return strspn(s, "0123456789abcdef") == KEY_BYTES;
}

static bool add(struct entries *entries, const struct entry *entry)
{
    if (entries->n == entries->size) {
        size_t size = entries->size > 0 ? 2 * entries->size : 16;
        struct entry *all = realloc(entries->all, size * sizeof(*all));
        if (all == NULL)
            return false;
        entries->all = all;
        entries->size = size;
    }
    entries->all[entries->n++] = *entry;
    return true;
}

/* The rest of a name behind that of PATH: ".KEY", or ".KEY.part". */
static bool look(struct entries *entries, const char *name)
{
    size_t n = strlen(entries->name);
    struct stat st;
    struct entry entry = {0};
    if (strncmp(name, entries->name, n) != 0 || name[n] != '.' || !is_key(name + n + 1))
        return true;
    const char *rest = name + n + 1 + KEY_BYTES;
    entry.is_whole = rest[0] == '\0';
    if ((!entry.is_whole && strcmp(rest, PART) != 0) ||
        fstatat(entries->dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
        return true;
    memcpy(entry.key, name + n + 1, KEY_BYTES);
    entry.bytes = (uint64_t)st.st_size;
    entry.written = st.st_mtime;
    entry.read = st.st_atime;
    return add(entries, &entry);
}

static int by_last_read(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->read != y->read)
        return x->read > y->read ? -1 : 1;
    return strcmp(x->key, y->key);
}

static void finish(struct entries *entries)
{
    if (entries->dir >= 0)
        close(entries->dir);
    free(entries->all);
}

static int read_folder(struct entries *entries, const char *folder)
{
    int fd = openat(entries->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    bool ok = true;
    if (dir == NULL) {
        if (fd >= 0)
            close(fd);
        return fail_errno("read the folder", folder);
    }
    for (struct dirent *at; ok && (at = readdir(dir)) != NULL;)
        ok = look(entries, at->d_name);
    closedir(dir);
    if (!ok)
        return stg_ctl_fail(-STAGER_RESOURCE_EXHAUSTED, "out of memory");
    if (entries->n > 1)
        qsort(entries->all, entries->n, sizeof(*entries->all), by_last_read);
    return EXIT_OK;
}

static int find_entries(const char *path, struct entries *ret)
{
    const char *slash = strrchr(path, '/');
    char folder[4096];
    *ret = (struct entries){.dir = -1, .name = slash != NULL ? slash + 1 : path};
    int n = slash == NULL ? 1 : slash == path ? 1 : (int)(slash - path);
    if ((size_t)n >= sizeof(folder))
        return stg_ctl_fail(-STAGER_INVALID_ARGUMENT, "the path is too long");
    snprintf(folder, sizeof(folder), "%.*s", n, slash == NULL ? "." : path);
    ret->dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return ret->dir >= 0 ? read_folder(ret, folder) : fail_errno("open", folder);
}

/* ---- list ---- */

static void print_json(const struct entries *entries)
{
    struct stg_json_writer json = stg_ctl_json();
    stg_json_object_begin(&json);
    stg_json_key(&json, "entries");
    stg_json_array_begin(&json);
    for (size_t i = 0; i < entries->n; i++) {
        const struct entry *e = &entries->all[i];
        stg_json_object_begin(&json);
        stg_json_put_string(&json, "key", e->key);
        stg_json_put_bool(&json, "whole", e->is_whole);
        stg_json_put_uint(&json, "bytes", e->bytes);
        stg_json_put_uint(&json, "written", (uint64_t)e->written);
        stg_json_put_uint(&json, "read", (uint64_t)e->read);
        stg_json_object_end(&json);
    }
    stg_json_array_end(&json);
    stg_json_object_end(&json);
    putchar('\n');
}

static void print_table(const struct entries *entries)
{
    static const char *const titles[] = {"KEY", "SIZE", "WRITTEN", "LAST READ", ""};
    struct stg_table table = {.n_columns = sizeof(titles) / sizeof(titles[0])};
    for (size_t i = 0; i < table.n_columns; i++)
        stg_table_add(&table, "%s", titles[i]);
    for (size_t i = 0; i < entries->n; i++) {
        const struct entry *e = &entries->all[i];
        char text[64];
        stg_table_add(&table, "%s", e->key);
        stg_table_add(&table, "%s", stg_ctl_bytes(e->bytes, text, sizeof(text)));
        stg_table_add(&table, "%s", stg_ctl_time(e->written, text, sizeof(text)));
        stg_table_add(&table, "%s",
                      e->is_whole ? stg_ctl_time(e->read, text, sizeof(text)) : "-");
        stg_table_add(&table, "%s", e->is_whole ? "" : "not whole");
    }
    stg_table_print(&table, "");
}

int stg_ctl_cache_list(const struct stg_ctl_options *options)
{
    struct entries entries;
    int status = find_entries(options->argument, &entries);
    if (status == EXIT_OK && entries.n == 0 && !options->json)
        printf("No entries of %s.\n", options->argument);
    else if (status == EXIT_OK)
        (options->json ? print_json : print_table)(&entries);
    finish(&entries);
    return status == EXIT_OK ? stg_ctl_finish() : status;
}

/* ---- rm ---- */

/* A .part that a living stagerd writes is locked. */
static bool is_in_use(const struct entries *entries, const struct entry *entry,
                      const char *name)
{
    if (entry->is_whole)
        return false;
    int fd = openat(entries->dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    bool in_use = fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0;
    if (fd >= 0)
        close(fd);
    return in_use;
}

/* Returns 1 if it was removed, 0 if it is in use. */
static int remove_entry(const struct entries *entries, const struct entry *entry)
{
    char name[4096];
    snprintf(name, sizeof(name), "%s.%s%s", entries->name, entry->key,
             entry->is_whole ? "" : PART);
    if (is_in_use(entries, entry, name))
        return 0;
    return unlinkat(entries->dir, name, 0) == 0 ? 1 : -1;
}

static int remove_all(const struct entries *entries,
                      const struct stg_ctl_options *options, uint64_t *ret_n)
{
    for (size_t i = 0; i < entries->n; i++) {
        const struct entry *entry = &entries->all[i];
        if (options->key != NULL && strcmp(options->key, entry->key) != 0)
            continue;
        int rc = remove_entry(entries, entry);
        if (rc < 0)
            return fail_errno("remove an entry of", options->argument);
        *ret_n += (uint64_t)rc;
    }
    return EXIT_OK;
}

int stg_ctl_cache_rm(const struct stg_ctl_options *options)
{
    struct entries entries;
    uint64_t n = 0;
    int status = find_entries(options->argument, &entries);
    if (status == EXIT_OK)
        status = remove_all(&entries, options, &n);
    finish(&entries);
    if (status != EXIT_OK)
        return status;
    if (options->key != NULL && n == 0)
        return stg_ctl_fail(-STAGER_NOT_FOUND, "no complete entry has that key: "
                                               "`stagerctl cache list` has the keys");
    if (options->json) {
        struct stg_json_writer json = stg_ctl_json();
        stg_json_object_begin(&json);
        stg_json_put_uint(&json, "removed", n);
        stg_json_object_end(&json);
        putchar('\n');
    } else {
        printf("%" PRIu64 " removed\n", n);
    }
    return stg_ctl_finish();
}
