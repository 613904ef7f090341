/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/daemon/dataset/dataset_spec.h"

#include <ftw.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/check.h"

void stg_test_step(struct stg_test_spec *spec, const char *name)
{
    size_t i = spec->spec.n_steps++;
    if (i >= STG_TEST_MAX_STEPS)
        FAIL("too many steps");
    spec->spec.steps = spec->steps;
    spec->steps[i] = (struct stg_step){
        .name = name, .attrs = spec->attrs[i], .line = (int)i + 1, .column = 1};
}

static struct stg_value *set(struct stg_test_spec *spec, const char *name)
{
    size_t i = spec->spec.n_steps - 1;
    size_t k = spec->steps[i].n_attrs++;
    if (k >= STG_TEST_MAX_ATTRS)
        FAIL("too many attributes");
    spec->attrs[i][k] = (struct stg_attr){
        .name = name, .n_values = 1, .values = &spec->values[i][k], .line = (int)i + 1};
    return &spec->values[i][k];
}

void stg_test_int(struct stg_test_spec *spec, const char *name, int64_t value)
{
    *set(spec, name) =
        (struct stg_value){.kind = STG_VALUE_INT, .i = value, .f = (double)value};
}

void stg_test_bool(struct stg_test_spec *spec, const char *name, bool value)
{
    *set(spec, name) = (struct stg_value){.kind = STG_VALUE_BOOL, .i = value};
}

void stg_test_string(struct stg_test_spec *spec, const char *name, const char *value)
{
    *set(spec, name) = (struct stg_value){
        .kind = STG_VALUE_STRING, .s = value, .s_bytes = strlen(value)};
}

void stg_test_list(struct stg_test_spec *spec, const char *name,
                   const struct stg_value *values, size_t n)
{
    set(spec, name);
    size_t i = spec->spec.n_steps - 1;
    struct stg_attr *attr = &spec->attrs[i][spec->steps[i].n_attrs - 1];
    attr->values = values;
    attr->n_values = n;
    attr->ndim = 1;
    attr->shape[0] = (int64_t)n;
}

/* Patterns share one attribute, which is a list. */
void stg_test_pattern(struct stg_test_spec *spec, const char *pattern)
{
    size_t i = spec->spec.n_steps - 1;
    struct stg_step *step = &spec->steps[i];
    struct stg_attr *attr = NULL;
    for (size_t k = 0; k < step->n_attrs; k++) {
        if (strcmp(spec->attrs[i][k].name, "pattern") == 0)
            attr = &spec->attrs[i][k];
    }
    if (attr == NULL) {
        set(spec, "pattern");
        attr = &spec->attrs[i][step->n_attrs - 1];
        attr->values = spec->patterns;
        attr->ndim = 1;
        attr->n_values = 0;
    }
    if (attr->n_values >= STG_TEST_MAX_STEPS)
        FAIL("too many patterns");
    spec->patterns[attr->n_values++] = (struct stg_value){
        .kind = STG_VALUE_STRING, .s = pattern, .s_bytes = strlen(pattern)};
    attr->shape[0] = (int64_t)attr->n_values;
}

void stg_test_range(struct stg_test_spec *spec, int64_t stop)
{
    stg_test_step(spec, "range");
    stg_test_int(spec, "stop", stop);
}

void stg_test_lines(struct stg_test_spec *spec, const char *pattern)
{
    stg_test_step(spec, "files");
    stg_test_pattern(spec, pattern);
    stg_test_bool(spec, "shuffle", false);
    stg_test_step(spec, "text_line");
}

struct stg_dataset_env stg_test_env(void)
{
    return (struct stg_dataset_env){.uid = 0};
}

struct stg_dataset *stg_test_open_spec(const struct stg_pipeline_spec *spec,
                                       const struct stg_dataset_env *env)
{
    struct stg_dataset *dataset;
    struct stg_err err = {0};
    CHECK_OK(stg_dataset_create(spec, env, &dataset, &err), err);
    return dataset;
}

struct stg_dataset *stg_test_open(const struct stg_test_spec *spec,
                                  const struct stg_dataset_env *env)
{
    return stg_test_open_spec(&spec->spec, env);
}

struct stg_block *stg_test_next(struct stg_dataset *dataset)
{
    struct stg_block *block = NULL;
    struct stg_err err = {0};
    int rc = stg_dataset_next(dataset, &block, &err);
    if (rc < 0)
        FAIL("next: %d: %s", rc, err.text);
    return rc == 0 ? block : NULL;
}

/* ---- as text ---- */

struct text {
    char *at;
    size_t n, size;
};

__attribute__((format(printf, 2, 3))) static void print(struct text *text,
                                                        const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char piece[4096];
    int n = vsnprintf(piece, sizeof(piece), fmt, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof(piece))
        FAIL("an item is too long for a text");
    if (text->n + (size_t)n + 1 > text->size) {
        text->size = 2 * (text->n + (size_t)n + 1);
        text->at = realloc(text->at, text->size);
    }
    memcpy(text->at + text->n, piece, (size_t)n + 1);
    text->n += (size_t)n;
}

static void print_one(struct text *text, const struct stg_tensor *tensor, int64_t i)
{
    if (tensor->dtype == STAGER_INT64)
        print(text, "%" PRId64, ((const int64_t *)tensor->data)[i]);
    else if (tensor->dtype == STAGER_INT32)
        print(text, "%" PRId32, ((const int32_t *)tensor->data)[i]);
    else if (tensor->dtype == STAGER_FLOAT32)
        print(text, "%g", (double)((const float *)tensor->data)[i]);
    else if (tensor->dtype == STAGER_BOOL)
        print(text, "%s", ((const uint8_t *)tensor->data)[i] != 0 ? "true" : "false");
    else
        print(text, "%.*s", (int)(tensor->end[i] - tensor->begin[i]),
              (const char *)tensor->data + tensor->begin[i]);
}

static void print_tensor(struct text *text, const struct stg_tensor *tensor, int dim,
                         int64_t *at)
{
    if (dim == tensor->ndim) {
        print_one(text, tensor, (*at)++);
        return;
    }
    print(text, "[");
    for (int64_t i = 0; i < tensor->shape[dim]; i++) {
        print(text, "%s", i > 0 ? " " : "");
        print_tensor(text, tensor, dim + 1, at);
    }
    print(text, "]");
}

static void print_block(struct text *text, const struct stg_block *block)
{
    if (block->error.code != 0) {
        print(text, "!%s", stg_status_name(block->error.code));
        return;
    }
    for (uint32_t c = 0; c < block->n_components; c++) {
        int64_t at = 0;
        print(text, "%s", c > 0 ? " " : "");
        print_tensor(text, &block->tensors[c], 0, &at);
    }
}

char *stg_test_render(const struct stg_test_spec *spec, const struct stg_dataset_env *env,
                      int max_items)
{
    return stg_test_render_spec(&spec->spec, env, max_items);
}

char *stg_test_render_spec(const struct stg_pipeline_spec *spec,
                           const struct stg_dataset_env *env, int max_items)
{
    struct stg_dataset *dataset = stg_test_open_spec(spec, env);
    struct text text = {0};
    print(&text, "%s", "");
    uint64_t epoch = 0;
    struct stg_block *block;
    for (int n = 0;
         (max_items == 0 || n < max_items) && (block = stg_test_next(dataset)) != NULL;
         n++) {
        if (block->epoch != epoch)
            print(&text, "#%" PRIu64 " ", block->epoch);
        epoch = block->epoch;
        print_block(&text, block);
        print(&text, "\n");
        stg_block_unref(block);
    }
    stg_dataset_destroy(dataset);
    return text.at;
}

/* ---- files ---- */

static char test_dir[64];

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    return remove(path);
}

static void remove_dir(void)
{
    nftw(test_dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static bool make_dir(const char *template)
{
    strcpy(test_dir, template);
    if (mkdtemp(test_dir) == NULL || chmod(test_dir, 0755) < 0) {
        test_dir[0] = '\0';
        return false;
    }
    atexit(remove_dir);
    return true;
}

const char *stg_test_dir(void)
{
    if (test_dir[0] == '\0' && !make_dir("/tmp/stg-dataset-XXXXXX"))
        FAIL("mkdtemp");
    return test_dir;
}

void stg_test_dir_in_memory(void)
{
    if (test_dir[0] == '\0' && !make_dir("/dev/shm/stg-dataset-XXXXXX"))
        stg_test_dir();
}

/* Kept until the process ends, so that no caller frees a name. */
struct name {
    struct name *next;
    char path[];
};
static struct name *names;

const char *stg_test_path(const char *name)
{
    size_t bytes = strlen(stg_test_dir()) + strlen(name) + 2;
    struct name *entry = malloc(sizeof(*entry) + bytes);
    if (entry == NULL)
        FAIL("out of memory");
    snprintf(entry->path, bytes, "%s/%s", stg_test_dir(), name);
    entry->next = names;
    names = entry;
    return entry->path;
}

const char *stg_test_file(const char *name, const void *data, size_t bytes)
{
    const char *path = stg_test_path(name);
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0)
        FAIL("%s: cannot be written", path);
    return path;
}

uint64_t stg_test_bytes_read(void)
{
    unsigned long long ret = 0;
    FILE *file = fopen("/proc/self/io", "r");
    if (file != NULL && fscanf(file, "rchar: %llu", &ret) != 1)
        ret = 0;
    if (file != NULL)
        fclose(file);
    return ret;
}
