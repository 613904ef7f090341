/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of a graph, for ops/graph, ops/partition and ops/exec. Everything lives in
 * the graph's bump and is immutable once stg_graph_create has returned.
 */
#ifndef STG_OPS_GRAPH_PRIV_H
#define STG_OPS_GRAPH_PRIV_H

#include <stdbool.h>

#include "ops/graph/graph.h"

enum stg_ref_kind {
    STG_REF_NODE,    /* output `output` of node `index` */
    STG_REF_ELEMENT, /* component `index` of the dataset's element */
    STG_REF_STAGED,  /* boundary tensor `index` */
    STG_REF_FEED,    /* feed `index` of feed_dict, instead of what it replaces */
    STG_REF_UNKNOWN, /* in a client: a component of an element that is not known here */
};

struct stg_ref {
    enum stg_ref_kind kind;
    uint32_t index;
    uint32_t output;
};

/* What a tensor comes from, directly or not. */
enum stg_depends {
    STG_DEPENDS_ELEMENT = 1,
    STG_DEPENDS_STAGED = 2,
    STG_DEPENDS_VARIABLE = 4,
    STG_DEPENDS_PLACEHOLDER = 8, /* that nothing feeds */
    STG_DEPENDS_TABLE = 16,      /* a vocabulary, which only the stage side has */
};

struct stg_graph_node {
    const struct stg_node *spec;
    const struct stg_op *op;
    struct stg_ref *inputs;
    const char **input_names; /* as written */
    size_t n_inputs;
    uint32_t *controls; /* nodes that run before, whose outputs are not read */
    size_t n_controls;
    unsigned depends; /* enum stg_depends, of all ancestors and of itself */
    bool inferred;
    bool in_rows; /* row i of what it reads is made of row i of the element */
    struct stg_component *outputs;
    size_t n_outputs;
    const void *plan;
    const struct stg_tensor *values; /* of all outputs, where they are known; else NULL */
    uint32_t same_as; /* the node that computes this: an equal one before it, or itself */
    const struct stg_err *why; /* in a client: this build cannot make it; else NULL */
    struct stg_tensor table;   /* of a TABLE op, once loaded; the data is the graph's,
                                  unless it borrows */
};

/* An entry of feed_dict; in a client, what stager_run feeds. */
struct stg_graph_feed {
    const struct stg_feed *spec;
    struct stg_ref target; /* what is replaced; no reference to it is left. UNKNOWN:
                              in a client, the component of that name */
    bool has_source;       /* by another tensor: `source`; else by `value` */
    struct stg_ref source; /* no feed that has a source itself */
    struct stg_tensor value;
    struct stg_component component;
    bool is_ready;   /* value and component are there */
    bool is_needed;  /* a feature depends on it */
    bool is_carried; /* in a client: an output of a node that ran before the boundary */
};

/* A feature that crosses in half the width; the nodes are behind those of the file. */
struct stg_graph_transfer {
    struct stg_ref staged; /* the boundary tensor, as it lies in the batch */
    uint32_t narrow, widen;
};

struct stg_graph {
    const struct stg_pipeline_spec *spec;
    uint64_t made_ns; /* when it, or its tables, were made */
    struct stg_bump bump;
    bool has_element;
    bool borrows_tables;
    struct stg_schema element;
    struct stg_schema boundary;
    struct stg_ref *features; /* of has_element: one a feature */
    struct stg_graph_node *nodes;
    size_t n_nodes;
    struct stg_schema fed; /* of a client: what stager_run feeds */
    size_t n_carried;      /* the last of those ran before the boundary */
    struct stg_graph_feed *feeds;
    size_t n_feeds;
    struct stg_graph_transfer *transfers;
    size_t n_transfers;
    uint32_t *order; /* nodes, each after its inputs and controls */
};

/* ---- ref.c: what is known of a tensor or of a node ---- */

bool stg_ref_same(const struct stg_ref *a, const struct stg_ref *b);

/* What is known of a tensor, or NULL when its node is not inferred. OUT_OF_RANGE of an
 * output number is NULL too. */
const struct stg_component *stg_graph_component(const struct stg_graph *graph,
                                                const struct stg_ref *ref);

/* The tensor itself: of a feed that is another tensor, that one. */
const struct stg_ref *stg_graph_source(const struct stg_graph *graph,
                                       const struct stg_ref *ref);

/* Likewise; of a boundary tensor, where the element is, the feature. */
const struct stg_ref *stg_graph_follow(const struct stg_graph *graph,
                                       const struct stg_ref *ref);

/* The value of a tensor that is known when the pipeline is applied, or NULL. */
const struct stg_tensor *stg_graph_constant(const struct stg_graph *graph,
                                            const struct stg_ref *ref);

/* What the tensor comes from. */
unsigned stg_graph_depends(const struct stg_graph *graph, const struct stg_ref *ref);

/* The transfer of the feature, or NULL. */
const struct stg_graph_transfer *stg_graph_transfer(const struct stg_graph *graph,
                                                    size_t feature);

/* The feed that replaces this tensor, or the tensor itself. */
struct stg_ref stg_graph_fed(const struct stg_graph *graph, struct stg_ref ref);

/* In a client: the feed of the component of that name, or -1. */
int stg_graph_fed_component(const struct stg_graph *graph, const char *name);

/* In a client: the feed of this output of a node (the first of those that are alike) that
 * ran before the boundary, or the output itself. */
struct stg_ref stg_graph_carried(const struct stg_graph *graph, struct stg_ref ref);

/* In a client: is there such a feed of any output of that node? */
bool stg_graph_is_carried(const struct stg_graph *graph, uint32_t node);

/* The node that has to be inferred before the nodes that read this tensor, or NULL. */
const struct stg_ref *stg_graph_awaited(const struct stg_graph *graph,
                                        const struct stg_ref *ref);

/* Marks nodes (and, unless NULL, feeds) that the tensor needs. */
void stg_graph_mark(const struct stg_graph *graph, const struct stg_ref *ref,
                    bool *needed, bool *fed);

/* Is it a constant that takes the dtype of the tensor beside it? */
bool stg_graph_is_weak(const struct stg_graph_node *node);

/* Puts "node NAME (OP), line N" before the text. Returns the code. */
int stg_graph_blame(const struct stg_graph_node *node, int code, struct stg_err *err);

/* When a pipeline is applied, a name that is not found is an INVALID_ARGUMENT. Returns
 * that. */
int stg_graph_invalid(struct stg_err *err);

/* ---- resolve.c: names -> references ---- */

#define STG_STAGED_PREFIX "staged:"
#define STG_STAGED_PREFIX_BYTES (sizeof(STG_STAGED_PREFIX) - 1)

/* The node whose name is these bytes, or -1. */
int stg_graph_find_node(const struct stg_graph *graph, const char *name, size_t bytes);

/* The component of the element of that name, or -1. */
int stg_graph_find_component(const struct stg_graph *graph, const char *name);

/* Finds `name` ("node", "node:k", "staged:path", a component). NOT_FOUND suggests the
 * nearest; the text has no prefix. k is checked only when the node's outputs are known.
 */
int stg_graph_resolve(const struct stg_graph *graph, const char *name,
                      struct stg_ref *ret, struct stg_err *err);

/* As stg_graph_resolve, and does not look into feed_dict. */
int stg_graph_resolve_unfed(const struct stg_graph *graph, const char *name,
                            struct stg_ref *ret, struct stg_err *err);

/* ---- feed.c: tensors that are something else ---- */

/* Resolves feed_dict, in a client what is fed; before any other name is resolved. */
int stg_graph_link_feeds(struct stg_graph *graph, struct stg_err *err);

/* Makes value and component of a feed that is a value, once what it replaces is inferred.
 */
int stg_graph_make_value(struct stg_graph *graph, const struct stg_ref *ref,
                         struct stg_err *err);

/* Of all feeds, once every node of the stage subgraph is inferred: dtypes, shapes, sides.
 */
int stg_graph_infer_feeds(struct stg_graph *graph, struct stg_err *err);

/* What the features need: no placeholder that nothing feeds; says which feeds. */
int stg_graph_check_needed(struct stg_graph *graph, struct stg_err *err);

/* ---- link.c: ops, inputs, order, what depends on what ---- */

/* Fills nodes, those of staged.transfer_dtypes too: ops found, arity and attributes
 * checked, inputs resolved, order and depends set. */
int stg_graph_link(struct stg_graph *graph, struct stg_err *err);

/* rc is why the node could not be made. In a client, whose daemon could make it, it is
 * left out then (why), and that is 0; else rc: in a daemon, or out of memory. */
int stg_graph_leave_out(struct stg_graph *graph, struct stg_graph_node *node, int rc,
                        struct stg_err *err);

/* ---- rows.c ---- */

/* Sets in_rows of a node, once those before it have theirs. */
void stg_graph_follow_rows(const struct stg_graph *graph, struct stg_graph_node *node);

/* ---- fold.c ---- */

/* Makes the node's inputs those that are computed. Is there an equal node among the first
 * n_before of the order? Then the node is that one, and inferred. */
bool stg_graph_merge(const struct stg_graph *graph, struct stg_graph_node *node,
                     size_t n_before);

/* Makes a constant the first equal one among the first n_before nodes of the order, for
 * its readers. */
void stg_graph_merge_constant(const struct stg_graph *graph, struct stg_graph_node *node,
                              size_t n_before);

/* Sets the values of an inferred node whose inputs are known, unless it fails or gets
 * large. RESOURCE_EXHAUSTED. */
int stg_graph_fold(struct stg_graph *graph, struct stg_graph_node *node,
                   struct stg_err *err);

/* ---- weak.c ---- */

/* Gives weak constants that the node reads the dtype of its other inputs; they are to be
 * inferred again. INVALID_ARGUMENT: the dtype does not hold the number. */
int stg_graph_convert_weak(struct stg_graph *graph, const struct stg_graph_node *node,
                           struct stg_err *err);

/* ---- graph.c ---- */

/* Upper bound in bytes of a batch at rest of these tensors; 0 when it is not known. */
uint64_t stg_graph_schema_bytes(const struct stg_schema *schema);

/* May the compute side fetch it? FAILED_PRECONDITION names the tensor to stage. */
int stg_graph_check_compute(const struct stg_graph *graph, const struct stg_ref *ref,
                            const char *name, struct stg_err *err);

#endif
