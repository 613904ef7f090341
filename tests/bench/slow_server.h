/* SPDX-License-Identifier: Apache-2.0
 *
 * A server on loopback, in a separate process, with the latency of distant objects. It
 * serves the same TFRecord file under any name, but never answers names that begin with
 * "never".
 */
#ifndef STG_TESTS_BENCH_SLOW_SERVER_H
#define STG_TESTS_BENCH_SLOW_SERVER_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/storage/codec/crc32c.h"

#define SLOW_RECORD_BYTES 100000u
#define SLOW_N_RECORDS 40
#define SLOW_FRAME_BYTES (STG_FRAME_HEAD + SLOW_RECORD_BYTES + STG_FRAME_TAIL)
#define SLOW_OBJECT_BYTES (SLOW_N_RECORDS * SLOW_FRAME_BYTES)

/* May change at any time; answers in progress may keep the old values. */
struct slow_pace {
    _Atomic uint64_t delay_ns;    /* to the first byte */
    _Atomic uint64_t bytes_per_s; /* of a connection */
};

struct slow_server {
    pid_t pid;
    unsigned port;
    struct slow_pace *pace; /* shared with it */
    const char *object;     /* the object, SLOW_OBJECT_BYTES */
};

/* Starts it; ends the program on failure. One at a time. */
void slow_server_start(struct slow_server *server, uint64_t delay_ns,
                       uint64_t bytes_per_s);
void slow_server_stop(struct slow_server *server);

#endif
