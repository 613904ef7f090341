/* SPDX-License-Identifier: Apache-2.0
 *
 * A stream, as Python sees it. It is pinned in libstager until the last view of it goes.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "client/api/close.h"
#include "client/api/reconnect.h"
#include "client/python/binding.h"
#include "client/stream/stream.h"

/* How long a wait looks at nothing but its socket: a signal that came just before is seen
 * after that. */
#define SLICE_MILLIS 50

/* After that long libstager looks at its ring again, whatever rang. */
#define LOOK_NS 1000000000

/* ---- one call at a time ---- */

static bool enter(struct stg_py_stream *self)
{
    if (self->stream == NULL || self->is_closed)
        stg_py_raise(self->state, STAGER_FAILED_PRECONDITION, "the stream is closed");
    else if (self->is_busy || self->is_waiting)
        stg_py_raise(self->state, STAGER_FAILED_PRECONDITION,
                     "another thread is in a call of this stream: open one for each");
    else
        return true;
    return false;
}

static PyObject *raise_last(struct stg_py_stream *self, int rc)
{
    return stg_py_raise(self->state, rc, stager_error_text(self->stream));
}

static void busy_begin(struct stg_py_stream *self, struct stg_py_wait *wait)
{
    self->is_busy = true;
    stg_py_wait_begin(wait);
}

/* Gives back what others let go of meanwhile. */
static void busy_end(struct stg_py_stream *self, struct stg_py_wait *wait)
{
    stg_py_wait_end(wait);
    self->is_busy = false;
    stg_py_held_sweep(self);
    stg_py_results_drop(self);
}

/* ---- open, close ---- */

/* A tuple of strings, or None: the strings are the tuple's, the array the caller's to
 * free. False: raised. */
static bool read_names(PyObject *tuple, const char ***ret, uint32_t *ret_n)
{
    *ret = NULL;
    *ret_n = 0;
    if (tuple == Py_None)
        return true;
    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "fields and fetches must be tuples of strings");
        return false;
    }
    Py_ssize_t n = PyTuple_Size(tuple);
    const char **names = PyMem_Calloc((size_t)n + 1, sizeof(*names));
    if (names == NULL) {
        PyErr_NoMemory();
        return false;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        names[i] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(tuple, i), NULL);
        if (names[i] == NULL) {
            PyMem_Free(names);
            return false;
        }
    }
    *ret = names;
    *ret_n = (uint32_t)n;
    return true;
}

static int open_stream(const char *name, struct stager_options *options, PyObject *fields,
                       PyObject *fetches, struct stager_stream **ret,
                       struct stg_py_wait *wait)
{
    const char **field_names = NULL, **fetch_names = NULL;
    int rc = -STAGER_INVALID_ARGUMENT;
    if (read_names(fields, &field_names, &options->n_fields) &&
        read_names(fetches, &fetch_names, &options->n_fetches)) {
        options->fields = field_names;
        options->fetches = fetch_names;
        stg_py_wait_begin(wait);
        rc = stager_open(NULL, name, options, ret);
        stg_py_wait_end(wait);
    }
    PyMem_Free(field_names);
    PyMem_Free(fetch_names);
    return rc;
}

static PyObject *stream_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    const char *name, *runtime_dir, *client_id, *gpu;
    unsigned max_in_flight, batch_size, gpu_capacity, inter_op, intra_op, rank,
        world_size, reconnect_millis, dp_rank, dp_size, local_rank, local_size,
        replay_batches, replay_held;
    int private_run, manual_ack, writable, follow;
    const char *state, *resume, *job;
    PyObject *fields, *fetches;
    if (!PyArg_ParseTuple(args, "szzIppIpzIOOIIzzIIIpz(IIII)(II)", &name, &runtime_dir,
                          &client_id, &max_in_flight, &private_run, &manual_ack,
                          &batch_size, &writable, &gpu, &gpu_capacity, &fields, &fetches,
                          &inter_op, &intra_op, &state, &resume, &rank, &world_size,
                          &reconnect_millis, &follow, &job, &dp_rank, &dp_size,
                          &local_rank, &local_size, &replay_batches, &replay_held))
        return NULL;
    struct stager_options options = {.struct_size = sizeof(options),
                                     .client_id = client_id,
                                     .runtime_dir = runtime_dir,
                                     .max_in_flight = max_in_flight,
                                     .private_run = private_run != 0,
                                     .manual_ack = manual_ack != 0,
                                     .batch_size = batch_size,
                                     .copy_on_write = writable != 0,
                                     .device = gpu,
                                     .device_capacity = gpu_capacity,
                                     .inter_op_threads_num = inter_op,
                                     .intra_op_threads_num = intra_op,
                                     .state = state,
                                     .resume = resume,
                                     .rank = rank,
                                     .world_size = world_size,
                                     .daemon_reconnect_millis = reconnect_millis != 0
                                                                    ? reconnect_millis
                                                                    : STAGER_NEVER,
                                     .follow = follow != 0,
                                     .job = job,
                                     .dp_rank = dp_rank,
                                     .dp_size = dp_size,
                                     .local_rank = local_rank,
                                     .local_size = local_size,
                                     .replay_batches = replay_batches,
                                     .replay_held = replay_held};
    struct stg_py_stream *self = PyObject_New(struct stg_py_stream, type);
    if (self == NULL)
        return NULL;
    memset((char *)self + sizeof(PyObject), 0, sizeof(*self) - sizeof(PyObject));
    self->state = PyType_GetModuleState(type);
    self->is_writable = writable != 0;

    struct stg_py_wait wait = {0};
    int rc = open_stream(name, &options, fields, fetches, &self->stream, &wait);
    if (rc == 0)
        stg_stream_pin(self->stream);
    if (rc == 0 && !wait.is_over)
        return (PyObject *)self;
    if (!wait.is_over && PyErr_Occurred() == NULL)
        stg_py_raise(self->state, rc, stager_error_text(NULL));
    Py_DECREF((PyObject *)self);
    return NULL;
}

static void close_now(struct stg_py_stream *self)
{
    struct stg_py_wait wait;
    self->is_closed = true;
    busy_begin(self, &wait);
    stager_close(self->stream);
    busy_end(self, &wait);
}

static PyObject *stream_close(PyObject *object, PyObject *ignored)
{
    struct stg_py_stream *self = (struct stg_py_stream *)object;
    if (self->is_closed)
        Py_RETURN_NONE;
    if (self->is_waiting) {
        self->close_asked = true;
        Py_RETURN_NONE;
    }
    if (!enter(self))
        return NULL;
    close_now(self);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

/* Every lease holds its stream: none is left. */
static void dealloc(PyObject *object)
{
    struct stg_py_stream *self = (struct stg_py_stream *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->stream != NULL) {
        if (!self->is_closed)
            stager_close(self->stream);
        stg_stream_unpin(self->stream);
    }
    PyObject_Free(object);
    Py_DECREF(type);
}

/* ---- next ---- */

static int64_t min_ns(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Sleeps without the GIL until the socket rings, until_ns, or something else is to be
 * seen to. False: an exception is set. */
static bool doze(struct stg_py_stream *self, int64_t until_ns)
{
    int64_t at_ns; /* of the next attempt to reconnect */
    struct pollfd poll_fd = {.fd = stg_reconnect_watched(self->stream, &at_ns),
                             .events = POLLIN};
    until_ns = min_ns(until_ns, at_ns);
    bool rings = false, failed = false;
    self->is_waiting = true;
    while (!rings && !failed && !self->close_asked) {
        int64_t left_ns = until_ns - stg_clock_ns();
        if (left_ns <= 0)
            break;
        int millis = (int)min_ns(SLICE_MILLIS, (left_ns + 999999) / 1000000);
        PyThreadState *thread = PyEval_SaveThread();
        rings = poll(&poll_fd, 1, millis) > 0; /* fd -1: sleeps */
        PyEval_RestoreThread(thread);
        failed = PyErr_CheckSignals() < 0;
    }
    self->is_waiting = false;
    if (self->close_asked) {
        self->close_asked = false;
        close_now(self);
        if (!failed && !PyErr_Occurred())
            stg_py_raise(self->state, STAGER_CANCELLED,
                         "another thread closed the stream");
        failed = true;
    }
    return !failed;
}

/* DEADLINE_EXCEEDED is also the end of a stream that was detached by a clock, and the
 * code of some error items. */
static bool is_late(const struct stg_py_stream *self, int rc)
{
    return rc == -STAGER_DEADLINE_EXCEEDED && self->stream->late;
}

/* Tries and sleeps in turn until something comes. To libstager and to the daemon all of
 * it is one sleep. 1: an exception is set. */
static int wait_for_batch(struct stg_py_stream *self, long long millis,
                          struct stager_batch **ret)
{
    int64_t begin_ns = stg_clock_ns(), now_ns = begin_ns;
    int64_t deadline_ns = stg_clock_deadline_ns(begin_ns, millis);
    int rc = -STAGER_DEADLINE_EXCEEDED;
    while (is_late(self, rc) && now_ns < deadline_ns) {
        stg_control_set_waiting_since(&self->stream->control, (uint64_t)begin_ns);
        if (!doze(self, min_ns(deadline_ns, now_ns + LOOK_NS)))
            return 1;
        int64_t woken_ns = stg_clock_ns();
        self->stream->wait_ns += (uint64_t)(woken_ns - now_ns);
        now_ns = woken_ns;
        rc = stager_next(self->stream, 0, ret);
    }
    self->stream->n_sleeps += now_ns > begin_ns;
    return rc;
}

/* The wait is over. It may have brought a batch in its last moment. */
static int end_late(struct stg_py_stream *self, long long millis,
                    struct stager_batch **ret)
{
    struct stg_py_wait wait;
    busy_begin(self, &wait);
    int rc = stg_stream_say_late(self->stream, millis);
    if (rc == 0)
        rc = stager_next(self->stream, 0, ret);
    busy_end(self, &wait);
    return rc;
}

static PyObject *stream_next(PyObject *object, PyObject *argument)
{
    struct stg_py_stream *self = (struct stg_py_stream *)object;
    long long millis = PyLong_AsLongLong(argument);
    if ((millis == -1 && PyErr_Occurred()) || !enter(self))
        return NULL;
    struct stager_batch *batch;
    int rc = stager_next(self->stream, 0, &batch);
    if (is_late(self, rc))
        rc = wait_for_batch(self, millis, &batch);
    if (rc == 1)
        return NULL;
    if (is_late(self, rc))
        rc = end_late(self, millis, &batch);
    if (PyErr_Occurred())
        return NULL;
    return rc == 0 ? stg_py_lease_create(self, batch) : raise_last(self, rc);
}

static PyObject *stream_rewind(PyObject *object, PyObject *ignored)
{
    struct stg_py_stream *self = (struct stg_py_stream *)object;
    if (!enter(self))
        return NULL;
    int rc = stager_rewind(self->stream);
    if (rc < 0)
        return raise_last(self, rc);
    Py_RETURN_NONE;
}

/* ---- feed ---- */

/* Fills what stager_feed reads. The buffers stay the caller's. */
static int fill_value(PyObject *shape, const Py_buffer *data, const Py_buffer *offsets,
                      struct stager_tensor *ret)
{
    Py_ssize_t ndim = PyTuple_Size(shape);
    if (ndim < 0 || ndim > 8) {
        if (ndim > 8)
            PyErr_SetString(PyExc_ValueError, "a tensor has at most 8 dimensions");
        return -1;
    }
    ret->ndim = (int32_t)ndim;
    for (Py_ssize_t i = 0; i < ndim; i++) {
        ret->shape[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
        if (ret->shape[i] == -1 && PyErr_Occurred())
            return -1;
    }
    ret->data = data->buf;
    ret->data_bytes = (uint64_t)data->len;
    ret->offsets = ret->dtype == STAGER_STRING ? offsets->buf : NULL;
    return 0;
}

static PyObject *stream_feed(PyObject *object, PyObject *args)
{
    struct stg_py_stream *self = (struct stg_py_stream *)object;
    struct stager_tensor value = {0};
    const char *name;
    PyObject *shape;
    Py_buffer data, offsets;
    if (!PyArg_ParseTuple(args, "siO!y*y*", &name, &value.dtype, &PyTuple_Type, &shape,
                          &data, &offsets))
        return NULL;
    uint64_t version = 0;
    int rc = 0;
    struct stg_py_wait wait = {0};
    bool good = enter(self) && fill_value(shape, &data, &offsets, &value) == 0;
    if (good) {
        busy_begin(self, &wait);
        rc = stager_feed(self->stream, name, &value, &version);
        busy_end(self, &wait);
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&offsets);
    if (!good || wait.is_over)
        return NULL;
    return rc == 0 ? PyLong_FromUnsignedLongLong(version) : raise_last(self, rc);
}

/* ---- run ---- */

/* A result lives until the next stager_run: a copy of it, offsets first. */
static PyObject *copy_result(struct stg_py_stream *self, struct stager_tensor *tensor)
{
    size_t n_offsets = 0;
    if (tensor->dtype == STAGER_STRING) {
        n_offsets = 1;
        for (int i = 0; i < tensor->ndim; i++)
            n_offsets *= (size_t)tensor->shape[i];
        n_offsets++;
    }
    size_t head_bytes = n_offsets * sizeof(int64_t);
    PyObject *owner =
        PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(head_bytes + tensor->data_bytes));
    if (owner == NULL)
        return NULL;
    char *to = PyBytes_AsString(owner);
    if (head_bytes > 0)
        memcpy(to, tensor->offsets, head_bytes);
    if (tensor->data_bytes > 0)
        memcpy(to + head_bytes, tensor->data, tensor->data_bytes);
    tensor->offsets = head_bytes > 0 ? (const int64_t *)(const void *)to : NULL;
    tensor->data = to + head_bytes;
    PyObject *result = stg_py_tensor_create(self->state, owner, NULL, tensor);
    Py_DECREF(owner);
    return result;
}

/* On a device it stays where it is. *there: its keeper, for all of a run. */
static PyObject *show_result(struct stg_py_stream *self,
                             const struct stager_tensor *tensor, PyObject **there)
{
    if (*there == NULL)
        *there = stg_py_result_create(self);
    return *there != NULL ? stg_py_tensor_create(self->state, *there, NULL, tensor)
                          : NULL;
}

/* What one stager_run_fed is asked for. */
struct run_wish {
    struct stg_py_lease *lease; /* NULL: no batch */
    const char **fetches;
    uint32_t n_fetches;
    struct stager_tensor *feeds;
    Py_ssize_t n_feeds;
};

/* A tuple of (name, dtype, shape, data, offsets); what they point to stays the tuple's.
 */
static int read_feed(PyObject *fed, struct stager_tensor *ret)
{
    PyObject *shape, *data, *offsets;
    if (!PyTuple_Check(fed) ||
        !PyArg_ParseTuple(fed, "siO!O!O!", &ret->name, &ret->dtype, &PyTuple_Type, &shape,
                          &PyBytes_Type, &data, &PyBytes_Type, &offsets))
        return -1;
    Py_buffer bytes = {.buf = PyBytes_AsString(data), .len = PyBytes_Size(data)};
    Py_buffer places = {.buf = PyBytes_AsString(offsets)};
    return fill_value(shape, &bytes, &places, ret);
}

static int read_feeds(PyObject *feeds, struct run_wish *ret)
{
    ret->n_feeds = PyTuple_Size(feeds);
    ret->feeds = PyMem_Calloc((size_t)ret->n_feeds + 1, sizeof(*ret->feeds));
    if (ret->feeds == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < ret->n_feeds; i++) {
        if (read_feed(PyTuple_GetItem(feeds, i), &ret->feeds[i]) < 0)
            return -1;
    }
    return 0;
}

static PyObject *run_fetches(struct stg_py_stream *self, const struct run_wish *wish)
{
    size_t n = wish->n_fetches;
    struct stager_tensor *results = PyMem_Calloc(n + 1, sizeof(*results));
    if (results == NULL)
        return PyErr_NoMemory();
    struct stg_py_wait wait;
    Py_XINCREF((PyObject *)wish->lease);
    busy_begin(self, &wait);
    int rc = stager_run_fed(
        self->stream, wish->lease != NULL ? wish->lease->held->batch : NULL, wish->feeds,
        (size_t)wish->n_feeds, wish->fetches, n, results);
    busy_end(self, &wait);
    PyObject *list = NULL;
    if (rc < 0)
        raise_last(self, rc);
    else
        list = PyList_New((Py_ssize_t)n);
    PyObject *there = NULL;
    for (size_t i = 0; list != NULL && i < n; i++) {
        PyObject *result = results[i].device != 0 ? show_result(self, &results[i], &there)
                                                  : copy_result(self, &results[i]);
        if (result == NULL)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, (Py_ssize_t)i, result);
    }
    Py_XDECREF(there);
    Py_XDECREF((PyObject *)wish->lease);
    PyMem_Free(results);
    return list;
}

static bool check_lease(struct stg_py_stream *self, const struct stg_py_lease *lease)
{
    if (lease == NULL || (lease->held != NULL && lease->stream == self))
        return true;
    stg_py_raise(self->state, STAGER_FAILED_PRECONDITION,
                 lease->held == NULL ? "the batch was released"
                                     : "the batch is of another stream");
    return false;
}

static PyObject *stream_run(PyObject *object, PyObject *args)
{
    struct stg_py_stream *self = (struct stg_py_stream *)object;
    PyObject *lease, *names, *feeds, *list = NULL;
    if (!PyArg_ParseTuple(args, "OO!O!", &lease, &PyTuple_Type, &names, &PyTuple_Type,
                          &feeds))
        return NULL;
    struct run_wish wish = {0};
    if (lease != Py_None &&
        !PyObject_TypeCheck(lease, (PyTypeObject *)self->state->lease_type)) {
        PyErr_SetString(PyExc_TypeError, "run takes a lease, or None");
        return NULL;
    }
    wish.lease = lease != Py_None ? (struct stg_py_lease *)lease : NULL;
    if (!enter(self) || !check_lease(self, wish.lease) ||
        !read_names(names, &wish.fetches, &wish.n_fetches))
        return NULL;
    if (read_feeds(feeds, &wish) == 0)
        list = run_fetches(self, &wish);
    PyMem_Free(wish.feeds);
    PyMem_Free(wish.fetches);
    return list;
}

/* ---- what it says of itself ---- */

static PyObject *stream_info(PyObject *object, PyObject *ignored)
{
    struct stg_py_stream *self = (struct stg_py_stream *)object;
    struct stager_stream_info info = {.struct_size = sizeof(info)};
    stager_stream_info(self->stream, &info);
    return Py_BuildValue(
        "{sK sK sK sK sI sI sO sO sO sK sK sK sK sK sK sK sK sK sK sK sK sI sI sK}",
        "batches", (unsigned long long)info.batches, "errors",
        (unsigned long long)info.errors, "wait_ns", (unsigned long long)info.wait_ns,
        "sleeps", (unsigned long long)info.sleeps, "held", info.held, "max_in_flight",
        info.max_in_flight, "at_end", info.at_end ? Py_True : Py_False, "finished",
        info.finished ? Py_True : Py_False, "unwatched",
        info.unwatched ? Py_True : Py_False, "end_pass",
        (unsigned long long)info.end_pass, "device_bytes",
        (unsigned long long)info.device_bytes, "device_shared",
        (unsigned long long)info.device_shared, "dropped_batches",
        (unsigned long long)info.dropped_batches, "dropped_rows",
        (unsigned long long)info.dropped_rows, "reconnects",
        (unsigned long long)info.reconnects, "reconnect_ns",
        (unsigned long long)info.reconnect_ns, "generation",
        (unsigned long long)info.generation, "followed",
        (unsigned long long)info.followed, "replayed", (unsigned long long)info.replayed,
        "run_step_ns", (unsigned long long)info.run_step_ns, "replay_step_ns",
        (unsigned long long)info.replay_step_ns, "hosts", info.hosts, "host", info.host,
        "hosts_generation", (unsigned long long)info.hosts_generation);
}

/* Of a closed stream too. */
static PyObject *stream_state(PyObject *object, PyObject *ignored)
{
    struct stg_py_stream *self = (struct stg_py_stream *)object;
    char text[STAGER_STATE_BYTES];
    int rc = stager_state(self->stream, text, sizeof(text));
    return rc == 0 ? PyUnicode_FromString(text) : raise_last(self, rc);
}

static PyObject *stream_commit(PyObject *object, PyObject *args)
{
    struct stg_py_stream *self = (struct stg_py_stream *)object;
    const char *state, *tag;
    if (!PyArg_ParseTuple(args, "ss", &state, &tag) || !enter(self))
        return NULL;
    struct stg_py_wait wait = {0};
    busy_begin(self, &wait);
    int rc = stager_commit(self->stream, state, tag);
    busy_end(self, &wait);
    if (wait.is_over)
        return NULL;
    if (rc < 0)
        return raise_last(self, rc);
    Py_RETURN_NONE;
}

static PyObject *stream_run_where(PyObject *object, PyObject *ignored)
{
    struct stg_py_stream *self = (struct stg_py_stream *)object;
    return PyUnicode_FromString(stager_run_where(self->stream));
}

/* Numbers of the batches in hand, the one that was taken first in front. */
static PyObject *stream_held(PyObject *object, PyObject *ignored)
{
    struct stg_py_stream *self = (struct stg_py_stream *)object;
    PyObject *numbers = PyList_New(0);
    for (struct stg_py_held *held = self->held; numbers != NULL && held != NULL;
         held = held->next) {
        struct stager_batch_info info = {.struct_size = sizeof(info)};
        stager_batch_info(held->batch, &info);
        PyObject *number = PyLong_FromUnsignedLongLong(info.number);
        if (number == NULL || PyList_Insert(numbers, 0, number) < 0)
            Py_CLEAR(numbers);
        Py_XDECREF(number);
    }
    return numbers;
}

static PyObject *stream_targets(PyObject *object, PyObject *ignored)
{
    struct stg_py_stream *self = (struct stg_py_stream *)object;
    size_t n = stager_target_count(self->stream);
    PyObject *names = PyTuple_New((Py_ssize_t)n);
    for (size_t i = 0; names != NULL && i < n; i++) {
        PyObject *name = PyUnicode_FromString(stager_target(self->stream, i));
        if (name == NULL)
            Py_CLEAR(names);
        else
            PyTuple_SetItem(names, (Py_ssize_t)i, name);
    }
    return names;
}

/* What a batch holds, as known beforehand: [(name, dtype, shape)]. */
static PyObject *stream_schema(PyObject *object, PyObject *ignored)
{
    const struct stager_stream *stream = ((struct stg_py_stream *)object)->stream;
    PyObject *list = PyList_New((Py_ssize_t)stream->n_shown);
    for (uint32_t i = 0; list != NULL && i < stream->n_shown; i++) {
        const struct stg_component *c = &stream->boundary.components[stream->shown[i]];
        PyObject *component = Py_BuildValue("(ssN)", c->name, stager_dtype_name(c->dtype),
                                            stg_py_shape(c->ndim, c->shape));
        if (component == NULL)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, (Py_ssize_t)i, component);
    }
    return list;
}

static PyObject *get_structure(PyObject *object, void *ignored)
{
    return PyUnicode_FromString(
        stager_structure(((struct stg_py_stream *)object)->stream));
}

static PyObject *get_closed(PyObject *object, void *ignored)
{
    return PyBool_FromLong(((struct stg_py_stream *)object)->is_closed);
}

static PyObject *get_generation(PyObject *object, void *ignored)
{
    struct stg_py_stream *self = (struct stg_py_stream *)object;
    return PyLong_FromUnsignedLongLong(self->stream->generation);
}

static PyObject *get_dropped(PyObject *object, void *ignored)
{
    struct stager_stream_info info = {.struct_size = sizeof(info)};
    stager_stream_info(((struct stg_py_stream *)object)->stream, &info);
    return PyLong_FromUnsignedLongLong(info.dropped_batches);
}

static PyMethodDef methods[] = {
    {"next", stream_next, METH_O, "next(timeout_millis) -> Lease; -1: for ever"},
    {"rewind", stream_rewind, METH_NOARGS, "Asks for the next pass."},
    {"feed", stream_feed, METH_VARARGS,
     "feed(name, dtype, shape, data, offsets) -> feed_version"},
    {"run", stream_run, METH_VARARGS, "run(lease, fetches, feeds) -> list of Tensor"},
    {"info", stream_info, METH_NOARGS, "Its counters, as a dict."},
    {"commit", stream_commit, METH_VARARGS, "Commits a state under a tag."},
    {"state", stream_state, METH_NOARGS, "Its state, as JSON."},
    {"run_where", stream_run_where, METH_NOARGS, "Where it ran last, and why."},
    {"held", stream_held, METH_NOARGS, "Numbers of the batches in hand."},
    {"schema", stream_schema, METH_NOARGS, "[(name, dtype, shape)], None: not known."},
    {"targets", stream_targets, METH_NOARGS, "The pipeline's targets."},
    {"close", stream_close, METH_NOARGS, "Leaves the pipeline."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getset[] = {
    {"structure", get_structure, NULL, "The shape of `features`, as JSON.", NULL},
    {"closed", get_closed, NULL, "Was it closed?", NULL},
    {"dropped", get_dropped, NULL, "Batches dropped since it was opened.", NULL},
    {"generation", get_generation, NULL, "Of the pipeline.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, (void *)(uintptr_t)stream_new},
    {Py_tp_dealloc, (void *)(uintptr_t)dealloc},
    {Py_tp_methods, methods},
    {Py_tp_getset, getset},
    {Py_tp_doc, (void *)(uintptr_t) "Stream(name, runtime_dir, client_id, max_in_flight, "
                                    "private_run, manual_ack, batch_size, writable, …)"},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "stager._core.Stream",
    .basicsize = sizeof(struct stg_py_stream),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};

PyObject *stg_py_stream_type(PyObject *module)
{
    return PyType_FromModuleAndSpec(module, &spec, NULL);
}
