/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <strings.h>

#include "daemon/dataset/sources/reader.h"

#define KEY "__key__"
#define PARTS "parts/"
#define MAX_PARTS 64
#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"

/* The parts of a step: `parts` is a list of names, or a mapping from names to "required"
 * or "optional". */
struct parts {
    size_t n;
    const char *names[MAX_PARTS];
    bool optional[MAX_PARTS];
};

static int add_part(const struct stg_step *step, struct parts *parts, const char *name,
                    struct stg_err *err)
{
    if (parts->n == MAX_PARTS)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "parts has more than %d entries", MAX_PARTS);
    if (name == NULL || name[0] == '\0' || name[strspn(name, LETTERS)] != '\0' ||
        strcmp(name, KEY) == 0)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "parts[%zu] is not valid: write the text after the first dot "
                            "of a file name, such as jpg or seg.png",
                            parts->n);
    for (size_t k = 0; k < parts->n; k++) {
        if (strcasecmp(parts->names[k], name) == 0)
            return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                                "parts names \"%s\" twice", name);
    }
    parts->names[parts->n++] = name;
    return 0;
}

static const char *string_of(const struct stg_value *value)
{
    bool whole = value->kind == STG_VALUE_STRING && strlen(value->s) == value->s_bytes;
    return whole ? value->s : NULL;
}

/* Of a mapping: an attribute "parts/NAME". */
static int add_entry(const struct stg_step *step, const struct stg_attr *attr,
                     struct parts *parts, struct stg_err *err)
{
    const char *name = attr->name + strlen(PARTS);
    const char *how = attr->n_values == 1 ? string_of(&attr->values[0]) : NULL;
    int rc = add_part(step, parts, name, err);
    if (rc < 0)
        return rc;
    if (how != NULL && strcmp(how, "optional") == 0)
        parts->optional[parts->n - 1] = true;
    else if (how == NULL || strcmp(how, "required") != 0)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "parts: %s is neither required nor optional, as in "
                            "{jpg: required, json: optional}",
                            name);
    return 0;
}

static int read_parts(const struct stg_step *step, struct parts *ret, struct stg_err *err)
{
    const struct stg_attr *list = stg_attr_find(step->attrs, step->n_attrs, "parts");
    int rc = 0;
    *ret = (struct parts){0};
    for (size_t i = 0; rc == 0 && list != NULL && i < list->n_values; i++)
        rc = add_part(step, ret, string_of(&list->values[i]), err);
    for (size_t i = 0; rc == 0 && i < step->n_attrs; i++) {
        if (strncmp(step->attrs[i].name, PARTS, strlen(PARTS)) == 0)
            rc = add_entry(step, &step->attrs[i], ret, err);
    }
    if (rc == 0 && ret->n == 0)
        rc = stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                          "parts has 0 entries; it must name 1 to %d parts of a sample, "
                          "such as [jpg, cls] or {jpg: required, json: optional}",
                          MAX_PARTS);
    return rc;
}

static int tar_infer(const struct stg_step *step, const struct stg_schema *in,
                     struct stg_bump *bump, struct stg_schema *ret, struct stg_err *err)
{
    struct parts parts;
    int rc = stg_reader_check(step, in, err);
    if (rc == 0)
        rc = read_parts(step, &parts, err);
    if (rc == 0)
        rc = stg_schema_create(bump, parts.n + 1, ret, err);
    if (rc < 0)
        return rc;
    ret->components[0] = (struct stg_component){.name = KEY, .dtype = STAGER_STRING};
    for (size_t i = 0; i < parts.n; i++)
        ret->components[i + 1] =
            (struct stg_component){.name = parts.names[i], .dtype = STAGER_STRING};
    return 0;
}

static int tar_create(struct stg_dataset *dataset, const struct stg_step *step,
                      const struct stg_schema *schema, struct stg_iter *input,
                      struct stg_iter **ret, struct stg_err *err)
{
    struct parts *parts = stg_bump_alloc(&dataset->bump, sizeof(*parts));
    if (parts == NULL)
        return stg_step_err(step, -STAGER_RESOURCE_EXHAUSTED, err, "out of memory");
    int rc = read_parts(step, parts, err);
    if (rc < 0)
        return rc;
    struct stg_tar_options options = {.n_parts = (uint32_t)parts->n,
                                      .parts = parts->names,
                                      .optional = parts->optional};
    struct stg_reader_config config =
        stg_reader_options(dataset, step, &stg_format_tar, "auto");
    config.config.n_parts = (uint32_t)parts->n + 1;
    rc = stg_reader_set_options(dataset, step, &config, &options, sizeof(options), err);
    if (rc < 0)
        return rc;
    dataset->has_records = true;
    return stg_reader_create(dataset, step, schema, input, &config, ret, err);
}

const struct stg_transformation stg_tar = {
    .name = "tar", .infer = tar_infer, .create = tar_create, .is_indexable = true};
