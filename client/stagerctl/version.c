/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>

#include "client/stagerctl/command.h"
#include "core/device.h"

/* What can be known here, and what of the daemon, if there is one. */
struct version {
    char path[512]; /* of attach.sock */
    struct stager *client;
    struct stg_admin_daemon daemon;
    char why_no_daemon[STG_ERR_TEXT_BYTES];
    bool has_cuda;
    char cuda[STG_ERR_TEXT_BYTES]; /* what it is, or why there is none */
};

static void look_at_cuda(struct version *ret)
{
    struct stg_err err = {0};
    const struct stg_device *device;
    int n = 0;
    int rc = stg_device_cuda(NULL, &device, &err);
    if (rc == 0)
        rc = device->count(&n, &err);
    if (rc == 0 && n > 0)
        rc = device->describe(0, ret->cuda, sizeof(ret->cuda), &err);
    ret->has_cuda = rc == 0 && n > 0;
    if (rc < 0)
        snprintf(ret->cuda, sizeof(ret->cuda), "%s", err.text);
    else if (n == 0)
        snprintf(ret->cuda, sizeof(ret->cuda), "no device");
}

static void print_json(const struct version *v)
{
    struct stg_json_writer json = stg_ctl_json();
    stg_json_object_begin(&json);
    stg_json_put_string(&json, "release", stager_version());
    stg_json_key(&json, "protocol");
    stg_json_object_begin(&json);
    stg_json_put_uint(&json, "min", STG_PROTOCOL_MIN);
    stg_json_put_uint(&json, "max", STG_PROTOCOL_MAX);
    stg_json_object_end(&json);
    stg_json_put_string(&json, "socket", v->path);
    stg_json_key(&json, "daemon");
    stg_json_object_begin(&json);
    stg_json_put_bool(&json, "reachable", v->client != NULL);
    if (v->client != NULL) {
        char instance[32];
        snprintf(instance, sizeof(instance), "%016" PRIx64, v->daemon.instance);
        stg_json_put_string(&json, "release", v->daemon.release);
        stg_json_put_uint(&json, "protocol", v->daemon.version);
        stg_json_put_string(&json, "instance", instance);
        stg_json_put_uint(&json, "pid", v->daemon.pid);
        stg_json_put_string(&json, "cuda", v->daemon.cuda);
    } else {
        stg_json_put_string(&json, "reason", v->why_no_daemon);
    }
    stg_json_object_end(&json);
    stg_json_key(&json, "cuda");
    stg_json_object_begin(&json);
    stg_json_put_bool(&json, "available", v->has_cuda);
    stg_json_put_string(&json, v->has_cuda ? "device" : "reason", v->cuda);
    stg_json_object_end(&json);
    stg_json_object_end(&json);
    putchar('\n');
}

static void print_text(const struct version *v)
{
    printf("stagerctl %s, protocol %u to %u\n", stager_version(), STG_PROTOCOL_MIN,
           STG_PROTOCOL_MAX);
    if (v->client != NULL)
        printf("stagerd   %s, protocol %u, pid %u, instance %016" PRIx64 ", at %s\n",
               v->daemon.release, v->daemon.version, v->daemon.pid, v->daemon.instance,
               v->path);
    else
        printf("stagerd   none: %s\n", v->why_no_daemon);
    printf("cuda      %s%s\n", v->has_cuda ? "" : "none: ", v->cuda);
}

int stg_ctl_version(const struct stg_ctl_options *options)
{
    static struct version v;
    struct stg_err err = {0};
    int rc = stg_admin_path(options->runtime_dir, v.path, sizeof(v.path), &err);
    if (rc < 0)
        return stg_ctl_fail(rc, err.text);
    if (stager_connect(options->runtime_dir, &v.client) == 0)
        stg_admin_daemon(v.client, &v.daemon);
    else
        snprintf(v.why_no_daemon, sizeof(v.why_no_daemon), "%s", stager_error_text(NULL));
    look_at_cuda(&v);
    (options->json ? print_json : print_text)(&v);
    stager_disconnect(v.client);
    return stg_ctl_finish();
}
