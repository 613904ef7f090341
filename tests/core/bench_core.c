/* SPDX-License-Identifier: Apache-2.0
 *
 * The bookkeeping cost of one batch: ns of CPU time for each call, on one thread. The
 * last line is a JSON object.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/batch.h"
#include "core/lease.h"
#include "core/ring.h"
#include "tests/check.h"

#define ROUNDS 2000000u

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* other processes may run here */
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double bench_ring(void)
{
    struct stg_ring_page *page = aligned_alloc(4096, STG_RING_BYTES);
    memset((void *)page, 0, STG_RING_BYTES);
    stg_ring_format(page, 1);
    struct stg_ring_writer writer = {.page = page};
    struct stg_ring_reader reader = {.page = page};
    struct stg_descriptor d = {.kind = STG_DESCRIPTOR_BATCH};
    double start = now_ns();
    for (uint32_t i = 0; i < ROUNDS; i++) {
        d.number = i;
        stg_ring_push(&writer, &d);
        stg_ring_take(&reader, &d);
    }
    double ns = (now_ns() - start) / ROUNDS;
    free(page);
    return ns;
}

static double bench_control(void)
{
    struct stg_control_page *page = aligned_alloc(4096, STG_CONTROL_BYTES);
    memset((void *)page, 0, STG_CONTROL_BYTES);
    stg_control_format(page, 1);
    struct stg_control_writer writer = {.page = page};
    struct stg_control_reader reader = {.page = page};
    struct stg_release_entry entry = {0};
    double start = now_ns();
    for (uint32_t i = 0; i < ROUNDS; i++) {
        stg_control_release(&writer, entry.lease + 1, i);
        stg_control_poll(&reader, &entry);
    }
    double ns = (now_ns() - start) / ROUNDS;
    free(page);
    return ns;
}

/* With 200 leases out, released in shuffled order. */
static double bench_lease(void)
{
    struct stg_lease_core *core;
    struct stg_lease out[200];
    uint32_t extent, client, freed;
    if (stg_lease_core_create(1ull << 32, 1024, 64, 16384, &core, NULL) < 0 ||
        stg_extent_reserve(core, 1 << 20, &extent) < 0 ||
        stg_lease_client_add(core, 256, &client) < 0)
        exit(1);
    stg_extent_seal(core, extent, 1 << 20);
    for (int i = 0; i < 200; i++)
        stg_lease_grant(core, extent, client, &out[i]);
    double start = now_ns();
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint32_t k = i * 2654435761u % 200;
        stg_lease_release(core, client, out[k], &freed, NULL);
        stg_lease_grant(core, extent, client, &out[k]);
    }
    double ns = (now_ns() - start) / ROUNDS;
    stg_lease_core_destroy(core);
    return ns;
}

/* Reserves, seals to slightly less, drops: 64 GiB, nearly full of extents of `bytes`. */
static double bench_extent(uint64_t bytes)
{
    struct stg_lease_core *core;
    uint32_t n = (uint32_t)((64ull << 30) / bytes), *ids = calloc(n, sizeof(*ids)), id;
    if (stg_lease_core_create(64ull << 30, n, 4, 4, &core, NULL) < 0)
        exit(1);
    for (uint32_t i = 0; i < n; i++)
        stg_extent_reserve(core, bytes, &ids[i]);
    uint32_t rounds = ROUNDS / 20;
    double start = now_ns();
    for (uint32_t i = 0; i < rounds; i++) {
        uint32_t k = i * 2654435761u % n;
        stg_extent_drop(core, ids[k]);
        if (stg_extent_reserve(core, bytes, &id) < 0)
            exit(1);
        ids[k] = id;
    }
    double ns = (now_ns() - start) / rounds;
    stg_lease_core_destroy(core);
    free(ids);
    return ns;
}

static double bench_check(uint32_t n_tensors, int64_t n_rows)
{
    struct stg_component *components = calloc(n_tensors, sizeof(*components));
    struct stg_schema schema = {components, n_tensors};
    uint64_t capacity = (1u << 20) + n_tensors * ((uint64_t)n_rows + 8) * 8;
    void *base = aligned_alloc(4096, (capacity + 4095) & ~4095ull);
    struct stg_batch_writer w;
    struct stg_tensor t;
    for (uint32_t i = 0; i < n_tensors; i++)
        components[i] = (struct stg_component){
            .name = "feature", .dtype = i % 2 ? STAGER_STRING : STAGER_INT64, .ndim = 1};
    if (stg_batch_writer_begin(&w, base, capacity, &schema, NULL) < 0)
        exit(1);
    for (uint32_t i = 0; i < n_tensors; i++) {
        if (stg_batch_writer_alloc(&w, i, components[i].dtype, 1, &n_rows, 0, &t, NULL) <
            0)
            exit(1);
        if (t.begin != NULL)
            memset((int64_t *)t.begin, 0, ((size_t)n_rows + 1) * 8);
    }
    uint64_t bytes = stg_batch_writer_seal(&w);
    uint32_t rounds = ROUNDS / 10, failed = 0;
    double start = now_ns();
    for (uint32_t i = 0; i < rounds; i++)
        failed += stg_batch_check(base, bytes, false, NULL) < 0;
    double ns = (now_ns() - start) / rounds;
    free(components);
    free(base);
    return failed == 0 ? ns : -1;
}

int main(void)
{
    printf("{\"ring_push_take_ns\": %.1f, \"control_release_poll_ns\": %.1f, "
           "\"lease_release_grant_ns\": %.1f, ",
           bench_ring(), bench_control(), bench_lease());
    printf("\"extent_64MiB_ns\": %.1f, \"extent_64KiB_ns\": %.1f, ",
           bench_extent(64u << 20), bench_extent(64u << 10));
    printf("\"check_3_tensors_ns\": %.1f, \"check_40_tensors_ns\": %.1f, "
           "\"check_40_tensors_100k_rows_ns\": %.1f}\n",
           bench_check(3, 100), bench_check(40, 100), bench_check(40, 100000));
    return 0;
}
