/* SPDX-License-Identifier: Apache-2.0
 *
 * What the commands of stagerctl share: options, errors, connection, tables. Each command
 * is one function in a file of its name and one line in main.c.
 */
#ifndef STG_STAGERCTL_COMMAND_H
#define STG_STAGERCTL_COMMAND_H

#include <stdbool.h>
#include <time.h>

#include "client/transport/admin.h"
#include "core/text/json.h"

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

/* The command line, read. */
struct stg_ctl_options {
    bool json;
    const char *runtime_dir; /* NULL: the default */
    const char *argument;    /* FILE or NAME, or NULL */
    char **arguments;        /* index, audit: all of them */
    int n_arguments;
    const char *name; /* --name */
    bool replace;
    bool force; /* init */
    bool warm;  /* apply, rollback */
    bool rows;
    bool dot;
    bool ideal;         /* explain */
    uint64_t limit;     /* 0: none */
    uint64_t count;     /* watch: events; 0: no end */
    uint64_t batches;   /* tap; 0: one */
    uint64_t timeout;   /* drain, in seconds; 0: none */
    bool disable;       /* drain */
    uint64_t seconds;   /* watch; 0: no end. trace, explain, tap; 0: the default */
    const char *gate;   /* URL of the gate to ask through; NULL: attach.sock */
    const char *output; /* trace, audit, bugreport; NULL: the default */
    bool text;
    const char *token_file;
    const char *key; /* cache rm; NULL: of all entries */
    const char *job; /* commits, audit: whose hosts etcd has; NULL: none is named */
    bool has_if_generation; /* apply, delete, rollback */
    uint64_t if_generation;
};

/* Each returns an exit status. */
int stg_ctl_check(const struct stg_ctl_options *options);
int stg_ctl_apply(const struct stg_ctl_options *options);
int stg_ctl_test(const struct stg_ctl_options *options);
int stg_ctl_list(const struct stg_ctl_options *options);
int stg_ctl_top(const struct stg_ctl_options *options);
int stg_ctl_status(const struct stg_ctl_options *options);
int stg_ctl_explain(const struct stg_ctl_options *options);
int stg_ctl_ideal(const struct stg_ctl_options *options);
int stg_ctl_cat(const struct stg_ctl_options *options);
int stg_ctl_tap(const struct stg_ctl_options *options);
int stg_ctl_drain(const struct stg_ctl_options *options);
int stg_ctl_versions(const struct stg_ctl_options *options);
int stg_ctl_rollback(const struct stg_ctl_options *options);
int stg_ctl_delete(const struct stg_ctl_options *options);
int stg_ctl_cache_list(const struct stg_ctl_options *options);
int stg_ctl_cache_rm(const struct stg_ctl_options *options);
int stg_ctl_watch(const struct stg_ctl_options *options);
int stg_ctl_trace(const struct stg_ctl_options *options);
int stg_ctl_commits(const struct stg_ctl_options *options);
int stg_ctl_audit(const struct stg_ctl_options *options);
int stg_ctl_metrics(const struct stg_ctl_options *options);
int stg_ctl_init(const struct stg_ctl_options *options);
int stg_ctl_schema(const struct stg_ctl_options *options);
int stg_ctl_index(const struct stg_ctl_options *options);
int stg_ctl_token(const struct stg_ctl_options *options);
int stg_ctl_bugreport(const struct stg_ctl_options *options);
int stg_ctl_doctor(const struct stg_ctl_options *options);
int stg_ctl_version(const struct stg_ctl_options *options);

/* Of every object that --json prints; grows if a field changes its meaning or goes. */
#define STG_CTL_SCHEMA_VERSION 1

/* A writer of one object on standard output, with its schema version. */
struct stg_json_writer stg_ctl_json(void);

/* Errors are JSON from now on, if `is`. */
void stg_ctl_errors_as_json(bool is);

/* "stagerctl: CODE: text" on standard error; under --json an object. Returns
 * EXIT_FAILED. */
int stg_ctl_fail(int code, const char *text);

/* The same for a wrong command line. Returns EXIT_USAGE. */
int stg_ctl_misused(const char *text);

/* Returns the status code of a failed call on a file, from its errno. */
int stg_ctl_file_code(int error);

/* Prints that a file cannot be written; "-" is standard output. Returns EXIT_FAILED. */
int stg_ctl_cannot_write(const char *path, int error);

/* Prints the reply to an apply or a rollback. */
void stg_ctl_print_applied(const struct stg_ctl_options *options,
                           const struct stg_reply *reply);

/* Control characters become '?': names come from other users, and a terminal obeys. */
void stg_ctl_clean(char *text);

/* Writes the local time to buf and returns it. */
const char *stg_ctl_time(time_t at, char *buf, size_t bytes);

/* ---- apply.c: the text of a pipeline ---- */

struct stg_ctl_text {
    const char *file; /* for messages */
    size_t bytes;
    char data[STG_TEXT_MAX_BYTES + 1];
};

/* Reads a file; "-" is standard input. Prints a failure. 0 or EXIT_FAILED. */
int stg_ctl_read_text(const char *path, struct stg_ctl_text *ret);

/* ---- link.c: a way to the daemon ---- */

struct stg_ctl_link;

/* By attach.sock, or through options->gate with a token. NULL: it said why not. The
 * caller calls stg_ctl_hang_up. */
struct stg_ctl_link *stg_ctl_connect(const struct stg_ctl_options *options);
/* The same; prints nothing. */
int stg_ctl_open(const struct stg_ctl_options *options, struct stg_ctl_link **ret,
                 struct stg_err *err);
void stg_ctl_hang_up(struct stg_ctl_link *link); /* NULL is allowed */

/* SIGINT and SIGTERM end nothing from here on: stg_ctl_interrupted returns true. */
void stg_ctl_catch_interrupts(void);
bool stg_ctl_interrupted(void);

/* Runs a command on a connection to attach.sock, with interrupts caught. Returns its exit
 * status; prints why there is no connection. */
int stg_ctl_run(const struct stg_ctl_options *options,
                int (*command)(struct stager *client,
                               const struct stg_ctl_options *options));

/* Asks and waits (10 s). ret lives until the next call. */
int stg_ctl_call(struct stg_ctl_link *link, struct stg_request *request,
                 struct stg_reply *ret, struct stg_err *err);

/* The same; prints a refusal. 0 or EXIT_FAILED. */
int stg_ctl_ask(struct stg_ctl_link *link, struct stg_request *request,
                struct stg_reply *ret);

/* schema.c: describes a data file; prints a refusal. The result is in bump. 0 or
 * EXIT_FAILED. */
int stg_ctl_describe(struct stg_ctl_link *link, const char *url, struct stg_bump *bump,
                     struct stg_file_schema *ret);

/* The peer; strings live as long as the link. */
void stg_ctl_daemon(const struct stg_ctl_link *link, struct stg_admin_daemon *ret);

/* Ends a JSON line; EXIT_FAILED when standard output could not take it. */
int stg_ctl_finish(void);

/* "1.5 GiB". Returns buf. */
const char *stg_ctl_bytes(uint64_t bytes, char *buf, size_t size);

/* Per second. */
double stg_ctl_rate(uint64_t n, uint64_t ns);

/* "9.87 k". Returns buf. */
const char *stg_ctl_number(double value, char *buf, size_t size);

/* "index: 1.5 GiB of 3.0 GiB, 200 MiB/s, 8 s left". Returns buf. */
const char *stg_ctl_progress(const struct stg_status_progress *p, char *buf, size_t size);

/* "12 %"; "-" of nothing. Returns buf. */
const char *stg_ctl_share(uint64_t part, uint64_t of, char *buf, size_t size);

/* Columns of the terminal, or of environment COLUMNS; SIZE_MAX: neither is there. */
size_t stg_ctl_columns(void);

/* name, dtype, shape of each tensor. */
void stg_ctl_boundary_table(const struct stg_schema *boundary);

/* ---- table.c: columns as wide as their widest cell, within stg_ctl_columns ---- */

#define STG_TABLE_COLUMNS 12

struct stg_table {
    FILE *out; /* NULL: standard output */
    size_t n_columns;
    size_t n_cells, capacity;
    char **cells; /* row by row, owned */
};

/* Appends a cell; a row is full after n_columns of them. */
void stg_table_add(struct stg_table *table, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Appends a time since 1970, in the local zone. */
void stg_table_add_time(struct stg_table *table, uint64_t time_ns);

/* Prints it, each line after `indent`, and frees it. */
void stg_table_print(struct stg_table *table, const char *indent);

/* list.c: appends the name of a user, or the number. */
void stg_ctl_add_user(struct stg_table *table, uint32_t uid);

/* list.c: one line for each process that keeps memory by batches of streams that it
 * closed. */
void stg_ctl_print_quarantined(FILE *out, const struct stg_quarantined *all, size_t n,
                               const char *indent);

/* status.c: all about one pipeline. */
void stg_ctl_write_status(FILE *out, const struct stg_pipeline_status *status);

/* explain.c: what holds the pipeline up, then its nodes and decisions. */
void stg_ctl_write_verdict(FILE *out, const struct stg_explain *explain);
void stg_ctl_write_nodes(FILE *out, const struct stg_explain *explain);

#endif
