/* SPDX-License-Identifier: Apache-2.0
 *
 * The module stager._core: its types and its functions.
 */
#include "client/python/binding.h"
#include "core/state.h"

/* ---- functions ---- */

static PyObject *gpu_info(PyObject *module, PyObject *argument)
{
    long number = PyLong_AsLong(argument);
    if (number == -1 && PyErr_Occurred())
        return NULL;
    struct stager_gpu_info gpu = {.struct_size = sizeof(gpu)};
    struct stg_py_wait wait;
    stg_py_wait_begin(&wait);
    int rc = stager_gpu(number < 0 || number > INT32_MAX ? -1 : (int)number, &gpu);
    stg_py_wait_end(&wait);
    if (wait.is_over)
        return NULL;
    if (rc < 0)
        return stg_py_raise(PyModule_GetState(module), rc, stager_error_text(NULL));
    PyObject *capability = PyUnicode_FromFormat("%d.%d", gpu.major, gpu.minor);
    return Py_BuildValue(
        "{ss sN sK si si sI sN sN sN sN}", "name", gpu.name, "compute_capability",
        capability, "memory_bytes", (unsigned long long)gpu.memory_bytes, "driver",
        gpu.driver, "runtime", gpu.runtime, "n_devices", gpu.n_devices,
        "register_read_only", PyBool_FromLong(gpu.register_read_only != 0), "ipc",
        PyBool_FromLong(gpu.ipc != 0), "memory_fds", PyBool_FromLong(gpu.memory_fds != 0),
        "mps", PyBool_FromLong(gpu.mps != 0));
}

/* Checks the text of a state as far as that needs no daemon. */
static PyObject *check_state(PyObject *module, PyObject *argument)
{
    struct stg_state ignored;
    struct stg_err err = {0};
    Py_ssize_t bytes;
    const char *text = PyUnicode_AsUTF8AndSize(argument, &bytes);
    if (text == NULL)
        return NULL;
    int rc = stg_state_read(text, (size_t)bytes, &ignored, &err);
    if (rc < 0)
        return stg_py_raise(PyModule_GetState(module), rc, err.text);
    Py_RETURN_NONE;
}

/* Makes one state of a sequence of texts. */
static PyObject *merge_states(PyObject *module, PyObject *argument)
{
    char merged[STAGER_STATE_BYTES];
    PyObject *list = PySequence_List(argument);
    if (list == NULL)
        return NULL;
    Py_ssize_t n = PyList_Size(list);
    const char **texts = PyMem_Calloc((size_t)n + 1, sizeof(*texts));
    PyObject *result = texts == NULL ? PyErr_NoMemory() : Py_None;
    for (Py_ssize_t i = 0; i < n && result != NULL; i++) {
        texts[i] = PyUnicode_AsUTF8AndSize(PyList_GetItem(list, i), NULL);
        result = texts[i] != NULL ? Py_None : NULL;
    }
    if (result != NULL) {
        int rc = stager_merge_states(texts, (size_t)n, merged, sizeof(merged));
        result = rc == 0 ? PyUnicode_FromString(merged)
                         : stg_py_raise(PyModule_GetState(module), rc,
                                        stager_error_text(NULL));
    }
    PyMem_Free(texts);
    Py_DECREF(list);
    return result;
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
    {"audit", stg_py_audit, METH_VARARGS,
     "The audit of a pipeline, or how two differ, as JSON."},
    {"request", stg_py_request, METH_VARARGS,
     "request(kind, runtime_dir, name, text, file, replace, if_generation, script, "
     "script_run) -> JSON"},
    {"gpu", gpu_info, METH_O, "gpu(number) -> what it is"},
    {"check_state", check_state, METH_O, "Checks the text of a state."},
    {"merge_states", merge_states, METH_O, "merge_states(texts) -> text"},
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
