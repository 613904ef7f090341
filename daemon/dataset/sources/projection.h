/* SPDX-License-Identifier: Apache-2.0
 *
 * Which of the columns that the steps of a pipeline declare are read: those that its
 * graph, its features or another step name. Pure functions; any thread.
 */
#ifndef STG_DAEMON_DATASET_SOURCES_PROJECTION_H
#define STG_DAEMON_DATASET_SOURCES_PROJECTION_H

#include "core/batch.h"
#include "core/spec.h"

/* Borrows from the spec that it was made of, and from the bump. */
struct stg_projection {
    /* The same pipeline, with steps that declare no column that nothing uses. Its
     * dataset yields the components of the element that are left. */
    struct stg_pipeline_spec spec;
    size_t n_element;
    /* The place of each of them in the element, n; NULL: all of them are left. */
    uint32_t *places;
    size_t n;
};

/* element: what the steps of spec yield. Each step keeps one column at least. All columns
 * stay if a step takes whole elements (struct stg_transformation, takes_all).
 * RESOURCE_EXHAUSTED. */
int stg_projection_init(const struct stg_pipeline_spec *spec,
                        const struct stg_schema *element, struct stg_bump *bump,
                        struct stg_projection *ret, struct stg_err *err);

/* Describes each step that reads fewer columns than it declares, such as "parquet reads 2
 * of 40: user/id, price". RESOURCE_EXHAUSTED. */
int stg_projection_tell(const struct stg_pipeline_spec *spec,
                        const struct stg_projection *projection, struct stg_bump *bump,
                        const char *const **ret, size_t *ret_n);

/* Sets those of `to`, n_element of them, that a block of the dataset has. The others stay
 * as they are. */
void stg_projection_spread(const struct stg_projection *projection,
                           const struct stg_tensor *from, struct stg_tensor *to);

#endif
