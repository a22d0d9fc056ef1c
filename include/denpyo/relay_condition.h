/* relay_condition.h: what keeps the leader from its work, as SQL is to show it. */
#ifndef DENPYO_RELAY_CONDITION_H
#define DENPYO_RELAY_CONDITION_H

#include "denpyo/relay_parts.h"

/* Hands the present condition to the lease, whose renewals carry it to the database; call it every turn. */
void relay_condition_note(struct relay *r, int64_t now_us);

#endif
