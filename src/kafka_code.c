/* kafka_code.c: librdkafka's error codes: their names for tables, and proof that ours have its numbers. */
#include "denpyo/kafka_code.h"

#include <librdkafka/rdkafka.h>

#define SAME(ours, theirs) _Static_assert((int)KAFKA_CODE_##ours == (int)RD_KAFKA_RESP_ERR_##theirs, #theirs)
SAME(DESTROY, _DESTROY);
SAME(TIMED_OUT_MESSAGE, _MSG_TIMED_OUT);
SAME(UNKNOWN_PARTITION, _UNKNOWN_PARTITION);
SAME(UNKNOWN_TOPIC, _UNKNOWN_TOPIC);
SAME(QUEUE_FULL, _QUEUE_FULL);
SAME(STATE, _STATE);
SAME(PURGE_QUEUE, _PURGE_QUEUE);
SAME(PURGE_INFLIGHT, _PURGE_INFLIGHT);
SAME(FATAL, _FATAL);
SAME(FENCED, _FENCED);
SAME(NONE, NO_ERROR);
SAME(UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_OR_PART);
SAME(TOO_LARGE, MSG_SIZE_TOO_LARGE);
SAME(METADATA_TOO_LARGE, OFFSET_METADATA_TOO_LARGE);
SAME(TOPIC_AUTHORIZATION, TOPIC_AUTHORIZATION_FAILED);
SAME(CLUSTER_AUTHORIZATION, CLUSTER_AUTHORIZATION_FAILED);
SAME(BAD_TIMESTAMP, INVALID_TIMESTAMP);
SAME(OUT_OF_ORDER, OUT_OF_ORDER_SEQUENCE_NUMBER);
SAME(TRANSACTIONAL_ID_AUTHORIZATION, TRANSACTIONAL_ID_AUTHORIZATION_FAILED);
SAME(INVALID_RECORD, INVALID_RECORD);

const char *kafka_code_name(int code) {
    const char *name = rd_kafka_err2name((rd_kafka_resp_err_t)code);
    return name[0] == '_' ? name + 1 : name;
}

const char *kafka_code_text(int code) {
    return rd_kafka_err2str((rd_kafka_resp_err_t)code);
}
