/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/steps/collect.h"
#include "daemon/dataset/steps/map.h"
#include "daemon/dataset/steps/unbatch.h"

static int batch_infer(const struct stg_step *step, const struct stg_schema *in,
                       struct stg_bump *bump, struct stg_schema *ret, struct stg_err *err)
{
    int rc = stg_collector_infer(step, in, err);
    if (rc == 0)
        rc = stg_schema_create(bump, in->n, ret, err);
    for (size_t c = 0; rc == 0 && c < in->n; c++)
        stg_component_prepend(&ret->components[c], &in->components[c],
                              stg_collector_dimension(step));
    return rc;
}

static int batch_make(struct stg_collector *collector, struct stg_block **ret,
                      struct stg_err *err)
{
    return stg_collector_stack(&collector->iter, &collector->pieces, ret, err);
}

static const struct stg_collector_impl batch_collector = {.make = batch_make};

static int batch_create(struct stg_dataset *dataset, const struct stg_step *step,
                        const struct stg_schema *schema, struct stg_iter *input,
                        struct stg_iter **ret, struct stg_err *err)
{
    struct stg_collector *batch = stg_iter_create(sizeof(*batch), &stg_collector_iter,
                                                  dataset, step, schema, input, err);
    if (batch == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    stg_collector_init(batch, &batch_collector);
    stg_map_fuse(input, batch->sizes->values[0].i);
    *ret = &batch->iter;
    return 0;
}

const struct stg_transformation stg_batch = {.name = "batch",
                                             .infer = batch_infer,
                                             .create = batch_create,
                                             .passes_codes = true,
                                             .is_indexable = true};

/* ---- rebatch: elements of batches, in batches of other sizes ---- */

static int rebatch_infer(const struct stg_step *step, const struct stg_schema *in,
                         struct stg_bump *bump, struct stg_schema *ret,
                         struct stg_err *err)
{
    struct stg_schema elements;
    int rc = stg_unbatch_infer(step, in, bump, &elements, err);
    return rc == 0 ? batch_infer(step, &elements, bump, ret, err) : rc;
}

static int rebatch_create(struct stg_dataset *dataset, const struct stg_step *step,
                          const struct stg_schema *schema, struct stg_iter *input,
                          struct stg_iter **ret, struct stg_err *err)
{
    struct stg_iter *elements;
    int rc = stg_unbatch_create(dataset, step, schema, input, &elements, err);
    if (rc < 0)
        return rc;
    rc = batch_create(dataset, step, schema, elements, ret, err);
    if (rc < 0)
        elements->impl->destroy(elements);
    return rc;
}

const struct stg_transformation stg_rebatch = {.name = "rebatch",
                                               .infer = rebatch_infer,
                                               .create = rebatch_create,
                                               .passes_codes = true};
