/* SPDX-License-Identifier: Apache-2.0 */
#include "core/record/line.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/fingerprint.h"
#include "core/param.h"

#define SUM_BYTES 16

size_t stg_line_finish(char *buf, size_t n, const char *mark)
{
    char head[STG_LINE_HEAD_BYTES + 1];
    char *payload = buf + 1 + STG_LINE_HEAD_BYTES;
    snprintf(head, sizeof(head), "%.*s%016" PRIx64 " ", STG_LINE_MARK_BYTES, mark,
             stg_farm_hash(payload, n));
    buf[0] = '\n';
    memcpy(buf + 1, head, STG_LINE_HEAD_BYTES);
    payload[n] = '\n';
    return 1 + STG_LINE_HEAD_BYTES + n + 1;
}

size_t stg_escape(const char *text, const char *stay, char *buf)
{
    static const char digits[] = "0123456789abcdef";
    size_t n = 0;
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (strchr(stay, *text) != NULL) {
            buf[n++] = *text;
            continue;
        }
        buf[n++] = '%';
        buf[n++] = digits[c >> 4];
        buf[n++] = digits[c & 15];
    }
    buf[n] = '\0';
    return n;
}

size_t stg_line_escape(const char *name, char *buf)
{
    static const char stay[] = STG_ALPHANUMERIC "!\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~";
    buf[0] = '=';
    return 1 + stg_escape(name, stay, buf + 1);
}

bool stg_line_is_right(const char *line, size_t n, const char *mark)
{
    char sum[SUM_BYTES + 1];
    if (n <= STG_LINE_HEAD_BYTES || memcmp(line, mark, STG_LINE_MARK_BYTES) != 0 ||
        line[STG_LINE_HEAD_BYTES - 1] != ' ')
        return false;
    snprintf(sum, sizeof(sum), "%016" PRIx64,
             stg_farm_hash(line + STG_LINE_HEAD_BYTES, n - STG_LINE_HEAD_BYTES));
    return memcmp(sum, line + STG_LINE_MARK_BYTES, SUM_BYTES) == 0;
}

size_t stg_words_next(struct stg_words *words, const char **ret)
{
    *ret = words->at;
    const char *space = words->at < words->end
                            ? memchr(words->at, ' ', (size_t)(words->end - words->at))
                            : NULL;
    const char *end = space != NULL ? space : words->end;
    size_t n = (size_t)(end - words->at);
    words->at = space != NULL ? space + 1 : words->end;
    return n;
}

bool stg_words_is(struct stg_words *words, const char *text)
{
    const char *word;
    size_t n = stg_words_next(words, &word);
    return n == strlen(text) && memcmp(word, text, n) == 0;
}

bool stg_words_number(struct stg_words *words, uint64_t *ret)
{
    const char *word;
    size_t n = stg_words_next(words, &word);
    *ret = 0;
    for (size_t i = 0; i < n; i++) {
        if (word[i] < '0' || word[i] > '9' || i == 19)
            return false;
        *ret = *ret * 10 + (uint64_t)(word[i] - '0');
    }
    return n > 0;
}

bool stg_words_hex(struct stg_words *words, uint64_t *ret)
{
    const char *word;
    size_t n = stg_words_next(words, &word);
    *ret = 0;
    for (size_t i = 0; i < n; i++) {
        int digit = stg_hex_digit(word[i]);
        if (digit < 0 || i == 16)
            return false;
        *ret = *ret << 4 | (uint64_t)digit;
    }
    return n == 16;
}

bool stg_words_name(struct stg_words *words, char *ret, size_t bytes)
{
    const char *word;
    size_t n = stg_words_next(words, &word), k = 0;
    if (n == 0 || word[0] != '=')
        return false;
    for (size_t i = 1; i < n; i++) {
        int high = 0, low = (unsigned char)word[i];
        if (k + 1 == bytes)
            return false;
        if (word[i] == '%') {
            high = i + 2 < n ? stg_hex_digit(word[i + 1]) : -1;
            low = i + 2 < n ? stg_hex_digit(word[i + 2]) : -1;
            i += 2;
        }
        if (high < 0 || low < 0 || (high << 4 | low) == 0)
            return false;
        ret[k++] = (char)(high << 4 | low);
    }
    ret[k] = '\0';
    return true;
}
