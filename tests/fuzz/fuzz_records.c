/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that fall into records, compressed or not, what decompresses, and entries of a
 * cache step. A file has the same records however it is read; a stream the same bytes;
 * what a codec's library compresses is had back; each string of a block lies within it.
 */
#include <lz4.h>
#include <snappy-c.h>
#include <stdlib.h>
#include <unistd.h>
#include <zstd.h>

#include "daemon/dataset/block.h"
#include "daemon/dataset/cache/cache_layout.h"
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

/* The codec, the bytes of a read of the file and of one of the stream; then the stream. A
 * file's reads are shorter only at its end, on which `auto` relies for its first bytes.
 */
static void run_streams(const uint8_t *data, size_t bytes)
{
    static const char *const types[] = {"gzip", "zlib", "zstd", "lz4", "snappy", "auto"};
    static char whole[MAX_OUT], parts_of_it[MAX_OUT];
    size_t n, n_parts;
    if (bytes < 3)
        return;
    const char *type = types[data[0] % 6];
    uint64_t most = (data[0] % 6 == 5 ? 4 : 1) + data[1];
    int rc = decompress(type, data + 3, bytes - 3, 0, 1 << 16, whole, &n);
    int rc_parts = decompress(type, data + 3, bytes - 3, most, 16 + 8u * data[2],
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

/* ---- entries of a cache step ---- */

static const struct stg_cache_key cache_key = {.steps = 3, .files = 4, .uid = 5};
static const struct stg_component cached[] = {
    {.name = "n", .dtype = STAGER_INT64},
    {.name = "s", .dtype = STAGER_STRING, .ndim = 1, .shape = {-1}},
};
static const struct stg_schema cache_schema = {(struct stg_component *)(uintptr_t)cached,
                                               2};

struct cache_file {
    struct stg_cache_head head;
    char blocks[1 << 14];
    struct stg_cache_tail room;
};

/* Joins `bytes` at *at to the sum, and moves behind them and what fills them up. */
static bool add_part(const char **at, const char *end, uint64_t bytes, uint64_t *sum)
{
    if (bytes > (uint64_t)(end - *at) || stg_block_room(bytes) > (uint64_t)(end - *at))
        return false;
    *sum = stg_fingerprint64_join(*sum, *at, bytes);
    *at += stg_block_room(bytes);
    return true;
}

/* Sets the sums of a block at `at`, as far as its parts can be found: what lies behind
 * the sums is not reached else. Returns the block behind it, or NULL. */
static char *seal_block(char *at, const char *end)
{
    struct stg_cache_block head;
    struct stg_cache_tensor tensors[2];
    if (end - at < (ptrdiff_t)(sizeof(head) + sizeof(tensors)))
        return NULL;
    memcpy(&head, at, sizeof(head));
    const char *from = at + sizeof(head);
    memcpy(tensors, from, sizeof(tensors));
    if (head.bytes > (uint64_t)(end - from) || head.bytes < sizeof(tensors))
        return NULL;
    const char *next = from + head.bytes;
    bool found = true;
    head.sum = 0;
    for (size_t c = 0; c < 2; c++)
        found = found && add_part(&from, next, sizeof(tensors[c]), &head.sum);
    for (size_t c = 0; c < 2 && found; c++) {
        uint64_t n = 8 * (uint64_t)tensors[c].shape[0];
        if (tensors[c].dtype == STAGER_STRING) {
            n *= (uint64_t)tensors[c].shape[1];
            found = add_part(&from, next, n, &head.sum) &&
                    add_part(&from, next, n, &head.sum);
        }
        found = found && add_part(&from, next, tensors[c].data_bytes, &head.sum);
    }
    if (found && head.has_rows != 0)
        found =
            add_part(&from, next, (uint64_t)head.n_rows * sizeof(struct stg_provenance),
                     &head.sum);
    head.head_sum =
        stg_fingerprint64_join(0, &head, offsetof(struct stg_cache_block, head_sum));
    memcpy(at, &head, sizeof(head));
    return found ? at + (next - at) : NULL;
}

/* Each string lies within the data, and all of it can be read. */
static uint64_t hash_tensor(uint64_t hash, const struct stg_tensor *tensor)
{
    for (int64_t i = 0; tensor->dtype == STAGER_STRING && i < stg_tensor_n(tensor); i++) {
        FUZZ_CHECK(tensor->begin[i] >= 0 && tensor->begin[i] <= tensor->end[i] &&
                   (uint64_t)tensor->end[i] <= tensor->data_bytes);
        hash = stg_fuzz_hash(hash, (const char *)tensor->data + tensor->begin[i],
                             (size_t)(tensor->end[i] - tensor->begin[i]));
    }
    return stg_fuzz_hash(hash, tensor->data, (size_t)tensor->data_bytes);
}

static uint64_t hash_block(uint64_t hash, const struct stg_block *block)
{
    FUZZ_CHECK(block->n_records >= 1 && block->n_components == 2);
    for (uint32_t c = 0; c < 2; c++) {
        FUZZ_CHECK(block->tensors[c].shape[0] == block->n_records);
        hash = hash_tensor(hash, &block->tensors[c]);
    }
    if (block->rows != NULL)
        hash = stg_fuzz_hash(hash, block->rows,
                             (size_t)block->n_rows * sizeof(block->rows[0]));
    return hash;
}

static uint64_t read_cache(const char *path, bool is_framed)
{
    struct stg_file_user user = {.uid = geteuid(), .gid = getegid()};
    struct stg_cache_reader *reader = NULL;
    struct stg_quota *quota;
    struct stg_err err = {0};
    uint64_t hash = 0;
    FUZZ_CHECK(stg_quota_create(BUDGET, &quota) == 0);
    int rc = stg_cache_open(path, &user, &cache_key, &reader, &err);
    FUZZ_CHECK_TEXT(rc == 0 || !is_framed, err.text);
    while (rc == 0) {
        struct stg_block *block = NULL;
        rc = stg_cache_read(reader, quota, &cache_schema, &block, &err);
        if (rc == 0)
            hash = hash_block(hash, block);
        stg_block_unref(block);
    }
    FUZZ_CHECK_TEXT(rc == 1 || strstr(err.text, path) != NULL, err.text);
    stg_cache_close(reader);
    stg_quota_unref(quota);
    return hash + (uint64_t)rc;
}

/* 0: the file follows. Else: so many blocks, which get a head, sums and a tail. */
static void run_cache(const uint8_t *data, size_t bytes)
{
    static struct cache_file file;
    if (bytes < 1 || bytes - 1 > sizeof(file.blocks))
        return;
    bool is_framed = data[0] != 0;
    size_t n = bytes - 1;
    char *end = file.blocks + n, *at = file.blocks;
    memcpy(file.blocks, data + 1, n);
    for (unsigned i = 0; i < data[0] && at != NULL; i++)
        at = seal_block(at, end);
    file.head = (struct stg_cache_head){.version = STG_CACHE_VERSION, .key = cache_key};
    memcpy(file.head.magic, STG_CACHE_MAGIC, sizeof(file.head.magic));
    file.head.sum =
        stg_fingerprint64_join(0, &file.head, offsetof(struct stg_cache_head, sum));
    struct stg_cache_tail tail = {.n_blocks = data[0], .bytes = sizeof(file.head) + n};
    memcpy(tail.magic, STG_CACHE_TAIL_MAGIC, sizeof(tail.magic));
    tail.sum = stg_fingerprint64_join(0, &tail, offsetof(struct stg_cache_tail, sum));
    memcpy(end, &tail, sizeof(tail));
    const char *path = is_framed
                           ? stg_fuzz_file(&file, sizeof(file.head) + n + sizeof(tail))
                           : stg_fuzz_file(file.blocks, n);
    uint64_t hash = read_cache(path, is_framed);
    FUZZ_CHECK(read_cache(path, is_framed) == hash);
}

/* Two records: a number, and a list of two strings each. */
static void seed_cache(void)
{
    static struct {
        struct stg_cache_block head;
        struct stg_cache_tensor tensors[2];
        _Alignas(64) int64_t numbers[2];
        _Alignas(64) int64_t begin[4];
        _Alignas(64) int64_t end[4];
        _Alignas(64) char text[64];
        struct stg_provenance rows[2];
        char fill[16];
    } block = {
        .head = {.bytes = sizeof(block) - sizeof(block.head),
                 .n_records = 2,
                 .n_rows = 2,
                 .n_components = 2,
                 .has_rows = 1},
        .tensors =
            {{.dtype = STAGER_INT64, .ndim = 1, .shape = {2}, .data_bytes = 16},
             {.dtype = STAGER_STRING, .ndim = 2, .shape = {2, 2}, .data_bytes = 7}},
        .numbers = {7, -1},
        .begin = {0, 2, 2, 5},
        .end = {2, 2, 5, 7},
        .text = "abcdefg",
    };
    static char twice[2 * sizeof(block)];
    memcpy(twice, &block, sizeof(block));
    memcpy(twice + sizeof(block), &block, sizeof(block));
    stg_fuzz_seed("cache", "\1", 1, &block, sizeof(block));
    stg_fuzz_seed("cache", "\2", 1, twice, sizeof(twice));
    stg_fuzz_seed("cache", "\0", 1, STG_CACHE_MAGIC, 8);
}

/* ---- the program ---- */

const struct stg_fuzz_mode stg_fuzz_modes[] = {
    {"formats", run_formats}, {"pipelines", run_pipelines},   {"streams", run_streams},
    {"pages", run_pages},     {"round_trip", run_round_trip}, {"cache", run_cache},
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
    seed_cache();
}
