/* SPDX-License-Identifier: Apache-2.0
 *
 * What keeps a tensor's memory: a batch in hand, or the results of a stager_run on a
 * device, which stay until the last tensor of them goes.
 */
#include <stdlib.h>

#include "client/api/close.h"
#include "client/python/binding.h"

/* ---- batches in hand ---- */

static void unlink_held(struct stg_py_held *held)
{
    *held->link = held->next;
    if (held->next != NULL)
        held->next->link = held->link;
    held->link = NULL;
}

void stg_py_held_release(struct stg_py_stream *stream, struct stg_py_held *held)
{
    if (held->is_released)
        return;
    if (stream->is_busy) {
        held->is_dead = true;
        return;
    }
    held->is_released = true;
    if (held->has_consumer)
        stager_release_after(held->batch, held->consumer);
    else
        stager_release(held->batch);
    unlink_held(held);
}

static void free_held(struct stg_py_held *held)
{
    stg_batch_unpin(held->batch);
    free(held);
}

void stg_py_held_drop(struct stg_py_stream *stream, struct stg_py_held *held)
{
    stg_py_held_release(stream, held);
    held->is_orphan = true;
    if (!stream->is_busy) {
        free_held(held);
    } else if (held->is_released) { /* else the list has it */
        held->next = stream->orphans;
        stream->orphans = held;
    }
}

void stg_py_held_sweep(struct stg_py_stream *stream)
{
    struct stg_py_held *next;
    for (struct stg_py_held *held = stream->held; held != NULL; held = next) {
        next = held->next;
        if (held->is_dead)
            stg_py_held_release(stream, held);
        if (held->is_orphan)
            free_held(held);
    }
    while (stream->orphans != NULL) {
        struct stg_py_held *held = stream->orphans;
        stream->orphans = held->next;
        free_held(held);
    }
}

bool stg_py_tensor_is_alive(const struct stg_py_tensor *tensor)
{
    if (tensor->lease == NULL || tensor->lease->held != NULL)
        return true;
    PyErr_Format(PyExc_BufferError, "batch %llu was released", tensor->lease->number);
    return false;
}

bool stg_py_tensor_is_writable(const struct stg_py_tensor *tensor)
{
    return tensor->device >= 0 ||
           (tensor->lease != NULL && tensor->lease->stream->is_writable);
}

/* ---- results on a device ---- */

static const char name[] = "stager.result";

static void drop(struct stg_py_result *result)
{
    struct stg_py_stream *stream = result->stream;
    stg_run_drop(result->home, result->result, result->has_consumer, result->consumer);
    free(result);
    Py_DECREF((PyObject *)stream);
}

static void destroy(PyObject *capsule)
{
    struct stg_py_result *result = PyCapsule_GetPointer(capsule, name);
    struct stg_py_stream *stream = result->stream;
    if (!stream->is_busy) {
        drop(result);
        return;
    }
    result->next = stream->dead_results;
    stream->dead_results = result;
}

void stg_py_results_drop(struct stg_py_stream *stream)
{
    while (stream->dead_results != NULL) {
        struct stg_py_result *result = stream->dead_results;
        stream->dead_results = result->next;
        drop(result);
    }
}

PyObject *stg_py_result_create(struct stg_py_stream *stream)
{
    struct stg_py_result *result = calloc(1, sizeof(*result));
    if (result == NULL)
        return PyErr_NoMemory();
    result->result = stg_run_keep(stream->stream, &result->home);
    if (result->result == NULL) {
        free(result);
        return stg_py_raise(stream->state, -STAGER_FAILED_PRECONDITION,
                            stager_error_text(stream->stream));
    }
    result->stream = (struct stg_py_stream *)Py_NewRef((PyObject *)stream);
    PyObject *capsule = PyCapsule_New(result, name, destroy);
    if (capsule == NULL)
        drop(result);
    return capsule;
}

struct stg_py_result *stg_py_result_of(const struct stg_py_tensor *tensor)
{
    return tensor->lease == NULL && PyCapsule_IsValid(tensor->owner, name)
               ? PyCapsule_GetPointer(tensor->owner, name)
               : NULL;
}
