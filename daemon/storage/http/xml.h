/* SPDX-License-Identifier: Apache-2.0
 *
 * XML from a server, by expat. A document with a DOCTYPE is refused: S3 sends none, and
 * entities cost memory. Depth and names are bounded, and so is what is kept of a text.
 * Pure; any thread.
 */
#ifndef STG_DAEMON_XML_H
#define STG_DAEMON_XML_H

#include <stddef.h>

#include "core/err.h"

/* A longer text is not given out. A key of S3 has 1024 bytes, three times as many in
 * percent-encoding. */
#define STG_XML_TEXT_BYTES 4096

/* Called at the end of each element, with the names from the root to it, without their
 * namespaces ("ListBucketResult/Contents/Key"), and the text behind its last child, in
 * UTF-8; NULL: it is too long. A negative code ends the document and is returned. */
typedef int stg_xml_element(void *owner, const char *path, const char *text,
                            struct stg_err *err);

/* DATA_LOSS: what is wrong, with its line; what came before it was given out. */
int stg_xml_read(const char *text, size_t bytes, stg_xml_element *found, void *owner,
                 struct stg_err *err);

#endif
