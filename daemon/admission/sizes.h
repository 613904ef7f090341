/* SPDX-License-Identifier: Apache-2.0
 *
 * What is known of the bytes of a pipeline's batches before any is made. A batch whose
 * rows vary in number counts with the most rows that its dataset puts into one.
 */
#ifndef STG_DAEMON_ADMISSION_SIZES_H
#define STG_DAEMON_ADMISSION_SIZES_H

#include "core/spec.h"
#include "ops/partition/partition.h"

struct stg_sizes {
    uint64_t batch_bytes;     /* of the largest batch; 0: not known */
    bool is_bound;            /* batches may have fewer rows, and fewer bytes */
    uint64_t partition_bytes; /* of the largest batch by a partition that smart_stage auto
                           may try; 0: not known, or there is none */
    uint64_t least_bytes;   /* where batch_bytes are not known: what of a full batch is */
    uint64_t element_bytes; /* of what the dataset yields, as far as known, when full */
};

/* `graph` and `partitions` are those of the spec, which is legal. What cannot be found
 * out, for want of memory too, is not known. */
void stg_sizes_find(const struct stg_pipeline_spec *spec, const struct stg_graph *graph,
                    const struct stg_partitions *partitions, struct stg_sizes *ret);

#endif
