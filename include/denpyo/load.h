/* load.h: asks the database where this relay stands: at the start of a term, and after every lost connection. */
#ifndef DENPYO_LOAD_H
#define DENPYO_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "denpyo/identity.h"
#include "denpyo/ledger.h"
#include "denpyo/publish.h"
#include "denpyo/reconcile.h"
#include "denpyo/settle.h"

/* DONE: the ledger agrees with the database. STALE: memory holds what the database does not have any more: clear
 * everything and load in full. REFUSED: identity.fault says why, and a person has to confirm. */
enum load_state { LOAD_IDLE, LOAD_BUSY, LOAD_DONE, LOAD_STALE, LOAD_REFUSED };

/* An open batch on record, whose rows are to be read again. */
struct load_batch {
    int64_t id, after_id, upto_id, row_count;
    bool last_page, is_retry;
    char *from, *to;
    struct batch *batch;
};

/*
 * Invariant: open batches reach the publisher in the order of their ids, after the holds are known, so that a key's
 * order is kept across the restart.
 */
struct load {
    struct ledger *ledger;
    struct publisher *publisher;
    struct settle *settle;
    struct reconcile *reconcile;
    struct identity *identity;
    struct pg *pg;
    enum load_state state;
    bool is_full;
    bool saw_recovery;
    struct load_batch *batches;
    size_t count, read;
};

void load_init(struct load *l, struct ledger *ledger, struct publisher *publisher, struct settle *settle,
               struct reconcile *reconcile, struct identity *identity, struct pg *pg);
void load_free(struct load *l);

/*
 * Starts. is_full: memory is empty (a new term); otherwise only what memory does not know is read: whether the last
 * claim and settlement were committed. Everything runs asynchronously; watch `state`. Never blocks.
 */
void load_start(struct load *l, bool is_full);

/* Goes on when the look-up of what arrived has come to an end; call it every turn while BUSY. */
void load_step(struct load *l, int64_t now_us);

/* The connection was lost: start again. */
void load_reset(struct load *l);

#endif
