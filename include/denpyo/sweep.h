/* sweep.h: the slow proof that the fast path missed nothing: settled messages against receipts and parked rows. */
#ifndef DENPYO_SWEEP_H
#define DENPYO_SWEEP_H

#include <stdbool.h>
#include <stdint.h>

#include "denpyo/ledger.h"

/* Most messages that one step looks at: some milliseconds of the server's time. */
#define SWEEP_ROWS 5000

/* What people read of a message that the sweep has found. */
#define SWEEP_ERROR "its batch was closed with neither a receipt nor a reason for this message; found by the sweep"

/* What one step saw (schemas/queries/sweep_page.sql). last_id: the last one looked at; 0 = there was none. */
struct sweep_answer {
    int64_t last_id, seen, found, first_found_id;
};

/* Sends one step, fenced, in a transaction of its own; what it finds is parked with `error`. Never blocks. */
void sweep_send(const struct ledger *ledger, struct pg *pg, int64_t after_id, const char *error, pg_done_fn done,
                void *context);
struct sweep_answer sweep_read(const struct pg_result *result);

/*
 * The sweep by schedule: a round over all messages each interval, the first one soon after the start of a term, in
 * steps with pauses of many times their own length. Invariant: the steps go over the connection of the settlements,
 * whose transactions are sent whole, as theirs are; a slow step delays receipts, and neither claims nor renewals.
 */
struct sweep {
    struct ledger *ledger;
    struct pg *pg;
    int64_t interval_us; /* 0 = never */
    bool is_asked;       /* a step is on its way */
    int64_t after_id;    /* how far the round has come; 0 = between rounds */
    int64_t sent_us, next_us;
    uint64_t round_seen, round_found;
    uint64_t rounds, found; /* since start */
};

void sweep_init(struct sweep *s, struct ledger *ledger, struct pg *pg, int64_t interval_ms);

/* Takes the next step when it is time. Call it every turn while leading. Never blocks. */
void sweep_step(struct sweep *s, int64_t now_us);

/* The connection was lost: the step under way will not be answered, and is taken again. */
void sweep_reset(struct sweep *s);

#endif
