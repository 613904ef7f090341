/* SPDX-License-Identifier: Apache-2.0
 *
 * What the decoders of all formats use: memory that is kept, and the limit of pixels.
 */
#include <inttypes.h>

#include "ops/kernels/image/reader.h"

void *stg_image_room(struct stg_image_memory *memory, enum stg_image_room room,
                     uint64_t bytes)
{
    if (memory->rooms[room].bytes >= bytes && memory->rooms[room].data != NULL)
        return memory->rooms[room].data;
    /* The next image may be a little larger. */
    if (bytes > SIZE_MAX / 2)
        return NULL;
    size_t size = (size_t)bytes + (size_t)bytes / 2;
    memory->rooms[room].data = stg_bump_alloc_raw(memory->bump, size);
    memory->rooms[room].bytes = memory->rooms[room].data != NULL ? size : 0;
    return memory->rooms[room].data;
}

int stg_image_check_size(const struct stg_image_reader *reader, int64_t height,
                         int64_t width, struct stg_err *err)
{
    if (height > 0 && width > 0 && height <= reader->options->max_pixels / width)
        return 0;
    return stg_err(err, -STAGER_INVALID_ARGUMENT,
                   "the %s image is %" PRId64 " x %" PRId64
                   " pixels; max_pixels is %" PRId64,
                   reader->codec->name, width, height, reader->options->max_pixels);
}
