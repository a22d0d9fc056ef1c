/* kafka_code.h: librdkafka's error codes by name, for code and for people. */
#ifndef DENPYO_KAFKA_CODE_H
#define DENPYO_KAFKA_CODE_H

/* The codes that the relay tells apart, with librdkafka's numbers (checked in kafka_code.c): negative ones are the
 * client's own, the others are Kafka's. */
enum kafka_code {
    KAFKA_CODE_DESTROY = -197,
    KAFKA_CODE_TIMED_OUT_MESSAGE = -192,
    KAFKA_CODE_UNKNOWN_PARTITION = -190,
    KAFKA_CODE_UNKNOWN_TOPIC = -188,
    KAFKA_CODE_QUEUE_FULL = -184,
    KAFKA_CODE_STATE = -172,
    KAFKA_CODE_PURGE_QUEUE = -152,
    KAFKA_CODE_PURGE_INFLIGHT = -151,
    KAFKA_CODE_FATAL = -150,
    KAFKA_CODE_FENCED = -144,
    KAFKA_CODE_UNKNOWN_TOPIC_OR_PARTITION = 3,
    KAFKA_CODE_TOO_LARGE = 10,
    KAFKA_CODE_METADATA_TOO_LARGE = 12,
    KAFKA_CODE_TOPIC_AUTHORIZATION = 29,
    KAFKA_CODE_CLUSTER_AUTHORIZATION = 31,
    KAFKA_CODE_BAD_TIMESTAMP = 32,
    KAFKA_CODE_OUT_OF_ORDER = 45,
    KAFKA_CODE_PRODUCER_EPOCH = 47,
    KAFKA_CODE_TRANSACTION_STATE = 48,
    KAFKA_CODE_PRODUCER_ID_MAPPING = 49,
    KAFKA_CODE_TRANSACTIONAL_ID_AUTHORIZATION = 53,
    KAFKA_CODE_UNKNOWN_PRODUCER_ID = 59,
    KAFKA_CODE_INVALID_RECORD = 87,
    KAFKA_CODE_PRODUCER_FENCED = 90,
};

/* "UNKNOWN_TOPIC_OR_PART" and a sentence, for a code. Static. */
const char *kafka_code_name(int code);
const char *kafka_code_text(int code);

#endif
