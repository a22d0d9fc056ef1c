/* kafka_code.c: librdkafka's error codes: their names for tables, and the classes that the relay tells apart. */
#include "denpyo/kafka_code.h"

#include <librdkafka/rdkafka.h>
#include <stddef.h>

const char *kafka_code_name(int code) {
    const char *name = rd_kafka_err2name((rd_kafka_resp_err_t)code);
    return name[0] == '_' ? name + 1 : name;
}

const char *kafka_code_text(int code) {
    return rd_kafka_err2str((rd_kafka_resp_err_t)code);
}

static bool is_among(int code, const int *codes, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (codes[i] == code)
            return true;
    return false;
}

bool kafka_code_is_topic(int code) {
    static const int codes[] = {RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART, RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC,
                                RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION, RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
                                RD_KAFKA_RESP_ERR__DESTROY};
    return is_among(code, codes, sizeof codes / sizeof *codes);
}

bool kafka_code_is_message(int code) {
    static const int codes[] = {RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP,
                                RD_KAFKA_RESP_ERR_INVALID_RECORD};
    return is_among(code, codes, sizeof codes / sizeof *codes);
}
