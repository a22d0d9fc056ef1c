/* random.h: repeatable random numbers, so that a property test that failed can be run again from its seed. */
#ifndef DENPYO_TESTS_RANDOM_H
#define DENPYO_TESTS_RANDOM_H

#include <stdint.h>

/* splitmix64; the state is the seed. */
static inline uint64_t random_next(uint64_t *state) {
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Evenly from 0 to below - 1; below >= 1. */
static inline uint64_t random_below(uint64_t *state, uint64_t below) {
    return random_next(state) % below;
}

#endif
