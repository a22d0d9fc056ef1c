/* kafka_admin.h: one blocking look at a Kafka cluster: does it answer, and which of these topics does it have? */
#ifndef DENPYO_KAFKA_ADMIN_H
#define DENPYO_KAFKA_ADMIN_H

#include <stdbool.h>
#include <stddef.h>

#include "denpyo/fault.h"
#include "denpyo/kafka.h"

struct kafka_admin_topic {
    const char *name; /* given by the caller */
    int partitions;   /* found; 0 = the cluster shows no such topic to us */
    char error[80];   /* "" or what the brokers say about the topic */
};

struct kafka_admin_cluster {
    char id[80]; /* "" when the brokers tell none */
    int brokers;
};

/*
 * Connects with the properties, asks for the metadata of all topics (which never creates one), fills `topics` and
 * *cluster and disconnects. Blocks for at most about timeout_ms. FAULT_USAGE (code "KAFKA_PROPERTY") names a property
 * that librdkafka refuses; FAULT_RETRY (code "BROKER") says why no broker answered.
 */
bool kafka_admin_look(const char *brokers, const struct kafka_property *properties, size_t property_count,
                      int timeout_ms, struct kafka_admin_topic *topics, size_t topic_count,
                      struct kafka_admin_cluster *cluster, struct fault *f) __attribute__((warn_unused_result));

#endif
