/* SPDX-License-Identifier: Apache-2.0
 *
 * remote_server.py for a test in C: it runs until the test ends. One a test.
 */
#ifndef STG_TESTS_REMOTE_SERVER_H
#define STG_TESTS_REMOTE_SERVER_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/storage/storage.h"

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

/* How objects are fetched from now on: in ranges of so many bytes, four at once. */
#define STG_TEST_RANGE_BYTES ((uint64_t)64 << 10)
void stg_test_fetch_with(uint32_t stall_millis, uint32_t retries);

/* As the storage of the URL opens it, for `who`; ends the test where there is none. */
int stg_test_open_url(const char *url, const struct stg_file_user *identity,
                      struct stg_source **ret, struct stg_err *err);

/* Reads all of an object, as root, each byte of which must be the server's with `salt`
 * added: that of an object that replaced the first. Returns how many came, or the error.
 */
int64_t stg_test_read_url(const char *url, uint8_t salt, struct stg_err *err);

/* Byte i of every object. */
uint8_t stg_test_server_value(uint64_t i);

#endif
