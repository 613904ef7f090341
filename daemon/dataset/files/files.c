/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "core/random.h"
#include "daemon/dataset/block.h"
#include "daemon/dataset/files/braces.h"
#include "daemon/dataset/files/identity.h"
#include "daemon/dataset/files/listing.h"
#include "daemon/dataset/files/paths.h"
#include "daemon/dataset/step.h"

#define SHOWN_FILES 256 /* between two looks at the progress of a listing */

/* The listing is taken once, when the pass begins; every epoch sees the same files. */
struct files {
    struct stg_iter iter;
    uint32_t *order; /* indices of dataset->files */
    uint32_t base;   /* of its files in the dataset's table */
    uint32_t n, at;
    bool shuffle;
    uint64_t seed;
    uint64_t iteration;
};

/* ---- infer ---- */

/* The values of `pattern` or `listing`; *ret_n 0: there are none. */
static const struct stg_value *names_of(const struct stg_step *step, const char *attr,
                                        size_t *ret_n)
{
    const struct stg_attr *names = stg_attr_find(step->attrs, step->n_attrs, attr);
    *ret_n = names != NULL ? names->n_values : 0;
    return names != NULL ? names->values : NULL;
}

static int check_path(void *owner, const char *url, struct stg_err *err)
{
    const struct stg_storage *storage;
    const char *path;
    int rc = stg_storage_find(url, &storage, &path, err);
    return rc == 0 ? storage->check(path, err) : rc;
}

/* A listing is no pattern. */
static int check_name(const struct stg_step *step, const char *attr,
                      const struct stg_value *value, struct stg_err *err)
{
    bool is_pattern = strcmp(attr, "pattern") == 0;
    if (value->kind != STG_VALUE_STRING)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "%s must be a string or a list of strings", attr);
    if (memchr(value->s, '\0', value->s_bytes) != NULL)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err, "%s has a NUL byte",
                            attr);
    int rc = is_pattern ? stg_braces_each(value->s, check_path, NULL, err)
                        : check_path(NULL, value->s, err);
    return rc < 0 ? stg_step_prefix(step, rc, err) : 0;
}

static int check_names(const struct stg_step *step, const char *attr, size_t *ret_n,
                       struct stg_err *err)
{
    const struct stg_value *names = names_of(step, attr, ret_n);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < *ret_n; i++)
        rc = check_name(step, attr, &names[i], err);
    return rc;
}

static int files_infer(const struct stg_step *step, const struct stg_schema *in,
                       struct stg_bump *bump, struct stg_schema *ret, struct stg_err *err)
{
    size_t n_patterns = 0, n_listings = 0;
    int rc = stg_step_is_source(step, in, err);
    if (rc == 0)
        rc = check_names(step, "pattern", &n_patterns, err);
    if (rc == 0)
        rc = check_names(step, "listing", &n_listings, err);
    if (rc < 0)
        return rc;
    if (n_patterns + n_listings == 0)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "pattern is missing: name the files to read, such as "
                            "/data/*.csv, or set listing to a file that names them");
    rc = stg_schema_create(bump, 1, ret, err);
    if (rc == 0)
        ret->components[0] =
            (struct stg_component){.name = "path", .dtype = STAGER_STRING};
    return rc;
}

/* ---- the listing ---- */

struct listing {
    struct stg_iter *iter;
    const char *url; /* the pattern with its scheme */
    size_t scheme_bytes;
    const char **names;
    size_t n, size;
    uint64_t taken;            /* of the quota */
    bool is_counted;           /* it does not fit: the rest is counted, and not kept */
    uint64_t n_all, all_bytes; /* then: names, and bytes of those */
    struct stg_err missing;    /* of a pattern that was left out; code 0: none was */
};

static int out_of_memory(const struct stg_iter *iter, struct stg_err *err)
{
    return stg_step_err(iter->step, -STAGER_RESOURCE_EXHAUSTED, err, "out of memory");
}

static int listing_take(struct listing *list, uint64_t bytes, struct stg_err *err)
{
    int rc = stg_quota_take(list->iter->dataset->quota, bytes, "the list of files", err);
    if (rc == 0)
        list->taken += bytes;
    return rc;
}

static int listing_grow(struct listing *list, struct stg_err *err)
{
    size_t size = list->size > 0 ? 2 * list->size : 64;
    int rc = listing_take(list, (size - list->size) * sizeof(char *), err);
    if (rc < 0)
        return rc;
    const char **names = realloc(list->names, size * sizeof(char *));
    if (names == NULL)
        return out_of_memory(list->iter, err);
    list->names = names;
    list->size = size;
    return 0;
}

/* What is missing is counted to the end, so that the error can tell it. */
static int listing_count(struct listing *list, uint64_t bytes)
{
    if (!list->is_counted) {
        list->n_all = list->n;
        list->all_bytes = list->taken - list->size * sizeof(char *);
    }
    list->is_counted = true;
    list->n_all++;
    list->all_bytes += bytes;
    return 0;
}

static int listing_add(void *owner, const char *path, struct stg_err *err)
{
    struct listing *list = owner;
    uint64_t room = stg_block_room(list->scheme_bytes + strlen(path) + 1);
    int rc = stg_iter_stopped(list->iter, err);
    if (list->n % SHOWN_FILES == 0)
        stg_iter_progress(list->iter, "files", list->n, 0);
    if (rc == 0 && !list->is_counted && list->n == list->size)
        rc = listing_grow(list, NULL);
    if (rc == 0 && !list->is_counted)
        rc = listing_take(list, room, NULL);
    if (list->is_counted || rc == -STAGER_RESOURCE_EXHAUSTED)
        return listing_count(list, room);
    if (rc < 0)
        return rc;
    size_t bytes = list->scheme_bytes + strlen(path);
    char *name = stg_bump_alloc_raw(&list->iter->dataset->bump, bytes + 1);
    if (name == NULL)
        return out_of_memory(list->iter, err);
    memcpy(name, list->url, list->scheme_bytes);
    strcpy(name + list->scheme_bytes, path);
    list->names[list->n++] = name;
    return 0;
}

/* ---- folders of tables ---- */

static int found_one(void *owner, const char *path, struct stg_err *err)
{
    (void)path;
    (void)err;
    *(bool *)owner = true;
    return -STAGER_CANCELLED; /* one is enough */
}

/* Returns whether a pattern finds a file in the first bytes of a path. */
static bool finds_any(const struct listing *list, const struct stg_storage *storage,
                      const char *path, size_t bytes, const char *pattern)
{
    char escaped[2 * PATH_MAX + 64];
    size_t n = 0;
    bool found = false;
    if (bytes >= PATH_MAX)
        return false;
    for (size_t i = 0; i < bytes; i++) {
        if (strchr("*?[\\{", path[i]) != NULL)
            escaped[n++] = '\\';
        escaped[n++] = path[i];
    }
    snprintf(escaped + n, sizeof(escaped) - n, "%s", pattern);
    storage->list(escaped, &list->iter->dataset->identity, found_one, &found, NULL);
    return found;
}

static int refuse_table(const char *path, size_t bytes, const char *kind,
                        const char *tool, struct stg_err *err)
{
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "%.*s is a folder of %s table, which has files that are not of its "
                   "present rows: write the files of a snapshot into a file, one a line "
                   "(%s gives them), and name it in listing",
                   (int)bytes, path, kind, tool);
}

/* Fails if a folder of the file is that of a table of Delta or Iceberg, in which files
 * that were deleted or replaced stay: a pattern finds their rows, too. */
static int check_folder(const struct listing *list, const struct stg_storage *storage,
                        const char *path, struct stg_err *err)
{
    for (size_t n = strlen(path); n > 0; n--) {
        if (path[n] != '/')
            continue;
        if (finds_any(list, storage, path, n, "/_delta_log/*.json"))
            return refuse_table(path, n, "a Delta", "DeltaTable(…).file_uris()", err);
        bool is_data = n > 5 && memcmp(path + n - 5, "/data", 5) == 0;
        if (is_data && finds_any(list, storage, path, n - 5, "/metadata/*.metadata.json"))
            return refuse_table(path, n, "an Iceberg", "table.scan().plan_files()", err);
    }
    return 0;
}

static size_t folder_bytes(const char *path)
{
    return (size_t)(strrchr(path, '/') - path);
}

/* Looks at the folder of each Parquet file that a pattern has found, from name `first`
 * on; not twice where they follow one another. */
static int check_folders(const struct listing *list, const struct stg_storage *storage,
                         size_t first, struct stg_err *err)
{
    const char *last = NULL;
    int rc = 0;
    for (size_t i = first; rc == 0 && i < list->n; i++) {
        const char *path = list->names[i] + list->scheme_bytes;
        size_t n = strlen(path), bytes = folder_bytes(path);
        if (n < 8 || strcmp(path + n - 8, ".parquet") != 0 ||
            (last != NULL && folder_bytes(last) == bytes &&
             memcmp(last, path, bytes) == 0))
            continue;
        rc = check_folder(list, storage, path, err);
        last = path;
    }
    return rc;
}

static int list_pattern(void *owner, const char *url, struct stg_err *err)
{
    struct listing *list = owner;
    const struct stg_storage *storage;
    const char *path;
    int rc = stg_storage_find(url, &storage, &path, err);
    if (rc < 0)
        return rc;
    list->url = url;
    list->scheme_bytes = (size_t)(path - url);
    size_t first = list->n;
    rc = storage->list(path, &list->iter->dataset->identity, listing_add, list, err);
    bool is_pattern = !storage->remote && strpbrk(path, "*?[") != NULL;
    return rc == 0 && is_pattern ? check_folders(list, storage, first, err) : rc;
}

static int sort_names(struct listing *list, struct stg_err *err)
{
    struct stg_quota *quota = list->iter->dataset->quota;
    uint64_t bytes = stg_paths_sort_bytes(list->n);
    int rc = stg_quota_take(quota, bytes, "the list of files", err);
    if (rc < 0)
        return rc;
    rc = stg_paths_sort(list->names, list->n);
    stg_quota_give(quota, bytes);
    return rc < 0 ? out_of_memory(list->iter, err) : 0;
}

/* Behind what other branches found. */
static int add_files(struct files *files, const struct listing *list, struct stg_err *err)
{
    struct stg_dataset *dataset = files->iter.dataset;
    if (list->n >= UINT32_MAX - dataset->n_files)
        return stg_step_err(files->iter.step, -STAGER_RESOURCE_EXHAUSTED, err,
                            "more than 4294967294 files");
    const char **names =
        realloc(dataset->files, (dataset->n_files + list->n + 1) * sizeof(char *));
    if (names == NULL)
        return out_of_memory(&files->iter, err);
    memcpy(names + dataset->n_files, list->names, list->n * sizeof(char *));
    files->base = dataset->n_files;
    files->n = (uint32_t)list->n;
    dataset->files = names;
    dataset->n_files += files->n;
    return 0;
}

static int report(const struct stg_err *why, struct stg_err *err)
{
    if (err != NULL)
        *err = *why;
    return why->code;
}

/* A pattern that matches nothing is left out where NOT_FOUND is ignored; list->missing
 * says why. */
static int list_or_skip(void *owner, const char *pattern, struct stg_err *err)
{
    struct listing *list = owner;
    struct stg_err why = {0};
    bool skips =
        (list->iter->dataset->env.ignored_codes & STG_CODE_BIT(STAGER_NOT_FOUND)) != 0;
    int rc = list_pattern(list, pattern, &why);
    if (rc == 0)
        return 0;
    if (rc != -STAGER_NOT_FOUND || !skips)
        return report(&why, err);
    stg_log(STG_LOG_WARNING,
            "step files (line %d): a pattern is left out, because NOT_FOUND is in "
            "ignored_exception_types: %.400s",
            list->iter->step->line, why.text);
    list->missing = why;
    return 0;
}

/* Sorted by bytes, over all patterns together: no file system promises
 * an order. A file that two patterns match is there twice, as in tf.data. */
static int list_patterns(struct listing *list, struct stg_err *err)
{
    size_t n, n_listings;
    const struct stg_value *patterns = names_of(list->iter->step, "pattern", &n);
    names_of(list->iter->step, "listing", &n_listings);
    for (size_t i = 0; i < n; i++) {
        int rc = stg_braces_each(patterns[i].s, list_or_skip, list, err);
        if (rc < 0)
            return rc;
    }
    if (list->missing.code != 0 && list->n == 0 && !list->is_counted && n_listings == 0)
        return report(&list->missing, err);
    return list->is_counted ? 0 : sort_names(list, err);
}

/* Behind those, and as they stand. */
static int read_listings(struct listing *list, struct stg_err *err)
{
    size_t n;
    const struct stg_value *listings = names_of(list->iter->step, "listing", &n);
    list->url = "";
    list->scheme_bytes = 0;
    for (size_t i = 0; i < n; i++) {
        int rc = stg_listing_read(listings[i].s, &list->iter->dataset->identity,
                                  listing_add, list, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* What all of it takes is asked for at once, for the text. */
static int too_many(const struct listing *list, struct stg_err *err)
{
    struct stg_quota *quota = list->iter->dataset->quota;
    uint64_t bytes = list->all_bytes + 2 * list->n_all * sizeof(char *) +
                     stg_paths_sort_bytes(list->n_all);
    char what[64];
    snprintf(what, sizeof(what), "the list of %" PRIu64 " files", list->n_all);
    int rc = stg_quota_take(quota, bytes - list->taken, what, err);
    if (rc == 0) {
        stg_quota_give(quota, bytes - list->taken);
        rc = stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "%s: out of memory", what);
    }
    return rc;
}

/* A pass that goes on at a state has the files of the state. Those that were added since,
 * behind them, begin with the next pass. */
static void leave_out_added(struct listing *list)
{
    const struct stg_step *step = list->iter->step;
    const struct stg_data_identity *state = list->iter->dataset->env.state_data;
    size_t n = list->n;
    if (state != NULL)
        list->n = stg_identity_of_first(step, list->names, n, state);
    if (list->n < n)
        stg_log(STG_LOG_INFO,
                "step files (line %d): %zu files were added since the state was taken; "
                "they begin with the next pass",
                step->line, n - list->n);
}

static int list_files(struct files *files, struct stg_err *err)
{
    struct stg_dataset *dataset = files->iter.dataset;
    struct listing list = {.iter = &files->iter};
    int rc = list_patterns(&list, err);
    if (rc == 0)
        rc = read_listings(&list, err);
    stg_iter_progressed(&files->iter);
    if (rc == 0 && list.is_counted)
        rc = too_many(&list, err);
    dataset->held_bytes += list.taken;
    if (rc < 0) {
        free(list.names);
        return stg_step_prefix(files->iter.step, rc, err);
    }
    leave_out_added(&list);
    rc = add_files(files, &list, err);
    free(list.names);
    return rc;
}

/* ---- the iterator ---- */

static void set_order(struct files *files)
{
    for (uint32_t i = 0; i < files->n; i++)
        files->order[i] = files->base + i;
    if (!files->shuffle)
        return;
    struct stg_random random;
    stg_random_init(&random, files->seed, STG_RANDOM_FILES, files->iter.pass,
                    files->iteration);
    for (uint32_t i = files->n; i > 1; i--) {
        uint32_t j = (uint32_t)stg_random_below(&random, files->n - i, i);
        uint32_t swap = files->order[i - 1];
        files->order[i - 1] = files->order[j];
        files->order[j] = swap;
    }
}

static uint32_t count_now(const struct files *files, int64_t want)
{
    uint32_t n = files->n - files->at;
    if (n > STG_BLOCK_MAX_RECORDS)
        n = STG_BLOCK_MAX_RECORDS;
    return (int64_t)n > want ? (uint32_t)want : n;
}

static int files_next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                      struct stg_err *err)
{
    struct files *files = (struct files *)iter;
    uint32_t n = count_now(files, want);
    if (n == 0)
        return 1;
    int rc = stg_iter_stopped(iter, err);
    if (rc < 0)
        return rc;
    const uint32_t *order = files->order + files->at;
    uint64_t data_bytes = 0, offsets = n * sizeof(int64_t);
    for (uint32_t i = 0; i < n; i++)
        data_bytes += strlen(iter->dataset->files[order[i]]);
    struct stg_block *block;
    rc = stg_block_create(iter->dataset->quota, 1,
                          stg_block_room(data_bytes) + 2 * stg_block_room(offsets) +
                              stg_block_room(n * sizeof(struct stg_provenance)),
                          NULL, "a block of files", &block, err);
    if (rc < 0)
        return stg_step_prefix(iter->step, rc, err);
    char *data = stg_block_carve(block, data_bytes);
    int64_t *begin = stg_block_carve(block, offsets);
    int64_t *end = stg_block_carve(block, offsets);
    struct stg_provenance *rows = stg_block_carve(block, n * sizeof(*rows));
    int64_t used = 0;
    for (uint32_t i = 0; i < n; i++) {
        const char *path = iter->dataset->files[order[i]];
        size_t bytes = strlen(path);
        memcpy(data + used, path, bytes);
        begin[i] = used;
        used += (int64_t)bytes;
        end[i] = used;
        rows[i] = (struct stg_provenance){.file = order[i]};
    }
    block->tensors[0] = (struct stg_tensor){.dtype = STAGER_STRING,
                                            .ndim = 1,
                                            .shape = {n},
                                            .data = data,
                                            .data_bytes = data_bytes,
                                            .begin = begin,
                                            .end = end};
    block->n_records = block->n_rows = n;
    block->rows = rows;
    files->at += n;
    *ret = block;
    return 0;
}

static int files_rewind(struct stg_iter *iter, bool afresh, struct stg_err *err)
{
    struct files *files = (struct files *)iter;
    files->iteration = afresh ? 0 : files->iteration + 1;
    files->at = 0;
    set_order(files);
    return 0;
}

static void files_destroy(struct stg_iter *iter)
{
    free(((struct files *)iter)->order);
    free(iter);
}

static bool files_left(struct stg_iter *iter, uint64_t most, uint64_t *ret)
{
    const struct files *files = (struct files *)iter;
    *ret = files->n - files->at;
    return true;
}

static int files_skip(struct stg_iter *iter, uint64_t n, uint64_t *ret,
                      struct stg_err *err)
{
    struct files *files = (struct files *)iter;
    uint32_t left = files->n - files->at;
    *ret = n < left ? n : left;
    files->at += (uint32_t)*ret;
    return 0;
}

static int files_count(struct stg_iter *iter, struct stg_extent *ret, struct stg_err *err)
{
    *ret = (struct stg_extent){.n = ((struct files *)iter)->n};
    return 0;
}

static int files_seek(struct stg_iter *iter, uint64_t n, struct stg_err *err)
{
    ((struct files *)iter)->at = (uint32_t)n;
    return 0;
}

static const struct stg_iter_impl files_impl = {
    .next = files_next,
    .rewind = files_rewind,
    .destroy = files_destroy,
    .skip = files_skip,
    .left = files_left,
    .left_has_errors = true,
    .count = files_count,
    .seek = files_seek,
};

static int files_create(struct stg_dataset *dataset, const struct stg_step *step,
                        const struct stg_schema *schema, struct stg_iter *input,
                        struct stg_iter **ret, struct stg_err *err)
{
    struct files *files =
        stg_iter_create(sizeof(*files), &files_impl, dataset, step, schema, input, err);
    if (files == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    files->shuffle = stg_step_bool(step, "shuffle", true);
    files->seed = (uint64_t)stg_step_int(step, "seed", 0);
    int rc = list_files(files, err);
    if (rc < 0)
        goto fail;
    files->order = malloc((files->n + 1) * sizeof(uint32_t));
    if (files->order == NULL) {
        rc = out_of_memory(&files->iter, err);
        goto fail;
    }
    set_order(files);
    *ret = &files->iter;
    return 0;

fail:
    files_destroy(&files->iter);
    return rc;
}

const struct stg_transformation stg_files = {.name = "files",
                                             .infer = files_infer,
                                             .create = files_create,
                                             .passes_codes = true,
                                             .is_indexable = true};
