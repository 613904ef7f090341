/* SPDX-License-Identifier: Apache-2.0
 *
 * The header of a NumPy file (format versions 1.0 to 3.0, numpy.lib.format), out of bytes
 * in memory; nothing is evaluated. Pure functions; any thread.
 */
#ifndef STG_CORE_NPY_HEADER_H
#define STG_CORE_NPY_HEADER_H

#include <stdbool.h>
#include <stdint.h>

#include "core/batch.h"

/* Magic, version, length, and the longest text that is looked at. */
#define STG_NPY_MAX_HEADER (12 + 65536)

struct stg_npy_header {
    int dtype;
    bool swapped; /* its bytes lie the other way round */
    int ndim;
    int64_t shape[STG_MAX_DIMS];
    uint64_t bytes; /* of the header: the data lie behind it */
};

/* Bytes of the header as far as the first n bytes of the file tell: more than n when it
 * is not all there. 0: it is no NumPy file, or of a version that there is not. */
uint64_t stg_npy_header_bytes(const char *at, uint64_t n);

/* A whole header. INVALID_ARGUMENT says what it has that is not read: several fields,
 * objects, strings, the order of Fortran; DATA_LOSS that it is damaged. */
int stg_npy_header_parse(const char *at, uint64_t n, struct stg_npy_header *ret,
                         struct stg_err *err);

#endif
