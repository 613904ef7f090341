/* SPDX-License-Identifier: Apache-2.0
 *
 * The share of one host in the records of a dataset that several hosts divide: a pure
 * function of the number of a record, the host, the number of hosts and their weights.
 * Records have numbers from 0, in the order of the steps before `shard: auto`, which
 * depends on seed, pass and epoch alone. A round has as many records for each host as the
 * weight of the host says, which follow one another: one without weights. No I/O and no
 * state; any thread.
 */
#ifndef STG_CORE_DIVISION_DEAL_H
#define STG_CORE_DIVISION_DEAL_H

#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"
#include "core/spec.h"

#define STG_DEAL_MAX_HOSTS 1048576u
/* With weights. A round then has fewer than 2^23 records. */
#define STG_DEAL_MAX_WEIGHTED 4096u
#define STG_DEAL_MAX_WEIGHT 1024u

struct stg_deal {
    uint32_t n_hosts; /* 0: nothing is divided */
    uint32_t host;    /* less than n_hosts */
};

/* The records of a host in each round. */
struct stg_deal_share {
    uint32_t n_slots; /* records of a round, of all hosts */
    uint32_t first;   /* the host's first one in it */
    uint32_t n_own;   /* how many follow from there on, at least 1 */
};

/* What a client knows of its data-parallel group. */
struct stg_deal_rank {
    uint32_t rank, size;             /* size 0: the client names none */
    uint32_t local_rank, local_size; /* of the ranks of this host */
};

/* Finds the host of a rank, where each host has local_size ranks that follow one another.
 * INVALID_ARGUMENT: the four numbers contradict one another; the error names them. */
int stg_deal_find(const struct stg_deal_rank *rank, struct stg_deal *ret,
                  struct stg_err *err);

/* Checks the rank among those of this host alone. INVALID_ARGUMENT. */
int stg_deal_check_local(const struct stg_deal_rank *rank, struct stg_err *err);

/* Returns the share of a host. n_hosts is not 0. weights: integers from 1 to
 * STG_DEAL_MAX_WEIGHT, one for each of at most STG_DEAL_MAX_WEIGHTED hosts; NULL: each
 * host has weight 1. */
struct stg_deal_share stg_deal_share(const struct stg_deal *deal,
                                     const struct stg_value *weights);

/* Returns the number of the i-th record that the host takes, where the division began at
 * record `first`. Saturates at UINT64_MAX. */
uint64_t stg_deal_record(const struct stg_deal_share *share, uint64_t first, uint64_t i);

/* Returns how many records the host takes of n, divided by whole rounds. With `pads` an
 * incomplete last round counts as a whole one. Saturates. */
uint64_t stg_deal_count(const struct stg_deal_share *share, uint64_t n, bool pads);

/* Returns how many of the host's last records an incomplete round of n_last records
 * lacks. */
uint32_t stg_deal_missing(const struct stg_deal_share *share, uint32_t n_last);

/* Returns the first record that no host has taken after so many whole rounds. Saturates.
 */
uint64_t stg_deal_after(const struct stg_deal_share *share, uint64_t first,
                        uint64_t rounds);

#endif
