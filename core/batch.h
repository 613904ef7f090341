/* SPDX-License-Identifier: Apache-2.0
 *
 * A batch as pointers to tensors. It owns no memory: the maker of the memory (an extent,
 * an arena of the executor, a chunk of a reader) keeps it alive. Reading a
 * batch at rest (core/layout.h) into this form is checked, because the bytes come from
 * another process.
 */
#ifndef STG_CORE_BATCH_H
#define STG_CORE_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/bump.h"
#include "core/err.h"
#include "core/layout.h"

#define STG_MAX_DIMS 8

/* Strings without order, each once: string i is the bytes [begin[i], end[i]) of data. */
struct stg_strings {
    int64_t n;
    const char *data;
    uint64_t data_bytes;
    const int64_t *begin, *end;
};

/* Dense: `data` holds the elements, row-major. String: element i is the bytes
 * [begin[i], end[i]) of `data`; at rest and in everything that an op writes, end == begin
 * + 1 (one array of n + 1 offsets, Arrow's large_binary layout); what a reader hands over
 * may have gaps. Coded: a string tensor with a dictionary, whose element i is entry
 * codes[i]; begin and end may then be NULL, and are right where they are not. Only
 * functions that say so accept coded tensors. Pointers are aligned to 64 when they point
 * to the start of an allocation. */
struct stg_tensor {
    int dtype;
    int ndim;
    int64_t shape[STG_MAX_DIMS];
    void *data;
    uint64_t data_bytes;  /* of data: elements, or all bytes of all strings */
    const int64_t *begin; /* strings only */
    const int64_t *end;
    const int32_t *codes;                 /* coded only */
    const struct stg_strings *dictionary; /* NULL: not coded. Part of a struct
                                             stg_dictionary (ops/base/dictionary.h) */
    /* Uneven only, in blocks of a dataset: shape[1] is -1, and record i has what lies
     * from splits[i] - splits[0] up to splits[i + 1] - splits[0], counted in elements of
     * the dimensions behind it. */
    const int64_t *splits;
};

/* Returns the product of the dimensions; 1 for a scalar. Of an uneven tensor, the number
 * of its elements. */
int64_t stg_tensor_n(const struct stg_tensor *tensor);

/* Returns string i of a tensor, which may be coded. */
static inline const char *stg_tensor_string(const struct stg_tensor *tensor, int64_t i,
                                            uint64_t *ret_bytes)
{
    bool coded = tensor->dictionary != NULL;
    const int64_t *begin = coded ? tensor->dictionary->begin : tensor->begin;
    const int64_t *end = coded ? tensor->dictionary->end : tensor->end;
    int64_t at = coded ? tensor->codes[i] : i;
    *ret_bytes = (uint64_t)(end[at] - begin[at]);
    return (const char *)tensor->data + begin[at];
}

/* Returns the bytes of all strings of a tensor, which may be coded. */
uint64_t stg_tensor_text_bytes(const struct stg_tensor *tensor);

/* Writes begin and end of n elements of a coded tensor, from `first` on. */
void stg_tensor_spread(const struct stg_tensor *tensor, int64_t first, int64_t n,
                       int64_t *begin, int64_t *end);

/* Computes the elements and bytes of a tensor; for strings, string_bytes plus the
 * offsets. Returns false on overflow. */
bool stg_tensor_size(int dtype, int ndim, const int64_t *shape, uint64_t string_bytes,
                     uint64_t *ret_n, uint64_t *ret_bytes);

/* Writes a shape as text, "[4096, 26]"; an unknown dimension (negative) is "?". Returns
 * buf.
 */
const char *stg_shape_text(const int64_t *shape, int ndim, char *buf, size_t bytes);

/* The type of a tensor that does not exist yet. A dimension of -1 is unknown; the rank is
 * always known. */
struct stg_component {
    const char *name; /* the owner of the schema owns it */
    int dtype;
    int ndim;
    int64_t shape[STG_MAX_DIMS];
    uint32_t part; /* enum stg_part */
};

struct stg_schema {
    struct stg_component *components;
    size_t n;
};

/* Copies a schema into bump. RESOURCE_EXHAUSTED. */
int stg_schema_copy(const struct stg_schema *schema, struct stg_bump *bump,
                    struct stg_schema *ret, struct stg_err *err);

/* Picks the features at `path` ("user/id") and below it ("user"), with all their parts.
 * picked: one for each component. Returns whether there is any such feature. */
bool stg_schema_pick(const struct stg_schema *schema, const char *path, bool *picked);

/* Picks all parts of each feature that has a picked part. */
void stg_schema_pick_whole(const struct stg_schema *schema, bool *picked);

/* ---- writing a batch at rest ----
 * An extent is filled by one thread: begin, then for each tensor alloc (in any order,
 * once), then seal. Allocation is a bump from the header upwards, tensors aligned to 64.
 * The coordinates in the header (generation, number, pass … n_rows) are the caller's to
 * set, at any time after begin, which zeroes them. */

/* The source of more room for a batch. */
struct stg_batch_room {
    uint64_t limit_bytes; /* max_batch_bytes */
    /* Makes room for at least `needed` and at most limit_bytes bytes at base; *ret is
     * their number. Any error. NULL: the capacity is all there is. */
    int (*grow)(void *owner, uint64_t needed, uint64_t *ret, struct stg_err *err);
    void *owner;
};

struct stg_batch_writer {
    char *base;
    uint64_t capacity_bytes;
    uint64_t used_bytes;
    uint32_t n_tensors;
    struct stg_batch_room room;
};

/* Lays out header, entries and names. `schema` gives names, dtypes, ranks and parts.
 * Errors: RESOURCE_EXHAUSTED when capacity is too small even for that. base must be
 * 64-aligned.
 */
int stg_batch_writer_begin(struct stg_batch_writer *w, void *base,
                           uint64_t capacity_bytes, const struct stg_schema *schema,
                           struct stg_err *err);

/* Begins a batch as stg_batch_writer_begin, with a capacity that grows. room is copied.
 */
int stg_batch_writer_begin_growing(struct stg_batch_writer *w, void *base,
                                   uint64_t capacity_bytes,
                                   const struct stg_batch_room *room,
                                   const struct stg_schema *schema, struct stg_err *err);

/* Room for tensor i. For strings string_bytes is an upper bound of all bytes together;
 * the offsets array (n + 1) is made as well, and ret->begin/end point to it. The entry is
 * filled in. Errors: RESOURCE_EXHAUSTED "batch needs N bytes, max_batch_bytes is M";
 * INVALID_ARGUMENT for a negative dimension or a shape beyond 2^63 bytes; INTERNAL for
 * another dtype or rank than the schema's. After an error w is as it was. */
int stg_batch_writer_alloc(struct stg_batch_writer *w, uint32_t i, int dtype, int ndim,
                           const int64_t *shape, uint64_t string_bytes,
                           struct stg_tensor *ret, struct stg_err *err);

/* Copies a tensor to tensor i (and compacts strings); it may be coded. If it is the
 * memory of another tensor of this batch, in any shape, nothing is copied: both share
 * that memory. */
int stg_batch_writer_copy(struct stg_batch_writer *w, uint32_t i,
                          const struct stg_tensor *tensor, struct stg_err *err);

/* Makes tensor i share the memory of tensor k, which is already allocated. */
void stg_batch_writer_share(struct stg_batch_writer *w, uint32_t i, uint32_t k);

/* Fixes lengths of strings (data_bytes = last offset) and total_bytes. Returns total
 * bytes, which is less than the reserved size if the last strings were shorter. Every
 * tensor must be allocated. */
uint64_t stg_batch_writer_seal(struct stg_batch_writer *w);

/* An error item: no tensors, a code (positive) and a text. Returns total bytes.
 * capacity_bytes must be at least STG_GRANULE_BYTES. The text is truncated to fit. */
uint64_t stg_batch_write_error(void *base, uint64_t capacity_bytes, int code,
                               const char *text);

/* ---- reading a batch at rest ---- */

/* Checks header, entries, names, bounds, and that string offsets start at 0, end inside
 * and (full check only) never decrease. Nothing is used before it is checked. DATA_LOSS
 * names the fault. base must be 64-aligned. Without `full` the time depends only on the
 * number of tensors. Unknown flags are accepted. */
int stg_batch_check(const void *base, uint64_t bytes, bool full, struct stg_err *err);

/* Returns tensor i of a checked batch. */
void stg_batch_tensor_at(const void *base, uint32_t i, struct stg_tensor *ret,
                         const char **ret_name);

/* Returns the part (enum stg_part) of its feature that tensor i of a checked batch is. */
uint32_t stg_batch_part(const void *base, uint32_t i);

/* Checks that the parts of sparse and ragged features fit one another: ranks, dtypes and
 * sizes. With `content` also checks that row_splits begin with 0, never decrease and end
 * with the rows of the values, and that indices lie inside dense_shape. INVALID_ARGUMENT
 * names the tensor. stg_batch_check does it too. A writer calls it after seal, because
 * separate ops make the parts. */
int stg_batch_check_parts(const void *base, bool content, struct stg_err *err);

/* Returns the span of a checked batch from the first to the last byte that belongs on a
 * device. It includes strings in between; it is empty if all tensors are strings. */
void stg_batch_device_span(const void *base, uint64_t *ret_first, uint64_t *ret_bytes);

/* Returns the index of the tensor of that name, or -1. */
int stg_batch_find(const void *base, const char *name);

#endif
