/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/daemon/format/parquet_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "tests/daemon/format/thrift_write.h"

#define MAX_ENTRY 64
#define IS_NULL UINT32_MAX

enum { PLAIN = 0, RLE = 3, RLE_DICTIONARY = 8 };
enum { INT64 = 2, BYTE_ARRAY = 6 };

struct chunk {
    int64_t dictionary, data; /* offsets; dictionary 0: none */
    int64_t bytes;
    int n_rows;
};

struct writing {
    const struct stg_test_table *table;
    uint64_t state;
    FILE *to;
};

static uint64_t draw(struct writing *w, uint64_t below)
{
    w->state = w->state * 6364136223846793005ull + 1442695040888963407ull;
    return (w->state >> 33) % below;
}

/* ---- values ---- */

static void put_string(FILE *to, int column, uint64_t i,
                       int (*entry)(int column, uint64_t i, char *to))
{
    char text[MAX_ENTRY];
    uint32_t bytes = (uint32_t)entry(column, i, text);
    fwrite(&bytes, 1, sizeof(bytes), to);
    fwrite(text, 1, bytes, to);
}

/* Runs of equal values and packed ones, as they are drawn. */
static void put_runs(struct writing *w, FILE *to, const uint32_t *values, int n,
                     unsigned width)
{
    for (int i = 0; i < n;) {
        int same = 1;
        while (i + same < n && values[i + same] == values[i])
            same++;
        if (same >= 8 || i + 8 > n) {
            put_varint(to, (uint64_t)same << 1);
            fwrite(&values[i], 1, (width + 7) / 8, to);
            i += same;
            continue;
        }
        int groups = 1 + (int)draw(w, 70);
        groups = groups > (n - i) / 8 ? (n - i) / 8 : groups;
        put_varint(to, (uint64_t)groups << 1 | 1);
        uint64_t word = 0;
        unsigned filled = 0;
        for (int k = 0; k < groups * 8; k++, i++) {
            word |= (uint64_t)values[i] << filled;
            for (filled += width; filled >= 8; filled -= 8, word >>= 8)
                fputc((int)(word & 255), to);
        }
    }
}

static void put_levels(struct writing *w, FILE *to, const uint32_t *rows, int n)
{
    uint32_t *levels = malloc((size_t)n * sizeof(*levels));
    char *text = NULL;
    size_t bytes;
    FILE *runs = open_memstream(&text, &bytes);
    for (int i = 0; i < n; i++)
        levels[i] = rows[i] != IS_NULL;
    put_runs(w, runs, levels, n, 1);
    fclose(runs);
    uint32_t length = (uint32_t)bytes;
    fwrite(&length, 1, sizeof(length), to);
    fwrite(text, 1, bytes, to);
    free(text);
    free(levels);
}

/* ---- pages ---- */

static void put_page(FILE *to, int type, int n, int encoding, const char *data,
                     size_t bytes)
{
    put_int(to, 1, I32, type);
    put_int(to, 1, I32, (int64_t)bytes);
    put_int(to, 1, I32, (int64_t)bytes);
    put_head(to, type == 2 ? 4 : 2, STRUCT);
    put_int(to, 1, I32, n);
    put_int(to, 1, I32, encoding);
    if (type != 2) {
        put_int(to, 1, I32, RLE);
        put_int(to, 1, I32, RLE);
    }
    put_end(to);
    put_end(to);
    fwrite(data, 1, bytes, to);
}

static void put_strings_page(struct writing *w, int column, const uint32_t *rows, int n,
                             unsigned width)
{
    char *text = NULL;
    size_t bytes;
    FILE *page = open_memstream(&text, &bytes);
    uint32_t *present = malloc((size_t)n * sizeof(*present));
    int n_present = 0;
    put_levels(w, page, rows, n);
    for (int i = 0; i < n; i++) {
        if (rows[i] == IS_NULL)
            continue;
        present[n_present++] = rows[i];
        if (width == 0)
            put_string(page, column, rows[i], w->table->entry);
    }
    if (width > 0) {
        fputc((int)width, page);
        put_runs(w, page, present, n_present, width);
    }
    fclose(page);
    put_page(w->to, 0, n, width > 0 ? RLE_DICTIONARY : PLAIN, text, bytes);
    free(present);
    free(text);
}

/* Entries of another group are others, in part. rows: numbers of entries behind
 * `first`. */
static struct chunk put_strings(struct writing *w, int column, int n)
{
    const struct stg_test_table *table = w->table;
    int n_entries = 1 + (int)draw(w, (uint64_t)table->n_entries);
    uint32_t *rows = malloc((size_t)n * sizeof(*rows));
    struct chunk ret = {.data = ftell(w->to), .n_rows = n};
    unsigned width = 1;
    bool is_long = draw(w, 3) == 0;
    while (n_entries >> width != 0)
        width++;
    for (int i = 0; i < n; i++) {
        bool again = is_long && i > 0 && draw(w, 10) != 0;
        rows[i] = again ? rows[i - 1] : (uint32_t)draw(w, (uint64_t)n_entries);
        if (table->has_nulls && draw(w, 5) == 0)
            rows[i] = IS_NULL;
    }
    if (table->has_dictionaries) {
        char *text = NULL;
        size_t bytes;
        FILE *page = open_memstream(&text, &bytes);
        for (int i = 0; i < n_entries; i++)
            put_string(page, column, (uint64_t)i, table->entry);
        fclose(page);
        ret.dictionary = ret.data;
        put_page(w->to, 2, n_entries, PLAIN, text, bytes);
        ret.data = ftell(w->to);
        free(text);
    }
    int plain_from = table->falls_back && draw(w, 2) == 0 ? (int)draw(w, (uint64_t)n) : n;
    for (int at = 0; at < n;) {
        int now = 1 + (int)draw(w, (uint64_t)n);
        now = now > n - at ? n - at : now;
        bool coded = table->has_dictionaries && at < plain_from;
        put_strings_page(w, column, rows + at, now, coded ? width : 0);
        at += now;
    }
    int64_t begin = ret.dictionary != 0 ? ret.dictionary : ret.data;
    ret.bytes = ftell(w->to) - begin;
    free(rows);
    return ret;
}

static struct chunk put_numbers(struct writing *w, int64_t first, int n)
{
    struct chunk ret = {.data = ftell(w->to), .n_rows = n};
    int64_t *values = malloc((size_t)n * sizeof(*values));
    for (int i = 0; i < n; i++)
        values[i] = first + i;
    put_page(w->to, 0, n, PLAIN, (const char *)values, (size_t)n * sizeof(*values));
    ret.bytes = ftell(w->to) - ret.data;
    free(values);
    return ret;
}

/* ---- the footer ---- */

static void put_schema(FILE *to, int n_strings)
{
    put_list(to, 1, STRUCT, n_strings + 2);
    put_text(to, 4, "root");
    put_int(to, 1, I32, n_strings + 1);
    put_end(to);
    for (int c = -1; c < n_strings; c++) {
        char name[16] = "id";
        if (c >= 0)
            snprintf(name, sizeof(name), "s%d", c);
        put_int(to, 1, I32, c < 0 ? INT64 : BYTE_ARRAY);
        put_int(to, 2, I32, c >= 0);
        put_text(to, 1, name);
        put_end(to);
    }
}

static void put_chunk(FILE *to, int column, const struct chunk *chunk)
{
    int64_t begin = chunk->dictionary != 0 ? chunk->dictionary : chunk->data;
    put_int(to, 2, I64, begin);
    put_head(to, 1, STRUCT);
    put_int(to, 1, I32, column < 0 ? INT64 : BYTE_ARRAY);
    put_list(to, 1, I32, 1);
    put_varint(to, PLAIN);
    put_list(to, 1, 8, 1);
    char name[16] = "id";
    if (column >= 0)
        snprintf(name, sizeof(name), "s%d", column);
    put_varint(to, strlen(name));
    fputs(name, to);
    put_int(to, 1, I32, 0);
    put_int(to, 1, I64, chunk->n_rows);
    put_int(to, 1, I64, chunk->bytes);
    put_int(to, 1, I64, chunk->bytes);
    put_int(to, 2, I64, chunk->data);
    if (chunk->dictionary != 0)
        put_int(to, 2, I64, chunk->dictionary);
    put_end(to);
    put_end(to);
}

static void put_footer(struct writing *w, const struct chunk *chunks, uint64_t n_rows)
{
    const struct stg_test_table *table = w->table;
    FILE *to = w->to;
    uint32_t begin = (uint32_t)ftell(to);
    put_int(to, 1, I32, 1);
    put_schema(to, table->n_strings);
    put_int(to, 1, I64, (int64_t)n_rows);
    put_list(to, 1, STRUCT, table->n_groups);
    for (int g = 0; g < table->n_groups; g++) {
        int64_t bytes = 0, n = 0;
        put_list(to, 1, STRUCT, table->n_strings + 1);
        for (int c = -1; c < table->n_strings; c++, chunks++) {
            put_chunk(to, c, chunks);
            bytes += chunks->bytes;
            n = chunks->n_rows;
        }
        put_int(to, 1, I64, bytes);
        put_int(to, 1, I64, n);
        put_end(to);
    }
    put_end(to);
    uint32_t bytes = (uint32_t)ftell(to) - begin;
    fwrite(&bytes, 1, sizeof(bytes), to);
    fputs("PAR1", to);
}

uint64_t stg_test_table_write(const struct stg_test_table *table, const char *path)
{
    struct writing w = {.table = table, .state = table->seed, .to = fopen(path, "w")};
    struct chunk chunks[14 * 9], *chunk = chunks;
    uint64_t n_rows = 0;
    CHECK(w.to != NULL && table->n_strings <= 8 && table->n_groups <= 14);
    fputs("PAR1", w.to);
    for (int g = 0; g < table->n_groups; g++) {
        /* The same rows with dictionaries as without, whatever else is drawn. */
        w.state = table->seed * 977 + (uint64_t)g;
        int n = 1 + (int)draw(&w, (uint64_t)table->n_rows);
        *chunk++ = put_numbers(&w, (int64_t)n_rows, n);
        for (int c = 0; c < table->n_strings; c++) {
            w.state = table->seed * 31 + (uint64_t)(g * 8 + c);
            *chunk++ = put_strings(&w, c, n);
        }
        n_rows += (uint64_t)n;
    }
    put_footer(&w, chunks, n_rows);
    CHECK_INT(fclose(w.to), 0);
    return n_rows;
}
