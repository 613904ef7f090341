/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/storage/http/xml.h"

#include <expat.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 256 /* bounds the depth, too */

struct reader {
    XML_Parser parser;
    stg_xml_element *found;
    void *owner;
    struct stg_err *err;
    int rc; /* why it ended; 0: expat's own reason */
    char path[PATH_BYTES];
    size_t path_bytes;
    char text[STG_XML_TEXT_BYTES];
    size_t text_bytes; /* of the text, sizeof(text) when it is too long */
};

/* Some handlers are called once more after that. */
static void end(struct reader *r, int rc)
{
    r->rc = rc;
    XML_StopParser(r->parser, XML_FALSE);
}

/* The expat of Debian 12 has this call alone, and later ones prefer another. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static unsigned long current_line(XML_Parser parser)
{
    return XML_GetCurrentLineNumber(parser);
}
#pragma GCC diagnostic pop

static int refuse(struct reader *r, const char *why)
{
    return stg_err(r->err, -STAGER_DATA_LOSS, "XML, line %lu: %s",
                   current_line(r->parser), why);
}

static void on_start(void *arg, const XML_Char *name, const XML_Char **attributes)
{
    struct reader *r = arg;
    if (r->rc < 0)
        return;
    const char *local = strrchr(name, '\n');
    local = local != NULL ? local + 1 : name;
    size_t n = strlen(local), before = r->path_bytes;
    r->text_bytes = 0;
    if (n + 1 >= sizeof(r->path) - before) {
        end(r, refuse(r, "elements are nested too deeply, or their names are too long"));
        return;
    }
    if (before > 0)
        r->path[before++] = '/';
    memcpy(r->path + before, local, n + 1);
    r->path_bytes = before + n;
}

static void on_end(void *arg, const XML_Char *name)
{
    struct reader *r = arg;
    if (r->rc < 0)
        return;
    bool whole = r->text_bytes < sizeof(r->text);
    if (whole)
        r->text[r->text_bytes] = '\0';
    int rc = r->found(r->owner, r->path, whole ? r->text : NULL, r->err);
    if (rc < 0)
        end(r, rc);
    const char *slash = strrchr(r->path, '/');
    r->path_bytes = slash != NULL ? (size_t)(slash - r->path) : 0;
    r->path[r->path_bytes] = '\0';
    r->text_bytes = 0;
}

static void on_text(void *arg, const XML_Char *text, int n)
{
    struct reader *r = arg;
    size_t room = sizeof(r->text) - r->text_bytes;
    size_t bytes = (size_t)n < room ? (size_t)n : room;
    memcpy(r->text + r->text_bytes, text, bytes);
    r->text_bytes += bytes;
}

static void on_doctype(void *arg, const XML_Char *name, const XML_Char *system,
                       const XML_Char *public, int has_internal_subset)
{
    end(arg, refuse(arg, "a DOCTYPE, which S3 does not send"));
}

static int parse(struct reader *r, const char *text, size_t bytes)
{
    XML_SetUserData(r->parser, r);
    XML_SetElementHandler(r->parser, on_start, on_end);
    XML_SetCharacterDataHandler(r->parser, on_text);
    XML_SetStartDoctypeDeclHandler(r->parser, on_doctype);
    if (bytes > INT_MAX)
        return stg_err(r->err, -STAGER_DATA_LOSS, "XML of more than 2 GiB");
    if (XML_Parse(r->parser, text, (int)bytes, XML_TRUE) == XML_STATUS_OK)
        return 0;
    if (r->rc < 0)
        return r->rc;
    enum XML_Error why = XML_GetErrorCode(r->parser);
    if (why == XML_ERROR_NO_MEMORY)
        return stg_err(r->err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    return refuse(r, XML_ErrorString(why));
}

int stg_xml_read(const char *text, size_t bytes, stg_xml_element *found, void *owner,
                 struct stg_err *err)
{
    static const XML_Memory_Handling_Suite memory = {malloc, realloc, free};
    struct reader r = {.found = found, .owner = owner, .err = err};
    r.parser = XML_ParserCreate_MM(NULL, &memory, "\n"); /* URI, newline, local name */
    if (r.parser == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    int rc = parse(&r, text, bytes);
    XML_ParserFree(r.parser);
    return rc;
}
