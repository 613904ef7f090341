/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/workers/photographs.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jpeglib.h>

#include "tests/bench/bench.h"

#define N_MADE 100
#define MADE_WIDTH 500
#define MADE_HEIGHT 375

struct photograph photographs[MAX_PHOTOGRAPHS];
size_t n_photographs;

static void load(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *from = fopen(path, "rb");
    struct photograph *file = &photographs[n_photographs];
    if (from == NULL || fseek(from, 0, SEEK_END) != 0)
        bench_die("%s: cannot be read", path);
    file->bytes = (unsigned long)ftell(from);
    file->data = malloc(file->bytes + 1);
    rewind(from);
    if (file->data == NULL || fread(file->data, 1, file->bytes, from) != file->bytes)
        bench_die("%s: cannot be read", path);
    fclose(from);
    n_photographs++;
}

static void load_folder(const char *folder)
{
    DIR *dir = opendir(folder);
    if (dir == NULL)
        bench_die("%s: cannot be read", folder);
    struct dirent *entry;
    while ((entry = readdir(dir)) != NULL && n_photographs < MAX_PHOTOGRAPHS) {
        const char *dot = strrchr(entry->d_name, '.');
        if (dot != NULL && (strcmp(dot, ".jpg") == 0 || strcmp(dot, ".jpeg") == 0))
            load(folder, entry->d_name);
    }
    closedir(dir);
    if (n_photographs == 0)
        bench_die("%s: has no .jpg", folder);
}

/* Waves, edges and some noise. */
static void make_row(unsigned image, unsigned y, unsigned *noise, JSAMPLE *row)
{
    double a = 0.01 + image % 7 * 0.02, b = 0.03 + image % 5 * 0.01;
    for (unsigned x = 0; x < MADE_WIDTH; x++) {
        for (unsigned c = 0; c < 3; c++) {
            *noise = *noise * 1664525 + 1013904223;
            double wave = sin(a * x + b * y * (c + 1)), edge = sin(b * (x - 1.0 * y)) > 0;
            row[3 * x + c] = (JSAMPLE)(110 + 60 * wave + 40 * edge + (*noise >> 28));
        }
    }
}

static void make(unsigned image)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    struct photograph *file = &photographs[n_photographs++];
    JSAMPLE row[MADE_WIDTH * 3], *rows[1] = {row};
    unsigned noise = image;
    c.err = jpeg_std_error(&errors);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &file->data, &file->bytes);
    c.image_width = MADE_WIDTH;
    c.image_height = MADE_HEIGHT;
    c.input_components = 3;
    c.in_color_space = JCS_RGB;
    jpeg_set_defaults(&c);
    jpeg_set_quality(&c, 93, TRUE);
    jpeg_start_compress(&c, TRUE);
    while (c.next_scanline < c.image_height) {
        make_row(image, c.next_scanline, &noise, row);
        jpeg_write_scanlines(&c, rows, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
}

const char *photographs_create(void)
{
    const char *folder = getenv("STAGER_BENCH_IMAGES");
    if (folder != NULL)
        load_folder(folder);
    for (unsigned i = 0; folder == NULL && i < N_MADE; i++)
        make(i);
    return folder;
}

void photographs_destroy(void)
{
    for (size_t i = 0; i < n_photographs; i++)
        free(photographs[i].data);
    n_photographs = 0;
}

void photographs_write(char *folder)
{
    char path[128];
    if (mkdtemp(folder) == NULL)
        bench_die("%s: no folder", folder);
    for (size_t i = 0; i < n_photographs; i++) {
        const struct photograph *file = &photographs[i];
        snprintf(path, sizeof(path), "%s/%zu.jpg", folder, i);
        FILE *to = fopen(path, "wb");
        if (to == NULL || fwrite(file->data, 1, file->bytes, to) != file->bytes)
            bench_die("%s: cannot be written", path);
        fclose(to);
    }
}

void photographs_remove(const char *folder)
{
    char path[128];
    for (size_t i = 0; i < n_photographs; i++) {
        snprintf(path, sizeof(path), "%s/%zu.jpg", folder, i);
        unlink(path);
    }
    rmdir(folder);
}
