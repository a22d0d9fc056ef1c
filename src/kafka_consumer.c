/* kafka_consumer.c: sets up a librdkafka consumer that only looks. */
#include "denpyo/kafka_consumer.h"

#include <librdkafka/rdkafka.h>

struct rd_kafka_s *kafka_consumer_open(const struct kafka_options *o, const char *group, bool is_read_committed,
                                       struct fault *f) {
    char why[300];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set(conf, "client.id", "denpyo-lookup", NULL, 0);
    for (size_t i = 0; i < o->property_count; i++) /* kafka_open has checked them; a producer's are ignored here */
        rd_kafka_conf_set(conf, o->properties[i].name, o->properties[i].value, NULL, 0);
    rd_kafka_conf_set(conf, "bootstrap.servers", o->brokers, NULL, 0);
    rd_kafka_conf_set(conf, "enable.partition.eof", "true", NULL, 0);
    rd_kafka_conf_set(conf, "enable.auto.commit", "false", NULL, 0);
    rd_kafka_conf_set(conf, "isolation.level", is_read_committed ? "read_committed" : "read_uncommitted", NULL, 0);
    rd_kafka_conf_set(conf, "fetch.wait.max.ms", "10", NULL, 0);
    rd_kafka_conf_set(conf, "reconnect.backoff.max.ms", "1000", NULL, 0);
    rd_kafka_conf_set(conf, "allow.auto.create.topics", "false", NULL, 0);
    rd_kafka_conf_set(conf, "log_level", "3", NULL, 0);
    rd_kafka_conf_set_log_cb(conf, NULL);
    if (group != NULL)
        rd_kafka_conf_set(conf, "group.id", group, NULL, 0);
    rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_CONSUMER, conf, why, sizeof why);
    if (rk == NULL) {
        rd_kafka_conf_destroy(conf);
        fault_set(f, FAULT_RETRY, "consumer", "the look-up cannot start a consumer: %s", why);
    }
    return rk;
}

bool kafka_consumer_may_read(struct rd_kafka_s *rk, const char *topic, int timeout_ms) {
    rd_kafka_topic_t *rkt = rd_kafka_topic_new(rk, topic, NULL);
    rd_kafka_resp_err_t err = RD_KAFKA_RESP_ERR_NO_ERROR;
    if (rd_kafka_consume_start(rkt, 0, RD_KAFKA_OFFSET_END) == 0) {
        rd_kafka_message_t *m = rd_kafka_consume(rkt, 0, timeout_ms); /* the end of the partition, or an error */
        if (m != NULL)
            err = m->err;
        if (m != NULL)
            rd_kafka_message_destroy(m);
        rd_kafka_consume_stop(rkt, 0);
    }
    rd_kafka_topic_destroy(rkt);
    return err != RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
}

void kafka_consumer_close(struct rd_kafka_s *rk) {
    rd_kafka_destroy_flags(rk, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
}
