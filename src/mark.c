/* mark.c: writes and reads marks: "d1", then for each batch, newest first, its hash, the bits of what was not sent,
 * ";". */
#include "denpyo/mark.h"

#include <string.h>

#define VERSION "d1"
#define HASH_DIGITS 8 /* of six bits */
#define BITS 6

static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";

/* Mixes the message ids, in their order, into 48 bits. */
static uint64_t hash(const struct batch *batch) {
    uint64_t h = batch->count;
    for (size_t i = 0; i < batch->count; i++) {
        uint64_t half[2];
        memcpy(half, batch->rows[i].message_id, sizeof half);
        for (int k = 0; k < 2; k++) {
            h = (h ^ half[k]) * UINT64_C(0x9E3779B97F4A7C15); /* 2^64 by the golden ratio, odd */
            h ^= h >> 29;
        }
    }
    return h >> 16;
}

static void put_hash(char out[HASH_DIGITS], uint64_t h) {
    for (int i = 0; i < HASH_DIGITS; i++, h >>= BITS)
        out[i] = digits[h & 63];
}

static bool is_sent(const struct row *row) {
    return row->is_acknowledged || row->outcome == ROW_DISPATCHED;
}

/* ---- writing ---- */

/* Adds a batch at `at`; the new end, or 0 when it does not fit below `most`. */
static size_t add(char *text, size_t at, size_t most, const struct batch *batch) {
    size_t size = HASH_DIGITS;
    for (size_t i = batch->count; i > 0; i--)
        if (!is_sent(&batch->rows[i - 1])) {
            size += (i - 1) / BITS + 1;
            break;
        }
    if (at + size + 1 > most)
        return 0;
    put_hash(text + at, hash(batch));
    for (size_t n = 0; n < size - HASH_DIGITS; n++) {
        unsigned bits = 0;
        for (size_t i = n * BITS; i < (n + 1) * BITS && i < batch->count; i++)
            bits |= (unsigned)!is_sent(&batch->rows[i]) << i % BITS;
        text[at + HASH_DIGITS + n] = digits[bits];
    }
    text[at + size] = ';';
    return at + size + 1;
}

static bool has_sent(const struct batch *batch) {
    for (size_t i = 0; i < batch->count; i++)
        if (is_sent(&batch->rows[i]))
            return true;
    return false;
}

static struct topic *choose_topic(const struct batch *batch) {
    for (size_t i = 0; i < batch->count; i++)
        if (is_sent(&batch->rows[i]) && !batch->rows[i].topic->is_unmarkable)
            return batch->rows[i].topic;
    return NULL;
}

bool mark_write(struct mark *m, const struct batch *first, int64_t upto_id, size_t text_most) {
    enum { MOST = MARK_TEXT_MOST / (HASH_DIGITS + 1) };
    const struct batch *recent[MOST]; /* a ring: a queue of batches has links in one direction only */
    size_t seen = 0, newest = 0;
    m->topic = NULL;
    for (const struct batch *b = first; b != NULL && b->id <= upto_id; b = b->next) {
        struct topic *topic = choose_topic(b);
        recent[seen++ % MOST] = b;
        if (topic != NULL)
            m->topic = topic;
        if (has_sent(b)) {
            newest = seen;
            m->batch_id = b->id;
        }
    }
    if (m->topic == NULL)
        return false;
    size_t end = sizeof VERSION - 1;
    memcpy(m->text, VERSION, end);
    for (size_t n = newest; n > 0 && n + MOST > seen; n--) {
        size_t next =
            add(m->text, end, text_most < MARK_TEXT_MOST ? text_most : MARK_TEXT_MOST, recent[(n - 1) % MOST]);
        if (next == 0)
            break;
        end = next;
    }
    m->text[end] = 0;
    return true;
}

/* ---- reading ---- */

static int digit(char c) {
    const char *at = c != 0 ? strchr(digits, c) : NULL;
    return at != NULL ? (int)(at - digits) : -1;
}

/* The piece of the n-th batch; NULL when there is none. */
static const char *find_piece(const char *text, int64_t n, size_t *size) {
    if (strncmp(text, VERSION, sizeof VERSION - 1) != 0)
        return NULL;
    text += sizeof VERSION - 1;
    for (;; n--) {
        const char *end = strchr(text, ';');
        if (end == NULL)
            return NULL;
        if (n == 0) {
            *size = (size_t)(end - text);
            return text;
        }
        text = end + 1;
    }
}

bool mark_apply(int64_t batch_id, const char *text, struct batch *batch) {
    char expected[HASH_DIGITS];
    size_t size;
    const char *piece = batch->id <= batch_id ? find_piece(text, batch_id - batch->id, &size) : NULL;
    put_hash(expected, hash(batch));
    if (piece == NULL || size < HASH_DIGITS || memcmp(piece, expected, HASH_DIGITS) != 0)
        return false;
    for (size_t n = HASH_DIGITS; n < size; n++)
        if (digit(piece[n]) < 0)
            return false;
    for (size_t i = 0; i < batch->count; i++) {
        size_t n = HASH_DIGITS + i / BITS;
        bool is_left_out = n < size && ((unsigned)digit(piece[n]) >> i % BITS & 1) != 0;
        batch->rows[i].is_marked = batch->rows[i].is_marked || !is_left_out;
    }
    return true;
}
