/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes Parquet files of random tables: a column `id` of numbers, and columns s0, s1 …
 * of strings that may be null. The same table with dictionaries, or without.
 */
#ifndef STG_TESTS_PARQUET_TABLE_H
#define STG_TESTS_PARQUET_TABLE_H

#include <stdbool.h>
#include <stdint.h>

struct stg_test_table {
    uint64_t seed;
    int n_strings; /* columns of strings, at most 8 */
    int n_groups;  /* row groups, each with another dictionary */
    int n_rows;    /* of each group, about */
    int n_entries; /* different strings of a column in a group, about */
    bool has_nulls;
    bool falls_back; /* the last pages of some columns are plain */
    bool has_dictionaries;
    /* Writes entry i of a column, of at most 64 bytes, and returns its length. */
    int (*entry)(int column, uint64_t i, char *to);
};

/* Returns the number of rows. Ends the test on failure. */
uint64_t stg_test_table_write(const struct stg_test_table *table, const char *path);

#endif
