/* SPDX-License-Identifier: Apache-2.0
 *
 * AWS Signature Version 4 of a GET request without a body. libcurl signs too, but some
 * versions of it sign another query than they send (8.14 for "%2B"). Pure; any thread.
 */
#ifndef STG_DAEMON_SIGV4_H
#define STG_DAEMON_SIGV4_H

#include <stddef.h>

/* SHA-256 of an empty body, in hexadecimal digits. */
#define STG_SIGV4_NO_BODY                                                                \
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

struct stg_sigv4_header {
    const char *name; /* in lower case */
    const char *value;
};

struct stg_sigv4 {
    const char *key, *secret, *region, *service;
    const char *date; /* UTC: "20150830T123600Z" */
    /* Absolute. Path and query are percent-encoded as by stg_url_encode; the parts of
     * the query are in any order. */
    const char *url;
    const struct stg_sigv4_header *headers; /* that are signed, sorted by name */
    size_t n_headers;
};

/* Returns the value of the header Authorization, malloc'ed. NULL: out of memory. */
char *stg_sigv4(const struct stg_sigv4 *request);

/* Returns the value of the header Host for a URL, malloc'ed: its host, and its port where
 * that is not the scheme's. NULL: out of memory. */
char *stg_sigv4_host(const char *url);

#endif
