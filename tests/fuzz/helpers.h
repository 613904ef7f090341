/* SPDX-License-Identifier: Apache-2.0
 *
 * Modes of fuzz_peers in which the input is what a helper process sends to stagerd.
 */
#ifndef STG_TESTS_FUZZ_HELPERS_H
#define STG_TESTS_FUZZ_HELPERS_H

#include <stddef.h>
#include <stdint.h>

/* Frames of stager-gate: requests with tokens of two users, with an unknown one, or
 * without; request ids that repeat; any bytes. Each reply and event that comes back
 * decodes, and a request has at most one reply. */
void stg_fuzz_gate(const uint8_t *data, size_t bytes);

/* The first message of stager-gpu, then its answers to copies. What it says is an error
 * with a text, or there is memory; no descriptor stays open. */
void stg_fuzz_gpu(const uint8_t *data, size_t bytes);

void stg_fuzz_helper_seeds(void);

#endif
