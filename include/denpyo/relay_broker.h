/* relay_broker.h: whether any broker can be reached: at the start, and ever after. */
#ifndef DENPYO_RELAY_BROKER_H
#define DENPYO_RELAY_BROKER_H

#include "denpyo/relay_parts.h"

/* Asks for a broker's first answer in the background; broker_answered, or the relay's end, comes of it within seconds.
 */
void relay_broker_await(struct relay *r);

/* Logs that no broker can be reached any more, or one again: one line each. Call it every turn. */
void relay_broker_note(struct relay *r);

#endif
