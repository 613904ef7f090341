/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "tests/check.h"

void stg_fuzz_fail(const char *file, int line, const char *what, const char *text)
{
    fprintf(stderr, "%s:%d: not true: %s: %s\n", file, line, what, text);
    abort();
}

void stg_fuzz_folder(char *ret, size_t bytes)
{
    snprintf(ret, bytes, "%s/stg-fuzz-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    FUZZ_CHECK(mkdtemp(ret) != NULL);
}

/* ---- an input ---- */

static unsigned mode_of(const char *name)
{
    unsigned i = 0;
    while (i < stg_fuzz_n_modes && strcmp(stg_fuzz_modes[i].name, name) != 0)
        i++;
    FUZZ_CHECK_TEXT(i < stg_fuzz_n_modes, name);
    return i;
}

/* Returns the mode that the environment asks for; -1: each. */
static int only_mode(void)
{
    static int only = -2;
    if (only == -2) {
        const char *name = getenv("STG_FUZZ_MODE");
        only = name != NULL ? (int)mode_of(name) : -1;
    }
    return only;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int only = only_mode();
    unsigned number = size > 0 ? data[0] % stg_fuzz_n_modes : 0;
    if (size > 0 && (only < 0 || number == (unsigned)only))
        stg_fuzz_modes[number].run(data + 1, size - 1);
    return 0;
}

/* ---- seeds ---- */

struct seed {
    uint8_t *bytes;
    size_t n;
};
static struct seed *seeds;
static size_t n_seeds;

void stg_fuzz_seed(const char *mode, const void *prefix, size_t n_prefix,
                   const void *data, size_t bytes)
{
    unsigned number = mode_of(mode);
    if (only_mode() >= 0 && number != (unsigned)only_mode())
        return;
    struct seed seed = {malloc(1 + n_prefix + bytes), 1 + n_prefix + bytes};
    seeds = realloc(seeds, (n_seeds + 1) * sizeof(*seeds));
    FUZZ_CHECK(seed.bytes != NULL && seeds != NULL);
    seed.bytes[0] = (uint8_t)number;
    if (n_prefix > 0)
        memcpy(seed.bytes + 1, prefix, n_prefix);
    if (bytes > 0)
        memcpy(seed.bytes + 1 + n_prefix, data, bytes);
    seeds[n_seeds++] = seed;
}

void stg_fuzz_seed_text(const char *mode, const char *text)
{
    stg_fuzz_seed(mode, NULL, 0, text, strlen(text));
}

static void drop_seeds(void)
{
    for (size_t i = 0; i < n_seeds; i++)
        free(seeds[i].bytes);
    free(seeds);
    seeds = NULL;
    n_seeds = 0;
}

#ifdef STG_LIBFUZZER

int LLVMFuzzerInitialize(int *argc, char ***argv);

static void show_modes(void)
{
    for (size_t i = 0; i < stg_fuzz_n_modes; i++)
        puts(stg_fuzz_modes[i].name);
}

/* --write-seeds FOLDER: writes the seeds there, as a corpus to begin with, and exits.
 * --modes: prints the names of the modes, and exits. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    if (*argc == 2 && strcmp((*argv)[1], "--modes") == 0) {
        show_modes();
        exit(0);
    }
    if (*argc != 3 || strcmp((*argv)[1], "--write-seeds") != 0)
        return 0;
    stg_fuzz_seeds();
    for (size_t i = 0; i < n_seeds; i++) {
        char path[4096];
        snprintf(path, sizeof(path), "%s/seed-%03zu", (*argv)[2], i);
        FILE *file = fopen(path, "wb");
        FUZZ_CHECK_TEXT(file != NULL, path);
        FUZZ_CHECK(fwrite(seeds[i].bytes, 1, seeds[i].n, file) == seeds[i].n);
        FUZZ_CHECK(fclose(file) == 0);
    }
    drop_seeds();
    exit(0);
}

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);

/* The byte of a mode that runs alone stays: no run is wasted, and a finding is run again
 * without STG_FUZZ_MODE. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
    (void)seed;
    size = LLVMFuzzerMutate(data, size, most);
    if (size > 0 && only_mode() >= 0)
        data[0] = (uint8_t)only_mode();
    return size;
}

#else

/* ---- the corpus ---- */

/* Exactly these bytes on the heap: a sanitizer catches a read behind them. */
static void run(const uint8_t *bytes, size_t n)
{
    uint8_t *exact = malloc(n);
    CHECK(exact != NULL);
    memcpy(exact, bytes, n);
    LLVMFuzzerTestOneInput(exact, n);
    free(exact);
}

static void run_file(const char *folder, const char *name)
{
    static uint8_t bytes[1 << 20];
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        FAIL("%s: cannot be read", path);
    size_t n = fread(bytes, 1, sizeof(bytes), file);
    fclose(file);
    fprintf(stderr, "    %s\n", name);
    run(bytes, n);
}

/* Inputs with which something was wrong once. */
static void each_input_of_the_corpus_ends_well(void)
{
    const char *folder = getenv("STG_FUZZ_CORPUS");
    DIR *dir = folder != NULL ? opendir(folder) : NULL;
    if (dir == NULL)
        SKIP("STG_FUZZ_CORPUS names no folder");
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] != '.')
            run_file(folder, entry->d_name);
    }
    closedir(dir);
}

/* ---- mutations ---- */

static uint64_t state;

/* xorshift64* */
static size_t draw(size_t below)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (state * 0x2545f4914f6cdd1dull >> 16) % below;
}

static int64_t setting(const char *name, int64_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? atoll(text) : otherwise;
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000ll + t.tv_nsec / 1000000;
}

/* Replaces n_out bytes at `at` by others. */
static void splice(struct seed *input, size_t at, size_t n_out, const void *with,
                   size_t n)
{
    uint8_t *made = malloc(input->n - n_out + n + 1);
    CHECK(made != NULL);
    memcpy(made, input->bytes, at);
    if (n > 0)
        memcpy(made + at, with, n);
    memcpy(made + at + n, input->bytes + at + n_out, input->n - at - n_out);
    free(input->bytes);
    input->bytes = made;
    input->n = input->n - n_out + n;
}

/* The byte of the mode stays. */
static void mutate(struct seed *input)
{
    static const uint8_t odd[] = {0, 1, 0x7f, 0x80, 0xff, '"', '{', '-', ',', '\n'};
    size_t at = 1 + draw(input->n), left = input->n - at;
    const struct seed *other = &seeds[draw(n_seeds)];
    size_t from = draw(other->n), take = draw(other->n - from + 1) % 64;
    uint8_t byte = (uint8_t)draw(256);
    if (draw(3) == 0)
        byte = odd[draw(sizeof(odd))];
    if (left == 0)
        splice(input, input->n, 0, &byte, 1);
    else if (draw(2) == 0)
        input->bytes[at] = byte;
    else if (draw(2) == 0)
        input->bytes[at] ^= (uint8_t)(1u << draw(8));
    else if (draw(3) > 0)
        splice(input, at, draw(left < 64 ? left + 1 : 64), other->bytes + from, take);
    else
        splice(input, at, draw(4) == 0 ? left : draw(left < 64 ? left : 64), NULL, 0);
}

/* Of each mode, by its number. */
static struct {
    uint64_t n_runs;
    size_t n_seeds;
} of_modes[256];

/* Runs the seeds. A mode without one would not run at all. */
static void run_seeds(void)
{
    for (size_t i = 0; i < n_seeds; i++) {
        of_modes[seeds[i].bytes[0]].n_seeds++;
        run(seeds[i].bytes, seeds[i].n);
    }
    for (size_t i = 0; i < stg_fuzz_n_modes; i++) {
        bool runs = only_mode() < 0 || i == (size_t)only_mode();
        if (runs && of_modes[i].n_seeds == 0)
            FAIL("the mode %s has no seed", stg_fuzz_modes[i].name);
    }
}

static void show_runs(void)
{
    for (size_t i = 0; i < stg_fuzz_n_modes; i++)
        fprintf(stderr, "    %s: %zu seeds, %llu mutations\n", stg_fuzz_modes[i].name,
                of_modes[i].n_seeds, (unsigned long long)of_modes[i].n_runs);
    fprintf(stderr, "    %.1f s of CPU\n", (double)clock() / CLOCKS_PER_SEC);
}

static void mutations_of_the_seeds_end_well(void)
{
    uint64_t seed = (uint64_t)setting("STG_FUZZ_SEED", 1);
    int64_t end_ms = now_ms() + setting("STG_FUZZ_MS", 1500);
    fprintf(stderr, "    STG_FUZZ_SEED=%llu\n", (unsigned long long)seed);
    state = 2 * seed + 1;
    stg_fuzz_seeds();
    run_seeds();
    while (now_ms() < end_ms) {
        struct seed input = {NULL, 0};
        const struct seed *of = &seeds[draw(n_seeds)];
        input.bytes = malloc(of->n);
        CHECK(input.bytes != NULL);
        memcpy(input.bytes, of->bytes, of->n);
        input.n = of->n;
        for (size_t k = 1 + draw(5); k > 0; k--)
            mutate(&input);
        run(input.bytes, input.n);
        of_modes[input.bytes[0]].n_runs++;
        free(input.bytes);
    }
    show_runs();
    drop_seeds();
}

static const struct stg_test tests[] = {
    TEST_SLOW(each_input_of_the_corpus_ends_well, 60),
    TEST_SLOW(mutations_of_the_seeds_end_well, 60),
};
TEST_MAIN(tests)

#endif
