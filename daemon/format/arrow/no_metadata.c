/* SPDX-License-Identifier: Apache-2.0
 *
 * In place of metadata.cc in a build without libflatbuffers.
 */
#include "daemon/format/arrow/metadata.h"

const bool stg_arrow_is_built = false;

bool stg_arrow_message_read(const void *data, uint64_t bytes,
                            struct stg_arrow_message *ret)
{
    return false;
}

bool stg_arrow_footer_read(const void *data, uint64_t bytes, struct stg_arrow_footer *ret)
{
    return false;
}

uint32_t stg_arrow_schema_fields(const void *schema, struct stg_arrow_field *ret,
                                 uint32_t most)
{
    return 0;
}

bool stg_arrow_schema_is_big_endian(const void *schema)
{
    return false;
}
