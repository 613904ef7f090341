/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/sources/names.h"

#include <stdlib.h>
#include <string.h>

static void add(struct stg_names *names, struct stg_name name)
{
    names->queue[(names->first + names->n++) % STG_MAX_NAMES] = name;
    if (name.url != NULL && names->ahead != NULL)
        stg_ahead_plan_open(names->ahead, name.url, names->identity);
}

static int add_block(struct stg_names *names, struct stg_block *block)
{
    const struct stg_tensor *tensor = &block->tensors[0];
    if (block->error.code != 0) {
        add(names, (struct stg_name){.error = block});
        return 0;
    }
    char *url = strndup((const char *)tensor->data + tensor->begin[0],
                        (size_t)(tensor->end[0] - tensor->begin[0]));
    int rc = 0;
    if (url != NULL)
        add(names, (struct stg_name){.url = url,
                                     .file = block->rows != NULL ? block->rows[0].file
                                                                 : UINT32_MAX,
                                     .epoch = block->epoch});
    else
        rc = stg_step_err(names->step, -STAGER_RESOURCE_EXHAUSTED, &names->failure,
                          "out of memory");
    stg_block_unref(block);
    return rc;
}

static void pull(struct stg_names *names)
{
    struct stg_block *block;
    names->ended = stg_iter_next(names->input, 1, &block, &names->failure);
    if (names->ended == 0)
        names->ended = add_block(names, block);
}

int stg_names_next(struct stg_names *names, struct stg_name *ret,
                   struct stg_source **ret_source, struct stg_err *err)
{
    unsigned want = names->ahead != NULL ? STG_MAX_NAMES : 1;
    while (names->n < want && names->ended == 0)
        pull(names);
    if (names->n == 0) {
        if (names->ended < 0 && err != NULL)
            *err = names->failure;
        return names->ended;
    }
    *ret = names->queue[names->first];
    names->first = (names->first + 1) % STG_MAX_NAMES;
    names->n--;
    *ret_source = NULL;
    if (ret->url != NULL && names->ahead != NULL)
        *ret_source = stg_ahead_take_open(names->ahead);
    return 0;
}

void stg_names_clear(struct stg_names *names)
{
    if (names->ahead != NULL)
        stg_ahead_cancel_opens(names->ahead);
    for (; names->n > 0; names->n--) {
        struct stg_name *name = &names->queue[names->first];
        names->first = (names->first + 1) % STG_MAX_NAMES;
        stg_block_unref(name->error);
        free(name->url);
    }
    names->ended = 0;
}
