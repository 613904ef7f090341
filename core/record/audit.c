/* SPDX-License-Identifier: Apache-2.0 */
#include "core/record/audit.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/record/line.h"

#define MARK "a1 "
#define NONE "-" /* an empty set, and a gap between cells */
/* Items of a cell, once the table was made smaller. */
#define FOLDED_ITEMS 256
/* Of one line: a text of a few bytes can have far more. */
#define MAX_RANGES (1 << 26)

/* ---- collecting ---- */

/* Merges neighbours that lie in one block. */
static void fold(struct stg_audit_trail *trail, size_t n, uint64_t block)
{
    struct stg_audit_cell *cells = trail->cells;
    size_t k = 0;
    for (size_t i = 1; i < n; i++) {
        struct stg_audit_cell *last = &cells[k];
        if (last->end == cells[i].first &&
            last->first / block == cells[i].first / block) {
            last->end = cells[i].end;
            last->sum += cells[i].sum;
        } else {
            cells[++k] = cells[i];
        }
    }
    k += n > 0;
    memmove(&cells[k], &cells[n], (trail->n - n) * sizeof(cells[0]));
    trail->n -= n - k;
}

static bool is_full(const struct stg_audit_trail *trail, size_t max_cells)
{
    return trail->n >= max_cells;
}

/* Makes room for one more element. Returns whether there is some. */
static bool grow(void *all, size_t n, size_t *size, size_t bytes)
{
    if (n < *size)
        return true;
    size_t larger = *size > 0 ? 2 * *size : 8;
    void *moved = reallocarray(*(void **)all, larger, bytes);
    if (moved == NULL)
        return false;
    *(void **)all = moved;
    *size = larger;
    return true;
}

static int no_memory(struct stg_err *err)
{
    return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
}

static bool extend(struct stg_audit_trail *trail, uint64_t item, uint64_t hash)
{
    struct stg_audit_cell *last = trail->n > 0 ? &trail->cells[trail->n - 1] : NULL;
    if (last == NULL || trail->block == 0 || last->end != item ||
        last->first / trail->block != item / trail->block)
        return false;
    last->end = item + 1;
    last->sum += hash;
    return true;
}

int stg_audit_publish(struct stg_audit_trail *trail, uint64_t item, uint64_t hash,
                      size_t max_cells)
{
    if (extend(trail, item, hash))
        return 0;
    for (unsigned i = 0; i < 48 && is_full(trail, max_cells); i++) {
        trail->block = trail->block > 0 ? 2 * trail->block : 2;
        fold(trail, trail->n, trail->block);
    }
    if (extend(trail, item, hash))
        return 0;
    if (!grow(&trail->cells, trail->n, &trail->size, sizeof(trail->cells[0])))
        return -STAGER_RESOURCE_EXHAUSTED;
    trail->cells[trail->n++] = (struct stg_audit_cell){item, item + 1, hash};
    return 0;
}

static bool has_item(const struct stg_taken *set, uint64_t item)
{
    struct stg_taken_walk walk = {.set = set};
    return item < set->end && stg_taken_seek(&walk, item) && walk.begin <= item;
}

int stg_audit_take(struct stg_audit_items *items, uint64_t item, uint64_t hash)
{
    if (has_item(&items->set, item))
        return 0;
    int rc = stg_taken_add(&items->set, item, item + 1, NULL);
    items->n += rc == 0;
    items->sum += rc == 0 ? hash : 0;
    return rc;
}

void stg_audit_trail_finish(struct stg_audit_trail *trail)
{
    free(trail->cells);
    stg_taken_finish(&trail->skipped);
}

void stg_audit_share_finish(struct stg_audit_share *share)
{
    stg_taken_finish(&share->delivered.set);
    stg_taken_finish(&share->acknowledged.set);
}

/* ---- writing ---- */

static bool reserve(struct stg_audit_text *text, size_t n)
{
    if (text->has_failed || text->n + n <= text->size)
        return !text->has_failed;
    size_t size = 2 * text->size + n + 1024;
    char *bytes = realloc(text->bytes, size);
    text->has_failed = bytes == NULL;
    if (bytes == NULL)
        return false;
    text->bytes = bytes;
    text->size = size;
    return true;
}

/* A line that is being written: its payload follows the head. */
struct line {
    struct stg_audit_text *text;
    size_t begin;
};

static struct line begin_line(struct stg_audit_text *text)
{
    struct line line = {text, text->n};
    if (reserve(text, 1 + STG_LINE_HEAD_BYTES + 1))
        text->n += 1 + STG_LINE_HEAD_BYTES;
    return line;
}

static void put(struct line *line, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Appends a few words: never a set or cells. */
static void put(struct line *line, const char *fmt, ...)
{
    enum { ROOM = 1024 };
    va_list args;
    if (!reserve(line->text, ROOM))
        return;
    va_start(args, fmt);
    int n = vsnprintf(line->text->bytes + line->text->n, ROOM, fmt, args);
    va_end(args);
    line->text->n += (size_t)n;
}

static void put_name(struct line *line, const char *name)
{
    if (!reserve(line->text, STG_LINE_NAME_BYTES(strlen(name)) + 1))
        return;
    line->text->bytes[line->text->n++] = ' ';
    line->text->n += stg_line_escape(name, line->text->bytes + line->text->n);
}

static void put_word(struct line *line, const char *word)
{
    size_t n = strlen(word);
    const char *shown = n > 0 ? word : NONE;
    n = n > 0 ? n : strlen(NONE);
    if (!reserve(line->text, n + 1))
        return;
    line->text->bytes[line->text->n++] = ' ';
    memcpy(line->text->bytes + line->text->n, shown, n);
    line->text->n += n;
}

static void put_set(struct line *line, const struct stg_taken *set)
{
    if (!reserve(line->text, STG_TAKEN_TEXT_BYTES + 1))
        return;
    char *at = line->text->bytes + line->text->n + 1;
    if (stg_taken_write(set, at, NULL) < 0)
        line->text->has_failed = true; /* a full set is never added to */
    else if (at[0] == '\0')
        put_word(line, "");
    else {
        at[-1] = ' ';
        line->text->n += 1 + strlen(at);
    }
}

static void put_point(struct line *line, const struct stg_audit_point *point)
{
    put(line, " %" PRIu64 " %" PRIu64 " %" PRIu64, point->pass, point->items,
        point->elements);
    put_word(line, point->taken != NULL ? point->taken : "");
}

static void end_line(struct line *line)
{
    struct stg_audit_text *text = line->text;
    if (!reserve(text, 1)) {
        text->n = line->begin;
        return;
    }
    size_t n = text->n - line->begin - 1 - STG_LINE_HEAD_BYTES;
    text->n = line->begin + stg_line_finish(text->bytes + line->begin, n, MARK);
}

static void put_hosts(struct line *line, const struct stg_audit_hosts *hosts)
{
    put_name(line, hosts->job);
    put(line, " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64,
        hosts->generation, hosts->host, hosts->n_hosts, hosts->base,
        hosts->from_generation, hosts->from_items);
}

void stg_audit_write_begin(struct stg_audit_text *text, uint64_t *seq,
                           const struct stg_audit_begin *begin)
{
    struct line line = begin_line(text);
    put(&line, "begin %" PRIu64 " %016" PRIx64 " %" PRIu64 " %" PRIu64, (*seq)++,
        begin->run, begin->attempt, begin->time_ns);
    put_name(&line, begin->lane);
    put_word(&line, begin->delivery);
    put(&line, " %d", begin->is_known);
    put_point(&line, &begin->point);
    put(&line, " %" PRIu64, begin->from);
    put_name(&line, begin->tag);
    if (begin->hosts.job != NULL)
        put_hosts(&line, &begin->hosts);
    end_line(&line);
}

static void put_hex(struct line *line, uint64_t value)
{
    char *at = line->text->bytes + line->text->n;
    for (int i = 15; i >= 0; i--, value >>= 4)
        at[i] = "0123456789abcdef"[value & 15];
    line->text->n += 16;
}

/* "SUM" is of one item, "N:SUM" of N, "N:-" a gap. */
static void put_cells(struct line *line, const struct stg_audit_trail *trail)
{
    uint64_t at = trail->n > 0 ? trail->cells[0].first : 0;
    put(line, " %" PRIu64 " ", at);
    for (size_t i = 0; i < trail->n; i++) {
        const struct stg_audit_cell *cell = &trail->cells[i];
        uint64_t gap = cell->first - at, n = cell->end - cell->first;
        if (gap > 0)
            put(line, "%" PRIu64 ":" NONE ",", gap);
        if (n > 1)
            put(line, "%" PRIu64 ":", n);
        if (!reserve(line->text, 17))
            return;
        put_hex(line, cell->sum);
        if (i + 1 < trail->n)
            line->text->bytes[line->text->n++] = ',';
        at = cell->end;
    }
    if (trail->n == 0)
        put(line, NONE);
}

void stg_audit_write_trail(struct stg_audit_text *text, uint64_t *seq,
                           const struct stg_audit_trail *trail)
{
    struct line line = begin_line(text);
    put(&line, "publish %" PRIu64 " %016" PRIx64 " %" PRIu64 " %d", (*seq)++, trail->run,
        trail->pass, trail->has_contents);
    put_set(&line, &trail->skipped);
    put_cells(&line, trail);
    end_line(&line);
}

static void put_items(struct line *line, const struct stg_audit_items *items)
{
    put(line, " %" PRIu64 " %016" PRIx64, items->n, items->sum);
    put_set(line, &items->set);
}

void stg_audit_write_share(struct stg_audit_text *text, uint64_t *seq,
                           const struct stg_audit_share *share)
{
    struct line line = begin_line(text);
    put(&line, "client %" PRIu64 " %016" PRIx64 " %" PRIu64 " %" PRIu64, (*seq)++,
        share->run, share->attempt, share->pass);
    put_name(&line, share->client);
    put_items(&line, &share->delivered);
    put_items(&line, &share->acknowledged);
    put(&line, " %" PRIu64, share->n_redelivered);
    end_line(&line);
}

void stg_audit_write_commit(struct stg_audit_text *text,
                            const struct stg_audit_commit *commit)
{
    struct line line = begin_line(text);
    put(&line, "commit %016" PRIx64 " %" PRIu64 " %" PRIu64, commit->run, commit->attempt,
        commit->time_ns);
    put_name(&line, commit->tag);
    put_point(&line, &commit->point);
    end_line(&line);
}

void stg_audit_write_end(struct stg_audit_text *text, uint64_t *seq, uint64_t run,
                         uint64_t time_ns)
{
    struct line line = begin_line(text);
    put(&line, "end %" PRIu64 " %016" PRIx64 " %" PRIu64, (*seq)++, run, time_ns);
    end_line(&line);
}

/* ---- the table ---- */

static void free_attempt(struct stg_audit_attempt *attempt)
{
    for (size_t i = 0; i < attempt->n_commits; i++) {
        free((void *)(uintptr_t)attempt->commits[i].tag);
        free((void *)(uintptr_t)attempt->commits[i].point.taken);
    }
    free(attempt->commits);
    free((void *)(uintptr_t)attempt->begin.lane);
    free((void *)(uintptr_t)attempt->begin.delivery);
    free((void *)(uintptr_t)attempt->begin.tag);
    free((void *)(uintptr_t)attempt->begin.hosts.job);
    free((void *)(uintptr_t)attempt->begin.point.taken);
}

void stg_audit_finish(struct stg_audit *audit)
{
    for (size_t i = 0; i < audit->n_attempts; i++)
        free_attempt(&audit->attempts[i]);
    for (size_t i = 0; i < audit->n_trails; i++)
        stg_audit_trail_finish(&audit->trails[i]);
    for (size_t i = 0; i < audit->n_shares; i++)
        stg_audit_share_finish(&audit->shares[i]);
    free(audit->runs);
    free(audit->attempts);
    free(audit->trails);
    free(audit->shares);
    *audit = (struct stg_audit){0};
}

const struct stg_audit_run *stg_audit_find_run(const struct stg_audit *audit,
                                               uint64_t run)
{
    for (size_t i = audit->n_runs; i-- > 0;) {
        if (audit->runs[i].run == run)
            return &audit->runs[i];
    }
    return NULL;
}

/* Each find_ makes what is not there yet. NULL: out of memory. */
static struct stg_audit_run *find_run(struct stg_audit *audit, uint64_t run)
{
    const struct stg_audit_run *found = stg_audit_find_run(audit, run);
    if (found != NULL)
        return &audit->runs[found - audit->runs];
    if (!grow(&audit->runs, audit->n_runs, &audit->size_runs, sizeof(*audit->runs)))
        return NULL;
    audit->runs[audit->n_runs] = (struct stg_audit_run){.run = run};
    return &audit->runs[audit->n_runs++];
}

static struct stg_audit_attempt *find_attempt(struct stg_audit *audit, uint64_t run,
                                              uint64_t attempt)
{
    for (size_t i = audit->n_attempts; i-- > 0;) {
        struct stg_audit_begin *begin = &audit->attempts[i].begin;
        if (begin->run == run && begin->attempt == attempt)
            return &audit->attempts[i];
    }
    return NULL;
}

static struct stg_audit_trail *find_trail(struct stg_audit *audit, uint64_t run,
                                          uint64_t pass)
{
    for (size_t i = audit->n_trails; i-- > 0;) {
        if (audit->trails[i].run == run && audit->trails[i].pass == pass)
            return &audit->trails[i];
    }
    if (!grow(&audit->trails, audit->n_trails, &audit->size_trails,
              sizeof(*audit->trails)))
        return NULL;
    audit->trails[audit->n_trails] = (struct stg_audit_trail){.run = run, .pass = pass};
    return &audit->trails[audit->n_trails++];
}

static bool is_same_share(const struct stg_audit_share *a,
                          const struct stg_audit_share *b)
{
    return a->run == b->run && a->attempt == b->attempt && a->pass == b->pass &&
           strcmp(a->client, b->client) == 0;
}

static struct stg_audit_share *add_share(struct stg_audit *audit,
                                         const struct stg_audit_share *key)
{
    if (!grow(&audit->shares, audit->n_shares, &audit->size_shares,
              sizeof(*audit->shares)))
        return NULL;
    struct stg_audit_share *share = &audit->shares[audit->n_shares++];
    *share = (struct stg_audit_share){
        .run = key->run, .attempt = key->attempt, .pass = key->pass};
    memcpy(share->client, key->client, sizeof(share->client));
    return share;
}

static struct stg_audit_share *find_share(struct stg_audit *audit,
                                          const struct stg_audit_share *key)
{
    for (size_t i = audit->n_shares; i-- > 0;) {
        if (is_same_share(&audit->shares[i], key))
            return &audit->shares[i];
    }
    return add_share(audit, key);
}

/* ---- reading: each returns 1 if the words are a record, 0 if not ---- */

/* Returns a copy; "" stands for the word "-". NULL: there is no word, or no memory. */
static char *take_word(struct stg_words *words)
{
    const char *word;
    size_t n = stg_words_next(words, &word);
    if (n == 0)
        return NULL;
    bool is_none = n == strlen(NONE) && memcmp(word, NONE, n) == 0;
    char *copy = strndup(word, is_none ? 0 : n);
    words->has_failed |= copy == NULL;
    return copy;
}

/* Returns whether a word is the text of a set. */
static bool read_set(struct stg_words *words, const char *text, struct stg_taken *ret)
{
    if (text == NULL || strlen(text) >= STG_TAKEN_TEXT_BYTES)
        return false;
    int rc = stg_taken_read(text, ret, NULL);
    words->has_failed |= rc == -STAGER_RESOURCE_EXHAUSTED;
    return rc == 0;
}

static bool take_set(struct stg_words *words, struct stg_taken *ret)
{
    char *text = take_word(words);
    bool is_good = read_set(words, text, ret);
    free(text);
    return is_good;
}

static bool take_flag(struct stg_words *words, bool *ret)
{
    uint64_t number;
    bool is_good = stg_words_number(words, &number) && number <= 1;
    *ret = is_good && number == 1;
    return is_good;
}

static char *take_name(struct stg_words *words)
{
    char name[STG_AUDIT_NAME_BYTES];
    if (!stg_words_name(words, name, sizeof(name)))
        return NULL;
    char *copy = strdup(name);
    words->has_failed |= copy == NULL;
    return copy;
}

/* `taken` is the caller's, also if it fails. */
static bool take_point(struct stg_words *words, struct stg_audit_point *ret)
{
    struct stg_taken set = {0};
    bool is_good =
        stg_words_number(words, &ret->pass) && stg_words_number(words, &ret->items) &&
        stg_words_number(words, &ret->elements) &&
        (ret->taken = take_word(words)) != NULL && read_set(words, ret->taken, &set);
    stg_taken_finish(&set);
    return is_good;
}

/* The line of a run with that number is the next one, or later ones are missing. Returns
 * whether it is new. */
static int take_turn(struct stg_audit *audit, uint64_t id, uint64_t seq,
                     struct stg_err *err)
{
    struct stg_audit_run *run = find_run(audit, id);
    if (run == NULL)
        return no_memory(err);
    if (seq < run->seq)
        return 0;
    run->is_missing = run->is_missing || seq > run->seq;
    run->seq = seq + 1;
    return 1;
}

/* The line of an attempt without a job ends before them. */
static bool take_hosts(struct stg_words *words, struct stg_audit_hosts *ret)
{
    const char *word;
    struct stg_words rest = *words;
    if (stg_words_next(&rest, &word) == 0)
        return true;
    return (ret->job = take_name(words)) != NULL &&
           stg_words_number(words, &ret->generation) &&
           stg_words_number(words, &ret->host) &&
           stg_words_number(words, &ret->n_hosts) &&
           stg_words_number(words, &ret->base) &&
           stg_words_number(words, &ret->from_generation) &&
           stg_words_number(words, &ret->from_items);
}

/* Finds the attempt of this host in the generation whose commit it begins at. */
static void find_from(const struct stg_audit *audit, struct stg_audit_begin *begin)
{
    begin->from = 0;
    for (size_t i = audit->n_attempts; i-- > 0 && begin->from == 0;) {
        const struct stg_audit_begin *at = &audit->attempts[i].begin;
        if (at->hosts.job != NULL && strcmp(at->hosts.job, begin->hosts.job) == 0 &&
            at->hosts.generation == begin->hosts.from_generation &&
            strcmp(at->lane, begin->lane) == 0)
            begin->from = at->attempt;
    }
}

static int read_begin(struct stg_audit *audit, struct stg_words words,
                      struct stg_err *err)
{
    struct stg_audit_attempt attempt = {0};
    struct stg_audit_begin *begin = &attempt.begin;
    uint64_t seq;
    bool is_good =
        stg_words_number(&words, &seq) && stg_words_hex(&words, &begin->run) &&
        stg_words_number(&words, &begin->attempt) &&
        stg_words_number(&words, &begin->time_ns) &&
        (begin->lane = take_name(&words)) != NULL &&
        (begin->delivery = take_word(&words)) != NULL &&
        take_flag(&words, &begin->is_known) && take_point(&words, &begin->point) &&
        stg_words_number(&words, &begin->from) &&
        (begin->tag = take_name(&words)) != NULL && take_hosts(&words, &begin->hosts);
    if (is_good && begin->hosts.job != NULL)
        find_from(audit, begin);
    int rc = is_good ? take_turn(audit, begin->run, seq, err) : 0;
    bool is_there = find_attempt(audit, begin->run, begin->attempt) != NULL;
    if (rc == 1 && !is_there &&
        !grow(&audit->attempts, audit->n_attempts, &audit->size_attempts,
              sizeof(attempt)))
        rc = no_memory(err);
    if (rc == 1 && !is_there)
        audit->attempts[audit->n_attempts++] = attempt;
    else
        free_attempt(&attempt);
    if (words.has_failed)
        return no_memory(err);
    return is_good && rc == 0 ? 1 : rc;
}

static bool take_cell(const char **at, const char *end, struct stg_audit_cell *cell,
                      bool *ret_gap)
{
    const char *colon = *at;
    uint64_t n = 1;
    while (colon < end && *colon >= '0' && *colon <= '9' && colon - *at < 19)
        colon++;
    if (colon < end && *colon == ':') {
        struct stg_words number = {.at = *at, .end = colon};
        if (!stg_words_number(&number, &n) || n == 0)
            return false;
        *at = colon + 1;
    }
    *ret_gap = end - *at >= 1 && **at == NONE[0];
    struct stg_words sum = {.at = *at, .end = end - *at > 16 ? *at + 16 : end};
    if (!*ret_gap && !stg_words_hex(&sum, &cell->sum))
        return false;
    *at += *ret_gap ? 1 : 16;
    cell->first = cell->end;
    return !__builtin_add_overflow(cell->first, n, &cell->end) &&
           (*at == end || *(*at)++ == ',');
}

static int add_cells(struct stg_audit_trail *trail, const char *at, const char *end,
                     uint64_t first)
{
    struct stg_audit_cell cell = {.end = first};
    bool is_gap;
    if (end - at == 1 && *at == NONE[0])
        return 1;
    while (at < end) {
        if (!take_cell(&at, end, &cell, &is_gap) ||
            (!is_gap && trail->n > 0 && trail->cells[trail->n - 1].end > cell.first))
            return 0;
        if (is_gap)
            continue;
        if (!grow(&trail->cells, trail->n, &trail->size, sizeof(cell)))
            return -STAGER_RESOURCE_EXHAUSTED;
        trail->cells[trail->n++] = cell;
    }
    return 1;
}

/* Adds the items of a set to another one; what does not fit is left, from *ret on. */
static int unite(struct stg_taken *to, const struct stg_taken *from, uint64_t *ret)
{
    struct stg_taken_walk walk = {.set = from};
    int rc = 0;
    for (uint64_t n = 0; rc == 0 && stg_taken_seek(&walk, *ret); n++) {
        if (n == MAX_RANGES)
            return -STAGER_OUT_OF_RANGE;
        uint64_t begin = walk.begin > *ret ? walk.begin : *ret;
        rc = stg_taken_add(to, begin, walk.end, NULL);
        *ret = rc == 0 ? walk.end : *ret;
    }
    return rc;
}

static int read_publish(struct stg_audit *audit, struct stg_words words,
                        struct stg_err *err)
{
    struct stg_audit_trail head = {0};
    uint64_t seq, first, at = 0;
    const char *cells = NULL;
    size_t n = 0;
    bool is_good = stg_words_number(&words, &seq) && stg_words_hex(&words, &head.run) &&
                   stg_words_number(&words, &head.pass) &&
                   take_flag(&words, &head.has_contents) &&
                   take_set(&words, &head.skipped) && stg_words_number(&words, &first) &&
                   (n = stg_words_next(&words, &cells)) > 0;
    int rc = is_good ? take_turn(audit, head.run, seq, err) : 0;
    struct stg_audit_trail *trail =
        rc == 1 ? find_trail(audit, head.run, head.pass) : NULL;
    if (trail != NULL) {
        trail->has_contents = head.has_contents;
        rc = add_cells(trail, cells, cells + n, first);
    }
    if (rc == 1 && trail != NULL)
        rc = unite(&trail->skipped, &head.skipped, &at) == 0;
    if ((rc == 1 && trail == NULL) || rc < 0 || words.has_failed)
        rc = no_memory(err);
    if (rc == 0 && trail != NULL) /* cells or items are left out */
        find_run(audit, head.run)->is_missing = true;
    stg_taken_finish(&head.skipped);
    return is_good && rc == 0 ? 1 : rc;
}

static bool take_items(struct stg_words *words, struct stg_audit_items *ret)
{
    return stg_words_number(words, &ret->n) && stg_words_hex(words, &ret->sum) &&
           take_set(words, &ret->set);
}

static void add_counts(struct stg_audit_share *to, const struct stg_audit_share *from)
{
    to->delivered.n += from->delivered.n;
    to->delivered.sum += from->delivered.sum;
    to->acknowledged.n += from->acknowledged.n;
    to->acknowledged.sum += from->acknowledged.sum;
    to->n_redelivered += from->n_redelivered;
}

/* A share whose set is full is followed by another one. */
static int add_to_share(struct stg_audit *audit, const struct stg_audit_share *from)
{
    struct stg_audit_share *share = find_share(audit, from);
    uint64_t delivered = 0, acknowledged = 0;
    if (share == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    add_counts(share, from);
    for (int i = 0; i < 3; i++) {
        int rc = unite(&share->delivered.set, &from->delivered.set, &delivered);
        int more =
            unite(&share->acknowledged.set, &from->acknowledged.set, &acknowledged);
        if (rc == 0 && more == 0)
            return 1;
        share = add_share(audit, from);
        if (share == NULL)
            return -STAGER_RESOURCE_EXHAUSTED;
    }
    return -STAGER_RESOURCE_EXHAUSTED;
}

static int read_client(struct stg_audit *audit, struct stg_words words,
                       struct stg_err *err)
{
    struct stg_audit_share share = {0};
    uint64_t seq;
    bool is_good = stg_words_number(&words, &seq) && stg_words_hex(&words, &share.run) &&
                   stg_words_number(&words, &share.attempt) &&
                   stg_words_number(&words, &share.pass) &&
                   stg_words_name(&words, share.client, sizeof(share.client)) &&
                   take_items(&words, &share.delivered) &&
                   take_items(&words, &share.acknowledged) &&
                   stg_words_number(&words, &share.n_redelivered);
    int rc = is_good ? take_turn(audit, share.run, seq, err) : 0;
    if (rc == 1)
        rc = add_to_share(audit, &share);
    stg_audit_share_finish(&share);
    if (rc < 0 || words.has_failed)
        return no_memory(err);
    return is_good;
}

static int read_commit(struct stg_audit *audit, struct stg_words words,
                       struct stg_err *err)
{
    struct stg_audit_commit commit = {0};
    bool is_good =
        stg_words_hex(&words, &commit.run) && stg_words_number(&words, &commit.attempt) &&
        stg_words_number(&words, &commit.time_ns) &&
        (commit.tag = take_name(&words)) != NULL && take_point(&words, &commit.point);
    struct stg_audit_attempt *attempt =
        is_good ? find_attempt(audit, commit.run, commit.attempt) : NULL;
    bool is_added = attempt != NULL && grow(&attempt->commits, attempt->n_commits,
                                            &attempt->size, sizeof(commit));
    if (is_added) {
        attempt->commits[attempt->n_commits++] = commit;
    } else {
        free((void *)(uintptr_t)commit.tag);
        free((void *)(uintptr_t)commit.point.taken);
    }
    bool has_failed = words.has_failed || (attempt != NULL && !is_added);
    return has_failed ? no_memory(err) : is_good;
}

static int read_end(struct stg_audit *audit, struct stg_words words, struct stg_err *err)
{
    uint64_t seq, run, time_ns;
    if (!stg_words_number(&words, &seq) || !stg_words_hex(&words, &run) ||
        !stg_words_number(&words, &time_ns))
        return 0;
    int rc = take_turn(audit, run, seq, err);
    if (rc == 1)
        find_run(audit, run)->end_ns = time_ns;
    return rc < 0 ? rc : 1;
}

static int read_lines(struct stg_audit *audit, struct stg_words words,
                      struct stg_err *err)
{
    uint64_t id, seq;
    bool is_missing;
    if (!stg_words_hex(&words, &id) || !stg_words_number(&words, &seq) ||
        !take_flag(&words, &is_missing))
        return 0;
    struct stg_audit_run *run = find_run(audit, id);
    if (run == NULL)
        return no_memory(err);
    run->seq = seq;
    run->is_missing = run->is_missing || is_missing;
    return 1;
}

static int read_line(struct stg_audit *audit, const char *line, size_t n,
                     struct stg_err *err)
{
    static const struct {
        const char *name;
        int (*read)(struct stg_audit *audit, struct stg_words words, struct stg_err *err);
    } kinds[] = {
        {"begin", read_begin},   {"publish", read_publish}, {"client", read_client},
        {"commit", read_commit}, {"end", read_end},         {"lines", read_lines},
    };
    if (!stg_line_is_right(line, n, MARK))
        return 0;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct stg_words words = stg_line_words(line, n);
        if (stg_words_is(&words, kinds[i].name))
            return kinds[i].read(audit, words, err);
    }
    return 0;
}

int stg_audit_read(struct stg_audit *audit, const char *text, size_t bytes,
                   struct stg_err *err)
{
    const char *at = text, *end = text + bytes;
    while (at < end) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        size_t n = (size_t)((line_end != NULL ? line_end : end) - at);
        int rc = n > 0 ? read_line(audit, at, n, err) : 1;
        if (rc < 0)
            return rc;
        audit->n_bad += rc == 0;
        at += n + (line_end != NULL);
    }
    return 0;
}

uint64_t stg_audit_scan_newest(const char *text, size_t bytes)
{
    static const char key[] = "begin ";
    const char *at = text, *end = text + bytes;
    uint64_t newest = 0, seq, run, attempt;
    while (at < end) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        size_t n = (size_t)((line_end != NULL ? line_end : end) - at);
        bool is_begin = n > STG_LINE_HEAD_BYTES + strlen(key) &&
                        memcmp(at + STG_LINE_HEAD_BYTES, key, strlen(key)) == 0;
        struct stg_words words = stg_line_words(at, n);
        if (is_begin && stg_line_is_right(at, n, MARK) && stg_words_is(&words, "begin") &&
            stg_words_number(&words, &seq) && stg_words_hex(&words, &run) &&
            stg_words_number(&words, &attempt) && attempt > newest)
            newest = attempt;
        at += n + (line_end != NULL);
    }
    return newest;
}

/* ---- making it smaller ---- */

void stg_audit_forget_items(struct stg_audit *audit)
{
    for (size_t i = 0; i < audit->n_trails; i++)
        stg_audit_trail_finish(&audit->trails[i]);
    for (size_t i = 0; i < audit->n_shares; i++)
        stg_audit_share_finish(&audit->shares[i]);
    audit->n_trails = audit->n_shares = 0;
    for (size_t i = 0; i < audit->n_runs; i++)
        audit->runs[i].is_missing = true;
}

/* From the newest trail on. */
static void shrink_trails(struct stg_audit *audit, size_t n_exact)
{
    for (size_t i = audit->n_trails; i-- > 0;) {
        struct stg_audit_trail *trail = &audit->trails[i];
        size_t n_exact_here = trail->n < n_exact ? trail->n : n_exact;
        n_exact -= n_exact_here;
        fold(trail, trail->n - n_exact_here, FOLDED_ITEMS);
    }
}

static bool begins_at(const struct stg_audit *audit,
                      const struct stg_audit_commit *commit)
{
    bool is = false;
    for (size_t i = 0; i < audit->n_attempts && !is; i++) {
        const struct stg_audit_begin *begin = &audit->attempts[i].begin;
        is = begin->from == commit->attempt && strcmp(begin->tag, commit->tag) == 0;
    }
    return is;
}

static void shrink_commits(const struct stg_audit *audit,
                           struct stg_audit_attempt *attempt, size_t n_commits)
{
    size_t k = 0;
    for (size_t i = 0; i < attempt->n_commits; i++) {
        struct stg_audit_commit *commit = &attempt->commits[i];
        if (i + n_commits >= attempt->n_commits || begins_at(audit, commit)) {
            attempt->commits[k++] = *commit;
        } else {
            free((void *)(uintptr_t)commit->tag);
            free((void *)(uintptr_t)commit->point.taken);
        }
    }
    attempt->n_commits = k;
}

static bool is_run_left(const struct stg_audit *audit, uint64_t run)
{
    bool is = false;
    for (size_t i = 0; i < audit->n_attempts && !is; i++)
        is = audit->attempts[i].begin.run == run;
    return is;
}

/* Removes what is of no attempt that is left. */
static void drop_strays(struct stg_audit *audit)
{
    size_t n_runs = 0, n_trails = 0, n_shares = 0;
    for (size_t i = 0; i < audit->n_runs; i++) {
        if (is_run_left(audit, audit->runs[i].run))
            audit->runs[n_runs++] = audit->runs[i];
    }
    for (size_t i = 0; i < audit->n_trails; i++) {
        if (is_run_left(audit, audit->trails[i].run))
            audit->trails[n_trails++] = audit->trails[i];
        else
            stg_audit_trail_finish(&audit->trails[i]);
    }
    for (size_t i = 0; i < audit->n_shares; i++) {
        struct stg_audit_share *share = &audit->shares[i];
        if (find_attempt(audit, share->run, share->attempt) != NULL)
            audit->shares[n_shares++] = *share;
        else
            stg_audit_share_finish(share);
    }
    audit->n_runs = n_runs;
    audit->n_trails = n_trails;
    audit->n_shares = n_shares;
}

static bool is_of_job(const struct stg_audit_attempt *attempt, const char *job)
{
    const char *has = attempt->begin.hosts.job;
    return job == NULL || has == NULL ? job == has : strcmp(job, has) == 0;
}

void stg_audit_keep_job(struct stg_audit *audit, const char *job)
{
    size_t n = 0;
    for (size_t i = 0; i < audit->n_attempts; i++) {
        if (is_of_job(&audit->attempts[i], job))
            audit->attempts[n++] = audit->attempts[i];
        else
            free_attempt(&audit->attempts[i]);
    }
    audit->n_attempts = n;
    drop_strays(audit);
}

void stg_audit_shrink(struct stg_audit *audit, size_t n_exact, size_t n_attempts,
                      size_t n_commits)
{
    size_t n = audit->n_attempts > n_attempts ? audit->n_attempts - n_attempts : 0;
    for (size_t i = 0; i < n; i++)
        free_attempt(&audit->attempts[i]);
    if (n > 0)
        memmove(audit->attempts, audit->attempts + n,
                (audit->n_attempts - n) * sizeof(audit->attempts[0]));
    audit->n_attempts -= n;
    drop_strays(audit);
    shrink_trails(audit, n_exact);
    for (size_t i = 0; i < audit->n_attempts; i++)
        shrink_commits(audit, &audit->attempts[i], n_commits);
}

static void write_run(const struct stg_audit *audit, const struct stg_audit_run *run,
                      struct stg_audit_text *text)
{
    uint64_t seq = 0;
    for (size_t i = 0; i < audit->n_attempts; i++) {
        const struct stg_audit_attempt *attempt = &audit->attempts[i];
        if (attempt->begin.run != run->run)
            continue;
        stg_audit_write_begin(text, &seq, &attempt->begin);
        for (size_t k = 0; k < attempt->n_commits; k++)
            stg_audit_write_commit(text, &attempt->commits[k]);
    }
    for (size_t i = 0; i < audit->n_trails; i++) {
        if (audit->trails[i].run == run->run)
            stg_audit_write_trail(text, &seq, &audit->trails[i]);
    }
    for (size_t i = 0; i < audit->n_shares; i++) {
        if (audit->shares[i].run == run->run)
            stg_audit_write_share(text, &seq, &audit->shares[i]);
    }
    if (run->end_ns != 0)
        stg_audit_write_end(text, &seq, run->run, run->end_ns);
    struct line line = begin_line(text);
    put(&line, "lines %016" PRIx64 " %" PRIu64 " %d", run->run,
        run->seq > seq ? run->seq : seq, run->is_missing);
    end_line(&line);
}

void stg_audit_write(const struct stg_audit *audit, struct stg_audit_text *text)
{
    for (size_t i = 0; i < audit->n_runs; i++)
        write_run(audit, &audit->runs[i], text);
}
