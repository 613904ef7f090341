/* SPDX-License-Identifier: Apache-2.0
 *
 * Names and levels of the leaves of Parquet schemas: lists and maps as the format has
 * them, and as older writers wrote them.
 */
#include "daemon/format/parquet/schema.h"

#include <string.h>

#include "tests/check.h"

enum { REQUIRED = 0, OPTIONAL = 1, REPEATED = 2 };
enum { NONE = 0, MAP = 1, KEY_VALUE = 2, LIST = 3 };
enum { GROUP = -1, I64 = STG_PARQUET_INT64 };

struct element {
    const char *name;
    int type, repetition, n_children, converted;
};

struct bytes {
    uint8_t data[1024];
    size_t n;
};

static void put(struct bytes *to, int field, int *last, int type)
{
    to->data[to->n++] = (uint8_t)((field - *last) << 4 | type);
    *last = field;
}

static void put_int(struct bytes *to, int field, int *last, int value)
{
    put(to, field, last, STG_THRIFT_I32);
    to->data[to->n++] = (uint8_t)(value << 1);
}

static void put_element(struct bytes *to, const struct element *element)
{
    int last = 0;
    if (element->type != GROUP)
        put_int(to, 1, &last, element->type);
    put_int(to, 3, &last, element->repetition);
    put(to, 4, &last, STG_THRIFT_BINARY);
    size_t n = strlen(element->name);
    to->data[to->n++] = (uint8_t)n;
    memcpy(to->data + to->n, element->name, n);
    to->n += n;
    if (element->type == GROUP)
        put_int(to, 5, &last, element->n_children);
    if (element->converted != NONE)
        put_int(to, 6, &last, element->converted);
    to->data[to->n++] = STG_THRIFT_STOP;
}

/* Reads a schema of a root with one child, and those elements, up to one without a name,
 * for one column of int64. */
static int read_schema(const struct element *elements, const char *name, unsigned n_lists,
                       struct stg_parquet_leaf *ret, struct stg_err *err)
{
    static const struct element root = {"root", GROUP, REQUIRED, 1, NONE};
    struct stg_parquet_want want = {
        .name = name, .dtype = STAGER_INT64, .n_lists = n_lists};
    struct bytes bytes = {.n = 0};
    uint32_t column, n_leaves;
    uint64_t n = 1;
    put_element(&bytes, &root);
    for (; elements->name != NULL; elements++, n++)
        put_element(&bytes, elements);
    struct stg_thrift thrift = {.at = bytes.data, .end = bytes.data + bytes.n};
    *ret = (struct stg_parquet_leaf){0};
    return stg_parquet_schema_read(&thrift, n, &want, 1, ret, &column, &n_leaves, err);
}

#define A_LIST(repetition)                                                               \
    {                                                                                    \
        "a", GROUP, repetition, 1, LIST                                                  \
    }

static const struct {
    struct element elements[8];
    const char *names[2];
    unsigned n_lists, max_level, list_levels[2];
} schemas[] = {
    /* Three levels, as the format demands. */
    {{A_LIST(OPTIONAL),
      {"list", GROUP, REPEATED, 1, NONE},
      {"element", I64, OPTIONAL, 0, NONE}},
     {"a", "a/list/element"},
     1,
     3,
     {2}},
    {{A_LIST(REQUIRED),
      {"bag", GROUP, REPEATED, 1, NONE},
      {"item", I64, REQUIRED, 0, NONE}},
     {"a", "a/bag/item"},
     1,
     1,
     {1}},
    /* Two: a repeated value, or a group that is the element. */
    {{A_LIST(OPTIONAL), {"element", I64, REPEATED, 0, NONE}},
     {"a", "a/element"},
     1,
     2,
     {2}},
    {{A_LIST(OPTIONAL),
      {"element", GROUP, REPEATED, 2, NONE},
      {"b", I64, OPTIONAL, 0, NONE},
      {"c", I64, OPTIONAL, 0, NONE}},
     {"a/b", "a/element/b"},
     1,
     3,
     {2}},
    {{A_LIST(OPTIONAL),
      {"array", GROUP, REPEATED, 1, NONE},
      {"b", I64, REQUIRED, 0, NONE}},
     {"a/b", "a/array/b"},
     1,
     2,
     {2}},
    {{A_LIST(OPTIONAL),
      {"a_tuple", GROUP, REPEATED, 1, NONE},
      {"b", I64, REQUIRED, 0, NONE}},
     {"a/b", "a/a_tuple/b"},
     1,
     2,
     {2}},
    /* No annotation. */
    {{{"a", I64, REPEATED, 0, NONE}}, {"a", "a"}, 1, 1, {1}},
    {{{"a", GROUP, REPEATED, 1, NONE}, {"b", I64, OPTIONAL, 0, NONE}},
     {"a/b", "a/b"},
     1,
     2,
     {1}},
    /* Structs and lists in lists. */
    {{A_LIST(OPTIONAL),
      {"list", GROUP, REPEATED, 1, NONE},
      {"element", GROUP, OPTIONAL, 1, NONE},
      {"b", I64, OPTIONAL, 0, NONE}},
     {"a/b", "a/list/element/b"},
     1,
     4,
     {2}},
    {{A_LIST(OPTIONAL),
      {"list", GROUP, REPEATED, 1, NONE},
      {"element", GROUP, OPTIONAL, 1, LIST},
      {"list", GROUP, REPEATED, 1, NONE},
      {"element", I64, OPTIONAL, 0, NONE}},
     {"a", "a/list/element/list/element"},
     2,
     5,
     {2, 4}},
    {{A_LIST(REQUIRED),
      {"array", GROUP, REPEATED, 1, LIST},
      {"array", I64, REPEATED, 0, NONE}},
     {"a", "a/array/array"},
     2,
     2,
     {1, 2}},
    /* Maps, also with the annotation of older writers. */
    {{{"a", GROUP, OPTIONAL, 1, MAP},
      {"key_value", GROUP, REPEATED, 2, NONE},
      {"key", I64, REQUIRED, 0, NONE},
      {"value", STG_PARQUET_DOUBLE, OPTIONAL, 0, NONE}},
     {"a/key", "a/key_value/key"},
     1,
     2,
     {2}},
    {{{"a", GROUP, OPTIONAL, 1, KEY_VALUE},
      {"map", GROUP, REPEATED, 2, KEY_VALUE},
      {"key", STG_PARQUET_DOUBLE, REQUIRED, 0, NONE},
      {"value", I64, OPTIONAL, 0, NONE}},
     {"a/value", "a/map/value"},
     1,
     3,
     {2}},
};

static void each_way_to_write_a_list_has_its_names_and_levels(void)
{
    for (size_t i = 0; i < 2 * sizeof(schemas) / sizeof(schemas[0]); i++) {
        struct stg_parquet_leaf leaf;
        struct stg_err err = {0};
        const char *name = schemas[i / 2].names[i % 2];
        CHECK_OK(read_schema(schemas[i / 2].elements, name, schemas[i / 2].n_lists, &leaf,
                             &err),
                 err);
        CHECK(leaf.is_there);
        CHECK_INT(leaf.n_lists, schemas[i / 2].n_lists);
        CHECK_INT(leaf.max_level, schemas[i / 2].max_level);
        for (unsigned k = 0; k < leaf.n_lists; k++)
            CHECK_INT(leaf.list_levels[k], schemas[i / 2].list_levels[k]);
    }
}

static void lists_of_another_depth_are_refused(void)
{
    static const struct element deep[] = {{"a", GROUP, REPEATED, 1, NONE},
                                          {"b", GROUP, REPEATED, 1, NONE},
                                          {"c", I64, REPEATED, 0, NONE},
                                          {NULL}};
    struct stg_parquet_leaf leaf;
    struct stg_err err = {0};
    CHECK_INT(read_schema(schemas[0].elements, "a", 0, &leaf, &err),
              -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "(shapes: {a: [null]})");
    CHECK_INT(read_schema(deep, "a/b/c", 2, &leaf, &err), -STAGER_UNIMPLEMENTED);
    CHECK_CONTAINS(err.text, "its lists are 3 deep, which is not supported");
}

static void a_name_of_a_group_has_advice(void)
{
    struct stg_parquet_leaf leaf;
    struct stg_err err = {0};
    CHECK_INT(read_schema(schemas[8].elements, "a", 1, &leaf, &err),
              -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text,
                   "it is a struct in the file; name its fields, such as a/NAME");
    CHECK_INT(read_schema(schemas[11].elements, "a", 1, &leaf, &err),
              -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "it is a map in the file; name its fields, such as a/key");
}

static const struct stg_test tests[] = {
    TEST(each_way_to_write_a_list_has_its_names_and_levels),
    TEST(lists_of_another_depth_are_refused),
    TEST(a_name_of_a_group_has_advice),
};
TEST_MAIN(tests)
