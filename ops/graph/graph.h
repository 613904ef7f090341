/* SPDX-License-Identifier: Apache-2.0
 *
 * The checked graph of a pipeline: names are resolved, cycles refused, dtypes and shapes
 * inferred through every op. It is immutable once made, so that any number of executors
 * (ops/exec/run.h) can share it. The same code runs in daemon and client; the side
 * decides which nodes an executor runs. Equal nodes (op, inputs, attributes) are merged.
 * Nodes that depend only on constants are computed here, and inference uses their
 * values.
 */
#ifndef STG_OPS_GRAPH_GRAPH_H
#define STG_OPS_GRAPH_GRAPH_H

#include "ops/base/op.h"

struct stg_graph;

/* Creates a graph. `spec` must outlive it. `element` is the schema of the dataset's
 * element for one batch; nodes refer to its names. In a client it is NULL: the graph
 * takes boundary dtypes and shapes from `boundary` (the daemon's reply to open) and may
 * leave stage nodes uninferred. If the spec has no features, every component of the
 * element is a feature of the same name. Errors: INVALID_ARGUMENT with node name and
 * line: unknown op, wrong arity, unknown attribute, dtype, shape, cycle, dangling name,
 * duplicate name, a feature that depends on a variable or on "staged:".
 *
 * In a client, an op, attribute or dtype that this build does not know is not an error:
 * the graph omits the node, and the creation of an executor that needs it fails. */
int stg_graph_create(const struct stg_pipeline_spec *spec,
                     const struct stg_schema *element, const struct stg_schema *boundary,
                     struct stg_graph **ret, struct stg_err *err);
void stg_graph_destroy(struct stg_graph *graph);

/* Creates a graph as in a client, with fed tensors: each run supplies the tensors that
 * `fed` names ("node", "node:1", "staged:path", a component of the element; stg_run_feed,
 * in this order). The nodes that produce them are not needed, and their readers are
 * inferred by the dtypes and shapes given here. The last n_carried of them are outputs of
 * nodes that ran before the boundary (ops/partition/partition.h). They replace all equal
 * nodes. Errors, in addition: NOT_FOUND names the nearest; INVALID_ARGUMENT: a variable,
 * or a tensor that is fed twice. */
int stg_graph_create_fed(const struct stg_pipeline_spec *spec,
                         const struct stg_schema *boundary, const struct stg_schema *fed,
                         size_t n_carried, struct stg_graph **ret, struct stg_err *err);

/* In a client: fills ret with the names of the omitted nodes, and returns their number.
 * ret has room for all nodes of the spec, which owns the strings. */
size_t stg_graph_left_out(const struct stg_graph *graph, const char **ret);

/* In a client: returns whether `tensor` is in `fed` or depends on a tensor in it. False
 * if it is not found. */
bool stg_graph_is_made_of(const struct stg_graph *graph, const char *tensor,
                          const struct stg_schema *fed);

/* Returns whether one run can compute the features of many elements, from components with
 * one more (first) dimension. True if every op is STG_OP_ROW_WISE, its inputs from the
 * element have equal rank and its other inputs (except tables) no higher rank, and every
 * feature comes from the element. */
bool stg_graph_is_row_wise(const struct stg_graph *graph);

/* Reads the table of a node of a TABLE op. *ret's data is malloc'ed, and the graph takes
 * it over. */
typedef int stg_graph_table(void *owner, const struct stg_node *node,
                            struct stg_tensor *ret, struct stg_err *err);

/* Calls `load` for each such node, once, before any executor is created. Errors are those
 * of load, after node and line. Without tables, a graph runs only nodes that need none.
 * borrowed: the graph does not own the data, which must outlive it. */
int stg_graph_load_tables(struct stg_graph *graph, bool borrowed, stg_graph_table *load,
                          void *owner, struct stg_err *err);

/* Uses the tables of another graph of the same nodes instead, which must outlive this
 * one. */
void stg_graph_borrow_tables(struct stg_graph *graph, const struct stg_graph *from);

/* Returns the boundary: one component per feature, in the order of the spec; names are
 * paths. */
const struct stg_schema *stg_graph_boundary(const struct stg_graph *graph);

/* Returns an upper bound of the bytes of a batch at rest, if every boundary shape is
 * static and no dtype is string; 0 if it is unknown. */
uint64_t stg_graph_batch_bytes(const struct stg_graph *graph);

/* Returns the bytes of a batch at rest of these tensors, as far as shapes are known;
 * strings count only with their offsets. */
uint64_t stg_graph_schema_least_bytes(const struct stg_schema *schema);

/* Returns the type of the output "node" or "node:k" of an inferred node. NOT_FOUND names
 * the nearest. */
int stg_graph_describe(const struct stg_graph *graph, const char *tensor,
                       struct stg_component *ret, struct stg_err *err);

/* Returns the number of entries of feed_dict, in the order of the file; in a client, of
 * fed tensors. */
size_t stg_graph_n_feeds(const struct stg_graph *graph);

/* Returns the dtype and shape of feed i, and its value in the file (NULL: another
 * tensor).
 */
const struct stg_component *stg_graph_feed(const struct stg_graph *graph, size_t i,
                                           const struct stg_tensor **ret_value);

/* Returns whether a feature depends on feed i. */
bool stg_graph_feed_needed(const struct stg_graph *graph, size_t i);

/* Finds the feed of that tensor that a client may set. NOT_FOUND names the nearest;
 * FAILED_PRECONDITION: there is none. */
int stg_graph_find_feed(const struct stg_graph *graph, const char *name, size_t *ret,
                        struct stg_err *err);

/* Returns the component of the element that feature i passes through unchanged, or -1. A
 * caller can thus skip the executor for a pipeline without ops. */
int stg_graph_passthrough(const struct stg_graph *graph, size_t i);

#endif
