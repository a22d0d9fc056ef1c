/* kafka_txn.c: begins, commits and aborts the producer's transactions, and says what an error of theirs asks for. */
#include "denpyo/kafka_txn.h"

#include <librdkafka/rdkafka.h>
#include <stdlib.h>
#include <string.h>

#include "denpyo/failpoint.h"
#include "denpyo/kafka_mark.h"

#define COORDINATOR_TIMEOUT_MS 5000

/* Who has to grant what; "" when it is no question of rights. */
static const char *remedy(rd_kafka_resp_err_t code) {
    if (code == RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED)
        return "; grant the relay Read on the consumer group that is named like the transactional id: it keeps its "
               "progress there";
    if (code == RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return "; grant the relay Write and Describe on the transactional id";
    return "";
}

/* Takes the error over. True when there is none. */
static bool judge(struct fault *f, rd_kafka_error_t *error) {
    if (error == NULL)
        return true;
    rd_kafka_resp_err_t code = rd_kafka_error_code(error);
    enum fault_class class = FAULT_FATAL;
    if (code == RD_KAFKA_RESP_ERR__FENCED || code == RD_KAFKA_RESP_ERR_PRODUCER_FENCED ||
        code == RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH)
        class = FAULT_FENCED;
    else if (rd_kafka_error_is_fatal(error) || code == RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED)
        class = FAULT_FATAL; /* without the right to its group no transaction of ours can be committed */
    else if (rd_kafka_error_txn_requires_abort(error) || code == RD_KAFKA_RESP_ERR__STATE)
        class = FAULT_REJECT; /* _STATE inside a transaction: it has failed already */
    else if (rd_kafka_error_is_retriable(error))
        class = FAULT_RETRY;
    fault_set(f, class, rd_kafka_error_name(error), "%s%s", rd_kafka_error_string(error), remedy(code));
    rd_kafka_error_destroy(error);
    return false;
}

static rd_kafka_error_t *add_mark(rd_kafka_t *rk, struct kafka_txn *txn) {
    if (txn->mark_topic == NULL || txn->is_half_done)
        return NULL;
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_t *mark = rd_kafka_topic_partition_list_add(list, txn->mark_topic, 0);
    mark->offset = txn->mark_offset;
    mark->metadata_size = strlen(txn->mark_text);
    mark->metadata = strdup(txn->mark_text); /* the list frees it */
    if (mark->metadata == NULL)
        abort();
    rd_kafka_consumer_group_metadata_t *group = rd_kafka_consumer_group_metadata_new(txn->group);
    rd_kafka_error_t *error = rd_kafka_send_offsets_to_transaction(rk, list, group, txn->timeout_ms);
    rd_kafka_consumer_group_metadata_destroy(group);
    rd_kafka_topic_partition_list_destroy(list);
    txn->is_half_done = error == NULL;
    return error;
}

static void run(struct worker_job *job) {
    struct kafka_txn *txn = (struct kafka_txn *)job;
    rd_kafka_t *rk = kafka_client(txn->kafka);
    rd_kafka_error_t *error = NULL;
    txn->fault = (struct fault){0};
    txn->code = RD_KAFKA_RESP_ERR_NO_ERROR;
    switch (txn->call) {
    case KAFKA_TXN_INIT:
        error = txn->is_half_done ? NULL : rd_kafka_init_transactions(rk, txn->timeout_ms);
        txn->is_half_done = error == NULL;
        if (error == NULL && !kafka_mark_check(txn->options, COORDINATOR_TIMEOUT_MS, &txn->fault))
            return;
        break;
    case KAFKA_TXN_COMMIT:
        error = add_mark(rk, txn);
        failpoint_pass(FAILPOINT_TXN_MARKED);
        if (error == NULL)
            error = rd_kafka_commit_transaction(rk, txn->timeout_ms);
        break;
    case KAFKA_TXN_ABORT:
        error = rd_kafka_abort_transaction(rk, txn->timeout_ms);
        break;
    }
    txn->code = rd_kafka_error_code(error);
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
