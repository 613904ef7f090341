/* SPDX-License-Identifier: Apache-2.0
 *
 * A worker, as Python sees it: jobs as tensors where they lie, answers from buffers.
 */
#include <string.h>

#include "client/api/work.h"
#include "client/python/binding.h"
#include "core/status.h"

struct stg_py_worker {
    PyObject_HEAD struct stg_py_state *state;
    struct stg_work_client *work;
    bool is_busy; /* a thread without the GIL is in a call of it */
};

static PyObject *raise(struct stg_py_worker *self, int rc, const struct stg_err *err)
{
    return stg_py_raise(self->state, rc, err->text);
}

/* ---- life ---- */

static PyObject *worker_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    const char *name, *runtime_dir;
    unsigned most = 0;
    if (!PyArg_ParseTuple(args, "sz|I", &name, &runtime_dir, &most))
        return NULL;
    struct stg_py_worker *self = PyObject_New(struct stg_py_worker, type);
    if (self == NULL)
        return NULL;
    self->state = PyType_GetModuleState(type);
    self->work = NULL;
    self->is_busy = false;
    struct stg_err err = {0};
    struct stg_py_wait wait;
    stg_py_wait_begin(&wait);
    int rc = stg_work_open(runtime_dir, name, most, &self->work, &err);
    stg_py_wait_end(&wait);
    if (rc == 0 && !wait.is_over)
        return (PyObject *)self;
    if (!wait.is_over)
        raise(self, rc, &err);
    Py_DECREF((PyObject *)self);
    return NULL;
}

static void dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    stg_work_close(((struct stg_py_worker *)self)->work);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *get_function(PyObject *self, void *ignored)
{
    return PyUnicode_FromString(((struct stg_py_worker *)self)->work->function);
}

static PyObject *get_output(PyObject *self, void *ignored)
{
    const struct stg_schema *output = &((struct stg_py_worker *)self)->work->output;
    PyObject *list = PyList_New((Py_ssize_t)output->n);
    for (size_t i = 0; list != NULL && i < output->n; i++) {
        const struct stg_component *c = &output->components[i];
        PyObject *one = Py_BuildValue("(ssNI)", c->name, stager_dtype_name(c->dtype),
                                      stg_py_shape(c->ndim, c->shape), c->part);
        if (one == NULL)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, (Py_ssize_t)i, one);
    }
    return list;
}

static PyObject *get_seed(PyObject *self, void *ignored)
{
    return PyLong_FromUnsignedLongLong(((struct stg_py_worker *)self)->work->seed);
}

static PyObject *get_pure(PyObject *self, void *ignored)
{
    return PyBool_FromLong(((struct stg_py_worker *)self)->work->pure);
}

static PyObject *worker_fileno(PyObject *self, PyObject *ignored)
{
    return PyLong_FromLong(((struct stg_py_worker *)self)->work->client->fd);
}

static PyObject *worker_channel(PyObject *self, PyObject *ignored)
{
    return PyLong_FromLong(((struct stg_py_worker *)self)->work->channel);
}

PyObject *stg_py_tell_end(PyObject *module, PyObject *args)
{
    int channel, status;
    if (!PyArg_ParseTuple(args, "ii", &channel, &status))
        return NULL;
    stg_work_tell_end(channel, status);
    Py_RETURN_NONE;
}

/* ---- jobs ---- */

static bool enter(struct stg_py_worker *self)
{
    if (!self->is_busy)
        return true;
    stg_py_raise(self->state, STAGER_FAILED_PRECONDITION,
                 "another thread is in a call of this worker");
    return false;
}

static PyObject *worker_ready(PyObject *self, PyObject *ignored)
{
    stg_work_ready(((struct stg_py_worker *)self)->work);
    Py_RETURN_NONE;
}

/* (name, part, tensor) of each tensor of the job in hand. */
static PyObject *tensors_of(struct stg_py_worker *self)
{
    const char *base = self->work->input.base;
    uint32_t n = ((const struct stg_batch_header *)(const void *)base)->n_tensors;
    PyObject *list = PyList_New((Py_ssize_t)n);
    for (uint32_t i = 0; list != NULL && i < n; i++) {
        struct stg_tensor tensor;
        const char *name;
        stg_batch_tensor_at(base, i, &tensor, &name);
        struct stager_tensor shown = {.dtype = tensor.dtype,
                                      .ndim = tensor.ndim,
                                      .data = tensor.data,
                                      .data_bytes = tensor.data_bytes,
                                      .offsets = tensor.begin};
        memcpy(shown.shape, tensor.shape, sizeof(tensor.shape));
        PyObject *view =
            stg_py_tensor_create(self->state, (PyObject *)self, NULL, &shown);
        PyObject *one = view != NULL
                            ? Py_BuildValue("(sIN)", name, stg_batch_part(base, i), view)
                            : NULL;
        if (one == NULL)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, (Py_ssize_t)i, one);
    }
    return list;
}

static PyObject *worker_next(PyObject *object, PyObject *ignored)
{
    struct stg_py_worker *self = (struct stg_py_worker *)object;
    if (!enter(self))
        return NULL;
    struct stg_err err = {0};
    struct stg_py_wait wait;
    self->is_busy = true;
    stg_py_wait_begin(&wait);
    int rc = stg_work_next(self->work, STG_NEVER, &err);
    stg_py_wait_end(&wait);
    self->is_busy = false;
    if (wait.is_over)
        return NULL;
    if (rc == -STAGER_UNAVAILABLE)
        Py_RETURN_NONE;
    return rc < 0 ? raise(self, rc, &err) : tensors_of(self);
}

static PyObject *worker_place(PyObject *object, PyObject *ignored)
{
    struct stg_py_worker *self = (struct stg_py_worker *)object;
    if (self->work->job == 0) {
        PyErr_SetString(PyExc_ValueError, "no job in hand");
        return NULL;
    }
    const struct stg_batch_header *header = self->work->input.base;
    return Py_BuildValue("(KKK)", (unsigned long long)header->pass,
                         (unsigned long long)header->epoch,
                         (unsigned long long)header->index);
}

/* What was taken of Python's arguments for one output. */
struct given {
    Py_buffer data, offsets;
};

static bool take_shape(PyObject *shape, struct stg_tensor *to)
{
    Py_ssize_t n = PyTuple_Size(shape);
    if (n > STG_MAX_DIMS) {
        PyErr_Format(PyExc_ValueError, "%zd dimensions; at most %d", n, STG_MAX_DIMS);
        return false;
    }
    for (Py_ssize_t d = 0; d < n; d++)
        to->shape[d] = PyLong_AsLongLong(PyTuple_GetItem(shape, d));
    to->ndim = (int)n;
    return !PyErr_Occurred();
}

/* Do the buffers hold what dtype and shape say? */
static bool check_sizes(const struct stg_tensor *tensor, const struct given *given)
{
    uint64_t n, bytes;
    bool ok = stg_tensor_size(tensor->dtype, tensor->ndim, tensor->shape,
                              (uint64_t)given->data.len, &n, &bytes) &&
              bytes == (uint64_t)given->data.len;
    if (ok && tensor->dtype == STAGER_STRING) {
        const int64_t *offsets = given->offsets.buf;
        ok = (uint64_t)given->offsets.len == (n + 1) * sizeof(int64_t) &&
             offsets[0] == 0 && offsets[n] == given->data.len;
        for (uint64_t i = 0; ok && i < n; i++)
            ok = offsets[i + 1] >= offsets[i];
    }
    if (!ok)
        PyErr_SetString(PyExc_ValueError, "the size of a buffer differs from its shape");
    return ok;
}

/* (shape, data, offsets): offsets are b"" but for strings. */
static bool take_output(PyObject *one, int dtype, struct given *given,
                        struct stg_tensor *to)
{
    PyObject *shape;
    if (!PyArg_ParseTuple(one, "O!y*y*", &PyTuple_Type, &shape, &given->data,
                          &given->offsets))
        return false;
    *to = (struct stg_tensor){
        .dtype = dtype, .data = given->data.buf, .data_bytes = (uint64_t)given->data.len};
    if (!take_shape(shape, to) || !check_sizes(to, given))
        return false;
    if (dtype == STAGER_STRING) {
        to->begin = given->offsets.buf;
        to->end = to->begin + 1;
    }
    return true;
}

static int give(struct stg_py_worker *self, const struct stg_tensor *tensors,
                struct stg_err *err)
{
    struct stg_py_wait wait;
    self->is_busy = true;
    stg_py_wait_begin(&wait);
    int rc = stg_work_give(self->work, tensors, err);
    stg_py_wait_end(&wait);
    self->is_busy = false;
    return rc;
}

static PyObject *worker_give(PyObject *object, PyObject *outputs)
{
    struct stg_py_worker *self = (struct stg_py_worker *)object;
    const struct stg_schema *schema = &self->work->output;
    if (!enter(self))
        return NULL;
    if (!PyList_Check(outputs) || PyList_Size(outputs) != (Py_ssize_t)schema->n ||
        self->work->job == 0) {
        PyErr_SetString(PyExc_ValueError,
                        "not a list of all outputs, or no job is in progress");
        return NULL;
    }
    struct given *given = PyMem_Calloc(schema->n + 1, sizeof(*given));
    struct stg_tensor *tensors = PyMem_Calloc(schema->n + 1, sizeof(*tensors));
    bool ok = given != NULL && tensors != NULL;
    if (!ok)
        PyErr_NoMemory();
    for (size_t i = 0; ok && i < schema->n; i++)
        ok = take_output(PyList_GetItem(outputs, (Py_ssize_t)i),
                         schema->components[i].dtype, &given[i], &tensors[i]);
    struct stg_err err = {0};
    int rc = ok ? give(self, tensors, &err) : 0;
    for (size_t i = 0; given != NULL && i < schema->n; i++) {
        PyBuffer_Release(&given[i].data);
        PyBuffer_Release(&given[i].offsets);
    }
    PyMem_Free(given);
    PyMem_Free(tensors);
    if (!ok || PyErr_Occurred())
        return NULL;
    if (rc < 0)
        return raise(self, rc, &err);
    Py_RETURN_NONE;
}

static PyObject *worker_fail(PyObject *object, PyObject *args)
{
    struct stg_py_worker *self = (struct stg_py_worker *)object;
    int code;
    const char *text;
    if (!PyArg_ParseTuple(args, "is", &code, &text) || !enter(self))
        return NULL;
    if (code < 1 || code > STAGER_UNAUTHENTICATED || self->work->job == 0) {
        PyErr_SetString(PyExc_ValueError, "not a status code, or no job is in progress");
        return NULL;
    }
    struct stg_err err = {0};
    int rc = stg_work_fail(self->work, code, text, &err);
    if (rc < 0)
        return raise(self, rc, &err);
    Py_RETURN_NONE;
}

/* ---- the type ---- */

static PyMethodDef methods[] = {
    {"fileno", worker_fileno, METH_NOARGS,
     "The connection: when its other end is closed, stagerd has let go of this worker."},
    {"channel", worker_channel, METH_NOARGS, "Where its work comes: for tell_end."},
    {"ready", worker_ready, METH_NOARGS, "The function is there: work may come."},
    {"next", worker_next, METH_NOARGS,
     "[(name, part, tensor)] of the next job; None: stagerd has let go of this worker."},
    {"place", worker_place, METH_NOARGS, "(pass, epoch, index) of the job in hand."},
    {"give", worker_give, METH_O,
     "give([(shape, data, offsets)]): the answer, one for each output."},
    {"fail", worker_fail, METH_VARARGS, "fail(code, text): the answer is an error."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getset[] = {
    {"function", get_function, NULL, "\"module:name\".", NULL},
    {"output", get_output, NULL, "[(name, dtype, shape, part)] of what it has to give.",
     NULL},
    {"seed", get_seed, NULL, "That of the step.", NULL},
    {"pure", get_pure, NULL, "Is the function declared pure?", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, (void *)(uintptr_t)worker_new},
    {Py_tp_dealloc, (void *)(uintptr_t)dealloc},
    {Py_tp_methods, methods},
    {Py_tp_getset, getset},
    {Py_tp_doc,
     (void *)(uintptr_t) "Worker(name, runtime_dir, most): runs a py_function."},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "stager._core.Worker",
    .basicsize = sizeof(struct stg_py_worker),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};

PyObject *stg_py_worker_type(PyObject *module)
{
    return PyType_FromModuleAndSpec(module, &spec, NULL);
}
