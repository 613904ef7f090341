/* SPDX-License-Identifier: Apache-2.0
 *
 * An input that gives one path and ends: what a reader of a single file reads from. Made
 * by stg_iter_create with this size and impl; one thread at a time.
 */
#ifndef STG_DAEMON_SINGLE_PATH_H
#define STG_DAEMON_SINGLE_PATH_H

#include "daemon/dataset/step.h"

struct stg_single_path {
    struct stg_iter iter;
    struct stg_block *block; /* the path; its own reference */
    bool given;
    bool asked_again; /* another one was asked for since */
};

extern const struct stg_iter_impl stg_single_path_impl;

/* Takes the reference: another path, which is given next. */
void stg_single_path_set(struct stg_single_path *one, struct stg_block *block);

#endif
