/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/device.h"
#include "core/status.h"
#include "tests/check.h"

#define N 100003u

/* ---- the contract of every table ---- */

static const struct stg_device *dev;
static struct stg_err err;

static void memory_goes_in_and_out(struct stg_stream *stream)
{
    unsigned char *src = malloc(N), *back = calloc(1, N);
    void *memory = NULL;
    CHECK(src != NULL && back != NULL);
    for (unsigned i = 0; i < N; i++)
        src[i] = (unsigned char)(i * 31);
    CHECK_OK(dev->alloc(0, N, &memory, &err), err);
    CHECK(memory != NULL);
    CHECK_OK(dev->copy_in(stream, memory, src, N, &err), err);
    CHECK_OK(dev->copy_in(stream, memory, src, 0, &err), err);
    CHECK_OK(dev->copy_out(stream, back, memory, N, &err), err);

    struct stg_device_event *event;
    CHECK_OK(dev->event_create(0, &event, &err), err);
    CHECK_INT(dev->event_query(event, &err), 1);
    CHECK_OK(dev->event_record(event, stream, &err), err);
    CHECK(dev->event_query(event, &err) >= 0);
    CHECK_OK(dev->event_wait(event, &err), err);
    CHECK_INT(dev->event_query(event, &err), 1);
    CHECK(memcmp(src, back, N) == 0);
    dev->event_destroy(event);
    dev->free(0, memory);
    free(src);
    free(back);
}

/* A write on one stream is visible to another one that waited for its event. */
static void streams_wait_for_events(void)
{
    struct stg_stream *first, *second;
    struct stg_device_event *written, *never, *read;
    int64_t in = 0x1122334455667788, out = 0;
    void *memory;
    CHECK_OK(dev->stream_create(0, &first, &err), err);
    CHECK_OK(dev->stream_create(0, &second, &err), err);
    CHECK_OK(dev->event_create(0, &written, &err), err);
    CHECK_OK(dev->event_create(0, &never, &err), err);
    CHECK_OK(dev->event_create(0, &read, &err), err);
    CHECK_OK(dev->alloc(0, sizeof(in), &memory, &err), err);
    CHECK_OK(dev->stream_wait(second, never, &err), err);
    CHECK_OK(dev->copy_in(first, memory, &in, sizeof(in), &err), err);
    CHECK_OK(dev->event_record(written, first, &err), err);
    CHECK_OK(dev->stream_wait(second, written, &err), err);
    CHECK_OK(dev->copy_out(second, &out, memory, sizeof(out), &err), err);
    CHECK_OK(dev->event_record(read, second, &err), err);
    CHECK_OK(dev->event_wait(read, &err), err);
    CHECK_INT(out, in);
    CHECK(dev->event_native(read) != NULL);
    dev->event_destroy(written);
    dev->event_destroy(never);
    dev->event_destroy(read);
    dev->free(0, memory);
    dev->stream_destroy(first);
    dev->stream_destroy(second);
}

static void streams_of_others_are_wrapped(void)
{
    struct stg_stream *theirs;
    CHECK_OK(dev->stream_wrap(0, NULL, &theirs, &err), err);
    memory_goes_in_and_out(theirs);
    dev->stream_destroy(theirs);
    memory_goes_in_and_out(NULL); /* its owner destroys it */
}

static void facts_are_plausible(void)
{
    struct stg_device_facts facts = {0};
    int n;
    CHECK_OK(dev->facts(0, &facts, &err), err);
    CHECK(strlen(facts.name) > 2);
    CHECK(facts.memory_bytes > 1u << 20);
    CHECK((facts.runtime > 0) == (facts.major > 0));
    CHECK(facts.driver >= facts.runtime / 1000 * 1000);
    facts.major = -1;
    CHECK_OK(dev->count(&n, &err), err);
    CHECK_INT(dev->facts(n, &facts, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_INT(facts.major, -1);
}

/* Two mappings in one process: a write through one is visible through the other, and the
 * memory lives as long as either. */
static void memory_is_shared(struct stg_stream *stream)
{
    struct stg_device_shared first = {0}, second = {0};
    int64_t in[2] = {0x1122334455667788, -3}, out[2] = {0};
    int fd = -1;
    int rc = dev->shared_make(0, N, &first, &fd, &err);
    if (rc == -STAGER_UNIMPLEMENTED)
        return;
    CHECK_OK(rc, err);
    CHECK(first.bytes >= N && first.memory != NULL && fd >= 0);
    CHECK_INT(dev->shared_import(0, fd, 0, true, &second, &err),
              -STAGER_INVALID_ARGUMENT);
    CHECK_OK(dev->shared_import(0, fd, first.bytes, true, &second, &err), err);
    CHECK(second.memory != first.memory);
    close(fd);
    char *to = (char *)first.memory + 4096, *from = (char *)second.memory + 4096;
    CHECK_OK(dev->copy_in(stream, to, in, sizeof(in), &err), err);
    struct stg_device_event *done;
    CHECK_OK(dev->event_create(0, &done, &err), err);
    CHECK_OK(dev->event_record(done, stream, &err), err);
    CHECK_OK(dev->event_wait(done, &err), err);
    dev->shared_release(&first);
    CHECK(first.memory == NULL);
    CHECK_OK(dev->copy_out(stream, out, from, sizeof(out), &err), err);
    CHECK_OK(dev->event_record(done, stream, &err), err);
    CHECK_OK(dev->event_wait(done, &err), err);
    CHECK(memcmp(in, out, sizeof(in)) == 0);
    dev->event_destroy(done);
    dev->shared_release(&second);
    dev->shared_release(&second);
    CHECK_INT(dev->shared_make(0, 0, &first, &fd, &err), -STAGER_INVALID_ARGUMENT);
}

static void bounce_buffers_can_be_had(void)
{
    char *memory = NULL;
    CHECK_OK(dev->host_alloc(N, (void **)&memory, &err), err);
    memset(memory, 1, N);
    dev->host_free(memory);
    CHECK_OK(dev->host_alloc(0, (void **)&memory, &err), err);
    CHECK(memory == NULL);
    dev->host_free(NULL);
}

static void bad_arguments_are_refused(void)
{
    int n;
    struct stg_stream *stream = NULL;
    struct stg_device_event *event = NULL;
    void *memory = &n;
    char text[64] = "old";
    CHECK_OK(dev->count(&n, &err), err);
    CHECK(n >= 1);
    CHECK_INT(dev->describe(n, text, sizeof(text), &err), -STAGER_INVALID_ARGUMENT);
    CHECK_STR(text, "old");
    CHECK_INT(dev->alloc(n, 64, &memory, &err), -STAGER_INVALID_ARGUMENT);
    CHECK(memory == &n);
    CHECK_INT(dev->stream_create(-1, &stream, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_INT(dev->event_create(n, &event, &err), -STAGER_INVALID_ARGUMENT);
    CHECK(stream == NULL && event == NULL);
    CHECK_INT(dev->alloc(0, SIZE_MAX - 4096, &memory, &err), -STAGER_RESOURCE_EXHAUSTED);
    CHECK(err.text[0] != '\0');
    CHECK_OK(dev->alloc(0, 0, &memory, &err), err);
    CHECK(memory == NULL);
    CHECK_INT(dev->host_register(0, &n, 0, false, &err), -STAGER_INVALID_ARGUMENT);
    dev->free(0, NULL);
    dev->stream_destroy(NULL);
    dev->event_destroy(NULL);
    dev->host_unregister(NULL);
}

static void host_memory_registers(void)
{
    size_t bytes = 1u << 20;
    char *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    memset(memory, 7, bytes);
    CHECK_OK(dev->host_register(0, memory, bytes, false, &err), err);
    dev->host_unregister(memory);
    CHECK(mprotect(memory, bytes, PROT_READ) == 0);
    int rc = dev->host_register(0, memory, bytes, true, &err);
    if (rc == 0)
        dev->host_unregister(memory);
    else
        CHECK_INT(rc, -STAGER_UNIMPLEMENTED);
    munmap(memory, bytes);
}

static void keeps_the_contract(const struct stg_device *device)
{
    char text[256] = "";
    struct stg_stream *stream;
    dev = device;
    CHECK_INT(dev->abi, STG_DEVICE_ABI);
    CHECK(dev->struct_bytes >= sizeof(*dev));
    CHECK_OK(dev->describe(0, text, sizeof(text), &err), err);
    CHECK(strlen(text) > 5);
    CHECK_OK(dev->describe(0, text, 4, &err), err);
    CHECK_INT(strlen(text), 3);
    CHECK_OK(dev->stream_create(0, &stream, &err), err);
    memory_goes_in_and_out(stream);
    memory_goes_in_and_out(NULL);
    streams_wait_for_events();
    streams_of_others_are_wrapped();
    facts_are_plausible();
    memory_is_shared(stream);
    bounce_buffers_can_be_had();
    host_memory_registers();
    bad_arguments_are_refused();
    memory_goes_in_and_out(stream);
    dev->stream_destroy(stream);
}

static void the_cpu_keeps_the_contract(void)
{
    keeps_the_contract(stg_device_cpu());
}

/* ---- the plugin ---- */

static const struct stg_device *cuda_or_skip(void)
{
    const char *dir = getenv("STG_CUDA_DIR");
    const struct stg_device *device = NULL;
    if (dir == NULL || dir[0] == '\0')
        SKIP("built without CUDA");
    CHECK_OK(stg_device_cuda(dir, &device, &err), err);
    const char *name = getenv("STG_CUDA_NAME");
    CHECK_STR(device->name, name != NULL ? name : "cuda");
    return device;
}

static void cuda_keeps_the_contract(void)
{
    const struct stg_device *device = cuda_or_skip();
    int n;
    if (device->count(&n, &err) < 0)
        SKIP("%s", err.text);
    if (strcmp(device->name, "standin") != 0)
        stg_test_keeps_descriptors();
    keeps_the_contract(device);
}

static void without_a_device_every_call_reports_the_reason(void)
{
    dev = cuda_or_skip();
    int n = -7;
    char text[64] = "old", byte = 0;
    void *memory = &n;
    struct stg_stream *stream = NULL;
    struct stg_device_event *event = NULL;
    if (dev->count(&n, &err) == 0)
        SKIP("there are %d devices", n);
    const int unavailable = -STAGER_UNAVAILABLE;
    CHECK_INT(dev->count(&n, &err), unavailable);
    CHECK_INT(n, -7);
    CHECK_INT(err.code, unavailable);
    CHECK(strstr(err.text, "driver") != NULL || strstr(err.text, "device") != NULL ||
          strstr(err.text, "MPS") != NULL);
    if (getenv("STG_FAKE_REASON") != NULL)
        CHECK_CONTAINS(err.text, getenv("STG_FAKE_REASON"));
    CHECK_INT(dev->describe(0, text, sizeof(text), &err), unavailable);
    CHECK_STR(text, "old");
    CHECK_INT(dev->alloc(0, 64, &memory, &err), unavailable);
    CHECK(memory == &n);
    CHECK_INT(dev->host_register(0, &n, sizeof(n), false, &err), unavailable);
    CHECK_INT(dev->stream_create(0, &stream, &err), unavailable);
    CHECK_INT(dev->event_create(0, &event, &err), unavailable);
    CHECK(stream == NULL && event == NULL);
    CHECK_INT(dev->copy_in(NULL, text, &byte, 1, &err), unavailable);
    CHECK_INT(dev->copy_out(NULL, &byte, text, 1, &err), unavailable);
    struct stg_device_facts facts = {.major = -1};
    CHECK_INT(dev->facts(0, &facts, &err), unavailable);
    CHECK_INT(facts.major, -1);
    struct stg_device_shared shared = {0};
    CHECK_INT(dev->shared_make(0, 64, &shared, &n, &err), unavailable);
    CHECK_INT(dev->shared_import(0, 0, 64, true, &shared, &err), unavailable);
    CHECK(shared.memory == NULL);
    CHECK_INT(dev->host_alloc(64, &memory, &err), unavailable);
    CHECK_INT(dev->stream_wrap(0, NULL, &stream, &err), unavailable);
    CHECK(memory == &n && stream == NULL);
    const struct stg_device_kernels *kernels = dev->kernels;
    CHECK_INT(kernels->log1p(NULL, STAGER_FLOAT32, memory, memory, 1, NULL), unavailable);
    CHECK_INT(kernels->log1p(NULL, STAGER_FLOAT32, NULL, NULL, 0, &err), unavailable);
    CHECK_INT(kernels->log1p(NULL, STAGER_INT32, memory, memory, 1, &err),
              -STAGER_INVALID_ARGUMENT);
    dev->host_free(NULL);
    dev->free(0, NULL);
    dev->host_unregister(&n);
    dev->stream_destroy(NULL);
    dev->event_destroy(NULL);
}

static void *load(void *arg)
{
    const struct stg_device **ret = arg;
    if (stg_device_cuda(getenv("STG_CUDA_DIR"), ret, NULL) < 0)
        *ret = NULL;
    return NULL;
}

static void threads_that_load_at_once_get_one_table(void)
{
    pthread_t threads[8];
    const struct stg_device *tables[8];
    if (getenv("STG_CUDA_DIR") == NULL || getenv("STG_CUDA_DIR")[0] == '\0')
        SKIP("built without CUDA");
    for (int i = 0; i < 8; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, load, &tables[i]), 0);
    for (int i = 0; i < 8; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < 8; i++)
        CHECK(tables[i] != NULL && tables[i] == tables[0]);
}

/* ---- libraries that are no plugin ---- */

/* Installs `target` under the plugin's name in a separate directory and loads it. */
static void refuse(const char *target, const char *why)
{
    char dir[] = "/tmp/stg-device-XXXXXX", path[64];
    const struct stg_device *device = NULL;
    CHECK(mkdtemp(dir) != NULL);
    snprintf(path, sizeof(path), "%s/libstager-cuda.so", dir);
    CHECK_INT(symlink(target, path), 0);
    int rc = stg_device_cuda(dir, &device, &err);
    unlink(path);
    rmdir(dir);
    CHECK_INT(rc, -STAGER_UNAVAILABLE);
    CHECK(device == NULL);
    CHECK_CONTAINS(err.text, why);
    CHECK_CONTAINS(err.text, "CUDA is not available");
}

static void a_plugin_of_another_kind_is_refused(void)
{
    CHECK(getenv("STG_FAKE_ABI") != NULL);
    refuse(getenv("STG_FAKE_ABI"), "has device abi 99, this program has 4");
    refuse(getenv("STG_FAKE_SHORT"), "has a table of 16 bytes");
    refuse(getenv("STG_FAKE_NULL"), "returned no table");
    refuse(getenv("STG_FAKE_EMPTY"), "exports no stg_cuda_device");
    refuse("/proc/self/maps", "libstager-cuda.so");
    refuse("/nowhere", "No such file");
}

static void a_plugin_of_this_abi_is_taken_and_stays(void)
{
    char dir[] = "/tmp/stg-device-XXXXXX", path[64];
    const struct stg_device *device = NULL, *again = NULL;
    CHECK(mkdtemp(dir) != NULL);
    snprintf(path, sizeof(path), "%s/libstager-cuda.so", dir);
    CHECK(stg_device_cuda(dir, &device, &err) < 0);
    CHECK_INT(symlink(getenv("STG_FAKE_GOOD"), path), 0);
    CHECK_OK(stg_device_cuda(dir, &device, &err), err);
    unlink(path);
    rmdir(dir);
    CHECK_STR(device->name, "fake");
    CHECK_OK(stg_device_cuda("/nowhere", &again, &err), err);
    CHECK(again == device);
}

static void a_directory_without_a_plugin_is_named(void)
{
    const struct stg_device *device = NULL;
    CHECK_INT(stg_device_cuda("/nowhere/at/all", &device, &err), -STAGER_UNAVAILABLE);
    CHECK_CONTAINS(err.text, "/nowhere/at/all/libstager-cuda.so");
    CHECK_INT(stg_device_cuda("/nowhere", &device, NULL), -STAGER_UNAVAILABLE);
    char *longest = malloc(8000);
    memset(longest, 'x', 7999);
    longest[7999] = '\0';
    CHECK_INT(stg_device_cuda(longest, &device, &err), -STAGER_UNAVAILABLE);
    CHECK_CONTAINS(err.text, "too long");
    free(longest);
    CHECK(device == NULL);
}

static const struct stg_test tests[] = {
    TEST(the_cpu_keeps_the_contract),
    TEST_SLOW(cuda_keeps_the_contract, 60),
    TEST(without_a_device_every_call_reports_the_reason),
    TEST(threads_that_load_at_once_get_one_table),
    TEST(a_plugin_of_another_kind_is_refused),
    TEST(a_plugin_of_this_abi_is_taken_and_stays),
    TEST(a_directory_without_a_plugin_is_named),
};
TEST_MAIN(tests)
