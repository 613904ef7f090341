/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>

#include "ops/base/element.h"
#include "ops/base/random.h"
#include "ops/kernels/image/image.h"

static int given(const struct stg_op_run *ctx, int64_t height, int64_t width,
                 struct stg_image_window *ret, struct stg_err *err)
{
    const struct stg_tensor *input = &ctx->inputs[1];
    int64_t w[4];
    if (input->shape[0] != 4)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "the window has %" PRId64
                       " numbers, not 4: y, x, height and width",
                       input->shape[0]);
    for (int i = 0; i < 4; i++)
        w[i] = stg_tensor_index(input, i);
    *ret = (struct stg_image_window){w[0], w[1], w[2], w[3]};
    if (w[0] >= 0 && w[1] >= 0 && w[2] >= 1 && w[3] >= 1 && w[0] < height &&
        w[1] < width && w[2] <= height - w[0] && w[3] <= width - w[1])
        return 0;
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "the window y %" PRId64 ", x %" PRId64 ", height %" PRId64
                   ", width %" PRId64 " is not inside the image, which has %" PRId64
                   " x %" PRId64 " pixels (height x width)",
                   w[0], w[1], w[2], w[3], height, width);
}

/* torchvision's RandomResizedCrop.get_params. */
static void random_resized(const struct stg_image_crop *crop,
                           struct stg_op_random *random, int64_t height, int64_t width,
                           struct stg_image_window *ret)
{
    double area = (double)height * (double)width;
    for (int i = 0; i < 10; i++) {
        double part =
            area * stg_op_random_between(random, crop->scale[0], crop->scale[1]);
        double ratio =
            exp(stg_op_random_between(random, log(crop->ratio[0]), log(crop->ratio[1])));
        int64_t w = llrint(sqrt(part * ratio)), h = llrint(sqrt(part / ratio));
        if (w < 1 || h < 1 || w > width || h > height)
            continue;
        *ret = (struct stg_image_window){.height = h, .width = w};
        ret->y = stg_op_random_below(random, height - h + 1);
        ret->x = stg_op_random_below(random, width - w + 1);
        return;
    }
    double ratio = (double)width / (double)height;
    *ret = (struct stg_image_window){.height = height, .width = width};
    if (ratio < crop->ratio[0])
        ret->height = llrint((double)width / crop->ratio[0]);
    else if (ratio > crop->ratio[1])
        ret->width = llrint((double)height * crop->ratio[1]);
    ret->height = ret->height < 1 ? 1 : ret->height > height ? height : ret->height;
    ret->width = ret->width < 1 ? 1 : ret->width > width ? width : ret->width;
    ret->y = (height - ret->height) / 2;
    ret->x = (width - ret->width) / 2;
}

/* tf.image.central_crop: what is left out at each side is rounded down. */
static void central(double fraction, int64_t height, int64_t width,
                    struct stg_image_window *ret)
{
    ret->y = (int64_t)(((double)height - (double)height * fraction) / 2);
    ret->x = (int64_t)(((double)width - (double)width * fraction) / 2);
    ret->height = height - 2 * ret->y;
    ret->width = width - 2 * ret->x;
}

/* torchvision's CenterCrop: half of what is left out, half a pixel to the even number. */
static int64_t center(int64_t side, int64_t crop)
{
    int64_t half = (side - crop) / 2, odd = (side - crop) % 2;
    return half + (odd & half);
}

int stg_image_resized(const struct stg_image_resize *resize, int64_t height,
                      int64_t width, int64_t *ret_height, int64_t *ret_width,
                      struct stg_err *err)
{
    bool wide = height < width;
    int64_t shorter = wide ? height : width, side = resize->shorter_side;
    if (shorter < 1)
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "the image has no pixels");
    if (side == 0) {
        *ret_height = resize->height;
        *ret_width = resize->width;
        return 0;
    }
    double longer = (double)side * (double)(wide ? width : height) / (double)shorter;
    if (longer >= STG_IMAGE_MAX_SIDE + 1)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "the image has %" PRId64 " x %" PRId64
                       " pixels (height x width); with a shorter side of %" PRId64
                       " the other one would have %.0f, and the most is %d",
                       height, width, side, longer, STG_IMAGE_MAX_SIDE);
    *ret_height = wide ? side : (int64_t)longer;
    *ret_width = wide ? (int64_t)longer : side;
    return 0;
}

int stg_image_window(const struct stg_image_crop *crop, const struct stg_op_run *ctx,
                     uint64_t row, int64_t height, int64_t width,
                     struct stg_image_window *ret, struct stg_err *err)
{
    struct stg_op_random random;
    if (crop->kind == STG_IMAGE_CROP_GIVEN)
        return given(ctx, height, width, ret, err);
    stg_op_random_init(&random, &ctx->key, crop->seed, row);
    if (height < 1 || width < 1 || height < crop->height || width < crop->width)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "the image has %" PRId64 " x %" PRId64
                       " pixels (height x width), less than the %" PRId64 " x %" PRId64
                       " of the crop; resize it before",
                       height, width, crop->height, crop->width);
    *ret = (struct stg_image_window){.height = crop->height, .width = crop->width};
    if (crop->kind == STG_IMAGE_CROP_RANDOM_RESIZED) {
        random_resized(crop, &random, height, width, ret);
    } else if (crop->kind == STG_IMAGE_CROP_RANDOM) {
        ret->y = stg_op_random_below(&random, height - crop->height + 1);
        ret->x = stg_op_random_below(&random, width - crop->width + 1);
    } else if (crop->height > 0) {
        ret->y = center(height, crop->height);
        ret->x = center(width, crop->width);
    } else {
        central(crop->fraction, height, width, ret);
    }
    return 0;
}
