/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/base/random.h"

#include <string.h>

#include "core/random.h"
#include "ops/base/hash.h"

__extension__ typedef unsigned __int128 wide;

uint64_t stg_op_random_seed(const struct stg_node *node)
{
    const struct stg_attr *attr = stg_attr_find(node->attrs, node->n_attrs, "seed");
    if (attr != NULL)
        return (uint64_t)attr->values[0].i;
    return stg_fingerprint64(node->name, strlen(node->name));
}

void stg_op_random_init(struct stg_op_random *random, const struct stg_key *key,
                        uint64_t seed, uint64_t row)
{
    *random =
        (struct stg_op_random){.key = {seed + key->seed, STG_RANDOM_OP},
                               .counter = {key->index, key->epoch, key->pass, row << 8}};
}

uint64_t stg_op_random_next(struct stg_op_random *random)
{
    if (random->n_used % 4 == 0) {
        stg_philox(random->key, random->counter, random->words);
        random->counter[3]++;
    }
    return random->words[random->n_used++ % 4];
}

int64_t stg_op_random_below(struct stg_op_random *random, int64_t n)
{
    return (int64_t)(((wide)stg_op_random_next(random) * (uint64_t)n) >> 64);
}

double stg_op_random_between(struct stg_op_random *random, double low, double high)
{
    double unit = (double)(stg_op_random_next(random) >> 11) * 0x1p-53;
    return low + (high - low) * unit;
}
