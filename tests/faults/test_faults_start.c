/* SPDX-License-Identifier: Apache-2.0
 *
 * The start of a daemon while something fails: it runs, or says why not; and the next
 * start finds every pipeline that was applied.
 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/log.h"
#include "core/status.h"
#include "daemon/config.h"
#include "tests/check.h"
#include "tests/faults/inside.h"

static struct inside in;

static const char pipeline[] = "dataset:\n  - range: {start: 0, stop: 100}\n"
                               "  - batch: {batch_size: 2, drop_remainder: true}\n"
                               "graph:\n  - {name: f, op: cast, input: [value], dtype: "
                               "float32}\nstaged:\n  features: {x: f}\n";

/* As main.c does it. Turns the loop once, so that what was begun is under way. */
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

/* Also: who was refused left the runtime directory to the next. */
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

static const struct stg_test tests[] = {
    TEST_SLOW(starting_survives_every_fault, 200),
};
TEST_MAIN(tests)
