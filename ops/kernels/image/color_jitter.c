/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "ops/base/random.h"
#include "ops/kernels/image/image.h"

static const struct stg_param params[] = {
    {.name = "brightness",
     .type = STG_PARAM_VALUES,
     .help = "[least, most] of what is added, in the image's own units; torchvision: of "
             "the factor"},
    {.name = "contrast",
     .type = STG_PARAM_VALUES,
     .help = "[least, most] of the factor of the distance from each channel's mean; "
             "torchvision: from the mean of the gray image"},
    {.name = "saturation",
     .type = STG_PARAM_VALUES,
     .help = "[least, most] of the factor"},
    {.name = "hue",
     .type = STG_PARAM_VALUES,
     .help = "[least, most] of what is added, of a whole turn: within -0.5 to 0.5"},
    {.name = "definition",
     .type = STG_PARAM_STRING,
     .preset = "tensorflow",
     .help = "tensorflow: tf.image.adjust_brightness and its like, in this order; or "
             "torchvision: ColorJitter, in an order that is drawn"},
    {.name = "max_value",
     .type = STG_PARAM_FLOAT,
     .help = "torchvision: what no pixel exceeds; none: 255"},
    {.name = "seed",
     .type = STG_PARAM_INT,
     .help = "of what is drawn; none: one made of the node's name"},
};

enum { BRIGHTNESS, CONTRAST, SATURATION, HUE, N_KINDS };

struct plan {
    double range[N_KINDS][2];
    bool is_given[N_KINDS];
    bool as_torchvision;
    float most; /* torchvision */
    uint64_t seed;
};

/* What is drawn for one image. */
struct jitter {
    float value[N_KINDS];
    bool saturates, turns; /* saturation or hue are asked for */
    int order[N_KINDS];    /* torchvision */
};

static int read_definition(const struct stg_node *node, struct plan *plan,
                           struct stg_err *err)
{
    const char *name =
        stg_attr_string(node->attrs, node->n_attrs, "definition", "tensorflow");
    bool has_most = stg_attr_find(node->attrs, node->n_attrs, "max_value") != NULL;
    plan->as_torchvision = strcmp(name, "torchvision") == 0;
    plan->most = (float)stg_attr_float(node->attrs, node->n_attrs, "max_value", 255);
    if (!plan->as_torchvision && strcmp(name, "tensorflow") != 0)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "definition is \"%s\", not tensorflow or torchvision", name);
    if (has_most && !plan->as_torchvision)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "max_value needs definition: torchvision; TensorFlow's leaves "
                       "pixels as large as they become");
    if (!(plan->most > 0) || !isfinite(plan->most))
        return stg_err(err, -STAGER_INVALID_ARGUMENT, "max_value is %g; it is above 0",
                       (double)plan->most);
    return 0;
}

static int read_ranges(const struct stg_node *node, struct plan *plan,
                       struct stg_err *err)
{
    static const char *const names[N_KINDS] = {"brightness", "contrast", "saturation",
                                               "hue"};
    double same = plan->as_torchvision ? 1 : 0; /* of brightness */
    const double none[N_KINDS][2] = {{same, same}, {1, 1}, {1, 1}, {0, 0}};
    const double limits[N_KINDS][2] = {{plan->as_torchvision ? 0 : -INFINITY, INFINITY},
                                       {0, INFINITY},
                                       {0, INFINITY},
                                       {-0.5, 0.5}};
    for (int i = 0; i < N_KINDS; i++) {
        double *range = plan->range[i];
        int rc = stg_image_numbers(node, names[i], 2, none[i], range, err);
        if (rc < 0)
            return rc;
        if (!(range[0] >= limits[i][0] && range[0] <= range[1] &&
              range[1] <= limits[i][1] && isfinite(range[1] - range[0])))
            return stg_err(err, -STAGER_INVALID_ARGUMENT,
                           "%s is [%g, %g]; write [least, most] within %g to %g",
                           names[i], range[0], range[1], limits[i][0], limits[i][1]);
        plan->is_given[i] = stg_attr_find(node->attrs, node->n_attrs, names[i]) != NULL;
    }
    return 0;
}

static int infer(struct stg_op_infer *ctx, struct stg_err *err)
{
    const struct stg_component *input = &ctx->inputs[0];
    struct plan *plan = stg_bump_alloc(ctx->bump, sizeof(*plan));
    struct stg_component *output = stg_op_outputs(ctx, 1);
    if (plan == NULL || output == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory");
    if ((input->dtype != STAGER_UINT8 && input->dtype != STAGER_FLOAT32) ||
        (input->ndim != 3 && input->ndim != 4))
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "input \"%s\" is %s of rank %d, not an image: uint8 or float32, "
                       "[height, width, channels], or a batch of them",
                       input->name, stg_dtype_name(input->dtype), input->ndim);
    int rc = read_definition(ctx->node, plan, err);
    if (rc == 0)
        rc = read_ranges(ctx->node, plan, err);
    if (rc < 0)
        return rc;
    int64_t channels = input->shape[input->ndim - 1];
    if ((plan->is_given[SATURATION] || plan->is_given[HUE]) && channels >= 0 &&
        channels != 3)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "saturation and hue need 3 channels, not %" PRId64, channels);
    plan->seed = stg_op_random_seed(ctx->node);
    *output = *input;
    output->dtype = STAGER_FLOAT32;
    ctx->plan = plan;
    return 0;
}

/* ---- one image ---- */

static void brighten(const struct stg_tensor *input, int64_t first, int64_t n,
                     float delta, float *out)
{
    if (input->dtype == STAGER_UINT8) {
        const uint8_t *in = (const uint8_t *)input->data + first;
        for (int64_t i = 0; i < n; i++)
            out[i] = (float)in[i] + delta;
    } else {
        const float *in = (const float *)input->data + first;
        for (int64_t i = 0; i < n; i++)
            out[i] = in[i] + delta;
    }
}

static void change_contrast(float *pixels, int64_t n, int64_t channels, float factor)
{
    for (int64_t c = 0; c < channels; c++) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++)
            sum += (double)pixels[i * channels + c];
        float mean = (float)(sum / (double)n);
        for (int64_t i = 0; i < n; i++)
            pixels[i * channels + c] = (pixels[i * channels + c] - mean) * factor + mean;
    }
}

/* Hue from 0 to 6, as the kernels of TensorFlow have it. */
static float hue_of(const float p[3], float most, float range)
{
    float hue = 0;
    if (!(range > 0))
        return 0;
    if (p[0] == most)
        hue = (p[1] - p[2]) / range;
    else if (p[1] == most)
        hue = (p[2] - p[0]) / range + 2;
    else
        hue = (p[0] - p[1]) / range + 4;
    return hue < 0 ? hue + 6 : hue;
}

static float channel_of(float hue, float least, float range)
{
    /* 1 within a sixth of a turn of the channel's own hue, 0 beyond a third. */
    float distance = fabsf(hue - 3);
    float part = distance - 1;
    part = part < 0 ? 0 : part > 1 ? 1 : part;
    return least + range * part;
}

/* Saturation is at most 1 then; where a channel is negative it was more before. */
static float saturate(float range, float most, float factor)
{
    float part = most > 0 ? range / most * factor : 0;
    return (part > 1 ? 1 : part) * most;
}

static void change_pixel(const struct jitter *jitter, float p[3])
{
    float most = fmaxf(p[0], fmaxf(p[1], p[2]));
    float range = most - fminf(p[0], fminf(p[1], p[2]));
    float hue = hue_of(p, most, range) + 6 * jitter->value[HUE];
    if (jitter->saturates)
        range = saturate(range, most, jitter->value[SATURATION]);
    hue = hue < 0 ? hue + 6 : hue >= 6 ? hue - 6 : hue;
    p[0] = channel_of(hue, most - range, range);
    p[1] = channel_of(hue < 2 ? hue + 4 : hue - 2, most - range, range);
    p[2] = channel_of(hue < 4 ? hue + 2 : hue - 4, most - range, range);
}

static void jitter_image(const struct jitter *jitter, const struct stg_tensor *input,
                         int64_t first, int64_t n, int64_t channels, float *out)
{
    brighten(input, first, n, jitter->value[BRIGHTNESS], out);
    if (jitter->value[CONTRAST] != 1 && n > 0)
        change_contrast(out, n / channels, channels, jitter->value[CONTRAST]);
    for (int64_t i = 0; (jitter->saturates || jitter->turns) && i < n; i += 3)
        change_pixel(jitter, out + i);
}

/* ---- one image, as torchvision's functions of float images ---- */

static double gray_of(const float p[3])
{
    return 0.2989 * (double)p[0] + 0.587 * (double)p[1] + 0.114 * (double)p[2];
}

static float limited(const struct plan *plan, float value)
{
    return value < 0 ? 0 : value > plan->most ? plan->most : value;
}

static float blended(const struct plan *plan, float value, float other, float factor)
{
    return limited(plan, value * factor + other * (1 - factor));
}

static float mean_gray(const float *pixels, int64_t n, int64_t channels)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i += channels) {
        for (int64_t c = 0; channels != 3 && c < channels; c++)
            sum += (double)pixels[i + c] / (double)channels;
        if (channels == 3)
            sum += gray_of(pixels + i);
    }
    return n > 0 ? (float)(sum * (double)channels / (double)n) : 0;
}

static void change_all(const struct plan *plan, const struct jitter *jitter, int kind,
                       float *pixels, int64_t n, int64_t channels)
{
    const struct jitter turn = {.value = {[HUE] = jitter->value[HUE]}, .turns = true};
    float factor = jitter->value[kind];
    float mean = kind == CONTRAST ? mean_gray(pixels, n, channels) : 0;
    for (int64_t i = 0; (kind == BRIGHTNESS || kind == CONTRAST) && i < n; i++)
        pixels[i] = blended(plan, pixels[i], mean, factor);
    for (int64_t i = 0; kind == SATURATION && i < n; i += 3) {
        float gray = (float)gray_of(pixels + i);
        for (int c = 0; c < 3; c++)
            pixels[i + c] = blended(plan, pixels[i + c], gray, factor);
    }
    for (int64_t i = 0; kind == HUE && i < n; i += 3)
        change_pixel(&turn, pixels + i);
}

static void draw_order(struct stg_op_random *random, int order[N_KINDS])
{
    for (int i = 0; i < N_KINDS; i++) {
        int64_t k = stg_op_random_below(random, i + 1);
        order[i] = order[k];
        order[k] = i;
    }
}

static void draw_jitter(const struct plan *plan, const struct stg_op_run *ctx,
                        uint64_t row, struct jitter *ret)
{
    struct stg_op_random random;
    stg_op_random_init(&random, &ctx->key, plan->seed, row);
    for (int i = 0; i < N_KINDS; i++)
        ret->value[i] =
            (float)stg_op_random_between(&random, plan->range[i][0], plan->range[i][1]);
    ret->saturates = plan->is_given[SATURATION];
    ret->turns = plan->is_given[HUE];
    draw_order(&random, ret->order);
}

static void change_image(const struct plan *plan, const struct jitter *jitter,
                         const struct stg_tensor *input, int64_t first, int64_t n,
                         int64_t channels, float *out)
{
    if (!plan->as_torchvision) {
        jitter_image(jitter, input, first, n, channels, out);
        return;
    }
    brighten(input, first, n, 0, out);
    for (int i = 0; i < N_KINDS; i++) {
        if (plan->is_given[jitter->order[i]])
            change_all(plan, jitter, jitter->order[i], out, n, channels);
    }
}

static int run(struct stg_op_run *ctx, struct stg_err *err)
{
    const struct plan *plan = ctx->plan;
    const struct stg_tensor *input = &ctx->inputs[0];
    int64_t channels = input->shape[input->ndim - 1];
    int64_t n_images = input->ndim == 4 ? input->shape[0] : 1;
    int64_t n = n_images > 0 ? stg_tensor_n(input) / n_images : 0;
    struct stg_tensor output;
    if ((plan->is_given[SATURATION] || plan->is_given[HUE]) && channels != 3)
        return stg_err(err, -STAGER_INVALID_ARGUMENT,
                       "saturation and hue need 3 channels, not %" PRId64, channels);
    int rc =
        ctx->alloc(ctx, 0, STAGER_FLOAT32, input->ndim, input->shape, 0, &output, err);
    for (int64_t row = 0; rc == 0 && row < n_images; row++) {
        struct jitter jitter;
        draw_jitter(plan, ctx, (uint64_t)row, &jitter);
        change_image(plan, &jitter, input, row * n, n, channels,
                     (float *)output.data + row * n);
    }
    return rc;
}

const struct stg_op stg_op_color_jitter = {
    .name = "color_jitter",
    .summary =
        "Brightness, contrast, saturation and hue changed at random; as "
        "tf.image.adjust_brightness and its like, or as torchvision's ColorJitter.",
    STG_PARAMS(params),
    .min_inputs = 1,
    .max_inputs = 1,
    .flags = STG_OP_EACH_BATCH,
    .infer = infer,
    .run = run,
};
