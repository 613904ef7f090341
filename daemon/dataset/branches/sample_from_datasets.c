/* SPDX-License-Identifier: Apache-2.0
 *
 * Draw i falls on an input with the chance that its weight has among those of the inputs
 * that have not ended.
 */
#include <math.h>
#include <stdlib.h>

#include "core/random.h"
#include "daemon/dataset/branches/directed.h"

struct sample {
    struct stg_directed directed;
    double
        *sums; /* of the weights of the inputs up to this one, without those that ended */
    size_t n_summed; /* n_active when they were made */
    uint64_t n_drawn;
    uint64_t iteration;
    struct stg_random random;
};

static double weight_of(const struct stg_step *step, size_t i)
{
    const struct stg_attr *weights = stg_attr_find(step->attrs, step->n_attrs, "weights");
    if (weights == NULL)
        return 1;
    const struct stg_value *value = &weights->values[i];
    return value->kind == STG_VALUE_INT ? (double)value->i : value->f;
}

static int sample_infer(const struct stg_step *step, const struct stg_input *in, size_t n,
                        struct stg_bump *bump, struct stg_schema *ret,
                        struct stg_err *err)
{
    const struct stg_attr *weights = stg_attr_find(step->attrs, step->n_attrs, "weights");
    if (weights != NULL && weights->n_values != n)
        return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                            "weights has %zu values for %zu inputs", weights->n_values,
                            n);
    for (size_t i = 0; i < n; i++) {
        double weight = weight_of(step, i);
        if (!(weight >= 0 && weight <= 1e300))
            return stg_step_err(step, -STAGER_INVALID_ARGUMENT, err,
                                "weights[%zu] is %g; it must be 0 to 1e+300", i, weight);
    }
    return stg_mix_infer(step, in, n, bump, ret, err);
}

static void sum_weights(struct sample *sample)
{
    struct stg_directed *directed = &sample->directed;
    double sum = 0;
    for (size_t i = 0; i < directed->n; i++) {
        if (!directed->inputs[i].ended)
            sum += weight_of(directed->iter.step, i);
        sample->sums[i] = sum;
    }
    sample->n_summed = directed->n_active;
}

static int sample_one(struct stg_directed *directed, size_t *ret, struct stg_err *err)
{
    struct sample *sample = (struct sample *)directed;
    if (sample->n_summed != directed->n_active)
        sum_weights(sample);
    double total = sample->sums[directed->n - 1];
    if (total <= 0)
        return 1;
    uint64_t word = stg_random_at(&sample->random, sample->n_drawn++);
    double at = (double)(word >> 11) * 0x1p-53 * total;
    /* Rounding may give the total itself. */
    if (at >= total)
        at = nextafter(total, 0);
    size_t i = 0;
    while (sample->sums[i] <= at)
        i++;
    *ret = i;
    return 0;
}

static void start(struct sample *sample)
{
    const struct stg_iter *iter = &sample->directed.iter;
    bool again = stg_step_bool(iter->step, "rerandomize_each_iteration", false);
    stg_directed_forget(&sample->directed);
    stg_random_init(&sample->random, (uint64_t)stg_step_int(iter->step, "seed", 0),
                    STG_RANDOM_SAMPLE, again ? iter->pass : 0,
                    again ? sample->iteration : 0);
    sample->n_drawn = 0;
    sample->n_summed = SIZE_MAX;
}

static int sample_rewind(struct stg_iter *iter, bool afresh, struct stg_err *err)
{
    struct sample *sample = (struct sample *)iter;
    sample->iteration = afresh ? 0 : sample->iteration + 1;
    start(sample);
    return stg_iter_rewind_inputs(iter, afresh, err);
}

static void sample_destroy(struct stg_iter *iter)
{
    free(((struct sample *)iter)->sums);
    stg_directed_destroy(iter);
}

static const struct stg_iter_impl sample_impl = {
    .next = stg_directed_next,
    .rewind = sample_rewind,
    .destroy = sample_destroy,
    .skip = stg_directed_skip,
};

static int sample_create(struct stg_dataset *dataset, const struct stg_step *step,
                         const struct stg_schema *schema, struct stg_iter *input,
                         struct stg_iter **ret, struct stg_err *err)
{
    size_t n = 0;
    for (const struct stg_iter *at = input; at != NULL; at = at->sibling)
        n++;
    struct sample *sample = stg_directed_create(sizeof(*sample), &sample_impl, dataset,
                                                step, schema, input, n, err);
    if (sample == NULL)
        return -STAGER_RESOURCE_EXHAUSTED;
    sample->sums = calloc(n, sizeof(*sample->sums));
    if (sample->sums == NULL) {
        sample_destroy(&sample->directed.iter);
        return stg_step_err(step, -STAGER_RESOURCE_EXHAUSTED, err, "out of memory");
    }
    sample->directed.choose = sample_one;
    start(sample);
    *ret = &sample->directed.iter;
    return 0;
}

const struct stg_transformation stg_sample_from_datasets = {
    .name = "sample_from_datasets", .create = sample_create, .infer_many = sample_infer};
