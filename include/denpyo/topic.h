/* topic.h: what the relay knows of each topic: its partitions, their lanes, and the trouble it is in. */
#ifndef DENPYO_TOPIC_H
#define DENPYO_TOPIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "denpyo/queue.h"

struct hold;
struct kafka_topic;
struct row;

/*
 * One partition's lane. Invariants:
 *  1. At most one group of rows is in flight; group_open of its group_size reports are missing.
 *  2. Rows leave `retried` (parked rows that came back, so older than what they held) before `urgent` (put back after
 * a refusal) before `waiting`, each in the order they came.
 *  3. limit >= 1 is how many rows the next group may have: halved after a refusal, doubled after a success.
 */
struct lane {
    struct topic *topic;
    int32_t partition;
    struct row_queue retried, urgent, waiting, refused;
    size_t group_size, group_open;
    size_t limit;
    int64_t sent_us;   /* when the group in flight was handed over */
    bool is_overdue;   /* the group in flight left its batches: see overdue.h */
    struct row *first; /* the lowest of the group, while that is found out */
    bool listed;       /* in the publisher's list of lanes with something to do */
    struct lane *next; /* in that list */
};

/* UNKNOWN: never looked up. READY: partitions > 0. ABSENT: the broker says it does not exist or is not ours to see. */
enum topic_state { TOPIC_UNKNOWN, TOPIC_READY, TOPIC_ABSENT };

struct topic {
    char *name;
    size_t name_size;
    bool is_legal; /* Kafka has topics of such a name */
    enum topic_state state;
    int code; /* ABSENT: librdkafka's code */
    int32_t partitions;
    int32_t partitions_seen; /* what the last look-up said; taken over when nothing of the topic is in the lanes */
    struct lane *lanes;      /* `partitions` of them */
    struct kafka_topic *handle;
    struct row_queue backlog;  /* rows that came before the partitions were known */
    size_t in_lanes;           /* rows in lanes or in flight */
    int64_t max_message_bytes; /* its limit of a record batch, 0 = not known */
    bool is_unmarkable;        /* the broker lets us put no mark there */
    bool is_compacted;         /* refuses records without a key; false also when not known */
    uint64_t answered;         /* the last look-up that was answered, by number */
    bool is_doubted;           /* a row is to be rejected by what was known; all wait for a fresh look-up */
    int64_t looked_up_us;      /* when the last answer came, 0 = never */
    int64_t vanished_us; /* READY: since when look-ups say it is gone while rows of it are in flight, 0 = it is there */
    bool asked;          /* a look-up is wanted */
    uint64_t look_up;    /* the last that it is part of, by number; 0 = none */
    struct hold *hold;   /* the whole topic is held, or NULL */
    struct hold *partition_holds; /* partitions of it that are held, linked through hold.next */
    size_t awaited;               /* rows of it that wait until a partition can be read: see overdue.h */
    size_t key_holds;             /* keys of it that are held */
    uint32_t next_keyless;        /* where the next row without a key goes */
    int index;                    /* place in a settlement's topic_names while one is encoded, else -1 */
    struct topic *next;           /* in the registry's bucket */
};

/* All topics seen so far, by name. */
struct topics {
    struct topic **buckets;
    size_t bucket_count, count;
    struct topic *last; /* the one found last: rows of one topic come in runs */
};

void topics_init(struct topics *t);
void topics_free(struct topics *t);
/* The topic of this name, made UNKNOWN at first sight. Borrowed for the life of the registry. */
struct topic *topics_get(struct topics *t, const char *name, size_t size);
/* Walks all: start with NULL; NULL ends. */
struct topic *topics_next(const struct topics *t, const struct topic *after);

/* The queue whose first row leaves the lane next, or NULL when nothing waits. */
struct row_queue *topic_lane_next(struct lane *lane);

/* Sets the number of partitions and makes fresh lanes; only while nothing is in the lanes. */
void topic_set_partitions(struct topic *topic, int32_t partitions, size_t lane_limit);

#endif
