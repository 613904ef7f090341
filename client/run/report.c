/* SPDX-License-Identifier: Apache-2.0 */
#include "client/run/report.h"

#include <stdlib.h>

#include "client/stream/stream.h"

#define REPORT_NS INT64_C(500000000)

bool stg_report_is_due(const struct stg_reporter *reporter,
                       const struct stager_stream *stream)
{
    if (!stream->wants_reports || stream->client == NULL || stream->finished != 0)
        return false;
    return stg_clock_ns() - reporter->at_ns >= REPORT_NS;
}

/* What happened to the stream since the last one; of the first nothing is said. */
static void take_time(struct stg_reporter *reporter, const struct stager_stream *stream,
                      struct stg_report *ret)
{
    struct stg_reporter now = {.at_ns = stg_clock_ns(),
                               .n_batches = stream->n_batches,
                               .wait_ns = stream->wait_ns,
                               .cpu_ns = stg_process_cpu_ns()};
    if (reporter->at_ns != 0) {
        ret->elapsed_ns = (uint64_t)(now.at_ns - reporter->at_ns);
        ret->n_batches = now.n_batches - reporter->n_batches;
        ret->wait_ns = now.wait_ns - reporter->wait_ns;
        ret->cpu_ns = now.cpu_ns - reporter->cpu_ns;
    }
    *reporter = now;
}

/* stagerd reckons in batches as it stages them: a trainer that partitions them runs its
 * graph on each slice. `bytes`: room for what all nodes have of them. */
static void fill_nodes(const struct stg_compute_measured *measured, uint64_t n_slices,
                       struct stg_report_node *nodes, uint64_t *bytes)
{
    for (size_t i = 0; i < measured->n_nodes; i++) {
        const struct stg_compute_node *from = &measured->nodes[i];
        nodes[i] = (struct stg_report_node){.node = from->node,
                                            .n = from->n,
                                            .ns = from->ns * n_slices,
                                            .bytes = bytes,
                                            .n_bytes = from->n_bytes,
                                            .on_device = from->on_device};
        for (size_t k = 0; k < from->n_bytes; k++)
            *bytes++ = from->bytes[k] * n_slices;
    }
}

static size_t count_bytes(const struct stg_compute_measured *measured)
{
    size_t n = 0;
    for (size_t i = 0; i < measured->n_nodes; i++)
        n += measured->nodes[i].n_bytes;
    return n;
}

void stg_report_send(struct stg_reporter *reporter, struct stager_stream *stream,
                     const struct stg_compute_measured *measured)
{
    struct stg_request request = {.kind = STG_REQUEST_REPORT};
    struct stg_report *report = &request.report;
    uint64_t n_slices = stream->n_slices != 0 ? stream->n_slices : 1;
    struct stg_report_node *nodes = calloc(measured->n_nodes + 1, sizeof(*nodes));
    uint64_t *bytes = calloc(count_bytes(measured) + 1, sizeof(*bytes));
    if (nodes == NULL || bytes == NULL) {
        free(nodes);
        free(bytes);
        return;
    }
    fill_nodes(measured, n_slices, nodes, bytes);
    report->n_runs = measured->n_runs;
    report->run_ns = measured->run_ns * n_slices;
    report->nodes = nodes;
    report->n_nodes = measured->n_nodes;
    take_time(reporter, stream, report);
    report->cpu_ns *= n_slices;
    struct stager *client = stream->client;
    long n = stg_wire_encode_request(&request, client->buf, sizeof(client->buf));
    if (n > 0)
        stg_socket_post(client->fd, client->buf, (size_t)n);
    free(nodes);
    free(bytes);
}
