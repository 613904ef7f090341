/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests of an administrator: what `stagerctl --json` prints, as text for Python's
 * json.
 */
#include <stdlib.h>

#include "client/python/binding.h"
#include "client/stagerctl/audit_report.h"
#include "client/stagerctl/collect.h"
#include "client/stagerctl/reply.h"
#include "client/transport/admin.h"

static int call(void *owner, struct stg_request *request, struct stg_reply *ret,
                struct stg_err *err)
{
    return stg_admin_call(owner, request, ret, err);
}

/* One connection for one request. The reply's JSON in *ret, which the caller frees. */
static int ask(const char *runtime_dir, struct stg_request *request, char **ret,
               struct stg_err *err)
{
    struct stager *client;
    int rc = stager_connect(runtime_dir, &client);
    if (rc < 0)
        return stg_err(err, rc, "%s", stager_error_text(NULL));
    struct stg_reply reply;
    struct stg_bump bump = {0}; /* of schema alone */
    rc = request->kind == STG_REQUEST_SCHEMA
             ? stg_collect_schema(call, client, request->name, &bump, &reply.schema, err)
             : stg_admin_call(client, request, &reply, err);
    size_t bytes = 0;
    FILE *out = rc == 0 ? open_memstream(ret, &bytes) : NULL;
    if (rc == 0 && out == NULL)
        rc = stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    struct stg_json_writer json = {.out = out};
    if (rc == 0) {
        switch (request->kind) {
        case STG_REQUEST_LIST: stg_reply_list_json(&json, &reply); break;
        case STG_REQUEST_STATUS: stg_reply_status_json(&json, &reply.status); break;
        case STG_REQUEST_EXPLAIN: stg_reply_explain_json(&json, &reply.explain); break;
        case STG_REQUEST_COMMITS: stg_reply_commits_json(&json, &reply); break;
        case STG_REQUEST_VERSIONS: stg_reply_versions_json(&json, &reply); break;
        case STG_REQUEST_SCHEMA: stg_reply_schema_json(&json, &reply.schema); break;
        case STG_REQUEST_DELETE: stg_json_bool(&json, true); break;
        default:
            stg_reply_definition_json(&json, &reply, request->kind != STG_REQUEST_CHECK);
        }
        if (fclose(out) != 0)
            rc = stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    }
    stg_bump_finish(&bump);
    stager_disconnect(client);
    return rc;
}

static int kind_of(const char *name)
{
    static const struct {
        const char *name;
        int kind;
    } kinds[] = {
        {"check", STG_REQUEST_CHECK},       {"apply", STG_REQUEST_APPLY},
        {"list", STG_REQUEST_LIST},         {"status", STG_REQUEST_STATUS},
        {"delete", STG_REQUEST_DELETE},     {"explain", STG_REQUEST_EXPLAIN},
        {"versions", STG_REQUEST_VERSIONS}, {"rollback", STG_REQUEST_ROLLBACK},
        {"commits", STG_REQUEST_COMMITS},   {"schema", STG_REQUEST_SCHEMA},
    };
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(kinds[i].name, name) == 0)
            return kinds[i].kind;
    }
    PyErr_Format(PyExc_ValueError, "no request %s", name);
    return -1;
}

/* Ends the wait of a call, and returns its JSON, which is freed, or raises its error. */
static PyObject *end_call(PyObject *module, struct stg_py_wait *wait, int rc, char *json,
                          const struct stg_err *err)
{
    PyObject *result = NULL;
    stg_py_wait_end(wait);
    if (!wait->is_over)
        result = rc == 0 ? PyUnicode_FromString(json)
                         : stg_py_raise(PyModule_GetState(module), rc, err->text);
    free(json);
    return result;
}

PyObject *stg_py_request(PyObject *module, PyObject *args)
{
    const char *kind, *runtime_dir, *name, *text, *file, *script, *job;
    unsigned long long script_run, generation;
    Py_ssize_t text_bytes;
    int replace, warm;
    PyObject *if_generation;
    if (!PyArg_ParseTuple(args, "szzz#zpOzKKpz", &kind, &runtime_dir, &name, &text,
                          &text_bytes, &file, &replace, &if_generation, &script,
                          &script_run, &generation, &warm, &job))
        return NULL;
    struct stg_request request = {.name = name,
                                  .text = text,
                                  .text_bytes = (size_t)text_bytes,
                                  .file = file,
                                  .replace = replace != 0,
                                  .warm = warm != 0,
                                  .script = script,
                                  .job = job,
                                  .script_run = script_run,
                                  .generation = generation,
                                  .has_if_generation = if_generation != Py_None};
    int number = kind_of(kind);
    if (number < 0)
        return NULL;
    request.kind = number;
    if (request.has_if_generation)
        request.if_generation = PyLong_AsUnsignedLongLong(if_generation);
    if (PyErr_Occurred())
        return NULL;

    struct stg_err err = {0};
    char *json = NULL;
    struct stg_py_wait wait;
    stg_py_wait_begin(&wait);
    int rc = ask(runtime_dir, &request, &json, &err);
    return end_call(module, &wait, rc, json, &err);
}

/* The JSON of one run, or of the comparison of two, in *ret, which the caller frees. */
static int audit(const char *runtime_dir, const char *const names[2], const char *job,
                 char **ret, struct stg_err *err)
{
    struct stg_audit_source *sources = calloc(2, sizeof(*sources));
    size_t bytes = 0, n = names[1] != NULL ? 2 : 1;
    bool is_good;
    int rc =
        sources != NULL ? 0 : stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = stg_audit_source_parse(names[i], job, &sources[i], err);
        if (rc == 0)
            rc = stg_audit_source_load(&sources[i], runtime_dir, err);
    }
    FILE *out = rc == 0 ? open_memstream(ret, &bytes) : NULL;
    if (rc == 0 && out == NULL)
        rc = stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    struct stg_json_writer json = {.out = out};
    if (rc == 0)
        rc = n == 1
                 ? stg_audit_report_json(&json, &sources[0], &is_good, err)
                 : stg_audit_compare_json(&json, &sources[0], &sources[1], &is_good, err);
    if (out != NULL && fclose(out) != 0 && rc == 0)
        rc = stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    for (size_t i = 0; sources != NULL && i < 2; i++)
        stg_audit_source_finish(&sources[i]);
    free(sources);
    return rc;
}

PyObject *stg_py_audit(PyObject *module, PyObject *args)
{
    const char *runtime_dir, *names[2], *job;
    if (!PyArg_ParseTuple(args, "zszz", &runtime_dir, &names[0], &names[1], &job))
        return NULL;
    struct stg_err err = {0};
    char *json = NULL;
    struct stg_py_wait wait;
    stg_py_wait_begin(&wait);
    int rc = audit(runtime_dir, names, job, &json, &err);
    return end_call(module, &wait, rc, json, &err);
}
