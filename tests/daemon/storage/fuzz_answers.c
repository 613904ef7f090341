/* SPDX-License-Identifier: Apache-2.0
 *
 * Sequences of a server's answers, made of arbitrary bytes, through attempt.c, answer.c,
 * progress.c and fetch.c: a complete fetch except the network. The chunk ends where the
 * range ends, so that AddressSanitizer catches a write beyond. Bytes that a reader may
 * already have taken must not change.
 */
#include "tests/daemon/storage/fuzz_answers.h"

#include <assert.h>
#include <curl/curl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/storage/http/attempt.h"
#include "daemon/storage/http/fetcher.h"

#define CHUNK_BYTES 1024u
#define MAX_BODY 3000u

/* ---- the network ---- */

static struct {
    struct stg_fetch *fetch;
    long status;
    int64_t length;
} net;

#undef curl_easy_getinfo

CURLcode __wrap_curl_easy_getinfo(CURL *easy, CURLINFO info, ...);

CURLcode __wrap_curl_easy_getinfo(CURL *easy, CURLINFO info, ...)
{
    va_list args;
    va_start(args, info);
    void *ret = va_arg(args, void *);
    va_end(args);
    if (info == CURLINFO_RESPONSE_CODE)
        *(long *)ret = net.status;
    else if (info == CURLINFO_CONTENT_LENGTH_DOWNLOAD_T)
        *(curl_off_t *)ret = net.length;
    else
        return CURLE_UNKNOWN_OPTION;
    return CURLE_OK;
}

/* ---- the input ---- */

struct input {
    const uint8_t *at, *end;
};

/* Returns 0 at its end. */
static unsigned byte(struct input *input)
{
    return input->at < input->end ? *input->at++ : 0;
}

static unsigned number(struct input *input)
{
    unsigned high = byte(input);
    return high << 8 | byte(input);
}

/* ---- a fetch ---- */

struct reader {
    uint64_t n; /* bytes that the fetch has accepted */
    uint8_t bytes[CHUNK_BYTES];
};

static void look(struct reader *reader, struct stg_fetch *fetch)
{
    const struct stg_progress *progress = &fetch->progress;
    uint64_t n = stg_fetch_there(fetch);
    assert(progress->end <= progress->asked_end && progress->begin <= progress->end);
    assert(progress->n <= progress->end - progress->begin);
    assert(n >= reader->n && n <= progress->n);
    assert(memcmp(reader->bytes, fetch->plan.chunk->data, reader->n) == 0);
    memcpy(reader->bytes + reader->n, fetch->plan.chunk->data + reader->n, n - reader->n);
    reader->n = n;
}

static struct stg_object *object_of(bool in_query)
{
    struct stg_object *object = stg_object_create();
    assert(object != NULL);
    object->url = strdup("http://127.0.0.1/object?a=b");
    object->shown = strdup("http://127.0.0.1/object?…");
    object->range_in_query = in_query;
    return object;
}

static struct stg_fetch *begin(struct input *input)
{
    unsigned flags = byte(input);
    struct stg_fetch_plan plan = {
        .object = object_of((flags & 1) != 0),
        .kind = (flags & 2) != 0 ? STG_FETCH_ALL : STG_FETCH_RANGE,
        .begin = (flags & 6) == 4 ? CHUNK_BYTES : 0,
    };
    plan.end = plan.begin + CHUNK_BYTES;
    if ((flags & 8) != 0 || plan.begin > 0 || (flags & 3) == 1) {
        plan.version.known = true;
        plan.version.size = plan.begin + 1 + number(input) % (2 * CHUNK_BYTES);
        strcpy(plan.version.etag, (flags & 16) != 0 ? "\"a\"" : "");
        strcpy(plan.version.modified, (flags & 32) != 0 ? "now" : "");
        if (plan.end > plan.version.size && plan.kind == STG_FETCH_RANGE)
            plan.end = plan.version.size;
    } else if ((flags & 64) != 0) {
        plan.cached.known = true;
        strcpy(plan.cached.etag, "\"a\"");
    }
    struct stg_quota *quota;
    struct stg_fetch *fetch = NULL;
    int rc = stg_quota_create(0, &quota);
    if (rc == 0)
        rc = stg_chunk_create(quota, plan.end - plan.begin, "", &plan.chunk, NULL);
    assert(rc == 0);
    /* Exactly this size, for the sanitizer. */
    free(plan.chunk->data);
    plan.chunk->data = calloc(1, plan.end - plan.begin);
    assert(plan.chunk->data != NULL);
    rc = stg_fetch_create(&plan, &fetch, NULL);
    assert(rc == 0);
    net.fetch = stg_fetch_ref(fetch);
    stg_quota_unref(quota);
    stg_chunk_unref(plan.chunk);
    stg_object_unref(plan.object);
    return fetch;
}

/* ---- an answer ---- */

static void header(struct stg_fetch *fetch, const char *text, size_t n)
{
    char *line = malloc(n + 1); /* exactly this size */
    assert(line != NULL);
    memcpy(line, text, n);
    stg_answer_header(line, 1, n, fetch);
    free(line);
}

static void known_header(struct input *input, struct stg_fetch *fetch)
{
    static const char *const lines[] = {
        "ETag: \"a\"\r\n",
        "ETag: \"b\"\r\n",
        "etag:\r\n",
        "Last-Modified: now\r\n",
        "Last-Modified: then\r\n",
        "Content-Range: bytes */0\r\n",
        "Retry-After: 3\r\n",
        "Content-Range: bytes 0-9/*\r\n",
        "Content-Range: bytes */5\r\n",
    };
    const char *line = lines[byte(input) % (sizeof(lines) / sizeof(lines[0]))];
    header(fetch, line, strlen(line));
}

/* Usually the requested range. */
static void range_header(struct input *input, struct stg_fetch *fetch)
{
    char line[128];
    uint64_t from = stg_progress_from(&fetch->progress) + (byte(input) % 16 == 15);
    uint64_t last = from + number(input) % (2 * CHUNK_BYTES);
    uint64_t size = last + number(input) % (2 * CHUNK_BYTES);
    int n = snprintf(line, sizeof(line), "Content-Range: bytes %llu-%llu/%llu\r\n",
                     (unsigned long long)from, (unsigned long long)last,
                     (unsigned long long)size);
    header(fetch, line, (size_t)n);
}

static void raw_header(struct input *input, struct stg_fetch *fetch)
{
    size_t n = byte(input), left = (size_t)(input->end - input->at);
    n = n < left ? n : left;
    header(fetch, (const char *)input->at, n);
    input->at += n;
}

static void status(struct input *input, struct stg_fetch *fetch)
{
    static const long codes[] = {200, 206, 206, 200, 304, 412,
                                 416, 404, 503, 100, 302, 1};
    net.status = codes[byte(input) % (sizeof(codes) / sizeof(codes[0]))];
    header(fetch, "HTTP/1.1 200 OK\r\n", 17);
}

/* False: the fetch refuses it. */
static bool body(struct input *input, struct stg_fetch *fetch)
{
    size_t n = number(input) % MAX_BODY;
    char *bytes = malloc(n + 1);
    assert(bytes != NULL);
    memset(bytes, (int)byte(input), n);
    size_t taken = n > 0 ? stg_answer_body(bytes, 1, n, fetch) : 0;
    free(bytes);
    return taken == n;
}

/* Feeds everything received in one attempt. Returns the code that curl would. */
static CURLcode answer(struct input *input, struct stg_fetch *fetch,
                       struct reader *reader)
{
    net.status = 0;
    net.length = -1;
    for (;;) {
        unsigned op = byte(input);
        switch (op % 8) {
        case 0: return op & 128 ? CURLE_OK : CURLE_RECV_ERROR;
        case 1: status(input, fetch); break;
        case 2: known_header(input, fetch); break;
        case 3: range_header(input, fetch); break;
        case 4: raw_header(input, fetch); break;
        case 5: net.length = number(input) % (2 * CHUNK_BYTES); break;
        default:
            if (net.status != 0 && !body(input, fetch))
                return CURLE_WRITE_ERROR;
        }
        look(reader, fetch);
    }
}

static void check_end(struct stg_fetch *fetch, const struct reader *reader)
{
    const struct stg_progress *progress = &fetch->progress;
    if (fetch->failed < 0) {
        assert(fetch->failure.text[0] != '\0');
        return;
    }
    assert(fetch->answered && reader->n == progress->n);
    assert(progress->kind == STG_FETCH_ALL || progress->is_cached ||
           reader->n == progress->end - progress->begin);
    assert(!progress->is_cached || (reader->n == 0 && !progress->version.known));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct stg_remote_settings settings = {
        .connect_timeout_millis = 1000, .stall_timeout_millis = 1000, .retries = 6};
    struct input input = {data, data + size};
    struct reader reader = {0};
    struct stg_fetch *fetch = begin(&input);
    bool over = false;
    while (!over && input.at < input.end) {
        fetch->failed = stg_attempt_begin(fetch, &settings, &fetch->failure);
        assert(fetch->failed == 0);
        look(&reader, fetch);
        over = stg_attempt_end(fetch, answer(&input, fetch, &reader), &settings);
        look(&reader, fetch);
    }
    if (over)
        check_end(fetch, &reader);
    bool complete = over && fetch->failed == 0;
    stg_fetch_unref(net.fetch);
    stg_fetch_unref(fetch);
#ifdef STG_LIBFUZZER
    complete = false; /* libFuzzer keeps no input that returns another value */
#endif
    return complete;
}
