/* SPDX-License-Identifier: Apache-2.0
 *
 * The ends of records in CSV files: by hand, by the conditions of TensorFlow's
 * CsvDataset, and compared with a splitter that reads byte by byte.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "tests/daemon/format/format_source.h"

static const struct stg_format *const format = &stg_format_csv;
static const struct stg_csv_reader_options plain = {',', true, false};
static const struct stg_csv_reader_options with_header = {',', true, true};
static const struct stg_csv_reader_options no_quotes = {'\t', false, false};

/* Records in brackets, errors as "!CODE text", one for each line. */
static char *read_text(const struct stg_csv_reader_options *options, uint64_t most,
                       const char *text, size_t bytes)
{
    struct stg_format_config config = {
        .options = options, .max_record_bytes = most, .advice = "do this"};
    struct stg_test_records records = stg_test_read_all_ways(format, config, text, bytes);
    char *ret;
    size_t n;
    FILE *to = open_memstream(&ret, &n);
    for (size_t i = 0; i < records.n; i++) {
        const struct stg_test_record *record = &records.at[i];
        if (record->code != 0)
            fprintf(to, "!%s %s\n", stg_status_name(record->code), record->data);
        else
            fprintf(to, "%llu[%.*s]\n", (unsigned long long)record->number,
                    (int)record->bytes, record->data);
    }
    fclose(to);
    stg_test_records_finish(&records);
    return ret;
}

static void check_text(const struct stg_csv_reader_options *options, uint64_t most,
                       const char *text, const char *want)
{
    char *got = read_text(options, most, text, strlen(text));
    CHECK_STR(got, want);
    free(got);
}

/* ---- by hand ---- */

static void records_end_at_every_kind_of_line_end(void)
{
    check_text(&plain, 0, "", "");
    check_text(&plain, 0, "a,b\nc\r\nd\re", "0[a,b]\n1[c]\n2[d]\n3[e]\n");
    check_text(&plain, 0, "a\n\nb\n", "0[a]\n1[]\n2[b]\n");
    check_text(&plain, 0, "\r\r\n\n\r", "0[]\n1[]\n2[]\n3[]\n");
    check_text(&plain, 0, "a\r", "0[a]\n");
}

static void quotes_keep_line_ends(void)
{
    check_text(&plain, 0, "\"a\nb\",c\nd\n", "0[\"a\nb\",c]\n1[d]\n");
    check_text(&plain, 0, "x,\"a\r\n\r\",\"\n\"\r\nd", "0[x,\"a\r\n\r\",\"\n\"]\n1[d]\n");
    check_text(&plain, 0, "\"a\"\"\n\"\"b\"\nc", "0[\"a\"\"\n\"\"b\"]\n1[c]\n");
    check_text(&plain, 0, "\"\"\n\"\",\"\"\n", "0[\"\"]\n1[\"\",\"\"]\n");
}

/* A quote counts only at the start of a field. What CsvDataset reports as an error costs
 * one record here. */
static void a_quote_inside_of_a_field_opens_nothing(void)
{
    check_text(&plain, 0, "a\"b\nc\"\nd\n", "0[a\"b]\n1[c\"]\n2[d]\n");
    check_text(&plain, 0, "\"a\"b\nc\n", "0[\"a\"b]\n1[c]\n");
    check_text(&plain, 0, "\"a\" \"\n\"\nc\"\n", "0[\"a\" \"]\n1[\"\nc\"]\n");
    check_text(&no_quotes, 0, "\"a\n\"\tb\n", "0[\"a]\n1[\"\tb]\n");
    const struct stg_csv_reader_options semicolon = {';', true, false};
    check_text(&semicolon, 0, "a,\"b\nc;\"d\ne\"\n", "0[a,\"b]\n1[c;\"d\ne\"]\n");
}

static void an_unclosed_quote_is_reported_at_the_end(void)
{
    check_text(
        &plain, 0, "a\nb,\"c\nd",
        "0[a]\n!INVALID_ARGUMENT record 1 (offset 2): the file ends inside a quoted "
        "field: a quote is not closed, or belongs to the data (see use_quote_delim)\n");
}

static void a_header_is_left_out_and_counted(void)
{
    check_text(&with_header, 0, "h\na\nb\n", "1[a]\n2[b]\n");
    check_text(&with_header, 0, "\"h\nh\",i\na", "1[a]\n");
    /* TFD-E11 */
    check_text(&with_header, 0, "h\n", "");
    check_text(&with_header, 0, "h", "");
    check_text(&with_header, 0, "",
               "!INVALID_ARGUMENT record 0 (offset 0): the header is missing: the file "
               "is empty\n");
}

static void a_record_above_the_limit_is_passed_over(void)
{
    check_text(&plain, 5, "12345\n123456\n12345\r\n\"12\n5\"\nx",
               "0[12345]\n!INVALID_ARGUMENT record 1 (offset 6): the record has 6 bytes, "
               "more than the limit of 5: it was skipped; do "
               "this\n2[12345]\n!INVALID_ARGUMENT record 3 (offset 20): the record has 6 "
               "bytes, more than the limit of 5: it was skipped; do this\n4[x]\n");
    check_text(&plain, 5, "a\n\"123456789\n\nabc",
               "0[a]\n!INVALID_ARGUMENT record 1 (offset 2): the record has 15 bytes, "
               "the last of them inside a quoted field, more than the limit of 5: it was "
               "skipped; do this\n");
    check_text(&with_header, 5, "a long header\nx\n",
               "!INVALID_ARGUMENT record 0 (offset 0): the record has 13 bytes, more "
               "than the limit of 5: it was skipped; do this\n1[x]\n");
}

/* ---- compared with another splitter ---- */

/* A state machine over one text, which is no longer than it must be. */
static size_t split_plainly(const char *data, size_t bytes, char *ret)
{
    enum { START, FIELD, QUOTED, QUOTE } state = START;
    size_t begin = 0, n = 0, used = 0;
    ret[0] = '\0';
    for (size_t i = 0; i < bytes; i++) {
        char c = data[i];
        if (state != QUOTED && (c == '\n' || c == '\r')) {
            used += (size_t)sprintf(ret + used, "%zu[%.*s]\n", n++, (int)(i - begin),
                                    data + begin);
            if (c == '\r' && i + 1 < bytes && data[i + 1] == '\n')
                i++;
            begin = i + 1;
            state = START;
        } else if (state == QUOTED) {
            state = c == '"' ? QUOTE : QUOTED;
        } else if (c == '"' && (state == START || state == QUOTE)) {
            state = QUOTED;
        } else {
            state = c == ',' ? START : FIELD;
        }
    }
    if (begin < bytes && state != QUOTED)
        sprintf(ret + used, "%zu[%.*s]\n", n, (int)(bytes - begin), data + begin);
    return state == QUOTED;
}

static void texts_of_all_kinds_split_alike_at_every_border(void)
{
    static const char letters[] = {'a', ',', '\n', '"', '\r', '"', 'b', ','};
    uint64_t state = 42;
    for (int i = 0; i < 400; i++) {
        char text[64], want[1024];
        size_t n = (size_t)i % sizeof(text);
        for (size_t k = 0; k < n; k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            text[k] = letters[(state >> 40) % 8];
        }
        bool open = split_plainly(text, n, want);
        char *got = read_text(&plain, 0, text, n);
        if (open)
            *strstr(got, "!INVALID_ARGUMENT") = '\0';
        CHECK_STR(got, want);
        free(got);
    }
}

static void no_damage_does_harm(void)
{
    static const char text[] =
        "a,b\r\n1,\"two\nlines\"\n\"with \"\"quotes\"\"\",\n\n3,4\rend";
    struct stg_format_config config = {.options = &plain, .max_record_bytes = 20};
    stg_test_every_damage(format, config, text, sizeof(text) - 1);
    stg_test_some_damage(format, config, text, sizeof(text) - 1, 3000);
}

static const struct stg_test tests[] = {
    TEST(records_end_at_every_kind_of_line_end),
    TEST(quotes_keep_line_ends),
    TEST(a_quote_inside_of_a_field_opens_nothing),
    TEST(an_unclosed_quote_is_reported_at_the_end),
    TEST(a_header_is_left_out_and_counted),
    TEST(a_record_above_the_limit_is_passed_over),
    TEST(texts_of_all_kinds_split_alike_at_every_border),
    TEST(no_damage_does_harm),
};

TEST_MAIN(tests)
