/* utf8.c: tells well-formed characters from stray bytes, and harmless ones from those that steer a terminal. */
#include "denpyo/utf8.h"

#include <string.h>

size_t utf8_size(const unsigned char *s) {
    size_t size = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf5 ? 4 : 0;
    for (size_t i = 1; i < size; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    bool wrong = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
                 (s[0] == 0xf4 && s[1] > 0x8f);
    return wrong ? 0 : size;
}

bool utf8_is_control(const unsigned char *s) {
    return s[0] < ' ' || s[0] == 0x7f || (s[0] == 0xc2 && s[1] >= 0x80 && s[1] < 0xa0);
}

void utf8_clean(char *out, size_t size, const char *text) {
    size_t used = 0;
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        size_t bytes = utf8_size(s);
        bool shown = bytes > 0 && !utf8_is_control(s);
        size_t needed = shown ? bytes : 1;
        if (used + needed >= size)
            break;
        if (shown)
            memmove(out + used, s, bytes);
        else
            out[used] = *s == '\n' || *s == '\t' || *s == '\r' ? ' ' : '?';
        used += needed;
        s += bytes > 0 ? bytes : 1;
    }
    out[used] = 0;
}
