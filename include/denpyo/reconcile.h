/* reconcile.h: after a crash, asks the broker what of the open batches arrived, before anything is sent again. */
#ifndef DENPYO_RECONCILE_H
#define DENPYO_RECONCILE_H

#include <stdbool.h>
#include <stdint.h>

#include "denpyo/kafka_tail.h"
#include "denpyo/ledger.h"
#include "denpyo/publish.h"

enum reconcile_state { RECONCILE_IDLE, RECONCILE_BUSY, RECONCILE_DONE };

/*
 * A look-up for the OPEN rows of some batches, which stay the caller's and must stay in place until it is DONE or
 * reset. What is found becomes DISPATCHED with the partition and offset of its first copy; the rest stays OPEN: to be
 * sent (again).
 */
struct reconcile {
    struct ledger *ledger;
    struct publisher *publisher;
    struct pg *pg;
    struct worker *worker;
    const struct kafka_options *options;
    enum reconcile_state state;
    struct batch **batches; /* while BUSY */
    size_t batch_count;
    int64_t told_id;         /* the newest batch that a mark tells of, 0 = none */
    struct kafka_tail *tail; /* being filled or on the worker */
    bool is_reading;         /* it is on the worker */
    size_t outstanding;      /* look-ups on the worker, given up ones too: it must outlive them */
    int64_t started_us, report_us;
    int64_t retry_us;  /* when a look-up that failed is tried again, 0 = none */
    char failure[600]; /* why it failed last */
};

void reconcile_init(struct reconcile *rc, struct ledger *ledger, struct publisher *publisher, struct pg *pg,
                    struct worker *worker, const struct kafka_options *options);
/* Starts; DONE at once when there is nothing to look for. Never blocks. */
void reconcile_start(struct reconcile *rc, struct batch *const *batches, size_t count);
/* Logs progress of a long look-up; call it every turn. */
void reconcile_step(struct reconcile *rc, int64_t now_us);
/* Gives a look-up up: the rows are no longer needed. */
void reconcile_reset(struct reconcile *rc);

#endif
