/* SPDX-License-Identifier: Apache-2.0
 *
 * The mode of fuzz_peers in which the input is what several endpoints of etcd answer.
 */
#ifndef STG_TESTS_FUZZ_ETCD_H
#define STG_TESTS_FUZZ_ETCD_H

#include <stddef.h>
#include <stdint.h>

/* Calls of a client, and for each request of it an end of the transfer, a status and a
 * body. A failed call names an endpoint; a change is sent once; if its answer is lost,
 * the code is UNAVAILABLE; what a read gives is sorted and was asked for. */
void stg_fuzz_etcd(const uint8_t *data, size_t bytes);
void stg_fuzz_etcd_seeds(void);

#endif
