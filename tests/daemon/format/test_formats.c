/* SPDX-License-Identifier: Apache-2.0
 *
 * Properties of every format of the table: its own file, the files of all others, random
 * damage, an empty file, one record; a stop, a failure and a failed allocation at any
 * point; memory over a thousand files. A new format needs a row.
 */
#include <inttypes.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "tests/daemon/format/format_source.h"
#include "tests/daemon/format/golden_npy.h"
#include "tests/daemon/format/golden_tfrecord.h"
#include "tests/failalloc.h"

static const char csv_text[] =
    "a,b\r\n1,\"two\nlines\"\n\"with \"\"quotes\"\"\",\n\n3,4\rend";
static const char line_text[] = "one\r\ntwo\n\n  \nfour\r\r\nlast";
static const char *const x[] = {"x"};

static const struct stg_fixed_length_options fixed = {7, 3, 5};
static const struct stg_csv_reader_options csv = {',', true, true};
static const struct stg_npy_options npy = {
    .row = {.name = "value", .dtype = STAGER_FLOAT32, .ndim = 2, .shape = {-1, 3}}};
static const struct stg_tar_options tar = {1, x};

/* One member a.x of three bytes, and the end mark. */
static char tar_archive[512 * 4] = "a.x";
/* The first row of npy_grid alone. */
#define NPY_HEADER 128
#define NPY_ROW 24
static char npy_one[NPY_HEADER + NPY_ROW];

static const struct row {
    const char *format;
    const void *data;
    size_t bytes;
    struct stg_format_config config;
    const void *one; /* a file of one record */
    size_t one_bytes;
} rows[] = {
    {"text_line",
     line_text,
     sizeof(line_text) - 1,
     {.skip_blank_lines = true},
     line_text,
     3},
    {"tfrecord",
     golden_plain,
     sizeof(golden_plain),
     {.max_record_bytes = 500},
     golden_plain,
     16},
    {"fixed_length_record",
     line_text,
     3 + 2 * 7 + 5,
     {.options = &fixed},
     line_text,
     3 + 7 + 5},
    {"csv",
     csv_text,
     sizeof(csv_text) - 1,
     {.options = &csv, .max_record_bytes = 30},
     "h\n1,2",
     5},
    {"read_file", line_text, sizeof(line_text) - 1, {0}, "x", 1},
    {"npy", npy_grid, sizeof(npy_grid), {.options = &npy}, npy_one, sizeof(npy_one)},
    {"tar",
     tar_archive,
     sizeof(tar_archive),
     {.options = &tar, .n_parts = 2},
     tar_archive,
     sizeof(tar_archive)},
};
#define N_ROWS (sizeof(rows) / sizeof(rows[0]))

static void make_tar(void)
{
    static const char size[] = "00000000003";
    unsigned sum = 0;
    memcpy(tar_archive + 124, size, sizeof(size));
    memset(tar_archive + 148, ' ', 8);
    tar_archive[156] = '0';
    memcpy(tar_archive + 257, "ustar\00000", 8);
    memcpy(tar_archive + 512, "abc", 3);
    for (int i = 0; i < 512; i++)
        sum += (unsigned char)tar_archive[i];
    for (int i = 5; i >= 0; i--, sum >>= 3)
        tar_archive[148 + i] = (char)('0' + (sum & 7));
    tar_archive[154] = '\0';
}

static void make_npy(void)
{
    memcpy(npy_one, npy_grid, sizeof(npy_one));
    char *shape = memmem(npy_one, NPY_HEADER, "(5, 2, 3)", 9);
    CHECK(shape != NULL);
    shape[1] = '1';
}

static const struct row *row_of(const struct stg_format *format)
{
    make_tar();
    make_npy();
    for (size_t i = 0; i < N_ROWS; i++) {
        if (strcmp(rows[i].format, format->name) == 0)
            return &rows[i];
    }
    FAIL("%s has no row here", format->name);
}

static void every_format_reads_its_own_file_alike_by_all_sizes_of_reads(void)
{
    size_t n;
    const struct stg_format *const *formats = stg_formats(&n);
    for (size_t i = 0; i < n; i++) {
        const struct row *row = row_of(formats[i]);
        struct stg_test_records records =
            stg_test_read_all_ways(formats[i], row->config, row->data, row->bytes);
        CHECK(records.n > 0 && records.rc == 0);
        CHECK_INT(records.at[0].code, 0);
        stg_test_records_finish(&records);
    }
}

static void no_format_is_harmed_by_a_damaged_file(void)
{
    size_t n;
    const struct stg_format *const *formats = stg_formats(&n);
    for (size_t i = 0; i < n; i++) {
        const struct row *row = row_of(formats[i]);
        stg_test_every_damage(formats[i], row->config, row->data, row->bytes);
        stg_test_some_damage(formats[i], row->config, row->data, row->bytes, 1500);
    }
}

static void no_format_is_harmed_by_the_file_of_another(void)
{
    size_t n;
    const struct stg_format *const *formats = stg_formats(&n);
    for (size_t i = 0; i < n; i++) {
        const struct row *row = row_of(formats[i]);
        for (size_t k = 0; k < N_ROWS; k++)
            stg_test_some_damage(formats[i], row->config, rows[k].data, rows[k].bytes,
                                 200);
    }
}

static void an_empty_file_ends(void)
{
    size_t n;
    const struct stg_format *const *formats = stg_formats(&n);
    for (size_t i = 0; i < n; i++) {
        struct stg_test_memory source = stg_test_memory("", 0);
        struct stg_test_records records =
            stg_test_read(formats[i], row_of(formats[i])->config, &source, 4, false);
        CHECK(records.n <= 1 && records.rc == 0);
        stg_test_records_finish(&records);
    }
}

static void one_record_is_enough(void)
{
    size_t n;
    const struct stg_format *const *formats = stg_formats(&n);
    for (size_t i = 0; i < n; i++) {
        const struct row *row = row_of(formats[i]);
        struct stg_test_records records =
            stg_test_read_all_ways(formats[i], row->config, row->one, row->one_bytes);
        CHECK_INT(records.n, 1);
        CHECK_INT(records.at[0].code, 0);
        stg_test_records_finish(&records);
    }
}

/* ---- going on elsewhere ---- */

typedef void format_check(const struct stg_format *format, const struct row *row,
                          const struct stg_test_records *all);

/* Reads the whole file of the row in small pieces. */
static void over_formats(format_check *check)
{
    size_t n;
    const struct stg_format *const *formats = stg_formats(&n);
    for (size_t i = 0; i < n; i++) {
        struct row row = *row_of(formats[i]);
        row.config.read_bytes = 5;
        row.config.chunk_bytes = 40;
        struct stg_test_memory source = stg_test_memory(row.data, row.bytes);
        struct stg_test_records all =
            stg_test_read(formats[i], row.config, &source, 2, false);
        check(formats[i], &row, &all);
        stg_test_records_finish(&all);
    }
}

/* Reads `first` records, then moves: to a record, or, NULL, by n records. */
struct move {
    size_t first;
    const struct stg_test_record *to;
    uint64_t n, n_skipped;
};

static void make_move(void *owner, const struct stg_format *format, void *reader)
{
    struct move *move = owner;
    int64_t begin[8], end[8];
    struct stg_records records;
    struct stg_err err = {0};
    for (size_t i = 0; i < move->first; i++)
        CHECK_INT(format->next(reader, 1, false, begin, end, &records, &err),
                  STG_FORMAT_RECORDS);
    if (move->to != NULL)
        format->seek(reader, move->to->offset, move->to->number);
    else
        CHECK_OK(format->skip(reader, move->n, &move->n_skipped, &err), err);
}

/* Whatever was moved over, what follows is the end of `all`. */
static void check_move(const struct stg_format *format, const struct row *row,
                       const struct stg_test_records *all, struct move *move, size_t at)
{
    static const uint64_t reads[] = {1, 5, 40, 1 << 20};
    for (size_t i = 0; i < 4; i++) {
        struct stg_test_memory source = stg_test_memory(row->data, row->bytes);
        struct stg_format_config config = row->config;
        source.started = make_move;
        source.owner = move;
        config.read_bytes = reads[i];
        config.chunk_bytes = 2 * reads[i];
        struct stg_test_records got =
            stg_test_read(format, config, &source, i % 2 == 0 ? 1 : 3, i == 3);
        size_t from = move->to != NULL ? at : at + move->n_skipped;
        struct stg_test_records rest = {
            .at = all->at + from, .n = all->n - from, .rc = all->rc};
        stg_test_records_equal(&got, &rest);
        stg_test_records_finish(&got);
    }
}

static void check_seeks(const struct stg_format *format, const struct row *row,
                        const struct stg_test_records *all)
{
    CHECK((format->seek != NULL) == (format->describe != NULL));
    for (size_t to = 0; format->seek != NULL && to < all->n; to++) {
        for (size_t first = 0; all->at[to].code == 0 && first <= to; first++) {
            struct move move = {.first = first, .to = &all->at[to]};
            check_move(format, row, all, &move, to);
        }
    }
}

static void a_format_with_places_goes_on_from_any_record(void)
{
    over_formats(check_seeks);
}

static void check_skips(const struct stg_format *format, const struct row *row,
                        const struct stg_test_records *all)
{
    uint64_t most = 0;
    for (size_t first = 0; format->skip != NULL && first <= all->n; first++) {
        for (uint64_t n = 0; n <= all->n + 1; n++) {
            struct move move = {.first = first, .n = n};
            check_move(format, row, all, &move, first);
            CHECK(move.n_skipped <= n);
            most = move.n_skipped > most ? move.n_skipped : most;
        }
    }
    CHECK(format->skip == NULL || most > 0);
}

static void what_a_format_skips_by_arithmetic_is_what_it_would_have_read(void)
{
    over_formats(check_skips);
}

/* The same of files that are damaged or truncated: their errors stay where they are. */
static void check_cuts(const struct stg_format *format, const struct row *row,
                       const struct stg_test_records *all)
{
    for (size_t bytes = 0; bytes < row->bytes; bytes += 1 + row->bytes / 50) {
        struct row cut = *row;
        cut.bytes = bytes;
        struct stg_test_memory source = stg_test_memory(row->data, bytes);
        struct stg_test_records some =
            stg_test_read(format, row->config, &source, 2, false);
        check_seeks(format, &cut, &some);
        for (uint64_t n = 0; format->skip != NULL && n <= some.n + 1; n++) {
            for (size_t first = 0; first <= some.n; first++) {
                struct move move = {.first = first, .n = n};
                check_move(format, &cut, &some, &move, first);
            }
        }
        stg_test_records_finish(&some);
    }
}

static void the_same_holds_for_a_file_that_is_cut(void)
{
    over_formats(check_cuts);
}

/* ---- a stop, a failure ---- */

/* The output is a prefix of the full output. Then the code follows, unless the output is
 * complete. */
static void check_begin(const struct stg_format *format,
                        const struct stg_test_records *got,
                        const struct stg_test_records *all, int code)
{
    struct stg_test_records begin = *all;
    if (got->rc != 0 && got->rc != code)
        FAIL("%s turns %d into %d: %s", format->name, code, got->rc, got->err.text);
    CHECK(got->n <= all->n);
    if (got->rc != 0)
        begin.n = got->n;
    begin.rc = got->rc;
    stg_test_records_equal(got, &begin);
}

static void check_stops(const struct stg_format *format, const struct row *row,
                        const struct stg_test_records *all)
{
    bool stopped_it = false;
    for (int n = 0;; n++) {
        _Atomic int stopped = 0;
        struct stg_format_config config = row->config;
        struct stg_test_memory source = stg_test_memory(row->data, row->bytes);
        source.stop_after = &stopped;
        source.n_reads = n;
        config.stopped = &stopped;
        struct stg_test_records got = stg_test_read(format, config, &source, 2, false);
        check_begin(format, &got, all, -STAGER_CANCELLED);
        stopped_it |= got.rc < 0;
        stg_test_records_finish(&got);
        if (stopped == 0)
            break;
    }
    if (!stopped_it)
        FAIL("%s is stopped by nothing", format->name);
}

static void a_stop_at_any_read_cancels(void)
{
    over_formats(check_stops);
}

static void check_failures(const struct stg_format *format, const struct row *row,
                           const struct stg_test_records *all)
{
    for (size_t at = 1; at <= row->bytes; at++) {
        struct stg_test_memory source = stg_test_memory(row->data, row->bytes);
        source.fail_at = at;
        struct stg_test_records got =
            stg_test_read(format, row->config, &source, 2, false);
        check_begin(format, &got, all, -STAGER_DATA_LOSS);
        if (got.rc < 0)
            CHECK_CONTAINS(got.err.text, "broken");
        stg_test_records_finish(&got);
    }
}

static void a_failure_at_any_byte_comes_after_the_records_before_it(void)
{
    over_formats(check_failures);
}

/* ---- memory ---- */

#define ASK 8
#define MAX_PARTS 2

struct reading {
    const struct stg_format *format;
    const struct row *row;
    struct stg_quota *quota;
    void *reader;
    uint64_t most; /* counted at the same time */
};

static int reading_open(struct reading *reading)
{
    struct stg_format_config config = reading->row->config;
    int rc = stg_quota_create(0, &reading->quota);
    if (rc < 0)
        return rc;
    config.quota = reading->quota;
    if (config.max_record_bytes == 0)
        config.max_record_bytes = 1 << 20;
    return reading->format->create(&config, &reading->reader);
}

static void reading_close(struct reading *reading)
{
    if (reading->reader != NULL)
        reading->format->destroy(reading->reader);
    stg_quota_unref(reading->quota);
    reading->reader = NULL;
    reading->quota = NULL;
}

/* Reads the whole file of the row. Returns 0 or the code that ended it. */
static int read_file(struct reading *reading)
{
    int64_t begin[ASK * MAX_PARTS], end[ASK * MAX_PARTS];
    struct stg_test_memory source =
        stg_test_memory(reading->row->data, reading->row->bytes);
    struct stg_records records;
    struct stg_err err;
    int rc;
    CHECK(reading->row->config.n_parts <= MAX_PARTS);
    reading->format->start(reading->reader, &source.source);
    do {
        records.row = NULL;
        rc = reading->format->next(reading->reader, ASK, false, begin, end, &records,
                                   &err);
        uint64_t used = stg_quota_used(reading->quota);
        reading->most = used > reading->most ? used : reading->most;
    } while (rc == STG_FORMAT_RECORDS);
    CHECK(rc < 0 || rc == STG_FORMAT_END);
    CHECK(rc >= 0 || err.text[0] != '\0');
    reading->format->stop(reading->reader);
    return rc < 0 ? rc : 0;
}

static int attempt(void *owner)
{
    struct reading *reading = owner;
    int rc = reading_open(reading);
    if (rc == 0)
        rc = read_file(reading);
    reading_close(reading);
    return rc;
}

static void check_allocations(const struct stg_format *format, const struct row *row,
                              const struct stg_test_records *all)
{
    struct reading reading = {.format = format, .row = row};
    stg_failalloc_each(attempt, &reading);
}

static void any_allocation_may_fail(void)
{
    over_formats(check_allocations);
}

#define FILES 1000
#define WARM 20

static void check_memory(const struct stg_format *format, const struct row *row,
                         const struct stg_test_records *all)
{
    struct reading reading = {.format = format, .row = row};
    uint64_t most = 0;
    size_t given = 0;
    CHECK_INT(reading_open(&reading), 0);
    for (int i = 0; i < FILES; i++) {
        CHECK_INT(read_file(&reading), 0);
        if (i == WARM) {
            most = reading.most;
            given = mallinfo2().uordblks;
        }
    }
    if (reading.most > most || mallinfo2().uordblks > given)
        FAIL("%s grows from %" PRIu64 " to %" PRIu64 " bytes counted, from %zu to %zu of "
             "malloc",
             format->name, most, reading.most, given, mallinfo2().uordblks);
    reading_close(&reading);
}

static void memory_does_not_grow_over_a_thousand_files(void)
{
    over_formats(check_memory);
}

static const struct stg_test tests[] = {
    TEST(every_format_reads_its_own_file_alike_by_all_sizes_of_reads),
    TEST_SLOW(no_format_is_harmed_by_a_damaged_file, 60),
    TEST_SLOW(no_format_is_harmed_by_the_file_of_another, 60),
    TEST(an_empty_file_ends),
    TEST(one_record_is_enough),
    TEST(a_format_with_places_goes_on_from_any_record),
    TEST(what_a_format_skips_by_arithmetic_is_what_it_would_have_read),
    TEST_SLOW(the_same_holds_for_a_file_that_is_cut, 60),
    TEST(a_stop_at_any_read_cancels),
    TEST(a_failure_at_any_byte_comes_after_the_records_before_it),
    TEST(any_allocation_may_fail),
    TEST(memory_does_not_grow_over_a_thousand_files),
};

TEST_MAIN(tests)
