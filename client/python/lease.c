/* SPDX-License-Identifier: Apache-2.0
 *
 * A lease: one batch, until the last view of it goes, or until release.
 */
#include <stdio.h>
#include <stdlib.h>

#include "client/api/close.h"
#include "client/python/binding.h"

/* ---- life ---- */

PyObject *stg_py_lease_create(struct stg_py_stream *stream, struct stager_batch *batch)
{
    struct stager_batch_info info = {.struct_size = sizeof(info)};
    stager_batch_info(batch, &info);
    struct stg_py_held *held = malloc(sizeof(*held));
    struct stg_py_lease *lease =
        PyObject_New(struct stg_py_lease, stream->state->lease_type);
    if (held == NULL || lease == NULL) {
        stager_release(batch);
        free(held);
        if (lease == NULL)
            return NULL;
        lease->held = lease->own = NULL;
        lease->stream = NULL;
        Py_DECREF(lease);
        return PyErr_NoMemory();
    }
    *held =
        (struct stg_py_held){.batch = batch, .next = stream->held, .link = &stream->held};
    if (held->next != NULL)
        held->next->link = &held->next;
    stream->held = held;
    lease->stream = (struct stg_py_stream *)Py_NewRef((PyObject *)stream);
    stg_batch_pin(batch);
    lease->held = lease->own = held;
    lease->number = info.number;
    return (PyObject *)lease;
}

static void release(struct stg_py_lease *lease)
{
    if (lease->held != NULL)
        stg_py_held_release(lease->stream, lease->held);
    lease->held = NULL;
}

static void dealloc(PyObject *self)
{
    struct stg_py_lease *lease = (struct stg_py_lease *)self;
    PyTypeObject *type = Py_TYPE(self);
    if (lease->own != NULL)
        stg_py_held_drop(lease->stream, lease->own);
    Py_XDECREF((PyObject *)lease->stream);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* ---- methods ---- */

static PyObject *lease_release(PyObject *self, PyObject *ignored)
{
    release((struct stg_py_lease *)self);
    Py_RETURN_NONE;
}

/* A batch that can be looked into; else an exception is set. */
static struct stager_batch *open_batch(struct stg_py_lease *lease)
{
    char text[96];
    if (lease->held != NULL && !lease->stream->is_busy)
        return lease->held->batch;
    snprintf(text, sizeof(text), "batch %llu %s", lease->number,
             lease->held == NULL ? "was released"
                                 : "is in use by a call of another thread");
    stg_py_raise(lease->stream->state, STAGER_FAILED_PRECONDITION, text);
    return NULL;
}

static PyObject *raise_last(struct stg_py_lease *lease, int rc)
{
    return stg_py_raise(lease->stream->state, rc,
                        stager_error_text(lease->stream->stream));
}

static PyObject *view(struct stg_py_lease *lease, const struct stager_tensor *tensor)
{
    return stg_py_tensor_create(lease->stream->state, (PyObject *)lease, lease, tensor);
}

static PyObject *lease_tensor(PyObject *self, PyObject *name)
{
    struct stg_py_lease *lease = (struct stg_py_lease *)self;
    const struct stager_batch *batch = open_batch(lease);
    const char *text = batch != NULL ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    if (text == NULL)
        return NULL;
    struct stager_tensor tensor;
    int rc = stager_batch_tensor(batch, text, &tensor);
    return rc == 0 ? view(lease, &tensor) : raise_last(lease, rc);
}

/* (values, row_splits) or (values, indices, dense_shape), checked. */
static PyObject *lease_parts(struct stg_py_lease *lease, PyObject *path, bool is_sparse)
{
    const struct stager_batch *batch = open_batch(lease);
    const char *text = batch != NULL ? PyUnicode_AsUTF8AndSize(path, NULL) : NULL;
    if (text == NULL)
        return NULL;
    struct stager_sparse sparse;
    struct stager_ragged ragged;
    int rc = is_sparse ? stager_batch_sparse(batch, text, &sparse)
                       : stager_batch_ragged(batch, text, &ragged);
    if (rc < 0)
        return raise_last(lease, rc);
    if (is_sparse)
        return Py_BuildValue("(NNN)", view(lease, &sparse.values),
                             view(lease, &sparse.indices),
                             view(lease, &sparse.dense_shape));
    return Py_BuildValue("(NN)", view(lease, &ragged.values),
                         view(lease, &ragged.row_splits));
}

static PyObject *lease_sparse(PyObject *self, PyObject *path)
{
    return lease_parts((struct stg_py_lease *)self, path, true);
}

static PyObject *lease_ragged(PyObject *self, PyObject *path)
{
    return lease_parts((struct stg_py_lease *)self, path, false);
}

static PyObject *lease_names(PyObject *self, PyObject *ignored)
{
    struct stg_py_lease *lease = (struct stg_py_lease *)self;
    const struct stager_batch *batch = open_batch(lease);
    PyObject *names = batch != NULL ? PyList_New(0) : NULL;
    struct stager_tensor tensor;
    for (uint32_t i = 0; names != NULL && stager_batch_tensor_at(batch, i, &tensor) == 0;
         i++) {
        PyObject *name = PyUnicode_FromString(tensor.name);
        if (name == NULL || PyList_Append(names, name) < 0)
            Py_CLEAR(names);
        Py_XDECREF(name);
    }
    return names;
}

static PyObject *lease_info(PyObject *self, PyObject *ignored)
{
    struct stg_py_lease *lease = (struct stg_py_lease *)self;
    const struct stager_batch *batch = open_batch(lease);
    if (batch == NULL)
        return NULL;
    struct stager_batch_info info = {.struct_size = sizeof(info)};
    stager_batch_info(batch, &info);
    return Py_BuildValue(
        "{sK sK sK sK sK sK sK sK sK sI sO sI sI sK sK sK}", "generation",
        (unsigned long long)info.generation, "number", (unsigned long long)info.number,
        "pass", (unsigned long long)info.pass, "epoch", (unsigned long long)info.epoch,
        "index", (unsigned long long)info.index, "n_dropped",
        (unsigned long long)info.n_dropped, "n_rows", (unsigned long long)info.n_rows,
        "bytes", (unsigned long long)info.bytes, "assigned_ns",
        (unsigned long long)info.assigned_ns, "n_tensors", info.n_tensors, "redelivered",
        info.redelivered ? Py_True : Py_False, "slice", info.slice, "n_slices",
        info.n_slices, "feed_version", (unsigned long long)info.feed_version, "run_id",
        (unsigned long long)info.run_id, "position", (unsigned long long)info.position);
}

static PyObject *get_number(PyObject *self, void *ignored)
{
    return PyLong_FromUnsignedLongLong(((struct stg_py_lease *)self)->number);
}

static PyObject *get_released(PyObject *self, void *ignored)
{
    return PyBool_FromLong(((struct stg_py_lease *)self)->held == NULL);
}

static PyMethodDef methods[] = {
    {"tensor", lease_tensor, METH_O, "tensor(name) -> Tensor"},
    {"ragged", lease_ragged, METH_O, "ragged(path) -> (values, row_splits)"},
    {"sparse", lease_sparse, METH_O, "sparse(path) -> (values, indices, dense_shape)"},
    {"names", lease_names, METH_NOARGS, "Names of its tensors, in order."},
    {"info", lease_info, METH_NOARGS, "What the batch says of itself, as a dict."},
    {"release", lease_release, METH_NOARGS, "Gives the batch back; its views are dead."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getset[] = {
    {"number", get_number, NULL, "Position in the stage's output.", NULL},
    {"released", get_released, NULL, "Was it given back?", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, (void *)(uintptr_t)stg_py_refuse_new},
    {Py_tp_dealloc, (void *)(uintptr_t)dealloc},
    {Py_tp_methods, methods},
    {Py_tp_getset, getset},
    {Py_tp_doc, (void *)(uintptr_t) "A batch in hand."},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "stager._core.Lease",
    .basicsize = sizeof(struct stg_py_lease),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};

PyObject *stg_py_lease_type(PyObject *module)
{
    return PyType_FromModuleAndSpec(module, &spec, NULL);
}
