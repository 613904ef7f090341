/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/branches/single_path.h"

#include <stdlib.h>

#include "daemon/dataset/block.h"

static int next(struct stg_iter *iter, int64_t want, struct stg_block **ret,
                struct stg_err *err)
{
    struct stg_single_path *one = (struct stg_single_path *)iter;
    one->asked_again = one->given;
    if (one->given)
        return 1;
    one->given = true;
    *ret = stg_block_ref(one->block);
    return 0;
}

static int rewind_it(struct stg_iter *iter, bool afresh, struct stg_err *err)
{
    struct stg_single_path *one = (struct stg_single_path *)iter;
    one->given = one->asked_again = false;
    return 0;
}

static void destroy(struct stg_iter *iter)
{
    stg_block_unref(((struct stg_single_path *)iter)->block);
    free(iter);
}

const struct stg_iter_impl stg_single_path_impl = {next, rewind_it, destroy};

void stg_single_path_set(struct stg_single_path *one, struct stg_block *block)
{
    stg_block_unref(one->block);
    one->block = block;
    one->given = one->asked_again = false;
}
