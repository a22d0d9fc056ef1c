/* kafka_limits.h: what topics accept, as the broker tells those who may ask. */
#ifndef DENPYO_KAFKA_LIMITS_H
#define DENPYO_KAFKA_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "denpyo/kafka.h"

struct kafka_limits {
    int64_t max_message_bytes; /* max.message.bytes; 0 = not known */
    bool is_compacted;         /* cleanup.policy holds compact: no record without a key; false also when not known */
};

/* Asks for the limits of `count` topics (DescribeConfigs) and fills limits[]; what is refused or not answered in time
 * stays unknown. Blocks for at most about timeout_ms: for the worker. */
void kafka_limits_ask(struct kafka *k, const char *const *names, size_t count, int timeout_ms,
                      struct kafka_limits *limits);

#endif
