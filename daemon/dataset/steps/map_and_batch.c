/* SPDX-License-Identifier: Apache-2.0
 *
 * map_and_batch: map, and batch behind it, which fuse by themselves.
 */
#include "daemon/dataset/step.h"

static int infer(const struct stg_step *step, const struct stg_schema *in,
                 struct stg_bump *bump, struct stg_schema *ret, struct stg_err *err)
{
    struct stg_schema mapped;
    if (stg_attr_find(step->attrs, step->n_attrs, "num_parallel_batches") != NULL &&
        stg_attr_find(step->attrs, step->n_attrs, "num_parallel_calls") != NULL)
        return stg_step_err(
            step, -STAGER_INVALID_ARGUMENT, err,
            "num_parallel_batches and num_parallel_calls cannot both be set; remove one");
    int rc = stg_map.infer(step, in, bump, &mapped, err);
    return rc < 0 ? rc : stg_batch.infer(step, &mapped, bump, ret, err);
}

static int create(struct stg_dataset *dataset, const struct stg_step *step,
                  const struct stg_schema *schema, struct stg_iter *input,
                  struct stg_iter **ret, struct stg_err *err)
{
    struct stg_schema *mapped = stg_bump_alloc(&dataset->bump, sizeof(*mapped));
    if (mapped == NULL)
        return stg_step_err(step, -STAGER_RESOURCE_EXHAUSTED, err, "out of memory");
    struct stg_iter *map;
    int rc = stg_map.infer(step, input->schema, &dataset->bump, mapped, err);
    if (rc == 0)
        rc = stg_map.create(dataset, step, mapped, input, &map, err);
    if (rc < 0)
        return rc;
    rc = stg_batch.create(dataset, step, schema, map, ret, err);
    if (rc < 0)
        map->impl->destroy(map);
    return rc;
}

const struct stg_transformation stg_map_and_batch = {.name = "map_and_batch",
                                                     .infer = infer,
                                                     .create = create,
                                                     .passes_codes = true,
                                                     .is_indexable = true};
