/* SPDX-License-Identifier: Apache-2.0
 *
 * What libstager.so asks of libstager-compute.so: one table, found under one name. Both
 * come from the same build, which the first three fields prove; so structs of core/ may
 * cross.
 */
#ifndef STG_CLIENT_COMPUTE_COMPUTE_H
#define STG_CLIENT_COMPUTE_COMPUTE_H

#include "core/batch.h"
#include "core/device.h"
#include "core/spec.h"

#define STG_COMPUTE_ABI 9u
#define STG_COMPUTE_SYMBOL "stager_compute"
#define STG_COMPUTE_LIBRARY "libstager-compute.so"

struct stg_compute_graph;    /* the graph of one pipeline and its variables */
struct stg_compute_executor; /* one list of fetches */

/* The key of a batch's randomness. */
struct stg_compute_key {
    uint64_t seed, pass, epoch, index;
};

/* A node of the graph, by its place in the spec: runs of it that were looked at, their
 * time together, and the mean bytes of each of its outputs. */
struct stg_compute_node {
    uint32_t node;
    uint64_t n, ns;
    const uint64_t *bytes;
    size_t n_bytes;
    bool on_device; /* the time is that of the launch */
};

struct stg_compute_measured {
    uint64_t n_runs, run_ns; /* that were looked at, and their time together */
    const struct stg_compute_node *nodes;
    size_t n_nodes;
};

/* Observes an executor: is_on is called before each run, and `node` after each node of
 * the spec (by its place) that has run, with times of CLOCK_MONOTONIC. */
struct stg_compute_watcher {
    void *owner;
    bool (*is_on)(void *owner);
    void (*node)(void *owner, uint32_t node, uint64_t begin_ns, uint64_t end_ns);
};

/* A device that nodes may run on; `device` has kernels. */
struct stg_compute_device {
    const struct stg_device *device;
    int number;
    struct stg_stream *stream;  /* where they run; batches are copied there before */
    struct stg_stream *trainer; /* where what they give is read; may be the same */
    bool is_auto;               /* only where that measures faster */
    bool forwards;              /* computes nothing: tensors of the boundary alone */
};

/* Of one run, where there is a device. */
struct stg_compute_there {
    void *const *boundary; /* where its tensors lie on the device */
    void *const *carried;  /* where those lie */
    uint64_t number;       /* of the batch */
    bool *outputs;         /* set: one a fetch, is it on the device? */
};

struct stg_result; /* what a run gave, on a device */

struct stg_compute {
    uint32_t abi;          /* STG_COMPUTE_ABI */
    uint32_t struct_bytes; /* sizeof(struct stg_compute) of the library */
    const char *release;   /* of the library */

    /* The nodes of the graph that this build cannot make: an op that it does not have, an
     * attribute or a dtype that the op does not know. ret_names has room for all nodes;
     * strings are the spec's. */
    int (*unsupported)(const struct stg_pipeline_spec *spec,
                       const struct stg_schema *boundary, const char **ret_names,
                       size_t *ret_n, struct stg_err *err);

    /* spec and boundary must outlive the graph. What this build cannot make is an error
     * when an executor needs it, not here. Variables are made here, and the threads
     * of its executors started: as many as nodes may run on at once (inter_op), or parts
     * of one (intra_op), less the caller's own; 0 and 1: none. */
    int (*create)(const struct stg_pipeline_spec *spec, const struct stg_schema *boundary,
                  uint32_t inter_op, uint32_t intra_op, struct stg_compute_graph **ret,
                  struct stg_err *err);
    void (*destroy)(struct stg_compute_graph *graph);

    /* Once, before anything is prepared: the device and its streams must outlive the
     * graph. `lose` forgets it, in a forked child. */
    int (*use_device)(struct stg_compute_graph *graph,
                      const struct stg_compute_device *where, struct stg_err *err);
    void (*lose_device)(struct stg_compute_graph *graph);

    /* fetches are copied. fed: names, dtypes and ranks of what each run feeds; of a
     * tensor that the graph knows the shape is the graph's, of others none is fixed.
     * carried: outputs of nodes that ran before the boundary, likewise; those that are
     * made of what is fed are not used. Executors go before their graph. */
    int (*prepare)(struct stg_compute_graph *graph, const struct stg_schema *fed,
                   const struct stg_schema *carried, const char *const *fetches,
                   size_t n_fetches, struct stg_compute_executor **ret,
                   struct stg_err *err);
    void (*discard)(struct stg_compute_executor *executor);

    /* Once, for the executor's life. */
    void (*watch)(struct stg_compute_executor *executor,
                  const struct stg_compute_watcher *watcher);

    /* Does the executor read tensor i of the boundary? */
    bool (*needs)(const struct stg_compute_executor *executor, size_t i);

    /* boundary: its tensors, in its order; those that are not needed may be zero. fed,
     * carried: in the order of their schemas. there: NULL without a device. outputs: one
     * a fetch, valid until the next run or discard; on a device, until the next run of
     * the graph, as the trainer's stream has it. */
    int (*run)(struct stg_compute_executor *executor, const struct stg_tensor *boundary,
               const struct stg_tensor *fed, const struct stg_tensor *carried,
               const struct stg_compute_there *there, const struct stg_compute_key *key,
               struct stg_tensor *outputs, struct stg_err *err);

    /* What the last run gave on the device, until the next one; NULL: nothing is there.
     */
    struct stg_result *(*last)(const struct stg_compute_graph *graph);
    /* It stays until it is dropped, after which work that is on `after` by then (NULL:
     * the trainer's) may still read it. All before the graph goes. */
    void (*keep)(struct stg_result *result);
    void (*drop)(struct stg_result *result, struct stg_stream *after);
    /* Reached when it is there. */
    struct stg_device_event *(*event)(const struct stg_result *result);

    /* Waits for what runs enqueued on the device, and reports each error of
     * one of them once. */
    int (*synchronize)(struct stg_compute_graph *graph, struct stg_err *err);

    /* Where the last run computed, and why there: "cuda:0", "host: …", truncated to
     * bytes. */
    void (*tell)(const struct stg_compute_executor *executor, char *buf, size_t bytes);

    /* What was measured since the last call; valid until the next run or discard. False:
     * nothing. */
    bool (*measured)(struct stg_compute_executor *executor,
                     struct stg_compute_measured *ret);
};

#endif
