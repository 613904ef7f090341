/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/stage/totals.h"

#include <stdlib.h>
#include <string.h>

/* 1, 3, 10 …: a quantile is known to a factor of about 3 over five decades. */
const uint64_t stg_wait_bounds_ns[STG_WAIT_BOUNDS] = {
    100000,    300000,     1000000,    3000000,    10000000,    30000000,
    100000000, 300000000u, 1000000000, 3000000000, 10000000000,
};

void stg_waits_add(struct stg_waits *waits, uint64_t ns)
{
    size_t i = 0;
    while (i < STG_WAIT_BOUNDS && ns > stg_wait_bounds_ns[i])
        i++;
    waits->n[i]++;
    waits->sum_ns += ns;
}

static void add_rank(struct stg_rank_counts *to, const struct stg_rank_counts *from)
{
    for (size_t i = 0; i <= STG_WAIT_BOUNDS; i++)
        to->waits.n[i] += from->waits.n[i];
    to->waits.sum_ns += from->waits.sum_ns;
    to->n_acknowledged += from->n_acknowledged;
    to->held_up_ns += from->held_up_ns;
    to->waiting_ns += from->waiting_ns;
    to->n_held += from->n_held;
    to->n_attached += from->n_attached;
}

static void reserve(struct stg_totals *totals, size_t n)
{
    struct stg_rank_counts *ranks =
        n > totals->n_ranks ? realloc(totals->ranks, n * sizeof(ranks[0])) : NULL;
    if (ranks == NULL)
        return;
    memset(&ranks[totals->n_ranks], 0, (n - totals->n_ranks) * sizeof(ranks[0]));
    totals->ranks = ranks;
    totals->n_ranks = n;
}

void stg_totals_add(struct stg_totals *to, const struct stg_totals *from)
{
    for (size_t i = 0; i < STG_N_TOTALS; i++)
        to->n[i] += from->n[i];
    for (size_t i = 0; i < STG_N_CODES; i++)
        to->errors[i] += from->errors[i];
    reserve(to, from->n_ranks);
    for (size_t i = 0; i < from->n_ranks && i < to->n_ranks; i++)
        add_rank(&to->ranks[i], &from->ranks[i]);
}

void stg_totals_finish(struct stg_totals *totals)
{
    free(totals->ranks);
    *totals = (struct stg_totals){0};
}
