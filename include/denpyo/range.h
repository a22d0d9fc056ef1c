/* range.h: parks rows that wait for their topic together: one record for those of a batch. */
#ifndef DENPYO_RANGE_H
#define DENPYO_RANGE_H

#include "denpyo/hold.h"
#include "denpyo/ledger.h"
#include "denpyo/pgarray.h"

/*
 * A range is a row of parked_range. Invariants:
 *  1. A row is in one range and not parked besides, or in none.
 *  2. Its rows wait for one row, with their whole topic, and have never been tried: nothing is to be said of each.
 *  3. A claim of parked rows takes the lowest ids of a range; what it takes is dropped with that batch's settlement,
 * which has a receipt for each of them or parks it again, by itself or in a new range.
 */

#define RANGE_ARRAYS 4

/*
 * At the settlement of a batch: sends one statement that parks what may wait together, and marks these rows is_ranged;
 * the others of the batch are to be parked by themselves. arrays: RANGE_ARRAYS of them, memory that is used again.
 */
void range_send_park(const struct ledger *ledger, struct pg *pg, const struct batch *batch, struct pgarray *arrays);

/* Whether some rows of the batch come from ranges. */
bool range_has_rows(const struct batch *batch);

/* In the transaction that claims a batch of parked rows: those of its rows that come from ranges are taken. */
void range_send_take(const struct ledger *ledger, struct pg *pg, const struct batch *batch);

/* At the settlement of a batch of parked rows: the ranges it took are gone. */
void range_send_drop(const struct ledger *ledger, struct pg *pg, const struct batch *batch);

#endif
