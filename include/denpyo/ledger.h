/* ledger.h: where this relay stands in the ledger: its cursor, its open batches, what it is allowed to write. */
#ifndef DENPYO_LEDGER_H
#define DENPYO_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "denpyo/batch.h"
#include "denpyo/lease.h"
#include "denpyo/statement.h"
#include "denpyo/window.h"

/*
 * Shared by claim, settle and load. Invariants:
 *  1. open holds the batches claimed and not settled that are in memory, ids ascending without gaps, all > settled_id
 * and <= newest_id.
 *  2. The cursor is that of batch newest_id, or ran ahead of it over empty windows only.
 *  3. A batch enters `open` when its claim is known to be committed, and leaves when its settlement is.
 */
struct ledger {
    const struct statements *statements; /* borrowed */
    const struct lease *lease;           /* borrowed: relay, epoch, holder for the fence */
    struct window_cursor cursor;
    int64_t newest_id, settled_id;
    struct batch_queue open;
    struct batch_queue kept;                     /* settled, in memory for rows that librdkafka still has */
    size_t retry_open;                           /* batches of parked rows that are open or being claimed */
    int64_t retry_at_us;                         /* when a parked row is due; INT64_MAX = none */
    bool is_fenced;                              /* a transaction of ours found another leader */
    bool ask_next_due;                           /* that time is to be asked of the database */
    uint64_t settlements_sent, settlements_done; /* transactions that settle, since start */
    int64_t timeout_ms;                          /* of each transaction's statements */
};

void ledger_init(struct ledger *ledger, const struct statements *statements, const struct lease *lease,
                 int64_t timeout_ms);
/* Forgets the batches in memory and the cursor: to be loaded again. */
void ledger_clear(struct ledger *ledger);

/* Frees the kept batches of which librdkafka has nothing any more. */
void ledger_drop_kept(struct ledger *ledger);

/* Opens a fenced transaction on pg: BEGIN and the fence. is_durable: its commit waits for the disk. */
void ledger_begin(const struct ledger *ledger, struct pg *pg, bool is_durable);

/* A statement that only reads, in a transaction of its own that fails where row-level security would hide rows. */
void ledger_look(const struct ledger *ledger, struct pg *pg, enum statement which, const struct pg_call *call,
                 pg_done_fn done, void *context);

/* SQLSTATE by which a fenced transaction says that we no longer lead. */
#define LEDGER_FENCED "22012"

#endif
