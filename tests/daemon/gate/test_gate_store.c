/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens and cached replies: their limits and their timeouts.
 */
#include <stdio.h>
#include <string.h>

#include "daemon/gate/reply_cache.h"
#include "daemon/gate/token.h"
#include "tests/check.h"

#define SECOND 1000000000ull

static struct stg_identity user(uid_t uid)
{
    return (struct stg_identity){.uid = uid, .gid = uid, .groups = {7}, .n_groups = 1};
}

static void a_token_stands_for_its_user_for_an_hour(void)
{
    struct stg_tokens tokens = {0};
    struct stg_err err = {0};
    unsigned char a[STG_TOKEN_BYTES], b[STG_TOKEN_BYTES];
    struct stg_identity ann = user(1000), bob = user(1001);
    CHECK_OK(stg_tokens_give(&tokens, &ann, 5 * SECOND, a, &err), err);
    CHECK_OK(stg_tokens_give(&tokens, &bob, 6 * SECOND, b, &err), err);
    CHECK(memcmp(a, b, sizeof(a)) != 0);
    CHECK_INT(stg_tokens_find(&tokens, a, sizeof(a), 7 * SECOND)->uid, 1000);
    CHECK_INT(stg_tokens_find(&tokens, b, sizeof(b), 7 * SECOND)->uid, 1001);
    CHECK_INT(stg_tokens_find(&tokens, b, sizeof(b), 7 * SECOND)->n_groups, 1);
    CHECK(stg_tokens_find(&tokens, a, sizeof(a), 3604 * SECOND) != NULL);
    CHECK(stg_tokens_find(&tokens, a, sizeof(a), 3605 * SECOND) == NULL);
    CHECK(stg_tokens_find(&tokens, b, sizeof(b), 3605 * SECOND) != NULL);
    CHECK(stg_tokens_find(&tokens, a, sizeof(a) - 1, 7 * SECOND) == NULL);
    CHECK(stg_tokens_find(&tokens, NULL, 0, 7 * SECOND) == NULL);
    for (size_t i = 0; i < sizeof(a); i++) {
        a[i] ^= 0x10;
        CHECK(stg_tokens_find(&tokens, a, sizeof(a), 7 * SECOND) == NULL);
        a[i] ^= 0x10;
    }
    stg_tokens_finish(&tokens);
}

static void a_users_oldest_token_makes_room_for_a_new_one(void)
{
    struct stg_tokens tokens = {0};
    struct stg_err err = {0};
    unsigned char other[STG_TOKEN_BYTES], mine[STG_TOKENS_A_USER + 1][STG_TOKEN_BYTES];
    struct stg_identity ann = user(1000), bob = user(1001);
    CHECK_OK(stg_tokens_give(&tokens, &bob, SECOND, other, &err), err);
    for (int i = 0; i <= STG_TOKENS_A_USER; i++)
        CHECK_OK(stg_tokens_give(&tokens, &ann, SECOND, mine[i], &err), err);
    CHECK(stg_tokens_find(&tokens, mine[0], STG_TOKEN_BYTES, SECOND) == NULL);
    for (int i = 1; i <= STG_TOKENS_A_USER; i++)
        CHECK(stg_tokens_find(&tokens, mine[i], STG_TOKEN_BYTES, SECOND) != NULL);
    CHECK(stg_tokens_find(&tokens, other, STG_TOKEN_BYTES, SECOND) != NULL);
    stg_tokens_finish(&tokens);
}

static void all_tokens_together_are_bounded_until_one_expires(void)
{
    struct stg_tokens tokens = {0};
    struct stg_err err = {0};
    unsigned char token[STG_TOKEN_BYTES];
    for (int i = 0; i < STG_TOKENS; i++) {
        struct stg_identity identity = user((uid_t)(i / STG_TOKENS_A_USER));
        CHECK_OK(stg_tokens_give(&tokens, &identity, SECOND, token, &err), err);
    }
    struct stg_identity late = user(99999);
    CHECK_INT(stg_tokens_give(&tokens, &late, SECOND, token, &err),
              -STAGER_RESOURCE_EXHAUSTED);
    CHECK_OK(stg_tokens_give(&tokens, &late, 3601 * SECOND, token, &err), err);
    stg_tokens_finish(&tokens);
}

static void a_reply_is_kept_for_its_user_and_five_minutes(void)
{
    struct stg_reply_cache cache = {0};
    stg_reply_cache_add(&cache, 1000, "id", 2, 77, "reply", 5, SECOND);
    const struct stg_cached_reply *reply =
        stg_reply_cache_find(&cache, 1000, "id", 2, 2 * SECOND);
    CHECK(reply != NULL && reply->request == 77 && reply->reply_bytes == 5);
    CHECK(memcmp(reply->bytes + reply->id_bytes, "reply", 5) == 0);
    CHECK(stg_reply_cache_find(&cache, 1001, "id", 2, 2 * SECOND) == NULL);
    CHECK(stg_reply_cache_find(&cache, 1000, "id\0", 3, 2 * SECOND) == NULL);
    CHECK(stg_reply_cache_find(&cache, 1000, "id", 2, 300 * SECOND) != NULL);
    CHECK(stg_reply_cache_find(&cache, 1000, "id", 2, 301 * SECOND) == NULL);
    stg_reply_cache_finish(&cache);
}

static void kept_replies_are_bounded_in_number_and_in_bytes(void)
{
    static char large[65536];
    struct stg_reply_cache cache = {0};
    stg_reply_cache_add(&cache, 1001, "bob", 3, 0, "x", 1, SECOND);
    for (int i = 0; i < STG_REPLY_CACHE_A_USER + 1; i++)
        stg_reply_cache_add(&cache, 1000, &i, sizeof(i), 0, "x", 1, SECOND);
    int first = 0, second = 1, n = 0;
    CHECK(stg_reply_cache_find(&cache, 1000, &first, sizeof(first), SECOND) == NULL);
    CHECK(stg_reply_cache_find(&cache, 1000, &second, sizeof(second), SECOND) != NULL);
    CHECK(stg_reply_cache_find(&cache, 1001, "bob", 3, SECOND) != NULL);
    for (int i = 0; i < 200; i++)
        stg_reply_cache_add(&cache, (uid_t)i, &i, sizeof(i), 0, large, sizeof(large),
                            SECOND);
    for (const struct stg_cached_reply *r = cache.newest; r != NULL; r = r->next)
        n += r->reply_bytes == sizeof(large);
    CHECK(n >= 50 && n <= (int)(STG_REPLY_CACHE_BYTES / sizeof(large)));
    stg_reply_cache_add(&cache, 5, "late", 4, 0, "x", 1, 400 * SECOND);
    /* the expired ones are gone */
    CHECK(cache.newest != NULL && cache.newest->next == NULL);
    stg_reply_cache_finish(&cache);
}

static const struct stg_test tests[] = {
    TEST(a_token_stands_for_its_user_for_an_hour),
    TEST(a_users_oldest_token_makes_room_for_a_new_one),
    TEST(all_tokens_together_are_bounded_until_one_expires),
    TEST(a_reply_is_kept_for_its_user_and_five_minutes),
    TEST(kept_replies_are_bounded_in_number_and_in_bytes),
};

TEST_MAIN(tests)
