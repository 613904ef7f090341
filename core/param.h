/* SPDX-License-Identifier: Apache-2.0
 *
 * Option tables: what an op may be given, of which type, within which range. One row
 * parses, checks, documents. Tables are constant; any thread.
 */
#ifndef STG_CORE_PARAM_H
#define STG_CORE_PARAM_H

#include "core/spec.h"

enum stg_param_type {
    STG_PARAM_INT,
    STG_PARAM_FLOAT, /* an INT is accepted */
    STG_PARAM_BOOL,
    STG_PARAM_STRING,
    STG_PARAM_DTYPE, /* a string that names a dtype */
    STG_PARAM_SHAPE, /* a list of non-negative ints; [] is a scalar */
    STG_PARAM_INTS,
    STG_PARAM_STRINGS,
    STG_PARAM_VALUES, /* any scalar or rectangular list, nulls allowed */
    STG_PARAM_FIELDS, /* a mapping of mappings: attributes "PARAM/ENTRY/FIELD" */
};

struct stg_param {
    const char *name;
    enum stg_param_type type;
    bool required;
    int64_t min, max;   /* INT, INTS: inclusive range; both 0: no range */
    const char *preset; /* the default as text, for help; NULL: none */
    const char *help;
    const struct stg_param *fields; /* FIELDS: what an entry may have */
    size_t n_fields;
};

/* Checks that every attribute is in the table, has its type and range, and that required
 * ones are there, of FIELDS in each entry. INVALID_ARGUMENT names the attribute, its
 * line, and the nearest known name. */
int stg_param_check(const struct stg_param *params, size_t n_params,
                    const struct stg_attr *attrs, size_t n_attrs, struct stg_err *err);

/* An attribute of a FIELDS param taken apart: "features/image/raw/dtype" is the field
 * "dtype" of the entry "image/raw". Points into the attribute's name. False: the
 * attribute is none of that param. */
struct stg_attr_path {
    const char *entry;
    size_t entry_bytes;
    const char *field;
};

bool stg_attr_path(const struct stg_attr *attr, const char *param,
                   struct stg_attr_path *ret);

/* How many attributes from the first of n on belong to the same entry of that param. */
size_t stg_attr_entry(const struct stg_attr *attrs, size_t n, const char *param);

/* The name among n that is nearest to `name` by edit distance, or NULL when none is near
 * enough for a suggestion (distance at most 1 + length / 3; 1 of a name that begins with
 * the words of `name`). */
const char *stg_nearest(const char *name, const char *const *names, size_t n);

#endif
