/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/frame.h"

static void put(uint8_t *to, uint64_t v, int n)
{
    for (int k = 0; k < n; k++)
        to[k] = (uint8_t)(v >> (8 * k));
}

static void put_crc(uint8_t *to, const uint8_t *data, uint64_t n)
{
    put(to, stg_crc32c_mask(stg_crc32c()->extend(0, data, n)), 4);
}

uint64_t bench_frame(void *at, uint64_t n)
{
    uint8_t *frame = at, *record = frame + STG_FRAME_HEAD;
    put(frame, n, 8);
    put_crc(frame + 8, frame, 8);
    put_crc(record + n, record, n);
    return STG_FRAME_HEAD + n + STG_FRAME_TAIL;
}

uint64_t bench_frame_random(void *at, uint64_t n, uint64_t *seed)
{
    uint8_t *record = (uint8_t *)at + STG_FRAME_HEAD;
    for (uint64_t k = 0; k < n; k++)
        record[k] =
            (uint8_t)((*seed = *seed * 6364136223846793005u + 1442695040888963407u) >>
                      56);
    return bench_frame(at, n);
}
