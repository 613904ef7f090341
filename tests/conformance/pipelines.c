/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/pipelines.h"

#include <stdio.h>
#include <string.h>

#include "tests/check.h"

static void write_rows(char *ret, size_t bytes, int n, const char *graph,
                       const char *staged)
{
    bool has_out = strstr(graph, "name: out") != NULL;
    snprintf(ret, bytes,
             "name: rows\n"
             "dataset:\n  - range: {stop: %d}\n  - batch: {batch_size: 1}\n"
             "graph:\n  - {name: same, op: identity, input: [value]}\n%s"
             "staged: {features: {value: %s}%s%s}\n",
             n, graph, has_out ? "out" : "value", staged[0] != '\0' ? ", " : "", staged);
}

static int try_rows(struct fixture *fixture, int n, const char *graph, const char *staged,
                    bool replace, struct stg_err *err)
{
    char yaml[4096];
    write_rows(yaml, sizeof(yaml), n, graph, staged);
    return fixture_try_apply(fixture, yaml, replace, err);
}

void apply_rows(struct fixture *fixture, int n, const char *graph, const char *staged)
{
    struct stg_err err = {0};
    CHECK_OK(try_rows(fixture, n, graph, staged, true, &err), err);
}

int replace_rows(struct fixture *fixture, int n, const char *graph, const char *staged)
{
    struct stg_err err = {0};
    return try_rows(fixture, n, graph, staged, true, &err);
}

int delete_rows(struct fixture *fixture)
{
    struct stager *client;
    CHECK_INT(stager_connect(fixture->runtime, &client), 0);
    struct stg_request request = {.kind = STG_REQUEST_DELETE, .name = "rows"};
    struct stg_reply reply;
    struct stg_err err = {0};
    int rc = stg_admin_call(client, &request, &reply, &err);
    stager_disconnect(client);
    return rc;
}

const char *graph_failing(int modulus, int rest, const char *code)
{
    static char text[512];
    snprintf(text, sizeof(text),
             "  - {name: modulus, op: constant, value: %d, dtype: int64}\n"
             "  - {name: rest, op: constant, value: %d, dtype: int64}\n"
             "  - {name: left, op: floormod, input: [value, modulus]}\n"
             "  - {name: fine, op: not_equal, input: [left, rest]}\n"
             "  - {name: out, op: assert, input: [fine, value], code: %s, "
             "message: \"an item that fails\"}\n",
             modulus, rest, code);
    return text;
}

const char *graph_sleeping(int millis)
{
    static char text[128];
    snprintf(text, sizeof(text),
             "  - {name: out, op: sleep, input: [value], sleep_microseconds: %d}\n",
             millis * 1000);
    return text;
}

/* ---- waiting ---- */

struct wanted {
    size_t offset;
    uint64_t at_least;
};

static bool has_counter(const struct fixture_status *status, void *arg)
{
    const struct wanted *wanted = arg;
    uint64_t value;
    memcpy(&value, (const char *)status + wanted->offset, sizeof(value));
    return value >= wanted->at_least;
}

void wait_counter(struct fixture *fixture, size_t offset, uint64_t at_least)
{
    fixture_wait(fixture, "rows", 20000, has_counter, &(struct wanted){offset, at_least});
}

static bool has_state(const struct fixture_status *status, void *arg)
{
    return strcmp(status->state, arg) == 0;
}

void wait_state(struct fixture *fixture, const char *state)
{
    fixture_wait(fixture, "rows", 20000, has_state, (void *)(uintptr_t)state);
}

/* ---- checks ---- */

void check_accounts(struct fixture *fixture)
{
    struct fixture_status s;
    fixture_status(fixture, "rows", &s);
    CHECK_INT(s.made, s.published + s.dropped + s.ignored + s.in_hand + s.discarded);
    CHECK_INT(s.published, s.acknowledged + s.lost + s.buffered + s.unacknowledged +
                               s.discarded_published);
}

void check_sequence(const int64_t *values, int n, int64_t first, int64_t step)
{
    for (int i = 0; i < n; i++) {
        if (values[i] != first + i * step)
            FAIL("value %d is %lld, not %lld", i, (long long)values[i],
                 (long long)(first + i * step));
    }
}
