/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/drain.h"

#include <stdio.h>
#include <unistd.h>

#include "tests/bench/bench.h"
#include "tests/system/fixture.h"

#define TIMEOUT_MILLIS 60000

static uint64_t resident_bytes(pid_t pid)
{
    char path[64];
    unsigned long long pages = 0;
    snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
    FILE *file = fopen(path, "r");
    if (file == NULL || fscanf(file, "%*u %llu", &pages) != 1)
        bench_die("cannot read %s", path);
    fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Returns its rows; 0 at the end. */
static uint64_t take(struct stager_stream *stream)
{
    struct stager_batch *batch;
    struct stager_tensor tensor;
    int rc = stager_next(stream, fixture_millis(TIMEOUT_MILLIS), &batch);
    if (rc == -STAGER_OUT_OF_RANGE)
        return 0;
    if (rc < 0 || stager_batch_tensor_at(batch, 0, &tensor) < 0)
        bench_die("next: %s", stager_error_text(stream));
    uint64_t n = tensor.ndim > 0 ? (uint64_t)tensor.shape[0] : 1;
    stager_release(batch);
    return n;
}

void drain(const char *name, const char *yaml, double seconds, struct drain *ret)
{
    struct fixture fixture;
    fixture_start(&fixture, "memory_budget: 4GiB\n");
    uint64_t memory = resident_bytes(fixture.pid);
    uint64_t cpu = bench_process_ns(fixture.pid), began = bench_now_ns();
    fixture_apply(&fixture, yaml);
    struct stager_stream *stream = fixture_open(&fixture, name, NULL, 2);
    if (take(stream) == 0)
        bench_die("%s: has no batch", name);
    uint64_t first = bench_now_ns();
    *ret =
        (struct drain){.first_s = (double)(first - began) / 1e9,
                       .first_cpu_s = (double)(bench_process_ns(fixture.pid) - cpu) / 1e9,
                       .first_bytes = resident_bytes(fixture.pid) - memory};
    cpu = bench_process_ns(fixture.pid) + bench_process_ns(getpid());
    uint64_t now = first, n = 1;
    while (n > 0 && (double)(now - first) < seconds * 1e9) {
        n = take(stream);
        ret->n_rows += n;
        now = bench_now_ns();
    }
    cpu = bench_process_ns(fixture.pid) + bench_process_ns(getpid()) - cpu;
    if (ret->n_rows > 0) {
        ret->rows_per_s = (double)ret->n_rows * 1e9 / (double)(now - first);
        ret->rows_per_cpu_s = (double)ret->n_rows * 1e9 / (double)cpu;
    }
    stager_close(stream);
    fixture_finish(&fixture);
}
