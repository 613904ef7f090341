/* SPDX-License-Identifier: Apache-2.0
 *
 * What an op is: a constant descriptor, one file each, one line in ops/table.c. An op
 * cannot tell which process it runs in: it is a pure function of (inputs, attributes,
 * key). It opens nothing, logs nothing, keeps nothing. State is a resource that comes in
 * as an input.
 */
#ifndef STG_OPS_BASE_OP_H
#define STG_OPS_BASE_OP_H

#include <stdbool.h>

#include "core/batch.h"
#include "core/bump.h"
#include "core/device_kernels.h"
#include "core/err.h"
#include "core/param.h"
#include "core/spec.h"

/* Keys all randomness: the same key gives the same values, in whatever process and at
 * whatever time the op runs.
 */
struct stg_key {
    uint64_t seed, pass, epoch, index;
};

/* ---- when the pipeline is applied ---- */
struct stg_op_infer {
    const struct stg_node *node;
    const struct stg_component *inputs; /* name: as written; unknown dimensions are -1 */
    /* inputs[i] is known already (output of a `constant`): its value, else NULL. */
    const struct stg_tensor *const *constants;
    size_t n_inputs;

    struct stg_bump *bump;         /* lives as long as the graph */
    struct stg_component *outputs; /* set by stg_op_outputs */
    size_t n_outputs;
    const void *plan; /* op-private, immutable, from bump; handed to run */
};

/* Makes room for n outputs (dtype, ndim and shape to be filled in). NULL: out of memory.
 */
struct stg_component *stg_op_outputs(struct stg_op_infer *ctx, size_t n);

/* May this be where that is wanted? Unknown dimensions fit any. */
bool stg_component_fits(const struct stg_component *is,
                        const struct stg_component *wanted);

/* ---- when a batch flows ---- */
struct stg_op_run;

/* Where inputs and outputs are memory of a device, which the host may not look at. */
struct stg_op_device {
    const struct stg_device_kernels *kernels;
    struct stg_stream *stream;
    const struct stg_tensor *hosts; /* the inputs as the host has them too; data NULL: it
                                       has not */
    /* A copy on the device of what lives as long as the graph and never changes. */
    int (*keep)(struct stg_op_run *ctx, const void *data, size_t bytes, const void **ret,
                struct stg_err *err);
    /* Of the device, INT64_MAX before: the least element of input 1 that cannot be. The
     * run fails by it, once the device has come so far. */
    int64_t *bad;
};

struct stg_op_run {
    const void *plan;
    const struct stg_tensor *inputs;
    size_t n_inputs;
    struct stg_key key;
    struct stg_bump *scratch; /* forgotten when the op returns */

    /* Room for output i: in the extent when it crosses the boundary, else in the
     * executor's memory. Call once for each output. For strings string_bytes bounds all
     * bytes together; begin (n + 1 offsets, begin[0] already 0) is the op's to fill, end
     * == begin + 1. */
    int (*alloc)(struct stg_op_run *ctx, size_t i, int dtype, int ndim,
                 const int64_t *shape, uint64_t string_bytes, struct stg_tensor *ret,
                 struct stg_err *err);
    /* Instead of alloc, by an op that is STG_OP_VIEWS: output i is a view of an input, or
     * of memory that lives as long as the graph. */
    int (*view)(struct stg_op_run *ctx, size_t i, const struct stg_tensor *tensor,
                struct stg_err *err);
    const struct stg_op_device *device; /* NULL: in the memory of the host */
    void *executor;
};

/* An op that reads one output of another, which no other op reads, and nothing else. */
struct stg_absorb {
    size_t output; /* of the op that is asked to take over */
    const struct stg_op *op;
    const void *plan;
    bool taken; /* set by the op that does the work */
};

/* Outputs that have names, one after the other: "ids/values" is part "/values" of the
 * entry "ids". Begins zeroed. */
struct stg_output_name {
    const char *entry;
    size_t entry_bytes;
    const char *part;    /* "" or "/…"; constant */
    size_t attr, n_part; /* where the op is: its own */
};

enum stg_op_flags {
    STG_OP_VARIABLE =
        1, /* the output is a variable: memory of the process that runs the graph */
    STG_OP_CONSTANT =
        2, /* the output is known when applied: plan is a struct stg_tensor */
    STG_OP_STATEFUL = 4,    /* writes a variable: never staged, never run twice */
    STG_OP_PLACEHOLDER = 8, /* the output is what feed_dict says: run is NULL */
    /* Row i of the outputs depends on row i of the inputs alone, and one dimension more
     * in front of all inputs of equal rank only puts that in front of the outputs: many
     * elements may go through at once. Inputs of a lower rank are broadcast. */
    STG_OP_ROW_WISE = 16,
    STG_OP_TABLE = 32, /* the output is read from a file when the graph is made
                          (stg_graph_load_tables): run is NULL */
    /* Does for each batch what cannot be known before it: draws from the key, takes its
     * time. Never computed ahead, never one for two nodes that are written alike. */
    STG_OP_EACH_BATCH = 64,
    STG_OP_VIEWS = 128, /* may call view: its inputs live as long as its outputs */
    /* Output 0 may lie where an input lies that has its dtype and shape: element i is
     * made of elements i alone, and once it is asked for the op does not fail. */
    STG_OP_IN_PLACE = 256,
    STG_OP_STAYS = 512, /* its error is what it is for: it comes where it was written, and
                           what follows is not computed before */
};

/* In a descriptor: its attributes. */
#define STG_PARAMS(list) .params = (list), .n_params = sizeof(list) / sizeof((list)[0])

struct stg_op {
    const char *name;
    const char *summary; /* one sentence, and the source of the definition */
    const struct stg_param *params;
    size_t n_params;
    int min_inputs, max_inputs; /* max -1: any number */
    unsigned flags;
    /* Checks inputs and attributes (stg_param_check was passed already), sets outputs and
     * plan. INVALID_ARGUMENT names the input or attribute; the caller adds node and line.
     */
    int (*infer)(struct stg_op_infer *ctx, struct stg_err *err);
    /* Errors that belong to a row say so with stg_err_row. NULL for VARIABLE,
     * CONSTANT and PLACEHOLDER. */
    int (*run)(struct stg_op_run *ctx, struct stg_err *err);
    /* May be NULL: never. May run be called for parts of the rows, on many threads at
     * once? Which inputs are sliced like the outputs, a bit each (bit 63: that one and
     * all behind it): row i of every output then depends on row i of those, on the other
     * inputs as they are, and on no further row; what else is in a shape does not depend
     * on which rows there are. 0: not with this plan and these shapes. Only plan, inputs
     * and n_inputs are set. */
    uint64_t (*rows)(const struct stg_op_run *ctx);
    /* May be NULL: never. May run be called with a device? on_host: which inputs the host
     * has too, a bit each. It then enqueues its work, on memory of the device that alloc
     * gives, and returns; an input that it cannot do there is an error like any other.
     * Only ops with one output. */
    bool (*launches)(const void *plan, const struct stg_component *inputs,
                     size_t n_inputs, uint64_t on_host);
    /* May be NULL. Takes over what readers of single outputs do, where that is cheaper
     * than to hand the output on: those taken are never run, their output 0 is written
     * instead of the output they read, dtype and shape theirs. Returns the plan for run,
     * from bump, or NULL when out of memory. */
    const void *(*absorb)(const void *plan, struct stg_absorb *readers, size_t n,
                          struct stg_bump *bump);
    /* May be NULL: outputs have numbers only. The name of the next output, by the
     * attributes alone; false: there is none. */
    bool (*next_output)(const struct stg_node *node, struct stg_output_name *name);
    /* VARIABLE only: fills the variable's memory before the first run. */
    int (*initialize)(const void *plan, struct stg_tensor *variable, struct stg_err *err);
};

/* For `rows`: input 0 alone is sliced. */
uint64_t stg_rows_first(const struct stg_op_run *ctx);

/* For `launches`: whatever it is. */
bool stg_launches_all(const void *plan, const struct stg_component *inputs,
                      size_t n_inputs, uint64_t on_host);

/* The op of that name, or NULL. */
const struct stg_op *stg_op_find(const char *name);

/* All ops, for help and suggestions. */
const struct stg_op *const *stg_op_all(size_t *ret_n);

#endif
