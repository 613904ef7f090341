/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/pass.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/dataset/dataset.h"
#include "proto/load.h"
#include "tests/fuzz/fuzz.h"

#define MAX_ITEMS 400

/* ---- a pipeline ---- */

static const char *folder(void)
{
    static char path[64];
    if (path[0] == '\0')
        stg_fuzz_folder(path, sizeof(path));
    return path;
}

static const char *file_path(void)
{
    static char path[96];
    if (path[0] == '\0')
        snprintf(path, sizeof(path), "%s/a.file", folder());
    return path;
}

static void remove_folder(void)
{
    unlink(file_path());
    rmdir(folder());
}

const char *stg_fuzz_file(const void *data, size_t bytes)
{
    static bool is_set;
    if (!is_set)
        atexit(remove_folder);
    is_set = true;
    int fd = open(file_path(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    FUZZ_CHECK(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes && close(fd) == 0);
    return file_path();
}

/* Returns the pipeline of a step with these options, which lives as long as the process.
 */
static const struct stg_pipeline_spec *pipeline(const char *step, const char *options)
{
    static struct {
        const char *step, *options;
        struct stg_pipeline_spec *spec;
    } specs[64];
    static size_t n;
    for (size_t i = 0; i < n; i++) {
        if (specs[i].step == step && specs[i].options == options)
            return specs[i].spec;
    }
    FUZZ_CHECK(n < sizeof(specs) / sizeof(specs[0]));
    char text[4096];
    struct stg_err err = {0};
    snprintf(text, sizeof(text),
             "dataset:\n- files: {pattern: \"%s\", shuffle: false}\n- %s: {%s}\n",
             file_path(), step, options);
    int rc = stg_load_pipeline(text, strlen(text), "p", &specs[n].spec, &err);
    FUZZ_CHECK_TEXT(rc == 0, err.text);
    specs[n].step = step;
    specs[n].options = options;
    return specs[n++].spec;
}

/* ---- items ---- */

static uint64_t hash_tensor(uint64_t hash, const struct stg_tensor *tensor)
{
    int64_t n = 1;
    for (int d = 0; d < tensor->ndim; d++) {
        FUZZ_CHECK(tensor->shape[d] >= 0);
        n *= tensor->shape[d];
    }
    hash = stg_fuzz_hash(hash, tensor->shape, (size_t)tensor->ndim * sizeof(int64_t));
    if (tensor->dtype != STAGER_STRING)
        return stg_fuzz_hash(hash, tensor->data,
                             (size_t)n * stg_dtype_bytes(tensor->dtype));
    for (int64_t i = 0; i < n; i++) {
        FUZZ_CHECK(tensor->begin[i] <= tensor->end[i]);
        hash = stg_fuzz_hash(hash, (const char *)tensor->data + tensor->begin[i],
                             (size_t)(tensor->end[i] - tensor->begin[i]));
        hash = stg_fuzz_hash(hash, "", 1);
    }
    return hash;
}

static void check_error(const struct stg_fuzz_pass *pass, const struct stg_err *err)
{
    FUZZ_CHECK_TEXT(strstr(err->text, file_path()) != NULL, err->text);
    if (getenv("STG_FUZZ_SHOW") != NULL)
        fprintf(stderr, "    %s\n", err->text);
    if (pass->check_error != NULL)
        pass->check_error(err);
}

static uint64_t hash_block(const struct stg_fuzz_pass *pass,
                           const struct stg_block *block)
{
    uint64_t hash = stg_fuzz_hash(0xcbf29ce484222325ull, &block->error.code,
                                  sizeof(block->error.code));
    if (block->error.code != 0) {
        check_error(pass, &block->error);
        return hash;
    }
    for (uint32_t c = 0; c < block->n_components; c++)
        hash = hash_tensor(hash, &block->tensors[c]);
    return hash;
}

/* Hashes the items of a pass from `first` on, up to *n. Returns whether there was memory
 * for them. */
static bool read_items(const struct stg_fuzz_pass *pass, size_t first, uint64_t *hashes,
                       size_t *n)
{
    struct stg_dataset_env env = {.buffer_bytes = pass->buffer_bytes};
    struct stg_dataset *dataset;
    struct stg_block *block;
    struct stg_err err = {0};
    *n = first;
    int rc =
        stg_dataset_create(pipeline(pass->step, pass->options), &env, &dataset, &err);
    FUZZ_CHECK_TEXT(rc == 0, err.text);
    if (first > 0) {
        struct stg_position position = {.items = first, .elements = first, .errors = 1};
        rc = stg_dataset_seek(dataset, &position, &err);
    }
    while (rc == 0 && *n < MAX_ITEMS &&
           (rc = stg_dataset_next(dataset, &block, &err)) == 0) {
        hashes[(*n)++] = hash_block(pass, block);
        stg_block_unref(block);
    }
    stg_dataset_destroy(dataset);
    if (rc == -STAGER_RESOURCE_EXHAUSTED)
        FUZZ_CHECK_TEXT(strstr(err.text, "raise staged.memory_budget") != NULL, err.text);
    else
        FUZZ_CHECK_TEXT(rc >= 0, err.text);
    return rc >= 0;
}

void stg_fuzz_pass(const struct stg_fuzz_pass *pass, unsigned middle, const void *data,
                   size_t bytes)
{
    static uint64_t hashes[MAX_ITEMS], again[MAX_ITEMS];
    size_t n, n_again;
    stg_fuzz_file(data, bytes);
    if (!read_items(pass, 0, hashes, &n) || n == 0)
        return;
    size_t first = middle % n;
    if (!read_items(pass, first, again, &n_again))
        return;
    for (size_t i = first; i < n && i < n_again; i++) {
        char text[64];
        snprintf(text, sizeof(text), "item %zu, from item %zu on", i, first);
        FUZZ_CHECK_TEXT(hashes[i] == again[i], text);
    }
    FUZZ_CHECK(n_again == n);
}
