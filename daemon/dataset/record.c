/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/record.h"

#include <assert.h>
#include <string.h>

#include "daemon/dataset/block.h"

/* Components follow: a string as its length (uint64) and its bytes, padded to 8; anything
 * else as 8 bytes. */
struct stg_record {
    uint64_t bytes; /* of all this */
    uint64_t epoch;
    bool has_row;
    struct stg_provenance row;
};

void stg_record_store_init(struct stg_record_store *store, struct stg_quota *quota,
                           const struct stg_schema *schema)
{
    *store = (struct stg_record_store){.schema = schema, .slabs.quota = quota};
    for (size_t c = 0; c < schema->n; c++)
        store->boxed |= schema->components[c].ndim > 0;
}

void stg_record_store_finish(struct stg_record_store *store)
{
    assert(store->n == 0);
    stg_slabs_finish(&store->slabs);
}

static uint64_t pad(uint64_t bytes)
{
    return (bytes + 7) & ~(uint64_t)7;
}

static uint64_t string_bytes(const struct stg_tensor *tensor, int64_t i)
{
    return (uint64_t)(tensor->end[i] - tensor->begin[i]);
}

static uint64_t packed_bytes(const struct stg_block *block, int64_t i)
{
    uint64_t bytes = sizeof(struct stg_record);
    for (uint32_t c = 0; c < block->n_components; c++) {
        const struct stg_tensor *tensor = &block->tensors[c];
        bytes += 8;
        if (tensor->dtype == STAGER_STRING)
            bytes += pad(string_bytes(tensor, i));
    }
    return bytes;
}

static void pack(const struct stg_block *block, int64_t i, struct stg_record *record)
{
    char *at = (char *)(record + 1);
    for (uint32_t c = 0; c < block->n_components; c++) {
        const struct stg_tensor *tensor = &block->tensors[c];
        const char *data = tensor->data;
        if (tensor->dtype == STAGER_STRING) {
            uint64_t bytes = string_bytes(tensor, i);
            memcpy(at, &bytes, 8);
            memcpy(at + 8, data + tensor->begin[i], bytes);
            at += 8 + pad(bytes);
        } else {
            unsigned bytes = stg_dtype_bytes(tensor->dtype);
            memcpy(at, data + (uint64_t)i * bytes, bytes);
            at += 8;
        }
    }
}

static int take_boxed(struct stg_record_store *store, const struct stg_block *block,
                      int64_t i, struct stg_record **ret)
{
    struct stg_quota *quota = store->slabs.quota;
    struct stg_block *only, *copy;
    int rc = stg_block_slice(quota, (struct stg_block *)block, i, 1, &only, NULL);
    if (rc < 0)
        return rc;
    rc = stg_block_gather(quota, &only, 1, "shuffle", &copy, NULL);
    stg_block_unref(only);
    if (rc < 0)
        return rc;
    store->n++;
    store->n_bytes += copy->bytes;
    *ret = (struct stg_record *)copy;
    return 0;
}

int stg_record_take(struct stg_record_store *store, const struct stg_block *block,
                    int64_t i, struct stg_record **ret)
{
    if (store->boxed)
        return take_boxed(store, block, i, ret);
    uint64_t bytes = packed_bytes(block, i);
    struct stg_record *record = stg_slabs_alloc(&store->slabs, bytes);
    if (record == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    *record = (struct stg_record){
        .bytes = bytes, .epoch = block->epoch, .has_row = block->rows != NULL};
    if (block->rows != NULL)
        record->row = block->rows[i];
    pack(block, i, record);
    store->n++;
    store->n_bytes += bytes;
    *ret = record;
    return 0;
}

void stg_record_free(struct stg_record_store *store, struct stg_record *record)
{
    store->n--;
    if (store->boxed) {
        struct stg_block *block = (struct stg_block *)record;
        store->n_bytes -= block->bytes;
        stg_block_unref(block);
    } else {
        store->n_bytes -= record->bytes;
        stg_slabs_free(&store->slabs, record, record->bytes);
    }
}

uint64_t stg_record_epoch(const struct stg_record_store *store,
                          const struct stg_record *record)
{
    return store->boxed ? ((const struct stg_block *)record)->epoch : record->epoch;
}

/* ---- emit ---- */

/* Where the next component of each record is: it moves on from component to component. */
struct cursor {
    const char *at;
};

/* Records lie anywhere in a large buffer: without this every one is a wait for memory. */
#define AHEAD 12
static void prefetch(const void *record, int n_lines)
{
    for (int i = 0; i < n_lines; i++)
        __builtin_prefetch((const char *)record + 64 * i);
}

static uint64_t block_bytes(const struct stg_record_store *store,
                            struct stg_record *const *records, int64_t n)
{
    uint64_t bytes = stg_block_room((uint64_t)n * sizeof(struct stg_provenance)) +
                     stg_block_room((uint64_t)n * sizeof(struct cursor));
    for (int64_t i = 0; i < n; i++) {
        prefetch(records[i + AHEAD < n ? i + AHEAD : n - 1], 1);
        bytes += records[i]->bytes;
    }
    uint64_t a_component = stg_block_room(((uint64_t)n + 1) * sizeof(int64_t)) + 64;
    return stg_block_room(bytes + store->schema->n * a_component);
}

static void emit_strings(struct stg_block *block, struct cursor *cursors, int64_t n,
                         struct stg_tensor *tensor)
{
    int64_t *offsets = stg_block_carve(block, ((uint64_t)n + 1) * sizeof(int64_t));
    uint64_t used = 0;
    for (int64_t i = 0; i < n; i++) {
        uint64_t bytes;
        memcpy(&bytes, cursors[i].at, 8);
        offsets[i] = (int64_t)used;
        used += bytes;
    }
    offsets[n] = (int64_t)used;
    char *data = stg_block_carve(block, used);
    for (int64_t i = 0; i < n; i++) {
        prefetch(cursors[i + AHEAD < n ? i + AHEAD : n - 1].at, 5);
        uint64_t bytes = (uint64_t)(offsets[i + 1] - offsets[i]);
        memcpy(data + offsets[i], cursors[i].at + 8, bytes);
        cursors[i].at += 8 + pad(bytes);
    }
    tensor->data = data;
    tensor->data_bytes = used;
    tensor->begin = offsets;
    tensor->end = offsets + 1;
}

static void emit_dense(struct stg_block *block, struct cursor *cursors, int64_t n,
                       struct stg_tensor *tensor)
{
    uint64_t bytes = stg_dtype_bytes(tensor->dtype);
    char *data = stg_block_carve(block, (uint64_t)n * bytes);
    for (int64_t i = 0; i < n; i++) {
        memcpy(data + (uint64_t)i * bytes, cursors[i].at, bytes);
        cursors[i].at += 8;
    }
    tensor->data = data;
    tensor->data_bytes = (uint64_t)n * bytes;
}

static void emit_rows(struct stg_block *block, struct stg_record *const *records,
                      int64_t n)
{
    struct stg_provenance *rows = stg_block_carve(block, (uint64_t)n * sizeof(*rows));
    for (int64_t i = 0; i < n; i++) {
        if (!records[i]->has_row)
            return;
        rows[i] = records[i]->row;
    }
    block->rows = rows;
}

static int emit_packed(struct stg_record_store *store, struct stg_record *const *records,
                       int64_t n, struct stg_block **ret, struct stg_err *err)
{
    struct stg_block *block;
    int rc = stg_block_create(store->slabs.quota, (uint32_t)store->schema->n,
                              block_bytes(store, records, n), NULL, "a block of shuffle",
                              &block, err);
    if (rc < 0)
        return rc;
    struct cursor *cursors = stg_block_carve(block, (uint64_t)n * sizeof(*cursors));
    for (int64_t i = 0; i < n; i++)
        cursors[i].at = (const char *)(records[i] + 1);
    for (size_t c = 0; c < store->schema->n; c++) {
        struct stg_tensor *tensor = &block->tensors[c];
        *tensor = (struct stg_tensor){
            .dtype = store->schema->components[c].dtype, .ndim = 1, .shape = {n}};
        if (tensor->dtype == STAGER_STRING)
            emit_strings(block, cursors, n, tensor);
        else
            emit_dense(block, cursors, n, tensor);
    }
    emit_rows(block, records, n);
    block->n_records = block->n_rows = n;
    block->epoch = records[0]->epoch;
    *ret = block;
    return 0;
}

int stg_record_emit(struct stg_record_store *store, struct stg_record *const *records,
                    int64_t n, struct stg_block **ret, struct stg_err *err)
{
    if (store->boxed) {
        assert(n == 1);
        struct stg_block *block = stg_block_ref((struct stg_block *)records[0]);
        stg_record_free(store, records[0]);
        *ret = block;
        return 0;
    }
    int rc = emit_packed(store, records, n, ret, err);
    for (int64_t i = 0; i < n; i++)
        stg_record_free(store, records[i]);
    return rc;
}
