/* txn.h: exactly-once delivery: what is sent between two commits becomes visible together, or not at all. */
#ifndef DENPYO_TXN_H
#define DENPYO_TXN_H

#include <stdbool.h>
#include <stdint.h>

#include "denpyo/kafka_txn.h"
#include "denpyo/ledger.h"
#include "denpyo/mark.h"
#include "denpyo/publish.h"

/* OFF: at least once, or no producer. INIT: fencing older producers. READY: none is open. BROKEN: the producer must be
 * made anew. */
enum txn_state { TXN_OFF, TXN_INIT, TXN_READY, TXN_OPEN, TXN_COMMIT, TXN_ABORT, TXN_BROKEN };

/*
 * The transactions of a term. Invariants:
 *  1. Rows are routed and sent only while one is OPEN: those of the batches up to routed_id.
 *  2. A row that was acknowledged stays OPEN until the commit is confirmed: nothing is settled that may still be
 * aborted. The next transaction may begin before its rows are closed; nothing of that one has come back by then.
 *  3. After an abort every row that was sent in it is back in its lane, in its order.
 *  4. Fence first, read second: a term looks up what arrived only after INIT is done.
 *  5. A transaction that sent anything carries a mark of what it and the unsettled ones before it sent, so that a
 * successor knows it even when the records are gone.
 */
struct txn {
    struct ledger *ledger;
    struct publisher *publisher;
    struct worker *worker;
    enum txn_state state;
    const struct kafka_options *options; /* borrowed; the group of the marks is named like the transactional id */
    struct kafka_txn call;
    struct mark mark;      /* of the transaction that is being committed */
    size_t mark_most;      /* how long its text may be */
    int64_t routed_id;     /* batches up to this one are in the lanes */
    size_t most_rows;      /* of one transaction: its commit takes as long for many rows as for one */
    size_t rows;           /* of the batches that came into them since it began */
    size_t newest_rows;    /* of the last of them */
    bool goes_on;          /* more of them are to come into the lanes at the next step */
    int64_t wait_until_us; /* complete, but more rows are on their way from the database; 0 = not complete */
    int64_t confirm_id;    /* rows of the batches up to this one are committed and to be confirmed; 0 = none */
    int64_t begun_us;
    int64_t rest_until_us;             /* the next one does not begin before */
    int64_t called_for_us, watched_us; /* how long the call is there, up to when it was looked at last */
    bool is_calling;                   /* the call is on the worker */
    bool is_forgotten;                 /* its answer no longer counts */
    int64_t retry_us;
    struct fault fault; /* BROKEN: why */
};

void txn_init(struct txn *t, struct ledger *ledger, struct publisher *publisher, struct worker *worker,
              const struct kafka_options *options, int64_t most_rows);

/* A term begins with the publisher's producer: fences. Only in exactly-once mode. */
void txn_start(struct txn *t);

/* Begins, commits or aborts what is due. can_begin: no claim of parked rows is under way; more_comes: one of new rows
 * is. Never blocks. */
void txn_step(struct txn *t, bool can_begin, bool more_comes, int64_t now_us);

/* When txn_step wants to be called although nothing happened. */
int64_t txn_wake_us(const struct txn *t);

/* The producer is given up: its transaction ends by the next INIT. */
void txn_forget(struct txn *t);

#endif
