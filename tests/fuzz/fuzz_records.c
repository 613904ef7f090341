/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that fall into records, compressed or not, and what decompresses. A file has the
 * same records however it is read; a stream the same bytes; what a codec's library
 * compresses is had back.
 */
#include <lz4.h>
#include <snappy-c.h>
#include <stdlib.h>
#include <zstd.h>

#include "daemon/format/tar_member.h"
#include "daemon/storage/codec/decompress.h"
#include "daemon/storage/codec/page_codec.h"
#include "tests/daemon/format/format_source.h"
#include "tests/daemon/format/golden_npy.h"
#include "tests/daemon/format/golden_tar.h"
#include "tests/daemon/format/golden_tfrecord.h"
#include "tests/daemon/storage/golden_compressed.h"
#include "tests/daemon/storage/golden_snappy.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/pass.h"

#define BUDGET ((uint64_t)4 << 20)

/* ---- formats ---- */

static const char *const parts[] = {"txt", "cls"};
static const bool optional[] = {false, true};
static const struct stg_fixed_length_options fixed = {7, 3, 5};
static const struct stg_csv_reader_options csv = {',', true, true},
                                           plain_csv = {';', false, false};
static const struct stg_npy_options npy = {
    .row = {.name = "value", .dtype = STAGER_FLOAT32, .ndim = 2, .shape = {-1, 3}}};
static const struct stg_tar_options tar = {2, parts, optional};

static const struct {
    const struct stg_format *format;
    struct stg_format_config config;
} formats[] = {
    {&stg_format_text_line, {.skip_blank_lines = true, .skip_header_lines = 1}},
    {&stg_format_text_line, {.max_record_bytes = 20}},
    {&stg_format_tfrecord, {.max_record_bytes = 500}},
    {&stg_format_fixed_length, {.options = &fixed}},
    {&stg_format_csv, {.options = &csv, .max_record_bytes = 60}},
    {&stg_format_csv, {.options = &plain_csv}},
    {&stg_format_read_file, {.max_record_bytes = 3000}},
    {&stg_format_npy, {.options = &npy}},
    {&stg_format_tar, {.options = &tar, .n_parts = 3, .max_record_bytes = 2000}},
};
#define N_FORMATS (sizeof(formats) / sizeof(formats[0]))

/* The format, the bytes of a read and of a chunk; then a file. */
static void run_formats(const uint8_t *data, size_t bytes)
{
    if (bytes < 3)
        return;
    const struct stg_format *format = formats[data[0] % N_FORMATS].format;
    struct stg_format_config config = formats[data[0] % N_FORMATS].config;
    struct stg_test_memory source = stg_test_memory(data + 3, bytes - 3);
    struct stg_test_records want = stg_test_read(format, config, &source, 8, false);
    config.read_bytes = 1 + data[1];
    config.chunk_bytes = 1 + data[2];
    source = stg_test_memory(data + 3, bytes - 3);
    struct stg_test_records got = stg_test_read(format, config, &source, 3, true);
    stg_test_records_equal(&got, &want);
    stg_test_records_finish(&got);
    stg_test_records_finish(&want);
}

/* ---- pipelines ---- */

static const struct stg_fuzz_pass passes[] = {
    {"text_line", "compression_type: auto", NULL, BUDGET},
    {"tfrecord", "compression_type: GZIP", NULL, BUDGET},
    {"tfrecord", "compression_type: ZLIB", NULL, BUDGET},
    {"tfrecord", "compression_type: SNAPPY", NULL, BUDGET},
    {"csv", "header: true, compression_type: auto", NULL, BUDGET},
    {"jsonl", "compression_type: auto", NULL, BUDGET},
    {"fixed_length_record", "record_bytes: 7, header_bytes: 3, footer_bytes: 5", NULL,
     BUDGET},
    {"npy", "shape: [-1, 3], dtype: float32", NULL, BUDGET},
    {"tar", "parts: {txt: required, cls: optional}, compression_type: auto", NULL,
     BUDGET},
    {"read_file", "compression_type: zstd", NULL, BUDGET},
};
#define N_PASSES (sizeof(passes) / sizeof(passes[0]))

static void run_pipelines(const uint8_t *data, size_t bytes)
{
    if (bytes > 2)
        stg_fuzz_pass(&passes[data[0] % N_PASSES], data[1], data + 2, bytes - 2);
}

/* ---- streams ---- */

#define MAX_OUT ((size_t)1 << 20)

static int decompress(const char *type, const uint8_t *data, size_t bytes, uint64_t most,
                      size_t piece, char *out, size_t *ret)
{
    struct stg_test_memory memory = stg_test_memory(data, bytes);
    struct stg_source *source = &memory.source;
    struct stg_quota *quota;
    struct stg_err err = {0};
    memory.most = most;
    FUZZ_CHECK(stg_quota_create(BUDGET, &quota) == 0);
    struct stg_decompress_config config = {
        .type = type, .path = "/the/file", .quota = quota};
    size_t at = 0;
    int64_t n = stg_decompress_open(&config, &source, &err);
    while (n >= 0 && at + piece <= MAX_OUT &&
           (n = source->storage->read(source, at, out + at, piece, &err)) > 0)
        at += (size_t)n;
    if (n < 0)
        FUZZ_CHECK_TEXT(strstr(err.text, "/the/file") != NULL, err.text);
    source->storage->close(source);
    stg_quota_unref(quota);
    *ret = at;
    return n < 0 ? (int)n : 0;
}

/* The codec, the bytes of a read of the file and of one of the stream; then the stream.
 */
static void run_streams(const uint8_t *data, size_t bytes)
{
    static const char *const types[] = {"gzip", "zlib", "zstd", "lz4", "snappy", "auto"};
    static char whole[MAX_OUT], parts_of_it[MAX_OUT];
    size_t n, n_parts;
    if (bytes < 3)
        return;
    const char *type = types[data[0] % 6];
    int rc = decompress(type, data + 3, bytes - 3, 0, 1 << 16, whole, &n);
    int rc_parts = decompress(type, data + 3, bytes - 3, 1 + data[1], 16 + 8u * data[2],
                              parts_of_it, &n_parts);
    size_t both = n < n_parts ? n : n_parts;
    if (n < MAX_OUT - (1 << 16))
        FUZZ_CHECK(rc == rc_parts && (rc < 0 || n == n_parts));
    FUZZ_CHECK(memcmp(whole, parts_of_it, both) == 0);
}

/* ---- pages ---- */

/* The codec and the size that a header claims; then the page. */
static void run_pages(const uint8_t *data, size_t bytes)
{
    struct stg_fuzz_input input = {data, data + bytes};
    enum stg_page_codec codec = stg_fuzz_byte(&input) % 7;
    size_t n = stg_fuzz_number(&input);
    struct stg_quota *quota;
    struct stg_err err = {0};
    FUZZ_CHECK(stg_quota_create(BUDGET, &quota) == 0);
    struct stg_page_codecs codecs = {.quota = quota};
    char *out = malloc(n > 0 ? n : 1), *again = malloc(n > 0 ? n : 1);
    FUZZ_CHECK(out != NULL && again != NULL);
    int rc = stg_page_decompress(&codecs, codec, input.at, stg_fuzz_left(&input), out, n,
                                 &err);
    FUZZ_CHECK(rc == 0 || err.text[0] != '\0');
    /* With the state that the first page left behind. */
    FUZZ_CHECK(stg_page_decompress(&codecs, codec, input.at, stg_fuzz_left(&input), again,
                                   n, &err) == rc);
    FUZZ_CHECK(rc < 0 || memcmp(out, again, n) == 0);
    free(out);
    free(again);
    stg_page_codecs_finish(&codecs);
    stg_quota_unref(quota);
}

/* Compresses by the library of the codec. */
static size_t compress(enum stg_page_codec codec, const uint8_t *data, size_t bytes,
                       char *to, size_t room)
{
    if (codec == STG_PAGE_SNAPPY) {
        FUZZ_CHECK(snappy_compress((const char *)data, bytes, to, &room) == SNAPPY_OK);
        return room;
    }
    if (codec == STG_PAGE_ZSTD) {
        room = ZSTD_compress(to, room, data, bytes, 1);
        FUZZ_CHECK(!ZSTD_isError(room));
        return room;
    }
    int n = LZ4_compress_default((const char *)data, to, (int)bytes, (int)room);
    FUZZ_CHECK(n > 0);
    return (size_t)n;
}

static void run_round_trip(const uint8_t *data, size_t bytes)
{
    static const enum stg_page_codec kinds[] = {STG_PAGE_SNAPPY, STG_PAGE_ZSTD,
                                                STG_PAGE_LZ4};
    static char packed[1 << 17], out[1 << 16];
    if (bytes < 2 || bytes > sizeof(out))
        return;
    enum stg_page_codec codec = kinds[data[0] % 3];
    size_t n = compress(codec, data + 1, bytes - 1, packed, sizeof(packed));
    struct stg_quota *quota;
    struct stg_err err = {0};
    FUZZ_CHECK(stg_quota_create(BUDGET, &quota) == 0);
    struct stg_page_codecs codecs = {.quota = quota};
    int rc = stg_page_decompress(&codecs, codec, packed, n, out, bytes - 1, &err);
    FUZZ_CHECK_TEXT(rc == 0, err.text);
    FUZZ_CHECK(memcmp(out, data + 1, bytes - 1) == 0);
    stg_page_codecs_finish(&codecs);
    stg_quota_unref(quota);
}

/* ---- the program ---- */

const struct stg_fuzz_mode stg_fuzz_modes[] = {
    {"formats", run_formats}, {"pipelines", run_pipelines},   {"streams", run_streams},
    {"pages", run_pages},     {"round_trip", run_round_trip},
};
const size_t stg_fuzz_n_modes = sizeof(stg_fuzz_modes) / sizeof(stg_fuzz_modes[0]);

static const char csv_text[] =
    "a,b\r\n1,\"two\nlines\"\n\"with \"\"quotes\"\"\",\n\n3,4\rend";
static const char json_text[] = "{\"a\": 1, \"b\": [1, 2.5e3, \"x\\u00e9\"]}\n\n{}\nnull";

static void seed_formats(uint8_t format, const void *data, size_t bytes)
{
    const uint8_t prefix[] = {format, 20, 100};
    stg_fuzz_seed("formats", prefix, 3, data, bytes);
}

static void seed_pipeline(uint8_t pipeline, const void *data, size_t bytes)
{
    const uint8_t prefix[] = {pipeline, 1};
    stg_fuzz_seed("pipelines", prefix, 2, data, bytes);
}

/* Those archives are stored compressed. */
static void seed_tar(const void *data, size_t bytes)
{
    static char archive[MAX_OUT];
    size_t n;
    FUZZ_CHECK(decompress("auto", data, bytes, 0, 4096, archive, &n) == 0);
    seed_formats(8, archive, n);
    seed_pipeline(8, archive, n);
    seed_pipeline(8, data, bytes);
}

static void seed_streams(void)
{
    static const struct {
        const void *data;
        size_t bytes;
    } streams[] = {{text_gzip, sizeof(text_gzip)},     {text_zlib, sizeof(text_zlib)},
                   {text_zstd, sizeof(text_zstd)},     {text_lz4, sizeof(text_lz4)},
                   {text_snappy, sizeof(text_snappy)}, {text_framed, sizeof(text_framed)},
                   {text_wide, sizeof(text_wide)}};
    for (uint8_t i = 0; i < 7; i++) {
        const uint8_t prefix[] = {i, 9, 7};
        stg_fuzz_seed("streams", prefix, 3, streams[i].data, streams[i].bytes);
        seed_pipeline(0, streams[i].data, streams[i].bytes);
    }
    const uint8_t gzip[] = {STG_PAGE_GZIP, sizeof(text_plain) >> 8,
                            sizeof(text_plain) & 255};
    stg_fuzz_seed("pages", gzip, 3, text_gzip, sizeof(text_gzip));
    const uint8_t frame[] = {STG_PAGE_LZ4_FRAME, gzip[1], gzip[2]};
    stg_fuzz_seed("pages", frame, 3, text_lz4, sizeof(text_lz4));
    static const enum stg_page_codec kinds[] = {STG_PAGE_SNAPPY, STG_PAGE_ZSTD,
                                                STG_PAGE_LZ4, STG_PAGE_PLAIN};
    for (size_t i = 0; i < 4; i++) {
        static char packed[1 << 12];
        size_t n =
            i == 3 ? 256 : compress(kinds[i], text_plain, 256, packed, sizeof(packed));
        const uint8_t prefix[] = {kinds[i], 1, 0};
        stg_fuzz_seed("pages", prefix, 3, packed, n);
    }
    stg_fuzz_seed("round_trip", "\0", 1, text_plain, 300);
}

void stg_fuzz_seeds(void)
{
    for (uint8_t i = 0; i < 2; i++)
        seed_formats(i, "one\r\ntwo\n\n  \nfour\r\r\nlast", 25);
    seed_formats(2, golden_plain, sizeof(golden_plain));
    seed_formats(3, "abc1234567ABCDEFGvwxyz", 22);
    seed_formats(4, csv_text, sizeof(csv_text) - 1);
    seed_formats(5, csv_text, sizeof(csv_text) - 1);
    seed_formats(6, "whole", 5);
    seed_formats(7, npy_grid, sizeof(npy_grid));
    seed_formats(7, npy_grid_v2, sizeof(npy_grid_v2));
    seed_formats(7, npy_grid_swapped, sizeof(npy_grid_swapped));
    seed_formats(7, npy_fields, sizeof(npy_fields));
    seed_tar(tar_ustar, sizeof(tar_ustar));
    seed_tar(tar_gnu, sizeof(tar_gnu));
    seed_tar(tar_pax, sizeof(tar_pax));
    seed_pipeline(1, golden_gzip, sizeof(golden_gzip));
    seed_pipeline(2, golden_zlib, sizeof(golden_zlib));
    seed_pipeline(3, golden_snappy, sizeof(golden_snappy));
    seed_pipeline(4, csv_text, sizeof(csv_text) - 1);
    seed_pipeline(5, json_text, sizeof(json_text) - 1);
    seed_pipeline(6, "abc1234567ABCDEFGvwxyz", 22);
    seed_pipeline(7, npy_grid, sizeof(npy_grid));
    seed_pipeline(9, text_zstd, sizeof(text_zstd));
    seed_streams();
}
