/* SPDX-License-Identifier: Apache-2.0 */
#include "client/transport/sized.h"

#include <stdbool.h>
#include <string.h>

static int check(const void *of, size_t first, const char *what, size_t *ret,
                 struct stg_err *err)
{
    size_t given = 0;
    memcpy(&given, of, sizeof(given));
    if (given < first)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "struct_size of %s is %zu: set it to sizeof(struct %s), which is "
                       "%zu or more",
                       what, given, what, first);
    *ret = given;
    return 0;
}

int stg_sized_read(const void *from, size_t first, size_t size, const char *what,
                   void *ret, struct stg_err *err)
{
    size_t given = 0;
    int rc = check(from, first, what, &given, err);
    if (rc < 0)
        return rc;
    const unsigned char *bytes = from;
    for (size_t i = size; i < given; i++) {
        if (bytes[i] != 0)
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "a field of %s is set at byte %zu, but libstager %s has "
                           "only the first %zu bytes: install a newer libstager",
                           what, i, STAGER_RELEASE, size);
    }
    memset(ret, 0, size);
    memcpy(ret, from, given < size ? given : size);
    return 0;
}

int stg_sized_write(const void *from, size_t first, size_t size, const char *what,
                    void *ret, struct stg_err *err)
{
    size_t given = 0;
    int rc = check(ret, first, what, &given, err);
    if (rc < 0)
        return rc;
    size_t common = given < size ? given : size;
    memcpy((char *)ret + sizeof(given), (const char *)from + sizeof(given),
           common - sizeof(given));
    return 0;
}
