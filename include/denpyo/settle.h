/* settle.h: closes batches in order: one receipt for what the broker acknowledged, parked rows for the rest. */
#ifndef DENPYO_SETTLE_H
#define DENPYO_SETTLE_H

#include <stdbool.h>
#include <stdint.h>

#include "denpyo/hold.h"
#include "denpyo/ledger.h"
#include "denpyo/overdue.h"
#include "denpyo/pgarray.h"
#include "denpyo/stretch.h"

struct settle {
    struct ledger *ledger;
    struct holds *holds;
    struct overdue *overdue;
    struct pg *pg;
    size_t sent; /* batches in the transaction under way, 0 = none */
    struct pgarray arrays[12];
    struct stretches stretches;
    uint64_t settled_rows; /* dispatched rows whose receipt is committed, since start */
    int64_t settled_us;    /* when the last settlement was confirmed */
};

void settle_init(struct settle *s, struct ledger *ledger, struct holds *holds, struct overdue *overdue, struct pg *pg);
void settle_free(struct settle *s);

/*
 * Sends one transaction for the batches at the head of the ledger that have no OPEN row left, if none is under way.
 * can_repoint: no claim of parked rows is under way, so that who waits for whom may change. Never blocks.
 */
void settle_step(struct settle *s, bool can_repoint);

/* The connection was lost; upto_id is the newest settlement that the database has: batches up to it are closed after
 * all. False when one of them changed who waits for whom and its answer is lost: memory has to be loaded in full. */
bool settle_resume(struct settle *s, int64_t upto_id) __attribute__((warn_unused_result));

/* Forgets the transaction under way: memory is cleared and loaded again. */
void settle_reset(struct settle *s);

#endif
