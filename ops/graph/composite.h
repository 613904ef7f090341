/* SPDX-License-Identifier: Apache-2.0
 *
 * Ragged and sparse components, which are several tensors, where one name stands for all
 * of them. Pure functions; any thread.
 */
#ifndef STG_OPS_GRAPH_COMPOSITE_H
#define STG_OPS_GRAPH_COMPOSITE_H

#include "core/batch.h"
#include "core/bump.h"
#include "core/spec.h"

/* Returns the first of the components that `name` stands for ("ids" for "ids/values" and
 * "ids/row_splits"), and how many they are; NULL: it stands for none. */
const struct stg_component *stg_composite_find(const struct stg_schema *schema,
                                               const char *name, size_t *ret_n);

/* Replaces a feature whose tensor is such a name by one for each part, with its path in
 * front: {x: ids} becomes x/values and x/row_splits. Names of `nodes` stay. *features and
 * *n are untouched where there is none, else in bump. RESOURCE_EXHAUSTED only. */
int stg_composite_features(const struct stg_schema *schema, const struct stg_node *nodes,
                           size_t n_nodes, struct stg_bump *bump,
                           const struct stg_feature **features, size_t *n);

/* The same in all of `staged`, its structure too. Without features the structure becomes
 * that of the schema, if that has any composite. */
int stg_composite_staged(const struct stg_schema *schema, const struct stg_node *nodes,
                         size_t n_nodes, struct stg_bump *bump,
                         struct stg_staged *staged);

/* May component i of a boundary be the part of a sparse or ragged feature that it is said
 * to be, as far as dtypes and shapes tell? The ones before it are known; the rest is
 * checked in each batch (stg_batch_check_parts). INVALID_ARGUMENT. */
int stg_composite_check_part(const struct stg_schema *boundary, size_t i,
                             struct stg_err *err);

#endif
