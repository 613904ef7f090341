/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include <spng.h>

#include "core/batch.h"
#include "ops/kernels/image/reader.h"

/* Of text and colour profiles, which are not read. */
#define CHUNK_BYTES (8u << 20)

struct png {
    spng_ctx *ctx;
    struct spng_ihdr header;
    struct narrow {
        int channels;
        bool from_16, to_16; /* bits a sample; they differ for one channel alone */
    } narrow;
    uint8_t *pixels; /* all of them */
    int64_t pixel;   /* bytes of one */
};

static int fail(int code, struct stg_err *err)
{
    bool ends = code == SPNG_EOF || code == SPNG_IO_EOF;
    if (code == SPNG_EMEM)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "no memory to decode a PNG");
    return stg_err(err, -STAGER_INVALID_ARGUMENT, "the PNG image cannot be decoded: %s",
                   ends ? "it is truncated" : spng_strerror(code));
}

static bool is_it(const uint8_t *bytes, size_t n)
{
    return n >= 8 && memcmp(bytes, "\x89PNG\r\n\x1a\n", 8) == 0;
}

/* As TensorFlow counts them: a transparent colour is no channel, but in a palette. */
static int native_channels(struct png *png)
{
    struct spng_trns trns;
    switch (png->header.color_type) {
    case SPNG_COLOR_TYPE_GRAYSCALE: return 1;
    case SPNG_COLOR_TYPE_GRAYSCALE_ALPHA: return 2;
    case SPNG_COLOR_TYPE_TRUECOLOR_ALPHA: return 4;
    case SPNG_COLOR_TYPE_INDEXED: return spng_get_trns(png->ctx, &trns) == 0 ? 4 : 3;
    default: return 3;
    }
}

static int orientation_of(struct png *png)
{
    struct spng_exif exif;
    if (spng_get_exif(png->ctx, &exif) != 0)
        return 1;
    return stg_image_exif_orientation((const uint8_t *)exif.data, exif.length);
}

static int png_open(struct stg_image_reader *reader, const uint8_t *bytes, size_t n,
                    struct stg_err *err)
{
    struct png *png = reader->state;
    png->ctx = spng_ctx_new(0);
    if (png->ctx == NULL)
        return fail(SPNG_EMEM, err);
    spng_set_chunk_limits(png->ctx, CHUNK_BYTES, CHUNK_BYTES);
    int rc = spng_set_png_buffer(png->ctx, bytes, n);
    if (rc == 0)
        rc = spng_get_ihdr(png->ctx, &png->header);
    if (rc != 0)
        return fail(rc, err);
    reader->height = png->header.height;
    reader->width = png->header.width;
    rc = stg_image_check_size(reader, reader->height, reader->width, err);
    if (rc < 0)
        return rc;
    if (reader->options->apply_exif_orientation)
        reader->orientation = orientation_of(png);
    reader->channels = reader->options->channels;
    if (reader->channels == 0)
        reader->channels = native_channels(png);
    return 0;
}

/* ITU-R BT.601 to 15 bits, as libpng rounds it. */
#define LUMA(p) (9797u * (p)[0] + 19234u * (p)[1] + 3737u * (p)[2])

static unsigned luma8(const uint8_t *p)
{
    return LUMA(p) >> 15;
}

static unsigned luma16(const uint16_t *p)
{
    return (LUMA(p) + 16384) >> 15;
}

/* Four channels to fewer, in place. */
static void put_gray(const struct narrow *narrow, void *row, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        unsigned gray = narrow->from_16 ? luma16((const uint16_t *)row + 4 * i)
                                        : luma8((const uint8_t *)row + 4 * i);
        if (narrow->to_16)
            ((uint16_t *)row)[i] = (uint16_t)(narrow->from_16 ? gray : gray * 257);
        else
            ((uint8_t *)row)[i] = (uint8_t)(narrow->from_16 ? gray >> 8 : gray);
    }
}

static void put_row(const struct narrow *narrow, char *row, int64_t n)
{
    size_t bytes = narrow->to_16 ? 2 : 1, pixel = (size_t)narrow->channels * bytes;
    const char *in = row;
    for (char *out = row; out < row + (size_t)n * pixel; out += pixel, in += 4 * bytes) {
        memmove(out, in, pixel);
        if (narrow->channels == 2)
            memmove(out + bytes, in + 3 * bytes, bytes);
    }
}

/* Decodes all: three channels of bytes where they are wanted, else four. */
static int png_start(struct stg_image_reader *reader, struct stg_err *err)
{
    struct png *png = reader->state;
    struct narrow narrow = {.channels = reader->channels};
    narrow.to_16 = reader->options->dtype == STAGER_UINT16;
    narrow.from_16 = narrow.channels == 1 ? png->header.bit_depth == 16 : narrow.to_16;
    bool as_rgb = narrow.channels == 3 && !narrow.from_16;
    int format = narrow.from_16 ? SPNG_FMT_RGBA16
                 : as_rgb       ? SPNG_FMT_RGB8
                                : SPNG_FMT_RGBA8;
    int flags = narrow.channels == 4 ? SPNG_DECODE_TRNS : 0;
    png->narrow = narrow;
    png->pixel = narrow.from_16 ? 8 : as_rgb ? 3 : 4;
    uint64_t bytes = (uint64_t)(reader->height * reader->width * png->pixel);
    png->pixels =
        stg_image_room(reader->memory, STG_IMAGE_ROOM_ROW, bytes + STG_IMAGE_SLACK_BYTES);
    if (png->pixels == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    memset(png->pixels + bytes, 0, STG_IMAGE_SLACK_BYTES);
    int rc = spng_decode_image(png->ctx, png->pixels, (size_t)bytes, format, flags);
    if (rc == 0)
        rc = spng_decode_chunks(png->ctx); /* to its end */
    return rc != 0 ? fail(rc, err) : 0;
}

static int png_row(struct stg_image_reader *reader, const void **ret, struct stg_err *err)
{
    const struct png *png = reader->state;
    int64_t y = reader->window.y + reader->n_rows;
    uint8_t *row = png->pixels + (y * reader->width + reader->window.x) * png->pixel;
    if (png->narrow.channels == 1)
        put_gray(&png->narrow, row, reader->window.width);
    else if (png->pixel != 3)
        put_row(&png->narrow, (char *)row, reader->window.width);
    *ret = row;
    return 0;
}

static void png_close(struct stg_image_reader *reader)
{
    struct png *png = reader->state;
    spng_ctx_free(png->ctx);
}

const struct stg_image_codec stg_image_png = {
    .name = "PNG",
    .format = STG_IMAGE_PNG,
    .state_bytes = sizeof(struct png),
    .is_it = is_it,
    .open = png_open,
    .start = png_start,
    .row = png_row,
    .close = png_close,
};
