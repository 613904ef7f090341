/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/base/dictionary.h"

#include <string.h>

void stg_dictionary_init(struct stg_dictionary *dictionary)
{
    atomic_init(&dictionary->refs, 1);
    atomic_init(&dictionary->n_used, 0);
    pthread_mutex_init(&dictionary->lock, NULL);
    dictionary->n_results = 0;
}

struct stg_dictionary *stg_dictionary_ref(struct stg_dictionary *dictionary)
{
    atomic_fetch_add_explicit(&dictionary->refs, 1, memory_order_relaxed);
    return dictionary;
}

void stg_dictionary_unref(struct stg_dictionary *dictionary)
{
    if (dictionary == NULL ||
        atomic_fetch_sub_explicit(&dictionary->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (uint32_t i = 0; i < dictionary->n_results; i++) {
        if (dictionary->results[i].values != NULL)
            dictionary->give(dictionary, dictionary->results[i].values,
                             dictionary->results[i].bytes);
    }
    pthread_mutex_destroy(&dictionary->lock);
    dictionary->destroy(dictionary);
}

static const struct stg_results *find(const struct stg_dictionary *dictionary,
                                      const struct stg_result_key *key)
{
    for (uint32_t i = 0; i < dictionary->n_results; i++) {
        const struct stg_result_key *of = &dictionary->results[i].key;
        if (of->graph == key->graph && of->made_ns == key->made_ns &&
            of->node == key->node)
            return &dictionary->results[i];
    }
    return NULL;
}

/* Makes the results of all entries. A node without results is remembered, so that they
 * are not made again. With the lock. */
static const struct stg_results *add(struct stg_dictionary *dictionary,
                                     const struct stg_result_key *key, unsigned width,
                                     stg_make_results *make, void *owner)
{
    struct stg_results *ret = &dictionary->results[dictionary->n_results];
    uint64_t n = (uint64_t)dictionary->strings.n,
             values = (n * width + 63) & ~UINT64_C(63);
    uint64_t bytes = values + ((n + 63) & ~UINT64_C(63));
    bool has_bad = false;
    if (dictionary->n_results == STG_MAX_RESULTS)
        return NULL;
    char *memory = dictionary->take(dictionary, bytes);
    if (memory == NULL)
        return NULL;
    uint8_t *bad = (uint8_t *)memory + values;
    memset(bad, 0, n);
    *ret = (struct stg_results){.key = *key, .values = memory, .bytes = bytes};
    if (!make(owner, dictionary, memory, bad, &has_bad)) {
        dictionary->give(dictionary, memory, bytes);
        ret->values = NULL;
    }
    ret->bad = has_bad ? bad : NULL;
    dictionary->n_results++;
    return ret;
}

const struct stg_results *stg_dictionary_results(struct stg_dictionary *dictionary,
                                                 const struct stg_result_key *key,
                                                 unsigned width, stg_make_results *make,
                                                 void *owner)
{
    pthread_mutex_lock(&dictionary->lock);
    const struct stg_results *ret = find(dictionary, key);
    if (ret == NULL)
        ret = add(dictionary, key, width, make, owner);
    pthread_mutex_unlock(&dictionary->lock);
    return ret != NULL && ret->values != NULL ? ret : NULL;
}
