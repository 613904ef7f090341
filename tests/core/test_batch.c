/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/batch.h"
#include "tests/check.h"
#include "tests/core/golden_batch.h"
#include "tests/core/random.h"

#define CAPACITY (4u * STG_GRANULE_BYTES)

static struct stg_component components[] = {
    {.name = "label", .dtype = STAGER_FLOAT32, .ndim = 1, .shape = {-1}},
    {.name = "ids", .dtype = STAGER_INT64, .ndim = 2, .shape = {-1, 26}},
    {.name = "text", .dtype = STAGER_STRING, .ndim = 1, .shape = {-1}},
    {.name = "step", .dtype = STAGER_INT32, .ndim = 0},
};
static const struct stg_schema schema = {.components = components, .n = 4};

static void *extent(void)
{
    void *base = aligned_alloc(STG_TENSOR_ALIGN, CAPACITY);
    CHECK(base != NULL);
    memset(base, 0xa5, CAPACITY);
    return base;
}

static const float labels[3] = {0.0f, 1.0f, -2.5f};
static const char words[] = "..ab...cde";

/* Three rows. The strings are "ab", "" and "cde", with gaps between them. */
static uint64_t write_all(void *base)
{
    struct stg_err err = {0};
    struct stg_batch_writer w;
    CHECK_OK(stg_batch_writer_begin(&w, base, CAPACITY, &schema, &err), err);

    struct stg_tensor ids;
    CHECK_OK(stg_batch_writer_alloc(&w, 1, STAGER_INT64, 2, (const int64_t[]){3, 26}, 0,
                                    &ids, &err),
             err);
    for (int i = 0; i < 78; i++)
        ((int64_t *)ids.data)[i] = i * 1000000007ll;

    struct stg_tensor label = {.dtype = STAGER_FLOAT32,
                               .ndim = 1,
                               .shape = {3},
                               .data = (void *)labels,
                               .data_bytes = sizeof(labels)};
    CHECK_OK(stg_batch_writer_copy(&w, 0, &label, &err), err);

    int32_t step = 42;
    struct stg_tensor scalar = {
        .dtype = STAGER_INT32, .data = &step, .data_bytes = sizeof(step)};
    CHECK_OK(stg_batch_writer_copy(&w, 3, &scalar, &err), err);

    const int64_t begin[3] = {2, 5, 7}, end[3] = {4, 5, 10};
    struct stg_tensor text = {.dtype = STAGER_STRING,
                              .ndim = 1,
                              .shape = {3},
                              .data = (void *)words,
                              .data_bytes = sizeof(words) - 1,
                              .begin = begin,
                              .end = end};
    CHECK_OK(stg_batch_writer_copy(&w, 2, &text, &err), err);
    return stg_batch_writer_seal(&w);
}

static void what_was_written_is_read_back(void)
{
    void *base = extent();
    struct stg_err err = {0};
    uint64_t bytes = write_all(base);
    CHECK(bytes <= CAPACITY);
    CHECK_OK(stg_batch_check(base, bytes, true, &err), err);

    struct stg_tensor t;
    const char *name;
    CHECK_INT(stg_batch_find(base, "label"), 0);
    stg_batch_tensor_at(base, 0, &t, &name);
    CHECK_STR(name, "label");
    CHECK_INT(t.dtype, STAGER_FLOAT32);
    CHECK_INT(t.data_bytes, 12);
    CHECK(memcmp(t.data, labels, 12) == 0);
    CHECK((uintptr_t)t.data % 64 == 0);

    stg_batch_tensor_at(base, (uint32_t)stg_batch_find(base, "ids"), &t, &name);
    CHECK_INT(t.ndim, 2);
    CHECK_INT(t.shape[1], 26);
    CHECK_INT(((int64_t *)t.data)[77], 77000000539ll);

    stg_batch_tensor_at(base, 2, &t, &name);
    CHECK_INT(t.shape[0], 3);
    CHECK_INT(t.data_bytes, 5);
    CHECK(memcmp(t.data, "abcde", 5) == 0);
    CHECK_INT(t.begin[0], 0);
    CHECK_INT(t.end[0], 2);
    CHECK_INT(t.begin[2], 2);
    CHECK_INT(t.end[2], 5);

    stg_batch_tensor_at(base, 3, &t, &name);
    CHECK_INT(t.ndim, 0);
    CHECK_INT(*(int32_t *)t.data, 42);
    CHECK_INT(stg_batch_find(base, "labels"), -1);
    free(base);
}

/* ---- golden bytes ---- */

static struct stg_component golden_components[] = {
    {.name = "label", .dtype = STAGER_FLOAT32, .ndim = 1, .shape = {-1}},
    {.name = "ids", .dtype = STAGER_INT64, .ndim = 2, .shape = {-1, 2}},
    {.name = "text", .dtype = STAGER_STRING, .ndim = 1, .shape = {-1}},
    {.name = "step", .dtype = STAGER_INT32, .ndim = 0},
    {.name = "none", .dtype = STAGER_STRING, .ndim = 1, .shape = {-1}},
};
static const struct stg_schema golden_schema = {.components = golden_components, .n = 5};

static void write_golden(struct stg_batch_writer *w)
{
    struct stg_err err = {0};
    const int64_t ids[] = {1, -1, INT64_MAX, INT64_MIN, 0, 77}, offsets[] = {0, 2, 2, 6};
    struct stg_tensor t;
    const int64_t three[] = {3}, pairs[] = {3, 2}, zero[] = {0};
    CHECK_OK(stg_batch_writer_alloc(w, 0, STAGER_FLOAT32, 1, three, 0, &t, &err), err);
    memcpy(t.data, labels, sizeof(labels));
    CHECK_OK(stg_batch_writer_alloc(w, 1, STAGER_INT64, 2, pairs, 0, &t, &err), err);
    memcpy(t.data, ids, sizeof(ids));
    CHECK_OK(stg_batch_writer_alloc(w, 2, STAGER_STRING, 1, three, 60, &t, &err), err);
    CHECK_INT(t.begin[0], 0);
    memcpy((int64_t *)t.begin, offsets, sizeof(offsets));
    memcpy(t.data,
           "abc\xc3\xa4"
           "e",
           6);
    CHECK_OK(stg_batch_writer_alloc(w, 3, STAGER_INT32, 0, NULL, 0, &t, &err), err);
    *(int32_t *)t.data = 42;
    CHECK_OK(stg_batch_writer_alloc(w, 4, STAGER_STRING, 1, zero, 1000, &t, &err), err);
}

static void a_batch_has_the_bytes_that_python_wrote(void)
{
    void *base = extent();
    struct stg_err err = {0};
    struct stg_batch_writer w;
    memset(base, 0, CAPACITY);
    CHECK_OK(stg_batch_writer_begin(&w, base, CAPACITY, &golden_schema, &err), err);
    write_golden(&w);
    struct stg_batch_header *header = base;
    header->generation = 2;
    header->number = (1ull << 40) + 5;
    header->pass = 1;
    header->epoch = 3;
    header->index = 17;
    header->n_dropped = 4;
    header->partition = 6;
    header->feed_version = 9;
    header->random_key[0] = 0x0123456789abcdef;
    header->random_key[1] = 0xfedcba9876543210;
    header->n_rows = 3;
    CHECK_INT(stg_batch_writer_seal(&w), sizeof(golden_tensors));
    for (size_t i = 0; i < sizeof(golden_tensors); i++) {
        if (((unsigned char *)base)[i] != golden_tensors[i])
            FAIL("byte %zu is %02x, not %02x", i, ((unsigned char *)base)[i],
                 golden_tensors[i]);
    }
    uint64_t bytes = stg_batch_write_error(base, CAPACITY, STAGER_DATA_LOSS,
                                           "criteo.txt: line 17: no number");
    CHECK_INT(bytes, sizeof(golden_error));
    CHECK(memcmp(base, golden_error, bytes) == 0);
    free(base);
}

static void a_batch_that_python_wrote_is_read(void)
{
    struct stg_err err = {0};
    struct stg_tensor t;
    const char *name;
    CHECK_OK(stg_batch_check(golden_tensors, sizeof(golden_tensors), true, &err), err);
    CHECK_OK(stg_batch_check(golden_error, sizeof(golden_error), true, &err), err);
    stg_batch_tensor_at(golden_tensors, 1, &t, &name);
    CHECK_STR(name, "ids");
    CHECK(((int64_t *)t.data)[3] == INT64_MIN);
    stg_batch_tensor_at(golden_tensors, 2, &t, &name);
    CHECK_INT(t.begin[2], 2);
    CHECK_INT(t.end[2], 6);
    CHECK_INT(((const struct stg_batch_header *)(const void *)golden_tensors)->n_rows, 3);
}

/* ---- edges ---- */

static void strings_with_and_without_gaps_are_compacted(void)
{
    static const int64_t begins[][4] = {
        {0, 2, 2, 5}, {9, 4, 4, 0}, {3, 5, 6, 8}, {1, 1, 1, 1}};
    static const int64_t ends[][4] = {
        {2, 2, 5, 9}, {10, 4, 9, 1}, {5, 6, 8, 10}, {4, 4, 1, 2}};
    static const char *const wants[] = {"01/"
                                        "/"
                                        "234/"
                                        "5678/",
                                        "9/"
                                        "/"
                                        "45678/"
                                        "0/",
                                        "34/"
                                        "5/"
                                        "67/"
                                        "89/",
                                        "123/"
                                        "123/"
                                        "/"
                                        "1/"};
    static struct stg_component one[] = {
        {.name = "s", .dtype = STAGER_STRING, .ndim = 2}};
    const struct stg_schema one_schema = {one, 1};
    for (int k = 0; k < 4; k++) {
        void *base = extent();
        struct stg_err err = {0};
        struct stg_batch_writer w;
        CHECK_OK(stg_batch_writer_begin(&w, base, CAPACITY, &one_schema, &err), err);
        struct stg_tensor in = {.dtype = STAGER_STRING,
                                .ndim = 2,
                                .shape = {2, 2},
                                .data = (void *)"0123456789",
                                .data_bytes = 10,
                                .begin = begins[k],
                                .end = ends[k]},
                          out;
        CHECK_OK(stg_batch_writer_copy(&w, 0, &in, &err), err);
        CHECK_OK(stg_batch_check(base, stg_batch_writer_seal(&w), true, &err), err);
        stg_batch_tensor_at(base, 0, &out, NULL);
        char text[64] = "";
        for (int i = 0; i < 4; i++) {
            CHECK(out.end + i == out.begin + i + 1);
            snprintf(text + strlen(text), sizeof(text) - strlen(text), "%.*s/",
                     (int)(out.end[i] - out.begin[i]), (char *)out.data + out.begin[i]);
        }
        CHECK_STR(text, wants[k]);
        free(base);
    }
}

static void empty_things_are_batches_too(void)
{
    static struct stg_component three[] = {
        {.name = "", .dtype = STAGER_INT64, .ndim = 3},
        {.name = "s", .dtype = STAGER_STRING, .ndim = 0},
        {.name = "b", .dtype = STAGER_BOOL, .ndim = 1}};
    const struct stg_schema some = {three, 3}, none = {NULL, 0};
    void *base = extent();
    struct stg_err err = {0};
    struct stg_batch_writer w;
    struct stg_tensor t;
    CHECK_OK(stg_batch_writer_begin(&w, base, CAPACITY, &none, &err), err);
    CHECK_OK(stg_batch_check(base, stg_batch_writer_seal(&w), true, &err), err);
    CHECK_INT(stg_batch_find(base, ""), -1);

    CHECK_OK(stg_batch_writer_begin(&w, base, CAPACITY, &some, &err), err);
    const int64_t empty[] = {4096, 0, 26};
    CHECK_OK(stg_batch_writer_alloc(&w, 0, STAGER_INT64, 3, empty, 0, &t, &err), err);
    CHECK_INT(stg_tensor_n(&t), 0);
    CHECK_OK(stg_batch_writer_alloc(&w, 1, STAGER_STRING, 0, NULL, 5, &t, &err), err);
    ((int64_t *)t.begin)[1] = 5;
    memcpy(t.data, "hello", 5);
    CHECK_OK(stg_batch_writer_alloc(&w, 2, STAGER_BOOL, 1, empty + 1, 0, &t, &err), err);
    uint64_t bytes = stg_batch_writer_seal(&w);
    CHECK_OK(stg_batch_check(base, bytes, true, &err), err);
    CHECK_INT(stg_batch_find(base, ""), 0);
    stg_batch_tensor_at(base, 1, &t, NULL);
    CHECK_INT(stg_tensor_n(&t), 1);
    CHECK(t.end[0] == 5 && memcmp(t.data, "hello", 5) == 0);
    free(base);
}

static void the_error_for_a_batch_that_is_too_large_names_both_sizes(void)
{
    void *base = extent();
    struct stg_err err = {0};
    struct stg_batch_writer w = {.used_bytes = 77};
    struct stg_tensor t = {.ndim = 99};
    CHECK_INT(stg_batch_writer_begin(&w, base, 512, &schema, &err),
              -STAGER_RESOURCE_EXHAUSTED);
    CHECK_CONTAINS(err.text, "max_batch_bytes is 512");
    CHECK_INT(w.used_bytes, 77);
    CHECK_OK(stg_batch_writer_begin(&w, base, 1024, &schema, &err), err);
    CHECK_INT(stg_batch_writer_alloc(&w, 1, STAGER_INT64, 2, (const int64_t[]){1000, 26},
                                     0, &t, &err),
              -STAGER_RESOURCE_EXHAUSTED);
    CHECK_STR(err.text,
              "batch needs 208832 bytes, max_batch_bytes is 1024: raise it, or make "
              "smaller batches");
    CHECK_INT(stg_batch_writer_alloc(&w, 2, STAGER_STRING, 1, (const int64_t[]){1},
                                     UINT64_MAX - 100, &t, &err),
              -STAGER_RESOURCE_EXHAUSTED);
    CHECK_INT(t.ndim, 99);
    free(base);
}

static void shapes_that_cannot_be_are_refused(void)
{
    static const int64_t bad[][2] = {
        {-1, 4}, {1ll << 40, 1ll << 40}, {0, -5}, {INT64_MAX, 2}, {0, INT64_MAX}};
    void *base = extent();
    struct stg_err err = {0};
    struct stg_batch_writer w;
    struct stg_tensor t;
    CHECK_OK(stg_batch_writer_begin(&w, base, CAPACITY, &schema, &err), err);
    for (int i = 0; i < 5; i++) {
        CHECK_INT(stg_batch_writer_alloc(&w, 1, STAGER_INT64, 2, bad[i], 0, &t, &err),
                  -STAGER_INVALID_ARGUMENT);
        CHECK_CONTAINS(err.text, "tensor ids cannot have shape [");
    }
    CHECK_INT(stg_batch_writer_alloc(&w, 1, STAGER_INT32, 2, bad[0], 0, &t, &err),
              -STAGER_INTERNAL);
    CHECK_CONTAINS(err.text, "int32");
    CHECK_INT(stg_batch_writer_alloc(&w, 1, STAGER_INT64, 1, bad[0], 0, &t, &err),
              -STAGER_INTERNAL);
    free(base);
}

static void a_long_error_is_truncated_at_a_character(void)
{
    void *base = extent();
    struct stg_err err = {0};
    char *text = malloc(2 * STG_GRANULE_BYTES);
    size_t n = 0;
    text[n++] = 'x'; /* so that the end falls inside a character */
    while (n < 2 * STG_GRANULE_BYTES - 2)
        n += (size_t)sprintf(text + n, "\xc3\xa4");
    uint64_t bytes = stg_batch_write_error(base, STG_GRANULE_BYTES, STAGER_ABORTED, text);
    CHECK(bytes <= STG_GRANULE_BYTES && bytes >= STG_GRANULE_BYTES - 1);
    CHECK_OK(stg_batch_check(base, bytes, true, &err), err);
    const struct stg_batch_header *header = base;
    const char *kept = (const char *)base + header->error_offset;
    CHECK_INT(strlen(kept), header->error_bytes);
    CHECK((unsigned char)kept[header->error_bytes - 1] == 0xa4);
    free(text);
    free(base);
}

static void shapes_have_texts(void)
{
    char buf[64];
    CHECK_STR(stg_shape_text((const int64_t[]){4096, 26}, 2, buf, sizeof(buf)),
              "[4096, 26]");
    CHECK_STR(stg_shape_text((const int64_t[]){-1, 0}, 2, buf, sizeof(buf)), "[?, 0]");
    CHECK_STR(stg_shape_text(NULL, 0, buf, sizeof(buf)), "[]");
    CHECK_STR(stg_shape_text((const int64_t[]){123456, 7}, 2, buf, 5), "[123");
}

/* ---- hostile batches ---- Each lies in a separate allocation of exactly its size, so
 * that the address sanitizer catches a read outside. */

static void *copy_of(const unsigned char *golden, size_t bytes)
{
    void *copy = NULL;
    CHECK_INT(posix_memalign(&copy, 64, bytes), 0);
    memcpy(copy, golden, bytes);
    return copy;
}

/* Reads everything that the batch declares. */
static uint64_t read_all(const void *base)
{
    const struct stg_batch_header *header = base;
    uint64_t sum = 0;
    if (header->kind == STG_BATCH_ERROR)
        return strlen((const char *)base + header->error_offset);
    for (uint32_t i = 0; i < header->n_tensors; i++) {
        struct stg_tensor t;
        const char *name;
        stg_batch_tensor_at(base, i, &t, &name);
        CHECK(stg_batch_find(base, name) >= 0);
        int64_t n = stg_tensor_n(&t);
        if (t.dtype != STAGER_STRING) {
            CHECK_INT(t.data_bytes, (uint64_t)n * stg_dtype_bytes(t.dtype));
            for (uint64_t k = 0; k < t.data_bytes; k++)
                sum += ((unsigned char *)t.data)[k];
            continue;
        }
        for (int64_t k = 0; k < n; k++) {
            for (int64_t b = t.begin[k]; b < t.end[k]; b++)
                sum += ((unsigned char *)t.data)[b];
        }
    }
    return sum;
}

static void must_be_lost(const void *base, size_t bytes, const char *what)
{
    struct stg_err err = {0};
    if (stg_batch_check(base, bytes, false, &err) != -STAGER_DATA_LOSS)
        FAIL("a batch with a wrong %s passes", what);
    CHECK_CONTAINS(err.text, "batch is damaged");
}

#define FIELD(type, field)                                                               \
#field, offsetof(struct type, field), sizeof(((struct type *)0)->field)

struct field {
    const char *name;
    size_t offset, bytes;
    uint64_t wrong[4];
};

static void corrupt(const unsigned char *golden, size_t bytes, size_t at,
                    const struct field *field, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        for (int k = 0; k < 4; k++) {
            char *copy = copy_of(golden, bytes);
            if (memcmp(copy + at + field[i].offset, &field[i].wrong[k], field[i].bytes) !=
                0) {
                memcpy(copy + at + field[i].offset, &field[i].wrong[k], field[i].bytes);
                must_be_lost(copy, bytes, field[i].name);
            }
            free(copy);
        }
    }
}

static void every_wrong_field_is_data_loss(void)
{
    const uint64_t all = UINT64_MAX, size = sizeof(golden_tensors);
    const struct field header[] = {
        {FIELD(stg_batch_header, magic), {0, 1, 0x48435443, all}},
        {FIELD(stg_batch_header, major), {0, 2, 3, all}},
        {FIELD(stg_batch_header, kind), {0, 2, 3, all}},
        {FIELD(stg_batch_header, n_tensors), {6, 100, 1u << 25, all}},
        {FIELD(stg_batch_header, header_bytes), {0, 255, 264, all}},
        {FIELD(stg_batch_header, entry_bytes), {0, 127, 136, all}},
        {FIELD(stg_batch_header, total_bytes), {0, 255, size + 1, all}},
        {FIELD(stg_batch_header, error_code), {1, 11, 17, all}},
    };
    corrupt(golden_tensors, size, 0, header, sizeof(header) / sizeof(header[0]));
    const struct field error[] = {
        {FIELD(stg_batch_header, n_tensors), {1, 2, 3, all}},
        {FIELD(stg_batch_header, error_code), {0, 17, 99, all}},
        {FIELD(stg_batch_header, error_offset), {0, 255, 257, all}},
        {FIELD(stg_batch_header, error_bytes), {0, 29, 31, all}},
        {FIELD(stg_batch_header, total_bytes), {0, 256, 286, all}},
    };
    corrupt(golden_error, sizeof(golden_error), 0, error,
            sizeof(error) / sizeof(error[0]));
    const struct field entry[] = {
        {FIELD(stg_tensor_entry, name_offset), {0, 255, size, all}},
        {FIELD(stg_tensor_entry, name_bytes), {1, 100, size, all}},
        {FIELD(stg_tensor_entry, dtype), {0, 8, 24, all}},
        {FIELD(stg_tensor_entry, ndim), {9, 100, 1u << 31, all}},
        {FIELD(stg_tensor_entry, part), {4, 5, 1u << 31, all}},
        {FIELD(stg_tensor_entry, data_offset), {0, 64, size + 64, all - 63}},
        {FIELD(stg_tensor_entry, data_bytes), {1, 3, size, all}},
        {FIELD(stg_tensor_entry, offsets_bytes), {1, 7, 40, all}},
    };
    for (size_t i = 0; i < 5; i++)
        corrupt(golden_tensors, size, 256 + 128 * i, entry,
                sizeof(entry) / sizeof(entry[0]));
    const struct field dense[] = {
        {"shape", offsetof(struct stg_tensor_entry, shape), 8, {0, 2, 4, all}},
        {FIELD(stg_tensor_entry, offsets_offset), {64, 1024, size, all}},
    };
    corrupt(golden_tensors, size, 256, dense, 2);
    corrupt(golden_tensors, size, 256 + 128, dense, 2);
    const struct field strings[] = {
        {"shape", offsetof(struct stg_tensor_entry, shape), 8, {0, 2, 4, all}},
        {FIELD(stg_tensor_entry, offsets_offset), {0, 64, size, all - 63}},
    };
    corrupt(golden_tensors, size, 256 + 2 * 128, strings, 2);
}

static void what_the_fields_of_others_would_hide_is_seen_alone(void)
{
    char *copy = copy_of(golden_tensors, sizeof(golden_tensors));
    struct stg_tensor_entry *label = (void *)(copy + 256);
    label->data_offset += 4; /* inside, but not aligned */
    must_be_lost(copy, sizeof(golden_tensors), "data_offset");
    free(copy);

    copy = copy_of(golden_tensors, 256);
    struct stg_batch_header *header = (void *)copy;
    header->n_tensors = 0;
    header->total_bytes = 256;
    struct stg_err err = {0};
    CHECK_OK(stg_batch_check(copy, 256, true, &err), err);
    header->header_bytes = 248;
    must_be_lost(copy, 256, "header_bytes");
    free(copy);
}

static void string_offsets_are_checked(void)
{
    const struct stg_tensor_entry *entry =
        (const void *)(golden_tensors + 256 + 2 * sizeof(struct stg_tensor_entry));
    struct stg_err err = {0};
    for (int k = 0; k < 4; k++) {
        char *copy = copy_of(golden_tensors, sizeof(golden_tensors));
        int64_t *offsets = (int64_t *)(void *)(copy + entry->offsets_offset);
        offsets[k] = k == 0 ? 1 : k == 3 ? INT64_MIN : 100;
        bool inner = k == 1 || k == 2;
        CHECK_INT(stg_batch_check(copy, sizeof(golden_tensors), false, &err),
                  inner ? 0 : -STAGER_DATA_LOSS);
        CHECK_INT(stg_batch_check(copy, sizeof(golden_tensors), true, &err),
                  -STAGER_DATA_LOSS);
        if (inner)
            CHECK_CONTAINS(err.text, "decrease");
        free(copy);
    }
}

static void a_batch_truncated_anywhere_is_data_loss(void)
{
    struct stg_err err = {0};
    for (size_t bytes = 0; bytes < sizeof(golden_tensors); bytes++) {
        char *copy = copy_of(golden_tensors, bytes > 0 ? bytes : 1);
        CHECK_INT(stg_batch_check(copy, bytes, true, &err), -STAGER_DATA_LOSS);
        free(copy);
    }
    char *shifted = copy_of(golden_tensors, sizeof(golden_tensors));
    memmove(shifted + 8, shifted, 256);
    CHECK_INT(stg_batch_check(shifted + 8, 256, true, &err), -STAGER_DATA_LOSS);
    free(shifted);
}

/* Random bytes and words: a batch that passes the full check must be readable to the
 * end. */
static void mutations_never_lead_outside(void)
{
    struct random random = {.state = 20};
    uint32_t passed = 0;
    for (int round = 0; round < 200000; round++) {
        bool error = round % 8 == 0;
        const unsigned char *golden = error ? golden_error : golden_tensors;
        size_t bytes = error ? sizeof(golden_error) : sizeof(golden_tensors);
        char *copy = copy_of(golden, bytes);
        uint32_t n = 1 + random_below(&random, 3);
        for (uint32_t i = 0; i < n; i++) {
            size_t at = random_below(&random, (uint32_t)bytes);
            uint64_t value = random_next(&random);
            if (random_below(&random, 2) == 0)
                value = (uint64_t[]){0,          1,          bytes,      bytes - 1,
                                     UINT32_MAX, UINT64_MAX, 1ull << 63, 64}[value % 8];
            size_t width = (size_t)1 << random_below(&random, 4);
            at -= at % width;
            if (at + width <= bytes)
                memcpy(copy + at, &value, width);
        }
        if (stg_batch_check(copy, bytes, true, NULL) == 0) {
            read_all(copy);
            passed++;
        }
        free(copy);
    }
    CHECK(passed > 1000 && passed < 190000); /* both sides were covered */
}

/* A check that is not full must not read each string. */
static void a_quick_check_does_not_look_at_rows(void)
{
    static struct stg_component one[] = {
        {.name = "s", .dtype = STAGER_STRING, .ndim = 1}};
    const struct stg_schema one_schema = {one, 1};
    const int64_t n = 1 << 20;
    size_t capacity = (size_t)n * 8 + STG_GRANULE_BYTES;
    void *base = aligned_alloc(4096, capacity);
    struct stg_err err = {0};
    struct stg_batch_writer w;
    struct stg_tensor t;
    CHECK_OK(stg_batch_writer_begin(&w, base, capacity, &one_schema, &err), err);
    CHECK_OK(stg_batch_writer_alloc(&w, 0, STAGER_STRING, 1, &n, 0, &t, &err), err);
    memset((int64_t *)t.begin, 0, ((size_t)n + 1) * 8);
    uint64_t bytes = stg_batch_writer_seal(&w);
    ((int64_t *)t.begin)[n / 2] = 1;
    CHECK_OK(stg_batch_check(base, bytes, false, &err), err);
    CHECK_INT(stg_batch_check(base, bytes, true, &err), -STAGER_DATA_LOSS);
    free(base);
}

static const struct stg_test tests[] = {
    TEST(what_was_written_is_read_back),
    TEST(a_batch_has_the_bytes_that_python_wrote),
    TEST(a_batch_that_python_wrote_is_read),
    TEST(strings_with_and_without_gaps_are_compacted),
    TEST(empty_things_are_batches_too),
    TEST(the_error_for_a_batch_that_is_too_large_names_both_sizes),
    TEST(shapes_that_cannot_be_are_refused),
    TEST(a_long_error_is_truncated_at_a_character),
    TEST(shapes_have_texts),
    TEST(every_wrong_field_is_data_loss),
    TEST(what_the_fields_of_others_would_hide_is_seen_alone),
    TEST(string_offsets_are_checked),
    TEST(a_batch_truncated_anywhere_is_data_loss),
    TEST_SLOW(mutations_never_lead_outside, 60),
    TEST(a_quick_check_does_not_look_at_rows),
};
TEST_MAIN(tests)
