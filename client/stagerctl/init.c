/* SPDX-License-Identifier: Apache-2.0
 *
 * init: a pipeline file for data files, by the description of the first one.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/stagerctl/collect.h"
#include "client/stagerctl/command.h"
#include "client/stagerctl/reply.h"

#define MAX_NAME 64
#define BATCH 1024
#define IMAGE_BATCH 64
#define SHUFFLE 65536
#define IMAGE_SHUFFLE 1024

/* What is written. */
struct plan {
    FILE *out;
    const struct stg_ctl_options *options;
    struct stg_file_schema schema;
    struct stg_bump bump;
    char name[MAX_NAME + 1];
};

/* ---- texts ---- */

/* A string of JSON is one of YAML. */
static void put_string(FILE *out, const char *text)
{
    struct stg_json_writer json = {.out = out};
    stg_json_string(&json, text);
}

static bool is_read(const struct stg_file_column *column)
{
    return column->dtype != STAGER_DT_INVALID;
}

static bool is_ragged(const struct stg_file_column *column)
{
    for (int d = 0; d < column->ndim; d++) {
        if (column->shape[d] < 0)
            return true;
    }
    return false;
}

static const char *default_of(const struct stg_file_column *column)
{
    switch (column->dtype) {
    case STAGER_STRING: return "\"\"";
    case STAGER_BOOL: return "false";
    case STAGER_FLOAT16:
    case STAGER_FLOAT32:
    case STAGER_FLOAT64: return "0.0";
    default: return "0";
    }
}

static void put_shape(FILE *out, const struct stg_file_column *column)
{
    fputc('[', out);
    for (int d = 0; d < column->ndim; d++) {
        fputs(d > 0 ? ", " : "", out);
        if (column->shape[d] < 0)
            fputs("null", out);
        else
            fprintf(out, "%lld", (long long)column->shape[d]);
    }
    fputc(']', out);
}

/* A feature's name: letters, digits and _ of a column's, numbered if they are not one's
 * own. Nodes have the prefix. */
static const char *feature_name(const struct plan *plan, size_t i, char *buf, size_t size)
{
    const struct stg_file_schema *schema = &plan->schema;
    size_t n = 0;
    for (const char *s = schema->columns[i].name; *s != '\0' && n + 16 < size; s++) {
        bool is_word = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') ||
                       (*s >= '0' && *s <= '9') || *s == '_';
        buf[n++] = is_word ? *s : '_';
    }
    buf[n] = '\0';
    if (n == 0 || strcmp(buf, schema->columns[i].name) != 0)
        snprintf(buf + n, size - n, "_%zu", i);
    return buf;
}

static void put_name(struct plan *plan, const char *given)
{
    const char *base = strrchr(given, '/');
    size_t n = 0;
    base = base != NULL ? base + 1 : given;
    for (; *base != '\0' && *base != '.' && n < MAX_NAME; base++) {
        bool is_word = (*base >= 'a' && *base <= 'z') || (*base >= 'A' && *base <= 'Z') ||
                       (*base >= '0' && *base <= '9') || *base == '_';
        if (is_word)
            plan->name[n++] = *base;
    }
    bool is_name = n > 0 && (plan->name[0] < '0' || plan->name[0] > '9');
    snprintf(plan->name + (is_name ? n : 0), sizeof(plan->name) - (is_name ? n : 0), "%s",
             is_name ? "" : "data");
}

static void put_head(struct plan *plan)
{
    const struct stg_ctl_options *options = plan->options;
    FILE *out = plan->out;
    const char *name = options->name != NULL ? options->name : plan->name;
    fprintf(out,
            "# Written by `stagerctl init`, by what is in the first file; lines with "
            "\"edit\" are guesses.\n"
            "# Try it: stagerctl check FILE; stagerctl apply FILE; stagerctl cat %s "
            "--limit 1\nname: ",
            name);
    put_string(out, name);
    fputs("\ndataset:\n  - files: {pattern: [", out);
    for (int i = 0; i < options->n_arguments; i++) {
        fputs(i > 0 ? ", " : "", out);
        const char *pattern = stg_collect_pattern(options->arguments[i], &plan->bump);
        put_string(out, pattern != NULL ? pattern : options->arguments[i]);
    }
    fputs("]} # edit: patterns such as /data/*.csv\n", out);
}

static void put_batch(struct plan *plan, const char *step, int shuffle, int batch)
{
    fprintf(
        plan->out,
        "  - shuffle: {buffer_size: %d, seed: 1} # edit: leave it out for evaluation\n"
        "  - %s: {batch_size: %d} # edit\n",
        shuffle, step, batch);
}

static void put_refused(const struct plan *plan)
{
    for (size_t i = 0; i < plan->schema.n; i++) {
        const struct stg_file_column *column = &plan->schema.columns[i];
        char text[512];
        if (is_read(column))
            continue;
        snprintf(text, sizeof(text), "%s: %s", column->name, column->problem);
        stg_ctl_clean(text);
        fprintf(plan->out, "# Left out: %s\n", text);
    }
}

/* ---- parquet, arrow ---- */

static void put_columnar(struct plan *plan)
{
    const struct stg_file_schema *schema = &plan->schema;
    FILE *out = plan->out;
    bool has_lists = false, has_ragged = false, has_nulls = false;
    fprintf(out, "  - %s:\n      columns: # edit: only these are read\n", schema->format);
    for (size_t i = 0; i < schema->n; i++) {
        const struct stg_file_column *column = &schema->columns[i];
        if (!is_read(column))
            continue;
        has_lists |= column->ndim > 0;
        has_ragged |= is_ragged(column);
        has_nulls |= column->nullable;
        fputs("        ", out);
        put_string(out, column->name);
        fprintf(out, ": %s\n", stager_dtype_name(column->dtype));
    }
    if (has_lists)
        fputs("      shapes: # edit: [16] in place of [null] for lists of one length\n",
              out);
    for (size_t i = 0; i < schema->n; i++) {
        const struct stg_file_column *column = &schema->columns[i];
        if (!is_read(column) || column->ndim == 0)
            continue;
        fputs("        ", out);
        put_string(out, column->name);
        fputs(": ", out);
        put_shape(out, column);
        fputc('\n', out);
    }
    if (has_nulls)
        fputs("      defaults: # edit: in place of nulls; without one a null costs its "
              "row\n",
              out);
    for (size_t i = 0; i < schema->n; i++) {
        const struct stg_file_column *column = &schema->columns[i];
        if (!is_read(column) || !column->nullable)
            continue;
        fputs("        ", out);
        put_string(out, column->name);
        fprintf(out, ": %s\n", default_of(column));
    }
    put_batch(plan, has_ragged ? "ragged_batch" : "batch", SHUFFLE, BATCH);
    fputs("# Each column is a feature of its name; `graph` and `staged: {features}` "
          "change that.\n",
          out);
}

/* ---- csv ---- */

static void put_csv(struct plan *plan)
{
    const struct stg_file_schema *schema = &plan->schema;
    FILE *out = plan->out;
    char name[128];
    fprintf(out,
            "  - csv: {header: %s, field_delim: ", schema->has_header ? "true" : "false");
    put_string(out, schema->delim);
    fputs("}\n", out);
    put_batch(plan, "batch", SHUFFLE, BATCH);
    fputs("graph:\n  - name: columns\n    op: decode_csv\n    input: [record]\n    "
          "field_delim: ",
          out);
    put_string(out, schema->delim);
    fputs("\n    record_defaults: # edit: in place of empty fields; null: an empty field "
          "is an error\n",
          out);
    for (size_t i = 0; i < schema->n; i++)
        fprintf(out, "      - %s # %zu\n", default_of(&schema->columns[i]), i);
    fputs("    out_type: # edit: guessed from the first records\n", out);
    for (size_t i = 0; i < schema->n; i++)
        fprintf(out, "      - %s # %zu\n",
                is_read(&schema->columns[i]) ? stager_dtype_name(schema->columns[i].dtype)
                                             : "string",
                i);
    fputs("staged:\n  features: # edit\n", out);
    for (size_t i = 0; i < schema->n; i++)
        fprintf(out, "    \"%s\": \"columns:%zu\"\n",
                feature_name(plan, i, name, sizeof(name)), i);
}

/* ---- tfrecord, jsonl ---- */

static void put_parsed_features(struct plan *plan, bool is_example)
{
    const struct stg_file_schema *schema = &plan->schema;
    FILE *out = plan->out;
    for (size_t i = 0; i < schema->n; i++) {
        const struct stg_file_column *column = &schema->columns[i];
        if (!is_read(column))
            continue;
        fputs("      ", out);
        put_string(out, column->name);
        fprintf(out, ": {dtype: %s", stager_dtype_name(column->dtype));
        if (is_example && is_ragged(column)) {
            fputs(", type: ragged}\n", out);
            continue;
        }
        if (column->ndim > 0) {
            fputs(", shape: ", out);
            put_shape(out, column);
        }
        if (column->nullable)
            fprintf(out, ", default_value: %s", default_of(column));
        fputs("}\n", out);
    }
}

static void put_parsed(struct plan *plan, const char *op, bool is_example)
{
    const struct stg_file_schema *schema = &plan->schema;
    FILE *out = plan->out;
    char name[128];
    fprintf(out, "  - %s\n", schema->format);
    put_batch(plan, "batch", SHUFFLE, BATCH);
    fprintf(out,
            "graph:\n  - name: parsed\n    op: %s\n    input: [record]\n    features: # "
            "edit: by the first records\n",
            op);
    put_parsed_features(plan, is_example);
    fputs("staged:\n  features: # edit\n", out);
    for (size_t i = 0; i < schema->n; i++) {
        const struct stg_file_column *column = &schema->columns[i];
        char tensor[1200];
        if (!is_read(column))
            continue;
        fprintf(out, "    \"%s\": ", feature_name(plan, i, name, sizeof(name)));
        bool is_pair = is_example && is_ragged(column);
        snprintf(tensor, sizeof(tensor), "parsed:%s%s", column->name,
                 is_pair ? "/values" : "");
        fputs(is_pair ? "{ragged: {values: " : "", out);
        put_string(out, tensor);
        snprintf(tensor, sizeof(tensor), "parsed:%s/row_splits", column->name);
        fputs(is_pair ? ", row_splits: " : "", out);
        if (is_pair)
            put_string(out, tensor);
        fputs(is_pair ? "}}\n" : "\n", out);
    }
}

/* ---- tar, images ---- */

static bool is_image(const char *part)
{
    static const char *const names[] = {"jpg", "jpeg", "png"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcasecmp(part, names[i]) == 0)
            return true;
    }
    return false;
}

static void put_decoding(struct plan *plan, const char *input, const char *image,
                         const char *other)
{
    fputs("  - map:\n      graph:\n        - {name: image, op: random_resized_crop, "
          "input: [",
          plan->out);
    put_string(plan->out, input);
    fputs("], size: [224, 224]} # edit: resize_shorter_side and center_crop for "
          "evaluation\n      output: {",
          plan->out);
    put_string(plan->out, image);
    fprintf(plan->out, ": image%s}\n      num_parallel_calls: auto\n", other);
}

static void put_tar(struct plan *plan)
{
    const struct stg_file_schema *schema = &plan->schema;
    FILE *out = plan->out;
    const char *image = NULL;
    char *others = NULL;
    size_t n_others;
    FILE *rest = open_memstream(&others, &n_others);
    if (rest == NULL)
        return;
    fputs("  - tar: {parts: [", out);
    for (size_t i = 0; i < schema->n && i < 64; i++) {
        const char *part = schema->columns[i].name;
        fputs(i > 0 ? ", " : "", out);
        put_string(out, part);
        if (image == NULL && is_image(part)) {
            image = part;
            continue;
        }
        char name[128];
        fprintf(rest, ", \"%s\": ", feature_name(plan, i, name, sizeof(name)));
        put_string(rest, part);
    }
    fputs("]} # edit: {cls: optional} for a part that samples may leave out\n", out);
    fclose(rest);
    fprintf(out, "  - shuffle: {buffer_size: %d, seed: 1} # edit: samples in memory\n",
            IMAGE_SHUFFLE);
    if (image != NULL && others != NULL)
        put_decoding(plan, image, "image", others);
    if (image != NULL)
        fputs("  - ignore_errors # edit: images that cannot be decoded are left out\n",
              out);
    fprintf(out, "  - batch: {batch_size: %d} # edit\n",
            image != NULL ? IMAGE_BATCH : BATCH);
    free(others);
}

static void put_images(struct plan *plan)
{
    fprintf(plan->out, "  - shuffle: {buffer_size: %d, seed: 1}\n  - read_file\n",
            SHUFFLE);
    put_decoding(plan, "bytes", "image", ", path: path");
    fprintf(plan->out,
            "  - ignore_errors # edit: images that cannot be decoded are left out\n"
            "  - batch: {batch_size: %d} # edit\n",
            IMAGE_BATCH);
}

/* ---- others ---- */

static void put_npy(struct plan *plan)
{
    const struct stg_file_column *column = &plan->schema.columns[0];
    fprintf(plan->out, "  - npy: {dtype: %s, shape: ", stager_dtype_name(column->dtype));
    put_shape(plan->out, column);
    fputs("}\n", plan->out);
    put_batch(plan, "batch", SHUFFLE, BATCH);
}

static void put_records(struct plan *plan)
{
    fprintf(plan->out, "  - %s\n", plan->schema.format);
    put_batch(plan, "batch", SHUFFLE, BATCH);
}

static void put_pipeline(struct plan *plan)
{
    const char *format = plan->schema.format;
    bool is_raw =
        plan->schema.n == 1 && strcmp(plan->schema.columns[0].name, "record") == 0;
    put_head(plan);
    if (strcmp(format, "parquet") == 0 || strcmp(format, "arrow") == 0)
        put_columnar(plan);
    else if (strcmp(format, "csv") == 0)
        put_csv(plan);
    else if (strcmp(format, "tfrecord") == 0 && !is_raw)
        put_parsed(plan, "parse_example", true);
    else if (strcmp(format, "jsonl") == 0)
        put_parsed(plan, "parse_json", false);
    else if (strcmp(format, "tar") == 0)
        put_tar(plan);
    else if (strcmp(format, "read_file") == 0)
        put_images(plan);
    else if (strcmp(format, "npy") == 0 && plan->schema.n == 1)
        put_npy(plan);
    else
        put_records(plan);
    put_refused(plan);
}

/* ---- the command ---- */

static int write_out(const struct stg_ctl_options *options, const char *text, size_t n)
{
    const char *path = options->output;
    char why[4096];
    if (path == NULL || strcmp(path, "-") == 0) {
        fwrite(text, 1, n, stdout);
        return stg_ctl_finish();
    }
    int flags = O_WRONLY | O_CREAT | O_CLOEXEC | (options->force ? O_TRUNC : O_EXCL);
    int fd = open(path, flags, 0666);
    if (fd < 0 && errno == EEXIST) {
        snprintf(why, sizeof(why), "%s exists: --force overwrites it", path);
        return stg_ctl_fail(-STAGER_ALREADY_EXISTS, why);
    }
    FILE *out = fd >= 0 ? fdopen(fd, "w") : NULL;
    bool is_written = out != NULL && fwrite(text, 1, n, out) == n;
    if (out != NULL && fclose(out) != 0)
        is_written = false;
    return is_written ? EXIT_OK : stg_ctl_cannot_write(path, errno);
}

static int run(struct plan *plan)
{
    const struct stg_file_schema *schema = &plan->schema;
    char *text = NULL, why[4096];
    size_t n = 0, n_read = 0;
    for (size_t i = 0; i < schema->n; i++)
        n_read += is_read(&schema->columns[i]);
    if (n_read == 0) {
        snprintf(why, sizeof(why),
                 "%s has no column that stager can read: `stagerctl "
                 "schema` shows why",
                 schema->url);
        return stg_ctl_fail(-STAGER_INVALID_ARGUMENT, why);
    }
    put_name(plan, plan->options->argument);
    plan->out = open_memstream(&text, &n);
    if (plan->out == NULL)
        return stg_ctl_fail(-STAGER_RESOURCE_EXHAUSTED, "out of memory");
    put_pipeline(plan);
    int status = fclose(plan->out) == 0
                     ? write_out(plan->options, text, n)
                     : stg_ctl_fail(-STAGER_RESOURCE_EXHAUSTED, "out of memory");
    free(text);
    return status;
}

int stg_ctl_init(const struct stg_ctl_options *options)
{
    struct plan plan = {.options = options};
    struct stg_ctl_link *link = stg_ctl_connect(options);
    if (link == NULL)
        return EXIT_FAILED;
    int status = stg_ctl_describe(link, options->argument, &plan.bump, &plan.schema);
    if (status == 0)
        status = run(&plan);
    stg_bump_finish(&plan.bump);
    stg_ctl_hang_up(link);
    return status;
}
