/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/places.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/dataset/block.h"
#include "daemon/index/layout.h"
#include "daemon/index/trail.h"
#include "tests/daemon/dataset/dataset_spec.h"
#include "tests/daemon/dataset/step_run.h"
#include "tests/fuzz/fuzz.h"

#define MAX_FILES 4
#define MAX_ITEMS 2500
#define N_READ 6 /* items of a pass that continues */
#define N_LINES 2500

/* ---- the passes ---- */

#define TWO_OF_THREE                                                                     \
    "filter: {graph: {three: {op: constant, value: 3, dtype: int64}, two: {op: "         \
    "constant, value: 2, dtype: int64}, rest: {op: floormod, input: [value, three]}, "   \
    "is: {op: less, input: [rest, two]}}, predicate: is}"

/* Different in their first bytes, by which a record behind a jump is known. */
static void make_lines(void)
{
    static char text[N_LINES * 101 + 1];
    for (int i = 0; i < N_LINES; i++)
        sprintf(text + i * 101, "%06d%*d\n", i, 94, i);
    stg_test_file("lines.txt", text, sizeof(text) - 1);
}

/* An index; trails with errors, with numbers of held records, of a filter. */
static const struct stg_step_row rows[] = {
    {.step = "text_line",
     .pipeline = "dataset:\n- files: {pattern: $DIR/lines.txt}\n- text_line\n",
     .flags = STG_ROW_OWN_SOURCE,
     .prepare = make_lines},
    {.step = "filter", .pipeline = STG_AFTER_SOURCE(TWO_OF_THREE)},
    {.step = "shuffle",
     .pipeline = STG_AFTER_SOURCE(TWO_OF_THREE "\n- shuffle: {buffer_size: 5}\n"
                                               "- batch: {batch_size: 2}")},
    {.step = "bucket_by_sequence_length",
     .pipeline = STG_AFTER_SOURCE("bucket_by_sequence_length: {element_length: list, "
                                  "bucket_boundaries: [2, 3], bucket_batch_sizes: [4, 5, "
                                  "3]}"),
     .elements = STG_ELEMENTS_VARIED},
};
#define N_ROWS (sizeof(rows) / sizeof(rows[0]))

struct file {
    char name[STG_FOLDER_NAME];
    char *bytes;
    size_t n;
};

struct pass {
    struct stg_step_run run;
    char folder[128];
    struct file files[MAX_FILES];
    size_t n_files, n_items;
    uint64_t hashes[MAX_ITEMS];
    struct stg_position after[MAX_ITEMS];
};

static void begin(struct pass *pass)
{
    static const int64_t errors[] = {3, 3, 11};
    struct stg_err err = {0};
    stg_test_source.enabled = (pass->run.row->flags & STG_ROW_OWN_SOURCE) == 0;
    stg_test_source.elements = pass->run.row->elements;
    stg_test_source.n = 60;
    stg_test_source.fail_at = -1;
    stg_test_source.cannot_skip = false;
    stg_test_source_set_errors(errors, 3);
    stg_index_set_min_bytes(1);
    stg_trail_set_spacing(1);
    int rc = stg_index_configure(pass->folder, 1u << 30, &err);
    FUZZ_CHECK_TEXT(rc == 0, err.text);
}

static void end(void)
{
    stg_index_finish();
    stg_index_set_min_bytes(STG_INDEX_MIN_BYTES);
    stg_trail_set_spacing(STG_TRAIL_SPACING);
}

uint64_t stg_fuzz_hash_block(const struct stg_block *block)
{
    uint64_t hash = stg_fuzz_hash(1, &block->error.code, sizeof(block->error.code));
    for (uint32_t c = 0; block->error.code == 0 && c < block->n_components; c++) {
        const struct stg_tensor *tensor = &block->tensors[c];
        int64_t n = stg_tensor_n(tensor);
        hash = stg_fuzz_hash(hash, &n, sizeof(n));
        if (tensor->dtype != STAGER_STRING)
            hash = stg_fuzz_hash(hash, tensor->data,
                                 (size_t)n * stg_dtype_bytes(tensor->dtype));
        for (int64_t i = 0; tensor->dtype == STAGER_STRING && i < n; i++) {
            uint64_t length;
            const char *text = stg_tensor_string(tensor, i, &length);
            hash = stg_fuzz_hash(hash, text, length);
        }
    }
    return hash;
}

/* Reads up to `most` items from item `first` on. Returns the code that ended it. */
static int read_on(struct pass *pass, size_t first, size_t most, bool is_exact)
{
    struct stg_err err = {0};
    struct stg_block *block;
    int rc = 0;
    for (size_t i = first; i < first + most; i++) {
        rc = stg_dataset_next(pass->run.dataset, &block, &err);
        if (rc != 0)
            break;
        if (is_exact)
            FUZZ_CHECK(i < pass->n_items &&
                       stg_fuzz_hash_block(block) == pass->hashes[i]);
        stg_block_unref(block);
    }
    FUZZ_CHECK(rc >= 0 || err.text[0] != '\0');
    return rc;
}

static void take_file(struct pass *pass, const char *name)
{
    char path[256];
    struct stat st;
    FUZZ_CHECK(pass->n_files < MAX_FILES);
    struct file *file = &pass->files[pass->n_files++];
    snprintf(file->name, sizeof(file->name), "%.63s", name);
    snprintf(path, sizeof(path), "%s/%s", pass->folder, file->name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    FUZZ_CHECK(fd >= 0 && fstat(fd, &st) == 0);
    file->n = (size_t)st.st_size;
    file->bytes = malloc(file->n + 1);
    FUZZ_CHECK(file->bytes != NULL && read(fd, file->bytes, file->n) == st.st_size);
    close(fd);
}

static void take_files(struct pass *pass)
{
    DIR *dir = opendir(pass->folder);
    FUZZ_CHECK(dir != NULL);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] != '.')
            take_file(pass, entry->d_name);
    }
    closedir(dir);
    FUZZ_CHECK(pass->n_files > 0);
}

/* Reads the whole pass, which stores its files. */
static void make_pass(struct pass *pass, size_t i)
{
    struct stg_err err = {0};
    struct stg_block *block;
    unsigned elements = rows[i].elements != 0 ? rows[i].elements : STG_ELEMENTS_SCALAR;
    int rc = stg_step_run_load(&pass->run, &rows[i], elements, 1, &err);
    FUZZ_CHECK_TEXT(rc == 0, err.text);
    pass->run.notes_marks = true;
    snprintf(pass->folder, sizeof(pass->folder), "%s/places%zu", stg_test_dir(), i);
    begin(pass);
    stg_step_run_open(&pass->run);
    while ((rc = stg_dataset_next(pass->run.dataset, &block, &err)) == 0) {
        FUZZ_CHECK(pass->n_items < MAX_ITEMS);
        pass->hashes[pass->n_items] = stg_fuzz_hash_block(block);
        pass->after[pass->n_items++] = block->position;
        stg_block_unref(block);
    }
    FUZZ_CHECK_TEXT(rc == 1, err.text);
    stg_step_run_close(&pass->run);
    end();
    take_files(pass);
}

/* Passes live as long as the process. */
static struct pass *pass_of(size_t i)
{
    static struct pass *passes[N_ROWS];
    if (passes[i] == NULL) {
        passes[i] = calloc(1, sizeof(*passes[i]));
        FUZZ_CHECK(passes[i] != NULL);
        make_pass(passes[i], i);
    }
    return passes[i];
}

/* ---- changes ---- */

static void set_number(struct stg_fuzz_input *input, struct file *file, size_t at)
{
    static const uint64_t numbers[] = {0,
                                       1,
                                       2,
                                       7,
                                       64,
                                       1ull << 20,
                                       1ull << 31,
                                       1ull << 32,
                                       INT64_MAX,
                                       1ull << 63,
                                       UINT64_MAX - 1,
                                       UINT64_MAX};
    unsigned kind = stg_fuzz_byte(input);
    size_t left;
    uint64_t number = numbers[kind % 12];
    at &= ~(size_t)3;
    left = file->n - at;
    if (kind >= 128 && left >= sizeof(number)) {
        memcpy(&number, file->bytes + at, sizeof(number));
        number += kind - 192;
    }
    memcpy(file->bytes + at, &number, left < sizeof(number) ? left : sizeof(number));
}

static void change(struct stg_fuzz_input *input, struct file *file)
{
    unsigned kind = stg_fuzz_byte(input);
    size_t at = stg_fuzz_number(input), other = stg_fuzz_byte(input) * 48u;
    if (file->n == 0)
        return;
    at %= file->n;
    other %= file->n;
    switch (kind % 8) {
    case 0: file->n = at; break;
    case 1: file->bytes[at] ^= (char)(1u << kind / 8 % 8); break;
    case 2: file->bytes[at] = (char)stg_fuzz_byte(input); break;
    case 3: /* another part */
        memmove(file->bytes + at, file->bytes + other,
                file->n - (at > other ? at : other));
        break;
    case 4: memset(file->bytes + at, 0, file->n - at); break;
    default: set_number(input, file, at);
    }
}

/* An index whose sums fit. */
static void sum_index(struct file *file)
{
    struct stg_index_head head;
    if (file->n < sizeof(head))
        return;
    memcpy(&head, file->bytes, sizeof(head));
    uint64_t at = stg_index_places_at(head.key_bytes), sum = 0;
    const uint64_t piece = STG_INDEX_PIECE * sizeof(struct stg_index_place);
    while (at < file->n) {
        uint64_t n = file->n - at < piece ? file->n - at : piece;
        sum = stg_fingerprint64_join(sum, file->bytes + at, n);
        at += n;
    }
    head.places_sum = sum;
    head.sum = stg_index_head_sum(&head);
    memcpy(file->bytes, &head, sizeof(head));
}

/* A trail whose sums fit: a head of 64 bytes, then parts. */
static void sum_trail(struct file *file)
{
    uint64_t head_sum, number = 0;
    if (file->n < 64)
        return;
    memcpy(&head_sum, file->bytes + 56, sizeof(head_sum));
    for (size_t at = 64; file->n - at >= sizeof(struct stg_mark);
         at += sizeof(struct stg_mark)) {
        uint64_t sum = stg_fingerprint64_join(head_sum + number++, file->bytes + at,
                                              offsetof(struct stg_mark, sum));
        memcpy(file->bytes + at + offsetof(struct stg_mark, sum), &sum, sizeof(sum));
    }
}

static void store(const struct pass *pass, const struct file *file)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", pass->folder, file->name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    FUZZ_CHECK(fd >= 0 && write(fd, file->bytes, file->n) == (ssize_t)file->n);
    close(fd);
}

/* The files as they were stored, but for one. */
static void store_changed(struct stg_fuzz_input *input, const struct pass *pass,
                          unsigned number, bool is_forged)
{
    static char bytes[1 << 20];
    for (size_t i = 0; i < pass->n_files; i++) {
        struct file file = pass->files[i];
        FUZZ_CHECK(file.n <= sizeof(bytes));
        memcpy(bytes, file.bytes, file.n);
        file.bytes = bytes;
        bool is_index = memcmp(bytes, STG_INDEX_MAGIC, 8) == 0;
        for (int n = 0; i == number && n < 8 && input->at < input->end; n++)
            change(input, &file);
        if (is_forged && is_index)
            sum_index(&file);
        else if (is_forged)
            sum_trail(&file);
        store(pass, &file);
    }
}

void stg_fuzz_places(const uint8_t *data, size_t bytes)
{
    struct stg_fuzz_input input = {data, data + bytes};
    struct stg_err err = {0};
    unsigned flags = stg_fuzz_byte(&input);
    struct pass *pass = pass_of(flags % N_ROWS);
    size_t first = stg_fuzz_number(&input) % pass->n_items;
    bool is_forged = (flags & 128) != 0;
    store_changed(&input, pass, (flags >> 2 & 7) % (unsigned)pass->n_files, is_forged);
    begin(pass);
    stg_step_run_open(&pass->run);
    int rc = stg_dataset_seek(pass->run.dataset, &pass->after[first], &err);
    FUZZ_CHECK_TEXT(rc == 0 || (is_forged && err.text[0] != '\0'), err.text);
    if (rc == 0)
        rc = read_on(pass, first + 1, N_READ, !is_forged);
    FUZZ_CHECK(is_forged || rc == 0 || (rc == 1 && first + 1 + N_READ > pass->n_items));
    stg_step_run_close(&pass->run);
    end();
}

void stg_fuzz_places_seeds(void)
{
    /* Unchanged, one changed number, the same with sums that fit, cut. */
    for (uint8_t i = 0; i < N_ROWS; i++) {
        for (uint8_t k = 0; k < 4; k++) {
            const uint8_t flags[] = {(uint8_t)(i | k << 2 | (k % 2) << 7), 0, 40};
            const uint8_t changes[] = {5, 0, 64, 0, 200, 1, 0, 180, 0, 0, 1, 10, 0};
            stg_fuzz_seed("places", flags, 3, changes, k * 4);
        }
    }
}
