/* SPDX-License-Identifier: Apache-2.0
 *
 * Single elements: literals of a pipeline file as elements of a dtype, and the two half
 * widths that C has no type for. Pure functions; any thread.
 */
#ifndef STG_OPS_BASE_ELEMENT_H
#define STG_OPS_BASE_ELEMENT_H

#include <stdbool.h>

#include "core/batch.h"
#include "core/bump.h"
#include "core/spec.h"

/* The dtype that tf.constant gives to these literals: int32 (int64 when one does not
 * fit), float32, bool, string; float32 when there are none. STAGER_DT_INVALID for a null,
 * or for a mixture other than integers with floats. */
int stg_literal_dtype(const struct stg_value *values, size_t n);

/* Returns the dtype of twice the width: int16 for int8, float32 for float16 and bfloat16.
 * STAGER_DT_INVALID: there is none. */
int stg_dtype_widened(int dtype);

/* data[i] = value, for every dtype but string. INVALID_ARGUMENT says why the literal is
 * no such element: an integer that does not fit, a fraction for an integer, a string. */
int stg_literal_store(const struct stg_value *value, int dtype, void *data, size_t i,
                      struct stg_err *err);

/* The literals as a tensor of that dtype and shape, in `bump`; one literal fills any
 * shape. */
int stg_literal_tensor(const struct stg_value *values, size_t n, int dtype, int ndim,
                       const int64_t *shape, struct stg_bump *bump,
                       struct stg_tensor *ret, struct stg_err *err);

/* Element i of a tensor of int32 or int64. */
static inline int64_t stg_tensor_index(const struct stg_tensor *tensor, int64_t i)
{
    return tensor->dtype == STAGER_INT32 ? ((const int32_t *)tensor->data)[i]
                                         : ((const int64_t *)tensor->data)[i];
}

/* The row that element i is in, as stg_err_row takes it; -1: a scalar has none. */
int64_t stg_tensor_row(const struct stg_tensor *tensor, int64_t i);

/* IEEE binary16 and bfloat16; rounding to nearest, ties to even; NaN stays NaN. */
uint16_t stg_f16_from_f64(double value);
uint16_t stg_bf16_from_f32(float value);
float stg_f32_from_f16(uint16_t bits);
float stg_f32_from_bf16(uint16_t bits);

/* Bytes [s, s + n) as they can stand in a message: at most 40 of them, what is not
 * printable as \xNN, "…" where it was truncated. Returns buf. */
#define STG_QUOTE_BYTES 200
const char *stg_quote(const char *s, size_t n, char buf[STG_QUOTE_BYTES]);

#endif
