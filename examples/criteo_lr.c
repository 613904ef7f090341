/* SPDX-License-Identifier: Apache-2.0
 *
 * A trainer in plain C: logistic regression on Criteo rows by stochastic gradient
 * descent. It takes batches {label int32 [B], dense float32 [B, 13], ids int64 [B, 26]}
 * from stagerd, reads them where they lie, and learns one weight for each dense column
 * and for each hashed word.
 *
 *     criteo_lr PIPELINE [--lr 0.05] [--epochs 1] [--steps N] [--hash-bits 20] [--name
 * ID]
 *               [--report FILE]
 *
 * --epochs counts passes of the pipeline, --steps stops after N batches. The report is
 * one JSON object.
 */
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/stager.h"

#define N_DENSE 13
#define N_IDS 26
/* The loss "at the start" and "at the end" are means over this many batches. */
#define WINDOW 10

struct options {
    const char *pipeline;
    const char *name;
    const char *report;
    double lr;
    uint64_t steps; /* 0: no limit */
    uint64_t epochs;
    int hash_bits;
};

struct model {
    double bias;
    double dense[N_DENSE];
    float *words; /* 1 << hash_bits of them */
    uint64_t mask;
    double lr;
};

struct tally {
    uint64_t batches, rows;
    double first[WINDOW], last[WINDOW]; /* losses of batches */
    bool finite;
};

/* One batch, as it lies in shared memory. */
struct rows {
    int64_t n;
    const int32_t *label;
    const float *dense;
    const int64_t *ids;
};

/* ---- the model ---- */

/* The same word in two columns is two words. */
static uint64_t slot_of(const struct model *model, int column, int64_t id)
{
    uint64_t x = (uint64_t)id + (uint64_t)column * 0x9e3779b97f4a7c15u;
    x ^= x >> 31;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 29;
    return x & model->mask;
}

static double logit_of(const struct model *model, const struct rows *rows, int64_t row)
{
    double sum = model->bias;
    for (int k = 0; k < N_DENSE; k++)
        sum += model->dense[k] * (double)rows->dense[row * N_DENSE + k];
    for (int k = 0; k < N_IDS; k++)
        sum += (double)model->words[slot_of(model, k, rows->ids[row * N_IDS + k])];
    return sum;
}

/* log(1 + e^-z) for the right sign of z, without overflow. */
static double log_loss(double logit, bool is_click)
{
    double z = is_click ? logit : -logit;
    return z > 0 ? log1p(exp(-z)) : -z + log1p(exp(z));
}

/* Sums the loss before the step, then takes the step. Each row counts by itself. */
static double train_row(struct model *model, const struct rows *rows, int64_t row)
{
    bool is_click = rows->label[row] != 0;
    double logit = logit_of(model, rows, row);
    double probability = 1 / (1 + exp(-logit));
    double step = model->lr * ((is_click ? 1 : 0) - probability);
    model->bias += step;
    for (int k = 0; k < N_DENSE; k++)
        model->dense[k] += step * (double)rows->dense[row * N_DENSE + k] / N_DENSE;
    for (int k = 0; k < N_IDS; k++)
        model->words[slot_of(model, k, rows->ids[row * N_IDS + k])] += (float)step;
    return log_loss(logit, is_click);
}

static int model_init(struct model *model, const struct options *options)
{
    size_t n = (size_t)1 << options->hash_bits;
    *model = (struct model){.mask = n - 1, .lr = options->lr};
    model->words = calloc(n, sizeof(*model->words));
    if (model->words == NULL)
        fprintf(stderr, "criteo_lr: no memory for %zu weights\n", n);
    return model->words != NULL ? 0 : 1;
}

/* ---- batches ---- */

static int find_tensor(const struct stager_batch *batch, const char *name, int dtype,
                       int64_t n_columns, int64_t n_rows, const void **ret)
{
    struct stager_tensor tensor;
    if (stager_batch_tensor(batch, name, &tensor) < 0) {
        fprintf(stderr, "criteo_lr: the batch has no tensor %s\n", name);
        return 1;
    }
    int ndim = n_columns > 1 ? 2 : 1;
    if (tensor.dtype != dtype || tensor.ndim != ndim || tensor.shape[0] != n_rows ||
        (ndim == 2 && tensor.shape[1] != n_columns)) {
        fprintf(stderr, "criteo_lr: %s is not %s [%" PRId64 ", %" PRId64 "]\n", name,
                stager_dtype_name(dtype), n_rows, n_columns);
        return 1;
    }
    *ret = tensor.data;
    return 0;
}

static int find_rows(const struct stager_batch *batch, struct rows *ret)
{
    struct stager_batch_info info = {.struct_size = sizeof(info)};
    stager_batch_info(batch, &info);
    ret->n = (int64_t)info.n_rows;
    const void *label, *dense, *ids;
    if (find_tensor(batch, "label", STAGER_INT32, 1, ret->n, &label) != 0 ||
        find_tensor(batch, "dense", STAGER_FLOAT32, N_DENSE, ret->n, &dense) != 0 ||
        find_tensor(batch, "ids", STAGER_INT64, N_IDS, ret->n, &ids) != 0)
        return 1;
    ret->label = label;
    ret->dense = dense;
    ret->ids = ids;
    return 0;
}

static int train_batch(struct model *model, const struct stager_batch *batch,
                       struct tally *tally)
{
    struct rows rows;
    if (find_rows(batch, &rows) != 0)
        return 1;
    double sum = 0;
    for (int64_t row = 0; row < rows.n; row++)
        sum += train_row(model, &rows, row);
    double loss = rows.n > 0 ? sum / (double)rows.n : 0;
    if (tally->batches < WINDOW)
        tally->first[tally->batches] = loss;
    tally->last[tally->batches % WINDOW] = loss;
    tally->batches++;
    tally->rows += (uint64_t)rows.n;
    tally->finite = tally->finite && isfinite(loss);
    return 0;
}

/* Until the passes or the steps are done. */
static int train(struct stager_stream *stream, struct model *model,
                 const struct options *options, struct tally *tally)
{
    uint64_t passes = 0;
    while (options->steps == 0 || tally->batches < options->steps) {
        struct stager_batch *batch;
        int rc = stager_next(stream, -1, &batch);
        if (rc == -STAGER_OUT_OF_RANGE) {
            if (++passes >= options->epochs)
                return 0;
            rc = stager_rewind(stream);
            if (rc == 0)
                continue;
        }
        if (rc < 0) {
            fprintf(stderr, "criteo_lr: %s: %s\n", stager_status_name(rc),
                    stager_error_text(stream));
            return 1;
        }
        int status = train_batch(model, batch, tally);
        stager_release(batch);
        if (status != 0)
            return status;
    }
    return 0;
}

/* ---- the report ---- */

static double mean(const double *values, uint64_t n)
{
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += values[i];
    return n > 0 ? sum / (double)n : 0;
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int write_report(const struct options *options, const struct tally *tally,
                        double seconds, double wait_s)
{
    uint64_t window = tally->batches < WINDOW ? tally->batches : WINDOW;
    double start = mean(tally->first, window), end = mean(tally->last, window);
    double rate = seconds > 0 ? (double)tally->batches / seconds : 0;
    double share = seconds > 0 ? wait_s / seconds : 0;
    printf("%s: %" PRIu64 " batches, %" PRIu64
           " rows; log loss %.4f -> %.4f; %.0f batches/s; "
           "waited %.1f %% of %.3f s\n",
           options->name, tally->batches, tally->rows, start, end, rate, share * 100,
           seconds);
    if (options->report == NULL)
        return 0;
    FILE *out = fopen(options->report, "w");
    if (out == NULL) {
        perror(options->report);
        return 1;
    }
    fprintf(out,
            "{\"name\": \"%s\", \"lr\": %g, \"batches\": %" PRIu64 ", \"rows\": %" PRIu64
            ", \"loss_start\": %.6f, \"loss_end\": %.6f, \"finite\": %s, "
            "\"batches_per_s\": %.3f, \"rows_per_s\": %.3f, \"wait_share\": %.4f, "
            "\"seconds\": %.6f}\n",
            options->name, options->lr, tally->batches, tally->rows, start, end,
            tally->finite ? "true" : "false", rate,
            rate > 0 ? (double)tally->rows / seconds : 0, share, seconds);
    return fclose(out) == 0 ? 0 : 1;
}

/* ---- options ---- */

static int usage(void)
{
    fprintf(stderr, "usage: criteo_lr PIPELINE [--lr 0.05] [--epochs 1] [--steps N] "
                    "[--hash-bits 20] [--name ID] [--report FILE]\n");
    return 2;
}

static int read_options(int argc, char **argv, struct options *ret)
{
    static const struct option long_options[] = {
        {"lr", required_argument, NULL, 'l'},
        {"epochs", required_argument, NULL, 'e'},
        {"steps", required_argument, NULL, 's'},
        {"hash-bits", required_argument, NULL, 'b'},
        {"report", required_argument, NULL, 'r'},
        {"name", required_argument, NULL, 'n'},
        {NULL, 0, NULL, 0},
    };
    *ret =
        (struct options){.lr = 0.05, .epochs = 1, .hash_bits = 20, .name = "criteo_lr"};
    int letter;
    while ((letter = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
        switch (letter) {
        case 'l': ret->lr = atof(optarg); break;
        case 'e': ret->epochs = strtoull(optarg, NULL, 10); break;
        case 's': ret->steps = strtoull(optarg, NULL, 10); break;
        case 'b': ret->hash_bits = atoi(optarg); break;
        case 'r': ret->report = optarg; break;
        case 'n': ret->name = optarg; break;
        default: return usage();
        }
    }
    bool good = optind + 1 == argc && ret->lr > 0 && ret->hash_bits >= 1 &&
                ret->hash_bits <= 30 && strpbrk(ret->name, "\"\\") == NULL;
    ret->pipeline = good ? argv[optind] : NULL;
    return good ? 0 : usage();
}

int main(int argc, char **argv)
{
    struct options options;
    struct model model;
    int status = read_options(argc, argv, &options);
    if (status != 0)
        return status;
    if (model_init(&model, &options) != 0)
        return 1;

    struct stager_options stream_options = {.struct_size = sizeof(stream_options),
                                            .client_id = options.name};
    struct stager_stream *stream;
    int rc = stager_open(NULL, options.pipeline, &stream_options, &stream);
    if (rc < 0) {
        fprintf(stderr, "criteo_lr: %s: %s\n", stager_status_name(rc),
                stager_error_text(NULL));
        free(model.words);
        return 1;
    }
    struct tally tally = {.finite = true};
    double begin_s = now_s();
    status = train(stream, &model, &options, &tally);
    double seconds = now_s() - begin_s;

    struct stager_stream_info info = {.struct_size = sizeof(info)};
    stager_stream_info(stream, &info);
    if (status == 0)
        status = write_report(&options, &tally, seconds, (double)info.wait_ns / 1e9);
    stager_close(stream);
    free(model.words);
    return status;
}
