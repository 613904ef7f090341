/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/stored.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/fingerprint.h"
#include "core/log.h"
#include "daemon/host/text_file.h"
#include "daemon/pipeline/versions.h"
#include "daemon/placement/priors.h"
#include "tests/fuzz/fuzz.h"

#define MAX_TEXT_BYTES ((size_t)1 << 20)
#define HEX_BYTES 16u

static const char pipeline[] = "dataset: [{range: {stop: 3}}]\n";

/* ---- a folder ---- */

static char folder[64];

static void remove_folder(void)
{
    static const char *const names[] = {"/versions/p/3.yaml", "/versions/p", "/versions",
                                        "/pipelines",         "/priors",     ""};
    char path[128];
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), "%s%s", folder, names[i]);
        remove(path);
    }
}

static const char *path_of(const char *name)
{
    static char path[128];
    if (folder[0] == '\0') {
        stg_fuzz_folder(folder, sizeof(folder));
        atexit(remove_folder);
        stg_log_set_level((enum stg_log_level)0);
    }
    snprintf(path, sizeof(path), "%s%s", folder, name);
    return path;
}

static void write_file(const char *path, const char *bytes, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    FUZZ_CHECK(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
    close(fd);
}

static char *read_file(const char *path, size_t *ret_bytes)
{
    char *text;
    struct stg_err err = {0};
    int rc = stg_text_file_read(path, MAX_TEXT_BYTES, NULL, &text, ret_bytes, &err);
    FUZZ_CHECK_TEXT(rc == 0, err.text);
    return text;
}

/* ---- earlier definitions ---- */

static const struct stg_settings *settings(void)
{
    static struct stg_settings all;
    (void)path_of("");
    all.state_dir = folder;
    return &all;
}

/* Returns the file of generation 3 as stagerd writes it; the caller frees. *ret_sum:
 * where its sum is; the summed bytes begin a line later. */
static char *keep_version(size_t *ret_bytes, size_t *ret_sum)
{
    static const struct stg_identity applier = {
        .uid = 1000, .gid = 100, .groups = {100, 44}, .n_groups = 2};
    struct stg_definition *definition;
    struct stg_err err = {0};
    int rc = stg_definition_create(pipeline, strlen(pipeline), "p of x.yaml", &applier,
                                   NULL, &definition, &err);
    FUZZ_CHECK_TEXT(rc == 0, err.text);
    rc = stg_versions_keep(settings(), "p", definition, 3, &err);
    FUZZ_CHECK_TEXT(rc == 0, err.text);
    stg_definition_unref(definition);
    char *text = read_file(path_of("/versions/p/3.yaml"), ret_bytes);
    *ret_sum = strcspn(text, "\n") - HEX_BYTES;
    return text;
}

static void read_version(void)
{
    struct stg_store_source source = {.settings = settings(), .path = ""};
    struct stg_definition *definition;
    struct stg_err err = {0};
    int rc = stg_versions_read(&source, "p", 3, &definition, &err);
    FUZZ_CHECK(rc == 0 || err.text[0] != '\0');
    if (rc == 0) {
        FUZZ_CHECK(definition->spec->n_steps > 0);
        stg_definition_unref(definition);
    }
    struct stg_pipeline_version versions[STG_MAX_VERSIONS];
    struct stg_bump bump;
    stg_bump_init(&bump, 0);
    size_t n = stg_versions_list(settings(), "p", 4, &bump, versions);
    FUZZ_CHECK(n <= 1 && (n == 1 || rc < 0) &&
               (n == 0 || strlen(versions[0].file) > 0 || versions[0].generation == 3));
    stg_bump_finish(&bump);
}

/* The first byte: whether the sum fits. Then the lines before the text. */
void stg_fuzz_versions(const uint8_t *data, size_t bytes)
{
    static char first[128];
    static size_t sum;
    size_t n;
    if (first[0] == '\0') {
        char *text = keep_version(&n, &sum);
        FUZZ_CHECK(sum + HEX_BYTES + 1 < sizeof(first));
        memcpy(first, text, sum + HEX_BYTES + 1);
        free(text);
    }
    if (bytes == 0 || bytes > MAX_TEXT_BYTES)
        return;
    size_t begin = sum + HEX_BYTES + 1;
    char *text = malloc(begin + bytes + sizeof(pipeline));
    FUZZ_CHECK(text != NULL);
    memcpy(text, first, begin);
    memcpy(text + begin, data + 1, bytes - 1);
    memcpy(text + begin + bytes - 1, pipeline, sizeof(pipeline));
    n = bytes - 1 + sizeof(pipeline) - 1;
    struct stg_text_header header;
    stg_text_header_read(text + begin, &header);
    FUZZ_CHECK(header.bytes <= n);
    if (header.file != NULL)
        FUZZ_CHECK(header.file + header.file_bytes <= text + begin + n);
    if (header.script != NULL)
        FUZZ_CHECK(header.script + header.script_bytes <= text + begin + n);
    if ((data[0] & 1) == 0) {
        char digits[HEX_BYTES + 1];
        snprintf(digits, sizeof(digits), "%016" PRIx64, stg_farm_hash(text + begin, n));
        memcpy(text + sum, digits, HEX_BYTES);
    }
    write_file(path_of("/versions/p/3.yaml"), text, begin + n);
    free(text);
    read_version();
}

/* ---- partitions of earlier runs ---- */

void stg_fuzz_priors(const uint8_t *data, size_t bytes)
{
    static struct stg_priors priors, again;
    struct stg_err err = {0};
    char *text = malloc(bytes + 64);
    FUZZ_CHECK(text != NULL);
    if (bytes > 0)
        memcpy(text, data, bytes);
    size_t n = bytes + (size_t)snprintf(text + bytes, 64, "end %016" PRIx64 "\n",
                                        stg_farm_hash(text, bytes));
    write_file(path_of("/priors"), text, n);
    free(text);
    int rc = stg_priors_load(&priors, path_of("/priors"), &err);
    if (rc < 0) {
        FUZZ_CHECK(err.text[0] != '\0' && priors.n == 0);
        return;
    }
    rc = stg_priors_save(&priors, path_of("/priors"), &err);
    if (rc == 0)
        rc = stg_priors_load(&again, path_of("/priors"), &err);
    FUZZ_CHECK_TEXT(rc == 0, err.text);
    FUZZ_CHECK(again.n == priors.n);
    for (size_t i = 0; i < priors.n; i++) {
        const struct stg_prior *a = &priors.all[i], *b = &again.all[i];
        FUZZ_CHECK(a->fingerprint == b->fingerprint && a->cpus == b->cpus &&
                   a->n_nodes == b->n_nodes &&
                   memcmp(a->moved, b->moved, a->n_nodes * sizeof(bool)) == 0);
    }
    stg_priors_finish(&again);
    stg_priors_finish(&priors);
}

/* ---- seeds ---- */

void stg_fuzz_stored_seeds(void)
{
    static struct stg_priors priors;
    struct stg_err err = {0};
    bool moved[] = {true, false, false, true, true};
    size_t n, sum;
    char *text = keep_version(&n, &sum);
    size_t begin = sum + HEX_BYTES + 1, header_bytes = n - begin - strlen(pipeline);
    stg_fuzz_seed("versions", "\0", 1, text + begin, header_bytes);
    stg_fuzz_seed("versions", "\1", 1, text + begin, header_bytes);
    free(text);
    for (uint64_t i = 0; i < 3; i++) {
        struct stg_prior prior = {
            .fingerprint = i, .cpus = 2, .gain = 0.25, .n_nodes = 3 + i, .moved = moved};
        FUZZ_CHECK(stg_priors_keep(&priors, &prior));
    }
    FUZZ_CHECK(stg_priors_save(&priors, path_of("/priors"), &err) == 0);
    stg_priors_finish(&priors);
    text = read_file(path_of("/priors"), &n);
    stg_fuzz_seed("priors", NULL, 0, text, n - strlen("end \n") - HEX_BYTES);
    free(text);
}
