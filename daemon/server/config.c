/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/server/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "daemon/host/text_file.h"
#include "daemon/operations/operations.h"
#include "proto/load.h"

/* Returns whether key begins here, as a key of a block or of a {flow} map. */
static bool is_key(const char *line, const char *at, const char *key)
{
    size_t n = strlen(key);
    return (at == line || strchr(" {,-", at[-1]) != NULL) && strncmp(at, key, n) == 0 &&
           at[n] == ':';
}

unsigned stg_config_line(const char *text, const char *key)
{
    unsigned number = 1;
    for (const char *line = text; line != NULL && *line != '\0'; number++) {
        size_t n = strcspn(line, "\n"), end = 0;
        while (end < n && line[end] != '#')
            end++;
        for (size_t i = 0; i < end; i++) {
            if (is_key(line, line + i, key))
                return number;
        }
        line += n + (line[n] == '\n');
    }
    return 0;
}

/* "$VARIABLE/tail", else "$HOME/fallback/tail"; false when neither is there. */
static bool user_path(const char *variable, const char *fallback, const char *tail,
                      char *ret, size_t bytes)
{
    const char *base = getenv(variable);
    const char *home = getenv("HOME");
    if (base != NULL && base[0] == '/')
        return (size_t)snprintf(ret, bytes, "%s/%s", base, tail) < bytes;
    return fallback != NULL && home != NULL && home[0] == '/' &&
           (size_t)snprintf(ret, bytes, "%s/%s/%s", home, fallback, tail) < bytes;
}

static const char *keep(struct stg_settings *settings, const char *path)
{
    return stg_bump_strdup(&settings->bump, path);
}

/* Without root, /run and /var/lib are not ours: what the file does not say otherwise
 * lies in the user's own directories. */
static int use_user_paths(struct stg_settings *settings, struct stg_err *err)
{
    struct stg_settings schema;
    char path[4096];
    int rc = stg_load_settings("", 0, "", &schema, err);
    if (rc < 0)
        return rc;
    if (strcmp(settings->runtime_dir, schema.runtime_dir) == 0 &&
        user_path("XDG_RUNTIME_DIR", NULL, "stager", path, sizeof(path)))
        settings->runtime_dir = keep(settings, path);
    if (strcmp(settings->state_dir, schema.state_dir) == 0 &&
        user_path("XDG_STATE_HOME", ".local/state", "stager", path, sizeof(path)))
        settings->state_dir = keep(settings, path);
    if (strcmp(settings->pipeline_dir, schema.pipeline_dir) == 0 &&
        user_path("XDG_CONFIG_HOME", ".config", "stager/pipelines", path, sizeof(path)))
        settings->pipeline_dir = keep(settings, path);
    stg_settings_finish(&schema);
    return 0;
}

/* Takes runtime_dir of the environment when there is no settings file. state_dir follows
 * it, so that two daemons do not share one. */
static void use_runtime_dir(struct stg_settings *settings)
{
    const char *runtime = getenv("STAGER_RUNTIME_DIR");
    char state[4096];
    if (runtime == NULL || runtime[0] != '/' ||
        strcmp(runtime, settings->runtime_dir) == 0)
        return;
    snprintf(state, sizeof(state), "%s/state", runtime);
    settings->runtime_dir = keep(settings, runtime);
    settings->state_dir = keep(settings, state);
}

void stg_config_find(const char *asked, char *ret, size_t bytes)
{
    bool user = asked == NULL && geteuid() != 0;
    if (!user ||
        !user_path("XDG_CONFIG_HOME", ".config", "stager/stagerd.yaml", ret, bytes))
        snprintf(ret, bytes, "%s", asked != NULL ? asked : STG_CONFIG_PATH);
}

char *stg_config_text(const char *given)
{
    char path[4096], *text = NULL;
    size_t bytes;
    stg_config_find(given, path, sizeof(path));
    if (stg_text_file_read(path, STG_TEXT_MAX_BYTES, NULL, &text, &bytes, NULL) < 0)
        return strdup("");
    return text;
}

/* ---- differences ---- */

static const char *next_line(const char *line)
{
    line += strcspn(line, "\n");
    return line + (*line == '\n');
}

static bool is_top_key(const char *line)
{
    return *line != '\0' && strchr(" #-\n\r\t", *line) == NULL;
}

static bool has_text(const char *line)
{
    size_t n = strspn(line, " \t");
    return strchr("#\n\r", line[n]) == NULL || line[n] == '\0';
}

/* Returns the first line of the value of a top-level key, or NULL. */
static const char *find_key(const char *text, const char *key, size_t n)
{
    for (const char *line = text; *line != '\0'; line = next_line(line)) {
        if (strncmp(line, key, n) == 0 && line[n] == ':')
            return line;
    }
    return NULL;
}

/* Returns whether the values that begin in these lines have the same lines, without
 * those of comments. */
static bool same_value(const char *a, const char *b)
{
    bool begins = true;
    for (;; a = next_line(a), b = next_line(b), begins = false) {
        while (!begins && *a != '\0' && !is_top_key(a) && !has_text(a))
            a = next_line(a);
        while (!begins && *b != '\0' && !is_top_key(b) && !has_text(b))
            b = next_line(b);
        bool a_ends = !begins && (*a == '\0' || is_top_key(a));
        bool b_ends = !begins && (*b == '\0' || is_top_key(b));
        if (a_ends || b_ends)
            return a_ends && b_ends;
        size_t n = strcspn(a, "\n");
        if (n != strcspn(b, "\n") || strncmp(a, b, n) != 0)
            return false;
    }
}

/* Appends the keys of `text` that differ in `other`, or, with only_missing, that it does
 * not have. */
static void add_keys(const char *text, const char *other, bool only_missing, char *ret,
                     size_t bytes)
{
    for (const char *line = text; *line != '\0'; line = next_line(line)) {
        size_t n = strcspn(line, ":\n"), used = strlen(ret);
        if (!is_top_key(line) || line[n] != ':')
            continue;
        const char *there = find_key(other, line, n);
        if (there == NULL || (!only_missing && !same_value(line, there)))
            snprintf(ret + used, bytes - used, "%s%.*s", used > 0 ? ", " : "", (int)n,
                     line);
    }
}

void stg_config_changes(const char *before, const char *after, char *ret, size_t bytes)
{
    ret[0] = '\0';
    add_keys(after, before, false, ret, bytes);
    add_keys(before, after, true, ret, bytes);
}

int stg_config_load(const char *given, struct stg_settings *ret, struct stg_err *err)
{
    char *text = NULL, path[4096];
    size_t bytes = 0;
    bool asked = given != NULL;
    bool user = !asked && geteuid() != 0;
    stg_config_find(given, path, sizeof(path));
    int rc = stg_text_file_read(path, STG_TEXT_MAX_BYTES, NULL, &text, &bytes, err);
    if (rc < 0 && (asked || rc != -STAGER_NOT_FOUND))
        return rc;
    bool found = rc == 0;
    rc = stg_load_settings(found ? text : "", bytes, path, ret, err);
    unsigned line = found ? stg_config_line(text, "log_level") : 0;
    unsigned log_line = found ? stg_config_line(text, "operations_log") : 0;
    free(text);
    if (rc < 0)
        return rc;

    rc = user ? use_user_paths(ret, err) : 0;
    if (rc == 0 && !found)
        use_runtime_dir(ret);
    if (rc == 0 && stg_log_level_from_name(ret->log_level) < 0)
        rc = stg_err(err, -STAGER_INVALID_ARGUMENT,
                     "%s:%u: log_level: \"%s\" is not one of error, warning, info, debug",
                     path, line, ret->log_level);
    if (rc == 0 && stg_operations_check(ret->operations_log, err) < 0)
        rc = stg_err_prefix(err, err->code, "%s:%u", path, log_line);
    if (rc < 0)
        stg_settings_finish(ret);
    return rc;
}
