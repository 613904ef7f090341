/* SPDX-License-Identifier: Apache-2.0
 *
 * A folder of files that stagerd caches for itself, with a limit on their size. There are
 * no locks and no list: a file is used or deleted. A file is written under a temporary
 * name and renamed, so that a crash leaves either all of it or a temporary file, which
 * the next open deletes. Above the limit the least recently used files go. The owner of
 * the folder checks what it reads: nothing is synced. Any thread.
 */
#ifndef STG_DAEMON_FOLDER_H
#define STG_DAEMON_FOLDER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STG_FOLDER_NAME 64

struct stg_folder {
    pthread_mutex_t lock; /* guards these */
    int dir;              /* -1: nothing is cached */
    uint64_t most, used;  /* bytes on the disk */
};

#define STG_FOLDER_INIT                                                                  \
    {                                                                                    \
        .lock = PTHREAD_MUTEX_INITIALIZER, .dir = -1                                     \
    }

/* Creates the directory (mode 0700) if needed, deletes temporary files, and makes room.
 * path "": only closes the folder. Returns 0, or a negative errno: the folder is closed.
 */
int stg_folder_open(struct stg_folder *folder, const char *path, uint64_t most_bytes);
void stg_folder_close(struct stg_folder *folder);

/* Returns a descriptor of the directory, which the caller closes; -1: none. */
int stg_folder_take(struct stg_folder *folder);

/* Writes the name of the file for a key: a hash of it. Different keys may share a name:
 * the file must contain its key. key is as it was afterwards; n is at least 1. */
void stg_folder_name(char *key, size_t n, char ret[STG_FOLDER_NAME]);
/* Writes a temporary name, unique in this process. */
void stg_folder_temporary(char ret[STG_FOLDER_NAME]);

/* Returns the most bytes that the files may take. */
uint64_t stg_folder_limit(struct stg_folder *folder);

/* Makes room for a file of that many bytes, and counts it. Returns false if the folder is
 * closed, or if the file would take more than half of it. */
bool stg_folder_reserve(struct stg_folder *folder, uint64_t bytes);

#endif
