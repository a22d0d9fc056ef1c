/* client.h: what the benchmark's C helpers share: clocks, row numbers, and a consumer of a whole topic. */
#ifndef DENPYO_BENCH_CLIENT_H
#define DENPYO_BENCH_CLIENT_H

#include <librdkafka/rdkafka.h>
#include <stddef.h>
#include <stdint.h>

/* Prints the reason to standard error and exits 2: the measurement could not be made. */
_Noreturn void client_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Microseconds since 1970, as the database's clock_timestamp() counts them. */
int64_t client_now_us(void);

/* The n of a payload that begins {"n":123, or -1. */
int64_t client_row_number(const char *payload, size_t size);

/* All partitions of a topic, or of `count` topics of one partition count that are named topic-0, topic-1, …, from their
 * beginning. */
struct client_topic {
    rd_kafka_t *consumer;
    rd_kafka_queue_t *queue;
    int partition_count; /* of each */
    int total;           /* of all */
};

/* count 0: the topic itself. */
void client_topic_open(struct client_topic *t, const char *brokers, const char *topic, int count);
void client_topic_close(struct client_topic *t);

#endif
