/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/daemon/dataset/dataset_yaml.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/load.h"
#include "tests/check.h"

struct stg_test_spec *stg_test_yaml(const char *fmt, ...)
{
    static struct stg_test_spec spec;
    char text[8192];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    CHECK(n > 0 && (size_t)n < sizeof(text));
    struct stg_pipeline_spec *loaded;
    struct stg_err err = {0};
    if (stg_load_pipeline(text, (size_t)n, "p", &loaded, &err) < 0)
        FAIL("%s", err.text);
    stg_bump_finish(&spec.spec.bump);
    spec.spec = *loaded;
    free(loaded);
    return &spec;
}

void stg_test_yaml_items(const char *text, const char *want)
{
    struct stg_dataset_env env = stg_test_env();
    char *got = stg_test_render(stg_test_yaml("%s", text), &env, 0);
    CHECK_STR(got, want);
    free(got);
}

void stg_test_yaml_refused(const char *text, const char *part)
{
    const struct stg_test_spec *spec = stg_test_yaml("%s", text);
    struct stg_bump bump;
    struct stg_schema schema;
    struct stg_err err = {0};
    stg_bump_init(&bump, 0);
    int rc = stg_dataset_infer(&spec->spec, &bump, &schema, &err);
    stg_bump_finish(&bump);
    CHECK_INT(rc, -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, part);
}

char *stg_test_yaml_error(const char *text)
{
    struct stg_dataset_env env = stg_test_env();
    struct stg_dataset *dataset = stg_test_open(stg_test_yaml("%s", text), &env);
    struct stg_block *block;
    while ((block = stg_test_next(dataset)) != NULL) {
        char *ret = block->error.code != 0 ? strdup(block->error.text) : NULL;
        stg_block_unref(block);
        if (ret == NULL)
            continue;
        stg_dataset_destroy(dataset);
        return ret;
    }
    FAIL("no error came");
    return NULL;
}
