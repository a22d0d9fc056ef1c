/* kafka_consumer.h: a consumer that joins no group, for looking at what a topic or a group's offsets hold. */
#ifndef DENPYO_KAFKA_CONSUMER_H
#define DENPYO_KAFKA_CONSUMER_H

#include <stdbool.h>

#include "denpyo/fault.h"
#include "denpyo/kafka.h"

/* group: whose committed offsets are asked for, or NULL. It commits none. NULL with a fault to try again;
 * kafka_consumer_close ends it. */
struct rd_kafka_s *kafka_consumer_open(const struct kafka_options *options, const char *group, bool is_read_committed,
                                       struct fault *f);

/* Whether records of the topic may be read; true also when that could not be found out. Blocks for at most timeout_ms.
 */
bool kafka_consumer_may_read(struct rd_kafka_s *consumer, const char *topic, int timeout_ms);

void kafka_consumer_close(struct rd_kafka_s *consumer);

#endif
