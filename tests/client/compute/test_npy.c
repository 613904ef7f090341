/* SPDX-License-Identifier: Apache-2.0
 *
 * Variables from NumPy files. The bytes are those of numpy.save (2.x) for
 * numpy.array([[1, 2, 3], [4, 5, 6]]) of each dtype.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/compute/npy.h"
#include "tests/check.h"

#define PATH "/tmp/stg-npy-XXXXXX"

/* A header of 128 bytes, as numpy.save pads it. */
static size_t put_header(char *to, const char *descr, const char *order,
                         const char *shape)
{
    memcpy(to, "\x93NUMPY\x01\x00\x76\x00", 10);
    int n = snprintf(to + 10, 118, "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }",
                     descr, order, shape);
    memset(to + 10 + n, ' ', (size_t)(118 - n));
    to[127] = '\n';
    return 128;
}

static int read_file(const char *bytes, size_t n, struct stg_tensor *tensor,
                     struct stg_err *err)
{
    char path[] = PATH;
    int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
    close(fd);
    int rc = stg_npy_read(path, tensor, err);
    unlink(path);
    return rc;
}

static struct stg_tensor grid(void *data, int dtype)
{
    return (struct stg_tensor){.dtype = dtype,
                               .ndim = 2,
                               .shape = {2, 3},
                               .data = data,
                               .data_bytes = 6 * stg_dtype_bytes(dtype)};
}

static void both_byte_orders_are_read(void)
{
    static const float want[] = {1, 2, 3, 4, 5, 6};
    char file[256];
    float got[6];
    struct stg_err err = {0};
    for (int big = 0; big < 2; big++) {
        size_t n = put_header(file, big ? ">f4" : "<f4", "False", "(2, 3)");
        for (int i = 0; i < 6; i++) {
            uint32_t bits;
            memcpy(&bits, &want[i], 4);
            bits = big ? __builtin_bswap32(bits) : bits;
            memcpy(file + n + 4 * i, &bits, 4);
        }
        struct stg_tensor tensor = grid(got, STAGER_FLOAT32);
        memset(got, 0, sizeof(got));
        CHECK_OK(read_file(file, n + 24, &tensor, &err), err);
        CHECK(memcmp(got, want, sizeof(want)) == 0);
    }
}

static const struct {
    const char *descr, *order, *shape;
    size_t bytes; /* of data */
    int code;
    const char *error;
} refused[] = {
    {"<f8", "False", "(2, 3)", 48, STAGER_INVALID_ARGUMENT,
     "holds float64 [2, 3]; the variable is float32 [2, 3]"},
    {"<f4", "False", "(3, 2)", 24, STAGER_INVALID_ARGUMENT, "holds float32 [3, 2]"},
    {"<f4", "False", "(6,)", 24, STAGER_INVALID_ARGUMENT, "holds float32 [6]"},
    {"<f4", "True", "(2, 3)", 24, STAGER_INVALID_ARGUMENT, "Fortran"},
    {"|O", "False", "(2, 3)", 24, STAGER_INVALID_ARGUMENT, ""},
    {"<f4", "False", "(2, 3)", 23, STAGER_DATA_LOSS, "shorter than the 24 bytes"},
    {"<f4", "Flase", "(2, 3)", 24, STAGER_DATA_LOSS, ""},
};

static void what_is_not_that_array_is_refused(void)
{
    char file[256];
    float got[6];
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        struct stg_err err = {0};
        size_t n = put_header(file, refused[i].descr, refused[i].order, refused[i].shape);
        memset(file + n, 0, 48);
        struct stg_tensor tensor = grid(got, STAGER_FLOAT32);
        CHECK_INT(read_file(file, n + refused[i].bytes, &tensor, &err), -refused[i].code);
        CHECK_CONTAINS(err.text, refused[i].error);
        CHECK_CONTAINS(err.text, "/tmp/stg-npy-");
    }
}

static void a_file_of_another_format_is_reported(void)
{
    float got[6];
    struct stg_err err = {0};
    struct stg_tensor tensor = grid(got, STAGER_FLOAT32);
    CHECK_INT(read_file("1,2,3\n", 6, &tensor, &err), -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(err.text, "is not a .npy file (numpy.save)");
    CHECK_INT(read_file("\x93NUMPY\x01\x00\x76\x00{'de", 14, &tensor, &err),
              -STAGER_DATA_LOSS);
    CHECK_CONTAINS(err.text, "ends inside its header");
    CHECK_INT(stg_npy_read("/tmp/there/is/no/such.npy", &tensor, &err),
              -STAGER_NOT_FOUND);
}

static const struct stg_test tests[] = {
    TEST(both_byte_orders_are_read),
    TEST(what_is_not_that_array_is_refused),
    TEST(a_file_of_another_format_is_reported),
};
TEST_MAIN(tests)
