/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <strings.h>

#include "daemon/dataset/sources/reader.h"

#define KEY "__key__"
#define MAX_PARTS 64
#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"

static int check_part(const struct stg_step *step, const struct stg_attr *parts, size_t i,
                      struct stg_err *err)
{
    const struct stg_value *part = &parts->values[i];
    if (part->kind != STG_VALUE_STRING || part->s_bytes == 0 ||
        strspn(part->s, LETTERS) != part->s_bytes || strcmp(part->s, KEY) == 0)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "parts[%zu] is none: write what follows the first dot of a "
                            "name, such as jpg or seg.png",
                            i);
    for (size_t k = 0; k < i; k++) {
        if (strcasecmp(parts->values[k].s, part->s) == 0)
            return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                                "parts has \"%s\" twice", part->s);
    }
    return 0;
}

static int tar_infer(const struct stg_step *step, const struct stg_schema *in,
                     struct stg_bump *bump, struct stg_schema *ret, struct stg_err *err)
{
    int rc = stg_reader_check(step, in, err);
    if (rc < 0)
        return rc;
    const struct stg_attr *parts = stg_attr_find(step->attrs, step->n_attrs, "parts");
    size_t n = parts != NULL ? parts->n_values : 0;
    if (n == 0 || n > MAX_PARTS)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "parts has %zu entries; it must name 1 to %d parts of a "
                            "sample, such as [jpg, cls]",
                            n, MAX_PARTS);
    rc = stg_schema_create(bump, n + 1, ret, err);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = check_part(step, parts, i, err);
        if (rc == 0)
            ret->components[i + 1] = (struct stg_component){.name = parts->values[i].s,
                                                            .dtype = STAGER_STRING};
    }
    if (rc == 0)
        ret->components[0] = (struct stg_component){.name = KEY, .dtype = STAGER_STRING};
    return rc;
}

static int tar_create(struct stg_dataset *dataset, const struct stg_step *step,
                      const struct stg_schema *schema, struct stg_iter *input,
                      struct stg_iter **ret, struct stg_err *err)
{
    size_t n = schema->n - 1;
    const char *parts[MAX_PARTS];
    for (size_t i = 0; i < n; i++)
        parts[i] = schema->components[i + 1].name;
    struct stg_tar_options options = {.n_parts = (uint32_t)n, .parts = parts};
    struct stg_reader_config config =
        stg_reader_options(dataset, step, &stg_format_tar, "auto");
    config.config.n_parts = (uint32_t)n + 1;
    config.config.options = &options;
    dataset->has_records = true;
    return stg_reader_create(dataset, step, schema, input, &config, ret, err);
}

const struct stg_transformation stg_tar = {"tar", tar_infer, tar_create};
