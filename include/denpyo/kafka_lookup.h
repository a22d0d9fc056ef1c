/* kafka_lookup.h: how many partitions topics have and what they accept, asked without blocking the loop. */
#ifndef DENPYO_KAFKA_LOOKUP_H
#define DENPYO_KAFKA_LOOKUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "denpyo/kafka.h"
#include "denpyo/kafka_limits.h"
#include "denpyo/worker.h"

/*
 * A look-up of partition counts, on the worker: one metadata request a topic, each at most timeout_ms, or one for all;
 * without topics, whether there is a broker. `names` are owned by the look-up. done is called on the loop with
 * counts[i] >= 1, or 0 and codes[i] (a topic's error), or -1 and codes[i] when no broker answered. reached: some broker
 * answered; then cluster_id (borrowed, may be NULL) is known. kafka_lookup_free afterwards.
 */
struct kafka_lookup {
    struct worker_job job; /* first */
    struct kafka *kafka;
    char **names;
    bool *is_new;     /* the client has no kafka_topic of it open */
    bool is_together; /* one request for all of them, which names every open topic, too */
    int32_t *counts;
    int *codes;
    bool **has_leader;           /* of each of counts[i] partitions; NULL when there is none */
    struct kafka_limits *limits; /* of the topics that are there */
    size_t count;
    int timeout_ms;
    bool reached;
    int unreached_code;
    void (*done)(struct kafka_lookup *lookup);
    void *context;
    struct rd_kafka_topic_s **topics; /* the worker's own, while it looks up */
};
struct kafka_lookup *kafka_lookup_new(struct kafka *k, size_t count, int timeout_ms,
                                      void (*done)(struct kafka_lookup *), void *context);
void kafka_lookup_submit(struct kafka_lookup *lookup, struct worker *worker);
void kafka_lookup_free(struct kafka_lookup *lookup);

#endif
