/* client.c: small librdkafka plumbing for programs that only watch. */
#include "client.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void client_die(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(2);
}

int64_t client_now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int64_t client_row_number(const char *payload, size_t size) {
    static const char prefix[] = "{\"n\":";
    size_t at = sizeof prefix - 1;
    if (size <= at || memcmp(payload, prefix, at) != 0)
        return -1;
    int64_t n = 0;
    for (; at < size && payload[at] >= '0' && payload[at] <= '9' && n < INT32_MAX; at++)
        n = n * 10 + (payload[at] - '0');
    return n;
}

static int partitions_of(rd_kafka_t *consumer, const char *topic) {
    rd_kafka_topic_t *handle = rd_kafka_topic_new(consumer, topic, NULL);
    const struct rd_kafka_metadata *metadata;
    rd_kafka_resp_err_t error = rd_kafka_metadata(consumer, 0, handle, &metadata, 10000);
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR)
        error = metadata->topics[0].err;
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR)
        client_die("topic %s: %s", topic, rd_kafka_err2str(error));
    int count = metadata->topics[0].partition_cnt;
    rd_kafka_metadata_destroy(metadata);
    rd_kafka_topic_destroy(handle);
    return count;
}

static void assign_from_beginning(struct client_topic *t, const char *topic, int count) {
    char name[256];
    int topics = count > 0 ? count : 1;
    snprintf(name, sizeof name, count > 0 ? "%s-0" : "%s", topic);
    t->partition_count = partitions_of(t->consumer, name);
    t->total = topics * t->partition_count;
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(t->total);
    for (int i = 0; i < topics; i++) {
        if (count > 0)
            snprintf(name, sizeof name, "%s-%d", topic, i);
        for (int p = 0; p < t->partition_count; p++)
            rd_kafka_topic_partition_list_add(list, name, p)->offset = RD_KAFKA_OFFSET_BEGINNING;
    }
    rd_kafka_resp_err_t error = rd_kafka_assign(t->consumer, list);
    rd_kafka_topic_partition_list_destroy(list);
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR)
        client_die("assign: %s", rd_kafka_err2str(error));
}

void client_topic_open(struct client_topic *t, const char *brokers, const char *topic, int count) {
    static const char *const settings[][2] = {
        {"group.id", "bench"},
        {"enable.partition.eof", "true"},
        {"enable.auto.commit", "false"},
        {"fetch.wait.max.ms", "100"},
        {"fetch.error.backoff.ms", "1"},
        {"queued.min.messages", "200000"},
        {"socket.nagle.disable", "true"},
    };
    char reason[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    if (rd_kafka_conf_set(conf, "bootstrap.servers", brokers, reason, sizeof reason) != RD_KAFKA_CONF_OK)
        client_die("%s", reason);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        if (rd_kafka_conf_set(conf, settings[i][0], settings[i][1], reason, sizeof reason) != RD_KAFKA_CONF_OK)
            client_die("%s", reason);
    }
    t->consumer = rd_kafka_new(RD_KAFKA_CONSUMER, conf, reason, sizeof reason);
    if (t->consumer == NULL)
        client_die("%s", reason);
    rd_kafka_poll_set_consumer(t->consumer);
    assign_from_beginning(t, topic, count);
    t->queue = rd_kafka_queue_get_consumer(t->consumer);
}

void client_topic_close(struct client_topic *t) {
    rd_kafka_queue_destroy(t->queue);
    rd_kafka_consumer_close(t->consumer);
    rd_kafka_destroy(t->consumer);
}
