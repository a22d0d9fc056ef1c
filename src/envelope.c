/* envelope.c: turns a row's id and headers into their wire form, and counts the bytes a broker will count. */
#include "denpyo/envelope.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#define EACH_BYTE(b) (UINT64_C(0x0101010101010101) * (b))

/* Four bytes to eight hexadecimal digits, all at once in one word. */
static void hex_of_four(const unsigned char in[4], char out[8]) {
    uint32_t four;
    memcpy(&four, in, sizeof four);
    uint64_t word = le32toh(four);
    word = (word | word << 16) & UINT64_C(0x0000ffff0000ffff);
    word = (word | word << 8) & UINT64_C(0x00ff00ff00ff00ff);
    uint64_t digits = (word >> 4 | word << 8) & EACH_BYTE(0x0f);
    uint64_t letters = (digits + EACH_BYTE(6)) >> 4 & EACH_BYTE(1);
    word = htole64(digits + EACH_BYTE('0') + letters * ('a' - '0' - 10));
    memcpy(out, &word, sizeof word);
}

void envelope_id(const unsigned char uuid[16], char out[ENVELOPE_ID_SIZE]) {
    char middle[16];
    hex_of_four(uuid, out);
    hex_of_four(uuid + 4, middle);
    hex_of_four(uuid + 8, middle + 8);
    hex_of_four(uuid + 12, out + 28);
    out[8] = out[13] = out[18] = out[23] = '-';
    memcpy(out + 9, middle, 4);
    memcpy(out + 14, middle + 4, 4);
    memcpy(out + 19, middle + 8, 4);
    memcpy(out + 24, middle + 12, 4);
}

/*
 * Headers stand in the hot path of every row that has them, and a JSON tree costs over ten times this walk over a flat
 * object. Decoded strings are never longer than their JSON, so `write` needs no bound of its own: the document is as
 * large as the text plus one word.
 */
struct scan {
    const unsigned char *at, *end;
    char *write;
};

static void skip_blanks(struct scan *s) {
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\n' || *s->at == '\r'))
        s->at++;
}

static bool skip_char(struct scan *s, char expected) {
    skip_blanks(s);
    if (s->at == s->end || *s->at != (unsigned char)expected)
        return false;
    s->at++;
    return true;
}

static bool skip_null(struct scan *s) {
    skip_blanks(s);
    if (s->end - s->at < 4 || memcmp(s->at, "null", 4) != 0)
        return false;
    s->at += 4;
    return true;
}

/* True if some byte of the word ends a plain run: a quote, a backslash, or a control character. */
static bool has_special(uint64_t word) {
    uint64_t quote = word ^ EACH_BYTE('"'), escape = word ^ EACH_BYTE('\\');
    uint64_t found = (quote - EACH_BYTE(1)) & ~quote;
    found |= (escape - EACH_BYTE(1)) & ~escape;
    found |= (word - EACH_BYTE(0x20)) & ~word;
    return (found & EACH_BYTE(0x80)) != 0;
}

static void copy_plain(struct scan *s) {
    while (s->end - s->at >= 8) {
        uint64_t word;
        memcpy(&word, s->at, sizeof word);
        if (has_special(word))
            break;
        memcpy(s->write, &word, sizeof word);
        s->at += 8;
        s->write += 8;
    }
    while (s->at < s->end && *s->at != '"' && *s->at != '\\' && *s->at >= 0x20)
        *s->write++ = (char)*s->at++;
}

/* Four hexadecimal digits to a number, or -1. */
static int32_t read_hex(struct scan *s) {
    if (s->end - s->at < 4)
        return -1;
    int32_t value = 0;
    for (int i = 0; i < 4; i++) {
        int c = *s->at++;
        if (c >= '0' && c <= '9')
            c -= '0';
        else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
            c = (c | 0x20) - 'a' + 10;
        else
            return -1;
        value = value << 4 | c;
    }
    return value;
}

static void write_utf8(struct scan *s, int32_t code) {
    if (code < 0x80) {
        *s->write++ = (char)code;
        return;
    }
    int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const int lead[] = {0, 0xc0, 0xe0, 0xf0};
    *s->write++ = (char)(lead[more] | code >> 6 * more);
    while (more-- > 0)
        *s->write++ = (char)(0x80 | (code >> 6 * more & 0x3f));
}

/* What follows \u; two of them when the first is half of a pair. */
static bool copy_code(struct scan *s) {
    int32_t code = read_hex(s);
    if (code < 0 || (code >= 0xdc00 && code <= 0xdfff))
        return false;
    if (code >= 0xd800 && code <= 0xdbff) {
        if (s->end - s->at < 2 || memcmp(s->at, "\\u", 2) != 0)
            return false;
        s->at += 2;
        int32_t low = read_hex(s);
        if (low < 0xdc00 || low > 0xdfff)
            return false;
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    write_utf8(s, code);
    return true;
}

/* What follows a backslash. */
static bool copy_escape(struct scan *s) {
    static const char meaning[256] = {
        ['"'] = '"', ['\\'] = '\\', ['/'] = '/', ['b'] = '\b', ['f'] = '\f', ['n'] = '\n', ['r'] = '\r', ['t'] = '\t'};
    if (s->at == s->end)
        return false;
    unsigned char c = *s->at++;
    if (c == 'u')
        return copy_code(s);
    if (meaning[c] == 0)
        return false;
    *s->write++ = meaning[c];
    return true;
}

/* A JSON string, decoded to *text and *size, with a NUL behind it that takes the closing quote's place. */
static bool scan_string(struct scan *s, const char **text, size_t *size) {
    if (!skip_char(s, '"'))
        return false;
    char *start = s->write;
    for (copy_plain(s); s->at < s->end && *s->at == '\\'; copy_plain(s)) {
        s->at++;
        if (!copy_escape(s))
            return false;
    }
    if (s->at == s->end || *s->at != '"')
        return false;
    s->at++;
    *text = start;
    *size = (size_t)(s->write - start);
    *s->write++ = 0;
    return true;
}

static void reserve_document(struct envelope_headers *h, size_t size) {
    if (size <= h->document_capacity)
        return;
    free(h->document);
    h->document = malloc(size);
    if (h->document == NULL)
        abort();
    h->document_capacity = size;
}

static struct envelope_header *append(struct envelope_headers *h) {
    if (h->count == h->capacity) {
        h->capacity = h->capacity == 0 ? 8 : 2 * h->capacity;
        h->items = realloc(h->items, h->capacity * sizeof *h->items);
        if (h->items == NULL)
            abort();
    }
    return &h->items[h->count++];
}

static bool scan_header(struct scan *s, struct envelope_headers *out, struct fault *f) {
    struct envelope_header h = {0};
    if (!scan_string(s, &h.name, &h.name_size) || !skip_char(s, ':') ||
        !(skip_null(s) || scan_string(s, &h.value, &h.value_size)))
        return fault_set(f, FAULT_REJECT, "HEADERS", "The headers are not a JSON object of strings and nulls.");
    if (h.name_size == 0)
        return fault_set(f, FAULT_REJECT, "HEADERS", "A header has an empty name.");
    if (memchr(h.name, 0, h.name_size) != NULL)
        return fault_set(f, FAULT_REJECT, "HEADERS", "A header's name contains a NUL character.");
    if (strcmp(h.name, ENVELOPE_ID_NAME) == 0)
        return fault_set(f, FAULT_REJECT, "HEADERS",
                         "A header is named \"" ENVELOPE_ID_NAME "\", which is reserved for the message id.");
    *append(out) = h;
    return true;
}

bool envelope_headers_parse(struct envelope_headers *out, const char *json, size_t size, struct fault *f) {
    out->count = 0;
    reserve_document(out, size + sizeof(uint64_t));
    const unsigned char *start = (const unsigned char *)json;
    struct scan s = {.at = start, .end = start + size, .write = out->document};
    bool closed = false;
    if (skip_char(&s, '{')) {
        closed = skip_char(&s, '}');
        while (!closed) {
            if (!scan_header(&s, out, f)) {
                out->count = 0;
                return false;
            }
            closed = skip_char(&s, '}');
            if (!closed && !skip_char(&s, ','))
                break;
        }
    }
    skip_blanks(&s);
    if (closed && s.at == s.end)
        return true;
    out->count = 0;
    return fault_set(f, FAULT_REJECT, "HEADERS", "The headers are not a JSON object of strings and nulls.");
}

void envelope_headers_free(struct envelope_headers *h) {
    free(h->items);
    free(h->document);
    *h = (struct envelope_headers){0};
}

/* Bytes of n as a zigzag varint. */
static int64_t varint_size(int64_t n) {
    uint64_t zigzag = (uint64_t)n << 1 ^ (n < 0 ? UINT64_MAX : 0);
    return (64 - __builtin_clzll(zigzag | 1) + 6) / 7;
}

/* Bytes of a string behind its length; -1 is NULL. */
static int64_t counted_size(int64_t size) {
    return varint_size(size) + (size < 0 ? 0 : size);
}

int64_t envelope_size(int64_t key_size, int64_t value_size, const struct envelope_headers *headers) {
    int64_t count = headers == NULL ? 0 : (int64_t)headers->count;
    /* Attributes, time-stamp delta and offset delta are one byte each in a lone record. */
    int64_t body = 3 + counted_size(key_size) + counted_size(value_size) + varint_size(count + 1);
    body += counted_size(sizeof ENVELOPE_ID_NAME - 1) + counted_size(ENVELOPE_ID_SIZE);
    for (int64_t i = 0; i < count; i++) {
        const struct envelope_header *h = &headers->items[i];
        body += counted_size((int64_t)h->name_size) + counted_size(h->value == NULL ? -1 : (int64_t)h->value_size);
    }
    return 61 + varint_size(body) + body;
}
