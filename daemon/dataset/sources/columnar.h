/* SPDX-License-Identifier: Apache-2.0
 *
 * A table, a source of rows of files that fall into columns: what `parquet` and `arrow`
 * share. Opens files one after the other, counts their rows, and goes to any row. A
 * format reads the metadata of a file, and the columns. A block shows the memory that its
 * rows lie in. A row that cannot be had is an error item, so that the metadata has the
 * number of each; so is a file that cannot be read, in place of its rows. With a filter,
 * rows that it drops are passed: sieve.h. One thread at a time.
 */
#ifndef STG_DAEMON_DATASET_SOURCES_COLUMNAR_H
#define STG_DAEMON_DATASET_SOURCES_COLUMNAR_H

#include "daemon/dataset/block.h"
#include "daemon/dataset/files/names.h"
#include "daemon/dataset/files/path_value.h"
#include "daemon/dataset/sources/columns.h"
#include "daemon/format/row_filter.h"

struct stg_columnar;

/* What the metadata of a file says. */
struct stg_columnar_file {
    void *metadata;
    uint64_t n_rows;
    uint64_t bytes;   /* of its columns that are declared */
    uint32_t n_parts; /* row groups, or record batches */
};

struct stg_columnar_count {
    uint64_t n; /* rows, or 1 for the error in their place; UINT64_MAX: not known */
    uint64_t bytes;
    uint64_t *ends; /* rows up to the end of each part, n_ends; NULL: none */
    uint32_t n_ends;
};

/* The row that comes next is table->row of table->file. */
struct stg_columnar_format {
    /* Reads the metadata of the file table->url. An error of the storage sets
     * *ret_storage. */
    int (*open)(struct stg_columnar *table, struct stg_source *source,
                struct stg_columnar_file *ret, bool *ret_storage, struct stg_err *err);
    void (*close)(void *metadata);
    /* Returns the number of rows up to the end of a part. */
    uint64_t (*part_end)(const void *metadata, uint32_t part);
    /* Begins the rows of table->file. */
    void (*begin)(struct stg_columnar *table);
    /* Makes the columns have the next row, and about `want` behind it: those that are
     * yielded, or while table->is_judging those of the filter. */
    int (*go)(struct stg_columnar *table, uint64_t want, struct stg_err *err);
    /* Returns how many of the next `want` rows of column c are there, no error, and of
     * one shape unless table->is_uneven. */
    uint64_t (*alike)(const struct stg_columnar *table, uint32_t c, uint64_t want);
    /* Why the next row cannot be had because of column c. */
    void (*explain)(const struct stg_columnar *table, uint32_t c, struct stg_err *ret);
    /* What column c shows of the next n rows. */
    struct stg_column_view (*view)(const struct stg_columnar *table, uint32_t c,
                                   uint64_t n);
    /* Shows n values of column c, from `first` on; adds the memory that they lie in, at
     * most two chunks. */
    void (*show)(const struct stg_columnar *table, uint32_t c, uint64_t first, uint64_t n,
                 struct stg_tensor *tensor, struct stg_chunk **held, uint32_t *n_held);
    /* Where the next row lies in the file, about. */
    uint64_t (*offset)(const struct stg_columnar *table);
    /* With a filter: *ret is how many rows, from the next one on, the metadata excludes.
     * NULL: none. */
    int (*pass)(struct stg_columnar *table, uint64_t *ret, struct stg_err *err);
    /* And the values of column c, of which the next row is number *ret_at. Returns how
     * many of the next `want` rows they are of. */
    uint64_t (*values)(const struct stg_columnar *table, uint32_t c, uint64_t want,
                       struct stg_row_values *ret, uint64_t *ret_at);
    /* Frees what the format has, but for the table. */
    void (*finish)(struct stg_columnar *table);
};

#define STG_JUDGED_ROWS 8192

/* Which rows of the open file a filter keeps: of n rows, from row `first` on. */
struct stg_judged {
    struct stg_row_filter filter;
    bool *is_needed; /* of each column: rows of the open file are judged by it */
    uint64_t first, n;
    struct stg_row_values *values; /* of each condition, as is at */
    uint64_t *at;
    uint8_t keep[STG_JUDGED_ROWS];
    int64_t index[STG_JUDGED_ROWS];
};

/* The struct of a format begins with it. */
struct stg_columnar {
    struct stg_iter iter;
    const struct stg_columnar_format *format;
    /* n, of which the first n_shown are yielded, and the others are of the filter. */
    struct stg_declared_column *declared;
    uint32_t n, n_shown;
    struct stg_judged *judged; /* NULL: no filter */
    bool is_judging;
    bool is_uneven;                /* rows of a block may differ in length */
    struct stg_file_user identity; /* of the dataset */
    bool is_numbered; /* rows of all files have numbers: a file that cannot be read ends
                         the pass */
    struct stg_names names;

    struct stg_source *source; /* the open file, or NULL */
    struct stg_columnar_file file;
    const char *url; /* of the file whose metadata is read */
    char *path;      /* its url */
    char shown[512]; /* of a url for texts, where it is not path itself */
    uint32_t index;  /* among the files of the dataset */
    uint64_t epoch;  /* of its name */
    uint64_t row;    /* that comes next */

    struct stg_block *error; /* to be emitted next, or NULL */
    struct stg_columnar_count
        *counts; /* of each file of the dataset; NULL: none so far */
    /* Of the files of this iteration, in turn: the number of rows up to the end of each.
     * And how many of the files were begun. */
    uint64_t *ends;
    uint64_t n_ends, ends_size, n_begun;
    /* And up to the end of each of their parts. */
    uint64_t *parts;
    uint64_t n_parts, parts_size;
};

/* Returns whether column c is read at all: the filter may need nothing of one of its own.
 */
static inline bool stg_columnar_is_read(const struct stg_columnar *table, uint32_t c)
{
    return c < table->n_shown || table->judged->is_needed[c];
}

/* Returns whether `go` reads it: the filter is judged first, so that where it keeps
 * nothing only its columns are read. */
static inline bool stg_columnar_is_wanted(const struct stg_columnar *table, uint32_t c)
{
    return table->is_judging ? table->judged->is_needed[c] : c < table->n_shown;
}

/* Checks the step and creates its schema: the infer of a format. */
int stg_columnar_infer(const struct stg_step *step, const struct stg_schema *in,
                       struct stg_bump *bump, struct stg_schema *ret,
                       struct stg_err *err);

/* Creates a table of `bytes` bytes, with the columns that the step declares. The caller
 * destroys it by its iter. */
int stg_columnar_create(size_t bytes, const struct stg_columnar_format *format,
                        struct stg_dataset *dataset, const struct stg_step *step,
                        const struct stg_schema *schema, struct stg_iter *input,
                        struct stg_columnar **ret, struct stg_err *err);

/* Returns in *ret whether the folders of the file whose metadata is read give column c
 * its values: what the file has of that name is not looked at. INVALID_ARGUMENT: the
 * value is not of the dtype. */
int stg_columnar_is_given(const struct stg_columnar *table, uint32_t c, bool *ret,
                          struct stg_err *err);
/* Finds the value that the folders of the open file give column c, which is yielded.
 * Returns false if there is none, or it is null. *folder is of another file, or zeroed;
 * the caller finishes it. */
bool stg_columnar_given(const struct stg_columnar *table, uint32_t c,
                        struct stg_path_value *folder);

/* With a filter: passes the rows up to the next one that it keeps, or up to an error.
 * *ret: how many rows it has passed. Returns 1 at the end. Called before each block is
 * pulled. */
int stg_columnar_sift(struct stg_columnar *table, uint64_t *ret, struct stg_err *err);
/* Returns how many rows of the block that was pulled last are kept. *ret: which. */
int64_t stg_columnar_passing(struct stg_columnar *table, const struct stg_block *block,
                             const int64_t **ret);

/* Destroys a table alone, before it has an owner. */
void stg_columnar_destroy(struct stg_columnar *table);

/* Returns whether the pass goes on behind this error: that of a file costs that file. */
bool stg_columnar_ignores(const struct stg_columnar *table, int code, bool is_storage);

/* Ends a pass with an error of the open file. */
int stg_columnar_fail(struct stg_columnar *table, int rc, const struct stg_err *why,
                      struct stg_err *err);

/* Destroys a table for which there is no memory. RESOURCE_EXHAUSTED. */
int stg_columnar_lack(struct stg_columnar *table, struct stg_err *err);

#endif
