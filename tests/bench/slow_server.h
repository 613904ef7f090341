/* SPDX-License-Identifier: Apache-2.0
 *
 * A server on loopback, a process of its own, that gives the same TFRecord file under any
 * name but those that begin with "never", which it never answers: slowly, as far away
 * objects come.
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

/* May be changed at any time; answers that have begun may come as before. */
struct slow_pace {
    _Atomic uint64_t delay_ns;    /* to the first byte */
    _Atomic uint64_t bytes_per_s; /* of a connection */
};

struct slow_server {
    pid_t pid;
    unsigned port;
    struct slow_pace *pace; /* shared with it */
    const char *object;     /* what it gives, SLOW_OBJECT_BYTES */
};

/* Ends the program where it cannot. One at a time. */
void slow_server_start(struct slow_server *server, uint64_t delay_ns,
                       uint64_t bytes_per_s);
void slow_server_stop(struct slow_server *server);

#endif
