/* relay_producer.h: when a producer has failed, and when the next may be tried. */
#ifndef DENPYO_RELAY_PRODUCER_H
#define DENPYO_RELAY_PRODUCER_H

#include "denpyo/relay_parts.h"

/* Whether the publisher's producer cannot go on: a fatal error, a report that says the same, a broken transaction. The
 * first call that sees it logs why (one line for a row of the same) and sets the time for another producer. */
bool relay_producer_has_failed(struct relay *r, int64_t now_us);

/* Whether that time has come: at once after something was dispatched, then later and later. True once. */
bool relay_producer_is_due(struct relay *r, int64_t now_us);

#endif
