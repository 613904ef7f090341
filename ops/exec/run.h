/* SPDX-License-Identifier: Apache-2.0
 *
 * The executor: runs the part of a graph that some fetches need, once for each batch. One
 * executor belongs to one thread at a time; many share a graph. Memory of intermediate
 * tensors is the executor's: tensors that are never needed at once share it, it is reused
 * from batch to batch, no malloc in a steady state.
 */
#ifndef STG_OPS_EXEC_RUN_H
#define STG_OPS_EXEC_RUN_H

#include "ops/base/parallel.h"
#include "ops/graph/graph.h"
#include "ops/partition/partition.h"

struct stg_run;
struct stg_resources;

/* Where fetched outputs go. alloc as in struct stg_op_run, i counting fetches; when NULL
 * all outputs stay in the executor's memory until its next run. */
struct stg_sink {
    void *owner;
    int (*alloc)(void *owner, size_t i, int dtype, int ndim, const int64_t *shape,
                 uint64_t string_bytes, struct stg_tensor *ret, struct stg_err *err);
    /* A fetch that no op writes in place (a feed, a constant, a variable, a view, the
     * second fetch of one tensor) is copied to where it goes. */
    int (*copy)(void *owner, size_t i, const struct stg_tensor *tensor,
                struct stg_err *err);
    /* Fetch i is the tensor that fetch k is, which has its place: it may lie there too.
     * NULL: it is copied. */
    void (*share)(void *owner, size_t i, size_t k);
};

/* Fetch i is tensor i of the batch that is being written. The writer is borrowed. */
struct stg_sink stg_sink_of_batch(struct stg_batch_writer *writer);

/* Variables of a graph: made and initialised once, shared by executors of one process
 * (reads only unless a STATEFUL op runs). RESOURCE_EXHAUSTED names variable and bytes. */
int stg_resources_create(const struct stg_graph *graph, struct stg_resources **ret,
                         struct stg_err *err);
/* Fills variables that say `initializer: npy` (zeros until then), each by a call of
 * `load` with the file that it says. Errors are load's, with node and line before them.
 */
typedef int stg_variable_file(const char *file, struct stg_tensor *variable,
                              struct stg_err *err);
int stg_resources_load(struct stg_resources *resources, const struct stg_graph *graph,
                       stg_variable_file *load, struct stg_err *err);

void stg_resources_destroy(struct stg_resources *resources);

/* The stage side: fetches are the features, feeds the element's components. */
int stg_run_create_stage(const struct stg_graph *graph, struct stg_run **ret,
                         struct stg_err *err);

/* The stage side of another partition: fetches are what crosses. */
int stg_run_create_partition(const struct stg_partition *partition, struct stg_run **ret,
                             struct stg_err *err);

/* The compute side: any node as fetch ("rows", "rows:0", "staged:ids"); feeds are the
 * boundary's tensors, and what the graph was made with (stg_graph_create_fed), set by
 * stg_run_feed. resources, of any graph of the same spec, may be NULL when no fetch needs
 * a variable. NOT_FOUND names the nearest; FAILED_PRECONDITION when a fetch needs the
 * dataset's element, which is not here, or a placeholder that nothing feeds. */
int stg_run_create_compute(const struct stg_graph *graph, struct stg_resources *resources,
                           const char *const *fetches, size_t n_fetches,
                           struct stg_run **ret, struct stg_err *err);

void stg_run_destroy(struct stg_run *run);

/* From the next exec on, ops that can be split over rows are, where there are enough of
 * them; the bytes that come out, and the errors, are the same. parallel is borrowed.
 * RESOURCE_EXHAUSTED. */
int stg_run_parallel(struct stg_run *run, const struct stg_parallel *parallel,
                     struct stg_err *err);

/* From the next exec on, no tensor in the executor's memory, and no scratch of an op, is
 * larger: sizes may be numbers of the data. RESOURCE_EXHAUSTED by stg_run_exec. 0: none.
 */
void stg_run_limit(struct stg_run *run, uint64_t bytes);

/* Observes the nodes of an executor; its functions run on the thread that calls
 * stg_run_exec. The first four are the caller's to set. */
struct stg_run_watcher {
    void *owner;
    /* Before a run. False: no further call for this one. */
    bool (*begin)(void *owner, const struct stg_key *key);
    /* Node `node` (a place in the spec; behind those of the spec, one that the graph made
     * by itself) has run between these times of CLOCK_MONOTONIC, and with it those whose
     * work it does. */
    void (*node)(void *owner, uint32_t node, uint64_t begin_ns, uint64_t end_ns);
    /* After a run that is watched; rc: what stg_run_exec gives back. */
    void (*end)(void *owner, const struct stg_run *run, int rc);

    struct stg_run_watcher *next; /* the executor's */
    bool is_on;                   /* the executor's: in this run */
};

/* From the next exec on, until the executor is destroyed, beside those that watch
 * already. One watcher watches one executor. An executor without a watcher pays a look
 * at a NULL for each exec, and for each node a look at a flag. */
void stg_run_watch(struct stg_run *run, struct stg_run_watcher *watcher);

/* From the next exec on, nodes that do not wait for one another run at once, on up to
 * parallel->n_threads threads: in an exec without a sink and without a watcher, of a
 * graph in which some do not and none writes a variable. The bytes that come out, and the
 * errors, are the same; tensors no longer share memory. Once, after stg_run_parallel,
 * before the first exec. parallel is borrowed. RESOURCE_EXHAUSTED. */
int stg_run_inter_op(struct stg_run *run, const struct stg_parallel *parallel,
                     struct stg_err *err);

/* Does anything depend on feed i of stg_run_exec? Else it may be left zero. */
bool stg_run_needs(const struct stg_run *run, size_t i);

/* Does it write a variable? */
bool stg_run_writes(const struct stg_run *run);

/* Does any op run, or are all fetches what was fed? */
bool stg_run_computes(const struct stg_run *run);

/* Values of feed_dict from the next exec on (in a client: of what is fed): one pointer an
 * entry, NULL for what the file says; values NULL: all as the file says, as after
 * creation. Borrowed until the next call. */
void stg_run_feed(struct stg_run *run, const struct stg_tensor *const *values);

/* Runs once. feeds: element components (stage), which may be coded, or boundary tensors
 * (compute), in schema order. An output that is a coded feed is coded. outputs (may be
 * NULL when a sink is given): one view a fetch, valid until the next exec or destroy;
 * with a sink they point where the sink said, those that were copied to their source.
 * Errors: the op's, with "node NAME (op):" before the text and err->row kept;
 * INVALID_ARGUMENT when a feed has not the dtype and shape it should. */
int stg_run_exec(struct stg_run *run, const struct stg_tensor *feeds,
                 const struct stg_key *key, const struct stg_sink *sink,
                 struct stg_tensor *outputs, struct stg_err *err);

/* Runs the stage side into a batch at rest at `base`, which has `schema`, its fetches.
 * room: as of stg_batch_writer_begin_growing. Sets *ret to the bytes of the batch.
 * Errors: those of stg_run_exec and of writing a batch. */
int stg_run_write(struct stg_run *run, const struct stg_schema *schema,
                  const struct stg_tensor *element, const struct stg_key *key, char *base,
                  uint64_t capacity, const struct stg_batch_room *room, uint64_t *ret,
                  struct stg_err *err);

#endif
