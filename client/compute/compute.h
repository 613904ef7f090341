/* SPDX-License-Identifier: Apache-2.0
 *
 * The interface of libstager-compute.so to libstager.so: one table, under one symbol. The
 * first three fields prove that both come from the same build, so that structs of core/
 * may be passed.
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

/* Measurements of a node of the graph (by its index in the spec): the runs measured,
 * their total time, and the mean bytes of each output. */
struct stg_compute_node {
    uint32_t node;
    uint64_t n, ns;
    const uint64_t *bytes;
    size_t n_bytes;
    bool on_device; /* the time is that of the launch */
};

struct stg_compute_measured {
    uint64_t n_runs, run_ns; /* measured runs, and their total time */
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
    struct stg_stream *stream;  /* nodes run on it, after the copies of the batch */
    struct stg_stream *trainer; /* the trainer reads results on it; may be the same */
    bool is_auto;               /* use the device only if it measures faster */
    bool forwards;              /* computes nothing: only forwards boundary tensors */
};

/* The device side of one run. */
struct stg_compute_there {
    void *const *boundary; /* addresses of the boundary tensors on the device */
    void *const *carried;  /* addresses of the carried tensors */
    uint64_t number;       /* of the batch */
    bool *outputs; /* set by the run: for each fetch, whether it is on the device */
};

struct stg_result; /* the results of a run on a device */

struct stg_compute {
    uint32_t abi;          /* STG_COMPUTE_ABI */
    uint32_t struct_bytes; /* sizeof(struct stg_compute) of the library */
    const char *release;   /* of the library */

    /* Lists the nodes that this build does not support: an unknown op, or an attribute or
     * dtype that the op does not know. ret_names has room for all nodes; the spec owns
     * the strings. */
    int (*unsupported)(const struct stg_pipeline_spec *spec,
                       const struct stg_schema *boundary, const char **ret_names,
                       size_t *ret_n, struct stg_err *err);

    /* Creates a graph. spec and boundary must outlive it. An unsupported node is an error
     * when an executor needs it, not here. Creates the variables, and starts the threads
     * of the executors: inter_op nodes, or intra_op parts of one node, run at once, on
     * these threads and the caller's; 0 and 1: no threads. */
    int (*create)(const struct stg_pipeline_spec *spec, const struct stg_schema *boundary,
                  uint32_t inter_op, uint32_t intra_op, struct stg_compute_graph **ret,
                  struct stg_err *err);
    void (*destroy)(struct stg_compute_graph *graph);

    /* Sets the device, once, before `prepare`. The device and its streams must outlive
     * the graph. lose_device drops it without using it, in a forked child. */
    int (*use_device)(struct stg_compute_graph *graph,
                      const struct stg_compute_device *where, struct stg_err *err);
    void (*lose_device)(struct stg_compute_graph *graph);

    /* Creates an executor. Copies fetches. fed: names, dtypes and ranks of the tensors
     * that each run feeds; if the graph has a tensor, its shape is that of the graph,
     * else it is not fixed. carried: the same for outputs of nodes that ran before the
     * boundary; those that depend on a fed tensor are not used. Discard executors before
     * their graph. */
    int (*prepare)(struct stg_compute_graph *graph, const struct stg_schema *fed,
                   const struct stg_schema *carried, const char *const *fetches,
                   size_t n_fetches, struct stg_compute_executor **ret,
                   struct stg_err *err);
    void (*discard)(struct stg_compute_executor *executor);

    /* Once, for the executor's life. */
    void (*watch)(struct stg_compute_executor *executor,
                  const struct stg_compute_watcher *watcher);

    /* Returns whether the executor reads tensor i of the boundary. */
    bool (*needs)(const struct stg_compute_executor *executor, size_t i);

    /* Runs the executor. boundary: its tensors, in order; unneeded ones may be zeroed.
     * fed, carried: in the order of their schemas. there: NULL without a device. outputs:
     * one for each fetch, valid until the next run or discard; on a device, until the
     * next run of the graph in the order of the trainer's stream. */
    int (*run)(struct stg_compute_executor *executor, const struct stg_tensor *boundary,
               const struct stg_tensor *fed, const struct stg_tensor *carried,
               const struct stg_compute_there *there, const struct stg_compute_key *key,
               struct stg_tensor *outputs, struct stg_err *err);

    /* Returns the results of the last run on the device, valid until the next one, or
     * NULL.
     */
    struct stg_result *(*last)(const struct stg_compute_graph *graph);
    /* Retains a result until `drop`. Work enqueued on `after` (NULL: the trainer's
     * stream) before the drop may still read it. Drop all results before the graph is
     * destroyed. */
    void (*keep)(struct stg_result *result);
    void (*drop)(struct stg_result *result, struct stg_stream *after);
    /* Returns the event that is reached when the result is on the device. */
    struct stg_device_event *(*event)(const struct stg_result *result);

    /* Waits for the work of runs on the device. Reports each error of a run once. */
    int (*synchronize)(struct stg_compute_graph *graph, struct stg_err *err);

    /* Writes where the last run computed, and the reason: "cuda:0", "host: …", truncated
     * to bytes. */
    void (*tell)(const struct stg_compute_executor *executor, char *buf, size_t bytes);

    /* Returns the measurements since the last call, valid until the next run or discard.
     * False: there are none. */
    bool (*measured)(struct stg_compute_executor *executor,
                     struct stg_compute_measured *ret);
};

#endif
