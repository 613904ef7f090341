/* SPDX-License-Identifier: Apache-2.0
 *
 * Compressed sources: the output of other programs (golden_compressed.py), read in pieces
 * of all sizes, truncated and damaged everywhere.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/storage/codec/codec.h"
#include "daemon/storage/codec/decompress.h"
#include "tests/check.h"
#include "tests/daemon/format/format_source.h"
#include "tests/daemon/storage/golden_compressed.h"
#include "tests/daemon/storage/golden_snappy.h"

struct kind {
    const char *type;
    bool has_magic;
    const unsigned char *data;
    size_t bytes;
    size_t whole; /* this prefix of the file is complete too; 0: none */
};

/* Each holds text_plain; those with two consecutive streams hold it twice. */
static const struct kind kinds[] = {
    {"gzip", true, text_gzip, sizeof(text_gzip), 0},
    {"zlib", false, text_zlib, sizeof(text_zlib), 0},
    {"zstd", true, text_zstd, sizeof(text_zstd), 0},
    {"lz4", true, text_lz4, sizeof(text_lz4), 0},
    {"snappy", false, text_snappy, sizeof(text_snappy), 0},
    {"snappy", true, text_framed, sizeof(text_framed), 10},
};
#define N_KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* ---- an open source over memory ---- */

struct opened {
    struct stg_test_memory memory;
    struct stg_quota *quota;
    struct stg_source *source;
};

static void open_limited(struct opened *opened, const char *type, const void *data,
                         size_t bytes, uint64_t limit)
{
    opened->memory = stg_test_memory(data, bytes);
    opened->source = &opened->memory.source;
    CHECK_INT(stg_quota_create(limit, &opened->quota), 0);
    struct stg_decompress_config config = {
        .type = type, .path = "/the/file", .quota = opened->quota};
    struct stg_err err = {0};
    CHECK_OK(stg_decompress_open(&config, &opened->source, &err), err);
}

static void open_source(struct opened *opened, const char *type, const void *data,
                        size_t bytes)
{
    open_limited(opened, type, data, bytes, 0);
}

static void close_source(struct opened *opened)
{
    opened->source->storage->close(opened->source);
    stg_quota_unref(opened->quota);
}

/* Reads everything, `piece` bytes at a time; an error gives its code. */
static int read_all(struct opened *opened, size_t piece, char *ret, size_t *ret_bytes,
                    struct stg_err *err)
{
    size_t at = 0;
    int64_t n;
    while ((n = opened->source->storage->read(opened->source, at, ret + at, piece, err)) >
           0)
        at += (size_t)n;
    *ret_bytes = at;
    return (int)n;
}

#define TEXT_BYTES (sizeof(text_plain))
static char out[4 * TEXT_BYTES + (1 << 20)];

static void check_text(const char *type, const void *data, size_t bytes, int times,
                       size_t piece)
{
    struct opened opened;
    struct stg_err err = {0};
    size_t n;
    open_source(&opened, type, data, bytes);
    CHECK_OK(read_all(&opened, piece, out, &n, &err), err);
    CHECK_INT(n, (size_t)times * TEXT_BYTES);
    for (int i = 0; i < times; i++)
        CHECK(memcmp(out + (size_t)i * TEXT_BYTES, text_plain, TEXT_BYTES) == 0);
    close_source(&opened);
}

/* ---- valid input ---- */

static void each_kind_is_read_in_pieces_of_every_size(void)
{
    for (size_t i = 0; i < N_KINDS; i++) {
        for (size_t piece = 1; piece < 2 * TEXT_BYTES; piece += 1 + piece / 3)
            check_text(kinds[i].type, kinds[i].data, kinds[i].bytes, 1, piece);
    }
}

static void each_kind_is_read_from_pieces_of_every_size(void)
{
    for (size_t i = 0; i < N_KINDS; i++) {
        char *twice = malloc(2 * kinds[i].bytes);
        memcpy(twice, kinds[i].data, kinds[i].bytes);
        memcpy(twice + kinds[i].bytes, kinds[i].data, kinds[i].bytes);
        for (uint64_t most = 1; most < 20; most++) {
            struct opened opened;
            struct stg_err err = {0};
            size_t n;
            open_source(&opened, kinds[i].type, twice, 2 * kinds[i].bytes);
            opened.memory.most = most;
            CHECK_OK(read_all(&opened, 1000, out, &n, &err), err);
            CHECK_INT(n, 2 * TEXT_BYTES);
            CHECK(memcmp(out + TEXT_BYTES, text_plain, TEXT_BYTES) == 0);
            close_source(&opened);
        }
        free(twice);
    }
}

static void the_first_bytes_say_what_it_is(void)
{
    for (size_t i = 0; i < N_KINDS; i++) {
        struct opened opened;
        open_source(&opened, "auto", kinds[i].data, kinds[i].bytes);
        CHECK_INT(opened.source != &opened.memory.source, kinds[i].has_magic);
        close_source(&opened);
        if (kinds[i].has_magic)
            check_text("AUTO", kinds[i].data, kinds[i].bytes, 1, 999);
    }
    static const char *const plain[] = {"", "x", "x^2,1\n", "\x1f\x8b", "\x28\xb5\x2f"};
    for (size_t i = 0; i < 5; i++) {
        struct opened opened;
        open_source(&opened, "auto", plain[i], strlen(plain[i]));
        CHECK(opened.source == &opened.memory.source);
        close_source(&opened);
    }
}

static void none_takes_the_bytes_as_they_are(void)
{
    static const char *const names[] = {"", "none", "NONE"};
    for (size_t i = 0; i < 3; i++) {
        struct opened opened;
        open_source(&opened, names[i], text_gzip, sizeof(text_gzip));
        CHECK(opened.source == &opened.memory.source);
        close_source(&opened);
    }
}

static void an_unknown_type_is_refused_by_name(void)
{
    struct stg_err err = {0};
    CHECK_INT(stg_decompress_check("bzip2", &err), -STAGER_INVALID_ARGUMENT);
    CHECK_STR(err.text,
              "compression_type is \"bzip2\"; it must be auto, none, gzip, zlib, "
              "zstd, lz4 or snappy");
    static const char *const known[] = {"auto", "",     "none", "GZIP",
                                        "ZLIB", "zstd", "Lz4",  "Snappy"};
    for (size_t i = 0; i < 8; i++)
        CHECK_INT(stg_decompress_check(known[i], &err), 0);
}

static void every_codec_is_among_the_kinds(void)
{
    size_t n;
    const struct stg_codec *const *codecs = stg_codecs(&n);
    for (size_t i = 0; i < n; i++) {
        bool found = false;
        for (size_t k = 0; k < N_KINDS; k++)
            found |= strcmp(kinds[k].type, codecs[i]->name) == 0;
        if (!found)
            FAIL("%s has no row in kinds", codecs[i]->name);
    }
}

static void streams_in_a_row_are_one_text(void)
{
    for (size_t i = 0; i < N_KINDS; i++) {
        char *twice = malloc(3 * kinds[i].bytes);
        for (int k = 0; k < 3; k++)
            memcpy(twice + (size_t)k * kinds[i].bytes, kinds[i].data, kinds[i].bytes);
        for (size_t piece = 1; piece < 2 * TEXT_BYTES; piece += 1 + 3 * piece)
            check_text(kinds[i].type, twice, 3 * kinds[i].bytes, 3, piece);
        free(twice);
    }
}

static void an_empty_file_is_an_empty_text(void)
{
    for (size_t i = 0; i < N_KINDS; i++)
        check_text(kinds[i].type, "", 0, 0, 10);
}

/* tar and tapes pad with zeros; gzip allows it too. */
static void zeros_behind_gzip_are_no_data(void)
{
    char *padded = calloc(1, sizeof(text_gzip) + 300000);
    memcpy(padded, text_gzip, sizeof(text_gzip));
    check_text("gzip", padded, sizeof(text_gzip) + 300000, 1, 500);
    free(padded);
}

/* Skipped data are decoded and dropped. */
static void reading_continues_behind_skipped_records(void)
{
    for (size_t i = 0; i < N_KINDS; i++) {
        for (size_t at = 0; at < TEXT_BYTES; at += 1 + at / 2) {
            struct opened opened;
            struct stg_err err = {0};
            open_source(&opened, kinds[i].type, kinds[i].data, kinds[i].bytes);
            char byte;
            CHECK_INT(opened.source->storage->read(opened.source, at, &byte, 1, &err), 1);
            CHECK_INT((unsigned char)byte, text_plain[at]);
            CHECK_INT(
                opened.source->storage->read(opened.source, TEXT_BYTES + 5, out, 9, &err),
                0);
            close_source(&opened);
        }
    }
}

static void a_compressed_source_has_no_size(void)
{
    struct opened opened;
    uint64_t size;
    struct stg_err err = {0};
    open_source(&opened, "gzip", text_gzip, sizeof(text_gzip));
    CHECK_INT(opened.source->storage->size(opened.source, &size, &err),
              -STAGER_UNIMPLEMENTED);
    close_source(&opened);
}

/* ---- invalid input ---- */

/* The bytes are right. If some are missing, a lasting error follows. */
static void check_damaged(const struct kind *kind, const void *data, size_t bytes,
                          bool is_truncated)
{
    struct opened opened;
    struct stg_err err = {0};
    size_t n;
    open_limited(&opened, kind->type, data, bytes, 256 << 20);
    int rc = read_all(&opened, 3000, out, &n, &err);
    CHECK(rc == 0 || rc == -STAGER_DATA_LOSS);
    if (is_truncated) {
        CHECK_INT(rc, bytes == 0 || bytes == kind->whole ? 0 : -STAGER_DATA_LOSS);
        CHECK(n <= TEXT_BYTES && memcmp(out, text_plain, n) == 0);
    }
    if (rc == -STAGER_DATA_LOSS) {
        CHECK(opened.source->spoiled);
        CHECK_CONTAINS(err.text, "/the/file: the ");
        CHECK_CONTAINS(err.text, " stream at offset ");
        CHECK_INT(opened.source->storage->read(opened.source, n, out, 1, &err), rc);
    }
    close_source(&opened);
}

static void a_stream_truncated_at_any_byte_is_reported(void)
{
    for (size_t i = 0; i < N_KINDS; i++) {
        for (size_t n = 0; n < kinds[i].bytes; n += 1 + (n > 300) * 13) {
            char *part = malloc(n + 1);
            memcpy(part, kinds[i].data, n);
            check_damaged(&kinds[i], part, n, true);
            free(part);
        }
    }
}

static void no_damage_does_harm(void)
{
    for (size_t i = 0; i < N_KINDS; i++) {
        char *copy = malloc(kinds[i].bytes);
        for (size_t k = 0; k < 8 * kinds[i].bytes; k += 1 + (k > 1000) * 37) {
            memcpy(copy, kinds[i].data, kinds[i].bytes);
            copy[k / 8] ^= (char)(1 << k % 8);
            check_damaged(&kinds[i], copy, kinds[i].bytes, false);
        }
        free(copy);
    }
}

static void check_message(const char *type, const void *data, size_t bytes,
                          const char *part)
{
    struct opened opened;
    struct stg_err err = {0};
    size_t n;
    open_source(&opened, type, data, bytes);
    CHECK_INT(read_all(&opened, 3000, out, &n, &err), -STAGER_DATA_LOSS);
    CHECK_CONTAINS(err.text, part);
    close_source(&opened);
}

/* No name of a library appears. */
static void check_plain_words(const char *type, const void *data, size_t bytes)
{
    struct opened opened;
    struct stg_err err = {0};
    size_t n;
    open_source(&opened, type, data, bytes);
    if (read_all(&opened, 3000, out, &n, &err) < 0 && strstr(err.text, "ERROR_") != NULL)
        FAIL("%s", err.text);
    close_source(&opened);
}

static void what_is_wrong_is_said(void)
{
    unsigned char copy[sizeof(text_gzip) + 16];
    memcpy(copy, text_gzip, sizeof(text_gzip));
    copy[sizeof(text_gzip) - 6] ^= 1;
    check_message("gzip", copy, sizeof(text_gzip),
                  "its data does not match its checksum");
    static unsigned char zlib[sizeof(text_zlib)];
    for (size_t back = 1; back <= 4; back++) {
        memcpy(zlib, text_zlib, sizeof(zlib));
        zlib[sizeof(zlib) - back] ^= 1;
        check_message("zlib", zlib, sizeof(zlib), "its data does not match its checksum");
    }
    check_message("gzip", text_gzip, sizeof(text_gzip) - 1, "the file ends inside it");
    memcpy(copy, text_gzip, sizeof(text_gzip));
    memcpy(copy + sizeof(text_gzip), "garbage, not gzip", 16);
    check_message("gzip", copy, sizeof(copy),
                  "it does not begin with the header of such a stream");
    check_message(
        "gzip", "plain text, not compressed", 26,
        "/the/file: the gzip stream at offset 0, after 0 bytes of data: it does not "
        "begin with the header of such a stream; the rest of the file is lost");
    check_message("zstd", "plain text", 10, "Unknown frame descriptor");
    check_message("lz4", "plain text", 10,
                  "it does not begin with the header of such a stream");
    static unsigned char lz4[sizeof(text_lz4)];
    for (size_t i = 4; i < sizeof(lz4); i++) { /* each byte behind the magic */
        memcpy(lz4, text_lz4, sizeof(lz4));
        lz4[i] ^= 0x40;
        check_plain_words("lz4", lz4, sizeof(lz4));
    }
    memcpy(lz4, text_lz4, sizeof(lz4));
    lz4[sizeof(lz4) - 1] ^= 1;
    check_message("lz4", lz4, sizeof(lz4), "its data does not match its checksum");
    check_message("snappy", "plain text", 10, "it is damaged, or not a snappy stream");
    check_message("snappy", "\0\0\0\x05garbage", 11, "a block ");
    unsigned char framed[sizeof(text_framed)];
    memcpy(framed, text_framed, sizeof(framed));
    framed[14] ^= 1;
    check_message("snappy", framed, sizeof(framed),
                  "its data does not match its checksum");
    framed[10] = 2;
    check_message("snappy", framed, sizeof(framed), "a chunk is of an unknown type");
    check_message("snappy", text_snappy, sizeof(text_snappy) - 1,
                  "the file ends inside it");
}

static char *make_bomb(size_t *ret_bytes)
{
    *ret_bytes = 256 * sizeof(text_bomb);
    char *bomb = malloc(*ret_bytes);
    for (int i = 0; i < 256; i++)
        memcpy(bomb + (size_t)i * sizeof(text_bomb), text_bomb, sizeof(text_bomb));
    return bomb;
}

/* 256 MiB of zeros. */
static void a_bomb_takes_no_more_memory_than_there_is(void)
{
    struct opened opened;
    struct stg_err err = {0};
    size_t bytes;
    char *bomb = make_bomb(&bytes);
    open_limited(&opened, "gzip", bomb, bytes, 4 << 20);
    uint64_t at = 0;
    int64_t n;
    while ((n = opened.source->storage->read(opened.source, at, out, 1 << 20, &err)) >
           0) {
        at += (uint64_t)n;
        CHECK(stg_quota_used(opened.quota) <= 1 << 20);
    }
    CHECK_INT(n, 0);
    CHECK_INT(at, 256 << 20);
    close_source(&opened);
    free(bomb);
}

/* Its window is 128 MiB: the header alone requires it. */
static void a_window_beyond_the_quota_is_refused(void)
{
    struct opened opened;
    struct stg_err err = {0};
    size_t n;
    open_limited(&opened, "zstd", text_wide, sizeof(text_wide), 64 << 20);
    CHECK_INT(read_all(&opened, 3000, out, &n, &err), -STAGER_DATA_LOSS);
    CHECK_CONTAINS(err.text, "raise staged.memory_budget");
    close_source(&opened);
    open_limited(&opened, "lz4", text_lz4, sizeof(text_lz4), 128 << 10);
    CHECK_INT(read_all(&opened, 3000, out, &n, &err), -STAGER_DATA_LOSS);
    CHECK_CONTAINS(err.text, "/the/file: the lz4 stream at offset 6");
    CHECK_CONTAINS(err.text, "raise staged.memory_budget");
    CHECK(opened.source->spoiled);
    close_source(&opened);
}

static void a_stop_ends_the_decoding(void)
{
    struct opened opened;
    _Atomic int stopped = 0;
    size_t bytes;
    char *bomb = make_bomb(&bytes);
    opened.memory = stg_test_memory(bomb, bytes);
    opened.source = &opened.memory.source;
    CHECK_INT(stg_quota_create(0, &opened.quota), 0);
    struct stg_decompress_config config = {
        .type = "gzip", .path = "x", .quota = opened.quota, .stopped = &stopped};
    struct stg_err err = {0};
    CHECK_OK(stg_decompress_open(&config, &opened.source, &err), err);
    CHECK_INT(opened.source->storage->read(opened.source, 0, out, 100, &err), 100);
    stopped = 1;
    CHECK_INT(opened.source->storage->read(opened.source, 1 << 30, out, 100, &err),
              -STAGER_CANCELLED);
    CHECK(!opened.source->spoiled);
    close_source(&opened);
    free(bomb);
}

static void a_failing_storage_is_not_the_files_fault(void)
{
    struct opened opened;
    struct stg_err err = {0};
    size_t n;
    open_source(&opened, "gzip", text_gzip, sizeof(text_gzip));
    opened.memory.fail_at = 1;
    CHECK_INT(read_all(&opened, 3000, out, &n, &err), -STAGER_DATA_LOSS);
    CHECK_CONTAINS(err.text, "broken");
    CHECK(!opened.source->spoiled);
    close_source(&opened);
}

static const struct stg_test tests[] = {
    TEST(each_kind_is_read_in_pieces_of_every_size),
    TEST(each_kind_is_read_from_pieces_of_every_size),
    TEST(the_first_bytes_say_what_it_is),
    TEST(none_takes_the_bytes_as_they_are),
    TEST(an_unknown_type_is_refused_by_name),
    TEST(every_codec_is_among_the_kinds),
    TEST(streams_in_a_row_are_one_text),
    TEST(an_empty_file_is_an_empty_text),
    TEST(zeros_behind_gzip_are_no_data),
    TEST(reading_continues_behind_skipped_records),
    TEST(a_compressed_source_has_no_size),
    TEST(a_stream_truncated_at_any_byte_is_reported),
    TEST(no_damage_does_harm),
    TEST(what_is_wrong_is_said),
    TEST(a_bomb_takes_no_more_memory_than_there_is),
    TEST(a_window_beyond_the_quota_is_refused),
    TEST(a_stop_ends_the_decoding),
    TEST(a_failing_storage_is_not_the_files_fault),
};

TEST_MAIN(tests)
