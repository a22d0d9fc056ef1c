/* topic.c: the registry of topics and the queues of rows in their lanes. */
#include "denpyo/topic.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "denpyo/partition.h"

#define BUCKETS 4096

void topics_init(struct topics *t) {
    *t = (struct topics){.bucket_count = BUCKETS, .buckets = calloc(BUCKETS, sizeof *t->buckets)};
    if (t->buckets == NULL)
        abort();
}

void topics_free(struct topics *t) {
    for (size_t i = 0; i < t->bucket_count; i++) {
        struct topic *topic = t->buckets[i];
        while (topic != NULL) {
            struct topic *next = topic->next;
            free(topic->lanes);
            free(topic->name);
            free(topic);
            topic = next;
        }
    }
    free(t->buckets);
    *t = (struct topics){0};
}

static size_t bucket_of(const struct topics *t, const char *name, size_t size) {
    return partition_murmur2(name, size) % t->bucket_count;
}

/* org.apache.kafka.common.internals.Topic.validate() */
static bool is_legal(const char *name, size_t size) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    return size > 0 && size <= 249 && strspn(name, letters) == size && strcmp(name, ".") != 0 &&
           strcmp(name, "..") != 0;
}

struct topic *topics_get(struct topics *t, const char *name, size_t size) {
    if (t->last != NULL && t->last->name_size == size && memcmp(t->last->name, name, size) == 0)
        return t->last;
    struct topic **bucket = &t->buckets[bucket_of(t, name, size)];
    for (struct topic *topic = *bucket; topic != NULL; topic = topic->next)
        if (topic->name_size == size && memcmp(topic->name, name, size) == 0)
            return t->last = topic;
    struct topic *topic = calloc(1, sizeof *topic);
    if (topic == NULL || (topic->name = malloc(size + 1)) == NULL)
        abort();
    memcpy(topic->name, name, size);
    topic->name[size] = 0;
    topic->name_size = size;
    topic->is_legal = is_legal(topic->name, size);
    topic->index = -1;
    topic->next = *bucket;
    *bucket = topic;
    t->count++;
    return t->last = topic;
}

struct topic *topics_next(const struct topics *t, const struct topic *after) {
    size_t bucket = 0;
    if (after != NULL) {
        if (after->next != NULL)
            return after->next;
        bucket = bucket_of(t, after->name, after->name_size) + 1;
    }
    for (; bucket < t->bucket_count; bucket++)
        if (t->buckets[bucket] != NULL)
            return t->buckets[bucket];
    return NULL;
}

struct row_queue *topic_lane_next(struct lane *lane) {
    struct row_queue *const order[] = {&lane->retried, &lane->urgent, &lane->waiting};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        if (order[i]->first != NULL)
            return order[i];
    return NULL;
}

void topic_set_partitions(struct topic *topic, int32_t partitions, size_t lane_limit) {
    assert(topic->in_lanes == topic->backlog.count && partitions > 0);
    free(topic->lanes);
    topic->lanes = calloc((size_t)partitions, sizeof *topic->lanes);
    if (topic->lanes == NULL)
        abort();
    for (int32_t i = 0; i < partitions; i++)
        topic->lanes[i] = (struct lane){.topic = topic, .partition = i, .limit = lane_limit};
    topic->partitions = topic->partitions_seen = partitions;
    topic->state = TOPIC_READY;
}
