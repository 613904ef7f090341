/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/files/identity.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/fingerprint.h"
#include "daemon/dataset/step.h"
#include "daemon/storage/storage.h"

/* ---- paths below the folder of their pattern ---- */

/* Bytes of the folder of a pattern that come before its first wildcard, if they begin the
 * path. */
static size_t folder_of(const struct stg_value *pattern, const char *path)
{
    size_t n = strcspn(pattern->s, "*?[{\\");
    while (n > 0 && pattern->s[n - 1] != '/')
        n--;
    return strncmp(pattern->s, path, n) == 0 ? n : 0;
}

static size_t folder_in(const struct stg_step *steps, size_t n_steps, const char *path)
{
    size_t longest = 0;
    for (size_t i = 0; i < n_steps; i++) {
        const struct stg_attr *patterns =
            strcmp(steps[i].name, "files") == 0
                ? stg_attr_find(steps[i].attrs, steps[i].n_attrs, "pattern")
                : NULL;
        for (size_t k = 0; patterns != NULL && k < patterns->n_values; k++) {
            size_t n = folder_of(&patterns->values[k], path);
            longest = n > longest ? n : longest;
        }
    }
    return longest;
}

static const char *relative(const struct stg_pipeline_spec *spec, const char *path)
{
    size_t n = folder_in(spec->steps, spec->n_steps, path);
    for (size_t i = 0; i < spec->n_branches; i++) {
        size_t m = folder_in(spec->branches[i].steps, spec->branches[i].n_steps, path);
        n = m > n ? m : n;
    }
    return path + n;
}

/* ---- one file ---- */

static uint64_t size_of(const char *url)
{
    const struct stg_storage *storage;
    const char *path;
    struct stat st;
    if (stg_storage_find(url, &storage, &path, NULL) < 0 ||
        storage != &stg_storage_file || stat(path, &st) < 0)
        return 0;
    return (uint64_t)st.st_size;
}

const char *stg_identity_file(const struct stg_pipeline_spec *spec, const char *path,
                              uint64_t *ret_bytes)
{
    *ret_bytes = size_of(path);
    return relative(spec, path);
}

static uint64_t hash_name(const char *name)
{
    return stg_farm_hash(name, strlen(name));
}

static uint64_t hash_file(const char *name, uint64_t bytes)
{
    char both[16];
    uint64_t hash = hash_name(name);
    memcpy(both, &hash, 8);
    memcpy(both + 8, &bytes, 8);
    return stg_farm_hash(both, sizeof(both));
}

int stg_dataset_identify(const struct stg_dataset *dataset,
                         const struct stg_pipeline_spec *spec,
                         struct stg_data_identity *ret, struct stg_err *err)
{
    struct stg_data_identity all = {.n_files = dataset->n_files};
    for (uint32_t i = 0; i < dataset->n_files; i++) {
        uint64_t bytes;
        const char *name = stg_identity_file(spec, dataset->files[i], &bytes);
        int rc = stg_iter_stopped(dataset->last, err);
        if (rc < 0)
            return rc;
        all.bytes += bytes;
        all.names += hash_name(name);
        all.sum += hash_file(name, bytes);
    }
    if (dataset->n_vocabularies > 0)
        all.sum += hash_file("vocabularies", dataset->vocabularies);
    all.n_files += dataset->n_vocabularies;
    *ret = all;
    return 0;
}

size_t stg_identity_of_first(const struct stg_step *step, const char *const *names,
                             size_t n, const struct stg_data_identity *state)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += hash_name(names[i] + folder_in(step, 1, names[i]));
        if (sum == state->names)
            return i + 1;
    }
    return n;
}

/* ---- what differs ---- */

/* The file without which the sums are those of the state: it was added. */
static const char *find_added(const struct stg_dataset *dataset,
                              const struct stg_pipeline_spec *spec,
                              const struct stg_data_identity *state,
                              const struct stg_data_identity *now)
{
    for (uint32_t i = 0; i < dataset->n_files; i++) {
        const char *path = dataset->files[i];
        if (now->names - state->names == hash_name(relative(spec, path)))
            return path;
    }
    return NULL;
}

/* The file that had another size: with that size the sums are those of the state. */
static const char *find_resized(const struct stg_dataset *dataset,
                                const struct stg_pipeline_spec *spec,
                                const struct stg_data_identity *state,
                                const struct stg_data_identity *now, uint64_t *ret_then,
                                uint64_t *ret_now)
{
    for (uint32_t i = 0; i < dataset->n_files; i++) {
        const char *path = dataset->files[i], *name = relative(spec, path);
        *ret_now = size_of(path);
        *ret_then = *ret_now + state->bytes - now->bytes;
        if (now->sum - state->sum ==
            hash_file(name, *ret_now) - hash_file(name, *ret_then))
            return path;
    }
    return NULL;
}

/* Their content is in the sum alone. */
static int refuse_vocabulary(const struct stg_dataset *dataset, const char *hint,
                             struct stg_err *err)
{
    char shown[512], others[64] = "";
    if (dataset->n_vocabularies > 1)
        snprintf(others, sizeof(others), " (or another of the %u vocabularies of steps)",
                 dataset->n_vocabularies);
    return stg_err(err, -STAGER_FAILED_PRECONDITION,
                   "%s%s: the vocabulary has another content than when the state was "
                   "taken: %s",
                   stg_storage_shown(dataset->vocabulary, shown, sizeof(shown)), others,
                   hint);
}

/* Those behind would have been left out. */
#define BETWEEN                                                                          \
    "a file that is added during a pass must come behind those of the pass, in a "       \
    "pipeline with one step files; "

int stg_dataset_compare(const struct stg_dataset *dataset,
                        const struct stg_pipeline_spec *spec,
                        const struct stg_data_identity *state,
                        const struct stg_data_identity *now, struct stg_err *err)
{
    const char *file = NULL, *hint = "restore the files that the state was taken of, or "
                                     "begin a new pass (a state at the start of a pass "
                                     "has no files)";
    char shown[512];
    uint64_t then_bytes = 0, now_bytes = 0;
    if (memcmp(state, now, sizeof(*now)) == 0)
        return 0;
    if (now->n_files == state->n_files + 1)
        file = find_added(dataset, spec, state, now);
    if (file != NULL)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "%s: the file was added since the state was taken: %s%s",
                       stg_storage_shown(file, shown, sizeof(shown)), BETWEEN, hint);
    if (now->n_files == state->n_files && now->names == state->names)
        file = find_resized(dataset, spec, state, now, &then_bytes, &now_bytes);
    if (file != NULL)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "%s: the file has %" PRIu64 " bytes, and had %" PRIu64
                       " when the state was taken: %s",
                       stg_storage_shown(file, shown, sizeof(shown)), now_bytes,
                       then_bytes, hint);
    if (dataset->n_vocabularies > 0 && now->n_files == state->n_files &&
        now->names == state->names && now->bytes == state->bytes)
        return refuse_vocabulary(dataset, hint, err);
    return stg_err(err, -STAGER_FAILED_PRECONDITION,
                   "the files differ from those that the state was taken of: %" PRIu64
                   " files of %" PRIu64 " bytes now, %" PRIu64 " of %" PRIu64
                   " then%s: %s%s",
                   now->n_files, now->bytes, state->n_files, state->bytes,
                   now->n_files < state->n_files   ? " (files were removed)"
                   : now->n_files > state->n_files ? " (files were added)"
                   : now->names != state->names    ? " (names differ)"
                                                   : " (sizes differ)",
                   now->n_files > state->n_files ? BETWEEN : "", hint);
}
