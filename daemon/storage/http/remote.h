/* SPDX-License-Identifier: Apache-2.0
 *
 * A source over an object on another machine: what every remote scheme shares. It reads
 * in ranges, several at once, as far ahead as the reader's own speed times the time that
 * a range takes; a reader that jumps drops what it jumped over. A scheme says how an
 * object is asked for, and nothing else.
 */
#ifndef STG_DAEMON_REMOTE_H
#define STG_DAEMON_REMOTE_H

#include "daemon/storage/http/fetch.h"
#include "daemon/storage/storage.h"

/* Opens it: waits for the first answer. Takes the object, also on failure. Errors as of
 * fetch.h. */
int stg_remote_open(const struct stg_storage *storage, struct stg_object *object,
                    const struct stg_file_user *identity, struct stg_source **ret,
                    struct stg_err *err);

/* How a scheme asks which object it is, where an answer with bytes does not say it. */
struct stg_remote_probe {
    struct stg_object *object; /* what to ask */
    int (*ask)(struct stg_object *object, const struct stg_file_user *identity,
               struct stg_version *ret, struct stg_err *err);
};

/* Opens what is `version`, which was asked for before, and will be again when the last
 * byte is read. Takes both objects, also on failure. */
int stg_remote_open_known(const struct stg_storage *storage, struct stg_object *object,
                          const struct stg_version *version,
                          const struct stg_remote_probe *probe,
                          const struct stg_file_user *identity, struct stg_source **ret,
                          struct stg_err *err);

/* The rest of a struct stg_storage. */
int64_t stg_remote_read(struct stg_source *source, uint64_t offset, void *buf,
                        size_t bytes, struct stg_err *err);
void stg_remote_will_need(struct stg_source *source, uint64_t offset, uint64_t bytes);
int stg_remote_size(struct stg_source *source, uint64_t *ret, struct stg_err *err);
int stg_remote_version(struct stg_source *source, uint64_t *ret, struct stg_err *err);
void stg_remote_close(struct stg_source *source);

/* All that an object answers, of at most most_bytes: lists, and other small things. The
 * text ends with a NUL that is not counted; the caller frees. */
int stg_remote_get(struct stg_object *object, uint64_t most_bytes,
                   const struct stg_file_user *identity, char **ret, size_t *ret_bytes,
                   struct stg_err *err);

#endif
