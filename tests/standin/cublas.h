/* SPDX-License-Identifier: Apache-2.0
 *
 * The controls of the fake cuBLAS (cublas.c), for the test that loads it.
 */
#ifndef STG_TESTS_STANDIN_CUBLAS_H
#define STG_TESTS_STANDIN_CUBLAS_H

#define FAKE_CUBLAS_SYMBOL "fake_cublas"

struct fake_cublas {
    unsigned n_calls, n_created, n_handles; /* products; handles made, and existing */
    int create, product;                    /* the status of both; 0: they work */
};

#endif
