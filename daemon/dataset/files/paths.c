/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/files/paths.h"

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/status.h"

#define KEY_BYTES 8
#define FEW 12        /* so many are sorted by insertion */
#define MIN_IN_RUN 16 /* in the mean; else folders are not worth being looked at */

/* key: the bytes of the name at hand, the first one on top, zeros behind its end: a name
 * that has ended has a zero at the bottom, since names have none inside. */
struct path {
    uint64_t key;
    const char *name;
    size_t bytes;
};

struct sorting {
    uint64_t random; /* pivots are drawn, so that no names of files are the worst case */
};

static uint64_t key_at(const struct path *path, size_t depth)
{
    uint64_t key = 0;
    size_t left = path->bytes - depth;
    memcpy(&key, path->name + depth, left < KEY_BYTES ? left : KEY_BYTES);
    return be64toh(key);
}

static void swap(struct path *a, struct path *b)
{
    struct path saved = *a;
    *a = *b;
    *b = saved;
}

static int compare(const struct path *a, const struct path *b, size_t depth)
{
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return strcmp(a->name + depth, b->name + depth);
}

static void insert_each(struct path *paths, size_t n, size_t depth)
{
    for (size_t i = 1; i < n; i++) {
        for (size_t k = i; k > 0 && compare(&paths[k - 1], &paths[k], depth) > 0; k--)
            swap(&paths[k - 1], &paths[k]);
    }
}

static uint64_t draw_key(struct sorting *sorting, const struct path *paths, size_t n)
{
    uint64_t x = sorting->random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    sorting->random = x;
    return paths[x % n].key;
}

static uint64_t median(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t low = a < b ? a : b, high = a < b ? b : a;
    return c < low ? low : c > high ? high : c;
}

static uint64_t choose_pivot(struct sorting *sorting, const struct path *paths, size_t n)
{
    uint64_t a = draw_key(sorting, paths, n), b = draw_key(sorting, paths, n);
    return median(a, b, draw_key(sorting, paths, n));
}

/* [0, less) are below the pivot, [less, more) have its key, the rest is above it. */
static void partition(struct path *paths, size_t n, uint64_t pivot, size_t *ret_less,
                      size_t *ret_more)
{
    size_t less = 0, more = n;
    for (size_t i = 0; i < more;) {
        if (paths[i].key < pivot)
            swap(&paths[less++], &paths[i++]);
        else if (paths[i].key > pivot)
            swap(&paths[i], &paths[--more]);
        else
            i++;
    }
    *ret_less = less;
    *ret_more = more;
}

static void sort_paths(struct sorting *sorting, struct path *paths, size_t n,
                       size_t depth);

/* n names that are equal up to depth, and have not ended before it. */
static void sort_deeper(struct sorting *sorting, struct path *paths, size_t n,
                        size_t depth)
{
    for (size_t i = 0; i < n; i++)
        paths[i].key = key_at(&paths[i], depth);
    sort_paths(sorting, paths, n, depth);
}

/* It calls itself for the smaller part only: 8192 / 8 + log2 n calls deep at the most. */
static void sort_paths(struct sorting *sorting, struct path *paths, size_t n,
                       size_t depth)
{
    while (n > FEW) {
        uint64_t pivot = choose_pivot(sorting, paths, n);
        size_t less, more;
        partition(paths, n, pivot, &less, &more);
        if ((pivot & 0xff) != 0)
            sort_deeper(sorting, paths + less, more - less, depth + KEY_BYTES);
        if (less < n - more) {
            sort_paths(sorting, paths, less, depth);
            paths += more;
            n -= more;
        } else {
            sort_paths(sorting, paths + more, n - more, depth);
            n = less;
        }
    }
    insert_each(paths, n, depth);
}

/* So many bytes at the start of both, n at the most. */
static size_t common_bytes(const char *a, const char *b, size_t n)
{
    if (strncmp(a, b, n) == 0)
        return n;
    size_t same = 0;
    while (a[same] == b[same])
        same++;
    return same;
}

/* ---- folders ---- */

/* Those in one folder: found together, as a rule, and near in memory. */
struct run {
    struct path *paths;
    size_t n;
};

static int compare_runs(const void *a, const void *b)
{
    const struct run *x = a, *y = b;
    return strcmp(x->paths[0].name, y->paths[0].name);
}

/* The paths at the start that begin as the first one does up to its last '/'. */
static struct run find_run(struct path *paths, size_t n, size_t *ret_depth)
{
    const char *first = paths[0].name, *slash = strrchr(first, '/');
    size_t folder = slash != NULL ? (size_t)(slash - first) + 1 : 0, i = 1;
    *ret_depth = paths[0].bytes;
    for (; i < n; i++) {
        size_t same = common_bytes(first, paths[i].name, *ret_depth);
        if (same < folder)
            break;
        *ret_depth = same;
    }
    return (struct run){paths, i};
}

/* Each sorted, then they by their first ones; how many there are, or 0: more than max. */
static size_t sort_runs(struct sorting *sorting, struct path *paths, size_t n,
                        struct run *ret, size_t max)
{
    size_t n_runs = 0, depth;
    for (size_t at = 0; at < n; at += ret[n_runs++].n) {
        if (n_runs == max)
            return 0;
        ret[n_runs] = find_run(paths + at, n - at, &depth);
        sort_deeper(sorting, paths + at, ret[n_runs].n, depth);
    }
    qsort(ret, n_runs, sizeof(ret[0]), compare_runs);
    return n_runs;
}

static bool follow_one_another(const struct run *runs, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        const struct run *before = &runs[i - 1];
        if (strcmp(before->paths[before->n - 1].name, runs[i].paths[0].name) > 0)
            return false;
    }
    return n > 0;
}

static void sort_all(struct sorting *sorting, struct path *paths, size_t n)
{
    size_t depth = paths[0].bytes;
    for (size_t i = 1; i < n; i++)
        depth = common_bytes(paths[0].name, paths[i].name, depth);
    sort_deeper(sorting, paths, n, depth);
}

static size_t max_runs(size_t n)
{
    return n / MIN_IN_RUN + 1;
}

size_t stg_paths_sort_bytes(size_t n)
{
    return n * sizeof(struct path) + max_runs(n) * sizeof(struct run);
}

int stg_paths_sort(const char **names, size_t n)
{
    if (n < 2)
        return 0;
    struct path *paths = malloc(stg_paths_sort_bytes(n));
    if (paths == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    struct run *runs = (struct run *)(paths + n);
    for (size_t i = 0; i < n; i++)
        paths[i] = (struct path){.name = names[i], .bytes = strlen(names[i])};
    struct sorting sorting = {.random = 0x9e3779b97f4a7c15u};
    size_t n_runs = sort_runs(&sorting, paths, n, runs, max_runs(n));
    if (!follow_one_another(runs, n_runs)) {
        sort_all(&sorting, paths, n);
        runs[0] = (struct run){paths, n};
        n_runs = 1;
    }
    for (size_t i = 0; i < n_runs; i++) {
        for (size_t k = 0; k < runs[i].n; k++)
            *names++ = runs[i].paths[k].name;
    }
    free(paths);
    return 0;
}
