/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stream/stream.h"

#include <stdio.h>
#include <string.h>

int stg_stream_enter(struct stager_stream *stream)
{
    struct stg_err *err = stg_stream_err(stream);
    err->code = 0;
    err->text[0] = '\0';
    if (!stg_guard_holds(stream->guard))
        return stg_err(
            err, -STAGER_FAILED_PRECONDITION,
            "this stream belongs to the parent process: open another one after fork");
    return 0;
}

bool stg_stream_is_ours(const struct stager_stream *stream)
{
    return stream->guard == NULL || stg_guard_holds(stream->guard);
}

void stg_stream_span_end(struct stager_stream *stream, enum stg_span_kind kind,
                         uint64_t began_ns, const struct stager_batch *batch)
{
    struct stg_trace_span span = {
        .begin_ns = began_ns,
        .end_ns = stg_now_ns(),
        .number = batch != NULL ? batch->leased->number : STG_NO_NUMBER,
        .kind = (uint16_t)kind,
    };
    stg_control_note(&stream->control, &span);
}

/* ---- the end of a stream ---- */

/* Everything after the last descriptor gets the same answer. */
int stg_stream_finish(struct stager_stream *stream, int code, const char *text)
{
    stream->finished = code;
    snprintf(stream->final_text, STG_ERR_TEXT_BYTES, "%s", text);
    return stg_err(&stream->err, code, "%s", text);
}

int stg_stream_lose(struct stager_stream *stream)
{
    static const char text[] =
        "stagerd closed the connection; batches in hand stay readable; start stagerd and "
        "open the stream again";
    struct stg_err err;
    stream->is_gone = true;
    stg_err(&err, -STAGER_UNAVAILABLE, "%s", text);
    if (stream->irreproducible[0] != '\0')
        stg_err_append(&err, -STAGER_UNAVAILABLE,
                       " (it cannot go on by itself: batches of pipeline %s are not the "
                       "same in every run: %s)",
                       stream->name, stream->irreproducible);
    return stg_stream_finish(stream, err.code, err.text);
}

/* A pipeline may fail with the same code, and its stagerd lives. */
static bool says_stopped(int code, const char *text)
{
    return code == -STAGER_UNAVAILABLE &&
           strncmp(text, STG_FINAL_STOPPED, strlen(STG_FINAL_STOPPED)) == 0;
}

static bool says_replaced(int code, const char *text)
{
    return code == -STAGER_ABORTED &&
           strncmp(text, STG_FINAL_REPLACED, strlen(STG_FINAL_REPLACED)) == 0;
}

static int read_final(const struct stager_stream *stream, char text[STG_FINAL_TEXT_BYTES])
{
    const struct stg_final *page = &stream->ring.page->final;
    uint32_t code = page->code, bytes = page->text_bytes;
    if (bytes > sizeof(page->text) - 1)
        bytes = sizeof(page->text) - 1;
    memcpy(text, page->text, bytes);
    text[bytes] = '\0';
    return code == 0 || code > STAGER_UNAUTHENTICATED ? -STAGER_UNKNOWN : -(int)code;
}

int stg_stream_take_final(struct stager_stream *stream)
{
    char text[STG_FINAL_TEXT_BYTES];
    int code = read_final(stream, text);
    stream->is_gone = says_stopped(code, text);
    stream->is_replaced = says_replaced(code, text);
    return stg_stream_finish(stream, code, text);
}

bool stg_stream_is_lost(const struct stager_stream *stream)
{
    char text[STG_FINAL_TEXT_BYTES];
    if (!stream->client->broken)
        return false;
    return stream->ring.page->final.code == 0 ||
           says_stopped(read_final(stream, text), text);
}

int stg_stream_why(struct stager_stream *stream, int rc)
{
    if (rc != -STAGER_UNAVAILABLE || !stream->client->broken ||
        stream->ring.page->final.code == 0)
        return rc;
    char text[STG_FINAL_TEXT_BYTES];
    int code = read_final(stream, text);
    return stg_err(&stream->err, code, "%s", text);
}

/* ---- while stagerd is away, or the pipeline was replaced ---- */

static int64_t millis_until(int64_t at_ns)
{
    int64_t left_ns = at_ns - stg_clock_ns();
    return left_ns > 0 ? left_ns / 1000000 : 0;
}

static int say_follows(struct stager_stream *stream)
{
    const struct stg_reconnect *reconnect = stream->reconnect;
    stg_err(&stream->err, -STAGER_DEADLINE_EXCEEDED,
            "pipeline %s was %s %lld ms ago; the stream opens that version", stream->name,
            stream->final_text,
            (long long)((stg_clock_ns() - reconnect->since_ns) / 1000000));
    if (reconnect->phase >= STG_RECONNECT_OPEN)
        return stg_err_append(
            &stream->err, -STAGER_DEADLINE_EXCEEDED,
            ", which starts, or waits for the other clients (`stagerctl "
            "status`)");
    return reconnect->why[0] != '\0'
               ? stg_err_append(&stream->err, -STAGER_DEADLINE_EXCEEDED, ": %s",
                                reconnect->why)
               : -STAGER_DEADLINE_EXCEEDED;
}

static int say_away(struct stager_stream *stream)
{
    const struct stg_reconnect *reconnect = stream->reconnect;
    if (stream->is_replaced)
        return say_follows(stream);
    int64_t until_ns = reconnect->since_ns + (int64_t)reconnect->limit_ns;
    stg_err(&stream->err, -STAGER_DEADLINE_EXCEEDED, "stagerd has ended %lld ms ago; ",
            (long long)((stg_clock_ns() - reconnect->since_ns) / 1000000));
    if (reconnect->phase >= STG_RECONNECT_OPEN)
        return stg_err_append(&stream->err, -STAGER_DEADLINE_EXCEEDED,
                              "it runs again, and waits for the other clients of "
                              "pipeline %s to reconnect (`stagerctl status`)",
                              stream->name);
    return stg_err_append(
        &stream->err, -STAGER_DEADLINE_EXCEEDED,
        "waiting for it to start again; %lld ms of daemon_reconnect_millis left%s%s",
        (long long)millis_until(until_ns), reconnect->why[0] != '\0' ? ": " : "",
        reconnect->why);
}

/* ---- what a late stream waits for ---- */

/* stagerd is asked on the stream's own socket. How long an answer is waited for; how
 * often the question is put; and how often when there was no answer. */
#define ANSWER_NS 25000000
#define ASK_NS 100000000
#define ASK_AGAIN_NS 1000000000

static void ask(struct stager_stream *stream, int64_t now_ns)
{
    struct stg_request request = {.kind = STG_REQUEST_WHY};
    struct stg_reply reply = {0};
    stream->why[0] = '\0';
    int rc =
        stg_client_call(stream->client, &request, ANSWER_NS, &reply, NULL, 0, NULL, NULL);
    stream->ask_why_ns = now_ns + (rc == 0 ? ASK_NS : ASK_AGAIN_NS);
    if (rc == 0 && reply.text != NULL)
        snprintf(stream->why, STG_ERR_TEXT_BYTES, "%s", reply.text);
}

/* A poll that takes each batch as it comes finds the ring empty before each of them, and
 * shall not pay for it. */
static bool is_worth_asking(const struct stager_stream *stream, int64_t timeout_millis,
                            int64_t now_ns)
{
    return now_ns >= stream->ask_why_ns &&
           (timeout_millis > 0 || now_ns - stream->dry_since_ns >= ASK_NS);
}

int stg_stream_say_late(struct stager_stream *stream, int64_t timeout_millis)
{
    if (stream->reconnect != NULL && stream->reconnect->since_ns != 0)
        return say_away(stream);
    int64_t now_ns = stg_clock_ns();
    if (stream->client != NULL && is_worth_asking(stream, timeout_millis, now_ns))
        ask(stream, now_ns);
    /* The doorbell of a batch that came meanwhile was taken with the answer. */
    if (stg_ring_ready(&stream->ring))
        return 0;
    return stg_err(&stream->err, -STAGER_DEADLINE_EXCEEDED,
                   "no batch of pipeline %s within %lld ms%s%s", stream->name,
                   (long long)timeout_millis, stream->why[0] != '\0' ? ": " : "",
                   stream->why);
}
