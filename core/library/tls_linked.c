/* SPDX-License-Identifier: Apache-2.0 */
#include "core/library/tls.h"

int stg_tls_library(struct stg_err *err)
{
    return 0;
}
