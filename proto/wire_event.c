/* SPDX-License-Identifier: Apache-2.0
 *
 * Events of the gate, both ways.
 */
#include "proto/wire_parts.h"

const char *stg_event_name(enum stg_event_kind kind)
{
    static const char *const names[] = {
        [STG_EVENT_GATE] = "gate",         [STG_EVENT_APPLIED] = "applied",
        [STG_EVENT_DELETED] = "deleted",   [STG_EVENT_STARTED] = "started",
        [STG_EVENT_ENDED] = "ended",       [STG_EVENT_FAILED] = "failed",
        [STG_EVENT_STOPPED] = "stopped",   [STG_EVENT_ATTACHED] = "attached",
        [STG_EVENT_DETACHED] = "detached",
    };
    size_t i = (size_t)kind;
    return i < sizeof(names) / sizeof(names[0]) && names[i] != NULL ? names[i]
                                                                    : "unknown";
}

long stg_wire_encode_event(const struct stg_event *event, void *buf, size_t capacity)
{
    Stager__Event message = STAGER__EVENT__INIT;
    message.instance = event->instance;
    message.sequence = event->sequence;
    message.pipeline = event->pipeline;
    message.kind = (Stager__EventKind)event->kind;
    return stg_wire_pack(&message.base, buf, capacity);
}

int stg_wire_decode_event(const void *buf, size_t bytes, struct stg_event *ret,
                          struct stg_err *err)
{
    struct stg_bump bump;
    stg_bump_init(&bump, 1u << 20);
    ProtobufCMessage *message;
    int rc =
        stg_wire_unpack(&stager__event__descriptor, buf, bytes, &bump, &message, err);
    if (rc == 0) {
        const Stager__Event *m = (Stager__Event *)message;
        *ret = (struct stg_event){.instance = m->instance,
                                  .sequence = m->sequence,
                                  .pipeline = m->pipeline,
                                  .kind = (enum stg_event_kind)m->kind};
    }
    stg_bump_finish(&bump);
    return rc;
}
