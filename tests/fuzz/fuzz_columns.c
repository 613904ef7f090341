/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that fall into columns: whole Parquet and Arrow files through a pipeline, with
 * little memory, and the parsers of Parquet alone. A pass ends; each error names the
 * file; a pass that begins in the middle has the same items as one from the start.
 */
#include <stdlib.h>

#include "daemon/format/parquet/cursor.h"
#include "daemon/format/parquet/page_index.h"
#include "tests/daemon/format/golden_arrow.h"
#include "tests/daemon/format/golden_parquet.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/pass.h"

#define BUDGET ((uint64_t)4 << 20)
#define N_PARQUET (sizeof(parquet_files) / sizeof(parquet_files[0]))
#define N_ARROW (sizeof(arrow_files) / sizeof(arrow_files[0]))

/* An error of a row says of which column, and one of a page in which row group. */
static void check_error(const struct stg_err *err)
{
    if (strstr(err->text, ": row ") != NULL)
        FUZZ_CHECK_TEXT(strstr(err->text, "column ") != NULL, err->text);
    if (strstr(err->text, "page at offset") != NULL)
        FUZZ_CHECK_TEXT(strstr(err->text, ", row group ") != NULL, err->text);
}

static void read_file(const char *step, const char *options, unsigned middle,
                      const void *data, size_t bytes)
{
    const struct stg_fuzz_pass pass = {.step = step,
                                       .options = options,
                                       .check_error = check_error,
                                       .buffer_bytes = BUDGET};
    stg_fuzz_pass(&pass, middle, data, bytes);
}

/* Two bytes, then a file. */
static void run_parquet(const uint8_t *data, size_t bytes)
{
    if (bytes > 2)
        read_file("parquet", parquet_files[data[0] % N_PARQUET].options, data[1],
                  data + 2, bytes - 2);
}

static void run_arrow(const uint8_t *data, size_t bytes)
{
    if (bytes > 2)
        read_file("arrow", arrow_files[data[0] % N_ARROW].options, data[1], data + 2,
                  bytes - 2);
}

/* ---- a footer ---- */

struct memory {
    struct stg_source source;
    const uint8_t *data;
    size_t bytes;
};

static int64_t memory_read(struct stg_source *source, uint64_t offset, void *buf,
                           size_t bytes, struct stg_err *err)
{
    const struct memory *memory = (const struct memory *)source;
    if (offset >= memory->bytes)
        return 0;
    size_t n = memory->bytes - offset < bytes ? memory->bytes - offset : bytes;
    memcpy(buf, memory->data + offset, n);
    return (int64_t)n;
}

static int memory_size(struct stg_source *source, uint64_t *ret, struct stg_err *err)
{
    *ret = ((const struct memory *)source)->bytes;
    return 0;
}

static void memory_close(struct stg_source *source)
{
}

static const struct stg_storage memory_storage = {
    .scheme = "mem", .read = memory_read, .size = memory_size, .close = memory_close};

/* What the page index excludes lies in the row group. */
static void check_pages(struct memory *memory, const struct stg_parquet_file *file,
                        const struct stg_parquet_column *columns,
                        const struct stg_row_filter *filter, uint32_t group)
{
    struct stg_parquet_pages pages = {0};
    uint64_t n = file->ends[group] - (group > 0 ? file->ends[group - 1] : 0);
    int rc = stg_parquet_pages_read(&pages, &memory->source, file, columns, filter, group,
                                    NULL);
    FUZZ_CHECK(rc == 0 || rc == -STAGER_RESOURCE_EXHAUSTED);
    for (uint64_t row = 0; row < n && row < 4096; row++)
        FUZZ_CHECK(stg_parquet_pages_excluded(&pages, filter, row) <= n - row);
    stg_parquet_pages_finish(&pages);
}

/* The thrift of a footer: "PAR1" and its length are made here, and the same bytes are the
 * pages. What the file claims is checked: a range lies in it, and rows add up. */
static void run_footer(const uint8_t *data, size_t bytes)
{
    static const struct stg_parquet_want wants[] = {
        {.name = "id", .dtype = STAGER_INT64, .may_lack = true},
        {.name = "name", .dtype = STAGER_STRING, .may_lack = true},
        {.name = "ids", .dtype = STAGER_INT64, .n_lists = 1, .may_lack = true},
        {.name = "deep", .dtype = STAGER_INT64, .n_lists = 2, .may_lack = true}};
    uint32_t n_wants = 1 + (bytes > 0 ? data[0] % 4 : 0);
    size_t n = bytes > 0 ? bytes - 1 : 0, pages = 4096;
    uint8_t *file = calloc(1, pages + n + 8);
    FUZZ_CHECK(file != NULL);
    memcpy(file, "PAR1", 4);
    if (n > 0) {
        memcpy(file + 4, data + 1, n < pages - 4 ? n : pages - 4);
        memcpy(file + pages, data + 1, n);
    }
    uint32_t length = (uint32_t)n;
    memcpy(file + pages + n, &length, 4);
    memcpy(file + pages + n + 4, "PAR1", 4);
    struct memory memory = {{.storage = &memory_storage}, file, pages + n + 8};
    struct stg_quota *quota;
    struct stg_parquet_file *parquet = NULL;
    struct stg_err err = {0};
    bool is_storage = false;
    FUZZ_CHECK(stg_quota_create(BUDGET, &quota) == 0);
    struct stg_bump bump;
    struct stg_row_condition conditions[2] = {{.column = 0}, {.column = 1}};
    uint8_t fixed[2] = {STG_ROW_VARIES, STG_ROW_VARIES};
    struct stg_row_filter filter = {conditions, fixed, n_wants > 1 ? 2 : 1};
    static const struct stg_value number = {.kind = STG_VALUE_INT, .i = 9};
    static const struct stg_value text = {
        .kind = STG_VALUE_STRING, .s = "n", .s_bytes = 1};
    stg_bump_init(&bump, 1 << 16);
    FUZZ_CHECK(stg_row_condition_init(&conditions[0], "<", &number, 1, &bump, NULL) == 0);
    FUZZ_CHECK(stg_row_condition_init(&conditions[1], "!=", &text, 1, &bump, NULL) == 0);
    int rc = stg_parquet_open(&memory.source, quota, wants, n_wants, &filter, &parquet,
                              &is_storage, &err);
    FUZZ_CHECK(!is_storage && (rc == 0 || err.text[0] != '\0'));
    struct stg_parquet_column columns[4];
    for (uint32_t c = 0; c < 4; c++)
        columns[c] = (struct stg_parquet_column){.want = wants[c]};
    for (uint32_t g = 0; rc == 0 && g < parquet->n_groups; g++) {
        FUZZ_CHECK(g == 0 || parquet->ends[g - 1] <= parquet->ends[g]);
        for (uint32_t c = 0; c < n_wants; c++) {
            const struct stg_parquet_range *range =
                &parquet->ranges[(uint64_t)g * n_wants + c];
            FUZZ_CHECK(range->begin <= range->end && range->end <= memory.bytes);
        }
        check_pages(&memory, parquet, columns, &filter, g);
    }
    if (rc == 0)
        stg_parquet_close(parquet);
    stg_bump_finish(&bump);
    stg_quota_unref(quota);
    free(file);
}

/* ---- the head of a page ---- */

static void run_page_header(const uint8_t *data, size_t bytes)
{
    struct stg_parquet_page_header header, again;
    uint64_t n = stg_parquet_page_header_parse(data, bytes, &header);
    if (n == 0)
        return;
    FUZZ_CHECK(n <= bytes);
    FUZZ_CHECK(stg_parquet_page_header_parse(data, n, &again) == n);
    FUZZ_CHECK(header.kind == again.kind && header.n == again.n &&
               header.bytes == again.bytes);
}

/* ---- levels ---- */

static void check_rows(const struct stg_list_rows *rows, uint64_t n_values)
{
    for (uint64_t i = 0; i < rows->n; i++) {
        int64_t begin = stg_list_value_of(rows, i), end = stg_list_value_of(rows, i + 1);
        FUZZ_CHECK(rows->first[i] >= 0 && rows->first[i] <= rows->first[i + 1]);
        FUZZ_CHECK(begin >= 0 && begin <= end && (uint64_t)end <= n_values);
        if (rows->inner == NULL)
            continue;
        for (int64_t e = rows->first[i]; e < rows->first[i + 1]; e++)
            FUZZ_CHECK(rows->inner[e] <= rows->inner[e + 1]);
    }
}

/* Numbers, one for each value that the levels claim. */
static int fill_values(const struct stg_parquet_column *column, uint64_t n,
                       struct stg_quota *quota, struct stg_parquet_values *values)
{
    return stg_parquet_fill(column, n, quota, values, NULL);
}

/* One part after another: a number of levels, the bytes of repetitions, those of
 * definitions. */
static void run_levels(const uint8_t *data, size_t bytes)
{
    struct stg_fuzz_input input = {data, data + bytes};
    unsigned flags = stg_fuzz_byte(&input), n_lists = 1 + (flags & 1);
    struct stg_parquet_column column = {
        .want = {.name = "x",
                 .dtype = (flags & 2) != 0 ? STAGER_STRING : STAGER_INT64,
                 .n_lists = n_lists,
                 .may_lack = (flags & 4) != 0},
        .text = "text",
        .text_bytes = 4};
    column.shape[0] = (flags & 8) != 0 ? 2 : -1;
    column.shape[1] = (flags & 16) != 0 ? 3 : -1;
    struct stg_parquet_leaf leaf = {.is_there = true, .n_lists = n_lists};
    leaf.list_levels[0] = 1 + (flags >> 5 & 1);
    leaf.list_levels[1] = leaf.list_levels[0] + 1 + (flags >> 6 & 1);
    leaf.max_level = leaf.list_levels[n_lists - 1] + (flags >> 7 & 1);
    struct stg_quota *quota;
    FUZZ_CHECK(stg_quota_create(BUDGET, &quota) == 0);
    struct stg_parquet_lists lists = {.column = &column, .leaf = &leaf, .quota = quota};
    struct stg_parquet_values values = {0};
    struct stg_err err = {0};
    stg_parquet_lists_begin(&lists);
    int rc = 0;
    while (rc == 0 && input.at < input.end) {
        uint64_t n = stg_fuzz_number(&input), n_rows;
        size_t n_repeats = stg_fuzz_byte(&input), n_levels = stg_fuzz_byte(&input);
        size_t left = stg_fuzz_left(&input);
        n_repeats = n_repeats < left ? n_repeats : left;
        n_levels = n_levels < left - n_repeats ? n_levels : left - n_repeats;
        struct stg_parquet_bytes repeat = {input.at, input.at + n_repeats};
        struct stg_parquet_bytes level = {repeat.end, repeat.end + n_levels};
        struct stg_parquet_runs repeats, levels;
        input.at = level.end;
        rc = stg_parquet_begin_levels(&repeats, repeat, n_lists, &err);
        if (rc == 0)
            rc = stg_parquet_begin_levels(&levels, level, leaf.max_level, &err);
        if (rc == 0)
            rc = stg_parquet_lists_read(&lists, n, &repeats, &levels, &values, &err);
        if (rc == 0)
            rc = fill_values(&column, lists.n_slots, quota, &values);
        while (rc == 0 &&
               (rc = stg_parquet_lists_next(&lists, input.at == input.end, &n_rows,
                                            &err)) == 0 &&
               n_rows > 0) {
            FUZZ_CHECK(n_rows == lists.rows.n);
            check_rows(&lists.rows, lists.values->n);
        }
    }
    FUZZ_CHECK(rc == 0 || rc == -STAGER_DATA_LOSS || rc == -STAGER_RESOURCE_EXHAUSTED);
    stg_parquet_lists_finish(&lists);
    stg_parquet_values_finish(&values);
    stg_quota_unref(quota);
}

/* ---- encodings ---- */

#define MAX_VALUES 512

static void check_strings(const int64_t *begin, const int64_t *end, uint64_t n,
                          uint64_t bytes)
{
    for (uint64_t i = 0; i < n; i++)
        FUZZ_CHECK(begin[i] >= 0 && begin[i] <= end[i] && (uint64_t)end[i] <= bytes);
}

static void run_prefixed(struct stg_parquet_bytes *bytes, uint64_t n)
{
    static int64_t begin[MAX_VALUES], end[MAX_VALUES], suffix[MAX_VALUES + 1];
    const void *base = bytes->at;
    uint64_t all;
    if (!stg_parquet_prefixed(bytes, base, begin, end, suffix, n, &all) || all > BUDGET)
        return;
    char *to = malloc(all > 0 ? all : 1);
    FUZZ_CHECK(to != NULL);
    stg_parquet_join(base, begin, end, suffix, n, to);
    check_strings(begin, end, n, all);
    FUZZ_CHECK(n == 0 || (uint64_t)end[n - 1] == all);
    free(to);
}

static void run_runs(struct stg_parquet_bytes bytes, unsigned width, uint64_t n)
{
    static uint32_t whole[MAX_VALUES], parts[MAX_VALUES];
    struct stg_parquet_runs runs, again;
    if (!stg_parquet_runs_init(&runs, bytes, width))
        return;
    again = runs;
    bool is_good = stg_parquet_runs_read(&runs, whole, n);
    uint64_t done = 0;
    while (done < n) {
        uint32_t value;
        uint64_t equal = stg_parquet_runs_take(&again, n - done, &value);
        for (uint64_t i = 0; i < equal; i++)
            parts[done + i] = value;
        done += equal;
        if (done < n && !stg_parquet_runs_read(&again, &parts[done++], 1))
            break;
    }
    if (is_good)
        FUZZ_CHECK(done == n && memcmp(whole, parts, n * sizeof(*whole)) == 0);
    for (uint64_t i = 0; is_good && width < 32 && i < n; i++)
        FUZZ_CHECK(whole[i] >> width == 0);
}

static void run_encodings(const uint8_t *data, size_t bytes)
{
    static int64_t begin[MAX_VALUES], end[MAX_VALUES];
    static uint8_t wide[MAX_VALUES * 16];
    struct stg_fuzz_input input = {data, data + bytes};
    unsigned kind = stg_fuzz_byte(&input), width = stg_fuzz_byte(&input);
    uint64_t n = stg_fuzz_number(&input) % (MAX_VALUES + 1);
    struct stg_parquet_bytes from = {input.at, input.end};
    const uint8_t *base = from.at;
    switch (kind % 7) {
    case 0: run_runs(from, width % 34, n); break;
    case 1: (void)stg_parquet_bits(&from, wide, n); break;
    case 2: (void)stg_parquet_delta(&from, begin, n); break;
    case 3: (void)stg_parquet_split(&from, wide, n, 1 + width % 16); break;
    case 4:
        if (stg_parquet_strings(&from, base, begin, end, n))
            check_strings(begin, end, n, (uint64_t)(input.end - base));
        break;
    case 5:
        if (stg_parquet_delta_strings(&from, base, begin, end, n))
            check_strings(begin, end, n, (uint64_t)(input.end - base));
        break;
    default: run_prefixed(&from, n);
    }
    FUZZ_CHECK(from.at >= base && from.at <= input.end);
}

/* ---- the program ---- */

const struct stg_fuzz_mode stg_fuzz_modes[] = {
    {"parquet", run_parquet}, {"arrow", run_arrow},
    {"footer", run_footer},   {"page_header", run_page_header},
    {"levels", run_levels},   {"encodings", run_encodings},
};
const size_t stg_fuzz_n_modes = sizeof(stg_fuzz_modes) / sizeof(stg_fuzz_modes[0]);

static void seed_parquet(uint8_t i)
{
    const uint8_t prefix[] = {i, 7}, *data = parquet_files[i].data;
    size_t bytes = parquet_files[i].bytes;
    uint32_t length;
    stg_fuzz_seed("parquet", prefix, 2, data, bytes);
    memcpy(&length, data + bytes - 8, sizeof(length));
    stg_fuzz_seed("footer", "\3", 1, data + bytes - 8 - length, length);
    stg_fuzz_seed("page_header", NULL, 0, data + 4, 64);
}

void stg_fuzz_seeds(void)
{
    for (uint8_t i = 0; i < N_PARQUET; i++)
        seed_parquet(i);
    for (uint8_t i = 0; i < N_ARROW; i++) {
        const uint8_t prefix[] = {i, 7};
        if (arrow_files[i].bytes < 16384)
            stg_fuzz_seed("arrow", prefix, 2, arrow_files[i].data, arrow_files[i].bytes);
    }
    /* Two parts of a list: a run of repetitions and one of levels each. */
    static const uint8_t levels[] = {0x04, 0, 8, 2, 2, 3, 0x24, 3, 0xff,
                                     0,    4, 2, 2, 8, 1, 8,    1};
    stg_fuzz_seed("levels", NULL, 0, levels, sizeof(levels));
    for (uint8_t kind = 0; kind < 7; kind++) {
        const uint8_t values[] = {kind, 3, 0, 8,   0x80, 1,    4,    8,    2,
                                  2,    0, 0, 0,   3,    0x88, 0xc6, 0xfa, 4,
                                  0,    0, 0, 'a', 'b',  'c',  'd'};
        stg_fuzz_seed("encodings", NULL, 0, values, sizeof(values));
    }
}
