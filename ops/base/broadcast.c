/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/base/broadcast.h"

#include <string.h>

static int mismatch(const int64_t *a, int a_ndim, const int64_t *b, int b_ndim,
                    struct stg_err *err)
{
    char a_text[128], b_text[128];
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "shapes %s and %s do not broadcast: dimensions must be equal or 1",
                   stg_shape_text(a, a_ndim, a_text, sizeof(a_text)),
                   stg_shape_text(b, b_ndim, b_text, sizeof(b_text)));
}

/* Dimension d of a result of rank ndim; missing ones in front are 1. */
static int64_t dim_at(const int64_t *shape, int shape_ndim, int ndim, int d)
{
    int at = d - (ndim - shape_ndim);
    return at < 0 ? 1 : shape[at];
}

/* False when they do not go together. An unknown one beside a larger than 1 must be that.
 */
static bool merge(int64_t a, int64_t b, int64_t *ret)
{
    if (a == 1 || b == 1) {
        *ret = a == 1 ? b : a;
        return true;
    }
    *ret = a < 0 ? b : a;
    return a < 0 || b < 0 || a == b;
}

/* Names the first two inputs that do not go together in dimension d. */
static int differ(const struct stg_tensor *inputs, size_t n, int ndim, int d,
                  struct stg_err *err)
{
    const struct stg_tensor *first = NULL;
    for (size_t k = 0; k < n; k++) {
        const struct stg_tensor *input = &inputs[k];
        int64_t dim = dim_at(input->shape, input->ndim, ndim, d);
        if (dim == 1)
            continue;
        if (first == NULL)
            first = input;
        else if (dim_at(first->shape, first->ndim, ndim, d) != dim)
            return mismatch(first->shape, first->ndim, input->shape, input->ndim, err);
    }
    return stg_err(err, -STAGER_INVALID_ARGUMENT, "shapes do not broadcast");
}

int stg_broadcast_infer(const struct stg_component *inputs, size_t n,
                        struct stg_component *ret, struct stg_err *err)
{
    struct stg_component sum = inputs[0];
    for (size_t k = 1; k < n; k++) {
        const struct stg_component *other = &inputs[k];
        struct stg_component both = {.ndim =
                                         sum.ndim > other->ndim ? sum.ndim : other->ndim};
        for (int d = 0; d < both.ndim; d++) {
            if (!merge(dim_at(sum.shape, sum.ndim, both.ndim, d),
                       dim_at(other->shape, other->ndim, both.ndim, d), &both.shape[d]))
                return mismatch(sum.shape, sum.ndim, other->shape, other->ndim, err);
        }
        sum = both;
    }
    ret->ndim = sum.ndim;
    memcpy(ret->shape, sum.shape, sizeof(ret->shape));
    return 0;
}

/* Do all inputs step from dimension to dimension as one long dimension would? */
static bool joins(const struct stg_broadcast *plan, int inner, const int64_t *step)
{
    for (size_t k = 0; k < plan->n_inputs; k++) {
        if (step[k] != plan->loops[inner].stride[k] * plan->loops[inner].n)
            return false;
    }
    return true;
}

static void turn_round(struct stg_broadcast *plan)
{
    for (int i = 0, j = plan->n_loops - 1; i < j; i++, j--) {
        __typeof__(plan->loops[0]) swap = plan->loops[i];
        plan->loops[i] = plan->loops[j];
        plan->loops[j] = swap;
    }
}

/* From the last dimension to the first, while strides of all grow. */
static void plan_loops(struct stg_broadcast *plan, const struct stg_tensor *inputs)
{
    int64_t stride[STG_BROADCAST_MAX] = {1, 1, 1};
    int n = 0;
    for (int d = plan->ndim - 1; d >= 0; d--) {
        int64_t size = plan->shape[d], step[STG_BROADCAST_MAX];
        if (size == 1)
            continue;
        for (size_t k = 0; k < plan->n_inputs; k++) {
            int64_t dim = dim_at(inputs[k].shape, inputs[k].ndim, plan->ndim, d);
            step[k] = dim == 1 ? 0 : stride[k];
            stride[k] *= dim;
        }
        if (n > 0 && joins(plan, n - 1, step)) {
            plan->loops[n - 1].n *= size;
            continue;
        }
        plan->loops[n].n = size;
        memcpy(plan->loops[n].stride, step, plan->n_inputs * sizeof(step[0]));
        n++;
    }
    if (n == 0) {
        memset(&plan->loops[0], 0, sizeof(plan->loops[0]));
        plan->loops[0].n = 1;
        n = 1;
    }
    plan->n_loops = n;
    turn_round(plan);
}

int stg_broadcast_plan(const struct stg_tensor *inputs, size_t n,
                       struct stg_broadcast *ret, struct stg_err *err)
{
    ret->ndim = 0;
    ret->n_inputs = n;
    for (size_t k = 0; k < n; k++)
        ret->ndim = inputs[k].ndim > ret->ndim ? inputs[k].ndim : ret->ndim;
    for (int d = 0; d < ret->ndim; d++) {
        int64_t size = 1;
        for (size_t k = 0; k < n; k++) {
            if (!merge(size, dim_at(inputs[k].shape, inputs[k].ndim, ret->ndim, d),
                       &size))
                return differ(inputs, n, ret->ndim, d, err);
        }
        ret->shape[d] = size;
    }
    plan_loops(ret, inputs);
    return 0;
}

static void step(const struct stg_broadcast *plan, int d, int64_t times, int64_t *at)
{
    for (size_t k = 0; k < plan->n_inputs; k++)
        at[k] += plan->loops[d].stride[k] * times;
}

int64_t stg_broadcast_each(const struct stg_broadcast *plan,
                           int64_t (*run)(void *owner, const int64_t *inputs,
                                          int64_t output),
                           void *owner)
{
    int inner = plan->n_loops - 1;
    int64_t count[STG_MAX_DIMS + 1] = {0}, at[STG_BROADCAST_MAX] = {0}, output = 0;
    for (int i = 0; i < plan->n_loops; i++) {
        if (plan->loops[i].n == 0)
            return -1;
    }
    for (;;) {
        int64_t stopped = run(owner, at, output);
        if (stopped != -1)
            return stopped;
        output += plan->loops[inner].n;
        int d = inner - 1;
        for (; d >= 0; d--) {
            step(plan, d, 1, at);
            if (++count[d] < plan->loops[d].n)
                break;
            step(plan, d, -plan->loops[d].n, at);
            count[d] = 0;
        }
        if (d < 0)
            return -1;
    }
}
