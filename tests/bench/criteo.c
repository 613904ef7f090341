/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/criteo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench/bench.h"

/* In percent, of criteo_sample.txt. */
static const uint8_t empty_numbers[CRITEO_NUMBERS] = {45, 0, 17, 17, 3,  26, 5,
                                                      0,  5, 45, 5,  79, 17};
static const uint8_t empty_strings[CRITEO_STRINGS] = {
    0, 0, 4, 4, 0, 16, 0, 0, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 41, 41, 4, 80, 0, 4, 41, 41};
/* The numbers are below a power of ten, drawn up to this exponent. */
static const uint8_t digits[CRITEO_NUMBERS] = {2, 3, 3, 2, 6, 3, 2, 2, 3, 1, 2, 1, 2};

/* Begin and end of a string in memory. */
#define CRITEO_OFFSET_BYTES 16u

static uint64_t random_below(uint64_t *state, uint64_t n)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (*state >> 11) % n;
}

size_t criteo_row(uint64_t *state, char delim, char *to)
{
    size_t at = (size_t)sprintf(to, "%d", random_below(state, 100) < 26);
    for (int i = 0; i < CRITEO_NUMBERS; i++) {
        to[at++] = delim;
        if (random_below(state, 100) < empty_numbers[i])
            continue;
        unsigned limit = 1;
        for (uint64_t d = 1 + random_below(state, digits[i]); d > 0; d--)
            limit *= 10;
        int value = (int)random_below(state, limit);
        /* The second one is written as an integer, and may be -1. */
        at += (size_t)(i == 1 ? sprintf(to + at, "%d",
                                        random_below(state, 10) == 0 ? -1 : value)
                              : sprintf(to + at, "%d.0", value));
    }
    for (int i = 0; i < CRITEO_STRINGS; i++) {
        to[at++] = delim;
        if (random_below(state, 100) >= empty_strings[i])
            at += (size_t)sprintf(to + at, "%08x",
                                  (unsigned)random_below(state, 1ull << 32));
    }
    return at;
}

struct stg_tensor criteo_records(struct stg_bump *bump, int64_t max_rows,
                                 uint64_t max_bytes)
{
    uint64_t state = 1, bytes = 0;
    int64_t n = 0, most = (int64_t)(max_bytes / 32) + 1;
    char *data = stg_bump_alloc(bump, max_bytes + CRITEO_MAX_ROW_BYTES);
    int64_t *offsets = stg_bump_alloc(bump, ((size_t)most + 1) * sizeof(*offsets));
    if (data == NULL || offsets == NULL)
        bench_die("out of memory");
    for (; n < max_rows && bytes + CRITEO_OFFSET_BYTES * (uint64_t)n < max_bytes; n++) {
        bytes += criteo_row(&state, ',', data + bytes);
        offsets[n + 1] = (int64_t)bytes;
    }
    return (struct stg_tensor){.dtype = STAGER_STRING,
                               .ndim = 1,
                               .shape = {n},
                               .data = data,
                               .data_bytes = bytes,
                               .begin = offsets,
                               .end = offsets + 1};
}

uint64_t criteo_write(size_t n_rows, char delim, const char *path)
{
    FILE *file = fopen(path, "w");
    if (file == NULL)
        bench_die("cannot make %s", path);
    uint64_t state = 20240607, bytes = 0;
    char row[CRITEO_MAX_ROW_BYTES];
    for (size_t i = 0; i < n_rows; i++) {
        size_t n = criteo_row(&state, delim, row);
        row[n++] = '\n';
        bytes += fwrite(row, 1, n, file);
    }
    if (fclose(file) != 0)
        bench_die("cannot write %s", path);
    return bytes;
}

uint64_t criteo_file(size_t n_rows, char delim, char *path)
{
    strcpy(path, "/tmp/stg-bench-XXXXXX");
    int fd = mkstemp(path);
    if (fd < 0)
        bench_die("cannot make a file in /tmp");
    close(fd);
    return criteo_write(n_rows, delim, path);
}

void criteo_nodes(const char *input, int n_buckets, FILE *to)
{
    fprintf(to,
            "  - {name: columns, op: decode_csv, input: [\"%s\"], record_defaults: [0",
            input);
    for (int i = 0; i < CRITEO_NUMBERS; i++)
        fprintf(to, ", 0.0");
    for (int i = 0; i < CRITEO_STRINGS; i++)
        fprintf(to, ", \"\"");
    fprintf(to, "]}\n");
    for (int i = 0; i < CRITEO_STRINGS; i++)
        fprintf(to,
                "  - {name: ids%d, op: string_to_hash_bucket_fast, "
                "input: [\"columns:%d\"], num_buckets: %d}\n",
                i, CRITEO_NUMBERS + 1 + i, n_buckets);
}

void criteo_pipeline(const char *name, const char *path, const char *repeat,
                     const char *staged, char *to)
{
    FILE *file = fmemopen(to, CRITEO_PIPELINE_BYTES, "w");
    if (file == NULL)
        bench_die("no memory for the text of a pipeline");
    fprintf(file,
            "name: %s\ndataset:\n  - files: {pattern: [%s]}\n  - text_line: {}\n"
            "  - repeat: %s\n  - batch: {batch_size: %d}\ngraph:\n",
            name, path, repeat, CRITEO_BATCH_ROWS);
    criteo_nodes("record", 1000000, file);
    fprintf(file, "staged: {%s, max_batch_bytes: 2MiB, features: {label: \"columns:0\"",
            staged);
    for (int i = 0; i < CRITEO_NUMBERS; i++)
        fprintf(file, ", I%d: \"columns:%d\"", i + 1, i + 1);
    for (int i = 0; i < CRITEO_STRINGS; i++)
        fprintf(file, ", C%d: ids%d", i + 1, i);
    fprintf(file, "}}\n");
    if (fclose(file) != 0)
        bench_die("the text of pipeline %s is too long", name);
}
