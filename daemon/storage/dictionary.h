/* SPDX-License-Identifier: Apache-2.0
 *
 * Dictionaries (ops/base/dictionary.h) whose strings lie in chunks. Any thread.
 */
#ifndef STG_DAEMON_DICTIONARY_H
#define STG_DAEMON_DICTIONARY_H

#include "daemon/storage/chunk.h"
#include "ops/base/dictionary.h"

/* Creates a dictionary, whose strings the caller sets. It
 * takes references on the chunks, which may be NULL. Results are kept while the quota is
 * less than half full. RESOURCE_EXHAUSTED. */
int stg_dictionary_create(struct stg_quota *quota, struct stg_chunk *strings,
                          struct stg_chunk *offsets, struct stg_dictionary **ret,
                          struct stg_err *err);

#endif
