/* lease.h: who leads: a lease row taken by compare-and-set, renewed beside the work, given back at a clean stop. */
#ifndef DENPYO_LEASE_H
#define DENPYO_LEASE_H

#include <stdbool.h>
#include <stdint.h>

#include "denpyo/pg.h"
#include "denpyo/statement.h"

/*
 * One relay's claim to lead. Invariants:
 *  1. epoch is the fencing token of the lease we hold or held last; every claim and settlement is fenced by (relay,
 * epoch, holder).
 *  2. held implies that no other relay can have taken over before deadline_us, which counts from before the last
 * renewal was sent and ends a margin before the lease does.
 */
struct lease {
    struct pg *pg;
    const struct statements *statements;
    const char *relay; /* borrowed */
    char holder[37];   /* uuid of this process */
    char info[128];    /* host and process id, for people */
    int64_t lease_ms;
    int64_t epoch;
    bool held;
    bool lost; /* somebody else took over, or our row is gone; cleared by lease_forget */
    int64_t deadline_us;
    /* internal */
    bool asked;
    int64_t sent_us, next_us, patience_us;
    bool standby_known;
    char leader[128];
    const char *condition, *detail, *told; /* what SQL is to see; the condition that was sent last */
};

void lease_init(struct lease *l, struct pg *pg, const struct statements *statements, const char *relay,
                int64_t lease_ms);

/* Looks, takes or renews when it is time; call it every turn while the connection is READY. Never blocks. */
void lease_step(struct lease *l, int64_t now_us);

/*
 * What keeps the leader from its work, for people who ask the database: a word and a sentence, NULL and NULL when
 * nothing does. It goes with every renewal, and one is sent at once when the word is another. Both are borrowed until
 * the next call.
 */
void lease_describe(struct lease *l, const char *condition, const char *detail);

/* Whether we lead at this moment by the local clock. */
bool lease_is_ours(const struct lease *l, int64_t now_us);

/* Sends the release; done when pg_pending is 0. */
void lease_release(struct lease *l);

/* The connection was lost: what was asked will not be answered. Keeps epoch and held, so that the next step renews. */
void lease_reconnect(struct lease *l);

/*
 * True when a question has been unanswered for as long as the lease: the server stands still behind a connection that
 * looks alive, and another one may lead by now. The next time it takes twice as long, because who waits for a lock
 * looks the same, and goes on waiting in the server when the connection is gone.
 */
bool lease_gives_up(struct lease *l, int64_t now_us);

/* Steps down: the next step looks for a free lease. */
void lease_forget(struct lease *l);

/* Name of the leader that a standby waits for, "" when unknown; *changed is set once for each new one. */
const char *lease_leader(struct lease *l, bool *changed);

/* When lease_step wants to be called. */
int64_t lease_wake_us(const struct lease *l);

#endif
