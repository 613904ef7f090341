/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/storage/http/libraries.h"

int stg_http_libraries(struct stg_err *err)
{
    return 0;
}

int stg_http_crypto(struct stg_err *err)
{
    return 0;
}
