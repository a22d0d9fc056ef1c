/* kafka_mark.h: reads the marks that transactions left as a consumer group's offsets. */
#ifndef DENPYO_KAFKA_MARK_H
#define DENPYO_KAFKA_MARK_H

#include <stdbool.h>

#include "denpyo/kafka_tail.h"

/*
 * Fills `mark` and `mark_offset` of the look-up's topics from what is committed for their partition 0 by the group that
 * bears the transactional id's name; waits until no transaction is open that holds such an offset. Blocks, for the
 * worker. False with tail->fault: no answer, given up, or the right to the group is missing, and what to grant.
 */
bool kafka_mark_read(struct kafka_tail *tail) __attribute__((warn_unused_result));

/* Whether the group's coordinator answers and lets us read. FAULT_RETRY: not yet; FAULT_FATAL: the right is missing,
 * and what to grant. Blocks for at most timeout_ms. */
bool kafka_mark_check(const struct kafka_options *options, int timeout_ms, struct fault *f)
    __attribute__((warn_unused_result));

#endif
