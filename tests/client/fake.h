/* SPDX-License-Identifier: Apache-2.0
 *
 * A fake daemon for tests of the client: a listening socket, one connection, and pages in
 * memfds that the test writes itself. To send wrong replies, a test changes the fields
 * under "replies" before it opens the stream. A failure ends the test.
 */
#ifndef STG_TESTS_CLIENT_FAKE_H
#define STG_TESTS_CLIENT_FAKE_H

#include <pthread.h>

#include "client/stager.h"
#include "core/batch.h"
#include "core/ring.h"
#include "core/state.h"
#include "proto/wire.h"

#define FAKE_SLOTS 32u
#define FAKE_SEGMENT_BYTES (FAKE_SLOTS * STG_GRANULE_BYTES)

struct fake {
    char dir[64];
    int listener;
    int socket; /* connected to the client */
    pthread_t thread;

    int segment_fd, ring_fd, control_fd;
    char *segment;
    uint32_t n_slots;
    uint64_t slot_bytes;
    struct stg_ring_writer ring;
    struct stg_control_reader control;

    /* replies */
    int hello_code;         /* negative: refuses */
    const char *text;       /* the text of a refusal */
    uint32_t version;       /* chosen at hello */
    int open_code;          /* negative: refuses */
    int join_code;          /* likewise */
    uint32_t max_in_flight; /* granted */
    uint64_t segment_bytes;
    uint64_t batch_rows;
    bool unwatched;
    size_t n_fds;         /* sent with the open reply */
    unsigned n_doorbells; /* doorbells before each reply */
    bool unsealed;        /* the segment can shrink */
    const struct stg_pipeline_spec *pipeline;
    const char *irreproducible;
    struct stg_schema boundary;
    bool stays_silent;       /* at open: closes the socket instead of replying */
    uint64_t device_bytes;   /* for memory on a device; n_fds is then 4 */
    uint32_t device_number;  /* the number of that device */
    uint32_t device;         /* the device of published batches */
    const void *device_uuid; /* 16 bytes */
    int device_fd;           /* closed by the test */
    struct stg_rejoin rejoin;
    const char *signature; /* of the pipeline */
    const char *state;     /* of the reply to open; NULL: none */
    uint64_t begins_pass, skip_rows;
    uint64_t generation; /* 0: 1 */
    bool anew;

    /* records; another thread may read n_opened alone */
    _Atomic unsigned n_opened;
    struct stg_request opened;
    char client_id[128];
    char opened_state[STG_STATE_TEXT_BYTES]; /* "": none */
};

/* Listens in a new folder, or in fake->dir if the test has set it: a daemon that was
 * started again. Pages are formatted, the ring is empty. */
void fake_start(struct fake *fake);

/* Like fake_start, with another segment: slots of this size, rounded up to granules. */
void fake_start_with(struct fake *fake, uint32_t n_slots, uint64_t slot_bytes);

/* The client opens the stream; fake->socket is the daemon's end. */
struct stager_stream *fake_open(struct fake *fake, const struct stager_options *options);

/* Like fake_open, for an open that fails. Returns its code; the text is
 * stager_error_text(NULL).
 */
int fake_open_fails(struct fake *fake);

/* Serves one client on a separate thread; fake_join waits until that thread ends. */
void fake_serve(struct fake *fake);
void fake_join(struct fake *fake);

/* Ends like a daemon that is killed: closes the socket and the listener. */
void fake_die(struct fake *fake);

/* Takes the next connection, and answers its hello. */
void fake_accept(struct fake *fake);

/* Receives a request of that kind, and replies with that code. Returns once it did. */
void fake_reply(struct fake *fake, enum stg_request_kind kind, int code,
                const char *text);

/* Closes the socket to the client. The close of a client waits up to a second for
 * this. */
void fake_hang_up(struct fake *fake);

/* Disconnects and removes the folder. */
void fake_stop(struct fake *fake);

/* Disconnects, closes the stream, stops. */
void fake_finish(struct fake *fake, struct stager_stream *stream);

/* Writes a batch {x: int64 [n] of value, value + 1 …} into that slot and publishes it
 * with that number. lease is the slot, lease_generation is 1. */
void fake_publish(struct fake *fake, uint32_t slot, uint64_t number, int64_t value,
                  int64_t n);

/* Like fake_publish: an item of n elements, and where it lies in its pass. */
void fake_publish_from(struct fake *fake, uint32_t slot, uint64_t number,
                       const struct stg_stream_place *from, int64_t value, int64_t n);

/* Publishes an error item with that (positive) code. */
void fake_publish_error(struct fake *fake, uint32_t slot, uint64_t number, int code,
                        const char *text);

/* Publishes the end of a pass. */
void fake_publish_end(struct fake *fake, uint64_t pass);

/* Returns a descriptor of a batch in that slot, for the test to change and push. */
struct stg_descriptor fake_descriptor(struct fake *fake, uint32_t slot, uint64_t number,
                                      uint64_t bytes);

void fake_ring(struct fake *fake); /* Sends a doorbell to the client. */

/* Drains the client's doorbells from the socket and returns their number. */
unsigned fake_doorbells(struct fake *fake);

/* Waits until the client sleeps (its flag is set). */
void fake_wait_asleep(struct fake *fake);

/* Returns the next batch, which must be there. */
struct stager_batch *fake_take(struct stager_stream *stream);

/* Returns the code of stager_next, which must fail. */
int fake_next_code(struct stager_stream *stream);

/* Returns the first element of x. */
int64_t fake_first_value(const struct stager_batch *batch);

/* Returns the releases that the client posted since the last call. */
unsigned fake_releases(struct fake *fake);

/* Skips the test where a child of fork keeps pages with MADV_WIPEONFORK, by which
 * libstager detects a child. qemu-user accepts the advice and does nothing. */
void fake_skip_where_forks_are_hidden(void);

#endif
