/* relay_producer.h: the relay's producer: opened, given up with all that is in memory, replaced when it has failed. */
#ifndef DENPYO_RELAY_PRODUCER_H
#define DENPYO_RELAY_PRODUCER_H

#include "denpyo/relay_parts.h"

/* Whether the publisher's producer cannot go on: a fatal error, a report that says the same, a broken transaction. The
 * first call that sees it logs why (one line for a row of the same) and sets the time for another producer. */
bool relay_producer_has_failed(struct relay *r, int64_t now_us);

/* Whether that time has come: at once after something was dispatched, then later and later. True once. */
bool relay_producer_is_due(struct relay *r, int64_t now_us);

/* Opens one for the publisher. Does not block. */
bool relay_producer_open(struct relay *r, struct fault *f) __attribute__((warn_unused_result));

/* Destroys a producer (or none: NULL) on the worker, and frees then the batches whose payloads it may still read;
 * relay.closing counts those under way. */
void relay_producer_close(struct relay *r, struct kafka *kafka, struct batch_queue batches);

/* Forgets everything in memory and closes the producer; what was claimed will be loaded again from the ledger. */
void relay_producer_forget(struct relay *r);

/* The same, and opens another. */
void relay_producer_renew(struct relay *r);

/* A term begins, or begins anew with another producer: fence first, then read where the ledger stands, in full. */
void relay_producer_begin(struct relay *r);

/* With another producer: what is open is looked up and loaded again. */
void relay_producer_begin_anew(struct relay *r);

#endif
