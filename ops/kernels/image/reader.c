/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/kernels/image/reader.h"

#include <inttypes.h>
#include <string.h>

#include "core/batch.h"

static const struct stg_image_codec *const codecs[] = {&stg_image_jpeg, &stg_image_png};

#define N_CODECS (sizeof(codecs) / sizeof(codecs[0]))

static bool begins_with(const uint8_t *bytes, size_t n, const char *magic)
{
    return n >= strlen(magic) && memcmp(bytes, magic, strlen(magic)) == 0;
}

/* What it is instead. */
static const char *other_format(const uint8_t *bytes, size_t n)
{
    if (begins_with(bytes, n, "GIF8"))
        return ", but GIF";
    if (begins_with(bytes, n, "BM"))
        return ", but perhaps BMP";
    if (begins_with(bytes, n, "RIFF") && n >= 12 && memcmp(bytes + 8, "WEBP", 4) == 0)
        return ", but WebP";
    if (begins_with(bytes, n, "II*") || begins_with(bytes, n, "MM"))
        return ", but perhaps TIFF";
    return "";
}

static int find_codec(struct stg_image_reader *reader, const uint8_t *bytes, size_t n,
                      struct stg_err *err)
{
    static const char *const wanted[] = {"", "JPEG", "PNG", "JPEG or PNG"};
    unsigned formats = reader->options->formats;
    if (n == 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "the image is empty");
    for (size_t i = 0; i < N_CODECS; i++) {
        if (!codecs[i]->is_it(bytes, n))
            continue;
        if ((codecs[i]->format & formats) == 0)
            return stg_err(
                err, -STAGER_INVALID_ARGUMENT,
                "the image is not %s but %s: use decode_image, which reads both",
                wanted[formats], codecs[i]->name);
        reader->codec = codecs[i];
        return 0;
    }
    return stg_err(err, -STAGER_INVALID_ARGUMENT, "the %zu bytes are not a %s image%s", n,
                   wanted[formats], other_format(bytes, n));
}

int stg_image_reader_open(struct stg_image_reader *reader, const uint8_t *bytes, size_t n,
                          const struct stg_image_options *options,
                          struct stg_image_memory *memory, struct stg_err *err)
{
    *reader =
        (struct stg_image_reader){.options = options, .memory = memory, .orientation = 1};
    int rc = find_codec(reader, bytes, n, err);
    if (rc < 0)
        return rc;
    size_t state_bytes = reader->codec->state_bytes;
    reader->state = stg_image_room(memory, STG_IMAGE_ROOM_STATE, state_bytes);
    if (reader->state == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    memset(reader->state, 0, state_bytes);
    return reader->codec->open(reader, bytes, n, err);
}

void stg_image_reader_scale(struct stg_image_reader *reader, int ratio)
{
    if (reader->codec->scale != NULL)
        reader->codec->scale(reader, ratio);
}

int stg_image_reader_start(struct stg_image_reader *reader,
                           const struct stg_image_window *window, struct stg_err *err)
{
    reader->window = *window;
    reader->n_rows = 0;
    return reader->codec->start(reader, err);
}

int stg_image_reader_row(struct stg_image_reader *reader, const void **ret,
                         struct stg_err *err)
{
    int rc = reader->codec->row(reader, ret, err);
    reader->n_rows++;
    return rc;
}

int stg_image_reader_end(struct stg_image_reader *reader, struct stg_err *err)
{
    const void *row;
    int rc = 0;
    while (rc == 0 && reader->n_rows < reader->window.height)
        rc = stg_image_reader_row(reader, &row, err);
    return rc == 0 && reader->codec->end != NULL ? reader->codec->end(reader, err) : rc;
}

void stg_image_reader_close(struct stg_image_reader *reader)
{
    if (reader->state != NULL)
        reader->codec->close(reader);
    reader->state = NULL;
}
