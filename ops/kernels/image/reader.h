/* SPDX-License-Identifier: Apache-2.0
 *
 * Encoded images: what is in them, and the pixels of a window. jpeg.c and
 * png.c alone see the libraries; those keep quiet, never end the process, and
 * what they refuse comes back as an error. A reader is one thread's and lives on the
 * stack of the caller; its memory is a struct stg_image_memory.
 */
#ifndef STG_OPS_KERNELS_IMAGE_READER_H
#define STG_OPS_KERNELS_IMAGE_READER_H

#include "core/bump.h"
#include "ops/kernels/image/image.h"

enum stg_image_format { STG_IMAGE_JPEG = 1, STG_IMAGE_PNG = 2 };

/* What a node says of how to read; immutable. */
struct stg_image_options {
    unsigned formats; /* enum stg_image_format: others are refused */
    int channels;     /* 0: as many as the file has */
    int dtype;        /* uint8; of PNG also uint16 */
    int ratio;        /* of JPEG: 1, 2, 4 or 8 times smaller */
    bool fancy_upscaling;
    bool fast_dct;
    bool try_recover_truncated;
    bool apply_exif_orientation;
    int64_t max_pixels;
};

/* Memory that one image after the other uses; begins with bump set, the rest zeroed. */
enum stg_image_room {
    STG_IMAGE_ROOM_STATE,  /* of a reader */
    STG_IMAGE_ROOM_ROW,    /* likewise */
    STG_IMAGE_ROOM_TURNED, /* an image that EXIF turns */
    STG_IMAGE_ROOM_TAPS,
    STG_IMAGE_ROOM_ROWS, /* of the image, that a resize looks at together */
    STG_IMAGE_ROOM_FLOATS,
    STG_IMAGE_N_ROOMS
};

struct stg_image_memory {
    struct stg_bump *bump;
    struct {
        void *data;
        size_t bytes;
    } rooms[STG_IMAGE_N_ROOMS];
};

/* At least that many bytes, not zeroed, until the room is asked for again. NULL: out of
 * memory. */
void *stg_image_room(struct stg_image_memory *memory, enum stg_image_room room,
                     uint64_t bytes);

struct stg_image_codec;

struct stg_image_reader {
    const struct stg_image_options *options;
    struct stg_image_memory *memory;
    int64_t height, width;          /* of what is read: after the ratio */
    int channels;                   /* likewise */
    int orientation;                /* of EXIF, 1 to 8; 1: as it is, or not asked for */
    struct stg_image_window window; /* once started */
    int64_t n_rows;                 /* of the window, given out */
    const struct stg_image_codec *codec;
    void *state;
};

/* Looks at the header; the bytes are borrowed until close. INVALID_ARGUMENT: neither JPEG
 * nor PNG, not of the formats asked for, damaged, more than max_pixels.
 * RESOURCE_EXHAUSTED. */
int stg_image_reader_open(struct stg_image_reader *reader, const uint8_t *bytes, size_t n,
                          const struct stg_image_options *options,
                          struct stg_image_memory *memory, struct stg_err *err);

/* Makes what is read `ratio` (1, 2, 4, 8) times smaller, if the format can; height and
 * width follow. */
void stg_image_reader_scale(struct stg_image_reader *reader, int ratio);

/* Then the rows of a window that lies inside, once: the same pixels that the whole image
 * has there. Start, a row each time, end, which reads what was not asked for of the
 * window, and what follows it where the window goes down to the last row. What else
 * lies behind the window is not looked at. A row is good until the next call;
 * STG_IMAGE_SLACK_BYTES may be read behind it. */
#define STG_IMAGE_SLACK_BYTES 4
int stg_image_reader_start(struct stg_image_reader *reader,
                           const struct stg_image_window *window, struct stg_err *err);
int stg_image_reader_row(struct stg_image_reader *reader, const void **ret,
                         struct stg_err *err);
int stg_image_reader_end(struct stg_image_reader *reader, struct stg_err *err);

/* orient.c: the image of a reader as its orientation shows it. Windows are then those of
 * the turned image, of that size. */
void stg_image_turned_size(const struct stg_image_reader *reader, int64_t *ret_height,
                           int64_t *ret_width);

/* Starts, reads and ends; a window of the turned image, in memory. */
int stg_image_turned_read(struct stg_image_reader *reader,
                          const struct stg_image_window *window, struct stg_image *ret,
                          struct stg_err *err);

/* Also after an open that failed. */
void stg_image_reader_close(struct stg_image_reader *reader);

/* ---- for jpeg.c and png.c ---- */

struct stg_image_codec {
    const char *name;
    enum stg_image_format format;
    size_t state_bytes;
    bool (*is_it)(const uint8_t *bytes, size_t n);
    /* State is zeroed. Sets height, width and channels. */
    int (*open)(struct stg_image_reader *reader, const uint8_t *bytes, size_t n,
                struct stg_err *err);
    void (*scale)(struct stg_image_reader *reader, int ratio); /* NULL: it can not */
    int (*start)(struct stg_image_reader *reader, struct stg_err *err);
    int (*row)(struct stg_image_reader *reader, const void **ret, struct stg_err *err);
    int (*end)(struct stg_image_reader *reader, struct stg_err *err); /* NULL: nothing */
    void (*close)(struct stg_image_reader *reader);
};

extern const struct stg_image_codec stg_image_jpeg, stg_image_png;

/* exif.c: the orientation in the `n` bytes of a TIFF structure, as EXIF has it; 1 where
 * there is none. */
int stg_image_exif_orientation(const uint8_t *bytes, size_t n);

/* Is an image of that size to be read? INVALID_ARGUMENT names max_pixels. */
int stg_image_check_size(const struct stg_image_reader *reader, int64_t height,
                         int64_t width, struct stg_err *err);

#endif
