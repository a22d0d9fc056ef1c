/* kafka_mark.c: asks the group's coordinator which offsets are committed, and takes their texts. */
#include "denpyo/kafka_mark.h"

#include <librdkafka/rdkafka.h>
#include <stdlib.h>
#include <string.h>

#include "denpyo/failpoint.h"
#include "denpyo/kafka_consumer.h"

#define CALL_TIMEOUT_MS 1000 /* how soon a look-up that is given up comes to an end */
#define TIMEOUT_MS 30000

static rd_kafka_topic_partition_list_t *list_topics(const struct kafka_tail *tail) {
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)tail->topic_count);
    for (size_t i = 0; i < tail->topic_count; i++)
        rd_kafka_topic_partition_list_add(list, tail->topics[i].name, 0);
    return list;
}

/* An element without an offset has none, or may not be seen by us: then the topic has no mark for us. */
static void take(struct kafka_tail *tail, const rd_kafka_topic_partition_list_t *list) {
    for (size_t i = 0; i < tail->topic_count; i++) {
        const rd_kafka_topic_partition_t *found = rd_kafka_topic_partition_list_find(
            (rd_kafka_topic_partition_list_t *)(uintptr_t)list, tail->topics[i].name, 0);
        struct kafka_tail_topic *topic = &tail->topics[i];
        free(topic->mark);
        topic->mark = NULL;
        if (found == NULL || found->err != RD_KAFKA_RESP_ERR_NO_ERROR || found->offset < 0 || found->metadata == NULL)
            continue;
        topic->mark_offset = found->offset;
        topic->mark = strndup(found->metadata, found->metadata_size);
        if (topic->mark == NULL)
            abort();
    }
}

static bool fail(const char *group, rd_kafka_resp_err_t err, struct fault *f) {
    if (err == RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED)
        return fault_set(f, FAULT_FATAL, rd_kafka_err2name(err),
                         "exactly_once keeps its progress in offsets of the consumer group \"%s\", named like the "
                         "transactional id: grant the relay Read on that group",
                         group);
    return fault_set(f, FAULT_RETRY, rd_kafka_err2name(err), "the offsets of the group \"%s\": %s", group,
                     rd_kafka_err2str(err));
}

/* One attempt, of CALL_TIMEOUT_MS at most. That the group is not ours to describe keeps librdkafka waiting for its
 * coordinator; the reason is told to the consumer. */
static rd_kafka_resp_err_t ask(rd_kafka_t *rk, rd_kafka_topic_partition_list_t *list) {
    rd_kafka_resp_err_t err = rd_kafka_committed(rk, list, CALL_TIMEOUT_MS);
    rd_kafka_message_t *m;
    while (err == RD_KAFKA_RESP_ERR__TIMED_OUT && (m = rd_kafka_consumer_poll(rk, 0)) != NULL) {
        if (m->err == RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED)
            err = m->err;
        rd_kafka_message_destroy(m);
    }
    return err;
}

bool kafka_mark_check(const struct kafka_options *options, int timeout_ms, struct fault *f) {
    rd_kafka_t *rk = kafka_consumer_open(options, options->transactional_id, true, f);
    if (rk == NULL)
        return false;
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, "denpyo", 0); /* whether there is such a topic does not matter */
    rd_kafka_resp_err_t err = RD_KAFKA_RESP_ERR__TIMED_OUT;
    int64_t deadline_us = loop_now_us() + timeout_ms * INT64_C(1000);
    while (err == RD_KAFKA_RESP_ERR__TIMED_OUT && loop_now_us() < deadline_us)
        err = ask(rk, list);
    rd_kafka_topic_partition_list_destroy(list);
    kafka_consumer_close(rk);
    return err == RD_KAFKA_RESP_ERR_NO_ERROR || fail(options->transactional_id, err, f);
}

bool kafka_mark_read(struct kafka_tail *tail) {
    rd_kafka_t *rk = kafka_consumer_open(tail->options, tail->options->transactional_id, true, &tail->fault);
    if (rk == NULL)
        return false;
    rd_kafka_resp_err_t err = RD_KAFKA_RESP_ERR__TIMED_OUT;
    int64_t deadline_us = loop_now_us() + TIMEOUT_MS * INT64_C(1000);
    while (err == RD_KAFKA_RESP_ERR__TIMED_OUT && loop_now_us() < deadline_us && !atomic_load(&tail->is_cancelled)) {
        rd_kafka_topic_partition_list_t *list = list_topics(tail);
        err = ask(rk, list);
        if (err == RD_KAFKA_RESP_ERR_NO_ERROR)
            take(tail, list);
        rd_kafka_topic_partition_list_destroy(list);
    }
    kafka_consumer_close(rk);
    failpoint_pass(FAILPOINT_LOOKUP_MARKS);
    return err == RD_KAFKA_RESP_ERR_NO_ERROR || fail(tail->options->transactional_id, err, &tail->fault);
}
