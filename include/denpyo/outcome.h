/* outcome.h: what a refusal means: sent again, alone, failed, or rejected. */
#ifndef DENPYO_OUTCOME_H
#define DENPYO_OUTCOME_H

#include "denpyo/publish.h"

/* All reports of the lane's group are in: decides over its refused rows and the size of the next group. */
void outcome_of_group(struct publisher *p, struct lane *lane);

/* librdkafka refused the row at once, with this code: closes it, or returns false: it is not to be sent now. */
bool outcome_refused(struct publisher *p, struct row *row, int code);

/* Closes an OPEN row as rejected: a person decides. Whoever waited for it goes on, unless rejected rows hold: then a
 * row that is a follower itself is held instead. */
void outcome_reject(struct publisher *p, struct row *row, const char *code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Closes an OPEN row as failed: tried again by itself after a backoff (rejected after the last attempt
 * for a trouble of its own); until then it holds its followers. A row that is
 * a follower itself is held instead. */
void outcome_fail(struct publisher *p, struct row *row, enum row_scope scope, const char *code, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Rows go back to the head of their queues in the lane, in their order. Empties the queue. */
void outcome_put_back(struct lane *lane, struct row_queue *rows);

#endif
