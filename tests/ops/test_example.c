/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/base/hash.h"
#include "tests/check.h"
#include "tests/ops/cases.h"

static const struct op_case golden[] = {
#include "tests/ops/golden/example.rows"
};

#define N(table) (sizeof(table) / sizeof((table)[0]))

static void parse_example_gives_what_tensorflow_gives(void)
{
    for (size_t i = 0; i < N(golden); i++)
        op_case_check(&golden[i], false);
}

/* ---- by hand, by the definition of the wire format ---- */

/* {a: 5}, {a: "hi"}, {a: 1.0}, {a: 1, 2} and so on, with one key. */
#define ENTRY(bytes, value) "\\x0a" bytes "\\x0a\\x01a\\x12" value
#define INT_5 "\\x0a\\x0c" ENTRY("\\x0a", "\\x05\\x1a\\x03\\x0a\\x01\\x05")
#define TEXT_HI "\\x0a\\x0d" ENTRY("\\x0b", "\\x06\\x0a\\x04\\x0a\\x02hi")
#define INTS_1_2 "\\x0a\\x0d" ENTRY("\\x0b", "\\x06\\x1a\\x04\\x0a\\x02\\x01\\x02")
#define INT "features/a/dtype=\"int64\""

static const struct op_case by_hand[] = {
    {"parse_example", INT, "string[2] \"" INT_5 "\" \"" INT_5 "\"", "int64[2] 5 5", NULL,
     0},
    {"parse_example", INT, "string[] \"" INT_5 "\"", "int64[] 5", NULL, 0},
    {"parse_example", INT " features/a/type=\"var_len\"", "string[] \"" INTS_1_2 "\"",
     "int64[2] 1 2\nint64[2, 1] 0 1\nint64[1] 2", NULL, 0},
    {"parse_example", INT " features/a/type=\"ragged\"", "string[] \"" INTS_1_2 "\"",
     "int64[2] 1 2\nint64[2] 0 2", NULL, 0},
    {"parse_example", INT " features/a/default_value=7", "string[2] \"\" \"" INT_5 "\"",
     "int64[2] 7 5", NULL, 0},
    /* unknown fields, in every message */
    {"parse_example", INT,
     "string[1] "
     "\"\\x10\\x01\\x0a\\x10\\x10\\x01\\x0a\\x0c\\x18\\x01\\x0a\\x01a\\x12\\x05\\x1a\\x03"
     "\\x0a\\x01\\x05\"",
     "int64[1] 5", NULL, 0},
    {"parse_example", INT,
     "string[1] \"\\x0a\\x10" ENTRY("\\x0e", "\\x09\\x28\\x01\\x1a\\x05\\x28\\x01\\x0a"
                                             "\\x01\\x05") "\"",
     "int64[1] 5", NULL, 0},
    /* packed twice, then not */
    {"parse_example", INT " features/a/shape=[3]",
     "string[1] \"\\x0a\\x11" ENTRY("\\x0f", "\\x0a\\x1a\\x08\\x0a\\x01\\x05\\x0a\\x01"
                                             "\\x06\\x08\\x07") "\"",
     "int64[1, 3] 5 6 7", NULL, 0},
    /* the error */
    {"parse_example", INT, "string[2] \"" INT_5 "\" \"\"", NULL,
     "feature \"a\" (int64) is required and missing", 1},
    {"parse_example", INT, "string[2] \"" INT_5 "\" \"" TEXT_HI "\"", NULL,
     "feature \"a\" holds string, not int64", 1},
    {"parse_example", INT, "string[1] \"" INTS_1_2 "\"", NULL,
     "feature \"a\" has 2 values; its shape [] takes 1", 0},
    {"parse_example", INT " features/a/type=\"fixed_len_sequence\" features/a/shape=[2]",
     "string[1] \"" INT_5 "\"", NULL,
     "feature \"a\" has 1 value; each step, of shape [2], takes 2", 0},
    {"parse_example", INT, "string[2] \"" INT_5 "\" \"\\x0a\\x0c\\x0a\"", NULL,
     "not a tf.train.Example: byte 2 of the record: a length exceeds the field", 1},
    {"parse_example", INT, "string[1] \"\\xff\"", NULL,
     "byte 1 of the record: a number is truncated", 0},
    {"parse_example", INT, "string[1] \"\\x0b\"", NULL, "a type that no Example has", 0},
    {"parse_example", INT,
     "string[1] \"\\x0a\\x16" ENTRY(
         "\\x14", "\\x0f\\x1a\\x0d\\x0a\\x0b\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff"
                  "\\xff\\x01") "\"",
     NULL, "feature \"a\": byte 23 of the record: a number has more than ten bytes", 0},
    {"parse_example", "features/a/dtype=\"float32\"",
     "string[1] \"\\x0a\\x0c" ENTRY("\\x0a", "\\x05\\x12\\x03\\x0a\\x01\\x05") "\"", NULL,
     "ends inside a value", 0},
    {"parse_example",
     INT " features/a/type=\"sparse\" features/a/index_key=[\"a\"] features/a/size=[5]",
     "string[1] \"" INT_5 "\"", NULL, "feature \"a\": index 5 is not in [0, 5)", 0},
    {"parse_example",
     INT " features/a/type=\"sparse\" features/a/index_key=[\"b\"] features/a/size=[5]",
     "string[1] \"" INT_5 "\"", NULL,
     "feature \"a\" has 0 indices in \"b\" and 1 values in \"a\"", 0},
    /* the error of infer */
    {"parse_example", "", "string[1] \"\"", NULL, "attribute 'features' is missing", -1},
    {"parse_example", "features/a/shape=[2]", "string[1] \"\"", NULL,
     "'a': attribute 'dtype' is missing", -1},
    {"parse_example", INT " features/a/shap=[2]", "string[1] \"\"", NULL,
     "did you mean 'shape'?", -1},
    {"parse_example", INT " features=3", "string[1] \"\"", NULL, "a mapping of mappings",
     -1},
    {"parse_example", "features/a/dtype=\"int32\"", "string[1] \"\"", NULL,
     "feature \"a\": dtype cannot be int32", -1},
    {"parse_example", INT " features/a/type=\"var\"", "string[1] \"\"", NULL,
     "unknown type \"var\"", -1},
    {"parse_example", INT " features/a/size=[2]", "string[1] \"\"", NULL,
     "size cannot be combined with type fixed_len", -1},
    {"parse_example", INT " features/a/type=\"sparse\"", "string[1] \"\"", NULL,
     "an index_key and a size for each dimension", -1},
    {"parse_example", INT " features/a/default_value=[1, 2]", "string[1] \"\"", NULL,
     "default_value: 2 values cannot fill", -1},
    {"parse_example", INT, "int64[1] 1", NULL, "Examples must be strings", -1},
};

static void examples_are_read_by_the_rules_of_the_wire_format(void)
{
    for (size_t i = 0; i < N(by_hand); i++)
        op_case_check(&by_hand[i], false);
}

/* ---- a graph that runs many batches ---- */

struct machine {
    struct fixture fx;
    struct stg_graph *graph;
    struct stg_run *run;
};

static void machine_init(struct machine *m, const char *text)
{
    struct stg_err err = {0};
    *m = (struct machine){0};
    CHECK_OK(fixture_parse(&m->fx, text, &err), err);
    CHECK_OK(stg_graph_create(&m->fx.spec, &m->fx.element, NULL, &m->graph, &err), err);
    CHECK_OK(stg_run_create_stage(m->graph, &m->run, &err), err);
}

static void machine_finish(struct machine *m)
{
    stg_run_destroy(m->run);
    stg_graph_destroy(m->graph);
    fixture_finish(&m->fx);
}

/* Records one behind the other in an allocation of exactly that size. */
struct records {
    uint8_t *data;
    int64_t offsets[64];
    size_t n;
};

static struct stg_tensor tensor_of(const struct records *r)
{
    return (struct stg_tensor){.dtype = STAGER_STRING,
                               .ndim = 1,
                               .shape = {(int64_t)r->n},
                               .data = r->data,
                               .data_bytes = (uint64_t)r->offsets[r->n],
                               .begin = r->offsets,
                               .end = r->offsets + 1};
}

static void records_add(struct records *r, const uint8_t *s, size_t n)
{
    size_t at = (size_t)r->offsets[r->n];
    uint8_t *data = malloc(at + n + (at + n == 0));
    CHECK(data != NULL && r->n < 62);
    if (at > 0)
        memcpy(data, r->data, at);
    if (n > 0)
        memcpy(data + at, s, n);
    free(r->data);
    r->data = data;
    r->offsets[++r->n] = (int64_t)(at + n);
}

static size_t put_field(uint8_t *to, int field, const uint8_t *s, size_t n)
{
    size_t at = 0;
    to[at++] = (uint8_t)(field << 3 | 2);
    if (n > 0x7f)
        to[at++] = (uint8_t)(n | 0x80);
    to[at++] = (uint8_t)(n > 0x7f ? n >> 7 : n);
    memmove(to + at, s, n);
    return at + n;
}

static size_t put_int(uint8_t *to, const char *key, uint8_t value)
{
    uint8_t list[8], feature[16], entry[256];
    size_t n = put_field(list, 1, &value, 1);
    size_t n_feature = put_field(feature, 3, list, n);
    n = put_field(entry, 1, (const uint8_t *)key, strlen(key));
    n += put_field(entry + n, 2, feature, n_feature);
    return put_field(to, 1, entry, n);
}

/* ---- damage ---- */

static const char mixed[] =
    "element r string [-1]\n"
    "p = parse_example(r) features/f/dtype=\"float32\" features/f/shape=[2] "
    "features/i/dtype=\"int64\" features/i/default_value=-1 "
    "features/q/dtype=\"string\" features/q/type=\"fixed_len_sequence\" "
    "features/s/dtype=\"string\" features/s/default_value=\"none\" "
    "features/v/dtype=\"int64\" features/v/type=\"var_len\" "
    "features/x/dtype=\"float32\" features/x/type=\"sparse\" "
    "features/x/index_key=[\"v\"] features/x/size=[100] features/x/value_key=\"y\"\n"
    "feature f = p:f\nfeature i = p:i\nfeature q = p:q\nfeature s = p:s\n"
    "feature vv = p:v/values\nfeature vi = p:v/indices\nfeature vs = p:v/dense_shape\n"
    "feature xv = p:x/values\nfeature xi = p:x/indices\n";
#define N_MIXED 9

/* {i: 5, f: [1, 2], q: ["a", "b"], s: "text", v: [3, 99], y: [1, 2]} */
static size_t whole_record(uint8_t *to)
{
    uint8_t inside[256];
    size_t n = 0;
    static const uint8_t f[] = "\x12\x0a\x0a\x08\x00\x00\x80\x3f\x00\x00\x00\x40";
    static const uint8_t q[] = "\x0a\x06\x0a\x01\x61\x0a\x01\x62";
    static const uint8_t s[] = "\x0a\x06\x0a\x04\x74\x65\x78\x74";
    static const uint8_t v[] = "\x1a\x04\x0a\x02\x03\x63";
    static const uint8_t y[] = "\x12\x0a\x0d\x00\x00\x80\x3f\x0d\x00\x00\x00\x40";
    const struct {
        const char *key;
        const uint8_t *value;
        size_t n;
    } entries[] = {{"f", f, sizeof(f) - 1},
                   {"q", q, sizeof(q) - 1},
                   {"s", s, sizeof(s) - 1},
                   {"v", v, sizeof(v) - 1},
                   {"y", y, sizeof(y) - 1}};
    n += put_int(inside, "i", 5);
    for (size_t i = 0; i < N(entries); i++) {
        uint8_t entry[256];
        size_t bytes = put_field(entry, 1, (const uint8_t *)entries[i].key, 1);
        bytes += put_field(entry + bytes, 2, entries[i].value, entries[i].n);
        n += put_field(inside + n, 1, entry, bytes);
    }
    return put_field(to, 1, inside, n);
}

/* Checks that the elements of a equal the first ones of b. */
static bool is_begin(const struct stg_tensor *a, const struct stg_tensor *b)
{
    int64_t n = stg_tensor_n(a);
    if (stg_tensor_n(b) < n)
        return false;
    if (a->dtype != STAGER_STRING)
        return memcmp(a->data, b->data, (size_t)n * stg_dtype_bytes(a->dtype)) == 0;
    return memcmp(a->end, b->end, (size_t)n * sizeof(*a->end)) == 0 &&
           memcmp(a->data, b->data, (size_t)a->begin[n]) == 0;
}

/* Alone, with every byte behind it out of bounds, and before good records, whose keys are
 * guessed: the same result. */
static void check_damaged(struct machine *alone, struct machine *among, const uint8_t *s,
                          size_t n, const uint8_t *good, size_t n_good)
{
    struct records one = {0}, many = {0};
    struct stg_tensor a[N_MIXED], b[N_MIXED];
    struct stg_err first = {.row = -1}, second = {.row = -1};
    records_add(&one, s, n);
    records_add(&many, s, n);
    for (int i = 0; i < 3; i++)
        records_add(&many, good, n_good);
    struct stg_tensor x = tensor_of(&one), y = tensor_of(&many);
    int rc = stg_run_exec(alone->run, &x, NULL, NULL, a, &first);
    CHECK(rc == 0 || rc == -STAGER_INVALID_ARGUMENT);
    CHECK_INT(stg_run_exec(among->run, &y, NULL, NULL, b, &second), rc);
    if (rc < 0) {
        CHECK_STR(second.text, first.text);
        CHECK_INT(first.row, 0);
        CHECK_INT(second.row, 0);
    }
    for (size_t i = 0; rc == 0 && i < N_MIXED; i++) {
        bool padded = i == 2 || i == 5 || i == 6; /* by the other records */
        CHECK(padded || is_begin(&a[i], &b[i]));
    }
    free(one.data);
    free(many.data);
}

static void a_damaged_record_is_refused_or_read_within_its_bounds(void)
{
    struct machine alone, among;
    uint8_t good[256], bad[256];
    size_t n = whole_record(good);
    machine_init(&alone, mixed);
    machine_init(&among, mixed);
    check_damaged(&alone, &among, good, n, good, n);
    for (size_t n_left = 0; n_left < n; n_left++)
        check_damaged(&alone, &among, good, n_left, good, n);
    for (size_t at = 0; at < n; at++) {
        for (int value = 0; value < 256; value++) {
            memcpy(bad, good, n);
            bad[at] = (uint8_t)value;
            check_damaged(&alone, &among, bad, n, good, n);
        }
    }
    /* Plausible lengths. */
    for (size_t at = 0; at + 1 < n; at++) {
        memcpy(bad, good, n);
        bad[at] = 0xff;
        bad[at + 1] = 0xff;
        check_damaged(&alone, &among, bad, n, good, n);
    }
    machine_finish(&among);
    machine_finish(&alone);
}

/* ---- guesses ---- */

#define N_KEYS 5

static void keys_are_found_in_any_order_with_any_of_them_missing(void)
{
    static const char *const keys[N_KEYS] = {"k1", "k2", "a_key_of_sixteen",
                                             "a_key_of_more_than_sixteen_bytes", "z"};
    struct machine m;
    machine_init(&m, "element r string [-1]\n"
                     "p = parse_example(r) "
                     "features/k1/dtype=\"int64\" features/k1/default_value=-1 "
                     "features/k2/dtype=\"int64\" features/k2/default_value=-1 "
                     "features/a_key_of_sixteen/dtype=\"int64\" "
                     "features/a_key_of_sixteen/default_value=-1 "
                     "features/a_key_of_more_than_sixteen_bytes/dtype=\"int64\" "
                     "features/a_key_of_more_than_sixteen_bytes/default_value=-1 "
                     "features/z/dtype=\"int64\" features/z/default_value=-1\n"
                     "feature k1 = p:k1\nfeature k2 = p:k2\n"
                     "feature s = p:a_key_of_sixteen\n"
                     "feature l = p:a_key_of_more_than_sixteen_bytes\nfeature z = p:z\n");
    uint64_t state = 7;
    for (int round = 0; round < 400; round++) {
        struct records r = {0};
        int64_t want[60][N_KEYS];
        for (int i = 0; i < 60; i++) {
            uint8_t inside[1024], record[1100];
            size_t n = 0, order[N_KEYS] = {0, 1, 2, 3, 4};
            for (size_t k = N_KEYS - 1; k > 0; k--) {
                state = state * 6364136223846793005u + 1442695040888963407u;
                size_t other = round % 3 == 0 ? k : (state >> 33) % (k + 1);
                size_t swap = order[k];
                order[k] = order[other];
                order[other] = swap;
            }
            for (size_t k = 0; k < N_KEYS; k++) {
                state = state * 6364136223846793005u + 1442695040888963407u;
                want[i][order[k]] = -1;
                if ((state >> 33) % 4 == 0)
                    continue;
                if ((state >> 40) % 8 == 0)
                    n += put_int(inside + n, "nobody asks for this", 1);
                want[i][order[k]] = (int64_t)(state >> 50) % 100;
                n += put_int(inside + n, keys[order[k]], (uint8_t)want[i][order[k]]);
            }
            records_add(&r, record, put_field(record, 1, inside, n));
        }
        struct stg_tensor x = tensor_of(&r), got[N_KEYS];
        struct stg_err err = {0};
        CHECK_OK(stg_run_exec(m.run, &x, NULL, NULL, got, &err), err);
        for (int i = 0; i < 60; i++) {
            for (size_t k = 0; k < N_KEYS; k++)
                CHECK_INT(((const int64_t *)got[k].data)[i], want[i][k]);
        }
        free(r.data);
    }
    machine_finish(&m);
}

static void a_feature_that_is_only_hashed_is_hashed_where_it_lies(void)
{
    static const char text[] = "element r string [-1]\n"
                               "p = parse_example(r) features/s/dtype=\"string\" "
                               "features/s/default_value=\"none\"\n"
                               "h = string_to_hash_bucket_fast(p:s) num_buckets=1000\n"
                               "feature h = h\n";
    struct machine m;
    uint8_t record[256];
    struct records r = {0};
    struct stg_err err = {0};
    machine_init(&m, text);
    records_add(&r, record, whole_record(record));
    records_add(&r, record, 0);
    records_add(&r, record, whole_record(record));
    struct stg_tensor x = tensor_of(&r), got;
    CHECK_OK(stg_run_exec(m.run, &x, NULL, NULL, &got, &err), err);
    const int64_t *ids = got.data;
    CHECK_INT(ids[0], stg_fingerprint64("text", 4) % 1000);
    CHECK_INT(ids[1], stg_fingerprint64("none", 4) % 1000);
    CHECK_INT(ids[2], ids[0]);
    free(r.data);
    machine_finish(&m);
}

/* ---- names ---- */

static int graph_of(const char *text, struct stg_err *err)
{
    struct fixture fx;
    struct stg_graph *graph = NULL;
    int rc = fixture_parse(&fx, text, err);
    if (rc == 0)
        rc = stg_graph_create(&fx.spec, &fx.element, NULL, &graph, err);
    stg_graph_destroy(graph);
    fixture_finish(&fx);
    return rc;
}

#define ABOUT                                                                            \
    "element r string [-1]\np = parse_example(r) features/image/raw/dtype=\"string\" "   \
    "features/label/dtype=\"int64\" features/label/type=\"var_len\"\n"

static void outputs_are_called_by_the_name_of_their_feature(void)
{
    struct stg_err err = {0};
    CHECK_OK(graph_of(ABOUT "feature a = p:image/raw\nfeature v = p:label/values\n"
                            "feature i = p:label/indices\nfeature d = p:3\n",
                      &err),
             err);
    CHECK_INT(graph_of(ABOUT "feature a = p:image/row\n", &err),
              -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "did you mean \"p:image/raw\"?");
    CHECK_INT(graph_of(ABOUT "feature a = p:label\n", &err), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "\"p:label\": unknown output; known: p:image/raw, "
                             "p:label/values, p:label/indices, p:label/dense_shape");
    CHECK_INT(graph_of(ABOUT "feature a = p:4\n", &err), -STAGER_INVALID_ARGUMENT);
}

static const struct stg_test tests[] = {
    TEST(parse_example_gives_what_tensorflow_gives),
    TEST(examples_are_read_by_the_rules_of_the_wire_format),
    TEST(a_damaged_record_is_refused_or_read_within_its_bounds),
    TEST(keys_are_found_in_any_order_with_any_of_them_missing),
    TEST(a_feature_that_is_only_hashed_is_hashed_where_it_lies),
    TEST(outputs_are_called_by_the_name_of_their_feature),
};
TEST_MAIN(tests)
