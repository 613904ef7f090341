/* SPDX-License-Identifier: Apache-2.0
 *
 * One member of a tar archive out of bytes in memory: the headers before it (GNU long
 * names, pax), its own, where its data lie. ustar, GNU and pax; nothing is believed
 * before it is checked. Pure functions; any thread.
 */
#ifndef STG_DAEMON_TAR_MEMBER_H
#define STG_DAEMON_TAR_MEMBER_H

#include <stdbool.h>
#include <stdint.h>

#define STG_TAR_BLOCK 512
#define STG_TAR_MAX_NAME 4096

enum stg_tar_rc {
    STG_TAR_MEMBER = 0, /* all of its headers are there; its data may not be */
    STG_TAR_NEED,       /* more bytes: ret->end of them at least */
    STG_TAR_END,        /* the mark that ends an archive */
    STG_TAR_BAD /* ret->what has the reason; the begin of the next one is unknown */
};

/* Positions are counted from the first header that belongs to it. */
struct stg_tar_member {
    char name[STG_TAR_MAX_NAME + 1];
    uint64_t name_bytes;
    bool regular;         /* a file with data, not a folder, link or device */
    uint64_t data, bytes; /* its data */
    uint64_t end;         /* behind them and what fills the block */
    const char *what;
};

/* The member that begins at `at`, of which n bytes are there. */
enum stg_tar_rc stg_tar_member(const char *at, uint64_t n, struct stg_tar_member *ret);

#endif
