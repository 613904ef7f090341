/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of a column of lists: where the elements of each lie among the values. Pure
 * functions; any thread.
 */
#ifndef STG_DAEMON_FORMAT_LIST_ROWS_H
#define STG_DAEMON_FORMAT_LIST_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STG_MAX_LISTS 2 /* lists of lists */

/* Elements of row i are first[i] to first[i + 1] - 1. An element is a value or, of lists
 * of lists, a list: values inner[e] to inner[e + 1] - 1. */
struct stg_list_rows {
    uint64_t n;
    int64_t *first;
    int64_t *inner; /* NULL: an element is a value */
    uint8_t *bad;   /* not 0: the row cannot be had; 1: it has a null without a default */
};

/* Returns the first value of a row; of row `at` + n: behind the last one of n rows. */
static inline int64_t stg_list_value_of(const struct stg_list_rows *rows, uint64_t at)
{
    return rows->inner != NULL ? rows->inner[rows->first[at]] : rows->first[at];
}

/* Returns how many of n rows, from row `at` on, can be had and have the shape of the
 * first one, which fits the declared one; -1: any length. is_uneven: how many have any
 * shape that fits. */
uint64_t stg_list_rows_alike(const struct stg_list_rows *rows, const int64_t *shape,
                             bool is_uneven, uint64_t at, uint64_t n);

#endif
