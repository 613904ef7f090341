/* SPDX-License-Identifier: Apache-2.0 */
#include "client/compute/npy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/npy_header.h"

static int cannot_open(const char *file, struct stg_err *err)
{
    int code = errno == ENOENT   ? -STAGER_NOT_FOUND
               : errno == EACCES ? -STAGER_PERMISSION_DENIED
                                 : -STAGER_UNAVAILABLE;
    return stg_err(err, code, "%s: %s", file, strerror(errno));
}

static int check_header(const char *file, const struct stg_npy_header *header,
                        const struct stg_tensor *wanted, struct stg_err *err)
{
    char got[128], want[128];
    if (header->dtype == wanted->dtype && header->ndim == wanted->ndim &&
        memcmp(header->shape, wanted->shape,
               (size_t)wanted->ndim * sizeof(wanted->shape[0])) == 0)
        return 0;
    return stg_err(err, -STAGER_INVALID_ARGUMENT, "%s holds %s %s; the variable is %s %s",
                   file, stg_dtype_name(header->dtype),
                   stg_shape_text(header->shape, header->ndim, got, sizeof(got)),
                   stg_dtype_name(wanted->dtype),
                   stg_shape_text(wanted->shape, wanted->ndim, want, sizeof(want)));
}

static void swap_bytes(char *data, uint64_t n, size_t bytes)
{
    for (char *end = data + n * bytes; data < end; data += bytes) {
        for (size_t i = 0; i < bytes / 2; i++) {
            char byte = data[i];
            data[i] = data[bytes - 1 - i];
            data[bytes - 1 - i] = byte;
        }
    }
}

static int read_array(FILE *in, const char *file, char *head, struct stg_tensor *tensor,
                      struct stg_err *err)
{
    size_t n = fread(head, 1, STG_NPY_MAX_HEADER, in);
    uint64_t bytes = stg_npy_header_bytes(head, n);
    struct stg_npy_header header;
    if (bytes == 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "%s is not a .npy file (numpy.save)", file);
    if (bytes > n)
        return stg_err(err, -STAGER_DATA_LOSS, "%s: the file ends inside its header",
                       file);
    int rc = stg_npy_header_parse(head, bytes, &header, err);
    if (rc < 0)
        return stg_err_prefix(err, rc, "%s", file);
    rc = check_header(file, &header, tensor, err);
    if (rc < 0)
        return rc;
    if (fseek(in, (long)bytes, SEEK_SET) != 0)
        return cannot_open(file, err);
    size_t element = stg_dtype_bytes(tensor->dtype);
    if (fread(tensor->data, 1, tensor->data_bytes, in) != tensor->data_bytes)
        return stg_err(err, -STAGER_DATA_LOSS,
                       "%s: the file is shorter than the %llu bytes of its array", file,
                       (unsigned long long)tensor->data_bytes);
    if (header.swapped)
        swap_bytes(tensor->data, tensor->data_bytes / element, element);
    return 0;
}

int stg_npy_read(const char *file, struct stg_tensor *tensor, struct stg_err *err)
{
    FILE *in = fopen(file, "rbe");
    if (in == NULL)
        return cannot_open(file, err);
    char *head = malloc(STG_NPY_MAX_HEADER);
    int rc = head != NULL ? read_array(in, file, head, tensor, err)
                          : stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    free(head);
    fclose(in);
    return rc;
}
