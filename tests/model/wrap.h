/* SPDX-License-Identifier: Apache-2.0
 *
 * The explorer's versions of the functions that the program under test calls: threads,
 * locks, the clock, memory, doorbells. The linker redirects the calls here (--wrap).
 */
#ifndef STG_TESTS_MODEL_WRAP_H
#define STG_TESTS_MODEL_WRAP_H

#include <stdbool.h>
#include <stdint.h>

#define MAX_SOCKETS 4

/* One doorbell wire between the daemon and a client. The descriptor is its index + 1000.
 */
struct wire {
    bool doorbell_to_client, doorbell_to_daemon;
    bool shut; /* by the daemon */
};

struct outside {
    struct wire wires[MAX_SOCKETS];
    uint64_t clock_ns;
    uint32_t timeouts_left; /* waits with a deadline that may still pass */
    bool touched;           /* a client wrote to its page since this was cleared */
    bool fine;              /* also interleave between single accesses to shared pages */
};

/* Lies in the region. Call first in set_up. */
struct outside *outside_create(void);
struct outside *outside(void);

#define SOCKET_OF(wire) ((wire) + 1000)

bool outside_time_left(void);

/* One more process has the segment mapped: it goes when all have unmapped it, and the
 * daemon has destroyed it. */
void outside_map(void *base);
void outside_unmap(void *base);

/* The daemon was killed: it has no segment mapped and waits for nothing. */
void outside_lose_daemon(void);

#endif
