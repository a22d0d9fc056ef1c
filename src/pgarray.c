/* pgarray.c: builds the binary arrays that a settlement sends (array_recv's format: header, then length and bytes
 * each). */
#include "denpyo/pgarray.h"

#include <stdlib.h>
#include <string.h>

#define HEADER_BYTES 20 /* dimensions, has-null flag, element oid, length, lower bound: 4 bytes each */

static void put32(unsigned char *at, uint32_t value) {
    at[0] = (unsigned char)(value >> 24);
    at[1] = (unsigned char)(value >> 16);
    at[2] = (unsigned char)(value >> 8);
    at[3] = (unsigned char)value;
}

static unsigned char *grow(struct pgarray *a, size_t bytes) {
    if (a->size + bytes > a->capacity) {
        a->capacity = (a->size + bytes) * 2;
        a->data = realloc(a->data, a->capacity);
        if (a->data == NULL)
            abort();
    }
    unsigned char *at = a->data + a->size;
    a->size += bytes;
    return at;
}

void pgarray_begin(struct pgarray *a, enum pgarray_type type, size_t expected, size_t element_size) {
    a->size = 0;
    a->count = 0;
    a->has_null = false;
    grow(a, HEADER_BYTES + expected * (4 + element_size));
    a->size = HEADER_BYTES;
    put32(a->data + 8, (uint32_t)type);
}

static unsigned char *element(struct pgarray *a, uint32_t size) {
    unsigned char *at = grow(a, 4 + size);
    put32(at, size);
    a->count++;
    return at + 4;
}

void pgarray_add_int2(struct pgarray *a, int16_t value) {
    unsigned char *at = element(a, 2);
    at[0] = (unsigned char)((uint16_t)value >> 8);
    at[1] = (unsigned char)value;
}

void pgarray_add_int4(struct pgarray *a, int32_t value) {
    put32(element(a, 4), (uint32_t)value);
}

void pgarray_add_int8(struct pgarray *a, int64_t value) {
    unsigned char *at = element(a, 8);
    put32(at, (uint32_t)((uint64_t)value >> 32));
    put32(at + 4, (uint32_t)value);
}

void pgarray_add_bytes(struct pgarray *a, const void *bytes, size_t size) {
    unsigned char *at = element(a, (uint32_t)size);
    if (size > 0)
        memcpy(at, bytes, size);
}

void pgarray_add_null(struct pgarray *a) {
    put32(grow(a, 4), UINT32_MAX);
    a->count++;
    a->has_null = true;
}

void pgarray_end(struct pgarray *a) {
    put32(a->data, a->count > 0 ? 1 : 0);
    put32(a->data + 4, a->has_null);
    put32(a->data + 12, a->count);
    put32(a->data + 16, 1);
    if (a->count == 0)
        a->size = 12; /* an array without elements has no dimension */
}

void pgarray_free(struct pgarray *a) {
    free(a->data);
    *a = (struct pgarray){0};
}
