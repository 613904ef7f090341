/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors as text: JSON nested by shape, a preview of the first values, one row. Any
 * thread.
 */
#ifndef STG_STAGERCTL_TEXT_VALUES_H
#define STG_STAGERCTL_TEXT_VALUES_H

#include <stdint.h>
#include <stdio.h>

#include "client/stager.h"
#include "core/text/json.h"

/* {"dtype": …, "shape": […], "values": …}; a part of a sparse or ragged feature that is
 * not its values says `part` too. */
void stg_values_json(struct stg_json_writer *json, const struct stager_tensor *tensor);

/* The values alone. */
void stg_values_json_array(struct stg_json_writer *json,
                           const struct stager_tensor *tensor);

/* "[2, 3]" */
void stg_values_shape(FILE *out, const struct stager_tensor *tensor);

/* The first `most` values, row-major: "0.5, 1.0, …" */
void stg_values_preview(FILE *out, const struct stager_tensor *tensor, int64_t most);

/* All values of one row: a value, or "[a, b]" nested. Returns 0 when the tensor has no
 * such row.
 */
int stg_values_row(FILE *out, const struct stager_tensor *tensor, int64_t row);

#endif
