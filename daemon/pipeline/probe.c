/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/pipeline/probe.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/param.h"
#include "daemon/dataset/files/braces.h"
#include "daemon/dataset/files/listing.h"
#include "daemon/dataset/sources/projection.h"
#include "daemon/dataset/step.h"
#include "daemon/dataset/step_lint.h"
#include "daemon/host/bounded.h"
#include "proto/load.h"

#define MAX_PROBLEMS 8
#define MAX_PATTERNS 32 /* tried for a pipeline */
#define MAX_THREADS 4   /* at once: each may hang in a file system */
#define BUFFER_BYTES (64u << 20)

struct probe {
    struct stg_bounded bounded;
    size_t n; /* guarded by its lock, as are the lines */
    char lines[MAX_PROBLEMS][STG_ERR_TEXT_BYTES];

    /* Of the thread alone. */
    char *text;
    size_t text_bytes;
    uid_t uid;
    gid_t gid;
    gid_t *groups;
    size_t n_groups;
    unsigned n_tried;
    bool is_advised; /* on a shuffle, once */
};

static void destroy(struct stg_bounded *bounded)
{
    struct probe *probe = (struct probe *)bounded;
    free(probe->text);
    free(probe->groups);
    free(probe);
}

static void add_line(struct probe *probe, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static void add_line(struct probe *probe, const char *fmt, ...)
{
    char text[STG_ERR_TEXT_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    pthread_mutex_lock(&probe->bounded.lock);
    if (probe->n < MAX_PROBLEMS && atomic_load(&probe->bounded.stopped) == 0)
        strcpy(probe->lines[probe->n++], text);
    pthread_mutex_unlock(&probe->bounded.lock);
}

/* ---- one file of a pattern ---- */

struct found {
    char *first;
    bool more; /* it is not the only one */
};

/* Keeps the first path and stops at the second. */
static int take_first(void *owner, const char *path, struct stg_err *err)
{
    struct found *found = owner;
    found->more = found->first != NULL;
    if (found->more)
        return -STAGER_CANCELLED;
    found->first = strdup(path);
    return found->first != NULL ? 0 : -STAGER_RESOURCE_EXHAUSTED;
}

/* Finds the first file of a pattern, or adds a problem. Does not try remote files. */
static void find_first(struct probe *probe, const struct stg_step *step, const char *url,
                       bool is_listing, struct found *ret)
{
    const struct stg_storage *storage;
    const char *path;
    struct stg_err err = {0};
    struct stg_file_user identity = {.uid = probe->uid,
                                     .gid = probe->gid,
                                     .groups = probe->groups,
                                     .n_groups = probe->n_groups,
                                     .stopped = &probe->bounded.stopped};
    if (stg_storage_find(url, &storage, &path, &err) < 0 || storage->remote)
        return;
    int rc = is_listing ? stg_listing_read(url, &identity, take_first, ret, &err)
                        : storage->list(path, &identity, take_first, ret, &err);
    if (rc < 0 && ret->first == NULL) {
        stg_step_prefix(step, rc, &err);
        add_line(probe, "problem: %s", err.text);
    }
}

/* ---- its first record ---- */

static bool is_one_of(const char *name, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(name, names[i]) == 0)
            return true;
    }
    return false;
}

/* Returns the step that reads the files of steps[0]; NULL: another kind of step does. */
static const struct stg_step *find_reader(const struct stg_step *steps, size_t n)
{
    static const char *const between[] = {"shuffle", "shard", "repeat",
                                          "take",    "skip",  "shuffle_and_repeat"};
    static const char *const readers[] = {
        "text_line", "tfrecord",   "fixed_length_record",
        "csv",       "jsonl",      "read_file",
        "npy",       "tar",        "parquet",
        "arrow",     "interleave", "parallel_interleave"};
    for (size_t i = 1; i < n; i++) {
        if (is_one_of(steps[i].name, readers, sizeof(readers) / sizeof(readers[0])))
            return &steps[i];
        if (!is_one_of(steps[i].name, between, sizeof(between) / sizeof(between[0])))
            return NULL;
    }
    return NULL;
}

/* Returns the shuffle of records of that reader that could be global, and is not, or
 * NULL. */
static const struct stg_step *find_window(const struct stg_step *steps, size_t n,
                                          const struct stg_step *reader)
{
    const struct stg_transformation *of = stg_transformation_find(reader->name);
    size_t i = (size_t)(reader - steps) + 1;
    while (i < n &&
           (strcmp(steps[i].name, "map") == 0 || strcmp(steps[i].name, "enumerate") == 0))
        i++;
    bool is_window = i < n && of != NULL && of->is_indexable &&
                     strncmp(steps[i].name, "shuffle", strlen("shuffle")) == 0 &&
                     !stg_step_bool(&steps[i], "global", false);
    return is_window ? &steps[i] : NULL;
}

/* Returns the bytes of an item. */
static uint64_t bytes_of(const struct stg_block *block)
{
    uint64_t bytes = 0;
    for (uint32_t c = 0; c < block->n_components; c++) {
        const struct stg_tensor *tensor = &block->tensors[c];
        bytes += tensor->begin != NULL ? (uint64_t)(tensor->end[0] - tensor->begin[0])
                                       : tensor->data_bytes;
    }
    return bytes + 1;
}

/* Advises on a window that is a small part of the first file alone. */
static void advise_global(struct probe *probe, const struct stg_step *shuffle,
                          const struct stg_block *block, const struct found *found)
{
    struct stat st;
    uint64_t window = (uint64_t)stg_step_int(shuffle, "buffer_size", 0);
    if (stat(found->first, &st) < 0)
        return;
    uint64_t n = (uint64_t)st.st_size / bytes_of(block);
    if (stg_step_lint_is_small(window, n))
        add_line(probe,
                 "step %s (line %d): the buffer holds %llu records, and %s alone has "
                 "about %llu: each comes out near its place in the file; global: true "
                 "shuffles all records, in less memory",
                 shuffle->name, shuffle->line, (unsigned long long)window, found->first,
                 (unsigned long long)n);
}

/* shuffle: as find_window returns. */
static void try_dataset(struct probe *probe, const struct stg_pipeline_spec *spec,
                        const struct stg_step *shuffle, const struct found *found)
{
    struct stg_dataset_env env = {.uid = probe->uid,
                                  .gid = probe->gid,
                                  .groups = probe->groups,
                                  .n_groups = probe->n_groups,
                                  .buffer_bytes = BUFFER_BYTES,
                                  .stopped = &probe->bounded.stopped};
    struct stg_dataset *dataset = NULL;
    struct stg_block *block = NULL;
    struct stg_err err = {0};
    int rc = stg_dataset_create(spec, &env, &dataset, &err);
    if (rc == 0)
        rc = stg_dataset_next(dataset, &block, &err);
    if (rc == 0 && block->error.code != 0)
        add_line(probe, "problem: %s", block->error.text);
    else if (rc == 1 && !found->more)
        add_line(probe, "problem: %s has no records", found->first);
    else if (rc < 0)
        add_line(probe, "problem: %s", err.text);
    else if (rc == 0 && shuffle != NULL)
        advise_global(probe, shuffle, block, found);
    stg_block_unref(block);
    stg_dataset_destroy(dataset);
}

/* Runs a pipeline of two steps: that one file, and its reader. */
static void try_file(struct probe *probe, const struct stg_pipeline_spec *spec,
                     const struct stg_step *all, size_t n, const struct found *found)
{
    const struct stg_step *reader = find_reader(all, n);
    char *pattern = stg_braces_escape(found->first);
    /* Indices number the rows of all files. */
    bool is_one = reader != NULL &&
                  stg_attr_find(reader->attrs, reader->n_attrs, "indices") == NULL;
    if (pattern == NULL || !is_one) {
        free(pattern);
        return;
    }
    struct stg_value value = {
        .kind = STG_VALUE_STRING, .s = pattern, .s_bytes = strlen(pattern)};
    struct stg_attr attr = {.name = "pattern", .n_values = 1, .values = &value};
    struct stg_step steps[2] = {all[0], *reader};
    steps[0].attrs = &attr;
    steps[0].n_attrs = 1;
    struct stg_pipeline_spec one = {
        .steps = steps, .n_steps = 2, .fingerprint = spec->fingerprint};
    const struct stg_step *shuffle =
        probe->is_advised ? NULL : find_window(all, n, reader);
    probe->is_advised |= shuffle != NULL;
    try_dataset(probe, &one, shuffle, found);
    free(pattern);
}

/* ---- all of them ---- */

struct steps {
    struct probe *probe;
    const struct stg_pipeline_spec *spec;
    const struct stg_step *all;
    size_t n;
    bool is_listing;
};

/* Not 0: that was enough. */
static int try_name(void *owner, const char *url, struct stg_err *err)
{
    struct steps *steps = owner;
    struct probe *probe = steps->probe;
    if (probe->n_tried++ >= MAX_PATTERNS || atomic_load(&probe->bounded.stopped) != 0)
        return -STAGER_CANCELLED;
    struct found found = {0};
    find_first(probe, &steps->all[0], url, steps->is_listing, &found);
    if (found.first != NULL)
        try_file(probe, steps->spec, steps->all, steps->n, &found);
    free(found.first);
    return 0;
}

static void try_names(struct probe *probe, const struct stg_pipeline_spec *spec,
                      const struct stg_step *steps, size_t n, const char *attr)
{
    const struct stg_attr *names = stg_attr_find(steps[0].attrs, steps[0].n_attrs, attr);
    struct steps all = {probe, spec, steps, n, strcmp(attr, "listing") == 0};
    int rc = 0;
    for (size_t i = 0; rc == 0 && names != NULL && i < names->n_values; i++) {
        struct stg_err err;
        rc = all.is_listing ? try_name(&all, names->values[i].s, &err)
                            : stg_braces_each(names->values[i].s, try_name, &all, &err);
    }
}

static void try_steps(struct probe *probe, const struct stg_pipeline_spec *spec,
                      const struct stg_step *steps, size_t n)
{
    if (n == 0 || strcmp(steps[0].name, "files") != 0)
        return;
    try_names(probe, spec, steps, n, "pattern");
    try_names(probe, spec, steps, n, "listing");
}

/* The columns are those that a run reads. */
static void try_all(struct probe *probe, struct stg_pipeline_spec *spec)
{
    struct stg_schema element;
    struct stg_projection projection;
    const struct stg_pipeline_spec *read = spec;
    if (stg_dataset_infer(spec, &spec->bump, &element, NULL) == 0 &&
        stg_projection_init(spec, &element, &spec->bump, &projection, NULL) == 0)
        read = &projection.spec;
    try_steps(probe, read, read->steps, read->n_steps);
    for (size_t i = 0; i < read->n_branches; i++)
        try_steps(probe, read, read->branches[i].steps, read->branches[i].n_steps);
}

static void run(struct stg_bounded *bounded)
{
    struct probe *probe = (struct probe *)bounded;
    struct stg_pipeline_spec *spec = NULL;
    if (stg_load_pipeline(probe->text, probe->text_bytes, "<text>", &spec, NULL) == 0) {
        try_all(probe, spec);
        stg_pipeline_spec_destroy(spec);
    }
}

static atomic_int n_threads;

static const struct stg_bounded_kind kind = {
    .run = run, .destroy = destroy, .n_threads = &n_threads, .max_threads = MAX_THREADS};

/* ---- the caller ---- */

static struct probe *probe_create(const struct stg_probe_config *config)
{
    struct probe *probe = calloc(1, sizeof(*probe));
    if (probe == NULL)
        return NULL;
    stg_bounded_init(&probe->bounded, &kind);
    probe->uid = config->uid;
    probe->gid = config->gid;
    probe->n_groups = config->n_groups;
    probe->text_bytes = config->text_bytes;
    probe->text = malloc(config->text_bytes + 1);
    probe->groups = calloc(config->n_groups + 1, sizeof(gid_t));
    if (probe->text == NULL || probe->groups == NULL) {
        stg_bounded_unref(&probe->bounded);
        return NULL;
    }
    memcpy(probe->text, config->text, config->text_bytes);
    probe->text[config->text_bytes] = '\0';
    if (config->n_groups > 0)
        memcpy(probe->groups, config->groups, config->n_groups * sizeof(gid_t));
    return probe;
}

size_t stg_probe(const struct stg_probe_config *config, struct stg_bump *bump,
                 const char **ret, size_t n)
{
    size_t n_lines = 0;
    struct probe *probe = probe_create(config);
    if (probe == NULL)
        return 0;
    if (!stg_bounded_start(&probe->bounded)) {
        stg_bounded_unref(&probe->bounded);
        return 0;
    }
    bool is_done = stg_bounded_wait(&probe->bounded, config->wait_ns, NULL);
    pthread_mutex_lock(&probe->bounded.lock);
    for (size_t i = 0; i < probe->n && n_lines < n; i++) {
        ret[n_lines] = stg_bump_strdup(bump, probe->lines[i]);
        n_lines += ret[n_lines] != NULL;
    }
    if (!is_done && n_lines < n)
        ret[n_lines++] = "problem: stagerd could not test the files of the pipeline: "
                         "their file system is slow to answer";
    pthread_mutex_unlock(&probe->bounded.lock);
    stg_bounded_unref(&probe->bounded);
    return n_lines;
}
