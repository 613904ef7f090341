/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/record.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/dataset/block.h"
#include "ops/base/dictionary.h"

#define WORD 8u
/* Records whose places are known before the first is copied there. */
#define GROUP 32
/* Records that are asked for ahead of the one that is copied, and bytes of each. */
#define AHEAD 8
#define AHEAD_BYTES 512u

/* Components follow: a string as its length (uint64) and its bytes, padded to a word; a
 * coded one as its code; anything else as a word. */
struct packed {
    /* reserved: 1, or 0 when there is no provenance; and twice the number of its set,
     * from 1, or 0 when nothing is coded. */
    struct stg_provenance row;
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
    for (uint32_t i = 0; i < store->n_sets; i++)
        assert(store->sets[i] == NULL);
    free(store->sets);
    free(store->common);
    store->sets = NULL;
    store->common = NULL;
    store->n_sets = 0;
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

/* ---- sets of dictionaries ---- */

static uint64_t set_bytes(const struct stg_record_store *store)
{
    return sizeof(struct stg_record_set) +
           store->schema->n * sizeof(store->sets[0]->dictionaries[0]);
}

static struct stg_record_set *set_of(const struct stg_record_store *store,
                                     const struct packed *record)
{
    uint32_t set = record->row.reserved >> 1;
    return set != 0 ? store->sets[set - 1] : NULL;
}

static const struct stg_strings *dictionary_at(const struct stg_record_set *set, size_t c)
{
    return set != NULL ? set->dictionaries[c] : NULL;
}

static void drop_set(struct stg_record_store *store, uint32_t i)
{
    for (size_t c = 0; c < store->schema->n; c++) {
        struct stg_tensor tensor = {.dictionary = store->sets[i]->dictionaries[c]};
        stg_dictionary_unref(stg_dictionary_of(&tensor));
    }
    free(store->sets[i]);
    store->sets[i] = NULL;
    stg_quota_give(store->slabs.quota, set_bytes(store));
}

static bool is_set(const struct stg_record_set *set, const struct stg_block *block)
{
    for (uint32_t c = 0; c < block->n_components; c++) {
        if (set->dictionaries[c] != block->tensors[c].dictionary)
            return false;
    }
    return true;
}

static bool is_coded(const struct stg_block *block)
{
    for (uint32_t c = 0; c < block->n_components; c++) {
        if (block->tensors[c].dictionary != NULL)
            return true;
    }
    return false;
}

/* A place for one more set. */
static bool grow_sets(struct stg_record_store *store, uint32_t *ret)
{
    for (uint32_t i = 0; i < store->n_sets; i++) {
        if (store->sets[i] == NULL) {
            *ret = i;
            return true;
        }
    }
    if (store->common == NULL)
        store->common = calloc(store->schema->n, sizeof(*store->common));
    struct stg_record_set **sets =
        realloc(store->sets, (store->n_sets + 1) * sizeof(*sets));
    if (sets != NULL)
        store->sets = sets;
    if (sets == NULL || store->common == NULL || store->n_sets == UINT32_MAX / 2 - 1)
        return false;
    *ret = store->n_sets++;
    store->sets[*ret] = NULL;
    return true;
}

/* Sets *ret to the number of the set of a block, from 1; 0: nothing is coded. */
static int find_set(struct stg_record_store *store, const struct stg_block *block,
                    uint32_t *ret)
{
    uint32_t i;
    *ret = 0;
    if (!is_coded(block))
        return 0;
    for (i = 0; i < store->n_sets; i++) {
        if (store->sets[i] != NULL && is_set(store->sets[i], block)) {
            *ret = i + 1;
            return 0;
        }
    }
    if (!grow_sets(store, &i) ||
        stg_quota_take(store->slabs.quota, set_bytes(store), "", NULL) < 0)
        return -STAGER_RESOURCE_EXHAUSTED;
    store->sets[i] = calloc(1, set_bytes(store));
    if (store->sets[i] == NULL) {
        stg_quota_give(store->slabs.quota, set_bytes(store));
        return -STAGER_RESOURCE_EXHAUSTED;
    }
    for (uint32_t c = 0; c < block->n_components; c++) {
        store->sets[i]->dictionaries[c] = block->tensors[c].dictionary;
        if (block->tensors[c].dictionary != NULL)
            stg_dictionary_ref(stg_dictionary_of(&block->tensors[c]));
    }
    *ret = i + 1;
    return 0;
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
        if (tensor->dtype == STAGER_STRING && tensor->dictionary == NULL)
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

static void pack(const struct stg_block *block, int64_t i, uint32_t set,
                 struct packed *record)
{
    record->row = block->rows != NULL ? block->rows[i] : (struct stg_provenance){0};
    record->row.reserved = (block->rows != NULL) | set << 1;
    record->epoch = block->epoch;
    char *to = (char *)(record + 1);
    for (uint32_t c = 0; c < block->n_components; c++) {
        const struct stg_tensor *tensor = &block->tensors[c];
        const char *data = tensor->data;
        if (tensor->dictionary != NULL) {
            uint64_t code = (uint64_t)tensor->codes[i];
            memcpy(to, &code, WORD);
            to += WORD;
        } else if (tensor->dtype == STAGER_STRING) {
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
    uint32_t set;
    if (find_set(store, block, &set) < 0)
        return 0;
    while (done < n && got == GROUP) {
        got = take_places(store, block, first + done, n - done, ret + done);
        for (int64_t i = 0; i < got; i++)
            pack(block, first + done + i, set, at(store, ret[done + i]));
        done += got;
    }
    if (set != 0)
        store->sets[set - 1]->n += (uint64_t)done;
    if (set != 0 && store->sets[set - 1]->n == 0)
        drop_set(store, set - 1);
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

static void leave_set(struct stg_record_store *store, const struct packed *record)
{
    struct stg_record_set *set = set_of(store, record);
    if (set != NULL && --set->n == 0)
        drop_set(store, (record->row.reserved >> 1) - 1);
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
        if (store->n_sets > 0)
            leave_set(store, at(store, records[i]));
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

/* ---- coded components ---- */

/* Finds the dictionaries that all records have in common. Returns whether any string
 * is not coded with such a one. */
static bool find_common(const struct stg_record_store *store,
                        const struct stg_record *records, int64_t n)
{
    bool ret = false;
    const struct stg_record_set *last = NULL;
    for (int64_t i = 0; i < n; i++) {
        const struct stg_record_set *set = set_of(store, at(store, records[i]));
        if (i > 0 && set == last)
            continue;
        for (size_t c = 0; c < store->schema->n; c++) {
            const struct stg_strings *dictionary = dictionary_at(set, c);
            if (i == 0)
                store->common[c] = dictionary;
            else if (store->common[c] != dictionary)
                store->common[c] = NULL;
        }
        last = set;
    }
    for (size_t c = 0; c < store->schema->n; c++)
        ret |= store->schema->components[c].dtype == STAGER_STRING &&
               store->common[c] == NULL;
    return ret;
}

static const struct stg_strings *common_at(const struct stg_record_store *store, size_t c)
{
    return store->n_sets > 0 ? store->common[c] : NULL;
}

/* Returns the bytes of coded strings whose dictionaries differ. */
static uint64_t entry_bytes(const struct stg_record_store *store,
                            const struct stg_record *records, int64_t n)
{
    uint64_t ret = 0;
    for (int64_t i = 0; i < n; i++) {
        const struct packed *record = at(store, records[i]);
        const struct stg_record_set *set = set_of(store, record);
        const char *from = (const char *)(record + 1);
        for (size_t c = 0; set != NULL && c < store->schema->n; c++) {
            const struct stg_strings *dictionary = set->dictionaries[c];
            uint64_t word;
            memcpy(&word, from, WORD);
            from += WORD;
            if (store->schema->components[c].dtype != STAGER_STRING)
                continue;
            if (dictionary == NULL)
                from += pad(word);
            else if (store->common[c] == NULL)
                ret += (uint64_t)(dictionary->end[word] - dictionary->begin[word]);
        }
    }
    return ret;
}

static uint64_t column_room(const struct stg_record_store *store, size_t c, int64_t n)
{
    const struct stg_component *component = &store->schema->components[c];
    if (common_at(store, c) != NULL)
        return stg_block_room((uint64_t)n * sizeof(int32_t));
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
        if (common_at(store, c) != NULL) {
            tensor->dictionary = store->common[c];
            tensor->data = (void *)(uintptr_t)tensor->dictionary->data;
            tensor->data_bytes = tensor->dictionary->data_bytes;
            tensor->codes = stg_block_carve(block, (uint64_t)n * sizeof(int32_t));
            stg_block_hold_dictionary(block, (uint32_t)c);
        } else if (tensor->dtype == STAGER_STRING) {
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

/* What is copied to a block: the components of the records, then strings of
 * dictionaries. */
struct filling {
    struct stg_block *block;
    char *data;
    uint64_t used;    /* by the components of the records before */
    uint64_t entries; /* where the next string of a dictionary goes */
};

/* A coded string. */
static void unpack_code(struct filling *to, int64_t i, struct stg_tensor *tensor,
                        const struct stg_strings *dictionary, uint64_t code)
{
    if (tensor->codes != NULL) {
        ((int32_t *)(uintptr_t)tensor->codes)[i] = (int32_t)code;
        return;
    }
    uint64_t bytes = (uint64_t)(dictionary->end[code] - dictionary->begin[code]);
    memcpy(to->data + to->entries, dictionary->data + dictionary->begin[code], bytes);
    ((int64_t *)tensor->begin)[i] = (int64_t)to->entries;
    to->entries += bytes;
    ((int64_t *)tensor->end)[i] = (int64_t)to->entries;
}

/* Record i of the block, the components of which lie at `from`; if there are strings
 * that are not coded, that is `used` bytes behind the beginning of their data. */
static void unpack(struct filling *to, int64_t i, const char *from,
                   const struct stg_record_set *set)
{
    uint64_t k = 0;
    for (uint32_t c = 0; c < to->block->n_components; c++) {
        struct stg_tensor *tensor = &to->block->tensors[c];
        uint64_t word;
        memcpy(&word, from + k, WORD);
        k += WORD;
        if (dictionary_at(set, c) != NULL) {
            unpack_code(to, i, tensor, dictionary_at(set, c), word);
        } else if (tensor->dtype == STAGER_STRING) {
            ((int64_t *)tensor->begin)[i] = (int64_t)(to->used + k);
            ((int64_t *)tensor->end)[i] = (int64_t)(to->used + k + word);
            k += pad(word);
        } else {
            unsigned bytes = stg_dtype_bytes(tensor->dtype);
            copy_value((char *)tensor->data + (uint64_t)i * bytes, from + k - WORD,
                       bytes);
        }
    }
}

/* The components of a record are copied at once, then looked at while they are in the
 * cache. */
static void fill_block(const struct stg_record_store *store,
                       const struct stg_record *records, int64_t n, uint64_t payload,
                       uint64_t data_bytes, struct stg_block *block)
{
    struct filling to = {.block = block,
                         .data = carve_columns(store, n, data_bytes, block),
                         .entries = payload};
    struct stg_provenance *rows = stg_block_carve(block, (uint64_t)n * sizeof(*rows));
    uint32_t n_rows = 0;
    for (int64_t i = 0; i < n; i++) {
        if (i + AHEAD < n)
            prefetch(store, records[i + AHEAD]);
        const struct packed *record = at(store, records[i]);
        const char *from = (const char *)(record + 1);
        uint64_t bytes = (uint64_t)records[i].words * WORD - sizeof(*record);
        n_rows += record->row.reserved & 1;
        rows[i] = record->row;
        rows[i].reserved = 0;
        if (payload > 0)
            from = memcpy(to.data + to.used, from, bytes);
        unpack(&to, i, from, set_of(store, record));
        to.used += bytes;
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
    bool has_strings =
        store->n_sets > 0 ? find_common(store, records, n) : store->has_strings;
    uint64_t payload = has_strings ? payload_bytes(records, n) : 0, data_bytes = payload;
    if (has_strings && store->n_sets > 0)
        data_bytes += entry_bytes(store, records, n);
    uint64_t bytes = stg_block_room(data_bytes) +
                     stg_block_room((uint64_t)n * sizeof(struct stg_provenance));
    for (size_t c = 0; c < store->schema->n; c++)
        bytes += column_room(store, c, n);
    struct stg_block *block;
    int rc = stg_block_create(store->slabs.quota, (uint32_t)store->schema->n, bytes, NULL,
                              "a block of shuffle", &block, err);
    if (rc == 0) {
        fill_block(store, records, n, payload, data_bytes, block);
        *ret = block;
    }
    stg_record_free(store, records, n);
    return rc;
}
