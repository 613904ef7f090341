/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests under a fault: an answer or the end of that connection, and the daemon's state
 * is unchanged.
 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/transport/admin.h"
#include "core/status.h"
#include "proto/wire.h"
#include "tests/check.h"
#include "tests/faults/inside.h"

static struct inside in;

static const char first[] =
    "dataset:\n  - range: {start: 0, stop: 100}\n"
    "  - shuffle: {buffer_size: 8, seed: 1}\n"
    "  - batch: {batch_size: 2, drop_remainder: true}\n"
    "graph:\n  - {name: f, op: cast, input: [value], dtype: float32}\n"
    "staged:\n  features: {x: f}\n  capacity: 2\n";
static const char second[] = "dataset:\n  - range: {start: 0, stop: 50}\n"
                             "  - batch: {batch_size: 5, drop_remainder: true}\n"
                             "staged:\n  capacity: 3\n";

/* Returns whether state_dir has a file of that pipeline with that text. */
static bool is_retained(const char *name, const char *text)
{
    char path[256], kept[4096] = "";
    snprintf(path, sizeof(path), "%s/state/pipelines/%s.yaml", in.dir, name);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return false;
    (void)!fread(kept, 1, sizeof(kept) - 1, file);
    fclose(file);
    return strstr(kept, text) != NULL;
}

static bool is_there(const char *name)
{
    char text[512];
    struct stg_request request = {.kind = STG_REQUEST_STATUS, .name = name};
    int rc = inside_call(&in, &request, text);
    CHECK(rc == 0 || rc == -STAGER_NOT_FOUND);
    return rc == 0;
}

static void no_half_written_file(const char *name)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/state/pipelines/%s.new", in.dir, name);
    CHECK(access(path, F_OK) < 0);
}

static void must(int rc, const char *text)
{
    if (rc < 0)
        FAIL("after %s: %d: %s", in.doing, rc, text);
}

/* ---- questions ---- */

/* A list that is answered has all pipelines, and the whole of each. */
static int ask_list(struct inside *inside, char text[512])
{
    struct stager *client;
    struct stg_reply reply;
    struct stg_err err = {0};
    struct stg_request list = {.kind = STG_REQUEST_LIST};
    int rc = stager_connect(inside->runtime, &client);
    if (rc < 0) {
        snprintf(text, 512, "%s", stager_error_text(NULL));
        return rc;
    }
    rc = stg_admin_call(client, &list, &reply, &err);
    if (rc == 0 &&
        (reply.n_entries != 1 || reply.n_left_out != 0 || reply.entries[0].file[0] == 0))
        FAIL("%s: a list of %zu pipelines, %u left out", inside->doing, reply.n_entries,
             reply.n_left_out);
    snprintf(text, 512, "%.500s", rc < 0 ? err.text : "");
    stager_disconnect(client);
    return rc;
}

static int ask(struct inside *inside, char text[512])
{
    struct stg_request status = {.kind = STG_REQUEST_STATUS, .name = "kept"};
    struct stg_request check = {.kind = STG_REQUEST_CHECK,
                                .text = first,
                                .text_bytes = strlen(first),
                                .file = "f.yaml"};
    int rc = inside_call(inside, &status, text);
    if (rc == 0)
        rc = ask_list(inside, text);
    return rc < 0 ? rc : inside_call(inside, &check, text);
}

static void questions_survive_every_fault(void)
{
    static const struct inside_scenario scenario = {.name = "status, list, check",
                                                    .attempt = ask};
    char text[512];
    inside_init(&in);
    inside_start(&in);
    must(inside_apply(&in, "kept", first, false, text), text);
    inside_each(&in, &scenario);
    inside_stop(&in);
    inside_finish(&in);
}

/* ---- traces ---- */

static int trace(struct inside *inside, char text[512])
{
    struct stager *client;
    struct stg_map map;
    struct stg_err err = {0};
    int rc = stager_connect(inside->runtime, &client);
    if (rc < 0) {
        snprintf(text, 512, "%s", stager_error_text(NULL));
        return rc;
    }
    rc = stg_admin_trace(client, "kept", 60000, &map, &err);
    snprintf(text, 512, "%.500s", rc < 0 ? err.text : "");
    if (rc == 0)
        stg_map_close(&map);
    stager_disconnect(client);
    return rc;
}

/* The previous trace ends with its connection, which the daemon notices a moment
 * later. */
static void trace_again(struct inside *inside)
{
    char text[512];
    int rc;
    do {
        rc = trace(inside, text);
    } while (rc == -STAGER_RESOURCE_EXHAUSTED && strstr(text, "is being traced") != NULL);
    must(rc, text);
}

static void tracing_survives_every_fault(void)
{
    static const struct inside_scenario scenario = {"trace", trace, trace_again, false,
                                                    0};
    char text[512];
    inside_init(&in);
    inside_start(&in);
    must(inside_apply(&in, "kept", first, false, text), text);
    inside_each(&in, &scenario);
    inside_stop(&in);
    inside_finish(&in);
}

/* ---- changes ---- */

static int apply_new(struct inside *inside, char text[512])
{
    return inside_apply(inside, "new", first, false, text);
}

/* A refused change is stored nowhere; an accepted one is in memory and on disk. If the
 * answer is lost, memory and disk agree. */
static void delete_new(struct inside *inside)
{
    char text[512];
    no_half_written_file("new");
    CHECK_INT(is_there("new"), is_retained("new", first));
    if (is_there("new"))
        must(inside_delete(inside, "new", text), text);
    CHECK(!is_retained("new", first));
    must(apply_new(inside, text), text);
    must(inside_delete(inside, "new", text), text);
}

static void applying_survives_every_fault(void)
{
    static const struct inside_scenario scenario = {"apply", apply_new, delete_new, false,
                                                    0};
    inside_init(&in);
    inside_start(&in);
    inside_each(&in, &scenario);
    inside_stop(&in);
    inside_finish(&in);
}

static int apply_changed(struct inside *inside, char text[512])
{
    return inside_apply(inside, "kept", second, true, text);
}

/* The old text or the new one, equal in memory and on disk. */
static void apply_back(struct inside *inside)
{
    char text[512];
    no_half_written_file("kept");
    bool changed = is_retained("kept", second);
    CHECK(changed != is_retained("kept", first));
    struct stg_request status = {.kind = STG_REQUEST_STATUS, .name = "kept"};
    must(inside_call(inside, &status, text), text);
    must(inside_apply(inside, "kept", changed ? second : first, false, text), text);
    must(inside_apply(inside, "kept", first, true, text), text);
    CHECK(is_retained("kept", first));
}

static void replacing_survives_every_fault(void)
{
    static const struct inside_scenario scenario = {"replace", apply_changed, apply_back,
                                                    false, 0};
    char text[512];
    inside_init(&in);
    inside_start(&in);
    must(inside_apply(&in, "kept", first, false, text), text);
    inside_each(&in, &scenario);
    inside_stop(&in);
    inside_finish(&in);
}

static int roll_back(struct inside *inside, char text[512])
{
    struct stg_request request = {.kind = STG_REQUEST_ROLLBACK, .name = "kept"};
    return inside_call(inside, &request, text);
}

/* The old text or the new one, equal in memory and on disk. */
static void apply_forth(struct inside *inside)
{
    char text[512];
    no_half_written_file("kept");
    bool changed = is_retained("kept", first);
    CHECK(changed != is_retained("kept", second));
    must(inside_apply(inside, "kept", changed ? first : second, false, text), text);
    must(inside_apply(inside, "kept", second, true, text), text);
    struct stg_request versions = {.kind = STG_REQUEST_VERSIONS, .name = "kept"};
    must(inside_call(inside, &versions, text), text);
}

static void rolling_back_survives_every_fault(void)
{
    static const struct inside_scenario scenario = {"rollback", roll_back, apply_forth,
                                                    false, 0};
    char text[512];
    inside_init(&in);
    inside_start(&in);
    must(inside_apply(&in, "kept", first, false, text), text);
    must(inside_apply(&in, "kept", second, true, text), text);
    inside_each(&in, &scenario);
    inside_stop(&in);
    inside_finish(&in);
}

static int apply_warm(struct inside *inside, char text[512])
{
    struct stg_request request = {.kind = STG_REQUEST_APPLY,
                                  .name = "kept",
                                  .text = second,
                                  .text_bytes = strlen(second),
                                  .file = "test.yaml",
                                  .replace = true,
                                  .warm = true};
    return inside_call(inside, &request, text);
}

static void warming_up_survives_every_fault(void)
{
    static const struct inside_scenario scenario = {.name = "warm apply",
                                                    .attempt = apply_warm,
                                                    .restore = apply_back,
                                                    .makes_run = true};
    char text[512];
    inside_init(&in);
    inside_start(&in);
    must(inside_apply(&in, "kept", first, false, text), text);
    inside_each(&in, &scenario);
    inside_stop(&in);
    inside_finish(&in);
}

static int delete_kept(struct inside *inside, char text[512])
{
    return inside_delete(inside, "kept", text);
}

static void apply_kept(struct inside *inside)
{
    char text[512];
    CHECK_INT(is_there("kept"), is_retained("kept", first));
    must(inside_apply(inside, "kept", first, true, text), text);
}

static void deleting_survives_every_fault(void)
{
    static const struct inside_scenario scenario = {"delete", delete_kept, apply_kept,
                                                    false, 0};
    inside_init(&in);
    inside_start(&in);
    apply_kept(&in);
    inside_each(&in, &scenario);
    inside_stop(&in);
    inside_finish(&in);
}

static const struct stg_test tests[] = {
    TEST_SLOW(questions_survive_every_fault, 200),
    TEST_SLOW(tracing_survives_every_fault, 200),
    TEST_SLOW(applying_survives_every_fault, 200),
    TEST_SLOW(replacing_survives_every_fault, 200),
    TEST_SLOW(rolling_back_survives_every_fault, 200),
    TEST_SLOW(warming_up_survives_every_fault, 400),
    TEST_SLOW(deleting_survives_every_fault, 200),
};
TEST_MAIN(tests)
