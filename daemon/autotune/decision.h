/* SPDX-License-Identifier: Apache-2.0
 *
 * What stagerd decided by itself for a pipeline, and why: the last few, for
 * `stagerctl explain`. Zero-initialise; guarded by the stage's lock where it is a
 * stage's.
 */
#ifndef STG_DAEMON_AUTOTUNE_DECISION_H
#define STG_DAEMON_AUTOTUNE_DECISION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STG_MAX_DECISIONS 32

struct stg_decision {
    uint64_t at_ns;   /* CLOCK_MONOTONIC */
    const char *what; /* constant: the setting, "smart_stage", "num_threads" */
    char text[256];   /* what is done, then why, with the numbers */
};

struct stg_decisions {
    struct stg_decision ring[STG_MAX_DECISIONS];
    uint64_t n; /* ever */
};

/* Adds one; the oldest is forgotten. A text that is too long is cut. */
void stg_decide(struct stg_decisions *decisions, uint64_t now_ns, const char *what,
                const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* How many are remembered; i counts from the oldest of them. */
size_t stg_decisions_n(const struct stg_decisions *decisions);
const struct stg_decision *stg_decisions_at(const struct stg_decisions *decisions,
                                            size_t i);

#endif
