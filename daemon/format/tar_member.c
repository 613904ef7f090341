/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/format/tar_member.h"

#include <stddef.h>
#include <string.h>

/* POSIX.1-2017, pax, "ustar Interchange Format". GNU tar's old format differs after the
 * magic; of the fields there, only `prefix` is read, and only for ustar. */
struct header {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], chksum[8], type;
    char linkname[100], magic[6], version[2], uname[32], gname[32];
    char devmajor[8], devminor[8], prefix[155], pad[12];
};

_Static_assert(sizeof(struct header) == STG_TAR_BLOCK, "a header is a block");

/* Limit for the extension headers (GNU long names, pax) of one member, in total. */
#define MAX_EXTRA_BYTES ((uint64_t)1 << 20)

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + STG_TAR_BLOCK - 1) & ~(uint64_t)(STG_TAR_BLOCK - 1);
}

static bool is_zero(const char *block)
{
    for (int i = 0; i < STG_TAR_BLOCK; i++) {
        if (block[i] != 0)
            return false;
    }
    return true;
}

/* Parses octal digits, between spaces and up to a NUL, or GNU's base 256 after 0x80. */
static bool number(const char *field, size_t n, uint64_t *ret)
{
    uint64_t value = 0;
    size_t i = 0;
    if ((uint8_t)field[0] == 0x80) {
        for (i = 1; i < n; i++) {
            if (value >> 55 != 0)
                return false;
            value = value << 8 | (uint8_t)field[i];
        }
        *ret = value;
        return true;
    }
    while (i < n && field[i] == ' ')
        i++;
    for (; i < n && field[i] >= '0' && field[i] <= '7'; i++)
        value = value << 3 | (uint64_t)(field[i] - '0');
    for (; i < n && field[i] != '\0'; i++) {
        if (field[i] != ' ')
            return false;
    }
    *ret = value;
    return true;
}

/* Accepts a sum of signed bytes too: old programs wrote that. */
static bool checksum_is_right(const struct header *header)
{
    uint64_t want;
    if (!number(header->chksum, sizeof(header->chksum), &want))
        return false;
    uint64_t sum = 8 * ' ';
    int64_t signed_sum = 8 * ' ';
    const char *bytes = (const char *)header;
    for (size_t i = 0; i < STG_TAR_BLOCK; i++) {
        if (i >= offsetof(struct header, chksum) && i < offsetof(struct header, type))
            continue;
        sum += (uint8_t)bytes[i];
        signed_sum += (signed char)bytes[i];
    }
    return want == sum || (int64_t)want == signed_sum;
}

static bool set_name(struct stg_tar_member *member, const char *name, uint64_t bytes)
{
    const char *nul = memchr(name, '\0', bytes);
    if (nul != NULL)
        bytes = (uint64_t)(nul - name);
    if (bytes > STG_TAR_MAX_NAME)
        return false;
    memcpy(member->name, name, bytes);
    member->name[bytes] = '\0';
    member->name_bytes = bytes;
    return true;
}

static void name_of_header(const struct header *header, struct stg_tar_member *member)
{
    char name[sizeof(header->prefix) + 1 + sizeof(header->name)];
    size_t n = 0;
    if (memcmp(header->magic, "ustar", 6) == 0 && header->prefix[0] != '\0') {
        n = strnlen(header->prefix, sizeof(header->prefix));
        memcpy(name, header->prefix, n);
        name[n++] = '/';
    }
    size_t bytes = strnlen(header->name, sizeof(header->name));
    memcpy(name + n, header->name, bytes);
    set_name(member, name, n + bytes);
}

/* ---- extension headers ---- */

/* What the extension headers define for the member after them. */
struct extra {
    bool has_name, has_size;
    uint64_t size;
};

static bool decimal(const char *at, const char *end, uint64_t *ret)
{
    uint64_t value = 0;
    if (at == end || end - at > 18)
        return false;
    for (; at < end; at++) {
        if (*at < '0' || *at > '9')
            return false;
        value = value * 10 + (uint64_t)(*at - '0');
    }
    *ret = value;
    return true;
}

static bool is_key(const char *at, const char *equals, const char *key)
{
    return (size_t)(equals - at) == strlen(key) && memcmp(at, key, strlen(key)) == 0;
}

static const char *pax_value(const char *at, const char *equals, const char *end,
                             struct stg_tar_member *member, struct extra *extra)
{
    if (is_key(at, equals, "path")) {
        extra->has_name = set_name(member, equals + 1, (uint64_t)(end - equals - 1));
        return extra->has_name ? NULL : "a name in a pax header is too long";
    }
    if (is_key(at, equals, "size")) {
        extra->has_size = decimal(equals + 1, end, &extra->size);
        return extra->has_size ? NULL : "a size in a pax header is not a number";
    }
    if (equals - at >= 10 && memcmp(at, "GNU.sparse", 10) == 0)
        return "sparse files are not supported: make the archive without --sparse";
    return NULL;
}

/* Parses entries "LENGTH key=value\n"; LENGTH counts the whole entry. Returns NULL, or
 * the text of an error. */
static const char *pax(const char *at, const char *end, struct stg_tar_member *member,
                       struct extra *extra)
{
    while (at < end && *at != '\0') {
        const char *space = memchr(at, ' ', (size_t)(end - at));
        uint64_t bytes;
        if (space == NULL || !decimal(at, space, &bytes) ||
            bytes > (uint64_t)(end - at) || bytes < (uint64_t)(space - at) + 3 ||
            at[bytes - 1] != '\n')
            return "a pax header is damaged";
        const char *stop = at + bytes - 1;
        const char *equals = memchr(space + 1, '=', (size_t)(stop - space - 1));
        if (equals == NULL)
            return "a pax header is damaged";
        const char *what = pax_value(space + 1, equals, stop, member, extra);
        if (what != NULL)
            return what;
        at += bytes;
    }
    return NULL;
}

/* Parses one extension header. Returns NULL, or the text of an error. */
static const char *take_extra(char type, const char *data, uint64_t bytes,
                              struct stg_tar_member *member, struct extra *extra)
{
    if (type == 'x')
        return pax(data, data + bytes, member, extra);
    if (type != 'L')
        return NULL;
    extra->has_name = set_name(member, data, bytes);
    return extra->has_name ? NULL : "a GNU long name is too long";
}

/* ---- a member ---- */

static enum stg_tar_rc bad(struct stg_tar_member *member, const char *what)
{
    member->what = what;
    return STG_TAR_BAD;
}

static enum stg_tar_rc need(struct stg_tar_member *member, uint64_t bytes)
{
    member->end = bytes;
    return STG_TAR_NEED;
}

/* Links, devices and folders have no data, whatever their size field holds. */
static bool has_data(char type)
{
    return type < '1' || type > '6';
}

static enum stg_tar_rc own_header(const struct header *header, uint64_t p, uint64_t size,
                                  const struct extra *extra, struct stg_tar_member *ret)
{
    if (header->type == 'S')
        return bad(ret,
                   "sparse files are not supported: make the archive without --sparse");
    if (!extra->has_name)
        name_of_header(header, ret);
    if (extra->has_size)
        size = extra->size;
    if (!has_data(header->type))
        size = 0;
    if (size > INT64_MAX / 2)
        return bad(ret, "a size is too large");
    ret->regular = header->type == '0' || header->type == '\0' || header->type == '7';
    ret->data = p + STG_TAR_BLOCK;
    ret->bytes = size;
    ret->end = ret->data + round_up(size);
    return STG_TAR_MEMBER;
}

enum stg_tar_rc stg_tar_member(const char *at, uint64_t n, struct stg_tar_member *ret)
{
    struct extra extra = {0};
    uint64_t p = 0;
    for (;;) {
        if (n < p + STG_TAR_BLOCK)
            return need(ret, p + STG_TAR_BLOCK);
        struct header header;
        uint64_t size;
        memcpy(&header, at + p, sizeof(header));
        if (is_zero(at + p))
            return p == 0 ? STG_TAR_END : bad(ret, "an extended header has no member");
        if (!checksum_is_right(&header))
            return bad(ret, "a header does not match its checksum");
        if (!number(header.size, sizeof(header.size), &size))
            return bad(ret, "a size is not a number");
        if (memchr("LKxg", header.type, 4) == NULL || header.type == '\0')
            return own_header(&header, p, size, &extra, ret);
        if (size > MAX_EXTRA_BYTES || p > MAX_EXTRA_BYTES)
            return bad(ret, "an extended header is too long");
        uint64_t data = p + STG_TAR_BLOCK;
        if (n < data + size)
            return need(ret, data + round_up(size));
        const char *what = take_extra(header.type, at + data, size, ret, &extra);
        if (what != NULL)
            return bad(ret, what);
        p = data + round_up(size);
    }
}
