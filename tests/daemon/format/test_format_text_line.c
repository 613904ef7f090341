/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines of a source in memory: every text with every size of reads and chunks, compared
 * with a splitter that reads byte by byte.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/format/format.h"
#include "tests/check.h"
#include "tests/daemon/format/format_source.h"

/* ---- the simple splitter ---- */

struct line {
    uint64_t begin, end, number;
    bool bad;
};

static size_t split_plainly(const char *data, size_t bytes, uint64_t max, uint64_t skip,
                            struct line *ret)
{
    size_t n = 0, start = 0;
    uint64_t number = 0;
    for (size_t i = 0; i <= bytes; i++) {
        if (i < bytes && data[i] != '\n')
            continue;
        if (i == bytes && start == bytes)
            break;
        size_t end = i;
        if (i < bytes && end > start && data[end - 1] == '\r')
            end--;
        if (number >= skip)
            ret[n++] = (struct line){start, end, number, end - start > max};
        number++;
        start = i + 1;
    }
    return n;
}

/* ---- comparison ---- */

struct opened {
    struct stg_quota *quota;
    void *reader;
};

static struct opened open_reader(struct stg_format_config config)
{
    struct opened opened;
    CHECK_INT(stg_quota_create(0, &opened.quota), 0);
    config.quota = opened.quota;
    CHECK_INT(stg_format_text_line.create(&config, &opened.reader), 0);
    return opened;
}

static void close_reader(struct opened opened)
{
    stg_format_text_line.destroy(opened.reader);
    stg_quota_unref(opened.quota);
}

static void check_line(const struct stg_records *records, int64_t begin, int64_t end,
                       uint64_t number, const char *data, const struct line *want)
{
    CHECK(!want->bad);
    CHECK_INT(records->base + (uint64_t)begin, want->begin);
    CHECK_INT(end - begin, want->end - want->begin);
    CHECK_INT(number, want->number);
    CHECK(memcmp(records->chunk->data + begin, data + want->begin,
                 want->end - want->begin) == 0);
}

/* Reads all of a source and compares. With `hold` it keeps chunks alive, so the reader
 * must not touch chunks that it handed out. */
static void check_source(struct opened opened, struct stg_test_memory *source,
                         const struct line *want, size_t n_want, int64_t ask, bool hold)
{
    struct stg_chunk *held[8] = {NULL};
    size_t at = 0, n_held = 0;
    int64_t begin[64], end[64];
    stg_format_text_line.start(opened.reader, &source->source);
    bool same = false;
    for (;;) {
        struct stg_records records;
        struct stg_err err = {0};
        int rc = stg_format_text_line.next(opened.reader, ask, same, begin, end, &records,
                                           &err);
        CHECK_OK(rc, err);
        if (rc == STG_FORMAT_END)
            break;
        if (rc == STG_FORMAT_FULL) {
            CHECK(same);
            same = false;
            continue;
        }
        if (records.bad.code != 0) {
            CHECK(at < n_want && want[at].bad);
            at++;
            same = false;
            continue;
        }
        CHECK(records.n >= 1 && records.n <= ask);
        for (int64_t i = 0; i < records.n; i++, at++) {
            CHECK(at < n_want);
            check_line(&records, begin[i], end[i], records.first + (uint64_t)i,
                       source->data, &want[at]);
        }
        if (hold) {
            stg_chunk_unref(held[n_held % 8]);
            held[n_held++ % 8] = stg_chunk_ref(records.chunk);
        }
        same = hold && at % 3 != 0;
    }
    CHECK_INT(at, n_want);
    for (size_t i = 0; i < 8; i++)
        stg_chunk_unref(held[i]);
}

static void check_text(const char *data, size_t bytes, struct stg_format_config config)
{
    struct line want[256];
    size_t n = split_plainly(data, bytes, config.max_record_bytes,
                             config.skip_header_lines, want);
    static const int64_t asks[] = {1, 3, 64};
    for (size_t k = 0; k < 6; k++) {
        struct opened opened = open_reader(config);
        struct stg_test_memory source = stg_test_memory(data, bytes);
        check_source(opened, &source, want, n, asks[k % 3], k >= 3);
        CHECK(source.longest_read <= config.read_bytes);
        /* Again with the same reader: the next file continues in the chunk. */
        check_source(opened, &source, want, n, asks[k % 3], k >= 3);
        close_reader(opened);
    }
}

static void check_sizes(const char *data, size_t bytes, uint64_t max, uint64_t skip)
{
    for (uint64_t read = 1; read <= 40; read++) {
        struct stg_format_config config = {.read_bytes = read,
                                           .chunk_bytes = read % 2 ? 4 * read : read,
                                           .max_record_bytes = max,
                                           .skip_header_lines = skip};
        check_text(data, bytes, config);
    }
}

#define CHECK_LIMITS(text, max, skip) check_sizes(text, sizeof(text) - 1, max, skip)
#define CHECK_TEXT(text) CHECK_LIMITS(text, 1000, 0)

/* ---- tests ---- */

static void lines_end_at_newlines_and_lose_one_carriage_return(void)
{
    CHECK_TEXT("");
    CHECK_TEXT("\n");
    CHECK_TEXT("\n\n");
    CHECK_TEXT("a");
    CHECK_TEXT("a\n");
    CHECK_TEXT("a\nb");
    CHECK_TEXT("a\n\nb\n");
    CHECK_TEXT("a\r\nb\r\n");
    CHECK_TEXT("a\r\r\nb\r");
    CHECK_TEXT("\r\n\r\n\r");
    CHECK_TEXT("x\ry\r\n");
    CHECK_TEXT("\0a\0\n\0\n");
    CHECK_TEXT("one\ntwo two\nthree three three\nfour four four four four\nfive\n");
}

/* The splitter in this file could be wrong as well: this case is written by hand. */
static void the_plain_splitter_is_right(void)
{
    struct line got[8];
    static const char text[] = "ab\r\n\nc\rd\r\r\nlast\r";
    CHECK_INT(split_plainly(text, sizeof(text) - 1, 4, 0, got), 4);
    CHECK(got[0].begin == 0 && got[0].end == 2 && !got[0].bad);
    CHECK(got[1].begin == 4 && got[1].end == 4 && got[1].number == 1);
    CHECK(got[2].begin == 5 && got[2].end == 9 && !got[2].bad);
    CHECK(got[3].begin == 11 && got[3].end == 16 && got[3].bad && got[3].number == 3);
}

static void texts_of_all_kinds_split_alike_at_every_border(void)
{
    static const char letters[] = {'a', '\n', '\r', '\0', 'b', '\n', 'c', 'd'};
    uint64_t state = 42;
    for (int i = 0; i < 60; i++) {
        char text[120];
        size_t n = (size_t)(i * 2);
        for (size_t k = 0; k < n; k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            text[k] = letters[(state >> 40) % (i % 2 ? 8 : 40) % 8];
        }
        check_sizes(text, n, 1000, 0);
        check_sizes(text, n, 5, 0);
        check_sizes(text, n, 3, 2);
        check_sizes(text, n, 1, 1);
    }
}

static void header_lines_are_skipped_and_counted(void)
{
    CHECK_LIMITS("h\na\nb\n", 100, 1);
    CHECK_LIMITS("h\na\nb\n", 100, 2);
    CHECK_LIMITS("h\na\nb\n", 100, 3);
    CHECK_LIMITS("h\na\nb\n", 100, 99);
    CHECK_LIMITS("h", 100, 1);
    CHECK_LIMITS("\n\n\na", 100, 2);
    CHECK_LIMITS("a long header, longer than a record may be\r\nx\n", 5, 1);
}

static void a_line_of_just_the_limit_is_good(void)
{
    CHECK_LIMITS("12345\n123456\n12345\r\n123456\r\n12345", 5, 0);
    CHECK_LIMITS("12345\r", 5, 0);
    CHECK_LIMITS("123456", 5, 0);
    CHECK_LIMITS("1234567890\n1\n", 5, 0);
}

static void a_bad_line_is_reported_with_line_offset_length_and_limit(void)
{
    static const char text[] = "one\n0123456789abcdef\r\nthree\n";
    struct opened opened = open_reader((struct stg_format_config){
        .read_bytes = 4, .chunk_bytes = 16, .max_record_bytes = 8, .advice = "do this"});
    struct stg_test_memory source = stg_test_memory(text, sizeof(text) - 1);
    stg_format_text_line.start(opened.reader, &source.source);
    int64_t begin[4], end[4];
    struct stg_records records;
    struct stg_err err = {0};
    CHECK_INT(
        stg_format_text_line.next(opened.reader, 4, false, begin, end, &records, &err),
        0);
    CHECK_INT(records.n, 1);
    CHECK_INT(
        stg_format_text_line.next(opened.reader, 4, false, begin, end, &records, &err),
        0);
    CHECK_INT(records.bad.code, -STAGER_INVALID_ARGUMENT);
    CHECK_STR(records.bad.text, "line 2 (offset 4): the line has 16 bytes, more than the "
                                "limit of 8: it was skipped; do this");
    CHECK_INT(
        stg_format_text_line.next(opened.reader, 4, false, begin, end, &records, &err),
        0);
    CHECK_INT(records.n, 1);
    CHECK_INT(records.first, 2);
    close_reader(opened);
}

/* 1 GB of a single line, in a source that uses no memory for it. */
static void a_line_of_a_gigabyte_takes_no_more_memory_than_the_limit(void)
{
    struct opened opened = open_reader((struct stg_format_config){
        .read_bytes = 1 << 20, .chunk_bytes = 4 << 20, .max_record_bytes = 16 << 20});
    struct stg_test_memory source = stg_test_memory("first\n", 6);
    source.virtual_bytes = 1ull << 30;
    stg_format_text_line.start(opened.reader, &source.source);
    int64_t begin[4], end[4];
    struct stg_records records;
    struct stg_err err = {0};
    CHECK_INT(
        stg_format_text_line.next(opened.reader, 4, false, begin, end, &records, &err),
        0);
    CHECK_INT(records.n, 1);
    CHECK_INT(
        stg_format_text_line.next(opened.reader, 4, false, begin, end, &records, &err),
        0);
    CHECK_CONTAINS(records.bad.text, "line 2 (offset 6): the line has 1073741824 bytes");
    CHECK(stg_quota_used(opened.quota) <= 64 << 20);
    CHECK_INT(
        stg_format_text_line.next(opened.reader, 4, false, begin, end, &records, &err),
        STG_FORMAT_END);
    close_reader(opened);
}

static void a_long_line_does_not_keep_a_large_chunk(void)
{
    size_t bytes = 3 << 20;
    char *text = malloc(bytes);
    memset(text, 'x', bytes);
    for (size_t i = 2 << 20; i < bytes; i += 100)
        text[i] = '\n';
    struct opened opened = open_reader((struct stg_format_config){
        .read_bytes = 4096, .chunk_bytes = 16384, .max_record_bytes = 16 << 20});
    struct stg_test_memory source = stg_test_memory(text, bytes);
    stg_format_text_line.start(opened.reader, &source.source);
    int64_t begin[8], end[8];
    struct stg_records records;
    struct stg_err err = {0};
    int64_t n = 0;
    while (stg_format_text_line.next(opened.reader, 8, false, begin, end, &records,
                                     &err) == STG_FORMAT_RECORDS) {
        CHECK_INT(records.bad.code, 0);
        n += records.n;
        if (n > 100)
            CHECK(records.chunk->capacity <= 32768);
    }
    CHECK_INT(n, (1 << 20) / 100 + 2);
    close_reader(opened);
    free(text);
}

static void a_failing_source_is_reported_after_the_records_before_it(void)
{
    struct opened opened = open_reader((struct stg_format_config){
        .read_bytes = 4, .chunk_bytes = 64, .max_record_bytes = 100});
    struct stg_test_memory source = stg_test_memory("a\nbb\nccc\ndddd\n", 14);
    source.fail_at = 8;
    stg_format_text_line.start(opened.reader, &source.source);
    int64_t begin[4], end[4], n = 0;
    struct stg_records records;
    struct stg_err err = {0};
    int rc;
    while ((rc = stg_format_text_line.next(opened.reader, 4, false, begin, end, &records,
                                           &err)) == 0)
        n += records.n;
    CHECK_INT(rc, -STAGER_DATA_LOSS);
    CHECK_STR(err.text, "mem: reading at offset 8: broken");
    CHECK_INT(n, 2);
    close_reader(opened);
}

static void a_stop_ends_the_search_in_a_long_line(void)
{
    _Atomic int stopped = 0;
    struct opened opened = open_reader((struct stg_format_config){.read_bytes = 1 << 16,
                                                                  .chunk_bytes = 1 << 18,
                                                                  .max_record_bytes = 1,
                                                                  .stopped = &stopped});
    struct stg_test_memory source = stg_test_memory("", 0);
    source.virtual_bytes = 1ull << 40;
    source.stop_after = &stopped;
    source.n_reads = 20;
    stg_format_text_line.start(opened.reader, &source.source);
    int64_t begin[1], end[1];
    struct stg_records records;
    struct stg_err err = {0};
    CHECK_INT(
        stg_format_text_line.next(opened.reader, 1, false, begin, end, &records, &err),
        -STAGER_CANCELLED);
    close_reader(opened);
}

static void a_quota_that_is_too_small_is_reported(void)
{
    struct stg_quota *quota;
    CHECK_INT(stg_quota_create(10000, &quota), 0);
    struct stg_format_config config = {.read_bytes = 1000,
                                       .chunk_bytes = 4000,
                                       .max_record_bytes = 1 << 20,
                                       .quota = quota};
    void *reader;
    CHECK_INT(stg_format_text_line.create(&config, &reader), 0);
    struct stg_test_memory source = stg_test_memory("", 0);
    source.virtual_bytes = 1 << 20;
    stg_format_text_line.start(reader, &source.source);
    int64_t begin[1], end[1];
    struct stg_records records;
    struct stg_err err = {0};
    CHECK_INT(stg_format_text_line.next(reader, 1, false, begin, end, &records, &err),
              -STAGER_RESOURCE_EXHAUSTED);
    CHECK_CONTAINS(err.text, "a chunk of text_line needs ");
    CHECK_CONTAINS(err.text, "of the 10000 bytes");
    stg_format_text_line.destroy(reader);
    CHECK(stg_quota_used(quota) <= 10000);
    stg_quota_unref(quota);
}

static const struct stg_test tests[] = {
    TEST(the_plain_splitter_is_right),
    TEST(lines_end_at_newlines_and_lose_one_carriage_return),
    TEST(texts_of_all_kinds_split_alike_at_every_border),
    TEST(header_lines_are_skipped_and_counted),
    TEST(a_line_of_just_the_limit_is_good),
    TEST(a_bad_line_is_reported_with_line_offset_length_and_limit),
    TEST(a_line_of_a_gigabyte_takes_no_more_memory_than_the_limit),
    TEST(a_long_line_does_not_keep_a_large_chunk),
    TEST(a_failing_source_is_reported_after_the_records_before_it),
    TEST(a_stop_ends_the_search_in_a_long_line),
    TEST(a_quota_that_is_too_small_is_reported),
};

TEST_MAIN(tests)
