/* SPDX-License-Identifier: Apache-2.0
 *
 * Applied pipelines on disk. The daemon writes two lines before each text; the script may
 * be empty:
 *
 *   # stager: generation 3 uid 1000 gid 1000 groups 1000,44 content 9f file /p.yaml
 *
 *   # stager: script /home/u/train.py
 *
 * `content` is the fingerprint. Content that a restart finds changed, such as a
 * vocabulary, is another generation. A pipeline of pipeline_dir has a file NAME.seen with
 * these lines alone.
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
#include "proto/load.h"

#define HEADER_BYTES 16384 /* more than all groups and the longest script take */
#define SCRIPT "# stager: script "

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

/* Fills the lines before a text. The name of the file is truncated where it leaves no
 * room. */
static void header_lines(const struct stg_definition *definition, uint64_t generation,
                         char *buf, size_t bytes)
{
    const struct stg_identity *applier = &definition->applier;
    const char *script = definition->script != NULL ? definition->script : "";
    size_t limit = bytes - strlen("\n" SCRIPT "\n") - strlen(script) - 1;
    int n = snprintf(buf, bytes, "# stager: generation %" PRIu64 " uid %u gid %u groups ",
                     generation, (unsigned)applier->uid, (unsigned)applier->gid);
    for (size_t i = 0; i < applier->n_groups; i++)
        n += snprintf(buf + n, bytes - (size_t)n, "%s%u", i > 0 ? "," : "",
                      (unsigned)applier->groups[i]);
    n += snprintf(buf + n, bytes - (size_t)n, "%s content %016" PRIx64 " file ",
                  applier->n_groups == 0 ? "-" : "", definition->spec->fingerprint);
    for (const char *s = definition->file; *s != '\0' && (size_t)n < limit; s++)
        buf[n++] = *s == '\n' ? ' ' : *s;
    snprintf(buf + n, bytes - (size_t)n, "\n" SCRIPT "%s\n", script);
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
    char path[4096], temporary[4096], header[HEADER_BYTES];
    if (state_path(settings, name, suffix, path, sizeof(path)) < 0 ||
        state_path(settings, name, ".new", temporary, sizeof(temporary)) < 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "the path of state_dir is too long");
    header_lines(definition, generation, header, sizeof(header));
    struct stg_text_part parts[] = {
        {header, strlen(header)},
        {definition->text, from_dir ? 0 : definition->text_bytes},
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

/* What the lines before a text say. */
struct header {
    uint64_t generation; /* 0: there is none */
    uint64_t content;
    const char *script; /* NULL: none */
    size_t script_bytes, bytes;
};

static bool parse_identity(const char *line, uint64_t *ret_generation,
                           struct stg_identity *ret)
{
    unsigned uid, gid;
    int at = 0;
    if (sscanf(line, "# stager: generation %" SCNu64 " uid %u gid %u groups %n",
               ret_generation, &uid, &gid, &at) != 3 ||
        at == 0)
        return false;
    ret->uid = uid;
    ret->gid = gid;
    ret->n_groups = 0;
    const char *s = line + at;
    while (*s >= '0' && *s <= '9' && ret->n_groups < STG_MAX_GROUPS) {
        char *end;
        ret->groups[ret->n_groups++] = (gid_t)strtoul(s, &end, 10);
        s = *end == ',' ? end + 1 : end;
    }
    return true;
}

static void parse_header(const char *text, struct header *ret,
                         struct stg_identity *identity)
{
    *ret = (struct header){0};
    if (!parse_identity(text, &ret->generation, identity))
        return;
    ret->bytes = strcspn(text, "\n");
    const char *content = strstr(text, " content ");
    if (content != NULL && content < text + ret->bytes)
        ret->content = strtoull(content + strlen(" content "), NULL, 16);
    ret->bytes += text[ret->bytes] == '\n';
    if (strncmp(text + ret->bytes, SCRIPT, strlen(SCRIPT)) != 0)
        return;
    ret->script = text + ret->bytes + strlen(SCRIPT);
    ret->script_bytes = strcspn(ret->script, "\n"); /* 0: no script */
    ret->bytes += strlen(SCRIPT) + ret->script_bytes;
    ret->bytes += text[ret->bytes] == '\n';
}

/* Returns the generation of the header if the content is the same, or the next one. */
static uint64_t generation_of(const struct header *header,
                              const struct stg_definition *definition)
{
    bool is_same =
        header->generation != 0 && header->content == definition->spec->fingerprint;
    return header->generation + !is_same;
}

/* Reads NAME.seen of a file of pipeline_dir. */
static void read_seen(const struct stg_settings *settings, const char *name,
                      struct header *ret)
{
    char path[4096], *text;
    size_t bytes;
    struct stat st;
    struct stg_identity identity;
    if (state_path(settings, name, ".seen", path, sizeof(path)) < 0 ||
        stg_text_file_read(path, HEADER_BYTES, &st, &text, &bytes, NULL) < 0)
        return;
    parse_header(text, ret, &identity);
    free(text);
}

/* Takes the name of the applier's file from the end of the header's first line. */
static void keep_file(struct stg_definition *definition, const char *header, size_t bytes)
{
    const char *file = strstr(header, " file ");
    if (file == NULL || (size_t)(file - header) >= bytes)
        return;
    file += strlen(" file ");
    const char *retained =
        stg_bump_strndup(&definition->bump, file, (size_t)(header + bytes - file));
    if (retained != NULL)
        definition->file = retained;
}

/* The owner of a file of pipeline_dir applies it. */
static struct stg_identity identity_of_file(const struct stat *st)
{
    return (struct stg_identity){.uid = st->st_uid, .gid = st->st_gid};
}

/* Makes the definition of a text after its header lines. */
static int define(const struct stg_store_source *source, const char *text, size_t bytes,
                  const struct header *header, const struct stg_identity *identity,
                  struct stg_definition **ret, struct stg_err *err)
{
    struct stg_definition *definition = NULL;
    int rc =
        stg_definition_create(text + header->bytes, bytes - header->bytes, source->path,
                              identity, source->containers, &definition, err);
    if (rc < 0)
        return rc;
    keep_file(definition, text, header->bytes > 0 ? strcspn(text, "\n") : 0);
    if (header->script_bytes > 0)
        definition->script =
            stg_bump_strndup(&definition->bump, header->script, header->script_bytes);
    rc = stg_definition_check_settings(definition, source->settings, err);
    if (rc < 0)
        stg_definition_unref(definition);
    else
        *ret = definition;
    return rc;
}

/* Names the pipeline, and finds its generation. */
static int place(const struct stg_store_source *source, const char *name,
                 struct header *header, struct stg_definition *definition,
                 struct stg_stored *ret, struct stg_err *err)
{
    if (source->from_dir && definition->spec->name != NULL)
        name = definition->spec->name;
    int rc = stg_store_check_name(name, err);
    if (rc < 0)
        return stg_err_prefix(err, rc, "%s", source->path);
    if (source->from_dir)
        read_seen(source->settings, name, header);
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
    struct header header = {0};
    struct stg_definition *definition;
    int rc = stg_text_file_read(source->path, STG_TEXT_MAX_BYTES + HEADER_BYTES, &st,
                                &text, &bytes, err);
    if (rc < 0)
        return rc;
    struct stg_identity identity = identity_of_file(&st);
    if (!source->from_dir)
        parse_header(text, &header, &identity);
    rc = define(source, text, bytes, &header, &identity, &definition, err);
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
