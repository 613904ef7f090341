/* SPDX-License-Identifier: Apache-2.0
 *
 * In place of tls_linked.c and of GnuTLS: the functions that a static libmicrohttpd
 * calls, which call those of the library of this machine.
 */
#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <pthread.h>
#include <stdlib.h>

#include "core/library/library.h"
#include "core/library/tls.h"

static const struct stg_library gnutls = {"libgnutls.so.30", "libgnutls30", "TLS"};

/* Type, what stands before a call, name, parameters, arguments. */
#define FUNCTIONS(X)                                                                     \
    X(int, return, gnutls_alpn_set_protocols,                                            \
      (gnutls_session_t session, const gnutls_datum_t *protocols,                        \
       unsigned protocols_size, unsigned flags),                                         \
      (session, protocols, protocols_size, flags))                                       \
    X(int, return, gnutls_bye, (gnutls_session_t session, gnutls_close_request_t how),   \
      (session, how))                                                                    \
    X(int, return, gnutls_certificate_allocate_credentials,                              \
      (gnutls_certificate_credentials_t * res), (res))                                   \
    X(void, , gnutls_certificate_free_credentials,                                       \
      (gnutls_certificate_credentials_t sc), (sc))                                       \
    X(void, , gnutls_certificate_server_set_request,                                     \
      (gnutls_session_t session, gnutls_certificate_request_t req), (session, req))      \
    X(void, , gnutls_certificate_set_dh_params,                                          \
      (gnutls_certificate_credentials_t res, gnutls_dh_params_t dh_params),              \
      (res, dh_params))                                                                  \
    X(void, , gnutls_certificate_set_retrieve_function2,                                 \
      (gnutls_certificate_credentials_t cred,                                            \
       gnutls_certificate_retrieve_function2 * func),                                    \
      (cred, func))                                                                      \
    X(void, , gnutls_certificate_set_retrieve_function3,                                 \
      (gnutls_certificate_credentials_t cred,                                            \
       gnutls_certificate_retrieve_function3 * func),                                    \
      (cred, func))                                                                      \
    X(int, return, gnutls_certificate_set_x509_key_mem,                                  \
      (gnutls_certificate_credentials_t res, const gnutls_datum_t *cert,                 \
       const gnutls_datum_t *key, gnutls_x509_crt_fmt_t type),                           \
      (res, cert, key, type))                                                            \
    X(int, return, gnutls_certificate_set_x509_key_mem2,                                 \
      (gnutls_certificate_credentials_t res, const gnutls_datum_t *cert,                 \
       const gnutls_datum_t *key, gnutls_x509_crt_fmt_t type, const char *pass,          \
       unsigned int flags),                                                              \
      (res, cert, key, type, pass, flags))                                               \
    X(int, return, gnutls_certificate_set_x509_trust_mem,                                \
      (gnutls_certificate_credentials_t res, const gnutls_datum_t *ca,                   \
       gnutls_x509_crt_fmt_t type),                                                      \
      (res, ca, type))                                                                   \
    X(gnutls_cipher_algorithm_t, return, gnutls_cipher_get, (gnutls_session_t session),  \
      (session))                                                                         \
    X(int, return, gnutls_credentials_set,                                               \
      (gnutls_session_t session, gnutls_credentials_type_t type, void *cred),            \
      (session, type, cred))                                                             \
    X(void, , gnutls_deinit, (gnutls_session_t session), (session))                      \
    X(void, , gnutls_dh_params_deinit, (gnutls_dh_params_t dh_params), (dh_params))      \
    X(int, return, gnutls_dh_params_import_pkcs3,                                        \
      (gnutls_dh_params_t params, const gnutls_datum_t *pkcs3_params,                    \
       gnutls_x509_crt_fmt_t format),                                                    \
      (params, pkcs3_params, format))                                                    \
    X(int, return, gnutls_dh_params_init, (gnutls_dh_params_t * dh_params), (dh_params)) \
    X(int, return, gnutls_handshake, (gnutls_session_t session), (session))              \
    X(int, return, gnutls_init, (gnutls_session_t * session, unsigned int flags),        \
      (session, flags))                                                                  \
    X(void, , gnutls_priority_deinit, (gnutls_priority_t priority_cache),                \
      (priority_cache))                                                                  \
    X(int, return, gnutls_priority_init,                                                 \
      (gnutls_priority_t * priority_cache, const char *priorities,                       \
       const char **err_pos),                                                            \
      (priority_cache, priorities, err_pos))                                             \
    X(int, return, gnutls_priority_set,                                                  \
      (gnutls_session_t session, gnutls_priority_t priority), (session, priority))       \
    X(gnutls_protocol_t, return, gnutls_protocol_get_version,                            \
      (gnutls_session_t session), (session))                                             \
    X(int, return, gnutls_psk_allocate_server_credentials,                               \
      (gnutls_psk_server_credentials_t * sc), (sc))                                      \
    X(void, , gnutls_psk_free_server_credentials, (gnutls_psk_server_credentials_t sc),  \
      (sc))                                                                              \
    X(void, , gnutls_psk_set_server_credentials_function,                                \
      (gnutls_psk_server_credentials_t cred,                                             \
       gnutls_psk_server_credentials_function * func),                                   \
      (cred, func))                                                                      \
    X(size_t, return, gnutls_record_check_pending, (gnutls_session_t session),           \
      (session))                                                                         \
    X(int, return, gnutls_record_get_direction, (gnutls_session_t session), (session))   \
    X(ssize_t, return, gnutls_record_recv,                                               \
      (gnutls_session_t session, void *data, size_t data_size),                          \
      (session, data, data_size))                                                        \
    X(ssize_t, return, gnutls_record_send,                                               \
      (gnutls_session_t session, const void *data, size_t data_size),                    \
      (session, data, data_size))                                                        \
    X(void *, return, gnutls_session_get_ptr, (gnutls_session_t session), (session))     \
    X(void, , gnutls_session_set_ptr, (gnutls_session_t session, void *ptr),             \
      (session, ptr))                                                                    \
    X(const char *, return, gnutls_strerror, (int error), (error))                       \
    X(void, , gnutls_transport_set_int2, (gnutls_session_t session, int r, int s),       \
      (session, r, s))

#define POINTER(type, give, name, parameters, arguments) type(*name) parameters;
static struct {
    FUNCTIONS(POINTER)
} loaded;

#define DEFINITION(type, give, name, parameters, arguments)                              \
    type name parameters                                                                 \
    {                                                                                    \
        give loaded.name arguments;                                                      \
    }
FUNCTIONS(DEFINITION)

/* libmicrohttpd uses it for pre-shared keys alone, which stager does not have. */
gnutls_alloc_function gnutls_malloc = malloc;

/* libmicrohttpd calls both without a certificate, too. GnuTLS initialises itself when it
 * is loaded. */
int gnutls_global_init(void)
{
    return 0;
}

void gnutls_global_deinit(void)
{
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct stg_err failure; /* code 0: none */

static void load(void)
{
    void *handle;
    int rc = stg_library_open(&gnutls, &handle, &failure);
#define FIND(type, give, name, parameters, arguments)                                    \
    if (rc == 0)                                                                         \
        rc = stg_library_find(&gnutls, handle, #name, &loaded.name, &failure);
    FUNCTIONS(FIND)
}

int stg_tls_library(struct stg_err *err)
{
    pthread_once(&once, load);
    if (failure.code != 0 && err != NULL)
        *err = failure;
    return failure.code;
}
