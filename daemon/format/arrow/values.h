/* SPDX-License-Identifier: Apache-2.0
 *
 * Values of a column of a record batch, as an array of the dtype that a step declares:
 * one for each row, or each element of a list; a null has the default. Numbers that lie
 * in the file as they are wanted are read to where blocks show them. One thread until a
 * chunk is handed out.
 */
#ifndef STG_DAEMON_ARROW_VALUES_H
#define STG_DAEMON_ARROW_VALUES_H

#include "daemon/format/arrow/input.h"

enum stg_arrow_state {
    STG_ARROW_GOOD = 0,
    STG_ARROW_IS_NULL,    /* and has no default */
    STG_ARROW_BAD_OFFSET, /* of a string */
    STG_ARROW_BAD_LIST,   /* an offset of a list, or of a string in it */
    STG_ARROW_BAD_INDEX,  /* the dictionary has no such value */
    STG_ARROW_TOO_LARGE   /* a decimal for int64 */
};

/* Numbers lie at `fixed`. String i is the bytes [begin[i], end[i]) of base; the default
 * lies behind base_bytes. */
struct stg_arrow_values {
    uint64_t n;
    char *fixed;
    char *base;
    uint64_t base_bytes;
    int64_t *begin, *end;
    uint8_t *state;           /* of each; NULL: all are good */
    struct stg_chunk *data;   /* of numbers, or of the bytes of strings; NULL: none */
    struct stg_chunk *values; /* what was decoded, or NULL */
};

void stg_arrow_values_finish(struct stg_arrow_values *values);

/* The buffers of a column in a batch. */
struct stg_arrow_inputs {
    struct stg_arrow_part part;
    struct stg_arrow_input validities[STG_ARROW_MAX_VALIDITIES];
    struct stg_arrow_input lists[STG_MAX_LISTS]; /* their offsets */
    struct stg_arrow_input offsets, data;
};

void stg_arrow_inputs_init(struct stg_arrow_inputs *inputs,
                           const struct stg_arrow_part *part);
void stg_arrow_inputs_finish(struct stg_arrow_inputs *inputs);

/* What is decoded. */
struct stg_arrow_request {
    struct stg_arrow_reading *reading;
    const struct stg_arrow_column *column;
    const struct stg_arrow_leaf *leaf;
    struct stg_arrow_inputs *inputs;
    const struct stg_arrow_values *dictionary; /* NULL: none */
    uint64_t first, n;                         /* values, or rows; n at least 1 */
    bool is_whole; /* n, or none if the offsets of a string are not valid */
};

/* Decodes values, fewer than n where strings are long. DATA_LOSS: they cannot be had;
 * RESOURCE_EXHAUSTED; errors of the storage set reading->is_storage. */
int stg_arrow_decode(const struct stg_arrow_request *request,
                     struct stg_arrow_values *values, struct stg_err *err);

/* Makes n values, at least 1, of a column that the file lacks. */
int stg_arrow_fill(struct stg_arrow_reading *reading,
                   const struct stg_arrow_column *column, uint64_t n,
                   struct stg_arrow_values *values, struct stg_err *err);

/* Appends values to those of a dictionary: *to becomes both. */
int stg_arrow_values_append(struct stg_arrow_reading *reading,
                            const struct stg_arrow_column *column,
                            struct stg_arrow_values *to,
                            const struct stg_arrow_values *more, struct stg_err *err);

/* Makes the n values that index names those of *values; -1: the default. */
int stg_arrow_values_pick(struct stg_arrow_reading *reading,
                          const struct stg_arrow_column *column,
                          struct stg_arrow_values *values, const int64_t *index,
                          uint64_t n, struct stg_err *err);

/* Reads the bits of n rows, structs, lists or values that lie in `depth` lists, from the
 * first one on, and marks those that are null in state. Returns 1 if there are some. */
int stg_arrow_read_nulls(struct stg_arrow_reading *reading,
                         struct stg_arrow_inputs *inputs, unsigned depth, uint64_t first,
                         uint64_t n, uint8_t *state, struct stg_err *err);

/* Returns the most values to decode at once: about 64 KiB. */
uint64_t stg_arrow_values_at_once(const struct stg_arrow_column *column,
                                  const struct stg_arrow_leaf *leaf);

#endif
