/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/rig.h"

#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "tests/bench/bench.h"

/* stager wraps the default stream like any other, and most trainers work on their default
 * stream. */
int rig_open(struct rig *rig, struct stg_err *err)
{
    const char *dir = getenv("STG_CUDA_DIR");
    int n = 0;
    *rig = (struct rig){0};
    if (dir == NULL || dir[0] == '\0')
        return stg_err(err, -STAGER_UNAVAILABLE, "built without CUDA");
    int rc = stg_device_cuda(dir, &rig->device, err);
    if (rc == 0)
        rc = rig->device->count(&n, err);
    if (rc == 0)
        rc = rig->device->stream_wrap(0, rig_native(rig), &rig->stream, err);
    if (rc == 0)
        rc = rig->device->event_create(0, &rig->event, err);
    return rc;
}

void rig_close(struct rig *rig)
{
    rig->device->event_destroy(rig->event);
    rig->device->stream_destroy(rig->stream);
}

void *rig_native(const struct rig *rig)
{
    return NULL;
}

int rig_wait(const struct rig *rig, struct stg_err *err)
{
    int rc = rig->device->event_record(rig->event, rig->stream, err);
    return rc == 0 ? rig->device->event_wait(rig->event, err) : rc;
}

/* ---- copies ---- */

static void must(int rc, const struct stg_err *err)
{
    if (rc < 0)
        bench_die("copies: %s", err->text);
}

static double rate(const struct rig *rig, void *const *from, char *to, size_t bytes,
                   double seconds)
{
    struct stg_err err = {0};
    uint64_t copied = 0, began = bench_now_ns(), now = began;
    while ((double)(now - began) < seconds * 1e9) {
        for (size_t i = 0; i < RIG_BUFFERS; i++)
            must(rig->device->copy_in(rig->stream, to + i * bytes, from[i], bytes, &err),
                 &err);
        must(rig_wait(rig, &err), &err);
        copied += RIG_BUFFERS * bytes;
        now = bench_now_ns();
    }
    return (double)copied * 1e9 / (double)(now - began);
}

double rig_copy_rate(const struct rig *rig, size_t bytes, bool locked, double seconds)
{
    const struct stg_device *device = rig->device;
    struct stg_err err = {0};
    void *from[RIG_BUFFERS], *to;
    must(device->alloc(0, RIG_BUFFERS * bytes, &to, &err), &err);
    for (int i = 0; i < RIG_BUFFERS; i++) {
        if (locked)
            must(device->host_alloc(bytes, &from[i], &err), &err);
        else if ((from[i] = malloc(bytes)) == NULL)
            bench_die("no memory");
        memset(from[i], 1, bytes);
    }
    rate(rig, from, to, bytes, seconds / 4);
    double ret = rate(rig, from, to, bytes, seconds * 3 / 4);
    for (int i = 0; i < RIG_BUFFERS; i++)
        locked ? device->host_free(from[i]) : free(from[i]);
    device->free(0, to);
    return ret;
}
