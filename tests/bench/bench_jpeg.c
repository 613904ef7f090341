/* SPDX-License-Identifier: Apache-2.0
 *
 * Photographs to the input of a network: a random part, resized to 224 x 224, flipped,
 * normalized, channels first; on one core. stager gives the bytes to random_resized_crop,
 * which decodes only the part. The other side decodes the whole image with libjpeg-turbo,
 * with one decompressor and one buffer for all images; the same code then resizes, flips
 * and normalizes the same parts. The sides take turns, and the best time of each image
 * counts. Rates are per second of CPU.
 *
 * For validation: a shorter side of 256, of that the middle 224 x 224, with antialias
 * (what decodes no more than the middle is made of, and what decodes all), and
 * interpolated between four pixels.
 *
 * Also the complete pipeline: files, read_file, the same chain in a map, batches of 50.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include "core/clock.h"
#include "daemon/dataset/dataset.h"
#include "proto/load.h"
#include "tests/bench/bench.h"
#include "tests/bench/workers/photographs.h"
#include "tests/ops/fixture.h"

#define CHAIN                                                                            \
    "b = random_flip(a) seed=2\n"                                                        \
    "c = normalize_image(b) mean=[123.675, 116.28, 103.53] std=[58.395, 57.12, 57.375]"  \
    "\nfeature c = c\n"

/* ---- whole images ---- */

struct decoder {
    struct jpeg_decompress_struct c;
    struct jpeg_error_mgr errors;
    unsigned char *pixels;
    size_t bytes;
};

static void decoder_init(struct decoder *decoder)
{
    *decoder = (struct decoder){0};
    decoder->c.err = jpeg_std_error(&decoder->errors);
    jpeg_create_decompress(&decoder->c);
}

static void decoder_finish(struct decoder *decoder)
{
    jpeg_destroy_decompress(&decoder->c);
    free(decoder->pixels);
}

static void decode(struct decoder *decoder, const struct photograph *file,
                   struct stg_tensor *ret)
{
    struct jpeg_decompress_struct *c = &decoder->c;
    jpeg_mem_src(c, file->data, file->bytes);
    jpeg_read_header(c, TRUE);
    c->out_color_space = JCS_RGB;
    jpeg_start_decompress(c);
    size_t row = (size_t)c->output_width * 3, bytes = row * c->output_height;
    if (bytes > decoder->bytes) {
        free(decoder->pixels);
        decoder->pixels = malloc(bytes);
        decoder->bytes = bytes;
        if (decoder->pixels == NULL)
            bench_die("out of memory");
    }
    while (c->output_scanline < c->output_height) {
        JSAMPROW to = decoder->pixels + c->output_scanline * row;
        jpeg_read_scanlines(c, &to, 1);
    }
    *ret = (struct stg_tensor){.dtype = STAGER_UINT8,
                               .ndim = 3,
                               .shape = {c->output_height, c->output_width, 3},
                               .data = decoder->pixels,
                               .data_bytes = bytes};
    jpeg_finish_decompress(c);
}

/* ---- contestants ---- */

struct contestant {
    const char *name, *text;
    bool decodes; /* its graph takes pixels */
    struct fixture fx;
    struct stg_graph *graph;
    struct stg_run *run;
    uint64_t best_ns[MAX_PHOTOGRAPHS];
    double images_per_s;
};

static void contestant_init(struct contestant *c)
{
    struct stg_err err = {0};
    if (c->text != NULL &&
        (fixture_parse(&c->fx, c->text, &err) < 0 ||
         stg_graph_create(&c->fx.spec, &c->fx.element, NULL, &c->graph, &err) < 0 ||
         stg_run_create_stage(c->graph, &c->run, &err) < 0))
        bench_die("%s", err.text);
}

static void contestant_finish(struct contestant *c)
{
    if (c->text == NULL)
        return;
    stg_run_destroy(c->run);
    stg_graph_destroy(c->graph);
    fixture_finish(&c->fx);
}

static void run_image(struct contestant *c, struct decoder *decoder, size_t i)
{
    int64_t offsets[2] = {0, (int64_t)photographs[i].bytes};
    struct stg_tensor feed = {.dtype = STAGER_STRING,
                              .data = photographs[i].data,
                              .data_bytes = photographs[i].bytes,
                              .begin = offsets,
                              .end = offsets + 1};
    struct stg_key key = {.index = i};
    struct stg_tensor output;
    struct stg_err err = {0};
    if (c->decodes)
        decode(decoder, &photographs[i], &feed);
    if (c->text != NULL && stg_run_exec(c->run, &feed, &key, NULL, &output, &err) < 0)
        bench_die("%s", err.text);
}

/* The same window of each image every time. */
static void run_round(struct contestant *all, size_t n, struct decoder *decoder)
{
    for (size_t i = 0; i < n_photographs; i++) {
        for (size_t k = 0; k < n; k++) {
            uint64_t began = stg_thread_cpu_ns();
            run_image(&all[k], decoder, i);
            uint64_t took = stg_thread_cpu_ns() - began, *best = &all[k].best_ns[i];
            *best = *best == 0 || took < *best ? took : *best;
        }
    }
}

static void measure(struct contestant *c)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n_photographs; i++)
        sum += c->best_ns[i];
    c->images_per_s = (double)n_photographs * 1e9 / (double)sum;
}

/* ---- a pipeline ---- */

static const char pipeline[] =
    "name: jpeg\n"
    "dataset:\n" PHOTOGRAPHS_STEPS "- batch: {batch_size: 50}\n"
    "staged: {features: {image: image}}\n";

/* One pass over a folder, in images per second of CPU. */
static double run_pipeline(const struct stg_pipeline_spec *spec)
{
    struct stg_dataset_env env = {.uid = 0, .buffer_bytes = 1u << 30};
    struct stg_dataset *dataset;
    struct stg_block *block;
    struct stg_err err;
    int64_t n = 0;
    uint64_t began = stg_thread_cpu_ns();
    if (stg_dataset_create(spec, &env, &dataset, &err) < 0)
        bench_die("%s", err.text);
    while (stg_dataset_next(dataset, &block, &err) == 0) {
        if (block->error.code != 0)
            bench_die("%s", block->error.text);
        n += block->tensors[0].shape[0];
        stg_block_unref(block);
    }
    stg_dataset_destroy(dataset);
    return (double)n * 1e9 / (double)(stg_thread_cpu_ns() - began);
}

static double best_pipeline(const char *folder, double seconds)
{
    char text[8192];
    struct stg_pipeline_spec *spec;
    struct stg_err err;
    double best = 0;
    snprintf(text, sizeof(text), pipeline, folder);
    if (stg_load_pipeline(text, strlen(text), "jpeg", &spec, &err) < 0)
        bench_die("%s", err.text);
    uint64_t end = bench_now_ns() + (uint64_t)(seconds * 1e9);
    do {
        double rate = run_pipeline(spec);
        best = rate > best ? rate : best;
    } while (bench_now_ns() < end);
    stg_pipeline_spec_destroy(spec);
    return best;
}

/* The generated images, in a temporary folder. */
static double best_pipeline_of_made(double seconds)
{
    char folder[] = "/tmp/stg-jpeg-XXXXXX";
    photographs_write(folder);
    double best = best_pipeline(folder, seconds);
    photographs_remove(folder);
    return best;
}

/* ---- figures ---- */

enum { OURS, ALL, DCT, DECODED, ANTIALIAS, MIDDLE, MIDDLE_ALL, MIDDLE_FOUR };

static double over(const struct contestant *all, int a, int b)
{
    return all[a].images_per_s / all[b].images_per_s;
}

static void tell(const struct contestant *all, size_t n, double piped,
                 const struct bench_options *options)
{
    for (size_t i = 0; i < n; i++)
        printf("%-12s %7.1f images/s a core\n", all[i].name, all[i].images_per_s);
    printf("%-12s %7.1f images/s a core\n", "a pipeline", piped);
    if (options->json)
        printf("{\"bench\": \"jpeg\", \"images\": %zu, \"images_per_s\": %.1f, "
               "\"baseline_images_per_s\": %.1f, \"decode_images_per_s\": %.1f, "
               "\"dct_scaling_images_per_s\": %.1f, \"pipeline_images_per_s\": %.1f, "
               "\"antialias_images_per_s\": %.1f, \"validation_images_per_s\": %.1f, "
               "\"ratio\": %.3f, \"dct_scaling_ratio\": %.3f, "
               "\"antialias_ratio\": %.3f, \"validation_ratio\": %.3f, "
               "\"validation_antialias_ratio\": %.3f}\n",
               n_photographs, all[OURS].images_per_s, all[ALL].images_per_s,
               all[DECODED].images_per_s, all[DCT].images_per_s, piped,
               all[ANTIALIAS].images_per_s, all[MIDDLE].images_per_s,
               over(all, OURS, ALL), over(all, DCT, ALL), over(all, ANTIALIAS, OURS),
               over(all, MIDDLE, MIDDLE_ALL), over(all, MIDDLE, MIDDLE_FOUR));
}

int main(int argc, char **argv)
{
    struct bench_options options;
    bench_options_parse(argc, argv, 6.0,
                        "Photographs to normalized random crops of 224 x 224. "
                        "STAGER_BENCH_IMAGES: a folder of .jpg.",
                        &options);
    const char *folder = photographs_create();
    static struct contestant all[] = {
        {.name = "ours",
         .text = "element f string []\n"
                 "a = random_resized_crop(f) size=[224, 224] seed=1\n" CHAIN},
        {.name = "all decoded",
         .text = "element f uint8 [-1, -1, 3]\n"
                 "a = random_resized_crop(f) size=[224, 224] seed=1\n" CHAIN,
         .decodes = true},
        {.name = "dct_scaling",
         .text = "element f string []\n"
                 "a = random_resized_crop(f) size=[224, 224] seed=1 "
                 "dct_scaling=true\n" CHAIN},
        {.name = "only decoded", .decodes = true},
        {.name = "antialias",
         .text = "element f string []\n"
                 "a = random_resized_crop(f) size=[224, 224] seed=1 "
                 "antialias=true\n" CHAIN},
        {.name = "middle",
         .text = "element f string []\nr = resize_shorter_side(f) size=256\n"
                 "a = center_crop(r) size=[224, 224]\n" CHAIN},
        {.name = "middle, all",
         .text = "element f uint8 [-1, -1, 3]\nr = resize_shorter_side(f) size=256\n"
                 "a = center_crop(r) size=[224, 224]\n" CHAIN,
         .decodes = true},
        {.name = "middle, four",
         .text = "element f string []\n"
                 "r = resize_shorter_side(f) size=256 antialias=false\n"
                 "a = center_crop(r) size=[224, 224]\n" CHAIN},
    };
    size_t n = sizeof(all) / sizeof(all[0]);
    struct decoder decoder;
    decoder_init(&decoder);
    for (size_t i = 0; i < n; i++)
        contestant_init(&all[i]);
    uint64_t end = bench_now_ns() + (uint64_t)(options.seconds * 1e9);
    do {
        run_round(all, n, &decoder);
    } while (bench_now_ns() < end);

    for (size_t i = 0; i < n; i++)
        measure(&all[i]);
    double piped = folder != NULL ? best_pipeline(folder, options.seconds / 4)
                                  : best_pipeline_of_made(options.seconds / 4);
    printf("%zu images, %s\n", n_photographs, folder != NULL ? folder : "made");
    tell(all, n, piped, &options);
    for (size_t i = 0; i < n; i++)
        contestant_finish(&all[i]);
    decoder_finish(&decoder);
    photographs_destroy();
    return 0;
}
