/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/storage/http/object.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct stg_object *stg_object_create(void)
{
    struct stg_object *object = calloc(1, sizeof(*object));
    if (object != NULL)
        atomic_store_explicit(&object->refs, 1, memory_order_relaxed);
    return object;
}

struct stg_object *stg_object_ref(struct stg_object *object)
{
    atomic_fetch_add_explicit(&object->refs, 1, memory_order_relaxed);
    return object;
}

/* Secrets do not stay in memory that is freed. */
static void forget(char *secret)
{
    if (secret != NULL)
        explicit_bzero(secret, strlen(secret));
    free(secret);
}

void stg_object_unref(struct stg_object *object)
{
    if (object == NULL ||
        atomic_fetch_sub_explicit(&object->refs, 1, memory_order_acq_rel) != 1)
        return;
    forget(object->url);
    forget(object->login);
    forget(object->bearer);
    forget(object->key);
    forget(object->secret);
    forget(object->token);
    free(object->shown);
    free(object->advice);
    free(object->region);
    free(object);
}
