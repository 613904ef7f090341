/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dataset/files/digest.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "core/state.h"
#include "daemon/dataset/files/identity.h"
#include "daemon/dataset/step.h"
#include "daemon/storage/http/libraries.h"

/* The functions of libm, such as expf, have variants with fused multiplication and
 * without, whose last digits differ. The ops themselves give the same bytes with every
 * set of instructions. */
static const char *instructions(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2") ? "x86_64+fma"
                                                                           : "x86_64";
#elif defined(__aarch64__)
    return "aarch64";
#else
    return "other";
#endif
}

static bool begin(EVP_MD_CTX *to)
{
    return to != NULL && EVP_DigestInit_ex(to, EVP_sha256(), NULL) == 1;
}

static bool add(EVP_MD_CTX *to, const char *text)
{
    return EVP_DigestUpdate(to, text, strlen(text)) == 1;
}

static bool end(EVP_MD_CTX *to, char ret[STG_DIGEST_BYTES])
{
    uint8_t digest[EVP_MAX_MD_SIZE];
    if (EVP_DigestFinal_ex(to, digest, NULL) != 1)
        return false;
    for (size_t i = 0; i < (STG_DIGEST_BYTES - 1) / 2; i++)
        snprintf(ret + 2 * i, 3, "%02x", digest[i]);
    return true;
}

/* The partition is the pipeline's own. */
static bool add_pipeline(EVP_MD_CTX *to, uint64_t content)
{
    char text[256];
    snprintf(text, sizeof(text),
             "stager batches 1\nrelease %s\nlayout %u.%u\norder %u\ncpu %s\n"
             "pipeline %016" PRIx64 "\n",
             STG_RELEASE, STG_LAYOUT_MAJOR, STG_LAYOUT_MINOR, STG_ORDER_VERSION,
             instructions(), content);
    return add(to, text);
}

/* A name may have any bytes but NUL, which ends it here. */
static bool add_file(EVP_MD_CTX *to, const char *name, uint64_t bytes)
{
    char text[32];
    snprintf(text, sizeof(text), "%" PRIu64 "\n", bytes);
    return EVP_DigestUpdate(to, name, strlen(name) + 1) == 1 && add(to, text);
}

static bool add_vocabularies(EVP_MD_CTX *to, const struct stg_dataset *dataset)
{
    char text[64];
    snprintf(text, sizeof(text), "vocabularies %" PRIu32 " %016" PRIx64 "\n",
             dataset->n_vocabularies, dataset->vocabularies);
    return add(to, text);
}

static int add_data(EVP_MD_CTX *to, const struct stg_dataset *dataset,
                    const struct stg_pipeline_spec *spec, bool *ok, struct stg_err *err)
{
    *ok = *ok && add_vocabularies(to, dataset);
    for (uint32_t i = 0; *ok && i < dataset->n_files; i++) {
        uint64_t bytes;
        const char *name = stg_identity_file(spec, dataset->files[i], &bytes);
        int rc = stg_iter_stopped(dataset->last, err);
        if (rc < 0)
            return rc;
        *ok = add_file(to, name, bytes);
    }
    return 0;
}

int stg_digest_write(const struct stg_dataset *dataset,
                     const struct stg_pipeline_spec *spec, uint64_t content,
                     char ret[STG_DIGEST_BYTES], struct stg_err *err)
{
    int rc = stg_http_crypto(err);
    if (rc < 0)
        return rc;
    EVP_MD_CTX *to = EVP_MD_CTX_new();
    bool ok = begin(to) && add_pipeline(to, content);
    rc = add_data(to, dataset, spec, &ok, err);
    ok = rc == 0 && ok && end(to, ret);
    EVP_MD_CTX_free(to);
    if (rc < 0)
        return rc;
    return ok ? 0 : stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
}
