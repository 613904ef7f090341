/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stagerctl/collect.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int out_of_memory(struct stg_err *err)
{
    return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
}

/* Appends a path whose wildcards are characters like others. Returns behind it. */
static char *escape(char *to, const char *path)
{
    for (; *path != '\0'; path++) {
        if (strchr("*?[]{}\\", *path) != NULL)
            *to++ = '\\';
        *to++ = *path;
    }
    *to = '\0';
    return to;
}

const char *stg_collect_pattern(const char *path, struct stg_bump *bump)
{
    char folder[PATH_MAX] = "";
    bool is_file = access(path, F_OK) == 0;
    if (strstr(path, "://") != NULL || (path[0] == '/' && !is_file))
        return stg_bump_strdup(bump, path);
    if (path[0] != '/' && getcwd(folder, sizeof(folder)) == NULL)
        return NULL;
    while (strncmp(path, "./", 2) == 0)
        path += 2;
    char *ret = stg_bump_alloc(bump, 2 * (strlen(folder) + strlen(path)) + 2);
    if (ret == NULL)
        return NULL;
    char *to = escape(ret, folder);
    if (folder[0] != '\0' && to[-1] != '/')
        *to++ = '/';
    if (is_file)
        escape(to, path);
    else
        strcpy(to, path);
    return ret;
}

/* Replaces a text of a reply by a copy. */
static void keep(struct stg_bump *bump, const char **text, bool *is_short)
{
    if (*text == NULL)
        return;
    *text = stg_bump_strdup(bump, *text);
    *is_short |= *text == NULL;
}

static int keep_file(struct stg_bump *bump, struct stg_file_schema *to,
                     struct stg_err *err)
{
    bool is_short = false;
    keep(bump, &to->url, &is_short);
    keep(bump, &to->format, &is_short);
    keep(bump, &to->compression, &is_short);
    keep(bump, &to->delim, &is_short);
    keep(bump, &to->note, &is_short);
    to->columns = NULL;
    to->n = 0;
    return is_short ? out_of_memory(err) : 0;
}

/* Appends the columns of a reply. capacity: of to->columns. */
static int append(struct stg_bump *bump, const struct stg_file_schema *from,
                  struct stg_file_schema *to, size_t *capacity, struct stg_err *err)
{
    bool is_short = false;
    if (to->n + from->n > *capacity) {
        *capacity = 2 * (to->n + from->n);
        struct stg_file_column *columns =
            stg_bump_alloc(bump, *capacity * sizeof(*columns));
        if (columns == NULL)
            return out_of_memory(err);
        if (to->n > 0)
            memcpy(columns, to->columns, to->n * sizeof(*columns));
        to->columns = columns;
    }
    for (size_t i = 0; i < from->n; i++) {
        struct stg_file_column *column = &to->columns[to->n++];
        *column = from->columns[i];
        keep(bump, &column->name, &is_short);
        keep(bump, &column->type, &is_short);
        keep(bump, &column->logical, &is_short);
        keep(bump, &column->encodings, &is_short);
        keep(bump, &column->codec, &is_short);
        keep(bump, &column->problem, &is_short);
    }
    return is_short ? out_of_memory(err) : 0;
}

int stg_collect_schema(stg_collect_ask *ask, void *owner, const char *url,
                       struct stg_bump *bump, struct stg_file_schema *ret,
                       struct stg_err *err)
{
    struct stg_request request = {.kind = STG_REQUEST_SCHEMA,
                                  .url = stg_collect_pattern(url, bump)};
    struct stg_reply reply;
    size_t capacity = 0;
    if (request.url == NULL)
        return out_of_memory(err);
    do {
        int rc = ask(owner, &request, &reply, err);
        const struct stg_file_schema *from = &reply.schema;
        if (rc == 0 && request.first == 0) {
            *ret = *from;
            rc = keep_file(bump, ret, err);
        }
        if (rc == 0 && (from->n_total != ret->n_total || from->first != ret->n ||
                        (from->n == 0 && ret->n < ret->n_total)))
            rc = stg_err(err, -STAGER_ABORTED,
                         "%.512s: the file changed while stagerd described it: try again",
                         url);
        if (rc == 0)
            rc = append(bump, from, ret, &capacity, err);
        if (rc < 0)
            return rc;
        request.first = (uint32_t)ret->n;
    } while (ret->n < ret->n_total);
    return 0;
}
