/* SPDX-License-Identifier: Apache-2.0
 *
 * Record indexes as readers build and use them. What an index says is compared with what
 * the test wrote to the file, and a run that skips with an unbroken one.
 */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <isa-l/igzip_lib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"
#include "daemon/dataset/step.h"
#include "daemon/index/index.h"
#include "daemon/storage/codec/crc32c.h"
#include "ops/base/hash.h"
#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"

#define FILE_BYTES ((uint64_t)9 << 17)
#define MIN_BYTES ((uint64_t)3 << 17) /* of files with an index here */
#define MAX_RECORD 3000

/* ---- files, and where their records are ---- */

struct truth {
    struct place {
        uint64_t record, offset;
        bool is_error;
    } * at;
    size_t n, n_records;
};

struct writer {
    FILE *file;
    struct truth truth;
    uint64_t record, random;
};

static uint64_t draw(struct writer *writer, uint64_t below)
{
    writer->random = writer->random * 6364136223846793005ull + 1442695040888963407ull;
    return (writer->random >> 33) % below;
}

/* The next bytes are a record, or stand for an error. */
static void begin_record(struct writer *writer, bool is_error)
{
    struct truth *truth = &writer->truth;
    if ((truth->n & (truth->n - 1)) == 0)
        truth->at = realloc(truth->at, (2 * truth->n + 1) * sizeof(truth->at[0]));
    truth->at[truth->n++] =
        (struct place){writer->record++, (uint64_t)ftell(writer->file), is_error};
    truth->n_records += !is_error;
}

static void put_text(struct writer *writer, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++)
        fputc((int)('a' + draw(writer, 26)), writer->file);
}

static void put_line(struct writer *writer)
{
    bool is_error = draw(writer, 2000) == 0;
    begin_record(writer, is_error);
    put_text(writer, is_error ? MAX_RECORD + 1 : draw(writer, 200));
    fputs(draw(writer, 4) == 0 ? "\r\n" : "\n", writer->file);
}

static void put_json(struct writer *writer)
{
    if (draw(writer, 10) == 0) {
        fputs(draw(writer, 2) == 0 ? "\n" : " \t \n", writer->file);
        writer->record++;
        return;
    }
    begin_record(writer, false);
    fprintf(writer->file, "{\"a\": %" PRIu64 "}\n", draw(writer, 1000000));
}

static void put_csv(struct writer *writer)
{
    static const char *const ends[] = {"\n", "\r\n", "\r"};
    begin_record(writer, false);
    fprintf(writer->file, "%" PRIu64 ",\"two\nlines \"\" and\r\n", draw(writer, 1000));
    put_text(writer, draw(writer, 100));
    fprintf(writer->file, "\",x%s", ends[draw(writer, 3)]);
}

static void put_u32(FILE *file, uint32_t value)
{
    fwrite(&value, 1, sizeof(value), file);
}

static void put_frame(struct writer *writer)
{
    static char data[MAX_RECORD];
    uint64_t bytes = draw(writer, 1000);
    uint32_t length_crc = stg_crc32c()->extend(0, &bytes, sizeof(bytes));
    bool is_error = draw(writer, 500) == 0;
    begin_record(writer, is_error);
    for (uint64_t i = 0; i < bytes; i++)
        data[i] = (char)draw(writer, 256);
    fwrite(&bytes, 1, sizeof(bytes), writer->file);
    put_u32(writer->file, stg_crc32c_mask(length_crc));
    fwrite(data, 1, bytes, writer->file);
    put_u32(writer->file,
            stg_crc32c_mask(stg_crc32c()->extend(0, data, bytes)) + is_error);
}

static void put_member(struct writer *writer, const char *name, uint64_t bytes)
{
    char header[512] = "";
    unsigned sum = 0;
    snprintf(header, 100, "%s", name);
    snprintf(header + 100, 8, "%07o", 0644);
    snprintf(header + 124, 12, "%011" PRIo64, bytes);
    memset(header + 148, ' ', 8);
    header[156] = '0';
    memcpy(header + 257, "ustar\00000", 8);
    for (int i = 0; i < 512; i++)
        sum += (unsigned char)header[i];
    snprintf(header + 148, 8, "%06o", sum);
    fwrite(header, 1, 512, writer->file);
    put_text(writer, bytes);
    for (; bytes % 512 != 0; bytes++)
        fputc(0, writer->file);
}

static void put_sample(struct writer *writer)
{
    char name[64];
    bool is_error = draw(writer, 50) == 0;
    if (draw(writer, 20) == 0)
        put_member(writer, "README", 700); /* belongs to no sample */
    begin_record(writer, is_error);
    uint64_t number = writer->record;
    snprintf(name, sizeof(name), "s%07" PRIu64 ".a", number);
    put_member(writer, name, draw(writer, 1000));
    snprintf(name, sizeof(name), "s%07" PRIu64 ".%s", number, is_error ? "c" : "b");
    put_member(writer, name, draw(writer, 1000));
}

static void end_tar(struct writer *writer)
{
    char end[1024] = "";
    fwrite(end, 1, sizeof(end), writer->file);
}

static void put_headers(struct writer *writer)
{
    fputs("\xef\xbb\xbfone\ntwo\n", writer->file);
    writer->record = 2;
}

static void put_csv_header(struct writer *writer)
{
    fputs("a,\"b\nc\",d\n", writer->file);
    writer->record = 1;
}

static void end_without_newline(struct writer *writer)
{
    begin_record(writer, false);
    fputs("last", writer->file);
}

static const struct kind {
    const char *name;
    const char *reader; /* the step */
    const char *key;    /* struct stg_index_key.reader */
    void (*begin)(struct writer *writer);
    void (*put)(struct writer *writer);
    void (*end)(struct writer *writer);
} kinds[] = {
    {"lines", "text_line: {skip_header_lines: 2, max_record_bytes: 3000}",
     "compression=auto text_line header=2", put_headers, put_line, end_without_newline},
    {"jsonl", "jsonl: {max_record_bytes: 3000}",
     "compression=auto text_line header=0 blank max=3000", NULL, put_json, NULL},
    {"csv", "csv: {header: true, max_record_bytes: 3000}",
     "compression=auto csv delim=44 quotes=1 header=1 max=3000", put_csv_header, put_csv,
     NULL},
    {"tfrecord", "tfrecord: {}", "compression=auto tfrecord", NULL, put_frame, NULL},
    {"tar", "tar: {parts: {a: required, b: required}, max_record_bytes: 5000}",
     "compression=auto tar max=5000 a b", NULL, put_sample, end_tar},
};
#define N_KINDS (sizeof(kinds) / sizeof(kinds[0]))

static struct truth write_file(const struct kind *kind, const char *name, uint64_t bytes,
                               uint64_t seed)
{
    struct writer writer = {.random = seed, .file = fopen(stg_test_path(name), "we")};
    CHECK(writer.file != NULL);
    if (kind->begin != NULL)
        kind->begin(&writer);
    while ((uint64_t)ftell(writer.file) < bytes)
        kind->put(&writer);
    if (kind->end != NULL)
        kind->end(&writer);
    CHECK_INT(fclose(writer.file), 0);
    return writer.truth;
}

/* Compresses the file; keeps its name. */
static void compress(const char *name)
{
    struct stat st;
    struct isal_zstream stream;
    const char *path = stg_test_path(name);
    FILE *file = fopen(path, "r+e");
    CHECK(file != NULL && fstat(fileno(file), &st) == 0);
    size_t bytes = (size_t)st.st_size, room = bytes + bytes / 8 + 4096;
    unsigned char *data = malloc(bytes), *out = malloc(room);
    CHECK_INT(fread(data, 1, bytes, file), bytes);
    isal_deflate_stateless_init(&stream);
    stream.next_in = data;
    stream.avail_in = (uint32_t)bytes;
    stream.next_out = out;
    stream.avail_out = (uint32_t)room;
    stream.end_of_stream = 1;
    stream.gzip_flag = IGZIP_GZIP;
    CHECK_INT(isal_deflate_stateless(&stream), COMP_OK);
    rewind(file);
    CHECK_INT(fwrite(out, 1, stream.total_out, file), stream.total_out);
    CHECK_INT(ftruncate(fileno(file), stream.total_out), 0);
    CHECK_INT(fclose(file), 0);
    free(data);
    free(out);
}

/* ---- indexes ---- */

static void configure(void)
{
    struct stg_err err = {0};
    stg_log_set_level(STG_LOG_ERROR);
    stg_index_set_min_bytes(MIN_BYTES);
    CHECK_OK(stg_index_configure(stg_test_path("index"), 1 << 20, &err), err);
}

static unsigned n_indexes(void)
{
    unsigned n = 0;
    DIR *dir = opendir(stg_test_path("index"));
    CHECK(dir != NULL);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;)
        n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

/* Of the only one there is. */
static ino_t inode_of_index(void)
{
    ino_t inode = 0;
    DIR *dir = opendir(stg_test_path("index"));
    CHECK(dir != NULL);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] != '.')
            inode = entry->d_ino;
    }
    closedir(dir);
    return inode;
}

static struct stg_index *open_index(const struct kind *kind, const char *name)
{
    const struct stg_file_user root = {.uid = 0};
    struct stg_index_key key = {.url = stg_test_path(name), .reader = kind->key};
    struct stg_source *source;
    struct stg_index *index;
    struct stg_err err = {0};
    CHECK_OK(stg_storage_file.open(key.url, &root, &source, &err), err);
    CHECK_OK(stg_storage_file.size(source, &key.bytes, &err), err);
    CHECK_OK(stg_storage_file.version(source, &key.version, &err), err);
    stg_storage_file.close(source);
    return stg_index_open(&key, &index) ? index : NULL;
}

/* All places are records of the truth, and near enough to one another. */
static void check_index(const struct kind *kind, const char *name,
                        const struct truth *truth)
{
    struct stg_index *index = open_index(kind, name);
    struct stg_index_place place, before = {0};
    uint64_t last;
    if (index == NULL)
        FAIL("%s: there is no index", kind->name);
    CHECK_INT(stg_index_totals(index)->n_positions, truth->n);
    CHECK_INT(stg_index_totals(index)->n_records, truth->n_records);
    for (size_t position = 1; position <= truth->n; position += 1 + truth->n / 20000) {
        if (!stg_index_find(index, position, &place, &last)) {
            CHECK(position < 3);
            continue;
        }
        const struct place *right = &truth->at[place.position];
        CHECK(place.position < position && !right->is_error);
        CHECK_INT(place.record, right->record);
        CHECK_INT(place.offset, right->offset);
        CHECK(place.offset <= before.offset + STG_INDEX_SPACING + 5 * MAX_RECORD);
        if (place.position != before.position)
            CHECK(before.offset == 0 ||
                  place.offset >= before.offset + STG_INDEX_SPACING);
        before = place;
    }
    CHECK(before.offset + STG_INDEX_SPACING + 5 * MAX_RECORD >=
          truth->at[truth->n - 1].offset);
    stg_index_close(index);
}

/* ---- runs ---- */

static char *pipeline(const char *format, const char *reader)
{
    char *text;
    CHECK(asprintf(&text, format, reader) > 0);
    return text;
}

/* Reads all of it; returns how many items there were, and errors among them. */
static uint64_t read_all(const char *text, uint64_t *ret_errors)
{
    struct stg_dataset_env env = stg_test_env();
    struct stg_pipeline_spec *spec;
    struct stg_dataset *dataset = stg_test_open_text(text, &env, &spec);
    struct stg_block *block;
    uint64_t n = 0;
    *ret_errors = 0;
    while ((block = stg_test_next(dataset)) != NULL) {
        *ret_errors += block->error.code != 0;
        n++;
        stg_block_unref(block);
    }
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
    return n;
}

#define PLAIN "dataset:\n- files: {pattern: \"$DIR/data*\", shuffle: false}\n- %s\n"
#define BATCHES PLAIN "- batch: {batch_size: 777}\n"
#define INTERLEAVED                                                                      \
    "dataset:\n- files: {pattern: \"$DIR/data*\", shuffle: false}\n"                     \
    "- interleave: {cycle_length: 3, block_length: 5, num_parallel_calls: 3, reader: "   \
    "{%s}}\n"

static void check_built(const char *format, bool is_compressed)
{
    uint64_t bytes = is_compressed ? 3 * FILE_BYTES : FILE_BYTES;
    int n_files = is_compressed ? 1 : 3;
    for (size_t i = 0; i < N_KINDS; i++) {
        struct truth truths[3];
        char name[16], *text = pipeline(format, kinds[i].reader);
        uint64_t errors;
        for (int k = 0; k < n_files; k++) {
            snprintf(name, sizeof(name), "data%d", k);
            truths[k] = write_file(&kinds[i], name, bytes / (1 + k), 17 + k);
            if (is_compressed)
                compress(name);
        }
        configure();
        read_all(text, &errors);
        CHECK_INT(n_indexes(), n_files * (i + 1));
        for (int k = 0; k < n_files; k++) {
            snprintf(name, sizeof(name), "data%d", k);
            check_index(&kinds[i], name, &truths[k]);
            free(truths[k].at);
        }
        stg_index_finish();
        free(text);
    }
}

static void a_full_pass_over_records_builds_the_index(void)
{
    check_built(PLAIN, false);
}

static void a_full_pass_over_batches_builds_the_index(void)
{
    check_built(BATCHES, false);
}

static void readers_of_several_files_at_once_build_the_index_of_each(void)
{
    check_built(INTERLEAVED, false);
}

static void the_index_of_a_compressed_file_is_of_what_it_holds(void)
{
    check_built(BATCHES, true);
}

/* Other threads read and split the file ahead of the reader. */
static void a_file_that_is_split_by_several_threads_has_the_same_index(void)
{
    struct truth truth = write_file(&kinds[0], "data0", 4 * FILE_BYTES, 5);
    char *text = pipeline(BATCHES, kinds[0].reader);
    struct stg_dataset_env env = stg_test_env();
    struct stg_pipeline_spec *spec;
    configure();
    struct stg_dataset *dataset = stg_test_open_text(text, &env, &spec);
    for (struct stg_block *block; (block = stg_test_next(dataset)) != NULL;) {
        stg_block_read_ahead(block);
        stg_block_unref(block);
    }
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
    check_index(&kinds[0], "data0", &truth);
    stg_index_finish();
    free(truth.at);
    free(text);
}

/* ---- no index ---- */

static void a_pass_that_ends_early_stores_no_index(void)
{
    struct truth truth = write_file(&kinds[0], "data0", FILE_BYTES, 5);
    char *text = pipeline(PLAIN "- take: {count: 1800}\n", kinds[0].reader);
    uint64_t errors;
    configure();
    CHECK(read_all(text, &errors) >= 1800);
    CHECK_INT(n_indexes(), 0);
    stg_index_finish();
    free(truth.at);
    free(text);
}

static void a_small_file_has_no_index(void)
{
    struct truth truth = write_file(&kinds[0], "data0", MIN_BYTES / 2, 5);
    char *text = pipeline(PLAIN, kinds[0].reader);
    uint64_t errors;
    configure();
    CHECK_INT(read_all(text, &errors), truth.n);
    CHECK_INT(n_indexes(), 0);
    stg_index_finish();
    free(truth.at);
    free(text);
}

static void a_file_that_changes_while_it_is_read_has_no_index(void)
{
    struct truth truth = write_file(&kinds[0], "data0", FILE_BYTES, 5);
    char *text = pipeline(PLAIN, kinds[0].reader);
    struct stg_dataset_env env = stg_test_env();
    struct stg_pipeline_spec *spec;
    configure();
    struct stg_dataset *dataset = stg_test_open_text(text, &env, &spec);
    struct stg_block *block = stg_test_next(dataset);
    stg_block_unref(block);
    CHECK_INT(chmod(stg_test_path("data0"), 0640), 0); /* changes its ctime */
    while ((block = stg_test_next(dataset)) != NULL)
        stg_block_unref(block);
    stg_dataset_destroy(dataset);
    stg_pipeline_spec_destroy(spec);
    CHECK_INT(n_indexes(), 0);
    stg_index_finish();
    free(truth.at);
    free(text);
}

static void a_truncated_compressed_file_has_no_index(void)
{
    struct truth truth = write_file(&kinds[0], "data0", 4 * FILE_BYTES, 5);
    char *text = pipeline(PLAIN, kinds[0].reader);
    uint64_t errors;
    compress("data0");
    CHECK_INT(truncate(stg_test_path("data0"), 3 << 18), 0);
    configure();
    read_all(text, &errors);
    CHECK(errors > 0);
    CHECK_INT(n_indexes(), 0);
    stg_index_finish();
    free(truth.at);
    free(text);
}

static void an_index_that_exists_is_not_built_again(void)
{
    struct truth truth = write_file(&kinds[0], "data0", FILE_BYTES, 5);
    char *text = pipeline(BATCHES, kinds[0].reader);
    uint64_t errors;
    configure();
    read_all(text, &errors);
    CHECK_INT(n_indexes(), 1);
    ino_t was = inode_of_index();
    read_all(text, &errors);
    CHECK(inode_of_index() == was);
    check_index(&kinds[0], "data0", &truth);
    stg_index_finish();
    free(truth.at);
    free(text);
}

static void a_changed_file_gets_a_new_index(void)
{
    struct truth truth = write_file(&kinds[0], "data0", FILE_BYTES, 5);
    char *text = pipeline(BATCHES, kinds[0].reader);
    uint64_t errors;
    configure();
    read_all(text, &errors);
    free(truth.at);
    truth = write_file(&kinds[0], "data0", FILE_BYTES, 6);
    CHECK(open_index(&kinds[0], "data0") == NULL);
    read_all(text, &errors);
    check_index(&kinds[0], "data0", &truth);
    CHECK_INT(n_indexes(), 1);
    stg_index_finish();
    free(truth.at);
    free(text);
}

/* ---- skipping ---- */

#define COMPARED 120 /* items behind a skip */

/* What an unbroken run yields: a hash of each item. */
struct run {
    uint64_t *at;
    size_t n;
    size_t first_of[5]; /* item of each file */
};

/* Of all that a trainer and a person may see of it. */
static uint64_t hash_of(const struct stg_dataset *dataset, const struct stg_block *block)
{
    uint64_t sum = block->epoch;
    if (block->error.code != 0)
        return stg_fingerprint64_join((uint64_t)block->error.code, block->error.text,
                                      strlen(block->error.text));
    for (uint32_t c = 0; c < block->n_components; c++) {
        const struct stg_tensor *tensor = &block->tensors[c];
        sum = stg_fingerprint64_join(sum, (const char *)tensor->data + tensor->begin[0],
                                     (uint64_t)(tensor->end[0] - tensor->begin[0]));
    }
    char text[512];
    stg_provenance_text(dataset, &block->rows[0], text, sizeof(text));
    return stg_fingerprint64_join(sum, text, strlen(text));
}

struct reading {
    struct stg_pipeline_spec *spec;
    struct stg_dataset *dataset;
    struct stg_dataset_env env;
};

static void reading_open(struct reading *reading, const char *text)
{
    reading->env = stg_test_env();
    reading->dataset = stg_test_open_text(text, &reading->env, &reading->spec);
}

static void reading_close(struct reading *reading)
{
    stg_dataset_destroy(reading->dataset);
    stg_pipeline_spec_destroy(reading->spec);
}

static struct run unbroken(const char *text)
{
    struct run run = {0};
    struct reading reading;
    struct stg_block *block;
    reading_open(&reading, text);
    run.at = malloc(sizeof(run.at[0]) * 2000000);
    while ((block = stg_test_next(reading.dataset)) != NULL) {
        uint32_t file = block->error.code == 0 ? block->rows[0].file : 0;
        if (run.first_of[file] == 0)
            run.first_of[file] = run.n;
        run.at[run.n++] = hash_of(reading.dataset, block);
        stg_block_unref(block);
    }
    reading_close(&reading);
    return run;
}

static void skip(struct reading *reading, const struct run *run, uint64_t *at, uint64_t n)
{
    struct stg_err err = {0};
    uint64_t skipped = 0, left = run->n - *at;
    CHECK_OK(stg_iter_skip(reading->dataset->last, n, &skipped, &err), err);
    CHECK_INT(skipped, n < left ? n : left);
    *at += skipped;
}

static void compare(struct reading *reading, const struct run *run, uint64_t *at,
                    uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        struct stg_block *block = stg_test_next(reading->dataset);
        CHECK((block == NULL) == (*at == run->n));
        if (block == NULL)
            return;
        if (hash_of(reading->dataset, block) != run->at[*at])
            FAIL("item %" PRIu64 " is another one: %s", *at, block->error.text);
        ++*at;
        stg_block_unref(block);
    }
}

/* Skips to that item, in one go, behind a few items, or in two. */
static void check_skip_to(const char *text, const struct run *run, uint64_t to)
{
    static const uint64_t firsts[] = {0, 3, 300};
    for (int way = 0; way < 4; way++) {
        struct reading reading;
        uint64_t at = 0;
        reading_open(&reading, text);
        if (way < 3)
            compare(&reading, run, &at, firsts[way]);
        else
            skip(&reading, run, &at, to / 2);
        if (at <= to)
            skip(&reading, run, &at, to - at);
        compare(&reading, run, &at, COMPARED);
        reading_close(&reading);
    }
}

static void check_skips(const char *text, const struct run *run, unsigned n)
{
    struct writer random = {.random = 99};
    for (unsigned i = 0; i < n; i++)
        check_skip_to(text, run, draw(&random, run->n));
    for (int file = 0; file < 4; file++) {
        check_skip_to(text, run, run->first_of[file]);
        check_skip_to(text, run, run->first_of[file] + 1);
        if (run->first_of[file] > 0)
            check_skip_to(text, run, run->first_of[file] - 1);
    }
    check_skip_to(text, run, run->n);
    check_skip_to(text, run, run->n + 7);
}

/* Four files, of which the last is too small for an index; damaged at the end, each in
 * the way of its format. */
static void write_files(const struct kind *kind, bool is_compressed)
{
    static const uint64_t bytes[] = {FILE_BYTES, 5 * FILE_BYTES / 9, FILE_BYTES / 2,
                                     MIN_BYTES / 4};
    char name[16];
    struct stat st;
    for (int k = 0; k < 4; k++) {
        snprintf(name, sizeof(name), "data%d", k);
        free(write_file(kind, name, bytes[k] * (is_compressed ? 2 : 1), 40 + k).at);
        if (k == 1 && stat(stg_test_path(name), &st) == 0)
            CHECK_INT(truncate(stg_test_path(name), st.st_size - 300), 0);
        if (is_compressed)
            compress(name);
    }
}

static void check_all_kinds(bool is_compressed, bool is_indexed, unsigned n)
{
    for (size_t i = 0; i < N_KINDS; i++) {
        char *text = pipeline(PLAIN, kinds[i].reader);
        write_files(&kinds[i], is_compressed);
        struct run run = unbroken(text);
        uint64_t errors;
        configure();
        unsigned before = n_indexes();
        if (is_indexed)
            read_all(text, &errors);
        CHECK(n_indexes() - before >= (!is_indexed ? 0 : is_compressed ? 1 : 3));
        if (!is_indexed)
            stg_index_finish();
        check_skips(text, &run, n);
        stg_index_finish();
        free(run.at);
        free(text);
    }
}

static void a_skip_by_the_index_is_a_run_that_was_not_interrupted(void)
{
    SKIP_WITHOUT_THREADS();
    check_all_kinds(false, true, 40);
}

static void so_is_one_without_indexes(void)
{
    SKIP_WITHOUT_THREADS();
    check_all_kinds(false, false, 6);
}

static void so_is_one_in_compressed_files(void)
{
    check_all_kinds(true, true, 4);
}

static void a_skip_without_an_index_builds_it(void)
{
    struct truth truth = write_file(&kinds[0], "data0", FILE_BYTES, 5);
    char *text = pipeline(PLAIN, kinds[0].reader);
    struct stg_err err = {0};
    struct reading reading;
    uint64_t n;
    configure();
    reading_open(&reading, text);
    CHECK_OK(stg_iter_skip(reading.dataset->last, UINT64_MAX, &n, &err), err);
    CHECK_INT(n, truth.n);
    reading_close(&reading);
    check_index(&kinds[0], "data0", &truth);
    /* The next one reads nothing of the file but its head. */
    reading_open(&reading, text);
    CHECK_OK(stg_iter_skip(reading.dataset->last, UINT64_MAX, &n, &err), err);
    CHECK_INT(n, truth.n);
    CHECK_INT(reading.dataset->indexes.offset, 0);
    reading_close(&reading);
    stg_index_finish();
    free(truth.at);
    free(text);
}

/* ---- an index that is not right ---- */

static void damage_index(size_t at)
{
    char path[4096] = "";
    DIR *dir = opendir(stg_test_path("index"));
    CHECK(dir != NULL);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] != '.')
            snprintf(path, sizeof(path), "%s/%s", stg_test_path("index"), entry->d_name);
    }
    closedir(dir);
    FILE *file = fopen(path, "r+e");
    CHECK(file != NULL && fseek(file, (long)at, SEEK_SET) == 0);
    int c = fgetc(file);
    CHECK(c != EOF && fseek(file, (long)at, SEEK_SET) == 0);
    CHECK(fputc(c ^ 8, file) != EOF && fclose(file) == 0);
}

static void a_damaged_index_costs_a_replay_and_is_built_anew(void)
{
    struct truth truth = write_file(&kinds[0], "data0", FILE_BYTES, 5);
    char *text = pipeline(PLAIN, kinds[0].reader);
    struct run run = unbroken(text);
    uint64_t errors;
    configure();
    for (size_t at = 0; at < 700; at += 11) {
        read_all(text, &errors);
        damage_index(at);
        struct reading reading;
        uint64_t place = 0;
        reading_open(&reading, text);
        skip(&reading, &run, &place, truth.n * 2 / 3);
        compare(&reading, &run, &place, COMPARED);
        reading_close(&reading);
    }
    read_all(text, &errors);
    check_index(&kinds[0], "data0", &truth);
    stg_index_finish();
    free(truth.at);
    free(run.at);
    free(text);
}

/* Sums and order are right, and the places are not: as if the file had been changed
 * within the resolution of its times. */
static void forge_index(const struct kind *kind, const char *name,
                        const struct truth *truth, uint64_t off_by)
{
    struct stg_index_key key = {.url = stg_test_path(name), .reader = kind->key};
    const struct stg_file_user root = {.uid = 0};
    struct stg_source *source;
    struct stg_err err = {0};
    CHECK_OK(stg_storage_file.open(key.url, &root, &source, &err), err);
    CHECK_OK(stg_storage_file.size(source, &key.bytes, &err), err);
    CHECK_OK(stg_storage_file.version(source, &key.version, &err), err);
    stg_storage_file.close(source);
    struct stg_index_builder *builder = stg_index_build(&key);
    struct stg_index_totals totals = {
        .n_positions = truth->n, .n_records = truth->n_records, .end = key.bytes};
    for (size_t i = 0; i < truth->n; i++) {
        struct stg_index_place place = {.position = i,
                                        .record = truth->at[i].record,
                                        .offset = truth->at[i].offset + off_by,
                                        .check = 1};
        if (place.offset >= builder->next && !truth->at[i].is_error)
            stg_index_note(builder, &place);
    }
    CHECK(stg_index_commit(builder, &totals, NULL));
}

static void an_index_whose_places_are_wrong_is_refuted_by_the_file(void)
{
    configure();
    for (size_t k = 0; k < N_KINDS; k++) {
        struct truth truth = write_file(&kinds[k], "data0", FILE_BYTES, 5);
        char *text = pipeline(PLAIN, kinds[k].reader);
        struct run run = unbroken(text);
        for (uint64_t off_by = 0; off_by < 3; off_by++) {
            struct reading reading;
            uint64_t place = 0;
            forge_index(&kinds[k], "data0", &truth, off_by);
            reading_open(&reading, text);
            compare(&reading, &run, &place, 5);
            skip(&reading, &run, &place, truth.n / 2);
            compare(&reading, &run, &place, UINT64_MAX);
            reading_close(&reading);
            check_index(&kinds[k], "data0", &truth);
        }
        free(truth.at);
        free(run.at);
        free(text);
    }
    stg_index_finish();
}

static void a_rewind_begins_at_the_first_file_again(void)
{
    struct run run;
    struct reading reading;
    struct stg_err err = {0};
    uint64_t at = 0, errors;
    char *text = pipeline(PLAIN, kinds[3].reader);
    write_files(&kinds[3], false);
    run = unbroken(text);
    configure();
    read_all(text, &errors);
    reading_open(&reading, text);
    skip(&reading, &run, &at, run.n / 3);
    struct stg_iter *last = reading.dataset->last;
    CHECK_OK(last->impl->rewind(last, false, &err), err);
    at = 0;
    skip(&reading, &run, &at, run.n / 2);
    compare(&reading, &run, &at, COMPARED);
    reading_close(&reading);
    stg_index_finish();
    free(run.at);
    free(text);
}

/* The interleave counts the records of each file by its index. */
static void a_skip_over_files_in_turn_is_exact(void)
{
    for (size_t i = 0; i < N_KINDS; i++) {
        char name[16], *text = pipeline(INTERLEAVED, kinds[i].reader);
        struct run run;
        uint64_t n_errors = 0;
        for (int k = 0; k < 3; k++) {
            snprintf(name, sizeof(name), "data%d", k);
            free(write_file(&kinds[i], name, FILE_BYTES / (1 + k), 60 + k).at);
        }
        run = unbroken(text);
        configure();
        read_all(text, &n_errors);
        for (uint64_t to = 1; to < run.n; to += run.n / 5) {
            struct reading reading;
            uint64_t at = 0;
            reading_open(&reading, text);
            reading.dataset->clean_below = n_errors == 0 ? UINT32_MAX : 0;
            skip(&reading, &run, &at, to);
            compare(&reading, &run, &at, COMPARED);
            reading_close(&reading);
        }
        stg_index_finish();
        free(run.at);
        free(text);
    }
}

static void the_records_of_files_are_counted_by_their_indexes(void)
{
    char *text = pipeline(PLAIN, kinds[2].reader); /* without errors */
    uint64_t errors, n = 0, left = 0;
    struct reading reading;
    for (int k = 0; k < 2; k++)
        free(write_file(&kinds[2], k == 0 ? "data0" : "data1", FILE_BYTES, 70 + k).at);
    configure();
    n = read_all(text, &errors);
    reading_open(&reading, text);
    reading.dataset->clean_below = UINT32_MAX;
    CHECK(stg_iter_left(reading.dataset->last, UINT64_MAX, &left));
    CHECK_INT(left, n);
    CHECK_INT(reading.dataset->indexes.offset, 0); /* nothing was read */
    struct run run = unbroken(text);               /* what is counted is still to come */
    uint64_t at = 0;
    compare(&reading, &run, &at, UINT64_MAX);
    CHECK_INT(at, n);
    reading_close(&reading);
    stg_index_finish();
    free(run.at);
    free(text);
}

static void a_skip_of_fixed_length_records_reads_none_of_them(void)
{
    char *text =
        pipeline(PLAIN, "fixed_length_record: {record_bytes: 16, header_bytes: 5}");
    FILE *file = fopen(stg_test_path("data0"), "we");
    CHECK(file != NULL && fwrite("12345", 1, 5, file) == 5);
    for (int i = 0; i < 100000; i++)
        fprintf(file, "record %08d\n", i);
    fputs("rest", file); /* an error */
    CHECK_INT(fclose(file), 0);
    struct run run = unbroken(text);
    CHECK_INT(run.n, 100001);
    check_skips(text, &run, 40);
    free(run.at);
    free(text);
}

static const struct stg_test tests[] = {
    TEST(a_full_pass_over_records_builds_the_index),
    TEST(a_full_pass_over_batches_builds_the_index),
    TEST(readers_of_several_files_at_once_build_the_index_of_each),
    TEST_SLOW(the_index_of_a_compressed_file_is_of_what_it_holds, 60),
    TEST(a_file_that_is_split_by_several_threads_has_the_same_index),
    TEST(a_pass_that_ends_early_stores_no_index),
    TEST(a_small_file_has_no_index),
    TEST(a_file_that_changes_while_it_is_read_has_no_index),
    TEST(a_truncated_compressed_file_has_no_index),
    TEST(an_index_that_exists_is_not_built_again),
    TEST(a_changed_file_gets_a_new_index),
    TEST_SLOW(a_skip_by_the_index_is_a_run_that_was_not_interrupted, 60),
    TEST_SLOW(so_is_one_without_indexes, 60),
    TEST_SLOW(so_is_one_in_compressed_files, 60),
    TEST(a_skip_without_an_index_builds_it),
    TEST_SLOW(a_damaged_index_costs_a_replay_and_is_built_anew, 60),
    TEST_SLOW(an_index_whose_places_are_wrong_is_refuted_by_the_file, 60),
    TEST(a_rewind_begins_at_the_first_file_again),
    TEST_SLOW(a_skip_over_files_in_turn_is_exact, 60),
    TEST(the_records_of_files_are_counted_by_their_indexes),
    TEST(a_skip_of_fixed_length_records_reads_none_of_them),
};

TEST_MAIN(tests)
