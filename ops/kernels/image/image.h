/* SPDX-License-Identifier: Apache-2.0
 *
 * What the ops for images share. All of them but color_jitter do some stages of one
 * chain, in this order:
 *
 *     decode, crop, resize, part (a crop of the resized image), flip, normalize
 *
 * so that they have one plan, one run and one absorb: an op takes over what readers do
 * whose stages come later, and an image passes through all of them row by row. The values
 * are those of the ops one by one.
 *
 * An image is [height, width, channels]; before resize its elements stay as they are,
 * from resize on they are float32. Only normalize gives [channels, height, width].
 */
#ifndef STG_OPS_KERNELS_IMAGE_IMAGE_H
#define STG_OPS_KERNELS_IMAGE_IMAGE_H

#include "ops/base/op.h"

#define STG_IMAGE_MAX_CHANNELS 4
#define STG_IMAGE_MAX_SIDE 65535

struct stg_image_window {
    int64_t y, x, height, width;
};

struct stg_image_reader;

/* A part of an image: in memory, or read row by row. */
struct stg_image {
    int dtype;
    int64_t height, width, channels;
    struct stg_image_reader *reader; /* started; NULL: it is in memory */
    const void *pixels;
    int64_t row_bytes; /* from one row to the next */
    int64_t end_bytes; /* that may be read from `pixels` on */
};

enum stg_image_stage {
    STG_IMAGE_DECODE = 1,
    STG_IMAGE_CROP = 2,
    STG_IMAGE_RESIZE = 4,
    STG_IMAGE_PART = 8,
    STG_IMAGE_FLIP = 16,
    STG_IMAGE_NORMALIZE = 32,
};

enum stg_image_crop_kind {
    STG_IMAGE_CROP_GIVEN, /* by input 1: int32 or int64 [4], y, x, height, width */
    STG_IMAGE_CROP_CENTER,
    STG_IMAGE_CROP_RANDOM,
    STG_IMAGE_CROP_RANDOM_RESIZED,
};

struct stg_image_crop {
    enum stg_image_crop_kind kind;
    int64_t height, width;     /* CENTER, RANDOM: what comes out; 0: `fraction` says it */
    double fraction;           /* CENTER: of each side */
    double scale[2], ratio[2]; /* RANDOM_RESIZED: of the area; width over height */
    uint64_t seed;
};

struct stg_image_resize {
    int64_t height, width; /* 0: shorter_side says them */
    int64_t shorter_side;
    bool half_pixel_centers, align_corners;
    bool antialias; /* the other two are then true and false */
};

/* One axis of an image and of what it is resized to. */
struct stg_image_axis {
    int64_t in, out;    /* pixels of both, as a whole */
    int64_t first, n;   /* of the result that are wanted */
    int64_t base, have; /* of the image that are there */
};

struct stg_image_flip {
    bool left_right, up_down; /* which ones are tossed for */
    uint64_t seed;
};

struct stg_image_normalize {
    float mean[STG_IMAGE_MAX_CHANNELS], std[STG_IMAGE_MAX_CHANNELS];
    int channels; /* as many as there are means; 0: one for all */
};

struct stg_image_options;

/* The plan of these ops. Immutable. */
struct stg_image_plan {
    unsigned stages; /* enum stg_image_stage */
    const struct stg_image_options
        *options;     /* the input is encoded; NULL: it is pixels */
    bool dct_scaling; /* RANDOM_RESIZED: the decoder may do a part of the resize */
    bool whole;       /* the image is read to its end, whatever is wanted of it */
    int dtype;        /* of the output */
    struct stg_image_crop crop, part;
    struct stg_image_resize resize;
    struct stg_image_flip flip;
    struct stg_image_normalize normalize;
};

/* ---- when the pipeline is applied: plan.c ---- */

/* A zeroed plan and one output like the input, of rank 3 or 4 and a dtype that is a
 * number. An input of strings is encoded images where `options` is not NULL. */
int stg_image_infer(struct stg_op_infer *ctx, const struct stg_image_options *options,
                    struct stg_image_plan **ret, struct stg_component **ret_output,
                    struct stg_err *err);

/* The attribute as [height, width], both from 1 to STG_IMAGE_MAX_SIDE. */
int stg_image_size(const struct stg_node *node, const char *name, int64_t *ret_height,
                   int64_t *ret_width, struct stg_err *err);

/* May it be resized or normalized: is it uint8, uint16 or float32? */
int stg_image_check_float(const struct stg_component *input, struct stg_err *err);

/* The attributes of an op that reads encoded images too. */
#define STG_IMAGE_PARAMS_ENCODED                                                         \
    {.name = "channels",                                                                 \
     .type = STG_PARAM_INT,                                                              \
     .min = 1,                                                                           \
     .max = 3,                                                                           \
     .preset = "3",                                                                      \
     .help = "of an encoded image: 1 or 3"},                                             \
        STG_IMAGE_PARAM_ORIENTATION,                                                     \
    {                                                                                    \
        .name = "max_pixels", .type = STG_PARAM_INT, .min = 1, .max = INT64_C(1) << 31,  \
        .preset = "67108864",                                                            \
        .help = "a larger encoded image is an error, and is not decoded"                 \
    }
#define STG_IMAGE_PARAM_ORIENTATION                                                      \
    {                                                                                    \
        .name = "apply_exif_orientation", .type = STG_PARAM_BOOL, .preset = "false",     \
        .help = "of an encoded image: turned and mirrored as its EXIF data say"          \
    }

/* The plan resizes to the attribute `size`, with half-pixel centres; the output follows.
 */
int stg_image_infer_resize(struct stg_op_infer *ctx, struct stg_image_plan *plan,
                           struct stg_component *output, struct stg_err *err);

/* The attribute as n numbers, or `otherwise` where it is not given. */
int stg_image_numbers(const struct stg_node *node, const char *name, size_t n,
                      const double *otherwise, double *ret, struct stg_err *err);

/* channels, ratio, dct_method … of a node that decodes. */
int stg_image_read_options(struct stg_op_infer *ctx, unsigned formats, int channels,
                           struct stg_image_options *ret, struct stg_err *err);

/* ---- when a batch flows: run.c ---- */

/* As struct stg_op. Errors: a window that is not inside; what reader.h says. */
int stg_image_run(struct stg_op_run *ctx, struct stg_err *err);

const void *stg_image_absorb(const void *plan, struct stg_absorb *readers, size_t n,
                             struct stg_bump *bump);

/* The size of what is resized. INVALID_ARGUMENT: a side would have more than
 * STG_IMAGE_MAX_SIDE pixels, or there are none to resize. */
int stg_image_resized(const struct stg_image_resize *resize, int64_t height,
                      int64_t width, int64_t *ret_height, int64_t *ret_width,
                      struct stg_err *err);

/* taps.c: sets base and have to what the pixels that are wanted are made of. */
void stg_image_narrow(const struct stg_image_resize *resize, struct stg_image_axis *axis);

/* window.c: the window of image `row`, of that size. INVALID_ARGUMENT. */
int stg_image_window(const struct stg_image_crop *crop, const struct stg_op_run *ctx,
                     uint64_t row, int64_t height, int64_t width,
                     struct stg_image_window *ret, struct stg_err *err);

/* draw.c: the image, resized, flipped and normalized, as the plan says. The image is what
 * is there along both axes. Errors are the reader's. */
struct stg_image_view {
    struct stg_image_axis y, x;
    bool flip_y, flip_x;
};
struct stg_image_memory;
int stg_image_draw(const struct stg_image_plan *plan, const struct stg_image *image,
                   const struct stg_image_view *view, struct stg_image_memory *memory,
                   void *out, struct stg_err *err);

#endif
