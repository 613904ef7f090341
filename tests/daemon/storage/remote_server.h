/* SPDX-License-Identifier: Apache-2.0
 *
 * remote_server.py for a test in C: it runs until the test ends. One for each test.
 */
#ifndef STG_TESTS_REMOTE_SERVER_H
#define STG_TESTS_REMOTE_SERVER_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/storage/storage.h"

/* Starts it; ends the test on failure. */
void stg_test_server_start(void);
/* Starts another script: "remote_s3.py". */
void stg_test_server_start_as(const char *script);
/* Stops the server and the threads that fetch: the test leaks no descriptor. */
void stg_test_server_stop(void);

int stg_test_server_port(void);

/* Returns "http://127.0.0.1:PORT" followed by the formatted text. Valid until the 16th
 * call after it. */
const char *stg_test_server_url(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));

/* Returns the number of requests so far with `part` in their line of the log. */
unsigned stg_test_server_asked(const char *part);
/* Returns the log. The caller frees it. */
char *stg_test_server_log(void);

/* Sets how objects are fetched from now on: in ranges of this size, four at once. */
#define STG_TEST_RANGE_BYTES ((uint64_t)64 << 10)
void stg_test_fetch_with(uint32_t stall_millis, uint32_t retries);

/* Opens a URL with its storage, for `who`; ends the test if there is none. */
int stg_test_open_url(const char *url, const struct stg_file_user *identity,
                      struct stg_source **ret, struct stg_err *err);

/* Reads a whole object as root. Each byte must be the server's with `salt` added: salt
 * selects the object that replaced the first. Returns the number of bytes, or the error.
 */
int64_t stg_test_read_url(const char *url, uint8_t salt, struct stg_err *err);

/* Returns byte i of every object. */
uint8_t stg_test_server_value(uint64_t i);

#endif
