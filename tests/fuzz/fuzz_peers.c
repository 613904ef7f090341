/* SPDX-License-Identifier: Apache-2.0
 *
 * What another process sends: pipelines and settings as texts, messages of attach.sock,
 * sequences of requests and of writes to shared memory against a whole server, frames of
 * the helper processes, answers of etcd and of workers of py_function, and requests to
 * stager-metrics and to a worker. A text that loads survives the wire. Each request has
 * at most one reply; an error has a text. What is read of a request to a worker reads
 * back.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "daemon/worker/path.h"
#include "proto/load.h"
#include "proto/wire.h"
#include "tests/fuzz/etcd.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/helpers.h"
#include "tests/fuzz/pyworker.h"
#include "tests/fuzz/server.h"
#include "tests/proto/example.h"
#include "tests/proto/golden.h"

static unsigned char buf[STG_MESSAGE_MAX_BYTES], twice[STG_MESSAGE_MAX_BYTES];

/* ---- texts ---- */

static void run_pipeline(const uint8_t *data, size_t bytes)
{
    struct stg_pipeline_spec *spec = NULL, *got = NULL;
    struct stg_err err = {0};
    int rc = stg_load_pipeline((const char *)data, bytes, "p", &spec, &err);
    if (rc < 0) {
        FUZZ_CHECK_TEXT(strncmp(err.text, "p:", 2) == 0 && strlen(err.text) > 8,
                        err.text);
        return;
    }
    FUZZ_CHECK(spec->n_steps > 0);
    struct stg_reply reply = {.kind = STG_REQUEST_OPEN, .name = "p", .pipeline = spec};
    long n = stg_wire_encode_reply(&reply, buf, sizeof(buf));
    if (n > 0) {
        rc = stg_wire_decode_pipeline(buf, (size_t)n, &got, &err);
        FUZZ_CHECK_TEXT(rc == 0, err.text);
        FUZZ_CHECK(got->n_nodes == spec->n_nodes);
        stg_pipeline_spec_destroy(got);
    }
    stg_pipeline_spec_destroy(spec);
}

static void run_settings(const uint8_t *data, size_t bytes)
{
    struct stg_settings settings = {0};
    struct sockaddr_storage address;
    struct stg_err err = {0};
    char text[64];
    int rc = stg_load_settings((const char *)data, bytes, "p", &settings, &err);
    FUZZ_CHECK_TEXT(rc == 0 || strncmp(err.text, "p:", 2) == 0, err.text);
    if (rc == 0)
        FUZZ_CHECK(settings.runtime_dir != NULL);
    stg_settings_finish(&settings);
    size_t n = bytes < sizeof(text) - 1 ? bytes : sizeof(text) - 1;
    memcpy(text, data, n);
    text[n] = '\0';
    (void)stg_load_address(text, &address, &err);
}

/* ---- messages ---- */

static void run_request(const uint8_t *data, size_t bytes)
{
    struct stg_bump bump = {0}, again_bump = {0};
    struct stg_request request, again;
    struct stg_err err = {0};
    int rc = stg_wire_decode_request(data, bytes, &bump, &request, &err);
    FUZZ_CHECK(rc == 0 || err.text[0] != '\0');
    long n = rc == 0 ? stg_wire_encode_request(&request, buf, sizeof(buf)) : 0;
    if (n > 0) {
        rc = stg_wire_decode_request(buf, (size_t)n, &again_bump, &again, &err);
        FUZZ_CHECK_TEXT(rc == 0, err.text);
        FUZZ_CHECK(again.kind == request.kind && again.id == request.id);
        FUZZ_CHECK(stg_wire_encode_request(&again, twice, sizeof(twice)) == n);
        FUZZ_CHECK(memcmp(buf, twice, (size_t)n) == 0);
    }
    stg_bump_finish(&bump);
    stg_bump_finish(&again_bump);
}

static void run_reply(const uint8_t *data, size_t bytes)
{
    struct stg_bump bump = {0};
    struct stg_reply reply;
    struct stg_pipeline_spec *spec = NULL;
    struct stg_event event;
    struct stg_err err = {0};
    int rc = stg_wire_decode_reply(data, bytes, &bump, &reply, &err);
    int rc_spec = stg_wire_decode_pipeline(data, bytes, &spec, &err);
    if (rc == 0 && (rc_spec == 0 || rc_spec == -STAGER_NOT_FOUND)) {
        reply.pipeline = spec;
        FUZZ_CHECK(stg_wire_encode_reply(&reply, buf, sizeof(buf)) > 0);
    }
    (void)stg_wire_decode_event(data, bytes, &event, &err);
    stg_pipeline_spec_destroy(spec);
    stg_bump_finish(&bump);
}

/* ---- requests to a worker ---- */

/* Takes a line, which the caller frees. It ends at a NUL too. */
static char *take_line(struct stg_fuzz_input *input)
{
    const uint8_t *end = memchr(input->at, '\n', stg_fuzz_left(input));
    size_t n = end != NULL ? (size_t)(end - input->at) : stg_fuzz_left(input);
    char *text = strndup((const char *)input->at, n);
    FUZZ_CHECK(text != NULL);
    input->at += end != NULL ? n + 1 : n;
    return text;
}

static bool is_printed(const char *text, uint64_t number)
{
    char want[24];
    snprintf(want, sizeof(want), "%" PRIu64, number);
    return strcmp(text, want) == 0 && number != STG_WORKER_NO_END;
}

static void check_worker_path(const char *text)
{
    struct stg_worker_ask ask = {0};
    char one[128], range[256];
    const char *wrong = stg_worker_path(text, &ask);
    if (wrong != NULL) {
        FUZZ_CHECK(wrong[0] != '\0');
        return;
    }
    snprintf(one, sizeof(one), "%s/%" PRIu64 "/%" PRIu64, ask.digest, ask.pass,
             ask.first);
    snprintf(range, sizeof(range), "%s-%" PRIu64, one, ask.last);
    FUZZ_CHECK_TEXT(strcmp(text, range) == 0 ||
                        (ask.first == ask.last && strcmp(text, one) == 0),
                    text);
    FUZZ_CHECK(strlen(ask.digest) == 64 && ask.last >= ask.first &&
               ask.last - ask.first < STG_WORKER_MAX_BATCHES);
}

static void check_worker_query(char *const values[5])
{
    struct stg_worker_ask ask = {0};
    const struct stg_worker_query query = {.epoch = values[0],
                                           .index = values[1],
                                           .host = values[2],
                                           .hosts = values[3],
                                           .begin = values[4]};
    if (stg_worker_query(&query, &ask) != NULL)
        return;
    FUZZ_CHECK((ask.has_epoch != 0) == (values[0] != NULL || values[1] != NULL));
    if (ask.has_epoch != 0)
        FUZZ_CHECK(is_printed(values[0], ask.epoch) && is_printed(values[1], ask.index));
    FUZZ_CHECK((ask.deal.n_hosts > 0) == (values[2] != NULL || values[3] != NULL));
    if (ask.deal.n_hosts > 0)
        FUZZ_CHECK(is_printed(values[2], ask.deal.host) &&
                   is_printed(values[3], ask.deal.n_hosts) &&
                   is_printed(values[4], ask.deal_first) &&
                   ask.deal.host < ask.deal.n_hosts &&
                   ask.deal.n_hosts <= STG_DEAL_MAX_HOSTS);
}

/* The values that the query has, a bit each; then the lines path, header and token, and
 * these values. */
static void run_worker(const uint8_t *data, size_t bytes)
{
    struct stg_fuzz_input input = {data, data + bytes};
    unsigned has = stg_fuzz_byte(&input);
    char *path = take_line(&input), *header = take_line(&input);
    char *token = take_line(&input), *values[5] = {0};
    for (unsigned i = 0; i < 5; i++)
        values[i] = (has >> i & 1) != 0 ? take_line(&input) : NULL;
    check_worker_path(path);
    check_worker_query(values);
    bool is_allowed =
        strncasecmp(header, "Bearer ", 7) == 0 && strcmp(header + 7, token) == 0;
    FUZZ_CHECK_TEXT(stg_worker_is_allowed(header, token) == is_allowed, header);
    for (unsigned i = 0; i < 5; i++)
        free(values[i]);
    free(path);
    free(header);
    free(token);
}

#define WORKER_DIGEST "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void seed_worker(void)
{
    stg_fuzz_seed_text("worker", "@" WORKER_DIGEST "/0/12\nBearer secret\nsecret");
    stg_fuzz_seed_text("worker",
                       "C" WORKER_DIGEST "/3/12-75\nbearer secret\nsecreT\n2\n12");
    stg_fuzz_seed_text("worker",
                       "\x5c" WORKER_DIGEST "/18446744073709551614/18446744073709551550-"
                       "18446744073709551614\n\n\n1048575\n1048576\n"
                       "18446744073709551614");
    stg_fuzz_seed_text("worker", "_" WORKER_DIGEST
                                 "/0/18446744073709551614-1\nBasic x\n\n0\n0\n0\n1\n0");
    stg_fuzz_seed_text("worker", "_" WORKER_DIGEST "/0/%31\nBearer \n\n01\n-1\n4294967296"
                                 "\n4294967297\nx");
}

/* ---- the program ---- */

const struct stg_fuzz_mode stg_fuzz_modes[] = {
    {"pipeline", run_pipeline},  {"settings", run_settings},
    {"request", run_request},    {"reply", run_reply},
    {"server", stg_fuzz_server}, {"gate", stg_fuzz_gate},
    {"gpu", stg_fuzz_gpu},       {"etcd", stg_fuzz_etcd},
    {"worker", run_worker},      {"pyworker", stg_fuzz_pyworker},
#ifdef STG_FUZZ_HTTP
    {"http", stg_fuzz_http},
#endif
};
const size_t stg_fuzz_n_modes = sizeof(stg_fuzz_modes) / sizeof(stg_fuzz_modes[0]);

#define SEED(mode, name)                                                                 \
    stg_fuzz_seed(mode, NULL, 0, golden_##name, sizeof(golden_##name))

static void seed_messages(void)
{
    SEED("request", request_hello);
    SEED("request", request_apply);
    SEED("request", request_open);
    SEED("request", request_open_again);
    SEED("request", request_commit_away);
    SEED("request", request_gate_delete);
    SEED("request", request_report);
    SEED("request", request_index_text);
    SEED("request", request_trace);
    SEED("reply", reply_hello);
    SEED("reply", reply_apply);
    SEED("reply", reply_status);
    SEED("reply", reply_open);
    SEED("reply", reply_explain);
    SEED("reply", reply_commits);
    SEED("reply", reply_work);
    SEED("reply", event);
}

void stg_fuzz_seeds(void)
{
    stg_fuzz_seed_text("pipeline", example_yaml);
    stg_fuzz_seed_text("pipeline", example_json);
    stg_fuzz_seed_text(
        "pipeline",
        "dataset: [range: {start: -3, stop: 0x10}, repeat, batch: {batch_size: 1KiB}]\n"
        "graph:\n  a: {op: x, k: [[[\"a\\0\", ~], [1, .inf]]], e: [], input: [\"b:0..9\"]"
        "}\n  b:\n    op: 'y'\n    text: |\n      one\n    more: >-\n      two\n"
        "staged:\n  features: {u: {id: \"a:1\", x: [b, c]}, l: d}\n  memory_budget: "
        "1GiB\n"
        "targets: a\n");
    stg_fuzz_seed_text("settings",
                       "runtime_dir: /run/x\nstate_dir: \"/var/lib/x\"\nmemory_budget: "
                       "1GiB\nmax_clients: 3\nthread_pools:\n  - {global_name: a, "
                       "inter_op_threads_num: 2}\n");
    stg_fuzz_seed_text("settings", "[::1]:9464");
    seed_messages();
    stg_fuzz_server_seeds();
    stg_fuzz_helper_seeds();
    stg_fuzz_etcd_seeds();
    seed_worker();
    stg_fuzz_pyworker_seeds();
#ifdef STG_FUZZ_HTTP
    stg_fuzz_seed_text("http", "\x20GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: "
                               "application/openmetrics-text;version=1.0.0;q=0.5,*/*;q="
                               "0.1\r\n\r\n");
    stg_fuzz_seed_text("http", "\x09GET /api/v1/pipeline?name=a%2Fb&x HTTP/1.1\r\nHost: "
                               "localhost:9\r\n\r\n");
    stg_fuzz_seed_text("http", "\x05HEAD /readyz HTTP/1.0\r\nConnection: close\r\n\r\n");
    stg_fuzz_seed_text("http", "\x40POST /version HTTP/1.1\r\nHost: x\r\nTransfer-"
                               "Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
#endif
}
