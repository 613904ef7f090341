/* SPDX-License-Identifier: Apache-2.0
 *
 * A pass over one file of arbitrary bytes, through a pipeline with little memory. The
 * pass ends; each error names the file; a pass that begins in the middle has the same
 * items as one from the start.
 */
#ifndef STG_TESTS_FUZZ_PASS_H
#define STG_TESTS_FUZZ_PASS_H

#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

struct stg_fuzz_pass {
    const char *step, *options;                     /* of the reader; string literals */
    void (*check_error)(const struct stg_err *err); /* NULL: nothing more is checked */
    uint64_t buffer_bytes;
};

/* Writes a file, which replaces the one before, and returns its path. */
const char *stg_fuzz_file(const void *data, size_t bytes);

/* Writes the file and reads it twice: from its start, and from an item in the middle. */
void stg_fuzz_pass(const struct stg_fuzz_pass *pass, unsigned middle, const void *data,
                   size_t bytes);

#endif
