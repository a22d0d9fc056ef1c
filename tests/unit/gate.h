/* gate.h: a publisher for tests of the gate: a real producer that has no broker to talk to, one topic, rows of one
 * batch. */
#ifndef DENPYO_TESTS_GATE_H
#define DENPYO_TESTS_GATE_H

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "denpyo/log.h"
#include "denpyo/outcome.h"
#include "denpyo/publish.h"
#include "denpyo/route.h"

enum { GATE_ROWS = 8, GATE_LANES = 4, GATE_MOST_BYTES = 1000 };

struct gate {
    struct loop *loop;
    struct worker *worker;
    struct publisher p;
    struct topic *topic;
    struct batch batch;
    struct row rows[GATE_ROWS];
    bool is_closed;
};

static inline void gate_closed(void *context) {
    ((struct gate *)context)->is_closed = true;
}

/* The rows have ids 1 … GATE_ROWS, key "k" and value "v". The topic is UNKNOWN. */
static inline void gate_open(struct gate *g) {
    static const unsigned char message_id[16];
    static const struct kafka_property properties[] = {{"message.max.bytes", "1000"}, {"batch.size", "1000"}};
    struct fault f = {0};
    log_setup(LOG_TEXT, LOG_ERROR);
    *g = (struct gate){.loop = loop_new()};
    g->worker = worker_new(g->loop);
    publish_init(&g->p, &(struct publish_options){.retry_initial_ms = 100, .retry_max_ms = 1000}, g->worker);
    struct kafka *kafka = kafka_open(g->loop,
                                     &(struct kafka_options){.brokers = "127.0.0.1:1",
                                                             .properties = properties,
                                                             .property_count = 2,
                                                             .report = publish_report,
                                                             .context = &g->p},
                                     &f);
    cr_assert_not_null(kafka, "%s", f.text);
    publish_attach(&g->p, kafka);
    g->topic = topics_get(&g->p.topics, "t", 1);
    g->batch = (struct batch){.id = 1, .count = GATE_ROWS, .open = GATE_ROWS, .rows = g->rows};
    for (int64_t i = 0; i < GATE_ROWS; i++)
        g->rows[i] = (struct row){.id = i + 1,
                                  .batch = &g->batch,
                                  .topic = g->topic,
                                  .message_id = message_id,
                                  .key = "k",
                                  .key_size = 1,
                                  .value = "v",
                                  .value_size = 1,
                                  .headers_size = -1,
                                  .partition = -1};
}

/* The topic has GATE_LANES partitions, and rows can be handed to the client. */
static inline void gate_ready(struct gate *g, size_t lane_limit) {
    topic_set_partitions(g->topic, GATE_LANES, lane_limit);
    g->topic->handle = kafka_topic_open(g->p.kafka, g->topic->name);
}

static inline void gate_close(struct gate *g) {
    kafka_close(publish_detach(&g->p), g->worker, gate_closed, g);
    while (!g->is_closed)
        loop_turn(g->loop, INT64_MAX);
    publish_free(&g->p);
    for (size_t i = 0; i < GATE_ROWS; i++)
        free(g->rows[i].trouble);
    worker_free(g->worker);
    loop_free(g->loop);
}

#endif
