/* SPDX-License-Identifier: Apache-2.0 */
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
    return PyErr_Format(PyExc_TypeError, "%R comes from a stream, and cannot be made",
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

/* ---- the module ---- */

static int add_types(PyObject *module, struct stg_py_state *state)
{
    state->stream_type = (PyTypeObject *)stg_py_stream_type(module);
    state->lease_type = (PyTypeObject *)stg_py_lease_type(module);
    state->tensor_type = (PyTypeObject *)stg_py_tensor_type(module);
    state->worker_type = (PyTypeObject *)stg_py_worker_type(module);
    if (state->stream_type == NULL || state->lease_type == NULL ||
        state->tensor_type == NULL || state->worker_type == NULL)
        return -1;
    if (PyModule_AddType(module, state->stream_type) < 0 ||
        PyModule_AddType(module, state->lease_type) < 0 ||
        PyModule_AddType(module, state->tensor_type) < 0 ||
        PyModule_AddType(module, state->worker_type) < 0)
        return -1;
    return PyModule_AddStringConstant(module, "version", stager_version());
}

static int execute(PyObject *module)
{
    struct stg_py_state *state = PyModule_GetState(module);
    PyObject *errors = PyImport_ImportModule("stager._errors");
    if (errors == NULL)
        return -1;
    state->error_of = PyObject_GetAttrString(errors, "error_of");
    Py_DECREF(errors);
    return state->error_of != NULL ? add_types(module, state) : -1;
}

static int traverse(PyObject *module, visitproc visit, void *arg)
{
    struct stg_py_state *state = PyModule_GetState(module);
    Py_VISIT(state->error_of);
    Py_VISIT(state->stream_type);
    Py_VISIT(state->lease_type);
    Py_VISIT(state->tensor_type);
    Py_VISIT(state->worker_type);
    return 0;
}

static int clear(PyObject *module)
{
    struct stg_py_state *state = PyModule_GetState(module);
    Py_CLEAR(state->error_of);
    Py_CLEAR(state->stream_type);
    Py_CLEAR(state->lease_type);
    Py_CLEAR(state->tensor_type);
    Py_CLEAR(state->worker_type);
    return 0;
}

static PyMethodDef functions[] = {
    {"request", stg_py_request, METH_VARARGS,
     "request(kind, runtime_dir, name, text, file, replace, if_generation, script, "
     "script_run) -> JSON"},
    {"gpu", stg_py_gpu, METH_O, "gpu(number) -> what it is"},
    {"tell_end", stg_py_tell_end, METH_VARARGS,
     "tell_end(channel, status): how the worker of that channel ended."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)(uintptr_t)execute},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "stager._core",
    .m_size = sizeof(struct stg_py_state),
    .m_methods = functions,
    .m_slots = slots,
    .m_traverse = traverse,
    .m_clear = clear,
};

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&definition);
}
