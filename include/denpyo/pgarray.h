/* pgarray.h: one-dimensional arrays in PostgreSQL's binary format, written element by element. */
#ifndef DENPYO_PGARRAY_H
#define DENPYO_PGARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Element types, by their fixed oids (PostgreSQL's pg_type.dat). */
enum pgarray_type { PGARRAY_INT2 = 21, PGARRAY_INT4 = 23, PGARRAY_INT8 = 20, PGARRAY_TEXT = 25, PGARRAY_UUID = 2950 };

/* Zero-initialise, pgarray_begin before each use, pgarray_free once. data/size are what goes on the wire after
 * pgarray_end. */
struct pgarray {
    unsigned char *data;
    size_t size, capacity;
    uint32_t count;
    bool has_null;
};

/* Starts an empty array; keeps the memory of the last one. `expected` elements of about `element_size` bytes are
 * reserved. */
void pgarray_begin(struct pgarray *a, enum pgarray_type type, size_t expected, size_t element_size);
void pgarray_add_int2(struct pgarray *a, int16_t value);
void pgarray_add_int4(struct pgarray *a, int32_t value);
void pgarray_add_int8(struct pgarray *a, int64_t value);
void pgarray_add_bytes(struct pgarray *a, const void *bytes, size_t size); /* text or uuid */
void pgarray_add_null(struct pgarray *a);
/* Completes the header; the array may then be sent. */
void pgarray_end(struct pgarray *a);
void pgarray_free(struct pgarray *a);

#endif
