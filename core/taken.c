/* SPDX-License-Identifier: Apache-2.0 */
#include "core/taken.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A run has at least one character. */
#define MAX_RUNS STG_TAKEN_TEXT_BYTES
/* A gap of that many items before a single one is a letter. */
#define MAX_LETTER 26
/* Ranges that are united one by one: half a second. */
#define MAX_RANGES ((uint64_t)1 << 26)

void stg_taken_finish(struct stg_taken *set)
{
    free(set->runs);
    *set = (struct stg_taken){0};
}

void stg_taken_clear(struct stg_taken *set)
{
    set->n = 0;
    set->end = 0;
}

/* ---- adding ---- */

static int too_many(uint64_t n_ranges, struct stg_err *err)
{
    return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                   "the items that were taken are more than %" PRIu64 " ranges",
                   n_ranges);
}

static int no_memory(struct stg_err *err)
{
    return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                   "no memory for the items that were taken");
}

/* Makes room for two more runs, so that what follows cannot fail half way. */
static int reserve(struct stg_taken *set, struct stg_err *err)
{
    if (set->n + 2 > MAX_RUNS)
        return too_many(STG_TAKEN_TEXT_BYTES, err);
    if (set->n + 2 <= set->size)
        return 0;
    size_t size = set->size > 0 ? 2 * set->size : 8;
    struct stg_taken_run *runs = realloc(set->runs, size * sizeof(*runs));
    if (runs == NULL)
        return no_memory(err);
    set->runs = runs;
    set->size = size;
    return 0;
}

/* There is room. */
static void push(struct stg_taken *set, uint64_t gap, uint64_t len)
{
    struct stg_taken_run *last = set->n > 0 ? &set->runs[set->n - 1] : NULL;
    if (last != NULL && last->gap == gap && last->len == len)
        last->n++;
    else
        set->runs[set->n++] = (struct stg_taken_run){.gap = gap, .len = len, .n = 1};
    set->end += gap + len;
}

/* Removes the last range. */
static struct stg_taken_run pop(struct stg_taken *set)
{
    struct stg_taken_run *last = &set->runs[set->n - 1];
    struct stg_taken_run range = {.gap = last->gap, .len = last->len, .n = 1};
    set->end -= range.gap + range.len;
    if (--last->n == 0)
        set->n--;
    return range;
}

/* Adds a range that begins in the last one, or behind it. */
static int append(struct stg_taken *set, uint64_t begin, uint64_t end,
                  struct stg_err *err)
{
    if (end <= set->end || end <= begin)
        return 0;
    int rc = reserve(set, err);
    if (rc < 0)
        return rc;
    if (set->n > 0 && begin <= set->end) {
        uint64_t more = end - set->end;
        struct stg_taken_run range = pop(set);
        push(set, range.gap, range.len + more);
    } else {
        push(set, begin - set->end, end - begin);
    }
    return 0;
}

bool stg_taken_next(struct stg_taken_walk *walk)
{
    const struct stg_taken *set = walk->set;
    if (walk->run == set->n)
        return false;
    const struct stg_taken_run *run = &set->runs[walk->run];
    walk->begin = walk->end + run->gap;
    walk->end = walk->begin + run->len;
    if (++walk->i == run->n) {
        walk->run++;
        walk->i = 0;
    }
    return true;
}

bool stg_taken_seek(struct stg_taken_walk *walk, uint64_t item)
{
    const struct stg_taken *set = walk->set;
    while (walk->end <= item) {
        if (walk->run == set->n)
            return false;
        const struct stg_taken_run *run = &set->runs[walk->run];
        uint64_t step = run->gap + run->len, most = run->n - walk->i - 1;
        uint64_t n = (item - walk->end) / step;
        n = n < most ? n : most;
        walk->i += n;
        walk->end += n * step;
        stg_taken_next(walk);
    }
    return true;
}

/* Walks of those sets that have a range. */
static size_t begin_walks(const struct stg_taken *sets, size_t n,
                          struct stg_taken_walk *walks)
{
    size_t n_walks = 0;
    for (size_t i = 0; i < n; i++) {
        walks[n_walks] = (struct stg_taken_walk){.set = &sets[i]};
        n_walks += stg_taken_next(&walks[n_walks]);
    }
    return n_walks;
}

int stg_taken_unite(const struct stg_taken *sets, size_t n, struct stg_taken *ret,
                    struct stg_err *err)
{
    struct stg_taken sum = {0};
    struct stg_taken_walk *walks = calloc(n + 1, sizeof(*walks));
    size_t n_walks = walks != NULL ? begin_walks(sets, n, walks) : 0;
    uint64_t n_ranges = 0;
    int rc = walks != NULL ? 0 : no_memory(err);
    while (rc == 0 && n_walks > 0) {
        struct stg_taken_walk *first = walks;
        for (size_t i = 1; i < n_walks; i++) {
            if (walks[i].begin < first->begin)
                first = &walks[i];
        }
        rc = append(&sum, first->begin, first->end, err);
        if (rc == 0 && ++n_ranges > MAX_RANGES)
            rc = too_many(MAX_RANGES, err);
        if (!stg_taken_next(first))
            *first = walks[--n_walks];
    }
    free(walks);
    if (rc < 0)
        stg_taken_finish(&sum);
    else
        *ret = sum;
    return rc;
}

int stg_taken_add(struct stg_taken *set, uint64_t begin, uint64_t end,
                  struct stg_err *err)
{
    if (begin >= set->end)
        return append(set, begin, end, err);
    struct stg_taken sum, sets[2] = {*set, {0}};
    struct stg_taken_run run = {.gap = begin, .len = end - begin, .n = 1};
    if (end > begin)
        sets[1] = (struct stg_taken){.runs = &run, .n = 1, .end = end};
    int rc = stg_taken_unite(sets, 2, &sum, err);
    if (rc == 0) {
        stg_taken_finish(set);
        *set = sum;
    }
    return rc;
}

uint64_t stg_taken_first_left(const struct stg_taken *set)
{
    return set->n > 0 && set->runs[0].gap == 0 ? set->runs[0].len : 0;
}

/* ---- the text: ".GAP+LEN", or a letter for a gap of 1 to 26 before one item; "*N" and,
 * after a letter, N: so many times ---- */

static int write_run(const struct stg_taken_run *run, char *buf, size_t bytes)
{
    bool is_letter = run->len == 1 && run->gap >= 1 && run->gap <= MAX_LETTER;
    if (is_letter && run->n == 1 && bytes > 1) { /* most of them, without snprintf */
        buf[0] = (char)('a' + run->gap - 1);
        buf[1] = '\0';
        return 1;
    }
    int n = is_letter ? snprintf(buf, bytes, "%c", (char)('a' + run->gap - 1))
                      : snprintf(buf, bytes, ".%" PRIu64 "+%" PRIu64, run->gap, run->len);
    if (run->n > 1 && (size_t)n < bytes)
        n += snprintf(buf + n, bytes - (size_t)n, is_letter ? "%" PRIu64 : "*%" PRIu64,
                      run->n);
    return n;
}

int stg_taken_write(const struct stg_taken *set, char *buf, struct stg_err *err)
{
    size_t n = 0;
    buf[0] = '\0';
    for (size_t i = 0; i < set->n; i++) {
        n += (size_t)write_run(&set->runs[i], buf + n, STG_TAKEN_TEXT_BYTES - n);
        if (n >= STG_TAKEN_TEXT_BYTES)
            return too_many(STG_TAKEN_TEXT_BYTES, err);
    }
    return 0;
}

static bool take_number(const char **at, uint64_t *ret)
{
    uint64_t value = 0;
    const char *begin = *at;
    for (; **at >= '0' && **at <= '9'; ++*at) {
        if (value > UINT64_MAX / 16)
            return false;
        value = value * 10 + (uint64_t)(**at - '0');
    }
    *ret = value;
    return *at != begin;
}

static bool take_run(const char **at, struct stg_taken_run *ret)
{
    *ret = (struct stg_taken_run){.len = 1, .n = 1};
    if (**at >= 'a' && **at <= 'z') {
        ret->gap = (uint64_t)(*(*at)++ - 'a') + 1;
        return **at < '0' || **at > '9' || take_number(at, &ret->n);
    }
    if (*(*at)++ != '.' || !take_number(at, &ret->gap) || *(*at)++ != '+' ||
        !take_number(at, &ret->len))
        return false;
    if (**at != '*')
        return true;
    ++*at;
    return take_number(at, &ret->n);
}

/* One set has one text. */
static bool is_written(const struct stg_taken_run *run, const char *text, size_t n)
{
    char buf[80];
    return (size_t)write_run(run, buf, sizeof(buf)) == n && memcmp(buf, text, n) == 0;
}

/* Runs that append makes. */
static bool is_next(const struct stg_taken *set, const struct stg_taken_run *run)
{
    const struct stg_taken_run *last = set->n > 0 ? &set->runs[set->n - 1] : NULL;
    uint64_t step, all, end;
    if (run->len == 0 || run->n == 0 || (run->gap == 0 && (last != NULL || run->n > 1)))
        return false;
    if (last != NULL && last->gap == run->gap && last->len == run->len)
        return false;
    return !__builtin_add_overflow(run->gap, run->len, &step) &&
           !__builtin_mul_overflow(step, run->n, &all) &&
           !__builtin_add_overflow(set->end, all, &end);
}

int stg_taken_read(const char *text, struct stg_taken *ret, struct stg_err *err)
{
    int rc = 0;
    while (rc == 0 && *text != '\0') {
        struct stg_taken_run run;
        const char *begin = text;
        if (!take_run(&text, &run) || !is_next(ret, &run) ||
            !is_written(&run, begin, (size_t)(text - begin)))
            rc = stg_err(err, -STAGER_INVALID_ARGUMENT,
                         "not a state of a stream: the items that were taken are "
                         "malformed (the text is edited)");
        if (rc == 0)
            rc = reserve(ret, err);
        if (rc < 0)
            break;
        ret->runs[ret->n++] = run;
        ret->end += (run.gap + run.len) * run.n;
    }
    if (rc < 0)
        stg_taken_finish(ret);
    return rc;
}
