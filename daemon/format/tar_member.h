/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses one member of a tar archive (ustar, GNU or pax) from bytes in memory: its
 * extension headers (GNU long names, pax), its header, and the position of its data.
 * Nothing is used before it is checked. Pure functions; any thread.
 */
#ifndef STG_DAEMON_TAR_MEMBER_H
#define STG_DAEMON_TAR_MEMBER_H

#include <stdbool.h>
#include <stdint.h>

#define STG_TAR_BLOCK 512
#define STG_TAR_MAX_NAME 4096

enum stg_tar_rc {
    STG_TAR_MEMBER = 0, /* all headers are in memory; the data may not be */
    STG_TAR_NEED,       /* more bytes are needed: at least ret->end in total */
    STG_TAR_END,        /* the end-of-archive marker */
    STG_TAR_BAD /* ret->what has the reason; the start of the next member is unknown */
};

/* Positions count from the first header of the member. */
struct stg_tar_member {
    char name[STG_TAR_MAX_NAME + 1];
    uint64_t name_bytes;
    bool regular;         /* a file with data, not a folder, link or device */
    uint64_t data, bytes; /* its data */
    uint64_t end;         /* after the data and its padding */
    const char *what;
};

/* Parses the member that begins at `at`, with n bytes in memory. */
enum stg_tar_rc stg_tar_member(const char *at, uint64_t n, struct stg_tar_member *ret);

#endif
