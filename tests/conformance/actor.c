/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/actor.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/stream/stream.h"
#include "tests/check.h"

#define MAX_IN_FLIGHT 16
#define WAIT_MILLIS 30000

enum command_kind {
    COMMAND_NEXT,
    COMMAND_RELEASE,
    COMMAND_REWIND,
    COMMAND_FORGE,
    COMMAND_CLOSE,
    COMMAND_LEAVE,
};

struct command {
    enum command_kind kind;
    int64_t timeout_millis;
    uint64_t number;
};

/* ---- in the actor's process ---- */

struct player {
    int fd;
    struct stager_stream *stream;
    struct stager_batch *held[MAX_IN_FLIGHT];
    uint32_t n_held;
};

static void describe(const struct stager_batch *batch, struct actor_result *ret)
{
    struct stager_batch_info info = {.struct_size = sizeof(info)};
    struct stager_tensor tensor;
    stager_batch_info(batch, &info);
    ret->number = info.number;
    ret->pass = info.pass;
    ret->epoch = info.epoch;
    ret->index = info.index;
    ret->n_dropped = info.n_dropped;
    ret->n_rows = info.n_rows;
    ret->redelivered = info.redelivered != 0;
    if (stager_batch_tensor_at(batch, 0, &tensor) == 0 && tensor.dtype == STAGER_INT64 &&
        tensor.data_bytes >= sizeof(ret->value))
        ret->value = ((const int64_t *)tensor.data)[0];
}

static void play_next(struct player *player, const struct command *command,
                      struct actor_result *ret)
{
    struct stager_batch *batch;
    CHECK(player->n_held < MAX_IN_FLIGHT);
    ret->rc = stager_next(player->stream, command->timeout_millis, &batch);
    if (ret->rc < 0) {
        struct stager_stream_info info = {.struct_size = sizeof(info)};
        stager_stream_info(player->stream, &info);
        ret->over = info.at_end || info.finished;
        return;
    }
    describe(batch, ret);
    player->held[player->n_held++] = batch;
}

static void play_release(struct player *player, uint64_t number)
{
    for (uint32_t i = 0; i < player->n_held; i++) {
        struct stager_batch_info info = {.struct_size = sizeof(info)};
        stager_batch_info(player->held[i], &info);
        if (number != UINT64_MAX && info.number != number)
            continue;
        stager_release(player->held[i]);
        player->n_held--;
        memmove(&player->held[i], &player->held[i + 1],
                (player->n_held - i) * sizeof(player->held[0]));
        return;
    }
    FAIL("the actor does not hold batch %llu", (unsigned long long)number);
}

static void play(struct player *player)
{
    struct command command;
    while (recv(player->fd, &command, sizeof(command), MSG_WAITALL) == sizeof(command)) {
        struct actor_result result = {0};
        switch (command.kind) {
        case COMMAND_NEXT: play_next(player, &command, &result); break;
        case COMMAND_RELEASE: play_release(player, command.number); break;
        case COMMAND_REWIND: result.rc = stager_rewind(player->stream); break;
        case COMMAND_FORGE:
            stg_control_release(&player->stream->control, 12345, 1);
            break;
        case COMMAND_CLOSE:
        case COMMAND_LEAVE:
            stager_close(player->stream);
            player->stream = NULL;
            break;
        }
        result.held = player->n_held;
        if (result.rc < 0)
            snprintf(result.text, sizeof(result.text), "%s",
                     stager_error_text(player->stream));
        CHECK(send(player->fd, &result, sizeof(result), MSG_NOSIGNAL) == sizeof(result));
        if (command.kind == COMMAND_LEAVE)
            return;
    }
}

static void actor_body(struct fixture *fixture, int fd, void *arg)
{
    const struct actor_options *options = arg;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves no actor behind */
    struct stager_options open = {
        .struct_size = sizeof(open),
        .client_id = options->client_id,
        .runtime_dir = fixture->runtime,
        .max_in_flight = options->max_in_flight,
        .manual_ack = options->manual_ack,
        .daemon_reconnect_millis =
            STAGER_NEVER, /* tests of restarts are in tests/system */
    };
    struct player player = {.fd = fd};
    struct actor_result result = {0};
    result.rc = stager_open(NULL, options->pipeline != NULL ? options->pipeline : "rows",
                            &open, &player.stream);
    if (result.rc < 0)
        snprintf(result.text, sizeof(result.text), "%s", stager_error_text(NULL));
    CHECK(send(fd, &result, sizeof(result), MSG_NOSIGNAL) == sizeof(result));
    if (result.rc == 0)
        play(&player);
}

/* ---- in the test ---- */

static void order(struct actor *actor, const struct command *command)
{
    CHECK(!actor->busy);
    CHECK(send(actor->trainer.fd, command, sizeof(*command), MSG_NOSIGNAL) ==
          sizeof(*command));
    actor->busy = true;
}

bool actor_answered(struct actor *actor, int millis)
{
    struct pollfd fd = {.fd = actor->trainer.fd, .events = POLLIN};
    return poll(&fd, 1, millis) == 1;
}

struct actor_result actor_end(struct actor *actor)
{
    struct actor_result result;
    CHECK(actor->busy);
    actor->busy = false;
    if (!actor_answered(actor, (int)fixture_millis(WAIT_MILLIS)))
        FAIL("actor %d does not answer", (int)actor->trainer.pid);
    if (recv(actor->trainer.fd, &result, sizeof(result), MSG_WAITALL) != sizeof(result))
        FAIL("actor %d is gone", (int)actor->trainer.pid);
    return result;
}

static struct actor_result ask(struct actor *actor, const struct command *command)
{
    order(actor, command);
    return actor_end(actor);
}

struct actor_result actor_try_start(struct actor *actor, struct fixture *fixture,
                                    const struct actor_options *options)
{
    static const struct actor_options defaults;
    trainer_start(&actor->trainer, actor_body, fixture,
                  (void *)(uintptr_t)(options != NULL ? options : &defaults));
    actor->busy = true; /* the reply to the open */
    struct actor_result result = actor_end(actor);
    if (result.rc < 0)
        trainer_join(&actor->trainer);
    return result;
}

void actor_start(struct actor *actor, struct fixture *fixture,
                 const struct actor_options *options)
{
    struct actor_result result = actor_try_start(actor, fixture, options);
    if (result.rc < 0)
        FAIL("open: %s", result.text);
}

void actor_begin_next(struct actor *actor, int64_t timeout_millis)
{
    order(actor,
          &(struct command){.kind = COMMAND_NEXT, .timeout_millis = timeout_millis});
}

struct actor_result actor_next(struct actor *actor, int64_t timeout_millis)
{
    actor_begin_next(actor, timeout_millis);
    return actor_end(actor);
}

struct actor_result actor_keep(struct actor *actor)
{
    struct actor_result result = actor_next(actor, fixture_millis(20000));
    if (result.rc < 0)
        FAIL("next: %d: %s", result.rc, result.text);
    return result;
}

int64_t actor_take(struct actor *actor)
{
    struct actor_result result = actor_keep(actor);
    actor_release(actor, result.number);
    return result.value;
}

struct actor_result actor_drain(struct actor *actor, int64_t *values, int max, int *n)
{
    *n = 0;
    for (;;) {
        struct actor_result result = actor_next(actor, fixture_millis(20000));
        if (result.rc < 0)
            return result;
        if (*n >= max)
            FAIL("more than %d batches", max);
        values[(*n)++] = result.value;
        actor_release(actor, result.number);
    }
}

static void log_step(struct actor *actor, const struct actor_result *result,
                     struct actor_log *log)
{
    if (result->over) {
        log->end = *result;
        return;
    }
    if (log->n == ACTOR_MAX_STEPS)
        FAIL("more than %d steps", ACTOR_MAX_STEPS);
    log->steps[log->n++] = (struct actor_step){
        .rc = result->rc,
        .number = result->number,
        .n_dropped = result->n_dropped,
        .pass = result->pass,
        .value = result->value,
        .redelivered = result->redelivered,
    };
    if (result->rc == 0)
        actor_release(actor, result->number);
}

void actor_drain_all(struct actor *actors, int n, struct actor_log *logs)
{
    bool over[16] = {false};
    struct pollfd fds[16];
    CHECK(n <= 16);
    for (int n_over = 0; n_over < n;) {
        for (int i = 0; i < n; i++) {
            if (!over[i] && !actors[i].busy)
                actor_begin_next(&actors[i], fixture_millis(20000));
            fds[i] = (struct pollfd){.fd = over[i] ? -1 : actors[i].trainer.fd,
                                     .events = POLLIN};
        }
        if (poll(fds, (nfds_t)n, (int)fixture_millis(WAIT_MILLIS)) < 1)
            FAIL("no actor answers");
        for (int i = 0; i < n; i++) {
            if (fds[i].revents == 0)
                continue;
            struct actor_result result = actor_end(&actors[i]);
            if (result.rc == -STAGER_DEADLINE_EXCEEDED && !result.over)
                FAIL("actor %d waits for ever: %s", i, result.text);
            log_step(&actors[i], &result, &logs[i]);
            over[i] = result.over;
            n_over += result.over;
        }
    }
}

void actor_release(struct actor *actor, uint64_t number)
{
    ask(actor, &(struct command){.kind = COMMAND_RELEASE, .number = number});
}

int actor_rewind(struct actor *actor)
{
    return ask(actor, &(struct command){.kind = COMMAND_REWIND}).rc;
}

void actor_forge(struct actor *actor)
{
    ask(actor, &(struct command){.kind = COMMAND_FORGE});
}

void actor_stop(struct actor *actor)
{
    int status;
    CHECK(kill(actor->trainer.pid, SIGSTOP) == 0);
    CHECK_INT(waitpid(actor->trainer.pid, &status, WUNTRACED), actor->trainer.pid);
    CHECK(WIFSTOPPED(status));
}

void actor_continue(struct actor *actor)
{
    CHECK(kill(actor->trainer.pid, SIGCONT) == 0);
}

void actor_close(struct actor *actor)
{
    ask(actor, &(struct command){.kind = COMMAND_CLOSE});
}

void actor_leave(struct actor *actor)
{
    ask(actor, &(struct command){.kind = COMMAND_LEAVE});
    trainer_join(&actor->trainer);
}

void actor_kill(struct actor *actor)
{
    actor->busy = false;
    trainer_kill(&actor->trainer);
}
