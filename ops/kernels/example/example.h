/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of parse_example: what a node asks for (example_plan.c), where the lists of
 * a record lie (example_index.c), what is in a list (example_list.c). The wire format is
 * that of protocol buffers, the messages are those of tensorflow/core/example/
 * example.proto and feature.proto. Nothing outside of a record is believed, nothing
 * outside of the batch's bytes is read. Pure; any thread.
 */
#ifndef STG_OPS_KERNELS_EXAMPLE_EXAMPLE_H
#define STG_OPS_KERNELS_EXAMPLE_EXAMPLE_H

#include "ops/base/hash.h"
#include "ops/base/op.h"

enum stg_example_type {
    STG_EXAMPLE_FIXED_LEN,
    STG_EXAMPLE_FIXED_LEN_SEQUENCE,
    STG_EXAMPLE_VAR_LEN,
    STG_EXAMPLE_RAGGED,
    STG_EXAMPLE_SPARSE,
};

/* The numbers of the fields of message Feature. */
enum stg_example_kind {
    STG_EXAMPLE_NONE = 0,
    STG_EXAMPLE_BYTES = 1,
    STG_EXAMPLE_FLOATS = 2,
    STG_EXAMPLE_INTS = 3,
};

/* A requested key of the map of features. */
struct stg_example_key {
    const char *name;
    uint32_t bytes;
    bool is_dense; /* one that holds no list does not replace an earlier one, as in
                      TensorFlow */
    /* The bytes behind the length of an entry: tag and length of the key, the key, tag of
     * the value: the first 16, of which the masked ones count, and what is left of them.
     */
    uint64_t head[2], mask[2];
    const char *rest;
    uint32_t rest_bytes;
};

struct stg_example_feature {
    const char *name;
    size_t name_bytes;
    enum stg_example_type type;
    int dtype;
    enum stg_example_kind kind;
    uint32_t key;    /* of the values */
    uint32_t output; /* the first */
    int ndim;
    int64_t shape[STG_MAX_DIMS]; /* FIXED_LEN, FIXED_LEN_SEQUENCE: of a record, of a step;
                                    SPARSE: size */
    int64_t n;                   /* product of shape */
    bool has_default;
    struct stg_tensor fill; /* FIXED_LEN: n elements; FIXED_LEN_SEQUENCE: one */
    const uint32_t *index_keys;
    uint32_t n_index_keys;
    bool already_sorted;
    const struct stg_hash_plan *hash; /* the reader whose work was taken over, or NULL */
    int64_t hash_default;             /* what becomes of the default */
};

struct stg_example_plan {
    const struct stg_example_key *keys;
    uint32_t n_keys;
    const uint32_t *table; /* by stg_example_place: a key, the next ones being tried until
                              n_keys */
    uint32_t table_mask, table_shift;
    uint64_t table_factor;
    const struct stg_example_feature *features;
    uint32_t n_features;
};

extern const struct stg_param stg_example_params[1];

int stg_example_infer(struct stg_op_infer *ctx, struct stg_err *err);
const void *stg_example_absorb(const void *plan, struct stg_absorb *readers, size_t n,
                               struct stg_bump *bump);
bool stg_example_next_output(const struct stg_node *node, struct stg_output_name *name);

/* ---- where lists lie ---- */

/* The bytes of message BytesList, FloatList or Int64List; NONE: there is none. */
struct stg_example_span {
    const uint8_t *s;
    uint32_t bytes;
    uint32_t kind; /* enum stg_example_kind */
};

/* What is wrong, and before which byte it was noticed. */
struct stg_example_fault {
    const char *text;
    const uint8_t *at;
    const struct stg_example_key *key; /* in the value of this one, or NULL */
};

/* Bytes of the batch up to `limit` are there to be read. */
struct stg_example_input {
    const struct stg_example_plan *plan;
    const uint8_t *limit;
};

/* Where the search of a name of n bytes begins: first and last are its first and its last
 * eight bytes, or both all of it with zeros behind. */
static inline uint32_t stg_example_place(const struct stg_example_plan *plan,
                                         uint64_t first, uint64_t last, uint64_t n)
{
    uint64_t mixed = first ^ (last << 29 | last >> 35) ^ n << 59;
    return (uint32_t)(mixed * plan->table_factor >> plan->table_shift);
}

/* The same of a name anywhere. */
uint32_t stg_example_place_of(const struct stg_example_plan *plan, const char *s,
                              size_t n);

/* The key of that name, or n_keys. */
uint32_t stg_example_find(const struct stg_example_plan *plan, const uint8_t *s,
                          size_t n);

/* spans[k][i] = where the list of key k lies; those that the record has not are left as
 * they are. False: the record is truncated or no Example. */
bool stg_example_index(const struct stg_example_input *input, const uint8_t *s,
                       size_t bytes, struct stg_example_span *const *spans, size_t i,
                       struct stg_example_fault *fault);

/* ---- what is in a list ---- */

struct stg_example_text {
    const char *s;
    size_t bytes;
};

/* How many values; of BYTES also their bytes together, added to *bytes. -1: fault. */
int64_t stg_example_count(const struct stg_example_span *span, uint64_t *bytes,
                          struct stg_example_fault *fault);

/* The values of a list that was counted: float, int64_t or struct stg_example_text. */
void stg_example_read(const struct stg_example_span *span, void *out);

/* The value of a feature of one, in place; -1: it has to be counted. */
static inline int64_t stg_example_text_of(const struct stg_example_span *span,
                                          struct stg_example_text *ret)
{
    if (span->bytes < 2 || span->s[0] != 0x0a || span->s[1] != span->bytes - 2 ||
        span->bytes > 0x81)
        return -1;
    *ret = (struct stg_example_text){(const char *)span->s + 2, span->bytes - 2};
    return 1;
}

/* ---- outputs whose size depends on the batch (example_write.c) ---- */

/* Over all records. */
struct stg_example_tally {
    int64_t n, most; /* values: all, and of one record */
    uint64_t bytes;  /* of all strings */
};

struct stg_example_batch {
    struct stg_op_run *ctx;
    size_t n_rows;
    struct stg_example_span *const
        *spans;                     /* of keys that these features have: all rows */
    struct stg_example_text *texts; /* room for the most of any feature */
};

/* Outputs of a feature all of whose lists were counted and are good. An error without a
 * text (code OUT_OF_RANGE): an index of a SPARSE one is outside of its size. */
int stg_example_write(const struct stg_example_batch *batch,
                      const struct stg_example_feature *feature,
                      const struct stg_example_tally *tally, struct stg_err *err);

/* Something is wrong with the batch: finds the first bad record, and in it the first bad
 * feature, by the rules and without any guess (example_explain.c). INVALID_ARGUMENT with
 * its row; RESOURCE_EXHAUSTED where none is bad, and memory was what lacked. */
int stg_example_explain(struct stg_op_run *ctx, struct stg_err *err);

#endif
