/* SPDX-License-Identifier: Apache-2.0
 *
 * The start of a daemon under a fault: it runs or reports the reason. The next start
 * finds every applied pipeline.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/stager.h"
#include "core/log.h"
#include "core/status.h"
#include "daemon/server/config.h"
#include "tests/check.h"
#include "tests/faults/inside.h"

static struct inside in;

static const char pipeline[] = "dataset:\n  - range: {start: 0, stop: 100}\n"
                               "  - batch: {batch_size: 2, drop_remainder: true}\n"
                               "graph:\n  - {name: f, op: cast, input: [value], dtype: "
                               "float32}\nstaged:\n  features: {x: f}\n";

/* Starts like main.c. Runs the loop once, so that started operations are in progress. */
static int start_and_finish(struct inside *inside, char text[512])
{
    struct stg_err err = {0};
    inject_immune(false);
    inject_starting(true);
    int rc = stg_config_load(inside->config, &inside->settings, &err);
    if (rc == 0) {
        rc = stg_server_start(&inside->server, &inside->settings, inside->config, &err);
        if (rc == 0)
            uv_run(&inside->server.loop, UV_RUN_NOWAIT);
        stg_server_finish(&inside->server);
        stg_settings_finish(&inside->settings);
    }
    inject_starting(false);
    inject_immune(true);
    snprintf(text, 512, "%.500s", err.text);
    return rc;
}

/* It also checks that a refused start leaves the runtime directory free. */
static void start_again(struct inside *inside)
{
    struct stg_err err = {0};
    CHECK_OK(stg_config_load(inside->config, &inside->settings, &err), err);
    CHECK_OK(stg_server_start(&inside->server, &inside->settings, inside->config, &err),
             err);
    static const char *const names[] = {"a", "b", "c"};
    for (size_t i = 0; i < 3; i++) {
        if (stg_catalog_find(inside->server.catalog, names[i]) == NULL)
            FAIL("after %s, pipeline %s is gone", inside->doing, names[i]);
    }
    stg_server_finish(&inside->server);
    stg_settings_finish(&inside->settings);
}

static void starting_survives_every_fault(void)
{
    static const struct inside_scenario scenario = {"start", start_and_finish,
                                                    start_again, true, 0};
    char path[256];
    inside_init(&in);
    stg_log_set_level((enum stg_log_level)0);
    snprintf(path, sizeof(path), "%s/state", in.dir);
    CHECK(mkdir(path, 0700) == 0);
    snprintf(path, sizeof(path), "%s/state/pipelines", in.dir);
    CHECK(mkdir(path, 0700) == 0);
    CHECK(mkdir(in.pipelines, 0700) == 0);
    inside_file(&in, "state/pipelines/a.yaml", pipeline);
    inside_file(&in, "state/pipelines/b.yaml", pipeline);
    inside_file(&in, "pipelines/c.yaml", pipeline);
    inside_each(&in, &scenario);
    inside_finish(&in);
}

/* ---- reloaded settings ---- */

/* Writes a new number to the file each time, and expects it in the daemon. */
static void write_max_clients(struct inside *inside, unsigned n)
{
    char text[1024];
    snprintf(text, sizeof(text),
             "runtime_dir: %s\nstate_dir: %s/state\npipeline_dir: %s\n"
             "log_level: error\nmemory_budget: 134217728\nmax_clients: %u\n",
             inside->runtime, inside->dir, inside->pipelines, n);
    inside_file(inside, "stagerd.yaml", text);
}

static unsigned max_clients = 100;

static int reload(struct inside *inside, char text[512])
{
    struct inside_state state;
    write_max_clients(inside, ++max_clients);
    stg_log_set_level((enum stg_log_level)0); /* loading the settings sets it again */
    kill(getpid(), SIGHUP);
    for (int i = 0; i < 3; i++) /* the signal arrives through a pipe of the loop */
        inside_wait_idle(inside, &state);
    CHECK(state.max_clients <= max_clients);
    return 0;
}

static void reload_again(struct inside *inside)
{
    struct inside_state state = {0};
    write_max_clients(inside, ++max_clients);
    kill(getpid(), SIGHUP);
    for (int i = 0; i < 5000 && state.max_clients != max_clients; i++)
        inside_wait_idle(inside, &state);
    if (state.max_clients != max_clients)
        FAIL("after %s: max_clients is %u, not %u", inside->doing, state.max_clients,
             max_clients);
}

static void reading_settings_again_survives_every_fault(void)
{
    static const struct inside_scenario scenario = {"reload", reload, reload_again, false,
                                                    0};
    inside_init(&in);
    inside_start(&in);
    inside_each(&in, &scenario);
    inside_stop(&in);
    inside_finish(&in);
}

/* ---- shutdown, with a trainer in the middle of a pass ---- */

/* The daemon ends, whatever the trainer received. */
static int serve_and_stop(struct inside *inside, char text[512])
{
    struct stager_options options = {.struct_size = sizeof(options),
                                     .runtime_dir = inside->runtime};
    struct stager_stream *stream = NULL;
    struct stager_batch *batch = NULL;
    inside_start(inside);
    if (stager_open(NULL, "c", &options, &stream) == 0)
        (void)!stager_next(stream, 4000, &batch);
    inside_stop(inside);
    stager_release(batch);
    stager_close(stream);
    return 0;
}

static void serve_again(struct inside *inside)
{
    struct stager_options options = {.struct_size = sizeof(options),
                                     .runtime_dir = inside->runtime};
    struct stager_stream *stream;
    struct stager_batch *batch;
    inside_start(inside);
    if (stager_open(NULL, "c", &options, &stream) < 0)
        FAIL("after %s: %s", inside->doing, stager_error_text(NULL));
    if (stager_next(stream, 4000, &batch) < 0)
        FAIL("after %s: %s", inside->doing, stager_error_text(stream));
    inside_stop(inside);
    stager_release(batch);
    stager_close(stream);
}

static void stopping_survives_every_fault(void)
{
    static const struct inside_scenario scenario = {"stop", serve_and_stop, serve_again,
                                                    true, 0};
    inside_init(&in);
    CHECK(mkdir(in.pipelines, 0700) == 0);
    inside_file(&in, "pipelines/c.yaml", pipeline);
    inside_each(&in, &scenario);
    inside_finish(&in);
}

static const struct stg_test tests[] = {
    TEST_SLOW(stopping_survives_every_fault, 200),
    TEST_SLOW(reading_settings_again_survives_every_fault, 100),
    TEST_SLOW(starting_survives_every_fault, 200),
};
TEST_MAIN(tests)
