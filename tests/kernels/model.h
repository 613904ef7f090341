/* SPDX-License-Identifier: Apache-2.0
 *
 * A model of examples/models and rows for it: the largest legal set of nodes has run
 * before the boundary, and what crosses lies on a device, and on the host. A failure ends
 * the test. STAGER_SOURCE is the top of the tree.
 */
#ifndef STG_TESTS_KERNELS_MODEL_H
#define STG_TESTS_KERNELS_MODEL_H

#include "ops/exec/device.h"
#include "tests/kernels/host.h"

#define MODEL_TENSORS 32 /* that cross the boundary */
#define MODEL_NODES 64
#define MODEL_COPIES 64

struct model {
    const struct bench *bench;
    struct stg_pipeline_spec *spec;
    struct stg_graph *graph, *client;
    struct stg_partitions *partitions;
    struct stg_partition_needs *needs;
    struct stg_partition *partition;
    struct stg_resources *resources;
    struct stg_run *stage;

    /* Tensors of the boundary by their number, and those carried beside it. */
    struct stg_tensor staged[MODEL_TENSORS], carried[MODEL_TENSORS];
    const struct stg_tensor *feeds[MODEL_TENSORS];
    struct stg_component carried_as[MODEL_TENSORS];
    size_t n_carried;

    /* Of the device. */
    void *staged_there[MODEL_TENSORS], *carried_there[MODEL_TENSORS];
    struct {
        const void *data;
        void *at;
    } copies[MODEL_COPIES]; /* of variables and constants */
    size_t n_copies;
    char *memory;
    size_t bytes, used; /* of it, by one launch */
    int64_t *bad;
};

/* lines: rows of make_clicks.py. bytes: of the device, for the outputs of all nodes. */
void model_init(struct model *model, const struct bench *bench, const char *name,
                const char *const *lines, size_t n_lines, size_t bytes);
void model_finish(struct model *model);

/* Returns an executor of one fetch; NULL: it cannot be computed from what crosses. */
struct stg_run *model_run(const struct model *model, const char *fetch);

/* Returns whether a device can run it with what crosses. */
bool model_launches(const struct model *model, const struct stg_run *run);

/* Enqueues it on the default stream. ret: of the device, until the next launch. */
void model_launch(struct model *model, struct stg_run *run, struct stg_tensor *ret);

/* Runs it on the host. */
void model_exec(const struct model *model, struct stg_run *run, struct stg_tensor *ret);

#endif
