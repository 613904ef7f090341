/* SPDX-License-Identifier: Apache-2.0
 *
 * Which users may apply, attach and see, by `rules` of stagerd.yaml. Belongs to the loop.
 */
#ifndef STG_DAEMON_SERVER_RULES_H
#define STG_DAEMON_SERVER_RULES_H

#include "core/spec.h"
#include "daemon/host/identity.h"
#include "proto/wire.h"

/* The rules, with numbers for names. NULL: none, everything is allowed. */
struct stg_rules;

/* Makes rules. The caller destroys them. RESOURCE_EXHAUSTED. A user or a group that does
 * not exist is left out, and *err names it with INVALID_ARGUMENT. */
int stg_rules_create(const struct stg_rules_spec *spec, struct stg_rules **ret,
                     struct stg_err *err);
void stg_rules_destroy(struct stg_rules *rules); /* NULL is allowed */

/* Checks whether the user may make the request. Root may. PERMISSION_DENIED names the
 * rule. */
int stg_rules_check(const struct stg_rules *rules, const struct stg_identity *identity,
                    enum stg_request_kind kind, struct stg_err *err);

#endif
