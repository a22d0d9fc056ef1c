/* identity.h: are this database and these brokers still those that the ledger speaks of? Asked before each load. */
#ifndef DENPYO_IDENTITY_H
#define DENPYO_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

#include "denpyo/ledger.h"
#include "denpyo/publish.h"

/* DONE: go on. MOVED: likewise, but the ledger was closed and begun anew: what is in memory is void. REFUSED: a person
 * has to confirm, see fault. */
enum identity_state { IDENTITY_IDLE, IDENTITY_BUSY, IDENTITY_DONE, IDENTITY_MOVED, IDENTITY_REFUSED };

/*
 * Three things can have changed:
 *  - The system identifier (dump and restore, pg_upgrade, logical copy): transaction ids mean nothing any more. All
 *    that is there becomes the past: floor_id is set under a lock, and what of it has neither receipt nor parked row
 *    is parked, so that it goes out in the order of its key. Repeated when it is cut short: the new identifier is
 *    recorded last.
 *  - The timeline (a standby was promoted, or an earlier point in time restored): the ledger went back together with
 *    the messages and stays right. Said, because what was lost may have been sent.
 *  - The Kafka cluster: offsets on record mean nothing there. Refused until its id is confirmed. A producer that was
 *    just made anew has not heard of its cluster yet and is waited for: nothing is sent before the comparison.
 * Where the server's identifier may not be read, a cursor ahead of the server's transactions tells another cluster.
 */
struct identity {
    struct ledger *ledger;
    struct publisher *publisher;
    struct pg *pg;
    const char *brokers;  /* borrowed, for the fault */
    const char *accepted; /* borrowed: the Kafka cluster that a person has confirmed; "" = none */
    enum identity_state state;
    struct fault fault;
    /* internal */
    int64_t recorded_system, recorded_timeline; /* 0 = nothing on record */
    int64_t system, timeline;                   /* 0 = may not be read */
    char cluster[80];                           /* the Kafka cluster; "" = not known */
    bool is_ahead, has_moved, said_unreadable;
    bool is_waiting; /* for the producer to hear of its cluster */
    int64_t floor_id;
    int64_t swept, found;
};

void identity_init(struct identity *i, struct ledger *ledger, struct publisher *publisher, struct pg *pg,
                   const char *brokers, const char *accepted);

/* Starts; everything runs asynchronously, watch `state`. The lease is ours. Never blocks. */
void identity_start(struct identity *i);

/* Goes on when the producer has heard of its cluster; call it every turn while BUSY. */
void identity_step(struct identity *i);

/* The connection was lost: start again. */
void identity_reset(struct identity *i);

#endif
