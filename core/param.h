/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables of the attributes that an op accepts, with their types and ranges. One row
 * serves to check, read and document an attribute. Tables are constant. Any thread.
 * And what else reads text: the nearest name, a digit.
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
    const struct stg_param *fields; /* FIELDS: the attributes of an entry */
    size_t n_fields;
};

/* Checks that every attribute is in the table and has its type and range, and that no
 * required attribute is missing (for FIELDS: in each entry). INVALID_ARGUMENT: the text
 * has the attribute, its line, and the nearest known name. */
int stg_param_check(const struct stg_param *params, size_t n_params,
                    const struct stg_attr *attrs, size_t n_attrs, struct stg_err *err);

/* The parts of the name of a FIELDS attribute: "features/image/raw/dtype" is the field
 * "dtype" of the entry "image/raw". The pointers point into the attribute's name. */
struct stg_attr_path {
    const char *entry;
    size_t entry_bytes;
    const char *field;
};

/* Splits the name of an attribute. Returns false if it does not belong to `param`. */
bool stg_attr_path(const struct stg_attr *attr, const char *param,
                   struct stg_attr_path *ret);

/* Returns how many of the n attributes, from the first on, belong to the same entry of
 * `param` as the first one. */
size_t stg_attr_entry(const struct stg_attr *attrs, size_t n, const char *param);

/* Returns the one of n names that is nearest to `name` by edit distance, or NULL if the
 * distance exceeds 1 + length / 3. If `name` is the first words of one, the distance
 * is 1. */
const char *stg_nearest(const char *name, const char *const *names, size_t n);

/* Returns the value of a hexadecimal digit of either case, or -1. */
static inline int stg_hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Returns the length of the well-formed UTF-8 sequence at s, of which n bytes are there
 * (RFC 3629), or 0. n: at least 1. */
size_t stg_utf8_bytes(const char *s, size_t n);

#endif
