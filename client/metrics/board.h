/* SPDX-License-Identifier: Apache-2.0
 *
 * The board: the last numbers of each pipeline, and an hour of history in steps of ten
 * seconds, from the metrics of stagerd. Its memory is bounded: at most
 * STG_BOARD_PIPELINES have an entry. Times are of any monotonic clock. One thread at a
 * time.
 */
#ifndef STG_CLIENT_METRICS_BOARD_H
#define STG_CLIENT_METRICS_BOARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/text/json.h"

#define STG_BOARD_PIPELINES 512
#define STG_BOARD_STEPS 360
#define STG_BOARD_STEP_NS INT64_C(10000000000)

struct stg_board;

/* NULL: no memory. */
struct stg_board *stg_board_create(void);
void stg_board_destroy(struct stg_board *board); /* NULL is allowed */

/* Takes a text for Prometheus, of that time. What is not understood is left out. */
void stg_board_add(struct stg_board *board, const char *text, size_t bytes,
                   int64_t now_ns);

/* Returns when the current step is full: the next text is due. */
int64_t stg_board_due_ns(const struct stg_board *board);

/* Puts the members of an object: at_seconds, memory, pipelines, n_left_out. */
void stg_board_put_status(const struct stg_board *board, struct stg_json_writer *json);

/* Puts the members of an object: the points of the last hour, the newest last; null: not
 * measured. False: there is no entry, and nothing is put. */
bool stg_board_put_history(const struct stg_board *board, const char *name,
                           int64_t now_ns, struct stg_json_writer *json);

#endif
