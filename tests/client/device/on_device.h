/* SPDX-License-Identifier: Apache-2.0
 *
 * A fake daemon, a stream of it, and a stand-in for the device on which its batches lie.
 * Failures end the test.
 */
#ifndef STG_TESTS_CLIENT_DEVICE_ON_DEVICE_H
#define STG_TESTS_CLIENT_DEVICE_ON_DEVICE_H

#include "client/stager.h"
#include "tests/client/fake.h"
#include "tests/standin/standin.h"

/* Set by on_device_load, which the others call. */
extern struct standin *standin;
extern const struct stg_device *device;

void on_device_load(void);

/* A stream of the fake daemon on cuda:0. */
struct stager_stream *on_device_open(struct fake *fake, struct stager_options options);

/* A daemon that grants four leases, and a stream of its pipeline on the device: two
 * batches ahead. */
struct stager_stream *on_device_start(struct fake *fake);

/* Nothing of the device is left. */
void on_device_stop(struct fake *fake);

/* Hangs up and closes the stream before that. */
void on_device_finish(struct fake *fake, struct stager_stream *stream);

struct stager_batch *on_device_take(struct stager_stream *stream);
int on_device_next_code(struct stager_stream *stream);

/* What the device has as the first element of x. */
int64_t on_device_seen(const struct stager_batch *batch);

uint64_t on_device_number(const struct stager_batch *batch);

#endif
