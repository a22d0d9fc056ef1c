/* envelope.h: what a message looks like on the wire: the id header, the row's headers, the size rule. */
#ifndef DENPYO_ENVELOPE_H
#define DENPYO_ENVELOPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "denpyo/fault.h"

#define ENVELOPE_ID_NAME "id" /* the header that carries the message id; reserved, no row's header may bear it */
#define ENVELOPE_ID_SIZE 36   /* characters of a message id, lower case, without NUL */

/* One header; name is NUL-terminated, value NULL = a null header (not an empty one). Both borrowed from the set. */
struct envelope_header {
    const char *name;
    size_t name_size;
    const char *value;
    size_t value_size;
};

/*
 * The headers of one row, parsed. Zero-initialise, reuse for many rows (its memory grows to the largest and stays),
 * free once. Invariant: items[0..count) borrow from `document`, and are good until the next parse or free.
 */
struct envelope_headers {
    struct envelope_header *items;
    size_t count, capacity;
    void *document; /* the decoded strings, one after the other */
    size_t document_capacity;
};

/* 16 bytes of a binary uuid to 36 lower-case characters, not NUL-terminated. */
void envelope_id(const unsigned char uuid[16], char out[ENVELOPE_ID_SIZE]);

/*
 * Parses the JSON text of a jsonb `headers` column (an object of strings and nulls; the order is jsonb's own) into
 * *out, replacing what it held. `json` needs no NUL. FAULT_REJECT with code HEADERS when it is not such an object, a
 * name is empty, contains a NUL or is the reserved "id"; *out is then empty. Escapes are decoded; other bytes are kept
 * as they are, whatever the encoding, for Kafka's header values are bytes. Never crashes on any bytes.
 */
bool envelope_headers_parse(struct envelope_headers *out, const char *json, size_t size, struct fault *f)
    __attribute__((warn_unused_result));

/* Leaves *h as if zero-initialised. */
void envelope_headers_free(struct envelope_headers *h);

/*
 * Bytes of a lone uncompressed record batch holding this message, exactly as the broker compares them with
 * max.message.bytes (record batch v2: 61 + vl(B) + B, vl = length of a zigzag varint, B = the record's body; see
 * https://kafka.apache.org/documentation/#recordbatch). key_size and value_size are -1 for NULL; headers may be NULL
 * for none; the id header is counted in.
 */
int64_t envelope_size(int64_t key_size, int64_t value_size, const struct envelope_headers *headers);

#endif
