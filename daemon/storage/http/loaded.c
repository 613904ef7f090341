/* SPDX-License-Identifier: Apache-2.0
 *
 * In place of linked.c, libcurl and libcrypto: their functions, which call those of the
 * libraries of this machine.
 */
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <pthread.h>
#include <stdarg.h>

#include "core/library/library.h"
#include "daemon/storage/http/libraries.h"

#undef curl_easy_setopt
#undef curl_easy_getinfo
#undef curl_multi_setopt

static const struct stg_library curl = {"libcurl.so.4", "libcurl4",
                                        "data on other machines"};
static const struct stg_library crypto = {"libcrypto.so.3", "libssl3",
                                          "SHA-256 of S3 and of stage workers"};

/* The functions that stagerd calls. */
#define CURL_FUNCTIONS(X)                                                                \
    X(curl_easy_cleanup)                                                                 \
    X(curl_easy_getinfo)                                                                 \
    X(curl_easy_init)                                                                    \
    X(curl_easy_perform)                                                                 \
    X(curl_easy_setopt)                                                                  \
    X(curl_easy_strerror)                                                                \
    X(curl_global_cleanup)                                                               \
    X(curl_global_init)                                                                  \
    X(curl_multi_add_handle)                                                             \
    X(curl_multi_cleanup)                                                                \
    X(curl_multi_info_read)                                                              \
    X(curl_multi_init)                                                                   \
    X(curl_multi_perform)                                                                \
    X(curl_multi_poll)                                                                   \
    X(curl_multi_remove_handle)                                                          \
    X(curl_multi_setopt)                                                                 \
    X(curl_multi_strerror)                                                               \
    X(curl_multi_wakeup)                                                                 \
    X(curl_slist_append)                                                                 \
    X(curl_slist_free_all)
#define CRYPTO_FUNCTIONS(X)                                                              \
    X(EVP_DigestFinal_ex)                                                                \
    X(EVP_DigestInit_ex)                                                                 \
    X(EVP_DigestUpdate)                                                                  \
    X(EVP_MD_CTX_free)                                                                   \
    X(EVP_MD_CTX_new)                                                                    \
    X(EVP_sha256)                                                                        \
    X(HMAC)

#define POINTER(name) __typeof__(name) *name;
static struct {
    CURL_FUNCTIONS(POINTER)
    CRYPTO_FUNCTIONS(POINTER)
} loaded;

static struct stg_err curl_failure, crypto_failure; /* of loading; code 0: none */

static void load_curl(void)
{
    void *handle;
    int rc = stg_library_open(&curl, &handle, &curl_failure);
#define FIND_CURL(name)                                                                  \
    if (rc == 0)                                                                         \
        rc = stg_library_find(&curl, handle, #name, &loaded.name, &curl_failure);
    CURL_FUNCTIONS(FIND_CURL)
}

static void load_crypto(void)
{
    void *handle;
    int rc = stg_library_open(&crypto, &handle, &crypto_failure);
#define FIND_CRYPTO(name)                                                                \
    if (rc == 0)                                                                         \
        rc = stg_library_find(&crypto, handle, #name, &loaded.name, &crypto_failure);
    CRYPTO_FUNCTIONS(FIND_CRYPTO)
}

static int result(const struct stg_err *failure, struct stg_err *err)
{
    if (failure->code != 0 && err != NULL)
        *err = *failure;
    return failure->code;
}

int stg_http_crypto(struct stg_err *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load_crypto);
    return result(&crypto_failure, err);
}

int stg_http_libraries(struct stg_err *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load_curl);
    int rc = result(&curl_failure, err);
    return rc == 0 ? stg_http_crypto(err) : rc;
}

/* ---- libcurl ---- */

/* Options and results are a long, a curl_off_t or a pointer: 64 bits, passed alike. */
static void *only_argument(va_list list)
{
    return va_arg(list, void *);
}

CURLcode curl_easy_setopt(CURL *handle, CURLoption option, ...)
{
    va_list list;
    va_start(list, option);
    void *value = only_argument(list);
    va_end(list);
    return loaded.curl_easy_setopt(handle, option, value);
}

CURLcode curl_easy_getinfo(CURL *handle, CURLINFO info, ...)
{
    va_list list;
    va_start(list, info);
    void *value = only_argument(list);
    va_end(list);
    return loaded.curl_easy_getinfo(handle, info, value);
}

CURLMcode curl_multi_setopt(CURLM *multi, CURLMoption option, ...)
{
    va_list list;
    va_start(list, option);
    void *value = only_argument(list);
    va_end(list);
    return loaded.curl_multi_setopt(multi, option, value);
}

CURLcode curl_global_init(long flags)
{
    return loaded.curl_global_init(flags);
}

void curl_global_cleanup(void)
{
    loaded.curl_global_cleanup();
}

CURL *curl_easy_init(void)
{
    return loaded.curl_easy_init();
}

void curl_easy_cleanup(CURL *handle)
{
    loaded.curl_easy_cleanup(handle);
}

CURLcode curl_easy_perform(CURL *handle)
{
    return loaded.curl_easy_perform(handle);
}

const char *curl_easy_strerror(CURLcode code)
{
    return loaded.curl_easy_strerror(code);
}

CURLM *curl_multi_init(void)
{
    return loaded.curl_multi_init();
}

CURLMcode curl_multi_cleanup(CURLM *multi)
{
    return loaded.curl_multi_cleanup(multi);
}

CURLMcode curl_multi_add_handle(CURLM *multi, CURL *handle)
{
    return loaded.curl_multi_add_handle(multi, handle);
}

CURLMcode curl_multi_remove_handle(CURLM *multi, CURL *handle)
{
    return loaded.curl_multi_remove_handle(multi, handle);
}

CURLMcode curl_multi_perform(CURLM *multi, int *running)
{
    return loaded.curl_multi_perform(multi, running);
}

CURLMcode curl_multi_poll(CURLM *multi, struct curl_waitfd extra[], unsigned int n_extra,
                          int timeout_ms, int *ret)
{
    return loaded.curl_multi_poll(multi, extra, n_extra, timeout_ms, ret);
}

CURLMcode curl_multi_wakeup(CURLM *multi)
{
    return loaded.curl_multi_wakeup(multi);
}

CURLMsg *curl_multi_info_read(CURLM *multi, int *n_left)
{
    return loaded.curl_multi_info_read(multi, n_left);
}

const char *curl_multi_strerror(CURLMcode code)
{
    return loaded.curl_multi_strerror(code);
}

struct curl_slist *curl_slist_append(struct curl_slist *list, const char *text)
{
    return loaded.curl_slist_append(list, text);
}

void curl_slist_free_all(struct curl_slist *list)
{
    loaded.curl_slist_free_all(list);
}

/* ---- libcrypto ---- */

EVP_MD_CTX *EVP_MD_CTX_new(void)
{
    return loaded.EVP_MD_CTX_new();
}

void EVP_MD_CTX_free(EVP_MD_CTX *digest)
{
    loaded.EVP_MD_CTX_free(digest);
}

const EVP_MD *EVP_sha256(void)
{
    return loaded.EVP_sha256();
}

int EVP_DigestInit_ex(EVP_MD_CTX *digest, const EVP_MD *type, ENGINE *engine)
{
    return loaded.EVP_DigestInit_ex(digest, type, engine);
}

int EVP_DigestUpdate(EVP_MD_CTX *digest, const void *data, size_t bytes)
{
    return loaded.EVP_DigestUpdate(digest, data, bytes);
}

int EVP_DigestFinal_ex(EVP_MD_CTX *digest, unsigned char *ret, unsigned int *ret_bytes)
{
    return loaded.EVP_DigestFinal_ex(digest, ret, ret_bytes);
}

unsigned char *HMAC(const EVP_MD *type, const void *key, int key_bytes,
                    const unsigned char *data, size_t bytes, unsigned char *ret,
                    unsigned int *ret_bytes)
{
    return loaded.HMAC(type, key, key_bytes, data, bytes, ret, ret_bytes);
}
