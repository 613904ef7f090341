/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stagerctl/report/history.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A set can have more ranges than are worth a wait. */
#define MAX_STEPS (UINT64_C(1) << 26)

static int no_memory(struct stg_err *err)
{
    return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
}

static bool is_of(const struct stg_audit_share *share,
                  const struct stg_audit_attempt *attempt)
{
    return share->run == attempt->begin.run && share->attempt == attempt->begin.attempt;
}

/* ---- finding ---- */

static int copy_point(const struct stg_audit_point *from, struct stg_history_point *ret)
{
    *ret = (struct stg_history_point){.pass = from->pass, .items = from->items};
    return stg_taken_read(from->taken, &ret->taken, NULL);
}

/* An attempt that joined a run begins with its first item. */
static void begin_at_first(const struct stg_audit *audit, struct stg_history_link *link)
{
    bool is_found = false;
    for (size_t i = 0; i < audit->n_shares; i++) {
        const struct stg_audit_share *share = &audit->shares[i];
        const struct stg_taken *set = &share->delivered.set;
        if (!is_of(share, link->attempt) || set->n == 0)
            continue;
        uint64_t first = set->runs[0].gap;
        bool is_before = !is_found || share->pass < link->begin.pass ||
                         (share->pass == link->begin.pass && first < link->begin.items);
        if (is_before)
            link->begin = (struct stg_history_point){.pass = share->pass, .items = first};
        is_found = true;
    }
}

/* Returns the last attempt of the lane before place n, with that number; 0: with any. */
static const struct stg_audit_attempt *find_before(const struct stg_audit *audit,
                                                   size_t n, const char *lane,
                                                   uint64_t number)
{
    for (size_t i = n; i-- > 0;) {
        const struct stg_audit_begin *begin = &audit->attempts[i].begin;
        if (strcmp(begin->lane, lane) == 0 && (number == 0 || begin->attempt == number))
            return &audit->attempts[i];
    }
    return NULL;
}

/* Puts an attempt before the others, which ends where the first of them begins. */
static int put_first(struct stg_history *history, const struct stg_audit_attempt *attempt)
{
    struct stg_history_link *links =
        realloc(history->links, (history->n + 1) * sizeof(*links));
    if (links == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    history->links = links;
    memmove(&links[1], &links[0], history->n * sizeof(links[0]));
    links[0] = (struct stg_history_link){.attempt = attempt, .has_end = history->n > 0};
    history->n++;
    int rc = copy_point(&attempt->begin.point, &links[0].begin);
    if (rc == 0 && links[0].has_end)
        rc = copy_point(&links[1].attempt->begin.point, &links[0].end);
    if (links[0].has_end && links[1].attempt->begin.hosts.job != NULL)
        links[0].end.items = links[1].attempt->begin.hosts.from_items;
    if (rc == 0 && !attempt->begin.is_known)
        begin_at_first(history->audit, &links[0]);
    return rc;
}

/* The last attempt ends at its last commit; without one it does not count. */
static int end_at_commit(struct stg_history *history)
{
    struct stg_history_link *last = &history->links[history->n - 1];
    const struct stg_audit_attempt *attempt = last->attempt;
    if (attempt->n_commits > 0) {
        last->has_end = true;
        return copy_point(&attempt->commits[attempt->n_commits - 1].point, &last->end);
    }
    stg_taken_finish(&last->begin.taken);
    history->n--;
    return 0;
}

int stg_history_find(const struct stg_audit *audit, const char *lane, uint64_t attempt,
                     bool only_committed, struct stg_history *ret, struct stg_err *err)
{
    struct stg_history history = {.audit = audit};
    const struct stg_audit_attempt *at =
        find_before(audit, audit->n_attempts, lane, attempt);
    if (at == NULL)
        return stg_err(err, -STAGER_NOT_FOUND,
                       "the audit has no attempt %" PRIu64
                       "%s%s: without @, `stagerctl audit` shows all of them",
                       attempt, lane[0] != '\0' ? " of client " : "", lane);
    int rc = 0;
    while (rc == 0 && at != NULL) {
        uint64_t from = at->begin.from;
        rc = put_first(&history, at);
        at = from != 0 ? find_before(audit, (size_t)(at - audit->attempts), lane, from)
                       : NULL;
    }
    if (rc == 0 && only_committed)
        rc = end_at_commit(&history);
    if (rc < 0) {
        stg_history_finish(&history);
        return no_memory(err);
    }
    *ret = history;
    return 0;
}

void stg_history_finish(struct stg_history *history)
{
    for (size_t i = 0; i < history->n; i++) {
        stg_taken_finish(&history->links[i].begin.taken);
        stg_taken_finish(&history->links[i].end.taken);
    }
    free(history->links);
    *history = (struct stg_history){0};
}

/* ---- windows: the items of a link ---- */

static bool has_item(const struct stg_taken *set, uint64_t item)
{
    struct stg_taken_walk walk = {.set = set};
    return item < set->end && stg_taken_seek(&walk, item) && walk.begin <= item;
}

static bool is_in_window(const struct stg_history_link *link, uint64_t pass,
                         uint64_t item)
{
    const struct stg_history_point *begin = &link->begin, *end = &link->end;
    if (pass < begin->pass ||
        (pass == begin->pass && (item < begin->items || has_item(&begin->taken, item))))
        return false;
    return !link->has_end || pass < end->pass ||
           (pass == end->pass && (item < end->items || has_item(&end->taken, item)));
}

static const struct stg_audit_trail *find_trail(const struct stg_audit *audit,
                                                uint64_t run, uint64_t pass)
{
    for (size_t i = audit->n_trails; i-- > 0;) {
        if (audit->trails[i].run == run && audit->trails[i].pass == pass)
            return &audit->trails[i];
    }
    return NULL;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Returns the end of what the audit has of a pass in an attempt. */
static uint64_t end_in(const struct stg_audit *audit,
                       const struct stg_audit_attempt *attempt, uint64_t pass)
{
    const struct stg_audit_trail *trail = find_trail(audit, attempt->begin.run, pass);
    uint64_t end = trail != NULL ? trail->skipped.end : 0;
    if (trail != NULL && trail->n > 0)
        end = larger(end, trail->cells[trail->n - 1].end);
    for (size_t i = 0; i < audit->n_shares; i++) {
        const struct stg_audit_share *share = &audit->shares[i];
        if (is_of(share, attempt) && share->pass == pass)
            end = larger(end,
                         larger(share->delivered.set.end, share->acknowledged.set.end));
    }
    return end;
}

/* Returns whether both attempts number the items of a pass alike. */
static bool numbers_alike(const struct stg_audit_begin *a,
                          const struct stg_audit_begin *b, uint64_t pass)
{
    uint64_t base_a = pass == a->point.pass ? a->hosts.base : 0;
    uint64_t base_b = pass == b->point.pass ? b->hosts.base : 0;
    return base_a == base_b && a->hosts.n_hosts == b->hosts.n_hosts;
}

/* Returns the end of a pass of link i: an attempt that begins there has nothing of it. */
static uint64_t end_of_pass(const struct stg_history *history, size_t i, uint64_t pass)
{
    uint64_t end = 0;
    const struct stg_audit_begin *begin = &history->links[i].attempt->begin;
    for (size_t k = 0; k < history->n; k++) {
        const struct stg_audit_attempt *attempt = history->links[k].attempt;
        if (numbers_alike(begin, &attempt->begin, pass))
            end = larger(end, end_in(history->audit, attempt, pass));
    }
    return end;
}

static uint64_t last_pass(const struct stg_audit *audit,
                          const struct stg_history_link *link)
{
    uint64_t last = link->begin.pass;
    for (size_t i = 0; i < audit->n_shares; i++) {
        const struct stg_audit_share *share = &audit->shares[i];
        if (is_of(share, link->attempt))
            last = larger(last, share->pass);
    }
    return link->has_end && link->end.pass < last ? link->end.pass : last;
}

/* ---- the proof ---- */

/* Walks over all sets of a pass at once. */
struct sweep {
    struct stg_taken_walk *walks;
    struct role {
        enum { DELIVERED, ACKNOWLEDGED, SKIPPED, BOUNDARY } kind;
    } * roles;
    size_t n;
    uint64_t n_steps;
};

static void add_walk(struct sweep *sweep, const struct stg_taken *set, int kind)
{
    sweep->walks[sweep->n] = (struct stg_taken_walk){.set = set};
    sweep->roles[sweep->n++].kind = kind;
}

static int begin_sweep(const struct stg_audit *audit, const struct stg_history_link *link,
                       uint64_t pass, struct sweep *ret)
{
    const struct stg_audit_trail *trail =
        find_trail(audit, link->attempt->begin.run, pass);
    size_t n = 3;
    for (size_t i = 0; i < audit->n_shares; i++)
        n += 2;
    ret->walks = calloc(n, sizeof(ret->walks[0]));
    ret->roles = calloc(n, sizeof(ret->roles[0]));
    ret->n = 0;
    if (ret->walks == NULL || ret->roles == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < audit->n_shares; i++) {
        const struct stg_audit_share *share = &audit->shares[i];
        if (!is_of(share, link->attempt) || share->pass != pass)
            continue;
        add_walk(ret, &share->delivered.set, DELIVERED);
        add_walk(ret, &share->acknowledged.set, ACKNOWLEDGED);
    }
    if (trail != NULL)
        add_walk(ret, &trail->skipped, SKIPPED);
    if (pass == link->begin.pass)
        add_walk(ret, &link->begin.taken, BOUNDARY);
    if (link->has_end && pass == link->end.pass)
        add_walk(ret, &link->end.taken, BOUNDARY);
    return 0;
}

/* Counts the sets that have the item, and returns the first item after it at which that
 * changes. */
static uint64_t look(struct sweep *sweep, uint64_t item, uint64_t ret_n[4])
{
    uint64_t next = UINT64_MAX;
    memset(ret_n, 0, 4 * sizeof(ret_n[0]));
    for (size_t i = 0; i < sweep->n; i++) {
        struct stg_taken_walk *walk = &sweep->walks[i];
        if (!stg_taken_seek(walk, item))
            continue;
        bool is_in = walk->begin <= item;
        uint64_t change = is_in ? walk->end : walk->begin;
        ret_n[sweep->roles[i].kind] += is_in;
        next = change < next ? change : next;
    }
    return next;
}

static void add_problem(struct stg_history_problems *problems, uint64_t attempt,
                        uint64_t pass, uint64_t first, uint64_t end)
{
    struct stg_history_range *last =
        problems->n_ranges > 0 ? &problems->first[problems->n_ranges - 1] : NULL;
    problems->n += end - first;
    if (last != NULL && last->attempt == attempt && last->pass == pass &&
        last->end == first)
        last->end = end;
    else if (problems->n_ranges < STG_HISTORY_MAX_RANGES)
        problems->first[problems->n_ranges++] =
            (struct stg_history_range){attempt, pass, first, end};
    else
        problems->has_more = true;
}

/* Returns the item of a pass up to which it is known what clients got: UINT64_MAX, or
 * less if stagerd was killed, and the attempt went on, or a client of it committed at the
 * one that was started again. */
static uint64_t known_until(const struct stg_history *history, size_t i, uint64_t pass)
{
    const struct stg_audit_attempt *attempt = history->links[i].attempt;
    const struct stg_audit_run *run =
        stg_audit_find_run(history->audit, attempt->begin.run);
    bool goes_on = i + 1 < history->n;
    uint64_t until = 0;
    if (!goes_on || run == NULL || run->end_ns != 0)
        return UINT64_MAX;
    for (size_t k = 0; k < history->audit->n_shares; k++) {
        const struct stg_audit_share *share = &history->audit->shares[k];
        if (is_of(share, attempt) && share->pass == pass)
            until = larger(until, share->delivered.set.end);
    }
    return until;
}

/* An item that the state of the commit has, and that one client got, was taken. */
static void judge(struct stg_history_proof *proof, uint64_t attempt, uint64_t pass,
                  uint64_t first, uint64_t end, const uint64_t n[4])
{
    proof->n_items += end - first;
    if (n[ACKNOWLEDGED] > 1)
        add_problem(&proof->twice, attempt, pass, first, end);
    else if (n[ACKNOWLEDGED] == 1)
        proof->n_acknowledged += end - first;
    else if (n[DELIVERED] > 0)
        proof->n_unacknowledged += end - first;
    else if (n[SKIPPED] > 0)
        proof->n_skipped += end - first;
    else
        add_problem(&proof->missing, attempt, pass, first, end);
}

static int prove_pass(const struct stg_history *history, size_t i, uint64_t pass,
                      struct stg_history_proof *ret, struct stg_err *err)
{
    const struct stg_audit *audit = history->audit;
    const struct stg_history_link *link = &history->links[i];
    struct sweep sweep = {0};
    uint64_t n[4], end = end_of_pass(history, i, pass);
    uint64_t until = known_until(history, i, pass);
    if (link->has_end && pass == link->end.pass)
        end = larger(link->end.items, link->end.taken.end);
    else if (end == 0)
        ret->is_recorded = false; /* the length of the pass is not known */
    int rc = begin_sweep(audit, link, pass, &sweep);
    uint64_t at = rc == 0 && pass == link->begin.pass ? link->begin.items : 0;
    while (rc == 0 && at < end) {
        uint64_t next = look(&sweep, at, n);
        bool crosses = link->has_end && pass == link->end.pass && at < link->end.items &&
                       next > link->end.items;
        next = crosses ? link->end.items : next;
        next = next < end ? next : end;
        if (is_in_window(link, pass, at) && at >= until)
            ret->n_unrecorded += next - at;
        else if (is_in_window(link, pass, at))
            judge(ret, link->attempt->begin.attempt, pass, at, next, n);
        at = next;
        if (++sweep.n_steps > MAX_STEPS)
            rc = stg_err(err, -STAGER_OUT_OF_RANGE,
                         "the sets of the audit have too many ranges");
    }
    if (rc == -STAGER_RESOURCE_EXHAUSTED)
        no_memory(err);
    free(sweep.walks);
    free(sweep.roles);
    return rc;
}

int stg_history_prove(const struct stg_history *history, struct stg_history_proof *ret,
                      struct stg_err *err)
{
    int rc = 0;
    *ret = (struct stg_history_proof){.is_recorded = true};
    for (size_t i = 0; rc == 0 && i < history->n; i++) {
        const struct stg_history_link *link = &history->links[i];
        const struct stg_audit_run *run =
            stg_audit_find_run(history->audit, link->attempt->begin.run);
        uint64_t last = link->has_end ? link->end.pass : last_pass(history->audit, link);
        if (run == NULL || run->is_missing)
            ret->is_recorded = false;
        if (last - link->begin.pass > MAX_STEPS)
            return stg_err(err, -STAGER_OUT_OF_RANGE, "the audit has too many passes");
        for (uint64_t pass = link->begin.pass; rc == 0 && pass <= last; pass++)
            rc = prove_pass(history, i, pass, ret, err);
    }
    if (ret->n_unrecorded > 0)
        ret->is_recorded = false;
    const struct stg_audit_begin *first =
        history->n > 0 ? &history->links[0].attempt->begin : NULL;
    ret->is_whole = first != NULL && first->is_known && first->from == 0 &&
                    first->point.items == 0 && first->hosts.from_generation == 0 &&
                    first->hosts.base == 0;
    return rc;
}

/* ---- comparing ---- */

/* A cell of a history. */
struct part {
    uint64_t pass, first, end, sum;
    bool is_known; /* else a part of it lies outside of the history */
};

struct parts {
    struct part *all;
    size_t n, size;
    bool has_contents, has_positions;
};

static int add_part(struct parts *parts, const struct part *part)
{
    if (parts->n == parts->size) {
        size_t size = parts->size > 0 ? 2 * parts->size : 64;
        struct part *all = reallocarray(parts->all, size, sizeof(*all));
        if (all == NULL)
            return -STAGER_RESOURCE_EXHAUSTED;
        parts->all = all;
        parts->size = size;
    }
    parts->all[parts->n++] = *part;
    return 0;
}

/* Adds the cell if items of it are in the window. A window without sets is one range: the
 * ends of a cell decide. */
static int add_cell(struct parts *parts, const struct stg_history_link *link,
                    uint64_t pass, const struct stg_audit_cell *cell)
{
    struct part part = {pass, cell->first, cell->end, cell->sum, true};
    uint64_t n_in = 0, n = cell->end - cell->first;
    bool has_set = link->begin.taken.n > 0 || link->end.taken.n > 0;
    if (n == 1 || has_set) {
        for (uint64_t i = cell->first; i < cell->end && i - cell->first <= MAX_STEPS; i++)
            n_in += is_in_window(link, pass, i);
    } else {
        n_in = is_in_window(link, pass, cell->first) +
               is_in_window(link, pass, cell->end - 1);
        n = 2;
    }
    part.is_known = n_in == n;
    return n_in > 0 ? add_part(parts, &part) : 0;
}

static int by_place(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    if (x->pass != y->pass)
        return x->pass < y->pass ? -1 : 1;
    return x->first < y->first ? -1 : x->first > y->first;
}

static int collect(const struct stg_history *history, struct parts *ret)
{
    const struct stg_audit *audit = history->audit;
    int rc = 0;
    for (size_t i = 0; i < history->n; i++) {
        const struct stg_history_link *link = &history->links[i];
        for (size_t k = 0; k < audit->n_trails; k++) {
            const struct stg_audit_trail *trail = &audit->trails[k];
            if (trail->run != link->attempt->begin.run)
                continue;
            size_t n = ret->n;
            for (size_t c = 0; rc == 0 && c < trail->n; c++)
                rc = add_cell(ret, link, trail->pass, &trail->cells[c]);
            ret->has_contents |= ret->n > n && trail->has_contents;
            ret->has_positions |= ret->n > n && !trail->has_contents;
        }
    }
    if (ret->n > 0)
        qsort(ret->all, ret->n, sizeof(ret->all[0]), by_place);
    return rc;
}

/* The parts of one side from *i on that begin before `end`, which they may move. */
struct group {
    uint64_t sum, n;
    bool is_known;
};

static bool absorb(const struct parts *parts, size_t *i, uint64_t pass, uint64_t *end,
                   struct group *group)
{
    size_t first = *i;
    for (; *i < parts->n && parts->all[*i].pass == pass && parts->all[*i].first < *end;
         ++*i) {
        const struct part *part = &parts->all[*i];
        group->sum += part->sum;
        group->n += part->end - part->first;
        group->is_known = group->is_known && part->is_known;
        *end = larger(*end, part->end);
    }
    return *i > first;
}

static void place_item(const struct stg_history *history, uint64_t pass, uint64_t item,
                       struct stg_history_place *ret)
{
    const struct stg_audit *audit = history->audit;
    const struct stg_history_link *link = NULL;
    for (size_t i = 0; i < history->n; i++) {
        if (is_in_window(&history->links[i], pass, item))
            link = &history->links[i];
    }
    if (link == NULL)
        return;
    ret->attempt = link->attempt->begin.attempt;
    for (size_t i = 0; i < audit->n_shares; i++) {
        const struct stg_audit_share *share = &audit->shares[i];
        if (!is_of(share, link->attempt) || share->pass != pass)
            continue;
        if (has_item(&share->acknowledged.set, item) ||
            (ret->client == NULL && has_item(&share->delivered.set, item)))
            ret->client = share->client;
    }
}

/* Compares the next items that neither side has a smaller part of. Returns whether they
 * differ. */
static bool differs(const struct parts *a, const struct parts *b, size_t *i, size_t *k,
                    struct stg_history_difference *ret)
{
    const struct part *x = &a->all[*i], *y = &b->all[*k];
    const struct part *first = by_place(x, y) <= 0 ? x : y;
    struct group of_a = {.is_known = true}, of_b = {.is_known = true};
    uint64_t end = first->end;
    bool more = true;
    ret->pass = first->pass;
    ret->first = first->first;
    while (more) {
        more = absorb(a, i, first->pass, &end, &of_a);
        more |= absorb(b, k, first->pass, &end, &of_b);
    }
    ret->end = end;
    ret->a.is_there = of_a.n > 0;
    ret->b.is_there = of_b.n > 0;
    if (!of_a.is_known || !of_b.is_known)
        return false;
    if (of_a.sum != of_b.sum || of_a.n != of_b.n)
        return true;
    ret->n_items += of_a.n;
    return false;
}

static int check_kinds(const struct parts *a, const struct parts *b, struct stg_err *err)
{
    bool has_contents = a->has_contents || b->has_contents;
    bool has_positions = a->has_positions || b->has_positions;
    return has_contents && has_positions
               ? stg_err(err, -STAGER_FAILED_PRECONDITION,
                         "one run has hashes of the tensors, and the other one of "
                         "positions alone: apply both pipelines with `audit: contents`, "
                         "or neither")
               : 0;
}

int stg_history_compare(const struct stg_history *a, const struct stg_history *b,
                        struct stg_history_difference *ret, struct stg_err *err)
{
    struct parts of_a = {0}, of_b = {0};
    size_t i = 0, k = 0;
    *ret = (struct stg_history_difference){0};
    int rc = collect(a, &of_a);
    if (rc == 0)
        rc = collect(b, &of_b);
    if (rc < 0)
        no_memory(err);
    if (rc == 0)
        rc = check_kinds(&of_a, &of_b, err);
    while (rc == 0 && !ret->is_different && i < of_a.n && k < of_b.n)
        ret->is_different = differs(&of_a, &of_b, &i, &k, ret);
    ret->has_contents = of_a.has_contents;
    if (ret->is_different) {
        place_item(a, ret->pass, ret->first, &ret->a);
        place_item(b, ret->pass, ret->first, &ret->b);
    }
    free(of_a.all);
    free(of_b.all);
    return rc;
}
