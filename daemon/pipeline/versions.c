/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/pipeline/versions.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/fingerprint.h"
#include "core/log.h"
#include "daemon/host/text_file.h"
#include "proto/load.h"

#define SUM "# stager: sum "
#define SUM_BYTES (sizeof(SUM) - 1 + 16 + 1) /* the line */
#define MAX_BYTES (SUM_BYTES + STG_TEXT_HEADER_BYTES + STG_TEXT_MAX_BYTES)
#define SUFFIX ".yaml"
#define TEMPORARY "new"

uint64_t stg_versions_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- paths ---- */

/* file "": the folder. A path of state_dir that is too long has no pipelines either. */
static void version_path(const struct stg_settings *settings, const char *name,
                         const char *file, char ret[4096])
{
    snprintf(ret, 4096, "%s/versions/%s/%s", settings->state_dir, name, file);
}

static void generation_path(const struct stg_settings *settings, const char *name,
                            uint64_t generation, char ret[4096])
{
    char file[32];
    snprintf(file, sizeof(file), "%" PRIu64 SUFFIX, generation);
    version_path(settings, name, file, ret);
}

/* Returns the generation of a file name, or 0. */
static uint64_t generation_of(const char *file)
{
    char *end;
    if (file[0] < '1' || file[0] > '9')
        return 0;
    uint64_t generation = strtoull(file, &end, 10);
    return strcmp(end, SUFFIX) == 0 ? generation : 0;
}

static int choose(const struct dirent *entry)
{
    return generation_of(entry->d_name) != 0;
}

static int by_generation(const struct dirent **a, const struct dirent **b)
{
    uint64_t l = generation_of((*a)->d_name), r = generation_of((*b)->d_name);
    return (l > r) - (l < r);
}

/* Fills in the generations that have a file, in order; the caller frees. */
static size_t find(const struct stg_settings *settings, const char *name, uint64_t **ret)
{
    char path[4096];
    struct dirent **entries;
    version_path(settings, name, "", path);
    int n = scandir(path, &entries, choose, by_generation);
    *ret = n > 0 ? calloc((size_t)n, sizeof(**ret)) : NULL;
    for (int i = 0; i < n; i++) {
        if (*ret != NULL)
            (*ret)[i] = generation_of(entries[i]->d_name);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    return *ret != NULL ? (size_t)n : 0;
}

/* ---- writing ---- */

static int make_folders(const struct stg_settings *settings, const char *name)
{
    char path[4096];
    int rc = stg_store_make_folders(settings);
    for (int i = 0; rc == 0 && i < 2; i++) {
        if (i == 0)
            snprintf(path, sizeof(path), "%s/versions", settings->state_dir);
        else
            version_path(settings, name, "", path);
        rc = mkdir(path, 0700) == 0 || errno == EEXIST ? 0 : -1;
    }
    return rc;
}

static void remove_oldest(const struct stg_settings *settings, const char *name,
                          size_t most)
{
    uint64_t *generations;
    char path[4096];
    size_t n = find(settings, name, &generations);
    for (size_t i = 0; i + most < n; i++) {
        generation_path(settings, name, generations[i], path);
        unlink(path);
    }
    free(generations);
}

/* Joins header and text, for one sum over both. */
static char *join(const char *header, const char *text, size_t text_bytes,
                  size_t *ret_bytes)
{
    size_t n = strlen(header);
    char *bytes = malloc(n + text_bytes + 1);
    if (bytes == NULL)
        return NULL;
    memcpy(bytes, header, n);
    memcpy(bytes + n, text, text_bytes);
    *ret_bytes = n + text_bytes;
    return bytes;
}

static void sum_line(const char *bytes, size_t n, char ret[SUM_BYTES + 1])
{
    snprintf(ret, SUM_BYTES + 1, SUM "%016" PRIx64 "\n", stg_farm_hash(bytes, n));
}

static int write_version(const struct stg_settings *settings, const char *name,
                         uint64_t generation, const char *bytes, size_t n,
                         struct stg_err *err)
{
    char path[4096], temporary[4096], line[SUM_BYTES + 1];
    const char *failed;
    generation_path(settings, name, generation, path);
    version_path(settings, name, TEMPORARY, temporary);
    sum_line(bytes, n, line);
    struct stg_text_part parts[] = {{line, SUM_BYTES}, {bytes, n}};
    if (make_folders(settings, name) < 0 ||
        stg_text_file_replace(path, temporary, parts, 2, &failed) < 0)
        return stg_err(err, -STAGER_UNAVAILABLE,
                       "cannot write %s: %s; earlier definitions are stored in state_dir "
                       "(stagerd.yaml), for stagerctl rollback",
                       path, strerror(errno));
    remove_oldest(settings, name, STG_MAX_VERSIONS - 1);
    return 0;
}

int stg_versions_keep(const struct stg_settings *settings, const char *name,
                      const struct stg_definition *definition, uint64_t generation,
                      struct stg_err *err)
{
    char header[STG_TEXT_HEADER_BYTES];
    size_t n;
    stg_text_header_write(definition, generation, header);
    char *bytes = join(header, definition->text, definition->text_bytes, &n);
    if (bytes == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    int rc = write_version(settings, name, generation, bytes, n, err);
    free(bytes);
    return rc;
}

int stg_versions_keep_seen(const struct stg_settings *settings, const char *name,
                           struct stg_err *err)
{
    char *text;
    size_t n;
    struct stg_text_header header;
    int rc = 0;
    if (stg_store_read_seen(settings, name, &text, &n) < 0)
        return 0;
    stg_text_header_read(text, &header);
    if (header.generation > 0 && n > header.bytes) /* earlier releases kept no text */
        rc = write_version(settings, name, header.generation, text, n, err);
    free(text);
    return rc;
}

uint64_t stg_versions_bytes(const struct stg_settings *settings, const char *name)
{
    uint64_t *generations, bytes = stg_store_bytes(settings, name);
    char path[4096];
    struct stat st;
    size_t n = find(settings, name, &generations);
    for (size_t i = 0; i < n; i++) {
        generation_path(settings, name, generations[i], path);
        bytes += stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
    }
    free(generations);
    return bytes;
}

void stg_versions_forget(const struct stg_settings *settings, const char *name)
{
    char path[4096];
    remove_oldest(settings, name, 0);
    version_path(settings, name, TEMPORARY, path);
    unlink(path); /* of a write that was interrupted */
    version_path(settings, name, "", path);
    if (rmdir(path) < 0 && errno != ENOENT)
        stg_log(STG_LOG_WARNING, "cannot remove %s: %s", path, strerror(errno));
}

/* ---- reading ---- */

static int damaged(const char *path, const char *what, struct stg_err *err)
{
    return stg_err(err, -STAGER_DATA_LOSS,
                   "%s is damaged (%s): this generation cannot be rolled back to", path,
                   what);
}

/* Checks a file. *ret_text is the caller's to free; the lines begin behind its first. */
static int read_version(const struct stg_settings *settings, const char *name,
                        uint64_t generation, char **ret_text, size_t *ret_bytes,
                        struct stg_text_header *ret, struct stg_err *err)
{
    char path[4096], line[SUM_BYTES + 1], *text;
    size_t n;
    struct stat st;
    generation_path(settings, name, generation, path);
    int rc = stg_text_file_read(path, MAX_BYTES, &st, &text, &n, err);
    if (rc < 0)
        return rc;
    if (n >= SUM_BYTES)
        sum_line(text + SUM_BYTES, n - SUM_BYTES, line);
    if (n < SUM_BYTES || memcmp(text, line, SUM_BYTES) != 0) {
        rc = damaged(path, "its checksum differs", err);
    } else {
        stg_text_header_read(text + SUM_BYTES, ret);
        if (ret->generation != generation)
            rc = damaged(path, "it is of another generation", err);
    }
    if (rc < 0) {
        free(text);
        return rc;
    }
    *ret_text = text;
    *ret_bytes = n;
    return 0;
}

static bool take_version(const struct stg_settings *settings, const char *name,
                         uint64_t generation, struct stg_bump *bump,
                         struct stg_pipeline_version *ret)
{
    char *text;
    size_t n;
    struct stg_text_header header;
    struct stg_err err = {0};
    if (read_version(settings, name, generation, &text, &n, &header, &err) < 0) {
        if (err.code != -STAGER_NOT_FOUND) /* a change may remove the oldest one */
            stg_log(STG_LOG_ERROR, "pipeline %s: %s", name, err.text);
        return false;
    }
    const char *file = stg_bump_strndup(bump, header.file_bytes > 0 ? header.file : "",
                                        header.file_bytes);
    *ret = (struct stg_pipeline_version){.generation = generation,
                                         .content = header.content,
                                         .time_ns = header.time_ns,
                                         .uid = header.applier.uid,
                                         .file = file != NULL ? file : ""};
    free(text);
    return true;
}

size_t stg_versions_list(const struct stg_settings *settings, const char *name,
                         uint64_t current, struct stg_bump *bump,
                         struct stg_pipeline_version ret[STG_MAX_VERSIONS])
{
    uint64_t *generations;
    size_t n = find(settings, name, &generations), n_listed = 0;
    while (n > 0 && generations[n - 1] >= current)
        n--; /* kept for a generation that could not be saved */
    size_t first = n > STG_MAX_VERSIONS - 1 ? n - (STG_MAX_VERSIONS - 1) : 0;
    for (size_t i = first; i < n; i++)
        n_listed += take_version(settings, name, generations[i], bump, &ret[n_listed]);
    free(generations);
    return n_listed;
}

int stg_versions_read(const struct stg_store_source *source, const char *name,
                      uint64_t generation, struct stg_definition **ret,
                      struct stg_err *err)
{
    char path[4096], *text;
    size_t n;
    struct stg_text_header header;
    int rc = read_version(source->settings, name, generation, &text, &n, &header, err);
    if (rc < 0)
        return rc;
    struct stg_store_source here = *source;
    generation_path(source->settings, name, generation, path);
    here.path = path;
    header.script_bytes = 0; /* a later run of the script undoes no rollback */
    rc = stg_store_define(&here, text + SUM_BYTES, n - SUM_BYTES, &header, ret, err);
    free(text);
    return rc;
}
