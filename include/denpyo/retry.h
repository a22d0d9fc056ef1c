/* retry.h: how long a failed message waits before it is tried again. */
#ifndef DENPYO_RETRY_H
#define DENPYO_RETRY_H

#include <stdint.h>

/*
 * Exponential backoff with jitter: attempt 1 waits initial_ms, each further attempt twice as long, never above max_ms;
 * `random` (any 32 bits) spreads the result evenly over (3/4, 1] of that, 0 being the longest. attempts, initial_ms and
 * max_ms below 1 count as 1; no overflow for any argument. Result in ms, between 1 and max_ms. Pure.
 */
int64_t retry_delay_ms(int64_t attempts, int64_t initial_ms, int64_t max_ms, uint32_t random);

#endif
