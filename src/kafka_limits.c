/* kafka_limits.c: one DescribeConfigs request on the producer's handle; whoever may only write is refused, and does
 * without. */
#include "denpyo/kafka_limits.h"

#include <librdkafka/rdkafka.h>
#include <stdlib.h>
#include <string.h>

/* Asked for by name: a topic has some 30 others. */
static const char *const wanted[] = {"max.message.bytes", "cleanup.policy"};

static void take_entry(struct kafka_limits *limits, const rd_kafka_ConfigEntry_t *entry) {
    const char *name = rd_kafka_ConfigEntry_name(entry), *value = rd_kafka_ConfigEntry_value(entry);
    if (value == NULL)
        return;
    if (strcmp(name, "max.message.bytes") == 0)
        limits->max_message_bytes = strtoll(value, NULL, 10);
    else if (strcmp(name, "cleanup.policy") == 0)
        limits->is_compacted = strstr(value, "compact") != NULL;
}

static void take_topic(const rd_kafka_ConfigResource_t *topic, struct kafka_limits *limits) {
    size_t count;
    const rd_kafka_ConfigEntry_t **entries = rd_kafka_ConfigResource_configs(topic, &count);
    for (size_t i = 0; i < count; i++)
        take_entry(limits, entries[i]);
}

/* Which of the topics it is; they are answered in the order that they were asked in, if not, it is looked for. */
static size_t find(const rd_kafka_ConfigResource_t *topic, const char *const *names, size_t count, size_t place) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[(place + i) % count], rd_kafka_ConfigResource_name(topic)) == 0)
            return (place + i) % count;
    return count;
}

void kafka_limits_ask(struct kafka *k, const char *const *names, size_t count, int timeout_ms,
                      struct kafka_limits *limits) {
    rd_kafka_t *rk = kafka_client(k);
    char why[200];
    if (count == 0)
        return;
    rd_kafka_queue_t *answers = rd_kafka_queue_new(rk);
    rd_kafka_AdminOptions_t *options = rd_kafka_AdminOptions_new(rk, RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS);
    rd_kafka_ConfigResource_t **topics = calloc(count, sizeof(rd_kafka_ConfigResource_t *));
    if (topics == NULL)
        abort();
    for (size_t i = 0; i < count; i++) {
        limits[i] = (struct kafka_limits){0};
        topics[i] = rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, names[i]);
        for (size_t n = 0; n < sizeof wanted / sizeof *wanted; n++)
            rd_kafka_ConfigResource_set_config(topics[i], wanted[n], "");
    }
    if (rd_kafka_AdminOptions_set_request_timeout(options, timeout_ms, why, sizeof why))
        abort(); /* a time-out out of range */
    rd_kafka_DescribeConfigs(rk, topics, count, options, answers);
    rd_kafka_event_t *event = rd_kafka_queue_poll(answers, timeout_ms + 500);
    const rd_kafka_DescribeConfigs_result_t *result = event ? rd_kafka_event_DescribeConfigs_result(event) : NULL;
    size_t found = 0;
    const rd_kafka_ConfigResource_t **found_topics =
        result ? rd_kafka_DescribeConfigs_result_resources(result, &found) : NULL;
    for (size_t i = 0; i < found; i++) {
        size_t place = find(found_topics[i], names, count, i);
        if (place < count && rd_kafka_ConfigResource_error(found_topics[i]) == RD_KAFKA_RESP_ERR_NO_ERROR)
            take_topic(found_topics[i], &limits[place]);
    }
    if (event != NULL)
        rd_kafka_event_destroy(event);
    rd_kafka_ConfigResource_destroy_array(topics, count);
    free(topics);
    rd_kafka_AdminOptions_destroy(options);
    rd_kafka_queue_destroy(answers);
}
