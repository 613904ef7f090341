/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/record.h"

#include <assert.h>
#include <string.h>

#include "daemon/dataset/block.h"

#define WORD 8u
/* Records whose places are known before the first is copied there. */
#define GROUP 32
/* Records that are asked for ahead of the one that is copied, and bytes of each. */
#define AHEAD 8
#define AHEAD_BYTES 512u

/* Components follow: a string as its length (uint64) and its bytes, padded to a word;
 * anything else as a word. */
struct packed {
    struct stg_provenance row; /* reserved: 1; 0 when there is no provenance */
    uint64_t epoch;
};

void stg_record_store_init(struct stg_record_store *store, struct stg_quota *quota,
                           const struct stg_schema *schema)
{
    *store = (struct stg_record_store){.schema = schema, .slabs.quota = quota};
    for (size_t c = 0; c < schema->n; c++) {
        store->boxed |= schema->components[c].ndim > 0;
        store->has_strings |= schema->components[c].dtype == STAGER_STRING;
    }
}

void stg_record_store_finish(struct stg_record_store *store)
{
    assert(store->n == 0);
    stg_slabs_finish(&store->slabs);
}

static uint64_t pad(uint64_t bytes)
{
    return (bytes + WORD - 1) & ~(uint64_t)(WORD - 1);
}

static void *at(const struct stg_record_store *store, struct stg_record record)
{
    return stg_slabs_at(&store->slabs, record.place);
}

/* ---- boxed ---- */

static int copy_one(struct stg_quota *quota, const struct stg_block *block, int64_t i,
                    struct stg_block **ret)
{
    struct stg_block *only;
    int rc = stg_block_slice(quota, (struct stg_block *)block, i, 1, &only, NULL);
    if (rc < 0)
        return rc;
    rc = stg_block_gather(quota, &only, 1, "shuffle", ret, NULL);
    stg_block_unref(only);
    return rc;
}

static int take_boxed(struct stg_record_store *store, const struct stg_block *block,
                      int64_t i, struct stg_record *ret)
{
    struct stg_block *copy;
    uint32_t place = stg_slabs_alloc(&store->slabs, sizeof(copy));
    if (place == 0)
        return -STAGER_RESOURCE_EXHAUSTED;
    int rc = copy_one(store->slabs.quota, block, i, &copy);
    if (rc < 0) {
        stg_slabs_free(&store->slabs, place);
        return rc;
    }
    *ret = (struct stg_record){.place = place};
    memcpy(at(store, *ret), &copy, sizeof(copy));
    store->n++;
    store->n_bytes += copy->bytes;
    return 0;
}

static struct stg_block *boxed(const struct stg_record_store *store,
                               struct stg_record record)
{
    struct stg_block *block;
    memcpy(&block, at(store, record), sizeof(block));
    return block;
}

static void free_boxed(struct stg_record_store *store, struct stg_record record)
{
    struct stg_block *block = boxed(store, record);
    store->n--;
    store->n_bytes -= block->bytes;
    stg_slabs_free(&store->slabs, record.place);
    stg_block_unref(block);
}

/* ---- take ---- */

static uint64_t string_bytes(const struct stg_tensor *tensor, int64_t i)
{
    return (uint64_t)(tensor->end[i] - tensor->begin[i]);
}

static uint64_t packed_bytes(const struct stg_block *block, int64_t i)
{
    uint64_t bytes = sizeof(struct packed);
    for (uint32_t c = 0; c < block->n_components; c++) {
        const struct stg_tensor *tensor = &block->tensors[c];
        bytes += WORD;
        if (tensor->dtype == STAGER_STRING)
            bytes += pad(string_bytes(tensor, i));
    }
    return bytes;
}

static void copy_value(void *to, const void *from, unsigned bytes)
{
    switch (bytes) {
    case 8: memcpy(to, from, 8); break;
    case 4: memcpy(to, from, 4); break;
    case 2: memcpy(to, from, 2); break;
    default: memcpy(to, from, 1); break;
    }
}

static void pack(const struct stg_block *block, int64_t i, struct packed *record)
{
    record->row = block->rows != NULL ? block->rows[i] : (struct stg_provenance){0};
    record->row.reserved = block->rows != NULL;
    record->epoch = block->epoch;
    char *to = (char *)(record + 1);
    for (uint32_t c = 0; c < block->n_components; c++) {
        const struct stg_tensor *tensor = &block->tensors[c];
        const char *data = tensor->data;
        if (tensor->dtype == STAGER_STRING) {
            uint64_t bytes = string_bytes(tensor, i);
            memcpy(to, &bytes, WORD);
            memcpy(to + WORD, data + tensor->begin[i], bytes);
            to += WORD + pad(bytes);
        } else {
            unsigned bytes = stg_dtype_bytes(tensor->dtype);
            copy_value(to, data + (uint64_t)i * bytes, bytes);
            to += WORD;
        }
    }
}

/* Places for up to GROUP records. Returns how many there was memory for. */
static int64_t take_places(struct stg_record_store *store, const struct stg_block *block,
                           int64_t first, int64_t n, struct stg_record *ret)
{
    for (int64_t i = 0; i < n && i < GROUP; i++) {
        uint64_t bytes = packed_bytes(block, first + i);
        uint32_t place =
            bytes / WORD <= UINT32_MAX ? stg_slabs_alloc(&store->slabs, bytes) : 0;
        if (place == 0)
            return i;
        ret[i] = (struct stg_record){.place = place, .words = (uint32_t)(bytes / WORD)};
        store->n++;
        store->n_bytes += bytes;
        for (uint64_t k = 0; k < bytes && k < AHEAD_BYTES; k += STG_SLAB_LINE)
            __builtin_prefetch((char *)at(store, ret[i]) + k, 1);
    }
    return n < GROUP ? n : GROUP;
}

/* Returns how many there was memory for. */
static int64_t take_packed(struct stg_record_store *store, const struct stg_block *block,
                           int64_t first, int64_t n, struct stg_record *ret)
{
    int64_t done = 0, got = GROUP;
    while (done < n && got == GROUP) {
        got = take_places(store, block, first + done, n - done, ret + done);
        for (int64_t i = 0; i < got; i++)
            pack(block, first + done + i, at(store, ret[done + i]));
        done += got;
    }
    return done;
}

int stg_record_take(struct stg_record_store *store, const struct stg_block *block,
                    int64_t first, int64_t n, struct stg_record *ret)
{
    int64_t done = 0;
    if (store->boxed) {
        while (done < n && take_boxed(store, block, first + done, &ret[done]) == 0)
            done++;
    } else {
        done = take_packed(store, block, first, n, ret);
    }
    if (done == n)
        return 0;
    stg_record_free(store, ret, done);
    return -STAGER_RESOURCE_EXHAUSTED;
}

void stg_record_free(struct stg_record_store *store, const struct stg_record *records,
                     int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (store->boxed) {
            free_boxed(store, records[i]);
            continue;
        }
        store->n--;
        store->n_bytes -= (uint64_t)records[i].words * WORD;
        stg_slabs_free(&store->slabs, records[i].place);
    }
}

uint64_t stg_record_epoch(const struct stg_record_store *store, struct stg_record record)
{
    return store->boxed ? boxed(store, record)->epoch
                        : ((const struct packed *)at(store, record))->epoch;
}

/* ---- emit ---- */

static void prefetch(const struct stg_record_store *store, struct stg_record record)
{
    uint64_t bytes = (uint64_t)record.words * WORD;
    for (uint64_t k = 0; k < bytes && k < AHEAD_BYTES; k += STG_SLAB_LINE)
        __builtin_prefetch((const char *)at(store, record) + k);
}

/* Bytes of all components, as they are packed. */
static uint64_t payload_bytes(const struct stg_record *records, int64_t n)
{
    uint64_t words = 0;
    for (int64_t i = 0; i < n; i++)
        words += records[i].words;
    return words * WORD - (uint64_t)n * sizeof(struct packed);
}

static uint64_t column_room(const struct stg_component *component, int64_t n)
{
    if (component->dtype == STAGER_STRING)
        return 2 * stg_block_room((uint64_t)n * sizeof(int64_t));
    return stg_block_room((uint64_t)n * stg_dtype_bytes(component->dtype));
}

/* All strings lie in one piece of memory, as they were packed: which is returned. */
static char *carve_columns(const struct stg_record_store *store, int64_t n,
                           uint64_t data_bytes, struct stg_block *block)
{
    char *data = stg_block_carve(block, data_bytes);
    for (size_t c = 0; c < store->schema->n; c++) {
        struct stg_tensor *tensor = &block->tensors[c];
        *tensor = (struct stg_tensor){
            .dtype = store->schema->components[c].dtype, .ndim = 1, .shape = {n}};
        if (tensor->dtype == STAGER_STRING) {
            tensor->data = data;
            tensor->data_bytes = data_bytes;
            tensor->begin = stg_block_carve(block, (uint64_t)n * sizeof(int64_t));
            tensor->end = stg_block_carve(block, (uint64_t)n * sizeof(int64_t));
        } else {
            tensor->data_bytes = (uint64_t)n * stg_dtype_bytes(tensor->dtype);
            tensor->data = stg_block_carve(block, tensor->data_bytes);
        }
    }
    return data;
}

/* Record i of the block, the components of which lie at `from`; if there are strings,
 * that is `used` bytes behind the beginning of their data. */
static void unpack(struct stg_block *block, int64_t i, const char *from, int64_t used)
{
    uint64_t k = 0;
    for (uint32_t c = 0; c < block->n_components; c++) {
        struct stg_tensor *tensor = &block->tensors[c];
        if (tensor->dtype == STAGER_STRING) {
            uint64_t bytes;
            memcpy(&bytes, from + k, WORD);
            ((int64_t *)tensor->begin)[i] = used + (int64_t)(k + WORD);
            ((int64_t *)tensor->end)[i] = used + (int64_t)(k + WORD + bytes);
            k += WORD + pad(bytes);
        } else {
            unsigned bytes = stg_dtype_bytes(tensor->dtype);
            copy_value((char *)tensor->data + (uint64_t)i * bytes, from + k, bytes);
            k += WORD;
        }
    }
}

/* The components of a record are copied at once, then looked at while they are in the
 * cache. */
static void fill_block(const struct stg_record_store *store,
                       const struct stg_record *records, int64_t n, uint64_t data_bytes,
                       struct stg_block *block)
{
    char *data = carve_columns(store, n, data_bytes, block);
    struct stg_provenance *rows = stg_block_carve(block, (uint64_t)n * sizeof(*rows));
    uint64_t used = 0;
    uint32_t n_rows = 0;
    for (int64_t i = 0; i < n; i++) {
        if (i + AHEAD < n)
            prefetch(store, records[i + AHEAD]);
        const struct packed *record = at(store, records[i]);
        const char *from = (const char *)(record + 1);
        uint64_t bytes = (uint64_t)records[i].words * WORD - sizeof(*record);
        n_rows += record->row.reserved;
        rows[i] = record->row;
        rows[i].reserved = 0;
        if (store->has_strings)
            from = memcpy(data + used, from, bytes);
        unpack(block, i, from, (int64_t)used);
        used += bytes;
    }
    block->rows = n_rows == n ? rows : NULL;
    block->n_records = block->n_rows = n;
    block->epoch = stg_record_epoch(store, records[0]);
}

static int emit_boxed(struct stg_record_store *store, struct stg_record record,
                      struct stg_block **ret)
{
    *ret = stg_block_ref(boxed(store, record));
    free_boxed(store, record);
    return 0;
}

int stg_record_emit(struct stg_record_store *store, const struct stg_record *records,
                    int64_t n, struct stg_block **ret, struct stg_err *err)
{
    assert(n == 1 || !store->boxed);
    if (store->boxed)
        return emit_boxed(store, records[0], ret);
    uint64_t data_bytes = store->has_strings ? payload_bytes(records, n) : 0;
    uint64_t bytes = stg_block_room(data_bytes) +
                     stg_block_room((uint64_t)n * sizeof(struct stg_provenance));
    for (size_t c = 0; c < store->schema->n; c++)
        bytes += column_room(&store->schema->components[c], n);
    struct stg_block *block;
    int rc = stg_block_create(store->slabs.quota, (uint32_t)store->schema->n, bytes, NULL,
                              "a block of shuffle", &block, err);
    if (rc == 0) {
        fill_block(store, records, n, data_bytes, block);
        *ret = block;
    }
    stg_record_free(store, records, n);
    return rc;
}
