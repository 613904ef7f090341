/* SPDX-License-Identifier: Apache-2.0 */
#include "core/clock.h"
#include "ops/exec/priv.h"

void stg_run_watch(struct stg_run *run, struct stg_run_watcher *watcher)
{
    watcher->is_on = false;
    watcher->next = run->watchers;
    run->watchers = watcher;
}

void stg_run_watch_begin(struct stg_run *run, const struct stg_key *key)
{
    bool is_watched = false;
    for (struct stg_run_watcher *w = run->watchers; w != NULL; w = w->next) {
        w->is_on = w->begin(w->owner, key);
        is_watched |= w->is_on;
    }
    run->watched_ns = is_watched ? stg_now_ns() : 0;
}

void stg_run_watch_step(struct stg_run *run, const struct stg_run_step *step)
{
    uint32_t node = (uint32_t)(step->node - run->graph->nodes);
    uint64_t now = stg_now_ns();
    for (struct stg_run_watcher *w = run->watchers; w != NULL; w = w->next) {
        if (w->is_on)
            w->node(w->owner, node, run->watched_ns, now);
    }
    run->watched_ns = stg_now_ns(); /* what they took is no node's */
}

void stg_run_watch_end(struct stg_run *run, int rc)
{
    for (struct stg_run_watcher *w = run->watchers; w != NULL; w = w->next) {
        if (w->is_on)
            w->end(w->owner, run, rc);
    }
    run->watched_ns = 0;
}
