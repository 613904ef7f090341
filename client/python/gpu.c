/* SPDX-License-Identifier: Apache-2.0 */
#include "client/python/binding.h"

PyObject *stg_py_gpu(PyObject *module, PyObject *argument)
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
