/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STG_TESTS_FUZZ_ANSWERS_H
#define STG_TESTS_FUZZ_ANSWERS_H

#include <stddef.h>
#include <stdint.h>

/* libFuzzer's entry: one fetch through the answers that the bytes stand for. Returns 1 if
 * it got all of its bytes. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
