/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens: 32 random bytes that stand for a user, given on attach.sock and shown with
 * each request at the gate, which does not know its peers. Bounded in number,
 * for each user and in all; forgotten with the daemon. Belongs to the loop.
 */
#ifndef STG_DAEMON_GATE_TOKEN_H
#define STG_DAEMON_GATE_TOKEN_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/host/identity.h"
#include "proto/wire.h"

#define STG_TOKEN_SECONDS 3600
#define STG_TOKENS_A_USER 64
#define STG_TOKENS 4096

struct stg_token;

/* A zeroed one is empty. */
struct stg_tokens {
    struct stg_token *newest;
};

/* Makes a token for a user, valid for STG_TOKEN_SECONDS from now_ns; the oldest of a
 * user with STG_TOKENS_A_USER goes. RESOURCE_EXHAUSTED: out of memory, or STG_TOKENS
 * are valid.
 */
int stg_tokens_give(struct stg_tokens *tokens, const struct stg_identity *identity,
                    uint64_t now_ns, unsigned char ret[STG_TOKEN_BYTES],
                    struct stg_err *err);

/* Returns its user; NULL: unknown or expired. Takes the same time for each wrong one. The
 * identity lives until the next call of stg_tokens_give. */
const struct stg_identity *stg_tokens_find(const struct stg_tokens *tokens,
                                           const void *token, size_t bytes,
                                           uint64_t now_ns);

void stg_tokens_finish(struct stg_tokens *tokens);

#endif
