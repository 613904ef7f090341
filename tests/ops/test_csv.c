/* SPDX-License-Identifier: Apache-2.0
 *
 * All tables of kernels equal the reference on records designed to reveal differences, at
 * every alignment, with nothing readable behind. The vector code is tested here in every
 * width, compiled for any machine; code for one instruction set runs if the CPU supports
 * it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ops/kernels/csv/csv.h"
#include "tests/check.h"
#include "tests/ops/fixture.h"

extern const struct stg_csv_kernels stg_csv_kernels_two, stg_csv_kernels_four,
    stg_csv_kernels_eight;

#define MAX_TABLES 6
#define MAX_ROWS 100
#define MAX_BYTES 65536
#define N_COLUMNS 8

/* The tables that are compared with the reference. */
static size_t find_tables(const struct stg_csv_kernels **ret)
{
    size_t n;
    const struct stg_csv_kernels *const *all = stg_csv_kernels_all(&n);
    CHECK(all[0] == &stg_csv_kernels_scalar);
    for (size_t i = 1; i < n; i++)
        ret[i - 1] = all[i];
    ret[n - 1] = &stg_csv_kernels_two;
    ret[n] = &stg_csv_kernels_four;
    ret[n + 1] = &stg_csv_kernels_eight;
    return n + 2;
}

/* ---- random records ---- */

static uint64_t random_state;

static uint64_t random_below(uint64_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (random_state >> 11) % n;
}

struct text {
    char data[MAX_BYTES];
    size_t n;
    int64_t begin[MAX_ROWS], end[MAX_ROWS];
    int64_t n_rows;
};

static void put(struct text *text, const char *s, size_t n)
{
    memcpy(text->data + text->n, s, n);
    text->n += n;
}

static void put_text(struct text *text, const char *s)
{
    put(text, s, strlen(s));
}

static void put_digits(struct text *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        text->data[text->n++] = (char)('0' + random_below(10));
}

/* A number, in most of its notations. bad: possibly invalid. */
static void put_number(struct text *text, bool whole, bool bad)
{
    static const char *const odd[] = {"-",   ".",   "-.", "1.2.3", "1-2",
                                      "--1", "+-1", "x",  "12x",   "1 2",
                                      ":",   "/",   "1e", "\x80",  "0x1p"};
    static const char *const fine[] = {"-0",           "+7",         " 8",
                                       "9 ",           "00000000",   "-0000001",
                                       "000000000012", "2147483647", "-2147483648"};
    static const char *const real[] = {"1e3",        "-1.5e-3",  ".5",        "5.",
                                       "-.5",        "-5.",      "inf",       "nan",
                                       "1.2345678",  "16777217", "0.1234567", "99999999",
                                       "123456.789", "0x1p3",    "-0.0"};
    if (bad && random_below(8) == 0) {
        put_text(text, odd[random_below(sizeof(odd) / sizeof(odd[0]))]);
        return;
    }
    switch (random_below(whole ? 4 : 6)) {
    case 0: put_text(text, fine[random_below(sizeof(fine) / sizeof(fine[0]))]); return;
    case 1:
        if (random_below(2) == 0)
            put_text(text, "-");
        put_digits(text, 1 + random_below(9));
        return;
    case 2: return; /* missing */
    case 3: put_digits(text, 1 + random_below(3)); return;
    case 4: put_text(text, real[random_below(sizeof(real) / sizeof(real[0]))]); return;
    default:
        if (random_below(4) == 0)
            put_text(text, "-");
        put_digits(text, random_below(5));
        put_text(text, ".");
        put_digits(text, 1 + random_below(5));
    }
}

static void put_string(struct text *text, char delim, bool bad)
{
    static const char *const odd[] = {"\"",  "a\"b",     "\n",  "\r",
                                      "\"a", "\"a\"b\"", "\r\n"};
    if (bad && random_below(12) == 0) {
        put_text(text, odd[random_below(sizeof(odd) / sizeof(odd[0]))]);
        return;
    }
    size_t n = random_below(16) == 0 ? random_below(300) : random_below(20);
    bool quoted = random_below(6) == 0;
    if (quoted)
        put_text(text, "\"");
    for (size_t i = 0; i < n; i++) {
        char c = (char)random_below(256);
        if (quoted && random_below(4) == 0)
            put_text(text, random_below(2) == 0 ? "\"\"" : "\r\n");
        else if (quoted && c != '"')
            put(text, &c, 1);
        else if (c != '"' && c != '\n' && c != '\r' && c != delim)
            put(text, &c, 1);
        else
            put(text, delim == '\0' ? "\1" : "\0", 1);
    }
    if (quoted)
        put_text(text, "\"");
}

/* Columns: int32, float32, string, int64, float64, string, string, string. */
static void put_record(struct text *text, char delim, bool bad)
{
    size_t n = N_COLUMNS;
    if (bad && random_below(30) == 0)
        n = random_below(20);
    for (size_t c = 0; c < n; c++) {
        if (c > 0)
            put(text, &delim, 1);
        switch (c % N_COLUMNS) {
        case 0:
        case 3: put_number(text, true, bad); break;
        case 1:
        case 4: put_number(text, false, bad); break;
        default: put_string(text, delim, bad); break;
        }
    }
}

/* One row may be bad: of two, the first would hide the result of the second. */
static void make_records(struct text *text, char delim, bool bad)
{
    text->n = 0;
    text->n_rows = 1 + (int64_t)random_below(MAX_ROWS);
    int64_t bad_row = bad ? (int64_t)random_below((uint64_t)text->n_rows) : -1;
    for (int64_t i = 0; i < text->n_rows; i++) {
        text->begin[i] = (int64_t)text->n;
        put_record(text, delim, i == bad_row);
        text->end[i] = (int64_t)text->n;
        put_text(text, random_below(2) == 0 ? "\n" : "\r\n");
        if (text->n > MAX_BYTES - 8192)
            text->n_rows = i + 1;
    }
    text->n = (size_t)text->end[text->n_rows - 1];
}

/* ---- memory with nothing behind ---- */

struct guarded {
    char *base;
    size_t bytes;
};

static struct guarded guarded_map(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct guarded ret = {.bytes = MAX_BYTES + page};
    ret.base =
        mmap(NULL, ret.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(ret.base != MAP_FAILED);
    CHECK_INT(mprotect(ret.base + MAX_BYTES, page, PROT_NONE), 0);
    return ret;
}

/* A copy that ends where the memory ends. */
static char *guarded_copy(const struct guarded *guarded, const char *s, size_t n)
{
    char *to = guarded->base + MAX_BYTES - n;
    memcpy(to, s, n);
    return to;
}

/* ---- graphs ---- */

static void stage_init(struct fixture_stage *stage, const char *attrs, const char *rest)
{
    static char text[4096];
    snprintf(text, sizeof(text),
             "element record string [-1]\n"
             "columns = decode_csv(record) out_type=[\"int32\", \"float32\", \"string\", "
             "\"int64\", \"float64\", \"string\", \"string\", \"string\"] %s\n%s",
             attrs, rest);
    fixture_stage_init(stage, text);
}

static void check_equal(const char *name, const struct stg_tensor *a,
                        const struct stg_tensor *b)
{
    CHECK_INT(a->dtype, b->dtype);
    int64_t n = stg_tensor_n(a);
    CHECK_INT(n, stg_tensor_n(b));
    if (a->dtype != STAGER_STRING) {
        if (memcmp(a->data, b->data, (size_t)n * stg_dtype_bytes(a->dtype)) != 0)
            FAIL("%s: other values", name);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        size_t bytes = (size_t)(a->end[i] - a->begin[i]);
        if (bytes != (size_t)(b->end[i] - b->begin[i]) ||
            memcmp((char *)a->data + a->begin[i], (char *)b->data + b->begin[i], bytes) !=
                0)
            FAIL("%s: another string %d", name, (int)i);
    }
}

#define ALL_COLUMNS                                                                      \
    "feature a = columns:0\nfeature b = columns:1\nfeature c = columns:2\n"              \
    "feature d = columns:3\nfeature e = columns:4\nfeature f = columns:5\n"              \
    "h = string_to_hash_bucket_fast(columns:6) num_buckets=1000003\nfeature g = h\n"     \
    "i = string_to_hash_bucket_fast(columns:7) num_buckets=9223372036854775807\n"        \
    "feature h = i\n"

/* Checks the values and, if there are none, the text of the error. */
static int compare_tables(struct fixture_stage *stage, const struct stg_tensor *feed)
{
    const struct stg_csv_kernels *tables[MAX_TABLES];
    size_t n = find_tables(tables);
    struct stg_err want_err = {0}, err = {0};
    struct stg_tensor want[N_COLUMNS], got[N_COLUMNS];
    struct stg_run *reference;
    CHECK_OK(stg_run_create_stage(stage->graph, &reference, &err), err);
    stg_csv_kernels_use(&stg_csv_kernels_scalar);
    int want_rc = stg_run_exec(reference, feed, NULL, NULL, want, &want_err);
    for (size_t i = 0; i < n; i++) {
        stg_csv_kernels_use(tables[i]);
        int rc = stg_run_exec(stage->run, feed, NULL, NULL, got, &err);
        if (rc != want_rc)
            FAIL("%s: %d (%s), the reference: %d (%s)", tables[i]->name, rc,
                 rc < 0 ? err.text : "", want_rc, want_rc < 0 ? want_err.text : "");
        if (rc < 0) {
            CHECK_STR(err.text, want_err.text);
            CHECK_INT(err.row, want_err.row);
        }
        for (int c = 0; rc == 0 && c < N_COLUMNS; c++)
            check_equal(tables[i]->name, &got[c], &want[c]);
    }
    stg_csv_kernels_use(NULL);
    stg_run_destroy(reference);
    return want_rc;
}

static void compare_on_records(const char *attrs, char delim, bool bad, int rounds)
{
    static struct text text;
    struct fixture_stage stage;
    struct guarded guarded = guarded_map();
    stage_init(&stage, attrs, ALL_COLUMNS);
    int n_good = 0;
    for (int k = 0; k < rounds; k++) {
        make_records(&text, delim, bad && k % 2 == 0);
        struct stg_tensor feed = {.dtype = STAGER_STRING,
                                  .ndim = 1,
                                  .shape = {text.n_rows},
                                  .data = guarded_copy(&guarded, text.data, text.n),
                                  .data_bytes = text.n,
                                  .begin = text.begin,
                                  .end = text.end};
        n_good += compare_tables(&stage, &feed) == 0;
    }
    if (n_good < rounds / 4)
        FAIL("only %d of %d batches were good", n_good, rounds);
    munmap(guarded.base, guarded.bytes);
    fixture_stage_finish(&stage);
}

#define DEFAULTS "record_defaults=[-3, 0.25, \"x\", 5000000000, -1.5, \"\", \"dd\", \"\"]"

static void all_tables_agree_on_hostile_records(void)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        random_state = seed * 88172645463325252ull;
        compare_on_records(DEFAULTS, ',', true, 40);
    }
}

static void all_tables_agree_with_other_dialects(void)
{
    random_state = 4711;
    compare_on_records(DEFAULTS " field_delim=\"\\x09\"", '\t', true, 100);
    compare_on_records(DEFAULTS " na_value=\"7\"", ',', true, 100);
    compare_on_records(DEFAULTS " na_value=[\"7\", \"\", \"inf\", \"1\"]", ',', true,
                       100);
    compare_on_records(DEFAULTS " select_cols=[0, 1, 2, 3, 4, 5, 6, 7]", ',', true, 100);
    compare_on_records(DEFAULTS " field_delim=\"\\x00\"", '\0', false, 50);
}

static void all_tables_agree_without_quoting(void)
{
    static struct text text;
    struct fixture_stage stage;
    struct stg_bump bump = {0};
    random_state = 99;
    stage_init(&stage, DEFAULTS " use_quote_delim=false", ALL_COLUMNS);
    for (int k = 0; k < 200; k++) {
        make_records(&text, ',', false);
        for (size_t i = 0; i < text.n; i++) {
            if (text.data[i] == '\n' || text.data[i] == '\r')
                text.data[i] = '"';
        }
        struct stg_tensor feed = {.dtype = STAGER_STRING,
                                  .ndim = 1,
                                  .shape = {text.n_rows},
                                  .data = text.data,
                                  .data_bytes = text.n,
                                  .begin = text.begin,
                                  .end = text.end};
        compare_tables(&stage, &feed);
    }
    stg_bump_finish(&bump);
    fixture_stage_finish(&stage);
}

static void required_fields_are_missed_by_all_tables(void)
{
    struct fixture_stage stage;
    struct guarded guarded = guarded_map();
    static struct text text;
    stage_init(&stage, "record_defaults=[null, null, null, null, null, null, null, null]",
               ALL_COLUMNS);
    int n_good = 0;
    for (int missing = -1; missing < 40 * N_COLUMNS; missing++) {
        text.n = 0;
        text.n_rows = 40;
        for (int r = 0; r < 40; r++) {
            text.begin[r] = (int64_t)text.n;
            for (int c = 0; c < N_COLUMNS; c++) {
                put_text(&text, c > 0 ? "," : "");
                put_text(&text, r * N_COLUMNS + c == missing ? "" : "12345678");
            }
            text.end[r] = (int64_t)text.n;
        }
        struct stg_tensor feed = {.dtype = STAGER_STRING,
                                  .ndim = 1,
                                  .shape = {text.n_rows},
                                  .data = guarded_copy(&guarded, text.data, text.n),
                                  .data_bytes = text.n,
                                  .begin = text.begin,
                                  .end = text.end};
        n_good += compare_tables(&stage, &feed) == 0;
    }
    CHECK_INT(n_good, 1);
    munmap(guarded.base, guarded.bytes);
    fixture_stage_finish(&stage);
}

/* ---- the parts ---- */

static void newlines_are_found_at_every_place_by_all_tables(void)
{
    const struct stg_csv_kernels *tables[MAX_TABLES];
    size_t n_tables = find_tables(tables);
    struct guarded guarded = guarded_map();
    random_state = 31;
    for (size_t n = 0; n < 400; n++) {
        char s[400];
        for (size_t i = 0; i < n; i++)
            s[i] = (char)("\n\nab\0\r\x8a\x0b"[random_below(n % 3 == 0 ? 8 : 2 + n % 7)]);
        const char *data = guarded_copy(&guarded, s, n);
        size_t n_max = random_below(2) == 0 ? 400 : random_below(200);
        uint32_t want[400], got[400];
        size_t want_seen = 0, seen = 0;
        size_t n_want = stg_csv_kernels_scalar.newlines(data, n, want, n_max, &want_seen);
        size_t count = 0;
        for (size_t i = 0; i < n && count < n_max; i++)
            count += s[i] == '\n';
        CHECK_INT(n_want, count);
        for (size_t t = 0; t < n_tables; t++) {
            CHECK_INT(tables[t]->newlines(data, n, got, n_max, &seen), n_want);
            CHECK_INT(seen, want_seen);
            CHECK_INT(memcmp(got, want, n_want * sizeof(got[0])), 0);
        }
    }
    munmap(guarded.base, guarded.bytes);
}

static void a_modulus_is_that_of_the_division(void)
{
    random_state = 5;
    for (int i = 0; i < 200000; i++) {
        uint64_t divisor = random_state >> random_below(64), value = random_state * 7;
        if (i < 64)
            divisor = 1ull << i;
        else if (i < 128)
            divisor = (1ull << (i - 64)) + 1;
        else if (i < 190)
            divisor = UINT64_MAX - (uint64_t)i + 128;
        divisor += divisor == 0;
        struct stg_modulus modulus = stg_modulus_make(divisor);
        uint64_t values[] = {value,
                             0,
                             divisor - 1,
                             divisor,
                             UINT64_MAX,
                             UINT64_MAX / divisor * divisor,
                             UINT64_MAX / divisor * divisor - 1};
        for (size_t k = 0; k < sizeof(values) / sizeof(values[0]); k++)
            CHECK(stg_modulus(values[k], &modulus) == values[k] % divisor);
        random_below(2);
    }
}

/* ---- hashes ---- */

/* Divisors around the limits of the vectorised division. */
static void buckets_of_a_column_are_remainders_for_all_kernels_and_divisors(void)
{
    static char text[STG_CSV_ROWS * 16 + STG_CSV_SLACK];
    const char *base[STG_CSV_ROWS];
    uint32_t ends[2 * STG_CSV_ROWS];
    const struct stg_csv_rule rule = {.s = ""};
    size_t n_tables;
    const struct stg_csv_kernels *const *tables = stg_csv_kernels_all(&n_tables);
    random_state = 23;
    for (int round = 0; round < 4096; round++) {
        uint64_t divisor = (1ull << round % 64) + (uint64_t)(round / 64 % 5) - 2;
        if (round % 2 == 1)
            divisor = 1 + (random_state >> random_below(64));
        if (divisor - 1 > INT64_MAX - 1)
            divisor = 1000003;
        struct stg_csv_hash hash = {.buckets = stg_modulus_make(divisor), .missing = 0};
        for (size_t i = 0; i < STG_CSV_ROWS; i++) {
            base[i] = text + 16 * i;
            ends[i] = UINT32_MAX;
            ends[STG_CSV_ROWS + i] = (uint32_t)(8 + random_below(9));
            for (int k = 0; k < 16; k++)
                text[16 * i + (size_t)k] = (char)('a' + random_below(26));
        }
        struct stg_csv_block block = {
            .base = base, .limit = text + sizeof(text), .n = STG_CSV_ROWS};
        for (size_t t = 0; t < n_tables; t++) {
            int64_t got[STG_CSV_ROWS];
            CHECK(tables[t]->hash(&block, ends, &rule, &hash, got));
            for (size_t i = 0; i < STG_CSV_ROWS; i++) {
                uint64_t whole = stg_fingerprint64(base[i], ends[STG_CSV_ROWS + i]);
                CHECK_INT(got[i], (int64_t)(whole % divisor));
            }
        }
    }
}

/* The strings are features too, so nothing is reused in place. */
static void a_hash_taken_over_is_the_hash_of_the_string(void)
{
    static struct text text;
    struct fixture_stage fused, plain;
    struct stg_err err = {0};
    struct stg_tensor a[N_COLUMNS + 2], b[N_COLUMNS];
    random_state = 17;
    stage_init(&fused, DEFAULTS, ALL_COLUMNS);
    stage_init(&plain, DEFAULTS,
               ALL_COLUMNS "feature s6 = columns:6\nfeature s7 = columns:7\n");
    for (int k = 0; k < 100; k++) {
        make_records(&text, ',', false);
        struct stg_tensor feed = {.dtype = STAGER_STRING,
                                  .ndim = 1,
                                  .shape = {text.n_rows},
                                  .data = text.data,
                                  .data_bytes = text.n,
                                  .begin = text.begin,
                                  .end = text.end};
        CHECK_OK(stg_run_exec(plain.run, &feed, NULL, NULL, a, &err), err);
        CHECK_OK(stg_run_exec(fused.run, &feed, NULL, NULL, b, &err), err);
        for (int c = 0; c < N_COLUMNS; c++)
            check_equal("fused", &b[c], &a[c]);
    }
    fixture_stage_finish(&plain);
    fixture_stage_finish(&fused);
}

static int refusing_alloc(void *owner, size_t i, int dtype, int ndim,
                          const int64_t *shape, uint64_t string_bytes,
                          struct stg_tensor *ret, struct stg_err *err)
{
    return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "the extent is full");
}

static void an_error_of_a_hash_taken_over_names_the_hash(void)
{
    struct fixture_stage stage;
    struct stg_err err = {0};
    struct stg_bump bump = {0};
    stage_init(&stage, DEFAULTS,
               "ids = string_to_hash_bucket_fast(columns:6) num_buckets=7\n"
               "feature ids = ids\n");
    static const char *const record = "1,2,a,4,5,b,c,d";
    struct stg_tensor feed = fixture_strings(&bump, 1, &record);
    struct stg_sink sink = {.alloc = refusing_alloc};
    CHECK_INT(stg_run_exec(stage.run, &feed, NULL, &sink, NULL, &err),
              -STAGER_RESOURCE_EXHAUSTED);
    CHECK_STR(err.text, "node ids (string_to_hash_bucket_fast): the extent is full");
    stg_bump_finish(&bump);
    fixture_stage_finish(&stage);
}

static void the_best_table_of_this_cpu_is_used(void)
{
    size_t n;
    const struct stg_csv_kernels *const *all = stg_csv_kernels_all(&n);
    CHECK(stg_csv_kernels() == all[n - 1]);
    for (size_t i = 0; i < n; i++)
        printf("     this CPU runs %s\n", all[i]->name);
}

static const struct stg_test tests[] = {
    TEST_SLOW(all_tables_agree_on_hostile_records, 60),
    TEST_SLOW(all_tables_agree_with_other_dialects, 60),
    TEST_SLOW(all_tables_agree_without_quoting, 60),
    TEST_SLOW(required_fields_are_missed_by_all_tables, 60),
    TEST(newlines_are_found_at_every_place_by_all_tables),
    TEST(a_modulus_is_that_of_the_division),
    TEST(buckets_of_a_column_are_remainders_for_all_kernels_and_divisors),
    TEST(a_hash_taken_over_is_the_hash_of_the_string),
    TEST(an_error_of_a_hash_taken_over_names_the_hash),
    TEST(the_best_table_of_this_cpu_is_used),
};

TEST_MAIN(tests)
