/* SPDX-License-Identifier: Apache-2.0
 *
 * The frame of the fuzz targets. A program has several modes, each a function of
 * untrusted bytes; the first byte of an input selects the mode. With -Dfuzzers=true the
 * program is one of libFuzzer. Otherwise it is a test: it replays its corpus, and then
 * mutates its seeds for STG_FUZZ_MS milliseconds (1500) from STG_FUZZ_SEED (1). Both run
 * one mode alone if STG_FUZZ_MODE names it. STG_FUZZ_SHOW=1 prints the errors of passes.
 */
#ifndef STG_TESTS_FUZZ_H
#define STG_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct stg_fuzz_mode {
    const char *name;
    void (*run)(const uint8_t *data, size_t bytes);
};

/* What a program defines. */
extern const struct stg_fuzz_mode stg_fuzz_modes[];
extern const size_t stg_fuzz_n_modes;
/* Adds the seeds of all modes by stg_fuzz_seed. */
void stg_fuzz_seeds(void);

/* Adds a seed: `prefix` (NULL: none), then the data. */
void stg_fuzz_seed(const char *mode, const void *prefix, size_t n_prefix,
                   const void *data, size_t bytes);
/* The same for a text without its NUL. */
void stg_fuzz_seed_text(const char *mode, const char *text);

/* Aborts, which a fuzzer reports with the input. */
void stg_fuzz_fail(const char *file, int line, const char *what, const char *text)
    __attribute__((noreturn));

#define FUZZ_CHECK(condition)                                                            \
    do {                                                                                 \
        if (!(condition))                                                                \
            stg_fuzz_fail(__FILE__, __LINE__, #condition, "");                           \
    } while (0)
/* Also shows a text. */
#define FUZZ_CHECK_TEXT(condition, text)                                                 \
    do {                                                                                 \
        if (!(condition))                                                                \
            stg_fuzz_fail(__FILE__, __LINE__, #condition, text);                         \
    } while (0)

/* ---- the input ---- */

struct stg_fuzz_input {
    const uint8_t *at, *end;
};

/* Return 0 behind the end. */
static inline unsigned stg_fuzz_byte(struct stg_fuzz_input *input)
{
    return input->at < input->end ? *input->at++ : 0;
}

static inline unsigned stg_fuzz_number(struct stg_fuzz_input *input)
{
    unsigned high = stg_fuzz_byte(input);
    return high << 8 | stg_fuzz_byte(input);
}

static inline size_t stg_fuzz_left(const struct stg_fuzz_input *input)
{
    return (size_t)(input->end - input->at);
}

/* Makes a folder in shared memory, or in /tmp. The caller removes it. */
void stg_fuzz_folder(char *ret, size_t bytes);

/* ---- the same result twice ---- */

static inline uint64_t stg_fuzz_hash(uint64_t hash, const void *data, size_t bytes)
{
    const uint8_t *at = (const uint8_t *)data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ at[i]) * 0x100000001b3ull;
    return hash;
}

#endif
