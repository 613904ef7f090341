/* SPDX-License-Identifier: Apache-2.0
 *
 * A fake daemon, a stream attached to it, and a stand-in for the device that holds its
 * batches. A failure ends the test.
 */
#ifndef STG_TESTS_CLIENT_DEVICE_ON_DEVICE_H
#define STG_TESTS_CLIENT_DEVICE_ON_DEVICE_H

#include "client/stager.h"
#include "tests/client/fake.h"
#include "tests/standin/standin.h"

/* Set by on_device_load, which the other functions call. */
extern struct standin *standin;
extern const struct stg_device *device;

void on_device_load(void);

/* Opens a stream of the fake daemon on cuda:0. */
struct stager_stream *on_device_open(struct fake *fake, struct stager_options options);

/* Starts a daemon that grants four leases, and opens a stream on the device that
 * prefetches two batches. */
struct stager_stream *on_device_start(struct fake *fake);

/* Checks that no memory, stream or event of the device is left. */
void on_device_stop(struct fake *fake);

/* Disconnects the daemon, then closes the stream. */
void on_device_finish(struct fake *fake, struct stager_stream *stream);

struct stager_batch *on_device_take(struct stager_stream *stream);
int on_device_next_code(struct stager_stream *stream);

/* Returns the first element of x as the device holds it. */
int64_t on_device_seen(const struct stager_batch *batch);

uint64_t on_device_number(const struct stager_batch *batch);

#endif
