/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/storage/http/credentials.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_BYTES 65536

/* ---- the text ---- */

static char *trim(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    size_t n = strlen(text);
    while (n > 0 && isspace((unsigned char)text[n - 1]))
        text[--n] = '\0';
    return text;
}

static char **field_of(struct stg_store *store, const char *name)
{
    const struct {
        const char *name;
        char **field;
    } fields[] = {
        {"aws_access_key_id", &store->key},
        {"aws_secret_access_key", &store->secret},
        {"aws_session_token", &store->session},
        {"region", store->region == NULL ? &store->region : NULL},
        {"user", &store->user},
        {"password", &store->password},
        {"bearer_token", &store->bearer},
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (strcmp(fields[i].name, name) == 0)
            return fields[i].field;
    }
    return NULL;
}

static bool take_line(struct stg_store *store, char *line)
{
    char *equals = strchr(line, '=');
    if (equals == NULL)
        return true;
    *equals = '\0';
    char **field = field_of(store, trim(line));
    const char *value = trim(equals + 1);
    if (field == NULL || value[0] == '\0')
        return true;
    free(*field);
    *field = strdup(value);
    return *field != NULL;
}

/* Whether the line "[NAME]" begins the profile. */
static bool is_profile(char *line, const char *profile)
{
    size_t n = strlen(line);
    if (n < 2 || line[n - 1] != ']')
        return false;
    line[n - 1] = '\0';
    return strcmp(trim(line + 1), profile) == 0;
}

/* The text is written into. 1: it has no such profile. */
static int take_profile(char *text, const char *profile, struct stg_store *store)
{
    bool inside = false, found = false;
    char *line;
    while ((line = strsep(&text, "\n")) != NULL) {
        line = trim(line);
        if (line[0] == '[') {
            inside = is_profile(line, profile);
            found |= inside;
        } else if (inside && line[0] != '#' && line[0] != ';' &&
                   !take_line(store, line)) {
            return -STAGER_RESOURCE_EXHAUSTED;
        }
    }
    return found ? 0 : 1;
}

/* ---- the file ---- */

static int check_file(int fd, const char *path, struct stg_err *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > MAX_BYTES)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "%s is not a credentials file of at most %d bytes", path,
                       MAX_BYTES);
    if ((st.st_mode & (S_IROTH | S_IWOTH | S_IWGRP)) != 0)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "%s holds secrets, but other users may read or write it: run "
                       "`chmod g-w,o= %s`",
                       path, path);
    return 0;
}

static int read_text(const char *path, char **ret, struct stg_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "stagerd cannot read the credentials in %s: %s", path,
                       strerror(errno));
    int rc = check_file(fd, path, err);
    char *text = rc == 0 ? calloc(1, MAX_BYTES + 1) : NULL;
    if (rc == 0 && text == NULL)
        rc = stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "%s: out of memory", path);
    if (rc == 0 && read(fd, text, MAX_BYTES) < 0)
        rc = stg_err(err, -STAGER_FAILED_PRECONDITION,
                     "stagerd cannot read the credentials in %s: %s", path,
                     strerror(errno));
    close(fd);
    if (rc < 0) {
        free(text);
        return rc;
    }
    *ret = text;
    return 0;
}

int stg_credentials_read(const char *path, const char *profile, struct stg_store *store,
                         struct stg_err *err)
{
    char *text = NULL;
    int rc = read_text(path, &text, err);
    if (rc < 0)
        return rc;
    rc = take_profile(text, profile, store);
    explicit_bzero(text, MAX_BYTES);
    free(text);
    if (rc == 1)
        return stg_err(
            err, -STAGER_FAILED_PRECONDITION,
            "%s has no profile [%s]: add it, or set `profile` of that entry of "
            "remote.stores in stagerd.yaml",
            path, profile);
    return rc < 0 ? stg_err(err, rc, "%s: out of memory", path) : 0;
}

/* ---- the environment ---- */

static char *variable(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? strdup(value) : NULL;
}

static int read_shared(struct stg_store *store, struct stg_err *err)
{
    const char *named = getenv("AWS_SHARED_CREDENTIALS_FILE"), *home = getenv("HOME");
    const char *profile = getenv("AWS_PROFILE");
    char path[4096];
    snprintf(path, sizeof(path), "%s%s",
             named != NULL  ? named
             : home != NULL ? home
                            : "",
             named != NULL ? "" : "/.aws/credentials");
    if (access(path, F_OK) != 0)
        return 0;
    return stg_credentials_read(path, profile != NULL ? profile : "default", store, err);
}

int stg_credentials_of_environment(struct stg_store *store, struct stg_err *err)
{
    store->endpoint = variable("AWS_ENDPOINT_URL");
    store->region = variable("AWS_REGION");
    if (store->region == NULL)
        store->region = variable("AWS_DEFAULT_REGION");
    store->key = variable("AWS_ACCESS_KEY_ID");
    store->secret = variable("AWS_SECRET_ACCESS_KEY");
    store->session = variable("AWS_SESSION_TOKEN");
    return store->key == NULL ? read_shared(store, err) : 0;
}
