/* SPDX-License-Identifier: Apache-2.0
 *
 * What each call from Python needs: exceptions, waits without the GIL, shapes.
 */
#include "client/python/binding.h"

/* ---- errors ---- */

PyObject *stg_py_raise(const struct stg_py_state *state, int code, const char *text)
{
    PyObject *words = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
    if (words == NULL)
        return NULL;
    PyObject *error =
        PyObject_CallFunction(state->error_of, "iN", code < 0 ? -code : code, words);
    if (error != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_DECREF(error);
    }
    return NULL;
}

PyObject *stg_py_refuse_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    return PyErr_Format(PyExc_TypeError,
                        "%R is created by a stream and has no constructor",
                        (PyObject *)type);
}

/* ---- waits ---- */

static bool ask_signals(void *arg)
{
    struct stg_py_wait *wait = arg;
    PyEval_RestoreThread(wait->thread);
    wait->is_over = wait->is_over || PyErr_CheckSignals() < 0;
    wait->thread = PyEval_SaveThread();
    return wait->is_over;
}

void stg_py_wait_begin(struct stg_py_wait *wait)
{
    *wait = (struct stg_py_wait){.patience = {.is_over = ask_signals, .arg = wait}};
    stg_socket_set_patience(&wait->patience);
    wait->thread = PyEval_SaveThread();
}

void stg_py_wait_end(struct stg_py_wait *wait)
{
    PyEval_RestoreThread(wait->thread);
    stg_socket_set_patience(NULL);
}

/* ---- values ---- */

PyObject *stg_py_shape(int ndim, const int64_t *sizes)
{
    PyObject *shape = PyTuple_New(ndim);
    for (int i = 0; shape != NULL && i < ndim; i++) {
        PyObject *size =
            sizes[i] < 0 ? Py_NewRef(Py_None) : PyLong_FromLongLong(sizes[i]);
        if (size == NULL)
            Py_CLEAR(shape);
        else
            PyTuple_SetItem(shape, i, size);
    }
    return shape;
}
