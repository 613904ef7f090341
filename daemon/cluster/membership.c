/* SPDX-License-Identifier: Apache-2.0
 *
 * A text is one line:
 *
 *   h1 SUM READY BEGIN PIPELINE =PLACE
 *   g1 SUM NUMBER closed|open BEGIN N =WHY ID...
 */
#include "daemon/cluster/membership.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/fingerprint.h"
#include "core/record/line.h"

#define MEMBER_MARK "h1 "
#define GENERATION_MARK "g1 "

/* ---- values ---- */

void stg_generation_finish(struct stg_generation *generation)
{
    free(generation->members);
    *generation = (struct stg_generation){0};
}

static int compare_ids(const void *a, const void *b)
{
    return strcmp(a, b);
}

int64_t stg_generation_find(const struct stg_generation *generation, const char *id)
{
    const char(*found)[STG_MEMBER_ID_BYTES] =
        generation->n > 0 ? bsearch(id, generation->members, generation->n,
                                    STG_MEMBER_ID_BYTES, compare_ids)
                          : NULL;
    return found != NULL ? found - (const char(*)[STG_MEMBER_ID_BYTES])generation->members
                         : -1;
}

const char *stg_member_name(const char *id, char *buf)
{
    snprintf(buf, STG_MEMBER_ID_BYTES, "%s", id);
    char *dot = strrchr(buf, '.');
    if (dot != NULL)
        *dot = '\0';
    return buf;
}

/* ---- texts ---- */

size_t stg_member_write(const struct stg_member *member, char *buf)
{
    char *payload = buf + 1 + STG_LINE_HEAD_BYTES;
    size_t n = (size_t)snprintf(payload, STG_MEMBER_TEXT_BYTES / 2,
                                "%" PRIu64 " %016" PRIx64 " %016" PRIx64 " ",
                                member->ready, member->begin, member->pipeline);
    n += stg_line_escape(member->place, payload + n);
    return stg_line_finish(buf, n, MEMBER_MARK);
}

char *stg_generation_write(const struct stg_generation *generation, size_t *ret_bytes)
{
    size_t room = 1 + STG_LINE_HEAD_BYTES + 128 +
                  STG_LINE_NAME_BYTES(STG_GENERATION_WHY_BYTES) +
                  (size_t)generation->n * STG_MEMBER_ID_BYTES + 1;
    char *buf = malloc(room);
    if (buf == NULL)
        return NULL;
    char *payload = buf + 1 + STG_LINE_HEAD_BYTES;
    size_t n = (size_t)snprintf(
        payload, 128, "%" PRIu64 " %s %016" PRIx64 " %u ", generation->number,
        generation->is_closed ? "closed" : "open", generation->begin, generation->n);
    n += stg_line_escape(generation->why, payload + n);
    for (uint32_t i = 0; i < generation->n; i++)
        n += (size_t)snprintf(payload + n, STG_MEMBER_ID_BYTES + 1, " %s",
                              generation->members[i]);
    *ret_bytes = stg_line_finish(buf, n, GENERATION_MARK);
    return buf;
}

static bool find_line(const char *text, size_t bytes, const char *mark,
                      struct stg_words *ret)
{
    if (bytes < 2 || text[0] != '\n' || text[bytes - 1] != '\n' ||
        !stg_line_is_right(text + 1, bytes - 2, mark))
        return false;
    *ret = stg_line_words(text + 1, bytes - 2);
    return true;
}

int stg_member_read(const char *text, size_t bytes, const char *id,
                    struct stg_member *ret, struct stg_err *err)
{
    struct stg_words words;
    struct stg_member member = {0};
    if (strlen(id) >= sizeof(member.id) || !find_line(text, bytes, MEMBER_MARK, &words) ||
        !stg_words_number(&words, &member.ready) ||
        !stg_words_hex(&words, &member.begin) ||
        !stg_words_hex(&words, &member.pipeline) ||
        !stg_words_name(&words, member.place, sizeof(member.place)) ||
        words.at != words.end)
        return stg_err(err, -STAGER_DATA_LOSS,
                       "the key of host %.64s is damaged, or of another release of "
                       "stager",
                       id);
    snprintf(member.id, sizeof(member.id), "%s", id);
    *ret = member;
    return 0;
}

/* Takes the ids of the members, which are in order. */
static int read_ids(struct stg_words *words, struct stg_generation *generation)
{
    const char *word;
    generation->members = calloc((size_t)generation->n + 1, STG_MEMBER_ID_BYTES);
    if (generation->members == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    for (uint32_t i = 0; i < generation->n; i++) {
        size_t n = stg_words_next(words, &word);
        if (n == 0 || n >= STG_MEMBER_ID_BYTES)
            return -STAGER_DATA_LOSS;
        memcpy(generation->members[i], word, n);
        if (i > 0 && strcmp(generation->members[i - 1], generation->members[i]) >= 0)
            return -STAGER_DATA_LOSS;
    }
    return words->at == words->end ? 0 : -STAGER_DATA_LOSS;
}

static int read_generation(struct stg_words *words, struct stg_generation *ret)
{
    uint64_t n;
    const char *word;
    if (!stg_words_number(words, &ret->number) || ret->number == 0)
        return -STAGER_DATA_LOSS;
    size_t bytes = stg_words_next(words, &word);
    ret->is_closed = bytes == strlen("closed") && memcmp(word, "closed", bytes) == 0;
    if (!ret->is_closed && !(bytes == strlen("open") && memcmp(word, "open", bytes) == 0))
        return -STAGER_DATA_LOSS;
    if (!stg_words_hex(words, &ret->begin) || !stg_words_number(words, &n) ||
        n > STG_GENERATION_MAX_HOSTS || (n > 0) != ret->is_closed ||
        !stg_words_name(words, ret->why, sizeof(ret->why)))
        return -STAGER_DATA_LOSS;
    ret->n = (uint32_t)n;
    return read_ids(words, ret);
}

int stg_generation_read(const char *text, size_t bytes, struct stg_generation *ret,
                        struct stg_err *err)
{
    struct stg_words words;
    struct stg_generation generation = {0};
    int rc = find_line(text, bytes, GENERATION_MARK, &words)
                 ? read_generation(&words, &generation)
                 : -STAGER_DATA_LOSS;
    if (rc == 0) {
        *ret = generation;
        return 0;
    }
    stg_generation_finish(&generation);
    return stg_err(err, rc, "%s",
                   rc == -STAGER_RESOURCE_EXHAUSTED
                       ? "out of memory"
                       : "the key of the generation is damaged, or of another release "
                         "of stager");
}

/* ---- what has changed ---- */

struct change {
    uint32_t n_left, n_joined, n_again; /* again: members whose trainers began again */
    const char *left, *joined, *again;  /* the first one of each */
    uint32_t n_in;                      /* hosts that are in the generation */
};

static bool is_of(const struct stg_membership_view *view, const struct stg_member *host)
{
    return stg_generation_find(view->generation, host->id) >= 0;
}

/* A new host with another pipeline changes nothing: it is refused. */
static bool may_join(const struct stg_membership_view *view,
                     const struct stg_member *host)
{
    return stg_membership_check(view, host, NULL) == 0;
}

/* Both lists are sorted. */
static struct change find_change(const struct stg_membership_view *view)
{
    const struct stg_generation *generation = view->generation;
    struct change change = {0};
    uint32_t at = 0;
    for (size_t i = 0; i < view->n_hosts; i++) {
        const struct stg_member *host = &view->hosts[i];
        for (; at < generation->n && strcmp(generation->members[at], host->id) < 0; at++)
            change.left = change.n_left++ == 0 ? generation->members[at] : change.left;
        bool is_member =
            at < generation->n && strcmp(generation->members[at], host->id) == 0;
        at += is_member;
        if (host->ready <= generation->number) {
            change.n_in += is_member && host->ready == generation->number;
        } else if (is_member) {
            change.again = change.n_again++ == 0 ? host->id : change.again;
        } else if (may_join(view, host)) {
            change.joined = change.n_joined++ == 0 ? host->id : change.joined;
        }
    }
    for (; at < generation->n; at++)
        change.left = change.n_left++ == 0 ? generation->members[at] : change.left;
    return change;
}

static void name_change(struct stg_err *why, const char *id, uint32_t n, const char *did)
{
    char name[STG_MEMBER_ID_BYTES];
    if (n == 0)
        return;
    stg_err_append(why, why->code, "%shost %s", why->text[0] != '\0' ? ", " : "",
                   stg_member_name(id, name));
    if (n > 1)
        stg_err_append(why, why->code, " and %u more", n - 1);
    stg_err_append(why, why->code, " %s", did);
}

/* ---- deciding ---- */

static uint64_t digest(const struct stg_membership_view *view)
{
    uint64_t sum = view->generation->number * 2 + view->generation->is_closed + 1;
    for (size_t i = 0; i < view->n_hosts; i++) {
        const struct stg_member *host = &view->hosts[i];
        sum = stg_fingerprint64_of(sum, stg_farm_hash(host->id, strlen(host->id)), 16);
        sum = stg_fingerprint64_of(sum, host->ready, 16);
        sum = stg_fingerprint64_of(sum, host->begin, 16);
    }
    return sum != 0 ? sum : 1;
}

/* Returns whether the keys have been the same for long enough. */
static bool is_steady(struct stg_membership_seen *membership,
                      const struct stg_membership_view *view)
{
    uint64_t seen = digest(view);
    if (membership->seen != seen) {
        membership->seen = seen;
        membership->since_millis = view->now_millis;
    }
    return view->now_millis - membership->since_millis >= membership->steady_millis;
}

static enum stg_membership_step leave_closed(const struct stg_membership_view *view,
                                             bool is_steady, struct stg_err *why)
{
    struct change change = find_change(view);
    bool comes = change.n_joined + change.n_again > 0;
    if (change.n_left == 0 && !comes)
        return STG_MEMBERSHIP_KEEP;
    /* No host is in it any more: there is no run to wait for. */
    if (!is_steady && !(change.n_in == 0 && comes))
        return STG_MEMBERSHIP_KEEP;
    stg_err(why, -STAGER_ABORTED, "%s", "");
    name_change(why, change.left, change.n_left, "left");
    name_change(why, change.joined, change.n_joined, "joined");
    name_change(why, change.again, change.n_again, "began again");
    return STG_MEMBERSHIP_OPEN;
}

static int compare(const struct stg_member *a, const struct stg_member *b,
                   struct stg_err *err)
{
    char name[STG_MEMBER_ID_BYTES], other[STG_MEMBER_ID_BYTES];
    stg_member_name(a->id, name);
    stg_member_name(b->id, other);
    if (a->pipeline != b->pipeline)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "host %s and host %s have different pipelines, numbers of "
                       "clients or releases of stager: apply the same pipeline on all "
                       "hosts, and start as many clients on each",
                       name, other);
    if (a->begin != b->begin)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "host %s begins at %s, and host %s at %s: begin at the same "
                       "commit or state on all hosts",
                       name, a->place, other, b->place);
    return 0;
}

static enum stg_membership_step close_open(const struct stg_membership_view *view,
                                           bool is_steady, struct stg_err *why)
{
    char name[STG_MEMBER_ID_BYTES];
    uint64_t coming = stg_membership_coming(view->generation);
    const struct stg_member *first = NULL;
    stg_err(why, -STAGER_UNAVAILABLE, "the hosts of the job gather");
    for (size_t i = 0; i < view->n_hosts; i++) {
        const struct stg_member *host = &view->hosts[i];
        if (host->ready >= coming) {
            first = first != NULL ? first : host;
        } else if (host->ready > 0) {
            stg_err(why, -STAGER_UNAVAILABLE,
                    "the trainers of host %s have not opened the pipeline again",
                    stg_member_name(host->id, name));
            return STG_MEMBERSHIP_KEEP;
        }
    }
    if (first == NULL || !is_steady)
        return STG_MEMBERSHIP_KEEP;
    for (size_t i = 0; i < view->n_hosts; i++) {
        const struct stg_member *host = &view->hosts[i];
        if (host->ready >= coming && compare(first, host, why) < 0)
            return STG_MEMBERSHIP_REFUSE;
    }
    return STG_MEMBERSHIP_CLOSE;
}

enum stg_membership_step stg_membership_decide(struct stg_membership_seen *membership,
                                               const struct stg_membership_view *view,
                                               struct stg_err *why)
{
    bool steady = is_steady(membership, view);
    *why = (struct stg_err){0};
    return view->generation->is_closed ? leave_closed(view, steady, why)
                                       : close_open(view, steady, why);
}

int stg_membership_next(const struct stg_membership_view *view,
                        enum stg_membership_step step, const struct stg_err *why,
                        struct stg_generation *ret, struct stg_err *err)
{
    const struct stg_generation *generation = view->generation;
    struct stg_generation next = {.number = stg_membership_coming(generation)};
    if (step == STG_MEMBERSHIP_OPEN) {
        snprintf(next.why, sizeof(next.why), "%.255s", why->text);
        *ret = next;
        return 0;
    }
    snprintf(next.why, sizeof(next.why), "%s", generation->why);
    next.is_closed = true;
    next.members = calloc(view->n_hosts + 1, STG_MEMBER_ID_BYTES);
    if (next.members == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (size_t i = 0; i < view->n_hosts; i++) {
        const struct stg_member *host = &view->hosts[i];
        if (host->ready < next.number)
            continue;
        next.begin = host->begin;
        memcpy(next.members[next.n++], host->id, STG_MEMBER_ID_BYTES);
    }
    *ret = next;
    return 0;
}

int stg_membership_check(const struct stg_membership_view *view,
                         const struct stg_member *host, struct stg_err *err)
{
    if (!view->generation->is_closed || is_of(view, host))
        return 0;
    for (size_t i = 0; i < view->n_hosts; i++) {
        const struct stg_member *there = &view->hosts[i];
        if (there->ready != view->generation->number || !is_of(view, there))
            continue;
        struct stg_member same = *host;
        same.begin = there->begin;
        return compare(there, &same, err);
    }
    return 0;
}
