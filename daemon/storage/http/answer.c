/* SPDX-License-Identifier: Apache-2.0
 *
 * Interprets a server's answer to a fetch. The code trusts nothing in the answer: it
 * checks lengths against the request, truncates texts and makes them printable.
 */
#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "daemon/storage/http/fetch_priv.h"
#include "daemon/storage/http/hdfs.h"
#include "daemon/storage/http/s3.h"
#include "daemon/storage/storage.h"

#define MAX_RETRY_AFTER_S 60
#define REASON_BYTES 300
#define MAX_RANGE_BYTES (1u << 30) /* of remote.range_size */

static const char *shown(const struct stg_fetch *fetch)
{
    return fetch->plan.object->shown;
}

/* ---- headers ---- */

/* Returns the value of the header `name` without the spaces around it; NULL if the line
 * is another header. */
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

/* Copies a value. A value that is too long, or has a NUL, becomes "": a part of it would
 * be useless. */
static void keep(char *to, size_t size, const char *value, size_t bytes)
{
    if (bytes >= size || memchr(value, '\0', bytes) != NULL)
        bytes = 0;
    memcpy(to, value, bytes);
    to[bytes] = '\0';
}

/* Parses a content-range: "bytes 0-99/1234", or "bytes * /0" without the last space. */
static void take_range(struct stg_head *head, const char *value, size_t bytes)
{
    char text[128];
    uint64_t from, to, size;
    keep(text, sizeof(text), value, bytes);
    if (sscanf(text, "bytes %" SCNu64 "-%" SCNu64 "/%" SCNu64, &from, &to, &size) == 3 &&
        from <= to && to < size) {
        head->has_range = head->has_size = true;
        head->from = from;
        head->last = to;
        head->size = size;
    } else if (sscanf(text, "bytes */%" SCNu64, &size) == 1) {
        head->has_size = true;
        head->size = size;
    }
}

size_t stg_answer_header(char *line, size_t size, size_t n, void *userdata)
{
    struct stg_fetch *fetch = userdata;
    struct stg_answer *answer = &fetch->answer;
    size_t bytes = size * n, m;
    struct stg_version *version = &answer->head.version;
    const char *value;
    /* Headers after the body (trailers) do not describe it. */
    if (answer->judged)
        return bytes;
    /* A status line begins a new answer: forget a redirection or an interim answer. */
    if (bytes > 5 && memcmp(line, "HTTP/", 5) == 0)
        *answer = (struct stg_answer){0};
    else if ((value = value_of(line, bytes, "etag", &m)) != NULL)
        keep(version->etag, sizeof(version->etag), value, m);
    else if ((value = value_of(line, bytes, "last-modified", &m)) != NULL)
        keep(version->modified, sizeof(version->modified), value, m);
    else if ((value = value_of(line, bytes, "content-range", &m)) != NULL)
        take_range(&answer->head, value, m);
    else if ((value = value_of(line, bytes, "retry-after", &m)) != NULL && m > 0 &&
             isdigit((unsigned char)value[0])) {
        uint64_t seconds = strtoull(value, NULL, 10);
        answer->retry_after_ms =
            1000 * (seconds < MAX_RETRY_AFTER_S ? seconds : MAX_RETRY_AFTER_S);
    }
    return bytes;
}

/* ---- refusals ---- */

/* Writes the server's reason for a refusal: S3 sends it in XML, WebHDFS in JSON. Uses
 * only the code and the message, because other fields repeat the request. */
static void reason(const struct stg_answer *answer, char *buf, size_t bytes)
{
    char code[64], message[REASON_BYTES];
    const char *said = answer->said;
    size_t n = answer->n_said;
    stg_s3_refusal(said, n, code, sizeof(code), message, sizeof(message));
    if (code[0] == '\0' && message[0] == '\0')
        stg_hdfs_refusal(said, n, code, sizeof(code), message, sizeof(message));
    stg_storage_make_printable(code);
    stg_storage_make_printable(message);
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
    const char *advice = answer->head.status == 401 || answer->head.status == 403
                             ? fetch->plan.object->advice
                             : NULL;
    reason(answer, why, sizeof(why));
    fetch->failed = stg_err(
        &fetch->failure, code_of(answer->head.status),
        "%s: the server answered %ld%s%s%s%s", shown(fetch), answer->head.status, why,
        advice != NULL ? "; " : "", advice != NULL ? advice : "",
        answer->head.status / 100 == 3
            ? " (stagerd does not follow this redirection: use the URL that it leads to)"
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

static void replaced_size(struct stg_fetch *fetch)
{
    const struct stg_progress *progress = &fetch->progress;
    char was[48], now[48];
    snprintf(was, sizeof(was), "%s%" PRIu64, progress->version.known ? "" : "at least ",
             progress->version.known ? progress->version.size : progress->most_n);
    snprintf(now, sizeof(now), "%" PRIu64, progress->got.size);
    replaced(fetch, "its length", was,
             progress->got.size == STG_SIZE_LARGER ? "larger" : now);
}

static void other_range(struct stg_fetch *fetch)
{
    fetch->failed = stg_err(&fetch->failure, -STAGER_UNAVAILABLE,
                            "%s: the server answered a request from offset %" PRIu64
                            " with status 206 and another range",
                            shown(fetch), stg_progress_from(&fetch->progress));
    fetch->again = true;
}

static void no_ranges(struct stg_fetch *fetch)
{
    const struct stg_progress *progress = &fetch->progress;
    uint64_t size = progress->version.known ? progress->version.size : progress->got.size;
    char raise[64] = "raise remote.range_size";
    if (size > MAX_RANGE_BYTES)
        raise[0] = '\0';
    else if (size > 0)
        snprintf(raise, sizeof(raise), "raise remote.range_size to %" PRIu64, size);
    fetch->failed = stg_err(
        &fetch->failure, -STAGER_UNIMPLEMENTED,
        "%s: the server does not support ranges (status 200 instead of 206), and the "
        "object has more than the %" PRIu64
        " bytes that stagerd reads without them: %s%suse a server that supports ranges",
        shown(fetch), fetch->plan.end - fetch->plan.begin, raise,
        raise[0] != '\0' ? ", or " : "");
}

static void truncate(struct stg_fetch *fetch)
{
    const struct stg_progress *progress = &fetch->progress;
    fetch->failed = stg_err(&fetch->failure, -STAGER_UNAVAILABLE,
                            "%s: the answer ended after %" PRIu64 " of %" PRIu64 " bytes",
                            shown(fetch), progress->n, progress->end - progress->begin);
    fetch->again = true;
}

static const char *or_none(const char *text)
{
    return text[0] != '\0' ? text : "none";
}

static void fail(struct stg_fetch *fetch, enum stg_verdict verdict)
{
    const struct stg_version *was = &fetch->progress.version, *now = &fetch->progress.got;
    switch (verdict) {
    case STG_VERDICT_GO:
    case STG_VERDICT_BROKEN: return;
    case STG_VERDICT_SHORT: truncate(fetch); return;
    case STG_VERDICT_OTHER_RANGE: other_range(fetch); return;
    case STG_VERDICT_REFUSED: refuse(fetch); return;
    case STG_VERDICT_NO_RANGES: no_ranges(fetch); return;
    case STG_VERDICT_TOO_MUCH:
        fetch->failed =
            stg_err(&fetch->failure, -STAGER_DATA_LOSS,
                    "%s: the server sent more bytes than requested", shown(fetch));
        return;
    case STG_VERDICT_OTHER_ETAG:
        replaced(fetch, "its ETag", or_none(was->etag),
                 fetch->progress.status == 412 ? "another" : or_none(now->etag));
        return;
    case STG_VERDICT_OTHER_TIME:
        replaced(fetch, "its time", or_none(was->modified), or_none(now->modified));
        return;
    case STG_VERDICT_OTHER_SIZE: replaced_size(fetch); return;
    }
}

/* ---- heads ---- */

static bool knows_status(struct stg_fetch *fetch)
{
    long *status = &fetch->answer.head.status;
    return *status != 0 ||
           (curl_easy_getinfo(fetch->easy, CURLINFO_RESPONSE_CODE, status) == CURLE_OK &&
            *status != 0);
}

/* Judges the head of an answer. Call it when status and headers have arrived and, for a
 * refusal, the server's text. */
static void judge(struct stg_fetch *fetch)
{
    struct stg_head *head = &fetch->answer.head;
    curl_off_t length = -1;
    if (curl_easy_getinfo(fetch->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length) ==
            CURLE_OK &&
        length >= 0) {
        head->has_length = true;
        head->length = (uint64_t)length;
    }
    fetch->answer.judged = true;
    enum stg_verdict verdict = stg_progress_head(&fetch->progress, head);
    fail(fetch, verdict);
    if (verdict == STG_VERDICT_GO && stg_progress_says_which(&fetch->progress))
        stg_fetch_answered(fetch);
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

static void take_bytes(struct stg_fetch *fetch, const char *bytes, size_t n)
{
    uint64_t skip, at, take;
    enum stg_verdict verdict = stg_progress_body(&fetch->progress, n, &skip, &at, &take);
    if (verdict != STG_VERDICT_GO) {
        fail(fetch, verdict);
        return;
    }
    assert(skip + take == n && at + take <= fetch->plan.chunk->capacity);
    if (take == 0)
        return;
    memcpy(fetch->plan.chunk->data + at, bytes + skip, take);
    stg_fetch_came(fetch);
}

size_t stg_answer_body(char *bytes, size_t size, size_t n, void *userdata)
{
    struct stg_fetch *fetch = userdata;
    struct stg_answer *answer = &fetch->answer;
    if (!knows_status(fetch) ||
        atomic_load_explicit(&fetch->cancelled, memory_order_relaxed))
        return CURL_WRITEFUNC_ERROR;
    if (answer->head.status != 200 && answer->head.status != 206) {
        take_said(answer, bytes, size * n);
        return size * n;
    }
    if (!answer->judged)
        judge(fetch);
    if (fetch->failed == 0)
        take_bytes(fetch, bytes, size * n);
    return fetch->failed == 0 ? size * n : CURL_WRITEFUNC_ERROR;
}

bool stg_answer_end(struct stg_fetch *fetch, bool clean)
{
    struct stg_answer *answer = &fetch->answer;
    answer->said[answer->n_said] = '\0';
    if (clean && !answer->judged && knows_status(fetch))
        judge(fetch);
    if (fetch->failed < 0)
        return false;
    enum stg_verdict verdict = stg_progress_end(&fetch->progress, clean);
    if (verdict != STG_VERDICT_GO) {
        fail(fetch, verdict);
        return false;
    }
    stg_fetch_answered(fetch);
    stg_fetch_came(fetch);
    return true;
}
