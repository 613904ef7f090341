/* SPDX-License-Identifier: Apache-2.0
 *
 * A damaged file among good ones, with `ignore_errors` and little memory. Each byte of
 * its beginning takes values that make the sizes in it large. The pass runs to its end
 * and yields every record of the good files.
 */
#include <isa-l/crc.h>
#include <isa-l/igzip_lib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"
#include "tests/daemon/format/golden_tfrecord.h"
#include "tests/daemon/storage/golden_compressed.h"
#include "tests/daemon/storage/golden_snappy.h"

#define BUDGET ((uint64_t)8 << 20)
#define ZSTD_BUDGET ((uint64_t)16 << 20) /* its window is 2 MiB */
#define N_BYTES 48u                      /* damaged bytes of a file */

/* ---- files ---- */

static char large[BUDGET];
static uint64_t budget = BUDGET;

static size_t make_npy(char *to)
{
    static const char text[] = "{'descr': '<f4', 'fortran_order': False, "
                               "'shape': (5, 3), }";
    memset(to, ' ', 128);
    memcpy(to, "\x93NUMPY\x01\0\x76\0", 10);
    memcpy(to + 10, text, sizeof(text) - 1);
    to[127] = '\n';
    memset(to + 128, 0, 60);
    return 128 + 60;
}

static void seal(char *header)
{
    unsigned sum = 0;
    memset(header + 148, ' ', 8);
    for (int i = 0; i < 512; i++)
        sum += (unsigned char)header[i];
    snprintf(header + 148, 8, "%06o", sum);
}

static size_t make_tar(char *to, const char *size)
{
    memset(to, 0, 4 * 512);
    strcpy(to, "sample.txt");
    memcpy(to + 124, size, strlen(size));
    memcpy(to + 257,
           "ustar\0"
           "00",
           8);
    to[156] = '0';
    memcpy(to + 512, "hello", 5);
    seal(to);
    return 4 * 512;
}

/* ---- passes ---- */

/* Returns the output of a pass; ends the test on failure. */
static int64_t count_records(const char *steps, const char *what)
{
    char text[1024];
    struct stg_pipeline_spec *spec;
    struct stg_dataset_env env = stg_test_env();
    struct stg_err err = {0};
    struct stg_block *block;
    int64_t n = 0;
    int rc;
    env.buffer_bytes = budget;
    snprintf(text, sizeof(text),
             "dataset:\n- files: {pattern: $DIR/f-*, shuffle: false}\n%s\n"
             "- ignore_errors: {max_ignored: 1000000, log_warning: false}\n",
             steps);
    struct stg_dataset *dataset = stg_test_open_text(text, &env, &spec);
    while ((rc = stg_dataset_next(dataset, &block, &err)) == 0) {
        n += block->n_records;
        stg_block_unref(block);
    }
    if (rc < 0)
        FAIL("%s, %s: the pass ended: %d: %s", steps, what, rc, err.text);
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
    return n;
}

/* Writes two good files. Returns the number of their records. */
static int64_t put_good(const char *steps, const void *good, size_t bytes)
{
    stg_test_file("f-1", good, bytes);
    unlink(stg_test_path("f-2"));
    stg_test_file("f-3", good, bytes);
    int64_t n = count_records(steps, "good files");
    if (n == 0)
        FAIL("%s: good files have no records", steps);
    return n;
}

/* Puts a damaged file between them, as long as a declared size may require. */
static void check_bad(const char *steps, int64_t want, const void *bad, size_t bytes,
                      uint64_t padded, const char *what)
{
    const char *path = stg_test_file("f-2", bad, bytes);
    CHECK(padded <= bytes || truncate(path, (off_t)padded) == 0);
    int64_t n = count_records(steps, what);
    if (n < want)
        FAIL("%s, %s: %lld records instead of %lld", steps, what, (long long)n,
             (long long)want);
}

static void sweep(const char *steps, const void *good, size_t bytes)
{
    static const unsigned char values[] = {0x00, 0x01, 0x3f, 0x7f, 0xff};
    int64_t want = put_good(steps, good, bytes);
    char what[64];
    memcpy(large, good, bytes);
    for (size_t i = 0; i < N_BYTES && i < bytes; i++) {
        for (size_t k = 0; k < sizeof(values); k++) {
            char was = large[i];
            large[i] = (char)values[k];
            snprintf(what, sizeof(what), "byte %zu is %d", i, values[k]);
            check_bad(steps, want, large, bytes, bytes + (3u << 20), what);
            large[i] = was;
        }
    }
}

/* ---- codecs ---- */

static void a_size_in_a_compressed_file_costs_that_file(void)
{
    static const struct {
        const char *type;
        const void *data;
        size_t bytes;
    } kinds[] = {{"gzip", text_gzip, sizeof(text_gzip)},
                 {"zlib", text_zlib, sizeof(text_zlib)},
                 {"zstd", text_zstd, sizeof(text_zstd)},
                 {"lz4", text_lz4, sizeof(text_lz4)},
                 {"snappy", text_snappy, sizeof(text_snappy)},
                 {"snappy", text_framed, sizeof(text_framed)}};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        char steps[128];
        snprintf(steps, sizeof(steps), "- text_line: {compression_type: %s}",
                 kinds[i].type);
        budget = strcmp(kinds[i].type, "zstd") == 0 ? ZSTD_BUDGET : BUDGET;
        sweep(steps, kinds[i].data, kinds[i].bytes);
    }
    sweep("- tfrecord: {compression_type: SNAPPY}", golden_snappy, sizeof(golden_snappy));
}

/* Like the files of TensorFlow's writer: only the length is damaged. */
static void a_length_of_snappy_costs_that_file(void)
{
    static const uint32_t lengths[] = {1u << 20,        (1u << 20) + 1, 3u << 20,
                                       BUDGET,          32u << 20,      64u << 20,
                                       (64u << 20) + 1, UINT32_MAX};
    const char *steps = "- tfrecord: {compression_type: SNAPPY}";
    int64_t want = put_good(steps, golden_snappy, sizeof(golden_snappy));
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        memcpy(large, golden_snappy, sizeof(golden_snappy));
        for (int k = 0; k < 4; k++)
            large[k] = (char)(lengths[i] >> (24 - 8 * k));
        check_bad(steps, want, large, sizeof(golden_snappy), 9u << 20, "a length");
    }
}

/* ---- formats ---- */

static void a_size_in_a_file_of_records_costs_that_file(void)
{
    char file[4096];
    size_t n = make_npy(file);
    sweep("- npy: {dtype: float32, shape: [-1]}", file, n);
    sweep("- tfrecord", golden_plain, sizeof(golden_plain));
    n = make_tar(file, "00000000005");
    sweep("- tar: {parts: [txt]}", file, n);
}

static void a_size_of_a_member_costs_that_member(void)
{
    static const char *const sizes[] = {"00005000000", "00077777777", "37777777777",
                                        "77777777777", "\x80\0\0\0\x7f\xff\xff\xff"};
    char file[4096];
    size_t n = make_tar(file, "00000000005");
    const char *steps = "- tar: {parts: [txt]}";
    int64_t want = put_good(steps, file, n);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        make_tar(file, sizes[i]);
        check_bad(steps, want, file, n, BUDGET / 2, "a size");
    }
}

static void a_record_without_an_end_costs_itself(void)
{
    static const char *const steps[] = {"- text_line", "- read_file", "- csv", "- jsonl"};
    static const char good[] = "{\"a\": \"b\"}\n";
    memset(large, 'x', BUDGET);
    large[0] = '"';
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
        check_bad(steps[i], put_good(steps[i], good, sizeof(good) - 1), large, BUDGET, 0,
                  "one record");
}

/* ---- sizes inside records ---- */

static void put32(char *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (char)(value >> (24 - 8 * i));
}

static size_t put_chunk(char *to, const char *type, const void *data, uint32_t bytes)
{
    put32(to, bytes);
    memcpy(to + 4, type, 4);
    memmove(to + 8, data, bytes);
    put32(to + 8 + bytes, crc32_gzip_refl(0, (unsigned char *)to + 4, bytes + 4));
    return bytes + 12;
}

/* A gray image of zeros. */
static size_t make_png(char *to, uint32_t side)
{
    uint32_t bytes = side * (side + 1);
    unsigned char *zeros = calloc(1, bytes), *packed = malloc(bytes + 1024);
    struct isal_zstream stream;
    char head[13] = {[8] = 8};
    CHECK(zeros != NULL && packed != NULL);
    isal_deflate_stateless_init(&stream);
    stream.next_in = zeros;
    stream.avail_in = bytes;
    stream.next_out = packed;
    stream.avail_out = bytes + 1024;
    stream.end_of_stream = 1;
    stream.gzip_flag = IGZIP_ZLIB;
    CHECK(isal_deflate_stateless(&stream) == COMP_OK);
    put32(head, side);
    put32(head + 4, side);
    size_t n = 8;
    memcpy(to, "\x89PNG\r\n\x1a\n", n);
    n += put_chunk(to + n, "IHDR", head, sizeof(head));
    n += put_chunk(to + n, "IDAT", packed, stream.total_out);
    n += put_chunk(to + n, "IEND", "", 0);
    free(zeros);
    free(packed);
    return n;
}

static void an_image_that_the_dataset_has_no_room_for_costs_itself(void)
{
    static const char *const hows[] = {"", ", num_parallel_calls: 2"};
    char good[4096], steps[256];
    size_t n_good = make_png(good, 2), n_bad = make_png(large, 4000);
    for (size_t i = 0; i < 2; i++) {
        snprintf(steps, sizeof(steps),
                 "- read_file\n- map: {graph: {image: {op: decode_image, input: bytes}}, "
                 "output: image%s}",
                 hows[i]);
        check_bad(steps, put_good(steps, good, n_good), large, n_bad, 0,
                  "an image of 4000 x 4000");
    }
}

static const struct stg_test tests[] = {
    TEST_SLOW(a_size_in_a_compressed_file_costs_that_file, 120),
    TEST_SLOW(a_length_of_snappy_costs_that_file, 60),
    TEST_SLOW(a_size_in_a_file_of_records_costs_that_file, 120),
    TEST_SLOW(a_size_of_a_member_costs_that_member, 60),
    TEST_SLOW(a_record_without_an_end_costs_itself, 60),
    TEST_SLOW(an_image_that_the_dataset_has_no_room_for_costs_itself, 60),
};
TEST_MAIN(tests)
