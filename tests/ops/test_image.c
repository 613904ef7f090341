/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops for images: compared with TensorFlow's values, and properties of any image.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include "ops/kernels/image/kernels.h"
#include "tests/check.h"
#include "tests/core/random.h"
#include "tests/failalloc.h"
#include "tests/ops/cases.h"

#define N(table) (sizeof(table) / sizeof((table)[0]))
#define MEAN_STD " mean=[123.675, 116.28, 103.53] std=[58.395, 57.12, 57.375]"

static const struct op_case golden[] = {
#include "tests/ops/golden/images.rows"
};

static void images_are_what_tensorflow_gives(void)
{
    for (size_t i = 0; i < N(golden); i++)
        op_case_check(&golden[i], false);
}

#define X13 "uint8[1, 3, 1] 10 20 40"
#define X22 "float32[2, 2, 1] 1 2 3 4"

static const struct op_case by_hand[] = {
    {"center_crop", "size=[1, 2]", "int16[2, 3, 1] 1 2 3 4 5 6", "int16[1, 2, 1] 1 2",
     NULL, 0},
    {"center_crop", "size=[2, 1]", "int64[2, 3, 1] 1 2 3 4 5 6", "int64[2, 1, 1] 2 5",
     NULL, 0},
    {"center_crop", "size=[1, 1]", "uint8[0, 4, 4, 2]", "uint8[0, 1, 1, 2]", NULL, 0},
    /* Half of an odd number of pixels to the nearest even number: Python's round. */
    {"center_crop", "size=[1, 1]", "uint8[1, 4, 1] 1 2 3 4", "uint8[1, 1, 1] 3", NULL, 0},
    {"center_crop", "size=[1, 1]", "uint8[6, 1, 1] 1 2 3 4 5 6", "uint8[1, 1, 1] 3", NULL,
     0},
    {"random_crop", "size=[1, 3]", X13, "uint8[1, 3, 1] 10 20 40", NULL, 0},
    {"random_crop", "size=[2, 3]", "string[0]", "uint8[0, 2, 3, 3]", NULL, 0},
    {"random_flip", "left_right=false", X22, "float32[2, 2, 1] 1 2 3 4", NULL, 0},
    {"resize_bilinear", "size=[1, 1]", X22, "float32[1, 1, 1] 2.5", NULL, 0},
    {"resize_bilinear", "size=[2, 1]", "float32[0, 5, 5, 3]", "float32[0, 2, 1, 3]", NULL,
     0},
    /* Three pixels to two: two of them each, 5/6 and 3/6 of 8/6. */
    {"resize", "size=[1, 2]", "float32[1, 3, 1] 5 10 30", "float32[1, 2, 1] 6.875 22.5",
     NULL, 0},
    {"resize", "size=[1, 1]", "uint16[1, 2, 1] 8 65528", "float32[1, 1, 1] 32768", NULL,
     0},
    {"resize", "size=[1, 4]", "uint8[1, 2, 1] 0 8", "float32[1, 4, 1] 0 2 6 8", NULL, 0},
    {"resize", "size=[1, 4] antialias=false", "uint8[1, 2, 1] 0 8",
     "float32[1, 4, 1] 0 2 6 8", NULL, 0},
    {"resize", "size=[1, 2]", "float32[1, 4, 1] inf 1 1 nan", "float32[1, 2, 1] inf nan",
     NULL, 0},
    {"resize", "size=[1, 3]", "float32[1, 3, 1] 1 inf 2", "float32[1, 3, 1] 1 inf 2",
     NULL, 0},
    {"resize", "size=[2, 3]", "string[0]", "float32[0, 2, 3, 3]", NULL, 0},
    {"resize_shorter_side", "size=1", X13, "float32[1, 3, 1] 10 20 40", NULL, 0},
    {"resize_shorter_side", "size=2", "uint8[0, 3, 4, 1]", "float32[0, 2, 2, 1]", NULL,
     0},
    {"random_resized_crop", "size=[1, 1] scale=[1, 1] ratio=[1, 1]", X22,
     "float32[1, 1, 1] 2.5", NULL, 0},
    {"random_resized_crop", "size=[2, 2]", "string[0]", "float32[0, 2, 2, 3]", NULL, 0},
    {"normalize_image", "mean=10 std=2", X13, "float32[1, 1, 3] 0 5 15", NULL, 0},
    {"normalize_image", "mean=0 std=1", "float32[1, 2, 2] 1 -inf 3 nan",
     "float32[2, 1, 2] 1 3 -inf nan", NULL, 0},
    {"normalize_image", "mean=[1, 2] std=2 dtype=\"float16\"", "uint8[1, 1, 1, 2] 5 6",
     "float16[1, 2, 1, 1] 2 2", NULL, 0},
    /* tf.image's definitions; a third of a turn from red is green. */
    {"color_jitter", "brightness=[-4, -4]", X13, "float32[1, 3, 1] 6 16 36", NULL, 0},
    {"color_jitter", "contrast=[0.5, 0.5]", "uint8[1, 2, 2] 10 1 30 3",
     "float32[1, 2, 2] 15 1.5 25 2.5", NULL, 0},
    {"color_jitter", "saturation=[0, 0]", "uint8[1, 1, 3] 100 50 0",
     "float32[1, 1, 3] 100 100 100", NULL, 0},
    {"color_jitter", "saturation=[9, 9]", "uint8[1, 1, 3] 100 70 40",
     "float32[1, 1, 3] 100 50 0", NULL, 0},
    {"color_jitter", "hue=[0.5, 0.5]", "uint8[1, 1, 3] 8 0 0", "float32[1, 1, 3] 0 8 8",
     NULL, 0},
    {"color_jitter", "", X13, "float32[1, 3, 1] 10 20 40", NULL, 0},
    /* torchvision's: a factor, the mean of all, 0.2989 r + 0.587 g + 0.114 b. */
    {"color_jitter", "definition=\"torchvision\" brightness=[2, 2]",
     "uint8[1, 3, 1] 10 20 200", "float32[1, 3, 1] 20 40 255", NULL, 0},
    {"color_jitter", "definition=\"torchvision\" brightness=[8, 8] max_value=1.0",
     "float32[1, 2, 1] 0.125 0.5", "float32[1, 2, 1] 1 1", NULL, 0},
    {"color_jitter", "definition=\"torchvision\" contrast=[0.5, 0.5]",
     "uint8[1, 2, 1] 10 30", "float32[1, 2, 1] 15 25", NULL, 0},
    {"color_jitter", "definition=\"torchvision\" contrast=[0, 0]",
     "uint8[1, 2, 3] 100 50 0 0 0 100",
     "float32[1, 2, 3] 35.32 35.32 35.32 35.32 35.32 "
     "35.32",
     NULL, 0},
    {"color_jitter", "definition=\"torchvision\" saturation=[0, 0]",
     "uint8[1, 1, 3] 100 50 0", "float32[1, 1, 3] 59.24 59.24 59.24", NULL, 0},
    {"color_jitter", "definition=\"torchvision\" hue=[0.5, 0.5]", "uint8[1, 1, 3] 8 0 0",
     "float32[1, 1, 3] 0 8 8", NULL, 0},
    {"color_jitter", "definition=\"torchvision\"", X13, "float32[1, 3, 1] 10 20 40", NULL,
     0},
    {"color_jitter", "definition=\"pillow\"", X13, NULL, "definition is \"pillow\"", -1},
    {"color_jitter", "max_value=1.0", X13, NULL, "max_value needs", -1},
    {"color_jitter", "definition=\"torchvision\" brightness=[-1, 0]", X13, NULL,
     "brightness is [-1, 0]", -1},
    /* invalid arguments */
    {"decode_jpeg", "", "string[] \"\"", NULL, "the image is empty", -1},
    {"decode_jpeg", "", "string[] \"hello\"", NULL, "the 5 bytes are not a JPEG", -1},
    {"decode_png", "", "string[] \"\\xff\\xd8\\xff\\xe0\"", NULL,
     "the image is not PNG but JPEG: use decode_image", -1},
    {"decode_image", "", "string[] \"GIF89a\"", NULL, "not a JPEG or PNG image, but GIF",
     -1},
    {"decode_jpeg", "", "string[] \"\\xff\\xd8\\xff\"", NULL, "it is truncated", -1},
    {"decode_png", "", "string[] \"\\x89PNG\\x0d\\x0a\\x1a\\x0a\"", NULL,
     "it is truncated", -1},
    {"decode_jpeg", "", "string[1] \"a\"", NULL, "decode each in a map step", -1},
    {"decode_jpeg", "", "uint8[2, 2, 3] 1 1 1 1 1 1 1 1 1 1 1 1", NULL,
     "is not one string", -1},
    {"decode_jpeg", "channels=4", "string[] \"a\"", NULL, "channels is 4", -1},
    {"decode_png", "channels=2", "string[] \"a\"", NULL, "channels is 2", -1},
    {"decode_jpeg", "ratio=3", "string[] \"a\"", NULL, "ratio is 3", -1},
    {"decode_jpeg", "dct_method=\"FAST\"", "string[] \"a\"", NULL,
     "dct_method is \"FAST\"", -1},
    {"decode_png", "dtype=\"int8\"", "string[] \"a\"", NULL, "dtype is int8", -1},
    {"decode_jpeg", "", "string[] \"a\"\nfloat32[4] 0 0 1 1", NULL, "is not a window",
     -1},
    {"random_crop", "size=[1, 4]", X13, NULL, "the image has 1 x 3 pixels", -1},
    {"center_crop", "size=[1, 2]", "uint8[2, 1, 1, 1] 1 2", NULL, "less than the 1 x 2",
     0},
    {"center_crop", "", X13, NULL, "give either size or central_fraction", -1},
    {"center_crop", "central_fraction=0.0", X13, NULL, "central_fraction is 0", -1},
    {"center_crop", "central_fraction=0.5", "string[1] \"a\"", NULL, "may differ in size",
     -1},
    {"random_crop", "size=[1]", X13, NULL, "size has 1 numbers, not 2", -1},
    {"random_crop", "size=[0, 1]", X13, NULL, "both must be from 1 to 65535", -1},
    {"random_crop", "size=[1, 1]", "uint8[3, 1] 1 2 3", NULL, "not an image", -1},
    {"random_resized_crop", "size=[1, 1] scale=[0.5, 0.1]", X13, NULL,
     "scale is [0.5, 0.1]", -1},
    {"random_resized_crop", "size=[1, 1] ratio=[0, 1]", X13, NULL, "ratio is [0, 1]", -1},
    {"random_resized_crop", "size=[1, 1] dct_scaling=true", X13, NULL,
     "give the op the bytes", -1},
    {"random_resized_crop", "size=[1, 1]", "string[2] \"x\" \"y\"", NULL,
     "the 1 bytes are not a JPEG or PNG", 0},
    {"resize_bilinear", "size=[1, 1]", "int32[1, 1, 1] 1", NULL, "cast it to float32",
     -1},
    {"resize_bilinear", "size=[1, 1]", "uint8[0, 3, 1]", NULL, "has no pixels", -1},
    {"resize_bilinear", "size=[1, 1] align_corners=true", X13, NULL,
     "align_corners needs half_pixel", -1},
    {"resize", "size=[1, 1]", "int8[1, 1, 1] 1", NULL, "cast it to float32", -1},
    {"resize", "size=[1, 70000]", X13, NULL, "both must be from 1 to 65535", -1},
    {"resize", "size=[1, 1]", "uint8[3, 0, 1]", NULL, "has no pixels", -1},
    {"resize_shorter_side", "size=0", X13, NULL, "size", -1},
    {"resize_shorter_side", "size=1", "string[2] \"a\" \"b\"", NULL, "may differ in size",
     -1},
    {"resize_shorter_side", "size=30000", X13, NULL, "the other one would have 90000",
     -1},
    {"normalize_image", "mean=[1, 2] std=1", X13, NULL, "has 1 channels", -1},
    {"normalize_image", "mean=1 std=0", X13, NULL, "std contains a 0", -1},
    {"normalize_image", "mean=[1, 2] std=[1, 2, 3]", X13, NULL, "mean has 2 numbers", -1},
    {"normalize_image", "mean=1 std=1 dtype=\"int8\"", X13, NULL, "dtype is int8", -1},
    {"color_jitter", "hue=[0, 0.1]", X13, NULL, "need 3 channels, not 1", -1},
    {"color_jitter", "hue=[0, 0.6]", X13, NULL, "within -0.5 to 0.5", -1},
    {"color_jitter", "contrast=[1]", X13, NULL, "contrast is not a list of 2 numbers",
     -1},
};

static void cases_by_hand_give_what_they_should(void)
{
    for (size_t i = 0; i < N(by_hand); i++)
        op_case_check(&by_hand[i], false);
}

/* ---- a photograph ---- */

/* 160 x 120, grey. */
static struct stg_tensor big_jpeg(struct stg_bump *bump)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    unsigned char *bytes = NULL;
    unsigned long n = 0;
    struct stg_tensor ret = {.dtype = STAGER_STRING};
    c.err = jpeg_std_error(&errors);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &bytes, &n);
    c.image_width = 160;
    c.image_height = 120;
    c.input_components = 1;
    c.in_color_space = JCS_GRAYSCALE;
    jpeg_set_defaults(&c);
    jpeg_start_compress(&c, TRUE);
    while (c.next_scanline < c.image_height) {
        JSAMPLE row[160], *rows[1] = {row};
        for (unsigned x = 0; x < sizeof(row); x++)
            row[x] = (JSAMPLE)(x * c.next_scanline * 7);
        jpeg_write_scanlines(&c, rows, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    int64_t *offsets = stg_bump_alloc(bump, 2 * sizeof(*offsets));
    ret.data = stg_bump_alloc(bump, n);
    memcpy(ret.data, bytes, n);
    free(bytes);
    ret.data_bytes = n;
    offsets[1] = (int64_t)n;
    ret.begin = offsets;
    ret.end = offsets + 1;
    return ret;
}

/* ---- graphs ---- */

#define MAX_OUTPUTS 4

struct scene {
    struct fixture fx;
    struct stg_graph *graph;
    struct stg_run *run;
    struct stg_err err;
    struct stg_tensor outputs[MAX_OUTPUTS];
    struct stg_bump bump;
};

static void scene_init(struct scene *scene, const char *text)
{
    *scene = (struct scene){.err = {.row = -1}};
    CHECK_OK(fixture_parse(&scene->fx, text, &scene->err), scene->err);
    CHECK_OK(stg_graph_create(&scene->fx.spec, &scene->fx.element, NULL, &scene->graph,
                              &scene->err),
             scene->err);
    CHECK_OK(stg_run_create_stage(scene->graph, &scene->run, &scene->err), scene->err);
}

static void scene_finish(struct scene *scene)
{
    stg_run_destroy(scene->run);
    stg_graph_destroy(scene->graph);
    fixture_finish(&scene->fx);
    stg_bump_finish(&scene->bump);
}

static void scene_run(struct scene *scene, const struct stg_tensor *feeds,
                      struct stg_key key)
{
    CHECK_OK(stg_run_exec(scene->run, feeds, &key, NULL, scene->outputs, &scene->err),
             scene->err);
}

static bool same_bytes(const struct stg_tensor *a, const struct stg_tensor *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim && a->data_bytes == b->data_bytes &&
           memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof(a->shape[0])) == 0 &&
           memcmp(a->data, b->data, a->data_bytes) == 0;
}

/* The file of golden row i, as a scalar string. */
static struct stg_tensor file_of(struct stg_bump *bump, size_t i)
{
    const char *text = golden[i].inputs;
    struct stg_tensor file = case_tensor(bump, &text);
    CHECK_INT(file.dtype, STAGER_STRING);
    return file;
}

static bool is_jpeg(size_t i)
{
    return strcmp(golden[i].op, "decode_jpeg") == 0;
}

static void a_window_has_the_pixels_that_the_whole_has_there(void)
{
    struct scene whole, part;
    scene_init(&whole, "element f string []\ny = decode_image(f)\nfeature y = y\n");
    scene_init(&part, "element f string []\nelement w int64 [4]\n"
                      "y = decode_jpeg(f, w) channels=0\nfeature y = y\n");
    for (size_t i = 0; i < N(golden) && is_jpeg(i); i++) {
        struct stg_tensor feeds[2] = {file_of(&part.bump, i)};
        int64_t window[4], shape[1] = {4};
        scene_run(&whole, feeds, (struct stg_key){0});
        const int64_t *size = whole.outputs[0].shape;
        feeds[1] = fixture_dense(&part.bump, STAGER_INT64, 1, shape, window);
        for (int k = 0; k < 400; k++) {
            int64_t *w = feeds[1].data;
            w[0] = rand() % size[0], w[1] = rand() % size[1];
            w[2] = 1 + rand() % (size[0] - w[0]), w[3] = 1 + rand() % (size[1] - w[1]);
            scene_run(&part, feeds, (struct stg_key){0});
            const char *from = whole.outputs[0].data, *to = part.outputs[0].data;
            size_t row = (size_t)(w[3] * size[2]);
            for (int64_t y = 0; y < w[2]; y++)
                CHECK(memcmp(from + ((w[0] + y) * size[1] + w[1]) * size[2],
                             to + (size_t)y * row, row) == 0);
        }
    }
    scene_finish(&whole);
    scene_finish(&part);
}

static void a_window_outside_is_refused(void)
{
    static const int64_t windows[][4] = {
        {-1, 0, 1, 1}, {0, 0, 0, 1},  {0, 0, 14, 1},        {13, 0, 1, 1},
        {0, 20, 1, 2}, {1, 1, 1, -1}, {INT64_MAX, 0, 1, 1}, {1, 0, INT64_MAX, 1}};
    struct scene part;
    scene_init(&part, "element f string []\nelement w int64 [-1]\n"
                      "y = decode_jpeg(f, w)\nfeature y = y\n");
    for (size_t i = 0; i < N(windows); i++) {
        int64_t shape[1] = {4};
        struct stg_tensor feeds[2] = {
            file_of(&part.bump, 0),
            fixture_dense(&part.bump, STAGER_INT64, 1, shape, windows[i])};
        CHECK_INT(stg_run_exec(part.run, feeds, NULL, NULL, part.outputs, &part.err),
                  -STAGER_INVALID_ARGUMENT);
        CHECK_CONTAINS(part.err.text, "is not inside the image");
    }
    scene_finish(&part);
}

/* A feature that reads an intermediate tensor prevents the fusion of the ops. */
static void ops_that_run_as_one_give_what_they_give_one_by_one(void)
{
    static const char *const heads[] = {
        "element f string []\na = random_resized_crop(f) size=[6, 5] seed=3\n",
        "element f string []\na = random_crop(f) size=[4, 5] seed=3\n",
        "element f string []\na = center_crop(f) central_fraction=0.5\n",
        "element f string []\na = decode_image(f) channels=3\n",
        ("element f string []\nd = decode_image(f) channels=3\n"
         "a = resize_bilinear(d) size=[7, 30] half_pixel_centers=false\n"),
        "element f string []\na = random_resized_crop(f) size=[6, 5] antialias=true\n",
        "element f string []\na = resize(f) size=[5, 7] antialias=false\n",
    };
    static const char tail[] = "b = random_flip(a) seed=7 up_down=true\n"
                               "c = normalize_image(b)" MEAN_STD "\nfeature c = c\n";
    for (size_t h = 0; h < N(heads); h++) {
        char text[1024];
        struct scene one, each;
        snprintf(text, sizeof(text), "%s%s", heads[h], tail);
        scene_init(&one, text);
        snprintf(text, sizeof(text), "%s%sfeature a = a\nfeature b = b\n", heads[h],
                 tail);
        scene_init(&each, text);
        for (size_t i = 0; i < N(golden) && is_jpeg(i); i++) {
            struct stg_tensor file = file_of(&one.bump, i);
            struct stg_key key = {.epoch = i, .index = 5 * i};
            scene_run(&one, &file, key);
            scene_run(&each, &file, key);
            if (!same_bytes(&one.outputs[0], &each.outputs[0]))
                FAIL("head %zu, row %zu differ", h, i);
        }
        scene_finish(&one);
        scene_finish(&each);
    }
}

/* Of a crop behind the resize no more is decoded than it is made of. */
static void a_part_of_what_is_resized_is_what_the_ops_give_one_by_one(void)
{
    static const char *const heads[] = {
        "r = resize_shorter_side(f) size=5\n",
        "r = resize_shorter_side(f) size=5 antialias=false\n",
        "r = resize_shorter_side(f) size=30\n",
        "r = resize(f) size=[4, 6]\n",
        "d = decode_image(f) channels=3\nr = resize_shorter_side(d) size=6\n",
        "d = decode_image(f) channels=3\nr = resize_bilinear(d) size=[11, 9]\n",
        "d = center_crop(f) central_fraction=0.7\nr = resize_shorter_side(d) size=4\n",
        "r = random_resized_crop(f) size=[6, 6] antialias=true dct_scaling=true\n",
    };
    static const char *const crops[] = {"center_crop(r) size=[4, 3]",
                                        "center_crop(r) central_fraction=0.4",
                                        "random_crop(r) size=[2, 4] seed=4"};
    for (size_t h = 0; h < N(heads) * N(crops); h++) {
        char text[1024];
        struct scene one, each;
        int n = snprintf(text, sizeof(text),
                         "element f string []\n%sa = %s\nb = random_flip(a) seed=7\n"
                         "c = normalize_image(b)" MEAN_STD "\nfeature c = c\n",
                         heads[h / N(crops)], crops[h % N(crops)]);
        scene_init(&one, text);
        snprintf(text + n, sizeof(text) - (size_t)n, "feature r = r\nfeature a = a\n");
        scene_init(&each, text);
        for (size_t i = 0; i < N(golden) && is_jpeg(i); i++) {
            struct stg_tensor file = file_of(&one.bump, i);
            struct stg_key key = {.epoch = i, .index = 5 * i};
            scene_run(&one, &file, key);
            scene_run(&each, &file, key);
            if (!same_bytes(&one.outputs[0], &each.outputs[0]))
                FAIL("head %zu, row %zu differ", h, i);
        }
        scene_finish(&one);
        scene_finish(&each);
    }
}

/* ---- antialias: by its definition, a sum over all pixels of the image ---- */

static double triangle(double in, double out, int64_t i, int64_t pixel)
{
    double scale = in / out, radius = scale > 1 ? scale : 1;
    double weight = 1 - fabs((double)pixel + 0.5 - ((double)i + 0.5) * scale) / radius;
    return weight > 0 ? weight : 0;
}

static double average(const struct stg_tensor *image, const struct stg_tensor *resized,
                      int64_t y, int64_t x, int64_t channel)
{
    const int64_t *in = image->shape, *out = resized->shape;
    double sum = 0, weights = 0;
    for (int64_t i = 0; i < in[0]; i++) {
        double down = triangle((double)in[0], (double)out[0], y, i);
        for (int64_t j = 0; down > 0 && j < in[1]; j++) {
            double weight = down * triangle((double)in[1], (double)out[1], x, j);
            int64_t at = (i * in[1] + j) * in[2] + channel;
            double pixel = image->dtype == STAGER_UINT8
                               ? ((const uint8_t *)image->data)[at]
                           : image->dtype == STAGER_UINT16
                               ? ((const uint16_t *)image->data)[at]
                               : (double)((const float *)image->data)[at];
            sum += pixel * weight;
            weights += weight;
        }
    }
    return sum / weights;
}

static struct stg_tensor random_image(struct stg_bump *bump, struct random *random,
                                      int dtype, const int64_t *shape)
{
    struct stg_tensor ret = {.dtype = dtype, .ndim = 3};
    memcpy(ret.shape, shape, 3 * sizeof(shape[0]));
    int64_t n = stg_tensor_n(&ret);
    ret.data_bytes = (uint64_t)n * stg_dtype_bytes(dtype);
    ret.data = stg_bump_alloc(bump, ret.data_bytes);
    CHECK(ret.data != NULL);
    for (int64_t i = 0; i < n; i++) {
        uint8_t value = (uint8_t)random_next(random);
        if (dtype == STAGER_UINT8)
            ((uint8_t *)ret.data)[i] = value;
        else if (dtype == STAGER_UINT16)
            ((uint16_t *)ret.data)[i] = value;
        else
            ((float *)ret.data)[i] = value;
    }
    return ret;
}

static void antialias_weighs_all_pixels_below_a_triangle(void)
{
    static const int dtypes[] = {STAGER_UINT8, STAGER_UINT8, STAGER_UINT16,
                                 STAGER_FLOAT32};
    static const int64_t sides[] = {1, 2, 3, 7, 16, 31, 64, 101};
    struct random random = {9};
    for (int k = 0; k < 150; k++) {
        char text[256];
        struct scene scene;
        int dtype = dtypes[random_next(&random) % N(dtypes)];
        int64_t shape[3] = {sides[random_next(&random) % N(sides)],
                            sides[random_next(&random) % N(sides)],
                            (int64_t)(random_next(&random) % 4 + 1)};
        snprintf(text, sizeof(text),
                 "element f %s [-1, -1, -1]\ny = resize(f) size=[%lld, %lld]\n"
                 "feature y = y\n",
                 stg_dtype_name(dtype), (long long)sides[random_next(&random) % N(sides)],
                 (long long)sides[random_next(&random) % N(sides)]);
        scene_init(&scene, text);
        struct stg_tensor image = random_image(&scene.bump, &random, dtype, shape);
        scene_run(&scene, &image, (struct stg_key){0});
        const struct stg_tensor *got = &scene.outputs[0];
        const float *pixel = got->data;
        for (int64_t i = 0; i < stg_tensor_n(got); i++) {
            int64_t at = i / shape[2], width = got->shape[1];
            double want = average(&image, got, at / width, at % width, i % shape[2]);
            if (!(fabs(want - (double)pixel[i]) < 1e-3))
                FAIL("%s at %lld: %g, not %g", text, (long long)i, (double)pixel[i],
                     want);
        }
        scene_finish(&scene);
    }
}

/* Height, width and size; what Python's int(size * longer / shorter) gives. */
static void the_longer_side_follows_the_shorter_one(void)
{
    static const int64_t sizes[][5] = {
        {375, 500, 256, 256, 341}, {500, 375, 256, 341, 256}, {333, 500, 256, 256, 384},
        {256, 256, 256, 256, 256}, {7, 3, 2, 4, 2},           {3, 7, 50, 50, 116},
        {1, 49, 49, 49, 2401},     {100, 29, 29, 100, 29},    {480, 640, 232, 232, 309}};
    for (size_t i = 0; i < N(sizes); i++) {
        char text[256];
        struct scene scene;
        struct random random = {i};
        const int64_t *s = sizes[i], shape[3] = {s[0], s[1], 1};
        snprintf(text, sizeof(text),
                 "element f uint8 [-1, -1, 1]\ny = resize_shorter_side(f) size=%lld\n"
                 "feature y = y\n",
                 (long long)s[2]);
        scene_init(&scene, text);
        struct stg_tensor image = random_image(&scene.bump, &random, STAGER_UINT8, shape);
        scene_run(&scene, &image, (struct stg_key){0});
        CHECK_INT(scene.outputs[0].shape[0], s[3]);
        CHECK_INT(scene.outputs[0].shape[1], s[4]);
        scene_finish(&scene);
    }
}

/* ---- EXIF ---- */

/* The JPEG with an APP1 marker that holds the orientation. */
static struct stg_tensor with_exif(struct stg_bump *bump, const struct stg_tensor *jpeg,
                                   int orientation, bool big_endian)
{
    static const uint8_t little[] = "\xff\xe1\0\x22"
                                    "Exif\0\0II*\0\x08\0\0\0\x01\0"
                                    "\x12\x01\x03\0\x01\0\0\0o\0\0\0\0\0\0\0";
    static const uint8_t big[] = "\xff\xe1\0\x22"
                                 "Exif\0\0MM\0*\0\0\0\x08\0\x01"
                                 "\x01\x12\0\x03\0\0\0\x01\0o\0\0\0\0\0\0";
    size_t n = sizeof(big) - 1;
    struct stg_tensor ret = {.dtype = STAGER_STRING};
    int64_t *offsets = stg_bump_alloc(bump, 2 * sizeof(*offsets));
    uint8_t *bytes = stg_bump_alloc(bump, jpeg->data_bytes + n);
    CHECK(sizeof(little) == sizeof(big) && n == 2 + 0x22);
    memcpy(bytes, jpeg->data, 2);
    memcpy(bytes + 2, big_endian ? big : little, n);
    bytes[2 + (big_endian ? 29 : 28)] = (uint8_t)orientation;
    memcpy(bytes + 2 + n, (const char *)jpeg->data + 2, jpeg->data_bytes - 2);
    ret.data = bytes;
    ret.data_bytes = jpeg->data_bytes + n;
    offsets[1] = (int64_t)ret.data_bytes;
    ret.begin = offsets;
    ret.end = offsets + 1;
    return ret;
}

/* Where the pixel y, x of the turned image is stored, by the names of the EXIF standard:
 * what the first row and the first column of what is stored are. */
static int64_t stored_at(int orientation, const int64_t *shape, int64_t y, int64_t x)
{
    int64_t bottom = shape[0] - 1, right = shape[1] - 1;
    switch (orientation) {
    case 2: x = right - x; break;                         /* top, right */
    case 3: y = bottom - y, x = right - x; break;         /* bottom, right */
    case 4: y = bottom - y; break;                        /* bottom, left */
    case 5: return x * shape[1] + y;                      /* left, top */
    case 6: return (bottom - x) * shape[1] + y;           /* right, top */
    case 7: return (bottom - x) * shape[1] + (right - y); /* right, bottom */
    case 8: return x * shape[1] + (right - y);            /* left, bottom */
    default: break;
    }
    return y * shape[1] + x;
}

static void exif_turns_and_mirrors(void)
{
    struct scene plain, turned;
    scene_init(&plain, "element f string []\ny = decode_jpeg(f)\nfeature y = y\n");
    scene_init(&turned, "element f string []\n"
                        "y = decode_jpeg(f) apply_exif_orientation=true\n"
                        "feature y = y\n");
    for (size_t i = 0; i < N(golden) && is_jpeg(i); i += 5) {
        struct stg_tensor file = file_of(&plain.bump, i);
        scene_run(&plain, &file, (struct stg_key){0});
        for (int k = 0; k <= 19; k++) {
            struct stg_tensor other = with_exif(&plain.bump, &file, k % 10, k >= 10);
            const struct stg_tensor *from = &plain.outputs[0], *to = &turned.outputs[0];
            scene_run(&turned, &other, (struct stg_key){0});
            bool swaps = k % 10 >= 5 && k % 10 <= 8;
            size_t pixel = (size_t)from->shape[2];
            CHECK_INT(to->shape[0], from->shape[swaps]);
            CHECK_INT(to->shape[1], from->shape[!swaps]);
            for (int64_t at = 0; at < to->shape[0] * to->shape[1]; at++) {
                int64_t stored =
                    stored_at(k % 10, from->shape, at / to->shape[1], at % to->shape[1]);
                CHECK(memcmp((const char *)to->data + (size_t)at * pixel,
                             (const char *)from->data + (size_t)stored * pixel,
                             pixel) == 0);
            }
        }
    }
    scene_finish(&plain);
    scene_finish(&turned);
}

/* Crops and resizes of encoded images have the pixels of the turned whole. */
static void parts_of_a_turned_image_are_parts_of_the_whole(void)
{
    static const char *const ops[] = {
        "random_crop(%s) size=[3, 4] seed=1%s",
        "random_resized_crop(%s) size=[5, 4] seed=2%s",
        "resize(%s) size=[4, 5]%s",
        "center_crop(%s) central_fraction=0.4%s",
    };
    for (size_t k = 0; k < N(ops); k++) {
        char text[512], part[128], whole[128];
        struct scene scene;
        snprintf(part, sizeof(part), ops[k], "f", " apply_exif_orientation=true");
        snprintf(whole, sizeof(whole), ops[k], "d", "");
        snprintf(text, sizeof(text),
                 "element f string []\n"
                 "d = decode_image(f) channels=3 apply_exif_orientation=true\n"
                 "a = %s\nb = %s\nfeature a = a\nfeature b = b\nfeature d = d\n",
                 part, whole);
        scene_init(&scene, text);
        struct stg_tensor file = file_of(&scene.bump, 0);
        for (int orientation = 1; orientation <= 8; orientation++) {
            struct stg_tensor other = with_exif(&scene.bump, &file, orientation, false);
            for (uint64_t index = 0; index < 20; index++) {
                scene_run(&scene, &other, (struct stg_key){.index = index});
                if (!same_bytes(&scene.outputs[0], &scene.outputs[1]))
                    FAIL("%s, orientation %d, index %d", part, orientation, (int)index);
            }
        }
        scene_finish(&scene);
    }
}

/* The bytes of the file end early: behind what the middle is made of. */
static void what_lies_behind_a_part_is_not_decoded(void)
{
    struct scene part, whole;
    scene_init(&part, "element f string []\nr = resize_shorter_side(f) size=64\n"
                      "y = center_crop(r) size=[20, 20]\nfeature y = y\n");
    scene_init(&whole, "element f string []\nd = decode_image(f) channels=3\n"
                       "r = resize_shorter_side(d) size=64\n"
                       "y = center_crop(r) size=[20, 20]\nfeature y = y\n");
    struct stg_tensor file = big_jpeg(&part.bump);
    scene_run(&part, &file, (struct stg_key){0});
    scene_run(&whole, &file, (struct stg_key){0});
    CHECK(same_bytes(&part.outputs[0], &whole.outputs[0]));
    int64_t offsets[2] = {0, (int64_t)(file.data_bytes * 4 / 5)};
    file.begin = offsets;
    file.end = offsets + 1;
    scene_run(&part, &file, (struct stg_key){0});
    CHECK(same_bytes(&part.outputs[0], &whole.outputs[0]));
    CHECK_INT(stg_run_exec(whole.run, &file, NULL, NULL, whole.outputs, &whole.err),
              -STAGER_INVALID_ARGUMENT);
    CHECK_CONTAINS(whole.err.text, "it is truncated");
    scene_finish(&part);
    scene_finish(&whole);
}

static void a_smaller_dct_gives_nearly_the_same_image(void)
{
    struct scene exact, scaled;
    scene_init(&exact, "element f string []\n"
                       "y = random_resized_crop(f) size=[3, 3] scale=[0.9, 1.0] seed=1\n"
                       "feature y = y\n");
    scene_init(&scaled, "element f string []\ny = random_resized_crop(f) size=[3, 3] "
                        "scale=[0.9, 1.0] seed=1 dct_scaling=true\nfeature y = y\n");
    struct stg_tensor file = file_of(&exact.bump, 0);
    scene_run(&exact, &file, (struct stg_key){0});
    scene_run(&scaled, &file, (struct stg_key){0});
    const float *a = exact.outputs[0].data, *b = scaled.outputs[0].data;
    double sum = 0;
    for (int i = 0; i < 27; i++)
        sum += fabs((double)(a[i] - b[i]));
    CHECK(sum > 0 && sum / 27 < 60);
    scene_finish(&exact);
    scene_finish(&scaled);
}

/* ---- randomness ---- */

#define SIDE 64

/* A batch of images in which each pixel holds its position. */
static struct stg_tensor places(struct stg_bump *bump, int64_t n)
{
    int64_t shape[4] = {n, SIDE, SIDE, 2};
    struct stg_tensor ret = {.dtype = STAGER_FLOAT32, .ndim = 4};
    memcpy(ret.shape, shape, sizeof(shape));
    ret.data_bytes = (uint64_t)stg_tensor_n(&ret) * sizeof(float);
    float *to = ret.data = stg_bump_alloc(bump, ret.data_bytes);
    CHECK(to != NULL);
    for (int64_t i = 0; i < n * SIDE * SIDE; i++) {
        *to++ = (float)(i / SIDE % SIDE);
        *to++ = (float)(i % SIDE);
    }
    return ret;
}

static void what_is_drawn_depends_on_seed_pass_epoch_index_and_row_alone(void)
{
    static const struct stg_key keys[] = {
        {0, 0, 0, 0}, {0, 0, 0, 1}, {0, 0, 1, 0}, {0, 1, 0, 0}, {1, 0, 0, 0}};
    static const char text[] = "element f float32 [-1, 64, 64, 2]\n"
                               "y = random_crop(f) size=[1, 1]\n"
                               "z = random_crop(f) size=[1, 1]\n"
                               "s = random_crop(f) size=[1, 1] seed=9\n"
                               "t = random_crop(f) size=[1, 1] seed=9\n"
                               "feature y = y\nfeature z = z\nfeature s = s\n"
                               "feature t = t\n";
    float seen[N(keys)][2][16][2];
    struct scene scene;
    scene_init(&scene, text);
    struct stg_tensor images = places(&scene.bump, 16);
    for (size_t k = 0; k < N(keys); k++) {
        scene_run(&scene, &images, keys[k]);
        memcpy(seen[k][0], scene.outputs[0].data, sizeof(seen[k][0]));
        memcpy(seen[k][1], scene.outputs[1].data, sizeof(seen[k][1]));
        CHECK(same_bytes(&scene.outputs[2], &scene.outputs[3]));
        scene_run(&scene, &images, keys[k]);
        CHECK(memcmp(seen[k][0], scene.outputs[0].data, sizeof(seen[k][0])) == 0);
    }
    /* 160 places of 4096: a few coincide by chance. */
    float(*flat)[2] = &seen[0][0][0];
    int meet = 0;
    for (size_t i = 0; i < N(keys) * 32; i++) {
        for (size_t j = 0; j < i; j++)
            meet += flat[i][0] == flat[j][0] && flat[i][1] == flat[j][1];
    }
    CHECK(meet < 15);
    scene_finish(&scene);
}

static void draws_are_uniform(void)
{
    struct scene scene;
    int n = 0, at[4] = {0};
    scene_init(&scene, "element f float32 [-1, 64, 64, 2]\n"
                       "c = random_crop(f) size=[33, 33]\n"
                       "y = random_flip(c) up_down=true\nfeature y = y\nfeature c = c\n");
    struct stg_tensor images = places(&scene.bump, 8);
    double sum[2] = {0};
    for (uint64_t index = 0; index < 250; index++) {
        scene_run(&scene, &images, (struct stg_key){.index = index});
        for (int row = 0; row < 8; row++, n++) {
            const float *flipped = (float *)scene.outputs[0].data + row * 33 * 33 * 2;
            const float *cropped = (float *)scene.outputs[1].data + row * 33 * 33 * 2;
            at[2 * (flipped[0] != cropped[0]) + (flipped[1] != cropped[1])]++;
            sum[0] += (double)cropped[0];
            sum[1] += (double)cropped[1];
        }
    }
    /* Five standard deviations of 2000 draws. */
    for (int i = 0; i < 4; i++)
        CHECK(abs(at[i] - n / 4) < 97);
    CHECK(fabs(sum[0] / n - 15.5) < 1.04 && fabs(sum[1] / n - 15.5) < 1.04);
    scene_finish(&scene);
}

/* The corners of the result give the position of the window. */
static void a_resized_crop_has_the_area_and_the_ratio_asked_for(void)
{
    struct scene scene;
    scene_init(&scene, "element f float32 [-1, 64, 64, 2]\n"
                       "y = random_resized_crop(f) size=[64, 64] scale=[0.2, 0.5] "
                       "ratio=[0.5, 2.0]\nfeature y = y\n");
    struct stg_tensor images = places(&scene.bump, 8);
    double least = 1, most = 0;
    for (uint64_t index = 0; index < 50; index++) {
        scene_run(&scene, &images, (struct stg_key){.index = index});
        for (int row = 0; row < 8; row++) {
            const float *p = (float *)scene.outputs[0].data + row * SIDE * SIDE * 2;
            double height = (double)(p[(SIDE * SIDE - 1) * 2] - p[0]) + 1;
            double width = (double)(p[(SIDE * SIDE - 1) * 2 + 1] - p[1]) + 1;
            double area = height * width / (SIDE * SIDE);
            CHECK(area > 0.18 && area < 0.53);
            CHECK(width / height > 0.46 && width / height < 2.2);
            least = area < least ? area : least;
            most = area > most ? area : most;
        }
    }
    CHECK(least < 0.23 && most > 0.47);
    scene_finish(&scene);
}

/* ---- damaged and oversized images ---- */

static void a_damaged_file_is_refused_or_decoded_within_its_bounds(void)
{
    struct scene scene;
    struct random random = {1};
    scene_init(&scene, "element f string []\n"
                       "y = random_resized_crop(f) size=[5, 5] dct_scaling=true\n"
                       "z = decode_image(f) try_recover_truncated=true "
                       "apply_exif_orientation=true\n"
                       "r = resize_shorter_side(f) size=7 apply_exif_orientation=true\n"
                       "c = center_crop(r) size=[5, 5]\n"
                       "feature y = y\nfeature z = z\nfeature c = c\n");
    for (size_t i = 0; i < N(golden); i += is_jpeg(i) ? 5 : 9) {
        const char *text = golden[i].inputs;
        struct stg_tensor file = case_tensor(&scene.bump, &text);
        if (file.dtype != STAGER_STRING)
            continue;
        size_t n = (size_t)file.end[0];
        for (size_t k = 0; k < 2 * n; k++) {
            /* Truncated, or with another byte, in memory of exactly its size. */
            size_t bytes = k < n ? k : n;
            char *exact = malloc(bytes + 1);
            int64_t offsets[2] = {0, (int64_t)bytes};
            CHECK(exact != NULL);
            memcpy(exact, file.data, bytes);
            if (k >= n)
                exact[k - n] = (char)random_next(&random);
            struct stg_tensor feed = {.dtype = STAGER_STRING,
                                      .data = exact,
                                      .data_bytes = bytes,
                                      .begin = offsets,
                                      .end = offsets + 1};
            int rc = stg_run_exec(scene.run, &feed, &(struct stg_key){.index = k}, NULL,
                                  scene.outputs, &scene.err);
            CHECK(rc == 0 || rc == -STAGER_INVALID_ARGUMENT);
            free(exact);
        }
    }
    scene_finish(&scene);
}

static void an_image_that_would_be_huge_is_not_decoded(void)
{
    struct scene scene;
    scene_init(&scene, "element f string []\ny = decode_image(f)\nfeature y = y\n");
    for (size_t i = 0; i < N(golden); i += is_jpeg(i) ? 5 : 20) {
        const char *text = golden[i].inputs;
        struct stg_tensor file = case_tensor(&scene.bump, &text);
        if (file.dtype != STAGER_STRING)
            continue;
        uint8_t *bytes = file.data;
        size_t at = 16; /* of a PNG's sizes; a JPEG has them in its frame header */
        if (is_jpeg(i)) {
            at = 2;
            while (!(bytes[at] == 0xff && bytes[at + 1] >= 0xc0 && bytes[at + 1] <= 0xc2))
                at += 2 + (size_t)bytes[at + 2] * 256 + bytes[at + 3];
            memset(bytes + at + 5, 0xfe, 4);
        } else {
            memset(bytes + at + 1, 0x01, 2);
            memset(bytes + at + 5, 0x01, 2);
        }
        CHECK_INT(stg_run_exec(scene.run, &file, NULL, NULL, scene.outputs, &scene.err),
                  -STAGER_INVALID_ARGUMENT);
        if (is_jpeg(i))
            CHECK_CONTAINS(scene.err.text, "max_pixels is 67108864");
    }
    scene_finish(&scene);
}

/* ---- memory, instructions ---- */

static struct stg_tensor some_file;

static int decode_once(void *owner)
{
    struct scene *scene = owner;
    struct stg_run *run = NULL;
    int rc = stg_run_create_stage(scene->graph, &run, &scene->err);
    if (rc == 0)
        rc = stg_run_exec(run, &some_file, NULL, NULL, scene->outputs, &scene->err);
    stg_run_destroy(run);
    return rc;
}

static void a_failed_allocation_is_an_error(void)
{
    struct scene scene;
    scene_init(&scene, "element f string [-1]\n"
                       "a = random_resized_crop(f) size=[64, 64]\nb = random_flip(a)\n"
                       "c = normalize_image(b)" MEAN_STD "\nfeature c = c\n");
    const char *text = golden[0].inputs;
    some_file = case_tensor(&scene.bump, &text);
    some_file.ndim = 1;
    some_file.shape[0] = 1;
    CHECK(stg_failalloc_each(decode_once, &scene) > 0);
    scene_finish(&scene);
}

static void every_set_of_instructions_gives_the_same(void)
{
    enum { PIXELS = 200, MOST = 150, STRIDE = 160 };
    static uint8_t row[PIXELS * 3];
    static float want[3 * STRIDE], got[3 * STRIDE], sums[3 * STRIDE + 1], mixed[2][MOST];
    static uint16_t halves[2][MOST];
    size_t n;
    struct random random = {5};
    const struct stg_image_kernels *const *all = stg_image_kernels_all(&n);
    for (size_t i = 0; i < sizeof(row); i++)
        row[i] = (uint8_t)random_next(&random);
    for (size_t k = 1; k < n; k++) {
        for (int64_t m = 0; m <= MOST; m++) {
            int32_t low[MOST], high[MOST];
            float lerp[MOST];
            for (int64_t i = 0; i < m; i++) {
                low[i] = (int32_t)(random_next(&random) % PIXELS);
                high[i] = low[i] + 1 < PIXELS ? low[i] + 1 : low[i];
                lerp[i] = (float)(random_next(&random) % 1000) / 1000;
            }
            struct stg_image_taps taps = {low, high, lerp, m};
            memset(got, 0, sizeof(got));
            memset(want, 0, sizeof(want));
            all[0]->take_rgb(row, sizeof(row), &taps, want, STRIDE);
            all[k]->take_rgb(row, sizeof(row), &taps, got, STRIDE);
            CHECK(memcmp(want, got, sizeof(got)) == 0);
            const uint8_t *rows[9];
            float weights[9 * MOST];
            for (int i = 0; i < 9; i++)
                rows[i] = row + i * 7;
            for (int64_t i = 0; i < 9 * m; i++)
                weights[i] = (float)(random_next(&random) % 1000) / 1000;
            for (int64_t i = 0; i < m; i++)
                low[i] = (int32_t)(random_next(&random) % (STRIDE - 9));
            struct stg_image_weights many = {low, weights, m % 9 + 1, m};
            all[0]->blend(rows, weights, m % 9 + 1, 3 * m, want);
            all[k]->blend(rows, weights, m % 9 + 1, 3 * m, got);
            CHECK(memcmp(want, got, sizeof(got)) == 0);
            memcpy(sums, want, sizeof(want));
            all[0]->gather_rgb(sums, &many, want, STRIDE);
            all[k]->gather_rgb(sums, &many, got, STRIDE);
            CHECK(memcmp(want, got, sizeof(got)) == 0);
            all[0]->mix_normalize(want, want + STRIDE, 0.3f, m, 3, 7, mixed[0]);
            all[k]->mix_normalize(want, want + STRIDE, 0.3f, m, 3, 7, mixed[1]);
            all[0]->mix_normalize_half(want, NULL, 0, m, 3, 7e4f, halves[0]);
            all[k]->mix_normalize_half(want, NULL, 0, m, 3, 7e4f, halves[1]);
            CHECK(memcmp(mixed[0], mixed[1], sizeof(mixed[0])) == 0);
            CHECK(memcmp(halves[0], halves[1], sizeof(halves[0])) == 0);
        }
    }
    if (n == 1)
        SKIP("there is one set alone");
}

static const struct stg_test tests[] = {
    TEST(images_are_what_tensorflow_gives),
    TEST(cases_by_hand_give_what_they_should),
    TEST(a_window_has_the_pixels_that_the_whole_has_there),
    TEST(a_window_outside_is_refused),
    TEST(ops_that_run_as_one_give_what_they_give_one_by_one),
    TEST(a_part_of_what_is_resized_is_what_the_ops_give_one_by_one),
    TEST(antialias_weighs_all_pixels_below_a_triangle),
    TEST(the_longer_side_follows_the_shorter_one),
    TEST(exif_turns_and_mirrors),
    TEST(parts_of_a_turned_image_are_parts_of_the_whole),
    TEST(what_lies_behind_a_part_is_not_decoded),
    TEST(a_smaller_dct_gives_nearly_the_same_image),
    TEST(what_is_drawn_depends_on_seed_pass_epoch_index_and_row_alone),
    TEST(draws_are_uniform),
    TEST(a_resized_crop_has_the_area_and_the_ratio_asked_for),
    TEST_SLOW(a_damaged_file_is_refused_or_decoded_within_its_bounds, 60),
    TEST(an_image_that_would_be_huge_is_not_decoded),
    TEST(a_failed_allocation_is_an_error),
    TEST(every_set_of_instructions_gives_the_same),
};
TEST_MAIN(tests)
