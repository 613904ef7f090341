/* SPDX-License-Identifier: Apache-2.0
 *
 * Warm stages before their first client.
 */
#include <inttypes.h>

#include "daemon/stage/priv.h"

static bool are_all_errors(const struct stg_buffer *buffer)
{
    bool all = buffer->first < buffer->next;
    for (uint64_t i = buffer->first; i < buffer->next && all; i++)
        all = buffer->items[stg_buffer_at(buffer, i)].is_error;
    return all;
}

/* A runner that waits has made an item for which there is no room, or finds no memory for
 * another one. */
static bool is_filled(const struct stg_stage *stage)
{
    const struct stg_buffer *buffer = &stage->buffer;
    bool is_over = stg_pass_is_exhausted(&stage->pass) ||
                   stage->pass.n_ended > stage->config.first_pass;
    bool any = buffer->first < buffer->next;
    return is_over || !stg_buffer_has_room(buffer) ||
           (any && stage->runners.n_waiting > 0);
}

int stg_stage_warmth(struct stg_stage *stage, uint64_t *ret_n, struct stg_err *err)
{
    pthread_mutex_lock(&stage->lock);
    const struct stg_err *end = stage->pass.failure.code != 0 ? &stage->pass.failure
                                : stage->stop.is_on           ? &stage->stop.words
                                                              : NULL;
    int rc = is_filled(stage);
    *ret_n = stage->buffer.next - stage->buffer.first;
    if (end != NULL)
        rc = stg_err(err, end->code, "%s", end->text);
    else if (rc == 1 && are_all_errors(&stage->buffer))
        rc = stg_err(err, -STAGER_FAILED_PRECONDITION,
                     "its first %" PRIu64 " items are errors; the last one: %s", *ret_n,
                     stage->counts.last_error);
    pthread_mutex_unlock(&stage->lock);
    return rc;
}

bool stg_stage_is_untouched(struct stg_stage *stage)
{
    pthread_mutex_lock(&stage->lock);
    bool ret = stg_stage_is_warm(stage) && stage->members.n_joining == 0;
    pthread_mutex_unlock(&stage->lock);
    return ret;
}
