/* SPDX-License-Identifier: Apache-2.0
 *
 * The graph of a pipeline, checked: names resolved, cycles refused, dtypes and shapes
 * inferred through every op. Immutable once made, so that any number of executors
 * (ops/exec/run.h) share it. The same code runs in daemon and client; the side decides
 * which nodes an executor runs. Nodes that are written alike (op, inputs, attributes) are
 * one; what follows from constants alone is computed here, and inference knows it.
 */
#ifndef STG_OPS_GRAPH_GRAPH_H
#define STG_OPS_GRAPH_GRAPH_H

#include "ops/base/op.h"

struct stg_graph;

/* `spec` must outlive the graph. `element` is what the dataset yields for one batch (its
 * names are what nodes refer to); NULL in a client, which then takes boundary dtypes and
 * shapes from `boundary` instead (what the daemon said at open) and may leave stage nodes
 * uninferred. With no features in the spec every component of the element is a feature of
 * its own name. Errors: INVALID_ARGUMENT with node name and line: unknown op, wrong
 * arity, unknown attribute, dtype, shape, cycle, dangling name, duplicate name, a feature
 * that depends on a variable or on "staged:".
 *
 * In a client, what the daemon knows and this build does not (an op, an attribute, a
 * dtype) is no error: the node is left out, and an executor that needs it is not made. */
int stg_graph_create(const struct stg_pipeline_spec *spec,
                     const struct stg_schema *element, const struct stg_schema *boundary,
                     struct stg_graph **ret, struct stg_err *err);
void stg_graph_destroy(struct stg_graph *graph);

/* As stg_graph_create in a client, and the tensors named in `fed` ("node", "node:1",
 * "staged:path", a component of the element) are what each run says (stg_run_feed, in
 * this order): what would have made them is needed no more, and what reads them is
 * inferred by the dtypes and shapes given here. The last n_carried of them are outputs of
 * nodes that ran before the boundary (ops/partition/partition.h). They stand for all
 * nodes that are written alike: no node waits for one of those. Errors also: NOT_FOUND
 * names the nearest; INVALID_ARGUMENT for a variable, and for a tensor that is fed twice.
 */
int stg_graph_create_fed(const struct stg_pipeline_spec *spec,
                         const struct stg_schema *boundary, const struct stg_schema *fed,
                         size_t n_carried, struct stg_graph **ret, struct stg_err *err);

/* In a client: the names of the nodes that were left out; ret has room for all nodes of
 * the spec. Returns how many. Strings are the spec's. */
size_t stg_graph_left_out(const struct stg_graph *graph, const char **ret);

/* In a client: is `tensor` one of those in `fed`, or made of one? One that is not found
 * is not. */
bool stg_graph_is_made_of(const struct stg_graph *graph, const char *tensor,
                          const struct stg_schema *fed);

/* Can the features of many elements be computed at once, from components with one
 * dimension more in front? True when every op is STG_OP_ROW_WISE, its inputs that come
 * from the element have one rank and its others no higher one (but tables), and every
 * feature comes from the element. */
bool stg_graph_is_row_wise(const struct stg_graph *graph);

/* Reads what a node of a TABLE op asks for: *ret's data is from malloc, and the graph's
 * from then on. */
typedef int stg_graph_table(void *owner, const struct stg_node *node,
                            struct stg_tensor *ret, struct stg_err *err);

/* Calls `load` for each such node, once, before any executor is made. Errors are load's,
 * with node and line before them. A graph without them runs what needs none. borrowed:
 * the data are borrowed, and live as long as the graph. */
int stg_graph_load_tables(struct stg_graph *graph, bool borrowed, stg_graph_table *load,
                          void *owner, struct stg_err *err);

/* Instead: the tables of another graph of the same nodes, which must live as long. */
void stg_graph_borrow_tables(struct stg_graph *graph, const struct stg_graph *from);

/* The boundary: one component a feature, in the order of the spec; names are paths. */
const struct stg_schema *stg_graph_boundary(const struct stg_graph *graph);

/* Upper bound in bytes of a batch at rest when every boundary shape is static and no
 * dtype is string; 0 when it is not known. */
uint64_t stg_graph_batch_bytes(const struct stg_graph *graph);

/* Bytes of a batch at rest of these tensors as far as shapes are known; of strings, their
 * offsets. */
uint64_t stg_graph_schema_least_bytes(const struct stg_schema *schema);

/* What the output "node", "node:k" of any inferred node is. NOT_FOUND names the nearest.
 */
int stg_graph_describe(const struct stg_graph *graph, const char *tensor,
                       struct stg_component *ret, struct stg_err *err);

/* Entries of feed_dict, in the order of the file; in a client, of what is fed. */
size_t stg_graph_n_feeds(const struct stg_graph *graph);

/* What feed i is: dtype, shape, and its value as the file has it (NULL: another tensor).
 */
const struct stg_component *stg_graph_feed(const struct stg_graph *graph, size_t i,
                                           const struct stg_tensor **ret_value);

/* Does a feature depend on feed i? */
bool stg_graph_feed_needed(const struct stg_graph *graph, size_t i);

/* The feed of that tensor that a client may set. NOT_FOUND names the nearest;
 * FAILED_PRECONDITION: there is none. */
int stg_graph_find_feed(const struct stg_graph *graph, const char *name, size_t *ret,
                        struct stg_err *err);

/* Component of the element that feature i passes through unchanged, or -1: lets a caller
 * skip the executor for a pipeline without ops. */
int stg_graph_passthrough(const struct stg_graph *graph, size_t i);

#endif
