/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/format/parquet/schema.h"

#include <string.h>

#define MAX_NESTING 64
#define MAX_PATH 1024 /* bytes; no wanted column has a longer one */
#define INT96_BYTES 12
#define FLOAT16_BYTES 2

/* Numbers of the format's FieldRepetitionType, ConvertedType and LogicalType. */
enum { REQUIRED = 0, OPTIONAL = 1, REPEATED = 2 };
enum { CONVERTED_UTF8 = 0, CONVERTED_ENUM = 4, CONVERTED_JSON = 19, CONVERTED_BSON = 20 };
enum { CONVERTED_MAP = 1, CONVERTED_MAP_KEY_VALUE = 2, CONVERTED_LIST = 3 };
enum { CONVERTED_UINT_8 = 11, CONVERTED_INT_8 = 15, CONVERTED_INT_64 = 18 };
enum {
    LOGICAL_STRING = 1,
    LOGICAL_ENUM = 4,
    LOGICAL_JSON = 12,
    LOGICAL_BSON = 13,
    LOGICAL_UUID = 14
};
enum { CONVERTED_TIME_MILLIS = 7, CONVERTED_TIMESTAMP_MICROS = 10 };
enum { LOGICAL_MAP = 2, LOGICAL_LIST = 3, LOGICAL_DECIMAL = 5, LOGICAL_TIME = 7 };
enum { LOGICAL_TIMESTAMP = 8, LOGICAL_INTEGER = 10, LOGICAL_FLOAT16 = 15 };

/* A SchemaElement. */
struct element {
    const char *name;
    uint64_t name_bytes;
    int64_t type, value_bytes, repetition, n_children, converted; /* -1: not written */
    bool has_integer, is_signed, is_float16, is_list, is_map;
    int64_t bits;
    int logical, unit; /* numbers of LogicalType and TimeUnit; 0: not written */
    int64_t scale, precision;
};

/* The names from the root to an element, with '/' between them. */
struct path {
    size_t bytes; /* MAX_PATH: it is too long */
    char text[MAX_PATH];
};

/* Levels at an element. */
struct levels {
    unsigned max_level, n_lists;
    unsigned list_levels[STG_MAX_LISTS];
};

/* A group whose children are being read. */
struct group {
    uint64_t n_left; /* children */
    const char *name;
    uint64_t name_bytes;
    size_t path_bytes, short_bytes;
    struct levels levels;
    bool is_list, is_map; /* it is annotated so: its repeated child has no name */
    bool is_wrapper; /* the middle one of three groups of a list: nor has its child */
};

struct schema {
    const struct stg_parquet_want *wants;
    uint32_t n;
    struct stg_parquet_leaf *leaves;
    uint32_t *columns;
    uint32_t n_leaves;
    struct stg_describing *describing; /* gets each leaf; NULL: none does */
    struct group groups[MAX_NESTING];
    unsigned depth;
    /* Of the element that is read; and without the names of groups that only make a list
     * or a map. */
    struct path path, short_path;
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

/* A TimeUnit is a union: the number of its field is the unit. */
static void read_unit(struct stg_thrift *thrift, struct element *element)
{
    struct stg_thrift_field field = {0};
    while (stg_thrift_next(thrift, &field)) {
        element->unit = field.id;
        stg_thrift_skip(thrift, &field);
    }
}

static void read_time(struct stg_thrift *thrift, struct element *element)
{
    struct stg_thrift_field field = {0};
    while (stg_thrift_next(thrift, &field)) {
        if (field.id == 2 && stg_thrift_struct(thrift, &field))
            read_unit(thrift, element);
        else
            stg_thrift_skip(thrift, &field);
    }
}

static void read_logical(struct stg_thrift *thrift, struct element *element)
{
    struct stg_thrift_field field = {0};
    while (stg_thrift_next(thrift, &field)) {
        bool is_time = field.id == LOGICAL_TIME || field.id == LOGICAL_TIMESTAMP;
        element->logical = field.id;
        element->is_float16 |= field.id == LOGICAL_FLOAT16;
        element->is_list |= field.id == LOGICAL_LIST;
        element->is_map |= field.id == LOGICAL_MAP;
        if (field.id == LOGICAL_INTEGER && stg_thrift_struct(thrift, &field))
            read_integer(thrift, element);
        else if (is_time && stg_thrift_struct(thrift, &field))
            read_time(thrift, element);
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
        case 7: element->scale = stg_thrift_int(thrift, &field); break;
        case 8: element->precision = stg_thrift_int(thrift, &field); break;
        case 10:
            if (stg_thrift_struct(thrift, &field))
                read_logical(thrift, element);
            break;
        default: stg_thrift_skip(thrift, &field);
        }
    }
    element->is_list |= element->converted == CONVERTED_LIST;
    element->is_map |= element->converted == CONVERTED_MAP ||
                       element->converted == CONVERTED_MAP_KEY_VALUE;
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

/* Of other annotations, as DECIMAL and INTERVAL, the order is another one, or none. */
static bool is_bytewise(const struct element *element)
{
    switch (element->logical) {
    case LOGICAL_STRING:
    case LOGICAL_ENUM:
    case LOGICAL_JSON:
    case LOGICAL_BSON:
    case LOGICAL_UUID: return true;
    case 0: break;
    default: return false;
    }
    return element->converted == -1 || element->converted == CONVERTED_UTF8 ||
           element->converted == CONVERTED_ENUM || element->converted == CONVERTED_JSON ||
           element->converted == CONVERTED_BSON;
}

static void set_leaf(const struct element *element, const struct levels *levels,
                     struct stg_parquet_leaf *leaf)
{
    *leaf = (struct stg_parquet_leaf){.is_there = true,
                                      .type = (int)element->type,
                                      .max_level = levels->max_level,
                                      .n_lists = levels->n_lists};
    memcpy(leaf->list_levels, levels->list_levels, sizeof(leaf->list_levels));
    leaf->is_bytewise = is_bytewise(element);
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

int stg_parquet_leaf_dtype(const struct stg_parquet_leaf *leaf)
{
    static const int dtypes[] = {STAGER_INT8,    STAGER_UINT8,   STAGER_INT16,
                                 STAGER_UINT16,  STAGER_INT32,   STAGER_UINT32,
                                 STAGER_INT64,   STAGER_UINT64,  STAGER_BOOL,
                                 STAGER_FLOAT16, STAGER_FLOAT32, STAGER_FLOAT64};
    size_t i = 0, n = sizeof(dtypes) / sizeof(dtypes[0]);
    while (i < n && !fits(leaf, dtypes[i]))
        i++;
    return i < n ? dtypes[i] : STAGER_STRING;
}

/* ---- the tree ---- */

static int damaged(struct stg_err *err)
{
    return stg_err(err, -STAGER_DATA_LOSS, "the schema in its footer is damaged");
}

/* Appends a name to a path of that many bytes. */
static void push_name(struct path *path, size_t at, const struct element *element)
{
    path->bytes = MAX_PATH;
    if (at >= MAX_PATH || element->name_bytes >= MAX_PATH - 2 - at)
        return;
    if (at > 0)
        path->text[at++] = '/';
    memcpy(path->text + at, element->name, element->name_bytes);
    path->bytes = at + element->name_bytes;
    path->text[path->bytes] = '\0';
}

/* Returns whether the name of an element only tells how a list or a map is written. */
static bool is_plumbing(const struct group *outer, const struct element *element)
{
    bool is_repeated = element->repetition == REPEATED;
    return outer->is_wrapper || (is_repeated && (outer->is_list || outer->is_map));
}

static void push_paths(struct schema *schema, const struct element *element)
{
    const struct group *outer = &schema->groups[schema->depth - 1];
    push_name(&schema->path, outer->path_bytes, element);
    if (!is_plumbing(outer, element)) {
        push_name(&schema->short_path, outer->short_bytes, element);
        return;
    }
    schema->short_path.bytes = outer->short_bytes;
    if (outer->short_bytes < MAX_PATH)
        schema->short_path.text[outer->short_bytes] = '\0';
}

static bool is_path(const struct path *path, const char *name)
{
    return path->bytes < MAX_PATH && strcmp(path->text, name) == 0;
}

static bool is_named(const struct schema *schema, uint32_t c)
{
    const struct stg_parquet_want *want = &schema->wants[c];
    return !want->is_given && (is_path(&schema->path, want->name) ||
                               is_path(&schema->short_path, want->name));
}

static struct levels levels_of(const struct group *outer, const struct element *element)
{
    struct levels levels = outer->levels;
    levels.max_level +=
        element->repetition == OPTIONAL || element->repetition == REPEATED;
    if (element->repetition != REPEATED)
        return levels;
    if (levels.n_lists < STG_MAX_LISTS)
        levels.list_levels[levels.n_lists] = levels.max_level;
    levels.n_lists++;
    return levels;
}

static int check_lists(const struct stg_parquet_want *want,
                       const struct stg_parquet_leaf *leaf, struct stg_err *err)
{
    if (leaf->n_lists > STG_MAX_LISTS)
        return stg_err(
            err, -STAGER_UNIMPLEMENTED,
            "column %.256s: its lists are %u deep, which is not supported; two "
            "are",
            want->name, leaf->n_lists);
    if (leaf->n_lists == want->n_lists)
        return 0;
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "column %.256s: its lists are %u deep in the file, and the step "
                   "declares %u dimensions (shapes: {%.256s: %s})",
                   want->name, leaf->n_lists, want->n_lists, want->name,
                   leaf->n_lists == 0   ? "[]"
                   : leaf->n_lists == 1 ? "[null]"
                                        : "[null, null]");
}

static int take_leaf(struct schema *schema, const struct element *element,
                     const struct levels *levels, uint32_t c, struct stg_err *err)
{
    const struct stg_parquet_want *want = &schema->wants[c];
    struct stg_parquet_leaf *leaf = &schema->leaves[c];
    if (leaf->is_there)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "column %.256s: the file has two columns of that name",
                       want->name);
    set_leaf(element, levels, leaf);
    schema->columns[c] = schema->n_leaves;
    int rc = check_lists(want, leaf, err);
    if (rc < 0 || want->dtype == STAGER_DT_INVALID || fits(leaf, want->dtype))
        return rc;
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "column %.256s: it is %s in the file, and the step declares %s",
                   want->name, stg_dtype_name(stg_parquet_leaf_dtype(leaf)),
                   stg_dtype_name(want->dtype));
}

static const char *type_text(const struct element *element, struct stg_describing *to)
{
    static const char *const names[] = {"BOOLEAN", "INT32",  "INT64",     "INT96",
                                        "FLOAT",   "DOUBLE", "BYTE_ARRAY"};
    if (element->type != STG_PARQUET_FIXED_LEN_BYTE_ARRAY)
        return names[element->type];
    return stg_describing_text(to, "FIXED_LEN_BYTE_ARRAY(%lld)",
                               (long long)element->value_bytes);
}

/* By the numbers of ConvertedType, for files without a LogicalType. */
static const char *converted_text(const struct element *element)
{
    static const char *const names[] = {[0] = "STRING",
                                        [4] = "ENUM",
                                        [6] = "DATE",
                                        [CONVERTED_TIME_MILLIS] = "TIME(ms)",
                                        [8] = "TIME(us)",
                                        [9] = "TIMESTAMP(ms)",
                                        [CONVERTED_TIMESTAMP_MICROS] = "TIMESTAMP(us)",
                                        [11] = "UINT_8",
                                        [12] = "UINT_16",
                                        [13] = "UINT_32",
                                        [14] = "UINT_64",
                                        [15] = "INT_8",
                                        [16] = "INT_16",
                                        [17] = "INT_32",
                                        [18] = "INT_64",
                                        [19] = "JSON",
                                        [20] = "BSON",
                                        [21] = "INTERVAL"};
    int64_t n = element->converted;
    return n >= 0 && n < (int64_t)(sizeof(names) / sizeof(names[0])) ? names[n] : NULL;
}

static const char *logical_text(const struct element *element, struct stg_describing *to)
{
    static const char *const units[] = {"", "ms", "us", "ns"};
    static const char *const names[] = {
        [1] = "STRING", [4] = "ENUM",  [6] = "DATE",  [11] = "UNKNOWN",
        [12] = "JSON",  [13] = "BSON", [14] = "UUID", [LOGICAL_FLOAT16] = "FLOAT16"};
    enum { CONVERTED_DECIMAL = 5 };
    int logical = element->logical;
    if (logical == LOGICAL_DECIMAL || element->converted == CONVERTED_DECIMAL)
        return stg_describing_text(to, "DECIMAL(%lld, %lld)",
                                   (long long)element->precision,
                                   (long long)element->scale);
    if (logical == LOGICAL_TIME || logical == LOGICAL_TIMESTAMP)
        return stg_describing_text(
            to, "%s(%s)", logical == LOGICAL_TIME ? "TIME" : "TIMESTAMP",
            element->unit > 0 && element->unit < 4 ? units[element->unit] : "?");
    if (element->has_integer)
        return stg_describing_text(to, "%s_%lld", element->is_signed ? "INT" : "UINT",
                                   (long long)element->bits);
    if (logical > 0 && logical < (int)(sizeof(names) / sizeof(names[0])) &&
        names[logical] != NULL)
        return names[logical];
    return converted_text(element);
}

/* A path that is too long is counted under the name of its leaf. */
static void describe_leaf(struct schema *schema, const struct element *element,
                          const struct levels *levels)
{
    struct stg_describing *to = schema->describing;
    const struct path *path = &schema->short_path;
    bool is_long = path->bytes >= MAX_PATH;
    struct stg_parquet_leaf leaf;
    struct stg_file_column *column =
        is_long ? stg_describing_add(to, element->name, element->name_bytes)
                : stg_describing_add(to, path->text, path->bytes);
    if (column == NULL)
        return;
    set_leaf(element, levels, &leaf);
    struct stg_parquet_want want = {
        .name = column->name != NULL ? column->name : "",
        .n_lists = leaf.n_lists <= STG_MAX_LISTS ? leaf.n_lists : STG_MAX_LISTS};
    struct stg_err why = {.text = "its path has more than 1024 bytes"};
    column->type = type_text(element, to);
    column->logical = logical_text(element, to);
    column->nullable = leaf.max_level > leaf.n_lists;
    column->dtype = stg_parquet_leaf_dtype(&leaf);
    if (is_long || check_lists(&want, &leaf, &why) < 0)
        stg_describing_refuse(to, column, &why);
    while (column->ndim < (int)want.n_lists)
        column->shape[column->ndim++] = -1;
}

static int add_leaf(struct schema *schema, const struct element *element,
                    struct stg_err *err)
{
    struct levels levels = levels_of(&schema->groups[schema->depth - 1], element);
    int rc = is_valid_type(element) ? 0 : damaged(err);
    push_paths(schema, element);
    for (uint32_t c = 0; rc == 0 && c < schema->n; c++) {
        if (is_named(schema, c))
            rc = take_leaf(schema, element, &levels, c, err);
    }
    if (rc == 0 && schema->describing != NULL)
        describe_leaf(schema, element, &levels);
    schema->n_leaves++;
    return rc;
}

/* Notes which wanted names are those of a group. */
static void note_group(struct schema *schema, const struct group *group)
{
    for (uint32_t c = 0; c < schema->n; c++) {
        struct stg_parquet_leaf *leaf = &schema->leaves[c];
        if (leaf->is_there || !is_named(schema, c))
            continue;
        leaf->is_group = true;
        leaf->is_map |= group->is_map;
    }
}

static bool is_text(const struct element *element, const char *text, size_t bytes)
{
    return element->name_bytes == bytes && memcmp(element->name, text, bytes) == 0;
}

/* Returns whether a repeated group in a list is no element itself, by the rules of the
 * format for lists of older writers. */
static bool is_wrapper(const struct group *outer, const struct element *element)
{
    static const char tuple[] = "_tuple";
    uint64_t n = outer->name_bytes, n_tuple = sizeof(tuple) - 1;
    if (!outer->is_list || element->repetition != REPEATED || element->n_children != 1 ||
        is_text(element, "array", 5))
        return false;
    return element->name_bytes != n + n_tuple ||
           memcmp(element->name, outer->name, n) != 0 ||
           memcmp(element->name + n, tuple, n_tuple) != 0;
}

static int add_group(struct schema *schema, const struct element *element,
                     struct stg_err *err)
{
    if (schema->depth == MAX_NESTING || element->n_children < 0)
        return damaged(err);
    struct group group = {.n_left = (uint64_t)element->n_children,
                          .name = element->name,
                          .name_bytes = element->name_bytes};
    if (schema->depth > 0) {
        const struct group *outer = &schema->groups[schema->depth - 1];
        push_paths(schema, element);
        group.levels = levels_of(outer, element);
        group.path_bytes = schema->path.bytes;
        group.short_bytes = schema->short_path.bytes;
        group.is_list = element->is_list;
        group.is_map = element->is_map && element->repetition != REPEATED;
        group.is_wrapper = is_wrapper(outer, element);
        note_group(schema, &group);
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

static int check_found(const struct schema *schema, struct stg_err *err)
{
    for (uint32_t c = 0; c < schema->n; c++) {
        const struct stg_parquet_leaf *leaf = &schema->leaves[c];
        const char *name = schema->wants[c].name;
        if (!leaf->is_there && leaf->is_group)
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "column %.256s: it is a %s in the file; name its fields, such "
                           "as %.256s/%s",
                           name, leaf->is_map ? "map" : "struct", name,
                           leaf->is_map ? "key" : "NAME");
        if (!leaf->is_there && !schema->wants[c].may_lack && !schema->wants[c].is_given)
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "column %.256s: the file has no such column, and the step has "
                           "no default for it",
                           name);
    }
    return 0;
}

/* The first element is the root; behind its last child there are none. */
static bool expects(const struct schema *schema, uint64_t i, bool is_leaf)
{
    return i == 0 ? !is_leaf
                  : schema->depth > 0 && schema->groups[schema->depth - 1].n_left > 0;
}

static int read_tree(struct schema *schema, struct stg_thrift *thrift,
                     uint64_t n_elements, struct stg_err *err)
{
    for (uint64_t i = 0; i < n_elements; i++) {
        struct element element;
        read_element(thrift, &element);
        if (thrift->is_bad || !expects(schema, i, element.type >= 0))
            return damaged(err);
        int rc = add_element(schema, &element, err);
        if (rc < 0)
            return rc;
    }
    bool is_whole = n_elements > 0 && schema->groups[0].n_left == 0 && schema->depth == 1;
    return is_whole ? 0 : damaged(err);
}

int stg_parquet_schema_read(struct stg_thrift *thrift, uint64_t n_elements,
                            const struct stg_parquet_want *wants, uint32_t n,
                            struct stg_parquet_leaf *leaves, uint32_t *columns,
                            uint32_t *ret, struct stg_err *err)
{
    struct schema schema = {.wants = wants, .n = n, .leaves = leaves, .columns = columns};
    for (uint32_t c = 0; c < n; c++)
        columns[c] = STG_PARQUET_NO_COLUMN;
    int rc = read_tree(&schema, thrift, n_elements, err);
    if (rc < 0)
        return rc;
    *ret = schema.n_leaves;
    return check_found(&schema, err);
}

int stg_parquet_schema_describe(struct stg_thrift *thrift, uint64_t n_elements,
                                struct stg_describing *to, struct stg_err *err)
{
    struct schema schema = {.describing = to};
    return read_tree(&schema, thrift, n_elements, err);
}
