/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/pipeline/text_header.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCRIPT "# stager: script "

void stg_text_header_write(const struct stg_definition *definition, uint64_t generation,
                           char ret[STG_TEXT_HEADER_BYTES])
{
    const size_t bytes = STG_TEXT_HEADER_BYTES;
    const struct stg_identity *applier = &definition->applier;
    const char *script = definition->script != NULL ? definition->script : "";
    size_t limit = bytes - strlen("\n" SCRIPT "\n") - strlen(script) - 1;
    int n = snprintf(ret, bytes, "# stager: generation %" PRIu64 " uid %u gid %u groups ",
                     generation, (unsigned)applier->uid, (unsigned)applier->gid);
    for (size_t i = 0; i < applier->n_groups; i++)
        n += snprintf(ret + n, bytes - (size_t)n, "%s%u", i > 0 ? "," : "",
                      (unsigned)applier->groups[i]);
    n += snprintf(ret + n, bytes - (size_t)n,
                  "%s content %016" PRIx64 " time %" PRIu64 " file ",
                  applier->n_groups == 0 ? "-" : "", definition->spec->fingerprint,
                  definition->applied_ns);
    for (const char *s = definition->file; *s != '\0' && (size_t)n < limit; s++)
        ret[n++] = *s == '\n' ? ' ' : *s;
    snprintf(ret + n, bytes - (size_t)n, "\n" SCRIPT "%s\n", script);
}

/* ---- reading ---- */

static bool read_identity(const char *line, uint64_t *ret_generation,
                          struct stg_identity *ret)
{
    unsigned uid, gid;
    int at = 0;
    if (sscanf(line, "# stager: generation %" SCNu64 " uid %u gid %u groups %n",
               ret_generation, &uid, &gid, &at) != 3 ||
        at == 0)
        return false;
    ret->uid = uid;
    ret->gid = gid;
    ret->n_groups = 0;
    const char *s = line + at;
    while (*s >= '0' && *s <= '9' && ret->n_groups < STG_MAX_GROUPS) {
        char *end;
        ret->groups[ret->n_groups++] = (gid_t)strtoul(s, &end, 10);
        s = *end == ',' ? end + 1 : end;
    }
    return true;
}

/* Returns what follows the word in the first line, or NULL. */
static const char *after(const char *line, size_t bytes, const char *word)
{
    const char *found = strstr(line, word);
    return found != NULL && found < line + bytes ? found + strlen(word) : NULL;
}

/* The name of the file comes last: it may have the other words in it. */
static void read_words(const char *line, struct stg_text_header *ret)
{
    ret->file = after(line, ret->bytes, " file ");
    size_t before = ret->file != NULL ? (size_t)(ret->file - line) : ret->bytes;
    const char *content = after(line, before, " content ");
    const char *time = after(line, before, " time ");
    if (content != NULL)
        ret->content = strtoull(content, NULL, 16);
    if (time != NULL)
        ret->time_ns = strtoull(time, NULL, 10);
    if (ret->file != NULL)
        ret->file_bytes = (size_t)(line + ret->bytes - ret->file);
}

void stg_text_header_read(const char *text, struct stg_text_header *ret)
{
    *ret = (struct stg_text_header){0};
    if (!read_identity(text, &ret->generation, &ret->applier))
        return;
    ret->bytes = strcspn(text, "\n");
    read_words(text, ret);
    ret->bytes += text[ret->bytes] == '\n';
    if (strncmp(text + ret->bytes, SCRIPT, strlen(SCRIPT)) != 0)
        return;
    ret->script = text + ret->bytes + strlen(SCRIPT);
    ret->script_bytes = strcspn(ret->script, "\n"); /* 0: no script */
    ret->bytes += strlen(SCRIPT) + ret->script_bytes;
    ret->bytes += text[ret->bytes] == '\n';
}
