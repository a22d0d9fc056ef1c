/* stretch.h: the stretches of offsets that a settlement has receipts in, by which a record's message is found. */
#ifndef DENPYO_STRETCH_H
#define DENPYO_STRETCH_H

#include <stdint.h>

#include "denpyo/pgarray.h"
#include "denpyo/topic.h"

/* A stretch is the 1 << STRETCH_BITS offsets of a partition from a multiple of that on; schemas/0009_offsets.sql says
 * the same. */
#define STRETCH_BITS 10
#define STRETCH_SLOTS 1024

/* Remembers what was added lately, so that each stretch is added once, or seldom more often; a repetition does no harm.
 * Zero-initialise. */
struct stretches {
    uint64_t round; /* which array is being written */
    struct stretch_slot {
        uint64_t round;
        const struct topic *topic;
        int64_t number;
        int32_t partition;
    } slots[STRETCH_SLOTS];
};

/* Begins a text array of stretches. */
void stretch_begin(struct stretches *s, struct pgarray *array);
/* Names one, as 'topic/partition/number'. */
void stretch_put(struct pgarray *array, const struct topic *topic, int32_t partition, int64_t number);

/* Adds the one that this offset lies in; none for an offset that nobody knows (-1). Inline: it is called for each
 * message. */
static inline void stretch_add(struct stretches *s, struct pgarray *array, const struct topic *topic, int32_t partition,
                               int64_t offset) {
    int64_t number = offset >> STRETCH_BITS;
    struct stretch_slot *slot = &s->slots[((uint32_t)topic->index * 61 + (uint32_t)partition) % STRETCH_SLOTS];
    if (slot->number == number && slot->partition == partition && slot->topic == topic && slot->round == s->round)
        return;
    *slot = (struct stretch_slot){s->round, topic, number, partition};
    if (offset >= 0)
        stretch_put(array, topic, partition, number);
}

#endif
