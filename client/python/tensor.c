/* SPDX-License-Identifier: Apache-2.0
 *
 * A tensor where it lies: the buffer protocol, __array_interface__ and DLPack, all of
 * them read-only, and all of them keep its lease alive.
 */
#include "client/python/binding.h"

/* How Python's struct module and NumPy call a dtype. */
struct element {
    int dtype;
    Py_ssize_t bytes;
    const char *format, *typestr;
};

/* Struct has no bfloat16: its bits are shown. */
static const struct element elements[] = {
    {STAGER_FLOAT32, 4, "f", "<f4"},  {STAGER_FLOAT64, 8, "d", "<f8"},
    {STAGER_INT32, 4, "i", "<i4"},    {STAGER_UINT8, 1, "B", "|u1"},
    {STAGER_INT16, 2, "h", "<i2"},    {STAGER_INT8, 1, "b", "|i1"},
    {STAGER_INT64, 8, "l", "<i8"},    {STAGER_BOOL, 1, "?", "|b1"},
    {STAGER_BFLOAT16, 2, "H", "<u2"}, {STAGER_UINT16, 2, "H", "<u2"},
    {STAGER_FLOAT16, 2, "e", "<f2"},  {STAGER_UINT32, 4, "I", "<u4"},
    {STAGER_UINT64, 8, "L", "<u8"},
};

static const struct element *element_of(int dtype)
{
    for (size_t i = 0; i < sizeof(elements) / sizeof(elements[0]); i++) {
        if (elements[i].dtype == dtype)
            return &elements[i];
    }
    return NULL;
}

/* ---- life ---- */

static void set_shape(struct stg_py_tensor *to, const struct stager_tensor *from)
{
    to->n_elements = 1;
    for (int i = from->ndim; i-- > 0;) {
        to->shape[i] = (Py_ssize_t)from->shape[i];
        to->strides[i] = to->n_elements * to->item_bytes;
        to->n_elements *= to->shape[i];
    }
}

PyObject *stg_py_tensor_create(struct stg_py_state *state, PyObject *owner,
                               struct stg_py_lease *lease,
                               const struct stager_tensor *tensor)
{
    const struct element *element = element_of(tensor->dtype);
    if (element == NULL && tensor->dtype != STAGER_STRING)
        return stg_py_raise(state, STAGER_UNIMPLEMENTED, "a tensor of an unknown dtype");
    struct stg_py_tensor *self = PyObject_New(struct stg_py_tensor, state->tensor_type);
    if (self == NULL)
        return NULL;
    self->state = state;
    self->owner = Py_NewRef(owner);
    self->lease = lease;
    self->data = tensor->data;
    self->offsets = tensor->offsets;
    self->data_bytes = (int64_t)tensor->data_bytes;
    self->dtype = tensor->dtype;
    self->ndim = tensor->ndim;
    self->device = (int32_t)tensor->device - 1;
    self->item_bytes = element != NULL ? element->bytes : 0;
    set_shape(self, tensor);
    return (PyObject *)self;
}

static void dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_DECREF(((struct stg_py_tensor *)self)->owner);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* ---- the buffer protocol ---- */

static int get_buffer(PyObject *self, Py_buffer *buffer, int flags)
{
    struct stg_py_tensor *tensor = (struct stg_py_tensor *)self;
    buffer->obj = NULL;
    if (!stg_py_tensor_is_alive(tensor))
        return -1;
    const char *why = NULL;
    bool is_writable = stg_py_tensor_is_writable(tensor);
    if (tensor->dtype == STAGER_STRING)
        why = "strings have no buffer: take string_data and string_offsets";
    else if (tensor->device >= 0)
        why = "the tensor is on a GPU: take it by DLPack, as torch.from_dlpack does";
    else if ((flags & PyBUF_WRITABLE) != 0 && !is_writable)
        why =
            "a batch is read-only: others read it too. Copy it, or open the stream with "
            "writable=True";
    if (why != NULL) {
        PyErr_SetString(PyExc_BufferError, why);
        return -1;
    }
    *buffer = (Py_buffer){
        .buf = (void *)(uintptr_t)tensor->data,
        .obj = Py_NewRef(self),
        .len = tensor->n_elements * tensor->item_bytes,
        .itemsize = tensor->item_bytes,
        .readonly = !is_writable,
        .ndim = tensor->ndim,
    };
    if ((flags & PyBUF_FORMAT) != 0)
        buffer->format = (char *)(uintptr_t)element_of(tensor->dtype)->format;
    if ((flags & PyBUF_ND) != 0)
        buffer->shape = tensor->shape;
    if ((flags & PyBUF_STRIDES) == PyBUF_STRIDES)
        buffer->strides = tensor->strides;
    return 0;
}

/* ---- what it says of itself ---- */

static PyObject *get_shape(PyObject *self, void *ignored)
{
    const struct stg_py_tensor *tensor = (struct stg_py_tensor *)self;
    return stg_py_shape(tensor->ndim, tensor->shape);
}

static PyObject *get_dtype(PyObject *self, void *ignored)
{
    return PyUnicode_FromString(stager_dtype_name(((struct stg_py_tensor *)self)->dtype));
}

static PyObject *get_nbytes(PyObject *self, void *ignored)
{
    const struct stg_py_tensor *tensor = (struct stg_py_tensor *)self;
    return PyLong_FromLongLong(tensor->dtype == STAGER_STRING
                                   ? tensor->data_bytes
                                   : tensor->n_elements * tensor->item_bytes);
}

static PyObject *get_array_interface(PyObject *self, void *ignored)
{
    struct stg_py_tensor *tensor = (struct stg_py_tensor *)self;
    if (!stg_py_tensor_is_alive(tensor))
        return NULL;
    if (tensor->dtype == STAGER_STRING) {
        PyErr_SetString(PyExc_AttributeError, "strings have no __array_interface__");
        return NULL;
    }
    if (tensor->device >= 0) {
        PyErr_SetString(PyExc_AttributeError,
                        "a tensor on a GPU has no __array_interface__");
        return NULL;
    }
    return Py_BuildValue("{si ss sN s(NO)}", "version", 3, "typestr",
                         element_of(tensor->dtype)->typestr, "shape",
                         stg_py_shape(tensor->ndim, tensor->shape), "data",
                         PyLong_FromVoidPtr((void *)(uintptr_t)tensor->data),
                         stg_py_tensor_is_writable(tensor) ? Py_False : Py_True);
}

static PyObject *dlpack_device(PyObject *self, PyObject *ignored)
{
    int device = ((struct stg_py_tensor *)self)->device;
    return Py_BuildValue("(ii)", device < 0 ? 1 : 2, device < 0 ? 0 : device);
}

/* ---- strings ---- */

static bool is_string(const struct stg_py_tensor *tensor)
{
    if (tensor->dtype != STAGER_STRING)
        PyErr_SetString(PyExc_TypeError, "this tensor holds no strings");
    return tensor->dtype == STAGER_STRING;
}

static PyObject *get_string_offsets(PyObject *self, void *ignored)
{
    const struct stg_py_tensor *tensor = (struct stg_py_tensor *)self;
    if (!is_string(tensor))
        return NULL;
    struct stager_tensor offsets = {
        .dtype = STAGER_INT64, .ndim = 1, .shape = {tensor->n_elements + 1}};
    offsets.data = tensor->offsets;
    return stg_py_tensor_create(tensor->state, tensor->owner, tensor->lease, &offsets);
}

static PyObject *get_string_data(PyObject *self, void *ignored)
{
    const struct stg_py_tensor *tensor = (struct stg_py_tensor *)self;
    if (!is_string(tensor))
        return NULL;
    struct stager_tensor bytes = {
        .dtype = STAGER_UINT8, .ndim = 1, .shape = {tensor->data_bytes}};
    bytes.data = tensor->data;
    return stg_py_tensor_create(tensor->state, tensor->owner, tensor->lease, &bytes);
}

/* String i as bytes. The offsets are read once: they may be damaged. */
static PyObject *one_string(const struct stg_py_tensor *tensor, Py_ssize_t i)
{
    int64_t begin = tensor->offsets[i], end = tensor->offsets[i + 1];
    if (begin < 0 || end < begin || end > tensor->data_bytes)
        return stg_py_raise(tensor->state, STAGER_DATA_LOSS,
                            "a string lies outside of its tensor");
    return PyBytes_FromStringAndSize((const char *)tensor->data + begin, end - begin);
}

static PyObject *string_at(PyObject *self, PyObject *index)
{
    const struct stg_py_tensor *tensor = (struct stg_py_tensor *)self;
    if (!is_string(tensor) || !stg_py_tensor_is_alive(tensor))
        return NULL;
    Py_ssize_t i = PyLong_AsSsize_t(index);
    if (i == -1 && PyErr_Occurred())
        return NULL;
    if (i < 0 || i >= tensor->n_elements) {
        PyErr_Format(PyExc_IndexError, "string %zd of %zd", i, tensor->n_elements);
        return NULL;
    }
    return one_string(tensor, i);
}

static PyObject *strings(PyObject *self, PyObject *ignored)
{
    const struct stg_py_tensor *tensor = (struct stg_py_tensor *)self;
    if (!is_string(tensor) || !stg_py_tensor_is_alive(tensor))
        return NULL;
    PyObject *list = PyList_New(tensor->n_elements);
    for (Py_ssize_t i = 0; list != NULL && i < tensor->n_elements; i++) {
        PyObject *string = one_string(tensor, i);
        if (string == NULL)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, i, string);
    }
    return list;
}

/* ---- the type ---- */

static PyObject *repr(PyObject *self)
{
    PyObject *shape = get_shape(self, NULL);
    if (shape == NULL)
        return NULL;
    PyObject *text = PyUnicode_FromFormat(
        "<stager.Tensor %s %S>", stager_dtype_name(((struct stg_py_tensor *)self)->dtype),
        shape);
    Py_DECREF(shape);
    return text;
}

static PyMethodDef methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))stg_py_dlpack,
     METH_VARARGS | METH_KEYWORDS,
     "__dlpack__(*, stream=None, max_version=None, dl_device=None, copy=None)"},
    {"__dlpack_device__", dlpack_device, METH_NOARGS,
     "(kDLCPU, 0), or (kDLCUDA, number)"},
    {"string_at", string_at, METH_O, "string_at(i) -> bytes"},
    {"strings", strings, METH_NOARGS, "All strings, in a flat list of bytes."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getset[] = {
    {"shape", get_shape, NULL, "Its dimensions.", NULL},
    {"dtype", get_dtype, NULL, "The name of its dtype: \"float32\".", NULL},
    {"nbytes", get_nbytes, NULL, "Bytes of its elements; of strings, of all of them.",
     NULL},
    {"string_offsets", get_string_offsets, NULL, "int64 [strings + 1].", NULL},
    {"string_data", get_string_data, NULL, "uint8: all strings, one after another.",
     NULL},
    {"__array_interface__", get_array_interface, NULL, "NumPy's, version 3.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, (void *)(uintptr_t)stg_py_refuse_new},
    {Py_tp_dealloc, (void *)(uintptr_t)dealloc},
    {Py_tp_repr, (void *)(uintptr_t)repr},
    {Py_tp_methods, methods},
    {Py_tp_getset, getset},
    {Py_bf_getbuffer, (void *)(uintptr_t)get_buffer},
    {Py_tp_doc, (void *)(uintptr_t) "A tensor in shared memory, read-only."},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "stager._core.Tensor",
    .basicsize = sizeof(struct stg_py_tensor),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};

PyObject *stg_py_tensor_type(PyObject *module)
{
    return PyType_FromModuleAndSpec(module, &spec, NULL);
}
