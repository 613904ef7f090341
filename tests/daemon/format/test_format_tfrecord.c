/* SPDX-License-Identifier: Apache-2.0
 *
 * TFRecord files: those of TensorFlow's writer, every kind of damage, every size of
 * reads; and the CRC, compared with its definition for each instruction set.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/storage/codec/crc32c.h"
#include "tests/check.h"
#include "tests/daemon/format/format_source.h"
#include "tests/daemon/format/golden_tfrecord.h"

#define N_GOLDEN (sizeof(golden_bytes) / sizeof(golden_bytes[0]))

static const struct stg_format *const format = &stg_format_tfrecord;
static const struct stg_format_config config = {0};

/* ---- the checksum ---- */

/* The definition: bit by bit. */
static uint32_t crc_by_bits(uint32_t crc, const unsigned char *data, size_t n)
{
    crc = ~crc;
    for (size_t i = 0; i < n; i++) {
        crc ^= data[i];
        for (int k = 0; k < 8; k++)
            crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

static void the_crc_is_that_of_rfc_3720_with_every_set_of_instructions(void)
{
    unsigned char zeros[32] = {0}, ones[32], rising[32];
    memset(ones, 255, 32);
    for (int i = 0; i < 32; i++)
        rising[i] = (unsigned char)i;
    size_t n;
    const struct stg_crc32c_kernels *const *all = stg_crc32c_all(&n);
    for (size_t k = 0; k < n; k++) {
        CHECK_INT(all[k]->extend(0, "123456789", 9), 0xe3069283);
        CHECK_INT(all[k]->extend(0, zeros, 32), 0x8a9136aa);
        CHECK_INT(all[k]->extend(0, ones, 32), 0x62a8ab43);
        CHECK_INT(all[k]->extend(0, rising, 32), 0x46dd794e);
        CHECK_INT(all[k]->extend(0, "", 0), 0);
    }
}

static void the_crc_of_any_length_and_place_is_that_of_its_bits(void)
{
    enum { N = 20000 };
    unsigned char *data = malloc(N);
    uint32_t state = 1;
    for (size_t i = 0; i < N; i++)
        data[i] = (unsigned char)((state = state * 1664525u + 1013904223u) >> 24);
    size_t n;
    const struct stg_crc32c_kernels *const *all = stg_crc32c_all(&n);
    for (size_t bytes = 0; bytes < N - 8; bytes += 1 + bytes / 40) {
        uint32_t before = (uint32_t)bytes * 2654435761u;
        const unsigned char *at = data + bytes % 8;
        uint32_t want = crc_by_bits(before, at, bytes);
        for (size_t k = 0; k < n; k++)
            CHECK_INT(all[k]->extend(before, at, bytes), want);
    }
    free(data);
}

/* ---- files made by the test ---- */

struct file {
    unsigned char *data;
    size_t n;
};

static void put32(struct file *file, uint32_t v)
{
    for (int k = 0; k < 4; k++)
        file->data[file->n++] = (unsigned char)(v >> (8 * k));
}

static uint32_t masked(const unsigned char *data, size_t n)
{
    uint32_t crc = crc_by_bits(0, data, n);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static void put_length(struct file *file, uint64_t bytes)
{
    size_t at = file->n;
    put32(file, (uint32_t)bytes);
    put32(file, (uint32_t)(bytes >> 32));
    put32(file, masked(file->data + at, 8));
}

static void put_record(struct file *file, const char *text)
{
    file->data = realloc(file->data, file->n + strlen(text) + 64);
    put_length(file, strlen(text));
    memcpy(file->data + file->n, text, strlen(text));
    file->n += strlen(text);
    put32(file, masked(file->data + file->n - strlen(text), strlen(text)));
}

static struct file three_records(void)
{
    struct file file = {0};
    put_record(&file, "first");
    put_record(&file, "the second");
    put_record(&file, "3");
    return file;
}

/* Records as text, errors as "!CODE text", one for each line. */
static char *as_text(const struct stg_test_records *records)
{
    char *text;
    size_t bytes;
    FILE *to = open_memstream(&text, &bytes);
    for (size_t i = 0; i < records->n; i++) {
        const struct stg_test_record *record = &records->at[i];
        if (record->code != 0)
            fprintf(to, "!%s %s\n", stg_status_name(record->code), record->data);
        else
            fprintf(to, "%llu@%llu %.*s\n", (unsigned long long)record->number,
                    (unsigned long long)record->offset, (int)record->bytes, record->data);
    }
    fclose(to);
    return text;
}

static void check_file(const struct file *file, const char *want)
{
    struct stg_test_records records =
        stg_test_read_all_ways(format, config, file->data, file->n);
    char *got = as_text(&records);
    CHECK_STR(got, want);
    free(got);
    stg_test_records_finish(&records);
}

/* ---- tests ---- */

static void the_golden_bytes_of_the_reference_are_read(void)
{
    static const unsigned char bytes[] =
        "\0\0\0\0\0\0\0\0\x29\x03\x98\x07\xd8\xea\x82\xa2"
        "\1\0\0\0\0\0\0\0\x01\x75\xde\x41"
        "a\x78\x6e\xe4\x28"
        "\x9\0\0\0\0\0\0\0\x37\xf9\x71\x39"
        "123456789\xe5\xb0\x8a\xc7";
    struct file file = {(unsigned char *)bytes, sizeof(bytes) - 1};
    check_file(&file, "0@0 \n1@16 a\n2@33 123456789\n");
}

static void what_tensorflow_wrote_is_read_by_all_sizes_of_reads(void)
{
    size_t n;
    const struct stg_crc32c_kernels *const *all = stg_crc32c_all(&n);
    for (size_t k = 0; k < n; k++) {
        stg_crc32c_use(all[k]);
        struct stg_test_records records =
            stg_test_read_all_ways(format, config, golden_plain, sizeof(golden_plain));
        CHECK_INT(records.n, N_GOLDEN);
        const unsigned char *want = golden_payloads;
        for (size_t i = 0; i < N_GOLDEN; i++) {
            CHECK_INT(records.at[i].code, 0);
            CHECK_INT(records.at[i].bytes, golden_bytes[i]);
            CHECK(memcmp(records.at[i].data, want, golden_bytes[i]) == 0);
            want += golden_bytes[i];
        }
        stg_test_records_finish(&records);
    }
    stg_crc32c_use(NULL);
}

static void an_empty_file_has_no_records(void)
{
    struct file file = {(unsigned char *)"", 0};
    check_file(&file, "");
}

/* TFD-E4 */
static void a_damaged_record_costs_one_record(void)
{
    struct file file = three_records();
    file.data[21 + 12] ^= 1;
    check_file(&file, "0@0 first\n"
                      "!DATA_LOSS record 1 (offset 21): its 10 bytes do not match their "
                      "checksum: the record was skipped\n"
                      "2@47 3\n");
    file.data[21 + 12] ^= 1;
    file.data[file.n - 1] ^= 1;
    check_file(&file, "0@0 first\n1@21 the second\n"
                      "!DATA_LOSS record 2 (offset 47): its 1 bytes do not match their "
                      "checksum: the record was skipped\n");
    free(file.data);
}

/* TFD-E4 */
static void a_damaged_length_costs_the_rest_of_the_file(void)
{
    struct file file = three_records();
    file.data[21] ^= 1;
    check_file(&file, "0@0 first\n"
                      "!DATA_LOSS record 1 (offset 21): its length does not match its "
                      "checksum: the file is damaged; the rest of it is lost\n");
    file.data[21] ^= 1;
    file.data[8] ^= 128;
    check_file(&file, "!DATA_LOSS record 0 (offset 0): its length does not match its "
                      "checksum: the file is not a TFRecord file, is compressed (see "
                      "compression_type) or is damaged; the rest of it is lost\n");
    free(file.data);
}

/* TFD-E4: TensorFlow accepts a file truncated inside a header as complete. */
static void a_file_truncated_at_any_byte_is_reported(void)
{
    struct file whole = three_records();
    for (size_t n = 0; n < whole.n; n++) {
        struct file file = {whole.data, n};
        char want[400];
        size_t at = n < 21 ? 0 : n < 47 ? 21 : 47, i = n < 21 ? 0 : n < 47 ? 1 : 2;
        static const int bytes[] = {5, 10, 1};
        static const char *const before[] = {"", "0@0 first\n",
                                             "0@0 first\n1@21 the second\n"};
        if (n == at)
            snprintf(want, sizeof(want), "%s", before[i]);
        else if (n - at < 12)
            snprintf(want, sizeof(want),
                     "%s!DATA_LOSS record %zu (offset %zu): the file ends after %zu of "
                     "the 12 bytes before a record\n",
                     before[i], i, at, n - at);
        else
            snprintf(want, sizeof(want),
                     "%s!DATA_LOSS record %zu (offset %zu): the file ends inside this "
                     "record of %d bytes\n",
                     before[i], i, at, bytes[i]);
        struct stg_test_memory source = stg_test_memory(file.data, file.n);
        struct stg_test_records records =
            stg_test_read(format, config, &source, 8, false);
        char *got = as_text(&records);
        CHECK_STR(got, want);
        free(got);
        stg_test_records_finish(&records);
    }
    free(whole.data);
}

static void a_huge_length_that_is_well_signed_takes_no_memory(void)
{
    static const uint64_t lengths[] = {1ull << 21, 1ull << 40,      1ull << 62,
                                       UINT64_MAX, UINT64_MAX - 15, INT64_MAX};
    for (size_t i = 0; i < 6; i++) {
        struct file file = {0};
        put_record(&file, "first");
        put_length(&file, lengths[i]);
        memcpy(file.data + file.n, "some", 4);
        file.n += 4;
        char want[300];
        snprintf(want, sizeof(want),
                 "0@0 first\n!DATA_LOSS record 1 (offset 21): the file ends inside this "
                 "record of %llu bytes\n",
                 (unsigned long long)lengths[i]);
        check_file(&file, want);
        free(file.data);
    }
}

static void a_record_above_the_limit_is_passed_over(void)
{
    struct file file = three_records();
    struct stg_format_config small = {.max_record_bytes = 9, .advice = "do this"};
    struct stg_test_records records =
        stg_test_read_all_ways(format, small, file.data, file.n);
    char *got = as_text(&records);
    CHECK_STR(got, "0@0 first\n!INVALID_ARGUMENT record 1 (offset 21): the record has 10 "
                   "bytes, more than the limit of 9: it was skipped; do this\n2@47 3\n");
    free(got);
    stg_test_records_finish(&records);
    free(file.data);
}

static void a_failing_source_is_reported_after_the_records_before_it(void)
{
    struct file file = three_records();
    struct stg_test_memory source = stg_test_memory(file.data, file.n);
    source.fail_at = 47;
    struct stg_format_config small = {.read_bytes = 8, .chunk_bytes = 64};
    struct stg_test_records records = stg_test_read(format, small, &source, 8, false);
    CHECK_INT(records.rc, -STAGER_DATA_LOSS);
    CHECK_INT(records.n, 1);
    CHECK_CONTAINS(records.err.text, "broken");
    stg_test_records_finish(&records);
    free(file.data);
}

static void a_stop_ends_the_reading_of_a_long_record(void)
{
    struct file file = {0};
    put_record(&file, "first");
    put_length(&file, 1ull << 29);
    _Atomic int stopped = 0;
    struct stg_test_memory source = stg_test_memory(file.data, file.n);
    source.virtual_bytes = 1ull << 30;
    source.stop_after = &stopped;
    source.n_reads = 20;
    struct stg_format_config large = {.max_record_bytes = 1ull << 30,
                                      .stopped = &stopped};
    struct stg_test_records records = stg_test_read(format, large, &source, 8, false);
    CHECK_INT(records.rc, -STAGER_CANCELLED);
    CHECK_INT(records.n, 1);
    stg_test_records_finish(&records);
    free(file.data);
}

static void no_damage_of_a_small_file_does_harm(void)
{
    struct file file = three_records();
    size_t n;
    const struct stg_crc32c_kernels *const *all = stg_crc32c_all(&n);
    for (size_t k = 0; k < n; k++) {
        stg_crc32c_use(all[k]);
        stg_test_every_damage(format, config, file.data, file.n);
    }
    stg_crc32c_use(NULL);
    free(file.data);
}

static const struct stg_test tests[] = {
    TEST(the_crc_is_that_of_rfc_3720_with_every_set_of_instructions),
    TEST(the_crc_of_any_length_and_place_is_that_of_its_bits),
    TEST(the_golden_bytes_of_the_reference_are_read),
    TEST(what_tensorflow_wrote_is_read_by_all_sizes_of_reads),
    TEST(an_empty_file_has_no_records),
    TEST(a_damaged_record_costs_one_record),
    TEST(a_damaged_length_costs_the_rest_of_the_file),
    TEST(a_file_truncated_at_any_byte_is_reported),
    TEST(a_huge_length_that_is_well_signed_takes_no_memory),
    TEST(a_record_above_the_limit_is_passed_over),
    TEST(a_failing_source_is_reported_after_the_records_before_it),
    TEST(a_stop_ends_the_reading_of_a_long_record),
    TEST(no_damage_of_a_small_file_does_harm),
};

TEST_MAIN(tests)
