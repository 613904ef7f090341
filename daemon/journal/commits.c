/* SPDX-License-Identifier: Apache-2.0
 *
 * A record is one line between two line feeds, so that a damaged byte spoils one record:
 *
 *   c1 SUM commit ATTEMPT TIME_NS TAG =LANE =CLIENT STATE
 *   c1 SUM attempt ATTEMPT =LANE
 *
 * SUM is the hash of what follows it. Names are escaped as in URLs.
 */
#include "daemon/journal/commits.h"

#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/record/line.h"

#define MARK "c1 "

/* ---- the table ---- */

static void free_commits(struct stg_lane *lane)
{
    struct stg_commit *next;
    for (struct stg_commit *c = lane->first; c != NULL; c = next) {
        next = c->next;
        free(c);
    }
    lane->first = lane->last = NULL;
    lane->n = 0;
}

static void free_lane(struct stg_lane *lane)
{
    free_commits(lane);
    free(lane);
}

struct stg_commit *stg_commit_create(const struct stg_commit *head,
                                     const struct stg_state *state)
{
    char text[STG_STATE_TEXT_BYTES];
    size_t n = stg_state_write(state, text);
    struct stg_commit *commit = calloc(1, sizeof(*commit) + n + 1);
    if (commit == NULL)
        return NULL;
    memcpy(commit, head, sizeof(*commit));
    commit->pass = state->pass;
    commit->position = state->place.elements;
    memcpy(commit->state, text, n + 1);
    return commit;
}

void stg_commits_finish(struct stg_commits *commits)
{
    while (commits->lanes != NULL) {
        struct stg_lane *lane = commits->lanes;
        commits->lanes = lane->next;
        free_lane(lane);
    }
    *commits = (struct stg_commits){0};
}

struct stg_lane *stg_commits_find(const struct stg_commits *commits, const char *name)
{
    for (struct stg_lane *lane = commits->lanes; lane != NULL; lane = lane->next) {
        if (strcmp(lane->name, name) == 0)
            return lane;
    }
    return NULL;
}

/* Returns where the lane stands that was not used for longest, of those with commits or
 * of those without, and not that of the pipeline. */
static struct stg_lane **find_unused(struct stg_commits *commits, bool with_commits)
{
    struct stg_lane **oldest = NULL;
    for (struct stg_lane **at = &commits->lanes; *at != NULL; at = &(*at)->next) {
        if (((*at)->n > 0) == with_commits && (*at)->name[0] != '\0' &&
            (oldest == NULL || (*at)->used < (*oldest)->used))
            oldest = at;
    }
    return oldest;
}

static void forget_one(struct stg_commits *commits)
{
    struct stg_lane **oldest = find_unused(commits, false), *lane = *oldest;
    *oldest = lane->next;
    commits->n_lanes--;
    free_lane(lane);
}

/* Its attempt stays, so that a stream of an older one commits nothing. */
static void forget_commits(struct stg_commits *commits)
{
    free_commits(*find_unused(commits, true));
    commits->n_used--;
}

struct stg_lane *stg_commits_lane(struct stg_commits *commits, const char *name)
{
    struct stg_lane *lane = stg_commits_find(commits, name);
    if (lane == NULL) {
        lane = calloc(1, sizeof(*lane));
        if (lane == NULL)
            return NULL;
        if (commits->n_lanes == STG_COMMITS_NAMES)
            forget_one(commits);
        snprintf(lane->name, sizeof(lane->name), "%s", name);
        struct stg_lane **at = &commits->lanes;
        while (*at != NULL)
            at = &(*at)->next;
        *at = lane;
        commits->n_lanes++;
    }
    lane->used = ++commits->clock;
    return lane;
}

const struct stg_commit *stg_lane_find(const struct stg_lane *lane, const char *tag)
{
    for (const struct stg_commit *c = lane->first; c != NULL; c = c->next) {
        if (strcmp(c->tag, tag) == 0)
            return c;
    }
    return NULL;
}

static void remove_commit(struct stg_lane *lane, const struct stg_commit *commit)
{
    struct stg_commit *before = NULL, *c = lane->first;
    while (c != commit) {
        before = c;
        c = c->next;
    }
    if (before != NULL)
        before->next = c->next;
    else
        lane->first = c->next;
    if (lane->last == c)
        lane->last = before;
    lane->n--;
    free(c);
}

/* The attempt of a lane never falls. */
static void note_attempt(struct stg_commits *commits, struct stg_lane *lane,
                         uint64_t attempt)
{
    if (attempt > lane->attempt)
        lane->attempt = attempt;
    if (attempt > commits->attempt)
        commits->attempt = attempt;
}

uint64_t stg_lane_begin(struct stg_commits *commits, struct stg_lane *lane)
{
    note_attempt(commits, lane, commits->attempt + 1);
    return lane->attempt;
}

void stg_lane_put(struct stg_commits *commits, struct stg_lane *lane,
                  struct stg_commit *commit)
{
    if (lane->n == 0 && commits->n_used++ == STG_COMMITS_LANES)
        forget_commits(commits);
    const struct stg_commit *same = stg_lane_find(lane, commit->tag);
    if (same != NULL)
        remove_commit(lane, same);
    else if (lane->n == STG_COMMITS_TAGS)
        remove_commit(lane, lane->first);
    commit->next = NULL;
    if (lane->last != NULL)
        lane->last->next = commit;
    else
        lane->first = commit;
    lane->last = commit;
    lane->n++;
    lane->used = ++commits->clock;
    note_attempt(commits, lane, commit->attempt);
}

static bool is_tag(const char *tag)
{
    size_t n = 0;
    for (; tag[n] != '\0'; n++) {
        if (n == STG_TAG_MAX_BYTES || tag[n] <= ' ' || tag[n] > '~')
            return false;
    }
    return n > 0;
}

int stg_commits_check_tag(const char *tag, struct stg_err *err)
{
    return is_tag(tag) ? 0
                       : stg_err(err, -STAGER_INVALID_ARGUMENT,
                                 "not a tag of a commit: use 1 to %d printable ASCII "
                                 "characters without a space",
                                 STG_TAG_MAX_BYTES);
}

/* ---- writing ---- */

#define ESCAPED_BYTES STG_LINE_NAME_BYTES(STG_LANE_MAX_BYTES)
#define WITHOUT_STATE_BYTES (STG_COMMITS_LINE_BYTES - STG_STATE_TEXT_BYTES)
static_assert(WITHOUT_STATE_BYTES > 2 * ESCAPED_BYTES + STG_TAG_MAX_BYTES + 128,
              "every line fits");

#define HEAD_BYTES STG_LINE_HEAD_BYTES

size_t stg_commits_write_commit(const char *lane, const struct stg_commit *commit,
                                char *buf)
{
    char name[ESCAPED_BYTES], client[ESCAPED_BYTES];
    stg_line_escape(lane, name);
    stg_line_escape(commit->client, client);
    int n = snprintf(buf + 1 + HEAD_BYTES, STG_COMMITS_LINE_BYTES - HEAD_BYTES - 2,
                     "commit %" PRIu64 " %" PRIu64 " %s %s %s %s", commit->attempt,
                     commit->time_ns, commit->tag, name, client, commit->state);
    return stg_line_finish(buf, (size_t)n, MARK);
}

size_t stg_commits_write_attempt(const char *lane, uint64_t attempt, char *buf)
{
    char name[ESCAPED_BYTES];
    stg_line_escape(lane, name);
    int n = snprintf(buf + 1 + HEAD_BYTES, STG_COMMITS_LINE_BYTES - HEAD_BYTES - 2,
                     "attempt %" PRIu64 " %s", attempt, name);
    return stg_line_finish(buf, (size_t)n, MARK);
}

char *stg_commits_write(const struct stg_commits *commits, size_t *ret_bytes)
{
    size_t n_bytes = STG_COMMITS_LINE_BYTES, n = 0;
    for (const struct stg_lane *lane = commits->lanes; lane != NULL; lane = lane->next) {
        n_bytes += WITHOUT_STATE_BYTES;
        for (const struct stg_commit *c = lane->first; c != NULL; c = c->next)
            n_bytes += strlen(c->state) + WITHOUT_STATE_BYTES;
    }
    char *text = malloc(n_bytes);
    if (text == NULL)
        return NULL;
    for (const struct stg_lane *lane = commits->lanes; lane != NULL; lane = lane->next) {
        for (const struct stg_commit *c = lane->first; c != NULL; c = c->next)
            n += stg_commits_write_commit(lane->name, c, text + n);
        if (lane->n > 0 && lane->attempt > lane->last->attempt)
            n += stg_commits_write_attempt(lane->name, lane->attempt, text + n);
    }
    *ret_bytes = n;
    return text;
}

/* ---- reading ---- */

static bool take_tag(struct stg_words *words, char ret[STG_TAG_MAX_BYTES + 1])
{
    const char *word;
    size_t n = stg_words_next(words, &word);
    if (n == 0 || n > STG_TAG_MAX_BYTES)
        return false;
    memcpy(ret, word, n);
    ret[n] = '\0';
    return is_tag(ret);
}

/* Each returns 1 if the words are a record, 0 if not. */
static int apply_attempt(struct stg_commits *commits, struct stg_words words,
                         struct stg_err *err)
{
    char name[STG_LANE_MAX_BYTES + 1];
    uint64_t attempt;
    if (!stg_words_number(&words, &attempt) ||
        !stg_words_name(&words, name, sizeof(name)))
        return 0;
    struct stg_lane *lane = stg_commits_lane(commits, name);
    if (lane == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    note_attempt(commits, lane, attempt);
    return 1;
}

static bool take_commit(struct stg_words *words, char *lane, struct stg_commit *ret,
                        struct stg_state *ret_state)
{
    return stg_words_number(words, &ret->attempt) &&
           stg_words_number(words, &ret->time_ns) && take_tag(words, ret->tag) &&
           stg_words_name(words, lane, STG_LANE_MAX_BYTES + 1) &&
           stg_words_name(words, ret->client, sizeof(ret->client)) &&
           stg_state_read(words->at, (size_t)(words->end - words->at), ret_state, NULL) ==
               0;
}

static int apply_commit(struct stg_commits *commits, struct stg_words words,
                        struct stg_err *err)
{
    char name[STG_LANE_MAX_BYTES + 1];
    struct stg_commit head = {0};
    struct stg_state state;
    if (!take_commit(&words, name, &head, &state))
        return 0;
    struct stg_commit *commit = stg_commit_create(&head, &state);
    struct stg_lane *lane = commit != NULL ? stg_commits_lane(commits, name) : NULL;
    if (lane == NULL) {
        free(commit);
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    }
    stg_lane_put(commits, lane, commit);
    return 1;
}

static int apply_line(struct stg_commits *commits, const char *line, size_t n,
                      struct stg_err *err)
{
    if (!stg_line_is_right(line, n, MARK))
        return 0;
    struct stg_words words = stg_line_words(line, n), rest = words;
    if (stg_words_is(&rest, "commit"))
        return apply_commit(commits, rest, err);
    rest = words;
    return stg_words_is(&rest, "attempt") ? apply_attempt(commits, rest, err) : 0;
}

int stg_commits_read(struct stg_commits *commits, const char *text, size_t bytes,
                     struct stg_commits_damage *ret, struct stg_err *err)
{
    const char *at = text, *end = text + bytes;
    *ret = (struct stg_commits_damage){.good_bytes = bytes};
    while (at < end) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        bool is_torn = line_end == NULL;
        size_t n = (size_t)((is_torn ? end : line_end) - at);
        int rc = n > 0 ? apply_line(commits, at, n, err) : 1;
        if (rc < 0)
            return rc;
        ret->n_good += n > 0 && rc == 1;
        ret->n_bad += rc == 0 && !is_torn;
        if (rc == 0 && is_torn)
            ret->good_bytes = (size_t)(at - text);
        at += n + !is_torn;
    }
    return 0;
}
