/* SPDX-License-Identifier: Apache-2.0
 *
 * What a server's answer means for a fetch. Nothing in it is trusted: lengths are
 * checked against what was asked for, texts are cut and made printable.
 */
#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "daemon/storage/fetch_priv.h"

#define MAX_RETRY_AFTER_S 60
#define REASON_BYTES 300

static const char *shown(const struct stg_fetch *fetch)
{
    return fetch->plan.object->shown;
}

/* ---- headers ---- */

/* The value of the header `name`, between spaces; NULL: it is another one. */
static const char *value_of(const char *line, size_t bytes, const char *name,
                            size_t *ret_bytes)
{
    size_t n = strlen(name);
    if (bytes <= n || strncasecmp(line, name, n) != 0 || line[n] != ':')
        return NULL;
    const char *value = line + n + 1, *end = line + bytes;
    while (value < end && isspace((unsigned char)*value))
        value++;
    while (end > value && isspace((unsigned char)end[-1]))
        end--;
    *ret_bytes = (size_t)(end - value);
    return value;
}

/* Too long a value is none: a part of it says nothing. */
static void keep(char *to, size_t size, const char *value, size_t bytes)
{
    if (bytes >= size || memchr(value, '\0', bytes) != NULL)
        bytes = 0;
    memcpy(to, value, bytes);
    to[bytes] = '\0';
}

/* "bytes 0-99/1234", "bytes * /0" (without the space). */
static void take_range(struct stg_answer *answer, const char *value, size_t bytes)
{
    char text[128];
    uint64_t from, to, size;
    keep(text, sizeof(text), value, bytes);
    if (sscanf(text, "bytes %" SCNu64 "-%" SCNu64 "/%" SCNu64, &from, &to, &size) == 3 &&
        from <= to && to < size) {
        answer->has_range = answer->has_size = true;
        answer->from = from;
        answer->size = size;
    } else if (sscanf(text, "bytes */%" SCNu64, &size) == 1) {
        answer->has_size = true;
        answer->size = size;
    }
}

size_t stg_answer_header(char *line, size_t size, size_t n, void *userdata)
{
    struct stg_fetch *fetch = userdata;
    struct stg_answer *answer = &fetch->answer;
    size_t bytes = size * n, m;
    const char *value;
    /* Of a redirection, or of an interim answer, nothing is kept. */
    if (bytes > 5 && memcmp(line, "HTTP/", 5) == 0)
        *answer = (struct stg_answer){0};
    else if ((value = value_of(line, bytes, "etag", &m)) != NULL)
        keep(answer->version.etag, sizeof(answer->version.etag), value, m);
    else if ((value = value_of(line, bytes, "last-modified", &m)) != NULL)
        keep(answer->version.modified, sizeof(answer->version.modified), value, m);
    else if ((value = value_of(line, bytes, "content-range", &m)) != NULL)
        take_range(answer, value, m);
    else if ((value = value_of(line, bytes, "retry-after", &m)) != NULL && m > 0 &&
             isdigit((unsigned char)value[0])) {
        uint64_t seconds = strtoull(value, NULL, 10);
        answer->retry_after_ms =
            1000 * (seconds < MAX_RETRY_AFTER_S ? seconds : MAX_RETRY_AFTER_S);
    }
    return bytes;
}

/* ---- refusals ---- */

/* The text between `open` and the next `close`, printable; false: there is none. */
static bool between(const char *said, const char *open, char close, char *buf,
                    size_t bytes)
{
    const char *from = strstr(said, open);
    if (from == NULL)
        return false;
    from += strlen(open);
    size_t n = strcspn(from, (char[]){close, '\0'});
    if (n >= bytes)
        n = bytes - 1;
    for (size_t i = 0; i < n; i++)
        buf[i] = (char)(isprint((unsigned char)from[i]) ? from[i] : ' ');
    buf[n] = '\0';
    return n > 0;
}

/* S3 says why in XML, WebHDFS in JSON. Only those two fields: others repeat what was
 * sent. */
static void reason(const struct stg_answer *answer, char *buf, size_t bytes)
{
    char code[64] = "", message[REASON_BYTES] = "";
    if (!between(answer->said, "<Code>", '<', code, sizeof(code)))
        between(answer->said, "\"exception\":\"", '"', code, sizeof(code));
    if (!between(answer->said, "<Message>", '<', message, sizeof(message)))
        between(answer->said, "\"message\":\"", '"', message, sizeof(message));
    snprintf(buf, bytes, "%s%s%s%s", code[0] != '\0' || message[0] != '\0' ? ": " : "",
             code, code[0] != '\0' && message[0] != '\0' ? ", " : "", message);
}

static int code_of(long status)
{
    switch (status) {
    case 400: return -STAGER_INVALID_ARGUMENT;
    case 401: return -STAGER_UNAUTHENTICATED;
    case 403: return -STAGER_PERMISSION_DENIED;
    case 404:
    case 410: return -STAGER_NOT_FOUND;
    case 408:
    case 429: return -STAGER_UNAVAILABLE;
    case 501:
    case 505: return -STAGER_UNIMPLEMENTED;
    default: return status >= 500 ? -STAGER_UNAVAILABLE : -STAGER_FAILED_PRECONDITION;
    }
}

static void refuse(struct stg_fetch *fetch)
{
    const struct stg_answer *answer = &fetch->answer;
    char why[REASON_BYTES + 80];
    const char *advice = answer->status == 401 || answer->status == 403
                             ? fetch->plan.object->advice
                             : NULL;
    reason(answer, why, sizeof(why));
    fetch->failed =
        stg_err(&fetch->failure, code_of(answer->status),
                "%s: the server answered %ld%s%s%s%s", shown(fetch), answer->status, why,
                advice != NULL ? "; " : "", advice != NULL ? advice : "",
                answer->status / 100 == 3
                    ? " (a redirection that is not followed: name the place "
                      "that it leads to)"
                    : "");
    fetch->again = fetch->failed == -STAGER_UNAVAILABLE;
}

static void replaced(struct stg_fetch *fetch, const char *what, const char *was,
                     const char *now)
{
    fetch->failed = stg_err(&fetch->failure, -STAGER_DATA_LOSS,
                            "%s: the object was replaced while it was read (%s was %s "
                            "and is now %s): the rest of it is lost",
                            shown(fetch), what, was, now);
}

static void replaced_size(struct stg_fetch *fetch, uint64_t was, uint64_t now)
{
    char a[32], b[32];
    snprintf(a, sizeof(a), "%" PRIu64, was);
    snprintf(b, sizeof(b), "%" PRIu64, now);
    replaced(fetch, "its length", a, b);
}

/* ---- what it is ---- */

static void check_version(struct stg_fetch *fetch)
{
    const struct stg_version *want = &fetch->version, *got = &fetch->answer.version;
    if (!want->known)
        return;
    if (want->etag[0] != '\0' && strcmp(want->etag, got->etag) != 0)
        replaced(fetch, "its ETag", want->etag,
                 got->etag[0] != '\0' ? got->etag : "none");
    else if (want->etag[0] == '\0' && strcmp(want->modified, got->modified) != 0)
        replaced(fetch, "its time", want->modified, got->modified);
    else if (want->size != got->size)
        replaced_size(fetch, want->size, got->size);
}

static void take_version(struct stg_fetch *fetch, uint64_t size)
{
    struct stg_answer *answer = &fetch->answer;
    answer->version.known = true;
    answer->version.size = size;
    check_version(fetch);
    if (fetch->failed < 0)
        return;
    fetch->end = size < fetch->plan.end ? size : fetch->plan.end;
    if (fetch->end < fetch->plan.begin)
        fetch->end = fetch->plan.begin;
    stg_fetch_answered(fetch);
}

static void judge_part(struct stg_fetch *fetch)
{
    const struct stg_answer *answer = &fetch->answer;
    uint64_t want = fetch->plan.begin + fetch->n;
    if (!answer->has_range || answer->from != want) {
        fetch->failed = stg_err(&fetch->failure, -STAGER_UNAVAILABLE,
                                "%s: asked for what comes from offset %" PRIu64
                                " on, the server answered 206 with something else",
                                shown(fetch), want);
        fetch->again = true;
        return;
    }
    take_version(fetch, answer->size);
}

static void no_ranges(struct stg_fetch *fetch)
{
    fetch->failed = stg_err(
        &fetch->failure, -STAGER_UNIMPLEMENTED,
        "%s: the server does not answer ranges (status 200 instead of 206), and the "
        "object has more than the %" PRIu64
        " bytes that are read without them: raise remote.range_size, or use a server "
        "that knows ranges",
        shown(fetch), fetch->plan.end - fetch->plan.begin);
}

/* All of the object, though a part was asked for. A length that is not told is known
 * when all has come. */
static void judge_whole(struct stg_fetch *fetch)
{
    curl_off_t length = -1;
    curl_easy_getinfo(fetch->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    fetch->answer.skip = fetch->n;
    if (fetch->plan.begin > 0 || (length >= 0 && (uint64_t)length > fetch->plan.end))
        no_ranges(fetch);
    else if (length >= 0)
        take_version(fetch, (uint64_t)length);
}

/* WebHDFS answers with those bytes that are there; whose they are was asked before. */
static void judge_query(struct stg_fetch *fetch)
{
    stg_fetch_answered(fetch);
}

/* Nothing was changed since: what is kept will do. */
static void judge_kept(struct stg_fetch *fetch)
{
    fetch->answer.version = fetch->plan.kept;
    fetch->end = fetch->plan.begin;
    stg_fetch_answered(fetch);
}

static void judge_beyond(struct stg_fetch *fetch)
{
    const struct stg_answer *answer = &fetch->answer;
    if (answer->has_size && answer->size == 0 && fetch->plan.begin == 0)
        take_version(fetch, 0);
    else if (fetch->version.known && answer->has_size)
        replaced_size(fetch, fetch->version.size, answer->size);
    else
        refuse(fetch);
}

/* Status and headers are there, and, of a refusal, what was said. */
static void judge(struct stg_fetch *fetch)
{
    struct stg_answer *answer = &fetch->answer;
    bool asked_all =
        fetch->plan.kind == STG_FETCH_ALL || fetch->plan.object->range_in_query;
    answer->judged = true;
    if (answer->status == 206 && !asked_all)
        judge_part(fetch);
    else if (answer->status == 200 && !asked_all)
        judge_whole(fetch);
    else if (answer->status == 200)
        judge_query(fetch);
    else if (answer->status == 304 && fetch->plan.kept.known && fetch->n == 0)
        judge_kept(fetch);
    else if (answer->status == 416)
        judge_beyond(fetch);
    else if (answer->status == 412)
        replaced(fetch, "its ETag", fetch->version.etag, "another");
    else
        refuse(fetch);
}

/* ---- bytes ---- */

static void take_said(struct stg_answer *answer, const char *bytes, size_t n)
{
    size_t room = sizeof(answer->said) - 1 - answer->n_said;
    if (n > room)
        n = room;
    memcpy(answer->said + answer->n_said, bytes, n);
    answer->n_said += n;
}

/* More than there can be: a list that is too long, or an object of unknown length. */
static void too_much(struct stg_fetch *fetch)
{
    if (fetch->plan.kind == STG_FETCH_RANGE && !fetch->plan.object->range_in_query)
        no_ranges(fetch);
    else
        fetch->failed =
            stg_err(&fetch->failure, -STAGER_DATA_LOSS,
                    "%s: the server sent more than was asked for", shown(fetch));
}

static void take_bytes(struct stg_fetch *fetch, const char *bytes, size_t n)
{
    struct stg_answer *answer = &fetch->answer;
    uint64_t skip = answer->skip < n ? answer->skip : n;
    answer->skip -= skip;
    bytes += skip;
    n -= skip;
    if (n > fetch->end - fetch->plan.begin - fetch->n) {
        too_much(fetch);
        return;
    }
    if (n == 0)
        return;
    memcpy(fetch->plan.chunk->data + fetch->n, bytes, n);
    stg_fetch_came(fetch, n);
}

size_t stg_answer_body(char *bytes, size_t size, size_t n, void *userdata)
{
    struct stg_fetch *fetch = userdata;
    struct stg_answer *answer = &fetch->answer;
    if (answer->status == 0)
        curl_easy_getinfo(fetch->easy, CURLINFO_RESPONSE_CODE, &answer->status);
    bool good = answer->status == 200 || answer->status == 206;
    if (atomic_load_explicit(&fetch->cancelled, memory_order_relaxed))
        return CURL_WRITEFUNC_ERROR;
    if (!good) {
        take_said(answer, bytes, size * n);
        return size * n;
    }
    if (!answer->judged)
        judge(fetch);
    if (fetch->failed == 0)
        take_bytes(fetch, bytes, size * n);
    return fetch->failed == 0 ? size * n : CURL_WRITEFUNC_ERROR;
}

static void cut_short(struct stg_fetch *fetch, uint64_t want)
{
    fetch->failed = stg_err(&fetch->failure, -STAGER_UNAVAILABLE,
                            "%s: the answer ended after %" PRIu64 " of %" PRIu64 " bytes",
                            shown(fetch), fetch->n, want);
    fetch->again = true;
}

/* A length that was not told is what came. */
static void check_whole(struct stg_fetch *fetch)
{
    uint64_t want = fetch->end - fetch->plan.begin;
    if (!fetch->answered)
        take_version(fetch, fetch->plan.begin + fetch->n);
    else if (fetch->plan.kind == STG_FETCH_RANGE && fetch->n != want)
        cut_short(fetch, want);
}

bool stg_answer_end(struct stg_fetch *fetch)
{
    struct stg_answer *answer = &fetch->answer;
    if (answer->status == 0)
        curl_easy_getinfo(fetch->easy, CURLINFO_RESPONSE_CODE, &answer->status);
    answer->said[answer->n_said] = '\0';
    if (!answer->judged)
        judge(fetch);
    if (fetch->failed == 0)
        check_whole(fetch);
    return fetch->failed == 0;
}
