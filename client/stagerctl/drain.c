/* SPDX-License-Identifier: Apache-2.0
 *
 * drain: ends the admission of clients and applies, and waits until no client is left.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/stagerctl/command.h"
#include "core/clock.h"

#define TURN_NS 200000000
#define NS_PER_S UINT64_C(1000000000)

static const char *plural(uint32_t n)
{
    return n == 1 ? "" : "s";
}

static void show_progress(const struct stg_reply *reply, uint64_t waited_ns)
{
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\rdraining: %" PRIu32 " client%s left, %" PRIu64 " s\033[K",
                reply->n_consumers, plural(reply->n_consumers), waited_ns / NS_PER_S);
}

static void end_progress(void)
{
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K");
}

static int not_drained(const struct stg_reply *reply, uint64_t waited_ns)
{
    char text[512];
    snprintf(
        text, sizeof(text),
        "%" PRIu32 " client%s left after %" PRIu64
        " s, of pipeline %.64s%s; stagerd goes on draining: `stagerctl status` shows "
        "the clients, `stagerctl drain` waits again, `stagerctl drain --disable` "
        "ends it",
        reply->n_consumers, reply->n_consumers == 1 ? " is" : "s are",
        waited_ns / NS_PER_S, reply->name, reply->n_consumers > 1 ? " and others" : "");
    return stg_ctl_fail(
        stg_ctl_interrupted() ? -STAGER_CANCELLED : -STAGER_DEADLINE_EXCEEDED, text);
}

static int print(const struct stg_ctl_options *options, const struct stg_reply *reply,
                 uint64_t waited_ns)
{
    if (options->json) {
        struct stg_json_writer json = stg_ctl_json();
        stg_json_object_begin(&json);
        stg_json_put_bool(&json, "draining", !options->disable);
        stg_json_put_uint(&json, "clients", reply->n_consumers);
        stg_json_key(&json, "waited_seconds");
        stg_json_float(&json, (double)waited_ns / 1e9, STAGER_FLOAT64);
        stg_json_object_end(&json);
        putchar('\n');
    } else if (options->disable) {
        printf("stagerd admits clients and applies\n");
    } else {
        printf("stagerd is drained: no client is left (waited %.1f s)\n",
               (double)waited_ns / 1e9);
    }
    return stg_ctl_finish();
}

static int drain(struct stager *client, const struct stg_ctl_options *options)
{
    uint64_t began = stg_now_ns(), waited = 0;
    uint64_t limit = options->timeout > 0 ? options->timeout * NS_PER_S : UINT64_MAX;
    struct stg_reply reply;
    struct stg_err err = {0};
    for (;;) {
        struct stg_request request = {.kind = STG_REQUEST_DRAIN,
                                      .disable = options->disable};
        int rc = stg_admin_call(client, &request, &reply, &err);
        waited = stg_now_ns() - began;
        if (rc < 0) {
            end_progress();
            return stg_ctl_fail(rc, err.text);
        }
        if (options->disable || reply.n_consumers == 0)
            break;
        if (stg_ctl_interrupted() || waited >= limit) {
            end_progress();
            return not_drained(&reply, waited);
        }
        show_progress(&reply, waited);
        stg_admin_wait(client, (int64_t)(stg_now_ns() + TURN_NS));
    }
    end_progress();
    return print(options, &reply, waited);
}

int stg_ctl_drain(const struct stg_ctl_options *options)
{
    return stg_ctl_run(options, drain);
}
