/* SPDX-License-Identifier: Apache-2.0 */
#include "core/division/deal.h"

#include "core/status.h"

int stg_deal_check_local(const struct stg_deal_rank *rank, struct stg_err *err)
{
    if (rank->local_size > 0 && rank->local_rank < rank->local_size)
        return 0;
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "local_rank %u of local_size %u: local ranks are from 0 to "
                   "local_size - 1",
                   rank->local_rank, rank->local_size);
}

int stg_deal_find(const struct stg_deal_rank *rank, struct stg_deal *ret,
                  struct stg_err *err)
{
    uint32_t local_size = rank->local_size;
    if (rank->size == 0 || rank->rank >= rank->size)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "dp_rank %u of dp_size %u: ranks are from 0 to dp_size - 1",
                       rank->rank, rank->size);
    int rc = stg_deal_check_local(rank, err);
    if (rc < 0)
        return rc;
    if (rank->size % local_size != 0 || rank->size / local_size > STG_DEAL_MAX_HOSTS)
        return stg_err(
            err, -STAGER_INVALID_ARGUMENT,
            "dp_size %u is not a multiple of local_size %u, or has more than %u "
            "hosts: each host has equally many data-parallel ranks",
            rank->size, local_size, STG_DEAL_MAX_HOSTS);
    if (rank->rank % local_size != rank->local_rank)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "dp_rank %u has local_rank %u of local_size %u: the ranks of a "
                       "host must follow one another, so that local_rank is dp_rank "
                       "modulo local_size",
                       rank->rank, rank->local_rank, local_size);
    *ret = (struct stg_deal){.n_hosts = rank->size / local_size,
                             .host = rank->rank / local_size};
    return 0;
}

static uint64_t multiply(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t add(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

struct stg_deal_share stg_deal_share(const struct stg_deal *deal,
                                     const struct stg_value *weights)
{
    if (weights == NULL)
        return (struct stg_deal_share){
            .n_slots = deal->n_hosts, .first = deal->host, .n_own = 1};
    struct stg_deal_share share = {.n_own = (uint32_t)weights[deal->host].i};
    for (uint32_t i = 0; i < deal->n_hosts; i++) {
        share.first += i < deal->host ? (uint32_t)weights[i].i : 0;
        share.n_slots += (uint32_t)weights[i].i;
    }
    return share;
}

uint64_t stg_deal_after(const struct stg_deal_share *share, uint64_t first,
                        uint64_t rounds)
{
    return add(first, multiply(rounds, share->n_slots));
}

uint64_t stg_deal_record(const struct stg_deal_share *share, uint64_t first, uint64_t i)
{
    return add(stg_deal_after(share, first, i / share->n_own),
               share->first + i % share->n_own);
}

uint64_t stg_deal_count(const struct stg_deal_share *share, uint64_t n, bool pads)
{
    uint64_t whole = n / share->n_slots * share->n_own;
    return pads && n % share->n_slots != 0 ? add(whole, share->n_own) : whole;
}

uint32_t stg_deal_missing(const struct stg_deal_share *share, uint32_t n_last)
{
    uint32_t end = share->first + share->n_own;
    uint32_t n = end > n_last ? end - n_last : 0;
    return n < share->n_own ? n : share->n_own;
}
