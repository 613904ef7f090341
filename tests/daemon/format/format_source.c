/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/daemon/format/format_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"

/* ---- the source ---- */

static int64_t memory_read(struct stg_source *source, uint64_t offset, void *buf,
                           size_t bytes, struct stg_err *err)
{
    struct stg_test_memory *memory = (struct stg_test_memory *)source;
    uint64_t all = memory->bytes + memory->virtual_bytes;
    if (memory->longest_read < bytes)
        memory->longest_read = bytes;
    if (memory->stop_after != NULL && memory->n_reads-- == 0)
        *memory->stop_after = 1;
    if (memory->fail_at != 0 && offset + bytes > memory->fail_at)
        return stg_err(err, -STAGER_DATA_LOSS, "mem: reading at offset %llu: broken",
                       (unsigned long long)offset);
    if (offset >= all)
        return 0;
    uint64_t n = all - offset < bytes ? all - offset : bytes;
    if (memory->most != 0 && n > memory->most)
        n = memory->most;
    uint64_t real = offset < memory->bytes ? memory->bytes - offset : 0;
    if (real > n)
        real = n;
    if (real > 0)
        memcpy(buf, memory->data + offset, real);
    memset((char *)buf + real, 0, n - real);
    return (int64_t)n;
}

static int memory_size(struct stg_source *source, uint64_t *ret, struct stg_err *err)
{
    const struct stg_test_memory *memory = (struct stg_test_memory *)source;
    *ret = memory->bytes + memory->virtual_bytes;
    return 0;
}

static void memory_close(struct stg_source *source)
{
}

static const struct stg_storage memory_storage = {
    .scheme = "mem", .read = memory_read, .size = memory_size, .close = memory_close};

struct stg_test_memory stg_test_memory(const void *data, size_t bytes)
{
    return (struct stg_test_memory){
        .source.storage = &memory_storage, .data = data, .bytes = bytes};
}

/* ---- reading ---- */

#define MAX_ASK 64
#define MAX_PARTS 8
#define MAX_IN_FLIGHT 4096

struct held {
    struct stg_chunk *chunk;
    char *copy;
    uint64_t from, bytes;
};

struct reading {
    struct stg_test_records records;
    struct held held[MAX_IN_FLIGHT];
    size_t n_held;
    int64_t begin[MAX_ASK * MAX_PARTS], end[MAX_ASK * MAX_PARTS];
};

static void add(struct stg_test_records *records, struct stg_test_record record)
{
    if ((records->n & (records->n - 1)) == 0)
        records->at = realloc(records->at, (2 * records->n + 1) * sizeof(record));
    records->at[records->n++] = record;
}

static void add_record(struct reading *reading, const struct stg_records *from, int64_t i,
                       uint32_t n_parts)
{
    const int64_t *begin = reading->begin + i * n_parts,
                  *end = reading->end + i * n_parts;
    struct stg_test_record record = {.offset = from->base + (uint64_t)begin[0],
                                     .number = from->first + (uint64_t)i};
    FILE *to = open_memstream(&record.data, &record.bytes);
    for (uint32_t p = 0; p < n_parts; p++) {
        CHECK(begin[p] >= 0 && begin[p] <= end[p] &&
              (uint64_t)end[p] <= from->chunk_used &&
              from->chunk_used <= from->chunk->capacity);
        if (n_parts > 1)
            fprintf(to, "%lld:", (long long)(end[p] - begin[p]));
        fwrite(from->chunk->data + begin[p], 1, (size_t)(end[p] - begin[p]), to);
    }
    fclose(to);
    add(&reading->records, record);
}

/* The bytes of the records, whatever lies between them. */
static void hold_chunk(struct reading *reading, const struct stg_records *from,
                       uint32_t n_parts)
{
    size_t last = (size_t)(from->n * n_parts);
    for (size_t k = 0; k < last; k++) {
        if (reading->n_held == MAX_IN_FLIGHT)
            return;
        uint64_t begin = (uint64_t)reading->begin[k];
        struct held *held = &reading->held[reading->n_held++];
        *held = (struct held){.chunk = stg_chunk_ref(from->chunk),
                              .from = begin,
                              .bytes = (uint64_t)reading->end[k] - begin};
        held->copy = malloc(held->bytes + 1);
        memcpy(held->copy, from->chunk->data + begin, held->bytes);
    }
}

static void let_go(struct reading *reading)
{
    for (size_t i = 0; i < reading->n_held; i++) {
        struct held *held = &reading->held[i];
        CHECK(memcmp(held->copy, held->chunk->data + held->from, held->bytes) == 0);
        free(held->copy);
        stg_chunk_unref(held->chunk);
    }
    reading->n_held = 0;
}

static void read_source(const struct stg_format *format, void *reader, uint32_t n_parts,
                        int64_t ask, bool hold, struct reading *reading)
{
    bool same = false;
    for (;;) {
        struct stg_records from;
        int rc = format->next(reader, ask, same, reading->begin, reading->end, &from,
                              &reading->records.err);
        reading->records.rc = rc < 0 ? rc : 0;
        if (rc < 0 || rc == STG_FORMAT_END)
            return;
        if (rc == STG_FORMAT_FULL) {
            CHECK(same);
            same = false;
            continue;
        }
        if (from.bad.code != 0) {
            CHECK(!same);
            add(&reading->records,
                (struct stg_test_record){.code = from.bad.code,
                                         .data = strdup(from.bad.text),
                                         .bytes = strlen(from.bad.text)});
            continue;
        }
        CHECK(from.n >= 1 && from.n <= ask);
        for (int64_t i = 0; i < from.n; i++)
            add_record(reading, &from, i, n_parts);
        if (hold)
            hold_chunk(reading, &from, n_parts);
        same = hold && reading->records.n % 3 != 0;
    }
}

struct stg_test_records stg_test_read(const struct stg_format *format,
                                      struct stg_format_config config,
                                      struct stg_test_memory *source, int64_t ask,
                                      bool hold)
{
    struct stg_quota *quota;
    void *reader;
    CHECK_INT(stg_quota_create(0, &quota), 0);
    config.quota = quota;
    if (config.read_bytes == 0)
        config.read_bytes = 1 << 20;
    if (config.chunk_bytes == 0)
        config.chunk_bytes = 1 << 20;
    if (config.max_record_bytes == 0)
        config.max_record_bytes = 1 << 20;
    uint32_t n_parts = config.n_parts > 0 ? config.n_parts : 1;
    CHECK(ask <= MAX_ASK && n_parts <= MAX_PARTS);
    CHECK_INT(format->create(&config, &reader), 0);
    static struct reading reading;
    memset(&reading.records, 0, sizeof(reading.records));
    format->start(reader, &source->source);
    if (source->started != NULL)
        source->started(source->owner, format, reader);
    read_source(format, reader, n_parts, ask, hold, &reading);
    format->stop(reader);
    format->destroy(reader);
    let_go(&reading);
    CHECK(source->longest_read <= config.read_bytes);
    stg_quota_unref(quota);
    return reading.records;
}

void stg_test_records_finish(struct stg_test_records *records)
{
    for (size_t i = 0; i < records->n; i++)
        free(records->at[i].data);
    free(records->at);
    *records = (struct stg_test_records){0};
}

void stg_test_records_equal(const struct stg_test_records *got,
                            const struct stg_test_records *want)
{
    for (size_t i = 0; i < got->n && i < want->n; i++) {
        const struct stg_test_record *a = &got->at[i], *b = &want->at[i];
        CHECK_INT(a->code, b->code);
        CHECK_INT(a->bytes, b->bytes);
        if (memcmp(a->data, b->data, a->bytes) != 0)
            FAIL("record %zu: \"%.*s\", not \"%.*s\"", i, (int)a->bytes, a->data,
                 (int)b->bytes, b->data);
        CHECK_INT(a->number, b->number);
        CHECK_INT(a->offset, b->offset);
    }
    CHECK_INT(got->n, want->n);
    CHECK_INT(got->rc, want->rc);
}

struct stg_test_records stg_test_read_all_ways(const struct stg_format *format,
                                               struct stg_format_config config,
                                               const void *data, size_t bytes)
{
    static const int64_t asks[] = {1, 3, MAX_ASK};
    struct stg_test_memory source = stg_test_memory(data, bytes);
    struct stg_test_records want = stg_test_read(format, config, &source, MAX_ASK, false);
    for (uint64_t read = 1; read < 2 * bytes + 2; read += 1 + read / 16) {
        for (size_t k = 0; k < 6; k++) {
            config.read_bytes = read;
            config.chunk_bytes = k % 2 ? 4 * read : read;
            source = stg_test_memory(data, bytes);
            struct stg_test_records got =
                stg_test_read(format, config, &source, asks[k % 3], k >= 3);
            stg_test_records_equal(&got, &want);
            stg_test_records_finish(&got);
        }
    }
    return want;
}

void stg_test_every_damage(const struct stg_format *format,
                           struct stg_format_config config, const void *data,
                           size_t bytes)
{
    char *copy = malloc(bytes + 1);
    for (size_t n = 0; n <= bytes; n++) {
        /* Uses memory of exactly that size: a sanitizer catches a read beyond. */
        char *part = malloc(n + 1);
        memcpy(part, data, n);
        struct stg_test_memory source = stg_test_memory(part, n);
        struct stg_test_records records =
            stg_test_read(format, config, &source, 64, false);
        stg_test_records_finish(&records);
        free(part);
    }
    for (size_t i = 0; i < 8 * bytes; i++) {
        memcpy(copy, data, bytes);
        copy[i / 8] ^= (char)(1 << i % 8);
        struct stg_test_memory source = stg_test_memory(copy, bytes);
        struct stg_test_records records =
            stg_test_read(format, config, &source, 64, true);
        stg_test_records_finish(&records);
    }
    free(copy);
}

/* ---- random damage ---- */

static uint64_t draw(uint64_t *state, uint64_t below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 33) % below;
}

static size_t damage_once(char *data, size_t n, uint64_t *state)
{
    static const char odd[] = {0, 1, -1, 127, -128, '\n', '\r', '"', ',', '7'};
    size_t at = draw(state, n), some = 1 + draw(state, n - at < 20 ? n - at : 20);
    switch (draw(state, 6)) {
    case 0: data[at] ^= (char)(1 << draw(state, 8)); break;
    case 1: data[at] = odd[draw(state, sizeof(odd))]; break;
    case 2: data[at] = (char)draw(state, 256); break;
    case 3: memmove(data + at, data + at + some, n - at - some); return n - some;
    case 4: memmove(data + at + some, data + at, n - at); return n + some;
    default: return draw(state, 4) == 0 ? at : n;
    }
    return n;
}

/* A debugger or a sanitizer's report finds it here. */
static volatile uint64_t seed_in_use;

void stg_test_some_damage(const struct stg_format *format,
                          struct stg_format_config config, const void *data, size_t bytes,
                          int n)
{
    const char *seed = getenv("STG_SEED");
    uint64_t state = seed != NULL ? strtoull(seed, NULL, 0) : 20261121;
    for (int i = 0; i < n; i++) {
        seed_in_use = state;
        char *copy = malloc(bytes + 200);
        size_t left = bytes;
        memcpy(copy, data, bytes);
        for (uint64_t k = 1 + draw(&state, 4); k > 0 && left > 0; k--)
            left = damage_once(copy, left, &state);
        char *exact = malloc(left + 1);
        memcpy(exact, copy, left);
        struct stg_test_memory source = stg_test_memory(exact, left);
        struct stg_test_records want = stg_test_read(format, config, &source, 8, false);
        struct stg_format_config small = config;
        small.read_bytes = 1 + draw(&state, 40);
        small.chunk_bytes = 1 + draw(&state, 200);
        source = stg_test_memory(exact, left);
        struct stg_test_records got = stg_test_read(format, small, &source, 3, true);
        stg_test_records_equal(&got, &want);
        stg_test_records_finish(&got);
        stg_test_records_finish(&want);
        free(exact);
        free(copy);
    }
}
