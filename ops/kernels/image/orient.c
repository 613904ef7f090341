/* SPDX-License-Identifier: Apache-2.0
 *
 * The orientation that a camera writes into EXIF: which way the stored image is turned.
 */
#include <string.h>

#include "ops/kernels/image/reader.h"

/* Rows and columns of what is stored, from the last on, then swapped. */
static bool from_bottom(int orientation)
{
    return orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
}

static bool from_right(int orientation)
{
    return orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
}

static bool swaps(int orientation)
{
    return orientation >= 5;
}

void stg_image_turned_size(const struct stg_image_reader *reader, int64_t *ret_height,
                           int64_t *ret_width)
{
    bool swapped = swaps(reader->orientation);
    *ret_height = swapped ? reader->width : reader->height;
    *ret_width = swapped ? reader->height : reader->width;
}

/* What is stored of a window of the turned image. */
static struct stg_image_window stored(const struct stg_image_reader *reader,
                                      const struct stg_image_window *window)
{
    struct stg_image_window ret = *window;
    if (swaps(reader->orientation))
        ret = (struct stg_image_window){window->x, window->y, window->width,
                                        window->height};
    if (from_bottom(reader->orientation))
        ret.y = reader->height - ret.y - ret.height;
    if (from_right(reader->orientation))
        ret.x = reader->width - ret.x - ret.width;
    return ret;
}

/* Pixels of a stored row to `to`, `step` bytes apart. */
static void put(const char *row, int64_t n, size_t pixel, char *to, int64_t step)
{
    if (pixel == 3) { /* the compiler knows the size */
        for (int64_t i = 0; i < n; i++)
            memcpy(to + i * step, row + i * 3, 3);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        memcpy(to + i * step, row + i * (int64_t)pixel, pixel);
}

static int read_turned(struct stg_image_reader *reader, struct stg_image *image,
                       char *pixels, struct stg_err *err)
{
    int64_t pixel = image->channels * stg_dtype_bytes(image->dtype), row_bytes;
    int64_t n_rows = reader->window.height, n = reader->window.width, down, right;
    row_bytes = image->row_bytes;
    down = swaps(reader->orientation) ? pixel : row_bytes;
    right = swaps(reader->orientation) ? row_bytes : pixel;
    char *first = pixels;
    if (from_right(reader->orientation)) {
        first += (n - 1) * right;
        right = -right;
    }
    for (int64_t i = 0; i < n_rows; i++) {
        int64_t to = from_bottom(reader->orientation) ? n_rows - 1 - i : i;
        const void *row;
        int rc = stg_image_reader_row(reader, &row, err);
        if (rc < 0)
            return rc;
        put(row, n, (size_t)pixel, first + to * down, right);
    }
    return 0;
}

int stg_image_turned_read(struct stg_image_reader *reader,
                          const struct stg_image_window *window, struct stg_image *ret,
                          struct stg_err *err)
{
    struct stg_image_window part = stored(reader, window);
    struct stg_image image = {.dtype = reader->options->dtype,
                              .height = window->height,
                              .width = window->width,
                              .channels = reader->channels};
    image.row_bytes = image.width * image.channels * stg_dtype_bytes(image.dtype);
    image.end_bytes = image.height * image.row_bytes;
    char *pixels =
        stg_image_room(reader->memory, STG_IMAGE_ROOM_TURNED, (uint64_t)image.end_bytes);
    if (pixels == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    image.pixels = pixels;
    int rc = stg_image_reader_start(reader, &part, err);
    if (rc == 0)
        rc = read_turned(reader, &image, pixels, err);
    if (rc == 0)
        rc = stg_image_reader_end(reader, err);
    if (rc == 0)
        *ret = image;
    return rc;
}
