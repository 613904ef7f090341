/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/files/names.h"

#include <stdlib.h>
#include <string.h>

static struct stg_name *at(const struct stg_names *names, size_t i)
{
    return &names->queue[(names->first + i) % names->size];
}

static int grow(struct stg_names *names)
{
    size_t size = names->size > 0 ? 2 * names->size : STG_MAX_NAMES;
    struct stg_name *queue = malloc(size * sizeof(*queue));
    if (queue == NULL)
        return stg_step_err(names->step, -STAGER_RESOURCE_EXHAUSTED, &names->failure,
                            "out of memory");
    for (size_t i = 0; i < names->n; i++)
        queue[i] = *at(names, i);
    free(names->queue);
    names->queue = queue;
    names->size = size;
    names->first = 0;
    return 0;
}

static int make_name(struct stg_names *names, const struct stg_block *block,
                     struct stg_name *ret)
{
    const struct stg_tensor *tensor = &block->tensors[0];
    *ret =
        (struct stg_name){.url = strndup((const char *)tensor->data + tensor->begin[0],
                                         (size_t)(tensor->end[0] - tensor->begin[0])),
                          .file = block->rows != NULL ? block->rows[0].file : UINT32_MAX,
                          .epoch = block->epoch};
    if (ret->url != NULL)
        return 0;
    return stg_step_err(names->step, -STAGER_RESOURCE_EXHAUSTED, &names->failure,
                        "out of memory");
}

static int add_block(struct stg_names *names, struct stg_block *block)
{
    struct stg_name name = {.error = block};
    int rc = names->n == names->size ? grow(names) : 0;
    if (rc == 0 && block->error.code == 0)
        rc = make_name(names, block, &name);
    if (rc < 0 || name.error == NULL)
        stg_block_unref(block);
    if (rc == 0) {
        names->n++;
        *at(names, names->n - 1) = name;
    }
    return rc;
}

static void pull(struct stg_names *names)
{
    struct stg_block *block;
    names->ended = stg_iter_next(names->input, 1, &block, &names->failure);
    if (names->ended == 0)
        names->ended = add_block(names, block);
}

size_t stg_names_pull(struct stg_names *names, size_t n)
{
    while (names->n < n && names->ended == 0)
        pull(names);
    return names->n;
}

const struct stg_name *stg_names_at(const struct stg_names *names, size_t i)
{
    return at(names, i);
}

/* Plans to open the first ones. */
static void plan(struct stg_names *names)
{
    for (; names->n_planned < names->n && names->n_planned < STG_MAX_NAMES;
         names->n_planned++) {
        const struct stg_name *name = at(names, names->n_planned);
        if (name->url != NULL && names->ahead != NULL)
            stg_ahead_plan_open(names->ahead, name->url, names->identity);
    }
}

int stg_names_next(struct stg_names *names, struct stg_name *ret,
                   struct stg_source **ret_source, struct stg_err *err)
{
    stg_names_pull(names, names->ahead != NULL ? STG_MAX_NAMES : 1);
    if (names->n == 0) {
        if (names->ended < 0 && err != NULL)
            *err = names->failure;
        return names->ended;
    }
    plan(names);
    *ret = *at(names, 0);
    names->first = (names->first + 1) % names->size;
    names->n--;
    names->n_planned--;
    *ret_source = NULL;
    if (ret->url != NULL && names->ahead != NULL)
        *ret_source = stg_ahead_take_open(names->ahead);
    return 0;
}

void stg_names_drop(struct stg_names *names)
{
    stg_block_unref(at(names, 0)->error);
    free(at(names, 0)->url);
    names->first = (names->first + 1) % names->size;
    names->n--;
}

void stg_names_clear(struct stg_names *names)
{
    if (names->ahead != NULL)
        stg_ahead_cancel_opens(names->ahead);
    for (size_t i = 0; i < names->n; i++) {
        stg_block_unref(at(names, i)->error);
        free(at(names, i)->url);
    }
    names->n = names->n_planned = 0;
    names->ended = 0;
}

void stg_names_finish(struct stg_names *names)
{
    stg_names_clear(names);
    free(names->queue);
}
