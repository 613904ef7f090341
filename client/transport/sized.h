/* SPDX-License-Identifier: Apache-2.0
 *
 * Public structs of callers that know fewer of their fields, or more. Both sides hold the
 * fields that the other knows too at the same places, so what is exchanged is the common
 * beginning. A struct begins with its size_t struct_size.
 */
#ifndef STG_CLIENT_TRANSPORT_SIZED_H
#define STG_CLIENT_TRANSPORT_SIZED_H

#include <stddef.h>

#include "core/err.h"

/* The size of a struct whose last field is `last`. */
#define STG_SIZE_TO(type, last)                                                          \
    (offsetof(struct type, last) + sizeof(((struct type *)0)->last))

/* Copies what the caller gives to `ret`, which has `size` bytes; what the caller does not
 * know is 0. first: the size of the struct in the first release. INVALID_ARGUMENT: its
 * struct_size is less than that, or a byte is set behind what is known here; `what` names
 * the struct. */
int stg_sized_read(const void *from, size_t first, size_t size, const char *what,
                   void *ret, struct stg_err *err);

/* Writes to the caller's struct what it knows of `from`, and leaves its struct_size and
 * what is behind. INVALID_ARGUMENT as above. */
int stg_sized_write(const void *from, size_t first, size_t size, const char *what,
                    void *ret, struct stg_err *err);

#endif
