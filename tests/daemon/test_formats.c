/* SPDX-License-Identifier: Apache-2.0
 *
 * Every format of the table, over files of its own and over those of all others, damaged
 * at random. A new format needs a row.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "tests/daemon/format_source.h"
#include "tests/daemon/golden_npy.h"
#include "tests/daemon/golden_tfrecord.h"

static const char csv_text[] =
    "a,b\r\n1,\"two\nlines\"\n\"with \"\"quotes\"\"\",\n\n3,4\rend";
static const char line_text[] = "one\r\ntwo\n\n  \nfour\r\r\nlast";
static const char *const x[] = {"x"};

static const struct stg_fixed_length_options fixed = {7, 3, 5};
static const struct stg_csv_reader_options csv = {',', true, true};
static const struct stg_npy_options npy = {
    .row = {.name = "value", .dtype = STAGER_FLOAT32, .ndim = 2, .shape = {-1, 3}}};
static const struct stg_tar_options tar = {1, x};

/* One member a.x of three bytes, and the mark of the end. */
static char tar_archive[512 * 4] = "a.x";

static const struct row {
    const char *format;
    const void *data;
    size_t bytes;
    struct stg_format_config config;
} rows[] = {
    {"text_line", line_text, sizeof(line_text) - 1, {.skip_blank_lines = true}},
    {"tfrecord", golden_plain, sizeof(golden_plain), {.max_record_bytes = 500}},
    {"fixed_length_record", line_text, 3 + 2 * 7 + 5, {.options = &fixed}},
    {"csv", csv_text, sizeof(csv_text) - 1, {.options = &csv, .max_record_bytes = 30}},
    {"read_file", line_text, sizeof(line_text) - 1, {0}},
    {"npy", npy_grid, sizeof(npy_grid), {.options = &npy}},
    {"tar", tar_archive, sizeof(tar_archive), {.options = &tar, .n_parts = 2}},
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

static const struct row *row_of(const struct stg_format *format)
{
    make_tar();
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

static const struct stg_test tests[] = {
    TEST(every_format_reads_its_own_file_alike_by_all_sizes_of_reads),
    TEST_SLOW(no_format_is_harmed_by_a_damaged_file, 60),
    TEST_SLOW(no_format_is_harmed_by_the_file_of_another, 60),
    TEST(an_empty_file_ends),
};

TEST_MAIN(tests)
