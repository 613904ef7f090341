/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers in half the width, and back. Pure; any thread.
 */
#ifndef STG_OPS_NARROW_H
#define STG_OPS_NARROW_H

#include "ops/op.h"

/* The dtype that is narrowed to this one; STAGER_DT_INVALID: none. */
int stg_narrow_from(int dtype);

#endif
