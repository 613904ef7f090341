/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/criteo_example.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/bench.h"
#include "tests/bench/criteo.h"
#include "tests/bench/frame.h"

#define N_COLUMNS (1 + CRITEO_NUMBERS + CRITEO_STRINGS)

/* ---- records ---- */

static size_t put_length(uint8_t *to, size_t n)
{
    size_t at = 0;
    for (; n > 0x7f; n >>= 7)
        to[at++] = (uint8_t)(n | 0x80);
    to[at++] = (uint8_t)n;
    return at;
}

static size_t put_field(uint8_t *to, int field, const uint8_t *s, size_t n)
{
    to[0] = (uint8_t)(field << 3 | 2);
    size_t at = 1 + put_length(to + 1, n);
    memcpy(to + at, s, n);
    return at + n;
}

/* The entry of a feature with one text value. */
static size_t put_entry(uint8_t *to, int column, const char *text)
{
    uint8_t value[16], list[32], feature[48], entry[80];
    char name[16] = "label";
    bool is_string = column > CRITEO_NUMBERS;
    if (column > 0)
        snprintf(name, sizeof(name), "%c%d", is_string ? 'C' : 'I',
                 is_string ? column - CRITEO_NUMBERS : column);
    size_t n = strlen(text);
    memcpy(value, text, n);
    if (!is_string)
        n = put_length(value, (size_t)strtoul(text, NULL, 10));
    n = put_field(list, 1, value, n);
    size_t n_feature = put_field(feature, is_string ? 1 : 3, list, n);
    n = put_field(entry, 1, (const uint8_t *)name, strlen(name));
    n += put_field(entry + n, 2, feature, n_feature);
    return put_field(to, 1, entry, n);
}

size_t criteo_example(uint64_t *state, bool shuffled, uint8_t *to)
{
    char row[CRITEO_MAX_ROW_BYTES + 1], *rest = row, *columns[N_COLUMNS];
    uint8_t features[CRITEO_MAX_EXAMPLE_BYTES];
    int order[N_COLUMNS];
    row[criteo_row(state, ',', row)] = '\0';
    for (int c = 0; c < N_COLUMNS; c++) {
        columns[c] = strsep(&rest, ",");
        order[c] = c;
    }
    for (int c = N_COLUMNS - 1; shuffled && c > 0; c--) {
        int other = rand() % (c + 1), swap = order[c];
        order[c] = order[other];
        order[other] = swap;
    }
    size_t n = 0;
    for (int c = 0; c < N_COLUMNS; c++) {
        if (*columns[order[c]] != '\0' && *columns[order[c]] != '-')
            n += put_entry(features + n, order[c], columns[order[c]]);
    }
    return put_field(to, 1, features, n);
}

/* ---- files ---- */

uint64_t criteo_example_file(size_t n_rows, const char *path)
{
    FILE *file = fopen(path, "w");
    if (file == NULL)
        bench_die("cannot make %s", path);
    uint64_t state = 20240607, bytes = 0;
    uint8_t frame[STG_FRAME_HEAD + CRITEO_MAX_EXAMPLE_BYTES + STG_FRAME_TAIL];
    for (size_t i = 0; i < n_rows; i++) {
        size_t n = criteo_example(&state, false, frame + STG_FRAME_HEAD);
        bytes += fwrite(frame, 1, bench_frame(frame, n), file);
    }
    if (fclose(file) != 0)
        bench_die("cannot write %s", path);
    return bytes;
}

/* ---- pipelines ---- */

void criteo_example_pipeline(const char *name, const char *path, bool hashed,
                             const char *staged, char *to)
{
    FILE *file = fmemopen(to, CRITEO_PIPELINE_BYTES, "w");
    if (file == NULL)
        bench_die("no memory for the text of a pipeline");
    fprintf(file,
            "name: %s\ndataset:\n  - files: {pattern: [%s]}\n  - tfrecord: {}\n"
            "  - repeat: {}\n  - batch: {batch_size: %d}\ngraph:\n"
            "  - {name: p, op: parse_example, input: [record], features: {label: {dtype: "
            "int64}",
            name, path, CRITEO_BATCH_ROWS);
    for (int i = 1; i <= CRITEO_NUMBERS; i++)
        fprintf(file, ", I%d: {dtype: int64, default_value: 0}", i);
    for (int i = 1; i <= CRITEO_STRINGS; i++)
        fprintf(file, ", C%d: {dtype: string, default_value: \"\"}", i);
    fprintf(file, "}}\n");
    for (int i = 1; hashed && i <= CRITEO_STRINGS; i++)
        fprintf(file,
                "  - {name: h%d, op: string_to_hash_bucket_fast, input: [\"p:C%d\"], "
                "num_buckets: 1000000}\n",
                i, i);
    fprintf(file, "staged: {%s, max_batch_bytes: 4MiB, features: {label: \"p:label\"",
            staged);
    for (int i = 1; i <= CRITEO_NUMBERS; i++)
        fprintf(file, ", I%d: \"p:I%d\"", i, i);
    for (int i = 1; i <= CRITEO_STRINGS; i++)
        fprintf(file, hashed ? ", C%d: h%d" : ", C%d: \"p:C%d\"", i, i);
    fprintf(file, "}}\n");
    if (fclose(file) != 0)
        bench_die("the text of pipeline %s is too long", name);
}
