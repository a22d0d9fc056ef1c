/* retry.h: how long a failed message waits before it is tried again. */
#ifndef DENPYO_RETRY_H
#define DENPYO_RETRY_H

#include <stdint.h>

/*
 * Exponential backoff with jitter: attempt 1 waits about initial_ms, each further attempt twice as long, never above max_ms; `random` (any 32 bits) spreads
 * the result over [3/4, 1] of that. attempts >= 1; no overflow for any attempts. Result in ms, >= 1.
 */
int64_t retry_delay_ms(int64_t attempts, int64_t initial_ms, int64_t max_ms, uint32_t random);

#endif
