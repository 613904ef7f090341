/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/client/device/on_device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"

struct standin *standin;
const struct stg_device *device;
static struct stg_err err;

void on_device_load(void)
{
    char path[4096];
    const char *dir = getenv("STG_STANDIN_DIR");
    CHECK(dir != NULL);
    CHECK_OK(stg_device_cuda(dir, &device, &err), err);
    CHECK_STR(device->name, "standin");
    snprintf(path, sizeof(path), "%s/libstager-cuda.so", dir);
    void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    CHECK(library != NULL);
    void *symbol = dlsym(library, STANDIN_SYMBOL);
    struct standin *(*get)(void);
    CHECK(symbol != NULL);
    memcpy(&get, &symbol, sizeof(get));
    standin = get();
}

struct stager_stream *on_device_open(struct fake *fake, struct stager_options options)
{
    if (standin == NULL)
        on_device_load();
    options.device = "cuda:0";
    return fake_open(fake, &options);
}

struct stager_stream *on_device_start(struct fake *fake)
{
    *fake = (struct fake){0};
    fake_start(fake);
    fake->max_in_flight = 4;
    return on_device_open(
        fake, (struct stager_options){.struct_size = sizeof(struct stager_options)});
}

void on_device_stop(struct fake *fake)
{
    CHECK_INT(standin->n_allocations, 0);
    CHECK_INT(standin->n_streams, 0);
    CHECK_INT(standin->n_events, 0);
    CHECK_INT(standin->n_registered, 0);
    CHECK_INT(standin->n_bounces, 0);
    fake_stop(fake);
}

void on_device_finish(struct fake *fake, struct stager_stream *stream)
{
    fake_hang_up(fake);
    stager_close(stream);
    on_device_stop(fake);
}

struct stager_batch *on_device_take(struct stager_stream *stream)
{
    struct stager_batch *batch = NULL;
    int rc = stager_next(stream, 0, &batch);
    if (rc < 0)
        FAIL("stager_next: %s", stager_error_text(stream));
    return batch;
}

int on_device_next_code(struct stager_stream *stream)
{
    struct stager_batch *batch = NULL;
    int rc = stager_next(stream, 0, &batch);
    CHECK(rc < 0 && batch == NULL);
    return rc;
}

int64_t on_device_seen(const struct stager_batch *batch)
{
    struct stager_tensor x;
    CHECK_INT(stager_batch_tensor(batch, "x", &x), 0);
    CHECK_INT(x.device, 1);
    return *(const int64_t *)standin->see(x.data);
}

uint64_t on_device_number(const struct stager_batch *batch)
{
    struct stager_batch_info info = {.struct_size = sizeof(info)};
    stager_batch_info(batch, &info);
    return info.number;
}
