/* SPDX-License-Identifier: Apache-2.0
 *
 * Archives of Python's tarfile in all three formats, incomplete samples, and every kind
 * of damage.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/storage/codec/decompress.h"
#include "tests/check.h"
#include "tests/daemon/format/format_source.h"
#include "tests/daemon/format/golden_tar.h"

static const struct stg_format *const format = &stg_format_tar;

struct archive {
    char *data;
    size_t n;
};

static struct archive unpack(const unsigned char *data, size_t bytes)
{
    struct stg_test_memory memory = stg_test_memory(data, bytes);
    struct stg_source *source = &memory.source;
    struct stg_quota *quota;
    struct stg_err err = {0};
    CHECK_INT(stg_quota_create(0, &quota), 0);
    struct stg_decompress_config config = {.type = "gzip", .path = "", .quota = quota};
    CHECK_OK(stg_decompress_open(&config, &source, &err), err);
    struct archive archive = {.data = malloc(1 << 20)};
    int64_t n = source->storage->read(source, 0, archive.data, 1 << 20, &err);
    CHECK(n > 0 && n < 1 << 20);
    archive.n = (size_t)n;
    source->storage->close(source);
    stg_quota_unref(quota);
    return archive;
}

#define UNPACK(golden) unpack(golden, sizeof(golden))

static struct stg_format_config config_of(const struct stg_tar_options *options)
{
    return (struct stg_format_config){.n_parts = options->n_parts + 1,
                                      .options = options};
}

static const char *const jpg_cls[] = {"jpg", "cls"};
static const struct stg_tar_options two_parts = {2, jpg_cls};
static const char *const x_y[] = {"x", "y"};
static const struct stg_tar_options small_parts = {2, x_y};

/* "NUMBER KEY PART PART" or "!CODE text", one for each line. */
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

static void check_archive(const struct archive *archive,
                          const struct stg_tar_options *options, uint64_t most,
                          const char *want)
{
    struct stg_format_config config = config_of(options);
    config.max_record_bytes = most;
    config.advice = "do this";
    struct stg_test_records records =
        stg_test_read_all_ways(format, config, archive->data, archive->n);
    char *got = as_text(&records);
    CHECK_STR(got, want);
    free(got);
    stg_test_records_finish(&records);
}

/* ---- valid archives ---- */

#define LETTERS(c) c c c c c c c c c c c c c c c c c c c c c c c c c c c c c c
#define LONG LETTERS("aa") "/" LETTERS("bb") "/" LETTERS("cc")
#define VERY_LONG LETTERS("ddddd") "/" LETTERS("eeeee")

static void check_record(const struct stg_test_record *record, const char *key,
                         const char *jpg, size_t jpg_bytes, const char *cls)
{
    char want[4096];
    int n = snprintf(want, sizeof(want), "%zu:%s%zu:", strlen(key), key, jpg_bytes);
    memcpy(want + n, jpg, jpg_bytes);
    n += (int)jpg_bytes;
    n += snprintf(want + n, sizeof(want) - (size_t)n, "%zu:%s", strlen(cls), cls);
    CHECK_INT(record->code, 0);
    CHECK_INT(record->bytes, n);
    CHECK(memcmp(record->data, want, (size_t)n) == 0);
}

static void check_golden(struct archive archive, size_t n)
{
    struct stg_format_config config = config_of(&two_parts);
    struct stg_test_records records =
        stg_test_read_all_ways(format, config, archive.data, archive.n);
    char second[768];
    for (int i = 0; i < 768; i++)
        second[i] = (char)i;
    CHECK_INT(records.n, n);
    check_record(&records.at[0], "images/0001", "first image", 11, "7");
    check_record(&records.at[1], "images/0002", second, 768, "");
    check_record(&records.at[2], LONG "/0003", "long", 4, "3");
    if (n > 3)
        check_record(&records.at[3], VERY_LONG "/0004", "very long", 9, "4");
    stg_test_records_finish(&records);
    free(archive.data);
}

static void samples_of_all_three_formats_are_read(void)
{
    check_golden(UNPACK(tar_ustar), 3);
    check_golden(UNPACK(tar_gnu), 4);
    check_golden(UNPACK(tar_pax), 4);
}

static void a_sample_lies_at_its_first_header(void)
{
    struct archive archive = UNPACK(tar_small);
    check_archive(&archive, &small_parts, 0, "0@0 1:a1:11:2\n1@2048 1:b1:31:4\n");
    free(archive.data);
}

static void parts_come_in_the_order_that_was_asked_for(void)
{
    static const char *const y_x[] = {"Y", "x"};
    static const struct stg_tar_options options = {2, y_x};
    static const struct stg_tar_options only_y = {1, y_x};
    struct archive archive = UNPACK(tar_small);
    check_archive(&archive, &options, 0, "0@0 1:a1:21:1\n1@2048 1:b1:41:3\n");
    check_archive(&archive, &only_y, 0, "0@0 1:a1:2\n1@2048 1:b1:4\n");
    free(archive.data);
}

static void an_archive_of_nothing_has_no_samples(void)
{
    struct archive archive = {calloc(1, 1024), 1024};
    check_archive(&archive, &small_parts, 0, "");
    free(archive.data);
}

/* ---- invalid archives ---- */

static void set_checksum(char *header)
{
    unsigned sum = 0;
    memset(header + 148, ' ', 8);
    for (int i = 0; i < 512; i++)
        sum += (unsigned char)header[i];
    snprintf(header + 148, 8, "%06o", sum);
}

static void a_sample_that_lacks_a_part_costs_one_record(void)
{
    struct archive archive = UNPACK(tar_small);
    strcpy(archive.data + 1024, "a.z");
    set_checksum(archive.data + 1024);
    check_archive(&archive, &small_parts, 0,
                  "!INVALID_ARGUMENT record 0 (offset 0), \"a\": the sample has no part "
                  "\"y\": it was skipped\n1@2048 1:b1:31:4\n");
    strcpy(archive.data + 1024, "a.X");
    set_checksum(archive.data + 1024);
    check_archive(
        &archive, &small_parts, 0,
        "!INVALID_ARGUMENT record 0 (offset 0), \"a\": the sample has two parts "
        "\"x\": it was skipped\n1@2048 1:b1:31:4\n");
    free(archive.data);
}

/* Optional parts are empty. */
static void a_sample_may_lack_an_optional_part(void)
{
    static const bool second[] = {false, true};
    static const struct stg_tar_options options = {2, x_y, second};
    struct archive archive = UNPACK(tar_small);
    strcpy(archive.data + 1024, "a.z");
    set_checksum(archive.data + 1024);
    check_archive(&archive, &options, 0, "0@0 1:a1:10:\n1@2048 1:b1:31:4\n");
    strcpy(archive.data, "a.y");
    set_checksum(archive.data);
    check_archive(&archive, &options, 0,
                  "!INVALID_ARGUMENT record 0 (offset 0), \"a\": the sample has no part "
                  "\"x\": it was skipped\n1@2048 1:b1:31:4\n");
    free(archive.data);
}

static void a_sample_above_the_limit_is_passed_over(void)
{
    struct archive archive = UNPACK(tar_ustar);
    struct stg_test_records records;
    struct stg_format_config config = config_of(&two_parts);
    config.max_record_bytes = 2100;
    config.advice = "do this";
    records = stg_test_read_all_ways(format, config, archive.data, archive.n);
    CHECK_INT(records.n, 3);
    CHECK_INT(records.at[0].code, 0);
    CHECK_INT(records.at[1].code, -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(records.at[1].data, "\"images/0002\": the sample takes more than the "
                                       "limit of 2100 bytes: it was skipped; do this");
    CHECK_INT(records.at[2].code, 0);
    CHECK_INT(records.at[2].number, 2);
    stg_test_records_finish(&records);
    free(archive.data);
}

static void a_damaged_header_costs_the_rest_but_no_sample_before_it(void)
{
    struct archive archive = UNPACK(tar_small);
    archive.data[2048] ^= 1;
    check_archive(&archive, &small_parts, 0,
                  "0@0 1:a1:11:2\n!DATA_LOSS record 1 (offset 2048): a header does not "
                  "match its checksum: it is truncated, damaged or not a tar archive; "
                  "the rest of the file is lost\n");
    archive.data[2048] ^= 1;
    archive.data[3072] ^= 1;
    check_archive(&archive, &small_parts, 0,
                  "0@0 1:a1:11:2\n!DATA_LOSS record 1 (offset 3072): a header does not "
                  "match its checksum: it is truncated, damaged or not a tar archive; "
                  "the rest of the file is lost\n");
    free(archive.data);
}

/* Also at the end of a member: the end mark is then missing. */
static void an_archive_truncated_at_any_byte_is_reported(void)
{
    struct archive archive = UNPACK(tar_small);
    for (size_t n = 0; n < 4 * 1024 + 512; n++) {
        struct stg_format_config config = config_of(&small_parts);
        struct stg_test_memory source = stg_test_memory(archive.data, n);
        struct stg_test_records records =
            stg_test_read(format, config, &source, 8, false);
        size_t whole = n >= 3 * 1024 + 513 ? 2 : n >= 1024 + 513 ? 1 : 0;
        CHECK_INT(records.n, whole + 1);
        CHECK_INT(records.at[whole].code, -STAGER_DATA_LOSS);
        CHECK_CONTAINS(records.at[whole].data, "the file ends ");
        stg_test_records_finish(&records);
    }
    free(archive.data);
}

static void a_huge_size_takes_no_memory(void)
{
    static const char *const sizes[] = {
        "77777777777", "\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff",
        "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "\x80\0\0\0\0\0\1\0\0\0\0\0"};
    for (size_t i = 0; i < 4; i++) {
        struct archive archive = UNPACK(tar_small);
        memcpy(archive.data + 124, sizes[i], 12);
        set_checksum(archive.data);
        struct stg_format_config config = config_of(&small_parts);
        struct stg_test_memory source = stg_test_memory(archive.data, archive.n);
        struct stg_test_records records =
            stg_test_read(format, config, &source, 8, false);
        CHECK_INT(records.n, 1);
        CHECK_INT(records.at[0].code, -STAGER_DATA_LOSS);
        stg_test_records_finish(&records);
        free(archive.data);
    }
}

static void sparse_files_are_refused(void)
{
    struct archive archive = UNPACK(tar_small);
    archive.data[156] = 'S';
    set_checksum(archive.data);
    struct stg_format_config config = config_of(&small_parts);
    struct stg_test_memory source = stg_test_memory(archive.data, archive.n);
    struct stg_test_records records = stg_test_read(format, config, &source, 8, false);
    CHECK_INT(records.n, 1);
    CHECK_CONTAINS(records.at[0].data, "sparse files are not supported");
    stg_test_records_finish(&records);
    free(archive.data);
}

static void damage_everywhere(struct archive archive,
                              const struct stg_tar_options *options)
{
    stg_test_some_damage(format, config_of(options), archive.data, archive.n, 3000);
    free(archive.data);
}

static void no_damage_does_harm(void)
{
    damage_everywhere(UNPACK(tar_small), &small_parts);
    damage_everywhere(UNPACK(tar_ustar), &two_parts);
    damage_everywhere(UNPACK(tar_gnu), &two_parts);
    damage_everywhere(UNPACK(tar_pax), &two_parts);
}

static const struct stg_test tests[] = {
    TEST(samples_of_all_three_formats_are_read),
    TEST(a_sample_lies_at_its_first_header),
    TEST(parts_come_in_the_order_that_was_asked_for),
    TEST(an_archive_of_nothing_has_no_samples),
    TEST(a_sample_that_lacks_a_part_costs_one_record),
    TEST(a_sample_may_lack_an_optional_part),
    TEST(a_sample_above_the_limit_is_passed_over),
    TEST(a_damaged_header_costs_the_rest_but_no_sample_before_it),
    TEST(an_archive_truncated_at_any_byte_is_reported),
    TEST(a_huge_size_takes_no_memory),
    TEST(sparse_files_are_refused),
    TEST(no_damage_does_harm),
};

TEST_MAIN(tests)
