/* SPDX-License-Identifier: Apache-2.0
 *
 * Criteo-like lines in gzip, zstd and lz4 files in the page cache, decompressed in pieces
 * of 256 KiB like readers do. In the same run, the library alone decompresses the same
 * file in a plain loop with pieces of the same size. Also through text_line to batches of
 * lines. The variants take turns, and the best round of each counts. Rates are
 * decompressed bytes per second of CPU.
 */
#include <fcntl.h>
#include <isa-l/igzip_lib.h>
#include <lz4frame.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include "core/clock.h"
#include "daemon/dataset/dataset.h"
#include "daemon/storage/codec/decompress.h"
#include "tests/bench/bench.h"
#include "tests/bench/criteo.h"

#define N_ROWS (24 * CRITEO_BATCH_ROWS)
#define PIECE_BYTES (256 << 10)
#define GZIP_LEVEL 1
#define ZSTD_LEVEL 3

static uint8_t in[PIECE_BYTES], out[PIECE_BYTES];

/* ---- the libraries ---- */

static uint64_t gzip_compress(const uint8_t *data, uint64_t bytes, uint8_t *to,
                              uint64_t room)
{
    static uint8_t scratch[ISAL_DEF_LVL1_DEFAULT];
    struct isal_zstream stream;
    isal_deflate_stateless_init(&stream);
    stream.gzip_flag = IGZIP_GZIP;
    stream.level = GZIP_LEVEL;
    stream.level_buf = scratch;
    stream.level_buf_size = sizeof(scratch);
    stream.end_of_stream = 1;
    stream.next_in = (uint8_t *)(uintptr_t)data;
    stream.avail_in = (uint32_t)bytes;
    stream.next_out = to;
    stream.avail_out = (uint32_t)room;
    if (isal_deflate_stateless(&stream) != COMP_OK)
        bench_die("isa-l cannot compress");
    return stream.total_out;
}

static uint64_t gzip_alone(int fd)
{
    static struct inflate_state state;
    uint64_t made = 0;
    ssize_t n;
    isal_inflate_init(&state);
    state.crc_flag = ISAL_GZIP;
    while ((n = read(fd, in, sizeof(in))) > 0) {
        state.next_in = in;
        state.avail_in = (uint32_t)n;
        do {
            state.next_out = out;
            state.avail_out = sizeof(out);
            if (isal_inflate(&state) != ISAL_DECOMP_OK)
                bench_die("isa-l cannot decompress");
            made += sizeof(out) - state.avail_out;
        } while (state.avail_out == 0);
    }
    return made;
}

static uint64_t zstd_compress(const uint8_t *data, uint64_t bytes, uint8_t *to,
                              uint64_t room)
{
    size_t n = ZSTD_compress(to, room, data, bytes, ZSTD_LEVEL);
    if (ZSTD_isError(n))
        bench_die("libzstd cannot compress");
    return n;
}

static uint64_t zstd_alone(int fd)
{
    ZSTD_DStream *stream = ZSTD_createDStream();
    uint64_t made = 0;
    ssize_t n;
    while ((n = read(fd, in, sizeof(in))) > 0) {
        ZSTD_inBuffer from = {.src = in, .size = (size_t)n};
        ZSTD_outBuffer to;
        do {
            to = (ZSTD_outBuffer){.dst = out, .size = sizeof(out)};
            if (ZSTD_isError(ZSTD_decompressStream(stream, &to, &from)))
                bench_die("libzstd cannot decompress");
            made += to.pos;
        } while (from.pos < from.size || to.pos == to.size);
    }
    ZSTD_freeDStream(stream);
    return made;
}

static uint64_t lz4_compress(const uint8_t *data, uint64_t bytes, uint8_t *to,
                             uint64_t room)
{
    size_t n = LZ4F_compressFrame(to, room, data, bytes, NULL);
    if (LZ4F_isError(n))
        bench_die("liblz4 cannot compress");
    return n;
}

static uint64_t lz4_alone(int fd)
{
    LZ4F_dctx *context;
    uint64_t made = 0;
    ssize_t n;
    if (LZ4F_isError(LZ4F_createDecompressionContext(&context, LZ4F_VERSION)))
        bench_die("out of memory");
    while ((n = read(fd, in, sizeof(in))) > 0) {
        size_t at = 0, n_out;
        do {
            size_t n_in = (size_t)n - at;
            n_out = sizeof(out);
            if (LZ4F_isError(LZ4F_decompress(context, out, &n_out, in + at, &n_in, NULL)))
                bench_die("liblz4 cannot decompress");
            at += n_in;
            made += n_out;
        } while (at < (size_t)n || n_out == sizeof(out));
    }
    LZ4F_freeDecompressionContext(context);
    return made;
}

struct codec {
    const char *name;
    uint64_t (*compress)(const uint8_t *data, uint64_t bytes, uint8_t *to, uint64_t room);
    uint64_t (*alone)(int fd); /* decompressed bytes */
    char path[64];
    uint64_t bytes; /* of the file */
    double alone_bytes_per_s, bytes_per_s, lines_bytes_per_s;
};

/* ---- stager ---- */

/* The layer below every reader. */
static uint64_t layer(const struct codec *codec)
{
    struct stg_file_user identity = {.uid = getuid(), .gid = getgid()};
    const struct stg_storage *storage;
    struct stg_source *source;
    struct stg_quota *quota;
    const char *path;
    struct stg_err err = {0};
    if (stg_quota_create(64 << 20, &quota) < 0 ||
        stg_storage_find(codec->path, &storage, &path, &err) < 0 ||
        storage->open(path, &identity, &source, &err) < 0)
        bench_die("%s", err.text);
    struct stg_decompress_config config = {
        .type = codec->name, .path = codec->path, .quota = quota};
    if (stg_decompress_open(&config, &source, &err) < 0)
        bench_die("%s", err.text);
    uint64_t made = 0;
    int64_t n;
    while ((n = source->storage->read(source, made, out, sizeof(out), &err)) > 0)
        made += (uint64_t)n;
    if (n < 0)
        bench_die("%s", err.text);
    source->storage->close(source);
    stg_quota_unref(quota);
    return made;
}

static void lines(const struct codec *codec)
{
    struct stg_value values[2] = {
        {.kind = STG_VALUE_STRING, .s = codec->path, .s_bytes = strlen(codec->path)},
        {.kind = STG_VALUE_INT, .i = CRITEO_BATCH_ROWS}};
    struct stg_attr attrs[2] = {
        {.name = "pattern", .n_values = 1, .values = &values[0]},
        {.name = "batch_size", .n_values = 1, .values = &values[1]}};
    struct stg_step steps[3] = {{.name = "files", .attrs = &attrs[0], .n_attrs = 1},
                                {.name = "text_line"},
                                {.name = "batch", .attrs = &attrs[1], .n_attrs = 1}};
    struct stg_pipeline_spec spec = {.steps = steps, .n_steps = 3};
    struct stg_dataset_env env = {.uid = getuid(), .gid = getgid()};
    struct stg_dataset *dataset;
    struct stg_block *block;
    struct stg_err err = {0};
    int64_t n = 0;
    if (stg_dataset_create(&spec, &env, &dataset, &err) < 0)
        bench_die("%s", err.text);
    while (stg_dataset_next(dataset, &block, &err) == 0) {
        n += block->n_rows;
        stg_block_unref(block);
    }
    stg_dataset_destroy(dataset);
    if (n != N_ROWS)
        bench_die("%s: %lld lines", codec->path, (long long)n);
}

/* ---- rounds ---- */

/* Of all threads: a separate thread decompresses a large file. */
static void best_of(double *best, uint64_t bytes, uint64_t began)
{
    double rate = (double)bytes * 1e9 / (double)(stg_process_cpu_ns() - began);
    *best = rate > *best ? rate : *best;
}

static void run_once(struct codec *codec, uint64_t bytes)
{
    uint64_t began = stg_process_cpu_ns();
    int fd = open(codec->path, O_RDONLY | O_CLOEXEC);
    if (codec->alone(fd) != bytes)
        bench_die("%s alone: not all came out", codec->name);
    close(fd);
    best_of(&codec->alone_bytes_per_s, bytes, began);
    began = stg_process_cpu_ns();
    if (layer(codec) != bytes)
        bench_die("%s: not all came out", codec->name);
    best_of(&codec->bytes_per_s, bytes, began);
    began = stg_process_cpu_ns();
    lines(codec);
    best_of(&codec->lines_bytes_per_s, bytes, began);
}

static void write_compressed(struct codec *codec, const uint8_t *data, uint64_t bytes)
{
    uint64_t room = bytes + (bytes >> 3) + (1 << 20);
    uint8_t *to = malloc(room);
    if (to == NULL)
        bench_die("out of memory");
    codec->bytes = codec->compress(data, bytes, to, room);
    strcpy(codec->path, "/tmp/stg-bench-XXXXXX");
    int fd = mkstemp(codec->path);
    if (fd < 0 || write(fd, to, codec->bytes) != (ssize_t)codec->bytes)
        bench_die("%s: cannot be written", codec->path);
    close(fd);
    free(to);
}

static uint8_t *make_lines(uint64_t *ret_bytes)
{
    uint8_t *data = malloc((size_t)N_ROWS * CRITEO_MAX_ROW_BYTES);
    uint64_t state = 20240607, at = 0;
    if (data == NULL)
        bench_die("out of memory");
    for (int i = 0; i < N_ROWS; i++) {
        at += criteo_row(&state, ',', (char *)data + at);
        data[at++] = '\n';
    }
    *ret_bytes = at;
    return data;
}

int main(int argc, char **argv)
{
    struct bench_options options;
    bench_options_parse(argc, argv, 4.0,
                        "Compressed lines, decompressed beside the library alone",
                        &options);
    struct codec codecs[] = {
        {.name = "gzip", .compress = gzip_compress, .alone = gzip_alone},
        {.name = "zstd", .compress = zstd_compress, .alone = zstd_alone},
        {.name = "lz4", .compress = lz4_compress, .alone = lz4_alone}};
    size_t n = sizeof(codecs) / sizeof(codecs[0]);
    uint64_t bytes;
    uint8_t *data = make_lines(&bytes);
    for (size_t i = 0; i < n; i++)
        write_compressed(&codecs[i], data, bytes);
    free(data);
    uint64_t end = bench_now_ns() + (uint64_t)(options.seconds * 1e9);
    do {
        for (size_t i = 0; i < n; i++)
            run_once(&codecs[i], bytes);
    } while (bench_now_ns() < end);

    for (size_t i = 0; i < n; i++) {
        const struct codec *c = &codecs[i];
        printf("%s, %.2f of its size: alone %.0f MB/s, here %.0f (%.3f), as lines %.0f "
               "(%.3f)\n",
               c->name, (double)c->bytes / (double)bytes, c->alone_bytes_per_s / 1e6,
               c->bytes_per_s / 1e6, c->bytes_per_s / c->alone_bytes_per_s,
               c->lines_bytes_per_s / 1e6, c->lines_bytes_per_s / c->alone_bytes_per_s);
        unlink(c->path);
    }
    if (options.json) {
        printf("{\"bench\": \"codecs\"");
        for (size_t i = 0; i < n; i++) {
            const struct codec *c = &codecs[i];
            printf(", \"%s_alone_bytes_per_s\": %.0f, \"%s_ratio\": %.3f, "
                   "\"%s_lines_ratio\": %.3f",
                   c->name, c->alone_bytes_per_s, c->name,
                   c->bytes_per_s / c->alone_bytes_per_s, c->name,
                   c->lines_bytes_per_s / c->alone_bytes_per_s);
        }
        printf("}\n");
    }
    return 0;
}
