/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/gate/token.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct stg_token {
    struct stg_token *next; /* older */
    uint64_t until_ns;
    unsigned char bytes[STG_TOKEN_BYTES];
    struct stg_identity identity;
};

static void remove_at(struct stg_token **at)
{
    struct stg_token *token = *at;
    *at = token->next;
    explicit_bzero(token->bytes, sizeof(token->bytes));
    free(token);
}

/* What has expired goes, and what would be one too many of that user. How many are left.
 */
static size_t make_room(struct stg_tokens *tokens, uid_t uid, uint64_t now_ns)
{
    size_t n = 0, of_user = 0;
    struct stg_token **at = &tokens->newest;
    while (*at != NULL) {
        bool same = (*at)->identity.uid == uid;
        if ((*at)->until_ns <= now_ns || (same && of_user + 1 >= STG_TOKENS_A_USER)) {
            remove_at(at);
            continue;
        }
        of_user += same;
        n++;
        at = &(*at)->next;
    }
    return n;
}

int stg_tokens_give(struct stg_tokens *tokens, const struct stg_identity *identity,
                    uint64_t now_ns, unsigned char ret[STG_TOKEN_BYTES],
                    struct stg_err *err)
{
    if (make_room(tokens, identity->uid, now_ns) >= STG_TOKENS)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                       "%d tokens are valid already: wait until one expires, at most an "
                       "hour, or restart stagerd",
                       STG_TOKENS);
    struct stg_token *token = malloc(sizeof(*token));
    if (token == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    if (getrandom(token->bytes, sizeof(token->bytes), 0) !=
        (ssize_t)sizeof(token->bytes)) {
        free(token);
        return stg_err(err, -STAGER_INTERNAL, "cannot get random bytes from the kernel");
    }
    token->until_ns = now_ns + STG_TOKEN_SECONDS * 1000000000ull;
    token->identity = *identity;
    token->next = tokens->newest;
    tokens->newest = token;
    memcpy(ret, token->bytes, sizeof(token->bytes));
    return 0;
}

/* 0 when equal; looks at every byte. */
static unsigned differ(const unsigned char *a, const unsigned char *b)
{
    volatile unsigned ret = 0;
    for (size_t i = 0; i < STG_TOKEN_BYTES; i++)
        ret |= (unsigned)(a[i] ^ b[i]);
    return ret;
}

const struct stg_identity *stg_tokens_find(const struct stg_tokens *tokens,
                                           const void *token, size_t bytes,
                                           uint64_t now_ns)
{
    const struct stg_identity *ret = NULL;
    if (bytes != STG_TOKEN_BYTES)
        return NULL;
    for (const struct stg_token *t = tokens->newest; t != NULL; t = t->next) {
        if (differ(t->bytes, token) == 0 && t->until_ns > now_ns)
            ret = &t->identity;
    }
    return ret;
}

void stg_tokens_finish(struct stg_tokens *tokens)
{
    while (tokens->newest != NULL)
        remove_at(&tokens->newest);
}
