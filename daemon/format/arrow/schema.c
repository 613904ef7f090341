/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/format/arrow/schema.h"

#include <stdlib.h>

#include "core/batch.h"

#define MAX_PATH 1024 /* bytes; no wanted column has a longer one */
#define MAX_FIELDS (1u << 20)

struct schema {
    const struct stg_arrow_field *fields;
    const struct stg_arrow_want *wants;
    struct stg_arrow_leaf *leaves;
    uint32_t n;
    int version;
    struct stg_arrow_place at;         /* of the next field */
    struct stg_describing *describing; /* gets each column; NULL: none does */
    char path[MAX_PATH];               /* without the fields that make a list or a map */
    char whole[MAX_PATH];              /* and with them */
};

/* The fields around one. */
struct around {
    size_t path_bytes, whole_bytes;
    bool is_hidden;   /* one of them is neither a struct nor a list */
    bool is_item;     /* the one right around it is a list: its name is left out */
    bool is_entry;    /* and a map: it is a struct of key and value */
    const char *name; /* that it has in place of its own, in a map; or NULL */
    bool is_nullable; /* one of them is */
    unsigned n_lists; /* those of struct stg_arrow_leaf, but there may be more */
    struct stg_arrow_list lists[STG_MAX_LISTS];
    uint32_t n_parents;
    struct stg_arrow_place parents[STG_ARROW_MAX_PARENTS];
    uint8_t depths[STG_ARROW_MAX_PARENTS];
};

/* ---- types ---- */

static const char *type_name(int type)
{
    static const char *const names[] = {[STG_ARROW_NULL] = "null",
                                        [STG_ARROW_INT] = "an integer",
                                        [STG_ARROW_FLOAT] = "a number",
                                        [STG_ARROW_BINARY] = "binary",
                                        [STG_ARROW_UTF8] = "utf8",
                                        [STG_ARROW_BOOL] = "bool",
                                        [STG_ARROW_DECIMAL] = "a decimal",
                                        [STG_ARROW_DATE] = "a date",
                                        [STG_ARROW_TIME] = "a time",
                                        [STG_ARROW_TIMESTAMP] = "a timestamp",
                                        [STG_ARROW_INTERVAL] = "an interval",
                                        [STG_ARROW_LIST] = "a list",
                                        [STG_ARROW_STRUCT] = "a struct",
                                        [STG_ARROW_UNION] = "a union",
                                        [STG_ARROW_FIXED_BINARY] = "fixed_size_binary",
                                        [STG_ARROW_FIXED_LIST] = "a fixed_size_list",
                                        [STG_ARROW_MAP] = "a map",
                                        [STG_ARROW_DURATION] = "a duration",
                                        [STG_ARROW_LARGE_BINARY] = "large_binary",
                                        [STG_ARROW_LARGE_UTF8] = "large_utf8",
                                        [STG_ARROW_LARGE_LIST] = "a large_list",
                                        [STG_ARROW_RUN_END] = "run-end encoded",
                                        [STG_ARROW_BINARY_VIEW] = "a binary_view",
                                        [STG_ARROW_UTF8_VIEW] = "a utf8_view",
                                        [STG_ARROW_LIST_VIEW] = "a list_view",
                                        [STG_ARROW_LARGE_LIST_VIEW] =
                                            "a large_list_view"};
    bool is_known = type > 0 && type < (int)(sizeof(names) / sizeof(names[0]));
    return is_known ? names[type] : "of a type that is not known";
}

static bool is_view(int type)
{
    return type == STG_ARROW_BINARY_VIEW || type == STG_ARROW_UTF8_VIEW;
}

/* Returns how many buffers a field has, without those of its children and of a view. */
static uint32_t n_extents(const struct schema *schema,
                          const struct stg_arrow_field *field)
{
    if (field->has_dictionary)
        return 2;
    switch (field->type) {
    case STG_ARROW_NULL:
    case STG_ARROW_RUN_END: return 0;
    case STG_ARROW_STRUCT:
    case STG_ARROW_FIXED_LIST: return 1;
    case STG_ARROW_UNION:
        return (field->is_sparse ? 1u : 2u) + (schema->version < STG_ARROW_V5);
    case STG_ARROW_BINARY:
    case STG_ARROW_UTF8:
    case STG_ARROW_LARGE_BINARY:
    case STG_ARROW_LARGE_UTF8:
    case STG_ARROW_LIST_VIEW:
    case STG_ARROW_LARGE_LIST_VIEW: return 3;
    default: return 2;
    }
}

static bool fits_integer(const struct stg_arrow_field *field, int dtype)
{
    int bits = field->bits;
    bool is_unsigned = !field->is_signed;
    switch (dtype) {
    case STAGER_INT8: return !is_unsigned && bits <= 8;
    case STAGER_INT16: return bits <= (is_unsigned ? 8 : 16);
    case STAGER_INT32: return bits <= (is_unsigned ? 16 : 32);
    case STAGER_INT64: return bits <= (is_unsigned ? 32 : 64);
    case STAGER_UINT8: return is_unsigned && bits <= 8;
    case STAGER_UINT16: return is_unsigned && bits <= 16;
    case STAGER_UINT32: return is_unsigned && bits <= 32;
    case STAGER_UINT64: return is_unsigned;
    default: return false;
    }
}

/* Days, and units: 32 or 64 bits, as stored. */
static bool fits_time(int bits, int dtype)
{
    return dtype == STAGER_INT64 || (dtype == STAGER_INT32 && bits == 32);
}

/* A dtype holds each value of the column, as it is. */
static bool fits(const struct stg_arrow_field *field, int dtype)
{
    switch (field->type) {
    case STG_ARROW_NULL: return true;
    case STG_ARROW_INT: return fits_integer(field, dtype);
    case STG_ARROW_FLOAT:
        return field->bits == 16 ? dtype == STAGER_FLOAT16
                                 : (dtype == STAGER_FLOAT64 ||
                                    (dtype == STAGER_FLOAT32 && field->bits == 32));
    case STG_ARROW_BOOL: return dtype == STAGER_BOOL;
    case STG_ARROW_DECIMAL: return dtype == STAGER_INT64 || dtype == STAGER_FLOAT64;
    case STG_ARROW_DATE:
    case STG_ARROW_TIME: return fits_time(field->bits, dtype);
    case STG_ARROW_TIMESTAMP:
    case STG_ARROW_DURATION: return dtype == STAGER_INT64;
    default: return dtype == STAGER_STRING;
    }
}

/* Returns the narrowest dtype that fits. */
static int narrowest(const struct stg_arrow_field *field)
{
    static const int dtypes[] = {STAGER_INT8,    STAGER_UINT8,   STAGER_INT16,
                                 STAGER_UINT16,  STAGER_INT32,   STAGER_UINT32,
                                 STAGER_INT64,   STAGER_UINT64,  STAGER_BOOL,
                                 STAGER_FLOAT16, STAGER_FLOAT32, STAGER_FLOAT64};
    size_t i = 0, n = sizeof(dtypes) / sizeof(dtypes[0]);
    while (i < n && !fits(field, dtypes[i]))
        i++;
    return i < n ? dtypes[i] : STAGER_STRING;
}

int stg_arrow_leaf_dtype(const struct stg_arrow_leaf *leaf)
{
    return narrowest(&leaf->field);
}

static bool is_width(int bits, int least, int most)
{
    return bits >= least && bits <= most && (bits & (bits - 1)) == 0;
}

/* Its widths are those of the format. */
static bool is_valid(const struct stg_arrow_field *field)
{
    if (field->has_dictionary && !is_width(field->index_bits, 8, 64))
        return false;
    switch (field->type) {
    case STG_ARROW_INT: return is_width(field->bits, 8, 64);
    case STG_ARROW_FLOAT: return is_width(field->bits, 16, 64);
    case STG_ARROW_TIME: return is_width(field->bits, 32, 64);
    case STG_ARROW_DECIMAL: return is_width(field->bits, 32, 256);
    case STG_ARROW_FIXED_BINARY: return field->size >= 0;
    case STG_ARROW_FIXED_LIST: return field->size >= 0 && field->n_children == 1;
    case STG_ARROW_LIST:
    case STG_ARROW_LARGE_LIST: return field->n_children == 1;
    case STG_ARROW_MAP:
        return field->n_children == 1 && field[1].type == STG_ARROW_STRUCT &&
               field[1].n_children == 2 && !field[1].has_dictionary;
    default: return true;
    }
}

static bool is_list(const struct stg_arrow_field *field)
{
    bool is_any = field->type == STG_ARROW_LIST || field->type == STG_ARROW_LARGE_LIST ||
                  field->type == STG_ARROW_FIXED_LIST || field->type == STG_ARROW_MAP;
    return is_any && !field->has_dictionary;
}

/* Types whose values are read: each has one scalar for a row. */
static bool is_read(const struct stg_arrow_field *field)
{
    switch (field->type) {
    case STG_ARROW_NULL:
    case STG_ARROW_INT:
    case STG_ARROW_FLOAT:
    case STG_ARROW_BINARY:
    case STG_ARROW_UTF8:
    case STG_ARROW_BOOL:
    case STG_ARROW_DATE:
    case STG_ARROW_TIME:
    case STG_ARROW_TIMESTAMP:
    case STG_ARROW_FIXED_BINARY:
    case STG_ARROW_DURATION:
    case STG_ARROW_LARGE_BINARY:
    case STG_ARROW_LARGE_UTF8: return true;
    case STG_ARROW_DECIMAL: return field->bits <= 128;
    default: return false;
    }
}

/* ---- a wanted column ---- */

static int damaged(struct stg_err *err)
{
    return stg_err(err, -STAGER_DATA_LOSS, "its schema is damaged");
}

static int refuse_type(const char *name, const struct stg_arrow_field *field,
                       struct stg_err *err)
{
    bool is_map = field->type == STG_ARROW_MAP;
    if ((is_map || field->type == STG_ARROW_STRUCT) && !field->has_dictionary)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "column %.256s: it is a %s in the file; name its fields, such as "
                       "%.256s/%s",
                       name, is_map ? "map" : "struct", name, is_map ? "key" : "NAME");
    return stg_err(
        err, -STAGER_UNIMPLEMENTED, "column %.256s: it is %s%s, which is not supported",
        name, field->has_dictionary ? "a dictionary of values, each of which is " : "",
        field->type == STG_ARROW_DECIMAL ? "a decimal of 256 bits"
                                         : type_name(field->type));
}

static int refuse_dtype(const struct stg_arrow_want *want,
                        const struct stg_arrow_field *field, struct stg_err *err)
{
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "column %.256s: it is %s in the file, and the step declares %s",
                   want->name, stg_dtype_name(narrowest(field)),
                   stg_dtype_name(want->dtype));
}

static int check_lists(const struct stg_arrow_want *want, unsigned n_lists,
                       struct stg_err *err)
{
    if (n_lists > STG_MAX_LISTS)
        return stg_err(
            err, -STAGER_UNIMPLEMENTED,
            "column %.256s: its lists are %u deep, which is not supported; two "
            "are",
            want->name, n_lists);
    if (n_lists == want->n_lists)
        return 0;
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "column %.256s: its lists are %u deep in the file, and the step "
                   "declares %u dimensions (shapes: {%.256s: %s})",
                   want->name, n_lists, want->n_lists, want->name,
                   n_lists == 0   ? "[]"
                   : n_lists == 1 ? "[null]"
                                  : "[null, null]");
}

static void set_leaf(const struct schema *schema, const struct stg_arrow_field *field,
                     const struct around *around, struct stg_arrow_leaf *leaf)
{
    *leaf = (struct stg_arrow_leaf){.is_there = true,
                                    .field = *field,
                                    .place = schema->at,
                                    .n_lists = around->n_lists,
                                    .n_parents = around->n_parents};
    memcpy(leaf->lists, around->lists, sizeof(leaf->lists));
    memcpy(leaf->parents, around->parents, sizeof(leaf->parents));
    memcpy(leaf->depths, around->depths, sizeof(leaf->depths));
}

static int take_leaf(struct schema *schema, const struct stg_arrow_field *field,
                     const struct around *around, uint32_t c, struct stg_err *err)
{
    const struct stg_arrow_want *want = &schema->wants[c];
    struct stg_arrow_leaf *leaf = &schema->leaves[c];
    if (leaf->is_there)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "column %.256s: the file has two columns of that name",
                       want->name);
    if (around->is_hidden)
        return stg_err(err, -STAGER_UNIMPLEMENTED,
                       "column %.256s: it is part of a union, a dictionary or a view, "
                       "which is not supported",
                       want->name);
    if (around->n_parents > STG_ARROW_MAX_PARENTS)
        return stg_err(err, -STAGER_UNIMPLEMENTED,
                       "column %.256s: it lies in more than %d structs, which is not "
                       "supported",
                       want->name, STG_ARROW_MAX_PARENTS);
    if (!is_read(field))
        return refuse_type(want->name, field, err);
    int rc = check_lists(want, around->n_lists, err);
    if (rc < 0)
        return rc;
    set_leaf(schema, field, around, leaf);
    bool is_any = want->dtype == STAGER_DT_INVALID;
    return is_any || fits(field, want->dtype) ? 0 : refuse_dtype(want, field, err);
}

/* ---- a description ---- */

static const char *type_text(const struct stg_arrow_field *field,
                             struct stg_describing *to)
{
    static const char *const units[] = {"s", "ms", "us", "ns"};
    const char *unit = field->unit >= 0 && field->unit < 4 ? units[field->unit] : "?";
    switch (field->type) {
    case STG_ARROW_INT:
        return stg_describing_text(to, "%sint%d", field->is_signed ? "" : "u",
                                   field->bits);
    case STG_ARROW_FLOAT: return stg_describing_text(to, "float%d", field->bits);
    case STG_ARROW_DECIMAL:
        return stg_describing_text(to, "decimal%d(scale %d)", field->bits, field->scale);
    case STG_ARROW_DATE: return stg_describing_text(to, "date%d", field->bits);
    case STG_ARROW_TIME: return stg_describing_text(to, "time%d[%s]", field->bits, unit);
    case STG_ARROW_TIMESTAMP: return stg_describing_text(to, "timestamp[%s]", unit);
    case STG_ARROW_DURATION: return stg_describing_text(to, "duration[%s]", unit);
    case STG_ARROW_FIXED_BINARY:
        return stg_describing_text(to, "fixed_size_binary[%d]", field->size);
    default: break;
    }
    const char *name = type_name(field->type);
    return strncmp(name, "a ", 2) == 0    ? name + 2
           : strncmp(name, "an ", 3) == 0 ? name + 3
                                          : name;
}

/* A decimal with digits behind the point is a number with them. */
static int described_dtype(const struct stg_arrow_field *field)
{
    bool is_fraction = field->type == STG_ARROW_DECIMAL && field->scale > 0;
    return is_fraction ? STAGER_FLOAT64 : narrowest(field);
}

static void describe_lists(const struct around *around, struct stg_file_column *column)
{
    for (unsigned i = 0; i < around->n_lists && i < STG_MAX_LISTS; i++) {
        const struct stg_arrow_list *list = &around->lists[i];
        bool is_fixed = list->offset_bytes == 0 && list->size > 0;
        column->shape[column->ndim++] = is_fixed ? (int64_t)list->size : -1;
    }
}

/* A path that is too long is counted under the name of its field. */
static void describe_field(const struct schema *schema,
                           const struct stg_arrow_field *field,
                           const struct around *around, bool is_long)
{
    struct stg_describing *to = schema->describing;
    const char *name = is_long ? field->name : schema->path;
    struct stg_file_column *column = stg_describing_add(to, name, strlen(name));
    if (column == NULL || column->name == NULL)
        return;
    struct stg_arrow_leaf leaf = {0};
    struct stg_arrow_want want = {
        .name = column->name,
        .dtype = described_dtype(field),
        .n_lists = around->n_lists <= STG_MAX_LISTS ? around->n_lists : STG_MAX_LISTS};
    struct schema one = {.wants = &want, .leaves = &leaf, .n = 1};
    struct stg_err why = {.text = "its path has more than 1024 bytes"};
    column->type = type_text(field, to);
    column->has_dictionary = field->has_dictionary;
    column->nullable = field->is_nullable || around->is_nullable;
    column->dtype = want.dtype;
    describe_lists(around, column);
    if (is_long || take_leaf(&one, field, around, 0, &why) < 0)
        stg_describing_refuse(to, column, &why);
}

/* ---- the tree ---- */

/* Appends a name to a path of that many bytes. Returns MAX_PATH if it is too long. */
static size_t push_path(char *path, size_t at, const char *name)
{
    size_t bytes = strlen(name);
    if (at >= MAX_PATH || bytes >= MAX_PATH - 2 - at)
        return MAX_PATH;
    if (at > 0)
        path[at++] = '/';
    memcpy(path + at, name, bytes + 1);
    return at + bytes;
}

static bool is_named(const struct schema *schema, const struct around *paths, uint32_t c)
{
    const struct stg_arrow_want *want = &schema->wants[c];
    return !want->is_given &&
           ((paths->path_bytes < MAX_PATH && strcmp(schema->path, want->name) == 0) ||
            (paths->whole_bytes < MAX_PATH && strcmp(schema->whole, want->name) == 0));
}

static int take_fields(struct schema *schema, uint32_t first, uint32_t n,
                       const struct around *around, struct stg_err *err);

/* The fields of a map are those of the struct in it, by their places. */
static int take_entries(struct schema *schema, uint32_t i, struct around *inner,
                        struct stg_err *err)
{
    static const char *const names[] = {"key", "value"};
    const struct stg_arrow_field *fields = schema->fields;
    int rc = 0;
    for (uint32_t k = 0, at = i + 1; rc == 0 && k < 2; k++) {
        inner->name = names[k];
        rc = take_fields(schema, at, fields[at].n_below + 1, inner, err);
        at += fields[at].n_below + 1;
    }
    return rc;
}

static unsigned list_offset_bytes(int type)
{
    return type == STG_ARROW_FIXED_LIST ? 0 : type == STG_ARROW_LARGE_LIST ? 8 : 4;
}

static void enter_list(const struct stg_arrow_field *field, struct stg_arrow_place at,
                       struct around *inner)
{
    if (inner->n_lists < STG_MAX_LISTS)
        inner->lists[inner->n_lists] =
            (struct stg_arrow_list){.place = at,
                                    .size = (uint64_t)field->size,
                                    .offset_bytes = list_offset_bytes(field->type)};
    inner->n_lists++;
    inner->is_item = true;
    inner->is_entry = field->type == STG_ARROW_MAP;
}

static void enter_struct(struct stg_arrow_place at, struct around *inner)
{
    if (inner->n_parents < STG_ARROW_MAX_PARENTS) {
        inner->parents[inner->n_parents] = at;
        inner->depths[inner->n_parents] = (uint8_t)inner->n_lists;
    }
    inner->n_parents++;
}

/* around: of the field, with its own paths. */
static int take_children(struct schema *schema, uint32_t i, const struct around *around,
                         struct stg_arrow_place at, struct stg_err *err)
{
    const struct stg_arrow_field *field = &schema->fields[i];
    struct around inner = *around;
    inner.is_item = inner.is_entry = false;
    inner.is_nullable |= field->is_nullable;
    inner.name = NULL;
    if (is_list(field))
        enter_list(field, at, &inner);
    else if (field->type == STG_ARROW_STRUCT && !field->has_dictionary)
        enter_struct(at, &inner);
    else
        inner.is_hidden = true;
    struct stg_arrow_place before = schema->at;
    int rc = around->is_entry ? take_entries(schema, i, &inner, err)
                              : take_fields(schema, i + 1, field->n_below, &inner, err);
    if (field->has_dictionary) /* its children are columns of the dictionary */
        schema->at = before;
    return rc;
}

static int take_field(struct schema *schema, uint32_t i, const struct around *around,
                      struct stg_err *err)
{
    const struct stg_arrow_field *field = &schema->fields[i];
    struct around paths = *around;
    struct stg_arrow_place at = schema->at;
    int rc = is_valid(field) ? 0 : damaged(err);
    if (!around->is_item)
        paths.path_bytes = push_path(schema->path, around->path_bytes,
                                     around->name != NULL ? around->name : field->name);
    paths.whole_bytes = push_path(schema->whole, around->whole_bytes, field->name);
    bool is_passed = is_list(field) && field->type != STG_ARROW_MAP;
    for (uint32_t c = 0; rc == 0 && !is_passed && !around->is_entry && c < schema->n;
         c++) {
        if (is_named(schema, &paths, c))
            rc = take_leaf(schema, field, around, c, err);
    }
    bool is_struct = field->type == STG_ARROW_STRUCT && !field->has_dictionary;
    bool is_column = !is_list(field) && !is_struct && !around->is_hidden;
    if (rc == 0 && is_column && schema->describing != NULL)
        describe_field(schema, field, around, paths.path_bytes >= MAX_PATH);
    schema->at.node++;
    schema->at.extent += n_extents(schema, field);
    schema->at.n_views += is_view(field->type) && !field->has_dictionary;
    return rc == 0 ? take_children(schema, i, &paths, at, err) : rc;
}

/* n fields with all that is below them. */
static int take_fields(struct schema *schema, uint32_t first, uint32_t n,
                       const struct around *around, struct stg_err *err)
{
    int rc = 0;
    for (uint32_t i = first; rc == 0 && i < first + n; i += schema->fields[i].n_below + 1)
        rc = take_field(schema, i, around, err);
    return rc;
}

static int check_wants(const struct schema *schema, struct stg_err *err)
{
    for (uint32_t c = 0; c < schema->n; c++) {
        const struct stg_arrow_want *want = &schema->wants[c];
        if (!schema->leaves[c].is_there && !want->may_lack && !want->is_given)
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "column %.256s: the file has no such column, and the step has "
                           "no default for it",
                           want->name);
        schema->leaves[c].field.name = NULL;
    }
    return 0;
}

static int read_tree(struct schema *schema, const void *data, struct stg_err *err)
{
    struct around around = {0};
    if (stg_arrow_schema_is_big_endian(data))
        return stg_err(err, -STAGER_UNIMPLEMENTED,
                       "its numbers are big-endian, which is not supported");
    uint32_t n_fields = stg_arrow_schema_fields(data, NULL, 0);
    if (n_fields > MAX_FIELDS)
        return damaged(err);
    struct stg_arrow_field *fields = calloc((size_t)n_fields + 1, sizeof(*fields));
    if (fields == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    stg_arrow_schema_fields(data, fields, n_fields);
    schema->fields = fields;
    int rc = take_fields(schema, 0, n_fields, &around, err);
    if (rc == 0)
        rc = check_wants(schema, err);
    free(fields);
    return rc;
}

int stg_arrow_schema_find(const void *data, int version,
                          const struct stg_arrow_want *wants, uint32_t n,
                          struct stg_arrow_leaf *leaves, struct stg_err *err)
{
    struct schema schema = {.wants = wants, .leaves = leaves, .n = n, .version = version};
    return read_tree(&schema, data, err);
}

int stg_arrow_schema_describe(const void *data, int version, struct stg_describing *to,
                              struct stg_err *err)
{
    struct schema schema = {.version = version, .describing = to};
    return read_tree(&schema, data, err);
}
