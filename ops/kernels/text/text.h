/* SPDX-License-Identifier: Apache-2.0
 *
 * What ops on strings share. Pure; any thread.
 */
#ifndef STG_OPS_KERNELS_TEXT_TEXT_H
#define STG_OPS_KERNELS_TEXT_TEXT_H

#include "ops/base/op.h"

/* INVALID_ARGUMENT where input 0 is no string. */
int stg_text_check(const struct stg_op_infer *ctx, struct stg_err *err);

/* Bytes of all strings together. */
uint64_t stg_text_bytes(const struct stg_tensor *input);

/* White space of ASCII: blank, tab, line feed, vertical tab, form feed, CR. */
static inline bool stg_text_is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

#endif
