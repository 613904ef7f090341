/* SPDX-License-Identifier: Apache-2.0
 *
 * stagerctl doctor: what there is, and what is missing, of stagerd and of each GPU.
 */
#include <stdio.h>
#include <string.h>

#include "client/stagerctl/command.h"

#define MAX_GPUS 64

struct findings {
    bool has_daemon;
    char no_daemon[STG_ERR_TEXT_BYTES];
    char release[64], socket[512];
    uint32_t pid;
    char cuda[2 * STG_ERR_TEXT_BYTES]; /* what the daemon says of CUDA */
    uint32_t n_gpus;
    char no_gpu[STG_ERR_TEXT_BYTES];
    struct stager_gpu_info gpus[MAX_GPUS];
};

static void look_at_daemon(const char *runtime_dir, struct findings *ret)
{
    struct stager *client;
    if (stager_connect(runtime_dir, &client) < 0) {
        snprintf(ret->no_daemon, sizeof(ret->no_daemon), "%s", stager_error_text(NULL));
        return;
    }
    struct stg_admin_daemon daemon;
    stg_admin_daemon(client, &daemon);
    ret->has_daemon = true;
    snprintf(ret->release, sizeof(ret->release), "%s", daemon.release);
    snprintf(ret->socket, sizeof(ret->socket), "%s", daemon.path);
    ret->pid = daemon.pid;
    snprintf(ret->cuda, sizeof(ret->cuda), "%s", daemon.cuda);
    stager_disconnect(client);
}

static void look_at_gpus(struct findings *ret)
{
    int rc = 0;
    for (uint32_t n = 1; ret->n_gpus < n && n <= MAX_GPUS && rc == 0;) {
        struct stager_gpu_info *gpu = &ret->gpus[ret->n_gpus];
        gpu->struct_size = sizeof(*gpu);
        rc = stager_gpu((int)ret->n_gpus, gpu);
        n = rc == 0 ? gpu->n_devices : 0;
        ret->n_gpus += rc == 0;
    }
    if (rc < 0)
        snprintf(ret->no_gpu, sizeof(ret->no_gpu), "%s", stager_error_text(NULL));
}

static void print_gpu_json(struct stg_json_writer *json,
                           const struct stager_gpu_info *gpu)
{
    const struct {
        const char *key;
        bool is;
    } facts[] = {{"register_read_only", gpu->register_read_only},
                 {"ipc", gpu->ipc},
                 {"memory_fds", gpu->memory_fds},
                 {"mps", gpu->mps}};
    char capability[32];
    snprintf(capability, sizeof(capability), "%d.%d", gpu->major, gpu->minor);
    stg_json_object_begin(json);
    stg_json_put_string(json, "name", gpu->name);
    stg_json_put_string(json, "compute_capability", capability);
    stg_json_put_uint(json, "memory_bytes", gpu->memory_bytes);
    stg_json_put_uint(json, "driver", (uint64_t)gpu->driver);
    stg_json_put_uint(json, "runtime", (uint64_t)gpu->runtime);
    for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); i++) {
        stg_json_put_bool(json, facts[i].key, facts[i].is);
    }
    stg_json_object_end(json);
}

/* The daemon says which device it has, or "unavailable: " and why. */
static void print_cuda_json(struct stg_json_writer *json, const char *cuda)
{
    static const char none[] = "unavailable: ";
    bool is_there = strncmp(cuda, none, sizeof(none) - 1) != 0;
    stg_json_key(json, "cuda");
    stg_json_object_begin(json);
    stg_json_put_bool(json, "available", is_there);
    stg_json_put_string(json, is_there ? "device" : "reason",
                        is_there ? cuda : cuda + sizeof(none) - 1);
    stg_json_object_end(json);
}

static void print_daemon_json(struct stg_json_writer *json, const struct findings *f)
{
    stg_json_key(json, "daemon");
    stg_json_object_begin(json);
    stg_json_put_bool(json, "reachable", f->has_daemon);
    if (f->has_daemon) {
        stg_json_put_string(json, "release", f->release);
        stg_json_put_uint(json, "pid", f->pid);
        stg_json_put_string(json, "socket", f->socket);
        print_cuda_json(json, f->cuda);
    } else {
        stg_json_put_string(json, "reason", f->no_daemon);
    }
    stg_json_object_end(json);
}

static void print_json(const struct findings *f)
{
    struct stg_json_writer json = stg_ctl_json();
    stg_json_object_begin(&json);
    print_daemon_json(&json, f);
    stg_json_key(&json, "gpus");
    stg_json_array_begin(&json);
    for (uint32_t i = 0; i < f->n_gpus; i++)
        print_gpu_json(&json, &f->gpus[i]);
    stg_json_array_end(&json);
    if (f->n_gpus == 0) {
        stg_json_put_string(&json, "reason", f->no_gpu);
    }
    stg_json_object_end(&json);
    putchar('\n');
}

static void print_gpu(uint32_t i, const struct stager_gpu_info *gpu)
{
    char memory[32];
    printf("gpu %-5u %s, compute capability %d.%d, %s\n", i, gpu->name, gpu->major,
           gpu->minor, stg_ctl_bytes(gpu->memory_bytes, memory, sizeof(memory)));
    printf("  driver  supports CUDA %d.%d; libstager-cuda.so has %d.%d\n",
           gpu->driver / 1000, gpu->driver % 1000 / 10, gpu->runtime / 1000,
           gpu->runtime % 1000 / 10);
    printf("  batches %s\n", gpu->register_read_only
                                 ? "are copied from the shared memory"
                                 : "are copied through a page-locked buffer: the device "
                                   "cannot page-lock read-only memory");
    printf("  shared  %s\n",
           gpu->memory_fds
               ? "yes: a pipeline with `gpu` copies a batch once for all trainers"
               : "no: each trainer copies its own batches");
    printf("  mps     %s\n",
           gpu->mps ? "yes"
                    : "no: kernels of several processes run in turns, not at once");
}

static void print_text(const struct findings *f)
{
    if (f->has_daemon)
        printf("stagerd   %s, pid %u\n  cuda    %s\n", f->release, f->pid, f->cuda);
    else
        printf("stagerd   none: %s\n", f->no_daemon);
    for (uint32_t i = 0; i < f->n_gpus; i++)
        print_gpu(i, &f->gpus[i]);
    if (f->n_gpus == 0)
        printf("gpu       none: %s; stager works without a GPU\n", f->no_gpu);
}

int stg_ctl_doctor(const struct stg_ctl_options *options)
{
    static struct findings findings;
    look_at_daemon(options->runtime_dir, &findings);
    look_at_gpus(&findings);
    (options->json ? print_json : print_text)(&findings);
    return stg_ctl_finish();
}
