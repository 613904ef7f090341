/* SPDX-License-Identifier: Apache-2.0
 *
 * An Arrow file: its columns that are wanted, and where its record batches and its
 * dictionaries lie. Of the file format the footer names them; of the stream format they
 * are found by passing from message to message. The metadata of each batch is verified
 * and checked when the file is opened: extents of wanted columns lie in its body, and
 * have room for its rows. One thread.
 */
#ifndef STG_DAEMON_ARROW_FILE_H
#define STG_DAEMON_ARROW_FILE_H

#include "daemon/format/arrow/message.h"
#include "daemon/format/arrow/schema.h"

struct stg_arrow_batch {
    struct stg_arrow_piece piece;
    uint64_t end;            /* the number of rows up to its end */
    uint32_t n_dictionaries; /* messages with dictionaries that it can refer to */
    uint32_t n_stretches;    /* of the file, up to its end */
};

/* A message with a dictionary, or with what is added to it. */
struct stg_arrow_dictionary {
    struct stg_arrow_piece piece;
    int64_t id;
    bool is_delta;
};

struct stg_arrow_file {
    uint32_t n_columns, n_batches, n_dictionaries;
    struct stg_arrow_leaf *leaves; /* one for each column */
    struct stg_arrow_batch *batches;
    struct stg_arrow_dictionary *dictionaries;
    /* Of a file on another machine: the buffers of the wanted columns, batch by batch. */
    struct stg_arrow_buffer *stretches;
    uint32_t n_stretches;
    uint32_t batches_size, dictionaries_size, stretches_size;
    int version;
    int codec;               /* of its last batch; -1: it is not compressed */
    uint64_t bytes;          /* of its batches */
    struct stg_quota *quota; /* borrowed */
    uint64_t taken;          /* of the quota */
};

/* Opens a file. A text names the column and the batch, not the file. DATA_LOSS: it is
 * damaged, or no Arrow file; INVALID_ARGUMENT: it has no such column, or one of another
 * type; UNIMPLEMENTED: a type, a codec or a version that is not read; RESOURCE_EXHAUSTED;
 * any error of the storage, which sets *ret_storage. */
int stg_arrow_open(struct stg_source *source, struct stg_quota *quota,
                   const struct stg_arrow_want *wants, uint32_t n,
                   struct stg_arrow_file **ret, bool *ret_storage, struct stg_err *err);

/* Of a file on another machine: announces what the wanted columns have in a record batch,
 * and the dictionaries that came since the one before. A batch that the file has not is
 * none. */
void stg_arrow_announce(const struct stg_arrow_file *file, struct stg_source *source,
                        uint32_t batch);
void stg_arrow_close(struct stg_arrow_file *file); /* NULL is allowed */

/* Describes a file; a column that cannot be read has the reason. Errors as those of
 * stg_arrow_open. */
int stg_arrow_describe(struct stg_source *source, struct stg_quota *quota,
                       struct stg_describing *to, bool *ret_storage, struct stg_err *err);

/* Returns the record batch of a row that the file has. */
uint32_t stg_arrow_find_batch(const struct stg_arrow_file *file, uint64_t row);

/* Returns the first row of a record batch. */
static inline uint64_t stg_arrow_batch_begin(const struct stg_arrow_file *file,
                                             uint32_t batch)
{
    return batch > 0 ? file->batches[batch - 1].end : 0;
}

static inline uint64_t stg_arrow_n_rows(const struct stg_arrow_file *file)
{
    return file->n_batches > 0 ? file->batches[file->n_batches - 1].end : 0;
}

#endif
