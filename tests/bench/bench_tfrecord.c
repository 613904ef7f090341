/* SPDX-License-Identifier: Apache-2.0
 *
 * TFRecord, framing and checksums: records in memory through the kernels that this CPU
 * can run, compared with a plain read of the same bytes. Then from the page cache through
 * files, tfrecord and batches of 3 MB, compared with a read() of the file into one
 * buffer. Records of 725 bytes (a row of Criteo as tf.Example) and of 110 KB (an image).
 * The variants take turns, and the best round of each counts. Time is that of the thread
 * on a core.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "daemon/dataset/dataset.h"
#include "daemon/storage/codec/crc32c.h"
#include "tests/bench/bench.h"
#include "tests/bench/frame.h"

#define FILE_BYTES (48u << 20)
#define BATCH_BYTES (3u << 20)
#define MAX_RECORDS 65536
#define MAX_TABLES 4

struct input {
    uint64_t record_bytes;
    char *data;
    uint64_t bytes;
    int64_t n_records;
    char path[64];
};

static void input_init(struct input *input, uint64_t record_bytes)
{
    uint64_t frame = record_bytes + STG_FRAME_HEAD + STG_FRAME_TAIL, seed = 1;
    *input = (struct input){.record_bytes = record_bytes,
                            .n_records = (int64_t)(FILE_BYTES / frame)};
    input->bytes = frame * (uint64_t)input->n_records;
    input->data = aligned_alloc(64, (input->bytes + 63) & ~63ull);
    if (input->data == NULL)
        bench_die("out of memory");
    for (char *at = input->data; at < input->data + input->bytes;)
        at += bench_frame_random(at, record_bytes, &seed);
    strcpy(input->path, "/tmp/stg-tfrecord-XXXXXX");
    int fd = mkstemp(input->path);
    if (fd < 0 || write(fd, input->data, input->bytes) != (ssize_t)input->bytes)
        bench_die("%s: cannot be written", input->path);
    close(fd);
}

static void input_finish(struct input *input)
{
    unlink(input->path);
    free(input->data);
}

/* ---- measured work ---- */

static volatile uint64_t sink;

static void read_memory(const struct input *input)
{
    typedef uint64_t lanes __attribute__((vector_size(64)));
    const lanes *at = (const lanes *)input->data;
    const lanes *end = at + input->bytes / sizeof(lanes) / 4 * 4;
    lanes sums[4] = {{0}, {0}, {0}, {0}};
    for (; at < end; at += 4) {
        for (int k = 0; k < 4; k++)
            sums[k] ^= at[k];
    }
    lanes sum = sums[0] ^ sums[1] ^ sums[2] ^ sums[3];
    sink = sum[0] ^ sum[1] ^ sum[2] ^ sum[3] ^ sum[4] ^ sum[5] ^ sum[6] ^ sum[7];
}

static void walk(const struct input *input, const struct stg_crc32c_kernels *kernels)
{
    static int64_t begin[MAX_RECORDS], end[MAX_RECORDS];
    struct stg_frames frames = {.data = input->data,
                                .fill = input->bytes,
                                .max_record_bytes = 1 << 30,
                                .n_max = MAX_RECORDS};
    int64_t n = 0;
    while (frames.at < frames.fill) {
        enum stg_frame_fault fault;
        n += kernels->walk(&frames, begin, end, &frames.at, &fault);
        if (fault != STG_FRAME_NONE)
            bench_die("a frame is bad");
    }
    if (n != input->n_records)
        bench_die("%lld records", (long long)n);
}

/* One MiB at a time into a buffer that stays in the cache: the minimum for any reader. */
static void read_file(const struct input *input)
{
    static char buf[1 << 20];
    int fd = open(input->path, O_RDONLY | O_CLOEXEC);
    ssize_t n;
    uint64_t bytes = 0;
    while ((n = read(fd, buf, sizeof(buf))) > 0)
        bytes += (uint64_t)n;
    close(fd);
    if (bytes != input->bytes)
        bench_die("%s: was truncated", input->path);
}

static void run_dataset(const struct input *input)
{
    struct stg_value values[2] = {
        {.kind = STG_VALUE_STRING, .s = input->path, .s_bytes = strlen(input->path)},
        {.kind = STG_VALUE_INT, .i = (int64_t)(BATCH_BYTES / input->record_bytes)}};
    struct stg_attr attrs[2] = {
        {.name = "pattern", .n_values = 1, .values = &values[0]},
        {.name = "batch_size", .n_values = 1, .values = &values[1]}};
    struct stg_step steps[3] = {{.name = "files", .attrs = &attrs[0], .n_attrs = 1},
                                {.name = "tfrecord"},
                                {.name = "batch", .attrs = &attrs[1], .n_attrs = 1}};
    struct stg_pipeline_spec spec = {.steps = steps, .n_steps = 3};
    struct stg_dataset_env env = {.uid = 0};
    struct stg_dataset *dataset;
    struct stg_block *block;
    struct stg_err err = {0};
    int64_t n = 0;
    if (stg_dataset_create(&spec, &env, &dataset, &err) < 0)
        bench_die("%s", err.text);
    while (stg_dataset_next(dataset, &block, &err) == 0) {
        n += block->tensors[0].shape[0];
        stg_block_unref(block);
    }
    stg_dataset_destroy(dataset);
    if (n != input->n_records)
        bench_die("%lld records", (long long)n);
}

/* ---- rounds ---- */

struct result {
    uint64_t memory_ns, file_ns, dataset_ns, walk_ns[MAX_TABLES];
};

static void best(uint64_t *ns, uint64_t begin)
{
    uint64_t now = stg_thread_cpu_ns() - begin;
    if (*ns == 0 || now < *ns)
        *ns = now;
}

static struct result measure(const struct input *input, double seconds)
{
    struct result result = {0};
    size_t n;
    const struct stg_crc32c_kernels *const *tables = stg_crc32c_all(&n);
    uint64_t until = bench_now_ns() + (uint64_t)(seconds * 1e9);
    do {
        uint64_t begin = stg_thread_cpu_ns();
        read_memory(input);
        best(&result.memory_ns, begin);
        for (size_t k = 0; k < n; k++) {
            begin = stg_thread_cpu_ns();
            walk(input, tables[k]);
            best(&result.walk_ns[k], begin);
        }
        begin = stg_thread_cpu_ns();
        read_file(input);
        best(&result.file_ns, begin);
        begin = stg_thread_cpu_ns();
        run_dataset(input);
        best(&result.dataset_ns, begin);
    } while (bench_now_ns() < until);
    return result;
}

static double per_s(double n, uint64_t ns)
{
    return n * 1e9 / (double)ns;
}

static void report(const struct input *input, const struct result *result, bool json)
{
    size_t n;
    const struct stg_crc32c_kernels *const *tables = stg_crc32c_all(&n);
    double bytes = (double)input->bytes, rows = (double)input->n_records;
    uint64_t best_ns = result->walk_ns[n - 1];
    if (!json) {
        printf("records of %llu bytes: memory read %.1f GB/s, read() %.1f GB/s\n",
               (unsigned long long)input->record_bytes,
               per_s(bytes, result->memory_ns) / 1e9,
               per_s(bytes, result->file_ns) / 1e9);
        for (size_t k = 0; k < n; k++)
            printf("  framing + CRC, %s: %.1f GB/s, %.2f million rows/s\n",
                   tables[k]->name, per_s(bytes, result->walk_ns[k]) / 1e9,
                   per_s(rows, result->walk_ns[k]) / 1e6);
        printf("  files, tfrecord, batch: %.1f GB/s, %.2f million rows/s\n",
               per_s(bytes, result->dataset_ns) / 1e9,
               per_s(rows, result->dataset_ns) / 1e6);
        return;
    }
    printf("\"%llu\": {\"kernels\": \"%s\", \"bytes_per_s\": %.4g, \"rows_per_s\": %.4g, "
           "\"plain_bytes_per_s\": %.4g, \"memory_bytes_per_s\": %.4g, "
           "\"read_bytes_per_s\": %.4g, \"dataset_bytes_per_s\": %.4g, "
           "\"dataset_rows_per_s\": %.4g, \"ratio\": %.3f, \"ratio_dataset\": %.3f}",
           (unsigned long long)input->record_bytes, tables[n - 1]->name,
           per_s(bytes, best_ns), per_s(rows, best_ns), per_s(bytes, result->walk_ns[0]),
           per_s(bytes, result->memory_ns), per_s(bytes, result->file_ns),
           per_s(bytes, result->dataset_ns), per_s(rows, result->dataset_ns),
           (double)result->memory_ns / (double)best_ns,
           (double)result->file_ns / (double)result->dataset_ns);
}

int main(int argc, char **argv)
{
    struct bench_options options;
    bench_options_parse(argc, argv, 6,
                        "TFRecord framing and checksums against a bare memory read",
                        &options);
    static const uint64_t sizes[] = {725, 110000};
    if (options.json)
        printf("{\"bench\": \"tfrecord\", ");
    for (int i = 0; i < 2; i++) {
        struct input input;
        input_init(&input, sizes[i]);
        struct result result = measure(&input, options.seconds / 2);
        report(&input, &result, options.json);
        printf("%s", !options.json ? "" : i == 0 ? ", " : "}\n");
        input_finish(&input);
    }
    return 0;
}
