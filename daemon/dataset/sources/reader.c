/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/sources/reader.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/dataset/block.h"
#include "daemon/dataset/files/names.h"
#include "daemon/dataset/sources/file_index.h"
#include "daemon/storage/codec/decompress.h"
#include "daemon/storage/local/direct.h"
#include "daemon/storage/pump.h"

#define NUMBER_DIGITS 20

#define UNKNOWN UINT64_MAX

/* A file in which each seek begins at its start, and that is so many times as large as
 * the smallest with an index, is not read in any order. */
#define MAX_FROM_START 4

struct file_count {
    uint64_t n; /* records and errors; UNKNOWN */
    uint64_t bytes;
};

/* Records in a row of one file. */
struct run {
    uint32_t file;
    int64_t n;
    uint64_t base, first; /* as in struct stg_records */
};

struct reader {
    struct stg_iter iter;
    struct stg_reader_config config;
    bool is_alone; /* no other reads at the same time: threads may help it */
    void *format_reader;
    struct stg_names names;
    struct stg_source *source; /* the open file, or NULL */
    bool is_compressed;
    char *path;        /* its url */
    char shown[512];   /* of a url for texts, where it is not path itself */
    uint32_t file;     /* its index */
    uint64_t epoch;    /* of its name */
    char *description; /* of how it is read, for its index; or NULL */
    struct stg_file_index index;
    /* Of each file of the dataset; NULL: nothing was counted. And what reads files that
     * are counted; NULL: none was. */
    struct file_count *counts;
    struct reader *counter;
    /* Of the files of this iteration, in turn: the number of records up to the end of
     * each. And how many of the files were begun. */
    uint64_t *ends;
    uint64_t n_ends, ends_size, n_begun;

    /* The block that is being made; all of one chunk and one epoch. */
    int64_t *begin, *end; /* offsets_size each, n_parts a record */
    int64_t offsets_size, n, n_parts;
    bool dense;
    struct stg_component row; /* of a dense block */
    struct run *runs;
    size_t n_runs, runs_size;
    struct stg_chunk *chunk;
    uint64_t chunk_used, block_epoch;

    struct stg_block *error; /* to be emitted after that block */
    int failed;              /* to be returned after that */
    struct stg_err failure;
};

static int out_of_memory(const struct reader *reader, struct stg_err *err)
{
    return stg_step_err(reader->iter.step, -STAGER_RESOURCE_EXHAUSTED, err,
                        "out of memory");
}

/* ---- files ---- */

static void close_file(struct reader *reader)
{
    if (reader->source == NULL)
        return;
    stg_file_index_drop(&reader->index);
    reader->config.format->stop(reader->format_reader);
    reader->source->storage->close(reader->source);
    reader->source = NULL;
}

static const char *shown(struct reader *reader)
{
    return stg_storage_shown(reader->path, reader->shown, sizeof(reader->shown));
}

static int decompress(struct reader *reader, struct stg_err *err)
{
    struct stg_decompress_config config = {.type = reader->config.compression,
                                           .path = shown(reader),
                                           .quota = reader->iter.dataset->quota,
                                           .stopped = reader->iter.dataset->env.stopped};
    struct stg_source *plain = reader->source;
    int rc = stg_decompress_open(&config, &reader->source, err);
    reader->is_compressed = rc == 0 && reader->source != plain;
    if (rc == 0 && reader->source != plain && reader->is_alone)
        rc = stg_pump_open(config.quota, config.path, &reader->source, err);
    if (rc < 0) {
        reader->source->storage->close(reader->source);
        reader->source = NULL;
    }
    return rc;
}

static int read_direct(struct reader *reader, struct stg_err *err)
{
    int rc =
        stg_direct_open(reader->iter.dataset->quota, reader->path, &reader->source, err);
    if (rc < 0) {
        reader->source->storage->close(reader->source);
        reader->source = NULL;
    }
    return rc;
}

static int open_path(struct reader *reader, struct stg_err *err)
{
    const struct stg_storage *storage;
    const char *path;
    stg_activity_file(reader->iter.dataset->env.activity, shown(reader));
    int rc = stg_storage_find(reader->path, &storage, &path, err);
    if (rc == 0 && reader->source == NULL)
        rc = storage->open(path, &reader->iter.dataset->identity, &reader->source, err);
    if (rc == 0)
        stg_source_trace(reader->source, reader->iter.dataset->env.trace, reader->path);
    if (rc == 0)
        stg_file_index_begin(&reader->index, reader->source, reader->path);
    if (rc == 0 && reader->config.direct)
        rc = read_direct(reader, err);
    if (rc == 0)
        rc = decompress(reader, err);
    if (rc < 0) {
        stg_file_index_drop(&reader->index);
        return stg_step_prefix(reader->iter.step, rc, err);
    }
    reader->config.format->start(reader->format_reader, reader->source);
    return 0;
}

/* May the pass go on behind a file with this error? */
static bool is_ignored(const struct reader *reader, int code)
{
    return code != -STAGER_CANCELLED && code != -STAGER_RESOURCE_EXHAUSTED &&
           (reader->iter.dataset->env.ignored_codes & STG_CODE_BIT(-code)) != 0;
}

/* ---- files that were counted ---- */

static uint64_t end_of(const struct reader *reader, uint64_t file)
{
    return file > 0 ? reader->ends[file - 1] : 0;
}

/* Returns the number of records that the file that was begun last had when all files were
 * counted; UNKNOWN: they were not. */
static uint64_t counted(const struct reader *reader)
{
    uint64_t file = reader->n_begun - 1;
    return file < reader->n_ends ? reader->ends[file] - end_of(reader, file) : UNKNOWN;
}

/* Returns how many records of the open file are left. What it has got since they were
 * counted has no numbers. */
static uint64_t room_of(const struct reader *reader)
{
    uint64_t n = counted(reader), at = reader->index.so_far.n_positions;
    return n > at ? n - at : 0;
}

/* Fails if that file ends after n records, and had another number of them: those of the
 * files behind it would have other numbers. why: the error that ends it, or NULL. */
static int check_counted(struct reader *reader, uint64_t n, const struct stg_err *why,
                         struct stg_err *err)
{
    uint64_t before = counted(reader);
    if (before == UNKNOWN || n == before)
        return 0;
    return stg_step_err(
        reader->iter.step, -STAGER_FAILED_PRECONDITION, err,
        "%s has %" PRIu64 " records now, and had %" PRIu64
        " when they were counted%s%s: keep the files as they are during a pass, or use a "
        "buffer_size without global",
        shown(reader), n, before, why != NULL ? ": " : "", why != NULL ? why->text : "");
}

/* It has no more records. */
static int end_file(struct reader *reader, struct stg_err *err)
{
    int rc = check_counted(reader, reader->index.so_far.n_positions, NULL, err);
    stg_file_index_end(&reader->index);
    close_file(reader);
    return rc;
}

/* ---- opening ---- */

/* 2: an error item stands for the file, in reader->error. */
static int open_or_skip(struct reader *reader, struct stg_err *err)
{
    struct stg_err why = {0};
    int rc = open_path(reader, &why);
    if (rc < 0 && is_ignored(reader, rc)) {
        rc = check_counted(reader, 1, &why, err);
        if (rc == 0)
            rc = stg_block_create_error(reader->iter.dataset->quota, &why, reader->epoch,
                                        &reader->error, err);
        return rc < 0 ? rc : 2;
    }
    if (rc < 0 && err != NULL)
        *err = why;
    return rc;
}

/* Opens the next file. 1: there is none; 2: an error came instead, in reader->error. */
static int next_file(struct reader *reader, struct stg_err *err)
{
    struct stg_name name;
    int rc = stg_iter_stopped(&reader->iter, err);
    if (rc == 0)
        rc = stg_names_next(&reader->names, &name, &reader->source, err);
    if (rc != 0)
        return rc;
    reader->n_begun++;
    if (name.error != NULL) {
        reader->error = name.error;
        return 2;
    }
    free(reader->path);
    reader->path = name.url;
    reader->file = name.file;
    reader->epoch = name.epoch;
    return open_or_skip(reader, err);
}

/* ---- collecting ---- */

static int grow_offsets(struct reader *reader, int64_t want, struct stg_err *err)
{
    want *= reader->n_parts;
    if (reader->offsets_size >= want)
        return 0;
    int64_t *begin = realloc(reader->begin, (size_t)want * sizeof(int64_t));
    if (begin != NULL)
        reader->begin = begin;
    int64_t *end = realloc(reader->end, (size_t)want * sizeof(int64_t));
    if (end != NULL)
        reader->end = end;
    if (begin == NULL || end == NULL)
        return out_of_memory(reader, err);
    reader->offsets_size = want;
    return 0;
}

static int add_run(struct reader *reader, const struct stg_records *records,
                   struct stg_err *err)
{
    struct run *last = reader->n_runs > 0 ? &reader->runs[reader->n_runs - 1] : NULL;
    if (last != NULL && last->file == reader->file && last->base == records->base &&
        last->first + (uint64_t)last->n == records->first) {
        last->n += records->n;
        return 0;
    }
    if (reader->n_runs == reader->runs_size) {
        size_t size = reader->runs_size > 0 ? 2 * reader->runs_size : 8;
        struct run *runs = realloc(reader->runs, size * sizeof(*runs));
        if (runs == NULL)
            return out_of_memory(reader, err);
        reader->runs = runs;
        reader->runs_size = size;
    }
    reader->runs[reader->n_runs++] = (struct run){.file = reader->file,
                                                  .n = records->n,
                                                  .base = records->base,
                                                  .first = records->first};
    return 0;
}

static int bad_record(struct reader *reader, struct stg_err *bad, struct stg_err *err)
{
    stg_err_prefix(bad, bad->code, "%s", shown(reader));
    return stg_block_create_error(reader->iter.dataset->quota, bad, reader->epoch,
                                  &reader->error, err);
}

/* The storage failed, which ends the pass; or, 1, the file is damaged, or its error is
 * one of ignored_exception_types, which costs its rest. */
static int failed_read(struct reader *reader, int code, const struct stg_err *why,
                       struct stg_err *err)
{
    if (!reader->source->spoiled && !is_ignored(reader, code)) {
        if (err != NULL)
            *err = *why;
        return stg_step_prefix(reader->iter.step, code, err);
    }
    int rc = check_counted(reader, reader->index.so_far.n_positions + 1, why, err);
    if (rc == 0)
        rc = stg_block_create_error(reader->iter.dataset->quota, why, reader->epoch,
                                    &reader->error, err);
    close_file(reader);
    return rc < 0 ? rc : 1;
}

/* Adds records of the open file to the block. 1: the block ends here. */
static int collect_records(struct reader *reader, int64_t want, struct stg_err *err)
{
    struct stg_records records;
    struct stg_err why;
    int64_t at = reader->n * reader->n_parts;
    records.row = NULL;
    int rc = reader->config.format->next(reader->format_reader, want - reader->n,
                                         reader->n > 0, reader->begin + at,
                                         reader->end + at, &records, &why);
    if (rc < 0)
        return failed_read(reader, rc, &why, err);
    if (rc == STG_FORMAT_FULL)
        return 1;
    if (rc == STG_FORMAT_END)
        return end_file(reader, err);
    stg_file_index_count(&reader->index, &records, reader->begin + at, reader->end + at);
    if (records.bad.code != 0) {
        rc = bad_record(reader, &records.bad, err);
        return rc < 0 ? rc : 1;
    }
    rc = add_run(reader, &records, err);
    if (rc < 0)
        return rc;
    reader->n += records.n;
    reader->dense = records.row != NULL;
    if (records.row != NULL)
        reader->row = *records.row;
    reader->chunk = records.chunk;
    reader->chunk_used = records.chunk_used;
    reader->block_epoch = reader->epoch;
    return 0;
}

/* One step towards the block. 1: it ends here. */
static int collect(struct reader *reader, int64_t want, struct stg_err *err)
{
    if (reader->source == NULL) {
        int rc = next_file(reader, err);
        if (rc != 0)
            return rc < 0 ? rc : 1;
    }
    if (reader->n > 0 && reader->epoch != reader->block_epoch)
        return 1;
    uint64_t room = room_of(reader);
    if (room == 0) {
        close_file(reader);
        return 0;
    }
    if ((uint64_t)(want - reader->n) > room)
        want = reader->n + (int64_t)room;
    return collect_records(reader, want, err);
}

/* ---- the block ---- */

static uint32_t n_components(const struct reader *reader)
{
    return (uint32_t)reader->n_parts + (reader->config.derived != STG_DERIVED_NONE);
}

static void make_rows(const struct reader *reader, struct stg_block *block)
{
    struct stg_provenance *rows =
        stg_block_carve(block, (uint64_t)reader->n * sizeof(*rows));
    block->rows = rows;
    block->n_rows = reader->n;
    const int64_t *begin = reader->begin;
    for (size_t i = 0; i < reader->n_runs; i++) {
        const struct run *run = &reader->runs[i];
        for (int64_t k = 0; k < run->n; k++, begin += reader->n_parts)
            rows[k] = (struct stg_provenance){.file = run->file,
                                              .offset = run->base + (uint64_t)*begin,
                                              .record = run->first + (uint64_t)k};
        rows += run->n;
    }
}

static void make_strings(const struct reader *reader, struct stg_block *block, int64_t p)
{
    int64_t n = reader->n, n_parts = reader->n_parts;
    uint64_t bytes = (uint64_t)n * sizeof(int64_t);
    int64_t *begin = stg_block_carve(block, bytes), *end = stg_block_carve(block, bytes);
    if (n_parts == 1) {
        memcpy(begin, reader->begin, bytes);
        memcpy(end, reader->end, bytes);
    }
    for (int64_t i = 0; n_parts > 1 && i < n; i++) {
        begin[i] = reader->begin[i * n_parts + p];
        end[i] = reader->end[i * n_parts + p];
    }
    block->tensors[p] = (struct stg_tensor){.dtype = STAGER_STRING,
                                            .ndim = 1,
                                            .shape = {n},
                                            .data = reader->chunk->data,
                                            .data_bytes = reader->chunk_used,
                                            .begin = begin,
                                            .end = end};
}

/* Records that follow one another are one array. */
static void make_dense(const struct reader *reader, struct stg_block *block)
{
    const struct stg_component *row = &reader->row;
    struct stg_tensor *tensor = &block->tensors[0];
    int64_t first = reader->begin[0], behind = reader->end[reader->n - 1];
    *tensor = (struct stg_tensor){.dtype = row->dtype,
                                  .ndim = row->ndim + 1,
                                  .shape = {reader->n},
                                  .data = reader->chunk->data + first,
                                  .data_bytes = (uint64_t)(behind - first)};
    memcpy(tensor->shape + 1, row->shape, (size_t)row->ndim * sizeof(row->shape[0]));
}

/* ---- the derived component ---- */

/* In decimal. Returns how many digits there are. */
static int put_number(uint64_t value, char *to)
{
    char digits[NUMBER_DIGITS];
    int at = NUMBER_DIGITS;
    do
        digits[--at] = (char)('0' + value % 10);
    while ((value /= 10) > 0);
    memcpy(to, digits + at, (size_t)(NUMBER_DIGITS - at));
    return NUMBER_DIGITS - at;
}

static uint64_t derived_bytes(const struct reader *reader)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < reader->n_runs; i++) {
        const struct run *run = &reader->runs[i];
        bytes += (uint64_t)run->n *
                 (strlen(stg_dataset_file(reader->iter.dataset, run->file)) + 1 +
                  NUMBER_DIGITS);
    }
    return bytes;
}

static void make_derived(const struct reader *reader, struct stg_block *block,
                         uint64_t max_bytes)
{
    int64_t *offsets =
        stg_block_carve(block, ((uint64_t)reader->n + 1) * sizeof(int64_t));
    char *data = stg_block_carve(block, max_bytes);
    int64_t used = 0, at = 0;
    for (size_t i = 0; i < reader->n_runs; i++) {
        const struct run *run = &reader->runs[i];
        const char *path = stg_dataset_file(reader->iter.dataset, run->file);
        size_t path_bytes = strlen(path);
        for (int64_t k = 0; k < run->n; k++) {
            offsets[at++] = used;
            memcpy(data + used, path, path_bytes);
            used += (int64_t)path_bytes;
            if (reader->config.derived == STG_DERIVED_KEY) {
                data[used++] = ':';
                used += put_number(run->first + (uint64_t)k + 1, data + used);
            }
        }
    }
    offsets[at] = used;
    block->tensors[reader->n_parts] = (struct stg_tensor){.dtype = STAGER_STRING,
                                                          .ndim = 1,
                                                          .shape = {reader->n},
                                                          .data = data,
                                                          .data_bytes = (uint64_t)used,
                                                          .begin = offsets,
                                                          .end = offsets + 1};
}

static int make_block(struct reader *reader, struct stg_block **ret, struct stg_err *err)
{
    uint64_t n = (uint64_t)reader->n, n_parts = (uint64_t)reader->n_parts;
    bool derived = reader->config.derived != STG_DERIVED_NONE;
    uint64_t derived_room = derived ? derived_bytes(reader) : 0;
    uint64_t bytes = 2 * n_parts * stg_block_room(n * sizeof(int64_t)) +
                     stg_block_room(n * sizeof(struct stg_provenance));
    if (derived)
        bytes += stg_block_room((n + 1) * sizeof(int64_t)) + stg_block_room(derived_room);
    struct stg_block *block;
    int rc = stg_block_create(reader->iter.dataset->quota, n_components(reader), bytes,
                              reader->chunk, "a block of records", &block, err);
    if (rc < 0)
        return stg_step_prefix(reader->iter.step, rc, err);
    block->n_records = reader->n;
    block->epoch = reader->block_epoch;
    if (reader->dense)
        make_dense(reader, block);
    for (int64_t p = 0; !reader->dense && p < reader->n_parts; p++)
        make_strings(reader, block, p);
    make_rows(reader, block);
    if (derived)
        make_derived(reader, block, derived_room);
    reader->n = 0;
    reader->n_runs = 0;
    *ret = block;
    return 0;
}

/* ---- the iterator ---- */

/* What came after the last block. 1: nothing did, and there is no file open: the end. */
static int emit(struct reader *reader, struct stg_block **ret, struct stg_err *err)
{
    if (reader->error != NULL) {
        *ret = reader->error;
        reader->error = NULL;
        return 0;
    }
    if (reader->failed < 0 && err != NULL)
        *err = reader->failure;
    return reader->failed < 0 ? reader->failed : 1;
}

static int reader_next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                       struct stg_err *err)
{
    struct reader *reader = (struct reader *)iter;
    if (want > STG_BLOCK_MAX_RECORDS)
        want = STG_BLOCK_MAX_RECORDS;
    if (reader->error != NULL || reader->failed < 0)
        return emit(reader, ret, err);
    int rc = grow_offsets(reader, want, err);
    while (rc == 0 && reader->n < want)
        rc = collect(reader, want, err);
    if (rc < 0 && reader->n > 0) {
        reader->failed = rc;
        if (err != NULL)
            reader->failure = *err;
    } else if (rc < 0) {
        return rc;
    }
    return reader->n > 0 ? make_block(reader, ret, err) : emit(reader, ret, err);
}

/* ---- skipping ---- */

/* Reads on, up to so many records, and drops them: at most an error is left. */
static int drop_some(struct reader *reader, uint64_t n, struct stg_err *err)
{
    const struct stg_format *format = reader->config.format;
    int64_t want = n < STG_BLOCK_MAX_RECORDS ? (int64_t)n : STG_BLOCK_MAX_RECORDS;
    uint64_t n_skipped = 0;
    struct stg_records records;
    struct stg_err why;
    int rc = grow_offsets(reader, want, err);
    if (rc == 0 && format->skip != NULL)
        rc = format->skip(reader->format_reader, n, &n_skipped, err);
    reader->index.so_far.n_positions += n_skipped;
    if (rc < 0 || n_skipped > 0)
        return rc;
    records.row = NULL;
    rc = format->next(reader->format_reader, want, false, reader->begin, reader->end,
                      &records, &why);
    if (rc < 0) {
        rc = failed_read(reader, rc, &why, err);
        return rc < 0 ? rc : 0;
    }
    if (rc == STG_FORMAT_END)
        return end_file(reader, err);
    stg_file_index_count(&reader->index, &records, reader->begin, reader->end);
    return 0;
}

/* The index was wrong: the file begins anew, and its index is built. */
static int begin_anew(struct reader *reader, struct stg_err *err)
{
    close_file(reader);
    int rc = open_or_skip(reader, err);
    return rc < 0 ? rc : 0;
}

/* Goes on at that place, if the record that the index remembers is there, and drops it.
 */
static int jump_to(struct reader *reader, struct stg_index *index,
                   const struct stg_index_place *place, struct stg_err *err)
{
    const struct stg_format *format = reader->config.format;
    struct stg_records records;
    struct stg_err why;
    int rc = grow_offsets(reader, 1, err);
    if (rc < 0)
        return rc;
    records.row = NULL;
    format->seek(reader->format_reader, place->offset, place->record);
    rc = format->next(reader->format_reader, 1, false, reader->begin, reader->end,
                      &records, &why);
    if (rc == -STAGER_CANCELLED || rc == -STAGER_RESOURCE_EXHAUSTED) {
        rc = failed_read(reader, rc, &why, err);
        return rc < 0 ? rc : 0;
    }
    if (rc == STG_FORMAT_RECORDS &&
        stg_file_index_is_at(place, &records, reader->begin, reader->end)) {
        reader->index.so_far.n_positions = place->position + 1;
        return 0;
    }
    if (rc >= 0)
        stg_index_refute(index);
    return begin_anew(reader, err);
}

/* Goes as far towards a position of the open file as its index helps. */
static int jump(struct reader *reader, uint64_t position, struct stg_err *err)
{
    struct stg_index_place place;
    struct stg_index *index = stg_file_index_find(&reader->index);
    uint64_t *at = &reader->index.so_far.n_positions;
    if (index == NULL)
        return 0;
    uint64_t n = stg_index_totals(index)->n_positions;
    if (*at <= n && position >= n) {
        close_file(reader);
        *at = n;
        return 0;
    }
    if (position <= reader->index.same_until ||
        !stg_index_find(index, position, &place, &reader->index.same_until) ||
        place.position <= *at)
        return 0;
    return jump_to(reader, index, &place, err);
}

/* Skips up to n positions of the open file. */
static int skip_in_file(struct reader *reader, uint64_t n, uint64_t *skipped,
                        struct stg_err *err)
{
    const uint64_t *at = &reader->index.so_far.n_positions;
    uint64_t from = *at, to;
    if (__builtin_add_overflow(from, n, &to))
        to = UINT64_MAX;
    int rc = jump(reader, to, err);
    while (rc == 0 && reader->source != NULL && *at < to)
        rc = drop_some(reader, to - *at, err);
    *skipped += *at > from ? *at - from : 0;
    return rc;
}

/* ---- counting ---- */

/* The same format over one file. NULL: out of memory. */
static struct reader *counter_of(struct reader *reader)
{
    struct reader *counter = reader->counter;
    if (counter == NULL)
        counter = calloc(1, sizeof(*counter));
    if (counter == NULL || reader->counter != NULL)
        return counter;
    counter->iter = reader->iter;
    counter->config = reader->config;
    counter->config.config.ahead = NULL;
    counter->n_parts = reader->n_parts;
    counter->index = (struct stg_file_index){.dataset = reader->iter.dataset,
                                             .reader = reader->index.reader,
                                             .n_parts = reader->index.n_parts};
    if (reader->config.format->create(&counter->config.config, &counter->format_reader) <
        0) {
        free(counter);
        return NULL;
    }
    reader->counter = counter;
    return counter;
}

/* Returns whether the file has the error whenever it is read; if not, sets err to it. */
static bool is_of_data(const struct stg_err *error, struct stg_err *err)
{
    if (error->code != -STAGER_RESOURCE_EXHAUSTED && error->code != -STAGER_CANCELLED)
        return true;
    if (err != NULL)
        *err = *error;
    return false;
}

/* Reads the file, which has no index; a large one has one after that, if it is stored. An
 * error that costs its rest is its last record. */
static int count_by_reading(struct reader *reader, const struct stg_name *name,
                            uint64_t *ret, struct stg_err *err)
{
    struct reader *counter = counter_of(reader);
    if (counter == NULL)
        return out_of_memory(reader, err);
    free(counter->path);
    counter->path = strdup(name->url);
    int rc = counter->path != NULL ? open_path(counter, err) : out_of_memory(reader, err);
    while (rc == 0 && counter->source != NULL) {
        rc = stg_iter_stopped(&reader->iter, err);
        if (rc == 0)
            rc = drop_some(counter, UINT64_MAX, err);
    }
    close_file(counter);
    *ret = counter->index.so_far.n_positions + (counter->error != NULL);
    if (rc == 0 && counter->error != NULL && !is_of_data(&counter->error->error, err))
        rc = counter->error->error.code;
    stg_block_unref(counter->error);
    counter->error = NULL;
    return rc;
}

static int count_unless_ignored(struct reader *reader, const struct stg_name *name,
                                struct file_count *ret, struct stg_err *err)
{
    const struct stg_storage *storage;
    struct stg_source *source;
    struct stg_index_key key;
    const char *path;
    int rc = stg_storage_find(name->url, &storage, &path, err);
    if (rc == 0)
        rc = storage->open(path, &reader->iter.dataset->identity, &source, err);
    if (rc < 0)
        return stg_step_prefix(reader->iter.step, rc, err);
    if (storage->size(source, &ret->bytes, NULL) < 0)
        ret->bytes = 0;
    bool has_key = stg_file_index_key(&reader->index, source, name->url, &key);
    storage->close(source);
    if (has_key && stg_index_count(&key, &ret->n))
        return 0;
    rc = count_by_reading(reader, name, &ret->n, err);
    if (rc == 0 && has_key)
        stg_index_note_count(&key, ret->n);
    return rc;
}

/* A file that cannot be opened has one record, its error, where that is ignored. */
static int count_anew(struct reader *reader, const struct stg_name *name,
                      struct file_count *ret, struct stg_err *err)
{
    struct file_count count = {0};
    struct stg_err why = {0};
    int rc = count_unless_ignored(reader, name, &count, &why);
    if (rc < 0 && is_ignored(reader, rc))
        count = (struct file_count){.n = 1};
    else if (rc < 0 && err != NULL)
        *err = why;
    if (rc < 0 && !is_ignored(reader, rc))
        return rc;
    *ret = count;
    return 0;
}

/* All of the dataset's. */
static int create_counts(struct reader *reader, struct stg_err *err)
{
    struct stg_dataset *dataset = reader->iter.dataset;
    uint64_t bytes = dataset->n_files * sizeof(*reader->counts);
    if (reader->counts != NULL)
        return 0;
    int rc = stg_quota_take(dataset->quota, bytes, "the sizes of the files", err);
    if (rc < 0)
        return stg_step_prefix(reader->iter.step, rc, err);
    reader->counts = malloc(bytes + 1);
    if (reader->counts == NULL) {
        stg_quota_give(dataset->quota, bytes);
        return out_of_memory(reader, err);
    }
    for (uint32_t i = 0; i < dataset->n_files; i++)
        reader->counts[i].n = UNKNOWN;
    return 0;
}

/* What a file has that is not open yet. */
static int count_file(struct reader *reader, const struct stg_name *name,
                      struct file_count *ret, struct stg_err *err)
{
    *ret = (struct file_count){.n = 1};
    if (name->error != NULL)
        return 0;
    int rc = create_counts(reader, err);
    if (rc < 0)
        return rc;
    if (name->file >= reader->iter.dataset->n_files)
        return count_anew(reader, name, ret, err);
    struct file_count *count = &reader->counts[name->file];
    if (count->n == UNKNOWN)
        rc = count_anew(reader, name, count, err);
    *ret = *count;
    return rc;
}

/* Of the open file. Its index has to be there. */
static bool count_rest(struct reader *reader, uint64_t *ret)
{
    *ret = 0;
    if (reader->source == NULL)
        return true;
    const struct stg_index *index = stg_file_index_find(&reader->index);
    uint64_t at = reader->index.so_far.n_positions;
    uint64_t n = index != NULL ? stg_index_totals(index)->n_positions : 0;
    *ret = n > at ? n - at : 0;
    return index != NULL;
}

static bool reader_left(struct stg_iter *iter, uint64_t most, uint64_t *ret)
{
    struct reader *reader = (struct reader *)iter;
    struct stg_names *names = &reader->names;
    struct file_count count;
    if (reader->error != NULL || reader->failed < 0 || !count_rest(reader, ret))
        return false;
    for (size_t i = 0; *ret < most; i++) {
        if (stg_names_pull(names, i + 1) == i)
            return names->ended == 1;
        const struct stg_name *name = stg_names_at(names, i);
        if (name->error != NULL || count_file(reader, name, &count, NULL) < 0)
            return false;
        *ret += count.n;
    }
    return true;
}

/* Of a file that is not opened for that. */
static uint64_t known_records(const struct reader *reader, const struct stg_name *name)
{
    if (name->error != NULL)
        return UNKNOWN;
    if (reader->config.format->is_one_record && stg_iter_is_clean(&reader->iter))
        return 1;
    bool is_counted =
        reader->counts != NULL && name->file < reader->iter.dataset->n_files;
    return is_counted ? reader->counts[name->file].n : UNKNOWN;
}

/* Drops the name of the next file if that has at most n records. */
static uint64_t skip_file(struct reader *reader, uint64_t n)
{
    bool may_know = reader->counts != NULL || reader->config.format->is_one_record;
    if (!may_know || stg_names_pull(&reader->names, 1) == 0)
        return 0;
    uint64_t n_file = known_records(reader, stg_names_at(&reader->names, 0));
    if (n_file == UNKNOWN || n_file > n)
        return 0;
    struct stg_name dropped;
    struct stg_source *source;
    stg_names_next(&reader->names, &dropped, &source, NULL);
    if (source != NULL)
        source->storage->close(source);
    free(dropped.url);
    return n_file;
}

static int reader_skip(struct stg_iter *iter, uint64_t n, uint64_t *ret_skipped,
                       struct stg_err *err)
{
    struct reader *reader = (struct reader *)iter;
    uint64_t skipped = 0;
    int rc = 0;
    while (rc == 0 && skipped < n) {
        if (reader->error != NULL) {
            stg_block_unref(reader->error);
            reader->error = NULL;
            skipped++;
        } else if (reader->failed < 0) {
            rc = emit(reader, NULL, err);
        } else if (reader->source != NULL) {
            rc = skip_in_file(reader, n - skipped, &skipped, err);
        } else {
            uint64_t n_file = skip_file(reader, n - skipped);
            skipped += n_file;
            rc = n_file == 0 ? next_file(reader, err) : 0;
            rc = rc == 2 ? 0 : rc;
        }
    }
    if (rc >= 0)
        *ret_skipped = skipped;
    return rc < 0 ? rc : 0;
}

/* ---- life ---- */

static void forget(struct reader *reader)
{
    close_file(reader);
    stg_names_clear(&reader->names);
    stg_block_unref(reader->error);
    reader->error = NULL;
    reader->n = 0;
    reader->n_runs = 0;
}

static int reader_rewind(struct stg_iter *iter, bool afresh, struct stg_err *err)
{
    forget((struct reader *)iter);
    return iter->input->impl->rewind(iter->input, afresh, err);
}

/* ---- any order ---- */

/* What lies behind a block is not what is needed next: nothing is read or opened ahead.
 */
static int stop_reading_ahead(struct reader *reader, struct stg_err *err)
{
    reader->index.caches = true;
    reader->names.ahead = NULL;
    if (reader->config.config.ahead == NULL)
        return 0;
    reader->config.config.ahead = NULL;
    reader->config.format->destroy(reader->format_reader);
    reader->format_reader = NULL;
    int rc =
        reader->config.format->create(&reader->config.config, &reader->format_reader);
    return rc < 0 ? out_of_memory(reader, err) : 0;
}

static int grow_ends(struct reader *reader, uint64_t n, struct stg_err *err)
{
    struct stg_quota *quota = reader->iter.dataset->quota;
    if (n <= reader->ends_size)
        return 0;
    uint64_t more = (n - reader->ends_size) * sizeof(uint64_t);
    int rc = stg_quota_take(quota, more, "the numbers of the files", err);
    if (rc < 0)
        return stg_step_prefix(reader->iter.step, rc, err);
    uint64_t *ends = realloc(reader->ends, n * sizeof(*ends));
    if (ends == NULL) {
        stg_quota_give(quota, more);
        return out_of_memory(reader, err);
    }
    reader->ends = ends;
    reader->ends_size = n;
    return 0;
}

/* Counts the next file. */
static int add_file(struct reader *reader, struct stg_extent *extent, struct stg_err *err)
{
    struct file_count count;
    int rc = stg_iter_stopped(&reader->iter, err);
    if (rc < 0)
        return rc;
    if (stg_names_pull(&reader->names, 1) == 0) {
        if (reader->names.ended < 0 && err != NULL)
            *err = reader->names.failure;
        return reader->names.ended;
    }
    rc = count_file(reader, stg_names_at(&reader->names, 0), &count, err);
    stg_names_drop(&reader->names);
    if (rc < 0)
        return rc;
    extent->n = stg_count_add(extent->n, count.n);
    extent->bytes = stg_count_add(extent->bytes, count.bytes);
    reader->ends[reader->n_ends++] = extent->n;
    return 0;
}

static int reader_count(struct stg_iter *iter, struct stg_extent *ret,
                        struct stg_err *err)
{
    struct reader *reader = (struct reader *)iter;
    struct stg_extent files;
    forget(reader);
    int rc = stop_reading_ahead(reader, err);
    if (rc == 0)
        rc = stg_iter_count(iter->input, &files, err);
    if (rc == 0)
        rc = grow_ends(reader, files.n, err);
    if (rc == 0 && files.n > 0)
        rc = stg_iter_seek(iter->input, 0, err);
    *ret = (struct stg_extent){0};
    reader->n_ends = 0;
    while (rc == 0 && reader->n_ends < files.n)
        rc = add_file(reader, ret, err);
    stg_names_clear(&reader->names);
    reader->n_begun = UNKNOWN;
    return rc < 0 ? rc : 0;
}

/* Returns the first file that ends behind record n. */
static uint64_t find_file(const struct reader *reader, uint64_t n)
{
    uint64_t low = 0, high = reader->n_ends;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (reader->ends[middle] <= n)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Begins that file, unless it is open, and stands at record n of it or before. */
static int go_to_file(struct reader *reader, uint64_t file, uint64_t n,
                      struct stg_err *err)
{
    if (reader->source != NULL && reader->error == NULL && reader->n_begun == file + 1 &&
        reader->index.so_far.n_positions <= n)
        return 0;
    forget(reader);
    int rc = stg_iter_seek(reader->iter.input, file, err);
    if (rc < 0)
        return rc;
    reader->n_begun = file;
    rc = next_file(reader, err);
    return rc < 0 ? rc : 0;
}

/* Refuses a large file in which each seek would begin at its start. */
static int check_seekable(struct reader *reader, struct stg_err *err)
{
    const struct stg_dataset *dataset = reader->iter.dataset;
    uint64_t bytes =
        reader->file < dataset->n_files ? reader->counts[reader->file].bytes : 0;
    if (bytes < MAX_FROM_START * stg_index_min_bytes())
        return 0;
    bool has_places = reader->config.format->skip != NULL ||
                      stg_file_index_find(&reader->index) != NULL;
    if (has_places && !reader->is_compressed)
        return 0;
    return stg_step_err(
        reader->iter.step, -STAGER_INVALID_ARGUMENT, err,
        "%s %s, and has %" PRIu64
        " bytes: in another order it is read from its start again and "
        "again; %s, or use a buffer_size without global",
        shown(reader),
        reader->is_compressed ? "is compressed" : "has no record index (see the log)",
        bytes,
        reader->is_compressed ? "decompress it" : "raise index_size of stagerd.yaml");
}

static int reader_seek(struct stg_iter *iter, uint64_t n, struct stg_err *err)
{
    struct reader *reader = (struct reader *)iter;
    uint64_t file = find_file(reader, n), skipped = 0;
    uint64_t rest = n - end_of(reader, file);
    if (reader->failed < 0)
        return emit(reader, NULL, err);
    int rc = go_to_file(reader, file, rest, err);
    if (rc < 0 || reader->source == NULL)
        return rc;
    rc = check_seekable(reader, err);
    if (rc < 0)
        return rc;
    return skip_in_file(reader, rest - reader->index.so_far.n_positions, &skipped, err);
}

/* ---- the end ---- */

static void destroy_counter(struct reader *reader)
{
    struct reader *counter = reader->counter;
    if (counter == NULL)
        return;
    reader->config.format->destroy(counter->format_reader);
    free(counter->begin);
    free(counter->end);
    free(counter->path);
    free(counter);
}

static void reader_destroy(struct stg_iter *iter)
{
    struct reader *reader = (struct reader *)iter;
    forget(reader);
    stg_names_finish(&reader->names);
    if (reader->format_reader != NULL)
        reader->config.format->destroy(reader->format_reader);
    free(reader->begin);
    free(reader->end);
    free(reader->runs);
    free(reader->path);
    free(reader->description);
    destroy_counter(reader);
    stg_file_index_finish(&reader->index);
    if (reader->counts != NULL)
        stg_quota_give(iter->dataset->quota,
                       iter->dataset->n_files * sizeof(*reader->counts));
    free(reader->counts);
    stg_quota_give(iter->dataset->quota, reader->ends_size * sizeof(*reader->ends));
    free(reader->ends);
    free(reader);
}

static const struct stg_iter_impl reader_impl = {.next = reader_next,
                                                 .rewind = reader_rewind,
                                                 .destroy = reader_destroy,
                                                 .skip = reader_skip,
                                                 .left = reader_left,
                                                 .left_has_errors = true,
                                                 .count = reader_count,
                                                 .seek = reader_seek};

/* Without memory for it, the reader has no indexes. */
static void describe(struct reader *reader)
{
    const struct stg_format *format = reader->config.format;
    size_t bytes;
    FILE *to =
        format->describe != NULL ? open_memstream(&reader->description, &bytes) : NULL;
    if (to == NULL)
        return;
    fprintf(to, "compression=%s ", reader->config.compression);
    format->describe(reader->format_reader, to);
    bool failed = ferror(to) != 0;
    if ((fclose(to) != 0) | failed) {
        free(reader->description);
        reader->description = NULL;
    }
    reader->index.reader = reader->description;
}

int stg_reader_create(struct stg_dataset *dataset, const struct stg_step *step,
                      const struct stg_schema *schema, struct stg_iter *input,
                      const struct stg_reader_config *config, struct stg_iter **ret,
                      struct stg_err *err)
{
    struct reader *reader =
        stg_iter_create(sizeof(*reader), &reader_impl, dataset, step, schema, input, err);
    if (reader == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    reader->config = *config;
    reader->is_alone = dataset->n_sharing == 1;
    reader->n_parts = config->config.n_parts > 0 ? config->config.n_parts : 1;
    reader->config.config.quota = dataset->quota;
    reader->config.config.stopped = dataset->env.stopped;
    reader->names.input = input;
    reader->names.step = step;
    reader->names.identity = &dataset->identity;
    /* What is opened ahead is asked for as well, and would lie in the page cache. */
    reader->names.ahead = config->direct ? NULL : config->config.ahead;
    int rc = config->format->create(&reader->config.config, &reader->format_reader);
    if (rc < 0) {
        out_of_memory(reader, err);
        reader_destroy(&reader->iter);
        return rc;
    }
    reader->index.dataset = dataset;
    reader->index.n_parts = (unsigned)reader->n_parts;
    describe(reader);
    *ret = &reader->iter;
    return 0;
}

void *stg_reader_format(struct stg_iter *iter)
{
    return ((struct reader *)iter)->format_reader;
}
