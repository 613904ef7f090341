/* SPDX-License-Identifier: Apache-2.0
 *
 * Variables out of files of numpy.save. Any thread.
 */
#ifndef STG_CLIENT_NPY_H
#define STG_CLIENT_NPY_H

#include "core/batch.h"

/* Reads the array of a file into the tensor, whose dtype and shape it has to have;
 * numbers in the other byte order are turned. Errors name the file: NOT_FOUND,
 * PERMISSION_DENIED; INVALID_ARGUMENT for what is not read and for another dtype or
 * shape; DATA_LOSS for a file that is damaged or partition. After an error the tensor may
 * be half filled. */
int stg_npy_read(const char *file, struct stg_tensor *tensor, struct stg_err *err);

#endif
