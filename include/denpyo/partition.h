/* partition.h: which partition a key goes to, as the Java client decides it (murmur2). */
#ifndef DENPYO_PARTITION_H
#define DENPYO_PARTITION_H

#include <stddef.h>
#include <stdint.h>

/*
 * Kafka's murmur2 of `size` bytes, seed 0x9747b28c (org.apache.kafka.common.utils.Utils.murmur2), the same on every
 * byte order. `key` needs no alignment and may be NULL when size is 0. Java hashes at most 2^31 - 1 bytes, so must the
 * caller. Pure, never blocks.
 */
uint32_t partition_murmur2(const void *key, size_t size);

/*
 * The partition of a non-NULL key (which may be empty: that is a key like any other) among `count` >= 1 partitions:
 * (murmur2 & 0x7fffffff) % count, as BuiltInPartitioner.partitionForKey of the Java client does.
 */
int32_t partition_of_key(const void *key, size_t size, int32_t count);

#endif
