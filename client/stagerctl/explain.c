/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/stagerctl/command.h"
#include "client/stagerctl/reply.h"
#include "client/stagerctl/report/advice.h"

/* "1.5 ms", three digits of it; what would be 1000 of one unit is 1 of the next. Returns
 * buf. */
static const char *time_text(uint64_t ns, char *buf, size_t size)
{
    if (ns < 1000)
        snprintf(buf, size, "%" PRIu64 " ns", ns);
    else if (ns < 999500)
        snprintf(buf, size, "%.3g us", (double)ns / 1e3);
    else if (ns < 999500000)
        snprintf(buf, size, "%.3g ms", (double)ns / 1e6);
    else
        snprintf(buf, size, ns < 999500000000 ? "%.3g s" : "%.0f s", (double)ns / 1e9);
    return buf;
}

/* What was not measured is "-". */
static const char *mean_text(uint64_t n, uint64_t ns, char *buf, size_t size)
{
    if (n == 0)
        snprintf(buf, size, "-");
    return n == 0 ? buf : time_text(ns, buf, size);
}

static const char *bytes_text(uint64_t bytes, char *buf, size_t size)
{
    if (bytes == 0)
        snprintf(buf, size, "-");
    return bytes == 0 ? buf : stg_ctl_bytes(bytes, buf, size);
}

static double percent(uint64_t part, uint64_t of)
{
    return of > 0 ? 100.0 * (double)part / (double)of : 0;
}

/* ---- for people ---- */

static void add_pace(struct stg_table *t, const struct stg_explain *e)
{
    uint64_t runners_ns = e->elapsed_ns * e->n_runners;
    if (e->n_items == 0 || e->elapsed_ns == 0)
        return;
    stg_table_add(t, "lately");
    stg_table_add(t,
                  "%.1f batches a second; %u runner%s: %.0f %% pulling, %.0f %% "
                  "computing, %.0f %% waiting for room; trainers sleep %.0f %%",
                  (double)e->n_items * 1e9 / (double)e->elapsed_ns, e->n_runners,
                  e->n_runners == 1 ? "" : "s", percent(e->pull_ns, runners_ns),
                  percent(e->compute_ns, runners_ns), percent(e->room_ns, runners_ns),
                  percent(e->trainers_wait_ns, e->trainers_ns));
}

static void add_remote(struct stg_table *t, const struct stg_explain *e)
{
    char bytes[32], answer[32], stall[32], there[32], here[32];
    uint64_t n = e->n_remote_items + e->n_local_items;
    if (e->remote[0] == '\0')
        return;
    stg_table_add(t, "workers");
    stg_table_add(t, "%s", e->remote);
    if (e->n_remote_items == 0 || e->elapsed_ns == 0)
        return;
    double rate = (double)e->remote_bytes * 1e9 / (double)e->elapsed_ns;
    stg_table_add(t, "%s", "");
    stg_table_add(t,
                  "%" PRIu64 " of %" PRIu64
                  " batches, %s a second; an answer takes %s; batches were late by %s",
                  e->n_remote_items, n,
                  stg_ctl_bytes((uint64_t)rate, bytes, sizeof(bytes)),
                  time_text(e->remote_answer_ns, answer, sizeof(answer)),
                  time_text(e->remote_stall_ns, stall, sizeof(stall)));
    stg_table_add(t, "%s", "");
    stg_table_add(t, "CPU time of a batch: %s in workers, %s here",
                  mean_text(e->remote_cpu_ns, e->remote_cpu_ns, there, sizeof(there)),
                  mean_text(e->local_cpu_ns, e->local_cpu_ns, here, sizeof(here)));
}

static void add_steps(struct stg_table *t, const struct stg_explain *e)
{
    char time[32], text[1024] = "";
    size_t at = 0;
    for (size_t i = 0; i < e->n_steps && at < sizeof(text); i++)
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s", i > 0 ? ", " : "",
                               e->steps[i]);
    if (e->n_items > 0 && at < sizeof(text))
        snprintf(text + at, sizeof(text) - at, "%s%s a batch", at > 0 ? ": " : "",
                 time_text(e->pull_ns / e->n_items, time, sizeof(time)));
    if (text[0] != '\0') {
        stg_table_add(t, "data set");
        stg_table_add(t, "%s", text);
    }
}

static void add_reads(struct stg_table *t, const struct stg_explain *e)
{
    for (size_t i = 0; i < e->n_reads; i++) {
        stg_table_add(t, "%s", i == 0 ? "columns" : "");
        stg_table_add(t, "%s", e->reads[i]);
    }
}

static void add_run(struct stg_table *t, const char *side, const char *what, uint64_t n,
                    uint64_t ns)
{
    char time[32];
    if (n == 0)
        return;
    stg_table_add(t, "%s", side);
    stg_table_add(t, "%s takes %s a batch (%" PRIu64 " looked at)", what,
                  time_text(ns, time, sizeof(time)), n);
}

void stg_ctl_write_verdict(FILE *out, const struct stg_explain *e)
{
    struct stg_advice advice;
    struct stg_table table = {.out = out, .n_columns = 2};
    stg_table_add(&table, "held up by");
    stg_table_add(&table, "%s: %s", e->bottleneck, e->why);
    stg_advice_find(e, (uint32_t)sysconf(_SC_NPROCESSORS_ONLN), &advice);
    if (advice.text[0] != '\0') {
        stg_table_add(&table, "limit");
        stg_table_add(&table, "%s", advice.text);
    }
    add_pace(&table, e);
    add_remote(&table, e);
    add_steps(&table, e);
    add_reads(&table, e);
    add_run(&table, "stagerd", "the graph", e->n_daemon_runs, e->daemon_run_ns);
    add_run(&table, "trainers", "stager_run", e->n_trainer_runs, e->trainer_run_ns);
    stg_table_print(&table, "  ");
}

static void add_node(struct stg_table *table, const struct stg_explain_node *node)
{
    char time[32], bytes[32];
    const char *side = node->in_daemon && node->in_trainer ? "both"
                       : node->in_daemon                   ? "stagerd"
                       : node->on_gpu                      ? "trainer's GPU"
                                                           : "trainer";
    stg_table_add(table, "%s", node->name);
    stg_table_add(table, "%s", node->op[0] != '\0' ? node->op : "(element)");
    stg_table_add(table, "%s", side);
    stg_table_add(table, "%s",
                  mean_text(node->n_daemon, node->daemon_ns, time, sizeof(time)));
    stg_table_add(table, "%s",
                  mean_text(node->n_trainer, node->trainer_ns, time, sizeof(time)));
    stg_table_add(table, "%s", bytes_text(node->bytes, bytes, sizeof(bytes)));
}

static void add_partition(struct stg_table *table, const struct stg_explain *e)
{
    char text[32];
    uint64_t bytes = 0;
    for (size_t i = 0; i < e->n_tensors; i++)
        bytes += e->tensors[i].bytes;
    stg_table_add(table, "--- partition ---");
    for (size_t i = 0; i < 4; i++)
        stg_table_add(table, "---");
    stg_table_add(table, "%s", bytes_text(bytes, text, sizeof(text)));
}

/* What stagerd runs, the partition, what trainers run. */
static void print_nodes(FILE *out, const struct stg_explain *e)
{
    static const char *const titles[] = {"NODE",       "OP",         "SIDE",
                                         "IN STAGERD", "IN TRAINER", "OUT"};
    size_t n = sizeof(titles) / sizeof(titles[0]);
    struct stg_table table = {.out = out, .n_columns = n};
    for (size_t i = 0; i < n; i++)
        stg_table_add(&table, "%s", titles[i]);
    for (size_t i = 0; i < e->n_nodes; i++) {
        if (e->nodes[i].in_daemon)
            add_node(&table, &e->nodes[i]);
    }
    add_partition(&table, e);
    for (size_t i = 0; i < e->n_nodes; i++) {
        if (!e->nodes[i].in_daemon)
            add_node(&table, &e->nodes[i]);
    }
    stg_table_print(&table, "  ");
    if (e->n_left_out > 0)
        fprintf(out, "  … and %u more nodes, which did not fit stagerd's reply\n",
                e->n_left_out);
}

static void print_tensors(FILE *out, const struct stg_explain *e)
{
    struct stg_table table = {.out = out, .n_columns = 3};
    stg_table_add(&table, "CROSSES");
    stg_table_add(&table, "FROM");
    stg_table_add(&table, "BYTES");
    for (size_t i = 0; i < e->n_tensors; i++) {
        const struct stg_explain_tensor *tensor = &e->tensors[i];
        char bytes[32];
        stg_table_add(&table, "%s", tensor->name);
        stg_table_add(&table, "%s",
                      tensor->is_constant ? "-" : e->nodes[tensor->from].name);
        stg_table_add(&table, "%s", bytes_text(tensor->bytes, bytes, sizeof(bytes)));
    }
    stg_table_print(&table, "  ");
}

static void print_decisions(FILE *out, const struct stg_explain *e)
{
    struct stg_table table = {.out = out, .n_columns = 2};
    if (e->n_decisions > 0)
        fprintf(out, "  decisions\n");
    for (size_t i = 0; i < e->n_decisions; i++) {
        char age[32];
        stg_table_add(&table, "%s ago",
                      time_text(e->decisions[i].age_ns, age, sizeof(age)));
        stg_table_add(&table, "%s: %s", e->decisions[i].what, e->decisions[i].text);
    }
    stg_table_print(&table, "    ");
}

void stg_ctl_write_nodes(FILE *out, const struct stg_explain *e)
{
    print_nodes(out, e);
    print_tensors(out, e);
    print_decisions(out, e);
}

static void print_text(const struct stg_explain *e)
{
    printf("%s: %s, generation %" PRIu64 ", smart_stage %s\n", e->name, e->state,
           e->generation, e->smart_stage);
    stg_ctl_write_verdict(stdout, e);
    stg_ctl_write_nodes(stdout, e);
}

/* ---- Graphviz ---- */

/* Inside of double quotes. */
static void print_quoted(const char *text)
{
    char clean[512];
    snprintf(clean, sizeof(clean), "%s", text);
    stg_ctl_clean(clean);
    for (const char *s = clean; *s != '\0'; s++) {
        if (*s == '"' || *s == '\\')
            putchar('\\');
        putchar(*s);
    }
}

enum place { IN_DAEMON, IN_TRAINER, ON_GPU };

static void dot_node(const struct stg_explain_node *node, size_t place)
{
    char time[32];
    bool in_daemon = node->in_daemon;
    printf("    n%zu [label=\"", place);
    print_quoted(node->name);
    if (node->op[0] != '\0') {
        printf("\\n");
        print_quoted(node->op);
    }
    uint64_t n = in_daemon ? node->n_daemon : node->n_trainer;
    if (n > 0)
        printf("\\n%s", time_text(in_daemon ? node->daemon_ns : node->trainer_ns, time,
                                  sizeof(time)));
    printf("\"%s];\n", node->op[0] == '\0' ? ", shape=cylinder" : "");
}

static enum place place_of(const struct stg_explain_node *node)
{
    return node->in_daemon ? IN_DAEMON : node->on_gpu ? ON_GPU : IN_TRAINER;
}

static void dot_place(const struct stg_explain *e, enum place place)
{
    static const char *const names[] = {"stagerd", "trainer", "trainer's GPU"};
    static const char *const ids[] = {"stagerd", "trainer", "gpu"};
    bool any = place != ON_GPU;
    for (size_t i = 0; i < e->n_nodes; i++)
        any |= place_of(&e->nodes[i]) == place;
    if (!any)
        return;
    printf("  subgraph cluster_%s {\n    label=\"%s\";\n", ids[place], names[place]);
    for (size_t i = 0; i < e->n_nodes; i++) {
        if (place_of(&e->nodes[i]) == place)
            dot_node(&e->nodes[i], i);
    }
    printf("  }\n");
}

static void dot_edge(const struct stg_explain_input *input, size_t to)
{
    char bytes[32];
    printf("  n%u -> n%zu [label=\"", input->from, to);
    if (input->staged[0] != '\0') {
        print_quoted(input->staged);
        printf("\\n");
    }
    if (input->bytes > 0)
        printf("%s", stg_ctl_bytes(input->bytes, bytes, sizeof(bytes)));
    printf("\"%s%s];\n", input->crosses ? ", style=bold" : "",
           input->control ? ", style=dashed" : "");
}

static void print_dot(const struct stg_explain *e)
{
    printf("digraph \"");
    print_quoted(e->name);
    printf("\" {\n  rankdir=LR;\n  node [shape=box];\n");
    for (enum place place = IN_DAEMON; place <= ON_GPU; place++)
        dot_place(e, place);
    for (size_t i = 0; i < e->n_nodes; i++) {
        for (size_t k = 0; k < e->nodes[i].n_inputs; k++)
            dot_edge(&e->nodes[i].inputs[k], i);
    }
    printf("}\n");
}

static void print_json(const struct stg_explain *e)
{
    struct stg_json_writer json = stg_ctl_json();
    stg_reply_explain_json(&json, e);
    putchar('\n');
}

int stg_ctl_explain(const struct stg_ctl_options *options)
{
    struct stg_ctl_link *link = stg_ctl_connect(options);
    if (link == NULL)
        return EXIT_FAILED;
    struct stg_request request = {.kind = STG_REQUEST_EXPLAIN, .name = options->argument};
    struct stg_reply reply;
    int status = stg_ctl_ask(link, &request, &reply);
    if (status == 0) {
        (options->json  ? print_json
         : options->dot ? print_dot
                        : print_text)(&reply.explain);
        status = stg_ctl_finish();
    }
    stg_ctl_hang_up(link);
    return status;
}
