/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays written by numpy.save: rows of every kind, and refusals.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/npy_header.h"
#include "tests/check.h"
#include "tests/daemon/format/format_source.h"
#include "tests/daemon/format/golden_npy.h"

static const struct stg_format *const format = &stg_format_npy;

static struct stg_npy_options row(int dtype, int ndim, int64_t a, int64_t b)
{
    return (struct stg_npy_options){
        .row = {.name = "value", .dtype = dtype, .ndim = ndim, .shape = {a, b}}};
}

static struct stg_test_records read_file(const struct stg_npy_options *options,
                                         const void *data, size_t bytes)
{
    struct stg_format_config config = {.options = options, .advice = "do this"};
    return stg_test_read_all_ways(format, config, data, bytes);
}

static void check_grid(const void *data, size_t bytes, uint64_t header_bytes)
{
    const struct stg_npy_options options = row(STAGER_FLOAT32, 2, -1, 3);
    struct stg_test_records records = read_file(&options, data, bytes);
    CHECK_INT(records.n, 5);
    for (int i = 0; i < 5; i++) {
        float want[6];
        for (int k = 0; k < 6; k++)
            want[k] = (float)(6 * i + k) / 4;
        CHECK_INT(records.at[i].code, 0);
        CHECK_INT(records.at[i].bytes, sizeof(want));
        CHECK(memcmp(records.at[i].data, want, sizeof(want)) == 0);
        CHECK_INT(records.at[i].number, i);
        CHECK_INT(records.at[i].offset, header_bytes + (uint64_t)i * sizeof(want));
    }
    stg_test_records_finish(&records);
}

static void rows_of_all_versions_and_both_byte_orders_are_read(void)
{
    check_grid(npy_grid, sizeof(npy_grid), 128);
    check_grid(npy_grid_v2, sizeof(npy_grid_v2), 128);
    check_grid(npy_grid_v3, sizeof(npy_grid_v3), 128);
    check_grid(npy_grid_swapped, sizeof(npy_grid_swapped), 128);
}

static void scalars_and_booleans_are_rows(void)
{
    const struct stg_npy_options ints = row(STAGER_INT64, 0, 0, 0);
    struct stg_test_records records = read_file(&ints, npy_line, sizeof(npy_line));
    CHECK_INT(records.n, 7);
    for (int64_t i = 0; i < 7; i++) {
        int64_t want = i - 3;
        CHECK(memcmp(records.at[i].data, &want, sizeof(want)) == 0);
    }
    stg_test_records_finish(&records);
    const struct stg_npy_options bools = row(STAGER_BOOL, 0, 0, 0);
    unsigned char copy[sizeof(npy_bools)];
    memcpy(copy, npy_bools, sizeof(copy));
    copy[sizeof(copy) - 1] = 77;
    records = read_file(&bools, copy, sizeof(copy));
    CHECK_INT(records.n, 3);
    CHECK(records.at[0].data[0] == 1 && records.at[1].data[0] == 0);
    CHECK_INT(records.at[2].data[0], 1);
    stg_test_records_finish(&records);
}

static void an_array_without_rows_has_none(void)
{
    const struct stg_npy_options options = row(STAGER_FLOAT32, 2, 2, 3);
    struct stg_test_records records = read_file(&options, npy_empty, sizeof(npy_empty));
    CHECK_INT(records.n, 0);
    stg_test_records_finish(&records);
}

/* The data begin at a multiple of 64 in memory, whatever the header's length. */
static void rows_are_aligned(void)
{
    static const char text[] =
        "{'shape': (3,), 'fortran_order': False, 'descr': '<f8'}\n";
    char file[10 + sizeof(text) - 1 + 24] = "\x93NUMPY\1";
    file[8] = sizeof(text) - 1;
    memcpy(file + 10, text, sizeof(text) - 1);
    const double values[] = {1.5, 2.5, 3.5};
    memcpy(file + sizeof(file) - 24, values, 24);
    struct stg_npy_options options = row(STAGER_FLOAT64, 0, 0, 0);
    struct stg_test_memory source = stg_test_memory(file, sizeof(file));
    struct stg_quota *quota;
    void *reader;
    CHECK_INT(stg_quota_create(0, &quota), 0);
    struct stg_format_config config = {.read_bytes = 16,
                                       .chunk_bytes = 64,
                                       .max_record_bytes = 8,
                                       .quota = quota,
                                       .options = &options};
    CHECK_INT(format->create(&config, &reader), 0);
    format->start(reader, &source.source);
    int64_t begin[3], end[3], n = 0;
    struct stg_records records;
    struct stg_err err;
    while (format->next(reader, 3, false, begin, end, &records, &err) == 0) {
        CHECK_INT(records.bad.code, 0);
        CHECK_INT((uintptr_t)(records.chunk->data + begin[0]) % 8, 0);
        CHECK(memcmp(records.chunk->data + begin[0], values + n, 8) == 0);
        CHECK_INT(records.row->dtype, STAGER_FLOAT64);
        CHECK_INT(records.row->ndim, 0);
        n += records.n;
    }
    CHECK_INT(n, 3);
    format->destroy(reader);
    stg_quota_unref(quota);
}

static void check_refused(const struct stg_npy_options *options, const void *data,
                          size_t bytes, int code, const char *part)
{
    struct stg_test_records records = read_file(options, data, bytes);
    CHECK(records.n > 0);
    const struct stg_test_record *last = &records.at[records.n - 1];
    CHECK_INT(last->code, code);
    CHECK_CONTAINS(last->data, part);
    stg_test_records_finish(&records);
}

#define REFUSED(options, data, code, part)                                               \
    check_refused(options, data, sizeof(data), code, part)

static void what_is_not_read_is_refused_by_name(void)
{
    const struct stg_npy_options grid = row(STAGER_FLOAT32, 2, 2, 3);
    const int invalid = -STAGER_INVALID_ARGUMENT;
    REFUSED(&grid, npy_grid_fortran, invalid, "Fortran order");
    REFUSED(&grid, npy_scalar, invalid, "a single value");
    REFUSED(&grid, npy_objects, invalid, "\"|O\", Python objects");
    REFUSED(&grid, npy_fields, invalid, "several fields");
    REFUSED(&grid, npy_strings, invalid, "header (offset 20): its elements are \"<U2\"");
    REFUSED(&grid, npy_line, invalid,
            "header (offset 0): its rows are int64 of shape [], not float32 of shape [2, "
            "3]");
    const struct stg_npy_options other = row(STAGER_FLOAT32, 2, 2, 4);
    REFUSED(&other, npy_grid, invalid,
            "its rows are float32 of shape [2, 3], not float32 of shape [2, 4]");
    const struct stg_npy_options hollow = row(STAGER_FLOAT32, 1, -1, 0);
    REFUSED(&hollow, npy_hollow, invalid, "its rows are empty");
}

static void a_file_that_is_truncated_or_too_long_is_reported(void)
{
    const struct stg_npy_options options = row(STAGER_FLOAT32, 2, 2, 3);
    struct stg_format_config config = {.options = &options};
    for (size_t n = 1; n < sizeof(npy_grid); n++) {
        struct stg_test_memory source = stg_test_memory(npy_grid, n);
        struct stg_test_records records =
            stg_test_read(format, config, &source, 8, false);
        CHECK_INT(records.n, 1 + (n >= 128 ? (n - 128) / 24 : 0));
        CHECK_INT(records.at[records.n - 1].code, -STAGER_DATA_LOSS);
        stg_test_records_finish(&records);
    }
    unsigned char longer[sizeof(npy_grid) + 1] = {0};
    memcpy(longer, npy_grid, sizeof(npy_grid));
    REFUSED(&options, longer, -STAGER_DATA_LOSS,
            "record 5 (offset 248): the file continues after its last row");
    REFUSED(&options, "this is text", -STAGER_DATA_LOSS,
            "header (offset 0): it is not a NumPy file");
    unsigned char damaged[sizeof(npy_grid)];
    memcpy(damaged, npy_grid, sizeof(npy_grid));
    memset(memchr(damaged, '(', sizeof(damaged)), '?', 1);
    char where[64];
    snprintf(where, sizeof(where), "header (offset %td): it is damaged",
             (unsigned char *)memchr(damaged, '?', sizeof(damaged)) - damaged);
    REFUSED(&options, damaged, -STAGER_DATA_LOSS, where);
}

static void sizes_beyond_all_memory_take_none(void)
{
    static const char *const shapes[] = {
        "(1, 9223372036854775807, 9223372036854775807)", "(1, 4611686018427387904, 4)",
        "(9223372036854775807, 2, 3)", "(99999999999999999999, 2, 3)",
        "(1,2,3,4,5,6,7,8,9)"};
    for (size_t i = 0; i < 5; i++) {
        char text[200], file[300] = "\x93NUMPY\1";
        int n = snprintf(text, sizeof(text),
                         "{'descr': '<f4', 'fortran_order': False, 'shape': %s, }",
                         shapes[i]);
        file[8] = (char)n;
        memcpy(file + 10, text, (size_t)n);
        const struct stg_npy_options options = row(STAGER_FLOAT32, 2, -1, -1);
        struct stg_test_records records = read_file(&options, file, (size_t)n + 10 + 7);
        CHECK_INT(records.n, 1);
        CHECK(records.at[0].code != 0);
        stg_test_records_finish(&records);
    }
}

static const struct stg_test tests[] = {
    TEST(rows_of_all_versions_and_both_byte_orders_are_read),
    TEST(scalars_and_booleans_are_rows),
    TEST(an_array_without_rows_has_none),
    TEST(rows_are_aligned),
    TEST(what_is_not_read_is_refused_by_name),
    TEST(a_file_that_is_truncated_or_too_long_is_reported),
    TEST(sizes_beyond_all_memory_take_none),
};

TEST_MAIN(tests)
