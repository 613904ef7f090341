/* SPDX-License-Identifier: Apache-2.0
 *
 * The way to stagerd: a connection for each exchange, as stagerd may have been started
 * again, and the last failure, which answers all requests of the next second. A stagerd
 * that hangs thus does not delay HTTP clients one after the other. One thread at a time.
 */
#ifndef STG_CLIENT_METRICS_ORIGIN_H
#define STG_CLIENT_METRICS_ORIGIN_H

#include <stdint.h>

#include "client/transport/admin.h"
#include "core/err.h"

/* Zero-initialise, with runtime_dir (NULL: where clients look) and limit_ns. */
struct stg_origin {
    const char *runtime_dir;
    int64_t limit_ns;   /* how long an exchange may take */
    int64_t until_ns;   /* the end of the current one */
    char release[64];   /* of stagerd, when it answered last; "": never */
    uint32_t pid;       /* the same */
    int64_t failed_ns;  /* the end of the last failure */
    struct stg_err err; /* of that failure */
};

/* Connects. Returns 0, or the error, which may be that of the last second. UNAVAILABLE:
 * stagerd does not run. The caller calls stg_origin_end in either case. */
int stg_origin_begin(struct stg_origin *origin, struct stager **ret, struct stg_err *err);

/* The rest of the time of the exchange. */
int64_t stg_origin_left_ns(const struct stg_origin *origin);

/* Closes the connection (NULL: none). A negative rc is a failure of the exchange, with
 * its text: it answers the requests of the next second. */
void stg_origin_end(struct stg_origin *origin, struct stager *client, int rc,
                    const struct stg_err *err);

#endif
