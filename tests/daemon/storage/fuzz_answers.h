/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STG_TESTS_FUZZ_ANSWERS_H
#define STG_TESTS_FUZZ_ANSWERS_H

#include <stddef.h>
#include <stdint.h>

/* libFuzzer's entry: runs one fetch through the answers that the bytes encode. Returns 1
 * if the fetch got all of its bytes. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
