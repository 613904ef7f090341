/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of the answers of a worker: slots, each a memfd that stagerd and stager-worker
 * have both mapped. Slots are reused, because the first touch of a page costs more than
 * sending it. stager-worker copies a slot to the socket: after sendfile, the kernel does
 * not report when the network has read the pages, and the slot could not be reused.
 *
 * The bytes of all slots are bounded. Any thread.
 */
#ifndef STG_DAEMON_WORKER_MEMORY_H
#define STG_DAEMON_WORKER_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"

struct stg_worker_memory;

/* n_retained: so many free slots keep their pages. RESOURCE_EXHAUSTED. */
int stg_worker_memory_create(uint64_t most_bytes, unsigned n_retained,
                             struct stg_worker_memory **ret, struct stg_err *err);
void stg_worker_memory_destroy(struct stg_worker_memory *memory); /* NULL is allowed */

/* Sets bytes aside for a request; returns false if too many are in use. */
bool stg_worker_memory_reserve(struct stg_worker_memory *memory, uint64_t bytes);

/* Gives such a request its slot, or none and the bytes back. RESOURCE_EXHAUSTED. */
int stg_worker_memory_take(struct stg_worker_memory *memory, uint64_t bytes,
                           uint32_t *ret, struct stg_err *err);
char *stg_worker_memory_base(struct stg_worker_memory *memory, uint32_t slot);

/* Returns the slot's descriptor if stager-worker must have it along with the answer; -1:
 * it has the memory. The slot is in use until stg_worker_memory_done. */
int stg_worker_memory_send(struct stg_worker_memory *memory, uint32_t slot, uint64_t id);
void stg_worker_memory_done(struct stg_worker_memory *memory, uint64_t id);

/* Ends the use of a slot whose answer has no batches. */
void stg_worker_memory_drop(struct stg_worker_memory *memory, uint32_t slot);

/* Another stager-worker: it has no memory yet, and answers to the last one are over. */
void stg_worker_memory_restart(struct stg_worker_memory *memory);

#endif
