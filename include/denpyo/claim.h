/* claim.h: finds what committed, opens the next batch, and commits it before anything of it is sent. */
#ifndef DENPYO_CLAIM_H
#define DENPYO_CLAIM_H

#include <stdbool.h>
#include <stdint.h>

#include "denpyo/ledger.h"
#include "denpyo/pace.h"
#include "denpyo/publish.h"

struct claim_options {
    int64_t batch_rows, batch_bytes;           /* a page: most rows, target size */
    int64_t inflight_messages, inflight_bytes; /* open rows, bytes not settled: no page is read above these */
    int64_t poll_busy_ms, poll_linger_ms, poll_idle_ms;
};

/* POLL: has anything committed? PAGE: reading one. WAIT: a topic of the page has to be looked up first; the page was
 * given back. */
enum claim_state { CLAIM_IDLE, CLAIM_POLL, CLAIM_PAGE, CLAIM_WAIT };

/*
 * Invariants:
 *  1. A batch is handed to the publisher only after its commit was confirmed.
 *  2. One page is read and one claim commits at a time; the next page may be read while the last claim commits.
 *  3. The window's bounds (low, high, late) are known whenever the cursor's window is open and bounded is true.
 */
struct claim {
    struct claim_options options;
    struct ledger *ledger;
    struct publisher *publisher;
    struct pg *pg;
    enum claim_state state;
    bool is_retry;        /* the page is one of parked rows */
    bool is_stopping;     /* no page becomes a batch any more */
    bool parked_first;    /* the parked rows that were due at the start are not all claimed yet */
    struct batch *staged; /* its claim commits; NULL = none */
    bool bounded;
    int64_t low, high;
    char *late;        /* stragglers as an array literal, NULL = none */
    int64_t limit;     /* rows asked for */
    int64_t row_bytes; /* recent average */
    struct pace pace;
    int64_t looked_us; /* when the newest look began */
    int64_t poll_after_us;
    int64_t trickle_us;        /* while partitions are held and nothing is acknowledged: no page before this time */
    int64_t ask_after_us;      /* when the next due parked row is asked for, whatever happened */
    int seen_cleared;          /* of publisher.topics_cleared */
    uint64_t seen_lookups;     /* WAIT: of publisher.lookups when it began */
    uint64_t seen_settlements; /* ledger.settlements_sent when the parked rows were asked for */
    bool saw_recovery;         /* the server said it is in recovery: the cursor must not move there */
};

void claim_init(struct claim *c, const struct claim_options *options, struct ledger *ledger,
                struct publisher *publisher, struct pg *pg);
void claim_free(struct claim *c);

/* Polls, reads or claims what is due and allowed. Never blocks. */
void claim_step(struct claim *c, int64_t now_us);

/* The relay is to end: a page that is being read is given back, a claim that is being committed stands. For good. */
void claim_stop(struct claim *c);
/* Before claim_reset, when a statement timed out: if it was that of a page, the next one has fewer rows. */
void claim_slow_down(struct claim *c);

/* The connection was lost: what was under way is forgotten; the ledger's cursor must be loaded again. Returns the
 * staged batch's id, or 0. */
int64_t claim_reset(struct claim *c);

/* Whether a claim of parked rows is under way: who waits for whom must not change meanwhile. */
bool claim_is_retrying(const struct claim *c);

/* Whether new rows are under way that will become a batch: a page is being read, or its claim is being committed. */
bool claim_is_bringing(const struct claim *c);

/* Whether parked rows are to be claimed next: in exactly-once mode no transaction begins before they are. */
bool claim_wants_parked(const struct claim *c, int64_t now_us);

/* Whether nothing is under way on the connection. */
bool claim_is_idle(const struct claim *c);

/* When claim_step wants to be called although nothing happened. */
int64_t claim_wake_us(const struct claim *c);

#endif
