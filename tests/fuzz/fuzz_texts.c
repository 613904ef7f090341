/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts and records from files and servers: the ops that parse strings, images among
 * them; JSON, XML, URLs, answers of S3 and WebHDFS, states, what stands in state_dir, the
 * files of `stagerctl schema`, and files of secrets.
 * A record has the same result alone as among others; a text that is written reads back.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/record/audit.h"
#include "core/record/line.h"
#include "core/state.h"
#include "daemon/cluster/note.h"
#include "daemon/describe/describe.h"
#include "daemon/journal/commits.h"
#include "daemon/recover/record.h"
#include "daemon/storage/http/credentials.h"
#include "daemon/storage/http/hdfs.h"
#include "daemon/storage/http/s3.h"
#include "daemon/storage/http/sigv4.h"
#include "daemon/storage/http/url.h"
#include "daemon/storage/http/xml.h"
#include "ops/base/json.h"
#include "tests/check.h"
#include "tests/daemon/format/golden_npy.h"
#include "tests/daemon/format/golden_parquet.h"
#include "tests/daemon/format/golden_tar.h"
#include "tests/daemon/format/golden_tfrecord.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/pass.h"
#include "tests/fuzz/stored.h"
#include "tests/ops/op_rows.h"

/* ---- ops ---- */

#define MAX_RECORDS 8

static const char *const op_names[] = {
    "decode_csv",       "parse_example",         "parse_json",
    "string_split",     "decode_jpeg",           "decode_png",
    "decode_image",     "decode_compressed",     "decode_raw",
    "string_to_number", "parse_sequence_example"};

/* A graph of one op, which takes one tensor of strings. */
struct parser {
    const struct op_case *c;
    bool is_scalar;
    struct fixture fx;
    struct stg_graph *graph;
    struct stg_run *run;
    size_t n_outputs;
    struct stg_tensor outputs[OP_CASE_TENSORS];
};
static struct parser parsers[64];
static size_t n_parsers;

static bool is_image(const char *op)
{
    return strcmp(op, "decode_jpeg") == 0 || strcmp(op, "decode_png") == 0 ||
           strcmp(op, "decode_image") == 0;
}

/* Of an image: small ones. */
static const struct op_case *bounded(const struct op_case *c)
{
    static struct op_case copies[sizeof(parsers) / sizeof(parsers[0])];
    static char attrs[sizeof(parsers) / sizeof(parsers[0])][256];
    if (!is_image(c->op))
        return c;
    snprintf(attrs[n_parsers], sizeof(attrs[0]), "%s max_pixels=50000", c->attrs);
    copies[n_parsers] = *c;
    copies[n_parsers].attrs = attrs[n_parsers];
    return &copies[n_parsers];
}

static bool is_known(const struct op_case *c)
{
    for (size_t i = 0; i < n_parsers; i++) {
        if (strcmp(parsers[i].c->op, c->op) == 0 &&
            strncmp(parsers[i].c->attrs, c->attrs, strlen(c->attrs)) == 0)
            return true;
    }
    return false;
}

static void add_parser(const struct op_case *c)
{
    struct parser *parser = &parsers[n_parsers];
    struct stg_bump bump = {0};
    struct stg_tensor feeds[OP_CASE_TENSORS];
    struct stg_err err = {.row = -1};
    parser->c = bounded(c);
    size_t n = op_case_inputs(parser->c, &bump, feeds, &parser->n_outputs);
    if (n == 1 && feeds[0].dtype == STAGER_STRING && feeds[0].ndim <= 1 &&
        op_case_graph(parser->c, feeds, n, parser->n_outputs, &parser->fx, &parser->graph,
                      &err) == 0 &&
        stg_run_create_stage(parser->graph, &parser->run, &err) == 0) {
        parser->is_scalar = feeds[0].ndim == 0;
        n_parsers++;
    } else {
        stg_graph_destroy(parser->graph);
        fixture_finish(&parser->fx);
        *parser = (struct parser){0};
    }
    stg_bump_finish(&bump);
}

/* A few graphs of each op, those of different attributes. */
static void make_parsers(void)
{
    for (size_t i = 0; i < sizeof(op_names) / sizeof(op_names[0]); i++) {
        size_t begin = n_parsers;
        for (size_t k = 0; k < n_op_rows && n_parsers < begin + 5; k++) {
            if (strcmp(op_rows[k].op, op_names[i]) == 0 && op_rows[k].want != NULL &&
                !is_known(&op_rows[k]))
                add_parser(&op_rows[k]);
        }
    }
    FUZZ_CHECK(n_parsers > 8);
}

static int run_parser(struct parser *parser, const uint8_t *data, int64_t *begin,
                      int64_t *end, int64_t n, struct stg_err *err)
{
    struct stg_tensor feed = {.dtype = STAGER_STRING,
                              .ndim = parser->is_scalar ? 0 : 1,
                              .shape = {n},
                              .data = (void *)(uintptr_t)data,
                              .data_bytes = n > 0 ? (uint64_t)end[n - 1] : 0,
                              .begin = begin,
                              .end = end};
    *err = (struct stg_err){.row = -1};
    return stg_run_exec(parser->run, &feed, NULL, NULL, parser->outputs, err);
}

/* Each output's strings are within its bytes. */
static void check_outputs(const struct parser *parser)
{
    for (size_t i = 0; i < parser->n_outputs; i++) {
        const struct stg_tensor *tensor = &parser->outputs[i];
        int64_t n = 1;
        for (int d = 0; d < tensor->ndim; d++)
            n *= tensor->shape[d];
        uint64_t hash = 1;
        if (tensor->dtype != STAGER_STRING)
            hash = stg_fuzz_hash(hash, tensor->data,
                                 (size_t)n * stg_dtype_bytes(tensor->dtype));
        for (int64_t k = 0; tensor->dtype == STAGER_STRING && k < n; k++) {
            FUZZ_CHECK(tensor->begin[k] <= tensor->end[k]);
            hash = stg_fuzz_hash(hash, (const char *)tensor->data + tensor->begin[k],
                                 (size_t)(tensor->end[k] - tensor->begin[k]));
        }
        FUZZ_CHECK(hash != 0 || n > 0);
    }
}

/* The graph; then records, each behind a length of two bytes; the last one is the rest.
 */
static void run_ops(const uint8_t *data, size_t bytes)
{
    struct stg_fuzz_input input = {data, data + bytes};
    int64_t begin[MAX_RECORDS], end[MAX_RECORDS], n = 0;
    struct stg_err err, alone;
    if (n_parsers == 0)
        make_parsers();
    struct parser *parser = &parsers[stg_fuzz_byte(&input) % n_parsers];
    while (n < MAX_RECORDS && (n == 0 || input.at < input.end)) {
        size_t length = parser->is_scalar ? SIZE_MAX : stg_fuzz_number(&input);
        size_t left = stg_fuzz_left(&input);
        begin[n] = input.at - data;
        input.at += length < left ? length : left;
        end[n++] = input.at - data;
        if (parser->is_scalar)
            break;
    }
    int rc = run_parser(parser, data, begin, end, n, &err);
    if (rc == 0)
        check_outputs(parser);
    else
        FUZZ_CHECK(err.text[0] != '\0' && err.row >= -1 && err.row < n);
    for (int64_t i = 0; i < n && n > 1; i++) {
        int rc_alone = run_parser(parser, data, &begin[i], &end[i], 1, &alone);
        FUZZ_CHECK_TEXT(rc < 0 || rc_alone == 0, alone.text);
        if (rc < 0 && i < err.row)
            FUZZ_CHECK_TEXT(rc_alone == 0, alone.text);
        if (rc < 0 && i == err.row && strstr(err.text, ", the first has ") == NULL)
            FUZZ_CHECK_TEXT(rc_alone == rc, err.text);
    }
}

/* ---- JSON ---- */

static void run_json(const uint8_t *data, size_t bytes)
{
    struct stg_json at = {.p = (const char *)data, .end = (const char *)data + bytes};
    struct stg_json_token token;
    struct stg_json whole = at;
    char *text = malloc(bytes + 1);
    FUZZ_CHECK(text != NULL);
    bool is_good = stg_json_skip(&whole) && stg_json_ends(&whole);
    while (stg_json_next(&at, &token)) {
        FUZZ_CHECK(token.s >= (const char *)data && token.s + token.bytes <= at.end);
        if (token.kind == '"')
            FUZZ_CHECK(stg_json_unescape(&token, text) <= token.bytes);
        (void)stg_json_take(&at, ',');
        (void)stg_json_take(&at, ':');
    }
    FUZZ_CHECK(at.fault != NULL || is_good || at.p <= at.end);
    free(text);
}

/* ---- servers ---- */

static int on_element(void *owner, const char *path, const char *text,
                      struct stg_err *err)
{
    size_t *n = owner;
    *n += strlen(path) + (text != NULL ? strlen(text) : 0);
    return *n > 65536 ? stg_err(err, -STAGER_CANCELLED, "enough") : 0;
}

static int on_key(void *owner, const char *key, struct stg_err *err)
{
    *(size_t *)owner += strlen(key);
    return 0;
}

static int on_status(void *owner, const struct stg_hdfs_status *status,
                     struct stg_err *err)
{
    *(size_t *)owner += strnlen(status->name, sizeof(status->name));
    return 0;
}

/* Buffers of an odd size, of which the first byte is the kind. */
static void run_servers(const uint8_t *data, size_t bytes)
{
    char code[17], message[33], token[STG_S3_TOKEN_BYTES];
    struct stg_err err = {0};
    struct stg_hdfs_status status;
    size_t n = 0;
    int rc = 0;
    if (bytes == 0)
        return;
    const char *text = (const char *)data + 1;
    bytes--;
    switch (data[0] % 5) {
    case 0: rc = stg_xml_read(text, bytes, on_element, &n, &err); break;
    case 1: rc = stg_s3_page(text, bytes, on_key, &n, token, &err); break;
    case 2: rc = stg_hdfs_status(text, bytes, &status, &err); break;
    case 3: rc = stg_hdfs_list(text, bytes, on_status, &n, &err); break;
    default:
        stg_s3_refusal(text, bytes, code, sizeof(code), message, sizeof(message));
        FUZZ_CHECK(strlen(code) < sizeof(code) && strlen(message) < sizeof(message));
        stg_hdfs_refusal(text, bytes, code, sizeof(code), message, sizeof(message));
        FUZZ_CHECK(strlen(code) < sizeof(code) && strlen(message) < sizeof(message));
    }
    FUZZ_CHECK(rc == 0 || err.text[0] != '\0');
    if (rc == 0 && data[0] % 5 == 2)
        FUZZ_CHECK(strnlen(status.name, sizeof(status.name)) <= NAME_MAX);
}

/* ---- URLs ---- */

static void run_urls(const uint8_t *data, size_t bytes)
{
    char *url = malloc(bytes + 1), *encoded = NULL;
    size_t n = 0;
    struct stg_err err = {0};
    FUZZ_CHECK(url != NULL);
    memcpy(url, data, bytes);
    url[bytes] = '\0';
    (void)stg_url_check_dots("https", url, &err);
    FILE *to = open_memstream(&encoded, &n);
    stg_url_encode(to, url, false);
    fclose(to);
    for (size_t i = 0; i < n; i++)
        FUZZ_CHECK(strchr("-._~%", encoded[i]) != NULL || (encoded[i] | 32) >= 'a' ||
                   (encoded[i] >= '0' && encoded[i] <= '9'));
    free(encoded);
    const struct stg_sigv4_header headers[] = {{"host", "x"}};
    const struct stg_sigv4 request = {.key = "key",
                                      .secret = "secret",
                                      .region = "r",
                                      .service = "s3",
                                      .date = "20150830T123600Z",
                                      .url = url,
                                      .headers = headers,
                                      .n_headers = 1};
    if (strncmp(url, "http", 4) == 0) {
        free(stg_sigv4(&request));
        free(stg_sigv4_host(url));
    }
    free(url);
}

/* ---- states ---- */

static void run_states(const uint8_t *data, size_t bytes)
{
    static struct stg_state state, again;
    static char text[STG_STATE_TEXT_BYTES];
    struct stg_err err = {0};
    int rc = stg_state_read((const char *)data, bytes, &state, &err);
    if (rc < 0) {
        FUZZ_CHECK(rc == -STAGER_INVALID_ARGUMENT && err.text[0] != '\0');
        return;
    }
    size_t n = stg_state_write(&state, text);
    rc = stg_state_read(text, n, &again, &err);
    FUZZ_CHECK_TEXT(rc == 0, err.text);
    FUZZ_CHECK(stg_state_differs(&state, &again) == NULL);
    struct stg_state both[] = {state, state}, *merged = &again;
    (void)stg_state_merge(both, 1 + bytes % 2, merged, &err);
}

/* What a crash, or another disk, may have left in state_dir. */
static void run_records(const uint8_t *data, size_t bytes)
{
    struct stg_run_record record = {0}, again = {0};
    struct stg_err err = {0};
    if (stg_run_record_read((const char *)data, bytes, &record, &err) == 0) {
        size_t n = 0;
        char *text = stg_run_record_write(&record, &n);
        FUZZ_CHECK(text != NULL);
        FUZZ_CHECK_TEXT(stg_run_record_read(text, n, &again, &err) == 0, err.text);
        FUZZ_CHECK(again.n_members == record.n_members);
        free(text);
    }
    stg_run_record_finish(&again);
    stg_run_record_finish(&record);
    struct stg_audit audit = {0};
    FUZZ_CHECK(stg_audit_read(&audit, (const char *)data, bytes, &err) == 0);
    (void)stg_audit_scan_newest((const char *)data, bytes);
    stg_audit_shrink(&audit, 2, 2, 2);
    struct stg_audit_text text = {0};
    stg_audit_write(&audit, &text);
    free(text.bytes);
    stg_audit_finish(&audit);
}

/* Makes each line of the input a record with its sum, or a bad one if it begins with
 * '!'. */
static size_t make_lines(const uint8_t *data, size_t bytes, char *to)
{
    const uint8_t *at = data, *end = data + bytes;
    size_t n_all = 0;
    while (at < end) {
        const uint8_t *line_end = memchr(at, '\n', (size_t)(end - at));
        size_t n = (size_t)((line_end != NULL ? line_end : end) - at);
        bool is_bad = *at == '!';
        memcpy(to + n_all + 1 + STG_LINE_HEAD_BYTES, at, n);
        n_all += stg_line_finish(to + n_all, n, is_bad ? "!! " : "c1 ");
        at += n + (line_end != NULL);
    }
    return n_all;
}

/* The table of a journal: what is written of it, lanes with commits, reads back as the
 * same. */
static void run_commits(const uint8_t *data, size_t bytes)
{
    struct stg_commits commits = {0}, again = {0};
    struct stg_commits_damage damage = {0}, none = {0};
    struct stg_err err = {0};
    size_t n = 0, n_again = 0;
    char *lines = malloc((bytes + 1) * (STG_LINE_HEAD_BYTES + 3));
    FUZZ_CHECK(lines != NULL);
    size_t n_lines = make_lines(data, bytes, lines);
    int rc = stg_commits_read(&commits, lines, n_lines, &damage, &err);
    FUZZ_CHECK_TEXT(rc == 0, err.text);
    FUZZ_CHECK(damage.good_bytes <= n_lines);
    free(lines);
    char *text = stg_commits_write(&commits, &n);
    FUZZ_CHECK(text != NULL);
    FUZZ_CHECK_TEXT(stg_commits_read(&again, text, n, &none, &err) == 0, err.text);
    FUZZ_CHECK(none.n_bad == 0);
    FUZZ_CHECK(again.n_used == commits.n_used);
    char *text_again = stg_commits_write(&again, &n_again);
    FUZZ_CHECK(text_again != NULL && n_again == n && memcmp(text, text_again, n) == 0);
    free(text_again);
    free(text);
    stg_commits_finish(&again);
    stg_commits_finish(&commits);
}

/* ---- files that stagerd reads when it is asked ---- */

/* Returns the path of a file in memory with these bytes, of mode 600. A pattern of files
 * does not match it. */
static const char *keep(const void *data, size_t bytes)
{
    static int fd = -1;
    static char path[64];
    if (fd < 0)
        fd = memfd_create("fuzz", MFD_CLOEXEC);
    FUZZ_CHECK(fd >= 0 && fchmod(fd, 0600) == 0 && ftruncate(fd, 0) == 0 &&
               pwrite(fd, data, bytes, 0) == (ssize_t)bytes);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    stg_test_keeps_descriptors();
    return path;
}

/* The first column, then a file of any format. */
static void run_describe(const uint8_t *data, size_t bytes)
{
    struct stg_identity identity = {.uid = getuid(), .gid = getgid()};
    struct stg_description *description = NULL;
    struct stg_err err = {0};
    if (bytes == 0)
        return;
    struct stg_describe_config config = {.url = stg_fuzz_file(data + 1, bytes - 1),
                                         .first = data[0] % 4,
                                         .identity = &identity,
                                         .wait_ns = 30000000000u};
    int rc = stg_describe(&config, &description, &err);
    FUZZ_CHECK_TEXT(rc != -STAGER_DEADLINE_EXCEEDED, err.text);
    if (rc < 0) {
        FUZZ_CHECK(err.text[0] != '\0');
        return;
    }
    const struct stg_file_schema *schema = stg_description_schema(description);
    uint64_t hash = strlen(schema->format);
    for (size_t i = 0; i < schema->n; i++) {
        const struct stg_file_column *column = &schema->columns[i];
        hash += strlen(column->name) + (column->type != NULL ? strlen(column->type) : 0);
        FUZZ_CHECK(column->ndim >= 0 && column->ndim <= STG_LAYOUT_MAX_DIMS);
    }
    FUZZ_CHECK(hash > 0);
    stg_description_free(description);
}

/* No text of an error has anything of the file. */
static void run_credentials(const uint8_t *data, size_t bytes)
{
    struct stg_store store = {0};
    struct stg_err err = {0};
    int rc = stg_credentials_read(keep(data, bytes), "default", &store, &err);
    FUZZ_CHECK(rc == 0 || err.text[0] != '\0');
    FUZZ_CHECK_TEXT(strstr(err.text, "SECRET") == NULL, err.text);
    stg_store_finish(&store);
}

/* ---- the program ---- */

/* ---- notes of other hosts ---- */

static void run_notes(const uint8_t *data, size_t bytes)
{
    static struct stg_file_mark marks[STG_NOTE_MAX_FILES];
    struct stg_host_note note, again;
    char *text = malloc(bytes + 1), *written = malloc(STG_NOTE_BYTES), what[128];
    FUZZ_CHECK(text != NULL && written != NULL);
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    if (bytes < STG_NOTE_BYTES && stg_host_note_read(text, &note) == 0) {
        FUZZ_CHECK(note.number < note.n_hosts && note.n_seen <= STG_NOTE_MAX_HOSTS);
        stg_host_note_write(&note, written);
        FUZZ_CHECK(stg_host_note_read(written, &again) == 0);
        FUZZ_CHECK(again.n_seen == note.n_seen && again.draw == note.draw);
        FUZZ_CHECK(!stg_host_notes_differ(&note, &again, what, sizeof(what)));
        stg_host_note_finish(&again);
        stg_host_note_finish(&note);
    }
    FUZZ_CHECK(stg_file_marks_read(text, 7, marks) <= (int)STG_NOTE_MAX_FILES);
    free(written);
    free(text);
}

static void seed_notes(void)
{
    static char text[STG_LIST_BYTES];
    uint64_t seen[] = {3, 5};
    const struct stg_file_mark marks[] = {{11, 100}, {12, 0}};
    const struct stg_host_note note = {.number = 1,
                                       .n_hosts = 3,
                                       .draw = 7,
                                       .host = "node-b",
                                       .release = "0.3.0",
                                       .steps = "files:00000001,shard:00000002",
                                       .n_files = 2,
                                       .span = 1,
                                       .seen = seen,
                                       .n_seen = 2};
    stg_fuzz_seed("notes", NULL, 0, text, stg_host_note_write(&note, text));
    stg_fuzz_seed("notes", NULL, 0, text, stg_file_marks_write(7, marks, 2, text));
}

const struct stg_fuzz_mode stg_fuzz_modes[] = {
    {"ops", run_ops},
    {"json", run_json},
    {"servers", run_servers},
    {"urls", run_urls},
    {"states", run_states},
    {"records", run_records},
    {"commits", run_commits},
    {"describe", run_describe},
    {"credentials", run_credentials},
    {"notes", run_notes},
    {"versions", stg_fuzz_versions},
    {"priors", stg_fuzz_priors},
};
const size_t stg_fuzz_n_modes = sizeof(stg_fuzz_modes) / sizeof(stg_fuzz_modes[0]);

/* The strings of the row that a graph is of. */
static void seed_parser(uint8_t i)
{
    static uint8_t records[65536];
    struct stg_bump bump = {0};
    struct stg_tensor feeds[OP_CASE_TENSORS];
    size_t n_outputs, at = 0;
    op_case_inputs(parsers[i].c, &bump, feeds, &n_outputs);
    int64_t n = feeds[0].ndim == 0 ? 1 : feeds[0].shape[0];
    for (int64_t k = 0; k < n && k < MAX_RECORDS; k++) {
        size_t length = (size_t)(feeds[0].end[k] - feeds[0].begin[k]);
        FUZZ_CHECK(at + length + 2 <= sizeof(records));
        if (!parsers[i].is_scalar) {
            records[at++] = (uint8_t)(length >> 8);
            records[at++] = (uint8_t)length;
        }
        memcpy(records + at, (const char *)feeds[0].data + feeds[0].begin[k], length);
        at += length;
    }
    stg_fuzz_seed("ops", &i, 1, records, at);
    stg_bump_finish(&bump);
}

static void seed_server(const char *kind, const char *text)
{
    stg_fuzz_seed("servers", kind, 1, text, strlen(text));
}

static void seed_describe(const void *data, size_t bytes)
{
    stg_fuzz_seed("describe", "", 1, data, bytes);
}

static void seed_line(const char *line, size_t n)
{
    stg_fuzz_seed("commits", NULL, 0, line + 1 + STG_LINE_HEAD_BYTES,
                  n - STG_LINE_HEAD_BYTES - 2);
}

static void seed_files(const struct stg_state *state)
{
    static const char csv[] = "id,price,word\n1,2.5,\"a \"\"b\"\"\"\n2,,c\n";
    static const char json[] = "{\"a\": 1, \"b\": [1, 2.5]}\n{\"a\": null}\n";
    static char line[STG_COMMITS_LINE_BYTES];
    struct stg_commit head = {.attempt = 3, .tag = "one", .client = "ada"};
    struct stg_commit *commit = stg_commit_create(&head, state);
    FUZZ_CHECK(commit != NULL);
    size_t n = stg_commits_write_commit("ada", commit, line);
    free(commit);
    seed_line(line, n);
    n = stg_commits_write_attempt("", 4, line);
    seed_line(line, n);
    stg_fuzz_seed_text("credentials", "[default]\naws_access_key_id = KEY\n"
                                      "aws_secret_access_key=SECRET\n# x\n[other]\n"
                                      "region = eu\n");
    seed_describe(csv, sizeof(csv) - 1);
    seed_describe(json, sizeof(json) - 1);
    seed_describe(golden_plain, sizeof(golden_plain));
    seed_describe(npy_grid, sizeof(npy_grid));
    seed_describe(tar_ustar, sizeof(tar_ustar));
    seed_describe(parquet_plain, sizeof(parquet_plain));
}

void stg_fuzz_seeds(void)
{
    static const char page[] =
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\"x\"><Name>"
        "b</Name><IsTruncated>true</IsTruncated><NextContinuationToken>t&amp;1"
        "</NextContinuationToken><Contents><Key>a%2Fb&#66;</Key><Size>1</Size></Contents>"
        "<Contents><Key><![CDATA[c]]></Key></Contents></ListBucketResult>";
    static const char refusal[] = "<Error><Code>NoSuchKey</Code><Message>The key is "
                                  "missing</Message></Error>";
    static const char status[] =
        "{\"FileStatus\":{\"fileId\":16387,\"length\":24930,\"modificationTime\":"
        "1320171722771,\"pathSuffix\":\"a\\u002fb\",\"type\":\"FILE\"}}";
    static const char list[] =
        "{\"FileStatuses\":{\"FileStatus\":[{\"length\":1,\"pathSuffix\":\"x\",\"type\":"
        "\"DIRECTORY\"},{\"length\":2,\"pathSuffix\":\"y\",\"type\":\"FILE\"}]}}";
    static const char exception[] =
        "{\"RemoteException\":{\"exception\":\"FileNotFound\","
        "\"message\":\"no \\\"x\\\"\"}}";
    static char text[STG_STATE_TEXT_BYTES];
    if (n_parsers == 0)
        make_parsers();
    for (size_t i = 0; i < n_parsers; i++)
        seed_parser((uint8_t)i);
    stg_fuzz_seed_text("json", status);
    stg_fuzz_seed_text("json", "[1, -2.5e3, \"a\\ud83d\\ude00\", {\"k\": null}, true]");
    seed_server("\0", page);
    seed_server("\1", page);
    seed_server("\2", status);
    seed_server("\3", list);
    seed_server("\4", refusal);
    seed_server("\4", exception);
    stg_fuzz_seed_text("urls", "https://[::1]:9000/b/../a%2e%2E/%zz?x=1&y=%20#f");
    stg_fuzz_seed_text("urls", "http://u:p@host:80/a b/\xc3\xa9?");
    struct stg_state state = {.steps = "files:1,batch:2",
                              .order = STG_ORDER_VERSION,
                              .place = {.items = 3, .elements = 12},
                              .rows = 1,
                              .run = 7,
                              .consumers = 2,
                              .consumer = 1,
                              .batch = 4,
                              .client = "one",
                              .taken = "0-2,5"};
    stg_fuzz_seed("states", NULL, 0, text, stg_state_write(&state, text));
    seed_files(&state);
    struct stg_run_record record = {.name = "p", .steps = "files:1", .run = 7};
    size_t n = 0;
    char *record_text = stg_run_record_write(&record, &n);
    stg_fuzz_seed("records", NULL, 0, record_text, n);
    seed_notes();
    stg_fuzz_stored_seeds();
    free(record_text);
    struct stg_audit_text audit = {0};
    uint64_t seq = 0;
    struct stg_audit_begin begin = {.run = 7,
                                    .attempt = 1,
                                    .lane = "",
                                    .delivery = "split",
                                    .point.taken = "",
                                    .tag = ""};
    stg_audit_write_begin(&audit, &seq, &begin);
    begin.hosts = (struct stg_audit_hosts){
        .job = "run", .generation = 2, .n_hosts = 3, .base = 64, .from_generation = 1};
    stg_audit_write_begin(&audit, &seq, &begin);
    stg_audit_write_end(&audit, &seq, 7, 1);
    stg_fuzz_seed("records", NULL, 0, audit.bytes, audit.n);
    free(audit.bytes);
}
