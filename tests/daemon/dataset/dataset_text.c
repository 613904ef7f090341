/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/load.h"
#include "tests/check.h"
#include "tests/daemon/dataset/dataset_spec.h"

static int load(const char *text, struct stg_pipeline_spec **ret, struct stg_err *err)
{
    char *whole = NULL;
    size_t bytes;
    FILE *out = open_memstream(&whole, &bytes);
    const char *at;
    while ((at = strstr(text, "$DIR")) != NULL) {
        fprintf(out, "%.*s%s", (int)(at - text), text, stg_test_dir());
        text = at + strlen("$DIR");
    }
    fprintf(out, "%s", text);
    fclose(out);
    int rc = stg_load_pipeline(whole, strlen(whole), "p", ret, err);
    free(whole);
    return rc;
}

struct stg_pipeline_spec *stg_test_load(const char *text)
{
    struct stg_pipeline_spec *spec = NULL;
    struct stg_err err = {0};
    CHECK_OK(load(text, &spec, &err), err);
    return spec;
}

struct stg_dataset *stg_test_open_text(const char *text,
                                       const struct stg_dataset_env *env,
                                       struct stg_pipeline_spec **ret_spec)
{
    *ret_spec = stg_test_load(text);
    return stg_test_open_spec(*ret_spec, env);
}

char *stg_test_render_text(const char *text, const struct stg_dataset_env *env,
                           int max_items)
{
    struct stg_pipeline_spec *spec = stg_test_load(text);
    char *ret = stg_test_render_spec(spec, env, max_items);
    stg_pipeline_spec_destroy(spec);
    return ret;
}

const char *stg_test_refused(const char *text)
{
    static struct stg_err err;
    struct stg_pipeline_spec *spec = NULL;
    int rc = load(text, &spec, &err);
    if (rc == 0) {
        struct stg_bump bump;
        struct stg_schema schema;
        stg_bump_init(&bump, 0);
        rc = stg_dataset_infer(spec, &bump, &schema, &err);
        stg_bump_finish(&bump);
        stg_pipeline_spec_destroy(spec);
    }
    if (rc == 0)
        FAIL("not refused:\n%s", text);
    return err.text;
}
