/* relay_parts.h: the relay's parts, how they are put together and taken apart, and its progress line. */
#ifndef DENPYO_RELAY_PARTS_H
#define DENPYO_RELAY_PARTS_H

#include "denpyo/claim.h"
#include "denpyo/config.h"
#include "denpyo/lease.h"
#include "denpyo/ledger.h"
#include "denpyo/load.h"
#include "denpyo/loop.h"
#include "denpyo/publish.h"
#include "denpyo/route.h"
#include "denpyo/settle.h"
#include "denpyo/sweep.h"
#include "denpyo/txn.h"
#include "denpyo/worker.h"

enum relay_state { RELAY_START, RELAY_STANDBY, RELAY_LOAD, RELAY_LEAD, RELAY_DRAIN, RELAY_RELEASE, RELAY_STOPPED };

/* Three connections, so that renewals wait behind no page and pages behind no settlement. */
enum { RELAY_LEASE, RELAY_CLAIM, RELAY_SETTLE, RELAY_CONNECTIONS };

struct relay {
    const struct config *config;
    struct loop *loop;
    struct worker *pg_workers[RELAY_CONNECTIONS]; /* a host that stands still costs its time-out once, not thrice */
    struct worker *kafka_worker, *tail_worker;
    struct loop_io signal_io;
    struct pg *connections[RELAY_CONNECTIONS];
    struct statements statements;
    struct lease lease;
    struct ledger ledger;
    struct publisher publisher;
    struct claim claim;
    struct settle settle;
    struct load load;
    struct reconcile reconcile;
    struct identity identity;
    struct sweep sweep;
    struct kafka_options kafka_options;
    struct txn txn;
    struct kafka_property *properties; /* config->kafka as the driver wants it */
    enum relay_state state;
    int64_t entered_us;
    struct fault end;     /* why it cannot go on */
    struct fault refusal; /* why it stops, after it has given the lease back */
    int64_t stopping_us;  /* when the signal came */
    bool stopping, silenced, gave_up;
    bool must_load, load_in_full;
    bool database_lost, broker_lost, broker_answered;
    char database_trouble[600];
    int64_t lost_us, reconnect_us, reconnect_wait_us; /* when the database was lost last, and is connected to again */
    char producer_trouble[40];                        /* code of the last producer's failure, "" = it works */
    char producer_reason[300];
    uint64_t producer_dispatched; /* how many were, when it failed */
    int64_t producer_renew_us, producer_wait_us;
    char condition_detail[600]; /* what lease_describe borrows */
    size_t closing;             /* producers that are being destroyed */
    int64_t progress_us;
    uint64_t progress_rows;
};

/* Puts the parts together: nothing connects yet. Borrows config. */
struct relay *relay_parts_new(const struct config *config);
void relay_parts_free(struct relay *r);

/* Rewrites the terminal's progress line when it is time. */
void relay_parts_progress(struct relay *r, int64_t now_us);

/* Adds to a fault of the database what to do when the schema or a privilege is missing, or rows are hidden. */
void relay_parts_remedy(const struct relay *r, struct fault *f);

#endif
