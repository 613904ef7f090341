/* SPDX-License-Identifier: Apache-2.0
 *
 * The share of one host in the records of a dataset that several hosts divide: a pure
 * function of the number of a record, the host and the number of hosts. Records have
 * numbers from 0, in the order of the steps before `shard: auto`, which depends on seed,
 * pass and epoch alone. A round is one record for each host. No I/O and no state; any
 * thread.
 */
#ifndef STG_CORE_DIVISION_DEAL_H
#define STG_CORE_DIVISION_DEAL_H

#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"

#define STG_DEAL_MAX_HOSTS 1048576u

struct stg_deal {
    uint32_t n_hosts; /* 0: nothing is divided */
    uint32_t host;    /* less than n_hosts */
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

/* Returns the number of the record that the host takes in that round, where the division
 * began at record `first`. Saturates at UINT64_MAX. */
uint64_t stg_deal_record(const struct stg_deal *deal, uint64_t first, uint64_t round);

/* Returns the number of rounds of n records, the same on every host. */
uint64_t stg_deal_rounds(const struct stg_deal *deal, uint64_t n, bool pads);

/* Returns which of the n_last records of an incomplete last round the host takes with
 * `remainder: pad`: its own, or the first. n_last is from 1 to n_hosts - 1. */
uint32_t stg_deal_pad(const struct stg_deal *deal, uint32_t n_last);

/* Returns the first record that no host has taken after so many whole rounds. Saturates.
 */
uint64_t stg_deal_after(const struct stg_deal *deal, uint64_t first, uint64_t rounds);

#endif
