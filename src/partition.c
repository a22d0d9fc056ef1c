/* partition.c: murmur2 with Kafka's seed, so that a key lands where the Java producers of its topic put it. */
#include "denpyo/partition.h"

#include <assert.h>
#include <endian.h>
#include <string.h>

#define SEED 0x9747b28cU
#define MIX 0x5bd1e995U

uint32_t partition_murmur2(const void *key, size_t size) {
    const unsigned char *at = key;
    uint32_t hash = SEED ^ (uint32_t)size;
    size_t left = size;
    for (; left >= 4; left -= 4, at += 4) {
        uint32_t word;
        memcpy(&word, at, sizeof word);
        word = le32toh(word) * MIX;
        word ^= word >> 24;
        hash = (hash * MIX) ^ (word * MIX);
    }
    if (left > 0) {
        uint32_t tail = at[0];
        if (left > 1)
            tail |= (uint32_t)at[1] << 8;
        if (left > 2)
            tail |= (uint32_t)at[2] << 16;
        hash = (hash ^ tail) * MIX;
    }
    hash ^= hash >> 13;
    hash *= MIX;
    hash ^= hash >> 15;
    return hash;
}

int32_t partition_of_key(const void *key, size_t size, int32_t count) {
    assert(count >= 1);
    return (int32_t)((partition_murmur2(key, size) & 0x7fffffffU) % (uint32_t)count);
}
