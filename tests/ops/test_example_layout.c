/* SPDX-License-Identifier: Apache-2.0
 *
 * Records in a batch, with a guessed layout, compared with each record alone, parsed by
 * the rules.
 */
#include <stdlib.h>
#include <string.h>

#include "core/layout.h"
#include "ops/kernels/example/layout.h"
#include "tests/check.h"
#include "tests/failalloc.h"
#include "tests/ops/fixture.h"

#define N_ROWS 200
#define MAX_RECORD 4096

static uint64_t state = 20261122;

static uint64_t below(uint64_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state >> 11) % n;
}

/* ---- records ---- */

/* A growing buffer; the caller ensures that it is large enough. */
struct text {
    uint8_t s[MAX_RECORD];
    size_t n;
};

static void put(struct text *to, const void *s, size_t n)
{
    CHECK(to->n + n <= sizeof(to->s));
    memcpy(to->s + to->n, s, n);
    to->n += n;
}

static void put_varint(struct text *to, uint64_t value)
{
    for (; value > 0x7f; value >>= 7)
        put(to, &(uint8_t){(uint8_t)(value | 0x80)}, 1);
    put(to, &(uint8_t){(uint8_t)value}, 1);
}

static void put_field(struct text *to, int field, const struct text *inside)
{
    put_varint(to, (uint64_t)field << 3 | 2);
    put_varint(to, inside->n);
    put(to, inside->s, inside->n);
}

static struct text text_of(const void *s, size_t n)
{
    struct text ret = {.n = 0};
    put(&ret, s, n);
    return ret;
}

/* The keys put into the records, in this order. Those with a kind are requested. */
static const struct key {
    const char *name;
    int kind;
    int n; /* number of values; 0: up to two */
} keys[] = {
    {"i", STG_EXAMPLE_INTS, 1},
    {"ids", STG_EXAMPLE_INTS, 0},
    {"nobody", STG_EXAMPLE_NONE, 1},
    {"twelve_chars", STG_EXAMPLE_INTS, 1},
    {"a_name_of_more_than_twelve", STG_EXAMPLE_FLOATS, 1},
    {"a_name_of_more_than_twelve_too", STG_EXAMPLE_BYTES, 1},
    {"nobody asks for this one", STG_EXAMPLE_NONE, 1},
    {"pair", STG_EXAMPLE_FLOATS, 2},
    {"s", STG_EXAMPLE_BYTES, 1},
    {"h", STG_EXAMPLE_BYTES, 1},
    {"", STG_EXAMPLE_INTS, 1},
    {"words", STG_EXAMPLE_BYTES, 0},
};
#define N_KEYS (sizeof(keys) / sizeof(keys[0]))

static const char graph[] =
    "element r string [-1]\n"
    "p = parse_example(r) features/i/dtype=\"int64\" features/i/default_value=-1 "
    "features/ids/dtype=\"int64\" features/ids/type=\"ragged\" "
    "features/twelve_chars/dtype=\"int64\" features/twelve_chars/default_value=-2 "
    "features/a_name_of_more_than_twelve/dtype=\"float32\" "
    "features/a_name_of_more_than_twelve/default_value=0.5 "
    "features/a_name_of_more_than_twelve_too/dtype=\"string\" "
    "features/a_name_of_more_than_twelve_too/default_value=\"none\" "
    "features/pair/dtype=\"float32\" features/pair/shape=[2] "
    "features/pair/default_value=0.0 "
    "features/s/dtype=\"string\" features/s/default_value=\"\" "
    "features/h/dtype=\"string\" features/h/default_value=\"h\" "
    "features/words/dtype=\"string\" features/words/type=\"ragged\"\n"
    "hash = string_to_hash_bucket_fast(p:h) num_buckets=1000\n"
    "feature i = p:i\nfeature iv = p:ids/values\nfeature is = p:ids/row_splits\n"
    "feature e = p:twelve_chars\nfeature f = p:a_name_of_more_than_twelve\n"
    "feature t = p:a_name_of_more_than_twelve_too\nfeature p = p:pair\n"
    "feature s = p:s\nfeature h = hash\nfeature wv = p:words/values\n"
    "feature ws = p:words/row_splits\n";
#define N_FEATURES 11

/* The shape of the records of a batch. */
struct form {
    uint64_t odd; /* this many of 1000 decisions are unusual */
    bool shuffled;
    size_t n_damaged;
};

static struct text list_of(const struct key *key, uint64_t odd)
{
    struct text ret = {.n = 0}, one = {.n = 0};
    int n = key->n > 0 ? key->n : (int)below(3);
    for (int i = 0; i < n; i++) {
        bool apart = key->kind == STG_EXAMPLE_BYTES || below(1000) < odd;
        if (key->kind == STG_EXAMPLE_INTS && apart)
            put_varint(&ret, 1 << 3);
        if (key->kind == STG_EXAMPLE_INTS)
            put_varint(apart ? &ret : &one, below(20) == 0 ? UINT64_MAX : below(40000));
        if (key->kind == STG_EXAMPLE_FLOATS && apart)
            put_varint(&ret, 1 << 3 | 5);
        if (key->kind == STG_EXAMPLE_FLOATS)
            put(apart ? &ret : &one, &(float){(float)below(100)}, sizeof(float));
        if (key->kind == STG_EXAMPLE_BYTES || key->kind == STG_EXAMPLE_NONE) {
            char s[200];
            memset(s, 'a' + (int)below(26), sizeof(s));
            struct text value = text_of(s, below(1000) < odd ? below(200) : 8);
            put_field(&ret, 1, &value);
        }
    }
    if (one.n > 0 || below(1000) < odd)
        put_field(&ret, 1, &one);
    return ret;
}

static void put_entry(struct text *to, const struct key *key, uint64_t odd)
{
    struct text name = text_of(key->name, strlen(key->name)), feature = {.n = 0};
    struct text list = list_of(key, odd), entry = {.n = 0};
    int kind = key->kind != STG_EXAMPLE_NONE ? key->kind : STG_EXAMPLE_BYTES;
    if (below(1000) < odd)
        put(&feature, "\x28\x01", 2); /* an unknown field */
    if (below(1000) >= odd)
        put_field(&feature, kind, &list);
    bool value_first = below(1000) < odd;
    if (value_first)
        put_field(&entry, 2, &feature);
    if (below(1000) >= odd)
        put_field(&entry, 1, &name);
    if (!value_first && below(1000) >= odd)
        put_field(&entry, 2, &feature);
    put_field(to, 1, &entry);
}

static struct text record_of(const struct form *form)
{
    struct text inside = {.n = 0}, ret = {.n = 0};
    size_t order[N_KEYS];
    for (size_t k = 0; k < N_KEYS; k++) {
        size_t other = form->shuffled ? below(k + 1) : k;
        order[k] = order[other];
        order[other] = k;
    }
    for (size_t k = 0; k < N_KEYS; k++) {
        if (below(4) > 0)
            put_entry(&inside, &keys[order[k]], form->odd);
        if (below(1000) < form->odd)
            put_entry(&inside, &keys[below(N_KEYS)], form->odd); /* twice, or too early */
        if (below(2000) < form->odd) {
            put_field(&ret, 1, &inside); /* continued in another message */
            inside.n = 0;
        }
    }
    put_field(&ret, 1, &inside);
    return ret;
}

static void damage(struct text *record)
{
    switch (below(3)) {
    case 0: record->n = below(record->n); break;
    case 1: record->s[below(record->n)] ^= (uint8_t)(1u << below(8)); break;
    default: record->s[below(record->n)] = (uint8_t)below(256); break;
    }
}

/* ---- a batch, and each record alone ---- */

/* In an allocation of exactly that size. */
struct records {
    uint8_t *data;
    int64_t offsets[N_ROWS + 1];
};

static struct text made[N_ROWS];

static void records_make(const struct form *form, struct records *ret)
{
    *ret = (struct records){.data = malloc(N_ROWS * MAX_RECORD)};
    CHECK(ret->data != NULL);
    for (size_t i = 0; i < N_ROWS; i++)
        made[i] = record_of(form);
    for (size_t i = 0; i < form->n_damaged; i++)
        damage(&made[below(N_ROWS)]);
    for (size_t i = 0; i < N_ROWS; i++) {
        memcpy(ret->data + ret->offsets[i], made[i].s, made[i].n);
        ret->offsets[i + 1] = ret->offsets[i] + (int64_t)made[i].n;
    }
    ret->data = realloc(ret->data, (size_t)ret->offsets[N_ROWS]);
}

static struct stg_tensor tensor_of(const struct records *r, size_t first, size_t n)
{
    return (struct stg_tensor){.dtype = STAGER_STRING,
                               .ndim = 1,
                               .shape = {(int64_t)n},
                               .data = r->data,
                               .data_bytes = (uint64_t)r->offsets[N_ROWS],
                               .begin = r->offsets + first,
                               .end = r->offsets + first + 1};
}

/* Checks that the elements of a from `at` on equal those of b. */
static void check_part(const struct stg_tensor *a, int64_t at, const struct stg_tensor *b)
{
    int64_t n = stg_tensor_n(b);
    CHECK(at + n <= stg_tensor_n(a));
    size_t bytes = stg_dtype_bytes(a->dtype);
    if (a->dtype != STAGER_STRING)
        CHECK(memcmp((char *)a->data + (size_t)at * bytes, b->data, (size_t)n * bytes) ==
              0);
    for (int64_t i = 0; a->dtype == STAGER_STRING && i < n; i++) {
        CHECK_INT(a->end[at + i] - a->begin[at + i], b->end[i] - b->begin[i]);
        CHECK(memcmp((char *)a->data + a->begin[at + i], (char *)b->data + b->begin[i],
                     (size_t)(b->end[i] - b->begin[i])) == 0);
    }
}

/* Returns whether the batch is valid. */
static bool check_batch(const struct records *r, struct fixture_stage *together,
                        struct fixture_stage *alone)
{
    struct stg_tensor all = tensor_of(r, 0, N_ROWS), a[N_FEATURES], b[N_FEATURES];
    struct stg_err err = {.row = -1};
    int64_t at[N_FEATURES] = {0};
    int rc = stg_run_exec(together->run, &all, NULL, NULL, a, &err);
    for (size_t i = 0; i < N_ROWS; i++) {
        struct stg_tensor one = tensor_of(r, i, 1);
        struct stg_err own = {.row = -1};
        int own_rc = stg_run_exec(alone->run, &one, NULL, NULL, b, &own);
        if (own_rc < 0) {
            CHECK_INT(rc, own_rc);
            CHECK_STR(err.text, own.text);
            CHECK_INT(err.row, i);
            return false;
        }
        for (size_t f = 0; rc == 0 && f < N_FEATURES; f++) {
            if (f == 2 || f == 10) { /* row_splits */
                const int64_t *splits = a[f].data;
                CHECK_INT(splits[i + 1] - splits[i], ((const int64_t *)b[f].data)[1]);
                continue;
            }
            check_part(&a[f], at[f], &b[f]);
            at[f] += stg_tensor_n(&b[f]);
        }
    }
    CHECK_OK(rc, err);
    return true;
}

static int check_batches(int n, struct form form)
{
    struct fixture_stage together, alone;
    struct records r;
    fixture_stage_init(&together, graph);
    fixture_stage_init(&alone, graph);
    int n_good = 0;
    for (int i = 0; i < n; i++) {
        records_make(&form, &r);
        n_good += check_batch(&r, &together, &alone);
        free(r.data);
    }
    fixture_stage_finish(&alone);
    fixture_stage_finish(&together);
    return n_good;
}

static void usual_records_give_in_a_batch_what_they_give_alone(void)
{
    CHECK_INT(check_batches(20, (struct form){0}), 20);
    CHECK_INT(check_batches(20, (struct form){.shuffled = true}), 20);
}

static void unusual_records_give_in_a_batch_what_they_give_alone(void)
{
    CHECK(check_batches(40, (struct form){.odd = 1}) > 0);
    check_batches(20, (struct form){.odd = 30});
    check_batches(20, (struct form){.odd = 300});
}

static void a_damaged_record_in_a_batch_is_refused_or_read_as_alone(void)
{
    int n_good = check_batches(200, (struct form){.n_damaged = 1});
    CHECK(n_good > 0 && n_good < 200);
    check_batches(50, (struct form){.odd = 1, .n_damaged = 3});
}

/* ---- memory ---- */

struct poor {
    struct fixture fx;
    struct records records;
};

static int attempt(void *owner)
{
    struct poor *poor = owner;
    struct stg_graph *of = NULL;
    struct stg_run *run = NULL;
    struct stg_tensor all = tensor_of(&poor->records, 0, N_ROWS), outputs[N_FEATURES];
    struct stg_err err = {0};
    int rc = stg_graph_create(&poor->fx.spec, &poor->fx.element, NULL, &of, &err);
    if (rc == 0)
        rc = stg_run_create_stage(of, &run, &err);
    if (rc == 0)
        rc = stg_run_exec(run, &all, NULL, NULL, outputs, &err);
    stg_run_destroy(run);
    stg_graph_destroy(of);
    CHECK(rc == 0 || err.text[0] != '\0');
    return rc;
}

static void a_batch_for_which_there_is_no_memory_is_refused(void)
{
    struct poor poor;
    struct stg_err err = {0};
    CHECK_OK(fixture_parse(&poor.fx, graph, &err), err);
    records_make(&(struct form){0}, &poor.records);
    CHECK(stg_failalloc_each(attempt, &poor) > 0);
    free(poor.records.data);
    fixture_finish(&poor.fx);
}

/* ---- the layout itself ---- */

struct layout {
    struct fixture fx;
    struct stg_bump bump;
    struct stg_op_infer infer;
    struct stg_component input;
    struct stg_example_layout layout;
    struct stg_example_span by_layout[N_KEYS][STG_EXAMPLE_BLOCK], by_rules[N_KEYS];
    struct stg_example_span *columns[N_KEYS], *cells[N_KEYS];
};

static void layout_init(struct layout *l)
{
    struct stg_err err = {0};
    *l = (struct layout){
        .input = {.dtype = STAGER_STRING, .ndim = 1, .shape = {-1}, .name = "r"}};
    CHECK_OK(fixture_parse(&l->fx, graph, &err), err);
    l->infer = (struct stg_op_infer){.node = &l->fx.spec.nodes[0],
                                     .inputs = &l->input,
                                     .n_inputs = 1,
                                     .bump = &l->bump};
    CHECK_OK(stg_example_infer(&l->infer, &err), err);
    CHECK(stg_example_layout_init(&l->layout, l->infer.plan, &l->bump));
    for (size_t k = 0; k < N_KEYS; k++) {
        l->columns[k] = l->by_layout[k];
        l->cells[k] = &l->by_rules[k];
    }
}

static void layout_finish(struct layout *l)
{
    stg_bump_finish(&l->bump);
    fixture_finish(&l->fx);
}

static void learn(struct layout *l, const struct records *r, size_t n)
{
    for (size_t i = 0; i < n; i++)
        stg_example_layout_learn(&l->layout, r->data + r->offsets[i],
                                 (size_t)(r->offsets[i + 1] - r->offsets[i]));
}

/* Parses a block of records by layout and by the rules; returns how many matched the
 * layout. */
static size_t take_block(struct layout *l, const struct records *r, size_t first)
{
    const struct stg_example_plan *plan = l->infer.plan;
    struct stg_example_input in = {.plan = plan, .limit = r->data + r->offsets[N_ROWS]};
    struct stg_tensor all = tensor_of(r, 0, N_ROWS);
    bool good[STG_EXAMPLE_BLOCK];
    size_t n_good = 0, n = STG_EXAMPLE_BLOCK;
    if (n > N_ROWS - first)
        n = N_ROWS - first;
    stg_example_layout_take(&l->layout, &in, &all, first, n, l->columns, good);
    for (size_t i = 0; i < n; i++) {
        struct stg_example_fault fault;
        const uint8_t *s = r->data + r->offsets[first + i];
        if (!good[i])
            continue;
        n_good++;
        memset(l->by_rules, 0, sizeof(l->by_rules));
        CHECK(stg_example_index(
            &in, s, (size_t)(r->offsets[first + i + 1] - r->offsets[first + i]), l->cells,
            0, &fault));
        for (uint32_t k = 0; k < plan->n_keys; k++) {
            const struct stg_example_span *a = &l->by_layout[k][i], *b = &l->by_rules[k];
            CHECK_INT(a->kind, b->kind);
            CHECK(a->kind == STG_EXAMPLE_NONE || (a->s == b->s && a->bytes == b->bytes));
        }
    }
    return n_good;
}

static void records_of_one_order_are_taken_by_their_layout(void)
{
    struct layout *l = calloc(1, sizeof(*l));
    struct records r;
    CHECK(l != NULL);
    for (int round = 0; round < 20; round++) {
        size_t n_taken = 0;
        layout_init(l);
        records_make(&(struct form){0}, &r);
        learn(l, &r, 16);
        for (size_t first = 0; first < N_ROWS; first += STG_EXAMPLE_BLOCK) {
            n_taken += take_block(l, &r, first);
            learn(l, &r, 4);
        }
        CHECK(n_taken >= N_ROWS - 10); /* behind the last ones nothing follows */
        free(r.data);
        layout_finish(l);
    }
    free(l);
}

static void records_of_no_order_end_the_layout(void)
{
    struct layout *l = calloc(1, sizeof(*l));
    struct records r;
    CHECK(l != NULL);
    layout_init(l);
    records_make(&(struct form){.shuffled = true}, &r);
    learn(l, &r, N_ROWS);
    CHECK_INT(l->layout.patience, 0);
    CHECK(take_block(l, &r, 0) < STG_EXAMPLE_BLOCK / 2);
    CHECK_INT(l->layout.n_steps, 0);
    free(r.data);
    layout_finish(l);
    free(l);
}

/* A record of each key, without its header. */
static struct text entries_of(void)
{
    struct text ret = {.n = 0};
    for (size_t k = 0; k < N_KEYS; k++)
        put_entry(&ret, &keys[k], 0);
    return ret;
}

/* Every byte behind it is out of bounds. */
static void learn_alone(struct layout *l, const uint8_t *s, size_t n)
{
    uint8_t *copy = malloc(n);
    CHECK(copy != NULL);
    memcpy(copy, s, n);
    stg_example_layout_learn(&l->layout, copy, n);
    free(copy);
}

static void no_byte_of_a_record_that_is_learned_is_read_beyond_its_end(void)
{
    struct layout *l = calloc(1, sizeof(*l));
    struct text entries = entries_of();
    CHECK(l != NULL);
    for (size_t n_left = 0; n_left < entries.n; n_left++) {
        struct text inside = text_of(entries.s, n_left), record = {.n = 0};
        put_field(&record, 1, &inside);
        layout_init(l);
        learn_alone(l, record.s, record.n);
        layout_finish(l);
    }
    free(l);
}

/* Returns what a layout of all keys finds in the first `bytes` bytes of data. */
static bool is_taken(const struct text *data, size_t bytes)
{
    struct layout *l = calloc(1, sizeof(*l));
    struct text entries = entries_of(), record = {.n = 0};
    uint8_t *copy = malloc(data->n);
    bool good;
    CHECK(l != NULL && copy != NULL);
    memcpy(copy, data->s, data->n);
    put_field(&record, 1, &entries);
    layout_init(l);
    stg_example_layout_learn(&l->layout, record.s, record.n);
    struct stg_tensor one = {.dtype = STAGER_STRING,
                             .ndim = 1,
                             .shape = {1},
                             .data = copy,
                             .begin = &(int64_t){0},
                             .end = &(int64_t){(int64_t)bytes}};
    struct stg_example_input in = {.plan = l->infer.plan, .limit = copy + data->n};
    stg_example_layout_take(&l->layout, &in, &one, 0, 1, l->columns, &good);
    layout_finish(l);
    free(copy);
    free(l);
    return good;
}

static void no_byte_of_a_record_that_is_taken_is_read_beyond_its_end(void)
{
    struct text entries = entries_of(), data;
    size_t first = 2 + entries.s[1];
    /* The first entry, and another one without its last byte. */
    for (size_t less = 0; less < 2; less++) {
        data = text_of(&(uint8_t[]){0x0a, (uint8_t)(first - less)}, 2);
        put(&data, entries.s, entries.n);
        CHECK(is_taken(&data, data.n - entries.n + first - less) == (less == 0));
    }
    CHECK(!is_taken(&data, data.n)); /* nothing follows */
}

static void a_length_of_more_than_one_byte_is_no_step(void)
{
    static const uint8_t tail[200];
    struct text data = text_of("\x0a\x82\x01\x0a\x80\x0a\x01s\x12\x7b\x0a\x79", 12);
    put(&data, tail, 0x79);
    size_t n = data.n;
    put(&data, tail, sizeof(tail));
    CHECK(!is_taken(&data, n));
    data.s[1] = 0x81;
    data.s[4] = 0x7f;
    data.s[9] = 0x7a;
    data.s[11] = 0x78;
    CHECK(is_taken(&data, n - 1));
}

static const struct stg_test tests[] = {
    TEST(usual_records_give_in_a_batch_what_they_give_alone),
    TEST_SLOW(unusual_records_give_in_a_batch_what_they_give_alone, 60),
    TEST_SLOW(a_damaged_record_in_a_batch_is_refused_or_read_as_alone, 60),
    TEST(a_batch_for_which_there_is_no_memory_is_refused),
    TEST(records_of_one_order_are_taken_by_their_layout),
    TEST(records_of_no_order_end_the_layout),
    TEST(no_byte_of_a_record_that_is_learned_is_read_beyond_its_end),
    TEST(no_byte_of_a_record_that_is_taken_is_read_beyond_its_end),
    TEST(a_length_of_more_than_one_byte_is_no_step),
};
TEST_MAIN(tests)
