/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/server/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "daemon/host/text_file.h"
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
    if (rc < 0)
        stg_settings_finish(ret);
    return rc;
}
