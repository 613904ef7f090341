/* SPDX-License-Identifier: Apache-2.0 */
#include "client/api/version.h"

#include <string.h>

#include "core/status.h"

/* Returns the feature of that name that the stream shows; NULL: it shows none. */
static const struct stg_component *find(const struct stager_stream *stream,
                                        const char *name)
{
    for (uint32_t i = 0; i < stream->n_shown; i++) {
        const struct stg_component *c = &stream->boundary.components[stream->shown[i]];
        if (strcmp(c->name, name) == 0)
            return c;
    }
    return NULL;
}

/* A dimension below 0 is not known. */
static bool is_same_shape(const struct stg_component *a, const struct stg_component *b)
{
    bool is_same = a->ndim == b->ndim || a->ndim < 0 || b->ndim < 0;
    for (int i = 1; is_same && i < a->ndim && i < b->ndim; i++)
        is_same = a->shape[i] == b->shape[i] || a->shape[i] < 0 || b->shape[i] < 0;
    return is_same;
}

static int refuse(const struct stg_component *before, const struct stg_component *after,
                  const struct stager_stream *next, struct stg_err *err)
{
    char a[128], b[128];
    return stg_err(err, -STAGER_FAILED_PRECONDITION,
                   "feature \"%s\" is %s %s in generation %llu of pipeline %s, and was "
                   "%s %s",
                   before->name, stg_dtype_name(after->dtype),
                   stg_shape_text(after->shape, after->ndim, a, sizeof(a)),
                   (unsigned long long)next->generation, next->name,
                   stg_dtype_name(before->dtype),
                   stg_shape_text(before->shape, before->ndim, b, sizeof(b)));
}

static int check_feature(const struct stg_component *before,
                         const struct stager_stream *next, struct stg_err *err)
{
    const struct stg_component *after = find(next, before->name);
    if (after == NULL)
        return stg_err(err, -STAGER_FAILED_PRECONDITION,
                       "generation %llu of pipeline %s lacks feature \"%s\"",
                       (unsigned long long)next->generation, next->name, before->name);
    if (after->dtype != before->dtype || after->part != before->part ||
        !is_same_shape(before, after))
        return refuse(before, after, next, err);
    return 0;
}

static bool has_target(const struct stager_stream *stream, const char *name)
{
    size_t i = 0, n = stager_target_count(stream);
    while (i < n && strcmp(stager_target(stream, i), name) != 0)
        i++;
    return i < n;
}

static int check_targets(const struct stager_stream *stream,
                         const struct stager_stream *next, struct stg_err *err)
{
    for (size_t i = 0; i < stager_target_count(stream); i++) {
        const char *name = stager_target(stream, i);
        if (!has_target(next, name))
            return stg_err(err, -STAGER_FAILED_PRECONDITION,
                           "generation %llu of pipeline %s lacks target \"%s\"",
                           (unsigned long long)next->generation, next->name, name);
    }
    return 0;
}

int stg_version_check(const struct stager_stream *stream,
                      const struct stager_stream *next, struct stg_err *err)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < stream->n_shown; i++)
        rc = check_feature(&stream->boundary.components[stream->shown[i]], next, err);
    return rc == 0 && stream->reconnect->options.fetches == NULL
               ? check_targets(stream, next, err)
               : rc;
}
