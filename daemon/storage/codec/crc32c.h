/* SPDX-License-Identifier: Apache-2.0
 *
 * CRC-32C (Castagnoli, reflected 0x82F63B78, begun and ended with all ones), masked as
 * TFRecord stores it, and the walk over TFRecord's frames, which is little else. One body
 * (crc32c_kernel.c), compiled for each set of instructions, behind a table chosen by CPU.
 * Pure functions; any thread.
 *
 * A frame: u64le length, u32le masked CRC of those 8 bytes, the record, u32le masked CRC
 * of it.
 */
#ifndef STG_DAEMON_CRC32C_H
#define STG_DAEMON_CRC32C_H

#include <stddef.h>
#include <stdint.h>

#define STG_FRAME_HEAD 12 /* bytes before a record */
#define STG_FRAME_TAIL 4  /* and behind it */

/* Frames in the bytes [at, fill) of data. */
struct stg_frames {
    const char *data;
    uint64_t at, fill;
    uint64_t max_record_bytes;
    int64_t n_max; /* records at most */
};

/* Why the walk stopped before a frame. */
enum stg_frame_fault {
    STG_FRAME_NONE = 0,   /* it is not all there, or n_max were found */
    STG_FRAME_BAD_LENGTH, /* the length is not what was written: so is all behind it */
    STG_FRAME_BAD_DATA,   /* the record is not; the length is good */
    STG_FRAME_TOO_LONG,   /* the length is good, and above max_record_bytes */
};

struct stg_crc32c_kernels {
    const char *name;

    /* The CRC of bytes behind others of which it is `crc`; 0 for none. */
    uint32_t (*extend)(uint32_t crc, const void *data, size_t n);

    /* Record i is [begin[i], end[i]) of data. Returns how many; *ret_at is behind the
     * last one's frame. */
    int64_t (*walk)(const struct stg_frames *frames, int64_t *begin, int64_t *end,
                    uint64_t *ret_at, enum stg_frame_fault *ret_fault);
};

/* The best table for this CPU, or what stg_crc32c_use said. */
const struct stg_crc32c_kernels *stg_crc32c(void);

/* The tables that this CPU can run, the reference first, the best last. */
const struct stg_crc32c_kernels *const *stg_crc32c_all(size_t *ret_n);

/* For tests and benchmarks: all callers use this table from now on. NULL: the best one.
 */
void stg_crc32c_use(const struct stg_crc32c_kernels *kernels);

static inline uint32_t stg_crc32c_mask(uint32_t crc)
{
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

/* ---- between crc32c.c, crc32c_tables.c and the kernels ---- */

/* Lanes of the kernels with three of them are at most this long. */
#define STG_CRC32C_LANE 256

struct stg_crc32c_tables {
    uint32_t bytes[8][256]; /* a byte, with 0 to 7 zero bytes behind it */
    /* x^(64 i - 33): by it, a CRC is carried over 8 i bytes. */
    uint32_t power[2 * STG_CRC32C_LANE / 8 + 1];
};

/* Filled in before any kernel is handed out, by the first call of that. */
extern struct stg_crc32c_tables stg_crc32c_tables;
void stg_crc32c_make_tables(void);

#endif
