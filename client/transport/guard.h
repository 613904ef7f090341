/* SPDX-License-Identifier: Apache-2.0
 *
 * Notices fork: a page that the kernel wipes in the child. Looking costs one load and no
 * system call.
 */
#ifndef STG_CLIENT_TRANSPORT_GUARD_H
#define STG_CLIENT_TRANSPORT_GUARD_H

#include <stdbool.h>

#include "core/err.h"

struct stg_guard;

/* RESOURCE_EXHAUSTED when there is no page. */
int stg_guard_create(struct stg_guard **ret, struct stg_err *err);

/* In a child too, where it frees the child's copy. NULL is allowed. */
void stg_guard_destroy(struct stg_guard *guard);

/* Is this the process that created it? */
bool stg_guard_holds(const struct stg_guard *guard);

#endif
