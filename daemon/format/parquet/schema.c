/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/format/parquet/schema.h"

#include <string.h>

#define MAX_NESTING 64
#define MAX_PATH 1024 /* bytes; no wanted column has a longer one */
#define INT96_BYTES 12
#define FLOAT16_BYTES 2

/* Numbers of the format's FieldRepetitionType, ConvertedType and LogicalType. */
enum { REQUIRED = 0, OPTIONAL = 1, REPEATED = 2 };
enum { CONVERTED_UINT_8 = 11, CONVERTED_INT_8 = 15, CONVERTED_INT_64 = 18 };
enum { LOGICAL_INTEGER = 10, LOGICAL_FLOAT16 = 15 };

/* A SchemaElement. */
struct element {
    const char *name;
    uint64_t name_bytes;
    int64_t type, value_bytes, repetition, n_children, converted; /* -1: not written */
    bool has_integer, is_signed, is_float16;
    int64_t bits;
};

/* A group whose children are being read. */
struct group {
    uint64_t n_left; /* children */
    size_t path_bytes;
    unsigned max_level;
    bool is_repeated; /* it or a group around it */
};

struct schema {
    const struct stg_parquet_want *wants;
    uint32_t n;
    struct stg_parquet_leaf *leaves;
    uint32_t *columns;
    uint32_t n_leaves;
    struct group groups[MAX_NESTING];
    unsigned depth;
    char path[MAX_PATH];
};

/* ---- an element ---- */

static void read_integer(struct stg_thrift *thrift, struct element *element)
{
    struct stg_thrift_field field = {0};
    element->has_integer = true;
    while (stg_thrift_next(thrift, &field)) {
        if (field.id == 1)
            element->bits = stg_thrift_int(thrift, &field);
        else if (field.id == 2)
            element->is_signed = stg_thrift_bool(thrift, &field);
        else
            stg_thrift_skip(thrift, &field);
    }
}

static void read_logical(struct stg_thrift *thrift, struct element *element)
{
    struct stg_thrift_field field = {0};
    while (stg_thrift_next(thrift, &field)) {
        element->is_float16 |= field.id == LOGICAL_FLOAT16;
        if (field.id == LOGICAL_INTEGER && stg_thrift_struct(thrift, &field))
            read_integer(thrift, element);
        else
            stg_thrift_skip(thrift, &field);
    }
}

static void read_element(struct stg_thrift *thrift, struct element *element)
{
    struct stg_thrift_field field = {0};
    *element =
        (struct element){.name = "", .type = -1, .repetition = -1, .converted = -1};
    while (stg_thrift_next(thrift, &field)) {
        switch (field.id) {
        case 1: element->type = stg_thrift_int(thrift, &field); break;
        case 2: element->value_bytes = stg_thrift_int(thrift, &field); break;
        case 3: element->repetition = stg_thrift_int(thrift, &field); break;
        case 4:
            element->name_bytes = stg_thrift_binary(thrift, &field, &element->name);
            break;
        case 5: element->n_children = stg_thrift_int(thrift, &field); break;
        case 6: element->converted = stg_thrift_int(thrift, &field); break;
        case 10:
            if (stg_thrift_struct(thrift, &field))
                read_logical(thrift, element);
            break;
        default: stg_thrift_skip(thrift, &field);
        }
    }
}

/* ---- types ---- */

/* An integer has the bits of its annotation, where it has a valid one. */
static void set_integer(const struct element *element, struct stg_parquet_leaf *leaf)
{
    int64_t converted = element->converted;
    leaf->bits = leaf->type == STG_PARQUET_INT32 ? 32 : 64;
    bool is_converted = converted >= CONVERTED_UINT_8 && converted <= CONVERTED_INT_64;
    int64_t bits = is_converted ? INT64_C(8) << (converted - CONVERTED_UINT_8) % 4 : 0;
    leaf->is_unsigned = is_converted && converted < CONVERTED_INT_8;
    if (element->has_integer) {
        bits = element->bits;
        leaf->is_unsigned = !element->is_signed;
    }
    if (bits == 8 || bits == 16 || (bits == 32 && leaf->bits == 64))
        leaf->bits = (unsigned)bits;
}

static void set_leaf(const struct element *element, unsigned max_level,
                     struct stg_parquet_leaf *leaf)
{
    *leaf = (struct stg_parquet_leaf){
        .is_there = true, .type = (int)element->type, .max_level = max_level};
    switch (leaf->type) {
    case STG_PARQUET_INT32:
    case STG_PARQUET_INT64: set_integer(element, leaf); break;
    case STG_PARQUET_INT96: leaf->value_bytes = INT96_BYTES; break;
    case STG_PARQUET_FIXED_LEN_BYTE_ARRAY:
        leaf->value_bytes = (uint32_t)element->value_bytes;
        leaf->is_float16 = element->is_float16 && leaf->value_bytes == FLOAT16_BYTES;
        break;
    default: break;
    }
}

static bool is_valid_type(const struct element *element)
{
    return element->type >= STG_PARQUET_BOOLEAN &&
           element->type <= STG_PARQUET_FIXED_LEN_BYTE_ARRAY &&
           (element->type != STG_PARQUET_FIXED_LEN_BYTE_ARRAY ||
            (element->value_bytes > 0 && element->value_bytes <= INT32_MAX));
}

static bool fits_integer(const struct stg_parquet_leaf *leaf, int dtype)
{
    switch (dtype) {
    case STAGER_INT8: return !leaf->is_unsigned && leaf->bits <= 8;
    case STAGER_INT16: return leaf->bits <= (leaf->is_unsigned ? 8 : 16);
    case STAGER_INT32: return leaf->bits <= (leaf->is_unsigned ? 16 : 32);
    case STAGER_INT64: return leaf->bits <= (leaf->is_unsigned ? 32 : 64);
    case STAGER_UINT8: return leaf->is_unsigned && leaf->bits <= 8;
    case STAGER_UINT16: return leaf->is_unsigned && leaf->bits <= 16;
    case STAGER_UINT32: return leaf->is_unsigned && leaf->bits <= 32;
    case STAGER_UINT64: return leaf->is_unsigned;
    default: return false;
    }
}

/* A dtype holds each value of the column, as it is. */
static bool fits(const struct stg_parquet_leaf *leaf, int dtype)
{
    switch (leaf->type) {
    case STG_PARQUET_BOOLEAN: return dtype == STAGER_BOOL;
    case STG_PARQUET_INT32:
    case STG_PARQUET_INT64: return fits_integer(leaf, dtype);
    case STG_PARQUET_INT96: return dtype == STAGER_INT64;
    case STG_PARQUET_FLOAT: return dtype == STAGER_FLOAT32 || dtype == STAGER_FLOAT64;
    case STG_PARQUET_DOUBLE: return dtype == STAGER_FLOAT64;
    case STG_PARQUET_BYTE_ARRAY: return dtype == STAGER_STRING;
    default: return dtype == (leaf->is_float16 ? STAGER_FLOAT16 : STAGER_STRING);
    }
}

static const char *dtype_of(const struct stg_parquet_leaf *leaf)
{
    static const int dtypes[] = {STAGER_INT8,    STAGER_INT16,   STAGER_INT32,
                                 STAGER_INT64,   STAGER_UINT8,   STAGER_UINT16,
                                 STAGER_UINT32,  STAGER_UINT64,  STAGER_BOOL,
                                 STAGER_FLOAT16, STAGER_FLOAT32, STAGER_FLOAT64};
    size_t i = 0, n = sizeof(dtypes) / sizeof(dtypes[0]);
    while (i < n && !fits(leaf, dtypes[i]))
        i++;
    return i < n ? stg_dtype_name(dtypes[i]) : "string";
}

/* ---- the tree ---- */

static int damaged(struct stg_err *err)
{
    return stg_err(err, -STAGER_DATA_LOSS, "the schema in its footer is damaged");
}

/* Appends a name to the path of the innermost group. Returns its length; MAX_PATH: it is
 * too long. */
static size_t push_path(struct schema *schema, const struct element *element)
{
    size_t at = schema->depth > 1 ? schema->groups[schema->depth - 1].path_bytes : 0;
    if (at >= MAX_PATH || element->name_bytes >= MAX_PATH - 2 - at)
        return MAX_PATH;
    if (at > 0)
        schema->path[at++] = '/';
    memcpy(schema->path + at, element->name, element->name_bytes);
    schema->path[at + element->name_bytes] = '\0';
    return at + element->name_bytes;
}

static int is_nested(const char *name, struct stg_err *err)
{
    return stg_err(err, -STAGER_UNIMPLEMENTED,
                   "column %.256s: it is a list, a map or part of one, which is not "
                   "supported",
                   name);
}

static int take_leaf(struct schema *schema, const struct element *element,
                     const struct group *group, uint32_t c, struct stg_err *err)
{
    const struct stg_parquet_want *want = &schema->wants[c];
    struct stg_parquet_leaf *leaf = &schema->leaves[c];
    if (leaf->is_there)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "column %.256s: the file has two columns of that name",
                       want->name);
    if (group->is_repeated || element->repetition == REPEATED)
        return is_nested(want->name, err);
    set_leaf(element, group->max_level + (element->repetition == OPTIONAL), leaf);
    schema->columns[c] = schema->n_leaves;
    if (fits(leaf, want->dtype))
        return 0;
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "column %.256s: it is %s in the file, and the step declares %s",
                   want->name, dtype_of(leaf), stg_dtype_name(want->dtype));
}

static int add_leaf(struct schema *schema, const struct element *element,
                    struct stg_err *err)
{
    const struct group *group = &schema->groups[schema->depth - 1];
    int rc = is_valid_type(element) ? 0 : damaged(err);
    bool has_path = push_path(schema, element) < MAX_PATH;
    for (uint32_t c = 0; rc == 0 && has_path && c < schema->n; c++) {
        if (strcmp(schema->path, schema->wants[c].name) == 0)
            rc = take_leaf(schema, element, group, c, err);
    }
    schema->n_leaves++;
    return rc;
}

/* A wanted name must not be that of a group. */
static int check_group(const struct schema *schema, bool is_repeated, struct stg_err *err)
{
    for (uint32_t c = 0; c < schema->n; c++) {
        if (strcmp(schema->path, schema->wants[c].name) != 0)
            continue;
        if (is_repeated)
            return is_nested(schema->path, err);
        return stg_err(err, -STAGER_UNIMPLEMENTED,
                       "column %.256s: it is a struct, a list or a map; of a struct, "
                       "name the fields, such as %.256s/NAME",
                       schema->path, schema->path);
    }
    return 0;
}

static int add_group(struct schema *schema, const struct element *element,
                     struct stg_err *err)
{
    bool is_root = schema->depth == 0;
    if (schema->depth == MAX_NESTING || element->n_children < 0)
        return damaged(err);
    struct group group = {.n_left = (uint64_t)element->n_children};
    if (!is_root) {
        const struct group *outer = &schema->groups[schema->depth - 1];
        group.max_level = outer->max_level + (element->repetition == OPTIONAL);
        group.is_repeated = outer->is_repeated || element->repetition == REPEATED;
        group.path_bytes = push_path(schema, element);
        int rc =
            group.path_bytes < MAX_PATH ? check_group(schema, group.is_repeated, err) : 0;
        if (rc < 0)
            return rc;
    }
    schema->groups[schema->depth++] = group;
    return 0;
}

static int add_element(struct schema *schema, const struct element *element,
                       struct stg_err *err)
{
    if (schema->depth > 0)
        schema->groups[schema->depth - 1].n_left--;
    int rc = element->type < 0 ? add_group(schema, element, err)
                               : add_leaf(schema, element, err);
    while (schema->depth > 1 && schema->groups[schema->depth - 1].n_left == 0)
        schema->depth--;
    return rc;
}

/* The first element is the root; behind its last child there are none. */
static bool expects(const struct schema *schema, uint64_t i, bool is_leaf)
{
    return i == 0 ? !is_leaf
                  : schema->depth > 0 && schema->groups[schema->depth - 1].n_left > 0;
}

int stg_parquet_schema_read(struct stg_thrift *thrift, uint64_t n_elements,
                            const struct stg_parquet_want *wants, uint32_t n,
                            struct stg_parquet_leaf *leaves, uint32_t *columns,
                            uint32_t *ret, struct stg_err *err)
{
    struct schema schema = {.wants = wants, .n = n, .leaves = leaves, .columns = columns};
    for (uint32_t c = 0; c < n; c++)
        columns[c] = STG_PARQUET_NO_COLUMN;
    for (uint64_t i = 0; i < n_elements; i++) {
        struct element element;
        read_element(thrift, &element);
        if (thrift->is_bad || !expects(&schema, i, element.type >= 0))
            return damaged(err);
        int rc = add_element(&schema, &element, err);
        if (rc < 0)
            return rc;
    }
    if (n_elements == 0 || schema.groups[0].n_left > 0 || schema.depth != 1)
        return damaged(err);
    for (uint32_t c = 0; c < n; c++) {
        if (!leaves[c].is_there && !wants[c].may_lack)
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "column %.256s: the file has no such column, and the step has "
                           "no default for it",
                           wants[c].name);
    }
    *ret = schema.n_leaves;
    return 0;
}
