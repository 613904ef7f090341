/* SPDX-License-Identifier: Apache-2.0
 *
 * A daemon for tests of the client: a listening socket, one connection, and pages in
 * memfds that the test writes itself. Fields under "what it says" may be changed before
 * the stream is opened, to lie. Failures end the test.
 */
#ifndef STG_TESTS_CLIENT_FAKE_H
#define STG_TESTS_CLIENT_FAKE_H

#include <pthread.h>

#include "client/stager.h"
#include "core/batch.h"
#include "core/ring.h"
#include "proto/wire.h"

#define FAKE_SLOTS 32u
#define FAKE_SEGMENT_BYTES (FAKE_SLOTS * STG_GRANULE_BYTES)

struct fake {
    char dir[64];
    int listener;
    int socket; /* to the client */
    pthread_t thread;

    int segment_fd, ring_fd, control_fd;
    char *segment;
    uint32_t n_slots;
    uint64_t slot_bytes;
    struct stg_ring_writer ring;
    struct stg_control_reader control;

    /* what it says */
    int hello_code;    /* negative: refuses */
    const char *text;  /* of a refusal */
    uint32_t version;  /* chosen at hello */
    int open_code;     /* negative: refuses */
    int join_code;     /* likewise */
    uint32_t max_held; /* granted */
    uint64_t segment_bytes;
    uint64_t batch_rows;
    bool unseen;
    size_t n_fds;     /* with the open reply */
    unsigned n_bells; /* doorbells before each reply */
    bool unsealed;    /* the segment can shrink */
    const struct stg_pipeline_spec *pipeline;
    struct stg_schema boundary;
    bool stays_silent;       /* at open: closes instead */
    uint64_t device_bytes;   /* of memory on a device; with it n_fds is 4 */
    uint32_t device_number;  /* what it is called; */
    uint32_t device;         /* what batches that are published say */
    const void *device_uuid; /* of 16 bytes */
    int device_fd;           /* the test's to close */

    /* what it heard */
    struct stg_request opened;
    char client_id[128];
};

/* Listens in a fresh folder; pages are formatted, nothing is in the ring. */
void fake_start(struct fake *fake);

/* As fake_start, with another segment: slots of so many bytes, whole granules. */
void fake_start_with(struct fake *fake, uint32_t n_slots, uint64_t slot_bytes);

/* The client takes the stream; fake->socket is the other end. */
struct stager_stream *fake_open(struct fake *fake, const struct stager_options *options);

/* As fake_open, for an open that fails: its code. The text is stager_error_text(NULL)'s.
 */
int fake_open_fails(struct fake *fake);

/* Answers one client on a thread of its own; fake_join waits until that is over. */
void fake_serve(struct fake *fake);
void fake_join(struct fake *fake);

/* Closes the socket to the client, who waits a second at its close for that. */
void fake_hang_up(struct fake *fake);

/* Hangs up and removes the folder. */
void fake_stop(struct fake *fake);

/* Hangs up, closes the stream, stops. */
void fake_finish(struct fake *fake, struct stager_stream *stream);

/* Writes a batch {x: int64 [n] of value, value + 1 …} into that slot and publishes
 * it under that number; lease is slot, lease_generation 1. */
void fake_publish(struct fake *fake, uint32_t slot, uint64_t number, int64_t value,
                  int64_t n);

/* Publishes an error item of that code (positive). */
void fake_publish_error(struct fake *fake, uint32_t slot, uint64_t number, int code,
                        const char *text);

/* Publishes the end of a pass. */
void fake_publish_end(struct fake *fake, uint64_t pass);

/* A descriptor of a batch that lies in that slot, to be changed and pushed. */
struct stg_descriptor fake_descriptor(struct fake *fake, uint32_t slot, uint64_t number,
                                      uint64_t bytes);

void fake_ring(struct fake *fake); /* a doorbell to the client */

/* Doorbells of the client that lie in the socket; takes them away. */
unsigned fake_bells(struct fake *fake);

/* Waits until the client sleeps (its flag is set). */
void fake_wait_asleep(struct fake *fake);

/* Releases that the client posted since the last call. */
unsigned fake_releases(struct fake *fake);

/* Skips the test where a child of fork keeps pages with MADV_WIPEONFORK, by which
 * libstager knows a child. qemu-user accepts the advice and does nothing. */
void fake_skip_where_forks_are_hidden(void);

#endif
