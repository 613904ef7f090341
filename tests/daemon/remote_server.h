/* SPDX-License-Identifier: Apache-2.0
 *
 * remote_server.py for a test in C: it runs until the test ends. One a test.
 */
#ifndef STG_TESTS_REMOTE_SERVER_H
#define STG_TESTS_REMOTE_SERVER_H

#include <stddef.h>
#include <stdint.h>

/* Starts it; ends the test when that fails. */
void stg_test_server_start(void);
/* Another of the scripts: "remote_s3.py". */
void stg_test_server_start_as(const char *script);
/* Ends it, and the threads that fetch: the test leaks no descriptor. */
void stg_test_server_stop(void);

int stg_test_server_port(void);

/* "http://127.0.0.1:PORT" and what is formatted. Valid until the 16th call after it. */
const char *stg_test_server_url(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));

/* Requests so far that have `part` in their line of the log. */
unsigned stg_test_server_asked(const char *part);
/* The log. The caller frees. */
char *stg_test_server_log(void);

/* Byte i of every object. */
uint8_t stg_test_server_value(uint64_t i);

#endif
