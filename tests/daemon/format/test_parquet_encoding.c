/* SPDX-License-Identifier: Apache-2.0
 *
 * The encodings of Parquet's pages over bytes of the format's specification
 * (Encodings.md), and over bytes that end early: none is read behind the last, which a
 * sanitizer sees.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/format/parquet/encoding.h"
#include "daemon/format/parquet/page_header.h"
#include "daemon/format/parquet/thrift.h"
#include "tests/check.h"

#define MAX_VALUES 256

/* Calls `read` with each number of the bytes, in memory of that size, where the last
 * call has all of them. */
static void with_each_length(const void *data, size_t bytes,
                             void (*read)(struct stg_parquet_bytes bytes, bool is_whole))
{
    for (size_t n = 0; n <= bytes; n++) {
        uint8_t *copy = malloc(n > 0 ? n : 1);
        memcpy(copy, data, n);
        read((struct stg_parquet_bytes){copy, copy + n}, n == bytes);
        free(copy);
    }
}

#define WITH_EACH_LENGTH(text, read) with_each_length(text, sizeof(text) - 1, read)

/* ---- runs ---- */

static void read_packed(struct stg_parquet_bytes bytes, bool is_whole)
{
    struct stg_parquet_runs runs;
    uint32_t values[8];
    CHECK(stg_parquet_runs_init(&runs, bytes, 3));
    bool ok = stg_parquet_runs_read(&runs, values, 8);
    CHECK_INT(ok, is_whole);
    for (uint32_t i = 0; ok && i < 8; i++)
        CHECK_INT(values[i], i);
}

/* The numbers 0 to 7 in 3 bits each. */
static void packed_values_are_read_from_the_lowest_bit_on(void)
{
    WITH_EACH_LENGTH("\x03\x88\xc6\xfa", read_packed);
}

static void read_runs(struct stg_parquet_bytes bytes, bool is_whole)
{
    struct stg_parquet_runs runs;
    uint32_t values[300];
    CHECK(stg_parquet_runs_init(&runs, bytes, 10));
    bool ok = stg_parquet_runs_read(&runs, values, 300);
    CHECK_INT(ok, is_whole);
    for (size_t i = 0; ok && i < 300; i++)
        CHECK_INT(values[i], i < 200 ? 513 : i < 208 ? 1023 : 7);
}

/* 200 times 513, 8 packed values of 10 bits, 92 times 7. */
static void runs_of_equal_and_of_packed_values_follow_one_another(void)
{
    WITH_EACH_LENGTH("\x90\x03\x01\x02"
                     "\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"
                     "\xb8\x01\x07\x00",
                     read_runs);
}

static void values_of_each_width_are_what_was_packed(void)
{
    for (unsigned width = 1; width <= 32; width++) {
        uint8_t data[1 + MAX_VALUES * 4] = {MAX_VALUES / 8 << 1 | 1};
        uint32_t want[MAX_VALUES], got[MAX_VALUES];
        struct stg_parquet_runs runs;
        for (unsigned i = 0; i < MAX_VALUES; i++) {
            want[i] = i * 2654435761u & (uint32_t)((UINT64_C(1) << width) - 1);
            for (unsigned k = 0; k < width; k++)
                data[1 + (i * width + k) / 8] |=
                    (uint8_t)((want[i] >> k & 1) << (i * width + k) % 8);
        }
        uint64_t bytes = 1 + MAX_VALUES * width / 8;
        CHECK(stg_parquet_runs_init(&runs, (struct stg_parquet_bytes){data, data + bytes},
                                    width));
        CHECK(stg_parquet_runs_read(&runs, got, 3));
        CHECK(stg_parquet_runs_read(&runs, got + 3, 5));
        CHECK(stg_parquet_runs_read(&runs, got + 8, MAX_VALUES - 8));
        CHECK(memcmp(got, want, sizeof(got)) == 0);
        CHECK(!stg_parquet_runs_read(&runs, got, 1));
    }
}

static void read_bits(struct stg_parquet_bytes bytes, bool is_whole)
{
    static const uint8_t want[] = {1, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0,
                                   0, 0, 1, 0, 1, 1, 1, 1, 1, 0, 1};
    struct stg_parquet_runs runs;
    uint8_t got[sizeof(want)];
    uint64_t n_first, n_rest;
    CHECK(stg_parquet_runs_init(&runs, bytes, 1));
    bool ok = stg_parquet_runs_read_bits(&runs, got, 3, &n_first) &&
              stg_parquet_runs_read_bits(&runs, got + 3, sizeof(want) - 3, &n_rest);
    CHECK_INT(ok, is_whole);
    if (!ok)
        return;
    CHECK(memcmp(got, want, sizeof(want)) == 0);
    CHECK_INT(n_first, 2);
    CHECK_INT(n_rest, 9);
}

/* Two ones, eight packed bits, three zeros, eight packed bits, a one. */
static void bits_are_read_wherever_a_run_begins(void)
{
    WITH_EACH_LENGTH("\x04\x01\x03\x22\x06\x00\x03\x7d\x02\x01", read_bits);
}

/* Values of 1 to 4 bits: 5 equal ones, 64 that are packed, and 59 equal ones. */
static void check_planes(unsigned width, uint64_t at_once)
{
    uint8_t bytes[64] = {5 << 1, 1}, *at = bytes + 2;
    uint32_t want[128], seed = width;
    for (size_t i = 0; i < 5; i++)
        want[i] = 1;
    *at++ = 8 << 1 | 1;
    for (unsigned i = 0; i < 64; i++) {
        seed = seed * 1103515245 + 12345;
        want[5 + i] = seed >> 16 & ((1u << width) - 1);
        for (unsigned k = 0; k < width; k++)
            at[(i * width + k) / 8] |=
                (uint8_t)((want[5 + i] >> k & 1) << (i * width + k) % 8);
    }
    at += 8 * width;
    *at++ = 59 << 1;
    *at++ = 0;
    for (size_t i = 69; i < 128; i++)
        want[i] = 0;
    uint8_t *copy = malloc((size_t)(at - bytes)); /* a sanitizer knows where it ends */
    memcpy(copy, bytes, (size_t)(at - bytes));
    struct stg_parquet_runs runs;
    struct stg_parquet_bytes all = {copy, copy + (at - bytes)};
    uint64_t planes[STG_PARQUET_PLANES];
    CHECK(stg_parquet_runs_init(&runs, all, width));
    for (uint64_t done = 0; done < 128; done += at_once) {
        uint64_t now = 128 - done < at_once ? 128 - done : at_once;
        CHECK(stg_parquet_runs_read_planes(&runs, planes, now));
        for (uint64_t i = 0; i < 64; i++) {
            uint32_t got = 0;
            for (unsigned k = 0; k < STG_PARQUET_PLANES; k++)
                got |= (uint32_t)(planes[k] >> i & 1) << k;
            CHECK_INT(got, i < now ? want[done + i] : 0);
        }
    }
    CHECK(!stg_parquet_runs_read_planes(&runs, planes, 1));
    free(copy);
}

static void values_of_few_bits_are_read_as_planes(void)
{
    static const uint64_t at_once[] = {1, 7, 33, 63, 64};
    for (unsigned width = 1; width <= STG_PARQUET_PLANES; width++) {
        for (size_t i = 0; i < sizeof(at_once) / sizeof(at_once[0]); i++)
            check_planes(width, at_once[i]);
    }
}

static void a_run_of_too_many_bits_or_of_no_values_is_refused(void)
{
    static const uint8_t empty[] = {0x00, 0x01}, wide[] = {0x04, 0xff, 0x00};
    struct stg_parquet_runs runs;
    uint32_t value;
    CHECK(!stg_parquet_runs_init(&runs, (struct stg_parquet_bytes){empty, empty}, 33));
    stg_parquet_runs_init(&runs, (struct stg_parquet_bytes){empty, empty + 2}, 8);
    CHECK(!stg_parquet_runs_read(&runs, &value, 1));
    stg_parquet_runs_init(&runs, (struct stg_parquet_bytes){wide, wide + 3}, 3);
    CHECK(!stg_parquet_runs_read(&runs, &value, 1));
}

static void booleans_are_bits(void)
{
    static const uint8_t data[] = {0xcd, 0x01};
    uint8_t got[9];
    struct stg_parquet_bytes bytes = {data, data + 2};
    CHECK(stg_parquet_bits(&bytes, got, 9));
    CHECK(memcmp(got, "\1\0\1\1\0\0\1\1\1", 9) == 0);
    bytes = (struct stg_parquet_bytes){data, data + 1};
    CHECK(!stg_parquet_bits(&bytes, got, 9));
}

/* ---- delta ---- */

static void read_steps(struct stg_parquet_bytes bytes, bool is_whole)
{
    int64_t got[5];
    bool ok = stg_parquet_delta(&bytes, got, 5);
    CHECK_INT(ok, is_whole);
    for (int64_t i = 0; ok && i < 5; i++)
        CHECK_INT(got[i], i + 1);
}

static void read_turns(struct stg_parquet_bytes bytes, bool is_whole)
{
    static const int64_t want[] = {7, 5, 3, 1, 2, 3, 4, 5};
    int64_t got[8];
    bool ok = stg_parquet_delta(&bytes, got, 8);
    CHECK(ok || !is_whole);
    CHECK(!ok || memcmp(got, want, sizeof(want)) == 0);
    CHECK(!is_whole || stg_parquet_left(&bytes) == 0);
}

/* The two examples, in blocks of 128 values with 4 miniblocks: 1 2 3 4 5, of equal
 * differences; and 7 5 3 1 2 3 4 5. */
static void differences_are_added_up(void)
{
    WITH_EACH_LENGTH("\x80\x01\x04\x05\x02"
                     "\x02\0\0\0\0",
                     read_steps);
    WITH_EACH_LENGTH("\x80\x01\x04\x08\x0e"
                     "\x03\x02\0\0\0"
                     "\xc0\x3f\0\0\0\0\0\0",
                     read_turns);
}

static void differences_of_64_bits_wrap_around(void)
{
    uint8_t data[5 + 10 + 4 + 256] = {0x80, 0x01, 0x04, 0x02};
    size_t n = 4;
    int64_t got[2];
    data[n++] = 0x01; /* -1 */
    data[n++] = 0x00;
    data[n++] = 64;
    n += 3;
    memset(data + n, 0xff, 8);
    struct stg_parquet_bytes bytes = {data, data + n + 256};
    CHECK(stg_parquet_delta(&bytes, got, 2));
    CHECK_INT(got[0], -1);
    CHECK_INT(got[1], -2);
}

static void a_head_of_differences_that_is_not_valid_is_refused(void)
{
    static const uint8_t heads[][6] = {
        {0x80, 0x01, 0x00, 0x05, 0x02}, /* no miniblocks */
        {0x00, 0x04, 0x05, 0x02},       /* a block of no values */
        {0x10, 0x04, 0x05, 0x02},       /* miniblocks of 4 values */
        {0x80, 0x01, 0x04, 0x06, 0x02}, /* 6 values */
        {0x80, 0x01, 0x03, 0x05, 0x02}, /* no whole number of miniblocks */
    };
    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
        int64_t got[5];
        struct stg_parquet_bytes bytes = {heads[i], heads[i] + sizeof(heads[i])};
        CHECK(!stg_parquet_delta(&bytes, got, 5));
    }
}

/* ---- split ---- */

static void read_split(struct stg_parquet_bytes bytes, bool is_whole)
{
    static const uint8_t want[] = {0xaa, 0xbb, 0xcc, 0xdd, 0x00, 0x11,
                                   0x22, 0x33, 0xa3, 0xb4, 0xc5, 0xd6};
    uint8_t got[12];
    bool ok = stg_parquet_split(&bytes, got, 3, 4);
    CHECK_INT(ok, is_whole);
    CHECK(!ok || memcmp(got, want, sizeof(want)) == 0);
}

static void bytes_of_a_split_stream_are_put_together(void)
{
    WITH_EACH_LENGTH("\xaa\x00\xa3\xbb\x11\xb4\xcc\x22\xc5\xdd\x33\xd6", read_split);
}

/* ---- strings ---- */

static void check_strings(const char *base, const int64_t *begin, const int64_t *end,
                          const char *const *want, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        CHECK_INT(end[i] - begin[i], strlen(want[i]));
        CHECK(memcmp(base + begin[i], want[i], strlen(want[i])) == 0);
    }
}

static void read_plain_strings(struct stg_parquet_bytes bytes, bool is_whole)
{
    static const char *const want[] = {"foo", "", "barbaz"};
    int64_t begin[3], end[3];
    const char *base = (const char *)bytes.at;
    bool ok = stg_parquet_strings(&bytes, base, begin, end, 3);
    CHECK_INT(ok, is_whole);
    if (ok)
        check_strings(base, begin, end, want, 3);
}

static void plain_strings_follow_their_lengths(void)
{
    WITH_EACH_LENGTH("\3\0\0\0foo"
                     "\0\0\0\0"
                     "\6\0\0\0barbaz",
                     read_plain_strings);
}

static void read_lengths(struct stg_parquet_bytes bytes, bool is_whole)
{
    static const char *const want[] = {"Hello", "World", "Foobar", "ABCDEF"};
    int64_t begin[4], end[4];
    const char *base = (const char *)bytes.at;
    bool ok = stg_parquet_delta_strings(&bytes, base, begin, end, 4);
    CHECK_INT(ok, is_whole);
    if (ok)
        check_strings(base, begin, end, want, 4);
}

/* Lengths 5 5 6 6. */
static void strings_follow_all_of_their_lengths(void)
{
    WITH_EACH_LENGTH("\x80\x01\x04\x04\x0a"
                     "\x00\x01\0\0\0\x02\0\0\0"
                     "HelloWorldFoobarABCDEF",
                     read_lengths);
}

static void read_prefixes(struct stg_parquet_bytes bytes, bool is_whole)
{
    static const char *const want[] = {"axis", "axle", "babble", "babyhood"};
    int64_t begin[4], end[4], suffix[4];
    const char *base = (const char *)bytes.at;
    char joined[32];
    uint64_t n = 0;
    bool ok = stg_parquet_prefixed(&bytes, base, begin, end, suffix, 4, &n);
    CHECK_INT(ok, is_whole);
    if (!ok)
        return;
    CHECK_INT(n, 22);
    stg_parquet_join(base, begin, end, suffix, 4, joined);
    check_strings(joined, begin, end, want, 4);
}

/* Prefixes 0 2 0 3, and the strings axis, le, babble, yhood. */
static void strings_begin_as_the_one_before(void)
{
    WITH_EACH_LENGTH("\x80\x01\x04\x04\x00"
                     "\x03\x03\0\0\0\x44\x01\0\0\0\0\0\0\0\0\0\0"
                     "\x80\x01\x04\x04\x08"
                     "\x03\x03\0\0\0\x70\x00\0\0\0\0\0\0\0\0\0\0"
                     "axislebabbleyhood",
                     read_prefixes);
}

/* ---- headers ---- */

/* A page of 3 values in 24 bytes, with a checksum and a field that is not known. */
static const uint8_t header[] = {0x15, 0x00, 0x15, 0x30, 0x15, 0x30, 0x15, 0x0e,
                                 0x1c, 0x15, 0x06, 0x15, 0x00, 0x15, 0x06, 0x15,
                                 0x06, 0x00, 0x58, 0x02, 'h',  'i',  0x00};

static void a_header_has_the_sizes_of_its_page(void)
{
    struct stg_parquet_page_header got;
    CHECK_INT(stg_parquet_page_header_parse(header, sizeof(header), &got),
              sizeof(header));
    CHECK_INT(got.kind, STG_PARQUET_DATA_PAGE);
    CHECK_INT(got.n, 3);
    CHECK_INT(got.bytes, 24);
    CHECK_INT(got.plain_bytes, 24);
    CHECK(got.has_crc && got.crc == 7 && got.encoding == STG_PARQUET_PLAIN);
}

static void read_header(struct stg_parquet_bytes bytes, bool is_whole)
{
    struct stg_parquet_page_header got;
    uint64_t n = stg_parquet_page_header_parse(bytes.at, stg_parquet_left(&bytes), &got);
    CHECK_INT(n, is_whole ? sizeof(header) : 0);
}

static void a_header_that_ends_early_is_none(void)
{
    with_each_length(header, sizeof(header), read_header);
}

/* Each byte of the header takes each value. */
static void a_damaged_header_is_read_inside_of_its_bytes(void)
{
    uint8_t *copy = malloc(sizeof(header));
    struct stg_parquet_page_header got;
    for (size_t i = 0; i < sizeof(header); i++) {
        for (unsigned value = 0; value < 256; value++) {
            memcpy(copy, header, sizeof(header));
            copy[i] = (uint8_t)value;
            CHECK(stg_parquet_page_header_parse(copy, sizeof(header), &got) <=
                  sizeof(header));
        }
    }
    free(copy);
}

static void values_in_values_are_passed_over_to_a_depth(void)
{
    uint8_t data[200];
    struct stg_thrift_field field = {.type = STG_THRIFT_LIST};
    memset(data, 0x19, sizeof(data)); /* a list of one list */
    struct stg_thrift thrift = {.at = data, .end = data + sizeof(data)};
    stg_thrift_skip(&thrift, &field);
    CHECK(thrift.is_bad);
    CHECK(!stg_thrift_next(&thrift, &field));
}

static const struct stg_test tests[] = {
    TEST(packed_values_are_read_from_the_lowest_bit_on),
    TEST(runs_of_equal_and_of_packed_values_follow_one_another),
    TEST(values_of_each_width_are_what_was_packed),
    TEST(bits_are_read_wherever_a_run_begins),
    TEST(values_of_few_bits_are_read_as_planes),
    TEST(a_run_of_too_many_bits_or_of_no_values_is_refused),
    TEST(booleans_are_bits),
    TEST(differences_are_added_up),
    TEST(differences_of_64_bits_wrap_around),
    TEST(a_head_of_differences_that_is_not_valid_is_refused),
    TEST(bytes_of_a_split_stream_are_put_together),
    TEST(plain_strings_follow_their_lengths),
    TEST(strings_follow_all_of_their_lengths),
    TEST(strings_begin_as_the_one_before),
    TEST(a_header_has_the_sizes_of_its_page),
    TEST(a_header_that_ends_early_is_none),
    TEST(a_damaged_header_is_read_inside_of_its_bytes),
    TEST(values_in_values_are_passed_over_to_a_depth),
};
TEST_MAIN(tests)
