/* retry.c: doubles a wait up to its bound and spreads it, so that what failed together does not come back together. */
#include "denpyo/retry.h"

static int64_t at_least_one(int64_t n) {
    return n < 1 ? 1 : n;
}

int64_t retry_delay_ms(int64_t attempts, int64_t initial_ms, int64_t max_ms, uint32_t random) {
    int64_t doublings = at_least_one(attempts) - 1;
    int64_t limit = at_least_one(max_ms);
    int64_t full = at_least_one(initial_ms);
    if (doublings > 62 || full > (limit >> doublings))
        full = limit;
    else
        full <<= doublings;
    /* quarter * random / 2^32 in two halves, for the product does not fit 64 bits. */
    uint64_t quarter = (uint64_t)full / 4;
    uint64_t cut = (quarter >> 32) * random + (((quarter & 0xffffffffU) * random) >> 32);
    return full - (int64_t)cut;
}
