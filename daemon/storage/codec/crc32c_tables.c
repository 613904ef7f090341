/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>

#include "daemon/storage/codec/crc32c.h"

#define POLYNOMIAL 0x82f63b78u /* reflected */

struct stg_crc32c_tables stg_crc32c_tables;
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static uint32_t times_x(uint32_t v)
{
    return (v >> 1) ^ (v & 1 ? POLYNOMIAL : 0);
}

static void make_tables(void)
{
    struct stg_crc32c_tables *t = &stg_crc32c_tables;
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t v = i;
        for (int k = 0; k < 8; k++)
            v = times_x(v);
        t->bytes[0][i] = v;
    }
    for (int k = 1; k < 8; k++) {
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t before = t->bytes[k - 1][i];
            t->bytes[k][i] = t->bytes[0][before & 255] ^ (before >> 8);
        }
    }
    t->power[1] = 1; /* x^31 */
    for (size_t i = 2; i < sizeof(t->power) / sizeof(t->power[0]); i++) {
        uint32_t v = t->power[i - 1];
        for (int k = 0; k < 64; k++)
            v = times_x(v);
        t->power[i] = v;
    }
}

void stg_crc32c_make_tables(void)
{
    pthread_once(&tables_once, make_tables);
}
