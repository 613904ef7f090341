/* SPDX-License-Identifier: Apache-2.0
 *
 * A window of a file that is mapped, out of which reads are copied: from the page cache
 * the C library copies faster than the kernel does for pread. Nothing but the copy sees
 * mapped memory, so that another process that writes to the file or truncates it can do
 * what it can do to a pread, and no more. A copy that fails is left to pread, which knows
 * the reason. Several threads may call stg_mapping_read at once.
 */
#ifndef STG_DAEMON_STORAGE_LOCAL_MAPPING_H
#define STG_DAEMON_STORAGE_LOCAL_MAPPING_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stg_mapping {
    pthread_mutex_t lock; /* guards what follows */
    bool is_refused;      /* from now on pread reads all */
    char *base;           /* NULL: nothing is mapped */
    uint64_t begin, end;  /* of the window, in the file */
    bool is_last;         /* the file ends with the window */
    uint64_t copied;      /* bytes of the window */
    unsigned n_short;     /* windows of which too little was copied */
};

/* is_refused: for a file that is not read in places. */
void stg_mapping_init(struct stg_mapping *mapping, bool is_refused);
void stg_mapping_finish(struct stg_mapping *mapping);

/* Ends the use of the mapping. Not while another thread reads. */
void stg_mapping_refuse(struct stg_mapping *mapping);

/* Copies bytes of the file to buf. False: pread has to read them. */
bool stg_mapping_read(struct stg_mapping *mapping, int fd, uint64_t offset, void *buf,
                      size_t bytes);

#endif
