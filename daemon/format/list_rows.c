/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/format/list_rows.h"

#include <string.h>

static bool is_shape(const struct stg_list_rows *rows, const int64_t *shape, uint64_t at)
{
    int64_t first = rows->first[at], end = rows->first[at + 1];
    if (shape[0] >= 0 && end - first != shape[0])
        return false;
    for (int64_t i = first; rows->inner != NULL && shape[1] >= 0 && i < end; i++) {
        if (rows->inner[i + 1] - rows->inner[i] != shape[1])
            return false;
    }
    return true;
}

static bool is_alike(const struct stg_list_rows *rows, uint64_t a, uint64_t b)
{
    return rows->first[a + 1] - rows->first[a] == rows->first[b + 1] - rows->first[b] &&
           stg_list_value_of(rows, a + 1) - stg_list_value_of(rows, a) ==
               stg_list_value_of(rows, b + 1) - stg_list_value_of(rows, b);
}

/* Returns how many of n rows come before the first bad one. */
static uint64_t count_good(const uint8_t *bad, uint64_t n)
{
    static const uint8_t good[64];
    uint64_t i = 0;
    while (i + sizeof(good) <= n && memcmp(bad + i, good, sizeof(good)) == 0)
        i += sizeof(good);
    while (i < n && bad[i] == 0)
        i++;
    return i;
}

uint64_t stg_list_rows_alike(const struct stg_list_rows *rows, const int64_t *shape,
                             bool is_uneven, uint64_t at, uint64_t n)
{
    bool fits = shape[0] < 0 && (rows->inner == NULL || shape[1] < 0);
    if (fits && is_uneven)
        return count_good(rows->bad + at, n);
    for (uint64_t i = 0; i < n; i++) {
        if (rows->bad[at + i] != 0 || (!fits && !is_shape(rows, shape, at + i)) ||
            (!is_uneven && !is_alike(rows, at, at + i)))
            return i;
    }
    return n;
}
