/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/autotune/decision.h"

#include <stdarg.h>
#include <stdio.h>

void stg_decide(struct stg_decisions *decisions, uint64_t now_ns, const char *what,
                const char *fmt, ...)
{
    struct stg_decision *d = &decisions->ring[decisions->n++ % STG_MAX_DECISIONS];
    d->at_ns = now_ns;
    d->what = what;
    va_list args;
    va_start(args, fmt);
    vsnprintf(d->text, sizeof(d->text), fmt, args);
    va_end(args);
}

size_t stg_decisions_n(const struct stg_decisions *decisions)
{
    return decisions->n < STG_MAX_DECISIONS ? (size_t)decisions->n : STG_MAX_DECISIONS;
}

const struct stg_decision *stg_decisions_at(const struct stg_decisions *decisions,
                                            size_t i)
{
    uint64_t first = decisions->n - stg_decisions_n(decisions);
    return &decisions->ring[(first + i) % STG_MAX_DECISIONS];
}
