/* SPDX-License-Identifier: Apache-2.0
 *
 * The interface of an op. Each op is a constant descriptor with one file and one line in
 * ops/table.c. An op is a pure function of (inputs, attributes, key), and does not depend
 * on the process that it runs in. It opens no files, writes no logs and keeps no state.
 * State is a resource, which is an input.
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

/* The key of all randomness: the same key yields the same values, in any process and at
 * any time. */
struct stg_key {
    uint64_t seed, pass, epoch, index;
};

/* ---- when the pipeline is applied ---- */
struct stg_op_infer {
    const struct stg_node *node;
    const struct stg_component *inputs; /* name: as written; unknown dimensions are -1 */
    /* The value of inputs[i] if it is known already (output of a `constant`), else NULL.
     */
    const struct stg_tensor *const *constants;
    size_t n_inputs;

    struct stg_bump *bump;         /* lives as long as the graph */
    struct stg_component *outputs; /* set by stg_op_outputs */
    size_t n_outputs;
    const void *plan; /* op-private, immutable, from bump; handed to run */
};

/* Allocates n outputs; the op fills in dtype, ndim and shape. Returns NULL if memory runs
 * out. */
struct stg_component *stg_op_outputs(struct stg_op_infer *ctx, size_t n);

/* Returns whether `is` fits `wanted`. An unknown dimension fits any. */
bool stg_component_fits(const struct stg_component *is,
                        const struct stg_component *wanted);

/* ---- when a batch is computed ---- */
struct stg_op_run;

/* For a run whose inputs and outputs are device memory, which the host must not access.
 */
struct stg_op_device {
    const struct stg_device_kernels *kernels;
    struct stg_stream *stream;
    const struct stg_tensor *hosts; /* the inputs in host memory; data NULL: not there */
    /* Copies constant data, which lives as long as the graph, to the device. */
    int (*keep)(struct stg_op_run *ctx, const void *data, size_t bytes, const void **ret,
                struct stg_err *err);
    /* Allocates device memory for the op's own use, until the device has finished. */
    int (*room)(struct stg_op_run *ctx, size_t bytes, void **ret, struct stg_err *err);
    /* Device memory, initially INT64_MAX: the lowest index of an invalid element of input
     * 1. The run fails if it is set once the device has finished. */
    int64_t *bad;
};

struct stg_op_run {
    const void *plan;
    const struct stg_tensor *inputs;
    size_t n_inputs;
    struct stg_key key;
    struct stg_bump *scratch; /* reset when the op returns */

    /* Allocates output i: in the extent if it crosses the boundary, else in the
     * executor's memory. Call it once for each output. For strings, string_bytes bounds
     * the total; the op fills begin (n + 1 offsets; begin[0] is already 0), and end ==
     * begin + 1. */
    int (*alloc)(struct stg_op_run *ctx, size_t i, int dtype, int ndim,
                 const int64_t *shape, uint64_t string_bytes, struct stg_tensor *ret,
                 struct stg_err *err);
    /* Replaces alloc in an op with STG_OP_VIEWS: makes output i a view of an input, or of
     * memory that lives as long as the graph. */
    int (*view)(struct stg_op_run *ctx, size_t i, const struct stg_tensor *tensor,
                struct stg_err *err);
    const struct stg_op_device *device; /* NULL: in the memory of the host */
    void *executor;
};

/* An op whose only input is one output of another op, which no other op reads. */
struct stg_absorb {
    size_t output; /* of the op that may absorb the reader */
    const struct stg_op *op;
    const void *plan;
    bool taken; /* set by the absorbing op */
};

/* Iterates over named outputs: "ids/values" is part "/values" of the entry "ids". Begins
 * zeroed. */
struct stg_output_name {
    const char *entry;
    size_t entry_bytes;
    const char *part;    /* "" or "/…"; constant */
    size_t attr, n_part; /* position of the op in the iteration */
};

enum stg_op_flags {
    STG_OP_VARIABLE =
        1, /* the output is a variable: memory of the process that runs the graph */
    STG_OP_CONSTANT =
        2, /* the output is known when applied: plan is a struct stg_tensor */
    STG_OP_STATEFUL = 4,    /* writes a variable: never staged, never run twice */
    STG_OP_PLACEHOLDER = 8, /* the output comes from feed_dict: run is NULL */
    /* Row i of the outputs depends only on row i of the inputs. A new first dimension of
     * all inputs of equal rank only adds that dimension to the outputs, so that one call
     * can process many elements. Inputs of a lower rank are broadcast. */
    STG_OP_ROW_WISE = 16,
    STG_OP_TABLE = 32, /* the output is read from a file when the graph is made
                          (stg_graph_load_tables): run is NULL */
    /* The result differs from batch to batch: the op draws from the key, or takes time.
     * Never computed ahead, and equal nodes are never merged. */
    STG_OP_EACH_BATCH = 64,
    STG_OP_VIEWS = 128, /* may call view: its inputs live as long as its outputs */
    /* Output 0 may use the memory of an input of the same dtype and shape: element i is
     * made only of elements i, and the op does not fail once output 0 is allocated. */
    STG_OP_IN_PLACE = 256,
    STG_OP_STAYS = 512, /* its purpose is its error: the node keeps its place, and later
                           nodes are not computed before it */
    /* Output 0, the only one, has a number for each string of an input, made of that
     * string alone and of the other inputs; its shape is that of the input where the
     * others are scalars or tables. An error of a row is INVALID_ARGUMENT, and the output
     * is there for the rows before it. */
    STG_OP_BY_STRING = 2048,
    STG_OP_ONE_DTYPE = 1024, /* all inputs that are numbers have one dtype, which weak
                                constants take */
};

/* In a descriptor: its attributes. */
#define STG_PARAMS(list) .params = (list), .n_params = sizeof(list) / sizeof((list)[0])

struct stg_op {
    const char *name;
    const char *summary; /* one sentence, with the source of the definition */
    const struct stg_param *params;
    size_t n_params;
    int min_inputs, max_inputs; /* max -1: any number */
    unsigned flags;
    /* Checks inputs and attributes (after stg_param_check), and sets outputs and plan.
     * INVALID_ARGUMENT names the input or attribute; the caller adds node and line.
     */
    int (*infer)(struct stg_op_infer *ctx, struct stg_err *err);
    /* Computes the outputs. An error that belongs to a row is set with stg_err_row. NULL
     * for VARIABLE, CONSTANT and PLACEHOLDER. */
    int (*run)(struct stg_op_run *ctx, struct stg_err *err);
    /* Returns which inputs are sliced like the outputs if several threads call run for
     * parts of the rows: one bit for each input (bit 63: input 63 and all later ones).
     * Row i of every output then depends only on row i of those inputs and on the other,
     * whole inputs. The other dimensions do not depend on the choice of rows. 0: not
     * possible with this plan and these shapes. Only plan, inputs and n_inputs are set.
     * NULL: never possible. */
    uint64_t (*rows)(const struct stg_op_run *ctx);
    /* Returns whether run may be called with a device. on_host: one bit for each input
     * that is in host memory too. With a device, run enqueues its work on device memory
     * from alloc, and returns; an unsupported input is an ordinary error. NULL: never. */
    bool (*launches)(const void *plan, const struct stg_component *inputs,
                     size_t n_inputs, uint64_t on_host);
    /* Absorbs readers of single outputs, if that is cheaper than to emit the output. A
     * taken reader never runs: the op writes the reader's output 0, with its dtype and
     * shape, in place of the output that it reads. Returns the plan for run, from bump,
     * or NULL if memory runs out. May be NULL. */
    const void *(*absorb)(const void *plan, struct stg_absorb *readers, size_t n,
                          struct stg_bump *bump);
    /* Returns the name of the next output, from the attributes only; false at the end.
     * NULL: the outputs have only numbers. */
    bool (*next_output)(const struct stg_node *node, struct stg_output_name *name);
    /* VARIABLE only: fills the variable's memory before the first run. */
    int (*initialize)(const void *plan, struct stg_tensor *variable, struct stg_err *err);
};

/* Implements `rows`: only input 0 is sliced. */
uint64_t stg_rows_first(const struct stg_op_run *ctx);

/* Implements `launches`: always true. */
bool stg_launches_all(const void *plan, const struct stg_component *inputs,
                      size_t n_inputs, uint64_t on_host);

/* Returns the op of that name, or NULL. */
const struct stg_op *stg_op_find(const char *name);

/* Returns all ops, for help and suggestions. */
const struct stg_op *const *stg_op_all(size_t *ret_n);

#endif
