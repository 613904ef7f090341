/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/storage/dictionary.h"

#include <stdlib.h>

struct of_chunks {
    struct stg_dictionary dictionary;
    struct stg_quota *quota;
    struct stg_chunk *strings, *offsets;
};

/* What is kept can be made again: readers, which cannot do without, have the other half.
 */
static void *take(struct stg_dictionary *dictionary, uint64_t bytes)
{
    struct stg_quota *quota = ((struct of_chunks *)dictionary)->quota;
    uint64_t half = stg_quota_limit(quota) / 2, used = stg_quota_used(quota);
    if (used > half || bytes > half - used ||
        stg_quota_take(quota, bytes, "results of a dictionary", NULL) < 0)
        return NULL;
    void *ret = aligned_alloc(64, bytes);
    if (ret == NULL)
        stg_quota_give(quota, bytes);
    return ret;
}

static void give(struct stg_dictionary *dictionary, void *memory, uint64_t bytes)
{
    free(memory);
    stg_quota_give(((struct of_chunks *)dictionary)->quota, bytes);
}

static void destroy(struct stg_dictionary *dictionary)
{
    struct of_chunks *own = (struct of_chunks *)dictionary;
    struct stg_quota *quota = own->quota;
    stg_chunk_unref(own->strings);
    stg_chunk_unref(own->offsets);
    stg_quota_give(quota, sizeof(*own));
    free(own);
    stg_quota_unref(quota);
}

int stg_dictionary_create(struct stg_quota *quota, struct stg_chunk *strings,
                          struct stg_chunk *offsets, struct stg_dictionary **ret,
                          struct stg_err *err)
{
    struct of_chunks *own;
    int rc = stg_quota_take(quota, sizeof(*own), "a dictionary", err);
    if (rc < 0)
        return rc;
    own = calloc(1, sizeof(*own));
    if (own == NULL) {
        stg_quota_give(quota, sizeof(*own));
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    }
    stg_dictionary_init(&own->dictionary);
    own->dictionary.take = take;
    own->dictionary.give = give;
    own->dictionary.destroy = destroy;
    own->quota = stg_quota_ref(quota);
    own->strings = strings != NULL ? stg_chunk_ref(strings) : NULL;
    own->offsets = offsets != NULL ? stg_chunk_ref(offsets) : NULL;
    *ret = &own->dictionary;
    return 0;
}
