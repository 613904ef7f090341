/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"
#include "proto/load.h"

static int open_error(const char *path, struct stg_err *err)
{
    int code = errno == ENOENT                     ? -STAGER_NOT_FOUND
               : errno == EACCES || errno == EPERM ? -STAGER_PERMISSION_DENIED
                                                   : -STAGER_UNAVAILABLE;
    return stg_err(err, code, "%s: %s", path, strerror(errno));
}

int stg_config_read(const char *path, size_t limit, char **ret, size_t *ret_bytes,
                    struct stg_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return open_error(path, err);
    char *text = malloc(limit + 1);
    size_t n = 0;
    ssize_t m = text != NULL ? 1 : 0;
    while (m > 0 && n <= limit) {
        m = read(fd, text + n, limit + 1 - n);
        n += m > 0 ? (size_t)m : 0;
    }
    int rc = 0;
    if (text == NULL)
        rc = stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "%s: out of memory", path);
    else if (m < 0)
        rc = open_error(path, err);
    else if (n > limit)
        rc = stg_err(err, -STAGER_INVALID_ARGUMENT, "%s: longer than %zu bytes", path,
                     limit);
    close(fd);
    if (rc < 0) {
        free(text);
        return rc;
    }
    *ret = text;
    *ret_bytes = n;
    return 0;
}

/* A path made of an environment variable, kept as long as the settings. */
static const char *user_path(struct stg_settings *settings, const char *variable,
                             const char *fallback, const char *tail)
{
    const char *base = getenv(variable);
    char path[4096];
    if (base != NULL && base[0] == '/')
        snprintf(path, sizeof(path), "%s/%s", base, tail);
    else if (fallback != NULL && getenv("HOME") != NULL)
        snprintf(path, sizeof(path), "%s/%s/%s", getenv("HOME"), fallback, tail);
    else
        return NULL;
    return stg_bump_strndup(&settings->bump, path, strlen(path));
}

/* Without root, /run and /var/lib are not ours: keep to the user's own directories. */
static void use_user_paths(struct stg_settings *settings)
{
    const char *runtime = user_path(settings, "XDG_RUNTIME_DIR", NULL, "stager");
    const char *state = user_path(settings, "XDG_STATE_HOME", ".local/state", "stager");
    const char *pipelines =
        user_path(settings, "XDG_CONFIG_HOME", ".config", "stager/pipelines");
    if (runtime != NULL)
        settings->runtime_dir = runtime;
    if (state != NULL)
        settings->state_dir = state;
    if (pipelines != NULL)
        settings->pipeline_dir = pipelines;
}

static const char *keep(struct stg_settings *settings, const char *path)
{
    return stg_bump_strndup(&settings->bump, path, strlen(path));
}

int stg_config_load(const char *path, struct stg_settings *ret, struct stg_err *err)
{
    char *text = NULL;
    size_t bytes = 0;
    bool asked = path != NULL;
    if (path == NULL)
        path = STG_CONFIG_PATH;
    int rc = stg_config_read(path, STG_TEXT_MAX_BYTES, &text, &bytes, err);
    if (rc < 0 && (asked || rc != -STAGER_NOT_FOUND))
        return rc;
    bool found = rc == 0;
    rc = stg_load_settings(found ? text : "", bytes, path, ret, err);
    free(text);
    if (rc < 0)
        return rc;

    if (!found && geteuid() != 0 && getenv("RUNTIME_DIRECTORY") == NULL)
        use_user_paths(ret);
    const char *runtime = getenv("STAGER_RUNTIME_DIR");
    if (!found && runtime != NULL && runtime[0] == '/')
        ret->runtime_dir = keep(ret, runtime);
    if (ret->runtime_dir == NULL || stg_log_level_from_name(ret->log_level) < 0) {
        rc = stg_err(err, -STAGER_INVALID_ARGUMENT,
                     "%s: log_level: \"%s\" is none of error, warning, info, debug", path,
                     ret->log_level);
        stg_settings_finish(ret);
        return rc;
    }
    return 0;
}
