/* SPDX-License-Identifier: Apache-2.0
 *
 * The strings that coded tensors have in common, each once, and what ops have made of
 * them: an op that maps each string to a number runs once for each entry, and every batch
 * looks its results up. The maker of a dictionary provides the memory, counts what is
 * kept of results, and releases both. Immutable but for the results; any thread.
 */
#ifndef STG_OPS_BASE_DICTIONARY_H
#define STG_OPS_BASE_DICTIONARY_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/batch.h"

/* The results of at most so many nodes are kept. */
#define STG_MAX_RESULTS 8

/* Identifies the node of a graph, for as long as the program runs. */
struct stg_result_key {
    const void *graph;
    uint64_t made_ns; /* another graph at that address has another time */
    uint32_t node;
};

/* The results of a node for all entries. Immutable. */
struct stg_results {
    struct stg_result_key key;
    void *values;       /* one an entry; NULL: there are none */
    const uint8_t *bad; /* which entries have none: 1; NULL: all have some */
    uint64_t bytes;
};

struct stg_dictionary {
    struct stg_strings strings;
    _Atomic uint32_t refs;

    /* Memory of results, aligned to 64; NULL: there is none for them. */
    void *(*take)(struct stg_dictionary *dictionary, uint64_t bytes);
    void (*give)(struct stg_dictionary *dictionary, void *memory, uint64_t bytes);
    /* Frees the struct and what the maker put in it, after the last reference. */
    void (*destroy)(struct stg_dictionary *dictionary);

    _Atomic uint64_t n_used; /* elements that a node was asked about */
    pthread_mutex_t lock;    /* guards what follows; held while results are made */
    struct stg_results results[STG_MAX_RESULTS];
    uint32_t n_results;
};

/* Returns the dictionary of a coded tensor. */
static inline struct stg_dictionary *stg_dictionary_of(const struct stg_tensor *tensor)
{
    return (struct stg_dictionary *)(uintptr_t)tensor->dictionary;
}

/* Initialises refs, lock and results of a dictionary with one reference. */
void stg_dictionary_init(struct stg_dictionary *dictionary);
struct stg_dictionary *stg_dictionary_ref(struct stg_dictionary *dictionary);
void stg_dictionary_unref(struct stg_dictionary *dictionary); /* NULL is allowed */

/* Fills in the results of all entries. bad is zeroed; *ret_bad: it is needed. Returns
 * false if there are no results to keep. */
typedef bool stg_make_results(void *owner, const struct stg_dictionary *dictionary,
                              void *values, uint8_t *bad, bool *ret_bad);

/* Returns the results of that node, and makes them if it is the first call for it. NULL:
 * there are none, or no memory for them. width: bytes of a result. They live as long as
 * the dictionary. */
const struct stg_results *stg_dictionary_results(struct stg_dictionary *dictionary,
                                                 const struct stg_result_key *key,
                                                 unsigned width, stg_make_results *make,
                                                 void *owner);

#endif
