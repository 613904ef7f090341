/* SPDX-License-Identifier: Apache-2.0
 *
 * Mutations of valid texts and messages, for STG_FUZZ_MS milliseconds each (1000), from
 * seed STG_FUZZ_SEED (1). Meant for the sanitizers; a text that loads must also survive
 * the wire.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/load.h"
#include "proto/wire.h"
#include "tests/check.h"
#include "tests/proto/example.h"
#include "tests/proto/golden.h"

#define MAX_INPUT 65536u

struct fuzz {
    uint64_t state;
    int64_t end_ns, worst_ns;
    uint64_t n_runs, n_taken;
    /* exactly n bytes of the heap: a sanitizer catches an overrun */
    unsigned char *input;
    size_t n;
};

struct seed {
    const void *bytes;
    size_t n;
};

static int64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static int64_t now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

/* CPU time, which does not depend on the machine's other load. */
static int64_t cpu_ns(void)
{
    return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

static int64_t setting(const char *name, int64_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? atoll(text) : otherwise;
}

/* xorshift64* */
static uint64_t draw(struct fuzz *f, uint64_t below)
{
    f->state ^= f->state >> 12;
    f->state ^= f->state << 25;
    f->state ^= f->state >> 27;
    return (f->state * 0x2545f4914f6cdd1dull >> 16) % below;
}

static void fuzz_begin(struct fuzz *f)
{
    *f = (struct fuzz){.state = (uint64_t)setting("STG_FUZZ_SEED", 1) * 2 + 1};
    f->end_ns = now_ns() + setting("STG_FUZZ_MS", 1000) * 1000000;
}

static void fuzz_end(struct fuzz *f, const char *what)
{
    fprintf(stderr, "    %s: %llu runs, %llu accepted, slowest %lld us\n", what,
            (unsigned long long)f->n_runs, (unsigned long long)f->n_taken,
            (long long)f->worst_ns / 1000);
    CHECK(f->n_runs > 0);
    CHECK(f->n_taken > 0);
    free(f->input);
}

static const char *const words[] = {"- ",
                                    "[",
                                    "]",
                                    "{",
                                    "}",
                                    ": ",
                                    ",",
                                    "\n",
                                    "  ",
                                    "\"",
                                    "'",
                                    "#",
                                    "&a ",
                                    "*a",
                                    "!!str",
                                    "---\n",
                                    "...\n",
                                    "?",
                                    "|\n",
                                    ">\n",
                                    "\t",
                                    "~",
                                    "null",
                                    "-1",
                                    "0x",
                                    "1e999",
                                    "64KiB",
                                    ".nan",
                                    "%YAML",
                                    "\\0",
                                    "\\u0000",
                                    "dataset",
                                    "graph",
                                    "staged",
                                    "features",
                                    "name",
                                    "op",
                                    "input",
                                    "a:0..999",
                                    "capacity",
                                    "99999999",
                                    "18446744073709551615",
                                    "\xef\xbb\xbf",
                                    "\xc2\x85",
                                    "\xe2\x80\xa8",
                                    "\r",
                                    "repeat",
                                    "shuffle"};

/* input := input with bytes [at, at + n_out) replaced by n bytes of `with`. */
static void splice(struct fuzz *f, size_t at, size_t n_out, const void *with, size_t n)
{
    if (f->n - n_out + n > MAX_INPUT)
        return;
    unsigned char *made = malloc(f->n - n_out + n + 1);
    CHECK(made != NULL);
    memcpy(made, f->input, at);
    memcpy(made + at, with, n);
    memcpy(made + at + n, f->input + at + n_out, f->n - at - n_out);
    free(f->input);
    f->input = made;
    f->n = f->n - n_out + n;
}

static void mutate(struct fuzz *f, const struct seed *seeds, size_t n_seeds)
{
    size_t at = draw(f, f->n + 1), left = f->n - at;
    size_t length = left > 0 ? draw(f, left < 40 ? left : 40) : 0;
    const struct seed *other = &seeds[draw(f, n_seeds)];
    size_t from = draw(f, other->n), take = draw(f, other->n - from + 1);
    const char *word = words[draw(f, sizeof(words) / sizeof(words[0]))];
    unsigned char byte =
        (unsigned char)(draw(f, 4) > 0 ? ' ' + draw(f, 95) : draw(f, 256));
    switch (draw(f, 7)) {
    case 0: splice(f, at, left > 0, &byte, 1); break;
    case 1: splice(f, at, 0, &byte, 1); break;
    case 2: splice(f, at, length, "", 0); break;
    case 3: splice(f, at, 0, word, strlen(word)); break;
    case 4: splice(f, at, length, word, strlen(word)); break;
    case 5: splice(f, at, length, (const char *)other->bytes + from, take); break;
    default:
        if (left > 0) {
            byte = f->input[at] ^ (unsigned char)(1u << draw(f, 8));
            splice(f, at, 1, &byte, 1);
        }
    }
}

/* The next input: a seed with a few mutations, without spare bytes behind it. */
static bool next(struct fuzz *f, const struct seed *seeds, size_t n_seeds)
{
    if (now_ns() >= f->end_ns)
        return false;
    const struct seed *seed = &seeds[draw(f, n_seeds)];
    free(f->input);
    f->input = malloc(seed->n + 1);
    CHECK(f->input != NULL);
    memcpy(f->input, seed->bytes, seed->n);
    f->n = seed->n;
    for (uint64_t i = draw(f, 2) > 0 ? 1 : draw(f, 6) + 1; i > 0; i--)
        mutate(f, seeds, n_seeds);
    unsigned char *exact = malloc(f->n > 0 ? f->n : 1);
    CHECK(exact != NULL);
    memcpy(exact, f->input, f->n);
    free(f->input);
    f->input = exact;
    f->n_runs++;
    return true;
}

static void timed(struct fuzz *f, int64_t began)
{
    int64_t took = cpu_ns() - began;
    if (took > f->worst_ns)
        f->worst_ns = took;
}

/* ---- texts ---- */

static const char odd_yaml[] =
    "# everything else\n"
    "dataset: [range: {start: -3, stop: 0x10, step: 1}, repeat, batch: {batch_size: "
    "1KiB}]\n"
    "graph:\n"
    "  a: {op: x, k: [[[\"a\\0\", ~], [1, .inf]]], e: [], f: ~, input: [\"b:0..9\", "
    "^a]}\n"
    "  b:\n    op: 'y'\n    text: |\n      one\n      two\n    more: >-\n      folded\n"
    "staged:\n"
    "  features: {u: {id: \"a:1\", x: [b, c]}, l: d}\n"
    "  memory_budget: 1GiB\n"
    "  redeliver: false\n"
    "  delivery: round_robin\n"
    "targets: a\n";
static const char settings_yaml[] =
    "runtime_dir: /run/x\nstate_dir: \"/var/lib/x\"\nmemory_budget: 1GiB\nmax_clients: "
    "3\n"
    "thread_pools:\n  - {global_name: a, inter_op_threads_num: 2}\n";

#define SEED(text)                                                                       \
    {                                                                                    \
        text, sizeof(text) - 1                                                           \
    }

static const struct seed texts[] = {SEED(example_yaml), SEED(example_json),
                                    SEED(odd_yaml), SEED(settings_yaml)};

static unsigned char buf[STG_MESSAGE_MAX_BYTES];

static void spec_check(const struct stg_pipeline_spec *spec)
{
    CHECK(spec->n_steps > 0);
    CHECK(spec->staged.capacity <= 65536);
    struct stg_reply reply = {.kind = STG_REQUEST_OPEN, .name = "p", .pipeline = spec};
    struct stg_pipeline_spec *got = NULL;
    struct stg_err err = {0};
    long n = stg_wire_encode_reply(&reply, buf, sizeof(buf));
    CHECK(n > 0);
    CHECK_OK(stg_wire_decode_pipeline(buf, (size_t)n, &got, &err), err);
    CHECK_INT(got->n_nodes, spec->n_nodes);
    CHECK_INT(got->staged.n_features, spec->staged.n_features);
    stg_pipeline_spec_destroy(got);
}

static void mutated_texts_load_or_say_why(void)
{
    struct fuzz f;
    fuzz_begin(&f);
    while (next(&f, texts, sizeof(texts) / sizeof(texts[0]))) {
        struct stg_pipeline_spec *spec = NULL;
        struct stg_err err = {0};
        int64_t began = cpu_ns();
        int rc = stg_load_pipeline((const char *)f.input, f.n, "p", &spec, &err);
        timed(&f, began);
        f.n_taken += rc == 0;
        if (rc == 0) {
            spec_check(spec);
        } else {
            CHECK_INT(rc, -STAGER_INVALID_ARGUMENT);
            CHECK(strncmp(err.text, "p:", 2) == 0 && strlen(err.text) > 8);
        }
        stg_pipeline_spec_destroy(spec);
    }
    fuzz_end(&f, "texts");
}

static void mutated_settings_load_or_say_why(void)
{
    struct fuzz f;
    fuzz_begin(&f);
    while (next(&f, &texts[3], 1)) {
        struct stg_settings settings = {0};
        struct stg_err err = {0};
        int64_t began = cpu_ns();
        int rc = stg_load_settings((const char *)f.input, f.n, "p", &settings, &err);
        timed(&f, began);
        f.n_taken += rc == 0;
        if (rc == 0)
            CHECK(settings.runtime_dir != NULL && settings.max_clients > 0);
        else
            CHECK_INT(rc, -STAGER_INVALID_ARGUMENT);
        stg_settings_finish(&settings);
    }
    fuzz_end(&f, "settings");
}

/* ---- messages ---- */

#define MESSAGE(name)                                                                    \
    {                                                                                    \
        golden_##name, sizeof(golden_##name)                                             \
    }

static const struct seed messages[] = {
    MESSAGE(request_hello),        MESSAGE(request_check),
    MESSAGE(request_apply),        MESSAGE(request_list),
    MESSAGE(request_status),       MESSAGE(request_open),
    MESSAGE(reply_hello),          MESSAGE(reply_apply),
    MESSAGE(reply_list),           MESSAGE(reply_status),
    MESSAGE(reply_open),           MESSAGE(reply_open),
    MESSAGE(request_rollback),     MESSAGE(request_versions),
    MESSAGE(reply_rollback),       MESSAGE(reply_versions),
    MESSAGE(request_commit),       MESSAGE(request_commits),
    MESSAGE(request_open_resume),  MESSAGE(reply_commit),
    MESSAGE(reply_commits),        MESSAGE(reply_error),
    MESSAGE(request_audit),        MESSAGE(request_open_again),
    MESSAGE(request_commit_away),  MESSAGE(reply_open_again),
    MESSAGE(request_open_metrics), MESSAGE(reply_metrics),
    MESSAGE(request_schema),       MESSAGE(reply_schema)};

static void request_try(struct fuzz *f)
{
    struct stg_bump bump = {0};
    struct stg_err err = {0};
    struct stg_request request;
    int rc = stg_wire_decode_request(f->input, f->n, &bump, &request, &err);
    if (rc == 0) {
        f->n_taken++;
        CHECK(request.kind != STG_REQUEST_NONE);
        CHECK(stg_wire_encode_request(&request, buf, sizeof(buf)) > 0);
    } else {
        CHECK_INT(rc, -STAGER_INVALID_ARGUMENT);
        CHECK(err.text[0] != '\0');
    }
    stg_bump_finish(&bump);
}

/* An accepted message encodes to bytes that decode and encode to the same bytes. */
static void reply_try(struct fuzz *f)
{
    struct stg_bump bump = {0}, again_bump = {0};
    struct stg_err err = {0};
    struct stg_reply reply, again;
    struct stg_pipeline_spec *spec = NULL;
    int rc = stg_wire_decode_reply(f->input, f->n, &bump, &reply, &err);
    int pipeline_rc = stg_wire_decode_pipeline(f->input, f->n, &spec, &err);
    if (rc == 0 && (pipeline_rc == 0 || pipeline_rc == -STAGER_NOT_FOUND)) {
        static unsigned char twice[STG_MESSAGE_MAX_BYTES];
        f->n_taken++;
        reply.pipeline = spec;
        long n = stg_wire_encode_reply(&reply, buf, sizeof(buf));
        CHECK(n > 0);
        CHECK_OK(stg_wire_decode_reply(buf, (size_t)n, &again_bump, &again, &err), err);
        again.pipeline = spec;
        CHECK_INT(stg_wire_encode_reply(&again, twice, sizeof(twice)), n);
        CHECK(memcmp(buf, twice, (size_t)n) == 0);
    }
    stg_pipeline_spec_destroy(spec);
    stg_bump_finish(&bump);
    stg_bump_finish(&again_bump);
}

static void mutated_messages_decode_or_say_why(void)
{
    struct fuzz f;
    fuzz_begin(&f);
    while (next(&f, messages, sizeof(messages) / sizeof(messages[0]))) {
        int64_t began = cpu_ns();
        request_try(&f);
        reply_try(&f);
        timed(&f, began);
    }
    fuzz_end(&f, "messages");
}

/* ---- the most expensive texts ---- */

static void no_text_takes_long_to_refuse(void)
{
    static const char *const units[] = {
        "[",        "{",   "- ",    "? ",      "a: ",         "\"",     "a\n",
        "- a\n",    "a,",  "#\n",   "\n",      ": ",          "'a' ",   "[a]: ",
        "{a: b},",  "&a ", "!a ",   "a: |\n ", "\"a\": 1,\n", "%\n",    "--- a\n",
        "\xc3\xa9", "\\",  "? a\n", "a:\n ",   "- - a\n",     "{? a,}", "\"\\u0041"};
    int64_t worst_ns = 0;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        for (int wrap = 0; wrap < 3; wrap++) {
            char *text = malloc(STG_TEXT_MAX_BYTES);
            CHECK(text != NULL);
            static const char *const begin[] = {"", "[", "a: \""};
            size_t n = strlen(begin[wrap]), unit = strlen(units[i]);
            memcpy(text, begin[wrap], n);
            for (; n + unit <= STG_TEXT_MAX_BYTES; n += unit)
                memcpy(text + n, units[i], unit);
            struct stg_pipeline_spec *spec = NULL;
            struct stg_err err = {0};
            int64_t began = cpu_ns();
            int rc = stg_load_pipeline(text, n, "p", &spec, &err);
            int64_t took = cpu_ns() - began;
            worst_ns = took > worst_ns ? took : worst_ns;
            if (took > 2000000000ll)
                FAIL("\"%s\" many times takes %lld ms", units[i],
                     (long long)took / 1000000);
            CHECK(rc < 0);
            free(text);
        }
    }
    fprintf(stderr, "    slowest text: %lld us\n", (long long)worst_ns / 1000);
}

static const struct stg_test tests[] = {
    TEST_SLOW(mutated_texts_load_or_say_why, 60),
    TEST_SLOW(mutated_settings_load_or_say_why, 60),
    TEST_SLOW(mutated_messages_decode_or_say_why, 60),
    TEST_SLOW(no_text_takes_long_to_refuse, 60),
};

TEST_MAIN(tests)
