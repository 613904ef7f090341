/* SPDX-License-Identifier: Apache-2.0
 *
 * The deadline of stager_next has passed: what does the stream wait for? stagerd knows,
 * and is asked on the stream's own socket. The question never takes long, and is not put
 * often.
 */
#include "client/stream/why.h"

#include <stdio.h>

/* How long an answer is waited for; how often the question is put; and how often when
 * there was no answer. */
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
