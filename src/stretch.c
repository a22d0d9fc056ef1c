/* stretch.c: names a stretch of offsets of a receipt as the index of receipts knows it. */
#include "denpyo/stretch.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define TOPIC_BYTES 249 /* Kafka's longest name */

void stretch_begin(struct stretches *s, struct pgarray *array) {
    s->round++;
    pgarray_begin(array, PGARRAY_TEXT, 16, 32);
}

void stretch_put(struct pgarray *array, const struct topic *topic, int32_t partition, int64_t number) {
    char text[TOPIC_BYTES + sizeof "/-2147483648/-9223372036854775808"];
    if (topic->name_size > TOPIC_BYTES)
        return; /* Kafka has no such topic */
    memcpy(text, topic->name, topic->name_size);
    int size =
        snprintf(text + topic->name_size, sizeof text - topic->name_size, "/%" PRId32 "/%" PRId64, partition, number);
    pgarray_add_bytes(array, text, topic->name_size + (size_t)size);
}
