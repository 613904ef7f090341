/* SPDX-License-Identifier: Apache-2.0
 *
 * Applied pipelines on disk, each after the lines of text_header.h. Content that a
 * restart finds changed, such as a vocabulary, is another generation. A pipeline of
 * pipeline_dir has a copy NAME.seen of the text that the daemon last read.
 */
#include "daemon/pipeline/store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"
#include "daemon/host/text_file.h"
#include "daemon/pipeline/text_header.h"
#include "proto/load.h"

#define MAX_BYTES (STG_TEXT_MAX_BYTES + STG_TEXT_HEADER_BYTES)

static int state_path(const struct stg_settings *settings, const char *name,
                      const char *suffix, char *buf, size_t bytes)
{
    int n = snprintf(buf, bytes, "%s/pipelines/%s%s", settings->state_dir, name, suffix);
    return n > 0 && (size_t)n < bytes ? 0 : -STAGER_INVALID_ARGUMENT;
}

static int io_error(const char *what, const char *path, struct stg_err *err)
{
    return stg_err(
        err, -STAGER_UNAVAILABLE,
        "cannot %s %s: %s; applied pipelines are stored in state_dir (stagerd.yaml)",
        what, path, strerror(errno));
}

int stg_store_check_name(const char *name, struct stg_err *err)
{
    static const char characters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
    size_t n = strlen(name);
    if (n >= 1 && n <= 64 && strspn(name, characters) == n && name[0] != '.')
        return 0;
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "\"%s\" is not a valid name for a pipeline: use 1 to 64 of A-Z a-z "
                   "0-9 _ . -, with no dot at the start",
                   name);
}

int stg_store_make_folders(const struct stg_settings *settings)
{
    char path[4096];
    if (state_path(settings, "", "", path, sizeof(path)) < 0) {
        errno = ENAMETOOLONG;
        return -1;
    }
    for (char *slash = strchr(path + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(path, 0700) < 0 && errno != EEXIST)
            return -1;
        *slash = '/';
    }
    return 0;
}

bool stg_store_folder(const struct stg_settings *settings, char *ret, size_t bytes)
{
    int n = snprintf(ret, bytes, "%s/pipelines", settings->state_dir);
    return n > 0 && (size_t)n < bytes;
}

static void sync_directory(const struct stg_settings *settings)
{
    char path[4096];
    if (state_path(settings, "", "", path, sizeof(path)) < 0)
        return;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) < 0)
        stg_log(STG_LOG_WARNING,
                "%s: %s: a power failure may undo the last apply or delete", path,
                strerror(errno));
    if (fd >= 0)
        close(fd);
}

int stg_store_save(const struct stg_settings *settings, const char *name, bool from_dir,
                   const struct stg_definition *definition, uint64_t generation,
                   struct stg_err *err)
{
    const char *suffix = from_dir ? ".seen" : ".yaml";
    char path[4096], temporary[4096], header[STG_TEXT_HEADER_BYTES];
    if (state_path(settings, name, suffix, path, sizeof(path)) < 0 ||
        state_path(settings, name, ".new", temporary, sizeof(temporary)) < 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "the path of state_dir is too long");
    stg_text_header_write(definition, generation, header);
    struct stg_text_part parts[] = {
        {header, strlen(header)},
        {definition->text, definition->text_bytes},
    };
    const char *failed;
    int rc = stg_text_file_replace(path, temporary, parts, 2, &failed);
    if (rc < 0 && errno == ENOENT && stg_store_make_folders(settings) == 0)
        rc = stg_text_file_replace(path, temporary, parts, 2, &failed);
    if (rc < 0)
        return io_error("write", failed, err);
    sync_directory(settings);
    return 0;
}

uint64_t stg_store_needs(const struct stg_definition *definition, uint64_t generation)
{
    char header[STG_TEXT_HEADER_BYTES];
    stg_text_header_write(definition, generation, header);
    return strlen(header) + definition->text_bytes;
}

uint64_t stg_store_bytes(const struct stg_settings *settings, const char *name)
{
    static const char *const suffixes[] = {".yaml", ".seen"};
    uint64_t bytes = 0;
    char path[4096];
    struct stat st;
    for (size_t i = 0; i < 2; i++) {
        if (state_path(settings, name, suffixes[i], path, sizeof(path)) == 0 &&
            stat(path, &st) == 0)
            bytes += (uint64_t)st.st_size;
    }
    return bytes;
}

int stg_store_forget(const struct stg_settings *settings, const char *name,
                     struct stg_err *err)
{
    char path[4096];
    if (state_path(settings, name, ".yaml", path, sizeof(path)) < 0)
        return 0;
    if (unlink(path) < 0 && errno != ENOENT)
        return io_error("remove", path, err);
    sync_directory(settings);
    return 0;
}

/* ---- reading ---- */

/* Returns the generation of the header if the content is the same, or the next one. */
static uint64_t generation_of(const struct stg_text_header *header,
                              const struct stg_definition *definition)
{
    bool is_same =
        header->generation != 0 && header->content == definition->spec->fingerprint;
    return header->generation + !is_same;
}

int stg_store_read_seen(const struct stg_settings *settings, const char *name, char **ret,
                        size_t *ret_bytes)
{
    char path[4096];
    struct stat st;
    int rc = state_path(settings, name, ".seen", path, sizeof(path));
    return rc == 0 ? stg_text_file_read(path, MAX_BYTES, &st, ret, ret_bytes, NULL) : rc;
}

/* Takes the generation and the content of NAME.seen. */
static void take_seen(const struct stg_settings *settings, const char *name,
                      struct stg_text_header *ret)
{
    char *text;
    size_t bytes;
    if (stg_store_read_seen(settings, name, &text, &bytes) < 0)
        return;
    struct stg_text_header header;
    stg_text_header_read(text, &header);
    ret->generation = header.generation;
    ret->content = header.content;
    free(text);
}

/* The owner of a file without these lines applies it, when it is written. */
static void take_file(const struct stat *st, struct stg_text_header *ret)
{
    if (ret->generation == 0)
        ret->applier = (struct stg_identity){.uid = st->st_uid, .gid = st->st_gid};
    if (ret->time_ns == 0)
        ret->time_ns =
            (uint64_t)st->st_mtim.tv_sec * 1000000000u + (uint64_t)st->st_mtim.tv_nsec;
}

/* Takes what the lines before the text say of its application. */
static void take_header(struct stg_definition *definition,
                        const struct stg_text_header *header)
{
    const char *file = NULL;
    if (header->file_bytes > 0)
        file = stg_bump_strndup(&definition->bump, header->file, header->file_bytes);
    if (file != NULL)
        definition->file = file;
    if (header->script_bytes > 0)
        definition->script =
            stg_bump_strndup(&definition->bump, header->script, header->script_bytes);
    definition->applied_ns = header->time_ns;
}

int stg_store_define(const struct stg_store_source *source, const char *text,
                     size_t bytes, const struct stg_text_header *header,
                     struct stg_definition **ret, struct stg_err *err)
{
    struct stg_definition *definition = NULL;
    int rc =
        stg_definition_create(text + header->bytes, bytes - header->bytes, source->path,
                              &header->applier, source->containers, &definition, err);
    if (rc < 0)
        return rc;
    take_header(definition, header);
    rc = stg_definition_check_settings(definition, source->settings, err);
    if (rc < 0)
        stg_definition_unref(definition);
    else
        *ret = definition;
    return rc;
}

/* Names the pipeline, and finds its generation. */
static int place(const struct stg_store_source *source, const char *name,
                 struct stg_text_header *header, struct stg_definition *definition,
                 struct stg_stored *ret, struct stg_err *err)
{
    if (source->from_dir && definition->spec->name != NULL)
        name = definition->spec->name;
    int rc = stg_store_check_name(name, err);
    if (rc < 0)
        return stg_err_prefix(err, rc, "%s", source->path);
    if (source->from_dir)
        take_seen(source->settings, name, header);
    *ret = (struct stg_stored){.definition = definition,
                               .generation = generation_of(header, definition)};
    ret->is_saved = ret->generation == header->generation;
    snprintf(ret->name, sizeof(ret->name), "%.64s", name);
    return 0;
}

int stg_store_read(const struct stg_store_source *source, struct stg_stored *ret,
                   struct stg_err *err)
{
    char *text, name[256];
    const char *base = strrchr(source->path, '/') + 1;
    size_t bytes;
    struct stat st;
    struct stg_text_header header = {0};
    struct stg_definition *definition;
    int rc = stg_text_file_read(source->path, MAX_BYTES, &st, &text, &bytes, err);
    if (rc < 0)
        return rc;
    if (!source->from_dir)
        stg_text_header_read(text, &header);
    take_file(&st, &header);
    rc = stg_store_define(source, text, bytes, &header, &definition, err);
    free(text);
    if (rc < 0)
        return rc;
    snprintf(name, sizeof(name), "%.*s", (int)(strrchr(base, '.') - base), base);
    rc = place(source, name, &header, definition, ret, err);
    if (rc < 0)
        stg_definition_unref(definition);
    return rc;
}

static int has_suffix(const char *name)
{
    size_t n = strlen(name);
    return (n > 5 && strcmp(name + n - 5, ".yaml") == 0) ||
           (n > 4 && strcmp(name + n - 4, ".yml") == 0) ||
           (n > 5 && strcmp(name + n - 5, ".json") == 0);
}

static int choose(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && has_suffix(entry->d_name);
}

int stg_store_list(const char *directory, struct dirent ***ret)
{
    return scandir(directory, ret, choose, alphasort);
}
