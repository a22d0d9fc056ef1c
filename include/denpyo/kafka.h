/* kafka.h: one idempotent producer behind the loop: messages go out, delivery reports come back. */
#ifndef DENPYO_KAFKA_H
#define DENPYO_KAFKA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "denpyo/fault.h"
#include "denpyo/loop.h"
#include "denpyo/worker.h"

struct kafka;
struct kafka_topic; /* librdkafka's topic object; lives as long as the producer */

/* What a delivery report says about the log (rd_kafka_message_status, not the error code, decides). */
enum kafka_delivery { KAFKA_ACKNOWLEDGED, KAFKA_NOT_PERSISTED, KAFKA_MAYBE_PERSISTED };

struct kafka_report {
    void *opaque; /* as given to kafka_produce */
    enum kafka_delivery delivery;
    int code; /* librdkafka's error code, 0 when acknowledged */
    int32_t partition;
    int64_t offset;
};
typedef void (*kafka_report_fn)(void *context, const struct kafka_report *report);

/* A librdkafka property to set over the driver's own. */
struct kafka_property {
    const char *name, *value;
};

struct kafka_options {
    const char *brokers;
    const char *transactional_id; /* NULL: at least once, no transactions */
    const struct kafka_property *properties;
    size_t property_count;
    kafka_report_fn report; /* called from kafka_poll and from the loop */
    void *context;
};

/*
 * Checks the properties and creates the producer; does not wait for a broker. FAULT_USAGE names a property that
 * librdkafka does not know, a bad value, or one that would break a promise (idempotence off, acks other than all, a
 * message time-out). The loop must outlive it.
 */
struct kafka *kafka_open(struct loop *loop, const struct kafka_options *options, struct fault *f);
/* The check of the properties alone. */
bool kafka_check(const struct kafka_options *options, struct fault *f) __attribute__((warn_unused_result));

/*
 * Gives up what is queued or in flight and destroys the producer on the worker (it may block there for seconds), after
 * the look-ups queued before. No report is delivered any more. `closed` (may be NULL) is called on the loop when
 * librdkafka has let go of the messages: until then what they borrow must stay.
 */
void kafka_close(struct kafka *k, struct worker *worker, void (*closed)(void *context), void *context);

/* Limits in force, in bytes and messages: one message (message.max.bytes), one group (batch.size, batch.num.messages).
 */
int64_t kafka_message_max_bytes(const struct kafka *k);
int64_t kafka_group_max_bytes(const struct kafka *k);
int64_t kafka_group_max_messages(const struct kafka *k);
bool kafka_is_compressing(const struct kafka *k); /* then a message's size on the wire is not known beforehand */

/* The topic's object, created at first use (which starts its metadata look-up in the background). Never blocks. */
struct kafka_topic *kafka_topic_open(struct kafka *k, const char *name);
void kafka_topic_close(struct kafka_topic *topic);

struct kafka_header {
    const char *name;
    size_t name_size;
    const char *value; /* NULL = a null value */
    size_t value_size;
};

/* One message. Everything it points to but `id` and headers must stay in place until its report: nothing is copied. */
struct kafka_message {
    struct kafka_topic *topic;
    int32_t partition;
    const char *key; /* NULL = no key */
    size_t key_size;
    const char *value; /* NULL = a tombstone */
    size_t value_size;
    const char *id; /* 36 characters, becomes the first header, "id" */
    const struct kafka_header *headers;
    size_t header_count;
    void *opaque;
};

/* QUEUED: a report will come. FULL: nothing happened, try after the next report. REFUSED: nothing happened, *code says
 * why (librdkafka's error code). */
enum kafka_produced { KAFKA_QUEUED, KAFKA_FULL, KAFKA_REFUSED };
enum kafka_produced kafka_produce(struct kafka *k, const struct kafka_message *message, int *code);

/* A set of partitions that is held back while a group is formed, so that it leaves as one MessageSet. */
void kafka_pause_add(struct kafka *k, const struct kafka_topic *topic, int32_t partition);
void kafka_pause(struct kafka *k);   /* holds back what was added */
void kafka_release(struct kafka *k); /* lets it go, wakes the broker threads, empties the set */

/* Reads all events that are there. The loop does so by itself whenever the producer's descriptor is ready. */
void kafka_poll(struct kafka *k);

/* Whether the last word of the brokers was "all down"; *reason (borrowed, may be "") is the last error's text. */
bool kafka_is_down(const struct kafka *k, const char **reason);
/* A fatal error of the producer: it must be closed and opened anew. code 0 = none. */
int kafka_fatal(struct kafka *k, const char **reason);

/* For the driver's other files: librdkafka's handle (thread-safe), and that a broker has answered. */
struct rd_kafka_s *kafka_client(struct kafka *k);
void kafka_note_reached(struct kafka *k);

/* The cluster's id once a broker was reached, or NULL. Borrowed. Never blocks. */
const char *kafka_cluster_id(struct kafka *k);

const char *kafka_library_version(void);

#endif
