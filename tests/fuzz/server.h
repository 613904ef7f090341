/* SPDX-License-Identifier: Apache-2.0
 *
 * Modes of fuzz_peers that need a process at the other end: a whole server of stagerd on
 * this thread, and that of stager-metrics.
 */
#ifndef STG_TESTS_FUZZ_SERVER_H
#define STG_TESTS_FUZZ_SERVER_H

#include "daemon/server/server.h"
#include "tests/fuzz/fuzz.h"

/* A sequence of connections, requests, doorbells, turns of the loop, and writes to the
 * pages that came with a reply. Afterwards the server has no session, and no memory but
 * that of its start. */
void stg_fuzz_server(const uint8_t *data, size_t bytes);
void stg_fuzz_server_seeds(void);

/* The same server for other sequences: begin one, turn the loop, end the sequence. */
struct stg_server *stg_fuzz_server_begin(void);
void stg_fuzz_server_turn(void);
void stg_fuzz_server_end(void);

/* Fills a request whose fields the input draws. */
void stg_fuzz_request(struct stg_fuzz_input *input, struct stg_request *ret);

/* A request in two pieces: the number of bytes of the first one, then the request. What
 * comes back is HTTP, or nothing. */
void stg_fuzz_http(const uint8_t *data, size_t bytes);

#endif
