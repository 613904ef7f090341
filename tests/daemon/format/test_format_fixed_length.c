/* SPDX-License-Identifier: Apache-2.0
 *
 * Records of fixed length between a header and a footer; and files that are one record.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "tests/daemon/format/format_source.h"

static void read_text(const struct stg_format *format, struct stg_format_config config,
                      const char *text, const char *want)
{
    struct stg_test_records records =
        stg_test_read_all_ways(format, config, text, strlen(text));
    char *got;
    size_t n;
    FILE *to = open_memstream(&got, &n);
    for (size_t i = 0; i < records.n; i++) {
        const struct stg_test_record *record = &records.at[i];
        if (record->code != 0)
            fprintf(to, "!%s %s\n", stg_status_name(record->code), record->data);
        else
            fprintf(to, "%llu@%llu[%.*s]\n", (unsigned long long)record->number,
                    (unsigned long long)record->offset, (int)record->bytes, record->data);
    }
    fclose(to);
    CHECK_STR(got, want);
    free(got);
    stg_test_records_finish(&records);
}

static void check_fixed(uint64_t record, uint64_t header, uint64_t footer,
                        const char *text, const char *want)
{
    struct stg_fixed_length_options options = {record, header, footer};
    struct stg_format_config config = {.options = &options};
    read_text(&stg_format_fixed_length, config, text, want);
}

static void records_lie_between_header_and_footer(void)
{
    check_fixed(2, 0, 0, "aabbcc", "0@0[aa]\n1@2[bb]\n2@4[cc]\n");
    check_fixed(2, 3, 0, "hhhaabb", "0@3[aa]\n1@5[bb]\n");
    check_fixed(2, 0, 3, "aabbfff", "0@0[aa]\n1@2[bb]\n");
    check_fixed(1, 2, 1, "hhabcf", "0@2[a]\n1@3[b]\n2@4[c]\n");
    check_fixed(5, 1, 7, "habcdefffffff", "0@1[abcde]\n");
}

static void a_file_may_hold_no_record(void)
{
    check_fixed(2, 0, 0, "", "");
    check_fixed(2, 3, 0, "hhh", "");
    check_fixed(2, 1, 2, "hff", "");
}

#define RAGGED(header, record, footer)                                                   \
    "bytes, which is not a header of " #header ", records of " #record                   \
    " and a footer of " #footer ": it is truncated, or record_bytes, header_bytes or "   \
    "footer_bytes is wrong\n"

static void a_ragged_file_is_reported_after_its_whole_records(void)
{
    check_fixed(
        2, 0, 0, "aab",
        "0@0[aa]\n!DATA_LOSS record 1 (offset 2): the file has 3 " RAGGED(0, 2, 0));
    check_fixed(2, 3, 0, "hh",
                "!DATA_LOSS record 0 (offset 2): the file has 2 " RAGGED(3, 2, 0));
    check_fixed(3, 1, 2, "haaaf",
                "!DATA_LOSS record 0 (offset 1): the file has 5 " RAGGED(1, 3, 2));
    check_fixed(3, 1, 2, "hf",
                "!DATA_LOSS record 0 (offset 1): the file has 2 " RAGGED(1, 3, 2));
}

/* ---- read_file ---- */

static void a_file_is_one_record(void)
{
    struct stg_format_config config = {.advice = "do this"};
    read_text(&stg_format_read_file, config, "", "0@0[]\n");
    read_text(&stg_format_read_file, config, "a", "0@0[a]\n");
    read_text(&stg_format_read_file, config, "line\nline\r\n", "0@0[line\nline\r\n]\n");
}

static void a_file_above_the_limit_is_passed_over(void)
{
    struct stg_format_config config = {.advice = "do this", .max_record_bytes = 4};
    read_text(&stg_format_read_file, config, "1234", "0@0[1234]\n");
    read_text(&stg_format_read_file, config, "12345",
              "!INVALID_ARGUMENT the file has 5 bytes, more than the limit of 4 bytes: "
              "it was skipped; do this\n");
}

/* ---- jsonl: text_line without blank lines ---- */

static void blank_lines_are_passed_over_and_counted(void)
{
    struct stg_format_config config = {.skip_blank_lines = true};
    read_text(&stg_format_text_line, config, "{}\n\n \t\r\n[1]\r\n\n 2\n  ",
              "0@0[{}]\n3@8[[1]]\n5@14[ 2]\n");
    read_text(&stg_format_text_line, config, "\n\n", "");
    read_text(&stg_format_text_line, config, "", "");
    read_text(&stg_format_text_line, config, "   ", "");
    read_text(&stg_format_text_line, config, "1", "0@0[1]\n");
}

static const struct stg_test tests[] = {
    TEST(records_lie_between_header_and_footer),
    TEST(a_file_may_hold_no_record),
    TEST(a_ragged_file_is_reported_after_its_whole_records),
    TEST(a_file_is_one_record),
    TEST(a_file_above_the_limit_is_passed_over),
    TEST(blank_lines_are_passed_over_and_counted),
};

TEST_MAIN(tests)
