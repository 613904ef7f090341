/* SPDX-License-Identifier: Apache-2.0
 *
 *   stagerd 0.2.0: partitions of smart_stage: auto
 *   9f3a5c0012345678 2 0.231 c4 7
 *   end 0123456789abcdef
 *
 * Fingerprint, CPUs, gain, a digit for four nodes (the first node in the highest bit),
 * the number of nodes. The last line has the fingerprint of the text before it.
 */
#include "daemon/placement/priors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/fingerprint.h"
#include "daemon/host/text_file.h"

#define HEADER "stagerd " STG_RELEASE ": partitions of smart_stage: auto\n"
#define END "end "
#define LINE_BYTES (STG_PRIOR_MAX_NODES / 4 + 96)
#define TEXT_BYTES (STG_MAX_PRIORS * LINE_BYTES + 256)

static void clear(struct stg_prior *prior)
{
    free(prior->moved);
    *prior = (struct stg_prior){0};
}

void stg_priors_finish(struct stg_priors *priors)
{
    while (priors->n > 0)
        clear(&priors->all[--priors->n]);
}

static bool is_of(const struct stg_prior *prior, uint64_t fingerprint, unsigned cpus)
{
    return prior->fingerprint == fingerprint && prior->cpus == cpus;
}

const struct stg_prior *stg_priors_find(const struct stg_priors *priors,
                                        uint64_t fingerprint, unsigned cpus)
{
    for (size_t i = 0; i < priors->n; i++) {
        if (is_of(&priors->all[i], fingerprint, cpus))
            return &priors->all[i];
    }
    return NULL;
}

/* ---- copies ---- */

static bool copy(const struct stg_prior *prior, struct stg_prior *ret)
{
    bool *moved = malloc(prior->n_nodes + 1);
    if (moved == NULL)
        return false;
    memcpy(moved, prior->moved, prior->n_nodes);
    *ret = *prior;
    ret->moved = moved;
    return true;
}

struct stg_prior *stg_prior_copy(const struct stg_prior *prior)
{
    struct stg_prior *made = calloc(1, sizeof(*made));
    if (made != NULL && !copy(prior, made)) {
        free(made);
        made = NULL;
    }
    return made;
}

void stg_prior_destroy(struct stg_prior *prior)
{
    if (prior != NULL)
        clear(prior);
    free(prior);
}

/* ---- keeping ---- */

static void remove_at(struct stg_priors *priors, size_t at)
{
    clear(&priors->all[at]);
    priors->n--;
    memmove(&priors->all[at], &priors->all[at + 1],
            (priors->n - at) * sizeof(priors->all[0]));
    priors->all[priors->n] = (struct stg_prior){0};
}

static void put_first(struct stg_priors *priors, struct stg_prior *prior)
{
    if (priors->n == STG_MAX_PRIORS)
        remove_at(priors, priors->n - 1);
    memmove(&priors->all[1], &priors->all[0], priors->n * sizeof(priors->all[0]));
    priors->all[0] = *prior;
    priors->n++;
}

bool stg_priors_keep(struct stg_priors *priors, const struct stg_prior *prior)
{
    const struct stg_prior *old =
        stg_priors_find(priors, prior->fingerprint, prior->cpus);
    struct stg_prior made;
    bool has_prior = prior->moved != NULL && prior->n_nodes > 0 &&
                     prior->n_nodes <= STG_PRIOR_MAX_NODES;
    bool is_same = has_prior && old != NULL && old->n_nodes == prior->n_nodes &&
                   memcmp(old->moved, prior->moved, prior->n_nodes) == 0;
    bool changes = has_prior ? !is_same : old != NULL;
    if (has_prior && !copy(prior, &made))
        return false;
    if (old != NULL)
        remove_at(priors, (size_t)(old - priors->all));
    if (has_prior)
        put_first(priors, &made);
    return changes;
}

/* ---- the text ---- */

static int digit_of(const bool *moved, size_t n_nodes, size_t at)
{
    int digit = 0;
    for (size_t i = at; i < at + 4; i++)
        digit = 2 * digit + (i < n_nodes && moved[i]);
    return digit;
}

static size_t write_prior(const struct stg_prior *prior, char *buf, size_t bytes)
{
    size_t n = (size_t)snprintf(buf, bytes, "%016" PRIx64 " %u %.3f ", prior->fingerprint,
                                prior->cpus, prior->gain);
    for (size_t at = 0; at < prior->n_nodes; at += 4)
        buf[n++] = "0123456789abcdef"[digit_of(prior->moved, prior->n_nodes, at)];
    return n + (size_t)snprintf(buf + n, bytes - n, " %zu\n", prior->n_nodes);
}

int stg_priors_save(const struct stg_priors *priors, const char *path,
                    struct stg_err *err)
{
    char temporary[4096];
    char *text = malloc(TEXT_BYTES);
    if (text == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "%s: out of memory", path);
    size_t n = (size_t)snprintf(text, TEXT_BYTES, HEADER);
    for (size_t i = 0; i < priors->n; i++)
        n += write_prior(&priors->all[i], text + n, TEXT_BYTES - n);
    n += (size_t)snprintf(text + n, TEXT_BYTES - n, END "%016" PRIx64 "\n",
                          stg_farm_hash(text, n));
    snprintf(temporary, sizeof(temporary), "%s.new", path);
    const char *failed;
    struct stg_text_part part = {text, n};
    int rc = stg_text_file_replace_soon(path, temporary, &part, 1, &failed);
    free(text);
    return rc < 0 ? stg_err(err, -STAGER_UNAVAILABLE, "cannot write %s: %s", failed,
                            strerror(errno))
                  : 0;
}

static bool read_bits(const char *digits, size_t n_digits, struct stg_prior *prior)
{
    if (n_digits != (prior->n_nodes + 3) / 4)
        return false;
    for (size_t i = 0; i < prior->n_nodes; i++) {
        char c = digits[i / 4];
        int digit = c <= '9' ? c - '0' : c - 'a' + 10;
        prior->moved[i] = (digit >> (3 - i % 4) & 1) != 0;
    }
    return true;
}

/* The text has its checksum: this guards against another writer, not against damage. */
static bool read_prior(const char *line, struct stg_prior *ret)
{
    int begin = 0, end = 0;
    struct stg_prior prior = {0};
    if (sscanf(line, "%" SCNx64 " %u %lf %n%*[0-9a-f]%n %zu", &prior.fingerprint,
               &prior.cpus, &prior.gain, &begin, &end, &prior.n_nodes) != 4 ||
        prior.n_nodes == 0 || prior.n_nodes > STG_PRIOR_MAX_NODES)
        return false;
    prior.moved = calloc(prior.n_nodes, sizeof(*prior.moved));
    if (prior.moved == NULL || !read_bits(line + begin, (size_t)(end - begin), &prior)) {
        free(prior.moved);
        return false;
    }
    *ret = prior;
    return true;
}

/* Returns the last line if the text is whole; NULL: it is not. */
static const char *find_end(const char *text, size_t bytes)
{
    uint64_t sum;
    const char *end = text, *next;
    if (strlen(text) != bytes || strncmp(text, HEADER, strlen(HEADER)) != 0)
        return NULL;
    while ((next = strchr(end, '\n')) != NULL && next[1] != '\0')
        end = next + 1;
    bool is_whole = next != NULL && sscanf(end, END "%" SCNx64, &sum) == 1 &&
                    sum == stg_farm_hash(text, (size_t)(end - text));
    return is_whole ? end : NULL;
}

static bool read_lines(struct stg_priors *priors, const char *text, const char *end)
{
    for (const char *line = text + strlen(HEADER); line < end;
         line = strchr(line, '\n') + 1) {
        if (priors->n == STG_MAX_PRIORS || !read_prior(line, &priors->all[priors->n]))
            return false;
        priors->n++;
    }
    return true;
}

int stg_priors_load(struct stg_priors *priors, const char *path, struct stg_err *err)
{
    char *text;
    size_t bytes;
    int rc = stg_text_file_read(path, TEXT_BYTES, NULL, &text, &bytes, err);
    if (rc < 0)
        return rc;
    const char *end = find_end(text, bytes);
    if (end == NULL || !read_lines(priors, text, end)) {
        stg_priors_finish(priors);
        rc = stg_err(err, -STAGER_DATA_LOSS,
                     "%s is damaged or of another release of stagerd", path);
    }
    free(text);
    return rc;
}
