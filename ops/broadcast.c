/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/broadcast.h"

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

int stg_broadcast_infer(const struct stg_component *a, const struct stg_component *b,
                        struct stg_component *ret, struct stg_err *err)
{
    int ndim = a->ndim > b->ndim ? a->ndim : b->ndim;
    for (int d = 0; d < ndim; d++) {
        if (!merge(dim_at(a->shape, a->ndim, ndim, d), dim_at(b->shape, b->ndim, ndim, d),
                   &ret->shape[d]))
            return mismatch(a->shape, a->ndim, b->shape, b->ndim, err);
    }
    ret->ndim = ndim;
    return 0;
}

/* From the last dimension to the first, while strides of both grow. */
static void plan_loops(struct stg_broadcast *plan, const struct stg_tensor *a,
                       const struct stg_tensor *b)
{
    int64_t a_stride = 1, b_stride = 1;
    int n = 0;
    for (int d = plan->ndim - 1; d >= 0; d--) {
        int64_t a_dim = dim_at(a->shape, a->ndim, plan->ndim, d);
        int64_t b_dim = dim_at(b->shape, b->ndim, plan->ndim, d);
        int64_t size = plan->shape[d];
        if (size == 1)
            continue;
        int64_t a_step = a_dim == 1 ? 0 : a_stride, b_step = b_dim == 1 ? 0 : b_stride;
        a_stride *= a_dim;
        b_stride *= b_dim;
        if (n > 0) {
            int64_t inner = plan->loops[n - 1].n;
            bool a_joins = a_step == plan->loops[n - 1].a_stride * inner;
            bool b_joins = b_step == plan->loops[n - 1].b_stride * inner;
            if (a_joins && b_joins) {
                plan->loops[n - 1].n *= size;
                continue;
            }
        }
        plan->loops[n].n = size;
        plan->loops[n].a_stride = a_step;
        plan->loops[n].b_stride = b_step;
        n++;
    }
    if (n == 0) {
        plan->loops[0].n = 1;
        plan->loops[0].a_stride = plan->loops[0].b_stride = 0;
        n = 1;
    }
    plan->n_loops = n;
    for (int i = 0; i < n / 2; i++) {
        __typeof__(plan->loops[0]) swap = plan->loops[i];
        plan->loops[i] = plan->loops[n - 1 - i];
        plan->loops[n - 1 - i] = swap;
    }
}

int stg_broadcast_plan(const struct stg_tensor *a, const struct stg_tensor *b,
                       struct stg_broadcast *ret, struct stg_err *err)
{
    ret->ndim = a->ndim > b->ndim ? a->ndim : b->ndim;
    for (int d = 0; d < ret->ndim; d++) {
        if (!merge(dim_at(a->shape, a->ndim, ret->ndim, d),
                   dim_at(b->shape, b->ndim, ret->ndim, d), &ret->shape[d]))
            return mismatch(a->shape, a->ndim, b->shape, b->ndim, err);
    }
    plan_loops(ret, a, b);
    return 0;
}

void stg_broadcast_each(const struct stg_broadcast *plan,
                        void (*run)(void *owner, int64_t a, int64_t b, int64_t out),
                        void *owner)
{
    int outer = plan->n_loops - 1;
    int64_t at[STG_MAX_DIMS + 1] = {0}, a = 0, b = 0, out = 0;
    for (int i = 0; i < plan->n_loops; i++) {
        if (plan->loops[i].n == 0)
            return;
    }
    for (;;) {
        run(owner, a, b, out);
        out += plan->loops[outer].n;
        int d = outer - 1;
        for (; d >= 0; d--) {
            a += plan->loops[d].a_stride;
            b += plan->loops[d].b_stride;
            if (++at[d] < plan->loops[d].n)
                break;
            a -= plan->loops[d].a_stride * plan->loops[d].n;
            b -= plan->loops[d].b_stride * plan->loops[d].n;
            at[d] = 0;
        }
        if (d < 0)
            return;
    }
}
