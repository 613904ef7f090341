/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/model/restart.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/api/close.h"
#include "client/api/reconnect.h"
#include "client/stream/leased.h"
#include "client/stream/progress.h"
#include "client/stream/stream.h"
#include "daemon/stage/priv.h"
#include "tests/check.h"
#include "tests/model/explore.h"
#include "tests/model/host.h"
#include "tests/model/wrap.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wreserved-identifier"
#endif

#define N_WALKS 300                   /* of each cast */
#define TIME_NS UINT64_C(20000000000) /* longer than any client is awaited */

/* A trainer, and what is known of its items: a bit each. */
struct seat {
    struct stager_stream stream, next;
    struct stager connection;
    struct stg_reconnect reconnect;
    int index, fiber;
    bool is_used, is_killed, has_ended;
    unsigned rivals; /* seats that got an item of it when time ran out: a bit each */
    int end_code;
    char end_text[160];
    uint64_t got, released, acknowledged; /* released: it began to acknowledge them */
    uint64_t swept;    /* acknowledged, and the daemon has looked since */
    uint64_t recorded; /* no other trainer gets these, whatever happens */
    uint64_t life;     /* of the daemon that has seen its end; 0: none */
    uint64_t position; /* broadcast, round_robin: of the next item, plus 1; 0: any */
};

/* Lies in the region. */
struct play {
    struct host *host;
    struct seat seats[MAX_SEATS];
    int loop;
    int crashes_left, kills_left, times_left, newcomers_left;
};

static const struct restart_cast *cast;
static struct play *play;
static struct stg_definition *definition;

/* ---- what is delivered ---- */

static enum stg_delivery delivery(void)
{
    return definition->spec->staged.delivery;
}

/* Its data, and not what the header says of its place. */
static uint64_t bit_of(const struct stager_batch *batch)
{
    const struct stg_batch_header *header = batch->leased->base;
    const char *base = batch->leased->base;
    const struct stg_tensor_entry *entry = (const void *)(base + header->header_bytes);
    int64_t value = *(const int64_t *)(const void *)(base + entry->data_offset);
    int64_t bit = value + (int64_t)header->pass * cast->n_items;
    CHECK(value >= 0 && value < cast->n_items && bit < 64);
    return (uint64_t)bit;
}

/* Returns whether its process has ended: others get what it had not acknowledged. */
static bool is_out(const struct seat *seat)
{
    return seat->is_killed || seat->has_ended;
}

static struct line *line_of(const struct seat *seat)
{
    return &play->host->lines[seat->index];
}

static bool has_joined(int i)
{
    const struct stg_session *session = play->host->lines[i].session;
    return session != NULL && session->client != NULL && !session->joining;
}

/* What no other trainer gets: all that it has, or what the daemon knew that it had
 * acknowledged when its process ended. */
static uint64_t fixed_of(const struct seat *seat)
{
    bool is_known = seat->life != 0 && seat->life == play->host->n_lives;
    return !is_out(seat) ? seat->got : is_known ? seat->acknowledged : seat->recorded;
}

/* Time ran out, and the run goes on without one of them. That one empties its ring, and
 * is refused when it comes. */
static bool are_apart(const struct seat *seat, const struct seat *other)
{
    return seat != other && play->times_left < cast->n_times &&
           (!has_joined(seat->index) || (!is_out(other) && !has_joined(other->index)));
}

/* A split: an item that a trainer has is delivered to no other one. */
static void check_split(const struct seat *seat, uint64_t bit)
{
    for (int i = 0; i < MAX_SEATS; i++) {
        struct seat *other = &play->seats[i];
        if (line_of(other)->rejoin.run != line_of(seat)->rejoin.run)
            continue; /* no client was left, and another run began at its start */
        bool is_twice = (fixed_of(other) >> bit & 1) != 0;
        if (is_twice && are_apart(seat, other))
            other->rivals |= 1u << seat->index;
        else if (is_twice)
            explore_fail("trainer %d got item %d, which trainer %d has", seat->index,
                         (int)bit, i);
    }
}

/* Each trainer gets its items in order, without a gap, and none twice. */
static void check_order(struct seat *seat, uint64_t bit)
{
    bool is_ranked = delivery() == STG_DELIVERY_ROUND_ROBIN;
    uint64_t step = is_ranked ? cast->num_clients : 1;
    if (seat->position != 0 && bit + 1 != seat->position)
        explore_fail("trainer %d got item %d in place of %d", seat->index, (int)bit,
                     (int)seat->position - 1);
    seat->position = bit + 1 + step;
}

static void note_batch(struct seat *seat, uint64_t bit)
{
    if (delivery() == STG_DELIVERY_SPLIT)
        check_split(seat, bit);
    else
        check_order(seat, bit);
    seat->got |= UINT64_C(1) << bit;
}

/* ---- the stream of a trainer ---- */

/* Nothing reads its memory again. */
static void free_stream(struct stager_stream *stream)
{
    if (stream->ring.page == NULL)
        return;
    outside_unmap((void *)(uintptr_t)stream->ring.page);
    outside_unmap(stream->control.page);
    outside_unmap(stream->segment.base);
    stg_leases_finish(stream);
    stg_taken_finish(&stream->taken);
    stg_taken_finish(&stream->before);
    stg_bump_finish(&stream->bump);
    *stream = (struct stager_stream){0};
}

static void map_pages(struct seat *seat, struct stager_stream *stream)
{
    const struct stg_session *session = line_of(seat)->session;
    const struct stg_stage *stage = session->instance->stage;
    stream->ring.page = session->client->ring_segment.base;
    stream->control.page = session->client->control_segment.base;
    stream->segment.base = stage->memory.arena.base;
    stream->segment.bytes = stage->memory.arena.bytes;
    outside_map(session->client->ring_segment.base);
    outside_map(session->client->control_segment.base);
    outside_map(stream->segment.base);
}

/* As stg_attach_take: what the answer to an open brings. */
static void take_opened(struct seat *seat, struct stager_stream *stream)
{
    struct line *line = line_of(seat);
    struct stg_err err = {0};
    struct stager_options options = {.state = line->has_state ? line->state : NULL};
    struct stg_reply reply = {.begins_pass = line->begins_pass,
                              .skip_rows = line->skip_rows,
                              .state = line->begin,
                              .signature = line->signature};
    *stream = (struct stager_stream){
        .client = &seat->connection, .name = "model", .spec = definition->spec};
    map_pages(seat, stream);
    CHECK_OK(stg_leases_init(stream, cast->max_in_flight, &err), err);
    stream->final_text = stg_bump_alloc(&stream->bump, STG_ERR_TEXT_BYTES);
    stream->why = stg_bump_alloc(&stream->bump, STG_ERR_TEXT_BYTES);
    CHECK_OK(stg_progress_begin(stream, &reply, &options, line->client_id, &err), err);
    stream->passes = 1;
    stg_control_want_pass(&stream->control, stream->passes);
    line->phase = PHASE_ASKS_JOIN;
}

static bool is_opened(void *arg)
{
    const struct line *line = arg;
    return line->phase == PHASE_OPENED || line->phase == PHASE_FAILED;
}

static bool is_joined(void *arg)
{
    const struct line *line = arg;
    return line->phase == PHASE_JOINED || line->phase == PHASE_FAILED ||
           line->phase == PHASE_LOST;
}

/* Opens a stream. Returns the code of the answer; 1: the daemon has ended. */
static int open_stream(struct seat *seat, struct stager_stream *stream)
{
    struct line *line = line_of(seat);
    line->phase = PHASE_ASKS_OPEN;
    fiber_block(is_opened, line, false, "opens");
    if (line->phase == PHASE_FAILED)
        return line->code;
    take_opened(seat, stream);
    fiber_block(is_joined, line, false, "joins the run");
    if (line->phase == PHASE_JOINED) {
        line->phase = PHASE_IDLE;
        line->rejoin = line->next_rejoin;
        return 0;
    }
    free_stream(stream);
    return line->phase == PHASE_LOST ? 1 : line->code;
}

/* The state is that of now: what the trainer has. */
static void fill_state(struct seat *seat)
{
    static struct stg_state state;
    static char text[STG_STATE_TEXT_BYTES];
    struct line *line = line_of(seat);
    struct stg_err err = {0};
    CHECK_OK(stg_progress_lost(&seat->stream, &line->has_state, &state, &err), err);
    memset(line->state, 0, sizeof(line->state));
    if (!line->has_state)
        return;
    size_t n = stg_state_write(&state, text);
    CHECK(n < sizeof(line->state));
    memcpy(line->state, text, n);
}

/* What its state has is taken, whatever the daemon knew. */
static void exchange(struct seat *seat)
{
    seat->reconnect.n++;
    stg_stream_exchange(&seat->stream, &seat->next);
    free_stream(&seat->next);
    seat->stream.is_gone = false;
    seat->swept |= seat->got;
}

int __wrap_stg_reconnect_until(struct stager_stream *stream, int64_t deadline_ns)
{
    struct seat *seat = (struct seat *)(void *)stream; /* its first member */
    int rc;
    do {
        fill_state(seat);
        rc = open_stream(seat, &seat->next);
    } while (rc == 1);
    if (rc == 0) {
        exchange(seat);
        return 0;
    }
    if (rc == -STAGER_UNAVAILABLE)
        explore_fail("trainer %d cannot reconnect: %s", seat->index, line_of(seat)->text);
    stream->is_gone = false;
    return stg_stream_finish(stream, rc, line_of(seat)->text);
}

/* ---- trainers ---- */

static void train(struct seat *seat, struct stager_batch *batch)
{
    uint64_t bit = bit_of(batch);
    note_batch(seat, bit);
    fiber_choose(1, NULL, NULL, "trains");
    seat->released |= UINT64_C(1) << bit;
    stager_release(batch);
    seat->acknowledged |= UINT64_C(1) << bit;
}

static int take_all(struct seat *seat)
{
    for (;;) {
        struct stager_batch *batch;
        int rc = stager_next(&seat->stream, -1, &batch);
        if (rc == 0) {
            train(seat, batch);
            continue;
        }
        bool is_last = (int)seat->stream.end_pass + 1 >= cast->n_passes;
        if (rc != -STAGER_OUT_OF_RANGE || is_last)
            return rc;
        stager_rewind(&seat->stream);
    }
}

static void *trainer_main(void *arg)
{
    struct seat *seat = arg;
    int rc = 0;
    if (seat->stream.ring.page == NULL) {
        rc = open_stream(seat, &seat->stream);
        seat->stream.reconnect = &seat->reconnect;
    }
    if (rc == 0)
        rc = take_all(seat);
    seat->end_code = rc;
    snprintf(seat->end_text, sizeof(seat->end_text), "%.150s",
             rc == 1 ? "" : seat->stream.err.text);
    if (seat->stream.ring.page != NULL)
        stg_control_part(&seat->stream.control);
    free_stream(&seat->stream);
    seat->has_ended = true;
    line_of(seat)->is_dead = true;
    host_sweep_soon();
    return NULL;
}

static void seat_init(int i)
{
    struct seat *seat = &play->seats[i];
    struct line *line = &play->host->lines[i];
    seat->index = i;
    seat->is_used = true;
    seat->connection.fd = SOCKET_OF(i);
    snprintf(line->client_id, sizeof(line->client_id), "trainer-%d", i);
    line->max_in_flight = cast->max_in_flight;
}

static void start_trainer(int i)
{
    static const char *const names[] = {"trainer 0", "trainer 1", "trainer 2"};
    struct seat *seat = &play->seats[i];
    seat->fiber = fiber_start(names[i], trainer_main, seat);
    fiber_belong(seat->fiber, PROCESS_OF(i));
}

/* ---- the daemon's loop ---- */

enum {
    EVENT_SWEEP,
    EVENT_DONE,
    EVENT_OPEN,
    EVENT_JOIN,
    EVENT_DOORBELL,
    EVENT_END,
    N_EVENTS
};

static bool event_enabled(void *arg, int i)
{
    const struct line *line = &play->host->lines[i / N_EVENTS];
    const struct wire *wire = &outside()->wires[i / N_EVENTS];
    bool is_attached = line->session != NULL && line->session->client != NULL;
    switch (i % N_EVENTS) {
    case EVENT_SWEEP: return i < N_EVENTS && host_sweeps();
    case EVENT_DONE: return i < N_EVENTS && host_has_done();
    case EVENT_OPEN: return line->phase == PHASE_ASKS_OPEN && !line->is_dead;
    case EVENT_JOIN: return line->phase == PHASE_ASKS_JOIN && !line->is_dead;
    case EVENT_DOORBELL:
        return is_attached && !line->session->joining && wire->doorbell_to_daemon;
    case EVENT_END: return line->session != NULL && line->is_dead;
    }
    return false;
}

/* What trainers had acknowledged before it, the daemon has seen. */
static void sweep(void)
{
    uint64_t before[MAX_SEATS];
    for (int i = 0; i < MAX_SEATS; i++)
        before[i] = play->seats[i].acknowledged;
    host_sweep();
    for (int i = 0; i < MAX_SEATS; i++) {
        if (has_joined(i))
            play->seats[i].swept |= before[i];
    }
}

static void end(int i)
{
    struct seat *seat = &play->seats[i];
    bool was_there = has_joined(i);
    host_end(i);
    if (!was_there)
        return;
    seat->life = play->host->n_lives;
    seat->swept |= seat->acknowledged;
}

static void note_record(void)
{
    for (int i = 0; i < MAX_SEATS; i++)
        play->seats[i].recorded |= play->seats[i].swept;
}

static void handle(int event, int i)
{
    switch (event) {
    case EVENT_SWEEP: sweep(); break;
    case EVENT_DONE: host_done(); break;
    case EVENT_OPEN: host_open(i); break;
    case EVENT_JOIN: host_join(i); break;
    case EVENT_DOORBELL: host_doorbell(i); break;
    case EVENT_END: end(i); break;
    }
}

static void *loop_main(void *arg)
{
    if (play->host->life == NULL)
        host_boot();
    for (;;) {
        int i = fiber_choose_afresh(N_EVENTS * MAX_SEATS, event_enabled, NULL, "loop");
        handle(i % N_EVENTS, i / N_EVENTS);
    }
    return NULL;
}

static void start_loop(void)
{
    play->loop = fiber_start("loop", loop_main, NULL);
    fiber_belong(play->loop, DAEMON);
}

/* ---- what happens ---- */

enum { HAPPENS_KILL, HAPPENS_CRASH, HAPPENS_TIME, HAPPENS_NEWCOMER, N_HAPPENS };

static bool happens(void *arg, int i)
{
    const struct seat *seat = &play->seats[i / N_HAPPENS];
    bool is_first = i < N_HAPPENS;
    switch (i % N_HAPPENS) {
    case HAPPENS_KILL:
        return seat->is_used && !seat->is_killed && !seat->has_ended &&
               play->kills_left > 0;
    case HAPPENS_CRASH: return is_first && play->crashes_left > 0;
    case HAPPENS_TIME:
        return is_first && play->times_left > 0 && play->crashes_left < cast->n_crashes;
    case HAPPENS_NEWCOMER: return !seat->is_used && play->newcomers_left > 0;
    }
    return false;
}

static void kill_trainer(int i)
{
    struct seat *seat = &play->seats[i];
    play->kills_left--;
    seat->is_killed = true;
    line_of(seat)->is_dead = true;
    free_stream(&seat->stream);
    free_stream(&seat->next);
    process_kill(PROCESS_OF(i));
    host_sweep_soon();
}

static void crash(void)
{
    play->crashes_left--;
    host_crash();
    for (int i = 0; i < MAX_SEATS; i++)
        play->seats[i].swept = play->seats[i].recorded;
    start_loop();
}

static void happen(int what, int i)
{
    switch (what) {
    case HAPPENS_KILL: kill_trainer(i); break;
    case HAPPENS_CRASH: crash(); break;
    case HAPPENS_TIME:
        play->times_left--;
        outside()->clock_ns += TIME_NS;
        host_sweep_soon();
        break;
    case HAPPENS_NEWCOMER:
        play->newcomers_left--;
        seat_init(i);
        start_trainer(i);
        break;
    }
}

static void *world_main(void *arg)
{
    for (;;) {
        int i = fiber_choose_afresh(N_HAPPENS * MAX_SEATS, happens, NULL, "the world");
        happen(i % N_HAPPENS, i / N_HAPPENS);
    }
    return NULL;
}

/* For traces. */
static const char *name_answer(const char *what, int answer)
{
    static const char *const of_loop[] = {"sweeps",
                                          "ends a job of a worker",
                                          "opens for trainer",
                                          "joins trainer",
                                          "answers the doorbell of trainer",
                                          "ends the session of trainer"};
    static const char *const of_world[] = {"kills trainer", "kills stagerd",
                                           "lets time run out", "starts trainer"};
    static char text[64];
    bool is_loop = strcmp(what, "loop") == 0;
    if (!is_loop && strcmp(what, "the world") != 0)
        return NULL;
    int n = is_loop ? N_EVENTS : N_HAPPENS;
    snprintf(text, sizeof(text), "%s %d", (is_loop ? of_loop : of_world)[answer % n],
             answer / n);
    return text;
}

/* ---- set-up ---- */

static void finish_work(void)
{
    process_act(DAEMON);
    while (host_has_done())
        host_done();
}

static void join_at_start(int i)
{
    struct seat *seat = &play->seats[i];
    seat_init(i);
    line_of(seat)->phase = PHASE_ASKS_OPEN;
    finish_work();
    host_open(i);
    finish_work();
    CHECK(line_of(seat)->phase == PHASE_OPENED);
    process_act(PROCESS_OF(i));
    take_opened(seat, &seat->stream);
    seat->stream.reconnect = &seat->reconnect;
    finish_work();
    host_join(i);
    CHECK(line_of(seat)->phase == PHASE_JOINED);
    line_of(seat)->phase = PHASE_IDLE;
    line_of(seat)->rejoin = line_of(seat)->next_rejoin;
}

static void set_up(void)
{
    static const struct stg_settings settings = {
        .runtime_dir = "/run", .state_dir = "/state", .default_pipeline_memory = 1 << 20};
    outside_create()->fine = true;
    play = calloc(1, sizeof(*play));
    play->host = host_create(&settings, definition);
    play->host->recorded = note_record;
    play->crashes_left = cast->n_crashes;
    play->kills_left = cast->n_kills;
    play->times_left = cast->n_times;
    play->newcomers_left = cast->n_newcomers;
    process_act(DAEMON);
    host_boot();
    for (int i = 0; i < cast->n_trainers; i++)
        join_at_start(i);
    process_act(0);
    for (int i = 0; i < cast->n_trainers; i++)
        start_trainer(i);
    start_loop();
    fiber_set_rare(fiber_start("world", world_main, NULL));
}

/* ---- invariants ---- */

static bool any(bool (*is_so)(const struct seat *seat))
{
    bool ret = false;
    for (int i = 0; i < MAX_SEATS; i++)
        ret |= play->seats[i].is_used && is_so(&play->seats[i]);
    return ret;
}

static bool was_killed(const struct seat *seat)
{
    return seat->is_killed;
}

static bool lives(const struct seat *seat)
{
    return !seat->is_killed && !seat->has_ended;
}

static bool reached_end(const struct seat *seat)
{
    return seat->has_ended && seat->end_code == -STAGER_OUT_OF_RANGE;
}

/* Without time that runs out and a lost rank, each trainer gets the end. A rank that took
 * the end, and ended with stagerd before it gave the end to the others, is lost. */
static bool may_abort(void)
{
    return play->times_left < cast->n_times || (delivery() == STG_DELIVERY_ROUND_ROBIN &&
                                                (any(was_killed) || any(reached_end)));
}

/* It came late, when the others had their end: its state begins a run, which waits for
 * num_clients. */
static bool waits_for_clients(const struct seat *seat)
{
    return delivery() == STG_DELIVERY_BROADCAST && may_abort() &&
           has_joined(seat->index) &&
           !line_of(seat)->session->instance->stage->members.begun;
}

static void check_end(const struct seat *seat)
{
    bool is_newcomer = seat->index >= cast->n_trainers;
    if (seat->is_killed)
        return;
    if (!seat->has_ended && waits_for_clients(seat))
        return;
    if (!seat->has_ended)
        explore_fail("trainer %d waits for ever", seat->index);
    for (int i = 0; i < MAX_SEATS; i++) {
        if ((seat->rivals >> i & 1) != 0 && reached_end(seat) &&
            reached_end(&play->seats[i]))
            explore_fail("trainers %d and %d go on, with an item of both", seat->index,
                         i);
    }
    /* Others may leave its batch behind between its open and its join. */
    if (seat->end_code == -STAGER_RESOURCE_EXHAUSTED && may_abort() &&
        delivery() == STG_DELIVERY_BROADCAST)
        return;
    /* The last batch was another trainer's, which has ended before this one joined. */
    if (delivery() == STG_DELIVERY_SPLIT && seat->end_code == -STAGER_ABORTED &&
        strstr(seat->end_text, "ended before this client came back") != NULL)
        return;
    if (seat->end_code == -STAGER_OUT_OF_RANGE || is_newcomer ||
        (seat->end_code == -STAGER_ABORTED && may_abort()))
        return;
    explore_fail("trainer %d got code %d: %s", seat->index, seat->end_code,
                 seat->end_text);
}

static void check_items(void)
{
    uint64_t all = (UINT64_C(1) << cast->n_items * cast->n_passes) - 1, there = 0;
    for (int i = 0; i < MAX_SEATS; i++) {
        const struct seat *seat = &play->seats[i];
        there |= is_out(seat) ? seat->released : seat->got;
        if (delivery() == STG_DELIVERY_BROADCAST && i < cast->n_trainers &&
            reached_end(seat) && seat->got != all)
            explore_fail("trainer %d got the items %llx", i,
                         (unsigned long long)seat->got);
    }
    bool is_complete = delivery() == STG_DELIVERY_SPLIT ||
                       (delivery() == STG_DELIVERY_ROUND_ROBIN && !may_abort());
    if (is_complete && any(reached_end) && (there & all) != all)
        explore_fail("of the items, %llx were delivered", (unsigned long long)there);
}

static void at_rest(void)
{
    for (int i = 0; i < MAX_SEATS; i++) {
        if (play->seats[i].is_used)
            check_end(&play->seats[i]);
    }
    check_items();
    const struct stg_catalog *catalog = host_catalog();
    if (!any(lives) && catalog->instances != NULL)
        explore_fail("a stage does not end");
}

/* ---- running ---- */

static void make_definition(void)
{
    static const struct stg_identity applier = {.uid = 65534, .gid = 65534};
    struct stg_err err = {0};
    char yaml[512];
    /* There, clients that reconnect are awaited for a shorter time than clients. */
    bool is_broadcast = strstr(cast->staged, "broadcast") != NULL;
    snprintf(yaml, sizeof(yaml),
             "name: model\ndataset:\n  - range: {stop: %d}\n"
             "  - batch: {batch_size: 1, drop_remainder: true}\n"
             "staged: {num_clients: %u, audit: none, reconnect_grace_millis: 0, "
             "lease_timeout_millis: 0, start_timeout_millis: %d, %s}\n",
             cast->n_items, cast->num_clients, is_broadcast ? 300000 : 10000,
             cast->staged);
    CHECK_OK(stg_definition_create(yaml, strlen(yaml), "model", &applier, NULL,
                                   &definition, &err),
             err);
    definition->refs = 1u << 30; /* each path of the search takes and drops its own */
    definition->tuning = NULL;
}

static uint64_t number_of(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);
    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

void restart_run(const struct restart_cast *the_cast)
{
#ifdef STG_SANITIZED
    SKIP("sanitizers do not follow fibers");
#endif
    cast = the_cast;
    make_definition();
    struct scenario scenario = {
        .name = cast->name,
        .set_up = set_up,
        .at_rest = at_rest,
        .name_answer = name_answer,
        .max_states = 1,
    };
    struct explored explored;
    uint64_t n = number_of("STG_MODEL_WALKS", N_WALKS);
    explore_walks(&scenario, n, number_of("STG_MODEL_SEED", 1), &explored);
    printf("    %s: %llu walks, %llu steps, at most %u in one\n", cast->name,
           (unsigned long long)n, (unsigned long long)explored.steps, explored.depth);
}
