/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/position.h"

#include <stdlib.h>
#include <string.h>

void stg_position_queue_init(struct stg_position_queue *queue)
{
    *queue = (struct stg_position_queue){0};
    pthread_mutex_init(&queue->lock, NULL);
}

void stg_position_queue_finish(struct stg_position_queue *queue)
{
    pthread_mutex_destroy(&queue->lock);
    free(queue->ring);
}

/* The lock is held. */
static int grow(struct stg_position_queue *queue, struct stg_err *err)
{
    size_t size = queue->size > 0 ? 2 * queue->size : 8;
    struct stg_position *ring = malloc(size * sizeof(*ring));
    if (ring == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED,
                       "the positions of items: out of memory");
    for (size_t i = 0; i < queue->n; i++)
        ring[i] = queue->ring[(queue->first + i) % queue->size];
    free(queue->ring);
    queue->ring = ring;
    queue->size = size;
    queue->first = 0;
    return 0;
}

int stg_position_push(struct stg_position_queue *queue, uint64_t n, uint64_t elements,
                      uint64_t passed, struct stg_err *err)
{
    pthread_mutex_lock(&queue->lock);
    int rc = queue->n == queue->size ? grow(queue, err) : 0;
    if (rc == 0)
        queue->ring[(queue->first + queue->n++) % queue->size] =
            (struct stg_position){.items = n, .elements = elements, .passed = passed};
    pthread_mutex_unlock(&queue->lock);
    return rc;
}

void stg_position_pop(struct stg_position_queue *queue, uint64_t n,
                      struct stg_position *ret)
{
    pthread_mutex_lock(&queue->lock);
    while (queue->n > 0 && n > 0) {
        struct stg_position *first = &queue->ring[queue->first];
        uint64_t now = first->items < n ? first->items : n;
        ret->elements = first->elements;
        ret->passed = first->passed;
        first->items -= now;
        n -= now;
        if (first->items > 0)
            break;
        queue->first = (queue->first + 1) % queue->size;
        queue->n--;
    }
    pthread_mutex_unlock(&queue->lock);
}

void stg_position_clear(struct stg_position_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    queue->n = 0;
    pthread_mutex_unlock(&queue->lock);
}
