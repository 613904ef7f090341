/* SPDX-License-Identifier: Apache-2.0 */
#include "client/report.h"

#include <stdlib.h>

#include "client/stream.h"

#define REPORT_NS INT64_C(500000000)

bool stg_report_is_due(struct stager_stream *stream)
{
    if (!stream->wants_reports || stream->client == NULL || stream->finished != 0)
        return false;
    return stg_clock_ns() - stream->reporter.at_ns >= REPORT_NS;
}

/* What happened to the stream since the last one; of the first nothing is said. */
static void take_time(struct stager_stream *stream, struct stg_report *ret)
{
    struct stg_reporter now = {.at_ns = stg_clock_ns(),
                               .n_batches = stream->n_batches,
                               .wait_ns = stream->wait_ns,
                               .cpu_ns = stg_process_cpu_ns()};
    const struct stg_reporter *last = &stream->reporter;
    if (last->at_ns != 0) {
        ret->elapsed_ns = (uint64_t)(now.at_ns - last->at_ns);
        ret->n_batches = now.n_batches - last->n_batches;
        ret->wait_ns = now.wait_ns - last->wait_ns;
        ret->cpu_ns = now.cpu_ns - last->cpu_ns;
    }
    stream->reporter = now;
}

void stg_report_send(struct stager_stream *stream,
                     const struct stg_compute_measured *measured)
{
    struct stg_request request = {.kind = STG_REQUEST_REPORT};
    struct stg_report *report = &request.report;
    struct stg_report_node *nodes = calloc(measured->n_nodes + 1, sizeof(*nodes));
    if (nodes == NULL)
        return;
    for (size_t i = 0; i < measured->n_nodes; i++)
        nodes[i] = (struct stg_report_node){.node = measured->nodes[i].node,
                                            .n = measured->nodes[i].n,
                                            .ns = measured->nodes[i].ns,
                                            .bytes = measured->nodes[i].bytes,
                                            .n_bytes = measured->nodes[i].n_bytes};
    report->n_runs = measured->n_runs;
    report->run_ns = measured->run_ns;
    report->nodes = nodes;
    report->n_nodes = measured->n_nodes;
    take_time(stream, report);
    struct stager *client = stream->client;
    long n = stg_wire_encode_request(&request, client->buf, sizeof(client->buf));
    if (n > 0)
        stg_socket_post(client->fd, client->buf, (size_t)n);
    free(nodes);
}
