/* SPDX-License-Identifier: Apache-2.0
 *
 * `smart_stage: auto` of a stage: what was measured becomes a problem of
 * daemon/placement/cost.h, the best few cuts of it are tried by
 * daemon/placement/smartstage.h, and what that says is set. Belongs to the loop.
 */
#ifndef STG_DAEMON_STAGE_AUTO_CUT_H
#define STG_DAEMON_STAGE_AUTO_CUT_H

struct stg_stage;
struct stg_auto_cut;

/* Of a stage whose pipeline says so. NULL: out of memory; then its cut is its own. */
struct stg_auto_cut *stg_auto_cut_create(struct stg_stage *stage);
void stg_auto_cut_destroy(struct stg_auto_cut *a); /* NULL is allowed */

/* Milliseconds until the next call. */
int stg_auto_cut_tick(struct stg_auto_cut *a);

#endif
