/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of stager._core, the C half of the Python package: a stream, the leases that it
 * hands out, and tensors that keep their lease alive. Limited API of CPython 3.11; 3.9
 * and 3.10, whose limited API has no buffers, get builds of their own (meson.build).
 *
 * Everything here is touched with the GIL held. libstager allows one thread at a time for
 * a stream: so its calls are made with the GIL held, and none of them waits; waiting is
 * done without the GIL and outside of libstager, in poll. The calls that do wait inside
 * (open, feed, run, close) mark their stream busy: what other threads give back meanwhile
 * is kept until they are done.
 *
 * A file uses those before it: call, owner, dlpack, tensor, lease, stream (and work,
 * admin), module.
 */
#ifndef STG_PYTHON_BINDING_H
#define STG_PYTHON_BINDING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/stager.h"
#include "client/transport/socket.h"

/* What CPython 3.9 does not have. There Python code can change types, which does no harm.
 */
#if PY_VERSION_HEX < 0x030a0000
#define Py_TPFLAGS_IMMUTABLETYPE 0
static inline PyObject *Py_NewRef(PyObject *object)
{
    Py_INCREF(object);
    return object;
}
#endif

/* Of the module; its types hold the module. */
struct stg_py_state {
    PyObject *error_of; /* stager._errors.error_of(code, text) */
    PyTypeObject *stream_type, *lease_type, *tensor_type, *worker_type;
};

/* A batch, until its lease goes: in hand, and then pinned, so that views of it see no
 * hole. It may outlive its lease while the stream is busy. */
struct stg_py_held {
    struct stager_batch *batch; /* pinned */
    bool is_released;
    bool is_dead;      /* to be released when the stream is not busy any more */
    bool is_orphan;    /* likewise, and to be freed: its lease is gone */
    bool has_consumer; /* on a device: a stream took a tensor of it last: */
    void *consumer;
    struct stg_py_held *next, **link; /* link NULL: not in the list */
};

/* What a run gave on a device, as long as tensors of it are there. In a capsule, which is
 * the tensors' owner. */
struct stg_py_result {
    struct stg_py_stream *stream; /* a reference */
    struct stager_batch *home;    /* as stg_run_keep says */
    struct stg_result *result;
    bool has_consumer; /* a stream took a tensor of it last: */
    void *consumer;
    struct stg_py_result *next; /* of those that were let go while the stream was busy */
};

struct stg_py_stream {
    PyObject_HEAD struct stg_py_state *state;
    struct stager_stream *stream; /* pinned; NULL: open failed */
    struct stg_py_held *held;     /* what is in hand */
    struct stg_py_held *orphans;  /* released before, let go of while it was busy */
    struct stg_py_result *dead_results;
    bool is_writable; /* its memory is copied on write */
    bool is_closed;
    bool is_busy;       /* a thread without the GIL is in a call of libstager */
    bool is_waiting;    /* a thread without the GIL polls */
    bool close_asked;   /* while it was waiting */
    PyObject *pipeline; /* its name */
};

struct stg_py_lease {
    PyObject_HEAD struct stg_py_stream *stream; /* a reference */
    struct stg_py_held *held;                   /* NULL: released */
    struct stg_py_held *own;                    /* the same, as long as the lease */
    unsigned long long number;                  /* of the batch */
};

/* A tensor where it lies. owner keeps the memory: a lease, or for results bytes. */
struct stg_py_tensor {
    PyObject_HEAD struct stg_py_state *state;
    PyObject *owner;
    struct stg_py_lease *lease; /* the owner when it is one, else NULL */
    const void *data;
    const int64_t *offsets; /* strings only */
    int64_t data_bytes;
    int32_t dtype, ndim;
    int32_t device;        /* of CUDA; -1: the memory of the host */
    Py_ssize_t item_bytes; /* 0: strings */
    Py_ssize_t n_elements;
    Py_ssize_t shape[8], strides[8];
};

/* ---- call.c ---- */

/* Sets the exception of that status code. NULL. */
PyObject *stg_py_raise(const struct stg_py_state *state, int code, const char *text);

/* A tp_new that sets TypeError: for types that only this module instantiates. */
PyObject *stg_py_refuse_new(PyTypeObject *type, PyObject *args, PyObject *kwargs);

/* What a call that waits without the GIL needs for Ctrl-C: libstager calls it. */
struct stg_py_wait {
    PyThreadState *thread;
    bool is_over; /* an exception is set */
    struct stg_patience patience;
};

/* Lets go of the GIL until stg_py_wait_end; in between a signal's exception ends the
 * waits of libstager, and is_over says so. */
void stg_py_wait_begin(struct stg_py_wait *wait);
void stg_py_wait_end(struct stg_py_wait *wait);

/* Returns a tuple; a size below 0 is None. NULL: an exception is set. */
PyObject *stg_py_shape(int ndim, const int64_t *sizes);

/* ---- owner.c ---- */

/* Gives the batch back, now or when the stream is not busy any more. */
void stg_py_held_release(struct stg_py_stream *stream, struct stg_py_held *held);

/* As that, and its lease is gone. */
void stg_py_held_drop(struct stg_py_stream *stream, struct stg_py_held *held);

/* The stream is not busy any more: what was let go of meanwhile. */
void stg_py_held_sweep(struct stg_py_stream *stream);

/* Returns a capsule of what the last run gave on the device. NULL: an exception is set.
 */
PyObject *stg_py_result_create(struct stg_py_stream *stream);

/* Returns the result that a tensor on a device belongs to; NULL: it is a batch's. */
struct stg_py_result *stg_py_result_of(const struct stg_py_tensor *tensor);

/* The stream is not busy any more: releases the results that were dropped meanwhile. */
void stg_py_results_drop(struct stg_py_stream *stream);

/* May its memory be written to? */
bool stg_py_tensor_is_writable(const struct stg_py_tensor *tensor);

/* Is the memory of that tensor still its own? Else BufferError is set. */
bool stg_py_tensor_is_alive(const struct stg_py_tensor *tensor);

/* ---- dlpack.c ---- */

/* Of a tensor: __dlpack__(stream=None, max_version=None, dl_device=None, copy=None). */
PyObject *stg_py_dlpack(PyObject *self, PyObject *args, PyObject *kwargs);

/* ---- tensor.c, lease.c, stream.c, work.c: each type is a new reference or NULL ---- */

PyObject *stg_py_tensor_type(PyObject *module);

/* Returns a view; owner: a lease, or another object that keeps the memory. NULL: an
 * exception is set. */
PyObject *stg_py_tensor_create(struct stg_py_state *state, PyObject *owner,
                               struct stg_py_lease *lease,
                               const struct stager_tensor *tensor);

PyObject *stg_py_lease_type(PyObject *module);

/* Takes the batch over, also when it fails. */
PyObject *stg_py_lease_create(struct stg_py_stream *stream, struct stager_batch *batch);

PyObject *stg_py_stream_type(PyObject *module);

PyObject *stg_py_worker_type(PyObject *module);

/* tell_end(channel, status) */
PyObject *stg_py_tell_end(PyObject *module, PyObject *args);

/* ---- admin.c ---- */

/* request(kind, runtime_dir, name, text, file, replace, if_generation, script,
 * script_run) -> JSON. */
PyObject *stg_py_request(PyObject *module, PyObject *args);
PyObject *stg_py_audit(PyObject *module, PyObject *args);

#endif
