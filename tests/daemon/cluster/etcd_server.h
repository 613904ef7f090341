/* SPDX-License-Identifier: Apache-2.0
 *
 * An etcd on loopback, with a folder in /tmp. It ends with the test.
 */
#ifndef STG_TESTS_ETCD_SERVER_H
#define STG_TESTS_ETCD_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "daemon/cluster/etcd.h"

struct stg_etcd_server {
    pid_t pid; /* 0: it does not run */
    int port, peer_port;
    char folder[64];
    char url[64];
    const char *scheme; /* "https"; NULL: "http" */
    const char *more[12];
};

/* Starts it with the options `more`, until NULL, and waits until it serves. Skips the
 * test if etcd is not installed. A folder of an earlier start is kept. */
void stg_etcd_server_start(struct stg_etcd_server *server);
/* Starts it, and does not wait. */
void stg_etcd_server_launch(struct stg_etcd_server *server);
void stg_etcd_server_kill(struct stg_etcd_server *server);
/* Also removes the folder. */
void stg_etcd_server_finish(struct stg_etcd_server *server);

/* Sends a request of its own to an http server, with a token if that is not NULL. Returns
 * the answer, which the next call overwrites; fails the test if its status is not 200. */
const char *stg_etcd_server_post(const struct stg_etcd_server *server, const char *token,
                                 const char *path, const char *body);

/* A client of one server: settings with a time that suits a loaded machine. */
struct stg_etcd_settings stg_etcd_server_settings(const char *const *endpoints, size_t n);

/* Multiplies by STG_TEST_SLOW. */
unsigned stg_etcd_server_slow(unsigned number);

#endif
