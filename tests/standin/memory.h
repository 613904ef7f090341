/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of the stand-in: members of its table, and the device's address of memory
 * that it handed out. Any thread; functions that need the lock are marked.
 */
#ifndef STG_TESTS_STANDIN_MEMORY_H
#define STG_TESTS_STANDIN_MEMORY_H

#include <pthread.h>

#include "tests/standin/standin.h"

extern pthread_mutex_t standin_lock;
extern struct standin standin_control; /* guarded by it */

/* Returns the device's address of device memory; the first one with the lock held. */
void *standin_see(const void *at);
void *standin_see_locked(const void *at);

/* Returns whether it is page-locked. With the lock held. */
bool standin_is_pinned(const void *at);

/* Reads a setting for the device of a helper process from the environment, because no
 * test can control that process. */
bool standin_setting(const char *name, unsigned long *ret);

int standin_device_alloc(int device, size_t bytes, void **ret, struct stg_err *err);
void standin_device_free(int device, void *ptr);
int standin_shared_make(int device, size_t bytes, struct stg_device_shared *ret,
                        int *ret_fd, struct stg_err *err);
int standin_shared_import(int device, int fd, size_t bytes, bool read_only,
                          struct stg_device_shared *ret, struct stg_err *err);
void standin_shared_release(struct stg_device_shared *shared);
int standin_host_register(int device, void *ptr, size_t bytes, bool read_only,
                          struct stg_err *err);
void standin_host_unregister(void *ptr);
int standin_host_alloc(size_t bytes, void **ret, struct stg_err *err);
void standin_host_free(void *ptr);

#endif
