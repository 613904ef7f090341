/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared memory in hostile hands. The control page, which a client may write at any time,
 * against the daemon's ring and lease core; and what a daemon may write, against the
 * client: a batch at rest and the ring page.
 */
#include <stdalign.h>
#include <stdlib.h>

#include "core/batch.h"
#include "core/lease.h"
#include "core/ring.h"
#include "tests/core/golden_batch.h"
#include "tests/fuzz/fuzz.h"

/* Applies writes of the input to a page: where, how many bytes, the bytes. */
static void write_page(struct stg_fuzz_input *input, void *page, size_t page_bytes)
{
    size_t at = (size_t)stg_fuzz_number(input) % page_bytes;
    size_t n = 1 + stg_fuzz_byte(input) % 16;
    while (n-- > 0)
        ((uint8_t *)page)[(at + n) % page_bytes] = (uint8_t)stg_fuzz_byte(input);
}

/* ---- a batch at rest ---- */

static uint64_t hash_strings(const struct stg_tensor *tensor, int64_t n)
{
    uint64_t hash = 1;
    for (int64_t i = 0; i < n; i++) {
        FUZZ_CHECK(tensor->begin[i] >= 0 && tensor->begin[i] <= tensor->end[i] &&
                   (uint64_t)tensor->end[i] <= tensor->data_bytes);
        hash = stg_fuzz_hash(hash, (const char *)tensor->data + tensor->begin[i],
                             (size_t)(tensor->end[i] - tensor->begin[i]));
    }
    return hash;
}

static void look_at(const char *base, uint64_t bytes, uint32_t i, bool is_full)
{
    struct stg_tensor tensor;
    const char *name;
    stg_batch_tensor_at(base, i, &tensor, &name);
    FUZZ_CHECK(strlen(name) < bytes && stg_batch_find(base, name) >= 0);
    FUZZ_CHECK(tensor.ndim <= STG_LAYOUT_MAX_DIMS);
    int64_t n = 1;
    for (int d = 0; d < tensor.ndim; d++) {
        FUZZ_CHECK(tensor.shape[d] >= 0);
        n *= tensor.shape[d];
    }
    (void)stg_batch_part(base, i);
    if (tensor.dtype == STAGER_STRING) {
        if (is_full)
            (void)hash_strings(&tensor, n);
        return;
    }
    uint64_t n_bytes = (uint64_t)n * stg_dtype_bytes(tensor.dtype);
    FUZZ_CHECK(n_bytes == 0 || ((const char *)tensor.data >= base &&
                                (const char *)tensor.data + n_bytes <= base + bytes));
    (void)stg_fuzz_hash(1, tensor.data, n_bytes);
}

static void run_batch(const uint8_t *data, size_t bytes)
{
    if (bytes < 1)
        return;
    bool is_full = (data[0] & 1) != 0;
    size_t n = bytes - 1;
    char *base = aligned_alloc(64, (n + 63) / 64 * 64 + 64);
    FUZZ_CHECK(base != NULL);
    memcpy(base, data + 1, n);
    struct stg_err err = {0};
    int rc = stg_batch_check(base, n, is_full, &err);
    FUZZ_CHECK(rc == 0 || (rc == -STAGER_DATA_LOSS && err.text[0] != '\0'));
    if (rc == 0) {
        const struct stg_batch_header *header = (const struct stg_batch_header *)base;
        uint64_t first, span;
        for (uint32_t i = 0; header->kind == STG_BATCH_TENSORS && i < header->n_tensors;
             i++)
            look_at(base, n, i, is_full);
        stg_batch_device_span(base, &first, &span);
        FUZZ_CHECK(span <= n && first <= n - span);
        if (is_full && header->kind == STG_BATCH_TENSORS)
            (void)stg_batch_check_parts(base, true, &err);
    }
    free(base);
}

/* ---- a control page against the lease core ---- */

#define N_CLIENTS 2
#define N_EXTENTS 8

struct daemon {
    struct stg_lease_core *core;
    uint32_t extents[N_EXTENTS];
    bool is_there[N_EXTENTS];
    struct client {
        struct stg_control_page *page;
        struct stg_control_reader reader;
        uint32_t id;
        struct stg_lease last; /* granted */
        bool is_detached;
    } clients[N_CLIENTS];
};

static void daemon_start(struct daemon *daemon)
{
    struct stg_err err = {0};
    *daemon = (struct daemon){0};
    int rc = stg_lease_core_create((uint64_t)N_EXTENTS * STG_GRANULE_BYTES, N_EXTENTS,
                                   N_CLIENTS, 16, &daemon->core, &err);
    FUZZ_CHECK_TEXT(rc == 0, err.text);
    for (size_t i = 0; i < N_CLIENTS; i++) {
        struct client *client = &daemon->clients[i];
        client->page = aligned_alloc(64, STG_CONTROL_BYTES);
        FUZZ_CHECK(client->page != NULL);
        memset((void *)client->page, 0, STG_CONTROL_BYTES);
        stg_control_format(client->page, 7);
        client->reader.page = client->page;
        FUZZ_CHECK(stg_lease_client_add(daemon->core, 4, &client->id) == 0);
    }
}

static void daemon_stop(struct daemon *daemon)
{
    struct stg_lease_usage usage;
    for (size_t i = 0; i < N_CLIENTS; i++) {
        stg_lease_client_dead(daemon->core, daemon->clients[i].id, NULL, NULL);
        free(daemon->clients[i].page);
    }
    for (size_t i = 0; i < N_EXTENTS; i++) {
        if (daemon->is_there[i])
            stg_extent_drop(daemon->core, daemon->extents[i]);
    }
    stg_lease_usage(daemon->core, &usage);
    FUZZ_CHECK(usage.free == usage.total);
    stg_lease_core_destroy(daemon->core);
}

/* Publishes an extent, and leases it to the clients that have a credit. */
static void publish(struct daemon *daemon)
{
    size_t i = 0;
    while (i < N_EXTENTS && daemon->is_there[i])
        i++;
    if (i == N_EXTENTS || stg_extent_reserve(daemon->core, 1 + STG_GRANULE_BYTES / 2,
                                             &daemon->extents[i]) != 0)
        return;
    daemon->is_there[i] = true;
    stg_extent_seal(daemon->core, daemon->extents[i], 1000);
    for (size_t c = 0; c < N_CLIENTS; c++) {
        struct client *client = &daemon->clients[c];
        if (stg_lease_client_credits(daemon->core, client->id) > 0)
            (void)stg_lease_grant(daemon->core, daemon->extents[i], client->id,
                                  &client->last);
    }
}

static void drop(struct daemon *daemon, unsigned i)
{
    i %= N_EXTENTS;
    if (daemon->is_there[i])
        stg_extent_drop(daemon->core, daemon->extents[i]);
    daemon->is_there[i] = false;
}

/* What the daemon does with a page at each sweep: reads every word of it, applies the
 * releases, and detaches the author of a violation. */
static void sweep(struct daemon *daemon, struct client *client)
{
    struct stg_release_entry entry;
    struct stg_trace_span span;
    struct stg_err err = {0};
    uint64_t n_missed, other = 0;
    struct client *neighbour =
        &daemon->clients[client == &daemon->clients[0] ? N_CLIENTS - 1 : 0];
    uint32_t held = stg_lease_client_held(daemon->core, neighbour->id);
    (void)stg_control_asked(&client->reader);
    (void)stg_control_taken(&client->reader);
    (void)stg_control_pass_wanted(&client->reader);
    (void)stg_control_parting(&client->reader);
    (void)stg_control_waiting(&client->reader);
    (void)stg_control_waiting_since(&client->reader);
    int rc = 0;
    for (unsigned n = 0; rc == 0 && (rc = stg_control_poll(&client->reader, &entry)) == 1;
         n++) {
        FUZZ_CHECK(n < STG_RELEASE_ENTRIES);
        uint32_t extent;
        struct stg_lease lease = {entry.lease, entry.lease_generation};
        rc = stg_lease_release(daemon->core, client->id, lease, &extent, &err);
        FUZZ_CHECK(rc == 0 || (rc == -STAGER_INVALID_ARGUMENT && err.text[0] != '\0'));
    }
    if (rc < 0 && !client->is_detached) {
        stg_lease_client_detach(daemon->core, client->id);
        client->is_detached = true;
    }
    while (stg_control_poll_span(&client->reader, &span, &n_missed) == 1)
        FUZZ_CHECK(other++ < 2 * STG_CONTROL_SPANS);
    /* No act of a client changes what another one has (I6). */
    FUZZ_CHECK(stg_lease_client_held(daemon->core, neighbour->id) == held);
}

/* Posts a release as a correct client would, of its last lease or of the other's. */
static void release(struct daemon *daemon, struct client *client, bool is_own)
{
    struct client *of = is_own ? client : &daemon->clients[0];
    uint64_t n = atomic_load(&client->page->released);
    client->page->releases[n % STG_RELEASE_ENTRIES] =
        (struct stg_release_entry){of->last.id, of->last.generation};
    atomic_store(&client->page->released, n + 1);
}

static void run_control(const uint8_t *data, size_t bytes)
{
    struct stg_fuzz_input input = {data, data + bytes};
    struct daemon daemon;
    struct stg_err err = {0};
    daemon_start(&daemon);
    for (int n = 0; n < 200 && input.at < input.end; n++) {
        unsigned op = stg_fuzz_byte(&input);
        struct client *client = &daemon.clients[op >> 7];
        switch (op % 8) {
        case 0: publish(&daemon); break;
        case 1: sweep(&daemon, client); break;
        case 2: release(&daemon, client, (op & 8) != 0); break;
        case 3: drop(&daemon, op >> 3); break;
        case 4: atomic_fetch_add(&client->page->released, 1); break;
        case 5: stg_control_skip_spans(&client->reader); break;
        default: write_page(&input, client->page, STG_CONTROL_BYTES);
        }
        /* The other operations write to a page alone. */
        if (op % 8 < 2 || op % 8 == 3)
            FUZZ_CHECK_TEXT(stg_lease_core_verify(daemon.core, &err) == 0, err.text);
    }
    daemon_stop(&daemon);
}

/* ---- a ring page against the client ---- */

static void take(struct stg_ring_reader *reader)
{
    struct stg_descriptor descriptor;
    struct stg_stream_place place;
    struct stg_data_identity identity;
    struct stg_sharing sharing;
    for (int i = 0; i < 4 && stg_ring_take(reader, &descriptor); i++) {
        (void)stg_ring_place_at(reader, reader->cursor, &place);
        stg_ring_data(reader, descriptor.number, &identity);
    }
    /* Odd, it makes the client yield for a bounded time. */
    if (atomic_load(&reader->page->shared) % 2 == 0)
        (void)stg_ring_sharing(reader, &sharing);
    (void)stg_ring_needs_doorbell(reader, 1);
    (void)stg_ring_is_revoked(reader);
    (void)stg_ring_dropped_rows(reader);
    (void)stg_ring_ready(reader);
}

static void run_ring(const uint8_t *data, size_t bytes)
{
    static alignas(4096) uint8_t memory[STG_RING_BYTES];
    struct stg_fuzz_input input = {data, data + bytes};
    struct stg_ring_page *page = (struct stg_ring_page *)(void *)memory;
    struct stg_ring_writer writer = {.page = page};
    struct stg_ring_reader reader = {.page = page};
    struct stg_err err = {0};
    memset(memory, 0, sizeof(memory));
    stg_ring_format(page, 7);
    for (int n = 0; n < 100 && input.at < input.end; n++) {
        struct stg_descriptor descriptor = {.number = (uint64_t)n, .kind = 1};
        unsigned op = stg_fuzz_byte(&input);
        switch (op % 6) {
        case 0: stg_ring_push(&writer, &descriptor); break;
        case 1: take(&reader); break;
        case 2: (void)stg_ring_check(page, STG_RING_BYTES - (op >> 3) * 8, &err); break;
        case 3: stg_ring_finish(&writer, STAGER_ABORTED, "over"); break;
        default: write_page(&input, memory, sizeof(memory));
        }
    }
}

/* ---- the program ---- */

const struct stg_fuzz_mode stg_fuzz_modes[] = {
    {"batch", run_batch},
    {"control", run_control},
    {"ring", run_ring},
};
const size_t stg_fuzz_n_modes = sizeof(stg_fuzz_modes) / sizeof(stg_fuzz_modes[0]);

void stg_fuzz_seeds(void)
{
    stg_fuzz_seed("batch", "\0", 1, golden_tensors, sizeof(golden_tensors));
    stg_fuzz_seed("batch", "\1", 1, golden_tensors, sizeof(golden_tensors));
    stg_fuzz_seed("batch", "\1", 1, golden_error, sizeof(golden_error));
    /* Publish, publish, release, sweep; a word of the counter; the other client. */
    static const uint8_t control[] = {0, 0, 10,  1, 6,    0, 64,  7,    0,   0,    0,
                                      0, 0, 0,   0, 9,    1, 128, 0,    138, 0x81, 130,
                                      1, 3, 134, 1, 0x40, 3, 1,   0x81, 1};
    static const uint8_t ring[] = {0, 0, 1, 4, 0, 64, 3, 9, 0, 0, 0, 1, 2, 3, 1};
    stg_fuzz_seed("control", NULL, 0, control, sizeof(control));
    stg_fuzz_seed("ring", NULL, 0, ring, sizeof(ring));
}
