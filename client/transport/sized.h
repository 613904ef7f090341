/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies public structs between the library and callers that were built with an older or
 * a newer stager.h. New fields are only appended, so the two versions of a struct have a
 * common prefix, and only that prefix is copied. A struct begins with its size_t
 * struct_size.
 */
#ifndef STG_CLIENT_TRANSPORT_SIZED_H
#define STG_CLIENT_TRANSPORT_SIZED_H

#include <stddef.h>

#include "core/err.h"

/* The size of a struct up to and including the field `last`. */
#define STG_SIZE_TO(type, last)                                                          \
    (offsetof(struct type, last) + sizeof(((struct type *)0)->last))

/* Copies the caller's struct to `ret`, which has `size` bytes. Fields beyond the caller's
 * struct_size become 0. first: the size of the struct in the first release. what: the
 * name of the struct in error texts. INVALID_ARGUMENT: struct_size is less than `first`,
 * or a byte beyond `size` is not 0. */
int stg_sized_read(const void *from, size_t first, size_t size, const char *what,
                   void *ret, struct stg_err *err);

/* Writes to the caller's struct the fields of `from` that fit its struct_size. Leaves
 * struct_size and any later bytes unchanged. INVALID_ARGUMENT: struct_size is less than
 * `first`. */
int stg_sized_write(const void *from, size_t first, size_t size, const char *what,
                    void *ret, struct stg_err *err);

#endif
