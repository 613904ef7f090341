/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the orientation stands in EXIF data.
 */
#include <string.h>

#include "ops/kernels/image/reader.h"

#define TAG 0x0112
#define TYPE_SHORT 3
#define ENTRY_BYTES 12

struct tiff {
    const uint8_t *bytes;
    size_t n;
    bool big_endian;
};

/* An unsigned number of 2 or 4 bytes; 0 beyond the end. */
static uint32_t number_at(const struct tiff *tiff, size_t at, size_t bytes)
{
    uint32_t ret = 0;
    if (at > tiff->n || tiff->n - at < bytes)
        return 0;
    for (size_t i = 0; i < bytes; i++)
        ret = ret << 8 | tiff->bytes[at + (tiff->big_endian ? i : bytes - 1 - i)];
    return ret;
}

int stg_image_exif_orientation(const uint8_t *bytes, size_t n)
{
    struct tiff tiff = {bytes, n, false};
    if (n < 8 || (memcmp(bytes, "II*\0", 4) != 0 && memcmp(bytes, "MM\0*", 4) != 0))
        return 1;
    tiff.big_endian = bytes[0] == 'M';
    size_t list = number_at(&tiff, 4, 4), n_entries = number_at(&tiff, list, 2);
    for (size_t i = 0; i < n_entries; i++) {
        size_t entry = list + 2 + i * ENTRY_BYTES;
        if (number_at(&tiff, entry, 2) != TAG)
            continue;
        uint32_t value = number_at(&tiff, entry + 8, 2);
        bool good = number_at(&tiff, entry + 2, 2) == TYPE_SHORT && value >= 1;
        return good && value <= 8 ? (int)value : 1;
    }
    return 1;
}
