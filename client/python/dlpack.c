/* SPDX-License-Identifier: Apache-2.0
 *
 * DLPack's ABI (dmlc/dlpack, version 1.0), and a tensor in it. Only the
 * versioned form can mark read-only memory: a consumer that asks for the older one gets a
 * copy or a refusal.
 */
#include <stdlib.h>
#include <string.h>

#include "client/python/binding.h"
#include "client/run/run.h"
#include "client/stream/stream.h"

enum { DL_CPU = 1, DL_CUDA = 2 };
enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_BFLOAT = 4, DL_BOOL = 6 };
enum { DL_READ_ONLY = 1, DL_IS_COPIED = 2 };

struct dl_tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};

struct dl_managed {
    struct dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *self);
};

struct dl_managed_versioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct dl_managed_versioned *self);
    uint64_t flags;
    struct dl_tensor tensor;
};

/* What an export owns. The tensor stays where it is, or is copied behind this. */
struct export
{
    struct dl_managed old;
    struct dl_managed_versioned versioned;
    int64_t shape[8], strides[8];
    PyObject *owner; /* NULL: a copy */
    void *copy;
};

static void destroy(struct export *export)
{
    if (export->owner != NULL && Py_IsInitialized()) {
        PyGILState_STATE gil = PyGILState_Ensure();
        Py_DECREF(export->owner);
        PyGILState_Release(gil);
    }
    free(export->copy);
    free(export);
}

static void delete_old(struct dl_managed *self)
{
    destroy(self->context);
}

static void delete_versioned(struct dl_managed_versioned *self)
{
    destroy(self->context);
}

/* A capsule that was not consumed still has its first name. */
static void drop_capsule(PyObject *capsule)
{
    const char *names[] = {"dltensor", "dltensor_versioned"};
    for (int i = 0; i < 2; i++) {
        if (PyCapsule_IsValid(capsule, names[i]))
            destroy(PyCapsule_GetContext(capsule));
    }
}

static int code_of(int dtype)
{
    switch (dtype) {
    case STAGER_BFLOAT16: return DL_BFLOAT;
    case STAGER_FLOAT16:
    case STAGER_FLOAT32:
    case STAGER_FLOAT64: return DL_FLOAT;
    case STAGER_BOOL: return DL_BOOL;
    case STAGER_UINT8:
    case STAGER_UINT16:
    case STAGER_UINT32:
    case STAGER_UINT64: return DL_UINT;
    }
    return DL_INT;
}

static void describe(struct export *export, const struct stg_py_tensor *from,
                     struct dl_tensor *to)
{
    for (int i = 0; i < from->ndim; i++) {
        export->shape[i] = from->shape[i];
        export->strides[i] = from->strides[i] / from->item_bytes;
    }
    *to = (struct dl_tensor){
        .data = export->copy != NULL ? export->copy : (void *)(uintptr_t)from->data,
        .device_type = from->device < 0 ? DL_CPU : DL_CUDA,
        .device_id = from->device < 0 ? 0 : from->device,
        .ndim = from->ndim,
        .code = (uint8_t)code_of(from->dtype),
        .bits = (uint8_t)(from->item_bytes * 8),
        .lanes = 1,
        .shape = export->shape,
        .strides = export->strides,
    };
}

static struct export *export_create(struct stg_py_tensor *tensor, bool copy)
{
    struct export *export = calloc(1, sizeof(*export));
    size_t bytes = (size_t)(tensor->n_elements * tensor->item_bytes);
    if (export != NULL && copy)
        export->copy = aligned_alloc(64, (bytes + 64) / 64 * 64);
    if (export == NULL || (copy && export->copy == NULL)) {
        free(export);
        PyErr_NoMemory();
        return NULL;
    }
    if (copy && bytes > 0)
        memcpy(export->copy, tensor->data, bytes);
    if (!copy)
        export->owner = Py_NewRef((PyObject *)tensor);
    uint64_t flags = copy                                ? DL_IS_COPIED
                     : stg_py_tensor_is_writable(tensor) ? 0
                                                         : DL_READ_ONLY;
    export->old = (struct dl_managed){.context = export, .deleter = delete_old};
    export->versioned = (struct dl_managed_versioned){
        .major = 1, .context = export, .deleter = delete_versioned, .flags = flags};
    describe(export, tensor, &export->old.tensor);
    describe(export, tensor, &export->versioned.tensor);
    return export;
}

static bool may_export(const struct stg_py_tensor *tensor, bool versioned, bool copy,
                       PyObject *device)
{
    int own_type = tensor->device < 0 ? DL_CPU : DL_CUDA;
    int own_id = tensor->device < 0 ? 0 : tensor->device, type = own_type, id = own_id;
    if (tensor->dtype == STAGER_STRING)
        PyErr_SetString(PyExc_BufferError, "DLPack has no string type");
    else if (device != Py_None && !PyArg_ParseTuple(device, "ii", &type, &id))
        return false;
    else if (type != own_type || id != own_id)
        PyErr_SetString(PyExc_BufferError,
                        own_type == DL_CPU
                            ? "the batch is in CPU memory: export it there, then move it"
                            : "the batch is on a GPU: export it there, then move it");
    else if (own_type == DL_CUDA && copy)
        PyErr_SetString(PyExc_BufferError, "the batch is on a GPU: copy it there");
    else if (!versioned && !copy && !stg_py_tensor_is_writable(tensor))
        PyErr_SetString(PyExc_BufferError,
                        "a batch is read-only, which needs DLPack 1.0, and the consumer "
                        "does not request that version (max_version): take a copy "
                        "(copy=True), or open the stream with writable=True");
    else
        return stg_py_tensor_is_alive(tensor);
    return false;
}

/* The consumer's stream, by DLPack's numbers: None and 1 are the default stream, 2 the
 * thread's own, -1: it sees to the order itself. */
static bool read_stream(PyObject *object, bool *ret_any, void **ret)
{
    long long number = 1;
    if (object != Py_None)
        number = PyLong_AsLongLong(object);
    if (number == -1 && PyErr_Occurred())
        return false;
    if (number == 0 || number < -1) {
        PyErr_SetString(PyExc_ValueError, "stream: 0 is ambiguous in CUDA; use None, -1, "
                                          "1, 2 or the address of a stream");
        return false;
    }
    *ret_any = number != -1;
    *ret = number == 1 ? NULL : (void *)(uintptr_t)number;
    return true;
}

/* Of the stream that the tensor came from; its calls are not for two threads. */
static bool check_idle(const struct stg_py_stream *source)
{
    if (source->is_busy)
        PyErr_SetString(PyExc_BufferError, "the stream is in use by another thread");
    return !source->is_busy;
}

static bool order_result(const struct stg_py_tensor *tensor, struct stg_py_result *result,
                         void *stream)
{
    if (!check_idle(result->stream))
        return false;
    int rc = stg_result_wait(result->home->stream, result->result, stream);
    if (rc < 0) {
        stg_py_raise(tensor->state, rc, stager_error_text(result->stream->stream));
        return false;
    }
    result->has_consumer = true;
    result->consumer = stream;
    return true;
}

static bool order_batch(const struct stg_py_tensor *tensor, void *stream)
{
    struct stg_py_stream *source = tensor->lease->stream;
    struct stg_py_held *held = tensor->lease->held;
    if (!check_idle(source))
        return false;
    int rc = stager_batch_wait(held->batch, stream);
    if (rc < 0) {
        stg_py_raise(tensor->state, rc, stager_error_text(source->stream));
        return false;
    }
    held->has_consumer = true;
    held->consumer = stream;
    return true;
}

/* The consumer's stream waits for the batch or the result, and that for what is enqueued
 * there before its release. */
static bool order(struct stg_py_tensor *tensor, PyObject *object)
{
    bool any;
    void *stream;
    struct stg_py_result *result = stg_py_result_of(tensor);
    if (!read_stream(object, &any, &stream))
        return false;
    if (!any)
        return true;
    return result != NULL ? order_result(tensor, result, stream)
                          : order_batch(tensor, stream);
}

PyObject *stg_py_dlpack(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static const char *const keys[] = {"stream", "max_version", "dl_device", "copy",
                                       NULL};
    struct stg_py_tensor *tensor = (struct stg_py_tensor *)self;
    PyObject *stream = Py_None, *max_version = Py_None, *device = Py_None,
             *copy = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO", (char **)(uintptr_t)keys,
                                     &stream, &max_version, &device, &copy))
        return NULL;
    int major = 0, minor = 0;
    if (max_version != Py_None && !PyTuple_Check(max_version))
        return PyErr_Format(PyExc_TypeError,
                            "max_version must be a tuple (major, minor), not %R",
                            max_version);
    if (max_version != Py_None && !PyArg_ParseTuple(max_version, "ii", &major, &minor))
        return NULL;
    bool versioned = major >= 1, copies = copy == Py_True;
    if (!may_export(tensor, versioned, copies, device) ||
        (tensor->device >= 0 && !order(tensor, stream)))
        return NULL;
    struct export *export = export_create(tensor, copies);
    if (export == NULL)
        return NULL;
    PyObject *capsule =
        versioned ? PyCapsule_New(&export->versioned, "dltensor_versioned", drop_capsule)
                  : PyCapsule_New(&export->old, "dltensor", drop_capsule);
    if (capsule == NULL || PyCapsule_SetContext(capsule, export) < 0)
        destroy(export);
    return capsule;
}
