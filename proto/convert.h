/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts pipeline messages to core/spec.h and back, and unpacks messages under a limit.
 * Shared by the loader and the wire code; only proto/ sees generated code. Any thread.
 */
#ifndef STG_PROTO_CONVERT_H
#define STG_PROTO_CONVERT_H

#include "core/spec.h"
#include "proto/control.pb-c.h"
#include "proto/pipeline.pb-c.h"

/* All that unpacking one message may take: 64 KiB of empty messages would want 5 MB. */
#define STG_UNPACK_MAX_BYTES (1u << 20)

/* A pipeline may be this large, packed and unpacked, so that an open reply can carry it
 * together with the boundary. */
#define STG_PIPELINE_MAX_BYTES 49152u
#define STG_PIPELINE_UNPACK_MAX_BYTES (3u << 18)

/* Counts what protobuf-c asks for and refuses above the limit. The memory is the bump's;
 * free does nothing. init/finish: the caller's; nothing to finish. */
struct stg_unpack {
    ProtobufCAllocator allocator;
    struct stg_bump *bump;
    size_t limit, used;
    char *slab; /* small requests share slabs: a bump rounds up to 64 */
    size_t slab_left;
    bool refused;   /* for the limit */
    bool exhausted; /* the bump had no more */
};

void stg_unpack_init(struct stg_unpack *unpack, struct stg_bump *bump, size_t limit);

/* Fills a spec, whose bump must be initialised, from a message that lives in the same
 * bump: strings are shared. Checks what the wire could get wrong: INVALID_ARGUMENT. */
int stg_convert_to_spec(const Stager__Pipeline *message, struct stg_pipeline_spec *spec,
                        struct stg_err *err);

/* Converts the attributes of values, by name, into arrays of bump; NULL: none. */
int stg_convert_values(const Stager__Values *from, struct stg_bump *bump,
                       const struct stg_attr **ret, size_t *ret_n, struct stg_err *err);

/* A message that points into the spec, arrays in `bump`; without the dataset, which is
 * the daemon's business. NULL: out of memory. */
Stager__Pipeline *stg_convert_from_spec(const struct stg_pipeline_spec *spec,
                                        struct stg_bump *bump);

#endif
