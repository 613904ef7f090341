/* SPDX-License-Identifier: Apache-2.0
 *
 * A vocabulary: lines of a file, numbered from 0, found by a hash. A resource: a caller
 * that runs the graph makes it, once, and hands it to `lookup` as an input, a tensor of
 * bytes. One block without pointers, so that it can lie in memory that processes share;
 * readers trust none of it. Pure; any thread.
 */
#ifndef STG_OPS_KERNELS_TEXT_VOCABULARY_H
#define STG_OPS_KERNELS_TEXT_VOCABULARY_H

#include <stdbool.h>

#include "core/batch.h"

/* Bytes that a file may have: what is larger is better hashed. */
#define STG_VOCABULARY_MAX_BYTES (64u << 20)

/* The first `most` lines of the text (0: all) as a tensor uint8 [bytes], whose data the
 * caller frees. A line ends at a line feed and loses one CR before it; the last one needs
 * none. INVALID_ARGUMENT: no line, the same line twice, or fewer than `most`. */
int stg_vocabulary_create(const char *text, size_t bytes, uint64_t most,
                          struct stg_tensor *ret, struct stg_err *err);

/* What lookup needs of it. */
struct stg_vocabulary {
    const uint32_t *slots; /* line + 1, or 0 */
    uint64_t slot_mask;
    const uint64_t *offsets; /* n + 1 */
    uint64_t n;
    const char *text;
    uint64_t text_bytes;
};

/* False: the tensor is no vocabulary. */
bool stg_vocabulary_open(const struct stg_tensor *tensor, struct stg_vocabulary *ret);

/* The number of the line, or -1. fingerprint: stg_fingerprint64 of it. */
int64_t stg_vocabulary_find(const struct stg_vocabulary *v, const char *s, size_t n,
                            uint64_t fingerprint);

#endif
