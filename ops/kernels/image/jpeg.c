/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jerror.h>
#include <jpeglib.h>

#include "core/batch.h"
#include "ops/kernels/image/reader.h"

/* A file with more scans is made to cost time. */
#define MAX_SCANS 256
/* A pixel may be made of chroma of its neighbours: so many columns more are decoded. */
#define MARGIN 2
/* libjpeg-turbo writes rows that are aligned past the cache, and ours are read at once.
 */
#define MISALIGNED 8

struct jpeg {
    struct jpeg_decompress_struct c;
    struct jpeg_error_mgr errors;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    jmp_buf jump;
    char text[JMSG_LENGTH_MAX]; /* why */
    bool is_created, no_memory, recover;
    uint8_t *row;  /* decoded */
    int64_t first; /* its column where the window begins */
};

/* ---- what libjpeg calls ---- */

static void on_error(j_common_ptr common)
{
    struct jpeg *jpeg = common->client_data;
    jpeg->no_memory = common->err->msg_code == JERR_OUT_OF_MEMORY;
    common->err->format_message(common, jpeg->text);
    longjmp(jpeg->jump, 1);
}

static void be_quiet(j_common_ptr common)
{
}

static void on_message(j_common_ptr common, int level)
{
    if (level < 0)
        common->err->num_warnings++;
}

static void on_progress(j_common_ptr common)
{
    struct jpeg *jpeg = common->client_data;
    if (jpeg->c.input_scan_number <= MAX_SCANS)
        return;
    snprintf(jpeg->text, sizeof(jpeg->text), "it has more than %d scans", MAX_SCANS);
    longjmp(jpeg->jump, 1);
}

static void on_source(j_decompress_ptr c)
{
}

/* The bytes are used up and there is more to come. */
static boolean on_more(j_decompress_ptr c)
{
    static const JOCTET end[] = {0xff, JPEG_EOI};
    struct jpeg *jpeg = c->client_data;
    if (!jpeg->recover) {
        snprintf(jpeg->text, sizeof(jpeg->text),
                 "it is truncated; try_recover_truncated would take what is there");
        longjmp(jpeg->jump, 1);
    }
    c->src->next_input_byte = end;
    c->src->bytes_in_buffer = sizeof(end);
    return TRUE;
}

static void on_skip(j_decompress_ptr c, long n)
{
    if (n <= 0)
        return;
    if ((size_t)n > c->src->bytes_in_buffer)
        on_more(c);
    else {
        c->src->next_input_byte += n;
        c->src->bytes_in_buffer -= (size_t)n;
    }
}

static void create(struct jpeg *jpeg, const uint8_t *bytes, size_t n)
{
    jpeg->c.err = jpeg_std_error(&jpeg->errors);
    jpeg->errors.error_exit = on_error;
    jpeg->errors.output_message = be_quiet;
    jpeg->errors.emit_message = on_message;
    jpeg->c.client_data = jpeg;
    jpeg->is_created = true;
    jpeg_create_decompress(&jpeg->c);
    jpeg->progress.progress_monitor = on_progress;
    jpeg->c.progress = &jpeg->progress;
    jpeg->source = (struct jpeg_source_mgr){.next_input_byte = bytes,
                                            .bytes_in_buffer = n,
                                            .init_source = on_source,
                                            .fill_input_buffer = on_more,
                                            .skip_input_data = on_skip,
                                            .resync_to_restart = jpeg_resync_to_restart,
                                            .term_source = on_source};
    jpeg->c.src = &jpeg->source;
}

/* ---- a reader ---- */

static int fail(const struct jpeg *jpeg, struct stg_err *err)
{
    if (jpeg->no_memory)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "no memory to decode a JPEG");
    return stg_err(err, -STAGER_INVALID_ARGUMENT, "the JPEG image cannot be decoded: %s",
                   jpeg->text);
}

static bool is_it(const uint8_t *bytes, size_t n)
{
    return n >= 3 && bytes[0] == 0xff && bytes[1] == 0xd8 && bytes[2] == 0xff;
}

static void measure(struct stg_image_reader *reader)
{
    struct jpeg *jpeg = reader->state;
    jpeg_calc_output_dimensions(&jpeg->c);
    reader->height = jpeg->c.output_height;
    reader->width = jpeg->c.output_width;
}

static void choose_colors(struct stg_image_reader *reader, struct jpeg *jpeg)
{
    const struct stg_image_options *options = reader->options;
    J_COLOR_SPACE is = jpeg->c.jpeg_color_space;
    reader->channels = options->channels > 0         ? options->channels
                       : jpeg->c.num_components == 1 ? 1
                                                     : 3;
    jpeg->c.out_color_space = reader->channels == 1              ? JCS_GRAYSCALE
                              : is == JCS_CMYK || is == JCS_YCCK ? JCS_CMYK
                                                                 : JCS_RGB;
    jpeg->c.do_fancy_upsampling = options->fancy_upscaling;
    jpeg->c.dct_method = options->fast_dct ? JDCT_IFAST : JDCT_ISLOW;
}

/* EXIF is an APP1 marker that begins so. */
#define EXIF (JPEG_APP0 + 1)
static const char exif_begin[6] = "Exif\0";

static int orientation_of(const struct jpeg *jpeg)
{
    size_t n = sizeof(exif_begin);
    for (const struct jpeg_marker_struct *m = jpeg->c.marker_list; m != NULL;
         m = m->next) {
        if (m->marker == EXIF && m->data_length > n &&
            memcmp(m->data, exif_begin, n) == 0)
            return stg_image_exif_orientation(m->data + n, m->data_length - n);
    }
    return 1;
}

static int jpeg_open(struct stg_image_reader *reader, const uint8_t *bytes, size_t n,
                     struct stg_err *err)
{
    struct jpeg *jpeg = reader->state;
    jpeg->recover = reader->options->try_recover_truncated;
    if (setjmp(jpeg->jump) != 0)
        return fail(jpeg, err);
    create(jpeg, bytes, n);
    if (reader->options->apply_exif_orientation)
        jpeg_save_markers(&jpeg->c, EXIF, 0xffff);
    jpeg_read_header(&jpeg->c, TRUE);
    reader->orientation = orientation_of(jpeg);
    int rc = stg_image_check_size(reader, jpeg->c.image_height, jpeg->c.image_width, err);
    if (rc < 0)
        return rc;
    choose_colors(reader, jpeg);
    jpeg->c.scale_num = 1;
    jpeg->c.scale_denom = (unsigned)reader->options->ratio;
    measure(reader);
    return 0;
}

static void jpeg_scale(struct stg_image_reader *reader, int ratio)
{
    struct jpeg *jpeg = reader->state;
    jpeg->c.scale_denom = (unsigned)ratio;
    measure(reader);
}

static int start(struct stg_image_reader *reader, struct stg_err *err)
{
    struct jpeg *jpeg = reader->state;
    const struct stg_image_window *window = &reader->window;
    int64_t left = window->x > MARGIN ? window->x - MARGIN : 0;
    int64_t right = window->x + window->width + MARGIN;
    right = right < reader->width ? right : reader->width;
    JDIMENSION x = (JDIMENSION)left, width = (JDIMENSION)(right - left);
    jpeg_start_decompress(&jpeg->c);
    if (width < jpeg->c.output_width)
        jpeg_crop_scanline(&jpeg->c, &x, &width);
    jpeg->first = window->x - x;
    uint64_t bytes = (uint64_t)jpeg->c.output_width * (unsigned)jpeg->c.output_components;
    uint8_t *room = stg_image_room(reader->memory, STG_IMAGE_ROOM_ROW,
                                   MISALIGNED + bytes + STG_IMAGE_SLACK_BYTES);
    if (room == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    jpeg->row = room + MISALIGNED;
    memset(jpeg->row + bytes, 0, STG_IMAGE_SLACK_BYTES);
    if (window->y > 0)
        jpeg_skip_scanlines(&jpeg->c, (JDIMENSION)window->y);
    return 0;
}

static int jpeg_start(struct stg_image_reader *reader, struct stg_err *err)
{
    struct jpeg *jpeg = reader->state;
    if (setjmp(jpeg->jump) != 0)
        return fail(jpeg, err);
    return start(reader, err);
}

/* As Adobe's programs write them, inverted, or not. In place. */
static void rgb_from_cmyk(uint8_t *row, int64_t n, bool inverted)
{
    const uint8_t *from = row;
    for (int64_t i = 0; i < n; i++, from += 4) {
        int k = inverted ? from[3] : 255 - from[3];
        for (int c = 0; c < 3; c++)
            *row++ = (uint8_t)(k * (inverted ? from[c] : 255 - from[c]) / 255);
    }
}

static int jpeg_row(struct stg_image_reader *reader, const void **ret,
                    struct stg_err *err)
{
    struct jpeg *jpeg = reader->state;
    if (setjmp(jpeg->jump) != 0)
        return fail(jpeg, err);
    jpeg_read_scanlines(&jpeg->c, &jpeg->row, 1);
    uint8_t *row = jpeg->row + jpeg->first * jpeg->c.output_components;
    if (jpeg->c.out_color_space == JCS_CMYK)
        rgb_from_cmyk(row, reader->window.width, jpeg->c.saw_Adobe_marker);
    *ret = row;
    return 0;
}

static int jpeg_end(struct stg_image_reader *reader, struct stg_err *err)
{
    struct jpeg *jpeg = reader->state;
    if (setjmp(jpeg->jump) != 0)
        return fail(jpeg, err);
    if (jpeg->c.output_scanline == jpeg->c.output_height)
        jpeg_finish_decompress(&jpeg->c);
    return 0;
}

static void jpeg_close(struct stg_image_reader *reader)
{
    struct jpeg *jpeg = reader->state;
    if (jpeg->is_created)
        jpeg_destroy_decompress(&jpeg->c);
}

const struct stg_image_codec stg_image_jpeg = {
    .name = "JPEG",
    .format = STG_IMAGE_JPEG,
    .state_bytes = sizeof(struct jpeg),
    .is_it = is_it,
    .open = jpeg_open,
    .scale = jpeg_scale,
    .start = jpeg_start,
    .row = jpeg_row,
    .end = jpeg_end,
    .close = jpeg_close,
};
