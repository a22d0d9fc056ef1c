/* kafka_txn.c: begins, commits and aborts the producer's transactions, and says what an error of theirs asks for. */
#include "denpyo/kafka_txn.h"

#include <librdkafka/rdkafka.h>

/* Takes the error over. True when there is none. */
static bool judge(struct fault *f, rd_kafka_error_t *error) {
    if (error == NULL)
        return true;
    rd_kafka_resp_err_t code = rd_kafka_error_code(error);
    enum fault_class class = FAULT_FATAL;
    if (code == RD_KAFKA_RESP_ERR__FENCED || code == RD_KAFKA_RESP_ERR_PRODUCER_FENCED ||
        code == RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH)
        class = FAULT_FENCED;
    else if (rd_kafka_error_is_fatal(error))
        class = FAULT_FATAL;
    else if (rd_kafka_error_txn_requires_abort(error) || code == RD_KAFKA_RESP_ERR__STATE)
        class = FAULT_REJECT; /* _STATE inside a transaction: it has failed already */
    else if (rd_kafka_error_is_retriable(error))
        class = FAULT_RETRY;
    fault_set(f, class, rd_kafka_error_name(error), "%s", rd_kafka_error_string(error));
    rd_kafka_error_destroy(error);
    return false;
}

static void run(struct worker_job *job) {
    struct kafka_txn *txn = (struct kafka_txn *)job;
    rd_kafka_t *rk = kafka_client(txn->kafka);
    rd_kafka_error_t *error = NULL;
    txn->fault = (struct fault){0};
    switch (txn->call) {
    case KAFKA_TXN_INIT:
        error = rd_kafka_init_transactions(rk, txn->timeout_ms);
        break;
    case KAFKA_TXN_COMMIT:
        error = rd_kafka_commit_transaction(rk, txn->timeout_ms);
        break;
    case KAFKA_TXN_ABORT:
        error = rd_kafka_abort_transaction(rk, txn->timeout_ms);
        break;
    }
    judge(&txn->fault, error);
}

static void finish(struct worker_job *job) {
    struct kafka_txn *txn = (struct kafka_txn *)job;
    txn->done(txn);
}

void kafka_txn_submit(struct kafka_txn *txn, struct worker *worker) {
    txn->job.run = run;
    txn->job.done = finish;
    worker_submit(worker, &txn->job);
}

bool kafka_txn_begin(struct kafka *k, struct fault *f) {
    return judge(f, rd_kafka_begin_transaction(kafka_client(k)));
}
