/* SPDX-License-Identifier: Apache-2.0
 *
 * The client's side: libstager's calls fail, the daemon's do not. A call reports the
 * failure. A failed open leaves nothing behind in the client or the daemon.
 */
#include <stdio.h>
#include <string.h>

#include "client/stager.h"
#include "core/status.h"
#include "tests/check.h"
#include "tests/faults/inside.h"

static struct inside in;

static const char numbers[] = "dataset:\n  - range: {start: 0, stop: 40}\n"
                              "  - batch: {batch_size: 8, drop_remainder: true}\n"
                              "staged:\n  features: {v: value}\n  capacity: 2\n"
                              "  memory_budget: 16777216\n";

static int said(int rc, const struct stager_stream *stream, char text[512])
{
    snprintf(text, 512, "%.500s", stager_error_text(stream));
    return rc;
}

/* Opens, takes one pass and half of the next; closes while it holds a batch. */
static int read_some(struct inside *inside, char text[512])
{
    struct stager_options options = {.struct_size = sizeof(options),
                                     .runtime_dir = inside->runtime,
                                     .max_in_flight = 3};
    struct stager_stream *stream = NULL;
    struct stager_batch *batch, *kept = NULL;
    inject_only_this(true);
    int rc = stager_open(NULL, "numbers", &options, &stream);
    if (rc < 0)
        said(rc, NULL, text);
    for (int i = 0; i < 7 && rc == 0; i++) {
        struct stager_tensor v;
        rc = stager_next(stream, 4000, &batch);
        if (rc == -STAGER_OUT_OF_RANGE)
            rc = stager_rewind(stream);
        else if (rc == 0 && (rc = stager_batch_tensor(batch, "v", &v)) == 0)
            rc = ((const int64_t *)v.data)[7] % 8 == 7 ? 0 : -STAGER_DATA_LOSS;
        if (rc < 0)
            said(rc, stream, text);
        else if (i == 3)
            kept = batch;
        else if (i != 5)
            stager_release(batch);
    }
    stager_close(stream);
    stager_release(kept);
    inject_only_this(false);
    return rc;
}

static void a_stream_survives_every_fault_of_its_own(void)
{
    /* The client detects a released stream by the end of the socket. An injected receive
     * error imitates that end, so no result would be right. */
    static const struct inside_scenario scenario = {
        .name = "client", .attempt = read_some, .spared = 1ull << INJECT_RECV};
    char text[512];
    inside_init(&in);
    inside_start(&in);
    if (inside_apply(&in, "numbers", numbers, false, text) < 0)
        FAIL("%s", text);
    inside_each(&in, &scenario);
    inside_stop(&in);
    inside_finish(&in);
}

static const struct stg_test tests[] = {
    TEST_SLOW(a_stream_survives_every_fault_of_its_own, 200),
};
TEST_MAIN(tests)
