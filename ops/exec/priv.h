/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of an executor. Other folders do not include it. One thread at a time uses
 * an executor, with the threads that run its nodes (ready.c).
 */
#ifndef STG_OPS_EXEC_PRIV_H
#define STG_OPS_EXEC_PRIV_H

#include "ops/base/dictionary.h"
#include "ops/exec/run.h"
#include "ops/exec/split.h"
#include "ops/graph/priv.h"

#define STG_NO_FETCH UINT32_MAX
#define STG_NO_SLOT UINT32_MAX
#define STG_NO_BUFFER UINT32_MAX

/* Every tensor of a run has a slot: feeds first, then the outputs of each node that is
 * needed. */
struct stg_run_slot {
    uint32_t
        fetch; /* the fetch whose memory this output is written to, or STG_NO_FETCH */
    bool is_needed;     /* a step reads it, or it is fetched */
    uint32_t buffer;    /* of an output of a step: its elements */
    uint32_t offsets;   /* of strings: their offsets */
    bool is_view;       /* in this exec: not written, points elsewhere */
    bool needs_strings; /* a step reads it that does not look results up (coded.c) */
};

/* An output that an op writes: the node's own, or that of a reader whose work it took
 * over. */
struct stg_run_output {
    const struct stg_graph_node *node; /* to blame for want of memory */
    const struct stg_component *component;
    uint32_t slot;
};

struct stg_run_step {
    const struct stg_graph_node *node;
    const void *plan;               /* the node's, or one that does readers' work too */
    const uint32_t *inputs;         /* slots */
    struct stg_run_output *outputs; /* as many as the node has */
    bool is_absorbed;               /* another step does it */
    int coded;                      /* the input that may be coded (coded.c); -1: none */
    uint64_t dying; /* inputs, a bit each, in whose buffer the output may lie */
};

/* Memory of tensors that are never alive at once. Grows to what the largest takes. */
struct stg_run_buffer {
    void *data;
    uint64_t bytes;
};

struct stg_run_fetch {
    uint32_t slot;
    uint32_t first;  /* fetch of that slot */
    bool is_primary; /* an op may write it in place; others are copied */
};

/* One of the threads that run nodes of an executor at once. */
struct stg_run_worker {
    struct stg_run *run;
    struct stg_bump scratch;   /* of one op */
    struct stg_tensor *inputs; /* of the op that runs; room for the largest */
    struct stg_split *split;   /* NULL: on one thread */
    const struct stg_run_step *step;
    const struct stg_graph_node *blamed; /* for an error of the op that runs */
};

struct stg_run_ready;

struct stg_run {
    const struct stg_graph *graph;
    struct stg_bump plan; /* all arrays below */
    struct stg_run_buffer *buffers;
    size_t n_buffers;
    uint64_t limit_bytes; /* stg_run_limit */
    size_t n_feeds;
    uint32_t first_feed; /* slots of feed_dict follow those of the feeds of an exec */
    struct stg_tensor *tensors; /* one a slot */
    struct stg_run_slot *slots;
    size_t n_slots;
    struct stg_run_step *steps;
    size_t n_steps;
    struct stg_run_fetch *fetches;
    size_t n_fetches;
    size_t max_inputs;               /* of a step */
    struct stg_run_worker own;       /* of the caller of stg_run_exec */
    const struct stg_parallel *rows; /* NULL: no op is split */
    struct stg_run_ready *ready;     /* NULL: one node after the other */
    struct stg_run_watcher *watchers;
    struct stg_run_buffer *spread; /* strings of coded feeds, one a feed; NULL: none */

    struct stg_tensor *on_device; /* device.c: one a slot, then `hosts` of one op;
                                     NULL until something is launched */

    /* while an exec runs */
    const struct stg_sink *sink;
    uint64_t watched_ns; /* with a watcher: the end of the last node; else 0 */
};

/* watch.c: calls each watcher at the beginning, which sets watched_ns, after each step,
 * and at the end. */
void stg_run_watch_begin(struct stg_run *run, const struct stg_key *key);
void stg_run_watch_step(struct stg_run *run, const struct stg_run_step *step);
void stg_run_watch_end(struct stg_run *run, int rc);

/* run.c: checks the feeds of an exec, and makes them the tensors of their slots. */
int stg_run_take_feeds(struct stg_run *run, const struct stg_tensor *feeds,
                       struct stg_err *err);

/* step.c: one step, by that worker. Errors name the node. */
int stg_run_step(struct stg_run_worker *worker, const struct stg_run_step *step,
                 const struct stg_key *key, struct stg_err *err);

/* coded.c: which steps look results up, once the steps are known. */
void stg_run_plan_coded(struct stg_run *run);
/* coded.c: makes begin and end of a coded feed, where a step needs them.
 * RESOURCE_EXHAUSTED. */
int stg_run_spread_feed(struct stg_run *run, size_t i, struct stg_err *err);
/* coded.c: the worker's step, one input of which is coded. Returns false if the op is to
 * run; that input is not coded any more then. */
bool stg_run_coded(struct stg_run_worker *worker, struct stg_op_run *ctx, int *ret,
                   struct stg_err *err);

/* ready.c: all steps, each once those before it have run; returns the error of the
 * first one, in their order, that failed. */
int stg_run_ready_exec(struct stg_run *run, const struct stg_key *key,
                       struct stg_err *err);
void stg_run_ready_destroy(struct stg_run_ready *ready); /* NULL is allowed */

/* buffers.c: which outputs share memory, once the steps are known. at_once: steps may
 * run in any order that their inputs allow, so none do. Before the first exec.
 * RESOURCE_EXHAUSTED. */
int stg_run_plan_buffers(struct stg_run *run, bool at_once, struct stg_err *err);

/* buffers.c: at least so many bytes, aligned to 64. What was in it is forgotten.
 * NULL: out of memory. */
void *stg_run_room(struct stg_run_buffer *buffer, uint64_t bytes);

/* resource.c: the memory of variable node `index` (position in the pipeline's graph), or
 * NULL when that node is no variable. */
const struct stg_tensor *stg_resources_tensor(const struct stg_resources *resources,
                                              uint32_t index);

#endif
