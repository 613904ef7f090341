/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/paths.h"

#include <endian.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/status.h"

#define KEY_BYTES 8
#define FEW 12 /* so many are sorted by insertion */

/* key: the bytes of the name at hand, the first one on top, zeros behind its end: a name
 * that has ended has a zero at the bottom, since names have none inside. */
struct path {
    uint64_t key;
    const char *name;
    size_t bytes;
};

struct sorting {
    uint64_t
        random; /* pivots are drawn, so that nobody can name files for the worst case */
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
    struct path kept = *a;
    *a = *b;
    *b = kept;
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

size_t stg_paths_sort_bytes(size_t n)
{
    return n * sizeof(struct path);
}

int stg_paths_sort(const char **names, size_t n)
{
    if (n < 2)
        return 0;
    struct path *paths = malloc(stg_paths_sort_bytes(n));
    if (paths == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    size_t depth = strlen(names[0]);
    for (size_t i = 0; i < n; i++) {
        paths[i] = (struct path){.name = names[i], .bytes = strlen(names[i])};
        depth = common_bytes(names[0], names[i], depth);
    }
    struct sorting sorting = {.random = 0x9e3779b97f4a7c15u};
    sort_deeper(&sorting, paths, n, depth);
    for (size_t i = 0; i < n; i++)
        names[i] = paths[i].name;
    free(paths);
    return 0;
}
