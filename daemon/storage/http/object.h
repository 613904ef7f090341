/* SPDX-License-Identifier: Apache-2.0
 *
 * The request for an object on another machine: its URL, its user, the secrets. It sends
 * nothing. Immutable and reference counted, because a request under way may outlive the
 * reader. Any thread.
 */
#ifndef STG_DAEMON_OBJECT_H
#define STG_DAEMON_OBJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

struct stg_object {
    _Atomic uint32_t refs;
    char *url;    /* what is sent */
    char *shown;  /* for texts: as the user wrote it, without what may be secret */
    char *advice; /* what to set where access is denied; NULL: nothing is known */

    /* Secrets: none is ever part of a text. NULL: none. */
    char *login;        /* "user:password" */
    char *bearer;       /* a token instead of a login */
    char *key, *secret; /* of a signature by sigv4.h, for the service s3 in `region` */
    char *token;        /* of the session of that key */
    char *region;       /* no secret */

    bool range_in_query; /* WebHDFS: offset and length stand in the URL */
    bool loopback;       /* it may lie on this machine */
    bool stays;          /* no answer leads to another place: rules.read */
};

/* A zeroed object with one reference; its strings are malloc'ed and belong to it. NULL
 * when out of memory. */
struct stg_object *stg_object_create(void);
struct stg_object *stg_object_ref(struct stg_object *object);
void stg_object_unref(struct stg_object *object); /* NULL is allowed */

#endif
