/* SPDX-License-Identifier: Apache-2.0
 *
 * Every order of new attempts, commits of any of them, and ends of stagerd before and
 * after its disk has a line, up to a depth. The journal's own code writes to a text in
 * memory. A commit that returned stays, one of an older attempt changes nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/journal/file.h"
#include "daemon/journal/journal.h"
#include "tests/check.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wreserved-identifier"
#endif

#define MAX_DEPTH 10
#define MAX_STREAMS 2
#define TEXT_BYTES (MAX_DEPTH * 1024)

enum action {
    BEGIN,
    COMMIT, /* of the newest attempt */
    COMMIT_OLDER,
    DONE,        /* the disk has the line, and the commit is answered */
    CRASH,       /* stagerd ends, before its disk has the line that it writes */
    TEAR,        /* while it writes */
    CRASH_AFTER, /* when it is written, and not answered */
    N_ACTIONS
};

static const char *const names[] = {"begin",
                                    "commit",
                                    "commit of an older attempt",
                                    "done",
                                    "crash",
                                    "crash in the write",
                                    "crash after the write"};

/* The streams, the newest last; and what they know. */
static struct {
    struct stg_journal *journal;
    struct stg_journal_writers writers;
    char text[TEXT_BYTES];
    size_t n;
    uv_work_t *work; /* that waits */
    uv_work_cb call;
    uv_after_work_cb after;
    uint64_t attempts[MAX_STREAMS]; /* the newest one is the last; 0: none */
    int code;                       /* of the last answer; 1: none yet */
    uint64_t waiting, committed;    /* positions: that waits, that returned last */
    uint64_t n_commits;
    bool tears;
} world;

static uint8_t path[MAX_DEPTH];
static int n_path;
static uint64_t n_paths;

static void fail(const char *text)
{
    for (int i = 0; i < n_path; i++)
        fprintf(stderr, "      %s\n", names[path[i]]);
    FAIL("%s", text);
}

/* ---- the disk ---- */

int __wrap_stg_journal_file_init(struct stg_journal_file *file, const char *state_dir,
                                 const char *name, struct stg_err *err)
{
    return 0;
}

void __wrap_stg_journal_file_finish(struct stg_journal_file *file)
{
}

int __wrap_stg_journal_file_load(struct stg_journal_file *file,
                                 struct stg_commits *commits, struct stg_err *err)
{
    struct stg_commits_damage damage;
    int rc = stg_commits_read(commits, world.text, world.n, &damage, err);
    if (damage.n_bad > 0)
        fail("a line is damaged");
    world.n = damage.good_bytes;
    return rc;
}

uint64_t __wrap_stg_journal_file_newest(struct stg_journal_file *file)
{
    return 0;
}

int __wrap_stg_journal_file_write(struct stg_journal_file *file, const char *line,
                                  size_t n, const char *all, size_t n_all,
                                  struct stg_err *err)
{
    n = world.tears ? n / 2 : n;
    CHECK(world.n + n <= TEXT_BYTES);
    memcpy(world.text + world.n, line, n);
    world.n += n;
    return 0;
}

int __wrap_uv_queue_work(uv_loop_t *loop, uv_work_t *work, uv_work_cb call,
                         uv_after_work_cb after)
{
    CHECK(world.work == NULL);
    world.work = work;
    world.call = call;
    world.after = after;
    return 0;
}

/* ---- actions ---- */

static void on_changed(void *owner)
{
}

static void start(void)
{
    struct stg_err err = {0};
    struct stg_journal_config config = {.state_dir = "/state",
                                        .name = "model",
                                        .writers = &world.writers,
                                        .changed = on_changed};
    memset(&world.writers, 0, sizeof(world.writers));
    CHECK_OK(stg_journal_create(&config, &world.journal, &err), err);
}

/* Frees the journal of a stagerd that has ended, with the jobs that it has. */
static void lose(void)
{
    int code = world.code;
    while (world.work != NULL) {
        uv_work_t *work = world.work;
        world.work = NULL;
        world.after(work, 0); /* nothing was written */
    }
    stg_journal_unref(world.journal);
    world.journal = NULL;
    world.code = code;
}

static const struct stg_lane *lane(void)
{
    return stg_commits_find(stg_journal_commits(world.journal), "");
}

static uint64_t last_position(void)
{
    const struct stg_lane *at = lane();
    return at != NULL && at->last != NULL ? at->last->position : 0;
}

static void begin(void)
{
    world.attempts[0] = world.attempts[1];
    world.attempts[1] = stg_journal_begin(world.journal, "");
    if (world.attempts[1] <= world.attempts[0])
        fail("a new attempt has no higher number");
}

static void on_done(void *arg, const struct stg_err *err)
{
    world.code = err->code;
}

static void commit(bool is_newest)
{
    uint64_t position = ++world.n_commits;
    char tag[16];
    snprintf(tag, sizeof(tag), "step-%d", (int)position);
    struct stg_state state = {.order = STG_ORDER_VERSION,
                              .place = {.elements = position}};
    struct stg_journal_request request = {.lane = "",
                                          .tag = tag,
                                          .client = "model",
                                          .attempt = world.attempts[is_newest],
                                          .state = &state,
                                          .done = on_done};
    struct stg_err err = {0};
    uint64_t before = last_position();
    world.code = 1;
    CHECK_OK(stg_journal_commit(world.journal, &request, &err), err);
    if (!is_newest) {
        if (world.code != -STAGER_FAILED_PRECONDITION)
            fail("an older attempt commits");
        if (last_position() != before)
            fail("a commit that was refused changed something");
        return;
    }
    if (world.code != 1)
        fail("the newest attempt cannot commit");
    world.waiting = position;
}

static void write_line(void)
{
    world.call(world.work);
}

/* An attempt writes a line, too. */
static void finish(void)
{
    uv_work_t *work = world.work;
    world.work = NULL;
    world.after(work, 0);
    if (world.waiting == 0 || world.code == 1)
        return;
    if (world.code != 0)
        fail("a commit failed");
    if (last_position() != world.waiting)
        fail("a commit is not there");
    world.committed = world.waiting;
    world.waiting = 0;
}

/* The record of the run has the newest attempt, and its stream reconnects. */
static void crash(bool may_be_there)
{
    bool had_line = world.work != NULL;
    lose();
    start();
    uint64_t last = last_position();
    if (last != world.committed && !(may_be_there && had_line && last == world.waiting))
        fail("the commits are not those before the end of stagerd");
    world.committed = last;
    world.waiting = 0;
    stg_journal_raise(world.journal, world.attempts[1]);
    if (world.attempts[1] != 0 &&
        stg_journal_continue(world.journal, "", world.attempts[1]) != world.attempts[1])
        fail("the newest attempt cannot go on");
}

static bool may(enum action action)
{
    switch (action) {
    case BEGIN: return true;
    case COMMIT: return world.attempts[1] != 0 && world.work == NULL;
    case COMMIT_OLDER: return world.attempts[0] != 0 && world.work == NULL;
    case DONE: return world.work != NULL;
    case CRASH: return true;
    case TEAR:
    case CRASH_AFTER: return world.work != NULL;
    case N_ACTIONS: break;
    }
    return false;
}

static void act(enum action action)
{
    switch (action) {
    case BEGIN: begin(); break;
    case COMMIT: commit(true); break;
    case COMMIT_OLDER: commit(false); break;
    case DONE:
        write_line();
        finish();
        break;
    case TEAR:
        world.tears = true;
        write_line();
        world.tears = false;
        crash(false);
        break;
    case CRASH_AFTER:
        write_line();
        crash(true);
        break;
    case CRASH: crash(false); break;
    case N_ACTIONS: break;
    }
}

/* ---- every path ---- */

static void replay(int depth)
{
    lose();
    memset(&world, 0, sizeof(world));
    start();
    for (n_path = 0; n_path < depth;)
        act((enum action)path[n_path++]);
}

static void explore(int depth, int max)
{
    for (int action = 0; action < N_ACTIONS; action++) {
        replay(depth);
        if (!may((enum action)action))
            continue;
        path[n_path++] = (uint8_t)action;
        act((enum action)action);
        n_paths++;
        if (depth + 1 < max)
            explore(depth + 1, max);
    }
}

static void an_older_attempt_commits_nothing_in_any_order(void)
{
    const char *text = getenv("STG_MODEL_DEPTH");
    int max = text != NULL ? atoi(text) : 8;
    CHECK(max > 0 && max <= MAX_DEPTH);
    explore(0, max);
    lose();
    printf("    %llu orders of up to %d steps\n", (unsigned long long)n_paths, max);
}

static const struct stg_test tests[] = {
    TEST_SLOW(an_older_attempt_commits_nothing_in_any_order, 120),
};

TEST_MAIN(tests)
