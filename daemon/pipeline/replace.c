/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a definition may replace the one of an existing pipeline.
 */
#include <string.h>

#include "daemon/pipeline/catalog_priv.h"
#include "daemon/pipeline/difference.h"

static bool busy(const struct stg_pipeline *pipeline)
{
    return pipeline->instance != NULL && pipeline->instance->stage != NULL &&
           stg_stage_is_used(pipeline->instance->stage);
}

/* Returns whether a later run of the same script applies `after`. */
static bool same_script(const struct stg_definition *before,
                        const struct stg_definition *after)
{
    return before->script != NULL && after->script != NULL &&
           strcmp(before->script, after->script) == 0 &&
           before->script_run != after->script_run &&
           before->applier.uid == after->applier.uid;
}

static bool may_replace(const struct stg_pipeline *pipeline,
                        const struct stg_definition *definition, enum stg_replace replace)
{
    if (busy(pipeline))
        return replace == STG_REPLACE_ALL;
    return replace != STG_REPLACE_OWN || same_script(pipeline->definition, definition);
}

static int refuse(const struct stg_pipeline *pipeline,
                  const struct stg_definition *definition, struct stg_err *err)
{
    const struct stg_definition *before = pipeline->definition;
    char text[512];
    stg_difference(before->text, before->text_bytes, definition->text,
                   definition->text_bytes, text, sizeof(text));
    stg_err(err, -STAGER_FAILED_PRECONDITION,
            "pipeline %s is there with other content: %s", pipeline->name,
            text[0] != '\0' ? text : "lines in another order, or another vocabulary");
    if (busy(pipeline)) {
        stg_err_append(err, err->code, "; clients are attached:");
        stg_stage_name_clients(pipeline->instance->stage, err);
    }
    return stg_err_append(
        err, err->code, "; use --replace (replace=True in Python)%s, or another name",
        busy(pipeline) ? ", by which they get what is published, then ABORTED" : "");
}

int stg_catalog_check_replace(const struct stg_pipeline *pipeline,
                              const struct stg_definition *definition,
                              enum stg_replace replace, struct stg_err *err)
{
    return may_replace(pipeline, definition, replace) ? 0
                                                      : refuse(pipeline, definition, err);
}
