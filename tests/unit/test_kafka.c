/* test_kafka.c: what the producer leaves behind in librdkafka, with librdkafka's own broker. */
#include <criterion/criterion.h>
#include <malloc.h>
#include <stdlib.h>

#include "denpyo/kafka.h"
#include "denpyo/log.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_OWN_MALLOC 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define HAS_OWN_MALLOC 1
#endif

struct client {
    struct loop *loop;
    struct worker *worker;
    struct kafka *kafka;
    struct kafka_topic *topic;
    int acknowledged;
    bool is_closed;
};

static void take_report(void *context, const struct kafka_report *report) {
    cr_assert_eq(report->delivery, KAFKA_ACKNOWLEDGED);
    ((struct client *)context)->acknowledged++;
}

static void note_closed(void *context) {
    ((struct client *)context)->is_closed = true;
}

static void open_client(struct client *c) {
    static const struct kafka_property properties[] = {{"test.mock.num.brokers", "1"}};
    struct fault f = {0};
    log_setup(LOG_TEXT, LOG_ERROR);
    *c = (struct client){.loop = loop_new()};
    c->worker = worker_new(c->loop);
    c->kafka = kafka_open(c->loop,
                          &(struct kafka_options){.brokers = "127.0.0.1:1",
                                                  .properties = properties,
                                                  .property_count = 1,
                                                  .report = take_report,
                                                  .context = c},
                          &f);
    cr_assert_not_null(c->kafka, "%s", f.text);
    c->topic = kafka_topic_open(c->kafka, "t");
}

static void close_client(struct client *c) {
    kafka_topic_close(c->topic);
    kafka_close(c->kafka, c->worker, note_closed, c);
    while (!c->is_closed)
        loop_turn(c->loop, INT64_MAX);
    worker_free(c->worker);
    loop_free(c->loop);
}

static void send_one(struct client *c) {
    struct kafka_message m = {
        .topic = c->topic, .value = "v", .value_size = 1, .id = "00000000-0000-0000-0000-000000000000"};
    int code, before = c->acknowledged;
    cr_assert_eq(kafka_produce(c->kafka, &m, &code), KAFKA_QUEUED);
    kafka_release(c->kafka);
    while (c->acknowledged == before)
        loop_turn(c->loop, INT64_MAX);
}

#define PAUSES 10000

Test(kafka, holding_a_partition_back_leaves_nothing_behind, .timeout = 120) {
#ifdef HAS_OWN_MALLOC
    cr_skip_test("what is allocated cannot be asked for");
#endif
    struct client c;
    open_client(&c);
    send_one(&c); /* the partition is known from here on */
    size_t before = mallinfo2().uordblks;
    for (int i = 0; i < PAUSES; i++) {
        kafka_pause_add(c.kafka, c.topic, 0);
        kafka_pause(c.kafka);
        kafka_release(c.kafka);
    }
    size_t after = mallinfo2().uordblks;
    cr_assert_lt(after, before + (size_t)PAUSES * 8, "%zu bytes before, %zu after", before, after);
    kafka_pause_add(c.kafka, c.topic, 0);
    kafka_pause(c.kafka);
    send_one(&c);
    close_client(&c);
}
