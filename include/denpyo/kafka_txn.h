/* kafka_txn.h: the producer's transactions: the calls that block run on the worker. */
#ifndef DENPYO_KAFKA_TXN_H
#define DENPYO_KAFKA_TXN_H

#include <stdbool.h>
#include <stdint.h>

#include "denpyo/fault.h"
#include "denpyo/kafka.h"
#include "denpyo/worker.h"

/* INIT fences every other producer of the same transactional id and ends its open transaction, then waits for the
 * group's coordinator: while there is none, librdkafka 2.0.2 gives up asking for it and never comes back with the mark.
 * COMMIT first adds the mark, if there is one, as an offset of the group. */
enum kafka_txn_call { KAFKA_TXN_INIT, KAFKA_TXN_COMMIT, KAFKA_TXN_ABORT };

/*
 * One blocking call on the worker. done is called on the loop with fault.class FAULT_NONE (it is done), FAULT_RETRY
 * (call again), FAULT_REJECT (the transaction has to be aborted), FAULT_FENCED (another producer of this transactional
 * id took over) or FAULT_FATAL (the producer has to be made anew). The caller owns it, zero-initialised, and must not
 * submit it again before done.
 */
struct kafka_txn {
    struct worker_job job; /* first */
    struct kafka *kafka;
    enum kafka_txn_call call;
    int timeout_ms;
    const struct kafka_options *options;        /* INIT */
    const char *group, *mark_topic, *mark_text; /* COMMIT: mark_topic NULL = no mark; stay in place until done */
    int64_t mark_offset;
    bool is_half_done; /* INIT: older producers are fenced; COMMIT: the mark is there; kept when it is called again */
    struct fault fault;
    int code; /* librdkafka's, behind the fault */
    void (*done)(struct kafka_txn *txn);
    void *context;
};

void kafka_txn_submit(struct kafka_txn *txn, struct worker *worker);

/* Begins a transaction; does not block. Faults as above. */
bool kafka_txn_begin(struct kafka *k, struct fault *f) __attribute__((warn_unused_result));

#endif
