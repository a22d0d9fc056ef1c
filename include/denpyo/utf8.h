/* utf8.h: what in a text from outside may be shown, or stored as text: well-formed UTF-8 without control characters. */
#ifndef DENPYO_UTF8_H
#define DENPYO_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the well-formed character at `text` (RFC 3629: surrogates and overlong forms are none), or 0. */
size_t utf8_size(const unsigned char *text);

/* Whether a terminal may obey the character at `text` instead of showing it: below the space, DEL, U+0080 to U+009F. */
bool utf8_is_control(const unsigned char *text);

/*
 * Copies `text` to `out`, of `size` > 0 bytes, as far as whole characters fit, NUL-terminated: each line break or tab
 * becomes a space, each other control character and each byte that is part of no character a '?'. `out` may be `text`.
 */
void utf8_clean(char *out, size_t size, const char *text);

#endif
