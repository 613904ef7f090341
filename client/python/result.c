/* SPDX-License-Identifier: Apache-2.0
 *
 * Results of stager_run on a device: their memory stays until the last tensor of them
 * goes.
 */
#include <stdlib.h>

#include "client/api/close.h"
#include "client/python/binding.h"

static const char name[] = "stager.result";

static void drop(struct stg_py_result *result)
{
    struct stg_py_stream *stream = result->stream;
    stg_run_drop(stream->stream, result->result, result->has_consumer, result->consumer);
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
    result->result = stg_run_keep(stream->stream);
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
